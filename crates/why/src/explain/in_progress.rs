//! An attempt in progress: its Job, its Pod, and the objects that they wait for.

use super::stop::{lost, on_lost_node, replaced};
use super::*;

/// Explains the attempt by the state of the cluster.
pub(super) fn find(run: Run<'_>) -> Finding {
    match run.job() {
        Some(job) => with_job(run, job),
        None => without_job(run),
    }
}

/// Explains a run without a Job. Either another object has to end first, or the Job is lost, or it
/// will be created soon.
fn without_job(run: Run<'_>) -> Finding {
    if !run.was_read("jobs") {
        return unread_job(run);
    }
    if let Some(pod) = run.world.pods.iter().find(|pod| pod.may_run()) {
        return stopping(*run, pod, Stop::Ours(Reason::Progressing)).then(run.look_again());
    }
    if let Some(job) = run.jobs().find(|job| job.end().is_none()) {
        return finding! { Waiting "Wait: the next Job is created when this one is deleted.";
            Waiting job.object(), Reason::Progressing, "of an earlier version or attempt has to stop first";
            since job.meta.deleting.as_ref(); seen job.meta.deletion(run.world);
            then run.look_again(), job.object().describe("what holds it");
        };
    }
    if let Some(finding) = docs::asking(run) {
        return finding;
    }
    if let Some(name) = &run.status().job_name {
        let health = Health::error_if(run.age(run.written()) > 30);
        return finding! { Waiting "Wait: Job '{name}' is looked for once more; if it stays away, another Job takes its place by itself, and no attempt is used. Then find out what deletes Jobs here.";
            (health) run.here("Job", name), Reason::JobLost, "is not there: someone deleted it while the run went on";
            since run.written(); seen run.not_found(); then run.look_again();
            shell "kubectl get events -n {} --field-selector involvedObject.name={name}", run.namespace => "what happened to it";
        };
    }
    finding! { Waiting "Wait: the Job is made in a moment. If it is not there in a minute, look into the operator's log.";
        then run.look_again(), operator::log(run.world);
    }
}

/// Explains a run of which the Jobs could not be read. Its Pods carry the run's UID.
fn unread_job(run: Run<'_>) -> Finding {
    let pods = run.world.pods.iter();
    if let Some(pod) = pods.max_by_key(|pod| pod.meta.created.clone()) {
        return pod_stand(run, pod);
    }
    let object = match &run.status().job_name {
        Some(name) => run.here("Job", name),
        None => run.object(),
    };
    permissions::hidden(run, object, "jobs")
}

fn with_job(run: Run<'_>, job: &JobView) -> Finding {
    let (end, deleting) = (job.end(), job.meta.deleting.as_ref());
    let Some(pod) = run.newest_pod(job) else {
        return match run.was_read("pods") {
            true => without_pod(run, job),
            false => unread_pod(run, job),
        };
    };
    let (reason, how) = match (end, deleting) {
        (Some(end), _) if end.kind == "Complete" => ("Ended", "is complete".to_owned()),
        (Some(_), _) => ("Ended", "has failed".to_owned()),
        (None, Some(_)) => ("Active", "is being deleted by another actor".to_owned()),
        (None, None) => {
            let created = run.ago(job.meta.created.as_ref());
            ("Active", format!("was created{created}, and has its Pod"))
        }
    };
    let finding = pod_stand(run, pod);
    let health = match finding.state == State::Running {
        true => Health::Ok,
        false => Health::Waiting,
    };
    let asked = deleting
        .filter(|_| end.is_none())
        .map(|_| job.meta.deletion(run.world));
    finding.below([link! { (health) job.object(), reason, (how); seen end.map(|end| end.evidence()); seen asked;
    }])
}

/// Explains a Job of which the Pods could not be read.
fn unread_pod(run: Run<'_>, job: &JobView) -> Finding {
    let deepest = match &run.status().pod {
        Some(pod) => run.here("Pod", &pod.name),
        None => job.object(),
    };
    let finding = permissions::hidden(run, deepest, "pods");
    let above = job.object();
    if finding.starts_with(&above) {
        return finding.evidence(job.end().map(|end| end.evidence()));
    }
    let created = run.ago(job.meta.created.as_ref());
    let health = match finding.state == State::Running {
        true => Health::Ok,
        false => Health::Waiting,
    };
    finding.below([link! { (health) above, "Active", "was created{created}"; seen job.end().map(|end| end.evidence()); }])
}

/// Explains a Job that has no Pod.
fn without_pod(run: Run<'_>, job: &JobView) -> Finding {
    let deleting = job.meta.deleting.as_ref();
    if let Some(end) = job.end() {
        return finding! { Waiting "The run is about to end as EvidenceLost. Find out what deletes finished Pods here. Running it again repeats what the agent did, side effects included.";
            Error job.object(), Reason::EvidenceLost, "has ended, and its Pod is deleted: nothing shows how the agent ended";
            seen end.evidence(); then run.look_again(), run.retry();
        };
    }
    if deleting.is_some() {
        return finding! { Waiting "Wait: another Job is started when this one is deleted, and no attempt is used. Then find out what deletes Jobs here.";
            Error job.object(), Reason::JobLost, "is being deleted by another actor{}", run.since(deleting);
            since deleting; seen "metadata.finalizers" => (job.meta.finalizers.join(", ")), deleting;
            then job.object().yaml("what holds it");
        };
    }
    if job.suspended {
        return finding! { Blocked "If Job '{}' stays so for more than some seconds, find out who suspends it.", job.meta.name;
            Error job.object(), Reason::Suspended, "is suspended, though the run is not: the operator is about to resume it, or someone else suspends it (a queue such as Kueue)";
            seen run.seen("spec.suspend", "true");
            then job.object().who("'metadata.managedFields' names who set 'suspend'"), run.look_again();
        };
    }
    refused::no_pod(run, job)
}

/// Explains the state of a Job's Pod.
fn pod_stand(run: Run<'_>, pod: &PodView) -> Finding {
    let ended = pod.state().exit().is_some();
    if !ended && (pod.disruption().is_some() || pod.meta.deleting.is_some()) {
        return stopping(*run, pod, Stop::Outside);
    }
    if ended && pod.disruption().is_some() {
        return replaced(run, pod);
    }
    if let Some(node) = run.lost_node(pod).filter(|_| !ended) {
        let link = on_lost_node(pod, node, Reason::Disrupted, "the agent");
        return lost(run.world, node).below([link]);
    }
    match pod.state() {
        ContainerState::Running { since } => {
            let since = since.map(Time);
            docs::step_runs(run, pod, since.as_ref())
                .unwrap_or_else(|| running(run, pod, since.as_ref()))
        }
        ContainerState::Ended(_) => ended::settling(run, pod),
        ContainerState::Waiting(said) => pod
            .current()
            .and_then(|one| container::waiting(Origin::Agent(run), pod, one, said))
            .or_else(|| docs::publish_starts(run, pod))
            .unwrap_or_else(|| starting(run, pod)),
        ContainerState::Unknown if pod.phase == "Failed" => ended::settling(run, pod),
        ContainerState::Unknown => starting(run, pod),
    }
}

/// Explains a container that has not started and has no message from the kubelet. It waits for a
/// node or a volume, or it is just starting.
fn starting(run: Run<'_>, pod: &PodView) -> Finding {
    let unscheduled = || scheduling::unscheduled(run, pod).filter(|_| pod.node.is_none());
    let problem = unscheduled()
        .or_else(|| volume::mounts(run, pod))
        .or_else(|| volume::claims(run, pod))
        .or_else(|| no_sandbox(run, pod));
    if let Some(finding) = problem {
        return finding;
    }
    let is_blind = !run.was_read("events");
    if is_blind && run.reason().is_some_and(run::is_cause) {
        return permissions::hidden(run, pod.object(), "events");
    }
    let created = pod.meta.created.as_ref();
    let how = pod.node.as_ref().map_or_else(
        || "waits for the scheduler to give it a node".to_owned(),
        |node| format!("starts on node '{node}' (image, volumes)"),
    );
    let deadline = run.progress.deadline_at.as_ref();
    let until = deadline.map_or_else(String::new, |deadline| {
        format!(" It has until {} to start.", run.when(deadline))
    });
    let link = link! { Waiting pod.object(), Reason::Progressing, "{how}{}", run.since(created); since created;
    };
    let link = match pod.state().waiting() {
        Some(Reported { reason, message }) => {
            link.seen(format!("container waiting: {reason}"), message, None)
        }
        None => link.seen("status.phase", &pod.phase, created),
    };
    let so_far = match is_blind {
        true => "its Events could not be read, and would show a problem",
        false => "nothing is wrong so far",
    };
    finding! { Waiting "Wait: {so_far}.{until}";
        link link;
        then pod.object().describe("the Pod's Events"), run.look_again();
    }
}

/// Explains a node that cannot create the Pod's network or its first container.
fn no_sandbox(run: Run<'_>, pod: &PodView) -> Option<Finding> {
    let reasons = ["FailedCreatePodSandBox", "FailedCreatePodContainer"];
    let event = run.world.warning(&pod.meta.uid, &reasons)?;
    let node = pod.node.as_deref();
    let why = event.message.rsplit("): ").next().unwrap_or(&event.message);
    Some(finding! {
        Blocked "Check the network plugin and the container runtime of node '{}', or ask an administrator of the cluster. The kubelet tries again by itself.", node.unwrap_or("?");
        Error pod.object(), Reason::ContainerNotStartable, "the node cannot set the Pod up: {why}";
        since event.first.as_ref(); seen event.evidence();
        then pod.object().describe("all Events of the Pod");
        then node.filter(|_| run.may_read("nodes")).map(commands::node);
    })
}

fn running(run: Run<'_>, pod: &PodView, since: Option<&Time>) -> Finding {
    let node = pod.node.as_deref().unwrap_or("?");
    let deadline = run.progress.deadline_at.as_ref();
    let until = deadline.filter(|_| run.status().started_at.is_some());
    let until = until.map_or_else(String::new, |deadline| {
        let now = run.world.now.0;
        let left = deadline.0.as_second().saturating_sub(now.as_second());
        let word = if left >= 0 { "left" } else { "over" };
        let (at, span) = (
            times::clock(now, deadline.0),
            times::span(left.saturating_abs()),
        );
        format!("; it has until {at} ({span} {word})")
    });
    let container = pod.current();
    let name = container.map_or("agent", |one| one.name.as_str());
    finding! { Running "Nothing is wrong: wait for its end, or follow what it writes.";
        Ok pod.object(), "Running", "the agent runs on node '{node}'{}{until}", run.since(since); since since;
        seen "container '{name}' running" => (container.map_or("", |one| one.image.as_str())), since;
        then run.follow(pod), run.wait();
    }
}
