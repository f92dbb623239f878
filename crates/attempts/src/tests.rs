//! A kind whose work has two parts, one after the other: a build, and a run on its result. Each part has attempts, a
//! Job and a status of its own.

use std::time::Duration;

use api::{
    Reason, State, Timestamp, Verdict,
    decide::{ConditionUpdate, Effect, LiveRead, Manifest, ResourceType},
    names,
    tasks::RunPhase,
};
use k8s_openapi::{
    api::{batch::v1::Job, core::v1::PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use serde_json::json;

use crate::{
    AttemptResult, AttemptSpec, Cleanup, Container, Containers, Run, RunDecision, RunStatus, Spec,
    Work, World, advance, conclude, evidence, job_spec,
    view::{ContainerState, Exit, JobEnd, JobView, PREPARING, PodPhase, PodView, Reported, Step},
};

const RESOURCE: ResourceType = ResourceType::new(api::GROUP, "v1alpha1", "Notebook", "notebooks");

static BUILD: Part = Part {
    name: "build",
    containers: Containers {
        before: Some(Container {
            name: "fetch",
            reason: Reason::Cloning,
            activity: "fetches the sources",
        }),
        main: "builder",
        after: Some(Container {
            name: "push",
            reason: Reason::Publishing,
            activity: "pushes the image",
        }),
    },
};

static RUN: Part = Part {
    name: "run",
    containers: Containers {
        before: None,
        main: "kernel",
        after: None,
    },
};

/// A part of the work.
#[derive(Debug)]
struct Part {
    name: &'static str,
    containers: Containers,
}

impl Work for Part {
    fn job_name(&self, attempt: u32, replaced_after: Option<u32>) -> String {
        let again = replaced_after.map_or_else(String::new, |count| format!("-d{count}"));
        format!("nb-{}-a{attempt}{again}", self.name)
    }

    fn config_map_name(&self) -> Option<String> {
        None
    }

    fn settings(&self) -> Option<AttemptSpec> {
        Some(AttemptSpec {
            start_timeout_ms: 60_000,
            timeout_ms: 600_000,
            required: Vec::new(),
            memory: None,
            user: 1000,
        })
    }

    fn blocker(&self, _is_stored: bool) -> Option<Verdict> {
        None
    }

    fn config_map(&self) -> Result<Option<Manifest>, Verdict> {
        Ok(None)
    }

    fn job(&self, _attempt: u32, name: &str) -> Result<Manifest, Verdict> {
        let settings = serde_json::to_string(&self.settings()).unwrap();
        let template = PodTemplateSpec {
            metadata: Some(ObjectMeta {
                annotations: Some([(names::ATTEMPT_SPEC.to_owned(), settings)].into()),
                ..ObjectMeta::default()
            }),
            spec: None,
        };
        let job = Job {
            metadata: ObjectMeta {
                owner_references: Some(vec![OwnerReference {
                    api_version: RESOURCE.api_version(),
                    kind: RESOURCE.kind.to_owned(),
                    name: "nb".to_owned(),
                    uid: "owner".to_owned(),
                    controller: Some(true),
                    block_owner_deletion: None,
                }]),
                ..ObjectMeta::default()
            },
            spec: Some(job_spec(template, Duration::from_secs(660))),
            status: None,
        };
        let labels = names::child_labels(RESOURCE.kind, "nb", "owner");
        let body = serde_json::to_value(&job).unwrap();
        Ok(Manifest::new(
            ResourceType::JOB,
            Some("team"),
            name,
            "owner",
            labels,
            body,
        ))
    }

    fn reads(&self) -> Vec<LiveRead> {
        Vec::new()
    }

    fn conditions(&self, _decision: &RunDecision) -> Vec<ConditionUpdate> {
        Vec::new()
    }

    fn evaluate(
        &self,
        pod: &PodView,
        _exit: &Exit,
        failure: Option<&str>,
        _settings: Option<&AttemptSpec>,
    ) -> AttemptResult {
        let (reason, message) = match failure {
            None => (Reason::Succeeded, "it is done"),
            Some(failure) => (Reason::NonZeroExit, failure),
        };
        AttemptResult::new(reason, message, evidence(Some(pod)))
    }

    fn may_repeat(&self, _result: &AttemptResult) -> bool {
        false
    }
}

/// One part of an object, with the children of this part.
#[derive(Debug)]
struct Scene {
    part: &'static Part,
    metadata: ObjectMeta,
    world: World,
    status: RunStatus,
    now: Timestamp,
}

impl Scene {
    fn new(part: &'static Part) -> Self {
        Self {
            part,
            metadata: ObjectMeta {
                name: Some("nb".to_owned()),
                namespace: Some("team".to_owned()),
                uid: Some("owner".to_owned()),
                ..ObjectMeta::default()
            },
            world: World::default(),
            status: RunStatus::default(),
            now: "2030-01-01T00:00:00Z".parse().unwrap(),
        }
    }

    fn decide(&self) -> RunDecision {
        let spec = Spec {
            resource: RESOURCE,
            metadata: &self.metadata,
            version: 1,
            history: &[],
            is_announced: true,
            lacks_files: false,
            containers: &self.part.containers,
            timeout: None,
            after_main: Duration::from_secs(300),
            retry: None,
            suspend: false,
            cancel: false,
            child_ttl: None,
            cleanup: Cleanup::default(),
            delete_finished_runs_after: None,
            run_again: "",
            accept_changed_pods: "",
        };
        let status = self.status.clone();
        let run = Run {
            confirmed: true,
            ..Run::new(self.part, spec, &self.world, status, self.now)
        };
        conclude(&run).unwrap_or_else(|| advance(&run))
    }

    /// Decides, creates the Jobs of the decision, and records its status. Returns the names of the Jobs.
    fn pass(&mut self) -> (RunDecision, Vec<String>) {
        let decision = self.decide();
        let mut names = Vec::new();
        for effect in &decision.effects {
            let Effect::Ensure(manifest) = effect else {
                panic!("{effect:?}")
            };
            let mut body = manifest.body.clone();
            body["metadata"]["uid"] = json!(format!("uid of {}", manifest.name));
            let job: Job = serde_json::from_value(body).unwrap();
            let mut view = JobView::new(&job, &[RESOURCE]);
            view.proven = true;
            self.world.jobs.push(view);
            names.push(manifest.name.clone());
        }
        self.status = decision.status.clone();
        self.status.phase = Some(decision.phase);
        (decision, names)
    }

    /// Gives the newest Job a Pod in this state.
    fn pod(&mut self, step: Step, container: ContainerState) {
        let phase = match &container {
            ContainerState::Unknown | ContainerState::Waiting(_) => PodPhase::Pending,
            ContainerState::Running { .. } => PodPhase::Running,
            ContainerState::Ended(_) => PodPhase::Succeeded,
        };
        self.world.pods = vec![PodView {
            pod: pods::PodView {
                name: "p".to_owned(),
                uid: "pod".to_owned(),
                created: Some(self.now),
                phase,
                containers: 1,
                ..pods::PodView::default()
            },
            job_uid: self.world.jobs.last().map(|job| job.uid.clone()),
            step,
            container,
            main_exit: (step == Step::After).then(Exit::default),
            beside: None,
            doubt: None,
            stuck: None,
            image_id: None,
            content: None,
            foreign: false,
        }];
    }

    fn running(&self) -> ContainerState {
        ContainerState::Running {
            since: Some(self.now),
        }
    }
}

#[test]
fn two_parts_of_an_object_have_attempts_one_after_the_other() {
    let mut build = Scene::new(&BUILD);
    let (decision, jobs) = build.pass();
    assert_eq!(jobs, ["nb-build-a1"]);
    assert_eq!(decision.phase, RunPhase::Pending);
    assert_eq!(decision.status.config_map_name, None, "it has no files");

    // Each container of the part has its own reason and message.
    let fetching = ContainerState::Waiting(Reported {
        reason: PREPARING.to_owned(),
        message: String::new(),
    });
    let steps = [
        (
            Step::Before,
            fetching,
            RunPhase::Pending,
            Reason::Cloning,
            "fetches the sources; its builder starts",
        ),
        (
            Step::Main,
            build.running(),
            RunPhase::Running,
            Reason::Progressing,
            "runs; it has until",
        ),
        (
            Step::After,
            build.running(),
            RunPhase::Running,
            Reason::Publishing,
            "pushes the image; it has until",
        ),
    ];
    for (step, container, phase, reason, part) in steps {
        build.pod(step, container);
        let (decision, jobs) = build.pass();
        assert_eq!((decision.phase, decision.verdict.reason), (phase, reason));
        let message = &decision.verdict.message;
        assert!(message.contains(part), "{message}");
        assert!(jobs.is_empty(), "{jobs:?}");
    }
    let exit = Exit {
        reason: "Completed".to_owned(),
        ..Exit::default()
    };
    build.pod(Step::After, ContainerState::Ended(exit));
    build.world.jobs[0].end = Some(JobEnd::Complete {
        at: Some(build.now),
    });
    let (decision, _) = build.pass();
    assert_eq!(
        decision.verdict.state,
        State::Succeeded,
        "{:?}",
        decision.verdict
    );
    assert!(decision.effects.is_empty(), "the Job and its logs stay");

    // The second part sees only its own children. A lost Job uses no attempt of it.
    let mut run = Scene::new(&RUN);
    assert_eq!(run.pass().1, ["nb-run-a1"]);
    run.world.jobs.clear();
    let (decision, _) = run.pass();
    assert_eq!(decision.verdict.reason, Reason::JobLost);
    assert_eq!(run.pass().1, ["nb-run-a1-d1"]);
    assert_eq!((run.status.attempts, run.status.disruptions), (1, 1));
    assert_eq!(build.status.disruptions, 0, "it is counted in each part");
}

#[test]
fn a_part_that_failed_is_repeated_only_if_its_kind_allows_it() {
    let mut run = Scene::new(&RUN);
    run.pass();
    let exit = Exit {
        code: 3,
        reason: "Error".to_owned(),
        ..Exit::default()
    };
    run.pod(Step::Main, ContainerState::Ended(exit));
    run.world.pods[0].phase = PodPhase::Failed;
    run.world.jobs[0].end = Some(JobEnd::Failed {
        at: Some(run.now),
        reason: "BackoffLimitExceeded".to_owned(),
        message: "no more".to_owned(),
    });
    let (decision, _) = run.pass();
    assert_eq!(
        (decision.phase, decision.verdict.reason),
        (RunPhase::Failed, Reason::NonZeroExit)
    );
    assert_eq!(decision.verdict.message, "no more");
    // Nothing changes after the end.
    let again = run.decide();
    assert_eq!(again.phase, RunPhase::Failed);
    assert!(again.effects.is_empty(), "{:?}", again.effects);
}
