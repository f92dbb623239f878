//! Runs that ended.

use serde_json::{Value, json};
use why::explanation::State::{Failed, Succeeded};

use crate::{
    Case,
    build::{POD, Scene, at, over, status},
    case,
};

type Blocker = Option<(&'static str, &'static str, &'static str)>;

/// Builds a failed run with an existing Pod and this termination of its container.
fn ended(
    name: &'static str,
    reason: &'static str,
    message: &str,
    result: Value,
    exit: Value,
) -> Case {
    let scene = Scene::new(over("Failed", reason, message, result))
        .job(json!({ "status": { "conditions": [{
            "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded",
            "message": "Job has reached the specified backoff limit", "lastTransitionTime": at("10:02:11"),
        }]}}))
        .container("Failed", json!({ "terminated": exit }));
    case(name, scene, Failed, Some(("Pod", POD, reason)))
}

/// Builds a failed run with nothing left except its status.
fn gone(name: &'static str, reason: &'static str, message: &str, result: Value) -> Case {
    let scene = Scene::new(over("Failed", reason, message, result));
    case(name, scene, Failed, Some(("Pod", POD, reason)))
}

fn late(name: &'static str, cause: &str, scene: impl Fn(Scene) -> Scene, blocker: Blocker) -> Case {
    let message = format!("the container did not start within 5m: {cause}");
    let result = json!({ "exitCode": null, "startedAt": null });
    case(
        name,
        scene(Scene::new(over("Failed", "StartTimeout", &message, result)).created("09:57:09")),
        Failed,
        blocker,
    )
}

pub(crate) fn cases() -> Vec<Case> {
    let exit = |code: i32, reason: &str| json!({ "exitCode": code, "reason": reason, "startedAt": at("10:00:09"), "finishedAt": at("10:02:10") });
    let good = json!({
        "exitCode": 0, "results": { "answer": "42", "report": "s3://reports/7.md" },
        "imageID": "registry.example/writer@sha256:5f3c",
    });
    let complete = json!({ "status": { "conditions": [{ "type": "Complete", "status": "True", "reason": "CompletionsReached", "message": "Reached expected number of succeeded pods", "lastTransitionTime": at("10:02:11") }] } });
    let succeeded = "the agent exited with code 0; Pod 'shop-7-v1-x2k9p' on node 'node-1'";
    let no_pod = json!({ "podName": null, "podUID": null, "node": null, "startedAt": null });
    let mut unsubmitted = Scene::new(status(
        "Failed",
        "AgentNotFound",
        "not started: Agent 'writer' does not exist in namespace 'team'",
        json!({ "attempts": 0, "finishedAt": at("10:02:11") }),
    ))
    .created("09:52:10")
    .known("Agent", "writer", false);
    unsubmitted.0.agent = None;
    let rejected = |reason: &str, message: &str| {
        let said = api::messages::never_started(message, "Raise 'contextVersion' to run it again");
        let more = json!({ "attempts": 0, "finishedAt": at("10:02:11") });
        Scene::new(status("Failed", reason, &said, more)).created("09:52:10")
    };
    let quota = "QuotaExceeded: the Pod cannot be created: it is forbidden: exceeded quota: compute, requested: pods=1, used: pods=5, limited: pods=5";
    vec![
        case(
            "context-too-large",
            Scene::new(json!({})).with_run(
                status("Failed", "ContextTooLarge", "the run's files have 1024000 bytes and the Agent's instructions 0, together more than the 921600 that fit; make them smaller with a higher 'contextVersion', or shorten the instructions", json!({ "attempts": 0, "finishedAt": at("10:02:11") })),
                json!({ "spec": { "markdownFiles": [
                    { "filename": "dump.md", "content": "x".repeat(1_000_000) },
                    { "filename": "task.md", "content": "y".repeat(24_000) },
                ]}}),
            ),
            Failed,
            Some(("TaskRun", "shop-7", "ContextTooLarge")),
        ),
        case(
            "never-permitted",
            rejected("Denied", "the operator lacks the permission for 'create jobs' of 'shop-7-v1': jobs.batch is forbidden: User \"system:serviceaccount:orchestrator:orchestrator-tasks\" cannot create resource \"jobs\" in API group \"batch\" in the namespace \"team\""),
            Failed,
            Some(("ServiceAccount", "orchestrator-tasks", "Denied")),
        ),
        case(
            "name-never-free",
            rejected("ChildNameTaken", &api::messages::name_taken("Job 'shop-7-v1'")),
            Failed,
            Some(("Job", "shop-7-v1", "ChildNameTaken")),
        ),
        case(
            "succeeded",
            Scene::new(over("Succeeded", "Succeeded", succeeded, good.clone()))
                .job(complete)
                .container("Succeeded", json!({ "terminated": exit(0, "Completed") })),
            Succeeded,
            None,
        ),
        case(
            "succeeded-and-cleaned-up",
            Scene::new(over("Succeeded", "Succeeded", succeeded, good)),
            Succeeded,
            None,
        ),
        ended(
            "exit-code",
            "NonZeroExit",
            "Pod 'shop-7-v1-x2k9p' on node 'node-1': the agent exited with code 3: \"the tests are red\"",
            json!({ "exitCode": 3 }),
            exit(3, "Error"),
        ),
        ended(
            "exit-code-permission-denied",
            "NonZeroExit",
            "Pod 'shop-7-v1-x2k9p' on node 'node-1': the agent exited with code 1: \"mkdir: /data: Permission denied\"",
            json!({ "exitCode": 1 }),
            exit(1, "Error"),
        ),
        case(
            "exit-code-cleaned-up",
            Scene::new({
                let mut status = over(
                    "Failed",
                    "NonZeroExit",
                    "Pod 'shop-7-v1-a3-x2k9p' on node 'node-1': the agent exited with code 127 (after 3 attempts)",
                    json!({ "exitCode": 127, "podName": "shop-7-v1-a3-x2k9p" }),
                );
                crate::build::merge(&mut status, json!({ "attempts": 3, "jobName": "shop-7-v1-a3" }));
                status
            })
            .created("09:50:00")
            .agent(json!({ "spec": { "retry": { "maxAttempts": 3 } } })),
            Failed,
            Some(("Pod", "shop-7-v1-a3-x2k9p", "NonZeroExit")),
        ),
        ended(
            "out-of-memory",
            "OOMKilled",
            "Pod 'shop-7-v1-x2k9p' on node 'node-1': the container used more memory than its limit of 512Mi and was killed",
            json!({ "exitCode": 137, "signal": 9 }),
            exit(137, "OOMKilled"),
        ),
        case(
            "deadline",
            Scene::new(json!({})).with_run(
                over(
                    "Failed",
                    "DeadlineExceeded",
                    "Pod 'shop-7-v1-x2k9p' on node 'node-1': the agent did not end within 2m",
                    json!({}),
                ),
                json!({ "spec": { "timeout": "2m" } }),
            ),
            Failed,
            Some(("Pod", POD, "DeadlineExceeded")),
        ),
        case(
            "deadline-of-the-agent",
            Scene::new(over(
                "Failed",
                "DeadlineExceeded",
                "Pod 'shop-7-v1-x2k9p' on node 'node-1': the agent did not end within 2m",
                json!({}),
            ))
            .agent(json!({ "spec": { "timeout": "2m" } })),
            Failed,
            Some(("Pod", POD, "DeadlineExceeded")),
        ),
        case(
            "result-missing",
            Scene::new(over(
                "Failed",
                "ResultMissing",
                "the agent exited with code 0 without the required results: report",
                json!({ "exitCode": 0, "results": { "answer": "42" } }),
            ))
            .agent(json!({ "spec": { "results": [{ "name": "report", "required": true }] } }))
            .container("Succeeded", json!({ "terminated": exit(0, "Completed") })),
            Failed,
            Some(("Pod", POD, "ResultMissing")),
        ),
        gone(
            "result-invalid",
            "ResultInvalid",
            "the agent exited with code 0, but its termination message is not one JSON object",
            json!({ "exitCode": 0 }),
        ),
        gone(
            "result-too-large",
            "ResultTooLarge",
            "the termination message has 4096 bytes or more, so it was cut and proves nothing",
            json!({ "exitCode": 0 }),
        ),
        case(
            "evidence-lost",
            Scene::new(over(
                "Failed",
                "EvidenceLost",
                "Job 'shop-7-v1' is complete, but its Pod is gone",
                no_pod,
            )),
            Failed,
            Some(("Job", "shop-7-v1", "EvidenceLost")),
        ),
        case(
            "too-many-disruptions",
            Scene::new({
                let mut status = over(
                    "Failed",
                    "TooManyDisruptions",
                    "the agent was terminated by another actor 6 times: Pod 'shop-7-v1-x2k9p' on node 'node-1' was terminated by another actor (PreemptionByScheduler); its result is ignored",
                    json!({}),
                );
                crate::build::merge(&mut status, json!({ "disruptions": 6 }));
                status
            })
            .created("09:10:00"),
            Failed,
            Some(("Pod", POD, "TooManyDisruptions")),
        ),
        case(
            "restored",
            Scene::new(status(
                "Failed",
                "NonZeroExit",
                "restored: version 1 ended as Failed (NonZeroExit) before, as the annotation 'orchestrator.io/outcome' says; nothing was started. Raise 'contextVersion' to run it again",
                json!({ "attempts": 0 }),
            )),
            Failed,
            Some(("TaskRun", "shop-7", "NonZeroExit")),
        ),
        case(
            "cancelled",
            Scene::new(json!({})).with_run(
                over(
                    "Failed",
                    "Cancelled",
                    "cancelled by 'spec.cancel' during attempt 1",
                    json!({ "exitCode": 143 }),
                ),
                json!({
                    "metadata": { "managedFields": [{ "manager": "kubectl", "operation": "Apply", "time": at("10:02:05") }] },
                    "spec": { "cancel": true },
                }),
            ),
            Failed,
            Some(("TaskRun", "shop-7", "Cancelled")),
        ),
        case(
            "cancelled-before-it-started",
            Scene::new(json!({})).with_run(
                status(
                    "Failed",
                    "Cancelled",
                    "cancelled by 'spec.cancel' before it was started",
                    json!({ "attempts": 0, "finishedAt": at("10:02:11") }),
                ),
                json!({
                    "metadata": { "managedFields": [{ "manager": "kubectl", "operation": "Apply", "time": at("10:02:10") }] },
                    "spec": { "cancel": true },
                }),
            ),
            Failed,
            Some(("TaskRun", "shop-7", "Cancelled")),
        ),
        case(
            "ended-by-itself-though-cancelled",
            Scene::new(json!({})).with_run(
                over(
                    "Failed",
                    "NonZeroExit",
                    "Pod 'shop-7-v1-x2k9p' on node 'node-1': the agent exited with code 3",
                    json!({ "exitCode": 3 }),
                ),
                json!({ "spec": { "cancel": true } }),
            ),
            Failed,
            Some(("Pod", POD, "NonZeroExit")),
        ),
        case(
            "agent-never-came",
            unsubmitted,
            Failed,
            Some(("Agent", "writer", "AgentNotFound")),
        ),
        late(
            "start-timeout-quota",
            quota,
            |scene| scene.quota("compute", json!({ "pods": "5" }), json!({ "pods": "5" })),
            Some(("ResourceQuota", "compute", "QuotaExceeded")),
        ),
        late(
            "start-timeout-image",
            "ImagePullFailed: Pod 'shop-7-v1-x2k9p' on node 'node-1': the image cannot be pulled: not found",
            |scene| scene,
            Some(("Pod", POD, "ImagePullFailed")),
        ),
        late(
            "start-timeout-secret",
            "SecretNotFound: Pod 'shop-7-v1-x2k9p' on node 'node-1': secret \"the-key\" not found",
            |scene| {
                let key = json!({ "spec": { "env": [{ "name": "KEY", "valueFrom": { "secretKeyRef": { "name": "the-key", "key": "k" } } }] } });
                scene.agent(key).known("Secret", "the-key", false)
            },
            Some(("Secret", "the-key", "SecretNotFound")),
        ),
        late(
            "start-timeout-unknown",
            "Pod 'shop-7-v1-x2k9p' on node 'node-1' does not say why",
            |scene| scene,
            Some(("Pod", POD, "StartTimeout")),
        ),
    ]
}
