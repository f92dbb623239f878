//! What the API server refuses and what it writes down.

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt;
use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, Pod, ResourceQuota},
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams},
};
use serde_json::json;
use testkit::{
    audit::Request,
    suite::Env,
    wait::{met, until},
};

use super::fixture::{LIMIT, create, pod, pod_with, refused, typed};

pub(super) async fn quota(env: Env) -> Result<String> {
    let quota: ResourceQuota =
        typed(json!({"metadata": {"name": "one"}, "spec": {"hard": {"pods": "1"}}}))?;
    create(&env, quota).await?;
    let quotas: Api<ResourceQuota> = env.api();
    until("the quota to be counted", LIMIT, async || {
        let counted = quotas
            .get("one")
            .await?
            .status
            .and_then(|status| status.hard)
            .is_some();
        Ok(met(counted, || "no status".to_owned()))
    })
    .await?;
    // Admission has a view of its own, which may be older than what was just read.
    let first = pod("first", "sleep 3600")?;
    until("the first Pod to be let in", LIMIT, async || {
        let pods: Api<Pod> = env.api();
        Ok(match pods.create(&PostParams::default(), &first).await {
            Ok(_pod) => Ok(()),
            Err(kube::Error::Api(status))
                if status.message.contains("status unknown for quota") =>
            {
                Err(status.message.clone())
            }
            Err(error) => return Err(error.into()),
        })
    })
    .await?;
    let second = env
        .api::<Pod>()
        .create(&PostParams::default(), &pod("second", "true")?)
        .await;
    refused(second, "exceeded quota: one")
}

pub(super) async fn pod_security(env: Env) -> Result<String> {
    let namespaces: Api<Namespace> = Api::all(env.client.clone());
    let label =
        json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    namespaces
        .patch(
            &env.namespace,
            &PatchParams::default(),
            &Patch::Merge(label),
        )
        .await?;
    let privileged = pod_with(
        "privileged",
        "true",
        json!({"securityContext": {"privileged": true}}),
    )?;
    // Admission has a view of its own of the namespace's labels.
    let tried = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    until("the label to be known", LIMIT, async || {
        let pods: Api<Pod> = env.api();
        Ok(match pods.create(&tried, &privileged).await {
            Ok(_pod) => Err("it would be let in".to_owned()),
            Err(_said) => Ok(()),
        })
    })
    .await?;
    let said = refused(
        env.api::<Pod>()
            .create(&PostParams::default(), &privileged)
            .await,
        "violates PodSecurity",
    )?;
    ensure!(
        said.contains("privileged"),
        "the refusal does not name the field: {said}"
    );
    let modest = json!({"securityContext": {
        "runAsNonRoot": true, "runAsUser": 65532, "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    }});
    create(&env, pod_with("modest", "true", modest)?)
        .await
        .context("a Pod that keeps to 'restricted'")?;
    Ok("refused, and one that keeps to it admitted".to_owned())
}

/// Does a known number of things as a user of its own, and asks the log.
pub(super) async fn audit(env: Env) -> Result<String> {
    let log = env.testbed("reading the audit log")?.audit();
    let user = format!("auditor-{}", env.namespace);
    let role: Role = typed(json!({
        "metadata": {"name": "auditor"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get", "list", "watch", "patch", "delete"]}],
    }))?;
    create(&env, role).await?;
    let binding: RoleBinding = typed(json!({
        "metadata": {"name": "auditor"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "auditor"},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    }))?;
    create(&env, binding).await?;
    let mut config = env.config.clone();
    config.auth_info.impersonate = Some(user.clone());
    let client = Client::try_from(config)?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &env.namespace);
    let before = log.mark(&env.client).await?;

    for index in 0..7 {
        let map: ConfigMap = typed(json!({"metadata": {"name": format!("map-{index}")}}))?;
        maps.create(&PostParams::default(), &map).await?;
    }
    for index in 0..5 {
        maps.get(&format!("map-{index}")).await?;
    }
    let data = json!({"data": {"key": "value"}});
    for index in 0..3 {
        maps.patch(
            &format!("map-{index}"),
            &PatchParams::default(),
            &Patch::Merge(&data),
        )
        .await?;
    }
    for _ in 0..2 {
        maps.list(&ListParams::default()).await?;
    }
    {
        let events = maps.watch(&WatchParams::default().timeout(2), "0").await?;
        let seen = Box::pin(events).try_next().await?;
        ensure!(seen.is_some(), "the watch saw nothing");
    }
    for index in 0..4 {
        maps.delete(&format!("map-{index}"), &DeleteParams::default())
            .await?;
    }
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(client, &env.namespace);
    refused(secrets.get("none").await, "forbidden")?;
    // Another user's work in the same place must not be counted.
    env.api::<ConfigMap>().get("map-6").await?;

    let counts = log.counts(&env.client, before).await?;
    let of = |verb: &str, resource: &str| {
        let wanted = Request {
            user: user.clone(),
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            namespace: env.namespace.clone(),
        };
        counts.of(|request| *request == wanted)
    };
    let wanted = [
        ("create", 7),
        ("get", 5),
        ("patch", 3),
        ("list", 2),
        ("watch", 1),
        ("delete", 4),
    ];
    for (verb, times) in wanted {
        let found = of(verb, "configmaps");
        ensure!(
            found == times,
            "{verb} was done {times} times, the log says {found}:\n{counts}"
        );
    }
    ensure!(
        of("get", "secrets") == 1,
        "the refused request is not in the log:\n{counts}"
    );
    let all = counts.of(|request| request.user == user);
    ensure!(
        all == 23,
        "23 requests were made, the log says {all}:\n{counts}"
    );
    Ok(format!("{all} requests of 7 kinds, each count equal"))
}
