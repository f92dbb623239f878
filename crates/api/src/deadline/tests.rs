use serde::{Deserialize, Serialize};

use super::*;
use crate::{
    PhaseRow, Reason, Verdict,
    decide::Decision,
    phase::{Limit, Undo},
};

struct Limits {
    start: u64,
    idle: u64,
    cap: u64,
}

const LIMITS: Limits = Limits {
    start: 100,
    idle: 80,
    cap: 200,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum CopyPhase {
    Queued,
    Copying,
    Paused,
    Waiting,
}

impl Phase for CopyPhase {
    type Spec = Limits;

    const TABLE: &'static [PhaseRow<Self>] = &[
        PhaseRow {
            phase: Self::Queued,
            meaning: "",
            deadline: Deadline::after(
                "`start`",
                |limits: &Limits| Duration::from_secs(limits.start),
                CopyPhase::Paused,
            ),
            undo: Undo::None,
            next: &[Self::Copying, Self::Paused],
        },
        PhaseRow {
            phase: Self::Copying,
            meaning: "",
            deadline: Deadline::progress(
                Limit {
                    text: "`idle`",
                    of: |limits: &Limits| Duration::from_secs(limits.idle),
                },
                Limit {
                    text: "`cap`",
                    of: |limits: &Limits| Duration::from_secs(limits.cap),
                },
                CopyPhase::Paused,
            ),
            undo: Undo::None,
            next: &[Self::Paused],
        },
        PhaseRow {
            phase: Self::Paused,
            meaning: "",
            deadline: Deadline::none("it is resumed"),
            undo: Undo::None,
            next: &[Self::Queued],
        },
        PhaseRow {
            phase: Self::Waiting,
            meaning: "",
            deadline: Deadline::decided("some waits", CopyPhase::Paused),
            undo: Undo::None,
            next: &[Self::Paused],
        },
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Queued => "Queued",
            Self::Copying => "Copying",
            Self::Paused => "Paused",
            Self::Waiting => "Waiting",
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct CopyStatus {
    phase: Option<CopyPhase>,
    #[serde(flatten)]
    progress: CommonStatus,
}

impl Status for CopyStatus {
    crate::common_status!(CopyPhase, LongLived);
}

/// A copy of a volume that was created at second 1000.
struct Transfer {
    limits: Limits,
    status: CopyStatus,
    seen: Option<String>,
    since: Option<Timestamp>,
    /// Status writes that changed something.
    writes: u32,
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

impl Transfer {
    fn new() -> Self {
        Self {
            limits: LIMITS,
            status: CopyStatus::default(),
            seen: None,
            since: None,
            writes: 0,
        }
    }

    fn input(&self) -> PhaseInput<'_, CopyPhase> {
        PhaseInput {
            spec: &self.limits,
            created: Some(at(1000)),
            progress: self.seen.clone(),
        }
    }

    fn is_overdue(&self, second: i64) -> bool {
        is_overdue(&self.status, &self.input(), at(second))
    }

    /// Records a decision for this phase, through JSON as the API server would. Returns the deadline
    /// and the requeue time, in seconds.
    fn record(&mut self, phase: CopyPhase, now: Timestamp) -> (Option<i64>, Option<i64>) {
        let is_told =
            is_overdue(&self.status, &self.input(), now) && self.status.phase == Some(phase);
        let verdict = Verdict::working(Reason::Progressing, "copies");
        let mut decision: Decision<CopyStatus> =
            Decision::status_only(self.status.clone(), phase, verdict);
        decision.phase_since = self.since;
        let status = decision.next_status(&self.status, &self.input(), 1, now);
        let requeue_at = requeue_at(&status, is_told, &self.input(), now);
        self.writes += u32::from(status != self.status);
        let json = serde_json::to_value(&status).unwrap();
        self.status = serde_json::from_value(json).unwrap();
        let deadline = self.status.progress.deadline_at.as_ref();
        (
            deadline.map(|time| time.0.as_second()),
            requeue_at.map(Timestamp::as_second),
        )
    }

    fn started(&self) -> Option<i64> {
        let started = self.status.progress.phase_started_at.as_ref();
        started.map(|time| time.0.as_second())
    }
}

#[test]
fn a_deadline_counts_from_its_phase_and_needs_no_write_of_its_own() {
    let mut copy = Transfer::new();
    let begin = Timestamp::from_millisecond(1_000_700).unwrap();
    assert_eq!(
        copy.record(CopyPhase::Queued, begin),
        (Some(1100), Some(1100))
    );
    assert_eq!((copy.started(), copy.writes), (Some(1000), 1));
    // Any process continues the same wait. Each line: the time, and whether the phase is over.
    for (second, is_over) in [(1001, false), (1099, false), (1100, true), (5000, true)] {
        assert_eq!(copy.is_overdue(second), is_over, "{second}");
    }
    copy.record(CopyPhase::Queued, at(1050));
    assert_eq!(copy.writes, 1, "nothing is new");
    // The author of the spec extends the wait.
    copy.limits.start = 300;
    assert!(!copy.is_overdue(1150));
    assert_eq!(
        copy.record(CopyPhase::Queued, at(1150)),
        (Some(1300), Some(1300))
    );
    // Another phase has its own clock, and a phase without a deadline has none.
    assert_eq!(copy.record(CopyPhase::Paused, at(1200)), (None, None));
    assert_eq!(copy.started(), Some(1200));
    assert!(!copy.is_overdue(9000));
    copy.record(CopyPhase::Queued, at(2000));
    assert!(!copy.is_overdue(2299) && copy.is_overdue(2300));
}

#[test]
fn an_overdue_phase_is_told_once_and_not_in_a_loop() {
    let mut copy = Transfer::new();
    // The cluster reports a start whose deadline has passed.
    copy.since = Some(at(1100));
    let begin = copy.record(CopyPhase::Queued, at(1500));
    assert_eq!(begin, (Some(1200), Some(1500)), "decide must hear of it");
    assert!(copy.is_overdue(1500));
    let told = copy.record(CopyPhase::Queued, at(1500));
    assert_eq!(told, (Some(1200), None), "nothing else would change");
}

#[test]
fn progress_moves_the_idle_limit_and_not_the_cap() {
    let mut copy = Transfer::new();
    copy.seen = Some("10%".to_owned());
    assert_eq!(
        copy.record(CopyPhase::Copying, at(1000)),
        (Some(1080), Some(1080))
    );
    assert!(!copy.is_overdue(1079) && copy.is_overdue(1080));
    // A step that was not recorded yet is progress, too.
    copy.seen = Some("40%".to_owned());
    assert!(!copy.is_overdue(1080));
    assert_eq!(
        copy.record(CopyPhase::Copying, at(1060)),
        (Some(1140), Some(1140))
    );
    // Progress that cannot be observed is no progress.
    copy.seen = None;
    assert!(copy.is_overdue(1140));
    copy.seen = Some("90%".to_owned());
    assert_eq!(
        copy.record(CopyPhase::Copying, at(1130)),
        (Some(1200), Some(1200)),
        "the cap"
    );
    copy.seen = Some("91%".to_owned());
    assert!(!copy.is_overdue(1199) && copy.is_overdue(1200));
}

#[test]
fn fast_progress_is_recorded_eight_times_per_idle_limit() {
    let mut copy = Transfer::new();
    copy.limits.cap = 10_000;
    copy.record(CopyPhase::Copying, at(1000));
    for second in 1001..1080 {
        copy.seen = Some(second.to_string());
        assert!(!copy.is_overdue(second));
        let (deadline, requeue_at) = copy.record(CopyPhase::Copying, at(second));
        // The next record, not the deadline of the last one.
        assert!(requeue_at < deadline || second % 10 == 0, "{second}");
    }
    assert!(copy.writes <= 9, "{}", copy.writes);
    // A step that was left out of the records is recorded by the next reconciliation.
    let (_, requeue_at) = copy.record(CopyPhase::Copying, at(1079));
    assert_eq!(requeue_at, Some(1080));
    let after = copy.record(CopyPhase::Copying, at(1080));
    assert_eq!(after, (Some(1160), Some(1160)));
}

#[test]
fn an_absurd_start_is_not_believed() {
    // Columns: the stored start, and whether it is believed at second 2000.
    let cases = [
        (1990, true),
        (2050, true),
        (2061, false),
        (i64::from(u32::MAX), false),
        (950, true),
        (900, false),
        (0, false),
    ];
    for (start, is_believed) in cases {
        let mut copy = Transfer::new();
        copy.record(CopyPhase::Queued, at(1000));
        copy.status.progress.phase_started_at = Some(Time(at(start)));
        let counted_from = if is_believed { start } else { 2000 };
        let end = counted_from + 100;
        assert_eq!(copy.is_overdue(2000), end <= 2000, "{start}");
        let (deadline, _) = copy.record(CopyPhase::Queued, at(2000));
        assert_eq!(deadline, Some(end), "{start}");
        // The replaced start is stored, so the wait does not begin again and again.
        assert!(copy.is_overdue(2200), "{start}");
    }
}

#[test]
fn a_status_of_an_earlier_release_is_not_written_for_its_start() {
    let mut copy = Transfer::new();
    copy.record(CopyPhase::Paused, at(1200));
    copy.status.progress.phase_started_at = None;
    copy.writes = 0;
    copy.record(CopyPhase::Paused, at(1300));
    assert_eq!((copy.started(), copy.writes), (None, 0));
    // Its history has the start of a phase with a deadline.
    copy.record(CopyPhase::Queued, at(1400));
    copy.status.progress.phase_started_at = None;
    assert!(!copy.is_overdue(1499) && copy.is_overdue(1500));
}

#[test]
fn a_deadline_that_a_decision_sets_is_stored_whole() {
    let mut copy = Transfer::new();
    let end = Timestamp::from_millisecond(1_500_001).unwrap();
    copy.status.progress.deadline_at = Some(Time(end));
    assert_eq!(
        copy.record(CopyPhase::Waiting, at(1000)),
        (Some(1501), Some(1501))
    );
    assert!(!copy.is_overdue(1500) && copy.is_overdue(1501));
    let passed = copy.record(CopyPhase::Waiting, at(1600));
    assert_eq!(passed, (Some(1501), None), "the decision knows");
    let common = &mut copy.status.progress;
    let day = Duration::from_secs(86_400);
    assert_eq!(common.deadline(day, at(1600)), Some(at(1501)));
    common.deadline_at = Some(Time(at(1600 + 86_401)));
    assert_eq!(common.deadline(day, at(1600)), None, "another clock");
}
