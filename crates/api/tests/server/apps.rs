//! Access control for ManagedApps: for their authors and for their operator.

use anyhow::{Result, ensure};
use api::{GROUP, apps::OPERATOR};
use http::Method;
use k8s_openapi::api::{core::v1::PersistentVolumeClaim, rbac::v1::PolicyRule};
use serde_json::{Value, json};
use testkit::{
    cluster::Tier,
    suite::{self, Env},
};

use crate::{
    arena::rule,
    asks::{Ask, folder, grant, judge, take_away, until_refused, until_taken},
    policies::{bind, client_of, only_in, unbind, warnings},
    support::{Kind, create, install, taken},
};

const KUSTOMIZE: &str = "kustomize.toolkit.fluxcd.io";
const HELM: &str = "helm.toolkit.fluxcd.io";

fn app(env: &Env, what: &str, spec: &Value, refused: Option<&'static str>) -> Ask {
    Ask {
        what: what.to_owned(),
        method: Method::POST,
        path: Kind::ManagedApp.path(&env.namespace, ""),
        body: Some(Kind::ManagedApp.object("tried", spec)),
        refused,
    }
}

fn reference(name: &str, namespace: Option<&str>) -> Value {
    json!({ "name": name, "namespace": namespace })
}

/// The type of a referenced object need not be installed: the API server asks its authorizer by name.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn an_author_references_only_flux_objects_that_they_may_patch() -> Result<()> {
    suite::test(Tier::Api, "app-authors", async |env| {
        install(&env.client).await?;
        let mut policies = api::policy::apps();
        policies.retain(|policy| policy.metadata.name.as_deref() == Some("flux-references"));
        let policies = bind(&env, policies, Some(&only_in(&env.namespace))).await?;
        let writes = || rule(GROUP, "managedapps", &["create", "get", "patch", "update"]);
        let patches = |group: &str, resource: &str, name: &str| PolicyRule {
            resource_names: Some(vec![name.to_owned()]),
            ..rule(group, resource, &["patch"])
        };
        let mut clients = Vec::new();
        let mut roles = Vec::new();
        for (who, more) in [
            ("author", vec![]),
            (
                "reader",
                vec![rule(KUSTOMIZE, "kustomizations", &["get", "list", "watch"])],
            ),
            (
                "owner",
                vec![
                    patches(KUSTOMIZE, "kustomizations", "shop"),
                    patches(HELM, "helmreleases", "shop"),
                ],
            ),
        ] {
            let name = format!("{}-{who}", env.namespace);
            let mut rules = vec![writes()];
            rules.extend(more);
            grant(&env, &name, &name, rules).await?;
            clients.push(client_of(&env, &name)?);
            roles.push(name);
        }
        let [author, reader, owner] = clients.as_slice() else {
            anyhow::bail!("three clients");
        };
        let stored = json!({ "kustomizationRef": reference("theirs", Some("flux-system")) });
        taken(
            create(
                &env,
                Kind::ManagedApp,
                &Kind::ManagedApp.object("stored", &stored),
            )
            .await?,
        )?;

        let no = "must be allowed to 'patch' the Kustomization 'shop' in the namespace '";
        let elsewhere =
            "must be allowed to 'patch' the Kustomization 'shop' in the namespace 'flux-system'";
        let other = "must be allowed to 'patch' the Kustomization 'other'";
        let no_helm = "must be allowed to 'patch' the HelmRelease 'other'";
        let here = json!({ "kustomizationRef": reference("shop", None) });
        let there = json!({ "kustomizationRef": reference("shop", Some("flux-system")) });
        let with = |helm: &str| {
            json!({ "kustomizationRef": reference("shop", Some("flux-system")),
                "helmReleaseRef": reference(helm, None) })
        };
        until_refused(author, &app(&env, "here", &here, Some(no))).await?;
        until_taken(owner, &app(&env, "the owner's", &there, None)).await?;
        let change = |what: &str, body: Value, refused| Ask {
            what: what.to_owned(),
            method: Method::PATCH,
            path: Kind::ManagedApp.path(&env.namespace, "/stored"),
            body: Some(body),
            refused,
        };
        let helm = json!({ "spec": { "helmReleaseRef": { "name": "shop" } } });
        let label = json!({ "metadata": { "labels": { "a": "b" } } });
        println!(
            "{}",
            judge(
                author,
                &[
                    app(&env, "a Kustomization here", &here, Some(no)),
                    app(
                        &env,
                        "a Kustomization of another namespace",
                        &there,
                        Some(elsewhere)
                    ),
                    // Nothing of the spec changes, so nothing is asked.
                    change("a label", label, None),
                    change(
                        "a HelmRelease of a Kustomization of others",
                        helm,
                        Some("'patch' the Kustomization 'theirs'")
                    ),
                ]
            )
            .await?
        );
        println!(
            "{}",
            judge(
                reader,
                &[app(
                    &env,
                    "a Kustomization that they may read",
                    &there,
                    Some(elsewhere)
                ),]
            )
            .await?
        );
        println!(
            "{}",
            judge(
                owner,
                &[
                    app(&env, "their Kustomization", &there, None),
                    app(&env, "their HelmRelease", &with("shop"), None),
                    app(
                        &env,
                        "another Kustomization",
                        &json!({ "kustomizationRef": reference("other", None) }),
                        Some(other)
                    ),
                    app(&env, "another HelmRelease", &with("other"), Some(no_helm)),
                ]
            )
            .await?
        );
        let strange = warnings(&env, &policies).await?;
        ensure!(strange.is_empty(), "{}", strange.join("\n"));
        unbind(&env, &policies).await?;
        take_away(&env, &roles).await
    })
    .await
}

/// A stolen token of the operator changes no spec of a ManagedApp, no Pod template and no source of a volume. It creates no Pod of another
/// form, and deletes no claim of an application.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn the_token_of_the_apps_operator_writes_only_what_requests_need() -> Result<()> {
    suite::test(Tier::Api, "app-operator", async |env| {
        install(&env.client).await?;
        let user = format!("system:serviceaccount:{}:orchestrator-apps", env.namespace);
        let rules = OPERATOR.permissions.iter().map(|permission| PolicyRule {
            resource_names: (!permission.names.is_empty()).then(|| {
                permission
                    .names
                    .iter()
                    .map(|name| (*name).to_owned())
                    .collect()
            }),
            ..rule(permission.group, permission.resource, permission.verbs)
        });
        let role = format!("{}-operator", env.namespace);
        grant(&env, &role, &user, rules.collect()).await?;
        let policies = api::policy::app_operator().into_iter().map(|mut policy| {
            let spec = policy.spec.get_or_insert_default();
            spec.match_conditions = Some(vec![api::policy::by_user(&user)]);
            policy
        });
        let policies = bind(&env, policies.collect(), None).await?;
        let operator = client_of(&env, &user)?;
        let stored = Kind::ManagedApp.object("stored", &Kind::ManagedApp.least());
        taken(create(&env, Kind::ManagedApp, &stored).await?)?;
        let namespace = env.namespace.as_str();
        let ask = |what: &str, method: Method, path: String, body: Option<Value>, refused| Ask {
            what: what.to_owned(),
            method,
            path,
            body,
            refused,
        };
        let app = |rest: &str| Kind::ManagedApp.path(namespace, rest);
        let lease = |name: &str| json!({ "metadata": { "name": name, "namespace": namespace } });
        let leases = folder("coordination.k8s.io", namespace, "leases");
        let status = json!({ "status": { "phase": "Degraded" } });
        let finalizers = |all: Value| json!({ "metadata": { "finalizers": all } });
        let spec = json!({ "spec": { "helmReleaseRef": { "name": "other" } } });
        let template =
            json!({ "spec": { "template": { "metadata": { "labels": { "a": "b" } } } } });
        let claim = |name: &str| {
            json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": { "name": name },
                "spec": { "accessModes": ["ReadWriteOnce"],
                    "resources": { "requests": { "storage": "1Mi" } } } })
        };
        env.create::<PersistentVolumeClaim>(claim("data")).await?;
        let pod = json!({ "metadata": { "name": "a" },
            "spec": { "containers": [{ "name": "a", "image": "a:1" }] } });
        let (patch, post, get, delete) = (Method::PATCH, Method::POST, Method::GET, Method::DELETE);
        until_taken(
            &operator,
            &ask(
                "its status",
                patch.clone(),
                app("/stored/status"),
                Some(status.clone()),
                None,
            ),
        )
        .await?;
        until_refused(
            &operator,
            &ask(
                "another Lease",
                post.clone(),
                leases.clone(),
                Some(lease("orchestrator-tasks")),
                Some("writes the Lease 'orchestrator-apps' only"),
            ),
        )
        .await?;
        let no = |resource: &'static str| Some(resource);
        println!(
            "{}",
            judge(
                &operator,
                &[
                    ask(
                        "its status",
                        patch.clone(),
                        app("/stored/status"),
                        Some(status),
                        None
                    ),
                    ask(
                        "its Lease",
                        post.clone(),
                        leases,
                        Some(lease("orchestrator-apps")),
                        None
                    ),
                    ask(
                        "its finalizer",
                        patch.clone(),
                        app("/stored"),
                        Some(finalizers(json!(["managedapps.orchestrator.io/finalizer"]))),
                        None
                    ),
                    ask(
                        "the end of its finalizer",
                        patch.clone(),
                        app("/stored"),
                        Some(finalizers(json!([]))),
                        None
                    ),
                    ask(
                        "a spec",
                        patch.clone(),
                        app("/stored"),
                        Some(spec),
                        no("never changes the spec of a ManagedApp")
                    ),
                    ask(
                        "the end of a ManagedApp",
                        delete.clone(),
                        app("/stored"),
                        None,
                        no("cannot delete resource \"managedapps\"")
                    ),
                    ask(
                        "another Pod template",
                        patch.clone(),
                        folder("apps", namespace, "deployments/web"),
                        Some(template),
                        no("cannot patch resource \"deployments\"")
                    ),
                    ask(
                        "a Pod of another form",
                        post.clone(),
                        folder("", namespace, "pods"),
                        Some(pod),
                        no("creates and deletes Pods with the label of a RollbackRequest only")
                    ),
                    ask(
                        "a claim without a snapshot",
                        post,
                        folder("", namespace, "persistentvolumeclaims"),
                        Some(claim("other")),
                        no("creates claims that are restored from a snapshot only")
                    ),
                    ask(
                        "the end of a claim that was not announced",
                        delete.clone(),
                        folder("", namespace, "persistentvolumeclaims/data"),
                        None,
                        no("deletes only its own claims, and those that it has announced")
                    ),
                    ask(
                        "the end of a volume",
                        delete,
                        "/api/v1/persistentvolumes/data".to_owned(),
                        None,
                        no("cannot delete resource \"persistentvolumes\"")
                    ),
                    ask(
                        "all Secrets",
                        get,
                        folder("", namespace, "secrets"),
                        None,
                        no("cannot list resource \"secrets\"")
                    ),
                ]
            )
            .await?
        );
        let strange = warnings(&env, &policies).await?;
        ensure!(strange.is_empty(), "{}", strange.join("\n"));
        unbind(&env, &policies).await?;
        take_away(&env, &[role]).await
    })
    .await
}
