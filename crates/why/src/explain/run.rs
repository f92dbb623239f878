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
pub(super) fn explain(scene: RunContext<'_>) -> Explanation {
    // The order matters: a state that makes all later topics irrelevant comes first.
    let finding = undecodable(scene)
        .or_else(|| deletion::of_run(scene))
        .or_else(|| ended::find(scene))
        .or_else(|| deletion::of_namespace(scene))
        .or_else(|| not_seen(scene))
        .or_else(|| cancelling(scene))
        .or_else(|| suspended(scene))
        .or_else(|| faults::find(scene))
        .or_else(|| docs::waiting(scene))
        .or_else(|| agent::blocking(scene))
        .or_else(|| between(scene))
        .unwrap_or_else(|| in_progress::find(scene));
    let mut finding = operator::needed(scene.world, finding);
    finding.is_newer |= is_outdated(scene, &finding);
    finding.notes.extend(superseded(scene));
    let finding = with_own_link(scene, not_again(scene, finding));
    conclude(scene.world, &scene.object(), summary(scene), finding)
}

/// Removes proposals to run the run again if that is not possible. A cancelled TaskRun cannot be
/// run again, and a DocsRun only after it has finished.
fn not_again(scene: RunContext<'_>, mut finding: Finding) -> Finding {
    if scene.run.docs.is_some() {
        if !scene.is_over() {
            finding = docs::cancel_first(scene, finding);
        }
    } else if scene.run.cancel {
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
            &scene.object(),
            "all that is known of the run",
        ));
    }
    finding
}

fn summary(scene: RunContext<'_>) -> Summary {
    let status = scene.status();
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
        since: scene
            .run
            .meta
            .deleting
            .clone()
            .or_else(|| status.finished_at.clone())
            .or_else(|| scene.world.namespace.as_ref()?.deleting.clone())
            .or(open)
            .or_else(|| scene.run.meta.created.clone()),
        written: scene.written().cloned(),
    }
}

/// Puts the run's own link in front, unless a topic already did.
fn with_own_link(scene: RunContext<'_>, finding: Finding) -> Finding {
    if finding
        .links
        .first()
        .is_some_and(|link| link.object == scene.object())
    {
        return finding;
    }
    let reason = summary(scene).reason;
    let (health, sentence) = match finding.state {
        State::Succeeded => (Health::Ok, format!("succeeded in {}", scene.attempt())),
        State::Failed if scene.status().attempts == 0 => {
            (Health::Error, "failed before its first attempt".to_owned())
        }
        State::Failed => (Health::Error, format!("failed in {}", scene.attempt())),
        State::Running => (
            Health::Ok,
            format!("runs ({}{})", scene.attempt(), disrupted(scene)),
        ),
        State::Deleting => (
            Health::Waiting,
            match &scene.run.meta.deleting {
                Some(_) => format!(
                    "is being deleted{}",
                    scene.since(scene.run.meta.deleting.as_ref())
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
            let result = scene.status().result.as_ref();
            let ended = result.filter(|result| {
                result.finished_at.is_some()
                    && scene.unrecorded_job().is_none()
                    && !docs::is_pushed(scene)
            });
            let sentence = match ended {
                Some(result) if ended::was_disrupted(result) => {
                    format!(
                        "was terminated by another actor; {} is started again",
                        scene.attempt()
                    )
                }
                Some(_) => format!("{} failed; the next one waits", scene.attempt()),
                None if finding.links.is_empty() => format!("waiting ({})", scene.attempt()),
                None => format!("waiting ({}) for:", scene.attempt()),
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
    let mut link = Link::new(scene.object(), health, reason, sentence);
    let phase = scene
        .status()
        .phase
        .map_or("none", |phase| api::Phase::name(phase));
    let at = match scene.phase() {
        RunPhase::Succeeded | RunPhase::Failed => scene.status().finished_at.as_ref(),
        RunPhase::Pending | RunPhase::Running => scene.written(),
    };
    link = link.seen(
        format!("status (phase {phase}, reason {})", summary(scene).reason),
        scene.message(),
        at.or(scene.run.meta.created.as_ref()),
    );
    if !scene.run.meta.finalizers.is_empty() && scene.run.meta.deleting.is_some() {
        link = link.seen(
            "metadata.finalizers",
            scene.run.meta.finalizers.join(", "),
            scene.run.meta.deleting.as_ref(),
        );
    }
    if let Some(retry) = &scene.status().progress.retry {
        link = link.seen(
            "status.retry",
            format!(
                "tried {} times (class {}), {}",
                retry.attempt,
                retry.class,
                scene.world.next_try(retry)
            ),
            None,
        );
    }
    finding.below(vec![link])
}

/// Formats the number of disruptions: `; 2 disruptions so far`, or an empty string.
fn disrupted(scene: RunContext<'_>) -> String {
    match scene.status().disruptions {
        0 => String::new(),
        1 => "; 1 disruption so far".to_owned(),
        count => format!("; {count} disruptions so far"),
    }
}

fn undecodable(scene: RunContext<'_>) -> Option<Finding> {
    let error = scene.run.undecodable.as_ref()?;
    let link = Link::new(
        scene.object(),
        Health::Error,
        Reason::Undecodable,
        if scene.message().contains(error.as_str()) {
            "has a value that does not fit: see the first lines".to_owned()
        } else {
            format!("does not fit the schema that this release knows, so the operator leaves it alone: {error}")
        },
    )
    .seen("spec", error, scene.run.changed.as_ref().or(scene.run.meta.created.as_ref()));
    Some(
        Finding::new(
            State::Blocked,
            format!("Look in {} '{}' for the value that the words above name, and correct it, or delete the run. It was probably stored through another version of the CRD.", scene.kind(), scene.run.meta.name),
        )
        .link(link)
        .then(commands::yaml(&scene.object(), "the run as it is stored"))
        .then(commands::edit(&scene.object(), "correct the value")),
    )
}

fn not_seen(scene: RunContext<'_>) -> Option<Finding> {
    let looked = Looked {
        kind: scene.kind(),
        meta: &scene.run.meta,
        observed: scene.status().progress.observed_generation,
        changed: scene.run.changed.as_ref(),
    };
    // The first status is written some seconds after the Job is created. Until then the Job shows
    // more.
    let is_early = scene.status().progress.observed_generation < 0 && scene.job().is_some();
    let finding = operator::not_seen(scene.world, &looked)?;
    (!(is_early && finding.state == State::Waiting)).then_some(finding)
}

fn cancelling(scene: RunContext<'_>) -> Option<Finding> {
    if !scene.run.cancel {
        return None;
    }
    let job = scene.job();
    let pod = job.and_then(|job| scene.newest_pod(job));
    let mut finding = match pod.filter(|pod| pod.may_run()) {
        Some(pod) => stopping(scene, pod, Stop::Ours(Reason::Cancelled)),
        None => Finding::new(State::Waiting, ""),
    };
    finding = finding.below(stopped_job(job, Reason::Cancelled, "the run was cancelled"));
    if finding.state != State::Blocked {
        let after = match &scene.run.docs {
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
                    scene.ago(scene.run.changed.as_ref())
                ),
            )
            .then(commands::look_again(scene)),
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

fn suspended(scene: RunContext<'_>) -> Option<Finding> {
    if !scene.run.suspend {
        return None;
    }
    let changed = scene.run.changed.as_ref();
    let own = Link::new(
        scene.object(),
        Health::Waiting,
        Reason::Suspended,
        "is suspended by 'spec.suspend': nothing is started, and no time counts",
    )
    .since(changed)
    .seen("spec.suspend", "true", changed);
    let job = scene.job().filter(|job| job.end().is_none());
    let still = job
        .and_then(|job| scene.newest_pod(job))
        .filter(|pod| pod.may_run());
    let mut finding = match still {
        Some(pod) => {
            let above = stopped_job(job, Reason::Suspended, "the run is suspended");
            stopping(scene, pod, Stop::Ours(Reason::Suspended)).below(above)
        }
        None => Finding::new(State::Suspended, ""),
    };
    finding = finding.below(vec![own]);
    let name = &scene.run.meta.name;
    if finding.state == State::Blocked {
        return Some(finding);
    }
    finding.state = State::Suspended;
    finding.advice = format!(
        "Check that {} '{name}' was not suspended on purpose, then resume it. An attempt that was stopped runs again from its start.",
        scene.kind()
    );
    finding.next = vec![
        commands::who(&scene.object(), "who set 'suspend'"),
        commands::orc(scene, "resume", "", "let it go on"),
        Command::new(
            format!(
                "kubectl patch {} {name} -n {} --type=merge -p '{{\"spec\":{{\"suspend\":false}}}}'",
                commands::resource(scene.kind()),
                scene.namespace()
            ),
            "the same without orc",
        ),
    ];
    Some(finding)
}

/// Explains the time between two attempts, or while an aborted attempt is being stopped.
fn between(scene: RunContext<'_>) -> Option<Finding> {
    match scene.unrecorded_job() {
        Some(_) => None,
        None => ended::between(scene),
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
fn is_outdated(scene: RunContext<'_>, finding: &Finding) -> bool {
    let Some(said) = scene.reason() else {
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
    let names_nothing = said != Reason::Progressing || messages::is_progress(scene.message());
    let is_ordinary = matches!(
        said,
        Reason::Progressing | Reason::Cloning | Reason::Publishing | Reason::Verifying
    );
    let is_vague = is_ordinary && names_nothing && deepest.health == Health::Error;
    let is_ahead = scene.phase() == RunPhase::Running
        && names_nothing
        && scene.status().result.is_none()
        && finding.state != State::Running
        && !shown(Reason::Disrupted);
    let is_behind = scene.phase() == RunPhase::Pending
        && finding.state == State::Running
        && deepest.since.as_ref().is_some_and(|at| scene.age(at) > 15);
    is_over || is_vague || is_ahead || is_behind
}

/// Returns a note about the outcome of the previous version.
fn superseded(scene: RunContext<'_>) -> Option<Note> {
    let last = scene.status().history.last()?;
    Some(Note {
        kind: NoteKind::Hint,
        text: format!(
            "version {} was superseded by version {}: it had reached {} ({}) at {}",
            last.context_version,
            scene.run.version,
            last.phase,
            last.reason,
            scene.when(&last.finished_at)
        ),
    })
}
