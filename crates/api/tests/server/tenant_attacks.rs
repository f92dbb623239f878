//! Attacks by users with few permissions: through a Tenant, and in the namespace of one.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use api::{GROUP, names, tenants::PROBE_CLASS};
use http::Method;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::DeleteParams};
use serde_json::{Value, json};
use testkit::{cluster::Tier, suite, wait::until};

use crate::{
    arena::{rule, with},
    asks::{Ask, folder, grant, judge, take_away, until_refused},
    policies::{bind, client_of, tenant_references, unbind, warnings},
    support::{Kind, create, install, remove, taken},
    tenants::{change, gives_the_role, least, place, tenant},
};

const LIMIT: Duration = Duration::from_secs(30);

/// Returns the same requests, all of them expected to be accepted.
fn accepted(asks: Vec<Ask>) -> Vec<Ask> {
    let without = |ask| Ask {
        refused: None,
        ..ask
    };
    asks.into_iter().map(without).collect()
}

/// A3: the operator passes the password of a Redis to the programs of its Tenant.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn who_cannot_read_the_password_cannot_change_the_program_that_gets_it() -> Result<()> {
    suite::test(Tier::Api, "password", async |env| {
        install(&env.client).await?;
        let mut clients = Vec::new();
        let mut roles = Vec::new();
        let mut reads = rule("", "secrets", &["get"]);
        reads.resource_names = Some(vec!["tenant-redis".to_owned()]);
        for (who, more) in [
            ("updater", vec![]),
            ("giver", vec![gives_the_role()]),
            ("reader", vec![reads]),
        ] {
            let name = format!("{}-{who}", env.namespace);
            let verbs = &["create", "get", "patch", "update"];
            let mut rules = vec![rule(GROUP, "tenants", verbs)];
            rules.extend(more);
            grant(&env, &name, &name, rules).await?;
            clients.push(client_of(&env, &name)?);
            roles.push(name);
        }
        let [updater, giver, reader] = clients.as_slice() else {
            bail!("three clients");
        };
        let redis = json!({ "redis": { "image": "r:1", "storage": { "size": "1Gi" } } });
        let server = json!({ "server": { "image": "a:1" } });
        let both = with(redis.clone(), &server);
        let stored = Kind::Tenant.name(&env, "stored");
        let spec = with(Kind::Tenant.least(), &both);
        taken(create(&env, Kind::Tenant, &Kind::Tenant.object(&stored, &spec)).await?)?;

        let no = Some("must be allowed to 'get' the Secret 'tenant-redis' in the namespace");
        let env_of = |value: &str| json!([{ "name": "A", "value": value }]);
        let out = json!([{ "to": [{ "network": "0.0.0.0/0" }], "ports": [{ "port": 443 }] }]);
        let attacks = |refused| {
            let on = |what: &str, spec: Value| change(what, &stored, spec, refused);
            vec![
                tenant("a new one with both", both.clone(), refused),
                tenant("a new one with a Redis", redis.clone(), refused),
                on("another image", json!({ "server": { "image": "evil:1" } })),
                on("a variable", json!({ "server": { "env": env_of("b") } })),
                on("another Redis", json!({ "redis": { "image": "evil:1" } })),
                on(
                    "a way out",
                    json!({ "networkPolicy": { "egressRules": out } }),
                ),
                on(
                    "no policies",
                    json!({ "networkPolicy": { "enabled": false } }),
                ),
            ]
        };
        let policies = bind(&env, tenant_references(), None).await?;
        let strange = warnings(&env, &policies).await?;
        ensure!(strange.is_empty(), "{}", strange.join("\n"));
        for one in &attacks(no) {
            until_refused(updater, one).await?;
        }
        let harmless = vec![
            tenant("a new one with a server", server.clone(), None),
            change("a name", &stored, json!({ "displayName": "Shop" }), None),
            change("a pause", &stored, json!({ "suspend": true }), None),
            change("no Redis", &stored, json!({ "redis": null }), None),
        ];
        println!("{}", judge(updater, &harmless).await?);
        println!("{}", judge(giver, &attacks(None)).await?);
        println!("{}", judge(reader, &attacks(None)).await?);
        remove(&env, Kind::Tenant, &stored).await?;
        unbind(&env, &policies).await?;
        take_away(&env, &roles).await
    })
    .await
}

/// Returns a request for a new object in a namespace.
fn new(
    group: &str,
    place: &str,
    resource: &str,
    body: Value,
    refused: Option<&'static str>,
) -> Ask {
    let name = json!({ "metadata": { "name": "tried" } });
    Ask {
        what: format!("{resource} in '{place}' with {body}"),
        method: Method::POST,
        path: folder(group, place, resource),
        body: Some(with(body, &name)),
        refused,
    }
}

/// Returns requests for all objects with a Pod that an owner may create, with this priority class.
fn of_class(place: &str, class: &str, refused: Option<&'static str>) -> Result<Vec<Ask>> {
    let mut pod = least("pods")?;
    pod["spec"]["priorityClassName"] = json!(class);
    let mut workload = least("deployments")?;
    workload["spec"]["template"]["spec"] = pod["spec"].clone();
    let mut set = workload.clone();
    set["spec"]["serviceName"] = json!("a");
    let mut once = pod["spec"].clone();
    once["restartPolicy"] = json!("Never");
    let job = json!({ "spec": { "template": { "spec": once } } });
    let cron = json!({ "spec": { "schedule": "0 0 1 1 *", "jobTemplate": job } });
    let mut asks = vec![
        new("apps", place, "deployments", workload, refused),
        new("apps", place, "statefulsets", set, refused),
        new("batch", place, "jobs", job, refused),
        new("batch", place, "cronjobs", cron, refused),
    ];
    // A Pod needs an existing class.
    if class.starts_with("system-") {
        asks.push(new("", place, "pods", pod, refused));
    }
    Ok(asks)
}

/// A6.1 and A6.2: requests are checked by their namespace, for all users. Without the policies,
/// each attack is accepted.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn an_owner_takes_no_address_and_displaces_nobody() -> Result<()> {
    suite::test(Tier::Api, "guest", async |env| {
        let ours = json!({ names::UID: "u", names::KIND: "Tenant" });
        let ours = place(&env, "ours", ours, json!({})).await?;
        let other = place(&env, "other", json!({}), json!({})).await?;
        let trap = json!({ "spec": { "ports": [{ "port": 80 }], "externalIPs": ["192.0.2.7"] } });
        let mut attacks = vec![new(
            "",
            &ours,
            "services",
            trap.clone(),
            Some("must not have external IPs"),
        )];
        for class in ["system-node-critical", "system-cluster-critical"] {
            let no = Some("Pods of a Tenant may not have the priority class 'system-");
            attacks.extend(of_class(&ours, class, no)?);
        }
        let no = Some("Pods of a Tenant may not have the priority class 'gold'");
        attacks.extend(of_class(&ours, "gold", no)?);
        let policies = bind(&env, api::policy::tenant_namespaces(), None).await?;
        let strange = warnings(&env, &policies).await?;
        ensure!(strange.is_empty(), "{}", strange.join("\n"));
        for one in &attacks {
            until_refused(&env.client, one).await?;
        }
        let mut harmless = of_class(&ours, PROBE_CLASS, None)?;
        harmless.extend(of_class(&other, "system-node-critical", None)?);
        harmless.push(new("", &other, "services", trap, None));
        for (group, resource) in [("", "pods"), ("", "services"), ("apps", "deployments")] {
            harmless.push(new(group, &ours, resource, least(resource)?, None));
        }
        println!("{}", judge(&env.client, &harmless).await?);
        unbind(&env, &policies).await?;
        let attacks = accepted(attacks);
        let last = attacks.last().map(|one| one.what.clone());
        until("the policies to be gone", LIMIT, async || {
            Ok(judge(&env.client, &attacks)
                .await
                .map_err(|error| format!("{last:?}: {error}")))
        })
        .await?;
        let namespaces: Api<Namespace> = Api::all(env.client.clone());
        for place in [&ours, &other] {
            namespaces
                .delete(place, &DeleteParams::background())
                .await?;
        }
        Ok(())
    })
    .await
}
