//! Answers that were wrong when a new user asked: objects that may not be read, files that are not
//! executable, names of other runs, operators that do not run, CRDs that do not fit, webhooks.

use serde_json::{Value, json};
use why::{
    World, explain,
    explanation::State::{self, *},
    render,
    world::{CrdView, OperatorView, PodView, Unreadable, WorkloadView},
};

use crate::{
    Case, all,
    build::{POD, Scene, at, before, created, going, over, status},
    case,
};

const RUNS: &str = "Pod 'shop-7-v1-x2k9p' on node 'node-1' runs; it has until 2026-03-02T11:00:09Z";
const NOT_EXECUTABLE: &str = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: exec: \"/etc/passwd\": permission denied";

pub(crate) fn cases() -> Vec<Case> {
    let mut all = unreadable();
    all.extend(programs());
    all.extend(operators());
    all.extend(crds());
    all.extend(rejected());
    all.extend(ended());
    all
}

/// Marks these lists as forbidden, in the API server's words.
fn may_not_list(mut scene: Scene, lists: &[&str]) -> Scene {
    for list in lists {
        scene.0.unreadable.push(forbidden(list));
    }
    scene
}

fn forbidden(list: &str) -> Unreadable {
    Unreadable {
        what: list.to_owned(),
        forbidden: true,
        why: format!(
            "{list} is forbidden: User \"anna\" cannot list resource \"{list}\" in API group \"\" in the namespace \"team\""
        ),
    }
}

fn unreadable() -> Vec<Case> {
    let image = "Pod 'shop-7-v1-x2k9p' on node 'node-1': the image cannot be pulled: not found";
    let exited = "Pod 'shop-7-v1-x2k9p' on node 'node-1': the agent exited with code 4";
    let deleting = json!({ "metadata": { "deletionTimestamp": at("10:04:50") } });
    vec![
        case(
            "pods-not-readable-after-the-end",
            may_not_list(
                Scene::new(over(
                    "Failed",
                    "NonZeroExit",
                    exited,
                    json!({ "exitCode": 4 }),
                )),
                &["pods", "events"],
            ),
            Failed,
            Some(("Pod", POD, "NonZeroExit")),
        ),
        case(
            "pods-not-readable-while-it-runs",
            may_not_list(
                Scene::new(going("Running", "Progressing", RUNS)).job(json!({})),
                &["pods"],
            ),
            Running,
            None,
        ),
        case(
            "pods-not-readable-and-blocked",
            may_not_list(
                Scene::new(going("Pending", "ImagePullFailed", image)).job(json!({})),
                &["pods"],
            ),
            Blocked,
            Some(("Job", "shop-7-v1", "ImagePullFailed")),
        ),
        case(
            "jobs-not-readable",
            may_not_list(Scene::new(created()), &["jobs", "pods", "events"]),
            Waiting,
            None,
        ),
        case(
            "events-not-readable",
            may_not_list(
                Scene::new(created()).job(json!({ "status": { "active": 0 } })),
                &["events"],
            ),
            Waiting,
            None,
        ),
        case(
            "deleting-and-pods-not-readable",
            may_not_list(
                Scene::new(json!({})).with_run(
                    status(
                        "Pending",
                        "Deleting",
                        "waiting for its Pod to stop",
                        json!({}),
                    ),
                    deleting,
                ),
                &["jobs", "pods"],
            ),
            Deleting,
            None,
        ),
    ]
}

fn programs() -> Vec<Case> {
    let said = format!(
        "Pod '{POD}' on node 'node-1': the program cannot be executed by user 65532: {NOT_EXECUTABLE}"
    );
    let ended = json!({ "terminated": {
        "exitCode": 128, "reason": "StartError", "message": NOT_EXECUTABLE,
        "startedAt": "1970-01-01T00:00:00Z", "finishedAt": at("10:02:10"),
    }});
    let failed_job = json!({ "status": { "conditions": [
        { "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "lastTransitionTime": at("10:02:10") },
    ]}});
    let pull = |message: &str| {
        let said = format!("Pod '{POD}' on node 'node-1': the image cannot be pulled: {message}");
        Scene::new(going("Pending", "ImagePullFailed", &said)).waits("ErrImagePull", message)
    };
    vec![
        case(
            "file-not-executable",
            Scene::new(going("Pending", "ContainerNotStartable", &said))
                .waits("RunContainerError", NOT_EXECUTABLE),
            Blocked,
            Some(("Pod", POD, "ContainerNotStartable")),
        ),
        case(
            "file-not-executable-at-the-end",
            Scene::new(over(
                "Failed",
                "ContainerNotStartable",
                &said,
                json!({ "exitCode": 128 }),
            ))
            .job(failed_job)
            .container("Failed", ended),
            Failed,
            Some(("Pod", POD, "ContainerNotStartable")),
        ),
        case(
            "image-of-a-host-that-does-not-resolve",
            pull(
                "failed to pull and unpack image \"registry.invalid/a:1\": failed to do request: Head \"https://registry.invalid/v2/a/manifests/1\": dial tcp: lookup registry.invalid on 10.96.0.10:53: no such host",
            ),
            Blocked,
            Some(("Pod", POD, "ImagePullFailed")),
        ),
        case(
            "image-with-another-error",
            pull(
                "failed to pull and unpack image \"registry.example/writer:1.4\": unexpected status from HEAD request to https://registry.example/v2/writer/manifests/1.4: 500 Internal Server Error",
            ),
            Blocked,
            Some(("Pod", POD, "ImagePullFailed")),
        ),
    ]
}

fn unseen() -> Value {
    json!({ "observedGeneration": -1, "phase": "Pending", "message": "waiting for the operator to look at it" })
}

/// Returns the operator's Deployment with these replicas.
fn deployment(wanted: i32, ready: i32) -> WorkloadView {
    let deployment: k8s_openapi::api::apps::v1::Deployment = serde_json::from_value(json!({
        "metadata": { "name": "orchestrator-tasks", "namespace": "orchestrator", "uid": "d", "generation": 3 },
        "spec": { "replicas": wanted, "selector": {}, "template": {} },
        "status": { "observedGeneration": 3, "replicas": wanted, "readyReplicas": ready, "availableReplicas": ready },
    }))
    .unwrap();
    WorkloadView::from(&deployment)
}

/// Returns a Pod of the operator with its container in this state.
fn operator_pod(container: Value, more: Value) -> PodView {
    let mut pod = json!({
        "metadata": {
            "name": "orchestrator-tasks-6d5f-abcde", "namespace": "orchestrator", "uid": "p",
            "creationTimestamp": at("09:40:00"),
        },
        "spec": { "containers": [{ "name": "operator", "image": "registry.example/orchestrator:1" }] },
        "status": { "phase": "Running", "containerStatuses": [{
            "name": "operator", "ready": false, "restartCount": 7, "image": "", "imageID": "",
        }]},
    });
    crate::build::merge(&mut pod["status"]["containerStatuses"][0], container);
    crate::build::merge(&mut pod, more);
    let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(pod).unwrap();
    PodView::from(&pod)
}

/// Returns a world without a leader, with these objects of the operator.
fn without_leader(deployments: Vec<WorkloadView>, pods: Vec<PodView>) -> Scene {
    let mut scene = Scene::new(unseen()).lease(None, "09:41:00");
    scene.0.operator = Some(OperatorView {
        deployments,
        pods: Some(pods),
    });
    scene
}

fn operators() -> Vec<Case> {
    let crashed = json!({
        "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container" } },
        "lastState": { "terminated": {
            "exitCode": 1, "reason": "Error", "startedAt": at("10:03:00"), "finishedAt": at("10:03:01"),
        }},
    });
    let no_image = json!({ "restartCount": 0, "state": { "waiting": {
        "reason": "ImagePullBackOff", "message": "Back-off pulling image \"registry.example/orchestrator:1\"",
    }}});
    let no_node = json!({ "status": { "phase": "Pending", "containerStatuses": null, "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient memory.", "lastTransitionTime": at("09:41:00"),
    }]}});
    let down = |name, scene, kind, object| {
        case(name, scene, Blocked, Some((kind, object, "OperatorDown")))
    };
    let (deployed, pod) = ("orchestrator-tasks", "orchestrator-tasks-6d5f-abcde");
    vec![
        down(
            "operator-scaled-to-zero",
            without_leader(vec![deployment(0, 0)], Vec::new()),
            "Deployment",
            deployed,
        ),
        down(
            "operator-crashes",
            without_leader(
                vec![deployment(2, 0)],
                vec![operator_pod(crashed, json!({}))],
            ),
            "Pod",
            pod,
        ),
        down(
            "operator-without-image",
            without_leader(
                vec![deployment(2, 0)],
                vec![operator_pod(no_image, json!({}))],
            ),
            "Pod",
            pod,
        ),
        down(
            "operator-without-node",
            without_leader(
                vec![deployment(2, 0)],
                vec![operator_pod(json!({}), no_node)],
            ),
            "Pod",
            pod,
        ),
        down(
            "operator-uninstalled",
            without_leader(Vec::new(), Vec::new()),
            "Lease",
            deployed,
        ),
        down(
            "operator-not-readable",
            {
                let mut scene = Scene::new(unseen()).lease(None, "09:41:00");
                scene.0.unreadable.push(Unreadable {
                    what: "the operator's deployments".to_owned(),
                    forbidden: true,
                    why: "deployments.apps is forbidden: User \"anna\" cannot list resource \"deployments\" in API group \"apps\" in the namespace \"orchestrator\"".to_owned(),
                });
                scene
            },
            "Lease",
            deployed,
        ),
    ]
}

fn crds() -> Vec<Case> {
    let with = |mut scene: Scene, name: &str, exists: bool, lacks: &[&str]| {
        scene.0.crds.push(CrdView {
            name: name.to_owned(),
            exists,
            deleting: None,
            lacks: lacks.iter().map(|one| (*one).to_owned()).collect(),
            ..CrdView::default()
        });
        scene
    };
    let done = || {
        let words = "the agent exited with code 0; Pod 'shop-7-v1-x2k9p' on node 'node-1'";
        Scene::new(over(
            "Succeeded",
            "Succeeded",
            words,
            json!({ "exitCode": 0 }),
        ))
    };
    let runs = "taskruns.orchestrator.io";
    let mut dying = with(done(), runs, true, &[]);
    dying.0.crds[0].deleting = Some(serde_json::from_value(json!(at("10:04:00"))).unwrap());
    let mut no_agents = with(
        Scene::new(status(
            "Pending",
            "Progressing",
            "starts",
            json!({ "attempts": 0 }),
        )),
        "agents.orchestrator.io",
        false,
        &[],
    );
    no_agents.0.agent = None;
    vec![
        case(
            "crd-outdated-and-status-not-written",
            with(
                Scene::new(unseen()),
                runs,
                true,
                &["status.phase: \"Pending\""],
            ),
            Blocked,
            Some(("CustomResourceDefinition", runs, "CRDOutdated")),
        ),
        case(
            "crd-outdated",
            with(
                done(),
                runs,
                true,
                &[
                    "status.history",
                    "status.retry",
                    "status.attempts",
                    "status.pod",
                ],
            ),
            Succeeded,
            None,
        ),
        case("crd-is-being-deleted", dying, Succeeded, None),
        case(
            "crd-of-agents-missing",
            no_agents,
            Blocked,
            Some((
                "CustomResourceDefinition",
                "agents.orchestrator.io",
                "CRDNotFound",
            )),
        ),
    ]
}

const HOOK: &str = "Internal error occurred: failed calling webhook \"jobs.policy.example\": failed to call webhook: Post \"https://hook.policy.svc:443/check?timeout=10s\": no endpoints available for service \"hook\"";

fn rejected() -> Vec<Case> {
    let said = format!("the API server answered 500 to 'create jobs' of 'shop-7-v1': {HOOK}");
    let mut hook = before("ApiUnavailable", &said);
    hook["retry"] = json!({ "attempt": 1, "class": "Transient", "nextAt": at("10:05:20") });
    let taken = |message: &str| Scene::new(before("ChildNameTaken", message));
    vec![
        case(
            "webhook-for-jobs-is-down",
            Scene::new(hook),
            Blocked,
            Some(("AdmissionWebhook", "jobs.policy.example", "WebhookDown")),
        ),
        case(
            "name-of-another-run",
            taken("ConfigMap 'shop-7-v1-files' exists already and belongs to TaskRun 'dup-a'; it was not touched")
                .other("ConfigMap", "shop-7-v1-files", Some(("TaskRun", "dup-a"))),
            Blocked,
            Some(("TaskRun", "dup-a", "ChildNameTaken")),
        ),
        case(
            "name-of-another-run-in-an-older-message",
            taken("Job 'shop-7-v1' exists already and belongs to someone else; it was not touched. Delete it, if nobody needs it")
                .other("Job", "shop-7-v1", Some(("TaskRun", "dup-a"))),
            Blocked,
            Some(("TaskRun", "dup-a", "ChildNameTaken")),
        ),
    ]
}

fn ended() -> Vec<Case> {
    let late = "Pod 'shop-7-v1-x2k9p' on node 'node-1': the agent did not end within 1h";
    let stopped = |reason: &str| {
        let state = json!({ "terminated": {
            "exitCode": 137, "reason": "Error", "startedAt": at("10:00:09"), "finishedAt": at("10:02:10"),
        }});
        let mut scene = Scene::new(over("Failed", "DeadlineExceeded", late, json!({ "exitCode": 137 })))
            .job(json!({ "status": { "conditions": [
                { "type": "Failed", "status": "True", "reason": "DeadlineExceeded", "lastTransitionTime": at("10:02:10") },
            ]}}))
            .container("Failed", state);
        scene.0.pods[0].reason = reason.to_owned();
        scene
    };
    let lost =
        "Job 'shop-7-v1' is being deleted by another actor; waiting until its deletion is complete";
    let mut stopping = going("Pending", "JobLost", lost);
    stopping["result"] = json!({
        "reason": "JobLost", "message": lost, "podName": POD, "podUID": "pod-uid", "node": "node-1",
        "startedAt": at("10:00:09"),
    });
    vec![
        case(
            "deadline-and-its-log",
            stopped("DeadlineExceeded"),
            Failed,
            Some(("Pod", POD, "DeadlineExceeded")),
        ),
        case(
            "deadline-of-an-evicted-pod",
            stopped("Evicted"),
            Failed,
            Some(("Pod", POD, "DeadlineExceeded")),
        ),
        case(
            "job-lost-and-stopping",
            Scene::new(stopping),
            Waiting,
            Some(("Pod", POD, "JobLost")),
        ),
    ]
}

fn text_of(name: &str) -> String {
    let case = cases().into_iter().find(|case| case.name == name).unwrap();
    render(&explain(&case.world), 2000, false)
}

/// Each answer has the words that help, and none of the words that misled.
#[test]
fn each_answer_helps_and_does_not_mislead() {
    for (name, has, lacks) in [
        (
            "pods-not-readable-after-the-end",
            &["missing permissions: list pods, list events in namespace 'team'"][..],
            &["no longer exists", "log went", "deleted", "orc logs"][..],
        ),
        (
            "pods-not-readable-while-it-runs",
            &["you may not read its pods"],
            &["EvidenceLost", "no Pod"],
        ),
        (
            "jobs-not-readable",
            &["you may not read its jobs"],
            &["JobLost", "someone deleted"],
        ),
        (
            "events-not-readable",
            &["you may not read its events"],
            &["no Event says why", "kube-controller-manager"],
        ),
        (
            "deleting-and-pods-not-readable",
            &["ask someone who may read"],
            &["nothing is left", "Job and Pod are deleted"],
        ),
        (
            "file-not-executable",
            &[
                "exec: \"/etc/passwd\": permission denied",
                "chmod +x",
                "'command'",
            ],
            &["ImageNeedsRoot", "runAsUser"],
        ),
        (
            "file-not-executable-at-the-end",
            &[
                "could not be started: exec: \"/etc/passwd\": permission denied",
                "chmod +x",
            ],
            &["ImageNeedsRoot", "orc logs", "the first lines", "runAsUser"],
        ),
        (
            "image-of-a-host-that-does-not-resolve",
            &["the name 'registry.invalid' does not resolve"],
            &["words are below"],
        ),
        (
            "image-with-another-error",
            &["on node 'node-1': 500 Internal Server Error"],
            &["words are below"],
        ),
        (
            "operator-scaled-to-zero",
            &[
                "has 0 replicas",
                "kubectl scale deployment orchestrator-tasks -n orchestrator --replicas=",
            ],
            &[],
        ),
        (
            "operator-crashes",
            &["exited with code 1 (Error)", "--previous"],
            &["0 replicas"],
        ),
        (
            "crd-outdated-and-status-not-written",
            &[
                "is older than this release: it lacks status.phase",
                "generated/crds",
            ],
            &["watchNamespaces"],
        ),
        (
            "crd-outdated",
            &[
                "lacks status.history, status.retry, status.attempts and 1 more",
                "generated/crds",
            ],
            &["To do:"],
        ),
        ("crd-is-being-deleted", &["is being deleted since"], &[]),
        (
            "webhook-for-jobs-is-down",
            &["'hook' in namespace 'policy'", "tried 1 time ("],
            &["control plane", "APIServer", "1 times"],
        ),
        (
            "name-of-another-run",
            &["TaskRun 'dup-a'", "orc why taskrun/dup-a -n team"],
            &["kubectl delete configmap", "Delete it", "someone else"],
        ),
        (
            "name-of-another-run-in-an-older-message",
            &["TaskRun 'dup-a'"],
            &["kubectl delete job", "delete it only"],
        ),
        (
            "deadline-and-its-log",
            &["Read the agent's log", "orc logs shop-7 -n team"],
            &["deleted"],
        ),
        (
            "deadline-of-an-evicted-pod",
            &["the kubelet evicted the Pod and deleted its log"],
            &["orc logs"],
        ),
        (
            "job-lost-and-stopping",
            &["To do: Wait: attempt 1"],
            &["Nothing"],
        ),
    ] {
        let text = text_of(name);
        for part in has {
            assert!(text.contains(part), "{name} lacks '{part}':\n{text}");
        }
        for part in lacks {
            assert!(!text.contains(part), "{name} has '{part}':\n{text}");
        }
    }
}

/// Sentences that follow from the absence of a Job, a Pod or an Event.
const CONCLUSIONS: &[&str] = &[
    "the Pod no longer exists",
    "the Pod and its log are deleted",
    "Its log went with its Pod",
    "has ended, and its Pod is deleted",
    "no Event says why",
    "someone deleted it while the run went on",
    "the Job is made in a moment",
    "nothing is left of the run",
    "its Job and Pod are deleted",
    "nothing is wrong so far",
];

/// A user who may not read an object hears nothing that only its absence would show.
#[test]
fn nothing_is_concluded_from_an_object_that_may_not_be_read() {
    type Hide = (&'static str, fn(&mut World));
    let hides: [Hide; 3] = [
        ("jobs", |world| world.jobs.clear()),
        ("pods", |world| world.pods.clear()),
        ("events", |world| world.events.clear()),
    ];
    let mut seen = 0;
    for case in all().into_iter().filter(|case| case.world.run.is_some()) {
        for (index, (first, one)) in hides.iter().enumerate() {
            for (second, other) in hides.iter().skip(index) {
                let mut world = case.world.clone();
                one(&mut world);
                other(&mut world);
                world
                    .unreadable
                    .extend([forbidden(first), forbidden(second)]);
                let found = explain(&world);
                let text = render(&found, 2000, false);
                let what = format!("{} without {first} and {second}", case.name);
                assert!(text.contains("you may not read"), "{what}:\n{text}");
                assert!(!found.next_steps.is_empty(), "{what}");
                let is_over = matches!(found.state, State::Succeeded | State::Ready);
                assert!(is_over || !found.advice.is_empty(), "{what}");
                seen += 1;
                // The list that could be read may show the absence.
                let hidden = |part: &&&str| match **part {
                    "no Event says why" | "nothing is wrong so far" => "events",
                    "someone deleted it while the run went on" | "the Job is made in a moment" => {
                        "jobs"
                    }
                    _ => "pods",
                };
                let status = &case.world.run.as_ref().unwrap().status;
                let said = status.progress.message.clone().unwrap_or_default();
                for part in CONCLUSIONS.iter().filter(|part| {
                    let list = hidden(part);
                    (list == *first || list == *second) && !said.contains(**part)
                }) {
                    assert!(!text.contains(part), "{what}: '{part}'\n{text}");
                }
            }
        }
    }
    assert!(seen > 500, "{seen}");
}

/// A webhook that fails is named for each kind of child and each code of the API server.
#[test]
fn a_webhook_that_fails_is_named_for_each_kind_of_child() {
    for (reason, action) in [
        ("ApiUnavailable", "create jobs"),
        ("ApiUnavailable", "create configmaps"),
        ("ApiUnavailable", "patch taskruns"),
        ("InternalError", "create persistentvolumeclaims"),
        ("Denied", "create secrets"),
        ("InvalidChild", "create jobs"),
    ] {
        let said = format!("the API server answered 500 to '{action}' of 'shop-7-v1': {HOOK}");
        let found = explain(&Scene::new(before(reason, &said)).0);
        let blocker = found.blocker.as_ref().unwrap();
        assert_eq!(
            (
                found.state,
                blocker.object.kind.as_str(),
                blocker.reason.as_str()
            ),
            (Blocked, "AdmissionWebhook", "WebhookDown"),
            "{reason} {action}"
        );
        assert!(found.outdated.is_none(), "{reason} {action}");
    }
}

/// The words "Wait" and "Nothing" are two instructions. An empty advice is no block.
#[test]
fn an_advice_is_one_instruction() {
    for case in all() {
        let found = explain(&case.world);
        let advice = &found.advice;
        assert!(!advice.starts_with("Nothing:"), "{}: {advice}", case.name);
        assert!(
            !(advice.starts_with("Wait") && advice.contains("Nothing")),
            "{}: {advice}",
            case.name
        );
        let text = render(&found, 100, false);
        assert_eq!(text.contains("To do:"), !advice.is_empty(), "{}", case.name);
        let is_well = matches!(found.state, State::Succeeded | State::Ready);
        assert!(is_well || !advice.is_empty(), "{}", case.name);
    }
}
