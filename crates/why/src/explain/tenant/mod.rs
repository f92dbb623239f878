//! A Tenant: selects the topic that explains it, and puts the Tenant's own link at the head of the
//! chain.

mod capacity;
mod context;
mod deletion;
mod faults;
mod isolation;
mod namespace;
mod parts;
mod pod;
mod refused;
mod terminating;
mod volume;

use api::{
    Reason,
    status::condition::READY,
    tenants::{TenantPhase, condition},
};

use super::{
    Finding, Summary, commands, conclude,
    operator::{self, Looked},
};
use crate::{
    explanation::{Command, Explanation, Health, Link, Note, NoteKind, State},
    world::{TenantView, World},
};
use context::TenantContext;

/// Explains the state of a Tenant.
pub(super) fn explain(world: &World, tenant: &TenantView) -> Explanation {
    let context = TenantContext { world, tenant };
    // The order matters: a state that makes all later topics irrelevant comes first.
    let finding = undecodable(context)
        .or_else(|| deletion::find(context))
        .or_else(|| not_seen(context))
        .or_else(|| namespace::find(context))
        .or_else(|| faults::find(context))
        .or_else(|| suspended(context))
        .or_else(|| parts::find(context))
        .unwrap_or_else(|| stand(context));
    let mut finding = operator::needed(world, finding);
    finding.is_newer |= is_outdated(context, &finding);
    finding.notes.extend(not_isolated(context, &finding));
    if finding.next.is_empty() {
        finding = finding.then(commands::yaml(
            &context.object(),
            "all that is known of the Tenant",
        ));
    }
    let summary = summary(context, finding.state);
    let finding = with_own_link(context, finding);
    conclude(world, &context.object(), summary, finding)
}

/// Returns the first line: the message of the status, or the message about isolation if the Tenant
/// is ready.
fn summary(context: TenantContext<'_>, state: State) -> Summary {
    let progress = &context.tenant.status.progress;
    let isolated = match state {
        State::NotIsolated | State::NotProven => context.condition(condition::NETWORK_ISOLATED),
        State::Succeeded
        | State::Failed
        | State::Running
        | State::Waiting
        | State::Blocked
        | State::Suspended
        | State::Deleting
        | State::Ready
        | State::Unmanaged => None,
    };
    let main = isolated.or_else(|| context.condition(READY));
    let message = match (isolated, progress.message.as_deref()) {
        (Some(isolated), _) => isolated.message.clone(),
        (None, Some(message)) if !message.is_empty() => message.to_owned(),
        (None, _) => "the Tenant has no status yet".to_owned(),
    };
    Summary {
        text: message,
        reason: main.map_or_else(|| "NotSeen".to_owned(), |known| known.reason.clone()),
        since: context
            .tenant
            .meta
            .deleting
            .clone()
            .or_else(|| main.map(|known| known.last_transition_time.clone()))
            .or_else(|| context.tenant.meta.created.clone()),
        written: progress.last_updated.clone(),
    }
}

/// Puts the Tenant's own link in front, unless a topic already did.
fn with_own_link(context: TenantContext<'_>, finding: Finding) -> Finding {
    let is_there = finding
        .links
        .first()
        .is_some_and(|link| link.object == context.object());
    if is_there {
        return finding;
    }
    let (health, sentence) = match finding.state {
        State::Deleting => (
            Health::Waiting,
            format!(
                "is being deleted{} by its policy '{}'",
                context.world.since(context.tenant.meta.deleting.as_ref()),
                context.tenant.deletion
            ),
        ),
        State::Suspended => (Health::Waiting, "is suspended".to_owned()),
        State::Ready => (Health::Ok, "is ready, and proven to be isolated".to_owned()),
        State::NotIsolated => (Health::Waiting, "is ready, but not isolated:".to_owned()),
        State::NotProven => (
            Health::Waiting,
            "is ready; whether it is isolated is not known:".to_owned(),
        ),
        State::Succeeded
        | State::Failed
        | State::Running
        | State::Waiting
        | State::Blocked
        | State::Unmanaged => (
            Health::Waiting,
            match finding.links.is_empty() {
                true => "is being set up".to_owned(),
                false => "is not ready, and waits for:".to_owned(),
            },
        ),
    };
    let reason = match finding.state {
        State::Deleting if finding.is_newer => Reason::Deleting.name().to_owned(),
        State::Waiting | State::Blocked if finding.is_newer => "Waiting".to_owned(),
        State::NotIsolated | State::NotProven => "Ready".to_owned(),
        State::Succeeded
        | State::Failed
        | State::Running
        | State::Waiting
        | State::Blocked
        | State::Suspended
        | State::Deleting
        | State::Ready
        | State::Unmanaged => summary(context, finding.state).reason,
    };
    finding.below(vec![own(context, health, &reason, &sentence)])
}

/// Returns the Tenant's own link, with its status as evidence.
fn own(context: TenantContext<'_>, health: Health, reason: &str, sentence: &str) -> Link {
    let status = &context.tenant.status;
    let phase = status.phase.map_or("none", |phase| api::Phase::name(phase));
    let ready = context.condition(READY);
    let said = ready.map_or("none", |known| known.reason.as_str());
    let mut link = Link::new(context.object(), health, reason, sentence).seen(
        format!("status (phase {phase}, reason {said})"),
        context.message(),
        context.written().or(context.tenant.meta.created.as_ref()),
    );
    if let Some(known) = context.condition(condition::NETWORK_ISOLATED)
        && status.phase == Some(TenantPhase::Running)
    {
        link = link.seen(
            format!(
                "condition NetworkIsolated={} ({})",
                known.status, known.reason
            ),
            &known.message,
            Some(&known.last_transition_time),
        );
    }
    if let Some(at) = &context.tenant.meta.deleting {
        let held = context.tenant.meta.finalizers.join(", ");
        link = link.seen("metadata.finalizers", held, Some(at));
    }
    if let Some(retry) = &status.progress.retry {
        let words = format!(
            "tried {} times (class {}), {}",
            retry.attempt,
            retry.class,
            context.world.next_try(retry)
        );
        link = link.seen("status.retry", words, None);
    }
    link
}

fn undecodable(context: TenantContext<'_>) -> Option<Finding> {
    let error = context.tenant.undecodable.as_ref()?;
    let changed = context.tenant.changed.as_ref();
    let link = Link::new(
        context.object(),
        Health::Error,
        Reason::Undecodable,
        format!("does not fit the schema that this release knows, so the operator leaves it alone: {error}"),
    )
    .seen("spec", error, changed.or(context.tenant.meta.created.as_ref()));
    Some(
        Finding::new(
            State::Blocked,
            format!("Look in Tenant '{}' for the value that the words above name, and correct it. It was probably stored through another version of the CRD.", context.name()),
        )
        .link(link)
        .then(commands::yaml(&context.object(), "the Tenant as it is stored"))
        .then(context.edit("correct the value")),
    )
}

fn not_seen(context: TenantContext<'_>) -> Option<Finding> {
    let looked = Looked {
        kind: "Tenant",
        meta: &context.tenant.meta,
        observed: context.tenant.status.progress.observed_generation,
        changed: context.tenant.changed.as_ref(),
    };
    operator::not_seen(context.world, &looked)
}

/// Explains a suspended Tenant. Its server and its Redis are stopped or are being stopped.
fn suspended(context: TenantContext<'_>) -> Option<Finding> {
    if !context.tenant.suspend {
        return None;
    }
    let changed = context.tenant.changed.as_ref();
    let left = ["redis", "server"]
        .iter()
        .flat_map(|component| context.pods(component))
        .find(|pod| pod.may_run());
    let how = match left {
        Some(_) => "are being stopped",
        None => "are stopped",
    };
    let link = Link::new(
        context.object(),
        Health::Waiting,
        Reason::Suspended,
        format!("is suspended by 'spec.suspend': server and Redis {how}, their data stays"),
    )
    .since(changed)
    .seen("spec.suspend", "true", changed);
    let mut finding = Finding::new(
        State::Suspended,
        format!(
            "Check that Tenant '{}' was not suspended on purpose, then set 'spec.suspend' to false: server and Redis start again with their data.",
            context.name()
        ),
    )
    .link(link);
    if let Some(pod) = left {
        finding = finding.link(terminating::stopping(context, pod, Reason::Suspended));
    }
    finding = finding
        .then(commands::who(&context.object(), "who set 'suspend'"))
        .then(Command::new(
            format!("orc resume tenant/{}", context.name()),
            "let it go on",
        ))
        .then(Command::new(
            format!(
                "kubectl patch oten {} --type=merge -p '{{\"spec\":{{\"suspend\":false}}}}'",
                context.name()
            ),
            "the same without orc",
        ));
    Some(finding)
}

/// Explains a Tenant for which every requested object exists, as far as we can read them.
fn stand(context: TenantContext<'_>) -> Finding {
    let says_ready = context.tenant.status.progress.is_true(READY);
    if says_ready {
        return isolation::find(context);
    }
    let said = context.reason();
    let is_vague = matches!(
        said,
        None | Some(Reason::Progressing | Reason::Ready | Reason::Created)
    );
    // The earlier problem no longer exists. The operator will report that in a moment.
    let (sentence, advice) = if is_vague {
        (
            "its namespace and what belongs in it are being set up",
            "Wait: this takes seconds. If it stays so for minutes, read the operator's log.",
        )
    } else {
        (
            "what it asks for is there by now; the operator has not said so yet",
            "Wait: everything that can be seen is as it should be by now, and the operator says so within seconds. If it does not, read its log.",
        )
    };
    let mut finding = Finding::new(State::Waiting, advice)
        .link(own(
            context,
            Health::Waiting,
            if is_vague { "Progressing" } else { "ReadyNow" },
            sentence,
        ))
        .then(context.look_again())
        .maybe(operator::log(context.world));
    finding.is_newer = !is_vague;
    finding
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

/// Returns whether the reason of a link is a more exact form of this reason in the status.
fn is_label_of(label: &str, reason: Reason) -> bool {
    let finer = [
        (Reason::SecretNotFound, "ConfigMapNotFound"),
        (Reason::SecretNotFound, "KeyNotFound"),
        (Reason::QuotaExceeded, "LimitRangeExceeded"),
        (Reason::QuotaExceeded, "LimitMissing"),
        (Reason::AdmissionDenied, "LimitRangeExceeded"),
        (Reason::AdmissionDenied, "WebhookDown"),
        (Reason::AdmissionDenied, "InvalidChild"),
        (Reason::AdmissionDenied, "DependencyNotReady"),
    ];
    label == reason.name() || finer.contains(&(reason, label))
}

/// Returns whether the status is outdated. It is if its cause no longer exists in the cluster, or
/// if it has no cause although something blocks.
fn is_outdated(context: TenantContext<'_>, finding: &Finding) -> bool {
    let Some(said) = context.reason() else {
        return false;
    };
    let shown = finding
        .links
        .iter()
        .any(|link| is_label_of(&link.reason, said));
    let deepest = finding
        .links
        .iter()
        .rev()
        .find(|link| link.reason != "OperatorDown");
    match finding.state {
        State::Waiting | State::Blocked => {
            let is_vague = matches!(
                said,
                Reason::Progressing | Reason::Ready | Reason::NotReady | Reason::Created
            );
            let is_wrong = deepest.is_some_and(|link| link.health == Health::Error);
            let is_said = said == Reason::Ready && !finding.links.is_empty();
            (CAUSES.contains(&said) && !shown) || (is_vague && is_wrong) || is_said
        }
        State::Deleting => !matches!(said, Reason::Deleting | Reason::DeletionBlocked),
        State::Succeeded
        | State::Failed
        | State::Running
        | State::Suspended
        | State::Ready
        | State::NotIsolated
        | State::NotProven
        | State::Unmanaged => false,
    }
}

/// Returns a note about missing isolation. The user must not miss it because of another problem.
fn not_isolated(context: TenantContext<'_>, finding: &Finding) -> Option<Note> {
    let known = context.condition(condition::NETWORK_ISOLATED)?;
    let is_told = match finding.state {
        State::Waiting | State::Blocked | State::Suspended => false,
        State::Succeeded
        | State::Failed
        | State::Running
        | State::Deleting
        | State::Ready
        | State::NotIsolated
        | State::NotProven
        | State::Unmanaged => true,
    };
    (!is_told && known.status == "False").then(|| Note {
        kind: NoteKind::Hint,
        text: format!(
            "it is not isolated, either ({}): {}",
            known.reason, known.message
        ),
    })
}
