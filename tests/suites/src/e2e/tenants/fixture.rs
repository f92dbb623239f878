//! What the cases of Tenants have in common.
//!
//! Tenants belong to no namespace, so one operator works on those of all cases. A case that stops it has
//! the cluster for itself.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use ::why::gather::TargetKind;
use anyhow::{Context, Result, ensure};
use api::{
    names,
    status::condition,
    tenants::{Tenant, TenantPhase, TenantStatus},
};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{Namespace, Pod},
        events::v1::Event,
    },
};
use kube::{
    Api, Client, ResourceExt,
    api::{AttachParams, DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use testkit::{
    cluster::apply,
    operator::{self, Operator, Plan},
    suite::Env,
    wait::until,
};
use tokio::{io::AsyncReadExt, sync::Mutex};

use super::super::{
    merge,
    reading::{brief, says_all},
    status_history::StatusHistory,
    why,
};

/// Where the operator's Lease is, and the Pods that try from outside.
pub(in super::super) const HOME: &str = "orchestrator";
/// Debian's Redis.
pub(super) const REDIS: &str = "testbed.local/redis:7";
/// A small server that keeps notes in its Redis.
pub(super) const NOTES: &str = "testbed.local/notes:1";
/// Long enough for a Redis and a server on a machine with much to do.
pub(super) const LIMIT: Duration = Duration::from_secs(90);
/// A server reaches its Redis within this time after both are ready: twice the time for which the
/// cluster's DNS remembers that a name is not there.
const ANSWERED: Duration = Duration::from_secs(10);
/// So long it is asked, so that a failure can tell how long it took.
const REACHED: Duration = Duration::from_secs(40);
/// One answer of it.
const ANSWER: Duration = Duration::from_secs(5);
/// Within this time it is said what is in the way.
pub(super) const SAID: Duration = Duration::from_secs(10);

/// The operator of all cases.
static OPERATOR: Mutex<Option<Operator>> = Mutex::const_new(None);

/// Every version of every Tenant, where it can be judged.
static STATUS_HISTORY: Mutex<Option<StatusHistory>> = Mutex::const_new(None);

/// The longest time until a server reached its Redis, in all cases.
static SLOWEST: Mutex<Duration> = Mutex::const_new(Duration::ZERO);

/// The longest time until a server reached its Redis so far.
pub(super) async fn slowest() -> Duration {
    *SLOWEST.lock().await
}

/// A case's place.
pub(super) struct Bench {
    pub(super) env: Env,
}

/// Kills the operator of all cases, if the last of them did not end it: its cluster is gone.
pub(in super::super) async fn abandon() {
    drop(OPERATOR.lock().await.take());
}

/// Ends the operator of all cases; all that it wrote.
pub(super) async fn end() -> Result<String> {
    let Some(operator) = OPERATOR.lock().await.take() else {
        return Ok(String::new());
    };
    let log = operator.log_text()?;
    operator.stop().await?;
    Ok(log)
}

/// Watches all Tenants from now on. Without their definition the watch is over.
pub(super) async fn look(env: &Env) -> Result<()> {
    if env.testbed("kstatus").is_ok() {
        *STATUS_HISTORY.lock().await = Some(StatusHistory::of_tenants(&env.client).await?);
    }
    Ok(())
}

/// What other tools make of every version that was seen since; how many that were.
pub(super) async fn judge() -> Result<usize> {
    match STATUS_HISTORY.lock().await.take() {
        Some(history) => history.judge().await,
        None => Ok(0),
    }
}

async fn start(env: &Env) -> Result<Operator> {
    let plan = Plan {
        // Who is killed is followed soon.
        config: "leaderElection: {leaseDurationSeconds: 3, renewSeconds: 1}\n".to_owned(),
        ..Plan::new(operator::built()?, &api::tenants::OPERATOR, HOME)
    };
    Operator::start(&env.client, &env.config, &plan).await
}

/// What the chart installs beside the operator, but the policies about the operator itself: they need its
/// name.
pub(in super::super) async fn install(env: &Env) -> Result<()> {
    operator::install(&env.client, api::tenants::OPERATOR.crds()).await?;
    let home = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": HOME } });
    let class = api::policy::tenant_probe_class();
    let role = api::policy::tenant_owner_role();
    for object in [home, json!(class), json!(role)] {
        apply(&env.client, HOME, &object.to_string()).await?;
    }
    let mut policies = api::policy::tenants();
    policies.extend(api::policy::tenant_namespaces());
    let operator = format!("system:serviceaccount:{HOME}:{}", operator::ACCOUNT);
    // The administrator of the testbed creates children, too: some cases plant them.
    let writers = [operator.as_str(), "admin"];
    api::policy::fill(&mut policies, api::policy::LABEL_WRITERS, &writers);
    for policy in policies {
        let name = policy.metadata.name.as_deref().unwrap_or_default();
        let name = format!("orchestrator-tenants-{name}");
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": name }, "spec": policy.spec,
        });
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": { "name": name },
            "spec": { "policyName": name, "validationActions": ["Deny"] },
        });
        for object in [policy, binding] {
            apply(&env.client, HOME, &object.to_string()).await?;
        }
    }
    Ok(())
}

impl Bench {
    /// With the operator of all cases at work.
    pub(super) async fn new(env: Env) -> Result<Self> {
        let mut operator = OPERATOR.lock().await;
        if operator.is_none() {
            install(&env).await?;
            look(&env).await?;
            *operator = Some(start(&env).await?);
        }
        drop(operator);
        Ok(Self { env })
    }

    pub(super) fn client(&self) -> Client {
        self.env.client.clone()
    }

    pub(super) fn tenants(&self) -> Api<Tenant> {
        Api::all(self.client())
    }

    pub(super) fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client())
    }

    /// Objects in the namespace of a Tenant.
    pub(super) fn of<K>(&self, tenant: &str) -> Api<K>
    where
        K: kube::Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client(), &namespace(tenant))
    }

    /// Creates an object in the namespace of a Tenant.
    pub(super) async fn put<K>(&self, tenant: &str, object: Value) -> Result<K>
    where
        K: kube::Resource<Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
        K::DynamicType: Default,
    {
        let mut there = self.env.clone();
        there.namespace = namespace(tenant);
        there.create(object).await
    }

    /// Kills the operator at once, and starts another, which waits until its Lease is over.
    pub(super) async fn replace(&self) -> Result<()> {
        let operator = OPERATOR.lock().await.take().context("no operator")?;
        operator.kill().await?;
        self.restart().await
    }

    /// Asks the operator to stop.
    pub(super) async fn stop(&self) -> Result<()> {
        let operator = OPERATOR.lock().await.take().context("no operator")?;
        operator.stop().await
    }

    /// Starts another.
    pub(super) async fn restart(&self) -> Result<()> {
        let mut operator = OPERATOR.lock().await;
        ensure!(operator.is_none(), "there is one already");
        *operator = Some(start(&self.env).await?);
        Ok(())
    }

    /// The value of a metric of the operator.
    pub(super) async fn metric(&self, series: &str) -> Result<f64> {
        let operator = OPERATOR.lock().await;
        let operator = operator.as_ref().context("no operator")?;
        operator.metric(series).await
    }

    /// A name of this case.
    pub(super) fn name(&self, word: &str) -> String {
        format!("{}-{word}", self.env.namespace)
    }

    /// A Tenant that is deleted with everything; `more` is merged into its spec.
    pub(super) async fn create(&self, word: &str, more: Value) -> Result<String> {
        let name = self.name(word);
        let mut spec =
            json!({ "deletion": { "policy": "Delete" }, "isolation": { "probe": false } });
        merge(&mut spec, more);
        let tenant: Tenant = serde_json::from_value(json!({
            "apiVersion": "orchestrator.io/v1alpha1", "kind": "Tenant",
            "metadata": { "name": name }, "spec": spec,
        }))?;
        self.tenants()
            .create(&PostParams::default(), &tenant)
            .await?;
        Ok(name)
    }

    /// Merges a patch into a Tenant's spec.
    pub(super) async fn change(&self, name: &str, spec: Value) -> Result<Tenant> {
        let params = PatchParams::default();
        let patch = json!({ "spec": spec });
        Ok(self
            .tenants()
            .patch(name, &params, &Patch::Merge(patch))
            .await?)
    }

    /// A Tenant that runs; `more` is merged into its spec.
    pub(super) async fn launch(&self, word: &str, more: Value) -> Result<String> {
        let name = self.create(word, more).await?;
        self.running(&name).await?;
        Ok(name)
    }

    /// Changes a Tenant's spec, and waits until it runs so.
    pub(super) async fn becomes(&self, name: &str, spec: Value) -> Result<Tenant> {
        self.change(name, spec).await?;
        self.running(name).await
    }

    /// Waits until a Tenant looks as wanted; what is seen on the way must be sane.
    pub(super) async fn until(
        &self,
        name: &str,
        within: Duration,
        what: &str,
        wanted: impl Fn(&TenantStatus) -> bool,
    ) -> Result<Tenant> {
        let tenants = self.tenants();
        until(&format!("{name}: {what}"), within, async || {
            let seen = tenants.get(name).await?;
            let status = seen.status.clone().unwrap_or_default();
            sane(&seen)?;
            let is_current = Some(status.progress.observed_generation) == seen.metadata.generation;
            Ok(if is_current && wanted(&status) {
                Ok(seen)
            } else {
                Err(told(&status))
            })
        })
        .await
    }

    /// Waits until it runs.
    pub(super) async fn running(&self, name: &str) -> Result<Tenant> {
        self.in_phase(name, LIMIT, TenantPhase::Running).await
    }

    pub(super) async fn in_phase(
        &self,
        name: &str,
        within: Duration,
        phase: TenantPhase,
    ) -> Result<Tenant> {
        self.until(name, within, &format!("{phase:?}"), |status| {
            status.phase == Some(phase)
        })
        .await
    }

    /// Within 10 s it is said to be degraded, by this and in these words.
    pub(super) async fn degraded(&self, name: &str, reason: &str, says: &[&str]) -> Result<String> {
        let begin = Instant::now();
        let seen = self
            .until(name, SAID, reason, |status| {
                status.phase == Some(TenantPhase::Degraded)
                    && ready_reason(status) == reason
                    && says_all(status, says).is_ok()
            })
            .await?;
        let status = seen.status.unwrap_or_default();
        let took = begin.elapsed().as_secs_f64();
        self.explained(name, reason).await?;
        Ok(format!("{took:.1} s: {}", told(&status)))
    }

    /// `orc why` names what is to blame, too.
    pub(super) async fn explained(&self, name: &str, reason: &str) -> Result<()> {
        why::ask(
            &self.env.client,
            TargetKind::Tenant,
            ("", name),
            HOME,
            reason,
        )
        .await
    }

    /// What the Redis of a Tenant answers, through its server and the API server. All of these hear
    /// later than the operator that a Pod is there or gone: the cluster's DNS tells for some seconds
    /// what was, policies are carried out a moment later, the proxy knows the old endpoint.
    ///
    /// Fails if the first answer takes longer than [`ANSWERED`].
    pub(super) async fn ask(&self, tenant: &str, query: &str) -> Result<String> {
        let namespace = namespace(tenant);
        let path = format!(
            "/api/v1/namespaces/{namespace}/services/server:3030/proxy/cgi-bin/notes?{query}"
        );
        let begin = Instant::now();
        let answer = until("a server that reaches its Redis", REACHED, async || {
            let request = http::Request::get(&path).body(Vec::new())?;
            let asked = self.env.client.request_text(request);
            Ok(match tokio::time::timeout(ANSWER, asked).await {
                Err(_elapsed) => Err(format!("no answer in {} s", ANSWER.as_secs())),
                Ok(Ok(answer)) if answer.contains("Could not connect") => Err(answer),
                Ok(Ok(answer)) => Ok(answer.trim().to_owned()),
                Ok(Err(kube::Error::Api(status))) if (502..=504).contains(&status.code) => {
                    Err(status.message)
                }
                // The API server closes our connection when the Pod that it leads to goes.
                Ok(Err(error @ kube::Error::Service(_))) => Err(error.to_string()),
                Ok(Err(error)) => return Err(error.into()),
            })
        })
        .await?;
        let took = begin.elapsed();
        let mut slowest = SLOWEST.lock().await;
        *slowest = took.max(*slowest);
        ensure!(
            took <= ANSWERED,
            "{tenant} was Running, and its server reached its Redis only after {:.1} s; the \
             cluster's DNS remembers for 5 s that a name is not there, so at most {} s are expected",
            took.as_secs_f64(),
            ANSWERED.as_secs()
        );
        Ok(answer)
    }

    /// Stores something through the server of a Tenant.
    pub(super) async fn stores(&self, tenant: &str, note: &str) -> Result<()> {
        let answer = self.ask(tenant, note).await?;
        ensure!(answer == "OK", "'{note}' was not stored: '{answer}'");
        Ok(())
    }

    /// What a command in a Tenant's Redis says.
    pub(super) async fn redis(&self, tenant: &str, command: &str) -> Result<String> {
        let script = format!("redis-cli {command}");
        exec(&self.of(tenant), "redis-0", &script).await
    }

    /// Deletes a Tenant and waits until it and its namespace are gone.
    pub(super) async fn deletes(&self, name: &str) -> Result<()> {
        self.delete(name).await?;
        self.is_gone(name).await?;
        self.took_its_namespace(name).await
    }

    /// Asks for the deletion of a Tenant, without waiting for it.
    pub(super) async fn delete(&self, name: &str) -> Result<()> {
        let params = DeleteParams::default();
        self.tenants().delete(name, &params).await?;
        Ok(())
    }

    /// A Tenant that is gone took its namespace with it.
    pub(super) async fn took_its_namespace(&self, name: &str) -> Result<()> {
        let namespace = self.namespaces().get_opt(&namespace(name)).await?;
        ensure!(namespace.is_none(), "the Tenant went before its namespace");
        Ok(())
    }

    /// Waits until the Tenant itself is gone.
    pub(super) async fn is_gone(&self, name: &str) -> Result<()> {
        let tenants = self.tenants();
        until(&format!("{name} to be gone"), LIMIT, async || {
            Ok(match tenants.get_opt(name).await? {
                None => Ok(()),
                Some(seen) => Err(told(&seen.status.unwrap_or_default())),
            })
        })
        .await
    }

    /// The Pods of a part of a Tenant that are not being deleted.
    pub(super) async fn pods(&self, tenant: &str, component: &str) -> Result<Vec<Pod>> {
        let params =
            ListParams::default().labels(&format!("orchestrator.io/component={component}"));
        let mut pods = self.of::<Pod>(tenant).list(&params).await?.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok(pods)
    }
}

/// The namespace of a Tenant that says nothing else.
pub(super) fn namespace(tenant: &str) -> String {
    format!("tenant-{tenant}")
}

/// The status in a line.
pub(super) fn told(status: &TenantStatus) -> String {
    format!("{} {}", ready_reason(status), brief(status))
}

/// The reason of the condition `Ready`.
pub(super) fn ready_reason(status: &TenantStatus) -> &str {
    reason(status, condition::READY).1
}

/// Value and reason of a condition.
pub(super) fn reason<'a>(status: &'a TenantStatus, kind: &str) -> (&'a str, &'a str) {
    let known = status.progress.condition(kind);
    known.map_or(("", ""), |one| (one.status.as_str(), one.reason.as_str()))
}

/// What holds at every instant.
fn sane(tenant: &Tenant) -> Result<()> {
    let status = tenant.status.as_ref();
    let status = status.context("S0.3: no status, although the CRD has a default")?;
    let is = |kind: &str| status.progress.is_true(kind);
    let is_running = status.phase == Some(TenantPhase::Running);
    let is_seen = status.progress.observed_generation != -1;
    let is_going = tenant.metadata.deletion_timestamp.is_some();
    let has_message = status
        .progress
        .message
        .as_ref()
        .is_some_and(|text| !text.is_empty());
    ensure!(
        status.phase.is_some() && has_message,
        "S0.3: phase {:?}, message {:?}",
        status.phase,
        status.progress.message
    );
    ensure!(
        !is_seen || is_going || is(condition::READY) == is_running,
        "Ready and the phase disagree: {}",
        told(status)
    );
    ensure!(
        !(is(condition::RECONCILING) && is(condition::STALLED)),
        "Reconciling and Stalled: {}",
        told(status)
    );
    ensure!(
        tenant.owner_references().is_empty(),
        "an owner reference: {tenant:?}"
    );
    Ok(())
}

/// Runs a script in a Pod; what it wrote.
pub(super) async fn exec(pods: &Api<Pod>, pod: &str, script: &str) -> Result<String> {
    let parameters = AttachParams::default().stdout(true).stderr(true);
    let mut process = pods.exec(pod, ["sh", "-c", script], &parameters).await?;
    let mut said = String::new();
    let mut output = process.stdout().context("no output of exec")?;
    output.read_to_string(&mut said).await?;
    Ok(said.trim().to_owned())
}

/// S2.6: an Event about the Tenant, which is where those of objects without a namespace are.
pub(super) async fn told_of(bench: &Bench, name: &str, kind: &str, words: &str) -> Result<()> {
    let uid = bench.tenants().get(name).await?.uid();
    let events: Api<Event> = Api::namespaced(bench.env.client.clone(), "default");
    let all = events.list(&ListParams::default()).await?.items;
    let is_it = |event: &&Event| {
        let about = event
            .regarding
            .as_ref()
            .and_then(|object| object.uid.clone());
        let note = event.note.as_deref().unwrap_or_default();
        about == uid && event.type_.as_deref() == Some(kind) && note.contains(words)
    };
    let found = all.iter().filter(is_it).count();
    ensure!(found == 1, "{found} Events ({kind}) say '{words}'");
    Ok(())
}

/// A server and a Redis, as small as they can be.
pub(super) fn both() -> Value {
    json!({ "server": server(), "redis": redis() })
}

pub(super) fn server() -> Value {
    json!({
        "image": NOTES,
        "replicas": 1,
        "resources": small(),
        "probes": { "readiness": readiness("/cgi-bin/health") },
    })
}

/// Asked often, and patiently: on a machine with much to do, an answer may come late.
pub(super) fn readiness(path: &str) -> Value {
    json!({ "path": path, "periodSeconds": 1, "failureThreshold": 10 })
}

pub(super) fn redis() -> Value {
    json!({ "image": REDIS, "storage": { "size": "64Mi" }, "resources": small() })
}

fn small() -> Value {
    json!({ "requests": { "cpu": "10m", "memory": "16Mi" }, "limits": { "cpu": "500m", "memory": "64Mi" } })
}

/// All that carries the UID of a Tenant, by kind.
pub(super) fn labelled(tenant: &Tenant) -> ListParams {
    let uid = tenant.uid().unwrap_or_default();
    ListParams::default().labels(&[names::UID, "=", &uid].concat())
}
