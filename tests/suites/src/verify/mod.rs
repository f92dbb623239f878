//! `cargo xtask testbed verify`: the cluster does what a real one does.

pub(crate) mod fixture;
mod flux;
mod kwok;
mod network;
mod node;
mod requests;
pub(crate) mod shop;
mod snapshots;
mod suspend;
mod workloads;

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use futures::FutureExt;
use testkit::{
    cluster::{Addition, Cluster, Tier},
    suite::{CASE_LIMIT, Case, When},
};

/// Two cores: more at once only makes each slower.
const PARALLEL: usize = 4;

/// Until Flux and snapshots work on a cluster that is ready otherwise. A goal for an idle machine, not a limit.
const ADDITIONS_GOAL: Duration = Duration::from_secs(15);

macro_rules! case {
    ($tier:ident, $name:literal, $shows:literal, $run:path) => {
        Case {
            name: $name,
            shows: $shows,
            tier: Tier::$tier,
            additions: &[],
            suite: "",
            when: When::Together,
            limit: CASE_LIMIT,
            run: |env| $run(env).boxed(),
        }
    };
}

fn cases() -> Vec<Case> {
    vec![
        case!(
            Node,
            "job",
            "a Job from a local image completes, logs and exec are read through the API",
            workloads::job
        ),
        case!(
            Node,
            "oom",
            "a container over its memory limit is OOMKilled",
            workloads::out_of_memory
        ),
        case!(
            Node,
            "image",
            "an unknown image is reported",
            workloads::unknown_image
        ),
        case!(
            Node,
            "volume",
            "a PVC is provisioned, written, and read by a second Pod",
            workloads::volume
        ),
        case!(
            Node,
            "eviction",
            "the eviction API evicts, and a PodDisruptionBudget stops it",
            workloads::eviction
        ),
        case!(
            Node,
            "dns",
            "a Service is reached by its DNS name",
            network::service_by_name
        ),
        case!(
            Node,
            "policy",
            "a default-deny NetworkPolicy blocks, an allow rule opens again",
            network::policy
        ),
        case!(
            Node,
            "quota",
            "a ResourceQuota refuses a Pod",
            requests::quota
        ),
        case!(
            Node,
            "podsecurity",
            "Pod Security 'restricted' refuses a privileged Pod",
            requests::pod_security
        ),
        case!(
            Api,
            "audit",
            "the audit reader's counts equal what was done",
            requests::audit
        ),
        case!(
            Kwok,
            "kwok",
            "kwok completes 1,000 Jobs",
            kwok::thousand_jobs
        ),
        with(
            &[Addition::Flux],
            case!(
                Node,
                "kustomization",
                "Flux applies a Kustomization with its inventory, and prunes",
                flux::kustomization
            ),
        ),
        with(
            &[Addition::Flux],
            case!(
                Node,
                "helmrelease",
                "Flux installs and upgrades a HelmRelease with its release Secrets",
                flux::helm_release
            ),
        ),
        with(
            &[Addition::Flux],
            case!(
                Node,
                "suspend",
                "lastHandledReconcileAt shows a suspension after the running Helm action only",
                suspend::during_an_action
            ),
        ),
        with(
            &[Addition::Flux, Addition::Shop],
            case!(
                Node,
                "shop",
                "the versions of the chart 'shop' migrate and fail as they should",
                shop::versions
            ),
        ),
        with(
            &[Addition::Snapshots],
            case!(
                Node,
                "snapshot",
                "a snapshot is restored with the old content under WaitForFirstConsumer",
                snapshots::restore
            ),
        ),
        case!(
            Node,
            "volumename",
            "a PVC is bound to a PV by volumeName, with a claimRef without UID",
            snapshots::bind_by_name
        ),
        Case {
            when: When::Alone,
            ..case!(
                Node,
                "csi-sanity",
                "the volume driver passes csi-sanity",
                workloads::csi_sanity
            )
        },
        Case {
            when: When::Alone,
            ..case!(
                Node,
                "kubelet",
                "a stopped kubelet makes the node NotReady, and it comes back",
                node::kubelet
            )
        },
    ]
}

/// Runs all cases, or those whose names are given.
pub(crate) async fn run(only: &[String]) -> Result<ExitCode> {
    crate::cases::run_prepared("verify", cases(), only, PARALLEL, async |cluster| {
        print_additions(cluster);
        Ok(())
    })
    .await
}

/// A case whose cluster needs more than its tier.
fn with(additions: &'static [Addition], case: Case) -> Case {
    Case { additions, ..case }
}

fn print_additions(cluster: &Cluster) {
    let Some(times) = &cluster.times else { return };
    if !times.additions.is_empty() {
        println!(
            "additions took {:.1} s more; the goal on an idle machine is {} s",
            times.added().as_secs_f64(),
            ADDITIONS_GOAL.as_secs()
        );
    }
}
