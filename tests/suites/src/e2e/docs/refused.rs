//! What is refused: addresses by us, Jobs by the API server.

use std::{
    fs,
    net::ToSocketAddrs,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use api::{
    names,
    tasks::{Agent, docs_names},
};
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    core::v1::{ConfigMap, Pod, ResourceQuota, Service},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testkit::{cluster::apply, suite::Env, wait::until};

use super::{
    super::{children::rejects_jobs, events},
    fixture::{Bench, Expect, SECRET, WRITER, brief, phase_of, reason_of, says_all},
    gate::Gate,
    push::{not_started, untouched},
};

/// One look of the operator, on a machine with much to do.
const ONE_LOOK: Duration = Duration::from_secs(10);

pub(super) async fn addresses(env: Env) -> Result<String> {
    // Nothing is allowed.
    let bench = Bench::configured(env, "").await?;
    let repository = bench.repository("inside").await?;
    let base = repository.head("main")?;
    bench.agent("inside", WRITER, json!({})).await?;
    // Whoever talks to the node, over whichever way, comes here.
    let gate = Gate::new(&bench)?;
    let port = gate.place.rsplit(':').next().unwrap_or_default().to_owned();
    let at = |host: &str| format!("https://{host}:{port}/inside.git");
    let services: Api<Service> = Api::namespaced(bench.env.client.clone(), "default");
    let service = services.get("kubernetes").await?;
    let service = service
        .spec
        .and_then(|spec| spec.cluster_ip)
        .context("no address of the Service")?;
    let pods: Api<Pod> = Api::all(bench.env.client.clone());
    let pods = pods.list(&ListParams::default()).await?.items;
    let pod = pods
        .into_iter()
        .filter(|pod| {
            pod.spec
                .as_ref()
                .is_some_and(|spec| spec.host_network != Some(true))
        })
        .find_map(|pod| pod.status?.pod_ip);
    let own = fs::read_to_string("/proc/sys/kernel/hostname")?;
    let own = own.trim().to_owned();
    let is_inside = (own.as_str(), 443)
        .to_socket_addrs()
        .is_ok_and(|mut all| all.any(|address| address.ip().is_loopback()));

    let mut urls = vec![
        ("node", at("198.18.0.1")),
        ("node-ssh", format!("ssh://git@{}/inside.git", gate.place)),
        ("node-embedded", at("[64:ff9b::c612:1]")),
        ("service", at(&service)),
        ("loopback", at("127.0.0.1")),
        ("loopback-short", at("127.1")),
        ("loopback-number", at("2130706433")),
        ("loopback-six", at("[::1]")),
        ("localhost", at("localhost")),
        ("metadata", at("169.254.169.254")),
        ("private", at("10.0.0.1")),
        ("unspecified", at("0.0.0.0")),
        ("cluster-name", at("kubernetes.default.svc")),
        ("cluster-long", at("kubernetes.default.svc.cluster.local")),
        ("plain-http", bench.git.http_url("inside")),
    ];
    urls.extend(pod.as_deref().map(|pod| ("pod", at(pod))));
    // Only what it resolves to is forbidden.
    urls.extend(is_inside.then(|| ("own-name", at(&own))));
    bench.secret("keys", &bench.git.credentials_ssh()).await?;
    for (name, url) in &urls {
        let secret = if url.starts_with("ssh") {
            "keys"
        } else {
            SECRET
        };
        let more = json!({
            "agentName": "inside", "repositoryUrl": url,
            "credentialsSecretRef": { "name": secret },
        });
        bench.submit(name, more).await?;
    }
    let mut longest = Duration::ZERO;
    for (name, url) in &urls {
        let start = Instant::now();
        let expect = Expect {
            within: ONE_LOOK,
            ..not_started("AddressNotAllowed")
        };
        bench
            .ended(name, &expect)
            .await
            .with_context(|| url.clone())?;
        longest = longest.max(start.elapsed());
    }
    ensure!(gate.knocks().await? == 0, "somebody connected");
    let log = bench.git.log_text()?;
    ensure!(!log.contains("inside.git"), "the server was asked: {log}");
    untouched(&repository, base.as_ref())?;
    bench.done().await?;
    let names: Vec<&str> = urls.iter().map(|(name, _)| *name).collect();
    Ok(format!("no connection to any: {}", names.join(", ")))
}

pub(super) async fn http_allowed(env: Env) -> Result<String> {
    let docs = "    allowedNetworks: [198.18.0.0/24]\n    plainHttp: true\n";
    let bench = Bench::configured(env, docs).await?;
    let repository = bench.repository("plain").await?;
    let mut credentials = bench.git.credentials_https();
    // An authority has no meaning there.
    credentials.remove("ca.crt");
    bench.secret("login", &credentials).await?;
    bench.agent("plain", WRITER, json!({})).await?;
    let more = json!({
        "repositoryUrl": bench.git.http_url("plain"),
        "credentialsSecretRef": { "name": "login" },
    });
    bench.submit("plain", more).await?;
    bench
        .pushed("plain", &repository, &Expect::default())
        .await?;
    bench.done().await?;
    Ok("pushed over plain http, because the configuration says so".to_owned())
}

/// How the API server refuses a Job.
struct Refusal {
    reason: &'static str,
    class: &'static str,
    /// What message, Event and log say.
    says: &'static [&'static str],
}

/// The seed's failure: the ConfigMap was made, the Job was refused, and nobody was told (S0.2,
/// S0.3). Here everybody is, within one look.
async fn is_told(bench: &Bench, name: &str, refusal: &Refusal) -> Result<Duration> {
    let Refusal {
        reason,
        class,
        says,
    } = refusal;
    let start = Instant::now();
    let run = bench.submit(name, json!({})).await?;
    let uid = run.uid().unwrap_or_default();
    let seen = bench
        .until(name, ONE_LOOK, reason, |status| {
            reason_of(status) == *reason
        })
        .await?;
    let took = start.elapsed();
    let status = seen.status.clone().unwrap_or_default();
    ensure!(
        phase_of(&status) == "Pending",
        "S0.3: the status is not empty: {}",
        brief(&status)
    );
    let job = docs_names::job(name, 1, None);
    let mut words = vec![job.as_str()];
    words.extend(*says);
    says_all(&status, &words)?;
    let left = ONE_LOOK.saturating_sub(start.elapsed());
    until("S0.2: the Event", left, async || {
        let told = events::ours(&bench.env, &uid).await?;
        let event = told
            .into_iter()
            .find(|event| event.reason.as_deref() == Some(*reason));
        Ok(event.ok_or_else(|| "none".to_owned()))
    })
    .await
    .and_then(|event| {
        let note = event.note.unwrap_or_default();
        ensure!(
            words.iter().all(|word| note.contains(word)),
            "S0.2: the Event says {note}"
        );
        Ok(())
    })?;
    let series =
        format!(r#"orchestrator_reconcile_errors_total{{kind="DocsRun",class="{class}"}}"#);
    ensure!(
        bench.operator.metric(&series).await? >= 1.0,
        "S0.2: {series}"
    );
    let log = bench.operator.log_text()?;
    let (class, reason) = (
        format!(r#""class":"{class}""#),
        format!(r#""reason":"{reason}""#),
    );
    words.extend([class.as_str(), &reason]);
    let is_told = |line: &str| words.iter().all(|word| line.contains(word));
    ensure!(
        log.lines().any(is_told),
        "S0.2: no line of the log has {words:?}: {log}"
    );
    let maps: Api<ConfigMap> = bench.env.api();
    let map = maps.get(&docs_names::config_map(name)).await?;
    ensure!(
        map.labels().get(names::UID) == Some(&uid),
        "the ConfigMap is another's"
    );
    Ok(took)
}

fn goes_on(events: &'static [&'static str]) -> Expect<'static> {
    Expect {
        events,
        within: Duration::from_secs(120),
        ..Expect::default()
    }
}

pub(super) async fn job_quota(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let repository = bench.repository("quota").await?;
    let quota: ResourceQuota = serde_json::from_value(json!({
        "metadata": { "name": "no-jobs" }, "spec": { "hard": { "count/jobs.batch": "0" } },
    }))?;
    let quotas: Api<ResourceQuota> = bench.env.api();
    quotas.create(&PostParams::default(), &quota).await?;
    rejects_jobs(&bench.env, "exceeded quota: no-jobs").await?;
    bench.agent("quota", WRITER, json!({})).await?;
    let refusal = Refusal {
        reason: "QuotaExceeded",
        class: "Denied",
        says: &["create jobs", "no-jobs"],
    };
    let took = is_told(&bench, "quota", &refusal).await?;
    quotas.delete("no-jobs", &DeleteParams::default()).await?;
    let expect = goes_on(&["QuotaExceeded", "Succeeded"]);
    bench.pushed("quota", &repository, &expect).await?;
    bench.done().await?;
    Ok(told(took))
}

fn told(took: Duration) -> String {
    format!(
        "S0.2, S0.3: status, Event, metric, log and orc why after {:.1} s; went on when the cause was gone",
        took.as_secs_f64()
    )
}

const POLICY: &str = r#"apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: no-jobs-NAMESPACE
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector:
      matchLabels:
        kubernetes.io/metadata.name: NAMESPACE
    resourceRules:
      - apiGroups: ["batch"]
        apiVersions: ["v1"]
        operations: ["CREATE"]
        resources: ["jobs"]
  validations:
    - expression: "false"
      message: Jobs need a cost centre here
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: no-jobs-NAMESPACE
spec:
  policyName: no-jobs-NAMESPACE
  validationActions: [Deny]
"#;

pub(super) async fn job_admission(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let repository = bench.repository("policy").await?;
    let namespace = bench.env.namespace.clone();
    let policy = POLICY.replace("NAMESPACE", &namespace);
    apply(&bench.env.client, &namespace, &policy).await?;
    rejects_jobs(&bench.env, "Jobs need a cost centre here").await?;
    bench.agent("policy", WRITER, json!({})).await?;
    let refusal = Refusal {
        reason: "AdmissionDenied",
        class: "Denied",
        says: &["create jobs", "Jobs need a cost centre here"],
    };
    let took = is_told(&bench, "policy", &refusal).await?;
    let name = format!("no-jobs-{namespace}");
    let params = DeleteParams::default();
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(bench.env.client.clone());
    bindings.delete(&name, &params).await?;
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(bench.env.client.clone());
    policies.delete(&name, &params).await?;
    let expect = goes_on(&["AdmissionDenied", "Succeeded"]);
    bench.pushed("policy", &repository, &expect).await?;
    bench.done().await?;
    Ok(told(took))
}

pub(super) async fn job_invalid(env: Env) -> Result<String> {
    let bench = Bench::new(env).await?;
    let repository = bench.repository("template").await?;
    // An Agent takes any name of a resource; a Job does not.
    let limits = |more: Value| {
        let mut limits = json!({ "memory": "128Mi" });
        super::super::merge(&mut limits, more);
        json!({ "resources": { "limits": limits } })
    };
    bench
        .agent("template", WRITER, limits(json!({ "bananas": "1" })))
        .await?;
    let refusal = Refusal {
        reason: "InvalidChild",
        class: "Invalid",
        says: &["bananas"],
    };
    let took = is_told(&bench, "template", &refusal).await?;
    let agents: Api<Agent> = bench.env.api();
    let patch = json!({ "spec": limits(json!({ "bananas": null })) });
    agents
        .patch("template", &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    let expect = goes_on(&["InvalidChild", "Succeeded"]);
    bench.pushed("template", &repository, &expect).await?;
    bench.done().await?;
    Ok(told(took))
}
