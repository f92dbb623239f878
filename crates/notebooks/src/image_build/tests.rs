//! Cases of decisions about builds. The names have the numbers of the specification.

use api::notebooks::notebook_reason;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;
use attempts::view::PodView;

const REPOSITORY: &str = "registry.example:5000/team/nb";

fn digest(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

fn reference(digit: char) -> ImageReference {
    ImageReference::parse(&format!("{REPOSITORY}@{}", digest(digit))).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// F5, F9: only a digest names an image. A tag beside it could show another one.
#[test]
fn f09_only_a_reference_with_a_digest_is_valid() {
    let good = format!("{REPOSITORY}@{}", digest('a'));
    assert_eq!(ImageReference::parse(&good).unwrap().to_string(), good);
    for text in [
        String::new(),
        REPOSITORY.to_owned(),
        format!("{REPOSITORY}:nb-u-a1"),
        format!("{REPOSITORY}:nb-u-a1@{}", digest('a')),
        format!("{REPOSITORY}@sha256:abc"),
        format!("{REPOSITORY}@{}", digest('A')),
        format!("{REPOSITORY}@sha512:{}", "a".repeat(64)),
        format!("@{}", digest('a')),
        format!("team@{}", digest('a')),
    ] {
        assert_eq!(ImageReference::parse(&text), None, "{text}");
    }
}

/// F11: the started container shows which image it runs.
#[test]
fn f11_the_image_of_the_container_is_compared_by_its_digest() {
    let reference = reference('a');
    for (image_id, expected) in [
        (format!("{REPOSITORY}@{}", digest('a')), true),
        (
            format!("docker-pullable://{REPOSITORY}@{}", digest('a')),
            true,
        ),
        (format!("{REPOSITORY}@{}", digest('b')), false),
        (digest('a'), false),
        (REPOSITORY.to_owned(), false),
        (String::new(), false),
    ] {
        assert_eq!(reference.is_used(&image_id), expected, "{image_id}");
    }
    assert_eq!(tag("u-1", 2), "nb-u-1-a2");
    assert_ne!(tag("u-1", 2), tag("u-1", 1));
}

#[test]
fn c03_a_repository_has_neither_a_tag_nor_a_digest() {
    for text in [REPOSITORY, "registry.example/a", "[::1]:5000/a/b_c"] {
        assert_eq!(check_repository(text), Ok(()), "{text}");
    }
    for (text, why) in [
        ("team", "host"),
        ("registry.example/a:1", "tag"),
        ("registry.example/a@sha256:0", "digest"),
        ("registry.example/A", "lower-case"),
        ("registry.example//a", "lower-case"),
        ("registry.example/-a", "lower-case"),
        ("registry.example/", "lower-case"),
        ("/a", "host"),
        ("a b/c", "host"),
    ] {
        let error = check_repository(text).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

/// R60, R61, R63: Building waits without a deadline of its own child, and its stored deadline ends it.
#[test]
fn r63_a_build_ends_at_its_deadline() {
    let (now, deadline) = (at("2026-01-01T00:10:00Z"), at("2026-01-01T00:15:00Z"));
    let waits = BuildState::Waiting(Reason::ImagePullFailed, "no image".to_owned());
    let failed = BuildState::Finished(BuildOutcome::Failed {
        reason: Reason::BuildFailed,
        step: Some("STEP 2/3: RUN false".to_owned()),
        message: "exit status 1".to_owned(),
    });
    let complete = BuildState::Finished(BuildOutcome::Complete(reference('a')));
    let wait = |reason, message: &str| BuildDecision::Wait(reason, message.to_owned());
    for (state, expected) in [
        (&BuildState::Absent, BuildDecision::Create),
        (&waits, wait(Reason::ImagePullFailed, "no image")),
        (
            &BuildState::Running,
            wait(Reason::Building, "the build runs"),
        ),
        (
            &BuildState::AwaitingFinalStatus,
            wait(Reason::Building, "the build ended without a final status"),
        ),
        (&complete, BuildDecision::Store(reference('a'))),
        (
            &failed,
            BuildDecision::Fail(
                Reason::BuildFailed,
                "STEP 2/3: RUN false: exit status 1".to_owned(),
            ),
        ),
    ] {
        assert_eq!(building(state, deadline, now), expected, "{state:?}");
    }
    for state in [
        BuildState::Absent,
        waits,
        BuildState::Running,
        BuildState::AwaitingFinalStatus,
    ] {
        let BuildDecision::Fail(reason, message) = building(&state, deadline, deadline) else {
            panic!("{state:?}")
        };
        assert_eq!(reason, Reason::BuildTimeout, "{message}");
    }
    // The operator was down at the deadline. The build ended before it was observed.
    assert_eq!(
        building(&complete, deadline, at("2026-01-01T02:00:00Z")),
        BuildDecision::Store(reference('a'))
    );
}

/// R60, F9, F10: only the stored reference starts a validation.
#[test]
fn f10_a_validation_needs_a_stored_digest_of_this_repository() {
    let good = reference('a').to_string();
    assert_eq!(
        build_complete(Some(&good), REPOSITORY),
        BuildDecision::Validate(reference('a'))
    );
    let tagged = format!("{REPOSITORY}:1");
    for (stored, repository, expected) in [
        (None, REPOSITORY, Reason::ImageReferenceMissing),
        (Some(""), REPOSITORY, Reason::ImageReferenceMissing),
        (Some(&*tagged), REPOSITORY, Reason::ImageReferenceMissing),
        (
            Some(&*good),
            "registry.example/other",
            Reason::ImageMismatch,
        ),
    ] {
        let BuildDecision::Fail(reason, message) = build_complete(stored, repository) else {
            panic!("{stored:?}")
        };
        assert_eq!(reason, expected, "{message}");
    }
}

fn exited(name: &str, code: i32, message: &str) -> Value {
    let reason = if code == 0 { "Completed" } else { "Error" };
    json!({
        "name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": { "terminated": {
            "exitCode": code, "reason": reason, "message": message,
            "startedAt": "2026-01-01T00:00:10Z", "finishedAt": "2026-01-01T00:01:00Z",
        } },
    })
}

fn waits(name: &str) -> Value {
    json!({
        "name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": { "waiting": { "reason": "PodInitializing" } },
    })
}

fn pod(fetch: &Value, build: &Value, push: &Value) -> Value {
    let is_complete = push["state"]["terminated"]["exitCode"] == 0;
    json!({
        "metadata": { "name": "p", "namespace": "team", "uid": "pod" },
        "spec": {
            "initContainers": [{ "name": "fetch" }, { "name": "build" }],
            "containers": [{ "name": "push" }],
        },
        "status": {
            "phase": if is_complete { "Succeeded" } else { "Failed" },
            "initContainerStatuses": [fetch, build],
            "containerStatuses": [push],
        },
    })
}

fn outcome(pod: &Value, failure: Option<&str>) -> BuildOutcome {
    let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
    let view = PodView::new(&pod, &CONTAINERS);
    let exit = view.container.exit().unwrap().clone();
    evaluate(&BuildAttempt {
        pod: &view,
        exit: &exit,
        failure,
        identity: Identity {
            uid: "u",
            attempt: 2,
            repository: REPOSITORY,
        },
    })
}

fn reason_of(outcome: &BuildOutcome) -> Reason {
    match outcome {
        BuildOutcome::Complete(_) => Reason::Succeeded,
        BuildOutcome::Failed { reason, .. } => *reason,
    }
}

fn push_report() -> Value {
    json!({
        "v": 1, "uid": "u", "attempt": 2, "container": "push", "outcome": "Pushed",
        "repository": REPOSITORY, "digest": digest('a'),
    })
}

fn of_push(code: i32, message: &str) -> Value {
    let built = json!({
        "v": 1, "uid": "u", "attempt": 2, "container": "build", "outcome": "Built",
    });
    pod(
        &exited("fetch", 0, ""),
        &exited("build", 0, &built.to_string()),
        &exited("push", code, message),
    )
}

#[test]
fn a_pushed_digest_completes_a_build() {
    let found = outcome(&of_push(0, &push_report().to_string()), None);
    assert_eq!(found, BuildOutcome::Complete(reference('a')));
}

/// F4, F5, F6, F15: each part of the report that is of something else prevents the completion.
#[test]
fn f06_a_report_of_something_else_is_no_digest() {
    for (path, value, reason) in [
        ("/uid", json!("other"), Reason::ResultInvalid),
        ("/attempt", json!(1), Reason::ResultInvalid),
        ("/container", json!("build"), Reason::ResultInvalid),
        ("/v", json!(2), Reason::ResultInvalid),
        (
            "/repository",
            json!("registry.example/x"),
            Reason::ResultInvalid,
        ),
        ("/digest", json!("latest"), Reason::ResultInvalid),
        ("/digest", json!(""), Reason::ResultInvalid),
        ("/outcome", json!("Built"), Reason::ImageReferenceMissing),
    ] {
        let mut report = push_report();
        *report.pointer_mut(path).unwrap() = value;
        let found = outcome(&of_push(0, &report.to_string()), None);
        assert_eq!(reason_of(&found), reason, "{path}: {found:?}");
    }
    for (message, reason) in [
        (String::new(), Reason::ResultMissing),
        (digest('a'), Reason::ResultInvalid),
        (
            format!("{}{}", push_report(), " ".repeat(2000)),
            Reason::ResultTooLarge,
        ),
    ] {
        let found = outcome(&of_push(0, &message), None);
        assert_eq!(reason_of(&found), reason, "{found:?}");
    }
    // The container that builds reports a digest, and the push fails.
    let forged = push_report();
    let of_build = pod(
        &exited("fetch", 0, ""),
        &exited("build", 1, &forged.to_string()),
        &waits("push"),
    );
    assert_eq!(
        reason_of(&outcome(&of_build, Some("failed"))),
        Reason::BuildFailed
    );
}

/// F8: a Pod that was asked to stop has no result.
#[test]
fn f08_a_push_that_was_asked_to_stop_is_no_result() {
    let mut pod = of_push(0, &push_report().to_string());
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    assert_eq!(reason_of(&outcome(&pod, None)), Reason::Disrupted);
    let whole = of_push(0, &push_report().to_string());
    assert_eq!(
        reason_of(&outcome(&whole, Some("DeadlineExceeded"))),
        Reason::JobFailed
    );
}

#[test]
fn each_container_that_fails_names_its_cause() {
    let failure = |container: &str, reason: &str| {
        json!({
            "v": 1, "uid": "u", "attempt": 2, "container": container, "outcome": "Failed",
            "reason": reason, "step": "STEP 2/3: RUN pip install", "message": "no matching version",
        })
        .to_string()
    };
    for (build, reason) in [
        (failure("build", "BuildFailed"), Reason::BuildFailed),
        (failure("build", "BaseImageFailed"), Reason::BaseImageFailed),
        (
            failure("build", "RequirementsNotFound"),
            Reason::RequirementsNotFound,
        ),
        // A reason that a build cannot have, and a report of another container.
        (failure("build", "Succeeded"), Reason::BuildFailed),
        (failure("push", "PushFailed"), Reason::BuildFailed),
        (String::new(), Reason::BuildFailed),
    ] {
        let pod = pod(
            &exited("fetch", 0, ""),
            &exited("build", 1, &build),
            &waits("push"),
        );
        let found = outcome(&pod, Some("failed"));
        assert_eq!(reason_of(&found), reason, "{build}");
    }
    for (push, reason) in [
        (failure("push", "PushFailed"), Reason::PushFailed),
        (
            failure("push", "AuthenticationFailed"),
            Reason::AuthenticationFailed,
        ),
        ("unauthorized".to_owned(), Reason::PushFailed),
    ] {
        let found = outcome(&of_push(1, &push), Some("failed"));
        assert_eq!(reason_of(&found), reason, "{push}");
    }
    let found = outcome(
        &pod(
            &exited("fetch", 0, ""),
            &exited("build", 1, &failure("build", "BuildFailed")),
            &waits("push"),
        ),
        Some("failed"),
    );
    let decision = building(
        &BuildState::Finished(found),
        at("2026-01-01T00:15:00Z"),
        at("2026-01-01T00:10:00Z"),
    );
    assert_eq!(
        decision,
        BuildDecision::Fail(
            Reason::BuildFailed,
            "STEP 2/3: RUN pip install: no matching version".to_owned()
        )
    );
}

fn pipeline_run(status: &str, reason: &str, results: &Value) -> Value {
    json!({ "status": {
        "conditions": [{ "type": "Succeeded", "status": status, "reason": reason, "message": "m" }],
        "results": results,
        "childReferences": [{ "kind": "TaskRun", "name": "x", "pipelineTaskName": "build" }],
    } })
}

/// F7: a run that only completed, or that has one result, has no digest.
#[test]
fn f07_a_pipeline_run_needs_both_results() {
    let spec = Tekton::default();
    let state = |run: &Value| pipeline_run_state(Some(run), &spec, REPOSITORY);
    let digest_a = digest('a');
    let both = |url: &str, digest: &str| {
        json!([
            { "name": "IMAGE_URL", "value": url }, { "name": "IMAGE_DIGEST", "value": digest },
        ])
    };
    let tagged = format!("{REPOSITORY}:nb-u-a1");
    for (results, reason) in [
        (both(REPOSITORY, &digest_a), Reason::Succeeded),
        (both(&tagged, &format!("{digest_a}\n")), Reason::Succeeded),
        (
            json!([{ "name": "IMAGE_URL", "value": REPOSITORY }]),
            Reason::ImageReferenceMissing,
        ),
        (
            json!([{ "name": "IMAGE_DIGEST", "value": digest_a }]),
            Reason::ImageReferenceMissing,
        ),
        (both(REPOSITORY, ""), Reason::ImageReferenceMissing),
        (both(REPOSITORY, "latest"), Reason::ImageReferenceMissing),
        (
            both("registry.example/other", &digest_a),
            Reason::ImageMismatch,
        ),
        (json!([]), Reason::ImageReferenceMissing),
        (Value::Null, Reason::ImageReferenceMissing),
    ] {
        for ended in ["Succeeded", "Completed"] {
            let BuildState::Finished(found) = state(&pipeline_run("True", ended, &results)) else {
                panic!("{results}")
            };
            assert_eq!(reason_of(&found), reason, "{results}");
        }
    }
    for reason in ["Running", "Cancelled", "PipelineRunCouldntTimeOut"] {
        let run = pipeline_run("Unknown", reason, &both(REPOSITORY, &digest_a));
        assert_eq!(state(&run), BuildState::Running, "{reason}");
    }
    for (ended, reason) in [
        ("CouldntGetPipeline", Reason::PipelineNotFound),
        ("PipelineRunTimeout", Reason::BuildTimeout),
        ("Cancelled", Reason::Disrupted),
        ("Failed", Reason::BuildFailed),
    ] {
        let run = pipeline_run("False", ended, &both(REPOSITORY, &digest_a));
        let BuildState::Finished(found) = state(&run) else {
            panic!("{ended}")
        };
        assert_eq!(reason_of(&found), reason, "{ended}");
    }
    assert_eq!(
        pipeline_run_state(None, &spec, REPOSITORY),
        BuildState::Absent
    );
    assert!(matches!(state(&json!({})), BuildState::Waiting(..)));
}

fn buildah() -> BuildSpec {
    BuildSpec {
        image: REPOSITORY.to_owned(),
        base_image: Some("docker.io/library/python:3.11".to_owned()),
        ..BuildSpec::default()
    }
}

#[test]
fn c04_combinations_without_a_meaning_are_rejected() {
    let text = |value: &str| Some(value.to_owned());
    let own_pipeline = Tekton {
        pipeline: text("mine"),
        ..Tekton::default()
    };
    let s2i = BuildSpec {
        strategy: Strategy::S2i,
        ..buildah()
    };
    let tekton = BuildSpec {
        strategy: Strategy::Tekton,
        tekton: Some(own_pipeline),
        base_image: None,
        ..buildah()
    };
    let dockerfile = BuildSpec {
        dockerfile: text("Dockerfile"),
        base_image: None,
        ..buildah()
    };
    for spec in [&buildah(), &s2i, &tekton, &dockerfile] {
        assert_eq!(spec.check(), Ok(()), "{spec:?}");
    }
    for (spec, why) in [
        (
            BuildSpec {
                base_image: None,
                ..buildah()
            },
            "baseImage is required",
        ),
        (
            BuildSpec {
                dockerfile: text("D"),
                ..buildah()
            },
            "baseImage is not possible",
        ),
        (
            BuildSpec {
                requirements_file: text("r.txt"),
                ..dockerfile.clone()
            },
            "exclude each other",
        ),
        (
            BuildSpec {
                image: "team".to_owned(),
                ..buildah()
            },
            "host",
        ),
        (
            BuildSpec {
                cache: text("a/b:1"),
                ..buildah()
            },
            "tag",
        ),
        (
            BuildSpec {
                s2i: Some(S2i::default()),
                ..buildah()
            },
            "s2i",
        ),
        (
            BuildSpec {
                tekton: Some(Tekton::default()),
                ..buildah()
            },
            "tekton",
        ),
        (
            BuildSpec {
                requirements_file: text("r.txt"),
                ..s2i.clone()
            },
            "requirementsFile",
        ),
        (
            BuildSpec {
                cache: text("registry.example/c"),
                ..s2i.clone()
            },
            "cache",
        ),
        (
            BuildSpec {
                base_image: text("x"),
                ..tekton.clone()
            },
            "baseImage",
        ),
        (
            BuildSpec {
                context: text("."),
                ..tekton.clone()
            },
            "context",
        ),
        (
            BuildSpec {
                args: vec![("A".to_owned(), "b".to_owned())],
                ..tekton.clone()
            },
            "args",
        ),
        (
            BuildSpec {
                context: text("../x"),
                ..buildah()
            },
            "context",
        ),
        (
            BuildSpec {
                requirements_file: text("$HOME/r.txt"),
                ..buildah()
            },
            "pattern",
        ),
        (
            BuildSpec {
                requirements_file: text("*.txt"),
                ..buildah()
            },
            "pattern",
        ),
        (
            BuildSpec {
                base_image: text("a\nRUN x"),
                ..buildah()
            },
            "no image",
        ),
        (
            BuildSpec {
                base_image: text("${X}"),
                ..buildah()
            },
            "no image",
        ),
        (
            BuildSpec {
                base_image: text("--platform=x"),
                ..buildah()
            },
            "no image",
        ),
    ] {
        let error = spec.check().unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn requirements_are_searched_beside_the_notebook_first() {
    for (file, notebook, expected) in [
        (
            None,
            "reports/a.ipynb",
            &["reports/requirements.txt", "requirements.txt"][..],
        ),
        (None, "a.ipynb", &["requirements.txt"]),
        (Some("deps.txt"), "reports/a.ipynb", &["deps.txt"]),
    ] {
        let spec = BuildSpec {
            requirements_file: file.map(str::to_owned),
            ..buildah()
        };
        assert_eq!(requirements_files(&spec, notebook), expected);
    }
    assert_eq!(
        dockerfile("registry.example/base:1", "a b/requirements.txt"),
        "FROM registry.example/base:1\n\
         COPY [\"a b/requirements.txt\",\"/tmp/requirements.txt\"]\n\
         RUN [\"python3\",\"-m\",\"pip\",\"install\",\"--no-cache-dir\",\"-r\",\"/tmp/requirements.txt\"]\n"
    );
}

#[test]
fn each_reason_of_a_build_is_known() {
    for name in [
        "BuildsDisabled",
        "StrategyUnavailable",
        "BuildFailed",
        "BuildTimeout",
        "RequirementsNotFound",
        "BaseImageFailed",
        "PushFailed",
        "PipelineNotFound",
        "ImageReferenceMissing",
        "ImageMismatch",
    ] {
        assert!(notebook_reason(name).is_some(), "{name}");
    }
}
