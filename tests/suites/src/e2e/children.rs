//! What is left of a run's children, and whether the API server would create one.

use std::{fmt::Debug, time::Duration};

use anyhow::{Result, ensure};
use api::names;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        batch::v1::Job,
        core::v1::{ConfigMap, Namespace, Pod, ResourceQuota},
    },
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use testkit::{
    suite::Env,
    wait::{met, until},
};
use tokio::time::Instant;

use super::children;

/// Jobs, Pods and ConfigMaps.
pub(super) type Counts = (usize, usize, usize);

/// How many are left.
pub(super) async fn left(env: &Env, run: &(impl ResourceExt + Sync)) -> Result<Counts> {
    let ours = children(&run.uid().unwrap_or_default());
    let jobs = env.api::<Job>().list(&ours).await?.items.len();
    let pods = env.api::<Pod>().list(&ours).await?.items.len();
    let maps = env.api::<ConfigMap>().list(&ours).await?.items.len();
    Ok((jobs, pods, maps))
}

/// Waits until exactly these are left.
pub(super) async fn until_left(
    env: &Env,
    run: &(impl ResourceExt + Sync),
    wanted: Counts,
    within: Duration,
) -> Result<()> {
    let what = format!("{wanted:?} children of {}", run.name_any());
    until(&what, within, async || {
        let seen = left(env, run).await?;
        Ok(met(seen == wanted, || {
            format!("{seen:?} Jobs, Pods, ConfigMaps")
        }))
    })
    .await
}

/// These are left, and stay so for a while.
pub(super) async fn keeps(
    env: &Env,
    run: &(impl ResourceExt + Sync),
    wanted: Counts,
) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(4);
    while Instant::now() < end {
        let seen = left(env, run).await?;
        ensure!(seen == wanted, "{seen:?}, wanted {wanted:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Sets or removes the annotation that keeps the children of a run.
pub(super) fn preserve(value: Option<&str>) -> Value {
    json!({ "metadata": { "annotations": { names::PRESERVE: value } } })
}

/// Waits until an object is gone.
pub(super) async fn until_gone<K>(objects: &Api<K>, name: &str, within: Duration) -> Result<()>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    until(&format!("'{name}' to be gone"), within, async || {
        Ok(match objects.get_opt(name).await? {
            None => Ok(()),
            Some(seen) => Err(format!("there, with {:?}", seen.finalizers())),
        })
    })
    .await
}

/// A namespace that a case deletes with what is in it.
pub(super) struct Doomed {
    namespaces: Api<Namespace>,
    pub(super) name: String,
}

impl Doomed {
    pub(super) async fn new(env: &Env) -> Result<Self> {
        let namespaces: Api<Namespace> = Api::all(env.client.clone());
        let wanted = json!({ "metadata": { "generateName": "t-doomed-" } });
        let wanted = serde_json::from_value(wanted)?;
        let made = namespaces.create(&PostParams::default(), &wanted).await?;
        let name = made.name_any();
        Ok(Self { namespaces, name })
    }

    /// Deletes it, and waits until it is gone.
    pub(super) async fn delete(self) -> Result<()> {
        let Self { namespaces, name } = self;
        namespaces.delete(&name, &DeleteParams::default()).await?;
        until(
            "the namespace to be gone",
            Duration::from_secs(90),
            async || {
                let seen = namespaces.get_opt(&name).await?;
                let status = seen.map(|seen| seen.status.and_then(|status| status.conditions));
                Ok(met(status.is_none(), || format!("{status:?}")))
            },
        )
        .await
    }
}

/// Forbids Jobs in the namespace of a case by the quota `no-jobs`, and waits until it takes effect.
pub(super) async fn forbid_jobs(env: &Env) -> Result<Api<ResourceQuota>> {
    let hard = json!({ "hard": { "count/jobs.batch": "0" } });
    let quota = json!({ "metadata": { "name": "no-jobs" }, "spec": hard });
    env.create::<ResourceQuota>(quota).await?;
    rejects_jobs(env, "exceeded quota: no-jobs").await?;
    Ok(env.api())
}

/// Waits until the API server rejects each new Job of a case with these words: a quota or a policy
/// takes effect some time after it was created.
pub(super) async fn rejects_jobs(env: &Env, words: &str) -> Result<()> {
    let template = json!({ "spec": pod_spec() });
    let job = json!({
        "metadata": { "name": "probe" }, "spec": { "suspend": true, "template": template },
    });
    rejects::<Job>(env, job, words).await
}

/// The same for Pods, which satisfy the level `restricted`.
pub(super) async fn rejects_pods(env: &Env, words: &str) -> Result<()> {
    let pod = json!({ "metadata": { "name": "probe" }, "spec": pod_spec() });
    rejects::<Pod>(env, pod, words).await
}

/// Waits until the API server calls a webhook for each child of a run, and fails to.
pub(super) async fn calls_webhook(env: &Env, kind: &str, webhook: &str) -> Result<()> {
    let labels = json!({ names::UID: "probe" });
    let metadata = json!({ "name": "probe", "labels": labels });
    let words = format!("failed calling webhook \"{webhook}\"");
    if kind == "configmaps" {
        return rejects::<ConfigMap>(env, json!({ "metadata": metadata }), &words).await;
    }
    let template = json!({ "spec": pod_spec() });
    let job = json!({
        "metadata": metadata, "spec": { "suspend": true, "template": template },
    });
    rejects::<Job>(env, job, &words).await
}

fn pod_spec() -> Value {
    json!({
        "restartPolicy": "Never",
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": { "type": "RuntimeDefault" },
        },
        "containers": [{
            "name": "x", "image": "x",
            "securityContext": {
                "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
            },
        }],
    })
}

async fn rejects<K>(env: &Env, object: Value, words: &str) -> Result<()>
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    let objects: Api<K> = env.api();
    let object: K = serde_json::from_value(object)?;
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let what = format!("a rejection with '{words}'");
    until(&what, Duration::from_secs(30), async || {
        Ok(match objects.create(&dry, &object).await {
            Ok(_) => Err("it is accepted".to_owned()),
            Err(kube::Error::Api(status)) if status.message.contains(words) => Ok(()),
            Err(kube::Error::Api(status)) => Err(status.message),
            Err(error) => return Err(error.into()),
        })
    })
    .await
}
