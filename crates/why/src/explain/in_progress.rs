//! An attempt in progress: its Job, its Pod, and the objects that they wait for.

use api::Reason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pods::Reported;

use super::{
    Finding, commands, container, create, docs, ended,
    run_context::RunContext,
    scheduling,
    stop::{Stop, lost_node, on_lost_node, replaced, stopping},
    volume,
};
use crate::{
    explanation::{Command, Health, Link, State},
    times,
    world::{ContainerState, JobView, PodView},
};

/// Explains the attempt by the state of the cluster.
pub(super) fn find(context: RunContext<'_>) -> Finding {
    match context.job() {
        Some(job) => with_job(context, job),
        None => without_job(context),
    }
}

/// Explains a run without a Job. Either another object has to end first, or the Job is lost, or it
/// will be created soon.
fn without_job(context: RunContext<'_>) -> Finding {
    let again = commands::look_again(context);
    let left: Vec<&PodView> = context
        .world
        .pods
        .iter()
        .filter(|pod| pod.may_run())
        .collect();
    if let Some(pod) = left.first() {
        return stopping(context, pod, Stop::Ours(Reason::Progressing)).then(again);
    }
    if let Some(job) = context.jobs().find(|job| job.end().is_none()) {
        let link = Link::new(
            job.object(),
            Health::Waiting,
            Reason::Progressing,
            "of an earlier version or attempt has to stop first",
        );
        return Finding::new(
            State::Waiting,
            "Wait: the next Job is created when this one is deleted.",
        )
        .link(match &job.meta.deleting {
            Some(at) => link
                .since(Some(at))
                .seen("deletion asked for", "", Some(at)),
            None => link.seen("deletion asked for", "not yet", Some(&context.world.now)),
        })
        .then(again)
        .then(commands::describe(&job.object(), "what holds it"));
    }
    if let Some(finding) = docs::asking(context) {
        return finding;
    }
    if let Some(name) = &context.status().job_name {
        let is_late = context.written().is_some_and(|at| context.age(at) > 30);
        let link = Link::new(
            context.here("Job", name),
            if is_late {
                Health::Error
            } else {
                Health::Waiting
            },
            Reason::JobLost,
            "is not there: someone deleted it while the run went on",
        )
        .since(context.written());
        return Finding::new(
            State::Waiting,
            format!("Nothing: Job '{name}' is looked for once more; if it stays away, another Job takes its place by itself, and no attempt is used. Then find out what deletes Jobs here."),
        )
        .link(link.seen("looked for it", "not found", Some(&context.world.now)))
        .then(again)
        .then(Command::new(
            format!("kubectl get events -n {} --field-selector involvedObject.name={name}", context.namespace()),
            "what happened to it",
        ));
    }
    Finding::new(
        State::Waiting,
        "Wait: the Job is made in a moment. If it is not there in a minute, look into the operator's log.",
    )
    .then(again)
    .maybe(super::operator::log(context.world))
}

fn with_job(context: RunContext<'_>, job: &JobView) -> Finding {
    let Some(pod) = context.newest_pod(job) else {
        return match (job.end(), &job.meta.deleting) {
            (Some(_), _) => unread(context, job),
            (None, Some(_)) => being_deleted(context, job),
            (None, None) if job.suspended => suspended(context, job),
            (None, None) => create::no_pod(context, job),
        };
    };
    let above = Link::new(
        job.object(),
        Health::Waiting,
        if job.end().is_some() {
            "Ended"
        } else {
            "Active"
        },
        job_words(context, job),
    );
    let above = match (job.end(), &job.meta.deleting) {
        (Some(end), _) => above.seen(
            format!("condition {}=True ({})", end.kind, end.reason),
            &end.message,
            end.since.as_ref(),
        ),
        (None, Some(at)) => above.seen("deletion asked for", "", Some(at)),
        (None, None) => above,
    };
    let finding = pod_stand(context, pod);
    let above = match finding.state {
        State::Running => Link {
            health: Health::Ok,
            ..above
        },
        State::Succeeded
        | State::Failed
        | State::Waiting
        | State::Blocked
        | State::Suspended
        | State::Deleting
        | State::Ready
        | State::NotIsolated
        | State::NotProven
        | State::Unmanaged => above,
    };
    finding.below(vec![above])
}

fn job_words(context: RunContext<'_>, job: &JobView) -> String {
    let created = context.ago(job.meta.created.as_ref());
    match (job.end(), &job.meta.deleting) {
        (Some(end), _) if end.kind == "Complete" => "is complete".to_owned(),
        (Some(_), _) => "has failed".to_owned(),
        (None, Some(_)) => "is being deleted by another actor".to_owned(),
        (None, None) => format!("was created{created}, and has its Pod"),
    }
}

fn unread(context: RunContext<'_>, job: &JobView) -> Finding {
    let mut link = Link::new(
        job.object(),
        Health::Error,
        Reason::EvidenceLost,
        "has ended, and its Pod is deleted: nothing shows how the agent ended",
    );
    if let Some(end) = job.end() {
        link = link.seen(
            format!("condition {}=True ({})", end.kind, end.reason),
            &end.message,
            end.since.as_ref(),
        );
    }
    Finding::new(
        State::Waiting,
        "The run is about to end as EvidenceLost. Find out what deletes finished Pods here. Running it again repeats what the agent did, side effects included.",
    )
    .link(link)
    .then(commands::look_again(context))
    .then(commands::retry(context))
}

fn being_deleted(context: RunContext<'_>, job: &JobView) -> Finding {
    let link = Link::new(
        job.object(),
        Health::Error,
        Reason::JobLost,
        format!(
            "is being deleted by another actor{}",
            context.since(job.meta.deleting.as_ref())
        ),
    )
    .since(job.meta.deleting.as_ref())
    .seen(
        "metadata.finalizers",
        job.meta.finalizers.join(", "),
        job.meta.deleting.as_ref(),
    );
    Finding::new(State::Waiting, "Wait: another Job is started when this one is deleted, and no attempt is used. Then find out what deletes Jobs here.")
        .link(link)
        .then(commands::yaml(&job.object(), "what holds it"))
}

fn suspended(context: RunContext<'_>, job: &JobView) -> Finding {
    let link = Link::new(
        job.object(),
        Health::Error,
        Reason::Suspended,
        "is suspended, though the run is not: the operator is about to resume it, or someone else suspends it (a queue such as Kueue)",
    )
    .seen("spec.suspend", "true", Some(&context.world.now));
    Finding::new(
        State::Blocked,
        format!(
            "If Job '{}' stays so for more than some seconds, find out who suspends it.",
            job.meta.name
        ),
    )
    .link(link)
    .then(commands::who(
        &job.object(),
        "'metadata.managedFields' names who set 'suspend'",
    ))
    .then(commands::look_again(context))
}

/// Explains the state of a Job's Pod.
fn pod_stand(context: RunContext<'_>, pod: &PodView) -> Finding {
    let ended = pod.state().exit().is_some();
    if !ended && (pod.disruption().is_some() || pod.meta.deleting.is_some()) {
        return stopping(context, pod, Stop::Outside);
    }
    if ended && pod.disruption().is_some() {
        return replaced(context, pod);
    }
    if let Some(node) = lost_node(context, pod).filter(|_| !ended) {
        return on_lost_node(context, pod, node);
    }
    match pod.state() {
        ContainerState::Running { since } => {
            let since = since.map(Time);
            docs::step_runs(context, pod, since.as_ref())
                .unwrap_or_else(|| running(context, pod, since.as_ref()))
        }
        ContainerState::Ended(_) => ended::settling(context, pod),
        ContainerState::Waiting(Reported { reason, message }) => {
            container::waiting(context, pod, reason, message)
                .or_else(|| docs::publish_starts(context, pod))
                .unwrap_or_else(|| starting(context, pod))
        }
        ContainerState::Unknown if pod.phase == "Failed" => ended::settling(context, pod),
        ContainerState::Unknown => starting(context, pod),
    }
}

/// Explains a container that has not started and has no message from the kubelet. It waits for a
/// node or a volume, or it is just starting.
fn starting(context: RunContext<'_>, pod: &PodView) -> Finding {
    if pod.node.is_none()
        && let Some(finding) = scheduling::unscheduled(context, pod)
    {
        return finding;
    }
    if let Some(finding) = volume::mounts(context, pod) {
        return finding;
    }
    if let Some(finding) = volume::claims(context, pod) {
        return finding;
    }
    let sandbox = context.warning(
        &pod.meta.uid,
        &["FailedCreatePodSandBox", "FailedCreatePodContainer"],
    );
    if let Some(event) = sandbox {
        let link = Link::new(
            pod.object(),
            Health::Error,
            Reason::ContainerNotStartable,
            format!(
                "the node cannot set the Pod up: {}",
                event.message.rsplit("): ").next().unwrap_or(&event.message)
            ),
        )
        .since(event.first.as_ref())
        .seen(
            format!("Event {}{}", event.reason, create::times(event.count)),
            &event.message,
            event.last.as_ref(),
        );
        let node = pod.node.as_deref().unwrap_or("?");
        let mut finding = Finding::new(State::Blocked, format!("Check the network plugin and the container runtime of node '{node}', or ask whoever runs the cluster. The kubelet tries again by itself."))
            .link(link)
            .then(commands::describe(&pod.object(), "all Events of the Pod"));
        if let Some(node) = pod.node.as_ref().filter(|_| context.may_read("nodes")) {
            finding = finding.then(commands::node(node));
        }
        return finding;
    }
    let where_to = pod.node.as_ref().map_or_else(
        || "waits for the scheduler to give it a node".to_owned(),
        |node| format!("starts on node '{node}' (image, volumes)"),
    );
    let link = Link::new(
        pod.object(),
        Health::Waiting,
        Reason::Progressing,
        format!("{where_to}{}", context.since(pod.meta.created.as_ref())),
    )
    .since(pod.meta.created.as_ref());
    let link = match pod.state().waiting() {
        Some(Reported { reason, message }) => {
            link.seen(format!("container waiting: {reason}"), message, None)
        }
        None => link.seen("status.phase", &pod.phase, pod.meta.created.as_ref()),
    };
    let until = context
        .status()
        .progress
        .deadline_at
        .as_ref()
        .map_or_else(String::new, |deadline| {
            format!(" It has until {} to start.", context.when(deadline))
        });
    Finding::new(
        State::Waiting,
        format!("Wait: nothing is wrong so far.{until}"),
    )
    .link(link)
    .then(commands::describe(&pod.object(), "the Pod's Events"))
    .then(commands::look_again(context))
}

fn running(context: RunContext<'_>, pod: &PodView, since: Option<&Time>) -> Finding {
    let node = pod.node.as_deref().unwrap_or("?");
    let deadline = context
        .status()
        .progress
        .deadline_at
        .as_ref()
        .filter(|_| context.status().started_at.is_some());
    let until = deadline.map_or_else(String::new, |deadline| {
        format!(
            "; it has until {} ({})",
            times::clock(context.now(), deadline.0),
            {
                let left = deadline
                    .0
                    .as_second()
                    .saturating_sub(context.now().as_second());
                if left >= 0 {
                    format!("{} left", times::span(left))
                } else {
                    format!("{} over", times::span(left.saturating_neg()))
                }
            }
        )
    });
    let link = Link::new(
        pod.object(),
        Health::Ok,
        "Running",
        format!(
            "the agent runs on node '{node}'{}{until}",
            context.since(since)
        ),
    )
    .since(since)
    .seen(
        format!(
            "container '{}' running",
            pod.current().map_or("agent", |agent| agent.name.as_str())
        ),
        pod.current().map_or("", |agent| agent.image.as_str()),
        since,
    );
    Finding::new(
        State::Running,
        "Nothing is wrong: wait for its end, or follow what it writes.",
    )
    .link(link)
    .then(commands::follow(context, pod))
    .then(commands::wait(context))
}
