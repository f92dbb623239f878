//! The ConfigMap and the Job, field by field.

use std::collections::BTreeSet;

use super::*;
use crate::build::contract;

fn made(run_spec: Value, agent_spec: Value) -> (Value, Value) {
    let scene = Scene::new(run(run_spec), Some(agent(agent_spec)));
    let decision = scene.decide();
    let mut bodies = decision.effects.iter().map(|effect| {
        let Effect::Ensure(manifest) = effect else {
            panic!("{effect:?}")
        };
        assert_eq!(manifest.owner_uid, "run-uid");
        assert!(manifest.intent().is_some());
        manifest.body.clone()
    });
    (bodies.next().unwrap(), bodies.next().unwrap())
}

fn owner() -> Value {
    json!([{
        "apiVersion": "orchestrator.io/v1", "kind": "TaskRun", "name": "run-7", "uid": "run-uid",
        "controller": true, "blockOwnerDeletion": true,
    }])
}

fn labels() -> Value {
    json!({
        "app.kubernetes.io/managed-by": "orchestrator", "orchestrator.io/kind": "TaskRun",
        "orchestrator.io/name": "run-7", "orchestrator.io/uid": "run-uid",
        "task-id": "7", "service-name": "shop", "context-version": "1",
    })
}

#[test]
fn the_files_are_immutable_and_the_runs_own_win() {
    let (map, _) = made(
        json!({"markdownFiles": [
            {"filename": "task.md", "content": "mine"}, {"filename": "b.md", "content": "b"},
        ]}),
        json!({"instructions": [
            {"filename": "task.md", "content": "default"}, {"filename": "how.md", "content": "how"},
        ]}),
    );
    assert_eq!(map["immutable"], true);
    assert_eq!(
        map["data"],
        json!({"task.md": "mine", "b.md": "b", "how.md": "how"})
    );
    assert_eq!(map["metadata"]["name"], "shop-7-v1-files");
    assert_eq!(map["metadata"]["namespace"], "team");
    assert_eq!(map["metadata"]["ownerReferences"], owner());
    assert_eq!(map["metadata"]["labels"], labels());
}

#[test]
fn the_job_is_as_the_contract_says() {
    let (_, job) = made(json!({}), json!({}));
    assert_eq!(job["apiVersion"], "batch/v1");
    assert_eq!(job["metadata"]["ownerReferences"], owner());
    assert_eq!(job["metadata"]["labels"], labels());
    let spec = &job["spec"];
    for (field, expected) in [
        ("backoffLimit", json!(0)),
        ("parallelism", json!(1)),
        ("completions", json!(1)),
        ("podReplacementPolicy", json!("Failed")),
        ("activeDeadlineSeconds", json!(600 + 3600 + 60)),
        (
            "podFailurePolicy",
            json!({"rules": [{
                "action": "Ignore",
                "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
            }]}),
        ),
    ] {
        assert_eq!(spec[field], expected, "{field}");
    }
    assert_eq!(spec["template"]["metadata"]["labels"], labels());
    let pod = &spec["template"]["spec"];
    for (field, expected) in [
        ("restartPolicy", json!("Never")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("serviceAccountName", json!("default")),
        ("automountServiceAccountToken", json!(false)),
        ("enableServiceLinks", json!(false)),
        (
            "securityContext",
            json!({
                "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            }),
        ),
        (
            "volumes",
            json!([
                {"name": "context", "configMap": {"name": "shop-7-v1-files"}},
                {"name": "workspace", "emptyDir": {"sizeLimit": "1Gi"}},
                {"name": "home", "emptyDir": {}},
                {"name": "tmp", "emptyDir": {}},
            ]),
        ),
    ] {
        assert_eq!(pod[field], expected, "{field}");
    }
    for field in [
        "runtimeClassName",
        "nodeSelector",
        "tolerations",
        "priorityClassName",
        "imagePullSecrets",
        "affinity",
    ] {
        assert_eq!(pod[field], Value::Null, "{field}");
    }
    assert_eq!(pod["containers"].as_array().unwrap().len(), 1);
    let container = &pod["containers"][0];
    for (field, expected) in [
        ("name", json!("agent")),
        ("image", json!("agents/writer:1")),
        ("imagePullPolicy", Value::Null),
        ("command", Value::Null),
        ("workingDir", json!("/workspace")),
        ("terminationMessagePath", json!("/dev/termination-log")),
        ("terminationMessagePolicy", json!("File")),
        (
            "resources",
            json!({"requests": {"cpu": "100m"}, "limits": {"memory": "256Mi"}}),
        ),
        (
            "securityContext",
            json!({
                "allowPrivilegeEscalation": false, "runAsNonRoot": true,
                "capabilities": {"drop": ["ALL"]},
            }),
        ),
        (
            "volumeMounts",
            json!([
                {"name": "workspace", "mountPath": "/workspace"},
                {"name": "context", "mountPath": "/workspace/context", "readOnly": true},
                {"name": "home", "mountPath": "/home/agent"},
                {"name": "tmp", "mountPath": "/tmp"},
            ]),
        ),
    ] {
        assert_eq!(container[field], expected, "{field}");
    }
    assert_eq!(
        container["env"],
        json!([
            {"name": "ORCHESTRATOR_RUN", "value": "run-7"},
            {"name": "ORCHESTRATOR_NAMESPACE", "value": "team"},
            {"name": "ORCHESTRATOR_UID", "value": "run-uid"},
            {"name": "ORCHESTRATOR_TASK_ID", "value": "7"},
            {"name": "ORCHESTRATOR_SERVICE", "value": "shop"},
            {"name": "ORCHESTRATOR_CONTEXT_VERSION", "value": "1"},
            {"name": "ORCHESTRATOR_ATTEMPT", "value": "1"},
            {"name": "ORCHESTRATOR_CONTEXT_DIR", "value": "/workspace/context"},
            {"name": "ORCHESTRATOR_WORKSPACE", "value": "/workspace"},
            {"name": "ORCHESTRATOR_RESULT_FILE", "value": "/dev/termination-log"},
            {"name": "HOME", "value": "/home/agent"},
            {"name": "TOKEN", "value": CANARY},
        ])
    );
}

/// Every field of an Agent's spec reaches the Job, or counts for the judgment. A field without an
/// effect must not exist.
#[test]
fn every_field_of_an_agent_is_passed_on() {
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"},
    ]}});
    let spec = json!({
        "image": "agents/writer@sha256:1", "command": ["/run"], "args": ["-v"],
        "env": [
            {"name": "A", "value": "$(ORCHESTRATOR_RUN)"},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": true}}},
        ],
        "envFrom": [
            {"prefix": "P_", "secretRef": {"name": "s"}}, {"configMapRef": {"name": "c"}},
        ],
        "resources": {"requests": {"cpu": "1"}, "limits": {"memory": 2, "cpu": "2"}},
        "imagePullPolicy": "Always", "imagePullSecrets": [{"name": "pull"}],
        "runAsUser": 1000, "serviceAccountName": "bot", "automountToken": true,
        "contextPath": "/context", "workspace": {"size": "5Gi", "storageClassName": "fast"},
        "timeout": "90s", "startTimeout": "1500ms",
        "runtimeClassName": "sandbox", "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}], "priorityClassName": "low",
        "affinity": affinity,
        // The schema rejects our own key. It must not reach the Pod in any case.
        "podLabels": {"team": "writers", "orchestrator.io/uid": "forged"},
        "podAnnotations": {"example.com/owner": "a", "orchestrator.io/attempt-spec": "forged"},
        "volumes": [
            {"name": "keys", "mountPath": "/keys", "secretRef": {"name": "s"}},
            {"name": "rules", "mountPath": "/rules", "configMapRef": {"name": "c"}},
            {"name": "data", "mountPath": "/data", "persistentVolumeClaimRef": {"name": "p"}},
            {"name": "out", "mountPath": "/out", "persistentVolumeClaimRef": {"name": "q"}, "readOnly": false},
        ],
    });
    let (_, job) = made(json!({"timeout": "30s"}), spec);
    assert_eq!(
        job["spec"]["activeDeadlineSeconds"],
        2 + 30 + 60,
        "the run's timeout, rounded up"
    );
    let pod = &job["spec"]["template"]["spec"];
    for (field, expected) in [
        ("serviceAccountName", json!("bot")),
        ("automountServiceAccountToken", json!(true)),
        ("runtimeClassName", json!("sandbox")),
        ("nodeSelector", json!({"disk": "ssd"})),
        ("tolerations", json!([{"key": "gpu", "operator": "Exists"}])),
        ("priorityClassName", json!("low")),
        ("imagePullSecrets", json!([{"name": "pull"}])),
        ("affinity", affinity),
    ] {
        assert_eq!(pod[field], expected, "{field}");
    }
    let metadata = &job["spec"]["template"]["metadata"];
    let mut pod_labels = labels();
    pod_labels["team"] = json!("writers");
    assert_eq!(metadata["labels"], pod_labels);
    let annotations = &metadata["annotations"];
    assert_eq!(annotations["example.com/owner"], "a");
    assert_ne!(annotations["orchestrator.io/attempt-spec"], "forged");
    assert_eq!(annotations.as_object().unwrap().len(), 2);
    assert_eq!(
        pod["volumes"].as_array().unwrap()[4..],
        [
            json!({"name": "volume-keys", "secret": {"secretName": "s"}}),
            json!({"name": "volume-rules", "configMap": {"name": "c"}}),
            json!({"name": "volume-data", "persistentVolumeClaim": {"claimName": "p", "readOnly": true}}),
            json!({"name": "volume-out", "persistentVolumeClaim": {"claimName": "q"}}),
        ]
    );
    for field in ["runAsUser", "runAsGroup", "fsGroup"] {
        assert_eq!(pod["securityContext"][field], 1000, "{field}");
    }
    assert_eq!(
        pod["volumes"][1],
        json!({"name": "workspace", "ephemeral": {"volumeClaimTemplate": {"spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "resources": {"requests": {"storage": "5Gi"}},
        }}}})
    );
    let container = &pod["containers"][0];
    for (field, expected) in [
        ("image", json!("agents/writer@sha256:1")),
        ("command", json!(["/run"])),
        ("args", json!(["-v"])),
        ("imagePullPolicy", json!("Always")),
        (
            "resources",
            json!({"requests": {"cpu": "1"}, "limits": {"memory": "2", "cpu": "2"}}),
        ),
        (
            "envFrom",
            json!([
                {"prefix": "P_", "secretRef": {"name": "s"}}, {"configMapRef": {"name": "c"}},
            ]),
        ),
    ] {
        assert_eq!(container[field], expected, "{field}");
    }
    let env = container["env"].as_array().unwrap();
    assert_eq!(
        env[env.iter().position(|one| one["name"] == "HOME").unwrap() + 1..],
        [
            json!({"name": "A", "value": "$(ORCHESTRATOR_RUN)"}),
            json!({"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": false}}}),
            json!({"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": true}}}),
        ]
    );
    assert_eq!(container["volumeMounts"][1]["mountPath"], "/context");
    assert_eq!(
        container["volumeMounts"].as_array().unwrap()[4..],
        [
            json!({"name": "volume-keys", "mountPath": "/keys", "readOnly": true}),
            json!({"name": "volume-rules", "mountPath": "/rules", "readOnly": true}),
            json!({"name": "volume-data", "mountPath": "/data", "readOnly": true}),
            json!({"name": "volume-out", "mountPath": "/out"}),
        ]
    );
}

#[test]
fn a_value_of_ours_is_not_expanded() {
    let (_, job) = made(json!({"serviceName": "a$(HOME)$b"}), json!({}));
    let service = job
        .pointer("/spec/template/spec/containers/0/env/4/value")
        .unwrap();
    assert_eq!(service, "a$$(HOME)$$b");
}

#[test]
fn the_terms_of_an_attempt_are_read_back_as_they_were() {
    let scene = Scene::started_with(
        json!({}),
        json!({
            "timeout": "90s", "startTimeout": "1500ms", "runAsUser": 1000,
            "results": [{"name": "a", "required": true}, {"name": "b"}],
        }),
    );
    let attempt_spec = scene.world.children.jobs[0].terms.clone().unwrap();
    assert_eq!(
        attempt_spec,
        attempts::AttemptSpec {
            start_timeout_ms: 1500,
            timeout_ms: 90_000,
            required: vec!["a".to_owned()],
            memory: Some("256Mi".to_owned()),
            user: 1000,
        }
    );
}

#[test]
fn the_contract_has_each_name_once_and_explains_it() {
    let names: BTreeSet<&str> = contract::ENVIRONMENT.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), contract::ENVIRONMENT.len());
    for row in contract::ENVIRONMENT {
        assert!(row.name.starts_with(contract::RESERVED) || row.name == "HOME");
        assert!(row.meaning.ends_with('.'), "{}", row.name);
    }
    for row in contract::MOUNTS {
        assert!(row.meaning.ends_with('.'), "{}", row.volume);
    }
    for rules in [contract::EXIT_CODES, contract::RESULTS, contract::STOPPING] {
        assert!(rules.iter().all(|rule| rule.then.ends_with('.')));
    }
    // The texts of the tables match the constants.
    assert_eq!(
        (contract::RESULT_LIMIT, contract::GRACE_SECONDS),
        (4096, 30)
    );
}

#[test]
fn the_same_input_makes_the_same_intent() {
    let (map, job) = made(json!({}), json!({}));
    let (same_map, same_job) = made(json!({}), json!({}));
    assert_eq!((&map, &job), (&same_map, &same_job));
    let (other_map, other_job) = made(json!({"taskId": 8}), json!({"image": "other:1"}));
    let intent =
        |body: &Value| body["metadata"]["annotations"]["orchestrator.io/spec-hash"].clone();
    assert_eq!(intent(&map), intent(&other_map), "the files are the same");
    assert_ne!(intent(&job), intent(&other_job));
}
