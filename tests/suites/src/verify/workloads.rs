//! Containers run, fail and store as on any node.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{PersistentVolumeClaim, Pod},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, EvictParams, ListParams},
};
use serde_json::json;
use testkit::{
    cluster::{CSI_SOCKET, Process},
    parts,
    suite::Env,
    wait::{met, until},
};

use super::fixture::{
    LIMIT, container, create, delete, exec, gone, image, output, phase, pod, pod_with, typed,
};

pub(super) async fn job(env: Env) -> Result<String> {
    let job: Job = typed(json!({
        "metadata": {"name": "job"},
        "spec": {"backoffLimit": 0, "template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": image("busybox"), "command": ["sh", "-c", "echo written by $HOSTNAME"]}],
        }}},
    }))?;
    create(&env, job).await?;
    let jobs: Api<Job> = env.api();
    until("the Job to complete", LIMIT, async || {
        let status = jobs.get("job").await?.status.unwrap_or_default();
        if status.failed.is_some() {
            bail!("the Job failed: {status:?}");
        }
        Ok(
            if status.succeeded == Some(1) && status.completion_time.is_some() {
                Ok(())
            } else {
                Err(format!("{status:?}"))
            },
        )
    })
    .await?;
    let pods = env
        .api::<Pod>()
        .list(&ListParams::default().labels("batch.kubernetes.io/job-name=job"))
        .await?;
    ensure!(
        pods.items.len() == 1,
        "{} Pods instead of one",
        pods.items.len()
    );
    let name = pods.items[0].name_any();
    let log = output(&env, &name).await?;
    ensure!(
        log == format!("written by {name}\n"),
        "the log says '{log}'"
    );

    create(&env, pod("exec", "sleep 3600")?).await?;
    phase(&env, "exec", "Running").await?;
    let (success, said) = exec(&env, "exec", "cat /proc/1/cmdline | tr '\\0' ' '").await?;
    ensure!(success && said.contains("sleep 3600"), "exec said '{said}'");
    let (success, _) = exec(&env, "exec", "exit 3").await?;
    ensure!(!success, "exec of a failing command succeeded");
    delete(&env, "exec").await?;
    Ok(format!("'{}'", log.trim()))
}

pub(super) async fn out_of_memory(env: Env) -> Result<String> {
    let limits =
        json!({"resources": {"limits": {"memory": "32Mi"}, "requests": {"memory": "32Mi"}}});
    create(&env, pod_with("greedy", "tail /dev/zero", limits)?).await?;
    let ended = container(&env, "greedy", "the container to end", |status| {
        status.state.as_ref()?.terminated.clone()
    })
    .await?;
    let reason = ended.reason.unwrap_or_default();
    ensure!(
        reason == "OOMKilled" && ended.exit_code == 137,
        "ended with '{reason}' and {}",
        ended.exit_code
    );
    Ok(format!("{reason}, exit {}", ended.exit_code))
}

pub(super) async fn unknown_image(env: Env) -> Result<String> {
    let mut seen = Vec::new();
    for (name, policy, wanted) in [
        ("never", "Never", "ErrImageNeverPull"),
        ("pull", "IfNotPresent", "ImagePullBackOff"),
    ] {
        let more = json!({"image": "testbed.local/unknown:1", "imagePullPolicy": policy});
        create(&env, pod_with(name, "true", more)?).await?;
        let what = format!("the reason {wanted}");
        let message = container(&env, name, &what, |status| {
            let waiting = status.state.as_ref()?.waiting.as_ref()?;
            (waiting.reason.as_deref() == Some(wanted))
                .then(|| waiting.message.clone().unwrap_or_default())
        })
        .await?;
        ensure!(
            message.contains("testbed.local/unknown:1"),
            "the message does not name the image: {message}"
        );
        seen.push(wanted);
    }
    Ok(seen.join(", "))
}

pub(super) async fn volume(env: Env) -> Result<String> {
    // The default StorageClass: on a contributor's cluster it is another one.
    let claim: PersistentVolumeClaim = typed(json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}},
    }))?;
    create(&env, claim).await?;
    for (name, script) in [
        ("writer", "hostname > /data/file && sync"),
        ("reader", "cat /data/file"),
    ] {
        let mut pod = pod_with(
            name,
            script,
            json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}),
        )?;
        if let Some(spec) = &mut pod.spec {
            spec.volumes = Some(typed(
                json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]),
            )?);
        }
        create(&env, pod).await?;
        phase(&env, name, "Succeeded").await?;
    }
    let read = output(&env, "reader").await?;
    ensure!(read == "writer\n", "the second Pod read '{read}'");
    let claim = env.api::<PersistentVolumeClaim>().get("data").await?;
    let class = claim
        .spec
        .and_then(|spec| spec.storage_class_name)
        .unwrap_or_default();
    Ok(format!("StorageClass '{class}'"))
}

pub(super) async fn eviction(env: Env) -> Result<String> {
    create(&env, pod("victim", "sleep 3600")?).await?;
    phase(&env, "victim", "Running").await?;
    let budget: PodDisruptionBudget = typed(json!({
        "metadata": {"name": "budget"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "victim"}}},
    }))?;
    create(&env, budget).await?;
    let budgets: Api<PodDisruptionBudget> = env.api();
    until("the budget to be counted", LIMIT, async || {
        let status = budgets.get("budget").await?.status.unwrap_or_default();
        Ok(met(status.expected_pods == 1, || format!("{status:?}")))
    })
    .await?;
    let pods: Api<Pod> = env.api();
    match pods.evict("victim", &EvictParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 429 => {}
        other => bail!("the budget did not stop the eviction: {other:?}"),
    }
    phase(&env, "victim", "Running").await?;
    budgets.delete("budget", &DeleteParams::default()).await?;
    pods.evict("victim", &EvictParams::default()).await?;
    gone(&env, "victim").await?;
    Ok("429 under the budget, gone without it".to_owned())
}

/// The driver answers as the specification of container storage asks.
pub(super) async fn csi_sanity(env: Env) -> Result<String> {
    let control = &env.testbed("talking to the volume driver")?.control;
    let limit = Duration::from_secs(120);
    let folder = "/var/lib/csi-sanity";
    control
        .check(Process::new("mkdir", "/bin/mkdir", ["-p", folder]), limit)
        .await?;
    let arguments = [
        format!("-csi.endpoint=unix://{CSI_SOCKET}"),
        format!("-csi.mountdir={folder}/target"),
        format!("-csi.stagingdir={folder}/staging"),
        // Its own default is larger than the filesystem of the volumes.
        "-csi.testvolumesize=104857600".to_owned(),
        "-ginkgo.no-color".to_owned(),
    ];
    let program = parts::binary("csi-sanity", "csi-sanity")?;
    let output = control
        .run(Process::new("csi-sanity", program, arguments), limit)
        .await?;
    let last = output
        .stdout
        .lines()
        .rev()
        .find(|line| line.contains(" Passed | "))
        .unwrap_or_default()
        .to_owned();
    ensure!(
        output.code == 0 && last.starts_with("SUCCESS!") && last.contains(" 0 Failed "),
        "{}{}",
        output.stdout,
        output.stderr
    );
    Ok(last)
}
