//! A DocsRun: its repository, its credentials, and the steps of its Pod.

use api::{Reason, messages, tasks::Evidence as RunResult};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    Finding, commands,
    container::Words,
    ended::{outcome, took},
    operator,
    outcome::Explained,
    root_cause::{RootCause, create_secret, ls_remote, repository, root_cause, setting},
    run_context::RunContext,
};
use crate::{
    explanation::{Command, Health, Link, State},
    world::{DocsView, ObjectRef, PodView},
};

/// A step before or after the agent, in a container of Orchestrator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The step before the agent.
    Clone,
    /// The step after the agent.
    Publish,
}

impl Step {
    pub(super) fn container(self) -> &'static str {
        match self {
            Self::Clone => "clone",
            Self::Publish => "publish",
        }
    }
}

/// Returns the current step, or `None` if the agent's container is current or the Pod has no steps.
pub(super) fn step_of(context: RunContext<'_>, pod: &PodView) -> Option<Step> {
    context.run.docs.as_ref()?;
    let name = pod.current()?.name.as_str();
    [Step::Clone, Step::Publish]
        .into_iter()
        .find(|step| step.container() == name)
}

/// Returns `the container`, or the container's name if the Pod is a DocsRun's with several
/// containers.
pub(super) fn container_words(context: RunContext<'_>, pod: &PodView) -> String {
    match (&context.run.docs, pod.current()) {
        (Some(_), Some(container)) => format!("container '{}'", container.name),
        (Some(_), None) | (None, _) => "the container".to_owned(),
    }
}

/// Returns the Secret that the run itself references.
pub(super) fn secret(context: RunContext<'_>) -> Option<&str> {
    context.run.docs.as_ref()?.secret.as_deref()
}

/// Returns whether the run reported a push.
pub(super) fn is_pushed(context: RunContext<'_>) -> bool {
    let docs = context.run.docs.as_ref();
    docs.is_some_and(|docs| docs.commit.is_some())
}

/// Adds the advice for a Pod that waits for the run's own Secret.
pub(super) fn with_secret_commands(
    context: RunContext<'_>,
    name: &str,
    mut finding: Finding,
) -> Finding {
    finding.advice = format!(
        "Create Secret '{name}' in namespace '{}'; the Pod starts by itself a minute or two later.",
        context.namespace()
    );
    finding.next.clear();
    finding
        .then(create_secret(context, name))
        .then(commands::look_again(context))
}

/// Explains a run that waits for its repository. Before the Job, the reason in the status gives the
/// cause. After the push, the operator reads the branch from the server.
pub(super) fn waiting(context: RunContext<'_>) -> Option<Finding> {
    let docs = context.run.docs.as_ref()?;
    let reason = context.reason()?;
    if docs.commit.is_some() && matches!(reason, Reason::Verifying | Reason::NotVerified) {
        return Some(verifying(context, docs));
    }
    if context.job().is_some() || context.status().result.is_some() {
        return None;
    }
    let RootCause {
        mut link,
        advice,
        next,
        is_final,
    } = root_cause(context, docs, reason)?;
    link = link.seen("status.message", context.message(), context.written());
    let until = context.ago(context.status().progress.deadline_at.as_ref());
    let until = until.replacen(" at ", " until ", 1);
    let state = match link.health {
        Health::Ok | Health::Waiting => State::Waiting,
        Health::Error => State::Blocked,
    };
    let tail = if is_final {
        String::new()
    } else {
        format!("; it is tried again by itself{until}")
    };
    let mut finding = Finding::new(state, format!("{advice}{tail}.")).link(link);
    finding.is_newer = state == State::Waiting;
    finding.next = next;
    finding.next.truncate(2);
    Some(finding.then(if is_final {
        commands::orc(context, "cancel", "", "end this one")
    } else {
        commands::look_again(context)
    }))
}

fn verifying(context: RunContext<'_>, docs: &DocsView) -> Finding {
    let branch = &docs.output_branch;
    let link = Link::new(
        repository(docs),
        Health::Waiting,
        Reason::Verifying,
        format!(
            "is asked by the operator whether branch '{branch}' is at commit {}",
            docs.commit.as_deref().unwrap_or("?")
        ),
    )
    .seen("status.message", context.message(), context.written());
    let until = context.ago(context.status().progress.deadline_at.as_ref());
    Finding::new(
        State::Waiting,
        format!(
            "Wait: the push was reported, and the operator reads the branch itself before it calls that a success{}.",
            until.replacen(" at ", "; it asks until ", 1)
        ),
    )
    .link(link)
    .then(commands::look_again(context))
    .then(ls_remote(docs, branch))
}

/// Explains a run without a problem so far: the operator reads the branches, or creates the Job
/// next.
pub(super) fn asking(context: RunContext<'_>) -> Option<Finding> {
    let docs = context.run.docs.as_ref()?;
    if docs.base_commit.is_some() || context.status().job_name.is_some() {
        return None;
    }
    let link = Link::new(
        repository(docs),
        Health::Waiting,
        Reason::Progressing,
        format!(
            "is asked for its branches: the run works on the head of '{}'",
            docs.source_branch
        ),
    )
    .since(context.run.meta.created.as_ref())
    .seen("status.baseCommit", "none yet", context.written());
    Some(
        Finding::new(
            State::Waiting,
            "Wait: this takes seconds. If it stays so, the first lines will say what the server answered.",
        )
        .link(link)
        .then(commands::look_again(context))
        .then(ls_remote(docs, &docs.source_branch))
        .maybe(operator::log(context.world)),
    )
}

/// Explains the time after the agent's end. The next container starts at once, because it waits for
/// no image or volume.
pub(super) fn publish_starts(context: RunContext<'_>, pod: &PodView) -> Option<Finding> {
    let is_next = step_of(context, pod) == Some(Step::Publish);
    is_next.then(|| step_runs(context, pod, None)).flatten()
}

/// Explains a step of Orchestrator that runs, or that is about to start if `since` is `None`.
pub(super) fn step_runs(
    context: RunContext<'_>,
    pod: &PodView,
    since: Option<&Time>,
) -> Option<Finding> {
    let docs = context.run.docs.as_ref()?;
    let node = pod.node.as_deref().unwrap_or("?");
    let (state, health, reason, what) = match step_of(context, pod)? {
        Step::Clone => (
            State::Waiting,
            Health::Waiting,
            Reason::Cloning,
            format!("'{}' is being cloned", docs.repository),
        ),
        Step::Publish => (
            State::Running,
            Health::Ok,
            Reason::Publishing,
            format!(
                "what the agent wrote is being committed and pushed to branch '{}'",
                docs.output_branch
            ),
        ),
    };
    let container = pod.current()?;
    let link = Link::new(
        pod.object(),
        health,
        reason,
        format!("{what}, on node '{node}'{}", context.since(since)),
    )
    .since(since)
    .seen(
        match since {
            Some(_) => format!("container '{}' running", container.name),
            None => format!("container '{}' starts", container.name),
        },
        &container.image,
        since,
    );
    Some(
        Finding::new(
            state,
            "Nothing is wrong: wait for its end, or follow what it writes.",
        )
        .link(link)
        .then(commands::follow(context, pod))
        .then(commands::wait(context)),
    )
}

/// Explains a step of Orchestrator that does not start. Its image comes from the operator's
/// configuration, not from the Agent.
pub(super) fn toolbox(
    context: RunContext<'_>,
    pod: &PodView,
    reason: Reason,
    sentence: &str,
    words: &Words<'_>,
) -> Finding {
    let image = pod.current().map_or("?", |one| one.image.as_str());
    let above = Link::new(pod.object(), Health::Waiting, reason, sentence)
        .since(words.since)
        .seen(words.source.clone(), words.message, words.at);
    let link = Link::new(
        setting("tasks.docs.toolboxImage"),
        Health::Error,
        reason,
        format!(
            "its image '{image}' cannot be used for {}: it is the operator's, not the Agent's",
            container_words(context, pod)
        ),
    )
    .since(words.since)
    .seen("the container's image", image, pod.meta.created.as_ref());
    Finding::new(
        State::Blocked,
        "Ask whoever runs the operator to correct 'tasks.docs.toolboxImage', or to make that image available to the nodes. If the image comes, the kubelet goes on by itself; a run that is started after a correction has the new one.",
    )
    .link(above)
    .link(link)
    .maybe(operator::config(
        context.world,
        "the operator's configuration: 'toolboxImage' below 'tasks.docs'",
    ))
    .then(commands::describe(&pod.object(), "the kubelet's Events"))
}

/// Describes the Pod if the cause is below it.
pub(super) fn explained(
    context: RunContext<'_>,
    result: &RunResult,
    reason: Reason,
) -> Option<Explained> {
    let docs = context.run.docs.as_ref()?;
    let is_ours = matches!(reason, Reason::CloneFailed | Reason::PublishFailed);
    if !is_ours && root_cause(context, docs, reason).is_none() {
        return None;
    }
    let which = match (
        reason,
        context.pod_of_result(result).and_then(PodView::current),
    ) {
        (Reason::CloneFailed, _) => "container 'clone'".to_owned(),
        (Reason::PublishFailed, _) => "container 'publish'".to_owned(),
        (_, Some(container)) => format!("container '{}'", container.name),
        (_, None) => "a container of it".to_owned(),
    };
    let sentence = if reason == Reason::NotVerified {
        "container 'publish' reported that it pushed".to_owned()
    } else {
        format!("{which} ended with this{}", took(result))
    };
    Some(Explained {
        sentence,
        advice: "The words in the first lines are Git's: correct what they name, then run it again (orc retry).".to_owned(),
        change: None,
    })
}

/// Explains that `publish` exceeded its own timeout, which is not the agent's.
pub(super) fn late(context: RunContext<'_>, result: &RunResult) -> Option<Explained> {
    let docs = context.run.docs.as_ref()?;
    messages::is_late_publish(context.message()).then(|| Explained {
        sentence: format!("container 'publish' did not end in time and was stopped{}", took(result)),
        advice: format!(
            "Check whether '{}' takes pushes at a usable speed, and whether branch '{}' has a commit of this run; then run it again (orc retry).",
            docs.repository, docs.output_branch
        ),
        change: Some(ls_remote(docs, &docs.output_branch)),
    })
}

/// Explains a start timeout that expired during the clone.
pub(super) fn cloned_too_long(context: RunContext<'_>, pod: ObjectRef) -> Finding {
    let agent = &context.run.agent_name;
    let link = Link::new(
        pod,
        Health::Error,
        Reason::StartTimeout,
        "was still cloning when the time to start was over",
    )
    .seen(
        "status.message",
        context.message(),
        context.status().finished_at.as_ref(),
    );
    Finding::new(
        State::Failed,
        format!("Use a smaller repository or a faster server, or raise 'startTimeout' of Agent '{agent}': the clone counts."),
    )
    .link(link)
    .then(commands::edit_agent(context, "raise 'startTimeout'"))
}

/// Explains that the time for the repository expired before the operator could query it.
fn not_asked(context: RunContext<'_>, docs: &DocsView) -> Finding {
    let link = Link::new(
        repository(docs),
        Health::Error,
        Reason::StartTimeout,
        "was not queried in time: other queries came first",
    )
    .seen(
        "status.message",
        context.message(),
        context.status().finished_at.as_ref(),
    );
    Finding::new(
        State::Failed,
        "Look for DocsRuns of this namespace with a slow Git server, and cancel them; then run it again (orc retry).",
    )
    .link(link)
    .then(ls_remote(docs, &docs.source_branch))
    .maybe(operator::log(context.world))
    .then(commands::retry(context))
}

/// Explains a run that failed because of an object below its Pod.
pub(super) fn failed(
    context: RunContext<'_>,
    result: &RunResult,
    reason: Reason,
) -> Option<Finding> {
    let docs = context.run.docs.as_ref()?;
    if messages::is_not_asked(context.message()) {
        return Some(not_asked(context, docs));
    }
    let RootCause {
        mut link,
        advice,
        next,
        is_final,
    } = root_cause(context, docs, reason)?;
    link = link.seen(
        "status.message",
        context.message(),
        context.status().finished_at.as_ref(),
    );
    let mut finding = match result.pod_name {
        Some(_) => outcome(context, result, reason),
        None => Finding::new(State::Failed, ""),
    };
    let logs = finding.next.drain(..).next();
    finding.advice = if is_final {
        format!("{}.", advice.replacen("Cancel it and submit", "Submit", 1))
    } else {
        format!("{advice}; then run it again (orc retry).")
    };
    finding = finding.link(link);
    finding.next = next;
    // The agent's log is not the log of the failed step.
    finding
        .next
        .extend(logs.filter(|logs| logs.command.contains(" -c ")));
    finding.next.truncate(2);
    Some(finding.maybe((!is_final).then(|| commands::retry(context))))
}

/// Returns the link that shows the repository's state after a successful run.
pub(super) fn proof(context: RunContext<'_>) -> Option<Link> {
    let docs = context.run.docs.as_ref()?;
    let Some(commit) = &docs.commit else {
        return Some(
            Link::new(
                repository(docs),
                Health::Ok,
                Reason::NoChanges,
                format!(
                    "nothing below '{}' was changed, so nothing was pushed",
                    docs.output_path
                ),
            )
            .seen(
                "status.commit",
                "none",
                context.status().finished_at.as_ref(),
            ),
        );
    };
    let files = docs.changed_files.map_or_else(String::new, |count| {
        let word = if count == 1 { "file" } else { "files" };
        format!(", {count} {word} changed")
    });
    Some(
        Link::new(
            repository(docs),
            Health::Ok,
            "Pushed",
            format!(
                "the operator read branch '{}' at commit {commit}{files}",
                docs.output_branch
            ),
        )
        .seen(
            "status.commit",
            commit,
            context.status().finished_at.as_ref(),
        ),
    )
}

/// Explains instructions that are too large. They cannot be changed.
pub(super) fn too_large(context: RunContext<'_>, largest: &str, link: Link) -> Finding {
    let name = &context.run.meta.name;
    Finding::new(
        State::Blocked,
        format!("Shorten '{largest}' and submit another DocsRun: 'instructions' cannot be changed. Or let the agent fetch the data itself."),
    )
    .link(link)
    .then(Command::new(
        format!(
            "kubectl get odr {name} -n {} -o yaml > {name}.yaml",
            context.namespace()
        ),
        format!("take it into a file; in there, shorten '{largest}' and change the name"),
    ))
    .then(Command::new(
        format!("kubectl create -f {name}.yaml"),
        "then create it",
    ))
    .then(commands::orc(context, "cancel", "", "and end this one"))
}

/// Replaces the retry command. A DocsRun is repeated as a new DocsRun, and two runs must not push
/// to one branch. So this run has to end first.
pub(super) fn cancel_first(context: RunContext<'_>, mut finding: Finding) -> Finding {
    let retry = commands::retry(context).command;
    for command in &mut finding.next {
        if command.command == retry {
            *command = commands::orc(
                context,
                "cancel",
                "",
                &format!("end it; when it has ended: {retry}"),
            );
        }
    }
    let instead = "cancel it and run it again (orc cancel, then orc retry)";
    finding.advice = finding.advice.replace("run it again (orc retry)", instead);
    finding
}
