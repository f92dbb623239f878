//! The operator of Tenants writes only in namespaces of Tenants.

use anyhow::{Context, Result, ensure};
use api::{
    names,
    rbac::{Permission, Scope},
    tenants::OPERATOR,
};
use http::Method;
use k8s_openapi::api::{
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::PolicyRule,
};
use kube::{Api, api::DeleteParams};
use serde_json::{Value, json};
use testkit::{
    cluster::Tier,
    suite::{self, Env},
};

use crate::{
    arena::rule,
    asks::{Ask, folder, grant, judge, take_away, until_refused},
    policies::{bind, client_of, make, named, unbind, warnings},
    support::{install, send, taken},
    tenants::{least, on_namespace, place},
};

/// Returns requests for everything that the operator may create in namespaces, in this namespace.
fn everything(namespace: &str, refused: Option<&'static str>) -> Result<Vec<Ask>> {
    let mut asks = Vec::new();
    for Permission {
        group,
        resource,
        verbs,
        scope,
        ..
    } in OPERATOR.permissions
    {
        if *scope != Scope::Watched || !verbs.contains(&"create") || *resource == "events" {
            continue;
        }
        let mut body = least(resource)?;
        body["metadata"] = json!({ "name": "tenant-redis" });
        asks.push(Ask {
            what: format!("{resource} in '{namespace}'"),
            method: Method::POST,
            path: folder(group, namespace, resource),
            body: Some(body),
            refused,
        });
    }
    ensure!(asks.len() >= 10, "only {} types", asks.len());
    Ok(asks)
}

/// Returns a request for a probe Pod, with these changes of its spec.
fn probe(
    what: &str,
    namespace: &str,
    component: &str,
    fields: Value,
    refused: Option<&'static str>,
) -> Ask {
    let spec = json!({
        "automountServiceAccountToken": false,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": { "type": "RuntimeDefault" },
        },
        "containers": [{
            "name": "a", "image": "a:1", "env": [{ "name": "PLAN", "value": "x" }],
            "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
        }],
    });
    Ask {
        what: what.to_owned(),
        method: Method::POST,
        path: folder("", namespace, "pods"),
        body: Some(json!({
            "metadata": { "name": "probe", "labels": { "orchestrator.io/component": component } },
            "spec": crate::arena::with(spec, &fields),
        })),
        refused,
    }
}

/// Returns requests of the operator in its own namespace.
fn at_home(home: &str) -> Vec<Ask> {
    let no =
        Some("writes Pods in namespaces of Tenants only, and in its own such as try connections");
    let context = json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } });
    let bounded = json!({ "name": "a", "image": "a:1", "securityContext": context });
    let env = |more: Value| json!({ "containers": [crate::arena::with(bounded.clone(), &more)] });
    let secured =
        |more: Value| env(json!({ "securityContext": crate::arena::with(context.clone(), &more) }));
    let source = json!({ "secretKeyRef": { "name": "s", "key": "k" } });
    let volume = json!([{ "name": "a", "secret": { "secretName": "s" } }]);
    let delete = |what: &str, name: &str, refused| Ask {
        what: what.to_owned(),
        method: Method::DELETE,
        path: folder("", home, &format!("pods/{name}")),
        body: None,
        refused,
    };
    vec![
        probe(
            "a Pod that tries connections",
            home,
            "probe",
            json!({}),
            None,
        ),
        probe("another Pod at home", home, "server", json!({}), no),
        probe(
            "one with a token",
            home,
            "probe",
            json!({ "automountServiceAccountToken": true }),
            no,
        ),
        probe(
            "one that says nothing of a token",
            home,
            "probe",
            json!({ "automountServiceAccountToken": null }),
            no,
        ),
        probe(
            "one of another account",
            home,
            "probe",
            json!({ "serviceAccountName": "robot" }),
            no,
        ),
        probe(
            "one with a volume",
            home,
            "probe",
            json!({ "volumes": volume }),
            no,
        ),
        probe(
            "one with a Secret in a variable",
            home,
            "probe",
            env(json!({ "env": [{ "name": "A", "valueFrom": source }] })),
            no,
        ),
        probe(
            "one with all of a Secret",
            home,
            "probe",
            env(json!({ "envFrom": [{ "secretRef": { "name": "s" } }] })),
            no,
        ),
        probe(
            "one that begins with another",
            home,
            "probe",
            json!({ "initContainers": [{ "name": "b", "image": "a:1" }] }),
            no,
        ),
        probe(
            "one in the node's network",
            home,
            "probe",
            json!({ "hostNetwork": true }),
            no,
        ),
        probe(
            "one among the node's processes",
            home,
            "probe",
            json!({ "hostPID": true }),
            no,
        ),
        probe(
            "one with the node's memory",
            home,
            "probe",
            json!({ "hostIPC": true }),
            no,
        ),
        probe(
            "one that says nothing of privileges",
            home,
            "probe",
            env(json!({ "securityContext": null })),
            no,
        ),
        probe(
            "one as root",
            home,
            "probe",
            secured(json!({ "runAsNonRoot": false, "runAsUser": 0 })),
            no,
        ),
        probe(
            "one that keeps capabilities",
            home,
            "probe",
            secured(json!({ "capabilities": {} })),
            no,
        ),
        probe(
            "one on a node of its choice",
            home,
            "probe",
            json!({ "nodeName": "node-1" }),
            no,
        ),
        probe(
            "one with a port of the node",
            home,
            "probe",
            env(json!({ "ports": [{ "containerPort": 80, "hostPort": 80 }] })),
            no,
        ),
        probe(
            "a privileged one",
            home,
            "probe",
            env(json!({ "securityContext": { "privileged": true } })),
            no,
        ),
        probe(
            "one that may do more than others",
            home,
            "probe",
            secured(json!({ "capabilities": { "drop": ["ALL"], "add": ["NET_ADMIN"] } })),
            no,
        ),
        delete("the end of a Pod that tried connections", "tried", None),
        delete("the end of another's Pod", "another", no),
    ]
}

/// Creates Pods that the test deletes.
async fn pods_at_home(env: &Env) -> Result<()> {
    for (name, component) in [("tried", "probe"), ("another", "tasks")] {
        let made = probe("", &env.namespace, component, json!({}), None);
        let mut body = made.body.context("no Pod")?;
        body["metadata"]["name"] = json!(name);
        taken(send(&env.client, Method::POST, &made.path, "", Some(&body)).await?)?;
    }
    let account = ServiceAccount {
        metadata: named("robot"),
        ..ServiceAccount::default()
    };
    make(&env.api(), &account).await
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn the_operator_writes_where_tenants_are_and_nowhere_else() -> Result<()> {
    suite::test(Tier::Api, "bounded", async |env| {
        install(&env.client).await?;
        pods_at_home(&env).await?;
        let user = format!("system:serviceaccount:{}:orchestrator-tenants", env.namespace);
        let twin = format!("{user}-2");
        let rules: Vec<PolicyRule> = OPERATOR.permissions
            .iter()
            .map(|permission| PolicyRule {
                resource_names: (!permission.names.is_empty())
                    .then(|| permission.names.iter().map(|name| (*name).to_owned()).collect()),
                ..rule(permission.group, permission.resource, permission.verbs)
            })
            .collect();
        let roles = [format!("{}-one", env.namespace), format!("{}-two", env.namespace)];
        grant(&env, &roles[0], &user, rules.clone()).await?;
        grant(&env, &roles[1], &twin, rules).await?;
        let mark = json!({ names::UID: "u", names::KIND: "Tenant" });
        let places = [
            place(&env, "ours", mark.clone(), json!({})).await?,
            place(&env, "stripped", json!({}), json!({ names::SPEC_HASH: "0123" })).await?,
            place(&env, "offered", json!({}), json!({ names::ADOPT: "shop" })).await?,
            place(&env, "left", json!({}), json!({ names::RETAINED_FROM: "shop", names::SPEC_HASH: "0123" })).await?,
            place(&env, "else", json!({ names::NAME: "shop" }), json!({})).await?,
        ];
        let [ours, stripped, offered, left, other] = &places;

        let policies = api::policy::tenant_operator()
            .into_iter()
            .map(|mut policy| {
                let spec = policy.spec.get_or_insert_default();
                spec.match_conditions = Some(vec![api::policy::by_user(&user)]);
                policy
            })
            .collect();
        let policies = bind(&env, policies, None).await?;
        let operator = client_of(&env, &user)?;
        let no = Some("writes what is in namespaces of Tenants only");
        let no_pod = Some("writes Pods in namespaces of Tenants only");
        let no_place = Some("writes namespaces of Tenants only, and such as say that a Tenant may take them");
        let refused = |namespace: &str| -> Result<Vec<Ask>> {
            let mut all = everything(namespace, no)?;
            for one in &mut all {
                if one.path.ends_with("/pods") {
                    one.refused = no_pod;
                }
            }
            Ok(all)
        };
        for one in &refused(other)? {
            until_refused(&operator, one).await?;
        }
        let strange = warnings(&env, &policies).await?;
        ensure!(strange.is_empty(), "{}", strange.join("\n"));

        let labels = json!({ "metadata": { "labels": mark } });
        let level = "pod-security.kubernetes.io/enforce";
        let closed = json!({ names::UID: "u", names::KIND: "Tenant", level: "restricted" });
        let opened = json!({ "metadata": { "labels": { level: "privileged" } } });
        let new = |labels: Value| Ask {
            what: format!("a new namespace with {labels}"),
            method: Method::POST,
            path: "/api/v1/namespaces".to_owned(),
            body: Some(json!({ "metadata": { "name": format!("{}-new", env.namespace), "labels": labels } })),
            refused: None,
        };
        let patch = |name: &str, refused| on_namespace("labels of a namespace", Method::PATCH, name, Some(labels.clone()), refused);
        let delete = |name: &str, refused| on_namespace("the end of a namespace", Method::DELETE, name, None, refused);
        let event = Ask {
            what: "an Event about a Tenant".to_owned(),
            method: Method::POST,
            path: folder("events.k8s.io", "default", "events"),
            body: Some(json!({
                "metadata": { "name": "a", "namespace": "default" },
                "eventTime": "2024-01-01T00:00:00.000000Z",
                "reportingController": "orchestrator.io/tenants", "reportingInstance": "a",
                "action": "Look", "reason": "Progressing", "type": "Normal",
                "regarding": { "kind": "Tenant", "name": "shop" },
            })),
            refused: None,
        };
        let without_level = Ask { refused: Some("the Pod Security level 'restricted'"), ..new(mark.clone()) };
        let not_ours = Ask { refused: no_place, ..new(json!({ level: "restricted" })) };
        for one in [&without_level, &not_ours] {
            until_refused(&operator, one).await?;
        }
        let mut asks = vec![
            new(closed.clone()),
            without_level,
            not_ours,
            on_namespace("an opened namespace", Method::PATCH, ours, Some(opened), Some("the Pod Security level 'restricted'")),
            patch(ours, None),
            patch(stripped, None),
            patch(offered, None),
            patch(left, None),
            patch(other, no_place),
            patch("kube-system", no_place),
            patch(&env.namespace, no_place),
            delete(ours, None),
            delete(stripped, None),
            delete(offered, no_place),
            delete(left, no_place),
            delete(other, no_place),
            delete(&env.namespace, no_place),
            event,
        ];
        for place in [ours, stripped, offered, left] {
            asks.extend(everything(place, None)?);
        }
        for place in [other.as_str(), "kube-system"] {
            asks.extend(refused(place)?);
        }
        asks.extend(refused(&env.namespace)?);
        asks.extend(at_home(&env.namespace));
        println!("{}", judge(&operator, &asks).await?);

        // The policies do not apply to another user with the same permissions.
        let someone = client_of(&env, &twin)?;
        let mut asks = everything(other, None)?;
        asks.extend([patch(other, None), delete(other, None)]);
        println!("{}", judge(&someone, &asks).await?);

        unbind(&env, &policies).await?;
        take_away(&env, &roles).await?;
        let namespaces: Api<Namespace> = Api::all(env.client.clone());
        for place in &places {
            namespaces.delete(place, &DeleteParams::background()).await?;
        }
        Ok(())
    })
    .await
}
