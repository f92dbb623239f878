//! A NotebookValidationJob: its topics in order. The report of the runner is in the status, so the status counts for
//! everything that ended; the cluster counts for everything that waits.

mod causes;
mod commands;
mod in_progress;

use api::status::condition::FINISHED;

use super::deletion::Deletion;
use super::*;
use causes::{Cause, cause};

/// Time in seconds after which the operator reports the deletion of a job as blocked.
const STOP_WAIT: i64 = 600;

impl<'a> Explain<'a> for Notebook<'a> {
    fn find(self) -> Finding {
        // The order matters: a state that makes all later topics irrelevant comes first.
        faults::undecodable(*self)
            .or_else(|| deletion(self))
            .or_else(|| ended(self))
            .or_else(|| operator::not_seen(*self))
            .or_else(|| suspended(self))
            .unwrap_or_else(|| in_progress::find(self))
    }

    fn own(self, finding: &Finding) -> (Health, String) {
        let (health, sentence) = match finding.state {
            State::Succeeded => (Health::Ok, "succeeded"),
            State::Failed => (Health::Error, "failed"),
            State::Running => (Health::Ok, "runs"),
            State::Deleting => (Health::Waiting, "is being deleted"),
            State::Suspended => (Health::Waiting, "is suspended"),
            State::Waiting if finding.links.is_empty() => (Health::Waiting, "waits"),
            State::Waiting
            | State::Blocked
            | State::Ready
            | State::NotIsolated
            | State::NotProven
            | State::Unmanaged => (Health::Waiting, "waits for:"),
        };
        (health, sentence.to_owned())
    }

    fn more(self) -> Option<Evidence> {
        let cells = self.view.status.cells.as_ref()?;
        let text = text! { "{} of {} done, {} skipped, {} failed", cells.done, cells.total, cells.skipped, cells.failed };
        Some(Evidence::new("status.cells", text, self.written()))
    }

    fn began(self) -> Option<Time> {
        let finished = self.view.status.finished_at.as_ref();
        let deleting = self.meta.deleting.as_ref();
        let last = self.progress.phase_history.last();
        deleting
            .or(finished)
            .or_else(|| Some(&last?.started_at))
            .or(self.meta.created.as_ref())
            .cloned()
    }
}

impl<'a> Notebook<'a> {
    /// Returns the Jobs that belong to this job. A label can be copied, but the owner's UID cannot.
    fn jobs(self) -> impl Iterator<Item = &'a JobView> {
        let jobs = self.world.jobs.iter();
        jobs.filter(move |job| job.meta.is_owned_by(&self.meta.uid))
    }

    /// Returns the newest Pod of its Jobs.
    fn pod(self) -> Option<&'a PodView> {
        let is_of = |pod: &&PodView| self.jobs().any(|job| pod.meta.is_owned_by(&job.meta.uid));
        let pods = self.world.pods.iter().filter(is_of);
        pods.max_by_key(|pod| (pod.meta.created.clone(), pod.meta.uid.clone()))
    }

    /// Returns the Job of the current or last attempt, or the object itself before the first attempt.
    fn job_object(self) -> ObjectRef {
        match self.view.status.job_name.as_deref() {
            Some(name) => self.here("Job", name),
            None => self.object(),
        }
    }

    /// Returns the Pod of the result, or the newest one, or the Job if neither is known.
    fn pod_object(self) -> ObjectRef {
        let result = self.view.status.result.as_ref();
        let named = result.and_then(|result| result.pod_name.as_deref());
        match (named, self.pod()) {
            (Some(name), _) => self.here("Pod", name),
            (None, Some(pod)) => pod.object(),
            (None, None) => self.job_object(),
        }
    }

    /// Returns a cell, or the notebook if the cell is not known.
    fn cell_object(self, cell: Option<u32>) -> ObjectRef {
        match cell {
            Some(cell) => ObjectRef::cluster("Cell", &cell.to_string()),
            None => ObjectRef::cluster("Notebook", &self.view.path),
        }
    }

    /// Returns the cell that failed or is running.
    fn current_cell(self) -> Option<u32> {
        self.view.status.cells.as_ref()?.current
    }
}

/// Explains a job that is being deleted.
fn deletion(job: Notebook<'_>) -> Option<Finding> {
    let is_left = job.jobs().next().is_some() || !job.world.pods.is_empty();
    let deletion = Deletion {
        finalizer: "notebookvalidationjobs.orchestrator.io/finalizer",
        limit: STOP_WAIT,
        is_forced: job.view.force_delete,
        risk: "its Pod may still be at work then",
        done: if is_left {
            ""
        } else {
            "its Job and Pod are deleted; "
        },
    };
    deletion.explain(*job, || match job.pod() {
        Some(pod) => stopping(*job, pod, Stop::Ours(Reason::Deleting)),
        None => finding! { Deleting "Wait: the operator removes its finalizer when its Jobs are deleted.";
            then job.look_again(), operator::log(job.world);
        },
    })
}

/// Explains a job that ended.
fn ended(job: Notebook<'_>) -> Option<Finding> {
    if !job.progress.is_true(FINISHED) {
        return None;
    }
    let at = job.view.status.finished_at.as_ref();
    let reason = job.reason().unwrap_or(Reason::InternalError);
    if reason == Reason::Succeeded {
        return Some(finding! { Succeeded "";
            link proof(job);
            then job.orc("diff", "what was compared, and what was not"), job.object().yaml("all of the evidence");
        });
    }
    let finding = explained(job, State::Failed, cause(job, reason), reason, at);
    Some(match job.not_stored() {
        Some(note) => finding.note(note),
        None => finding,
    })
}

/// Returns the link with the evidence of a success.
fn proof(job: Notebook<'_>) -> Link {
    let status = &job.view.status;
    let compared = status.comparison_result.as_ref();
    let text = match compared {
        Some(compared) => {
            text! { "{} cells match the golden notebook, {} were not compared", compared.matched_cells, compared.ignored_cells }
        }
        None => "ran; there is no golden notebook to compare with".to_owned(),
    };
    let at = status.finished_at.as_ref();
    let commit = status.commit.as_deref().unwrap_or("?");
    let image = status.image.as_deref().unwrap_or("?");
    link! { Ok ObjectRef::cluster("Notebook", &job.view.path), Reason::Succeeded, (text);
        seen "status.commit" => (commit), at;
        seen "status.image" => (image), at;
    }
}

/// Builds the finding of a cause.
fn explained(
    job: Notebook<'_>,
    state: State,
    cause: Cause,
    reason: Reason,
    at: Option<&Time>,
) -> Finding {
    let Cause {
        object,
        sentence,
        advice,
        evidence,
        commands,
    } = cause;
    let said = Evidence::new("status.message", job.message(), at.or(job.written()));
    let mut link = link! { Error object, reason, (sentence);
        seen said;
    };
    link.evidence.extend(evidence);
    let mut finding = finding! { (state) (advice);
        link link;
    };
    finding.next.extend(commands);
    finding
}

/// Explains a suspended job.
fn suspended(job: Notebook<'_>) -> Option<Finding> {
    if !job.view.suspend {
        return None;
    }
    let own = link! {
        Waiting job.object(), Reason::Suspended, "is suspended by 'spec.suspend': nothing is started, and no time counts";
        since job.changed; seen "spec.suspend" => "true", job.changed;
    };
    let (name, within) = (job.name(), job.namespace);
    let mut finding = match job.pod().filter(|pod| pod.may_run()) {
        Some(pod) => stopping(*job, pod, Stop::Ours(Reason::Suspended)).below([own]),
        None => finding! { Suspended ""; link own; },
    };
    if finding.state == State::Blocked {
        return Some(finding);
    }
    finding.state = State::Suspended;
    finding.advice = text! { "Check that NotebookValidationJob '{name}' was not suspended on purpose, then resume it. An attempt that was stopped runs again from its start." };
    finding.next.clear();
    Some(rows! { finding;
        then job.object().who("who set 'suspend'"), job.orc("resume", "let it go on");
        shell "kubectl patch onb {name} -n {within} --type=merge -p '{{\"spec\":{{\"suspend\":false}}}}'" => "the same without orc";
    })
}
