//! Decides the status of a ManagedApp. Without requests, a decision has no effects: the operator only reports. With them, it
//! deletes old snapshots, lets the cluster reclaim replaced volumes, and recovers lost locks ([`crate::operations`]).

mod status;
#[cfg(test)]
mod tests;

use std::time::Duration;

use api::{
    Reason, Timestamp, Verdict,
    apps::{AppPhase, ManagedApp, ManagedAppStatus, NamespacedName},
    decide::{Decision, Input},
    messages,
    status::condition,
    time,
};

use crate::{
    deletion,
    discover::{self, Problem},
    flux::{FluxObject, FluxState, HelmReleaseView, KustomizationView},
    health::{Expectation, FluxMember, Health, check},
    object::{ObjectId, ObjectKind},
    operations, versions,
    world::{AppWorld, Discovery, Objects, Seen},
};

/// Maximum age of a status. Events trigger earlier reconciliations; this limit holds if one is lost.
const MAX_AGE: Duration = Duration::from_secs(30);

/// Decides the status.
#[must_use]
pub fn decide(input: &Input<'_, ManagedApp, AppWorld>) -> Decision<ManagedAppStatus> {
    if input.object.metadata.deletion_timestamp.is_some() {
        return deletion::decide(input);
    }
    let stored = input.object.status.clone().unwrap_or_default();
    let world = input.world;
    let state = AppState {
        world,
        stored: &stored,
        was_ready: stored.progress.is_true(condition::READY),
        expected: &Expectation::default(),
        now: input.now,
    };
    let result = judge(&state);
    let was_late = stored.phase == Some(AppPhase::Degraded)
        && stored.progress.reason.as_deref() == Some(result.reason().name());
    let phase = match &result {
        Report::Ready(_) => AppPhase::Ready,
        // A change that took too long stays `Degraded` until it ends. Otherwise its time would begin again.
        Report::Changing(_) if input.overdue || was_late => AppPhase::Degraded,
        Report::Changing(_) => AppPhase::Pending,
        Report::Waiting(_) | Report::Stalled(_) => AppPhase::Degraded,
    };
    let new_success = state.settles_at();
    let status = status::observed(stored, world);
    let decision = Decision::status_only(status, phase, result.verdict());
    let decision = decision.requeue_at(time::after(input.now, MAX_AGE));
    let decision = match new_success {
        Some(at) => decision.requeue_at(at),
        None => decision,
    };
    match &world.operations {
        Some(operations) => operations::report(input, operations, decision),
        None => decision.remove_finalizer(),
    }
}

/// Returns whether an application is healthy, for an operation that changes it. `was_healthy` is whether it was until now.
///
/// # Errors
/// The problem: of the references, of the discovery, or of the health.
pub(crate) fn health(
    world: &AppWorld,
    expected: &Expectation,
    was_healthy: bool,
    now: Timestamp,
) -> Result<(), Problem> {
    // A reconciliation of Flux at its interval is no interruption, as long as the versions stay.
    let release = world.release();
    let kustomization = world.kustomization.present();
    let seen = ManagedAppStatus {
        git: kustomization.and_then(|found| versions::applied(found, release)),
        release: release.and_then(versions::deployed),
        ..ManagedAppStatus::default()
    };
    let state = AppState {
        world,
        stored: &seen,
        was_ready: was_healthy,
        expected,
        now,
    };
    match judge(&state) {
        Report::Ready(_) => Ok(()),
        Report::Changing(problem) | Report::Waiting(problem) | Report::Stalled(problem) => {
            Err(problem)
        }
    }
}

/// The inputs of a decision.
struct AppState<'a> {
    world: &'a AppWorld,
    stored: &'a ManagedAppStatus,
    /// Whether the application was ready until now.
    was_ready: bool,
    expected: &'a Expectation,
    now: Timestamp,
}

/// The result of a decision.
enum Report {
    /// The application is healthy.
    Ready(String),
    /// A change is applied.
    Changing(Problem),
    /// Something is wrong, and an event in the cluster ends it.
    Waiting(Problem),
    /// Something is wrong, and a user must act.
    Stalled(Problem),
}

impl Report {
    fn reason(&self) -> Reason {
        match self {
            Self::Ready(_) => Reason::Ready,
            Self::Changing(problem) | Self::Waiting(problem) | Self::Stalled(problem) => {
                problem.reason
            }
        }
    }

    fn verdict(self) -> Verdict {
        match self {
            Self::Ready(message) => Verdict::ready(message),
            Self::Changing(problem) | Self::Waiting(problem) => {
                Verdict::working(problem.reason, problem.message)
            }
            Self::Stalled(problem) => Verdict::stalled(problem.reason, problem.message),
        }
    }
}

fn waiting(reason: Reason, message: String) -> Report {
    Report::Waiting(Problem::new(reason, message))
}

fn stalled(reason: Reason, message: String) -> Report {
    Report::Stalled(Problem::new(reason, message))
}

/// Checks the references, then the discovery, then the health. The first problem counts.
fn judge(state: &AppState<'_>) -> Report {
    let world = state.world;
    let id = ObjectId::named(ObjectKind::Kustomization, &world.kustomization_name);
    let kustomization = match readable(&id, &world.kustomization) {
        Ok(kustomization) => kustomization,
        Err(report) => return report,
    };
    if let Some(overlap) = &world.overlap {
        let message = messages::overlap(&overlap.object.to_string(), &overlap.older.to_string());
        return stalled(Reason::AppOverlaps, message);
    }
    if let Some(report) = unusable(&id, &kustomization.flux) {
        return report;
    }
    let of_kustomization = FluxMember {
        id: id.clone(),
        state: state.of_kustomization(kustomization),
    };
    let release = match &world.helm_release {
        Ok(release) => release.as_ref(),
        // An inventory that is not complete may lack the HelmRelease.
        Err(problem) => return state.unless_changing(&[of_kustomization], problem),
    };
    let Some((name, seen)) = release else {
        return state.objects(kustomization, None, vec![of_kustomization]);
    };
    match of_release(state, name, seen) {
        Ok((helm, member)) => {
            state.objects(kustomization, Some(helm), vec![of_kustomization, member])
        }
        Err(report) => report,
    }
}

fn of_release<'a>(
    state: &AppState<'a>,
    name: &NamespacedName,
    seen: &'a Seen<HelmReleaseView>,
) -> Result<(&'a HelmReleaseView, FluxMember), Report> {
    let id = ObjectId::named(ObjectKind::HelmRelease, name);
    let helm = readable(&id, seen)?;
    match unusable(&id, &helm.flux) {
        Some(report) => Err(report),
        None => {
            let state = state.of_release(helm);
            Ok((helm, FluxMember { id, state }))
        }
    }
}

/// Returns the object of Flux, or the reason why its state is not known.
fn readable<'a, T>(id: &ObjectId, seen: &'a Seen<T>) -> Result<&'a T, Report> {
    let kind = id.kind.name();
    Err(match seen {
        Seen::Present(object) => return Ok(object),
        Seen::NotInstalled => waiting(
            Reason::FluxNotInstalled,
            format!(
                "the API server does not serve the type of {id}. Install Flux with its {kind} controller; the operator finds it within 30 seconds"
            ),
        ),
        Seen::NotWatched => not_watched(&id.namespace, &format!("{id} is")),
        Seen::Unreadable(why) => waiting(
            Reason::FluxObjectUnreadable,
            format!("{id} cannot be read: {why}"),
        ),
        Seen::Absent => waiting(
            Reason::FluxObjectNotFound,
            format!("{id} does not exist. Create it, or correct the reference"),
        ),
    })
}

fn not_watched(namespace: &str, what: &str) -> Report {
    stalled(
        Reason::NamespaceNotWatched,
        format!(
            "{what} in namespace '{namespace}', which the operator does not watch. Add it to 'watchNamespaces' of the chart"
        ),
    )
}

/// Returns a report about an object of Flux that does not show the state of the application.
fn unusable(id: &ObjectId, flux: &FluxObject) -> Option<Report> {
    flux.is_remote.then(|| {
        stalled(
            Reason::RemoteCluster,
            format!("{id} applies to another cluster ('spec.kubeConfig'). Create the ManagedApp in that cluster"),
        )
    })
}

impl AppState<'_> {
    /// Returns the state of the Kustomization. A status that is Ready at another revision is no evidence for this one.
    fn of_kustomization(&self, found: &KustomizationView) -> FluxState {
        let stored = self.stored.git.as_ref().map(|git| &git.revision);
        let was_ready = self.was_ready && stored == found.revision.as_ref();
        found.flux.state(was_ready, self.now)
    }

    /// Returns the state of the HelmRelease. A status that is Ready at another release is no evidence for this one.
    fn of_release(&self, found: &HelmReleaseView) -> FluxState {
        let was_ready = self.was_ready && self.stored.release == versions::deployed(found);
        found.flux.state(was_ready, self.now)
    }

    /// Returns when a success of Flux that is new counts.
    fn settles_at(&self) -> Option<Timestamp> {
        let kustomization = self.world.kustomization.present();
        let all = [
            kustomization.and_then(|found| found.flux.settles_at(self.now)),
            self.world
                .release()
                .and_then(|found| found.flux.settles_at(self.now)),
        ];
        all.into_iter().flat_map(|at| at.into_iter()).max()
    }

    /// Reports a problem of the discovery, unless Flux applies a change that may end it, or fails.
    fn unless_changing(&self, flux: &[FluxMember], problem: &Problem) -> Report {
        let is_settled = |member: &FluxMember| member.state == FluxState::Settled;
        if flux.iter().all(is_settled) {
            return Report::Stalled(problem.clone());
        }
        match check(flux, &[], &Expectation::default(), &[], self.now) {
            Health::Changing(problem) => Report::Changing(problem),
            Health::Unhealthy(problem) => Report::Waiting(problem),
            Health::Healthy(_) => Report::Stalled(problem.clone()),
        }
    }

    fn objects(
        &self,
        kustomization: &KustomizationView,
        helm: Option<&HelmReleaseView>,
        flux: Vec<FluxMember>,
    ) -> Report {
        let objects = match &self.world.discovery {
            Discovery::Found(objects) => objects,
            Discovery::Failed(problem) => return self.unless_changing(&flux, problem),
        };
        if let Some(namespace) = objects.unwatched.first() {
            return not_watched(namespace, "an object of the application is");
        }
        if let Some(id) = objects.foreign.first() {
            let problem = discover::foreign(id, kustomization, helm);
            return self.unless_changing(&flux, &problem);
        }
        let Objects { members, .. } = objects;
        let warnings = &self.world.warnings;
        match check(&flux, members, self.expected, warnings, self.now) {
            Health::Healthy(count) => Report::Ready(ready(count, kustomization, helm)),
            Health::Changing(problem) => Report::Changing(problem),
            Health::Unhealthy(problem) => Report::Waiting(problem),
        }
    }
}

/// Formats the message of a healthy application.
fn ready(
    count: usize,
    kustomization: &KustomizationView,
    helm: Option<&HelmReleaseView>,
) -> String {
    let workloads = match count {
        1 => "1 workload is ready".to_owned(),
        count => format!("{count} workloads are ready"),
    };
    let revision = kustomization.revision.as_deref().unwrap_or("unknown");
    let newest = helm.and_then(|helm| helm.newest.as_ref());
    let chart = newest.map_or_else(String::new, |newest| {
        format!(", chart version {}", newest.chart_version)
    });
    format!("{workloads} at revision '{revision}'{chart}")
}
