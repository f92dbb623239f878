//! The part of a status that is the same for every kind: conditions, message, timeline, retry.
//!
//! A kind never writes conditions of state itself: it gives a [`Verdict`], and
//! [`Progress::stand`] derives them. So `Reconciling` and `Stalled` cannot be there together, and
//! a finished run cannot lack `Finished`.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    Phase, Reason,
    decide::{Class, Fact},
};

/// The most steps that a timeline keeps; older ones leave first.
pub const STEPS: usize = 20;

/// The longest message in a status, in characters.
pub const MESSAGE: usize = 1024;

/// The outcome of a verdict: what a program should conclude.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Work goes on or waits for something that will wake us: `Reconciling`.
    Working,
    /// Given up until someone changes something: `Stalled`.
    Stalled,
    /// A run that ended well.
    Succeeded,
    /// A run that ended otherwise.
    Failed,
    /// A long-lived object that can be used.
    Ready,
}

/// What is to be said about an object: state, reason, and the one sentence that a user reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The state.
    pub state: State,
    /// The reason.
    pub reason: Reason,
    /// Names the blocker and what to do.
    pub message: String,
}

impl Verdict {
    /// Work goes on.
    #[must_use]
    pub fn working(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(State::Working, reason, message)
    }

    /// Given up until someone changes something.
    #[must_use]
    pub fn stalled(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(State::Stalled, reason, message)
    }

    /// A run ended well.
    #[must_use]
    pub fn succeeded(message: impl Into<String>) -> Self {
        Self::new(State::Succeeded, Reason::Succeeded, message)
    }

    /// A run failed.
    #[must_use]
    pub fn failed(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(State::Failed, reason, message)
    }

    /// A long-lived object can be used.
    #[must_use]
    pub fn ready(message: impl Into<String>) -> Self {
        Self::new(State::Ready, Reason::Ready, message)
    }

    fn new(state: State, reason: Reason, message: impl Into<String>) -> Self {
        let message = bounded(&message.into(), MESSAGE);
        Self {
            state,
            reason,
            message,
        }
    }
}

/// `text` in at most `limit` characters, with an ellipsis where it was cut, control characters
/// (a program's output may carry some) replaced by spaces.
#[must_use]
pub fn bounded(text: &str, limit: usize) -> String {
    let clean = |letter: char| if letter.is_control() { ' ' } else { letter };
    if text.chars().nth(limit).is_none() {
        return text.chars().map(clean).collect();
    }
    let mut head: String = text
        .chars()
        .take(limit.saturating_sub(1))
        .map(clean)
        .collect();
    head.push('…');
    head
}

/// Which conditions a kind has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// It ends: `Succeeded` and `Finished`.
    Run,
    /// It stays: `Ready`.
    LongLived,
}

/// The status of a kind, as the engine sees it.
pub trait Status:
    Clone + PartialEq + Default + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The kind's phases.
    type Phase: Phase;

    /// Whether it ends or stays.
    const SHAPE: Shape;

    /// The field of the spec that [`Status::epoch`] follows, for the docs.
    const EPOCH: Option<&'static str> = None;

    /// Conditions that the main one says nothing of: how they turn is told and counted by itself.
    const APART: &'static [&'static str] = &[];

    /// The phase; `None` before the first record.
    fn phase(&self) -> Option<Self::Phase>;

    /// For the engine only: phases change by a decision.
    fn set_phase(&mut self, phase: Self::Phase);

    /// The common part.
    fn progress(&self) -> &Progress;

    /// The common part, to change it.
    fn progress_mut(&mut self) -> &mut Progress;

    /// The phase while something that went wrong lasts: the one that it was in, or the first.
    fn phase_in_fault(&self, _class: Class) -> Option<Self::Phase> {
        let first = || Self::Phase::TABLE.first().map(|row| row.phase);
        self.phase().or_else(first)
    }

    /// Takes over what `seen` says of the world beside its conditions: counts and words, and nothing that a
    /// decision reads back. While a fault lasts it is what was seen by the decision that could not be carried
    /// out, or nothing, if there was none; and it alone is no reason to write a status at once.
    fn observed(&mut self, _seen: Option<&Self>) {}

    /// Whether the object's work is over.
    fn is_over(&self) -> bool {
        self.phase().is_some_and(Phase::is_terminal)
    }

    /// A terminal phase may be left only when this number grows (the version of a run's context).
    fn epoch(&self) -> i64 {
        0
    }

    /// Whether the status carries this intent of an irreversible effect.
    fn has_intent(&self, _intent: &str) -> bool {
        false
    }

    /// The number of the attempt that goes on, from 1; 0 where a kind has none.
    fn attempt(&self) -> u32 {
        0
    }

    /// How often an attempt was started again without counting as another one.
    fn disruptions(&self) -> u32 {
        0
    }
}

/// The common part of every status.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// The generation of the spec that this status speaks of; -1 before the first look.
    #[serde(default = "unseen")]
    pub observed_generation: i64,
    /// One sentence: how it stands, what blocks, what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When this status was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// For programs; see the reference of conditions and reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The timeline: phases with their times and outcomes, at most the last 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// The retry that an error waits for, once its delay is 10 s or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
}

fn unseen() -> i64 {
    -1
}

/// One step of the timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The phase.
    pub phase: String,
    /// The attempt that it belongs to, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// When it began.
    pub started_at: Time,
    /// When it ended; absent while it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// How it stands or ended: `Working`, `Stalled`, `Succeeded`, `Failed`, `Ready`, `Left`.
    pub outcome: String,
    /// The last reason in it.
    pub reason: String,
    /// The last message in it.
    pub message: String,
}

/// A retry that an error waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// How often it was tried without success.
    pub attempt: u32,
    /// The error's class.
    pub class: String,
    /// Not before this time.
    pub next_at: Time,
}

/// The condition types that [`Progress::stand`] derives.
pub mod condition {
    /// A run's end: Unknown while it goes on, then True or False.
    pub const SUCCEEDED: &str = "Succeeded";
    /// True at any end of a run.
    pub const FINISHED: &str = "Finished";
    /// A long-lived object can be used.
    pub const READY: &str = "Ready";
    /// Work goes on. Present only when true.
    pub const RECONCILING: &str = "Reconciling";
    /// Given up. Present only when true.
    pub const STALLED: &str = "Stalled";
}

impl Progress {
    /// Sets the conditions of state and the message from a verdict.
    ///
    /// # Guarantees
    /// - Never `Reconciling` and `Stalled` together; `Finished` exactly at a run's end.
    /// - `lastTransitionTime` moves only when a condition's status changes.
    pub fn stand(&mut self, shape: Shape, verdict: &Verdict, generation: i64, now: Timestamp) {
        let Verdict {
            state,
            reason,
            message,
        } = verdict;
        let (main, value) = match (shape, state) {
            (Shape::Run, State::Succeeded | State::Ready) => (condition::SUCCEEDED, "True"),
            (Shape::Run, State::Failed) => (condition::SUCCEEDED, "False"),
            (Shape::Run, State::Working | State::Stalled) => (condition::SUCCEEDED, "Unknown"),
            (Shape::LongLived, State::Ready | State::Succeeded) => (condition::READY, "True"),
            (Shape::LongLived, State::Working | State::Stalled | State::Failed) => {
                (condition::READY, "False")
            }
        };
        let mut wanted = vec![(main, value)];
        match state {
            State::Working => wanted.push((condition::RECONCILING, "True")),
            State::Stalled | State::Failed => wanted.push((condition::STALLED, "True")),
            State::Succeeded | State::Ready => {}
        }
        if shape == Shape::Run && matches!(state, State::Succeeded | State::Failed) {
            wanted.push((condition::FINISHED, "True"));
        }
        for kind in [
            condition::RECONCILING,
            condition::STALLED,
            condition::FINISHED,
        ] {
            if !wanted.iter().any(|(name, _)| *name == kind) {
                self.conditions.retain(|known| known.type_ != kind);
            }
        }
        for (kind, value) in wanted {
            self.set_condition(kind, value, *reason, message, generation, now);
        }
        self.message = Some(message.clone());
        self.observed_generation = generation;
    }

    /// Sets a condition of the kind's own.
    pub fn learn(&mut self, fact: &Fact, generation: i64, now: Timestamp) {
        let value = match fact.value {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let Fact {
            kind,
            reason,
            message,
            ..
        } = fact;
        self.set_condition(kind, value, *reason, message, generation, now);
    }

    /// Nobody looked: what was true is not known any more. The conditions of state are not meant.
    pub fn doubt(&mut self, reason: Reason, message: &str, generation: i64, now: Timestamp) {
        let of_state = [
            condition::SUCCEEDED,
            condition::FINISHED,
            condition::READY,
            condition::RECONCILING,
            condition::STALLED,
        ];
        let believed: Vec<String> = self
            .conditions
            .iter()
            .filter(|known| known.status == "True" && !of_state.contains(&known.type_.as_str()))
            .map(|known| known.type_.clone())
            .collect();
        for kind in believed {
            self.set_condition(&kind, "Unknown", reason, message, generation, now);
        }
    }

    /// Sets one condition; `lastTransitionTime` moves only when its status changes.
    pub fn set_condition(
        &mut self,
        kind: &str,
        value: &str,
        reason: Reason,
        message: &str,
        generation: i64,
        now: Timestamp,
    ) {
        let since = match self.condition(kind) {
            Some(known) if known.status == value => known.last_transition_time.clone(),
            Some(_) | None => Time(now),
        };
        let condition = Condition {
            type_: kind.to_owned(),
            status: value.to_owned(),
            reason: reason.name().to_owned(),
            message: bounded(message, MESSAGE),
            observed_generation: Some(generation),
            last_transition_time: since,
        };
        match self.conditions.iter_mut().find(|known| known.type_ == kind) {
            Some(known) => *known = condition,
            None => self.conditions.push(condition),
        }
    }

    /// The condition of this type.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|known| known.type_ == kind)
    }

    /// Whether the condition of this type is True.
    #[must_use]
    pub fn is_true(&self, kind: &str) -> bool {
        self.condition(kind)
            .is_some_and(|known| known.status == "True")
    }

    /// Brings the timeline up to `phase`: closes the step before, opens one, or only updates the
    /// words of the one that goes on.
    pub fn step(
        &mut self,
        phase: &str,
        is_end: bool,
        attempt: u32,
        verdict: &Verdict,
        now: Timestamp,
    ) {
        let attempt = (attempt > 0).then_some(attempt);
        let goes_on = self.steps.last().is_some_and(|step| {
            step.phase == phase && step.attempt == attempt && step.finished_at.is_none()
        });
        if self.steps.last().is_some_and(|step| {
            is_end && step.phase == phase && step.attempt == attempt && step.finished_at.is_some()
        }) {
            return;
        }
        if !goes_on {
            if let Some(before) = self.steps.last_mut()
                && before.finished_at.is_none()
            {
                before.finished_at = Some(Time(now));
                before.outcome = "Left".to_owned();
            }
            if self.steps.len() >= STEPS {
                self.steps.drain(..=self.steps.len() - STEPS);
            }
            self.steps.push(Step {
                phase: phase.to_owned(),
                attempt,
                started_at: Time(now),
                finished_at: None,
                outcome: String::new(),
                reason: String::new(),
                message: String::new(),
            });
        }
        if let Some(step) = self.steps.last_mut() {
            step.outcome = format!("{:?}", verdict.state);
            step.reason = verdict.reason.name().to_owned();
            step.message = bounded(&verdict.message, 256);
            step.finished_at = is_end.then_some(Time(now));
        }
    }
}
