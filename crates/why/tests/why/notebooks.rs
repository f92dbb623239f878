//! NotebookValidationJobs: their repositories, their Pod, their cells and their golden notebook.

use std::collections::BTreeSet;

use k8s_openapi::{
    api::{
        batch::v1::Job,
        coordination::v1::Lease,
        core::v1::{Event, Pod},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use why::{
    ObjectRef, World,
    explanation::State::{self, *},
    world::NotebookView,
};

use crate::{
    Case,
    build::{NOW, at, merge},
};

const POD: &str = "report-nb-x2k9p";
const URL: &str = "https://git.example/team/notebooks";
const GOLDEN_URL: &str = "https://git.example/team/golden";
const IMAGE: &str = "registry.example/kernel:1";

fn from<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

fn time(clock: &str) -> Time {
    Time(at(clock).parse().unwrap())
}

/// A world about NotebookValidationJob `team/report`.
struct Desk(World);

/// Returns a status like the operator's, written at 10:02:11.
fn status(phase: &str, reason: &str, message: &str, more: Value) -> Value {
    let is_over = ["Succeeded", "Failed"].contains(&phase);
    let condition = |kind: &str, value: &str| {
        json!({ "type": kind, "status": value, "reason": reason, "message": message,
            "observedGeneration": 1, "lastTransitionTime": at("10:01:00") })
    };
    let succeeded = match phase {
        "Succeeded" => "True",
        "Failed" => "False",
        _ => "Unknown",
    };
    let mut conditions = vec![condition("Succeeded", succeeded)];
    if is_over {
        conditions.push(condition("Finished", "True"));
    }
    let mut status = json!({
        "observedGeneration": 1, "phase": phase, "reason": reason, "message": message,
        "lastUpdated": at("10:02:11"), "conditions": conditions, "attempts": 1,
        "phaseHistory": [{ "phase": phase, "startedAt": at("10:00:01"), "outcome": "Working",
            "reason": reason, "message": message }],
    });
    if phase != "Initializing" {
        merge(
            &mut status,
            json!({ "commit": "4b825dc", "goldenCommit": "4b825dc", "image": IMAGE, "jobName": "report-nb" }),
        );
    }
    if is_over {
        merge(&mut status, json!({ "finishedAt": at("10:02:11") }));
    }
    merge(&mut status, more);
    status
}

impl Desk {
    /// Creates a world with this status and spec. An operator leads.
    fn with(status: Value, spec: Value) -> Self {
        let target = ObjectRef::namespaced("NotebookValidationJob", "team", "report");
        let mut world = World::new(time(NOW), target);
        let mut job = json!({
            "metadata": { "name": "report", "namespace": "team", "uid": "nb-uid", "generation": 1,
                "creationTimestamp": at("10:00:00"),
                "managedFields": [{ "manager": "kubectl", "operation": "Apply", "time": at("10:00:00") }] },
            "spec": {
                "notebook": { "path": "reports/sales.ipynb",
                    "git": { "url": URL, "ref": "main", "credentialsSecretRef": { "name": "git" } } },
                "goldenNotebook": { "path": "golden.ipynb", "git": { "url": GOLDEN_URL, "ref": "v1" } },
                "podConfig": { "containerImage": IMAGE, "resources": { "limits": { "memory": "2Gi" } } },
            },
            "status": status,
        });
        merge(&mut job, spec);
        let view = NotebookView::read(&job);
        assert_eq!(view.undecodable, None);
        world.notebook = Some(view);
        let lease = json!({
            "metadata": { "name": "orchestrator-notebooks", "namespace": "orchestrator-system" },
            "spec": { "holderIdentity": "orchestrator-notebooks-5c7b-fghij", "leaseDurationSeconds": 15,
                "renewTime": "2026-03-02T10:05:08.000000Z" },
        });
        world.leases = Some(vec![(&from::<Lease>(lease)).into()]);
        Self(world)
    }

    fn new(status: Value) -> Self {
        Self::with(status, json!({}))
    }

    fn job(mut self) -> Self {
        let job = json!({ "metadata": {
            "name": "report-nb", "namespace": "team", "uid": "job-uid", "creationTimestamp": at("10:00:02"),
            "ownerReferences": [{ "apiVersion": "orchestrator.io/v1alpha1", "kind": "NotebookValidationJob",
                "name": "report", "uid": "nb-uid", "controller": true }],
        } });
        self.0.jobs.push((&from::<Job>(job)).into());
        self
    }

    /// Adds the Job and its Pod in this phase.
    fn pod(self, phase: &str) -> Self {
        let mut with_job = self.job();
        let pod = json!({
            "metadata": {
                "name": POD, "namespace": "team", "uid": "pod-uid", "creationTimestamp": at("10:00:03"),
                "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "report-nb",
                    "uid": "job-uid", "controller": true }],
            },
            "spec": { "nodeName": "node-1", "initContainers": [{ "name": "fetch" }],
                "containers": [{ "name": "kernel", "image": IMAGE }, { "name": "runner" }] },
            "status": { "phase": phase },
        });
        with_job.0.pods.push((&from::<Pod>(pod)).into());
        with_job
    }

    /// Adds a warning about the object with this UID.
    fn warning(mut self, uid: &str, reason: &str, message: &str) -> Self {
        let event = json!({
            "metadata": { "name": "e", "namespace": "team" }, "type": "Warning", "reason": reason,
            "message": message, "count": 3, "firstTimestamp": at("10:00:05"), "lastTimestamp": at("10:02:05"),
            "involvedObject": { "uid": uid },
        });
        self.0.events.push((&from::<Event>(event)).into());
        self
    }
}

type Blocker = Option<(&'static str, &'static str, &'static str)>;

fn case(name: &'static str, desk: Desk, state: State, blocker: Blocker) -> Case {
    Case {
        name,
        world: desk.0,
        state,
        blocker,
    }
}

/// Returns the fields of a status after the end of a Pod.
fn with_pod(more: Value) -> Value {
    let mut all = json!({ "startedAt": at("10:00:09"), "result": {
        "podName": POD, "podUID": "pod-uid", "node": "node-1",
        "startedAt": at("10:00:09"), "finishedAt": at("10:02:10"),
    } });
    merge(&mut all, more);
    all
}

fn at_cell(cell: u32) -> Value {
    with_pod(
        json!({ "cells": { "total": 9, "done": 3, "failed": 1, "skipped": 0, "current": cell } }),
    )
}

fn differs(class: &str) -> Value {
    with_pod(json!({
        "cells": { "total": 9, "done": 9, "failed": 0, "skipped": 0 },
        "comparisonResult": {
            "strategy": "normalized", "result": "mismatched", "totalCells": 9, "matchedCells": 7,
            "mismatchedCells": 1, "ignoredCells": 1, "classes": { class: 1 },
            "diffs": [{ "cell": 4, "diffType": "OutputMismatch", "class": class, "rule": "text/plain: 2 numbers",
                "expected": "0.5", "actual": "0.7" }],
        },
    }))
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all = ends();
    all.extend(waits());
    all
}

/// Jobs that failed: the name of the case, the reason, its message, its status, and the deepest object.
fn ends() -> Vec<Case> {
    let failed = |name, reason: &'static str, message: &str, more: Value, kind, object| {
        let desk = Desk::new(status("Failed", reason, message, more)).pod("Failed");
        case(name, desk, Failed, Some((kind, object, reason)))
    };
    let never = |name, reason: &'static str, message: &str, kind, object| {
        let more = json!({ "attempts": 0, "commit": null, "image": null, "goldenCommit": null, "jobName": null });
        let desk = Desk::new(status("Failed", reason, message, more));
        case(name, desk, Failed, Some((kind, object, reason)))
    };
    let (nothing, pod) = (|| json!({}), || with_pod(json!({})));
    let notebook = "reports/sales.ipynb";
    vec![
        never("nb-ref-not-found", "RefNotFound", "https://git.example/team/notebooks has no branch and no tag 'main'", "Repository", URL),
        never("nb-ref-ambiguous", "RefAmbiguous", "https://git.example/team/golden has a branch and a tag 'v1'", "Repository", GOLDEN_URL),
        never("nb-unreachable", "RepositoryUnreachable", "not started: no connection to https://git.example/team/notebooks", "Repository", URL),
        never("nb-not-found", "RepositoryNotFound", "https://git.example/team/notebooks: 404", "Repository", URL),
        never("nb-authentication", "AuthenticationFailed", "https://git.example/team/notebooks: 401", "Secret", "git"),
        never("nb-golden-authentication", "AuthenticationFailed", "https://git.example/team/golden: 401", "Repository", GOLDEN_URL),
        never("nb-credentials", "CredentialsInvalid", "Secret 'git' has no key 'password'", "Secret", "git"),
        never("nb-certificate", "CertificateNotTrusted", "https://git.example/team/notebooks: unknown authority", "Secret", "git"),
        never("nb-host-key", "HostKeyUnknown", "unknown host key", "Secret", "git"),
        never("nb-secret-missing", "SecretNotFound", "Secret 'git' in namespace 'team' does not exist", "Secret", "git"),
        never("nb-address", "AddressNotAllowed", "10.0.0.7 is not allowed", "Configuration", "notebooks.allowedNetworks"),
        failed("nb-clone", "CloneFailed", "the pack is broken", pod(), "Repository", URL),
        failed("nb-too-large", "RepositoryTooLarge", "more than 1024 MiB", pod(), "Repository", URL),
        failed("nb-notebook-missing", "NotebookNotFound", "no regular file", pod(), "Repository", URL),
        failed("nb-golden-missing", "GoldenNotFound", "https://git.example/team/golden: no regular file", pod(), "Repository", GOLDEN_URL),
        failed("nb-notebook-invalid", "NotebookInvalid", "the notebook is not JSON", pod(), "Notebook", notebook),
        failed("nb-golden-invalid", "NotebookInvalid", "the golden notebook is not JSON", pod(), "Notebook", "golden.ipynb"),
        failed("nb-golden-empty", "GoldenEmpty", "the golden notebook has no outputs", pod(), "Notebook", "golden.ipynb"),
        failed("nb-nothing-ran", "NothingValidated", "no cell was executed", pod(), "Notebook", notebook),
        failed("nb-nothing-compared", "NothingCompared", "no output was compared", pod(), "Notebook", notebook),
        failed("nb-pattern", "PatternInvalid", "pattern 1 needs more than 1 s", pod(), "NotebookValidationJob", "report"),
        failed("nb-no-kernel", "KernelNotFound", "no kernel 'r'; found: python3", pod(), "Image", IMAGE),
        failed("nb-kernel-died", "KernelDied", "signal 9 in cell 2", at_cell(2), "Cell", "2"),
        failed("nb-cell-failed", "CellFailed", "cell 2: ValueError: x", at_cell(2), "Cell", "2"),
        failed("nb-cell-timeout", "CellTimeout", "cell 2 ran longer than 5 s", at_cell(2), "Cell", "2"),
        failed("nb-oom", "OOMKilled", "cell 2: the kernel used more memory than its limit of 2Gi", at_cell(2), "Cell", "2"),
        failed("nb-output", "OutputTooLarge", "cell 2 wrote more than 20 MiB", at_cell(2), "Cell", "2"),
        failed("nb-late", "DeadlineExceeded", "Pod 'report-nb-x2k9p': the kernel did not end within 30m", at_cell(2), "Cell", "2"),
        failed("nb-noise", "Mismatch", "cell 4: 0.5 is 0.7", differs("Noise"), "Cell", "4"),
        failed("nb-drift", "Mismatch", "cell 4: 0.5 is 0.7", differs("VersionDrift"), "Cell", "4"),
        failed("nb-regression", "Mismatch", "cell 4: 0.5 is 0.7", differs("Regression"), "Cell", "4"),
        failed("nb-unknown-class", "Mismatch", "cell 4: 0.5 is 0.7", differs("Unknown"), "Cell", "4"),
        failed("nb-expectation", "ExpectationFailed", "cell 2: 3 is more than 2", at_cell(2), "Cell", "2"),
        failed("nb-stderr", "OutputOnStderr", "cell 2 wrote to stderr", at_cell(2), "Cell", "2"),
        failed("nb-warning", "WarningsFound", "cell 2: FutureWarning", at_cell(2), "Cell", "2"),
        failed("nb-skipped", "CellsSkipped", "cell 2 is skipped", at_cell(2), "Cell", "2"),
        failed("nb-start-timeout", "StartTimeout", "did not start within 10m: Unschedulable: no node has a GPU", nothing(), "Pod", POD),
        failed("nb-disruptions", "TooManyDisruptions", "stopped 6 times", pod(), "Pod", POD),
        failed("nb-evidence-lost", "EvidenceLost", "its Pod was deleted", pod(), "Pod", POD),
        failed("nb-no-report", "ResultMissing", "the runner ended without a report", pod(), "Pod", POD),
        failed("nb-bad-report", "ResultInvalid", "the report of the runner names another UID", pod(), "Pod", POD),
        failed("nb-cut-report", "ResultTooLarge", "the report may be cut", pod(), "Pod", POD),
        failed("nb-contradicted", "ExitContradicted", "exit code 0, but the reason is Error", pod(), "Pod", POD),
        failed("nb-job-failed", "JobFailed", "the Pod failed", pod(), "Pod", POD),
        failed("nb-job-lost", "JobLost", "Job 'report-nb' was deleted", nothing(), "Job", "report-nb"),
        failed("nb-cancelled", "Cancelled", "cancelled by 'spec.cancel'", nothing(), "NotebookValidationJob", "report"),
        failed("nb-internal", "InternalError", "the Job cannot be written", nothing(), "NotebookValidationJob", "report"),
        case(
            "nb-result-not-stored",
            Desk::new(status("Failed", "CellFailed", "cell 2: ValueError", {
                let mut more = at_cell(2);
                merge(&mut more, json!({ "conditions": [
                    { "type": "Succeeded", "status": "False", "reason": "CellFailed", "message": "cell 2: ValueError", "lastTransitionTime": at("10:02:11") },
                    { "type": "Finished", "status": "True", "reason": "CellFailed", "message": "cell 2: ValueError", "lastTransitionTime": at("10:02:11") },
                    { "type": "ResultsStored", "status": "False", "reason": "ResultNotStored", "message": "the full result was not stored: the node does not respond", "lastTransitionTime": at("10:02:11") },
                ] }));
                more
            })).pod("Failed"),
            Failed,
            Some(("Cell", "2", "CellFailed")),
        ),
        case(
            "nb-succeeded",
            Desk::new(status("Succeeded", "Succeeded", "9 cells ran, 0 skipped, 8 outputs compared", {
                let mut more = differs("Noise");
                merge(&mut more, json!({ "comparisonResult": { "result": "matched", "mismatchedCells": 0, "matchedCells": 8, "diffs": [] } }));
                more
            })).pod("Succeeded"),
            Succeeded,
            None,
        ),
        case(
            "nb-succeeded-without-golden",
            Desk::new(status("Succeeded", "Succeeded", "9 cells ran, 0 skipped, nothing compared", with_pod(json!({})))),
            Succeeded,
            None,
        ),
    ]
}

/// Jobs that wait, run or are stopped.
fn waits() -> Vec<Case> {
    let phase = "ValidationRunning";
    let blocked = |name, reason: &'static str, message: &str, kind, object| {
        let desk = Desk::new(status(phase, reason, message, json!({}))).pod("Pending");
        case(name, desk, Blocked, Some((kind, object, reason)))
    };
    let calm = |name, reason: &str, message: &str| {
        let desk = Desk::new(status(phase, reason, message, json!({}))).pod("Running");
        case(name, desk, Waiting, None)
    };
    let initial = || {
        status(
            "Initializing",
            "Progressing",
            "asking the Git servers for the commits",
            json!({ "attempts": 0 }),
        )
    };
    let progress = |more: Value| {
        let mut all = json!({ "startedAt": at("10:00:09"), "deadlineAt": at("10:30:09") });
        merge(&mut all, more);
        Desk::new(status(
            phase,
            "Progressing",
            "Pod 'report-nb-x2k9p' runs",
            all,
        ))
        .pod("Running")
    };
    let started = || {
        status(
            phase,
            "Progressing",
            "Job 'report-nb' was created",
            json!({}),
        )
    };
    let metadata = |more: Value| json!({ "metadata": more });
    vec![
        case("nb-asking", Desk::new(initial()), Waiting, None),
        case("nb-no-pod", Desk::new(started()).job(), Waiting, None),
        case(
            "nb-starting",
            Desk::new(started()).pod("Pending"),
            Waiting,
            None,
        ),
        case(
            "nb-no-gpu",
            Desk::new(started()).pod("Pending").warning(
                "pod-uid",
                "FailedScheduling",
                "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
            ),
            Blocked,
            Some(("Pod", POD, "FailedScheduling")),
        ),
        case(
            "nb-quota",
            Desk::new(started())
                .job()
                .warning("job-uid", "FailedCreate", "exceeded quota: pods"),
            Blocked,
            Some(("Job", "report-nb", "AdmissionDenied")),
        ),
        blocked("nb-image-pull", "ImagePullFailed", "not found", "Pod", POD),
        blocked(
            "nb-image-root",
            "ImageNeedsRoot",
            "runs as root",
            "Pod",
            POD,
        ),
        blocked(
            "nb-not-startable",
            "ContainerNotStartable",
            "no such file",
            "Pod",
            POD,
        ),
        blocked(
            "nb-unschedulable",
            "Unschedulable",
            "1 Insufficient nvidia.com/gpu",
            "Pod",
            POD,
        ),
        blocked(
            "nb-volume",
            "VolumeNotReady",
            "claim 'data' is not bound",
            "Pod",
            POD,
        ),
        blocked(
            "nb-quota-exceeded",
            "QuotaExceeded",
            "exceeded quota: pods",
            "Job",
            "report-nb",
        ),
        blocked(
            "nb-admission",
            "AdmissionDenied",
            "denied by policy",
            "Job",
            "report-nb",
        ),
        blocked(
            "nb-invalid-child",
            "InvalidChild",
            "spec.template: Invalid value",
            "Job",
            "report-nb",
        ),
        blocked(
            "nb-name-taken",
            "ChildNameTaken",
            "Job 'report-nb' exists",
            "Job",
            "report-nb",
        ),
        blocked(
            "nb-denied",
            "Denied",
            "'create jobs' is denied",
            "Job",
            "report-nb",
        ),
        calm("nb-fetching", "Fetching", "fetches the notebooks"),
        calm(
            "nb-reading",
            "ReadingResult",
            "the run ended, and its full result is being stored",
        ),
        calm("nb-disrupted", "Disrupted", "was evicted"),
        case("nb-running", progress(json!({})), Running, None),
        case(
            "nb-running-cell",
            progress(
                json!({ "cells": { "total": 9, "done": 3, "failed": 0, "skipped": 0, "current": 5, "currentSince": at("10:01:00") } }),
            ),
            Running,
            None,
        ),
        case(
            "nb-suspended",
            Desk::with(
                status(phase, "Suspended", "suspended by 'spec.suspend'", json!({})),
                json!({ "spec": { "suspend": true } }),
            ),
            Suspended,
            Some(("NotebookValidationJob", "report", "Suspended")),
        ),
        case(
            "nb-cancelling",
            Desk::with(started(), json!({ "spec": { "cancel": true } })),
            Waiting,
            None,
        ),
        case(
            "nb-deleting-foreign-finalizer",
            Desk::with(
                started(),
                metadata(
                    json!({ "deletionTimestamp": at("10:01:00"), "finalizers": ["backup.example/hold"] }),
                ),
            ),
            Deleting,
            Some(("NotebookValidationJob", "report", "Finalizer")),
        ),
        case(
            "nb-deleting",
            Desk::with(
                started(),
                metadata(
                    json!({ "deletionTimestamp": at("10:01:00"), "finalizers": ["notebookvalidationjobs.orchestrator.io/finalizer"] }),
                ),
            ),
            Deleting,
            None,
        ),
    ]
}

/// Each reason of the operator that is not only one of a condition has a case whose chain goes below
/// the object, and a command.
#[test]
fn each_reason_of_a_notebook_has_a_chain() {
    let mut explained: BTreeSet<String> = BTreeSet::new();
    for case in cases() {
        let job = case.world.notebook.as_ref().unwrap();
        let reason = job.status.progress.reason.clone().unwrap();
        let found = why::explain(&case.world);
        assert!(!found.next_steps.is_empty(), "{}", case.name);
        let deepest = found.chain.last().unwrap();
        // A pattern is a part of the spec.
        let is_own = deepest.object.kind == "NotebookValidationJob";
        if !is_own || reason == "PatternInvalid" {
            explained.insert(reason);
        }
    }
    let of_conditions = [
        "SourcesFound",
        "Matched",
        "NoGolden",
        "ResultStored",
        "ResultNotStored",
    ];
    for reason in api::notebooks::OPERATOR.reasons {
        let is_of_condition = of_conditions.contains(&reason.name());
        assert!(
            is_of_condition || explained.contains(reason.name()),
            "{reason}"
        );
    }
}

/// A world must contain no output of a cell but the first difference, which the runner masked.
#[test]
fn a_world_has_no_cells() {
    let mut more = differs("Noise");
    let cell = json!({ "cell": 1, "status": "Failed", "error": "c4n4ry" });
    merge(&mut more, json!({ "results": [cell] }));
    let desk = Desk::new(status("Failed", "Mismatch", "m", more));
    let text = serde_json::to_string(&desk.0).unwrap();
    assert!(!text.contains("c4n4ry"));
}
