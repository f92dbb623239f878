//! A DocsRun: its repository, its credentials, and the steps of its Pod.

use super::ended::{outcome, took};
use super::outcome::Explained;
use super::root_cause::{ls_remote, repository, root_cause};
use super::*;

/// Returns the container of Orchestrator that is current: `clone` before the agent, or `publish`
/// after it. Returns `None` if the agent's container is current or the Pod has no steps.
pub(super) fn step_of(run: Run<'_>, pod: &PodView) -> Option<&'static str> {
    run.view.docs.as_ref()?;
    let name = pod.current()?.name.as_str();
    ["clone", "publish"].into_iter().find(|step| *step == name)
}

/// Returns `the container`, or the container's name if the Pod is a DocsRun's with several
/// containers.
pub(super) fn container_words(run: Run<'_>, pod: &PodView) -> String {
    match (&run.view.docs, pod.current()) {
        (Some(_), Some(container)) => format!("container '{}'", container.name),
        (Some(_), None) | (None, _) => "the container".to_owned(),
    }
}

/// Returns the Secret that the run itself references.
pub(super) fn secret(run: Run<'_>) -> Option<&str> {
    run.view.docs.as_ref()?.secret.as_deref()
}

/// Returns whether the run reported a push.
pub(super) fn is_pushed(run: Run<'_>) -> bool {
    let docs = run.view.docs.as_ref();
    docs.is_some_and(|docs| docs.commit.is_some())
}

/// Returns the message of a run that has ended as evidence.
fn said_last(run: Run<'_>) -> Evidence {
    let at = run.status().finished_at.as_ref();
    Evidence::new("status.message", run.message(), at)
}

/// Explains a run that waits for its repository. Before the Job, the reason in the status gives the
/// cause. After the push, the operator reads the branch from the server.
pub(super) fn waiting(run: Run<'_>) -> Option<Finding> {
    let docs = run.view.docs.as_ref()?;
    let reason = run.reason()?;
    let until = run.due(run.progress.deadline_at.as_ref());
    if let Some(commit) = &docs.commit
        && matches!(reason, Reason::Verifying | Reason::NotVerified)
    {
        let branch = &docs.output_branch;
        let until = until.replacen(" at ", "; it asks until ", 1);
        return Some(finding! {
            Waiting "Wait: the push was reported, and the operator reads the branch itself before it calls that a success{until}.";
            Waiting repository(docs), Reason::Verifying, "is asked by the operator whether branch '{branch}' is at commit {commit}";
            seen run.said(); then run.look_again(), ls_remote(docs, branch);
        });
    }
    if run.job().is_some() || run.status().result.is_some() {
        return None;
    }
    let (mut finding, is_final) = root_cause(run, docs, reason)?;
    let until = until.replacen(" at ", " until ", 1);
    let (tail, last) = match is_final {
        true => (".".to_owned(), run.orc("cancel", "", "end this one")),
        false => (
            format!("; it is tried again by itself{until}."),
            run.look_again(),
        ),
    };
    finding.advice.push_str(&tail);
    finding.is_newer = finding.state == State::Waiting;
    finding.next.truncate(2);
    Some(finding.evidence(run.said()).then(last))
}

/// Explains a run without a problem so far: the operator reads the branches, or creates the Job
/// next.
pub(super) fn asking(run: Run<'_>) -> Option<Finding> {
    let docs = run.view.docs.as_ref()?;
    if docs.base_commit.is_some() || run.status().job_name.is_some() {
        return None;
    }
    let branch = &docs.source_branch;
    Some(finding! {
        Waiting "Wait: this takes seconds. If it stays so, the first lines will say what the server answered.";
        Waiting repository(docs), Reason::Progressing, "is asked for its branches: the run works on the head of '{branch}'";
        since run.meta.created.as_ref(); seen "status.baseCommit" => "none yet", run.written();
        then run.look_again(), ls_remote(docs, branch), operator::log(run.world);
    })
}

/// Explains the time after the agent's end. The next container starts at once, because it waits for
/// no image or volume.
pub(super) fn publish_starts(run: Run<'_>, pod: &PodView) -> Option<Finding> {
    step_of(run, pod).filter(|step| *step == "publish")?;
    step_runs(run, pod, None)
}

/// Explains a step of Orchestrator that runs, or that is about to start if `since` is `None`.
pub(super) fn step_runs(run: Run<'_>, pod: &PodView, since: Option<&Time>) -> Option<Finding> {
    let docs = run.view.docs.as_ref()?;
    let node = pod.node.as_deref().unwrap_or("?");
    let step = step_of(run, pod)?;
    let (state, health, reason, what) = if step == "clone" {
        let what = format!("'{}' is being cloned", docs.repository);
        (State::Waiting, Health::Waiting, Reason::Cloning, what)
    } else {
        let branch = &docs.output_branch;
        let what =
            format!("what the agent wrote is being committed and pushed to branch '{branch}'");
        (State::Running, Health::Ok, Reason::Publishing, what)
    };
    let how = if since.is_some() { "running" } else { "starts" };
    let image = &pod.current()?.image;
    Some(
        finding! { (state) "Nothing is wrong: wait for its end, or follow what it writes.";
            (health) pod.object(), reason, "{what}, on node '{node}'{}", run.since(since); since since;
            seen "container '{step}' {how}" => (image), since;
            then run.follow(pod), run.wait();
        },
    )
}

/// Describes the Pod if the cause is below it.
pub(super) fn explained(run: Run<'_>, result: &RunResult, reason: Reason) -> Option<Explained> {
    let docs = run.view.docs.as_ref()?;
    let current = run.pod_of_result(result).and_then(PodView::current);
    let which = match (reason, current) {
        (Reason::CloneFailed, _) => "container 'clone'".to_owned(),
        (Reason::PublishFailed, _) => "container 'publish'".to_owned(),
        (_, current) => {
            root_cause(run, docs, reason)?;
            let name = current.map(|container| format!("container '{}'", container.name));
            name.unwrap_or_else(|| "a container of it".to_owned())
        }
    };
    let sentence = one_of! { reason == Reason::NotVerified;
        true => "container 'publish' reported that it pushed";
        false => "{which} ended with this{}", took(result);
    };
    let advice = "The words in the first lines are Git's: correct what they name, then run it again (orc retry).";
    Some((sentence, advice.to_owned(), None))
}

/// Explains that `publish` exceeded its own timeout, which is not the agent's.
pub(super) fn late(run: Run<'_>, result: &RunResult) -> Option<Explained> {
    let docs = run.view.docs.as_ref()?;
    let (url, branch) = (&docs.repository, &docs.output_branch);
    let sentence =
        text! { "container 'publish' did not end in time and was stopped{}", took(result) };
    let advice = text! { "Check whether '{url}' takes pushes at a usable speed, and whether branch '{branch}' has a commit of this run; then run it again (orc retry)." };
    let is_late = messages::is_late_publish(run.message());
    is_late.then(|| (sentence, advice, Some(ls_remote(docs, branch))))
}

/// Explains a start timeout that expired during the clone.
pub(super) fn cloned_too_long(run: Run<'_>, pod: ObjectRef) -> Finding {
    finding! { Failed "Use a smaller repository or a faster server, or raise 'startTimeout' of Agent '{}': the clone counts.", run.view.agent_name;
        Error pod, Reason::StartTimeout, "was still cloning when the time to start was over";
        seen said_last(run); then run.edit_agent("raise 'startTimeout'");
    }
}

/// Explains a run that failed because of an object below its Pod.
pub(super) fn failed(run: Run<'_>, result: &RunResult, reason: Reason) -> Option<Finding> {
    let docs = run.view.docs.as_ref()?;
    // The time for the repository expired before the operator could query it.
    if messages::is_not_asked(run.message()) {
        return Some(finding! {
            Failed "Look for DocsRuns of this namespace with a slow Git server, and cancel them; then run it again (orc retry).";
            Error repository(docs), Reason::StartTimeout, "was not queried in time: other queries came first";
            seen said_last(run);
            then ls_remote(docs, &docs.source_branch), operator::log(run.world), run.retry();
        });
    }
    let (cause, is_final) = root_cause(run, docs, reason)?;
    let advice = &cause.advice;
    let mut finding = match result.pod_name {
        Some(_) => outcome(run, result, reason),
        None => Finding::new(State::Failed, ""),
    };
    finding.advice = match is_final {
        true => format!("{}.", advice.replacen("Cancel it and submit", "Submit", 1)),
        false => format!("{advice}; then run it again (orc retry)."),
    };
    // The agent's log is not the log of the failed step.
    let logs = std::mem::replace(&mut finding.next, cause.next);
    let mut logs = logs.into_iter().take(1);
    finding = finding.then(logs.find(|logs| logs.command.contains(" -c ")));
    finding.next.truncate(2);
    finding.links.extend(cause.links);
    Some(rows! { finding;
        seen said_last(run);
        then (!is_final).then(|| run.retry());
    })
}

/// Returns the link that shows the repository's state after a successful run.
pub(super) fn proof(run: Run<'_>) -> Option<Link> {
    let docs = run.view.docs.as_ref()?;
    let at = run.status().finished_at.as_ref();
    let (path, branch) = (&docs.output_path, &docs.output_branch);
    let Some(commit) = &docs.commit else {
        return Some(link! {
            Ok repository(docs), Reason::NoChanges, "nothing below '{path}' was changed, so nothing was pushed";
            seen "status.commit" => "none", at;
        });
    };
    let files = docs.changed_files.map_or_else(String::new, |count| {
        let word = if count == 1 { "file" } else { "files" };
        format!(", {count} {word} changed")
    });
    Some(link! {
        Ok repository(docs), "Pushed", "the operator read branch '{branch}' at commit {commit}{files}";
        seen "status.commit" => (commit), at;
    })
}

/// Explains instructions that are too large. They cannot be changed.
pub(super) fn too_large(run: Run<'_>, largest: &str, link: Link) -> Finding {
    let (name, within) = (run.name(), run.namespace);
    finding! { Blocked "Shorten '{largest}' and submit another DocsRun: 'instructions' cannot be changed. Or let the agent fetch the data itself.";
        link link;
        shell "kubectl get odr {name} -n {within} -o yaml > {name}.yaml" => "take it into a file; in there, shorten '{largest}' and change the name";
        shell "kubectl create -f {name}.yaml" => "then create it";
    }
}

/// Replaces the retry command. A DocsRun is repeated as a new DocsRun, and two runs must not push
/// to one branch. So this run has to end first.
pub(super) fn cancel_first(run: Run<'_>, mut finding: Finding) -> Finding {
    let retry = run.retry().command;
    for command in finding
        .next
        .iter_mut()
        .filter(|command| command.command == retry)
    {
        *command = run.orc("cancel", "", format!("end it; when it has ended: {retry}"));
    }
    let instead = "cancel it and run it again (orc cancel, then orc retry)";
    finding.advice = finding.advice.replace("run it again (orc retry)", instead);
    finding
}
