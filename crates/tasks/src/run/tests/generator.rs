//! Worlds generated from a seed: plausible parts in random combinations. This is much faster than a strategy per field,
//! and the seed that a failure prints reproduces it.

use std::{collections::BTreeSet, sync::OnceLock};

use api::{
    CommonStatus, Verdict,
    decide::ErrorClass,
    tasks::{AttemptStatus, ChildTtl, Evidence, RunPod, Version},
};
use attempts::{AttemptSpec, RunStatus, Stage};

use super::*;
use crate::run::{Cleanup, run_spec::RunSpec};

/// SplitMix64: small, and good enough to walk through cases.
#[derive(Debug, Clone)]
pub(in crate::run) struct Rng(u64);

impl Rng {
    pub(in crate::run) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(in crate::run) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`.
    pub(in crate::run) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// Returns true once in `odds`.
    pub(in crate::run) fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    pub(in crate::run) fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        let index = self.below(list.len() as u64);
        &list[usize::try_from(index).unwrap()]
    }

    pub(in crate::run) fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (!self.one_in(3)).then(|| make(self))
    }

    pub(in crate::run) fn time(&mut self) -> Timestamp {
        const NEAR: &[i64] = &[
            -400_000, -3700, -700, -601, -600, -90, -30, -11, -10, -5, -1, 0, 1, 5, 10, 59, 61,
            600, 3600,
        ];
        match self.below(30) {
            0 => Timestamp::MIN,
            1 => Timestamp::from_second(Timestamp::MAX.as_second()).unwrap(),
            2 => Timestamp::from_second(0).unwrap(),
            _ => at(*self.pick(NEAR)),
        }
    }
}

const MESSAGES: &[&str] = &[
    "",
    "it is so",
    "secret \"token\" not found",
    "exceeded quota: q",
    "permission denied",
    "Back-off pulling image \"a:1\"",
    "Back-off pulling image \"a:1\": ErrImagePull: no",
    "Error creating: pods \"x\" is forbidden: denied",
    "pods \"",
    "bell \u{7} and \u{1b}[31m colors\r\n second line",
    "{\"answer\": \"42\"}",
    "{\"answer\": 1, \"other\": [null]}",
    "[1]",
    "{",
    "\u{1F600}\u{202e}日本",
];

pub(in crate::run) fn text(rng: &mut Rng) -> String {
    match rng.below(40) {
        0 => "ü".repeat(3000),
        1 => "x".repeat(4096),
        2 => format!("{{\"answer\": \"{}\"}}", "y".repeat(4000)),
        _ => (*rng.pick(MESSAGES)).to_owned(),
    }
}

fn said_by(rng: &mut Rng, reasons: &[&str]) -> Reported {
    Reported {
        reason: (*rng.pick(reasons)).to_owned(),
        message: text(rng),
    }
}

/// Created once: parsing a spec from JSON is the expensive part.
fn agents() -> &'static [Arc<Agent>] {
    static AGENTS: OnceLock<Vec<Arc<Agent>>> = OnceLock::new();
    AGENTS.get_or_init(|| {
        let mut unready = agent(json!({}));
        let verdict = Verdict::working(Reason::DependencyNotReady, "missing: it");
        let progress = &mut unready.status.as_mut().unwrap().progress;
        progress.apply_verdict(api::Lifecycle::LongLived, &verdict, 1, start());
        let mut stale = agent(json!({}));
        stale.metadata.generation = Some(9);
        let mut unseen = agent(json!({}));
        unseen.status = None;
        [
            agent(json!({})),
            agent(json!({"retry": {"maxAttempts": 3}, "startTimeout": "1s", "timeout": "1s"})),
            agent(json!({"results": [{"name": "answer", "required": true}]})),
            agent(json!({"timeout": "999999h", "startTimeout": "999999h"})),
            agent(json!({"instructions": [{"filename": "i.md", "content": "z".repeat(921_600)}]})),
            unready,
            stale,
            unseen,
        ]
        .map(Arc::new)
        .into()
    })
}

fn runs() -> &'static [TaskRun] {
    static RUNS: OnceLock<Vec<TaskRun>> = OnceLock::new();
    RUNS.get_or_init(|| {
        [
            json!({}),
            json!({"contextVersion": 2}),
            json!({"contextVersion": 3, "retry": {"maxAttempts": 2}}),
            json!({"timeout": "1s", "retry": {"maxAttempts": 10, "backoff": {"initial": "999999h", "max": "999999h"}}}),
            json!({"serviceName": "\u{0}\n$(HOME)/../日本", "contextVersion": i64::MAX}),
            json!({"contextVersion": 1, "taskId": i64::MIN}),
        ]
        .map(run)
        .into()
    })
}

/// Returns a reason that a run can have, or in one of 8 cases a reason of another operator: a stored reason may be any text. Each
/// operator adds reasons, so an equal share for all of them would make those of runs rare.
pub(in crate::run) fn any_reason(rng: &mut Rng) -> Reason {
    static REASONS: OnceLock<(Vec<Reason>, Vec<Reason>)> = OnceLock::new();
    let (others, own) = REASONS.get_or_init(|| {
        Reason::all().partition(|reason| {
            let mut operators = api::kinds::OPERATORS.iter();
            operators.any(|one| one.name != "tasks" && one.reasons.contains(reason))
        })
    });
    match rng.one_in(8) {
        true => *rng.pick(others),
        false => *rng.pick(own),
    }
}

fn evidence(rng: &mut Rng) -> Evidence {
    Evidence {
        exit_code: rng.maybe(|_| 1),
        signal: None,
        reason: rng.maybe(|rng| any_reason(rng).name().to_owned()),
        message: rng.maybe(text),
        results: Default::default(),
        image_id: None,
        node: None,
        pod_name: None,
        pod_uid: rng.one_in(3).then(|| pod_uid(rng)),
        started_at: rng.maybe(|rng| Time(rng.time())),
        finished_at: rng.maybe(|rng| Time(rng.time())),
    }
}

fn job_name(rng: &mut Rng, run: &TaskRun) -> String {
    match rng.below(6) {
        0 => "other".to_owned(),
        1 => String::new(),
        number => {
            let attempt = u32::try_from(number).unwrap() - 1;
            let replaced_after = rng.one_in(4).then(|| disruptions(rng));
            api::tasks::names::job(&run.spec, attempt, replaced_after)
        }
    }
}

fn disruptions(rng: &mut Rng) -> u32 {
    *rng.pick(&[0, 0, 1, 1, 2, 4, 5])
}

fn pod_uid(rng: &mut Rng) -> String {
    format!("pod-uid-{}", rng.below(4))
}

fn status(rng: &mut Rng, run: &TaskRun) -> TaskRunStatus {
    let mut status = TaskRunStatus {
        phase: rng.maybe(|rng| {
            *rng.pick(&[
                RunPhase::Pending,
                RunPhase::Pending,
                RunPhase::Running,
                RunPhase::Running,
                RunPhase::Succeeded,
                RunPhase::Failed,
            ])
        }),
        context_version: rng.maybe(|rng| match rng.below(4) {
            0 => *rng.pick(&[0, 1, 2, i64::MAX, i64::MIN]),
            _ => run.spec.context_version,
        }),
        attempt: AttemptStatus {
            job_name: rng.maybe(|rng| job_name(rng, run)),
            job_uid: rng.one_in(3).then(|| format!("job-{}", rng.below(4))),
            config_map_name: rng.maybe(|_| api::tasks::names::config_map(&run.spec)),
            config_map_uid: rng.one_in(3).then(|| format!("map-{}", rng.below(3))),
            attempts: *rng.pick(&[0, 1, 1, 1, 2, 3, u32::MAX]),
            disruptions: disruptions(rng),
            pod: rng.one_in(3).then(|| RunPod {
                name: "known-pod".to_owned(),
                uid: pod_uid(rng),
                node: rng.maybe(|_| "node-2".to_owned()),
                disrupted_at: rng.one_in(2).then(|| Time(rng.time())),
            }),
            next_attempt_at: rng.one_in(3).then(|| Time(rng.time())),
            started_at: rng.maybe(|rng| Time(rng.time())),
            finished_at: None,
            result: None,
        },
        history: Vec::new(),
        progress: CommonStatus {
            deadline_at: rng.maybe(|rng| Time(rng.time())),
            ..CommonStatus::default()
        },
    };
    if rng.one_in(3) {
        status.result = Some(evidence(rng));
    }
    if status.phase.is_some_and(Phase::is_terminal) {
        status.finished_at = rng.maybe(|rng| Time(rng.time()));
    }
    if rng.one_in(8) {
        let version = Version {
            context_version: 1,
            phase: "Failed".to_owned(),
            reason: "NonZeroExit".to_owned(),
            attempts: 1,
            disruptions: disruptions(rng),
            finished_at: Time(rng.time()),
            result: None,
        };
        status.history = vec![version; usize::try_from(rng.below(13)).unwrap()];
    }
    if !rng.one_in(4) {
        let (reason, message) = (any_reason(rng), text(rng));
        let verdict = match status.phase {
            Some(RunPhase::Succeeded) => Verdict::succeeded(message),
            Some(RunPhase::Failed) => Verdict::failed(reason, message),
            _ if rng.one_in(3) => Verdict::stalled(reason, message),
            _ => Verdict::working(reason, message),
        };
        status
            .progress
            .apply_verdict(api::Lifecycle::RunToCompletion, &verdict, 1, start());
    }
    status
}

fn job(rng: &mut Rng, run: &TaskRun, index: u64) -> JobView {
    JobView {
        job: pods::JobView {
            name: job_name(rng, run),
            uid: format!("job-{index}"),
            created: rng.maybe(Rng::time),
            deleting: rng.one_in(5).then(|| rng.time()),
            suspended: rng.one_in(5),
            started: rng.maybe(Rng::time),
            limit_seconds: rng.maybe(|rng| *rng.pick(&[i64::MIN, 0, 1, 4260, i64::MAX])),
            resumed: rng.one_in(6).then(|| match rng.below(3) {
                0 => Timestamp::MAX,
                _ => rng.time(),
            }),
            counted: rng.one_in(3),
            end: match rng.below(5) {
                0 | 1 => Some(JobEnd::Complete {
                    at: rng.maybe(Rng::time),
                }),
                2 => Some(JobEnd::Failed {
                    at: rng.maybe(Rng::time),
                    reason: (*rng.pick(&[
                        "",
                        "BackoffLimitExceeded",
                        "DeadlineExceeded",
                        "PodFailurePolicy",
                    ]))
                    .to_owned(),
                    message: text(rng),
                }),
                _ => None,
            },
        },
        owner_uid: match rng.below(8) {
            0 => None,
            1 => Some("someone-else".to_owned()),
            _ => Some("run-uid".to_owned()),
        },
        version: match rng.below(6) {
            0 => None,
            1 => Some(0),
            _ => Some(run.spec.context_version),
        },
        suspended_by_us: rng.one_in(3),
        stopped_pods: Vec::new(),
        terms: rng.maybe(|rng| AttemptSpec {
            start_timeout_ms: *rng.pick(&[0, 1, 600_000, u64::MAX]),
            timeout_ms: *rng.pick(&[0, 1, 3_600_000, u64::MAX]),
            required: if rng.one_in(4) {
                vec!["answer".to_owned()]
            } else {
                Vec::new()
            },
            memory: rng.maybe(|_| "1Gi".to_owned()),
            user: 65532,
        }),
        content: None,
        proven: !rng.one_in(5),
    }
}

fn pod(rng: &mut Rng, index: u64) -> PodView {
    PodView {
        step: crate::view::Step::Main,
        main_exit: None,
        beside: None,
        doubt: None,
        stuck: None,
        pod: pods::PodView {
            name: format!("pod-{index}"),
            uid: format!("pod-uid-{index}"),
            created: rng.maybe(Rng::time),
            node: rng.maybe(|_| "node-1".to_owned()),
            stop_asked: rng.one_in(4).then(|| rng.time()),
            stop_by: rng.one_in(4).then(|| rng.time()),
            disruption: rng
                .one_in(6)
                .then(|| said_by(rng, &["", "EvictionByEvictionAPI"])),
            unschedulable: rng.one_in(5).then(|| text(rng)),
            limit_seconds: rng.one_in(5).then(|| *rng.pick(&[1, 600])),
            lacks_sandbox: rng.one_in(5),
            phase: *rng.pick(&[
                PodPhase::Pending,
                PodPhase::Running,
                PodPhase::Running,
                PodPhase::Succeeded,
                PodPhase::Succeeded,
                PodPhase::Failed,
                PodPhase::Unknown,
            ]),
            failure: rng
                .one_in(5)
                .then(|| said_by(rng, &["Evicted", "OutOfcpu"])),
            containers: *rng.pick(&[0, 1, 3]),
            ..pods::PodView::default()
        },
        job_uid: rng.maybe(|rng| format!("job-{}", rng.below(4))),
        container: match rng.below(6) {
            0 => ContainerState::Unknown,
            1 => ContainerState::Waiting(said_by(
                rng,
                &[
                    "ContainerCreating",
                    "ErrImagePull",
                    "ImagePullBackOff",
                    "CreateContainerConfigError",
                    "CreateContainerError",
                    "RunContainerError",
                ],
            )),
            2 => ContainerState::Running {
                since: rng.maybe(Rng::time),
            },
            _ => ContainerState::Ended(Exit {
                code: *rng.pick(&[0, 0, 0, 1, 137, 143, 255, i32::MAX, i32::MIN]),
                signal: rng.one_in(6).then(|| *rng.pick(&[0, 9, -1])),
                reason: (*rng.pick(&[
                    "Completed",
                    "Completed",
                    "Error",
                    "OOMKilled",
                    "StartError",
                    "",
                ]))
                .to_owned(),
                message: text(rng),
                started: rng.maybe(Rng::time),
                finished: rng.maybe(Rng::time),
                restarts: *rng.pick(&[0, 0, 0, 0, 1, i32::MAX]),
            }),
        },
        image_id: rng.maybe(|_| "id".to_owned()),
        content: None,
        foreign: rng.one_in(8),
    }
}

fn keep(rng: &mut Rng) -> Duration {
    const WAITS: &[u64] = &[0, 1, 300, 3600, 86_400];
    if rng.one_in(20) {
        return Duration::MAX;
    }
    Duration::from_secs(*rng.pick(WAITS))
}

/// Returns any scene, and sometimes the fault that an effect ended with.
pub(in crate::run) fn anything(seed: u64) -> (Scene, Option<ReconcileError>) {
    let mut rng = Rng::new(seed);
    let run = rng.pick(runs()).clone();
    around(&mut rng, run)
}

/// Returns any scene around this run.
pub(in crate::run) fn around(rng: &mut Rng, mut run: TaskRun) -> (Scene, Option<ReconcileError>) {
    run.status = rng.maybe(|rng| status(rng, &run));
    run.spec.suspend = rng.one_in(5);
    run.spec.cancel = rng.one_in(6);
    run.spec.child_ttl = rng.one_in(5).then(|| ChildTtl {
        succeeded: rng.maybe(|rng| keep(rng).into()),
        failed: rng.maybe(|rng| keep(rng).into()),
    });
    run.metadata.creation_timestamp = rng.maybe(|rng| Time(rng.time()));
    if rng.one_in(6) {
        run.metadata.deletion_timestamp = Some(Time(rng.time()));
    }
    if rng.one_in(6) {
        let outcome = *rng.pick(&[
            r#"{"version":1,"outcome":"Succeeded","reason":"Succeeded","uid":"u"}"#,
            r#"{"version":9223372036854775807,"outcome":"Failed","reason":"Succeeded","uid":"u"}"#,
            r#"{"version":3,"outcome":"Failed","reason":"NoSuchReason\u0007","uid":"u"}"#,
            "nonsense",
        ]);
        let force = *rng.pick(&["true", "no"]);
        let preserve = *rng.pick(&["true", "no"]);
        run.metadata.annotations = Some(
            [
                (names::OUTCOME.to_owned(), outcome.to_owned()),
                (names::FORCE_DELETE.to_owned(), force.to_owned()),
                (names::PRESERVE.to_owned(), preserve.to_owned()),
            ]
            .into(),
        );
    }
    let mut scene = Scene::new(run, None);
    scene.world.agent = rng.maybe(|rng| rng.pick(agents()).clone());
    scene.world.children.jobs = (0..rng.below(4))
        .map(|index| job(rng, &scene.run, index))
        .collect();
    // A namespace has only one Job of a name.
    let mut names = BTreeSet::new();
    scene
        .world
        .children
        .jobs
        .retain(|job| names.insert(job.name.clone()));
    scene.world.children.pods = (0..rng.below(4)).map(|index| pod(rng, index)).collect();
    scene.world.children.warnings = (0..rng.below(3))
        .map(|index| Warning {
            object_uid: format!("{}-{index}", rng.pick(&["job", "pod-uid"])),
            reason: (*rng.pick(&["FailedCreate", "FailedMount", "FailedScheduling"])).to_owned(),
            message: text(rng),
            last_seen: rng.maybe(Rng::time),
            times: *rng.pick(&[1, 2, 3]),
            ..Warning::default()
        })
        .collect();
    scene.world.children.config_maps = (0..rng.below(3))
        .map(|index| ConfigMapView {
            name: match rng.below(3) {
                0 => "of-another-version".to_owned(),
                _ => api::tasks::names::config_map(&scene.run.spec),
            },
            uid: format!("map-{index}"),
            owner_uid: rng.maybe(|_| "run-uid".to_owned()),
            deleting: rng.one_in(4),
            proven: !rng.one_in(4),
        })
        .collect();
    scene.world.defaults.cleanup = Cleanup {
        enabled: !rng.one_in(4),
        after_success: keep(rng),
        after_failure: keep(rng),
        delete_config_map: rng.one_in(2),
    };
    scene.world.defaults.delete_finished_runs_after = rng.one_in(4).then(|| keep(rng));
    scene.now = if rng.one_in(20) { rng.time() } else { start() };
    let fault = rng
        .one_in(10)
        .then(|| ReconcileError::new(ErrorClass::Failed, any_reason(rng), text(rng)));
    forget_next(&mut scene);
    (scene, fault)
}

/// Removes the UID of a Job that is still to be created: no operator records one, because the name of the next
/// attempt's Job always differs from the last one's. With both in a status, an existing Job of that name would count as
/// an unmanaged one.
fn forget_next(scene: &mut Scene) {
    let Some(stored) = scene.run.status.clone() else {
        return;
    };
    let status = RunStatus {
        version: stored.context_version,
        attempt: stored.attempt,
        ..RunStatus::default()
    };
    let run_spec = RunSpec::of_task(&scene.run, &scene.world);
    let run = run_spec.run(status, scene.now);
    let is_between = matches!(run.stage(), Stage::RetryBackoff(_));
    let is_next = run.status.job_name == Some(run.next_attempt().1);
    if is_between && is_next {
        scene.run.status.as_mut().unwrap().job_uid = None;
    }
}
