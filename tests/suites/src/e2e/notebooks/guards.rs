//! Secrets, volumes, GPUs, and fields that are rejected.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    core::v1::{ConfigMap, PersistentVolumeClaim, Secret},
    events::v1::Event,
};
use kube::api::ListParams;
use serde_json::{Value, json};

use super::fixture::{Bench, NOTEBOOK, brief, cell, pod, source, stdout, with_golden};

/// The value of a user's Secret that no object may have.
const CANARY: &str = "c4n4ry-of-the-team";

/// A notebook prints a Secret in several forms. The runner masks it in the result; no status, Event, log or metric has it.
pub(super) async fn canary(bench: &Bench) -> Result<String> {
    let secret = json!({ "metadata": { "name": "api" }, "stringData": { "key": CANARY } });
    bench.env.create::<Secret>(secret).await?;
    let config = pod(json!({
        "env": [{ "name": "KEY", "valueFrom": { "secretKeyRef": { "name": "api", "key": "key" } } }],
        "volumes": [{ "name": "api", "secret": { "secretName": "api" } }],
        "volumeMounts": [{ "name": "api", "mountPath": "/api", "readOnly": true }],
    }));
    let read = "import base64, os\nkey = os.environ['KEY']\nassert open('/api/key').read() == key\n\
        print(key, base64.b64encode(key.encode()).decode())";
    let run = [cell(read, &[]), cell("raise ValueError(key)", &[])];
    let golden = [
        cell(read, &[stdout("nothing\n")]),
        cell("raise ValueError(key)", &[]),
    ];
    let more = json!({ "podConfig": config, "results": { "store": "Full" } });
    bench.compare("canary", &run, &golden, more).await?;
    let status = bench
        .fails("canary", "CellFailed", &["cell 1", "***"])
        .await?;
    let full = bench.full_result(&status).await?.to_string();
    ensure!(full.contains("***"), "nothing is masked: {full}");
    let all = ListParams::default();
    let jobs = serde_json::to_string(&bench.runs().list(&all).await?.items)?;
    let events = serde_json::to_string(&bench.env.api::<Event>().list(&all).await?.items)?;
    let maps = serde_json::to_string(&bench.env.api::<ConfigMap>().list(&all).await?.items)?;
    let job = bench.runs().get("canary").await?;
    let runner = bench.log_of(&job, "runner").await?;
    for (place, text) in [
        ("result", &full),
        ("jobs", &jobs),
        ("Events", &events),
        ("ConfigMaps", &maps),
        ("operator's log", &bench.operator.log_text()?),
        ("metrics", &bench.operator.metrics().await?),
        ("runner's log", &runner),
    ] {
        ensure!(!text.contains(CANARY), "the Secret is in the {place}");
    }
    Ok(brief(&status))
}

/// The kernel mounts neither the Git credentials nor the inputs, and has no token by default.
pub(super) async fn separated(bench: &Bench) -> Result<String> {
    let search = "import os\n\
        for path in ['/credentials', '/golden-credentials', '/inputs', '/secrets', '/var/run/secrets/kubernetes.io']:\n    \
        assert not os.path.exists(path), path\n\
        assert os.getuid() == 65532, os.getuid()\n\
        print(sorted(os.listdir('/link')))";
    bench.run("searches", &[search], json!({})).await?;
    let status = bench.succeeds("searches", &["1 cells ran"]).await?;
    Ok(brief(&status))
}

/// A GPU that no node has is named, with the reason of the scheduler.
pub(super) async fn no_gpu(bench: &Bench) -> Result<String> {
    let config =
        pod(json!({ "resources": { "limits": { "memory": "256Mi", "example.com/gpu": "1" } } }));
    let more = json!({ "podConfig": config, "startTimeout": "20s" });
    bench.run("gpu", &["1"], more).await?;
    bench
        .waits_for("gpu", "Unschedulable", &["example.com/gpu"])
        .await?;
    let status = bench
        .fails("gpu", "StartTimeout", &["example.com/gpu"])
        .await?;
    Ok(brief(&status))
}

/// A claim is mounted read-only by default, and keeps its data.
pub(super) async fn claim(bench: &Bench) -> Result<String> {
    let claim = json!({
        "metadata": { "name": "data" },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "64Mi" } },
        },
    });
    bench.env.create::<PersistentVolumeClaim>(claim).await?;
    let with = |source: Value, mount: bool| {
        pod(json!({
            "volumes": [{ "name": "data", "persistentVolumeClaim": source }],
            "volumeMounts": [{ "name": "data", "mountPath": "/data", "readOnly": mount }],
        }))
    };
    let writable = with(json!({ "claimName": "data", "readOnly": false }), false);
    bench
        .run(
            "writes",
            &["open('/data/file', 'w').write('left')"],
            json!({ "podConfig": writable }),
        )
        .await?;
    bench.succeeds("writes", &[]).await?;
    let read = "assert open('/data/file').read() == 'left'\n\
        try:\n    open('/data/file', 'w')\nexcept OSError as error:\n    print(error.strerror)\nelse:\n    raise SystemError('writable')";
    let readable = with(json!({ "claimName": "data" }), true);
    bench
        .run("reads", &[read], json!({ "podConfig": readable }))
        .await?;
    let status = bench.succeeds("reads", &["1 cells ran"]).await?;
    Ok(brief(&status))
}

/// Fields that the API server rejects, each with a message that names the rule.
pub(super) async fn rejected(bench: &Bench) -> Result<String> {
    let git = |reference: &str| source(&bench.git, "any", reference);
    let notebook = |reference: &str, path: &str| json!({ "notebook": { "git": git(reference), "path": path } });
    let config = |more: Value| json!({ "podConfig": pod(more) });
    let mount = |path: &str| {
        config(json!({
            "volumes": [{ "name": "a", "emptyDir": {} }],
            "volumeMounts": [{ "name": "a", "mountPath": path }],
        }))
    };
    let variable = |name: &str| config(json!({ "env": [{ "name": name, "value": "x" }] }));
    let mut count = 0;
    for (spec, says) in [
        (
            notebook("--upload-pack=x", NOTEBOOK),
            "must be a full commit ID",
        ),
        (
            notebook("refs/pull/1", NOTEBOOK),
            "must be a full commit ID",
        ),
        (notebook("main", "a.py"), ".ipynb"),
        (notebook("main", "../a.ipynb"), "path"),
        (mount("/workspace/source"), "must not be"),
        (mount("/orchestrator"), "must not be"),
        (mount("/inputs"), "must not be"),
        (mount("/link/x"), "must not be"),
        (mount("/etc"), "must not be"),
        (variable("HOME"), "must not be 'HOME'"),
        (variable("JUPYTER_PATH"), "must not be 'HOME'"),
        (variable("ORCHESTRATOR_LINK"), "must not be 'HOME'"),
        (
            config(json!({ "runAsUser": 0 })),
            "greater than or equal to 1",
        ),
        (
            json!({ "validation": { "level": "production" } }),
            "golden notebook",
        ),
        (
            json!({ "comparison": { "strategy": "exact", "floatTolerance": "0.1" } }),
            "compares bytes",
        ),
        (
            json!({ "validation": { "expectedOutputs": [{ "cell": 1 }] } }),
            "must have a check",
        ),
    ] {
        let refused = bench.submit("any", spec.clone()).await;
        let error = refused.err().with_context(|| format!("accepted: {spec}"))?;
        let text = format!("{error:#}");
        ensure!(text.contains(says), "'{says}' is not in '{text}'");
        count += 1;
    }
    Ok(format!("{count} specs rejected"))
}

/// An accepted job cannot change but in the fields that users may change.
pub(super) async fn immutable(bench: &Bench) -> Result<String> {
    bench
        .repository("fixed", &[(NOTEBOOK, &super::fixture::sources(&["1"]))])
        .await?;
    bench.submit("fixed", json!({ "suspend": true })).await?;
    let says = "cannot be changed; submit another NotebookValidationJob";
    for spec in [
        json!({ "notebook": { "path": "other.ipynb" } }),
        json!({ "podConfig": { "containerImage": "other:1" } }),
        json!({ "comparison": { "strategy": "exact" } }),
        with_golden(),
    ] {
        bench
            .refuses("fixed", json!({ "spec": spec }), says)
            .await?;
    }
    let change = json!({ "spec": {
        "timeout": "10m", "retry": { "maxAttempts": 2 }, "childTTL": { "failed": "1h" }, "results": { "ttl": "1h" },
    } });
    bench.patch("fixed", change).await?;
    bench.resume("fixed").await?;
    let job = bench
        .ended("fixed", &super::fixture::Expect::after(&["Suspended"]))
        .await?;
    Ok(brief(&job.status.unwrap_or_default()))
}
