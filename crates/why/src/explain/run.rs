//! A run: selects the topic that explains it, and puts the run's own link at the head of the chain.

use api::{Reason, messages, status::condition, tasks::RunPhase};

use super::{
    Finding, Summary, agent, commands, conclude, deletion, docs, ended, faults, in_progress,
    operator::{self, Looked},
    run_context::RunContext,
    stop::{Stop, stopping},
};
use crate::{
    explanation::{Command, Explanation, Health, Link, Note, NoteKind, State},
    world::JobView,
};

/// Explains the state of a run.
pub(super) fn explain(context: RunContext<'_>) -> Explanation {
    // The order matters: a state that makes all later topics irrelevant comes first.
    let finding = undecodable(context)
        .or_else(|| deletion::of_run(context))
        .or_else(|| ended::find(context))
        .or_else(|| deletion::of_namespace(context))
        .or_else(|| not_seen(context))
        .or_else(|| cancelling(context))
        .or_else(|| suspended(context))
        .or_else(|| faults::find(context))
        .or_else(|| docs::waiting(context))
        .or_else(|| agent::blocking(context))
        .or_else(|| between(context))
        .unwrap_or_else(|| in_progress::find(context));
    let mut finding = operator::needed(context.world, finding);
    finding.is_newer |= is_outdated(context, &finding);
    finding.notes.extend(superseded(context));
    let finding = with_own_link(context, not_again(context, finding));
    conclude(context.world, &context.object(), summary(context), finding)
}

/// Removes proposals to run the run again if that is not possible. A cancelled TaskRun cannot be
/// run again, and a DocsRun only after it has finished.
fn not_again(context: RunContext<'_>, mut finding: Finding) -> Finding {
    if context.run.docs.is_some() {
        if !context.is_over() {
            finding = docs::cancel_first(context, finding);
        }
    } else if context.run.cancel {
        finding
            .next
            .retain(|command| !command.command.starts_with("orc retry "));
        for words in ["run it again (orc retry)", "Run it again (orc retry)"] {
            let instead = "submit another TaskRun (this one is cancelled)";
            finding.advice = finding.advice.replace(words, instead);
        }
    }
    if finding.next.is_empty() {
        finding = finding.then(commands::yaml(
            &context.object(),
            "all that is known of the run",
        ));
    }
    finding
}

fn summary(context: RunContext<'_>) -> Summary {
    let status = context.status();
    let said = status.progress.condition(condition::SUCCEEDED);
    let open = status
        .progress
        .phase_history
        .last()
        .map(|record| record.started_at.clone());
    let message = match status.progress.message.as_deref() {
        Some(message) if !message.is_empty() => message,
        Some(_) | None => "the run has no status yet",
    };
    Summary {
        text: message.to_owned(),
        reason: said.map_or_else(|| "NotSeen".to_owned(), |said| said.reason.clone()),
        since: context
            .run
            .meta
            .deleting
            .clone()
            .or_else(|| status.finished_at.clone())
            .or_else(|| context.world.namespace.as_ref()?.deleting.clone())
            .or(open)
            .or_else(|| context.run.meta.created.clone()),
        written: context.written().cloned(),
    }
}

/// Puts the run's own link in front, unless a topic already did.
fn with_own_link(context: RunContext<'_>, finding: Finding) -> Finding {
    if finding
        .links
        .first()
        .is_some_and(|link| link.object == context.object())
    {
        return finding;
    }
    let reason = summary(context).reason;
    let (health, sentence) = match finding.state {
        State::Succeeded => (Health::Ok, format!("succeeded in {}", context.attempt())),
        State::Failed if context.status().attempts == 0 => {
            (Health::Error, "failed before its first attempt".to_owned())
        }
        State::Failed => (Health::Error, format!("failed in {}", context.attempt())),
        State::Running => (
            Health::Ok,
            format!("runs ({}{})", context.attempt(), disrupted(context)),
        ),
        State::Deleting => (
            Health::Waiting,
            match &context.run.meta.deleting {
                Some(_) => format!(
                    "is being deleted{}",
                    context.since(context.run.meta.deleting.as_ref())
                ),
                None => "will be deleted with its namespace".to_owned(),
            },
        ),
        State::Suspended => (Health::Waiting, "is suspended".to_owned()),
        State::Waiting
        | State::Blocked
        | State::Ready
        | State::NotIsolated
        | State::NotProven
        | State::Unmanaged => {
            let result = context.status().result.as_ref();
            let ended = result.filter(|result| {
                result.finished_at.is_some()
                    && context.unrecorded_job().is_none()
                    && !docs::is_pushed(context)
            });
            let sentence = match ended {
                Some(result) if ended::was_disrupted(result) => {
                    format!(
                        "was terminated by another actor; {} is started again",
                        context.attempt()
                    )
                }
                Some(_) => format!("{} failed; the next one waits", context.attempt()),
                None if finding.links.is_empty() => format!("waiting ({})", context.attempt()),
                None => format!("waiting ({}) for:", context.attempt()),
            };
            (Health::Waiting, sentence)
        }
    };
    let reason = match finding.state {
        State::Running if finding.is_newer => "Running".to_owned(),
        State::Deleting if finding.is_newer => Reason::Deleting.name().to_owned(),
        State::Waiting | State::Blocked if finding.is_newer => "Waiting".to_owned(),
        State::Succeeded
        | State::Failed
        | State::Running
        | State::Waiting
        | State::Blocked
        | State::Suspended
        | State::Deleting
        | State::Ready
        | State::NotIsolated
        | State::NotProven
        | State::Unmanaged => reason,
    };
    let mut link = Link::new(context.object(), health, reason, sentence);
    let phase = context
        .status()
        .phase
        .map_or("none", |phase| api::Phase::name(phase));
    let at = match context.phase() {
        RunPhase::Succeeded | RunPhase::Failed => context.status().finished_at.as_ref(),
        RunPhase::Pending | RunPhase::Running => context.written(),
    };
    link = link.seen(
        format!("status (phase {phase}, reason {})", summary(context).reason),
        context.message(),
        at.or(context.run.meta.created.as_ref()),
    );
    if !context.run.meta.finalizers.is_empty() && context.run.meta.deleting.is_some() {
        link = link.seen(
            "metadata.finalizers",
            context.run.meta.finalizers.join(", "),
            context.run.meta.deleting.as_ref(),
        );
    }
    if let Some(retry) = &context.status().progress.retry {
        link = link.seen(
            "status.retry",
            format!(
                "tried {} times (class {}), {}",
                retry.attempt,
                retry.class,
                context.world.next_try(retry)
            ),
            None,
        );
    }
    finding.below(vec![link])
}

/// Formats the number of disruptions: `; 2 disruptions so far`, or an empty string.
fn disrupted(context: RunContext<'_>) -> String {
    match context.status().disruptions {
        0 => String::new(),
        1 => "; 1 disruption so far".to_owned(),
        count => format!("; {count} disruptions so far"),
    }
}

fn undecodable(context: RunContext<'_>) -> Option<Finding> {
    let error = context.run.undecodable.as_ref()?;
    let link = Link::new(
        context.object(),
        Health::Error,
        Reason::Undecodable,
        if context.message().contains(error.as_str()) {
            "has a value that does not fit: see the first lines".to_owned()
        } else {
            format!("does not fit the schema that this release knows, so the operator leaves it alone: {error}")
        },
    )
    .seen("spec", error, context.run.changed.as_ref().or(context.run.meta.created.as_ref()));
    Some(
        Finding::new(
            State::Blocked,
            format!("Look in {} '{}' for the value that the words above name, and correct it, or delete the run. It was probably stored through another version of the CRD.", context.kind(), context.run.meta.name),
        )
        .link(link)
        .then(commands::yaml(&context.object(), "the run as it is stored"))
        .then(commands::edit(&context.object(), "correct the value")),
    )
}

fn not_seen(context: RunContext<'_>) -> Option<Finding> {
    let looked = Looked {
        kind: context.kind(),
        meta: &context.run.meta,
        observed: context.status().progress.observed_generation,
        changed: context.run.changed.as_ref(),
    };
    // The first status is written some seconds after the Job is created. Until then the Job shows
    // more.
    let is_early = context.status().progress.observed_generation < 0 && context.job().is_some();
    let finding = operator::not_seen(context.world, &looked)?;
    (!(is_early && finding.state == State::Waiting)).then_some(finding)
}

fn cancelling(context: RunContext<'_>) -> Option<Finding> {
    if !context.run.cancel {
        return None;
    }
    let job = context.job();
    let pod = job.and_then(|job| context.newest_pod(job));
    let mut finding = match pod.filter(|pod| pod.may_run()) {
        Some(pod) => stopping(context, pod, Stop::Ours(Reason::Cancelled)),
        None => Finding::new(State::Waiting, ""),
    };
    finding = finding.below(stopped_job(job, Reason::Cancelled, "the run was cancelled"));
    if finding.state != State::Blocked {
        let after = match &context.run.docs {
            Some(_) => "To run it after all, type 'orc retry' when it has ended.",
            None => "It cannot be run again: submit another TaskRun.",
        };
        finding.advice = format!(
            "Wait: someone cancelled the run; it ends as soon as its Pod has stopped. {after}"
        );
    }
    Some(
        finding
            .note(
                NoteKind::Hint,
                format!(
                    "someone set 'spec.cancel'; the run was last changed{}",
                    context.ago(context.run.changed.as_ref())
                ),
            )
            .then(commands::look_again(context)),
    )
}

/// Returns the link of a Job that the operator stops.
fn stopped_job(job: Option<&JobView>, reason: Reason, why: &str) -> Vec<Link> {
    let link = |job: &JobView| {
        let link = Link::new(
            job.object(),
            Health::Waiting,
            reason,
            format!("is being stopped, because {why}"),
        );
        match &job.meta.deleting {
            Some(at) => link.seen("deletion asked for", "", Some(at)),
            None if job.suspended => link.seen("spec.suspend", "true", None),
            None => link,
        }
    };
    job.map(link).into_iter().collect()
}

fn suspended(context: RunContext<'_>) -> Option<Finding> {
    if !context.run.suspend {
        return None;
    }
    let changed = context.run.changed.as_ref();
    let own = Link::new(
        context.object(),
        Health::Waiting,
        Reason::Suspended,
        "is suspended by 'spec.suspend': nothing is started, and no time counts",
    )
    .since(changed)
    .seen("spec.suspend", "true", changed);
    let job = context.job().filter(|job| job.end().is_none());
    let still = job
        .and_then(|job| context.newest_pod(job))
        .filter(|pod| pod.may_run());
    let mut finding = match still {
        Some(pod) => {
            let above = stopped_job(job, Reason::Suspended, "the run is suspended");
            stopping(context, pod, Stop::Ours(Reason::Suspended)).below(above)
        }
        None => Finding::new(State::Suspended, ""),
    };
    finding = finding.below(vec![own]);
    let name = &context.run.meta.name;
    if finding.state == State::Blocked {
        return Some(finding);
    }
    finding.state = State::Suspended;
    finding.advice = format!(
        "Check that {} '{name}' was not suspended on purpose, then resume it. An attempt that was stopped runs again from its start.",
        context.kind()
    );
    finding.next = vec![
        commands::who(&context.object(), "who set 'suspend'"),
        commands::orc(context, "resume", "", "let it go on"),
        Command::new(
            format!(
                "kubectl patch {} {name} -n {} --type=merge -p '{{\"spec\":{{\"suspend\":false}}}}'",
                commands::resource(context.kind()),
                context.namespace()
            ),
            "the same without orc",
        ),
    ];
    Some(finding)
}

/// Explains the time between two attempts, or while an aborted attempt is being stopped.
fn between(context: RunContext<'_>) -> Option<Finding> {
    match context.unrecorded_job() {
        Some(_) => None,
        None => ended::between(context),
    }
}

/// Returns whether the reason of a link is a more exact form of this reason in the status.
fn is_label_of(label: &str, reason: Reason) -> bool {
    let finer = [
        (Reason::SecretNotFound, "ConfigMapNotFound"),
        (Reason::SecretNotFound, "KeyNotFound"),
        (Reason::QuotaExceeded, "LimitRangeExceeded"),
        (Reason::QuotaExceeded, "LimitMissing"),
        (Reason::AdmissionDenied, "WebhookDown"),
    ];
    label == reason.name() || finer.contains(&(reason, label))
}

/// Causes that a status can report while the run waits.
const CAUSES: &[Reason] = &[
    Reason::AgentNotFound,
    Reason::AgentNotReady,
    Reason::DependencyNotReady,
    Reason::ImagePullFailed,
    Reason::ImageNeedsRoot,
    Reason::ContainerNotStartable,
    Reason::Unschedulable,
    Reason::QuotaExceeded,
    Reason::AdmissionDenied,
    Reason::SecretNotFound,
    Reason::VolumeNotReady,
    Reason::RepositoryUnreachable,
    Reason::RepositoryNotFound,
    Reason::AuthenticationFailed,
    Reason::CredentialsInvalid,
    Reason::CertificateNotTrusted,
    Reason::HostKeyUnknown,
    Reason::AddressNotAllowed,
    Reason::BranchNotFound,
];

/// Returns whether the status is outdated:
/// - its cause no longer exists in the cluster,
/// - it has no cause although something blocks,
/// - or its phase is over.
fn is_outdated(context: RunContext<'_>, finding: &Finding) -> bool {
    let Some(said) = context.reason() else {
        return false;
    };
    let shown = |reason: Reason| {
        let is_agent = reason == Reason::AgentNotReady;
        finding.links.iter().any(|link| {
            is_label_of(&link.reason, reason)
                || (is_agent && link.object.kind == "Agent" && link.health != Health::Ok)
        })
    };
    match finding.state {
        State::Succeeded
        | State::Failed
        | State::Suspended
        | State::Ready
        | State::NotIsolated
        | State::NotProven
        | State::Unmanaged => {
            return false;
        }
        State::Deleting => {
            return !matches!(
                said,
                Reason::Deleting | Reason::DeletionBlocked | Reason::NamespaceTerminating
            );
        }
        State::Running | State::Waiting | State::Blocked => {}
    }
    let deepest = finding
        .links
        .iter()
        .rev()
        .find(|link| link.reason != "OperatorDown");
    let Some(deepest) = deepest.filter(|_| !shown(said)) else {
        return false;
    };
    let is_over = CAUSES.contains(&said);
    // A message with this reason may describe a problem that has no reason of its own.
    let names_nothing = said != Reason::Progressing || messages::is_progress(context.message());
    let is_ordinary = matches!(
        said,
        Reason::Progressing | Reason::Cloning | Reason::Publishing | Reason::Verifying
    );
    let is_vague = is_ordinary && names_nothing && deepest.health == Health::Error;
    let is_ahead = context.phase() == RunPhase::Running
        && names_nothing
        && context.status().result.is_none()
        && finding.state != State::Running
        && !shown(Reason::Disrupted);
    let is_behind = context.phase() == RunPhase::Pending
        && finding.state == State::Running
        && deepest
            .since
            .as_ref()
            .is_some_and(|at| context.age(at) > 15);
    is_over || is_vague || is_ahead || is_behind
}

/// Returns a note about the outcome of the previous version.
fn superseded(context: RunContext<'_>) -> Option<Note> {
    let last = context.status().history.last()?;
    Some(Note {
        kind: NoteKind::Hint,
        text: format!(
            "version {} was superseded by version {}: it had reached {} ({}) at {}",
            last.context_version,
            context.run.version,
            last.phase,
            last.reason,
            context.when(&last.finished_at)
        ),
    })
}
