//! The scenarios of the tenants operator.

mod bounds;
mod ends;
mod oracles;
mod work;

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use api::tenants::Tenant;
use futures::FutureExt;
use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use testkit::{
    faults::{
        object_history::Seen,
        scenario_run::{Scenario, Stage},
    },
    suite,
    wait::met,
};

use super::actions::{self, Actions, ScenarioFn, merged};

/// The longest wait for a step, with an API server that refuses and an operator that is killed.
const LIMIT: Duration = Duration::from_secs(100);

/// The same for a proof: one that could not be tried is tried again after a minute.
const PROVEN: Duration = Duration::from_secs(170);

/// What a scenario takes beside its longest wait: the other steps are seldom broken, too.
const SLACK: Duration = Duration::from_secs(60);

/// A scenario of Tenants, with this longest wait.
fn of(
    name: &'static str,
    begins_as: Option<&'static str>,
    longest: Duration,
    run: ScenarioFn,
) -> Actions {
    Actions {
        begins_as,
        limit: longest + SLACK,
        judge: oracles::judge,
        ..Actions::new(name, run)
    }
}

/// Those that are played for mutants only.
pub(super) fn slow() -> Vec<Arc<dyn Scenario>> {
    actions::all([of("reopened", None, PROVEN + PROVEN, |stage| {
        work::reopened(stage).boxed()
    })])
}

/// All of them. Their names are no others' of another operator.
pub(super) fn scenarios() -> Vec<Arc<dyn Scenario>> {
    let one = |name, begins_as, run| of(name, begins_as, LIMIT, run);
    let (bare, full) = (Some("bare"), Some("full"));
    actions::all([
        one("bare", None, |stage| bounds::bare(stage).boxed()),
        one("change", bare, |stage| bounds::change(stage).boxed()),
        one("drift", bare, |stage| bounds::drift(stage).boxed()),
        one("foreign", None, |stage| bounds::foreign(stage).boxed()),
        one("removal", bare, |stage| ends::removal(stage).boxed()),
        one("blocked", bare, |stage| ends::blocked(stage).boxed()),
        one("retained", full, |stage| ends::retained(stage).boxed()),
        one("full", None, |stage| work::full(stage).boxed()),
        one("rollout", full, |stage| work::rollout(stage).boxed()),
        one("pause", full, |stage| work::pause(stage).boxed()),
        Actions {
            replicas: 2,
            ..one("handover", bare, |stage| ends::handover(stage).boxed())
        },
        of("isolated", full, PROVEN, |stage| {
            work::isolated(stage).boxed()
        }),
    ])
}

/// Kinds of the operator that belong to no namespace.
pub(super) const SELECTED: &[&str] = &["tenants"];

/// What the operator watches, for the object history.
pub(super) fn watched() -> Vec<kube::core::ApiResource> {
    use k8s_openapi::api::{
        apps::v1::{Deployment, StatefulSet},
        core::v1::{
            ConfigMap, LimitRange, Namespace, PersistentVolumeClaim, Pod, ResourceQuota, Secret,
            Service,
        },
        discovery::v1::EndpointSlice,
        events::v1::Event,
        networking::v1::NetworkPolicy,
        rbac::v1::RoleBinding,
    };
    use kube::core::ApiResource;
    vec![
        ApiResource::erase::<Namespace>(&()),
        ApiResource::erase::<Tenant>(&()),
        ApiResource::erase::<ResourceQuota>(&()),
        ApiResource::erase::<LimitRange>(&()),
        ApiResource::erase::<RoleBinding>(&()),
        ApiResource::erase::<NetworkPolicy>(&()),
        ApiResource::erase::<ConfigMap>(&()),
        ApiResource::erase::<Service>(&()),
        ApiResource::erase::<Secret>(&()),
        ApiResource::erase::<Deployment>(&()),
        ApiResource::erase::<StatefulSet>(&()),
        ApiResource::erase::<PersistentVolumeClaim>(&()),
        ApiResource::erase::<EndpointSlice>(&()),
        ApiResource::erase::<Pod>(&()),
        ApiResource::erase::<Event>(&()),
    ]
}

/// What the chart installs beside the operator.
pub(super) fn beside() -> Vec<Value> {
    let class = api::policy::tenant_probe_class();
    let role = api::policy::tenant_owner_role();
    vec![json!(class), json!(role)]
}

/// The name of a play's Tenant.
fn name(stage: &Stage) -> String {
    format!("{}-a", stage.namespace)
}

/// Its namespace.
fn place(stage: &Stage) -> String {
    format!("tenant-{}", name(stage))
}

/// Objects in its namespace.
fn inside<K>(stage: &Stage) -> Api<K>
where
    K: kube::Resource<Scope = NamespaceResourceScope>,
    K::DynamicType: Default,
{
    Api::namespaced(stage.client.clone(), &place(stage))
}

/// The play's Tenant; `more` is merged into its spec.
async fn create(stage: &Stage, more: Value) -> Result<()> {
    let spec = json!({ "deletion": { "policy": "Delete" }, "isolation": { "probe": false } });
    let (label, play) = stage.label();
    let tenant = json!({
        "apiVersion": "orchestrator.io/v1alpha1", "kind": "Tenant",
        "metadata": { "name": name(stage), "labels": { label: play } },
        "spec": merged(spec, more),
    });
    suite::create::<Tenant>(&Api::all(stage.client.clone()), tenant).await?;
    Ok(())
}

/// Changes the Tenant, and waits until the object history has seen it. Until then, a late watch shows the Tenant as it
/// stood before, which may be as the play wants it.
async fn patch(stage: &Stage, spec: Value) -> Result<()> {
    let tenants: Api<Tenant> = Api::all(stage.client.clone());
    let patch = Patch::Merge(json!({ "spec": spec }));
    let patched = tenants
        .patch(&name(stage), &PatchParams::default(), &patch)
        .await?;
    let wanted = patched.metadata.generation;
    stage
        .until("the change to be seen", LIMIT, |seen| {
            let tenant = seen.iter().find(|one| one.resource == "tenants");
            let found = tenant.and_then(|one| one.object["metadata"]["generation"].as_i64());
            met(found >= wanted, || format!("generation {found:?}"))
        })
        .await
}

async fn delete(stage: &Stage) -> Result<()> {
    let tenants: Api<Tenant> = Api::all(stage.client.clone());
    tenants
        .delete(&name(stage), &DeleteParams::default())
        .await?;
    Ok(())
}

/// Phase and reason of the Tenant, if what is said is about its spec as it is.
fn standing(seen: &[Seen]) -> (String, String) {
    let Some(tenant) = seen.iter().find(|one| one.resource == "tenants") else {
        return ("gone".to_owned(), String::new());
    };
    let status = &tenant.object["status"];
    let phase = status["phase"].as_str().unwrap_or("none").to_owned();
    let ready = tenant.condition("Ready");
    let reason = ready.and_then(|one| one["reason"].as_str()).unwrap_or("");
    if status["observedGeneration"] != tenant.object["metadata"]["generation"] {
        return ("old".to_owned(), format!("{phase} {reason}"));
    }
    (phase, reason.to_owned())
}

/// Waits until the Tenant stands so; an empty reason means any.
async fn stands(stage: &Stage, phase: &str, reason: &str) -> Result<()> {
    stage
        .until(&format!("{phase} {reason}"), LIMIT, |seen| {
            let (is, why) = standing(seen);
            let is_so = is == phase && (reason.is_empty() || why == reason);
            met(is_so, || format!("{is} {why}"))
        })
        .await
}

/// Waits until the Tenant is gone; with its namespace, if that is to go.
async fn gone(stage: &Stage, with_namespace: bool) -> Result<()> {
    let place = place(stage);
    stage
        .until("everything to be gone", LIMIT, |seen| {
            let is_place = |one: &&Seen| one.resource == "namespaces" && one.name == place;
            let (is, why) = standing(seen);
            let is_left = with_namespace && seen.iter().any(|one| is_place(&one));
            met(is == "gone" && !is_left, || {
                format!("{is} {why}, its namespace is there: {is_left}")
            })
        })
        .await
}
