//! DocsRuns that ended, or with an attempt that ended.

use serde_json::{Value, json};
use why::explanation::State::{Failed, Succeeded, Waiting};

use crate::{
    Case,
    build::{at, merge},
    case,
    docs::{COMMIT, POD, Steps, URL, asking, complete, ends, over, plain, scene, waits},
};

type Blocker = Option<(&'static str, &'static str, &'static str)>;

pub(crate) fn cases() -> Vec<Case> {
    let failed_job = json!({ "status": { "conditions": [{ "type": "Failed", "status": "True",
        "reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit",
        "lastTransitionTime": at("10:02:11") }] } });
    let in_clone = |name, reason: &'static str, message: &str, blocker: Blocker| {
        let scene = plain(over(
            "Failed",
            reason,
            message,
            json!({ "startedAt": null }),
        ))
        .docs_job(failed_job.clone())
        .steps("Failed", ends(1, message), waits(), waits());
        case(name, scene, Failed, blocker)
    };
    let in_publish = |name, reason: &'static str, message: &str, more: Value, blocker: Blocker| {
        let scene = plain(over("Failed", reason, message, more))
            .docs_job(failed_job.clone())
            .steps("Failed", ends(0, ""), ends(0, ""), ends(1, message));
        case(name, scene, Failed, blocker)
    };
    let never = |name, reason: &'static str, message: &str, blocker: Blocker| {
        let mut status = asking(reason, message);
        merge(
            &mut status,
            json!({ "phase": "Failed", "finishedAt": at("10:02:11"), "deadlineAt": null }),
        );
        case(name, plain(status), Failed, blocker)
    };
    let repository = |reason: &'static str| Some(("Repository", URL, reason));
    vec![
        case(
            "docs-succeeded",
            plain(over(
                "Succeeded",
                "Succeeded",
                "branch 'docs/guide' is at c0535e4",
                json!({
                    "commit": COMMIT, "changedFiles": { "count": 3, "first": ["docs/a.md"] },
                    "result": { "exitCode": 0 },
                }),
            ))
            .docs_job(complete())
            .steps("Succeeded", ends(0, ""), ends(0, ""), ends(0, "")),
            Succeeded,
            None,
        ),
        case(
            "docs-succeeded-without-changes",
            plain(over(
                "Succeeded",
                "Succeeded",
                "nothing was changed",
                json!({ "result": { "exitCode": 0 } }),
            )),
            Succeeded,
            None,
        ),
        never(
            "docs-never-reached",
            "RepositoryUnreachable",
            "not started: 'https://git.example/team/shop' does not answer: no answer within 10 s",
            repository("RepositoryUnreachable"),
        ),
        never(
            "docs-never-let-in",
            "AuthenticationFailed",
            "not started: 'https://git.example/team/shop' answered 401 to the credentials of Secret 'git'",
            Some(("Secret", "git", "AuthenticationFailed")),
        ),
        never(
            "docs-never-allowed",
            "AddressNotAllowed",
            "not started: 'https://git.example/team/shop' has the address 10.0.0.7, which is not allowed",
            Some((
                "Configuration",
                "tasks.docs.allowedNetworks",
                "AddressNotAllowed",
            )),
        ),
        in_clone(
            "docs-too-large",
            "RepositoryTooLarge",
            "the repository needs more than 1024 MiB",
            repository("RepositoryTooLarge"),
        ),
        in_clone(
            "docs-path-not-found",
            "PathNotFound",
            "commit 4b825dc has no folder '.'",
            repository("PathNotFound"),
        ),
        in_clone(
            "docs-clone-failed",
            "CloneFailed",
            "the pack is broken",
            Some(("Pod", POD, "CloneFailed")),
        ),
        in_publish(
            "docs-no-changes",
            "NoChanges",
            "the agent changed nothing below 'docs/'",
            json!({}),
            Some(("Agent", "writer", "NoChanges")),
        ),
        in_publish(
            "docs-output-too-large",
            "OutputTooLarge",
            "the agent wrote more than 1000 files below 'docs/'",
            json!({}),
            Some(("Agent", "writer", "OutputTooLarge")),
        ),
        in_publish(
            "docs-push-refused",
            "PushRejected",
            "the server refused branch 'docs/guide': pre-receive hook declined",
            json!({}),
            repository("PushRejected"),
        ),
        in_publish(
            "docs-branch-moved",
            "BranchMoved",
            "branch 'docs/guide' is at 1111111, not at 9fceb02",
            json!({}),
            repository("BranchMoved"),
        ),
        in_publish(
            "docs-publish-failed",
            "PublishFailed",
            "the commit cannot be made: no space left",
            json!({}),
            Some(("Pod", POD, "PublishFailed")),
        ),
        in_publish(
            "docs-push-credentials-refused",
            "AuthenticationFailed",
            "the server answered 403 to the push",
            json!({}),
            Some(("Secret", "git", "AuthenticationFailed")),
        ),
        case(
            "docs-not-verified",
            plain(over(
                "Failed",
                "NotVerified",
                "branch 'docs/guide' is not there, though commit c0535e4 was reported as pushed",
                json!({ "commit": COMMIT, "result": { "exitCode": 0 } }),
            ))
            .docs_job(complete())
            .steps("Succeeded", ends(0, ""), ends(0, ""), ends(0, "")),
            Failed,
            repository("NotVerified"),
        ),
        case(
            "docs-never-had-credentials",
            scene(
                {
                    let mut status = asking(
                        "AuthenticationFailed",
                        "not started: 'https://git.example/team/shop' asks for credentials",
                    );
                    merge(
                        &mut status,
                        json!({ "phase": "Failed", "finishedAt": at("10:02:11"), "deadlineAt": null }),
                    );
                    status
                },
                json!({ "credentialsSecretRef": null }),
            ),
            Failed,
            repository("AuthenticationFailed"),
        ),
        never(
            "docs-not-asked",
            "StartTimeout",
            "not started: https://git.example/team/shop was not asked for its branches in time: the operator has 32 queries to Git servers in flight, 8 of them for namespace 'team', where 992 wait",
            repository("StartTimeout"),
        ),
        case(
            "docs-publish-too-late",
            plain(over(
                "Failed",
                "DeadlineExceeded",
                &format!(
                    "Pod '{POD}' on node 'node-1': the container 'publish' did not end within 10m"
                ),
                json!({}),
            )),
            Failed,
            Some(("Pod", POD, "DeadlineExceeded")),
        ),
        case(
            "docs-cloned-too-long",
            plain(over(
                "Failed",
                "StartTimeout",
                &format!(
                    "the container did not start within 10m: Cloning: Pod '{POD}' on node 'node-1' clones the repository"
                ),
                json!({ "startedAt": null, "result": { "startedAt": null } }),
            )),
            Failed,
            Some(("Pod", POD, "StartTimeout")),
        ),
        case(
            "docs-between-attempts",
            plain(over(
                "Pending",
                "PublishFailed",
                "attempt 1 failed: the push broke off",
                json!({
                    "finishedAt": null, "deadlineAt": at("10:06:00"),
                }),
            ))
            .agent(json!({ "spec": { "retry": { "maxAttempts": 3 } } })),
            Waiting,
            None,
        ),
        case(
            "docs-exit-code",
            plain(over(
                "Failed",
                "NonZeroExit",
                &format!("Pod '{POD}' on node 'node-1': the agent exited with code 3"),
                json!({ "result": { "exitCode": 3 } }),
            ))
            .docs_job(failed_job.clone())
            .steps("Failed", ends(0, ""), ends(3, ""), waits()),
            Failed,
            Some(("Pod", POD, "NonZeroExit")),
        ),
        case(
            "docs-cancelled",
            scene(
                over(
                    "Failed",
                    "Cancelled",
                    "cancelled",
                    json!({ "result": { "exitCode": 143 } }),
                ),
                json!({ "cancel": true }),
            ),
            Failed,
            Some(("DocsRun", "guide", "Cancelled")),
        ),
    ]
}
