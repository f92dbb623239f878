//! Worlds generated from a seed: those of every run, with a repository, three containers and
//! responses.

use std::sync::OnceLock;

use api::tasks::{AttemptStatus, ChangedFiles, TaskRunStatus, docs_names};

use super::*;
use crate::{
    run::tests::generator::{self, Rng, any_reason, text},
    time,
};

const COMMITS: &[&str] = &[BASE, HEAD, PUSHED];

fn runs() -> &'static [DocsRun] {
    static RUNS: OnceLock<Vec<DocsRun>> = OnceLock::new();
    RUNS.get_or_init(|| {
        [
            json!({}),
            json!({"output": {"requireChanges": false}}),
            json!({"output": {"branch": "main", "requireChanges": false}, "timeout": "1s"}),
            json!({"repositoryUrl": "http://10.0.0.1/x", "credentialsSecretRef": null}),
            json!({"repositoryUrl": "\u{7}nonsense", "output": {"commitMessage": "$(TOKEN)"}}),
        ]
        .map(docs_run)
        .into()
    })
}

fn report(rng: &mut Rng) -> String {
    let id = *rng.pick(COMMITS);
    let files = || Files::new(["docs/a\u{7}.md", "\u{202e}"]);
    let report = match rng.below(8) {
        0 | 1 => Report::Pushed {
            commit: commit(id),
            changed: files(),
            skipped: Files::default(),
        },
        2 => Report::Found {
            commit: commit(id),
            changed: files(),
            skipped: files(),
        },
        3 => Report::NoChanges { skipped: files() },
        4 => Report::Cloned { commit: commit(id) },
        5 => Report::failed(*rng.pick(&git::Reason::ALL), "no\u{1b}[31m"),
        _ => return text(rng),
    };
    report.write()
}

fn job_name(rng: &mut Rng) -> String {
    match rng.below(6) {
        0 => "other".to_owned(),
        1..=3 => JOB.to_owned(),
        number => {
            let attempt = u32::try_from(number).unwrap() - 3;
            let after = rng.one_in(2).then(|| u32::try_from(rng.below(6)).unwrap());
            docs_names::job("shop", attempt, after)
        }
    }
}

fn owner(known: Option<&String>) -> Option<String> {
    known.map(|uid| match uid.as_str() {
        "run-uid" => "docs-uid".to_owned(),
        other => other.to_owned(),
    })
}

fn status(rng: &mut Rng, run: &DocsRun, course: TaskRunStatus) -> DocsRunStatus {
    let base_commit = rng.maybe(|_| BASE.to_owned());
    let is_known = base_commit.is_some();
    let known = course.attempt;
    DocsRunStatus {
        phase: course.phase,
        base_commit,
        branch: is_known.then(|| run.output_branch()),
        branch_head: rng.maybe(|_| HEAD.to_owned()).filter(|_| is_known),
        commit: (is_known && rng.one_in(4)).then(|| PUSHED.to_owned()),
        changed_files: rng.maybe(|rng| ChangedFiles {
            count: rng.next(),
            first: vec![text(rng)],
        }),
        left_out: rng.maybe(|rng| ChangedFiles {
            count: rng.next(),
            first: vec![text(rng)],
        }),
        publisher: rng.maybe(|_| "pod-1".to_owned()).filter(|_| is_known),
        deadline_extensions: known.disruptions % 2,
        attempt: AttemptStatus {
            // No Job is started before the commit to work on is recorded.
            job_name: known.job_name.filter(|_| is_known).map(|_| job_name(rng)),
            config_map_name: known.config_map_name.map(|_| FILES.to_owned()),
            attempts: if is_known { known.attempts } else { 0 },
            result: known.result.filter(|_| is_known),
            ..known
        },
        progress: course.progress,
    }
}

fn containers(rng: &mut Rng, pod: &mut PodView) {
    pod.step = *rng.pick(&[Step::Before, Step::Main, Step::After, Step::After]);
    if pod.step == Step::After {
        let message = if rng.one_in(2) {
            report(rng)
        } else {
            String::new()
        };
        let ContainerState::Ended(exit) = ended(0, 50, &message) else {
            panic!("it ended")
        };
        let finished = rng.maybe(Rng::time);
        if rng.one_in(6) {
            let restarts = 1;
            let step = *rng.pick(&[Step::Before, Step::Main]);
            pod.doubt = Some((
                step,
                Exit {
                    restarts,
                    ..exit.clone()
                },
            ));
        }
        pod.main_exit = Some(Exit { finished, ..exit });
    }
    if let ContainerState::Ended(exit) = &mut pod.container {
        exit.message = report(rng);
    }
    if pod.step == Step::After && rng.one_in(6) {
        pod.stuck = Some(crate::view::Reported {
            reason: "ErrImagePull".to_owned(),
            message: text(rng),
        });
    }
    if pod.step == Step::Before && rng.one_in(3) {
        pod.container = waiting(PREPARING, "");
    }
}

fn answer(rng: &mut Rng, asked: &LsRemoteRequest, now: Timestamp) -> LsRemoteResponse {
    let response = if rng.one_in(3) {
        let (class, reason) = (ErrorClass::Transient, any_reason(rng));
        Err(ReconcileError::new(class, reason, text(rng)))
    } else {
        let head = |rng: &mut Rng| rng.maybe(|rng| (*rng.pick(COMMITS)).to_owned());
        Ok(asked
            .branches
            .iter()
            .map(|branch| (branch.clone(), head(rng)))
            .collect())
    };
    LsRemoteResponse {
        response,
        since: rng.time(),
        is_fresh: !rng.one_in(3),
        next_at: time::after(now, Duration::from_secs(1 + rng.below(60))),
    }
}

/// Returns any scene, and sometimes the fault that an effect ended with.
pub(super) fn anything(seed: u64) -> (Scene, Option<ReconcileError>) {
    let mut rng = Rng::new(seed ^ 0xd0c5);
    let run = rng.pick(runs()).clone();
    about(seed, &mut rng, run)
}

/// Returns any scene around this run.
pub(super) fn about(seed: u64, rng: &mut Rng, mut run: DocsRun) -> (Scene, Option<ReconcileError>) {
    let (around, fault) = generator::anything(seed);
    run.metadata.deletion_timestamp = around.run.metadata.deletion_timestamp.clone();
    run.metadata.creation_timestamp = around.run.metadata.creation_timestamp.clone();
    run.metadata.annotations = around.run.metadata.annotations.clone();
    run.spec.suspend = around.run.spec.suspend;
    run.spec.cancel = around.run.spec.cancel;
    run.spec.child_ttl = around.run.spec.child_ttl;
    let course = around.run.status.clone();
    run.status = course.map(|course| status(rng, &run, course));
    let mut scene = Scene {
        run,
        around,
        settings: Settings::default(),
        server: Server {
            heads: BTreeMap::new(),
            refusal: None,
            is_queried: false,
        },
        worker: None,
        records: 0,
        is_gone: false,
    };
    if rng.one_in(5) {
        scene.settings.plain_http = true;
        scene.settings.allowed_networks = vec![(*rng.pick(&["10.0.0.0/8", "no"])).to_owned()];
    }
    for job in &mut scene.around.world.children.jobs {
        job.name = job_name(rng);
        job.owner_uid = owner(job.owner_uid.as_ref());
        job.version = match rng.below(8) {
            0 => None,
            1 => Some(0),
            _ => Some(1),
        };
    }
    for map in &mut scene.around.world.children.config_maps {
        map.owner_uid = owner(map.owner_uid.as_ref());
        if !rng.one_in(3) {
            map.name = FILES.to_owned();
        }
    }
    for pod in &mut scene.around.world.children.pods {
        containers(rng, pod);
    }
    if let Some(asked) = question(&scene.run) {
        let answered = rng.maybe(|rng| answer(rng, &asked, scene.now()));
        scene.worker = Some((asked, answered));
    }
    (scene, fault)
}
