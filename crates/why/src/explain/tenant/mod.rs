//! A Tenant: its topics in order, and its own link at the head of the chain.

mod context;
mod isolation;
mod namespace;
mod parts;
mod pod;
mod terminating;

use api::status::condition::READY;
use api::tenants::{TenantPhase, condition};

use super::deletion::Deletion;
use super::run::is_label_of;
use super::*;

/// The effect of a change of the Tenant.
pub(super) const AFTER_EDIT: &str = "A change of the Tenant counts by itself.";
/// Time in seconds that the operator's own remaining work may take. Normally it takes seconds.
const SOON: i64 = 60;

impl<'a> Explain<'a> for Tenant<'a> {
    fn find(self) -> Finding {
        // The order matters: a state that makes all later topics irrelevant comes first.
        faults::undecodable(*self)
            .or_else(|| deletion(self))
            .or_else(|| operator::not_seen(*self))
            .or_else(|| namespace::find(self))
            .or_else(|| faults::find(Origin::Tenant(self, None)))
            .or_else(|| suspended(self))
            .or_else(|| parts::find(self))
            .unwrap_or_else(|| stand(self))
    }

    /// Returns whether the status is outdated. It is if its cause no longer exists in the cluster,
    /// or if it has no cause although something blocks.
    fn is_outdated(self, finding: &Finding) -> bool {
        let Some(said) = self.reason() else {
            return false;
        };
        let mut links = finding.links.iter();
        let shown = links.any(|link| {
            is_label_of(&link.reason, said)
                || (said == Reason::AdmissionDenied && FINER.contains(&link.reason.as_str()))
        });
        if finding.state == State::Deleting {
            return !matches!(said, Reason::Deleting | Reason::DeletionBlocked);
        }
        let is_vague = matches!(
            said,
            Reason::Progressing | Reason::Ready | Reason::NotReady | Reason::Created
        );
        let deepest = finding.cause();
        let is_wrong = deepest.is_some_and(|link| link.health == Health::Error);
        let is_said = said == Reason::Ready && !finding.links.is_empty();
        matches!(finding.state, State::Waiting | State::Blocked)
            && ((CAUSES.contains(&said) && !shown) || (is_vague && is_wrong) || is_said)
    }

    /// Adds a note about missing isolation. The user must not miss it because of another problem.
    fn finish(self, finding: Finding) -> Finding {
        let is_other = matches!(
            finding.state,
            State::Waiting | State::Blocked | State::Suspended
        );
        match self.condition(condition::NETWORK_ISOLATED) {
            Some(known) if is_other && known.status == "False" => {
                let (reason, message) = (&known.reason, &known.message);
                finding.note(format!("it is not isolated, either ({reason}): {message}"))
            }
            Some(_) | None => finding,
        }
    }

    fn own(self, finding: &Finding) -> (Health, String) {
        let sentence = match finding.state {
            State::Deleting => {
                let since = self.since(self.meta.deleting.as_ref());
                let policy = &self.view.deletion;
                return (
                    Health::Waiting,
                    format!("is being deleted{since} by its policy '{policy}'"),
                );
            }
            State::Ready => {
                return (Health::Ok, "is ready, and proven to be isolated".to_owned());
            }
            State::Suspended => "is suspended",
            State::NotIsolated => "is ready, but not isolated:",
            State::NotProven => "is ready; whether it is isolated is not known:",
            State::Succeeded
            | State::Failed
            | State::Running
            | State::Waiting
            | State::Blocked
            | State::Unmanaged => match finding.links.is_empty() {
                true => "is being set up",
                false => "is not ready, and waits for:",
            },
        };
        (Health::Waiting, sentence.to_owned())
    }

    fn more(self) -> Option<Evidence> {
        let is_running = self.view.status.phase == Some(TenantPhase::Running);
        let known = self.condition(condition::NETWORK_ISOLATED)?;
        is_running.then(|| Evidence::of(known))
    }

    /// Returns the first line: the message of the status, or the message about isolation if the
    /// Tenant is ready.
    fn summary(self, state: State) -> Summary {
        let is_ready = matches!(state, State::NotIsolated | State::NotProven);
        let isolated = self
            .condition(condition::NETWORK_ISOLATED)
            .filter(|_| is_ready);
        let main = isolated.or_else(|| self.main());
        let since = self.meta.deleting.as_ref();
        let since = since.or(main.map(|known| &known.last_transition_time));
        let mut summary = (*self).summary(since.or(self.meta.created.as_ref()).cloned());
        if let Some(isolated) = isolated {
            summary.text.clone_from(&isolated.message);
            summary.reason.clone_from(&isolated.reason);
        }
        summary
    }
}

/// Returns the Tenant's own link, with its status as evidence.
fn own(tenant: Tenant<'_>, health: Health, reason: &str, sentence: &str) -> Link {
    tenant.own_link(health, reason, sentence, tenant.more())
}

/// Explains a Tenant that is being deleted, according to its deletion policy.
fn deletion(tenant: Tenant<'_>) -> Option<Finding> {
    let deletion = Deletion {
        finalizer: "tenants.orchestrator.io/finalizer",
        limit: i64::try_from(tenant.view.deadline_seconds).unwrap_or(i64::MAX),
        is_forced: tenant.view.force_delete,
        risk: "what is left of its namespace is then nobody's",
        done: "what its policy asks for is done; ",
    };
    deletion.explain(*tenant, || policy(tenant))
}

/// Explains that our finalizer waits until the deletion policy is applied.
fn policy(tenant: Tenant<'_>) -> Finding {
    let known = tenant.world.namespace.as_ref();
    let namespace = known.filter(|namespace| tenant.is_own(namespace));
    if let Some(namespace) = namespace.filter(|namespace| namespace.deleting.is_some()) {
        let whose = "with everything in it";
        return terminating::find(tenant, namespace, Reason::Deleting, whose);
    }
    if let Some(pod) = tenant.probes().next() {
        return finding! { Deleting "Wait: the Pods that tried its connections are taken away first.";
            link stop::stopped(*tenant, pod, Stop::Ours(Reason::Deleting));
            then tenant.look_again();
        };
    }
    let age = tenant.age(tenant.meta.deleting.as_ref());
    let late = |words: &str| match age > SOON {
        true => {
            text! { "What is left to be done is the operator's, and it has not been for {}: look into its log.", times::span(age) }
        }
        false => words.to_owned(),
    };
    let log = operator::log(tenant.world);
    if namespace.is_none() {
        let is_gone = tenant.exists("Namespace", tenant.namespace) == Some(false);
        let advice = match known.is_some() || is_gone {
            true => late("Wait: nothing is left of the Tenant, and the operator removes its finalizer within seconds."),
            false => "Wait, or ask whoever may see its namespace what is left there: the first lines say what the operator waits for.".to_owned(),
        };
        return finding! { Deleting (advice); then tenant.look_again(), log; };
    }
    let (sentence, asked) = match tenant.view.deletion.as_str() {
        "Retain" => (
            "stays with its quota and network policies; the RoleBinding of its owners is deleted",
            "never: 'deletion.policy' is Retain",
        ),
        _ => ("is about to be deleted with everything in it", "not yet"),
    };
    finding! { Deleting "{} If it stays so, read the operator's log.", late("Wait: this takes seconds.");
        Waiting tenant.place(), Reason::Deleting, (sentence); seen tenant.seen("deletion asked for", asked);
        then tenant.look_again(), log;
    }
}

/// Explains a suspended Tenant. Its server and its Redis are stopped or are being stopped.
fn suspended(tenant: Tenant<'_>) -> Option<Finding> {
    if !tenant.view.suspend {
        return None;
    }
    let mut pods = tenant.pods("redis").chain(tenant.pods("server"));
    let left = pods.find(|pod| pod.may_run());
    let how = match (left.is_some(), tenant.was_read("pods")) {
        (true, _) => "are being stopped",
        (false, true) => "are stopped",
        (false, false) => "are stopped, or are being stopped",
    };
    let name = tenant.name();
    Some(finding! {
        Suspended "Check that Tenant '{name}' was not suspended on purpose, then set 'spec.suspend' to false: server and Redis start again with their data.";
        Waiting tenant.object(), Reason::Suspended, "is suspended by 'spec.suspend': server and Redis {how}, their data stays";
        since tenant.changed; seen "spec.suspend" => "true", tenant.changed;
        link left.map(|pod| stop::stopped(*tenant, pod, Stop::Ours(Reason::Suspended)));
        then tenant.object().who("who set 'suspend'");
        shell "orc resume tenant/{name}" => "let it go on";
        shell "kubectl patch oten {name} --type=merge -p '{{\"spec\":{{\"suspend\":false}}}}'" => "the same without orc";
    })
}

/// Explains a Tenant for which every requested object exists, as far as we can read them.
fn stand(tenant: Tenant<'_>) -> Finding {
    if tenant.progress.is_true(READY) {
        return isolation::find(tenant);
    }
    let is_vague = matches!(
        tenant.reason(),
        None | Some(Reason::Progressing | Reason::Ready | Reason::Created)
    );
    // The earlier problem no longer exists. The operator will report that in a moment.
    let (reason, sentence, advice) = match is_vague {
        true => (
            "Progressing",
            "its namespace and what belongs in it are being set up",
            "Wait: this takes seconds. If it stays so for minutes, read the operator's log.",
        ),
        false => (
            "ReadyNow",
            "what it asks for is there by now; the operator has not said so yet",
            "Wait: everything that can be seen is as it should be by now, and the operator says so within seconds. If it does not, read its log.",
        ),
    };
    finding! { Waiting (advice);
        link own(tenant, Health::Waiting, reason, sentence); newer if !is_vague;
        then tenant.look_again(), operator::log(tenant.world);
    }
}

/// Causes in a status that must also be visible in the cluster.
const CAUSES: &[Reason] = &[
    Reason::NamespaceTaken,
    Reason::NamespaceTerminating,
    Reason::ImagePullFailed,
    Reason::ImageNeedsRoot,
    Reason::ContainerNotStartable,
    Reason::CrashLoop,
    Reason::ProbeFailed,
    Reason::Unschedulable,
    Reason::QuotaExceeded,
    Reason::AdmissionDenied,
    Reason::SecretNotFound,
    Reason::VolumeNotReady,
    Reason::Suspended,
];

/// Further reasons of links that are more exact forms of `AdmissionDenied` in the status.
const FINER: &[&str] = &["LimitRangeExceeded", "InvalidChild", "DependencyNotReady"];
