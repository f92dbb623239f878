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

/// Explains a ManagedApp that is being deleted. The operator sets no finalizer on it.
fn deletion(app: App<'_>) -> Option<Finding> {
    let deletion = Deletion {
        finalizer: "",
        limit: i64::MAX,
        is_forced: false,
        risk: "",
        done: "",
    };
    deletion.explain(
        *app,
        || finding! { Deleting "Wait: it is deleted in a moment."; },
    )
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
