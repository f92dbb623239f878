//! The ConfigMap and the Job of a DocsRun, field by field.

use super::*;
use crate::build::contract;

const TOOLBOX: &str = "toolbox:1";

fn made(spec: Value, agent_spec: Value) -> (Value, Value) {
    let mut scene = Scene::with(spec, agent_spec);
    scene.settings = Settings {
        toolbox_image: TOOLBOX.to_owned(),
        allowed_networks: vec!["10.0.0.0/8".to_owned(), "fd00::/8".to_owned()],
        plain_http: true,
        repository_limit_mib: 100,
    };
    scene.pass();
    scene.reply();
    scene.pass();
    let decision = scene.pass();
    let mut bodies = decision.effects.iter().map(|effect| match effect {
        Effect::Ensure(manifest) => manifest.body.clone(),
        Effect::Apply(_) | Effect::Delete(_) | Effect::Patch { .. } => {
            panic!("{effect:?}")
        }
    });
    (bodies.next().unwrap(), bodies.next().unwrap())
}

/// Returns the Pod of a Job, and its containers in their order.
fn pod(spec: Value, agent_spec: Value) -> (Value, [Value; 3]) {
    let (_, job) = made(spec, agent_spec);
    let pod = job["spec"]["template"]["spec"].clone();
    let before = pod["initContainers"].as_array().unwrap().clone();
    let after = pod["containers"].as_array().unwrap().clone();
    let all: Vec<Value> = before.into_iter().chain(after).collect();
    let names: Vec<&str> = all
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["clone", "agent", "publish"]);
    assert_eq!(pod["containers"].as_array().unwrap().len(), 1);
    let [clone, agent, publish] = all.try_into().unwrap();
    (pod, [clone, agent, publish])
}

fn environment(container: &Value) -> BTreeMap<String, Value> {
    let list = container["env"].as_array().unwrap();
    let all: BTreeMap<String, Value> = list
        .iter()
        .map(|one| {
            (
                one["name"].as_str().unwrap().to_owned(),
                one["value"].clone(),
            )
        })
        .collect();
    assert_eq!(all.len(), list.len(), "each once");
    all
}

/// Returns volume, path and whether the mount is read-only.
fn mounts(container: &Value) -> Vec<(String, String, bool)> {
    let list = container["volumeMounts"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    list.iter()
        .map(|one| {
            assert_eq!(one["subPath"], Value::Null);
            (
                text(&one["name"]),
                text(&one["mountPath"]),
                one["readOnly"] == true,
            )
        })
        .collect()
}

fn mount(volume: &str, path: &str, read_only: bool) -> (String, String, bool) {
    (volume.to_owned(), path.to_owned(), read_only)
}

#[test]
fn the_pod_satisfies_the_restricted_profile() {
    let (pod, containers) = pod(json!({}), json!({"runAsUser": 1000}));
    assert_eq!(
        pod["securityContext"],
        json!({
            "runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        })
    );
    for field in ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"] {
        assert_ne!(pod[field], true, "{field}");
    }
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["restartPolicy"], "Never");
    for container in &containers {
        let context = &container["securityContext"];
        assert_eq!(context["allowPrivilegeEscalation"], false);
        assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}));
        assert_eq!(context["runAsNonRoot"], true);
        assert_ne!(context["runAsUser"], 0);
        assert_eq!(context["privileged"], Value::Null);
        assert_eq!(container["ports"], Value::Null);
        assert_eq!(container["restartPolicy"], Value::Null, "it runs once");
        assert_eq!(container["terminationMessagePath"], "/dev/termination-log");
        assert_eq!(container["terminationMessagePolicy"], "File");
    }
    for step in [&containers[0], &containers[2]] {
        assert_eq!(step["securityContext"]["readOnlyRootFilesystem"], true);
        assert_eq!(step["securityContext"]["runAsUser"], 65532);
        assert_eq!(step["image"], TOOLBOX);
        assert!(step["resources"]["limits"]["memory"].is_string());
    }
    let volumes = pod["volumes"].as_array().unwrap();
    for volume in volumes {
        let kinds: Vec<&String> = volume.as_object().unwrap().keys().collect();
        let is_plain =
            |kind: &&String| matches!(kind.as_str(), "name" | "emptyDir" | "configMap" | "secret");
        assert!(kinds.iter().all(is_plain), "{kinds:?}");
    }
}

/// The agent is hostile: it sees neither the credentials nor the directory in which `publish`
/// works.
#[test]
fn credentials_and_scratch_are_mounted_in_our_own_containers_only() {
    let (pod, [clone, agent, publish]) = pod(json!({}), json!({}));
    assert_eq!(
        mounts(&clone),
        [
            mount("workspace", "/workspace", false),
            mount("scratch", "/scratch", false),
            mount("credentials", "/credentials", true),
        ]
    );
    assert_eq!(
        mounts(&agent),
        [
            mount("workspace", "/workspace", false),
            mount("context", "/workspace/context", true),
            mount("home", "/home/agent", false),
            mount("tmp", "/tmp", false),
        ]
    );
    assert_eq!(
        mounts(&publish),
        [
            mount("workspace", "/workspace", true),
            mount("scratch", "/scratch", false),
            mount("credentials", "/credentials", true),
        ]
    );
    assert_eq!(
        pod["volumes"],
        json!([
            {"name": "context", "configMap": {"name": FILES}},
            {"name": "workspace", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "home", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "300Mi"}},
            {"name": "credentials", "secret": {
                "secretName": "git-key", "defaultMode": 0o440, "optional": false,
            }},
        ])
    );
    // Nothing of the Secret is anywhere else.
    assert!(!agent.to_string().contains("git-key"));
    let (_, job) = made(json!({}), json!({}));
    assert_eq!(job.to_string().matches("git-key").count(), 1);
}

#[test]
fn a_public_repository_needs_no_secret() {
    let (pod, [clone, _, publish]) = pod(json!({"credentialsSecretRef": null}), json!({}));
    for step in [&clone, &publish] {
        assert!(
            mounts(step)
                .iter()
                .all(|(volume, ..)| volume != "credentials")
        );
        assert_eq!(environment(step)["STEP_CREDENTIALS"], "");
    }
    let volumes = pod["volumes"].as_array().unwrap();
    assert!(volumes.iter().all(|volume| volume["secret"].is_null()));
}

#[test]
fn environments_are_kept_apart() {
    let (_, [clone, agent, publish]) = pod(
        json!({}),
        json!({
            "env": [{"name": "TOKEN", "value": CANARY}, {"name": "GIT_SSH_COMMAND", "value": "evil"}],
            "envFrom": [{"secretRef": {"name": "agents-own"}}],
            "command": ["/run"], "args": ["-v"],
        }),
    );
    for step in [&clone, &publish] {
        let names = environment(step);
        assert!(
            names.keys().all(|name| name.starts_with("STEP_")),
            "{names:?}"
        );
        assert_eq!(step["envFrom"], Value::Null);
        assert_eq!(step["args"], Value::Null);
        let text = step.to_string();
        assert!(!text.contains(CANARY) && !text.contains("agents-own") && !text.contains("evil"));
    }
    assert_eq!(clone["command"], json!(["/usr/local/bin/step", "clone"]));
    assert_eq!(
        publish["command"],
        json!(["/usr/local/bin/step", "publish"])
    );
    let names = environment(&agent);
    assert!(
        names.keys().all(|name| !name.starts_with("STEP_")),
        "{names:?}"
    );
    assert_eq!(names["TOKEN"], CANARY);
    assert_eq!(
        agent["envFrom"],
        json!([{"secretRef": {"name": "agents-own"}}])
    );
}

#[test]
fn the_steps_are_told_everything_they_need() {
    let (_, [clone, _, publish]) = pod(
        json!({
            "workingDirectory": "src", "includeCodebase": true,
            "output": {"branch": "docs/new", "path": "out/", "commitMessage": "words"},
        }),
        json!({}),
    );
    let wanted: BTreeMap<String, Value> = [
        ("STEP_URL", URL),
        ("STEP_SOURCE_BRANCH", "main"),
        ("STEP_BASE_COMMIT", BASE),
        ("STEP_OUTPUT_BRANCH", "docs/new"),
        ("STEP_OUTPUT_HEAD", ""),
        ("STEP_WORKING_DIRECTORY", "src"),
        ("STEP_INCLUDE_CODEBASE", "true"),
        ("STEP_OUTPUT_PATH", "out/"),
        ("STEP_COMMIT_MESSAGE", "words"),
        ("STEP_RUN_UID", "docs-uid"),
        ("STEP_RUN_NAME", "team/shop"),
        ("STEP_COMMIT_TIME", "1893456000"),
        ("STEP_CREDENTIALS", "/credentials"),
        ("STEP_ALLOWED_NETWORKS", "10.0.0.0/8,fd00::/8"),
        ("STEP_PLAIN_HTTP", "true"),
        ("STEP_LIMIT_MIB", "100"),
        ("STEP_TIMEOUT_SECONDS", "600"),
        ("STEP_SOURCE", "/workspace/source"),
        ("STEP_SCRATCH", "/scratch"),
        ("STEP_REPORT", "/dev/termination-log"),
    ]
    .map(|(name, value)| (name.to_owned(), json!(value)))
    .into();
    assert_eq!(environment(&clone), wanted);
    assert_eq!(environment(&publish), wanted);
    // The previous head of the branch is the one that the server reported.
    let (_, [_, _, publish]) = pod(json!({}), json!({}));
    assert_eq!(environment(&publish)["STEP_OUTPUT_HEAD"], HEAD);
    assert_eq!(environment(&publish)["STEP_COMMIT_MESSAGE"], "");
}

/// Expands a variable as the kubelet does: `$(NAME)` is replaced, `$$` becomes one `$`.
fn expanded(value: &str, known: &BTreeMap<String, Value>) -> String {
    let mut text = String::new();
    let mut rest = value;
    while let Some(index) = rest.find('$') {
        text.push_str(&rest[..index]);
        rest = &rest[index + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            text.push('$');
            rest = after;
        } else if let Some((name, after)) =
            rest.strip_prefix('(').and_then(|rest| rest.split_once(')'))
        {
            text.push_str(known.get(name).and_then(Value::as_str).unwrap_or("?"));
            rest = after;
        } else {
            text.push('$');
        }
    }
    text + rest
}

#[test]
fn a_dollar_arrives_as_it_was_written() {
    for message in [
        "costs $5",
        "$(STEP_CREDENTIALS)",
        "$$(STEP_URL)",
        "$",
        "$$$",
        "a\nb $(x",
    ] {
        let (_, [_, _, publish]) = pod(json!({"output": {"commitMessage": message}}), json!({}));
        let all = environment(&publish);
        let value = all["STEP_COMMIT_MESSAGE"].as_str().unwrap();
        assert_eq!(expanded(value, &all), message);
    }
    let (_, [clone, agent, _]) = pod(
        json!({"workingDirectory": "a$(HOME)b", "model": "$(TOKEN)"}),
        json!({}),
    );
    let (clone, agent) = (environment(&clone), environment(&agent));
    let value =
        |all: &BTreeMap<String, Value>, name: &str| expanded(all[name].as_str().unwrap(), all);
    assert_eq!(value(&clone, "STEP_WORKING_DIRECTORY"), "a$(HOME)b");
    assert_eq!(
        value(&agent, "ORCHESTRATOR_SOURCE_DIR"),
        "/workspace/source/a$(HOME)b"
    );
    assert_eq!(value(&agent, "ORCHESTRATOR_MODEL"), "$(TOKEN)");
}

#[test]
fn the_agent_finds_what_the_contract_promises() {
    let ours = |spec: Value| -> BTreeMap<String, Value> {
        let (_, [_, agent, _]) = pod(spec, json!({}));
        let mut all = environment(&agent);
        all.remove("TOKEN");
        all
    };
    let wanted: BTreeMap<String, Value> = [
        ("ORCHESTRATOR_RUN", "shop"),
        ("ORCHESTRATOR_NAMESPACE", "team"),
        ("ORCHESTRATOR_UID", "docs-uid"),
        ("ORCHESTRATOR_ATTEMPT", "1"),
        ("ORCHESTRATOR_CONTEXT_DIR", "/workspace/context"),
        ("ORCHESTRATOR_WORKSPACE", "/workspace"),
        ("ORCHESTRATOR_RESULT_FILE", "/dev/termination-log"),
        ("ORCHESTRATOR_REPOSITORY", URL),
        ("ORCHESTRATOR_BASE_COMMIT", BASE),
        ("ORCHESTRATOR_SOURCE_DIR", "/workspace/source/src"),
        ("ORCHESTRATOR_OUTPUT_DIR", "/workspace/source/docs"),
        ("ORCHESTRATOR_MODEL", "large"),
        ("HOME", "/home/agent"),
    ]
    .map(|(name, value)| (name.to_owned(), json!(value)))
    .into();
    let all = ours(json!({"workingDirectory": "src/", "model": "large"}));
    assert_eq!(all, wanted);
    // Each row of the table applies to at least one kind: to DocsRuns, or to TaskRuns only.
    let only_tasks = ["TASK_ID", "SERVICE", "CONTEXT_VERSION"];
    for row in contract::ENVIRONMENT {
        let is_tasks = only_tasks
            .iter()
            .any(|name| row.name == format!("ORCHESTRATOR_{name}"));
        assert_eq!(all.contains_key(row.name), !is_tasks, "{}", row.name);
    }
    let all = ours(json!({}));
    assert_eq!(all["ORCHESTRATOR_SOURCE_DIR"], "/workspace/source");
    assert!(!all.contains_key("ORCHESTRATOR_MODEL"));
}

#[test]
fn the_job_and_the_files_belong_to_the_run() {
    let (map, job) = made(
        json!({"instructions": [{"filename": "task.md", "content": "mine"}]}),
        json!({"instructions": [
            {"filename": "task.md", "content": "default"}, {"filename": "how.md", "content": "how"},
        ]}),
    );
    assert_eq!(map["data"], json!({"task.md": "mine", "how.md": "how"}));
    assert_eq!(map["immutable"], true);
    let labels = json!({
        "app.kubernetes.io/managed-by": "orchestrator", "orchestrator.io/kind": "DocsRun",
        "orchestrator.io/name": "shop", "orchestrator.io/uid": "docs-uid",
    });
    for body in [&map, &job] {
        assert_eq!(
            body["metadata"]["ownerReferences"],
            json!([{
                "apiVersion": "orchestrator.io/v1alpha1", "kind": "DocsRun", "name": "shop",
                "uid": "docs-uid", "controller": true, "blockOwnerDeletion": true,
            }])
        );
        assert_eq!(body["metadata"]["labels"], labels);
        assert_eq!(body["metadata"]["namespace"], "team");
    }
    let spec = &job["spec"];
    assert_eq!(spec["template"]["metadata"]["labels"], labels);
    assert_eq!(spec["backoffLimit"], 0);
    assert_eq!(spec["podReplacementPolicy"], "Failed");
    assert_eq!(spec["activeDeadlineSeconds"], 600 + 3600 + 900 + 60);
    let (_, job) = made(json!({"timeout": "30s"}), json!({"startTimeout": "1500ms"}));
    assert_eq!(job["spec"]["activeDeadlineSeconds"], 2 + 30 + 900 + 60);
}
