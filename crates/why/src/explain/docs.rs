//! A DocsRun: its repository, its credentials, and the steps of its Pod.

use api::{Reason, tasks::Evidence as RunResult};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    Finding,
    blame::{Blame, blame, create_secret, ls_remote, repository, setting},
    commands,
    container::Words,
    ended::{outcome, took},
    operator,
    outcome::Told,
    scene::Scene,
};
use crate::{
    explanation::{Command, Health, Link, State},
    said,
    world::{DocsView, ObjectRef, PodView},
};

/// A step around the agent, in a container of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Before the agent.
    Clone,
    /// After the agent.
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

/// The step of ours that counts now; none where it is the agent's, or where there are no steps.
pub(super) fn step_of(scene: Scene<'_>, pod: &PodView) -> Option<Step> {
    scene.run.docs.as_ref()?;
    let name = pod.current()?.name.as_str();
    [Step::Clone, Step::Publish]
        .into_iter()
        .find(|step| step.container() == name)
}

/// `the container`, or by its name where a Pod has several that count.
pub(super) fn container_words(scene: Scene<'_>, pod: &PodView) -> String {
    match (&scene.run.docs, pod.current()) {
        (Some(_), Some(container)) => format!("container '{}'", container.name),
        (Some(_), None) | (None, _) => "the container".to_owned(),
    }
}

/// The Secret that the run itself names.
pub(super) fn secret(scene: Scene<'_>) -> Option<&str> {
    scene.run.docs.as_ref()?.secret.as_deref()
}

/// Whether a push was reported.
pub(super) fn is_pushed(scene: Scene<'_>) -> bool {
    let docs = scene.run.docs.as_ref();
    docs.is_some_and(|docs| docs.commit.is_some())
}

/// A Pod waits for the run's own Secret.
pub(super) fn with_secret_commands(scene: Scene<'_>, name: &str, mut finding: Finding) -> Finding {
    finding.advice = format!(
        "Create Secret '{name}' in namespace '{}'; the Pod starts by itself a minute or two later.",
        scene.namespace()
    );
    finding.next.clear();
    finding
        .then(create_secret(scene, name))
        .then(commands::look_again(scene))
}

/// Before its Job: the status names what keeps the run from its repository. After its push: the
/// operator asks the server.
pub(super) fn waiting(scene: Scene<'_>) -> Option<Finding> {
    let docs = scene.run.docs.as_ref()?;
    let reason = scene.reason()?;
    if docs.commit.is_some() && matches!(reason, Reason::Verifying | Reason::NotVerified) {
        return Some(verifying(scene, docs));
    }
    if scene.job().is_some() || scene.status().result.is_some() {
        return None;
    }
    let Blame {
        mut link,
        advice,
        next,
        is_final,
    } = blame(scene, docs, reason)?;
    link = link.seen("status.message", scene.message(), scene.written());
    let until = scene.ago(scene.status().deadline_at.as_ref());
    let until = until.replacen(" at ", " until ", 1);
    let state = match link.health {
        Health::Fine | Health::Waiting => State::Waiting,
        Health::Wrong => State::Blocked,
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
        commands::orc(scene, "cancel", "", "end this one")
    } else {
        commands::look_again(scene)
    }))
}

fn verifying(scene: Scene<'_>, docs: &DocsView) -> Finding {
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
    .seen("status.message", scene.message(), scene.written());
    let until = scene.ago(scene.status().deadline_at.as_ref());
    Finding::new(
        State::Waiting,
        format!(
            "Wait: the push was reported, and the operator reads the branch itself before it calls that a success{}.",
            until.replacen(" at ", "; it asks until ", 1)
        ),
    )
    .link(link)
    .then(commands::look_again(scene))
    .then(ls_remote(docs, branch))
}

/// Nothing is wrong so far: the server is being asked, or the Job is about to be made.
pub(super) fn asking(scene: Scene<'_>) -> Option<Finding> {
    let docs = scene.run.docs.as_ref()?;
    if docs.base_commit.is_some() || scene.status().job_name.is_some() {
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
    .since(scene.run.meta.created.as_ref())
    .seen("status.baseCommit", "none yet", scene.written());
    Some(
        Finding::new(
            State::Waiting,
            "Wait: this takes seconds. If it stays so, the first lines will say what the server answered.",
        )
        .link(link)
        .then(commands::look_again(scene))
        .then(ls_remote(docs, &docs.source_branch))
        .maybe(operator::log(scene.world)),
    )
}

/// A step of ours runs.
pub(super) fn step_runs(scene: Scene<'_>, pod: &PodView, since: Option<&Time>) -> Option<Finding> {
    let docs = scene.run.docs.as_ref()?;
    let node = pod.node.as_deref().unwrap_or("?");
    let (state, health, reason, what) = match step_of(scene, pod)? {
        Step::Clone => (
            State::Waiting,
            Health::Waiting,
            Reason::Cloning,
            format!("'{}' is being cloned", docs.repository),
        ),
        Step::Publish => (
            State::Running,
            Health::Fine,
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
        format!("{what}, on node '{node}'{}", scene.since(since)),
    )
    .since(since)
    .seen(
        format!("container '{}' running", container.name),
        &container.image,
        since,
    );
    Some(
        Finding::new(
            state,
            "Nothing is wrong: wait for its end, or follow what it writes.",
        )
        .link(link)
        .then(commands::follow(scene, pod))
        .then(commands::wait(scene)),
    )
}

/// A container of ours does not start: its image is not the Agent's, but the operator's.
pub(super) fn toolbox(
    scene: Scene<'_>,
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
        Health::Wrong,
        reason,
        format!(
            "its image '{image}' cannot be used for {}: it is the operator's, not the Agent's",
            container_words(scene, pod)
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
        scene.world,
        "the operator's configuration: 'toolboxImage' below 'tasks.docs'",
    ))
    .then(commands::describe(&pod.object(), "the kubelet's Events"))
}

/// What is said of the Pod where the blame is below it.
pub(super) fn told(scene: Scene<'_>, result: &RunResult, reason: Reason) -> Option<Told> {
    let docs = scene.run.docs.as_ref()?;
    let is_ours = matches!(reason, Reason::CloneFailed | Reason::PublishFailed);
    if !is_ours && blame(scene, docs, reason).is_none() {
        return None;
    }
    let which = match (
        reason,
        scene.pod_of_result(result).and_then(PodView::current),
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
    Some(Told {
        sentence,
        advice: "The words in the first lines are Git's: correct what they name, then run it again (orc retry).".to_owned(),
        change: None,
    })
}

/// `publish` has a time of its own, which is not the agent's.
pub(super) fn late(scene: Scene<'_>, result: &RunResult) -> Option<Told> {
    let docs = scene.run.docs.as_ref()?;
    said::is_late_publish(scene.message()).then(|| Told {
        sentence: format!("container 'publish' did not end in time and was stopped{}", took(result)),
        advice: format!(
            "Check whether '{}' takes pushes at a usable speed, and whether branch '{}' has a commit of this run; then run it again (orc retry).",
            docs.repository, docs.output_branch
        ),
        change: Some(ls_remote(docs, &docs.output_branch)),
    })
}

/// The time to start ran out during the clone.
pub(super) fn cloned_too_long(scene: Scene<'_>, pod: ObjectRef) -> Finding {
    let agent = &scene.run.agent_name;
    let link = Link::new(
        pod,
        Health::Wrong,
        Reason::StartTimeout,
        "was still cloning when the time to start was over",
    )
    .seen(
        "status.message",
        scene.message(),
        scene.status().finished_at.as_ref(),
    );
    Finding::new(
        State::Failed,
        format!("Use a smaller repository or a faster server, or raise 'startTimeout' of Agent '{agent}': the clone counts."),
    )
    .link(link)
    .then(commands::edit_agent(scene, "raise 'startTimeout'"))
}

/// The time to wait for the repository ran out, and no answer had come at all.
fn never_answered(scene: Scene<'_>, docs: &DocsView) -> Finding {
    let link = Link::new(
        repository(docs),
        Health::Wrong,
        Reason::RepositoryUnreachable,
        "was asked for its branches, and no answer came in time",
    )
    .seen(
        "status.message",
        scene.message(),
        scene.status().finished_at.as_ref(),
    );
    Finding::new(
        State::Failed,
        "Check the server, and whether the operator has more questions than it can ask; then run it again (orc retry).",
    )
    .link(link)
    .then(ls_remote(docs, &docs.source_branch))
    .maybe(operator::log(scene.world))
    .then(commands::retry(scene))
}

/// A run that ended for something below its Pod.
pub(super) fn failed(scene: Scene<'_>, result: &RunResult, reason: Reason) -> Option<Finding> {
    let docs = scene.run.docs.as_ref()?;
    if reason == Reason::Progressing && result.pod_name.is_none() {
        return Some(never_answered(scene, docs));
    }
    let Blame {
        mut link,
        advice,
        next,
        is_final,
    } = blame(scene, docs, reason)?;
    link = link.seen(
        "status.message",
        scene.message(),
        scene.status().finished_at.as_ref(),
    );
    let mut finding = match result.pod_name {
        Some(_) => outcome(scene, result, reason),
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
    // The agent's log is not that of the step that failed.
    finding
        .next
        .extend(logs.filter(|logs| logs.run.contains(" -c ")));
    finding.next.truncate(2);
    Some(finding.maybe((!is_final).then(|| commands::retry(scene))))
}

/// What the server has of a run that succeeded.
pub(super) fn proof(scene: Scene<'_>) -> Option<Link> {
    let docs = scene.run.docs.as_ref()?;
    let Some(commit) = &docs.commit else {
        return Some(
            Link::new(
                repository(docs),
                Health::Fine,
                Reason::NoChanges,
                format!(
                    "nothing below '{}' was changed, so nothing was pushed",
                    docs.output_path
                ),
            )
            .seen("status.commit", "none", scene.status().finished_at.as_ref()),
        );
    };
    let files = docs.changed_files.map_or_else(String::new, |count| {
        let word = if count == 1 { "file" } else { "files" };
        format!(", {count} {word} changed")
    });
    Some(
        Link::new(
            repository(docs),
            Health::Fine,
            "Pushed",
            format!(
                "the operator read branch '{}' at commit {commit}{files}",
                docs.output_branch
            ),
        )
        .seen("status.commit", commit, scene.status().finished_at.as_ref()),
    )
}

/// Files that are too large: they cannot be changed.
pub(super) fn too_large(scene: Scene<'_>, largest: &str, link: Link) -> Finding {
    let name = &scene.run.meta.name;
    Finding::new(
        State::Blocked,
        format!("Shorten '{largest}' and submit another DocsRun: 'instructions' cannot be changed. Or let the agent fetch the data itself."),
    )
    .link(link)
    .then(Command::new(
        format!(
            "kubectl get odr {name} -n {} -o yaml > {name}.yaml",
            scene.namespace()
        ),
        format!("take it into a file; in there, shorten '{largest}' and change the name"),
    ))
    .then(Command::new(
        format!("kubectl create -f {name}.yaml"),
        "then create it",
    ))
    .then(commands::orc(scene, "cancel", "", "and end this one"))
}

/// A DocsRun is run again as another one, and two must not push to one branch: this one has to end.
pub(super) fn cancel_first(scene: Scene<'_>, mut finding: Finding) -> Finding {
    let retry = commands::retry(scene).run;
    for command in &mut finding.next {
        if command.run == retry {
            *command = commands::orc(
                scene,
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
