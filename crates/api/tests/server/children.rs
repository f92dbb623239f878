//! Our labels and owner references: admitted only from operators and from controllers of the
//! cluster.

use anyhow::{Result, ensure};
use api::{
    names,
    policy::{self, LABEL_WRITERS},
};
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use testkit::{
    cluster::Tier,
    suite::{self, Env},
};

use crate::{
    arena::rule,
    asks::{Ask, folder, grant, judge, take_away, until_refused, until_taken},
    policies::{bind, client_of, make, only_in, unbind, warnings},
    support::{Kind, create, install, taken},
};

const NO: Option<&str> = Some("only operators set the labels");

fn labels(kind: &str) -> Value {
    json!({ names::KIND: kind, names::UID: "u-1" })
}

fn owner(api_version: &str, kind: &str) -> Value {
    json!([{ "apiVersion": api_version, "kind": kind, "name": "a", "uid": "u-1", "controller": true }])
}

/// Returns a request for a minimal object with this metadata. The template of a workload has the
/// labels `template`.
fn new(
    env: &Env,
    resource: &str,
    metadata: Value,
    template: Value,
    no: Option<&'static str>,
) -> Ask {
    let pod = json!({ "restartPolicy": "Never", "containers": [{ "name": "a", "image": "a:1" }] });
    let mut labels = template.clone();
    labels["app"] = json!("a");
    let (group, body) = match resource {
        "pods" => ("", json!({ "spec": pod })),
        "jobs" => (
            "batch",
            json!({ "spec": { "template": { "metadata": { "labels": template }, "spec": pod } } }),
        ),
        "deployments" | "replicasets" => {
            let mut pod = pod;
            pod["restartPolicy"] = json!("Always");
            let spec = json!({
                "selector": { "matchLabels": { "app": "a" } },
                "template": { "metadata": { "labels": labels }, "spec": pod },
            });
            ("apps", json!({ "spec": spec }))
        }
        _ => ("", json!({ "data": { "task.md": "Do as I say." } })),
    };
    let mut body = body;
    body["metadata"] = metadata.clone();
    body["metadata"]["name"] = json!("tried");
    Ask {
        what: format!("{resource} with {metadata}, template {template}"),
        method: Method::POST,
        path: folder(group, &env.namespace, resource),
        body: Some(body),
        refused: no,
    }
}

fn patch(env: &Env, name: &str, metadata: Value, refused: Option<&'static str>) -> Ask {
    Ask {
        what: format!("'{name}' gets {metadata}"),
        method: Method::PATCH,
        path: folder("", &env.namespace, &format!("configmaps/{name}")),
        body: Some(json!({ "metadata": metadata })),
        refused,
    }
}

/// Returns requests that claim an owner. Without the policies, each is accepted.
fn planted(env: &Env, no: Option<&'static str>) -> Vec<Ask> {
    let run = |kind: &str| owner("orchestrator.io/v1", kind);
    let new = |resource: &str, metadata: Value| new(env, resource, metadata, json!({}), no);
    let copies = |resource: &str, kind: &str| self::new(env, resource, json!({}), labels(kind), no);
    let mut all = vec![
        patch(env, "plain", json!({ "labels": labels("TaskRun") }), no),
        patch(env, "plain", json!({ "labels": { names::UID: "u-1" } }), no),
        patch(
            env,
            "plain",
            json!({ "ownerReferences": run("DocsRun") }),
            no,
        ),
        patch(env, "ours", json!({ "labels": { names::UID: "u-2" } }), no),
        patch(env, "ours", json!({ "labels": { names::KIND: null } }), no),
        patch(
            env,
            "ours",
            json!({ "labels": { names::KIND: "Tenant" } }),
            no,
        ),
        copies("jobs", "TaskRun"),
        copies("jobs", "DocsRun"),
        copies("deployments", "Tenant"),
        copies("replicasets", "Tenant"),
    ];
    for resource in ["configmaps", "jobs", "pods"] {
        for kind in ["TaskRun", "DocsRun", "Tenant"] {
            all.push(new(resource, json!({ "labels": labels(kind) })));
            all.push(new(resource, json!({ "ownerReferences": run(kind) })));
        }
        all.push(new(resource, json!({ "labels": { names::UID: "u-1" } })));
        all.push(new(
            resource,
            json!({ "labels": { names::KIND: "TaskRun" } }),
        ));
        // A kind of another version, beside an owner of another group.
        let mut two = owner("apps/v1", "ReplicaSet");
        two[0]["controller"] = json!(false);
        let mut other = owner("orchestrator.io/v1alpha1", "Agent");
        two.as_array_mut()
            .into_iter()
            .for_each(|list| list.push(other[0].take()));
        all.push(new(resource, json!({ "ownerReferences": two })));
    }
    all
}

/// Returns requests of users that claim no owner.
fn ordinary(env: &Env) -> Vec<Ask> {
    let new = |resource: &str, metadata: Value, template: Value| {
        self::new(env, resource, metadata, template, None)
    };
    let mut all = vec![
        patch(env, "plain", json!({ "labels": { "app": "a" } }), None),
        patch(env, "ours", json!({ "annotations": { "note": "a" } }), None),
        patch(env, "ours", json!({ "labels": { "app": "a" } }), None),
        // As the garbage collector does it.
        patch(env, "ours", json!({ "ownerReferences": null }), None),
        new("deployments", json!({}), json!({})),
        new("jobs", json!({}), json!({ names::NAME: "a" })),
    ];
    for resource in ["configmaps", "jobs", "pods"] {
        all.push(new(resource, json!({}), json!({})));
        all.push(new(
            resource,
            json!({ "labels": { "app": "a" } }),
            json!({}),
        ));
        let other = owner("other.example/v1", "TaskRun");
        all.push(new(
            resource,
            json!({ "ownerReferences": other }),
            json!({}),
        ));
    }
    all
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn only_operators_and_their_controllers_claim_an_owner() -> Result<()> {
    suite::test(Tier::Api, "children", async |env| {
        let of = |name: &str| format!("{}-{name}", env.namespace);
        let rules = || {
            let verbs = ["create", "get", "patch", "update"];
            let all = [
                ("", "configmaps"),
                ("", "pods"),
                ("batch", "jobs"),
                ("apps", "deployments"),
                ("apps", "replicasets"),
            ];
            all.map(|(group, resource)| rule(group, resource, &verbs))
                .to_vec()
        };
        let roles = [of("user"), of("operator"), of("copier")];
        for name in &roles {
            grant(&env, name, name, rules()).await?;
        }
        let controllers = [
            "job-controller",
            "replicaset-controller",
            "daemon-set-controller",
        ]
        .map(|name| format!("system:serviceaccount:kube-system:{name}"));
        let shared = "system:kube-controller-manager".to_owned();
        let mut given = Vec::new();
        for (index, user) in controllers.iter().chain([&shared]).enumerate() {
            let name = of(&format!("controller-{index}"));
            grant(&env, &name, user, rules()).await?;
            given.push(name);
        }
        install(&env.client).await?;
        let run = Kind::TaskRun.object("a", &Kind::TaskRun.least());
        let run = taken(create(&env, Kind::TaskRun, &run).await?)?;
        let mut owner = owner("orchestrator.io/v1", "TaskRun");
        // The garbage collector deletes an object whose owner does not exist.
        owner[0]["uid"] = run["metadata"]["uid"].clone();
        for (name, metadata) in [
            ("plain", json!({})),
            (
                "ours",
                json!({ "labels": labels("TaskRun"), "ownerReferences": owner }),
            ),
        ] {
            let mut map: ConfigMap = serde_json::from_value(json!({ "metadata": metadata }))?;
            map.metadata.name = Some(name.to_owned());
            make(&env.api(), &map).await?;
        }
        let [user, operator, copier] =
            [&roles[0], &roles[1], &roles[2]].map(|name| client_of(&env, name));
        let (user, operator, copier) = (user?, operator?, copier?);
        // Without the policies, each attack succeeds. Otherwise it would prove nothing.
        until_taken(&user, &planted(&env, None)[0]).await?;
        judge(&user, &planted(&env, None)).await?;

        let mut policies = policy::tasks();
        policies.extend(policy::tenants().into_iter().map(|mut policy| {
            let name = policy.metadata.name.take().unwrap_or_default();
            policy.metadata.name = Some(format!("tenants-{name}"));
            policy
        }));
        policies.retain(|policy| {
            policy
                .metadata
                .name
                .as_deref()
                .is_some_and(|name| name.ends_with("labels"))
        });
        ensure!(policies.len() == 4, "{} policies", policies.len());
        policy::fill(&mut policies, LABEL_WRITERS, &[&roles[1], &roles[2]]);
        let scope = only_in(&env.namespace);
        let policies = bind(&env, policies, Some(&scope)).await?;
        for one in &planted(&env, NO) {
            until_refused(&user, one).await?;
        }
        let strange = warnings(&env, &policies).await?;
        ensure!(strange.is_empty(), "{}", strange.join("\n"));
        println!("{}", judge(&user, &planted(&env, NO)).await?);
        println!("{}", judge(&user, &ordinary(&env)).await?);
        for client in [&operator, &copier] {
            println!("{}", judge(client, &planted(&env, None)).await?);
        }
        println!("{}", by_controllers(&env, &controllers, &shared).await?);
        unbind(&env, &policies).await?;
        take_away(&env, &roles).await?;
        take_away(&env, &given).await
    })
    .await
}

/// Checks that a controller of the cluster creates Pods for its own owner kind, and no other
/// children.
async fn by_controllers(env: &Env, controllers: &[String; 3], shared: &str) -> Result<String> {
    let mut seen = Vec::new();
    let pod = |kind: &str, api_version: &str, of: &str, no| {
        let metadata = json!({ "labels": labels(kind), "ownerReferences": owner(api_version, of) });
        new(env, "pods", metadata, json!({}), no)
    };
    let [jobs, replicas, daemons] = controllers;
    let task = |no| pod("TaskRun", "batch/v1", "Job", no);
    let server = |no| pod("Tenant", "apps/v1", "ReplicaSet", no);
    for (user, asks) in [
        (
            jobs.as_str(),
            vec![
                task(None),
                server(NO),
                pod("TaskRun", "orchestrator.io/v1", "TaskRun", NO),
            ],
        ),
        (replicas, vec![server(None), task(NO)]),
        (
            daemons,
            vec![task(NO), pod("TaskRun", "apps/v1", "DaemonSet", NO)],
        ),
        (
            shared,
            vec![
                task(None),
                server(None),
                pod("TaskRun", "apps/v1", "DaemonSet", NO),
            ],
        ),
        (jobs, planted_jobs(env)),
    ] {
        let answers = judge(&client_of(env, user)?, &asks).await?;
        seen.push(format!("{user}:\n{answers}"));
    }
    Ok(seen.join("\n"))
}

/// Returns a request that must be rejected, because the Job controller creates no Jobs.
fn planted_jobs(env: &Env) -> Vec<Ask> {
    vec![new(
        env,
        "jobs",
        json!({ "labels": labels("TaskRun") }),
        json!({}),
        NO,
    )]
}
