//! Access control for Tenants: for their authors and their owners.

use anyhow::{Result, bail, ensure};
use api::{GROUP, tenants::OWNER_ROLE};
use http::Method;
use k8s_openapi::api::{
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::{ClusterRole, PolicyRule, RoleBinding},
};
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta},
};
use serde_json::{Value, json};
use testkit::{
    cluster::Tier,
    suite::{self, Env},
    wait::until,
};

use crate::{
    arena::rule,
    asks::{Ask, LIMIT, RBAC, folder, grant, judge, role_ref, subject, take_away, until_refused},
    policies::{bind, client_of, make, named, tenant_references, unbind, warnings},
    support::{Kind, create, install, remove, taken},
};

pub(crate) fn gives_the_role() -> PolicyRule {
    PolicyRule {
        resource_names: Some(vec![OWNER_ROLE.to_owned()]),
        ..rule(RBAC, "clusterroles", &["bind"])
    }
}

/// Returns a request for a new Tenant with these fields.
pub(crate) fn tenant(what: &str, fields: Value, refused: Option<&'static str>) -> Ask {
    let spec = crate::arena::with(Kind::Tenant.least(), &fields);
    Ask {
        what: what.to_owned(),
        method: Method::POST,
        path: Kind::Tenant.path("", ""),
        body: Some(Kind::Tenant.object("tried", &spec)),
        refused,
    }
}

pub(crate) fn change(what: &str, name: &str, spec: Value, refused: Option<&'static str>) -> Ask {
    Ask {
        what: what.to_owned(),
        method: Method::PATCH,
        path: Kind::Tenant.path("", &format!("/{name}")),
        body: Some(json!({ "spec": spec })),
        refused,
    }
}

fn server_with(source: Value) -> Value {
    json!({ "server": { "image": "a:1", "env": [{ "name": "KEY", "valueFrom": source }] } })
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn who_writes_a_tenant_gives_no_more_than_he_could() -> Result<()> {
    suite::test(Tier::Api, "authors", async |env| {
        install(&env.client).await?;
        let policies = bind(&env, tenant_references(), None).await?;
        let writes = || rule(GROUP, "tenants", &["create", "get", "patch", "update"]);
        let mut clients = Vec::new();
        let mut roles = Vec::new();
        for (who, more) in [
            ("author", vec![]),
            ("giver", vec![gives_the_role()]),
            (
                "reader",
                vec![
                    rule("", "secrets", &["get"]),
                    rule("", "configmaps", &["get"]),
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
        let [author, giver, reader] = clients.as_slice() else {
            bail!("three clients");
        };

        let owners = json!({ "owners": [{ "kind": "User", "name": "anna" }] });
        let secret = server_with(json!({ "secretKeyRef": { "name": "vault", "key": "k" } }));
        let map = server_with(json!({ "configMapKeyRef": { "name": "map", "key": "k" } }));
        let elsewhere = crate::arena::with(secret.clone(), &json!({ "namespace": "shop" }));
        let stored = Kind::Tenant.name(&env, "stored");
        let spec = crate::arena::with(Kind::Tenant.least(), &owners);
        let spec = crate::arena::with(spec, &secret);
        taken(create(&env, Kind::Tenant, &Kind::Tenant.object(&stored, &spec)).await?)?;

        let no_owners = "must be allowed to 'bind' the ClusterRole 'orchestrator-tenant-owner'";
        let no_secret = "spec.server.env 'KEY' names the Secret 'vault': ";
        let no_map =
            "must be allowed to 'get configmaps' in the namespace 'tenant-tried', or to 'bind'";
        let not_there = "must be allowed to 'get secrets' in the namespace 'shop', or to 'bind'";
        let renamed = json!({ "displayName": "Shop" });
        let evil = json!({ "server": { "image": "evil:1" } });
        let other = json!({ "owners": [{ "kind": "User", "name": "eve" }] });
        for (what, part, words) in [
            ("owners", &owners, no_owners),
            ("a Secret", &secret, no_secret),
            ("a ConfigMap", &map, no_map),
        ] {
            until_refused(author, &tenant(what, part.clone(), Some(words))).await?;
        }
        let seen = judge(
            author,
            &[
                tenant("a Tenant that names nobody", json!({}), None),
                tenant("no owners", json!({ "owners": [] }), None),
                tenant("owners", owners.clone(), Some(no_owners)),
                tenant("a Secret", secret.clone(), Some(no_secret)),
                tenant(
                    "a Secret of another namespace",
                    elsewhere.clone(),
                    Some(not_there),
                ),
                tenant("a ConfigMap", map.clone(), Some(no_map)),
                change("another owner", &stored, other.clone(), Some(no_owners)),
                change(
                    "another program that holds a Secret",
                    &stored,
                    evil,
                    Some(no_secret),
                ),
                change(
                    "a change beside a Secret",
                    &stored,
                    renamed.clone(),
                    Some(no_secret),
                ),
                change(
                    "no owner and no program",
                    &stored,
                    json!({ "owners": null, "server": null }),
                    None,
                ),
                Ask {
                    what: "a label".to_owned(),
                    method: Method::PATCH,
                    path: Kind::Tenant.path("", &format!("/{stored}")),
                    body: Some(json!({ "metadata": { "labels": { "a": "b" } } })),
                    refused: None,
                },
            ],
        )
        .await?;
        println!("{seen}");
        let seen = judge(
            giver,
            &[
                tenant("owners by who may give the role", owners.clone(), None),
                tenant("a Secret by who may be an owner", secret.clone(), None),
                tenant("a ConfigMap by who may be an owner", map.clone(), None),
                change(
                    "another owner by who may give the role",
                    &stored,
                    other,
                    None,
                ),
            ],
        )
        .await?;
        println!("{seen}");
        let seen = judge(
            reader,
            &[
                tenant("owners by who may read", owners, Some(no_owners)),
                tenant("a Secret by who may read it", secret, None),
                tenant(
                    "one of another namespace by who may read it",
                    elsewhere,
                    None,
                ),
                tenant("a ConfigMap by who may read it", map, None),
                change(
                    "a change by who may read what it holds",
                    &stored,
                    renamed,
                    None,
                ),
            ],
        )
        .await?;
        println!("{seen}");
        let strange = warnings(&env, &policies).await?;
        ensure!(strange.is_empty(), "{}", strange.join("\n"));
        remove(&env, Kind::Tenant, &stored).await?;
        unbind(&env, &policies).await?;
        take_away(&env, &roles).await
    })
    .await
}

/// Creates a namespace with these labels and annotations, and waits until Pods can be created in
/// it.
pub(crate) async fn place(
    env: &Env,
    end: &str,
    labels: Value,
    annotations: Value,
) -> Result<String> {
    let name = format!("{}-{end}", env.namespace);
    let namespace = Namespace {
        metadata: ObjectMeta {
            labels: serde_json::from_value(labels)?,
            annotations: serde_json::from_value(annotations)?,
            ..named(&name)
        },
        ..Namespace::default()
    };
    make(&Api::all(env.client.clone()), &namespace).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(env.client.clone(), &name);
    until("the namespace's ServiceAccount", LIMIT, async || {
        let found = accounts.get_opt("default").await?;
        Ok(found.ok_or_else(|| "not there".to_owned()))
    })
    .await?;
    Ok(name)
}

/// Returns a minimal object that the operator creates, by resource.
pub(crate) fn least(resource: &str) -> Result<Value> {
    let labels = json!({ "a": "b" });
    let pod = json!({ "containers": [{ "name": "a", "image": "a:1" }] });
    let workload = json!({
        "selector": { "matchLabels": labels },
        "template": { "metadata": { "labels": labels }, "spec": pod },
    });
    Ok(match resource {
        "configmaps" | "secrets" => json!({}),
        "pods" => json!({ "spec": pod }),
        "services" => json!({ "spec": { "ports": [{ "port": 80 }] } }),
        "resourcequotas" => json!({ "spec": { "hard": { "pods": "1" } } }),
        "limitranges" => {
            json!({ "spec": { "limits": [{ "type": "Container", "max": { "cpu": "1" } }] } })
        }
        "deployments" => json!({ "spec": workload }),
        "statefulsets" => {
            let mut spec = workload;
            spec["serviceName"] = json!("a");
            json!({ "spec": spec })
        }
        "networkpolicies" => json!({ "spec": { "podSelector": {} } }),
        "rolebindings" => json!({ "roleRef": role_ref(OWNER_ROLE), "subjects": [subject("anna")] }),
        other => bail!("what does the operator make of '{other}'?"),
    })
}

pub(crate) fn on_namespace(
    what: &str,
    method: Method,
    name: &str,
    body: Option<Value>,
    refused: Option<&'static str>,
) -> Ask {
    Ask {
        what: what.to_owned(),
        method,
        path: format!("/api/v1/namespaces/{name}"),
        body,
        refused,
    }
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn an_owner_uses_his_namespace_and_cannot_open_it() -> Result<()> {
    suite::test(Tier::Api, "owner", async |env| {
        let name = format!("{}-owner", env.namespace);
        let role = ClusterRole {
            metadata: named(&name),
            ..api::policy::tenant_owner_role()
        };
        make(&Api::all(env.client.clone()), &role).await?;
        let binding = RoleBinding {
            metadata: named("owner"),
            role_ref: role_ref(&name),
            subjects: Some(vec![subject(&name)]),
        };
        make(&env.api(), &binding).await?;
        let owner = client_of(&env, &name)?;
        let here = env.namespace.as_str();
        let post = |group: &str, namespace: &str, resource: &str, body: Value, refused| Ask {
            what: format!("{resource} in '{namespace}'"),
            method: Method::POST,
            path: folder(group, namespace, resource),
            body: Some(crate::arena::with(body, &json!({ "metadata": { "name": "tried" } }))),
            refused,
        };
        let get = |group: &str, resource: &str| Ask {
            what: format!("to list {resource}"),
            method: Method::GET,
            path: folder(group, here, resource),
            body: None,
            refused: None,
        };
        let no = Some("cannot create resource");
        let rule = json!({ "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }] });
        let slice = json!({ "addressType": "IPv4", "endpoints": [] });
        let relax = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "privileged" } } });
        let mut asks = Vec::new();
        for resource in ["pods", "services", "configmaps", "secrets"] {
            asks.push(post("", here, resource, least(resource)?, None));
            asks.push(post("", "default", resource, least(resource)?, no));
        }
        for resource in ["deployments", "statefulsets"] {
            asks.push(post("apps", here, resource, least(resource)?, None));
        }
        for (group, resource) in [
            ("networking.k8s.io", "networkpolicies"),
            (RBAC, "rolebindings"),
            ("", "resourcequotas"),
            ("", "limitranges"),
        ] {
            asks.push(post(group, here, resource, least(resource)?, no));
            asks.push(get(group, resource));
        }
        asks.extend([
            post(RBAC, here, "roles", rule, no),
            post("discovery.k8s.io", here, "endpointslices", slice, no),
            post("", here, "endpoints", json!({}), no),
            post("", here, "serviceaccounts", json!({}), no),
            get("", "events"),
            get("apps", "replicasets"),
            on_namespace("to read his namespace", Method::GET, here, None, None),
            on_namespace("to relax it", Method::PATCH, here, Some(relax), Some("cannot patch resource")),
            on_namespace("to delete it", Method::DELETE, here, None, Some("cannot delete resource")),
            tenant("to make a Tenant", json!({}), no),
        ]);
        install(&env.client).await?;
        println!("{}", judge(&owner, &asks).await?);
        let roles: Api<ClusterRole> = Api::all(env.client.clone());
        roles.delete(&name, &DeleteParams::background()).await?;
        Ok(())
    })
    .await
}
