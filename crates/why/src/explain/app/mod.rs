//! A ManagedApp: its topics in order. The live objects count before the status.

mod flux;
mod pod;
mod references;
mod workload;

use api::status::condition::{READY, STALLED};

use super::deletion::Deletion;
use super::run::is_label_of;
use super::*;

impl<'a> Explain<'a> for App<'a> {
    fn find(self) -> Finding {
        // The order matters: a state that makes all later topics irrelevant comes first.
        faults::undecodable(*self)
            .or_else(|| deletion(self))
            .or_else(|| operator::not_seen(*self))
            .or_else(|| operation(self))
            .or_else(|| references::find(self))
            .or_else(|| flux::deleted(self))
            .or_else(|| flux::suspended(self))
            .or_else(|| workload::find(self))
            .or_else(|| flux::find(self))
            .unwrap_or_else(|| stand(self))
    }

    /// Returns whether the status is outdated: something is wrong that it does not report, or nothing is wrong any more.
    fn is_outdated(self, finding: &Finding) -> bool {
        let Some(said) = self.reason() else {
            return false;
        };
        let mut links = finding.links.iter();
        let is_shown = links.any(|link| is_label_of(&link.reason, said));
        match said {
            Reason::Ready => !finding.links.is_empty() && finding.state != State::Deleting,
            Reason::AlreadySuspended => !is_shown,
            _ => false,
        }
    }

    fn own(self, finding: &Finding) -> (Health, String) {
        let (health, sentence) = match finding.state {
            State::Ready => (Health::Ok, "is ready"),
            State::Deleting => (Health::Waiting, "is being deleted"),
            State::Waiting if finding.links.is_empty() => (Health::Waiting, "is not ready yet"),
            State::Succeeded
            | State::Failed
            | State::Running
            | State::Waiting
            | State::Blocked
            | State::Suspended
            | State::NotIsolated
            | State::NotProven
            | State::Unmanaged => (Health::Waiting, "is not ready, because of:"),
        };
        (health, sentence.to_owned())
    }

    fn more(self) -> Option<Evidence> {
        self.main().map(Evidence::of)
    }
}

impl<'a> App<'a> {
    /// Returns the Kustomization that the ManagedApp references.
    fn kustomization(self) -> ObjectRef {
        let AppView {
            kustomization,
            kustomization_namespace,
            ..
        } = self.view;
        ObjectRef::namespaced("Kustomization", kustomization_namespace, kustomization)
    }

    /// Returns the HelmRelease of the application, if it is known.
    fn helm_release(self) -> Option<ObjectRef> {
        let found = self.view.status.helm_release.as_ref()?;
        Some(ObjectRef::namespaced(
            "HelmRelease",
            &found.namespace,
            &found.name,
        ))
    }

    /// Returns the objects of Flux, the Kustomization first.
    fn flux(self) -> impl Iterator<Item = &'a FluxView> {
        self.world.flux.iter()
    }

    /// Returns whether this very object exists, or `None` if it was not read.
    fn has(self, object: &ObjectRef) -> Option<bool> {
        let mut known = self.world.known.iter();
        let known = known.find(|known| known.object == *object)?;
        Some(known.exists)
    }
}

impl FluxView {
    fn object(&self) -> ObjectRef {
        self.meta.object(&self.kind)
    }
}

/// Time in seconds after which the operator reports the deletion of a ManagedApp as blocked.
const DELETION_LIMIT: i64 = 15 * 60;

/// Explains a ManagedApp that is being deleted. It waits for a request that changes it, and for its snapshots.
fn deletion(app: App<'_>) -> Option<Finding> {
    let deletion = Deletion {
        finalizer: "managedapps.orchestrator.io/finalizer",
        limit: DELETION_LIMIT,
        is_forced: false,
        risk: "its request continues, and its snapshots stay",
        done: "",
    };
    deletion.explain(*app, || {
        let wait = "Wait: the operator deletes it when nothing of it is left.";
        let named = request::objects(app.message(), app.namespace);
        let snapshot = named.into_iter().next();
        let finding = active(app).unwrap_or_else(|| finding! { Deleting (wait); });
        match snapshot.filter(|_| finding.links.is_empty()) {
            Some(object) => {
                let next = object.describe("its finalizers and its Events");
                let link = link! { Waiting object, Reason::Deleting, "is deleted first"; seen app.said(); };
                finding.link(link).then(next)
            }
            None => finding,
        }
    })
}

/// Explains a ManagedApp that a request changes, or whose lock the operator recovers.
fn operation(app: App<'_>) -> Option<Finding> {
    match app.reason()? {
        Reason::OperationActive => active(app),
        Reason::LockRecovered => {
            let named = request::objects(app.message(), app.namespace);
            let object = named.into_iter().next();
            let object = object.unwrap_or_else(|| app.kustomization());
            let next = object.who("'metadata.annotations' has the lock, if it is still there");
            Some(finding! {
                Waiting "Wait: the operator returns the application to the state before the request. Find out who removed the finalizer of the request.";
                Waiting object, Reason::LockRecovered, "was left by a request that was removed by hand"; seen app.said();
                then next, app.look_again();
            })
        }
        _ => None,
    }
}

/// Explains the request that changes the application.
fn active(app: App<'_>) -> Option<Finding> {
    let operation = app.view.status.active_operation.as_ref()?;
    let (kind, name, phase) = (&operation.kind, &operation.name, &operation.phase);
    let (object, within) = (app.here(kind, name), app.namespace);
    let target = kind.to_lowercase();
    Some(finding! {
        Waiting "Wait: the request changes the application. Meanwhile, Flux may be suspended, and workloads may be stopped.";
        Waiting object, Reason::OperationActive, "is in phase {phase}"; seen app.said();
        shell "orc why {target}/{name} -n {within}" => "the object that the request waits for";
        then app.look_again();
    })
}

/// Returns the live problem of an application, for a request that waits for it.
pub(super) fn problem(app: App<'_>) -> Option<Finding> {
    let found = workload::find(app).or_else(|| flux::find(app))?;
    (!found.links.is_empty()).then_some(found)
}

/// Explains a ManagedApp by its conditions: nothing in the cluster shows a problem, or it could not be read.
fn stand(app: App<'_>) -> Finding {
    if app.progress.is_true(READY) {
        return finding! { Ready "";
            then app.object().describe("its versions, workloads and volumes"), app.look_again();
        };
    }
    let said = app.reason();
    let is_live = matches!(
        said,
        Some(
            Reason::Unhealthy | Reason::Comparing | Reason::Progressing | Reason::AlreadySuspended
        )
    );
    let has_read = app.world.unreadable.is_empty() && !app.world.flux.is_empty();
    if is_live && has_read {
        return finding! {
            Waiting "Wait: Flux and the workloads are as they should be by now, and the operator reports it within 30 seconds. If it does not, read its log.";
            link app.own_link(Health::Waiting, "ReadyNow", "is not reported as ready yet, though nothing is wrong by now", app.more());
            newer; then app.look_again(), operator::log(app.world);
        };
    }
    let advice = said.map_or_else(
        || "Read the message above, then the operator's log.".to_owned(),
        plain_advice,
    );
    let state = match app.progress.is_true(STALLED) {
        true => State::Blocked,
        false => State::Waiting,
    };
    finding! { (state) (advice);
        then app.object().describe("its status and its Events"), operator::log(app.world);
    }
}
