//! `cargo xtask e2e apps`: ManagedApps and their requests on the real node, with the real controllers of Flux, a Git server
//! and charts.
//! Each case has an operator process of its own, with the permissions and the policies of the chart.
//!
//! The evidence comes from the API server: the objects of Flux and Kubernetes, and the audit log.

mod authors;
mod cluster;
mod discovery;
mod fixture;
mod health;
mod late_flux;
mod manifests;
mod overlap;
mod quiet;
mod releases;
mod upgrades;

use testkit::{cluster::Addition, suite::Case};

use crate::cases::{alone, case, on_bench};

/// Cases at once. Each has an operator, a Git server and its Pods on two cores, and all share the controllers of Flux. Most
/// cases wait for a time that does not depend on the processor, such as the 40 s of an undo.
pub(super) const PARALLEL: usize = 8;

/// A case whose cluster has the controllers of Flux.
fn flux(case: Case) -> Case {
    Case {
        additions: &[Addition::Flux],
        ..case
    }
}

/// A case that also installs the chart `shop`.
fn shop(case: Case) -> Case {
    Case {
        additions: &[Addition::Flux, Addition::Shop],
        ..case
    }
}

/// Those of requests come first, because they are slower.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = upgrades::cases();
    cases.extend(managed_apps());
    cases
}

/// The slow ones first: the others fill the gaps.
fn managed_apps() -> Vec<Case> {
    vec![
        shop(on_bench!(
            "managed-helm",
            "S1.1, R31: workloads, volumes and versions of a chart equal those of the cluster, also after an upgrade",
            discovery::helm
        )),
        shop(case!(
            "real-release",
            "R38: the release Secret of helm-controller is read, and not without 'readReleaseSecrets'",
            releases::real
        )),
        flux(on_bench!(
            "shared-volume",
            "S1.3: a volume of a Deployment and two CronJobs is found once",
            discovery::shared_volume
        )),
        flux(on_bench!(
            "idle",
            "no status is written while Flux reconciles at its intervals",
            quiet::idle
        )),
        flux(on_bench!(
            "managed-kustomize",
            "S1.2: workloads, volumes and images of a Kustomization equal those of the cluster",
            discovery::kustomize
        )),
        flux(on_bench!(
            "breaks",
            "S1.8: a Pod that cannot start is reported within 30 s, and 'orc why' follows it",
            health::breaks
        )),
        flux(on_bench!(
            "broken-commit",
            "a revision that Flux rejects is never reported as healthy",
            health::broken_commit
        )),
        flux(on_bench!(
            "suspended",
            "a suspended Kustomization is named",
            health::suspended
        )),
        flux(on_bench!(
            "overlap",
            "two ManagedApps with a common object: the younger one names the older one",
            overlap::overlap
        )),
        flux(on_bench!(
            "author",
            "an author without permission for the Kustomization is rejected",
            authors::without_permission
        )),
        flux(on_bench!(
            "own-user",
            "an author with permission for the objects of Flux is accepted",
            authors::with_permission
        )),
        // It starts a cluster of its own.
        alone!(
            "no-flux",
            "Flux is installed while a ManagedApp waits for it, without a restart",
            late_flux::installed_later
        ),
    ]
}
