//! A run: its topics in order, and its own link at the head of the chain.

use super::*;

impl<'a> Explain<'a> for Run<'a> {
    fn find(self) -> Finding {
        // The order matters: a state that makes all later topics irrelevant comes first.
        faults::undecodable(*self)
            .or_else(|| deletion::of_run(self))
            .or_else(|| ended::find(self))
            .or_else(|| deletion::of_namespace(self))
            .or_else(|| not_seen(self))
            .or_else(|| cancelling(self))
            .or_else(|| suspended(self))
            .or_else(|| faults::find(Origin::Agent(self)))
            .or_else(|| docs::waiting(self))
            .or_else(|| agent::blocking(self))
            .or_else(|| between(self))
            .unwrap_or_else(|| in_progress::find(self))
    }

    /// Returns whether the status is outdated:
    /// - its cause no longer exists in the cluster,
    /// - it has no cause although something blocks,
    /// - or its phase is over.
    fn is_outdated(self, finding: &Finding) -> bool {
        let Some(said) = self.reason() else {
            return false;
        };
        let shown = |reason: Reason| {
            let is_agent = reason == Reason::AgentNotReady;
            finding.links.iter().any(|link| {
                is_label_of(&link.reason, reason)
                    || (is_agent && link.object.kind == "Agent" && link.health != Health::Ok)
            })
        };
        if finding.state == State::Deleting {
            return !matches!(
                said,
                Reason::Deleting | Reason::DeletionBlocked | Reason::NamespaceTerminating
            );
        }
        let is_open = matches!(
            finding.state,
            State::Running | State::Waiting | State::Blocked
        );
        let Some(deepest) = finding.cause().filter(|_| is_open && !shown(said)) else {
            return false;
        };
        // An object that may not be read cannot contradict the status by its absence.
        if !self.sees_runs() && finding.state != State::Running {
            return false;
        }
        // A message with this reason may describe a problem that has no reason of its own.
        let names_nothing = said != Reason::Progressing || messages::is_progress(self.message());
        let is_ordinary = matches!(
            said,
            Reason::Progressing | Reason::Cloning | Reason::Publishing | Reason::Verifying
        );
        let is_vague = is_ordinary && names_nothing && deepest.health == Health::Error;
        let is_ahead = self.phase() == RunPhase::Running
            && names_nothing
            && self.status().result.is_none()
            && finding.state != State::Running
            && !shown(Reason::Disrupted);
        let is_behind = self.phase() == RunPhase::Pending
            && finding.state == State::Running
            && self.age(deepest.since.as_ref()) > 15;
        CAUSES.contains(&said) || is_vague || is_ahead || is_behind
    }

    /// Removes proposals to run the run again if that is not possible. A cancelled TaskRun cannot
    /// be run again, and a DocsRun only after it has finished.
    fn finish(self, finding: Finding) -> Finding {
        let superseded = self.status().history.last().map(|last| {
            let (old, new, phase, reason) =
                (last.context_version, self.view.version, &last.phase, &last.reason);
            let at = self.past(&last.finished_at);
            format!("version {old} was superseded by version {new}: it had reached {phase} ({reason}) at {at}")
        });
        let mut finding = match superseded {
            Some(text) => finding.note(text),
            None => finding,
        };
        let is_over = matches!(self.phase(), RunPhase::Succeeded | RunPhase::Failed);
        if self.view.docs.is_some() {
            return match is_over {
                true => finding,
                false => docs::cancel_first(self, finding),
            };
        }
        // The operator tries again by itself until the first Job exists, and `orc retry` is rejected.
        let is_unversioned = self.status().context_version.is_none();
        if is_unversioned && !is_over && self.job().is_none() {
            finding
                .next
                .retain(|command| !command.command.starts_with("orc retry "));
        }
        if self.view.cancel {
            finding
                .next
                .retain(|command| !command.command.starts_with("orc retry "));
            for words in ["run it again (orc retry)", "Run it again (orc retry)"] {
                let instead = "submit another TaskRun (this one is cancelled)";
                finding.advice = finding.advice.replace(words, instead);
            }
        }
        finding
    }

    fn own(self, finding: &Finding) -> (Health, String) {
        let attempt = self.attempt();
        let deleting = self.meta.deleting.as_ref();
        match finding.state {
            State::Succeeded => (Health::Ok, format!("succeeded in {attempt}")),
            State::Failed if self.status().attempts == 0 => {
                (Health::Error, "failed before its first attempt".to_owned())
            }
            State::Failed => (Health::Error, format!("failed in {attempt}")),
            State::Running => {
                let disrupted = match self.status().disruptions {
                    0 => String::new(),
                    1 => "; 1 disruption so far".to_owned(),
                    count => format!("; {count} disruptions so far"),
                };
                (Health::Ok, format!("runs ({attempt}{disrupted})"))
            }
            State::Deleting if deleting.is_some() => (
                Health::Waiting,
                format!("is being deleted{}", self.since(deleting)),
            ),
            State::Deleting => (
                Health::Waiting,
                "will be deleted with its namespace".to_owned(),
            ),
            State::Suspended => (Health::Waiting, "is suspended".to_owned()),
            State::Waiting
            | State::Blocked
            | State::Ready
            | State::NotIsolated
            | State::NotProven
            | State::Unmanaged => (Health::Waiting, waits(self, finding)),
        }
    }

    fn began(self) -> Option<Time> {
        let history = &self.progress.phase_history;
        let namespace = self.world.namespace.as_ref();
        let since = self.meta.deleting.as_ref();
        since
            .or(self.status().finished_at.as_ref())
            .or_else(|| namespace?.deleting.as_ref())
            .or_else(|| Some(&history.last()?.started_at))
            .or(self.meta.created.as_ref())
            .cloned()
    }
}

fn waits(run: Run<'_>, finding: &Finding) -> String {
    let attempt = run.attempt();
    let result = run.status().result.as_ref();
    let ended = result.filter(|result| {
        result.finished_at.is_some() && run.unrecorded_job().is_none() && !docs::is_pushed(run)
    });
    one_of! { ended;
        Some(result) if ended::was_disrupted(result) => "was terminated by another actor; {attempt} is started again";
        Some(_) => "{attempt} failed; the next one waits";
        None if finding.links.is_empty() => "waiting ({attempt})";
        None => "waiting ({attempt}) for:";
    }
}

fn not_seen(run: Run<'_>) -> Option<Finding> {
    // The first status is written some seconds after the Job is created. Until then the Job shows
    // more.
    let is_early = run.progress.observed_generation < 0 && run.job().is_some();
    operator::not_seen(*run).filter(|finding| !is_early || finding.state != State::Waiting)
}

fn cancelling(run: Run<'_>) -> Option<Finding> {
    if !run.view.cancel {
        return None;
    }
    let mut finding = match run.running_pod() {
        Some(pod) => stopping(*run, pod, Stop::Ours(Reason::Cancelled)),
        None => Finding::new(State::Waiting, ""),
    };
    if finding.state != State::Blocked {
        let after = match &run.view.docs {
            Some(_) => "To run it after all, type 'orc retry' when it has ended.",
            None => "It cannot be run again: submit another TaskRun.",
        };
        finding.advice = text! { "Wait: someone cancelled the run; it ends as soon as its Pod has stopped. {after}" };
    }
    let job = run
        .job()
        .map(|job| stopped_job(job, Reason::Cancelled, "the run was cancelled"));
    Some(rows! { finding.below(job);
        note "someone set 'spec.cancel'; the run was last changed{}", run.ago(run.changed);
        then run.look_again();
    })
}

/// Returns the link of a Job that the operator stops.
fn stopped_job(job: &JobView, reason: Reason, why: &str) -> Link {
    let link = link! { Waiting job.object(), reason, "is being stopped, because {why}"; };
    match &job.meta.deleting {
        Some(at) => link.seen("deletion asked for", "", Some(at)),
        None if job.suspended => link.seen("spec.suspend", "true", None),
        None => link,
    }
}

fn suspended(run: Run<'_>) -> Option<Finding> {
    if !run.view.suspend {
        return None;
    }
    let own = link! {
        Waiting run.object(), Reason::Suspended, "is suspended by 'spec.suspend': nothing is started, and no time counts";
        since run.changed; seen "spec.suspend" => "true", run.changed;
    };
    let job = run.job().filter(|job| job.end().is_none());
    let finding = match job.zip(run.running_pod()) {
        Some((job, pod)) => {
            let above = stopped_job(job, Reason::Suspended, "the run is suspended");
            stopping(*run, pod, Stop::Ours(Reason::Suspended)).below([above])
        }
        None => Finding::new(State::Suspended, ""),
    };
    let mut finding = finding.below([own]);
    if finding.state == State::Blocked {
        return Some(finding);
    }
    let (kind, name) = (run.kind, run.name());
    finding.state = State::Suspended;
    finding.advice = text! { "Check that {kind} '{name}' was not suspended on purpose, then resume it. An attempt that was stopped runs again from its start." };
    finding.next.clear();
    Some(rows! { finding;
        then run.object().who("who set 'suspend'"), run.orc("resume", "", "let it go on");
        shell "kubectl patch {} {name} -n {} --type=merge -p '{{\"spec\":{{\"suspend\":false}}}}'", commands::resource(kind), run.namespace => "the same without orc";
    })
}

/// Explains the time between two attempts, or while an aborted attempt is being stopped.
fn between(run: Run<'_>) -> Option<Finding> {
    match run.unrecorded_job() {
        Some(_) => None,
        None => ended::between(run),
    }
}

/// Returns whether the reason of a link is a more exact form of this reason in the status.
pub(super) fn is_label_of(label: &str, reason: Reason) -> bool {
    let finer = [
        (Reason::SecretNotFound, "ConfigMapNotFound"),
        (Reason::SecretNotFound, "KeyNotFound"),
        (Reason::QuotaExceeded, "LimitRangeExceeded"),
        (Reason::QuotaExceeded, "LimitMissing"),
        (Reason::AdmissionDenied, "WebhookDown"),
        (Reason::ApiUnavailable, "WebhookDown"),
    ];
    label == reason.name() || finer.contains(&(reason, label))
}

/// Returns whether a status can report this reason while the run waits.
pub(super) fn is_cause(reason: Reason) -> bool {
    CAUSES.contains(&reason)
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
