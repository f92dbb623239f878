//! Converts a [`World`] into an [`Explanation`] with one pure function.
//!
//! Each module knows one topic and returns a [`Finding`]: the part of the chain below the run.
//! [`run`] calls them in order. The first one that finds something explains the run.

mod admission;
mod agent;
mod answers;
mod commands;
mod container;
mod create;
mod deletion;
mod docs;
mod ended;
mod faults;
mod in_progress;
mod object;
mod operator;
mod other;
mod outcome;
mod quantity;
mod root_cause;
mod run;
mod run_context;
mod scheduling;
mod shell;
mod stop;
mod tenant;
mod volume;

use api::{Reason, status::bounded};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    explanation::{Blocker, Command, Explanation, Health, Link, Note, NoteKind, Outdated, State},
    world::{ObjectRef, TEXT, World},
};
#[cfg(feature = "gather")]
pub(crate) use container::missing_thing;
use run_context::RunContext;

/// Advice for runs, for reasons that several kinds share. The docs describe such a reason for all
/// kinds.
const OF_RUN: &[(Reason, &str)] = &[
    (
        Reason::ImagePullFailed,
        "Check the Agent's 'image' and 'imagePullSecrets'.",
    ),
    (
        Reason::ImageNeedsRoot,
        "Set the Agent's 'runAsUser' to a number other than 0, and make the image work with it.",
    ),
    (
        Reason::ContainerNotStartable,
        "The message is the kubelet's. Check the Agent's 'command' and the image.",
    ),
    (
        Reason::Unschedulable,
        "The message is the scheduler's. Check the Agent's 'resources', 'nodeSelector' and 'tolerations', or add a node.",
    ),
    (
        Reason::QuotaExceeded,
        "Free some quota, ask for more, or lower the Agent's 'resources'.",
    ),
    (
        Reason::AdmissionDenied,
        "The message is the rule's. Change the Agent, or ask who set the rule.",
    ),
    (
        Reason::SecretNotFound,
        "Create it; the run goes on by itself within seconds.",
    ),
    (
        Reason::VolumeNotReady,
        "The message is the kubelet's or the provisioner's. Check the Agent's 'workspace.storageClassName'.",
    ),
];

/// Returns the advice for a run's reason as plain text, without the Markdown of the docs.
fn plain(reason: Reason) -> String {
    let known = OF_RUN.iter().find(|(known, _)| *known == reason);
    known.map_or_else(
        || reason.advice().replace('`', "'"),
        |(_, advice)| (*advice).to_owned(),
    )
}

/// The result of one topic.
#[derive(Debug, Clone)]
struct Finding {
    state: State,
    /// The links below the run, the deepest one last.
    links: Vec<Link>,
    notes: Vec<Note>,
    advice: String,
    next: Vec<Command>,
    /// Whether the cluster contradicts the status. Then the deepest link determines the summary.
    is_newer: bool,
}

impl Finding {
    fn new(state: State, advice: impl Into<String>) -> Self {
        Self {
            state,
            links: Vec::new(),
            notes: Vec::new(),
            advice: advice.into(),
            next: Vec::new(),
            is_newer: false,
        }
    }

    /// Marks the finding as a contradiction of the status.
    #[must_use]
    fn newer(mut self) -> Self {
        self.is_newer = true;
        self
    }

    #[must_use]
    fn link(mut self, link: Link) -> Self {
        self.links.push(link);
        self
    }

    #[must_use]
    fn then(mut self, command: Command) -> Self {
        self.next.push(command);
        self
    }

    #[must_use]
    fn maybe(mut self, command: Option<Command>) -> Self {
        self.next.extend(command);
        self
    }

    #[must_use]
    fn note(mut self, kind: NoteKind, text: impl Into<String>) -> Self {
        self.notes.push(Note {
            kind,
            text: text.into(),
        });
        self
    }

    /// Appends these links.
    #[must_use]
    fn links(mut self, more: impl IntoIterator<Item = Link>) -> Self {
        self.links.extend(more);
        self
    }

    /// Puts these links in front of the others.
    #[must_use]
    fn below(mut self, mut above: Vec<Link>) -> Self {
        above.append(&mut self.links);
        self.links = above;
        self
    }
}

/// Explains the state of the target.
///
/// # Guarantees
/// - Pure: the same world gives the same explanation.
/// - The chain has at least one link, and there is at least one command.
/// - If the status and the cluster disagree, the cluster counts. A note shows both with their
///   times.
#[must_use]
pub fn explain(world: &World) -> Explanation {
    let mut explanation = match (
        world.target.kind.as_str(),
        &world.run,
        &world.agent,
        &world.tenant,
    ) {
        ("Agent", _, Some(agent), _) => agent::explain(world, agent),
        (_, Some(run), _, _) => run::explain(RunContext { world, run }),
        (_, None, _, Some(tenant)) => tenant::explain(world, tenant),
        (_, None, _, None) => match &world.object {
            Some(found) => object::explain(world, found),
            None => other::explain(world),
        },
    };
    explanation.notes.extend(unreadable(world));
    explanation.next_steps.truncate(3);
    mark_target(&mut explanation);
    explanation
}

/// Builds the explanation of `subject`. Its own link is the first of the chain.
fn conclude(world: &World, subject: &ObjectRef, summary: Summary, finding: Finding) -> Explanation {
    let Summary {
        mut text,
        mut reason,
        since,
        written,
    } = summary;
    let deepest = finding.links.last();
    // A suspended object is suspended by its own spec, even while its Pods are still being stopped.
    let culprit = match finding.state {
        State::Suspended => finding.links.first(),
        State::Succeeded
        | State::Failed
        | State::Running
        | State::Waiting
        | State::Blocked
        | State::Deleting
        | State::Ready
        | State::NotIsolated
        | State::NotProven
        | State::Unmanaged => deepest,
    };
    // An object that continues automatically is blocked only by a link with a problem.
    let blocks = |link: &&Link| match finding.state {
        State::Succeeded | State::Running | State::Ready | State::Unmanaged => false,
        State::Waiting | State::Deleting | State::NotProven => link.health == Health::Error,
        State::Failed | State::Blocked | State::Suspended | State::NotIsolated => {
            link.health != Health::Ok
        }
    };
    let of_trouble = match finding.state {
        State::Succeeded | State::Failed | State::Deleting | State::Ready | State::Unmanaged => {
            None
        }
        State::Suspended => culprit.and_then(|link| link.since.clone()),
        State::Running
        | State::Waiting
        | State::Blocked
        | State::NotIsolated
        | State::NotProven => finding
            .links
            .iter()
            .rev()
            .find_map(|link| link.since.clone()),
    };
    let mut outdated = None;
    if let Some(link) = deepest.filter(|_| finding.is_newer) {
        let live = format!(
            "{} '{}': {}",
            link.object.kind, link.object.name, link.message
        );
        outdated = Some(Outdated {
            message: bounded(&std::mem::replace(&mut text, live), TEXT),
            at: written,
        });
        reason.clone_from(&link.reason);
    }
    Explanation {
        at: world.now.clone(),
        target: world.target.clone(),
        subject: subject.clone(),
        state: finding.state,
        reason,
        since: of_trouble.or(since),
        summary: bounded(&text, TEXT),
        outdated,
        blocker: culprit.filter(blocks).map(|link| Blocker {
            object: link.object.clone(),
            reason: link.reason.clone(),
            message: link.message.clone(),
        }),
        chain: finding.links,
        notes: finding.notes,
        advice: finding.advice,
        next_steps: finding.next,
    }
}

/// The first line of an explanation.
struct Summary {
    text: String,
    reason: String,
    /// The time to use if no link has the start of the problem.
    since: Option<Time>,
    /// The time when the status was written.
    written: Option<Time>,
}

/// Reports objects that may not be read, objects that could not be read, and incomplete lists.
fn unreadable(world: &World) -> Vec<Note> {
    let note = |text| Note {
        kind: NoteKind::Unreadable,
        text,
    };
    let forbidden: Vec<&str> = world
        .unreadable
        .iter()
        .filter(|one| one.forbidden)
        .map(|one| one.what.as_str())
        .collect();
    let forbidden = (!forbidden.is_empty()).then(|| {
        format!(
            "you may not read {}: what that would say is missing above",
            forbidden.join(", ")
        )
    });
    let failed = world
        .unreadable
        .iter()
        .filter(|one| !one.forbidden)
        .map(|one| format!("could not read {}: {}", one.what, one.why));
    let cut = world
        .cut
        .iter()
        .map(|what| format!("only the first part of {what} was read"));
    forbidden
        .into_iter()
        .chain(failed)
        .chain(cut)
        .map(note)
        .collect()
}

/// Marks the link of the requested object. If the object is not in the chain, such as the Pod of an
/// earlier attempt, a note is added.
fn mark_target(explanation: &mut Explanation) {
    let target = explanation.target.clone();
    let mut is_there = false;
    for link in &mut explanation.chain {
        link.is_target = link.object == target;
        is_there |= link.is_target;
    }
    if !is_there {
        explanation.notes.push(Note {
            kind: NoteKind::Hint,
            text: format!(
                "{} '{}' belongs to {} '{}', but not to what blocks or ended it",
                target.kind, target.name, explanation.subject.kind, explanation.subject.name
            ),
        });
    }
}
