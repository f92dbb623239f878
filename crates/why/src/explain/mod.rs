//! Converts a [`World`] into an [`Explanation`] with one pure function.
//!
//! Each module knows one topic and returns a [`Finding`]: the part of the chain below the subject.
//! A kind implements [`Explain`] with its topics in order; the first one that finds something
//! explains the object. [`walk`] builds the chain in the same way for every kind.

#[macro_use]
mod finding;

mod admission;
mod agent;
mod app;
mod commands;
mod container;
mod deletion;
mod docs;
mod ended;
mod faults;
mod in_progress;
mod installation;
mod notebook;
mod object;
mod operator;
mod origin;
mod other;
mod outcome;
mod permissions;
mod refused;
mod request;
mod root_cause;
mod run;
mod run_context;
mod scheduling;
mod shell;
mod stop;
mod subject;
mod tenant;
mod volume;

// The modules below use these names.
use std::{collections::BTreeMap, ops::Deref};

use api::{
    Phase, Reason,
    messages::{self, Request},
    names,
    quantity::parse,
    status::bounded,
    tasks::{Evidence as RunResult, RunPhase},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use pods::{Rejection, Reported, StartFailure};

use crate::{
    explanation::{
        Blocker, Command, Evidence, Explanation, Health, Link, Note, NoteKind, Outdated, State,
    },
    namespace_conditions, times,
    world::{
        AgentView, AppView, ClaimView, ConditionView, ContainerState, ContainerView, DocsView,
        EventView, FluxView, JobView, LeaseView, Meta, NamespaceView, Need, NodeView, NotebookView,
        ObjectRef, ObjectView, OtherView, PodView, QuotaView, RequestView, Rollout, RunView,
        SourceView, TEXT, TenantView, WorkloadView, World,
    },
};
use finding::{Finding, Rows};
#[cfg(feature = "gather")]
pub(crate) use operator::is_down;
use origin::Origin;
use refused::Refusal;
#[cfg(feature = "gather")]
pub(crate) use request::{About, objects, rule_of};
use stop::{Stop, stopping};
use subject::{Agent, App, Notebook, Object, Operation, Report, Run, Subject, Tenant};

/// Amounts by resource.
type Amounts = BTreeMap<String, String>;

/// Explains the state of the target.
///
/// # Guarantees
/// - Pure: the same world gives the same explanation.
/// - The chain has at least one link, and there is at least one command.
/// - If the status and the cluster disagree, the cluster counts. A note shows both with their
///   times.
#[must_use]
pub fn explain(world: &World) -> Explanation {
    let kind = world.target.kind.as_str();
    let mut explanation = match (kind, &world.run, &world.agent, &world.tenant) {
        ("Agent", _, Some(agent), _) => walk(Agent::new(world, agent)),
        (_, Some(run), _, _) => walk(Run::new(world, run)),
        (_, None, _, Some(tenant)) => walk(Tenant::new(world, tenant)),
        (_, None, _, None) => match (&world.request, &world.app, &world.notebook, &world.object) {
            (Some(request), _, _, _) => walk(Operation::new(world, request)),
            (None, Some(app), _, _) => walk(App::new(world, app)),
            (None, None, Some(job), _) => walk(Notebook::new(world, job)),
            (None, None, None, Some(view)) => walk(Object::new(world, view)),
            (None, None, None, None) => other::explain(world),
        },
    };
    explanation.notes.extend(unreadable(world));
    explanation.next_steps.truncate(3);
    mark_target(&mut explanation);
    explanation
}

/// A kind that can be explained. It has topics and text, and [`walk`] does the rest.
trait Explain<'a>: Copy + Deref<Target = Subject<'a>> {
    /// Returns the finding of the first topic that explains the state.
    fn find(self) -> Finding;

    /// Returns whether the cluster contradicts the status.
    fn is_outdated(self, _finding: &Finding) -> bool {
        false
    }

    /// Adds notes, and replaces commands that are not possible in this state.
    fn finish(self, finding: Finding) -> Finding {
        finding
    }

    /// Returns the health of the object and a sentence about it, for a finding without it.
    fn own(self, _finding: &Finding) -> (Health, String) {
        (Health::Waiting, "waits for:".to_owned())
    }

    /// Returns further evidence for the object's own link.
    fn more(self) -> Option<Evidence> {
        None
    }

    /// Returns the start of the object's state, if no link has the start of a problem.
    fn began(self) -> Option<Time> {
        self.main().map(|main| main.last_transition_time.clone())
    }

    /// Returns the first line.
    fn summary(self, _state: State) -> Summary {
        (*self).summary(self.began())
    }
}

/// Returns the advice of a reason as plain text, without the Markdown of the docs.
fn plain_advice(reason: Reason) -> String {
    reason.advice().replace('`', "'")
}

/// Returns the part of a message between two texts, or up to its end.
fn inside<'a>(message: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = message.split_once(start)?;
    rest.split(end).next()
}

/// Builds the chain of a subject, from its own link to the deepest blocker.
fn walk<'a>(subject: impl Explain<'a>) -> Explanation {
    let object = subject.object();
    let finding = installation::checked(*subject, subject.find());
    let mut finding = operator::needed(subject.world, finding);
    finding.is_newer |= subject.is_outdated(&finding);
    let mut finding = subject.finish(finding);
    if finding.next.is_empty() {
        let purpose = format!("all that is known of the {}", subject.noun);
        finding = finding.then(object.yaml(purpose));
    }
    let summary = subject.summary(finding.state);
    if !finding.starts_with(&object) {
        let (health, sentence) = subject.own(&finding);
        let reason = match finding.state {
            State::Running if finding.is_newer => "Running",
            State::Deleting if finding.is_newer => Reason::Deleting.name(),
            State::Waiting | State::Blocked if finding.is_newer => "Waiting",
            State::NotIsolated | State::NotProven => "Ready",
            State::Succeeded
            | State::Failed
            | State::Running
            | State::Waiting
            | State::Blocked
            | State::Suspended
            | State::Deleting
            | State::Ready
            | State::Unmanaged => summary.reason.as_str(),
        };
        let own = subject.own_link(health, reason, &sentence, subject.more());
        finding = finding.below([own]);
    }
    conclude(subject.world, &object, summary, finding)
}

/// Builds the explanation of `subject`. Its own link is the first of the chain.
fn conclude(
    world: &World,
    subject: &ObjectRef,
    mut summary: Summary,
    finding: Finding,
) -> Explanation {
    let deepest = finding.links.last();
    // A suspended object is suspended by its own spec, even while its Pods are still being stopped.
    let culprit = match finding.state == State::Suspended {
        true => finding.links.first(),
        false => deepest,
    };
    // An object that continues automatically is blocked only by a link with a problem.
    let blocks = |link: &&Link| match finding.state {
        State::Succeeded | State::Running | State::Ready | State::Unmanaged => false,
        State::Waiting | State::Deleting | State::NotProven => link.health == Health::Error,
        State::Failed | State::Blocked | State::Suspended | State::NotIsolated => {
            link.health != Health::Ok
        }
    };
    let mut from_below = finding.links.iter().rev();
    let of_trouble = match finding.state {
        State::Succeeded | State::Failed | State::Deleting | State::Ready | State::Unmanaged => {
            None
        }
        State::Suspended => culprit.and_then(|link| link.since.clone()),
        State::Running
        | State::Waiting
        | State::Blocked
        | State::NotIsolated
        | State::NotProven => from_below.find_map(|link| link.since.clone()),
    };
    let mut outdated = None;
    let headline = finding.headline.as_ref();
    let of_headline = headline.and_then(|link| link.since.clone());
    if let Some(link) = headline.or(deepest.filter(|_| finding.is_newer)) {
        let ObjectRef { kind, name, .. } = &link.object;
        let live = format!("{kind} '{name}': {}", link.message);
        outdated = Some(Outdated {
            message: bounded(&std::mem::replace(&mut summary.text, live), TEXT),
            at: summary.written,
        });
        summary.reason.clone_from(&link.reason);
    }
    Explanation {
        at: world.now.clone(),
        target: world.target.clone(),
        subject: subject.clone(),
        state: finding.state,
        reason: summary.reason,
        since: of_headline.or(of_trouble).or(summary.since),
        summary: bounded(&summary.text, TEXT),
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
    let (forbidden, failed): (Vec<_>, Vec<_>) =
        world.unreadable.iter().partition(|one| one.forbidden);
    let names: Vec<&str> = forbidden.iter().map(|one| one.what.as_str()).collect();
    let mut texts = Vec::new();
    if !names.is_empty() {
        let names = names.join(", ");
        let missing = match permissions::missing(world).as_str() {
            "" => String::new(),
            missing => format!("; missing permissions: {missing}"),
        };
        texts.push(
            text! { "you may not read {names}: nothing above is concluded from them{missing}" },
        );
    }
    let failed = failed.iter();
    texts.extend(failed.map(|one| format!("could not read {}: {}", one.what, one.why)));
    let cut = world.cut.iter();
    texts.extend(cut.map(|what| format!("only the first part of {what} was read")));
    let kind = NoteKind::Unreadable;
    texts.into_iter().map(|text| Note { kind, text }).collect()
}

/// Marks the link of the requested object. If the object is not in the chain, such as the Pod of an
/// earlier attempt, a note is added.
fn mark_target(explanation: &mut Explanation) {
    let (target, subject) = (&explanation.target, &explanation.subject);
    for link in &mut explanation.chain {
        link.is_target = link.object == *target;
    }
    if !explanation.chain.iter().any(|link| link.is_target) {
        let (kind, name) = (&target.kind, &target.name);
        let (of, whole) = (&subject.kind, &subject.name);
        explanation.notes.push(Note {
            kind: NoteKind::Hint,
            text: text! { "{kind} '{name}' belongs to {of} '{whole}', but not to what blocks or ended it" },
        });
    }
}
