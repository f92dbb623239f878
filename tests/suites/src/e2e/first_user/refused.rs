//! Children that the API server does not accept.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration,
    core::v1::{LimitRange, ResourceQuota, Service},
    rbac::v1::ClusterRole,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testkit::operator::cluster_name;

use super::{
    super::{
        children::{rejects_jobs, rejects_pods},
        policies::Bound,
    },
    fixture::{Bench, Cause, Seen, Why, named, submitted},
};

pub(super) async fn quota(bench: &Bench) -> Result<Seen> {
    let quota = json!({ "metadata": { "name": "no-pods" }, "spec": { "hard": { "pods": "0" } } });
    bench.env.create::<ResourceQuota>(quota).await?;
    rejects_pods(&bench.env, "exceeded quota: no-pods").await?;
    bench.agent("full", "true", json!({})).await?;
    let cause = Cause::at_once("QuotaExceeded", &["no-pods"]);
    let why = Why::command(
        &[
            "ResourceQuota no-pods",
            "pods 0 of 0 used, 1 more asked for",
        ],
        "kubectl describe resourcequota no-pods",
    );
    submitted(bench, "full", json!({}), cause, why).await
}

pub(super) async fn limit_range(bench: &Bench) -> Result<Seen> {
    let limits = json!([{ "type": "Container", "max": { "memory": "32Mi" } }]);
    let range = json!({ "metadata": { "name": "small" }, "spec": { "limits": limits } });
    bench.env.create::<LimitRange>(range).await?;
    bench.agent("large", "true", json!({})).await?;
    let cause = Cause::at_once("QuotaExceeded", &["maximum memory usage", "32Mi"]);
    let why = Why::command(
        &["LimitRange small", "32Mi", "64Mi"],
        "kubectl describe limitrange small",
    );
    submitted(bench, "large", json!({}), cause, why).await
}

/// Each Pod needs a label, as companies ask for.
pub(super) async fn policy(bench: &Bench) -> Result<Seen> {
    let rule = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
    });
    let matching = json!({ "matchConstraints": { "resourceRules": [rule] } });
    let namespace = Some(bench.env.namespace.as_str());
    let message = "each Pod needs a label 'owner'";
    let bound = Bound::rejecting(&bench.env, matching, message, namespace).await?;
    rejects_pods(&bench.env, message).await?;
    bench.agent("bare", "true", json!({})).await?;
    let cause = Cause::at_once("AdmissionDenied", &[message]);
    let why = Why::command(
        &["ValidatingAdmissionPolicy", "rejecting", message],
        "kubectl get validatingadmissionpolicy",
    );
    let seen = submitted(bench, "bare", json!({}), cause, why).await;
    bound.release().await?;
    seen
}

pub(super) async fn webhook_of_jobs(bench: &Bench) -> Result<Seen> {
    webhook(bench, "batch", "jobs").await
}

pub(super) async fn webhook_of_pods(bench: &Bench) -> Result<Seen> {
    webhook(bench, "", "pods").await
}

/// A webhook whose server is down: its Service has no Pods.
async fn webhook(bench: &Bench, group: &str, resource: &str) -> Result<Seen> {
    let (env, namespace) = (&bench.env, bench.env.namespace.as_str());
    let service = json!({
        "metadata": { "name": "policy" },
        "spec": { "selector": { "app": "nothing" }, "ports": [{ "port": 443 }] },
    });
    env.create::<Service>(service).await?;
    let hook = format!("{resource}.policy.example");
    let configuration = json!({
        "metadata": { "name": format!("{namespace}-{resource}") },
        "webhooks": [{
            "name": hook, "failurePolicy": "Fail", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "timeoutSeconds": 10,
            "clientConfig": { "service": { "name": "policy", "namespace": namespace, "path": "/check" } },
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
            "rules": [{
                "apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": [resource],
            }],
        }],
    });
    let all: Api<ValidatingWebhookConfiguration> = Api::all(env.client.clone());
    let configuration = serde_json::from_value(configuration)?;
    let made = all.create(&PostParams::default(), &configuration).await?;
    let seen = without_webhook(bench, &hook, resource).await;
    // It is in no namespace.
    let name = made.metadata.name.context("no name")?;
    all.delete(&name, &DeleteParams::default()).await?;
    seen
}

async fn without_webhook(bench: &Bench, hook: &str, resource: &str) -> Result<Seen> {
    match resource {
        "jobs" => rejects_jobs(&bench.env, hook).await?,
        _ => rejects_pods(&bench.env, hook).await?,
    }
    bench.agent("hooked", "true", json!({})).await?;
    let cause = Cause::at_once("AdmissionDenied", &["webhook", hook]);
    let blocker = format!("AdmissionWebhook {hook}");
    let says = [blocker.as_str(), "WebhookDown", "does not answer"];
    let server = format!(
        "kubectl get pods,svc,endpointslices -n {}",
        bench.env.namespace
    );
    let why = Why::command(&says, &server).never(&["control plane", "Wait a few seconds"]);
    submitted(bench, "hooked", json!({}), cause, why).await
}

/// The account of the operator may not create Jobs. When it may again, the run succeeds.
pub(super) async fn permission(bench: &Bench) -> Result<Seen> {
    let roles: Api<ClusterRole> = Api::all(bench.env.client.clone());
    let name = cluster_name(&bench.plan.home);
    let before = roles.get(&name).await?;
    let rules = serde_json::to_value(&before.rules)?;
    change(&roles, &name, without_create_jobs(&rules)?).await?;
    bench.agent("denied", "sleep 3", json!({})).await?;
    let since = Instant::now();
    bench.submit("denied", json!({})).await?;
    let cause = Cause::at_once("Denied", &["'create jobs'"]);
    let why = Why::command(
        &[
            "ServiceAccount",
            "operator-under-test",
            "may not 'create jobs'",
        ],
        "kubectl auth can-i create jobs",
    );
    let seen = named(bench, "denied", since, &cause, &why).await?;
    change(&roles, &name, rules).await?;
    bench.finished("denied", Duration::from_secs(90)).await?;
    Ok(seen)
}

/// Replaces the rules of a role.
async fn change(roles: &Api<ClusterRole>, name: &str, rules: Value) -> Result<()> {
    let patch = Patch::Merge(json!({ "rules": rules }));
    roles.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// The rules without the permission to create Jobs.
fn without_create_jobs(rules: &Value) -> Result<Value> {
    let mut rules = rules.clone();
    let all = rules.as_array_mut().context("no rules")?;
    let of_jobs = all
        .iter_mut()
        .filter(|rule| rule["resources"] == json!(["jobs"]));
    let mut count = 0;
    for rule in of_jobs {
        let verbs = rule["verbs"].as_array_mut().context("no verbs")?;
        let before = verbs.len();
        verbs.retain(|verb| verb != "create");
        count += before - verbs.len();
    }
    ensure!(count == 1, "{count} rules for 'create jobs'");
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_creation_of_jobs_is_taken_away() {
        let rule =
            |resource: &str, verbs: &[&str]| json!({ "resources": [resource], "verbs": verbs });
        let rules = json!([rule("jobs", &["get", "create"]), rule("pods", &["create"])]);
        let wanted = json!([rule("jobs", &["get"]), rule("pods", &["create"])]);
        assert_eq!(without_create_jobs(&rules).unwrap(), wanted);
        assert!(without_create_jobs(&wanted).is_err());
    }
}
