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
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use testkit::{git::Repository, suite::Env, wait::until};

use super::{
    super::{
        children::{forbid_jobs, rejects_jobs},
        events, merge,
        policies::Bound,
    },
    fixture::{Bench, Expect, SECRET, WRITER, brief, phase_of, says_all},
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
        let expect = not_started("AddressNotAllowed").within(ONE_LOOK);
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
    let seen = bench.says_within(name, reason, ONE_LOOK).await?;
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
    let event = until("S0.2: the Event", left, async || {
        let told = events::ours(&bench.env, &uid).await?;
        let event = told
            .into_iter()
            .find(|event| event.reason.as_deref() == Some(*reason));
        Ok(event.ok_or_else(|| "none".to_owned()))
    })
    .await?;
    let note = event.note.unwrap_or_default();
    ensure!(
        words.iter().all(|word| note.contains(word)),
        "S0.2: the Event says {note}"
    );
    bench.logs_error(class, reason, &words).await?;
    let maps: Api<ConfigMap> = bench.env.api();
    let map = maps.get(&docs_names::config_map(name)).await?;
    ensure!(
        map.labels().get(names::UID) == Some(&uid),
        "the ConfigMap is another's"
    );
    Ok(took)
}

/// A run that was refused so succeeds when the cause is gone.
async fn goes_on(
    bench: &Bench,
    name: &str,
    repository: &Repository,
    refusal: &Refusal,
    took: Duration,
) -> Result<String> {
    let expect = Expect {
        events: &[refusal.reason],
        within: Some(Duration::from_secs(120)),
        ..Expect::default()
    };
    bench.pushed(name, repository, &expect).await?;
    Ok(format!(
        "S0.2, S0.3: status, Event, metric, log and orc why after {:.1} s; went on when the cause was gone",
        took.as_secs_f64()
    ))
}

pub(super) async fn job_quota(bench: &Bench) -> Result<String> {
    let repository = bench.repository("quota").await?;
    let quotas = forbid_jobs(&bench.env).await?;
    bench.agent("quota", WRITER, json!({})).await?;
    let refusal = Refusal {
        reason: "QuotaExceeded",
        class: "Denied",
        says: &["create jobs", "no-jobs"],
    };
    let took = is_told(bench, "quota", &refusal).await?;
    quotas.delete("no-jobs", &DeleteParams::default()).await?;
    goes_on(bench, "quota", &repository, &refusal, took).await
}

pub(super) async fn job_admission(bench: &Bench) -> Result<String> {
    let repository = bench.repository("policy").await?;
    let message = "Jobs need a cost centre here";
    let matching = json!({
        "failurePolicy": "Fail",
        "matchConstraints": { "resourceRules": [{
            "apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["jobs"],
        }]},
    });
    let namespace = Some(bench.env.namespace.as_str());
    let bound = Bound::rejecting(&bench.env, matching, message, namespace).await?;
    rejects_jobs(&bench.env, message).await?;
    bench.agent("policy", WRITER, json!({})).await?;
    let refusal = Refusal {
        reason: "AdmissionDenied",
        class: "Denied",
        says: &["create jobs", "Jobs need a cost centre here"],
    };
    let took = is_told(bench, "policy", &refusal).await?;
    bound.release().await?;
    goes_on(bench, "policy", &repository, &refusal, took).await
}

pub(super) async fn job_invalid(bench: &Bench) -> Result<String> {
    let repository = bench.repository("template").await?;
    // An Agent takes any name of a resource; a Job does not.
    let limits = |more: Value| {
        let mut limits = json!({ "memory": "128Mi" });
        merge(&mut limits, more);
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
    let took = is_told(bench, "template", &refusal).await?;
    let agents: Api<Agent> = bench.env.api();
    let patch = json!({ "spec": limits(json!({ "bananas": null })) });
    agents
        .patch("template", &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    goes_on(bench, "template", &repository, &refusal, took).await
}
