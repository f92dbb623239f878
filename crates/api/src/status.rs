//! The part of a status that is the same for every kind: conditions, message, phase history, retry.
//!
//! A kind never writes conditions of state itself. It returns a [`Verdict`], and
//! [`CommonStatus::apply_verdict`] derives the conditions from it. So `Reconciling` and `Stalled` never exist
//! together, and a finished run always has `Finished`.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    Phase, Reason,
    decide::{ConditionUpdate, ErrorClass},
    time,
};

/// Maximum number of entries in a phase history. The oldest entries are removed first.
pub const MAX_PHASE_HISTORY: usize = 20;

/// Maximum length of a message in a status, in characters.
pub const MAX_MESSAGE_CHARS: usize = 1024;

/// State of an object, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// In progress, or waiting for something that will trigger a reconciliation: `Reconciling`.
    Working,
    /// Blocked until someone changes something: `Stalled`.
    Stalled,
    /// A run that ended successfully.
    Succeeded,
    /// A run that ended in any other way.
    Failed,
    /// A long-lived object that can be used.
    Ready,
}

/// The state, the reason and the message of an object. The message is the sentence that a user
/// reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// State of the object.
    pub state: State,
    /// Reason for the state.
    pub reason: Reason,
    /// The blocker and the next step.
    pub message: String,
}

impl Verdict {
    /// Creates a verdict for an object in progress.
    #[must_use]
    pub fn working(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(State::Working, reason, message)
    }

    /// Creates a verdict for an object that is blocked until someone changes something.
    #[must_use]
    pub fn stalled(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(State::Stalled, reason, message)
    }

    /// Creates a verdict for a run that succeeded.
    #[must_use]
    pub fn succeeded(message: impl Into<String>) -> Self {
        Self::new(State::Succeeded, Reason::Succeeded, message)
    }

    /// Creates a verdict for a run that failed.
    #[must_use]
    pub fn failed(reason: Reason, message: impl Into<String>) -> Self {
        Self::new(State::Failed, reason, message)
    }

    /// Creates a verdict for a long-lived object that can be used.
    #[must_use]
    pub fn ready(message: impl Into<String>) -> Self {
        Self::new(State::Ready, Reason::Ready, message)
    }

    fn new(state: State, reason: Reason, message: impl Into<String>) -> Self {
        let message = bounded(&message.into(), MAX_MESSAGE_CHARS);
        Self {
            state,
            reason,
            message,
        }
    }
}

/// Returns `text` cut to at most `limit` characters, with an ellipsis at the cut. Control
/// characters, which a program's output may contain, are replaced by spaces.
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

/// Whether a kind runs to completion or is long-lived. This determines its conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifecycle {
    /// Runs to completion: `Succeeded` and `Finished`.
    RunToCompletion,
    /// Long-lived: `Ready`.
    LongLived,
}

/// The status of a kind, as the engine uses it.
pub trait Status:
    Clone + PartialEq + Default + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The phases of the kind.
    type Phase: Phase;

    /// Whether the kind runs to completion or is long-lived.
    const LIFECYCLE: Lifecycle;

    /// The field of the spec that [`Status::epoch`] follows, for the docs.
    const EPOCH: Option<&'static str> = None;

    /// Condition types that are independent of the main condition. Their transitions have their own
    /// Events and metrics.
    const INDEPENDENT_CONDITIONS: &'static [&'static str] = &[];

    /// Returns the phase, or `None` before the first status write.
    fn phase(&self) -> Option<Self::Phase>;

    /// Sets the phase. Only for the engine: phases change by a decision.
    fn set_phase(&mut self, phase: Self::Phase);

    /// Returns the common part.
    fn progress(&self) -> &CommonStatus;

    /// Returns the common part for changes.
    fn progress_mut(&mut self) -> &mut CommonStatus;

    /// Returns the phase to report while an error lasts: the current phase, or the first one.
    fn phase_in_fault(&self, _class: ErrorClass) -> Option<Self::Phase> {
        let first = || Self::Phase::TABLE.first().map(|row| row.phase);
        self.phase().or_else(first)
    }

    /// Copies observational fields (counters, messages) from `seen`, but no conditions. Must not
    /// copy a field that a decision reads.
    ///
    /// While an error lasts, `seen` is the status of the decision whose effects failed. Without
    /// such a decision, `seen` is `None`. A change of these fields alone does not cause an
    /// immediate status write.
    fn observed(&mut self, _seen: Option<&Self>) {}

    /// Returns whether the phase is terminal.
    fn is_over(&self) -> bool {
        self.phase().is_some_and(Phase::is_terminal)
    }

    /// Returns a number that must grow before a terminal phase may change, such as the version of a
    /// run's context.
    fn epoch(&self) -> i64 {
        0
    }

    /// Returns whether the status has this intent of an irreversible effect.
    fn has_intent(&self, _intent: &str) -> bool {
        false
    }

    /// Returns whether the object has children that its deletion must wait for.
    fn has_children(&self) -> bool {
        self.attempt().number > 0
    }

    /// Returns the current attempt. A change of it is a transition.
    fn attempt(&self) -> Attempt {
        Attempt::default()
    }
}

/// The current attempt of an object that tries its work more than once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attempt {
    /// Number of the attempt, from 1, or 0 if the kind has no attempts.
    pub number: u32,
    /// How often an attempt was restarted without counting as another attempt.
    pub restarts: u32,
}

/// Status fields that every kind has.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommonStatus {
    /// Generation of the spec that this status describes; -1 before the first reconciliation.
    #[serde(default = "unseen")]
    pub observed_generation: i64,
    /// Reason for the current state: that of the condition `Succeeded` of a run, or `Ready` of any
    /// other object. Field selectors can select by it. Absent before the first reconciliation, and in
    /// a run that ended under an operator without this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// One sentence with the current state, the blocker and the next step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Time of the last write of this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<Time>,
    /// Conditions for programs. See the reference of conditions and reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// History of phases with their times and outcomes, at most the last 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phase_history: Vec<PhaseRecord>,
    /// Next retry after an error, present if the delay is 10 s or more, or once `every` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Time at which the current phase began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase_started_at: Option<Time>,
    /// Time at which the current phase, or the current wait in it, is over. Absent if nothing ends
    /// it but an event: after the end of a run, while a run is suspended, or while someone must act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Time>,
    /// Last recorded progress in the current phase, present if its deadline depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase_progress: Option<PhaseProgress>,
}

fn unseen() -> i64 {
    -1
}

/// Recorded progress in a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PhaseProgress {
    /// Hash of the observed progress.
    #[schemars(length(max = 64))]
    pub fingerprint: String,
    /// Time at which a change of the progress was recorded. A fast change is recorded later: at most
    /// eight times per idle limit.
    pub changed_at: Time,
}

/// One phase in the history, of one attempt if there are attempts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PhaseRecord {
    /// Name of the phase.
    pub phase: String,
    /// Number of the attempt, from 1; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Time at which the phase began.
    pub started_at: Time,
    /// Time at which the phase ended; absent while it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// State or result: `Working`, `Stalled`, `Succeeded`, `Failed`, `Ready`, or `Completed` if
    /// another phase or attempt followed.
    pub outcome: String,
    /// Last reason in this phase.
    pub reason: String,
    /// Last message in this phase.
    pub message: String,
}

/// Next retry after an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// Number of failed tries when this entry was written; not updated once `every` is set.
    pub attempt: u32,
    /// Class of the error.
    pub class: String,
    /// Planned time of the next try. A change of the spec, or for long-lived objects another event,
    /// can cause an earlier one. Absent once the delay no longer grows: see `every`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Time>,
    /// Maximum time between two tries, present once the delay no longer grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<crate::Duration>,
}

/// The condition types that [`CommonStatus::apply_verdict`] derives.
pub mod condition {
    /// Result of a run: Unknown while it is in progress, then True or False.
    pub const SUCCEEDED: &str = "Succeeded";
    /// True once a run has ended, with any result.
    pub const FINISHED: &str = "Finished";
    /// True if a long-lived object can be used.
    pub const READY: &str = "Ready";
    /// In progress. Present only when true.
    pub const RECONCILING: &str = "Reconciling";
    /// Blocked until someone changes something. Present only when true.
    pub const STALLED: &str = "Stalled";
}

impl CommonStatus {
    /// Returns the stored deadline of a kind whose decisions set it, unless it is further ahead than
    /// the longest wait. Then another clock wrote it, and the wait begins again.
    #[must_use]
    pub fn deadline(&self, longest: std::time::Duration, now: Timestamp) -> Option<Timestamp> {
        let stored = self.deadline_at.as_ref()?.0;
        (stored <= time::after(now, longest)).then_some(stored)
    }

    /// Begins the clock of another phase, without a deadline. The next decision sets one.
    pub fn begin_phase(&mut self, now: Timestamp) {
        self.phase_started_at = Some(Time(time::whole(now)));
        self.deadline_at = None;
        self.phase_progress = None;
    }

    /// Sets the conditions of state, the reason and the message from a verdict.
    ///
    /// # Guarantees
    /// - `Reconciling` and `Stalled` never exist together. `Finished` exists exactly when a run has
    ///   ended.
    /// - The reason is that of the main condition.
    /// - `lastTransitionTime` changes only when a condition's status changes.
    pub fn apply_verdict(
        &mut self,
        lifecycle: Lifecycle,
        verdict: &Verdict,
        generation: i64,
        now: Timestamp,
    ) {
        let Verdict {
            state,
            reason,
            message,
        } = verdict;
        let (main, value) = match (lifecycle, state) {
            (Lifecycle::RunToCompletion, State::Succeeded | State::Ready) => {
                (condition::SUCCEEDED, "True")
            }
            (Lifecycle::RunToCompletion, State::Failed) => (condition::SUCCEEDED, "False"),
            (Lifecycle::RunToCompletion, State::Working | State::Stalled) => {
                (condition::SUCCEEDED, "Unknown")
            }
            (Lifecycle::LongLived, State::Ready | State::Succeeded) => (condition::READY, "True"),
            (Lifecycle::LongLived, State::Working | State::Stalled | State::Failed) => {
                (condition::READY, "False")
            }
        };
        let mut wanted = vec![(main, value)];
        match state {
            State::Working => wanted.push((condition::RECONCILING, "True")),
            State::Stalled | State::Failed => wanted.push((condition::STALLED, "True")),
            State::Succeeded | State::Ready => {}
        }
        if lifecycle == Lifecycle::RunToCompletion
            && matches!(state, State::Succeeded | State::Failed)
        {
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
        self.reason = Some(reason.name().to_owned());
        self.message = Some(message.clone());
        self.observed_generation = generation;
    }

    /// Sets a condition that only this kind has.
    pub fn apply_condition(&mut self, update: &ConditionUpdate, generation: i64, now: Timestamp) {
        let value = match update.value {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let ConditionUpdate {
            kind,
            reason,
            message,
            ..
        } = update;
        self.set_condition(kind, value, *reason, message, generation, now);
    }

    /// Sets all conditions that are True to Unknown, except those of state. Used when the observed
    /// state is not known.
    pub fn mark_unknown(&mut self, reason: Reason, message: &str, generation: i64, now: Timestamp) {
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

    /// Sets one condition. `lastTransitionTime` changes only when the condition's status changes.
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
            message: bounded(message, MAX_MESSAGE_CHARS),
            observed_generation: Some(generation),
            last_transition_time: since,
        };
        match self.conditions.iter_mut().find(|known| known.type_ == kind) {
            Some(known) => *known = condition,
            None => self.conditions.push(condition),
        }
    }

    /// Returns the condition of this type.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|known| known.type_ == kind)
    }

    /// Returns whether the condition of this type is True.
    #[must_use]
    pub fn is_true(&self, kind: &str) -> bool {
        self.condition(kind)
            .is_some_and(|known| known.status == "True")
    }

    /// Updates the phase history to `phase`. If the phase is new, ends the previous entry and begins
    /// another one. Otherwise only updates the outcome, reason and message of the current entry.
    pub fn advance_phase_history(
        &mut self,
        phase: &str,
        is_end: bool,
        attempt: u32,
        verdict: &Verdict,
        now: Timestamp,
    ) {
        let attempt = (attempt > 0).then_some(attempt);
        let goes_on = self.phase_history.last().is_some_and(|record| {
            record.phase == phase && record.attempt == attempt && record.finished_at.is_none()
        });
        if self.phase_history.last().is_some_and(|record| {
            is_end
                && record.phase == phase
                && record.attempt == attempt
                && record.finished_at.is_some()
        }) {
            return;
        }
        if !goes_on {
            if let Some(before) = self.phase_history.last_mut()
                && before.finished_at.is_none()
            {
                before.finished_at = Some(Time(now));
                before.outcome = "Completed".to_owned();
            }
            if self.phase_history.len() >= MAX_PHASE_HISTORY {
                self.phase_history
                    .drain(..=self.phase_history.len() - MAX_PHASE_HISTORY);
            }
            self.phase_history.push(PhaseRecord {
                phase: phase.to_owned(),
                attempt,
                started_at: Time(now),
                finished_at: None,
                outcome: String::new(),
                reason: String::new(),
                message: String::new(),
            });
        }
        if let Some(record) = self.phase_history.last_mut() {
            record.outcome = format!("{:?}", verdict.state);
            record.reason = verdict.reason.name().to_owned();
            record.message = bounded(&verdict.message, 256);
            record.finished_at = is_end.then_some(Time(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn since(progress: &CommonStatus, kind: &str) -> Timestamp {
        progress.condition(kind).unwrap().last_transition_time.0
    }

    #[test]
    fn the_transition_time_moves_with_the_status_and_not_with_the_message() {
        let mut progress = CommonStatus::default();
        // Columns: second, status, reason, message, generation, and the expected transition time.
        let steps = [
            (10, "False", Reason::Progressing, "waits for a", 1, 10),
            (20, "False", Reason::Progressing, "waits for b", 1, 10),
            (30, "False", Reason::NotReady, "waits for b", 1, 10),
            (40, "False", Reason::NotReady, "waits for b", 2, 10),
            (50, "True", Reason::Ready, "runs", 2, 50),
            (60, "True", Reason::Ready, "still runs", 2, 50),
            (70, "Unknown", Reason::Denied, "not known", 2, 70),
            (80, "True", Reason::Ready, "runs", 2, 80),
        ];
        for (now, value, reason, message, generation, moved) in steps {
            progress.set_condition("Own", value, reason, message, generation, at(now));
            let known = progress.condition("Own").unwrap();
            assert_eq!(
                (known.status.as_str(), known.message.as_str()),
                (value, message)
            );
            assert_eq!(known.observed_generation, Some(generation));
            assert_eq!(since(&progress, "Own"), at(moved), "at {now}");
        }
        assert_eq!(progress.conditions.len(), 1);
    }

    #[test]
    fn the_conditions_of_a_run_have_the_times_of_their_transitions() {
        let mut progress = CommonStatus::default();
        let mut stand = |now, verdict: Verdict| {
            progress.apply_verdict(Lifecycle::RunToCompletion, &verdict, 1, at(now));
            progress.clone()
        };
        stand(10, Verdict::working(Reason::Progressing, "starts"));
        let works = stand(20, Verdict::working(Reason::ImagePullFailed, "pulls"));
        assert_eq!(since(&works, condition::SUCCEEDED), at(10));
        assert_eq!(since(&works, condition::RECONCILING), at(10));
        let stalled = stand(30, Verdict::stalled(Reason::InvalidChild, "wrong"));
        assert_eq!(since(&stalled, condition::SUCCEEDED), at(10), "Unknown");
        assert_eq!(since(&stalled, condition::STALLED), at(30));
        assert_eq!(stalled.reason.as_deref(), Some("InvalidChild"));
        let ended = stand(40, Verdict::succeeded("done"));
        assert_eq!(ended.reason.as_deref(), Some("Succeeded"));
        assert_eq!(since(&ended, condition::SUCCEEDED), at(40));
        assert_eq!(since(&ended, condition::FINISHED), at(40));
    }
}
