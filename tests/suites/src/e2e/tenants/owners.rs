//! Attacks by people with few permissions: who may only update Tenants, and hostile owners.

use std::{fmt::Debug, time::Duration};

use anyhow::{Context, Result, anyhow, bail, ensure};
use api::tenants::Tenant;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{Deployment, StatefulSet},
        batch::v1::{CronJob, Job},
        core::v1::{ConfigMap, Pod, ResourceQuota, Service},
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    },
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use testkit::{
    suite::Env,
    wait::{met, until},
};

use super::{
    super::{attacks::tried, policies::client_of},
    fixture::{Bench, both, exec, namespace, server},
};

/// A shell, and `nc`.
const BUSYBOX: &str = "testbed.local/busybox:1";
/// A policy of the API server acts within this time after it was created.
const ACTS: Duration = Duration::from_secs(20);
/// NetworkPolicies act within this time.
const ENFORCED: Duration = Duration::from_secs(20);
/// For so long connections must be blocked.
const STAYS: Duration = Duration::from_secs(10);
/// A port that nothing else uses.
const PORT: u16 = 8443;

/// Whether a request was refused with these words; an error says what was answered.
fn refusal<T>(answer: kube::Result<T>, words: &str) -> Result<(), String> {
    match answer {
        Ok(_) => Err("accepted".to_owned()),
        Err(kube::Error::Api(status)) if status.message.contains(words) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// The request must be refused with these words, now or when the policy acts. A macro, because a future
/// that a closure makes is not known to be `Send`.
macro_rules! refused {
    ($what:expr, $words:expr, $attempt:expr) => {
        tried(
            until(&format!("{} to be refused", $what), ACTS, async || {
                Ok(refusal($attempt.await, $words))
            })
            .await,
        )?
    };
}

/// Changes the spec of a Tenant without storing it.
async fn patched(tenants: &Api<Tenant>, name: &str, spec: &Value) -> kube::Result<Tenant> {
    let patch = Patch::Merge(json!({ "spec": spec }));
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    tenants.patch(name, &params, &patch).await
}

fn dry() -> PostParams {
    PostParams {
        dry_run: true,
        ..PostParams::default()
    }
}

/// Creates an object of this type without storing it.
async fn tries<K>(client: &Client, place: &str, object: &Value) -> kube::Result<K>
where
    K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    let api: Api<K> = Api::namespaced(client.clone(), place);
    let object = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
    api.create(&dry(), &object).await
}

/// A3: a user who may update Tenants, and nothing else, replaces the image of a Tenant's server to get
/// the password of its Redis.
pub(super) async fn password_by_image(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let name = bench.launch("a", both()).await?;
    let (user, post) = (bench.name("mallory"), PostParams::default());
    let role: ClusterRole = serde_json::from_value(json!({
        "metadata": { "name": user },
        "rules": [{ "apiGroups": ["orchestrator.io"], "resources": ["tenants"],
                    "verbs": ["create", "get", "patch", "update"] }],
    }))?;
    let subjects =
        json!([{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }]);
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": { "name": user }, "subjects": subjects,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user },
    }))?;
    let roles: Api<ClusterRole> = Api::all(bench.client());
    let bindings: Api<ClusterRoleBinding> = Api::all(bench.client());
    roles.create(&post, &role).await?;
    bindings.create(&post, &binding).await?;
    let mallory = client_of(&bench.env, &user)?;
    let tenants: Api<Tenant> = Api::all(mallory);
    let evil = json!({ "server": { "image": "evil.example/server:1" } });
    let out = json!([{ "to": [{ "network": "0.0.0.0/0" }], "ports": [{ "port": 443 }] }]);
    let words = "must be allowed to 'get' the Secret 'tenant-redis'";
    for (what, spec) in [
        ("another server", evil.clone()),
        (
            "another variable",
            json!({ "server": { "env": [{ "name": "A", "value": "b" }] } }),
        ),
        (
            "another Redis",
            json!({ "redis": { "image": "evil.example/redis:1" } }),
        ),
        (
            "a way out",
            json!({ "networkPolicy": { "egressRules": out } }),
        ),
    ] {
        refused!(what, words, patched(&tenants, &name, &spec));
    }
    // The name of a deleted Tenant gives its namespace, with data and password.
    let mut new = Tenant::new(
        &bench.name("left"),
        serde_json::from_value(json!({
            "deletion": { "policy": "Delete" }, "redis": both()["redis"], "server": both()["server"],
        }))?,
    );
    refused!(
        "a new Tenant with a Redis",
        words,
        tenants.create(&dry(), &new)
    );
    new.spec.redis = None;
    tenants
        .create(&dry(), &new)
        .await
        .context("without a Redis")?;
    for spec in [json!({ "displayName": "Shop" }), json!({ "suspend": true })] {
        patched(&tenants, &name, &spec)
            .await
            .context("a harmless change")?;
    }
    // Who may read the password may change the program that gets it.
    let role = json!({
        "metadata": { "name": "reader" },
        "rules": [{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["tenant-redis"],
                    "verbs": ["get"] }],
    });
    let binding = json!({
        "metadata": { "name": "reader" }, "subjects": subjects,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader" },
    });
    bench.put::<Role>(&name, role).await?;
    bench.put::<RoleBinding>(&name, binding).await?;
    until("the reader to be accepted", ACTS, async || {
        let answer = patched(&tenants, &name, &evil).await;
        Ok(answer.map(drop).map_err(|error| error.to_string()))
    })
    .await?;
    let gone = DeleteParams::default();
    bindings.delete(&user, &gone).await?;
    roles.delete(&user, &gone).await?;
    bench.deletes(&name).await?;
    Ok("5 ways to the password refused; harmless changes and a reader accepted".to_owned())
}

/// A Tenant without a server, whose owner is this user.
async fn owned(bench: &Bench, user: &str) -> Result<(String, Client)> {
    let owners = json!({ "owners": [{ "kind": "User", "name": user }] });
    let name = bench.launch("a", owners).await?;
    Ok((name, client_of(&bench.env, user)?))
}

/// A6.1: an owner claims an address of someone else by `externalIPs` of a Service.
pub(super) async fn external_ips(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let user = bench.name("alice");
    let (name, alice) = owned(&bench, &user).await?;
    let place = namespace(&name);
    let ports = json!([{ "port": PORT }]);
    let plain = json!({ "metadata": { "name": "plain" }, "spec": { "ports": ports } });
    let claim = json!({ "externalIPs": ["192.0.2.7"] });
    let trap = json!({
        "metadata": { "name": "trap" },
        "spec": { "ports": ports, "externalIPs": claim["externalIPs"] },
    });
    // In a namespace that is no Tenant's it is accepted: the refusals are the policy's.
    let elsewhere = tries::<Service>(&bench.env.client, &bench.env.namespace, &trap);
    elsewhere.await.context("outside of Tenants")?;
    let words = "must not have external IPs";
    refused!(
        "a Service with external IPs",
        words,
        tries::<Service>(&alice, &place, &trap)
    );
    let services: Api<Service> = Api::namespaced(alice.clone(), &place);
    let service = serde_json::from_value(plain)?;
    services.create(&PostParams::default(), &service).await?;
    let (params, patch) = (
        PatchParams::default(),
        Patch::Merge(json!({ "spec": claim })),
    );
    refused!(
        "external IPs of a Service",
        words,
        services.patch("plain", &params, &patch)
    );
    bench.deletes(&name).await?;
    Ok("a Service with external IPs is refused, created or patched".to_owned())
}

/// A Pod that satisfies `restricted`, and runs this script.
fn pod(name: &str, script: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": {
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 1000,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": "a", "image": BUSYBOX, "command": ["sh", "-c", script],
                "resources": {
                    "requests": { "cpu": "10m", "memory": "16Mi" },
                    "limits": { "cpu": "100m", "memory": "32Mi" },
                },
                "securityContext": {
                    "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
                },
            }],
        },
    })
}

/// A6.2: an owner creates Pods, by themselves and by workloads, that displace all others.
pub(super) async fn system_priority(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let user = bench.name("alice");
    let (name, alice) = owned(&bench, &user).await?;
    let place = namespace(&name);
    let mut refused = 0;
    for class in ["system-node-critical", "system-cluster-critical"] {
        let mut critical = pod("critical", "sleep 60");
        critical["spec"]["priorityClassName"] = json!(class);
        let labels = &critical["metadata"]["labels"];
        let mut once = critical["spec"].clone();
        once["restartPolicy"] = json!("Never");
        let named = |spec: Value| json!({ "metadata": { "name": "critical" }, "spec": spec });
        let template = json!({ "metadata": { "labels": labels }, "spec": critical["spec"] });
        let workload = named(json!({
            "selector": { "matchLabels": labels }, "template": template, "serviceName": "a",
        }));
        let job = named(json!({ "template": { "spec": once } }));
        let cron =
            named(json!({ "schedule": "0 0 1 1 *", "jobTemplate": { "spec": job["spec"] } }));
        // In a namespace that is no Tenant's it is accepted: the refusals are the policy's.
        let elsewhere = tries::<Pod>(&bench.env.client, &bench.env.namespace, &critical);
        elsewhere.await.context("outside of Tenants")?;
        let words = format!("may not have the priority class '{class}'");
        macro_rules! refuses {
            ($($kind:ty: $object:expr),*) => {$(
                refused!(stringify!($kind), &words, tries::<$kind>(&alice, &place, $object));
                refused += 1;
            )*};
        }
        refuses!(Pod: &critical, Deployment: &workload, StatefulSet: &workload, Job: &job, CronJob: &cron);
    }
    let plain = tries::<Pod>(&alice, &place, &pod("plain", "sleep 60")).await;
    plain.context("a Pod without a class")?;
    bench.deletes(&name).await?;
    Ok(format!("{refused} objects with system classes refused"))
}

/// A6.3: an owner of a Tenant without `resources` creates objects until the API server's storage is full.
pub(super) async fn endless_objects(env: Env) -> Result<String> {
    const MORE: usize = 150;
    let bench = Bench::new(env).await?;
    let user = bench.name("alice");
    let (name, alice) = owned(&bench, &user).await?;
    let quota = bench
        .of::<ResourceQuota>(&name)
        .get("tenant-objects")
        .await?;
    let hard = quota.spec.and_then(|spec| spec.hard).unwrap_or_default();
    for kind in [
        "secrets",
        "services",
        "jobs.batch",
        "cronjobs.batch",
        "deployments.apps",
    ] {
        let key = format!("count/{kind}");
        ensure!(hard.contains_key(&key), "no quota of {key}: {hard:?}");
    }
    let maps: Api<ConfigMap> = Api::namespaced(alice, &namespace(&name));
    let mut made = 0;
    let refusal = loop {
        if made == MORE {
            tried(Err(anyhow!("{made} ConfigMaps, and no end")))?;
        }
        let map = serde_json::from_value(json!({ "metadata": { "name": format!("m-{made}") } }))?;
        match maps.create(&PostParams::default(), &map).await {
            Ok(_) => made += 1,
            Err(kube::Error::Api(status)) if status.code == 403 => break status.message,
            Err(error) => bail!(error),
        }
    };
    let is_quota = refusal.contains("exceeded quota: tenant-objects");
    ensure!(is_quota, "{refusal}");
    tried(Ok(()))?;
    bench.deletes(&name).await?;
    Ok(format!("refused after {made} ConfigMaps"))
}

/// Creates a Pod, and waits until it is ready; its address.
async fn started(pods: &Api<Pod>, object: Value) -> Result<String> {
    let object: Pod = serde_json::from_value(object)?;
    pods.create(&PostParams::default(), &object).await?;
    let name = object.name_any();
    until(
        &format!("Pod '{name}'"),
        Duration::from_secs(60),
        async || {
            let status = pods.get(&name).await?.status.unwrap_or_default();
            let ready = status.conditions.unwrap_or_default();
            let is_ready = ready
                .iter()
                .any(|one| one.type_ == "Ready" && one.status == "True");
            Ok(match status.pod_ip {
                Some(address) if is_ready => Ok(address),
                Some(_) | None => Err(format!("{:?}", status.phase)),
            })
        },
    )
    .await
}

/// Whether a Pod gets a connection to this address.
async fn connects(pods: &Api<Pod>, pod: &str, address: &str, port: u16) -> Result<bool> {
    let script = format!("nc -w 2 {address} {port} </dev/null >/dev/null 2>&1; echo rc=$?");
    let said = exec(pods, pod, &script).await?;
    ensure!(said.starts_with("rc="), "{pod}: '{said}'");
    Ok(said == "rc=0")
}

/// A connection must be possible, or become so.
async fn opens(what: &str, pods: &Api<Pod>, pod: &str, to: (&str, u16)) -> Result<()> {
    until(&format!("{what} to be reached"), ENFORCED, async || {
        let is_open = connects(pods, pod, to.0, to.1).await?;
        Ok(met(is_open, || "blocked".to_owned()))
    })
    .await
}

/// A connection must be blocked, now or soon, and stay so.
async fn stays_closed(what: &str, pods: &Api<Pod>, pod: &str, to: (&str, u16)) -> Result<()> {
    until(&format!("{what} to be blocked"), ENFORCED, async || {
        let is_open = connects(pods, pod, to.0, to.1).await?;
        Ok(if is_open {
            Err("reached".to_owned())
        } else {
            Ok(())
        })
    })
    .await?;
    let end = std::time::Instant::now() + STAYS;
    let mut is_open = false;
    while std::time::Instant::now() < end && !is_open {
        is_open = connects(pods, pod, to.0, to.1).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    tried(if is_open {
        Err(anyhow!("{what} was reached"))
    } else {
        Ok(())
    })
}

/// A7: a Pod of another namespace connects to the Redis of a Tenant that was deleted with `Retain`.
pub(super) async fn retained_opens(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let mut spec = both();
    spec["deletion"] = json!({ "policy": "Retain" });
    let name = bench.launch("a", spec).await?;
    bench.stores(&name, "kept=yes").await?;
    let others: Api<Pod> = Api::namespaced(bench.client(), &bench.env.namespace);
    let listens = format!("while true; do echo open | nc -l -p {PORT}; done");
    let open = started(&others, pod("open", &listens)).await?;
    started(&others, pod("spy", "sleep 600")).await?;
    let redis = bench.of::<Pod>(&name).get("redis-0").await?;
    let redis = redis.status.and_then(|status| status.pod_ip);
    let redis = redis.context("the Redis has no address")?;
    opens("a Pod without policies", &others, "spy", (&open, PORT)).await?;
    stays_closed("the Redis of a Tenant", &others, "spy", (&redis, 6379)).await?;
    let gone = DeleteParams::default();
    bench.delete(&name).await?;
    bench.is_gone(&name).await?;
    stays_closed(
        "the Redis of a retained namespace",
        &others,
        "spy",
        (&redis, 6379),
    )
    .await?;
    let kept = bench.ask(&name, "kept").await?;
    ensure!(kept == "yes", "it does not work any more: '{kept}'");
    bench.namespaces().delete(&namespace(&name), &gone).await?;
    Ok("the Redis of a retained namespace works, and stays closed to others".to_owned())
}

/// A6.4: a Tenant that may reach the internet connects to a Pod of someone else and to the API server.
///
/// The network `0.0.0.0/0` includes both, which shows that the check can fail.
pub(super) async fn internet_inside(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let others: Api<Pod> = Api::namespaced(bench.client(), &bench.env.namespace);
    let listens = format!("while true; do echo open | nc -l -p {PORT}; done");
    let victim = started(&others, pod("victim", &listens)).await?;
    let rule = |to: Value| {
        let ports = json!([{ "port": PORT }, { "port": 443 }, { "port": 6443 }]);
        json!({ "networkPolicy": { "egressRules": [{ "to": [to], "ports": ports }] } })
    };
    let mut spec = rule(json!({ "network": "0.0.0.0/0" }));
    spec["server"] = server();
    let name = bench.launch("a", spec).await?;
    let pods: Api<Pod> = bench.of(&name);
    started(&pods, pod("spy", "sleep 600")).await?;
    opens("everything", &pods, "spy", (&victim, PORT)).await?;
    let slices: Api<k8s_openapi::api::discovery::v1::EndpointSlice> =
        Api::namespaced(bench.client(), "default");
    let slice = slices.get("kubernetes").await?;
    let endpoint = slice.endpoints.first().context("no endpoint")?;
    let address = endpoint.addresses.first().context("no address")?.clone();
    let port = slice
        .ports
        .iter()
        .flat_map(|all| all.iter())
        .find_map(|one| one.port);
    let port = u16::try_from(port.context("no port")?)?;
    bench
        .becomes(&name, rule(json!({ "internet": true })))
        .await?;
    stays_closed("a Pod of someone else", &pods, "spy", (&victim, PORT)).await?;
    stays_closed("the API server", &pods, "spy", (&address, port)).await?;
    stays_closed(
        "the metadata service",
        &pods,
        "spy",
        ("169.254.169.254", 443),
    )
    .await?;
    bench.deletes(&name).await?;
    Ok("0.0.0.0/0 reaches a Pod of someone else; 'internet' reaches nothing inside".to_owned())
}
