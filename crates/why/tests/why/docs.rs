//! DocsRuns: their repository, their credentials, and the three steps of their Pod.

use serde_json::{Value, json};
use why::{explanation::State::*, world::RunView};

use crate::{
    Case,
    build::{Scene, at, merge, status},
    case, docs_ends,
};

pub(crate) const POD: &str = "guide-docs-x2k9p";
pub(crate) const URL: &str = "https://git.example/team/shop";
const SSH: &str = "ssh://git@git.example:2222/team/shop";
const BASE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
const HEAD: &str = "9fceb02d0ae598e95dc970b74767f19372d61af8";
pub(crate) const COMMIT: &str = "c0535e4be2b79ffd93291305436bf889314e4a3f";
const UNTIL: &str = "; waiting until 2026-03-02T10:10:00Z";

/// Creates a world about DocsRun `team/guide`.
pub(crate) fn scene(status: Value, spec: Value) -> Scene {
    let mut run = json!({
        "metadata": {
            "name": "guide", "namespace": "team", "uid": "run-uid", "generation": 1,
            "creationTimestamp": at("10:00:00"),
            "finalizers": ["docsruns.orchestrator.io/finalizer"],
            "managedFields": [
                { "manager": "kubectl", "operation": "Apply", "time": at("10:00:00") },
                { "manager": "orchestrator", "operation": "Apply", "time": at("10:02:11") },
            ],
        },
        "spec": {
            "repositoryUrl": URL, "sourceBranch": "main", "agentName": "writer",
            "credentialsSecretRef": { "name": "git" },
        },
        "status": status,
    });
    merge(&mut run, json!({ "spec": spec }));
    let mut scene = Scene::new(json!({})).target("DocsRun", "guide");
    scene.0.run = Some(RunView::read_docs(&run));
    scene
}

pub(crate) fn plain(status: Value) -> Scene {
    scene(status, json!({})).known("Secret", "git", true)
}

/// Returns a status from before the base commit is known.
pub(crate) fn asking(reason: &str, message: &str) -> Value {
    let more = json!({ "attempts": 0, "deadlineAt": at("10:10:00"), "contextVersion": null });
    status("Pending", reason, message, more)
}

/// Returns a status with the base commit and the output branch.
fn recorded(phase: &str, reason: &str, message: &str, more: Value) -> Value {
    let mut all = status(
        phase,
        reason,
        message,
        json!({
            "contextVersion": null, "baseCommit": BASE, "branch": "docs/guide", "branchHead": HEAD,
            "configMapName": "guide-docs-files", "jobName": "guide-docs",
            "deadlineAt": at("10:10:01"),
        }),
    );
    merge(&mut all, more);
    all
}

pub(crate) fn over(phase: &str, reason: &str, message: &str, more: Value) -> Value {
    let mut all = json!({
        "finishedAt": at("10:02:11"), "startedAt": at("10:00:09"), "deadlineAt": null,
        "result": {
            "reason": reason, "message": message, "podName": POD, "podUID": "pod-uid",
            "node": "node-1", "startedAt": at("10:00:09"), "finishedAt": at("10:02:10"),
        },
    });
    merge(&mut all, more);
    recorded(phase, reason, message, all)
}

pub(crate) trait Steps: Sized {
    fn docs_job(self, more: Value) -> Self;
    fn steps(self, phase: &str, clone: Value, agent: Value, publish: Value) -> Self;
}

impl Steps for Scene {
    fn docs_job(self, more: Value) -> Self {
        let mut job = json!({ "metadata": {
            "name": "guide-docs",
            "labels": {
                "orchestrator.io/kind": "DocsRun", "orchestrator.io/name": "guide",
                "context-version": null,
            },
            "ownerReferences": [{
                "apiVersion": "orchestrator.io/v1alpha1", "kind": "DocsRun", "name": "guide",
                "uid": "run-uid", "controller": true,
            }],
        }});
        // A null label must be removed, because it is not a label.
        if let Some(labels) = job["metadata"]["labels"].as_object_mut() {
            labels.remove("context-version");
        }
        merge(&mut job, more);
        self.job(job)
    }

    /// Adds a Pod with its three containers in these states.
    fn steps(self, phase: &str, clone: Value, agent: Value, publish: Value) -> Self {
        let toolbox = "registry.example/orchestrator/toolbox:0.3";
        let state = |name: &str, state: Value| json!({ "name": name, "ready": false, "restartCount": 0, "image": "", "imageID": "", "state": state });
        self.pod(json!({
            "metadata": {
                "name": POD,
                "labels": { "orchestrator.io/kind": "DocsRun", "orchestrator.io/name": "guide" },
                "ownerReferences": [{
                    "apiVersion": "batch/v1", "kind": "Job", "name": "guide-docs",
                    "uid": "job-uid", "controller": true,
                }],
            },
            "spec": {
                "initContainers": [
                    { "name": "mesh", "image": "registry.example/mesh:1", "restartPolicy": "Always" },
                    { "name": "clone", "image": toolbox },
                    { "name": "agent", "image": "registry.example/writer:1.4" },
                ],
                "containers": [{ "name": "publish", "image": toolbox }],
            },
            "status": {
                "phase": phase,
                "initContainerStatuses": [
                    state("mesh", json!({ "running": { "startedAt": at("10:00:02") } })),
                    state("clone", clone),
                    state("agent", agent),
                ],
                "containerStatuses": [state("publish", publish)],
            },
        }))
        .node(json!({}))
    }
}

pub(crate) fn complete() -> Value {
    json!({ "status": { "conditions": [{ "type": "Complete", "status": "True",
        "reason": "CompletionsReached", "message": "Reached expected number of succeeded pods",
        "lastTransitionTime": at("10:02:11") }] } })
}

pub(crate) fn waits() -> Value {
    json!({ "waiting": { "reason": "PodInitializing" } })
}

fn runs() -> Value {
    json!({ "running": { "startedAt": at("10:00:09") } })
}

pub(crate) fn ends(code: i32, message: &str) -> Value {
    let reason = if code == 0 { "Completed" } else { "Error" };
    json!({ "terminated": { "exitCode": code, "reason": reason, "message": message,
        "startedAt": at("10:00:09"), "finishedAt": at("10:02:10") } })
}

fn pulls(image: &str) -> Value {
    json!({ "waiting": { "reason": "ImagePullBackOff", "message": format!(
        "Back-off pulling image \"{image}\": ErrImagePull: failed to resolve reference: not found") } })
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all = before();
    all.extend(refused());
    all.extend(going());
    all.extend(starts());
    all.extend(docs_ends::cases());
    all.extend(rest());
    all
}

fn before() -> Vec<Case> {
    let new = json!({ "observedGeneration": -1, "phase": "Pending",
        "message": "waiting for the operator to look at it" });
    let mut fresh = plain(new);
    if let Some(run) = &mut fresh.0.run {
        run.meta.created = Some(fresh.0.now.clone());
    }
    let asked = asking("Progressing", &format!("asking '{URL}' for its branches"));
    let mut no_agent = plain(asking(
        "AgentNotFound",
        &format!("Agent 'writer' does not exist in namespace 'team'{UNTIL}"),
    ))
    .known("Agent", "writer", false);
    no_agent.0.agent = None;
    let no_job = recorded(
        "Pending",
        "Progressing",
        "the base commit is recorded; the Job is made next",
        json!({ "jobName": null, "attempts": 0 }),
    );
    vec![
        case("docs-just-created", fresh, Waiting, None),
        case("docs-asking", plain(asked.clone()), Waiting, None),
        case(
            "docs-asking-without-operator",
            plain(asked).lease(Some("orchestrator-tasks-6d5f-abcde"), "10:03:00"),
            Blocked,
            Some(("Lease", "orchestrator-tasks", "OperatorDown")),
        ),
        case(
            "docs-agent-missing",
            no_agent,
            Blocked,
            Some(("Agent", "writer", "AgentNotFound")),
        ),
        case("docs-no-job-yet", plain(no_job), Waiting, None),
    ]
}

/// Cases in which a run cannot use its repository.
fn refused() -> Vec<Case> {
    let said = |reason: &str, words: &str| asking(reason, &format!("{words}{UNTIL}"));
    let repository = |name, reason: &'static str, words: &str| {
        case(
            name,
            plain(said(reason, words)),
            Blocked,
            Some(("Repository", URL, reason)),
        )
    };
    let secret = |name, reason: &'static str, words: &str| {
        case(
            name,
            plain(said(reason, words)),
            Blocked,
            Some(("Secret", "git", reason)),
        )
    };
    let refused = "'https://git.example/team/shop' answered 401 to the credentials of Secret 'git'";
    let missing = || {
        said(
            "SecretNotFound",
            "Secret 'git' does not exist in namespace 'team'",
        )
    };
    let mut refused_and_no_agent =
        plain(said("AuthenticationFailed", refused)).known("Agent", "writer", false);
    refused_and_no_agent.0.agent = None;
    vec![
        repository(
            "docs-unreachable",
            "RepositoryUnreachable",
            "'https://git.example/team/shop' does not answer: no answer within 10 s",
        ),
        repository(
            "docs-repository-not-found",
            "RepositoryNotFound",
            "'https://git.example/team/shop' answered 404",
        ),
        repository(
            "docs-branch-not-found",
            "BranchNotFound",
            "'https://git.example/team/shop' has no branch 'main'",
        ),
        secret("docs-credentials-refused", "AuthenticationFailed", refused),
        secret(
            "docs-credentials-invalid",
            "CredentialsInvalid",
            "Secret 'git' has no key 'password'",
        ),
        secret(
            "docs-certificate",
            "CertificateNotTrusted",
            "the certificate of 'git.example' is signed by an authority that is not known",
        ),
        case(
            "docs-host-key",
            scene(
                said(
                    "HostKeyUnknown",
                    "the host key of 'git.example:2222' (SHA256:q9) is not in 'known_hosts' of Secret 'git'",
                ),
                json!({ "repositoryUrl": SSH }),
            ),
            Blocked,
            Some(("Secret", "git", "HostKeyUnknown")),
        ),
        case(
            "docs-secret-missing",
            scene(missing(), json!({})).known("Secret", "git", false),
            Blocked,
            Some(("Secret", "git", "SecretNotFound")),
        ),
        case("docs-secret-created-since", plain(missing()), Waiting, None),
        case(
            "docs-no-credentials",
            scene(
                said(
                    "AuthenticationFailed",
                    "'https://git.example/team/shop' asks for credentials, and 'credentialsSecretRef' is not set",
                ),
                json!({ "credentialsSecretRef": null }),
            ),
            Blocked,
            Some(("Repository", URL, "AuthenticationFailed")),
        ),
        case(
            "docs-address-refused",
            scene(
                said(
                    "AddressNotAllowed",
                    "'git.team.svc' is a name of the cluster",
                ),
                json!({ "repositoryUrl": "https://git.team.svc/shop" }),
            ),
            Blocked,
            Some((
                "Configuration",
                "tasks.docs.allowedNetworks",
                "AddressNotAllowed",
            )),
        ),
        // The status contains one cause. Other problems are explained later.
        case(
            "docs-credentials-refused-and-no-agent",
            refused_and_no_agent,
            Blocked,
            Some(("Secret", "git", "AuthenticationFailed")),
        ),
    ]
}

fn going() -> Vec<Case> {
    let cloning = || {
        let said = format!("Pod '{POD}' on node 'node-1' clones '{URL}'");
        recorded("Pending", "Cloning", &said, json!({}))
    };
    let running = || {
        let said = format!("Pod '{POD}' on node 'node-1' runs; it has until 2026-03-02T11:00:09Z");
        let more = json!({ "startedAt": at("10:00:09"), "deadlineAt": at("11:00:09") });
        recorded("Running", "Progressing", &said, more)
    };
    let publishing = || {
        let said = format!("Pod '{POD}' on node 'node-1' pushes to branch 'docs/guide'");
        let more = json!({ "startedAt": at("10:00:09") });
        recorded("Running", "Publishing", &said, more)
    };
    let verifying = |message: &str| {
        over(
            "Running",
            "Verifying",
            message,
            json!({
                "finishedAt": null, "commit": COMMIT, "changedFiles": { "count": 3, "first": ["docs/a.md"] },
                "deadlineAt": at("10:12:10"), "result": { "reason": null, "exitCode": 0 },
            }),
        )
    };
    let done = |scene: Scene| {
        scene
            .docs_job(complete())
            .steps("Succeeded", ends(0, ""), ends(0, ""), ends(0, ""))
    };
    vec![
        case(
            "docs-job-created",
            plain(recorded(
                "Pending",
                "Progressing",
                "Job 'guide-docs' was created; waiting for its Pod",
                json!({}),
            ))
            .docs_job(json!({ "metadata": { "creationTimestamp": at("10:05:08") } })),
            Waiting,
            None,
        ),
        case(
            "docs-job-not-recorded",
            plain(recorded(
                "Pending",
                "Progressing",
                "branch 'main' is at 4b825dc; starting the Job",
                json!({ "jobName": null, "attempts": 0 }),
            ))
            .docs_job(json!({}))
            .steps("Pending", runs(), waits(), waits()),
            Waiting,
            None,
        ),
        case(
            "docs-cloning",
            plain(cloning())
                .docs_job(json!({}))
                .steps("Pending", runs(), waits(), waits()),
            Waiting,
            None,
        ),
        case(
            "docs-between-clone-and-agent",
            plain(cloning())
                .docs_job(json!({}))
                .steps("Pending", ends(0, ""), waits(), waits()),
            Waiting,
            None,
        ),
        case(
            "docs-running",
            plain(running())
                .docs_job(json!({}))
                .steps("Pending", ends(0, ""), runs(), waits()),
            Running,
            None,
        ),
        case(
            "docs-publishing",
            plain(publishing()).docs_job(json!({})).steps(
                "Running",
                ends(0, ""),
                ends(0, ""),
                runs(),
            ),
            Running,
            None,
        ),
        case(
            "docs-publishing-but-status-says-cloning",
            plain(cloning())
                .docs_job(json!({}))
                .steps("Running", ends(0, ""), ends(0, ""), runs()),
            Running,
            None,
        ),
        case(
            "docs-between-agent-and-publish",
            plain(publishing()).docs_job(json!({})).steps(
                "Pending",
                ends(0, ""),
                ends(0, ""),
                waits(),
            ),
            Running,
            None,
        ),
        case(
            "docs-clone-failed-not-recorded",
            plain(cloning()).docs_job(json!({})).steps(
                "Failed",
                ends(1, "no space left"),
                waits(),
                waits(),
            ),
            Waiting,
            Some(("Pod", POD, "Ended")),
        ),
        case(
            "docs-verifying",
            done(plain(verifying(
                "reading branch 'docs/guide' from the server",
            ))),
            Waiting,
            None,
        ),
        case(
            "docs-verifying-other-commit",
            plain(verifying(
                "branch 'docs/guide' is at 9fceb02, not at c0535e4; asking again",
            )),
            Waiting,
            None,
        ),
    ]
}

/// Cases with Pods that do not start.
fn starts() -> Vec<Case> {
    let said = |reason: &str, words: &str| {
        let words = format!("Pod '{POD}' on node 'node-1': {words}");
        recorded("Pending", reason, &words, json!({}))
    };
    let toolbox = "registry.example/orchestrator/toolbox:0.3";
    let secret = "MountVolume.SetUp failed for volume \"credentials\" : secret \"git\" not found";
    vec![
        case(
            "docs-toolbox-image",
            plain(said("ImagePullFailed", "the image cannot be pulled: not found"))
                .docs_job(json!({}))
                .steps("Pending", pulls(toolbox), waits(), waits()),
            Blocked,
            Some(("Configuration", "tasks.docs.toolboxImage", "ImagePullFailed")),
        ),
        case(
            "docs-toolbox-image-while-status-says-cloning",
            plain(said("Cloning", "clones"))
                .docs_job(json!({}))
                .steps("Pending", pulls(toolbox), waits(), waits()),
            Blocked,
            Some(("Configuration", "tasks.docs.toolboxImage", "ImagePullFailed")),
        ),
        case(
            "docs-agent-image",
            plain(said("ImagePullFailed", "the image cannot be pulled: not found"))
                .docs_job(json!({}))
                .steps("Pending", ends(0, ""), pulls("registry.example/writer:1.4"), waits()),
            Blocked,
            Some(("Pod", POD, "ImagePullFailed")),
        ),
        case(
            "docs-secret-gone-before-its-pod",
            scene(said("SecretNotFound", "secret \"git\" not found"), json!({}))
                .known("Secret", "git", false)
                .docs_job(json!({}))
                .steps("Pending", waits(), waits(), waits())
                .event(("Pod", POD, "pod-uid"), "FailedMount", secret, "10:04:58"),
            Blocked,
            Some(("Secret", "git", "SecretNotFound")),
        ),
        case(
            "docs-quota",
            plain(recorded("Pending", "QuotaExceeded", "the Pod cannot be created: it is forbidden: exceeded quota: compute, requested: pods=1, used: pods=5, limited: pods=5", json!({})))
                .docs_job(json!({ "status": { "active": 0 } }))
                .event(
                    ("Job", "guide-docs", "job-uid"),
                    "FailedCreate",
                    "Error creating: pods \"guide-docs-\" is forbidden: exceeded quota: compute, requested: pods=1, used: pods=5, limited: pods=5",
                    "10:04:41",
                )
                .quota("compute", json!({ "pods": "5" }), json!({ "pods": "5" })),
            Blocked,
            Some(("ResourceQuota", "compute", "QuotaExceeded")),
        ),
    ]
}

fn rest() -> Vec<Case> {
    let running = || {
        recorded(
            "Running",
            "Progressing",
            "runs",
            json!({ "startedAt": at("10:00:09") }),
        )
    };
    let mut deleting = plain(running())
        .docs_job(json!({ "metadata": { "deletionTimestamp": at("10:04:50"), "deletionGracePeriodSeconds": 0 } }))
        .steps("Pending", ends(0, ""), runs(), waits());
    if let Some(run) = &mut deleting.0.run {
        run.meta.deleting = run.status.progress.last_updated.clone();
    }
    vec![
        case(
            "docs-suspended",
            scene(
                status(
                    "Pending",
                    "Suspended",
                    "suspended before it was started",
                    json!({ "attempts": 0 }),
                ),
                json!({ "suspend": true }),
            ),
            Suspended,
            Some(("DocsRun", "guide", "Suspended")),
        ),
        case(
            "docs-cancelling",
            scene(running(), json!({ "cancel": true }))
                .docs_job(json!({}))
                .steps("Pending", ends(0, ""), runs(), waits()),
            Waiting,
            None,
        ),
        case("docs-deleting", deleting, Deleting, None),
        case(
            "docs-name-taken",
            plain(recorded(
                "Pending",
                "ChildNameTaken",
                "Job 'guide-docs' exists already and belongs to someone else; it was not touched",
                json!({ "jobName": null, "attempts": 0 }),
            ))
            .other("Job", "guide-docs", None),
            Blocked,
            Some(("Job", "guide-docs", "ChildNameTaken")),
        ),
        case(
            "docs-instructions-too-large",
            scene(
                status(
                    "Failed",
                    "ContextTooLarge",
                    "the files of the run are larger than 900 KiB",
                    json!({ "attempts": 0, "contextVersion": null, "finishedAt": at("10:02:11") }),
                ),
                json!({ "instructions": [{ "filename": "style.md", "content": "x".repeat(1_000_000) }] }),
            ),
            Failed,
            Some(("DocsRun", "guide", "ContextTooLarge")),
        ),
        case(
            "docs-pod-of-a-run",
            plain(running())
                .docs_job(json!({}))
                .steps("Pending", ends(0, ""), runs(), waits())
                .target("Pod", POD),
            Running,
            None,
        ),
    ]
}

/// Any user who may submit runs can write an address, but an on-call engineer runs the command.
#[test]
fn an_address_cannot_write_a_command() {
    let status = asking("RepositoryUnreachable", "does not answer");
    let hostile = json!({ "repositoryUrl": "https://a/$(reboot);'x" });
    let found = why::explain(&scene(status, hostile).0);
    assert_eq!(
        found.next_steps[0].command,
        "git ls-remote 'https://a/$(reboot);'\\''x' refs/heads/main"
    );
}

#[test]
fn a_docs_run_carries_no_content() {
    let canary = "c4n4ry";
    let run = json!({
        "metadata": { "name": "a", "annotations": { "x": canary } },
        "spec": {
            "repositoryUrl": URL, "sourceBranch": "main", "agentName": "a", "model": canary,
            "instructions": [{ "filename": "f.md", "content": canary }],
            "output": { "commitMessage": canary },
        },
    });
    let view = RunView::read_docs(&run);
    assert_eq!(view.undecodable, None);
    let view = serde_json::to_string(&view).unwrap();
    assert!(!view.contains(canary), "{view}");
}
