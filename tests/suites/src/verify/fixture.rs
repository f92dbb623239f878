//! What the cases have in common: small Pods, and looking at them.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::{
    Api, ResourceExt,
    api::{AttachParams, DeleteParams, LogParams, PostParams},
};
use serde_json::{Value, json};
use testkit::{cluster::REGISTRY, suite::Env, wait::until};
use tokio::io::AsyncReadExt;

pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// `testbed.local/NAME:1`.
pub(crate) fn image(name: &str) -> String {
    format!("{REGISTRY}/{name}:1")
}

/// A Pod with one busybox container that runs a shell script.
pub(crate) fn pod(name: &str, script: &str) -> Result<Pod> {
    pod_with(name, script, json!({}))
}

/// As [`pod`], with more in the container.
pub(crate) fn pod_with(name: &str, script: &str, container: Value) -> Result<Pod> {
    let mut whole = json!({
        "name": "main", "image": image("busybox"), "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script],
    });
    if let (Some(into), Value::Object(more)) = (whole.as_object_mut(), container) {
        into.extend(more);
    }
    Ok(serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [whole]},
    }))?)
}

/// Creates an object and returns it.
pub(crate) async fn create<K>(env: &Env, object: K) -> Result<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + serde::Serialize,
    K::DynamicType: Default,
{
    let parameters = PostParams::default();
    env.api::<K>()
        .create(&parameters, &object)
        .await
        .with_context(|| format!("cannot create '{}'", object.name_any()))
}

/// A typed object from its JSON form.
pub(crate) fn typed<K: serde::de::DeserializeOwned>(value: Value) -> Result<K> {
    Ok(serde_json::from_value(value)?)
}

/// Waits until the Pod is in `phase`; fails at once when it ends otherwise.
pub(crate) async fn phase(env: &Env, name: &str, phase: &str) -> Result<Pod> {
    let pods: Api<Pod> = env.api();
    until(&format!("Pod '{name}' to be {phase}"), LIMIT, async || {
        let pod = pods.get(name).await?;
        let now = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.clone())
            .unwrap_or_default();
        if now == phase {
            return Ok(Ok(pod));
        }
        if matches!(now.as_str(), "Succeeded" | "Failed") {
            bail!("Pod '{name}' ended as {now}: {}", summary(&pod));
        }
        Ok(Err(format!("{now}: {}", summary(&pod))))
    })
    .await
}

/// Waits for the Pod's success and returns its log.
pub(crate) async fn output(env: &Env, name: &str) -> Result<String> {
    phase(env, name, "Succeeded").await?;
    Ok(env.api::<Pod>().logs(name, &LogParams::default()).await?)
}

/// Runs a command in the Pod's container: whether it succeeded, and its output.
pub(crate) async fn exec(env: &Env, name: &str, script: &str) -> Result<(bool, String)> {
    exec_in(&env.api::<Pod>(), name, script).await
}

/// Does the same with Pods of any namespace.
pub(crate) async fn exec_in(pods: &Api<Pod>, name: &str, script: &str) -> Result<(bool, String)> {
    let parameters = AttachParams::default().stdout(true).stderr(true);
    let mut process = pods.exec(name, ["sh", "-c", script], &parameters).await?;
    let status = process.take_status().context("no status of exec")?;
    let mut text = String::new();
    process
        .stdout()
        .context("no output of exec")?
        .read_to_string(&mut text)
        .await?;
    process
        .stderr()
        .context("no errors of exec")?
        .read_to_string(&mut text)
        .await?;
    let status = status.await.context("exec ended without a status")?;
    Ok((status.status.as_deref() == Some("Success"), text))
}

/// Waits until the state of the Pod's first container is what `matches` looks for.
pub(crate) async fn container<T>(
    env: &Env,
    name: &str,
    what: &str,
    matches: impl Fn(&ContainerStatus) -> Option<T>,
) -> Result<T> {
    let pods: Api<Pod> = env.api();
    until(what, LIMIT, async || {
        let pod = pods.get(name).await?;
        let statuses = pod
            .status
            .as_ref()
            .and_then(|status| status.container_statuses.as_ref());
        let found = statuses.and_then(|list| list.first()).and_then(&matches);
        Ok(found.ok_or_else(|| summary(&pod)))
    })
    .await
}

/// Waits until no Pod of this name is left.
pub(crate) async fn gone(env: &Env, name: &str) -> Result<()> {
    let pods: Api<Pod> = env.api();
    until(&format!("Pod '{name}' to be gone"), LIMIT, async || {
        Ok(pods
            .get_opt(name)
            .await?
            .map_or(Ok(()), |pod| Err(summary(&pod))))
    })
    .await
}

/// Deletes a Pod and waits for its end.
pub(crate) async fn delete(env: &Env, name: &str) -> Result<()> {
    env.api::<Pod>()
        .delete(name, &DeleteParams::default())
        .await?;
    gone(env, name).await
}

/// The refusal must be a 403 that names its cause.
pub(crate) fn refused<T: std::fmt::Debug>(
    result: Result<T, kube::Error>,
    cause: &str,
) -> Result<String> {
    match result {
        Err(kube::Error::Api(status)) => {
            ensure!(
                status.code == 403,
                "refused with {} instead of 403: {}",
                status.code,
                status.message
            );
            ensure!(
                status.message.contains(cause),
                "the refusal does not name '{cause}': {}",
                status.message
            );
            Ok(status.message.clone())
        }
        Err(error) => Err(error.into()),
        Ok(object) => bail!("was not refused: {object:?}"),
    }
}

fn summary(pod: &Pod) -> String {
    match pod.status.as_ref().map(serde_json::to_string) {
        Some(Ok(status)) => status,
        Some(Err(error)) => error.to_string(),
        None => "no status".to_owned(),
    }
}
