//! `cargo xtask e2e fleet`: what many Tenants cost, by the API server's own audit log, on fake nodes.

use std::{
    collections::BTreeMap,
    fmt,
    process::ExitCode,
    sync::OnceLock,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use api::{
    status::condition,
    tenants::{Tenant, TenantPhase},
};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};
use testkit::{
    audit::{AuditLog, Entry},
    cluster::{Tier, apply},
    operator::{self, Operator, Plan},
    suite::{Case, Env, When},
    wait::{met, until},
};
use tokio::time::sleep;

use super::{tenants, writes};

/// How many there are, and how long it must be quiet.
#[derive(Debug, Clone, Copy)]
struct Size {
    tenants: usize,
    quiet: Duration,
}

static SIZE: OnceLock<Size> = OnceLock::new();

/// What a Tenant with a Redis and a server may cost until it runs: writes of its objects, the finalizer among
/// them.
const OBJECTS: f64 = 17.0;
/// Writes of its status. A Tenant that starts slowly passes through more states, and reports each of them.
const STATUSES: f64 = 4.0;
const SECONDS_PER_STATUS: f64 = 5.0;
const EVENTS: f64 = 4.0;
/// S2.7: caches are read, not the API server. Only before an object is applied for the first time is
/// the API server asked whether one of that name exists, so reads are never more than writes.
const GETS: f64 = OBJECTS;
/// So many Pods a noisy customer makes.
const NOISE: usize = 40;
/// So many are made at once.
const AT_ONCE: usize = 8;

pub(super) async fn run(tenants: usize, quiet: Duration) -> Result<ExitCode> {
    ensure!(tenants > 0, "no Tenants cost nothing");
    SIZE.get_or_init(|| Size { tenants, quiet });
    let case = Case {
        name: "fleet",
        shows: "many Tenants: time, writes, memory; then quiet, also after a restart",
        tier: Tier::Kwok,
        additions: &[],
        suite: "",
        when: When::Alone,
        limit: Duration::from_secs(1200),
        run: |env| fleet(env).boxed(),
    };
    crate::cases::run("e2e-fleet", vec![case], &[], 1).await
}

async fn fleet(env: Env) -> Result<String> {
    let Size { tenants, quiet } = *SIZE.get().context("no size")?;
    tenants::install(&env).await?;
    volumes(&env, tenants).await?;
    let plan = plan()?;
    let operator = Operator::start(&env.client, &env.config, &plan).await?;
    let audit = env.testbed("the audit log")?.audit();
    let mark = audit.mark(&env.client).await?;
    let begin = Instant::now();
    create(&env, tenants).await?;
    let created = begin.elapsed();
    all_run(&env, tenants).await?;
    let took = begin.elapsed();
    let entries = audit.entries(&env.client, mark).await?;
    let ours = entries
        .iter()
        .filter(|entry| entry.request.user == operator.user);
    let cost = Cost::of(ours, tenants);
    let memory = operator.memory_mib("VmRSS")?;
    // Usage is counted by the cluster, somewhat later.
    settled(&env, &audit, &operator).await?;
    writes::quiet(&env, &operator, quiet, 1).await?;
    let tellings = noisy(&env, &audit, &operator).await?;
    settled(&env, &audit, &operator).await?;
    operator.stop().await?;

    // The next one reads everything, and has nothing to say.
    let mark = audit.mark(&env.client).await?;
    let begin = Instant::now();
    let operator = Operator::start(&env.client, &env.config, &plan).await?;
    leads(&operator).await?;
    let ready = begin.elapsed();
    sleep(Duration::from_secs(15)).await;
    let after = writes::since(&env, mark, &operator).await?;
    let requests = after.requests;
    ensure!(after.others == 0, "writes after a restart:\n{requests}");
    operator.stop().await?;
    let statuses = STATUSES + took.as_secs_f64() / SECONDS_PER_STATUS;
    ensure!(
        cost.writes() - cost.statuses() <= OBJECTS
            && cost.statuses() <= statuses
            && cost.events() <= EVENTS
            && cost.gets() <= GETS
            && cost.lists() == 0,
        "over the budget of {OBJECTS} writes of objects and {statuses:.2} of the status in {:.0} s: {cost}",
        took.as_secs_f64()
    );
    Ok(format!(
        "{tenants} Tenants created in {:.0} s, all Running after {:.0} s; {cost}; {memory:.0} MiB; {} s without a write; {tellings}; a restart led after {:.1} s and wrote nothing",
        created.as_secs_f64(),
        took.as_secs_f64(),
        quiet.as_secs(),
        ready.as_secs_f64()
    ))
}

fn plan() -> Result<Plan> {
    let binary = operator::built()?;
    Ok(Plan::new(binary, &api::tenants::OPERATOR, tenants::HOME))
}

/// Fake nodes have no volumes: a record of each is enough for them.
async fn volumes(env: &Env, count: usize) -> Result<()> {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "fleet" },
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "Immediate",
    });
    apply(&env.client, &env.namespace, &class.to_string()).await?;
    stream::iter(0..count)
        .map(async |index| {
            let volume = json!({
                "apiVersion": "v1", "kind": "PersistentVolume",
                "metadata": { "name": format!("fleet-{index}") },
                "spec": {
                    "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "fleet", "hostPath": { "path": "/none" },
                },
            });
            apply(&env.client, &env.namespace, &volume.to_string()).await
        })
        .buffer_unordered(AT_ONCE)
        .try_for_each(async |_| Ok(()))
        .await
}

async fn create(env: &Env, count: usize) -> Result<()> {
    let tenants: Api<Tenant> = Api::all(env.client.clone());
    stream::iter(0..count)
        .map(async |index| {
            let tenant: Tenant = serde_json::from_value(tenant(index))?;
            tenants.create(&PostParams::default(), &tenant).await?;
            anyhow::Ok(())
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await
}

fn tenant(index: usize) -> Value {
    json!({
        "apiVersion": "orchestrator.io/v1alpha1", "kind": "Tenant",
        "metadata": { "name": format!("fleet-{index}") },
        "spec": {
            "displayName": "One of many",
            "owners": [{ "kind": "User", "name": format!("owner-{index}") }],
            "resources": {
                "cpu": { "request": "2", "limit": "4" },
                "memory": { "request": "1Gi", "limit": "2Gi" },
                "storage": { "total": "1Gi", "perVolume": "1Gi" },
                "pods": { "limit": 60 },
            },
            "server": { "image": "server:1", "replicas": 1 },
            "redis": { "image": "redis:7", "storage": { "size": "1Gi", "storageClassName": "fleet" } },
            "networkPolicy": { "allowedNamespaces": ["ingress"] },
            "isolation": { "probe": false },
            "deletion": { "policy": "Delete" },
        },
    })
}

async fn all_run(env: &Env, count: usize) -> Result<()> {
    let tenants: Api<Tenant> = Api::all(env.client.clone());
    until("all Tenants to run", Duration::from_secs(900), async || {
        sleep(Duration::from_secs(1)).await; // a list of all is not free
        let all = tenants.list(&ListParams::default()).await?.items;
        let status = |tenant: &Tenant| tenant.status.clone().unwrap_or_default();
        let is_running = |tenant: &&Tenant| {
            let status = status(tenant);
            status.phase == Some(TenantPhase::Running) && status.progress.is_true(condition::READY)
        };
        let running = all.iter().filter(is_running).count();
        let other = all.iter().find(|tenant| !is_running(tenant));
        Ok(if running == count {
            Ok(())
        } else {
            let said = other.and_then(|tenant| status(tenant).progress.message);
            Err(format!("{running} of {}; one says {said:?}", all.len()))
        })
    })
    .await
}

async fn leads(operator: &Operator) -> Result<()> {
    until("it to lead", Duration::from_secs(60), async || {
        Ok(met(operator.is_leading().await?, || {
            "it does not".to_owned()
        }))
    })
    .await
}

/// Waits until nothing was written for five seconds.
async fn settled(env: &Env, audit: &AuditLog, operator: &Operator) -> Result<()> {
    until("it to settle", Duration::from_secs(120), async || {
        let mark = audit.mark(&env.client).await?;
        sleep(Duration::from_secs(5)).await;
        let count = writes::since(env, mark, operator).await?.others;
        Ok(met(count == 0, || format!("{count} writes")))
    })
    .await
}

/// A customer changes what is used faster than it is told; the last of it is told all the same.
async fn noisy(env: &Env, audit: &AuditLog, operator: &Operator) -> Result<String> {
    let mark = audit.mark(&env.client).await?;
    let begin = Instant::now();
    let pods: Api<Pod> = Api::namespaced(env.client.clone(), "tenant-fleet-0");
    for index in 0..NOISE {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": format!("noise-{index}") },
            "spec": {
                "securityContext": {
                    "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" },
                },
                "containers": [{
                    "name": "noise", "image": "noise:1",
                    "resources": {
                        "requests": { "cpu": "10m", "memory": "16Mi" },
                        "limits": { "cpu": "10m", "memory": "16Mi" },
                    },
                    "securityContext": {
                        "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
                    },
                }],
            },
        }))?;
        pods.create(&PostParams::default(), &pod).await?;
        sleep(Duration::from_millis(50)).await;
    }
    let tenants: Api<Tenant> = Api::all(env.client.clone());
    let all = (NOISE + 2).to_string(); // and those of the Redis and the server
    until("all Pods to be told", Duration::from_secs(60), async || {
        let status = tenants.get("fleet-0").await?.status.unwrap_or_default();
        let told = status.usage.and_then(|usage| usage.pods);
        let told = told.map(|pods| pods.used).unwrap_or_default();
        Ok(if told == all { Ok(()) } else { Err(told) })
    })
    .await?;
    let took = begin.elapsed().as_secs_f64();
    let entries = audit.entries(&env.client, mark).await?;
    let tellings = entries.iter().filter(|entry| {
        entry.request.user == operator.user
            && entry.request.is_write()
            && entry.name == "fleet-0"
            && entry.request.resource.starts_with("tenants")
    });
    let tellings = tellings.count();
    // Times in a status have no fractions: between two tellings there are two to three seconds.
    let most = (took / 2.0).ceil() as usize + 1;
    ensure!(
        (1..=most).contains(&tellings),
        "{NOISE} Pods made what is used be told {tellings} times in {took:.1} s, not 1 to {most}"
    );
    Ok(format!(
        "{NOISE} more Pods in a namespace were told in {tellings} writes"
    ))
}

/// What the operator asked of the API server, Lease renewals left out.
#[derive(Debug, Default)]
struct Cost {
    tenants: usize,
    /// By verb and resource.
    requests: BTreeMap<(String, String), usize>,
    conflicts: usize,
}

impl Cost {
    fn of<'a>(entries: impl Iterator<Item = &'a Entry>, tenants: usize) -> Self {
        let mut cost = Self {
            tenants,
            ..Self::default()
        };
        for entry in entries {
            let request = &entry.request;
            if request.resource.starts_with("leases") || request.verb == "watch" {
                continue;
            }
            cost.conflicts += usize::from(entry.code == 409);
            let key = (request.verb.clone(), request.resource.clone());
            *cost.requests.entry(key).or_default() += 1;
        }
        cost
    }

    fn sum(&self, is_it: impl Fn(&str, &str) -> bool) -> f64 {
        let all = self.requests.iter();
        let counted = all.filter(|((verb, resource), _)| is_it(verb, resource));
        let count: usize = counted.map(|(_, count)| count).sum();
        count as f64 / self.tenants as f64
    }

    fn writes(&self) -> f64 {
        self.sum(|verb, resource| {
            !["get", "list"].contains(&verb) && !resource.starts_with("events")
        })
    }

    fn statuses(&self) -> f64 {
        self.sum(|_, resource| resource.starts_with("tenants") && resource.ends_with("status"))
    }

    fn events(&self) -> f64 {
        self.sum(|verb, resource| verb == "create" && resource.starts_with("events"))
    }

    fn gets(&self) -> f64 {
        self.sum(|verb, _| verb == "get")
    }

    /// In all: a cache that lists again does so for all Tenants.
    fn lists(&self) -> usize {
        let all = self.requests.iter();
        all.filter(|((verb, _), _)| verb == "list")
            .map(|(_, count)| count)
            .sum()
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "per Tenant {:.2} writes ({:.2} of its status), {:.2} Events, {:.2} GET; {} LIST, {} conflicts",
            self.writes(),
            self.statuses(),
            self.events(),
            self.gets(),
            self.lists(),
            self.conflicts
        )
    }
}
