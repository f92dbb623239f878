//! The object to explain with its world, and helper functions for the explanations.

use api::CommonStatus;
use api::status::{Retry, condition};

use super::*;

/// The fields that every kind has, and the world.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) world: &'a World,
    pub(super) kind: &'a str,
    /// The noun for the object in messages.
    pub(super) noun: &'a str,
    pub(super) meta: &'a Meta,
    /// The namespace of its children.
    pub(super) namespace: &'a str,
    pub(super) phase: &'a str,
    pub(super) progress: &'a CommonStatus,
    /// The time that its status has in evidence.
    pub(super) stated: Option<&'a Time>,
    /// The time of the last change by a manager other than the operator.
    pub(super) changed: Option<&'a Time>,
    pub(super) undecodable: Option<&'a String>,
}

/// A view of a kind, with its subject.
pub(super) struct Of<'a, V> {
    subject: Subject<'a>,
    pub(super) view: &'a V,
}

pub(super) type Agent<'a> = Of<'a, AgentView>;
pub(super) type App<'a> = Of<'a, AppView>;
pub(super) type Notebook<'a> = Of<'a, NotebookView>;
pub(super) type Object<'a> = Of<'a, ObjectView>;
pub(super) type Operation<'a> = Of<'a, RequestView>;
pub(super) type Run<'a> = Of<'a, RunView>;
pub(super) type Tenant<'a> = Of<'a, TenantView>;

/// A view that can be a subject.
pub(super) trait View {
    fn subject<'a>(&'a self, world: &'a World) -> Subject<'a>;
}

impl<'a, V: View> Of<'a, V> {
    pub(super) fn new(world: &'a World, view: &'a V) -> Self {
        let subject = view.subject(world);
        Self { subject, view }
    }
}

// Derived implementations would need a view that can be copied.
impl<V> Clone for Of<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Of<'_, V> {}

impl<'a, V> Deref for Of<'a, V> {
    type Target = Subject<'a>;

    fn deref(&self) -> &Subject<'a> {
        &self.subject
    }
}

/// Implements [`View`] by a row: kind, noun, namespace of the children, phase, the part of the status that
/// all kinds have, and the time of its end.
macro_rules! views {
    ($($type:ty, $view:ident: $kind:expr, $noun:expr, $place:expr, $phase:expr, $progress:expr, $end:expr;)+) => {$(
        impl View for $type {
            fn subject<'a>(&'a self, world: &'a World) -> Subject<'a> {
                let $view = self;
                let (meta, progress): (&Meta, &CommonStatus) = (&$view.meta, $progress);
                let stated: Option<&Time> = $end;
                Subject {
                    world,
                    kind: $kind,
                    noun: $noun,
                    meta,
                    namespace: $place,
                    phase: $phase.unwrap_or("none"),
                    progress,
                    stated: stated.or(progress.last_updated.as_ref()).or(meta.created.as_ref()),
                    changed: $view.changed.as_ref(),
                    undecodable: $view.undecodable.as_ref(),
                }
            }
        }
    )+};
}

views! {
    AgentView, it: "Agent", "Agent", &it.meta.namespace, it.status.phase.map(Phase::name), &it.status.progress, None;
    AppView, it: "ManagedApp", "ManagedApp", &it.meta.namespace, it.status.phase.map(Phase::name), &it.status.progress, None;
    NotebookView, it: "NotebookValidationJob", "job", &it.meta.namespace, it.status.phase.map(Phase::name), &it.status.progress, it.end();
    ObjectView, it: &it.kind, &it.kind, &it.meta.namespace, it.phase.as_deref(), &it.status, None;
    RequestView, it: &it.kind, "request", &it.meta.namespace, it.phase.as_deref(), &it.status, None;
    RunView, it: it.kind(), "run", &it.meta.namespace, it.status.phase.map(Phase::name), &it.status.progress, it.end();
    TenantView, it: "Tenant", "Tenant", &it.namespace, it.status.phase.map(Phase::name), &it.status.progress, None;
}

impl NotebookView {
    fn end(&self) -> Option<&Time> {
        let is_over = self.status.phase.is_some_and(Phase::is_terminal);
        self.status.finished_at.as_ref().filter(|_| is_over)
    }
}

impl RunView {
    fn kind(&self) -> &'static str {
        match self.docs {
            Some(_) => "DocsRun",
            None => "TaskRun",
        }
    }

    fn end(&self) -> Option<&Time> {
        let is_over = self.status.phase.is_some_and(Phase::is_terminal);
        self.status.finished_at.as_ref().filter(|_| is_over)
    }
}

/// Explanations call the functions of the world on the subject.
impl Deref for Subject<'_> {
    type Target = World;

    fn deref(&self) -> &World {
        self.world
    }
}

impl<'a> Subject<'a> {
    pub(super) fn name(self) -> &'a str {
        &self.meta.name
    }

    pub(super) fn object(self) -> ObjectRef {
        self.meta.object(self.kind)
    }

    pub(super) fn here(self, kind: &str, name: &str) -> ObjectRef {
        ObjectRef::namespaced(kind, self.namespace, name)
    }

    pub(super) fn condition(self, kind: &str) -> Option<&'a Condition> {
        self.progress.condition(kind)
    }

    /// Returns the main condition: `Succeeded` of a run, otherwise `Ready`.
    pub(super) fn main(self) -> Option<&'a Condition> {
        let succeeded = self.condition(condition::SUCCEEDED);
        succeeded.or_else(|| self.condition(condition::READY))
    }

    /// Returns the reason of the main condition.
    pub(super) fn reason(self) -> Option<Reason> {
        Reason::from_name(&self.main()?.reason)
    }

    /// Returns the reason of the main condition as text.
    pub(super) fn main_reason(self) -> &'a str {
        self.main().map_or("NotSeen", |main| main.reason.as_str())
    }

    pub(super) fn message(self) -> &'a str {
        self.progress.message.as_deref().unwrap_or_default()
    }

    pub(super) fn written(self) -> Option<&'a Time> {
        self.progress.last_updated.as_ref()
    }

    /// Returns the message of the status as evidence.
    pub(super) fn said(self) -> Evidence {
        Evidence::new("status.message", self.message(), self.written())
    }

    pub(super) fn edit(self, purpose: impl Into<String>) -> Command {
        self.object().edit(purpose)
    }

    /// Returns the command that repeats `orc why` for the object.
    pub(super) fn look_again(self) -> Command {
        let place = match self.meta.namespace.as_str() {
            "" => String::new(),
            namespace => format!(" -n {namespace}"),
        };
        let kind = self.kind.to_lowercase();
        shell!("orc why {kind}/{}{place}", self.name() => "look again")
    }

    /// Formats the time of the next try: `the next try, at 10:05:53Z (in 42s),`.
    pub(super) fn next_try(self) -> String {
        match self.tried_at().as_str() {
            "" => "the next try".to_owned(),
            at => format!("the next try,{at},"),
        }
    }

    /// Formats the time of the next try as ` at 10:05:53Z (in 42s)`, or as an empty string if it is
    /// unknown.
    pub(super) fn tried_at(self) -> String {
        let retry = self.progress.retry.as_ref();
        self.due(retry.and_then(|retry| retry.next_at.as_ref()))
    }

    /// Returns the first line of an explanation, from the status.
    pub(super) fn summary(self, since: Option<Time>) -> Summary {
        Summary {
            text: match self.message() {
                "" => format!("the {} has no status yet", self.noun),
                message => message.to_owned(),
            },
            reason: self.main_reason().to_owned(),
            since,
            written: self.written().cloned(),
        }
    }

    /// Returns the subject's own link, with its status and `more` as evidence.
    pub(super) fn own_link(
        self,
        health: Health,
        reason: &str,
        sentence: &str,
        more: Option<Evidence>,
    ) -> Link {
        let meta = self.meta;
        let said = self.main_reason();
        let mut link = link! { (health) self.object(), reason, (sentence);
            seen (format!("status (phase {}, reason {said})", self.phase)) => (self.message()), self.stated;
            seen more;
        };
        if meta.deleting.is_some() && !meta.finalizers.is_empty() {
            let held = meta.finalizers.join(", ");
            link = link.seen("metadata.finalizers", held, meta.deleting.as_ref());
        }
        if let Some(retry) = &self.progress.retry {
            let (count, class, next) = (retry.attempt, &retry.class, self.world.next_try(retry));
            let times = if count == 1 { "time" } else { "times" };
            let words = format!("tried {count} {times} (class {class}), {next}");
            link = link.seen("status.retry", words, None);
        }
        link
    }
}

impl World {
    /// Returns the warnings about the object with this UID, newest first.
    pub(super) fn warnings(&self, uid: &str) -> Vec<&EventView> {
        let is_of = |event: &&EventView| event.warning && event.uid == uid && !uid.is_empty();
        let mut all: Vec<&EventView> = self.events.iter().filter(is_of).collect();
        all.sort_by_key(|event| std::cmp::Reverse(event.last.clone()));
        all
    }

    /// Returns the newest warning with one of these reasons about the object with this UID.
    pub(super) fn warning(&self, uid: &str, reasons: &[&str]) -> Option<&EventView> {
        let mut all = self.warnings(uid).into_iter();
        all.find(|event| reasons.contains(&event.reason.as_str()))
    }

    /// Returns the node of a Pod, if the node is known and not ready.
    pub(super) fn lost_node(&self, pod: &PodView) -> Option<&NodeView> {
        let name = pod.node.as_ref()?;
        let node = self.nodes.iter().find(|node| node.name == *name)?;
        (!node.is_ready()).then_some(node)
    }

    pub(super) fn when(&self, at: &Time) -> String {
        times::at(self.now.0, at.0)
    }

    /// Formats the time of an event that has happened: `10:02:11Z (3m ago)`.
    pub(super) fn past(&self, at: &Time) -> String {
        times::past(self.now.0, at.0)
    }

    /// Formats ` since 10:02:11Z (3m ago)`, or an empty string.
    pub(super) fn since(&self, at: Option<&Time>) -> String {
        at.map_or_else(String::new, |at| format!(" since {}", self.past(at)))
    }

    /// Formats ` at 10:02:11Z (3m ago)` about an event that has happened, or an empty string.
    pub(super) fn ago(&self, at: Option<&Time>) -> String {
        at.map_or_else(String::new, |at| format!(" at {}", self.past(at)))
    }

    /// Formats ` at 10:05:53Z (in 42s)` about a planned time, or an empty string.
    pub(super) fn due(&self, at: Option<&Time>) -> String {
        at.map_or_else(String::new, |at| format!(" at {}", self.when(at)))
    }

    /// Formats `next try at 10:05:53Z (in 42s)`, or `tried every 5m at the latest`.
    pub(super) fn next_try(&self, retry: &Retry) -> String {
        match (&retry.next_at, &retry.every) {
            // The operator is late, or does not run.
            (Some(at), _) if at.0 < self.now.0 => format!("next try was due at {}", self.when(at)),
            (Some(at), _) => format!("next try at {}", self.when(at)),
            (None, Some(every)) => format!("tried every {every} at the latest"),
            (None, None) => "tried again".to_owned(),
        }
    }

    /// Returns the seconds since a time, or 0 for a time in the future or an unknown one.
    pub(super) fn age(&self, at: Option<&Time>) -> i64 {
        let seconds = |at: &Time| self.now.0.as_second().saturating_sub(at.0.as_second());
        at.map_or(0, seconds).max(0)
    }

    /// Returns whether no read of this resource was forbidden, such as `nodes`.
    pub(super) fn may_read(&self, what: &str) -> bool {
        let mut all = self.unreadable.iter().filter(|one| one.forbidden);
        !all.any(|one| one.what.eq_ignore_ascii_case(what))
    }

    /// Returns whether an object exists, or `None` if it was not read or may not be read.
    pub(super) fn exists(&self, kind: &str, name: &str) -> Option<bool> {
        let mut all = self.known.iter();
        let known = all.find(|known| known.object.kind == kind && known.object.name == name)?;
        Some(known.exists)
    }

    /// Returns evidence from the time of the read.
    pub(super) fn seen(&self, source: &str, text: impl Into<String>) -> Evidence {
        Evidence::new(source, text, Some(&self.now))
    }

    /// Returns evidence for an object that does not exist.
    pub(super) fn not_found(&self) -> Evidence {
        self.seen("looked for it", "not found")
    }
}

impl Evidence {
    pub(super) fn new(
        source: impl Into<String>,
        text: impl Into<String>,
        at: Option<&Time>,
    ) -> Self {
        Self {
            source: source.into(),
            text: text.into(),
            at: at.cloned(),
        }
    }

    /// Returns a condition of our own kinds as evidence.
    pub(super) fn of(known: &Condition) -> Self {
        let source = text! { "condition {}={} ({})", known.type_, known.status, known.reason };
        Self::new(source, &known.message, Some(&known.last_transition_time))
    }
}

/// A message of another component about a problem.
pub(super) struct Report<'a> {
    pub(super) source: String,
    pub(super) message: &'a str,
    pub(super) at: Option<&'a Time>,
    /// The time since when the problem exists.
    pub(super) since: Option<&'a Time>,
}

impl<'a> Report<'a> {
    pub(super) fn in_status(message: &'a str, at: Option<&'a Time>) -> Self {
        Self {
            source: "status.message".to_owned(),
            message,
            at,
            since: None,
        }
    }

    pub(super) fn in_event(event: &'a EventView) -> Self {
        Self {
            source: event.source(),
            message: &event.message,
            at: event.last.as_ref(),
            since: event.first.as_ref(),
        }
    }

    /// Adds the message to a link.
    pub(super) fn seen(&self, link: Link) -> Link {
        link.since(self.since)
            .seen(&self.source, self.message, self.at)
    }

    /// Returns the link of an object with a problem.
    pub(super) fn link(
        &self,
        object: ObjectRef,
        reason: impl ToString,
        text: impl Into<String>,
    ) -> Link {
        self.seen(link! { Error object, reason, (text); })
    }
}

impl ConditionView {
    pub(super) fn evidence(&self) -> Evidence {
        let source = format!("condition {}={} ({})", self.kind, self.status, self.reason);
        Evidence::new(source, &self.message, self.since.as_ref())
    }
}

impl EventView {
    /// Returns the source of the Event as evidence: `Event FailedMount ×7`.
    pub(super) fn source(&self) -> String {
        match self.count {
            2.. => format!("Event {} ×{}", self.reason, self.count),
            _ => format!("Event {}", self.reason),
        }
    }

    pub(super) fn evidence(&self) -> Evidence {
        Evidence::new(self.source(), &self.message, self.last.as_ref())
    }
}

impl Meta {
    pub(super) fn object(&self, kind: &str) -> ObjectRef {
        match self.namespace.as_str() {
            "" => ObjectRef::cluster(kind, &self.name),
            namespace => ObjectRef::namespaced(kind, namespace, &self.name),
        }
    }

    /// Returns whether the controller of the object has this UID.
    pub(super) fn is_owned_by(&self, uid: &str) -> bool {
        !uid.is_empty() && self.owner.as_ref().is_some_and(|owner| owner.uid == uid)
    }

    /// Returns the request to delete the object as evidence.
    pub(super) fn deletion(&self, world: &World) -> Evidence {
        match &self.deleting {
            Some(at) => Evidence::new("deletion asked for", "", Some(at)),
            None => world.seen("deletion asked for", "not yet"),
        }
    }
}

impl PodView {
    pub(super) fn condition(&self, kind: &str) -> Option<&ConditionView> {
        self.conditions.iter().find(|known| known.kind == kind)
    }

    /// Returns the scheduler's condition of a Pod without a node.
    pub(super) fn unscheduled(&self) -> Option<&ConditionView> {
        let known = self.condition("PodScheduled")?;
        (known.status == "False").then_some(known)
    }

    /// Returns the current container.
    pub(super) fn current(&self) -> Option<&ContainerView> {
        self.containers.first()
    }

    pub(super) fn state(&self) -> &ContainerState {
        self.current()
            .map_or(&ContainerState::Unknown, |one| &one.state)
    }

    /// Returns whether a program of the Pod may still be running.
    pub(super) fn may_run(&self) -> bool {
        !matches!(self.phase.as_str(), "Succeeded" | "Failed") && self.state().exit().is_none()
    }

    /// Returns whether the kubelet evicted the Pod. It then removes the containers with their logs.
    pub(super) fn is_evicted(&self) -> bool {
        self.reason == "Evicted"
    }

    /// Returns whether the current container has a log, because it has started.
    pub(super) fn has_log(&self) -> bool {
        let has_started = match self.state() {
            ContainerState::Unknown | ContainerState::Waiting(_) => false,
            ContainerState::Running { .. } => true,
            ContainerState::Ended(exit) => {
                StartFailure::of(&exit.reason, &exit.message, 0).is_none()
            }
        };
        has_started && !self.is_evicted()
    }

    /// Returns the condition of a Pod that is being disrupted, if there is one.
    pub(super) fn disruption(&self) -> Option<&ConditionView> {
        let known = self.condition("DisruptionTarget")?;
        (known.status == "True").then_some(known)
    }

    pub(super) fn object(&self) -> ObjectRef {
        self.meta.object("Pod")
    }

    /// Formats ` on node 'node-1'`, or an empty string.
    pub(super) fn on_node(&self) -> String {
        let node = self.node.as_ref();
        node.map_or_else(String::new, |node| format!(" on node '{node}'"))
    }
}

impl JobView {
    /// Returns the condition that marks the Job as finished. A Job with both conditions has failed.
    pub(super) fn end(&self) -> Option<&ConditionView> {
        let found = |kind: &str| {
            let mut conditions = self.conditions.iter();
            conditions.find(|known| known.status == "True" && known.kind == kind)
        };
        found("Failed").or_else(|| found("Complete"))
    }

    pub(super) fn object(&self) -> ObjectRef {
        self.meta.object("Job")
    }
}

impl NodeView {
    /// Returns whether the node is ready.
    pub(super) fn is_ready(&self) -> bool {
        let ready = self.ready.as_ref();
        ready.is_some_and(|ready| ready.status == "True")
    }

    pub(super) fn object(&self) -> ObjectRef {
        ObjectRef::cluster("Node", &self.name)
    }
}
