//! Reads the state of an installation. A part that cannot be read is kept as such, with the reason.

use std::collections::BTreeMap;

use actions::Request;
use api::{
    Timestamp,
    kinds::{self, OPERATORS, OperatorRow},
};
use futures::future::join_all;
use k8s_openapi::{
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        apps::v1::Deployment,
        authorization::v1::{
            ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
        },
        coordination::v1::Lease,
        core::v1::{Pod, Service},
        discovery::v1::EndpointSlice,
        rbac::v1::PolicyRule,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Resource,
    api::{ListParams, PostParams},
};
use serde::de::DeserializeOwned;
use why::{
    leader::Candidate,
    world::{LeaseView, PodView},
};

use super::{
    view::{Backend, DeploymentView, Known, Permission, State, WebhookView},
    webhooks::{self, Concerning},
};
use crate::{
    failure::Failure,
    session::{Server, ask},
};

mod policies;
mod roles;

/// Maximum number of objects in one list. An installation has far fewer.
const LIMIT: u32 = 500;

/// The label that all objects of the chart carry.
const OURS: &str = "app.kubernetes.io/part-of=orchestrator";
const COMPONENT: &str = "app.kubernetes.io/component";
const VERSION: &str = "app.kubernetes.io/version";

/// Permissions to follow a run, which `orc logs`, `tree`, `events` and `why` need besides the roles
/// of the chart.
const FOLLOW: &[(&str, &str, &str)] = &[
    ("list", "", "pods"),
    ("get", "", "pods/log"),
    ("list", "batch", "jobs"),
    ("list", "", "configmaps"),
    ("list", "", "events"),
];

/// Reads the state.
///
/// # Errors
/// The API server does not respond. Then nothing can be checked.
pub(super) async fn state(server: &Server, now: Timestamp) -> Result<State, Failure> {
    let request = request("get", "version", "/version", None);
    let kubernetes = ask(request, server.client.apiserver_version()).await?;
    let (crds, deployments, leases, roles, policies, bindings, webhooks, permissions) =
        Box::pin(async {
            tokio::join!(
                crds(server),
                deployments(server),
                leases(server),
                roles::roles(server),
                policies::policies(server),
                policies::bindings(server),
                of_others(server),
                permissions(server),
            )
        })
        .await;
    Ok(State {
        now,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kubernetes: kubernetes.git_version,
        namespace: server.namespace.clone(),
        crds,
        deployments,
        leases,
        roles,
        policies,
        bindings,
        webhooks,
        permissions,
    })
}

fn request(
    verb: &'static str,
    kind: &'static str,
    resource: &'static str,
    name: Option<&str>,
) -> Request {
    Request {
        verb,
        kind,
        resource,
        name: name.map(str::to_owned),
        namespace: None,
    }
}

async fn known<T>(
    request: Request,
    question: impl Future<Output = Result<T, kube::Error>>,
) -> Known<T> {
    let read = ask(request, question).await;
    read.map_err(|failure| failure.message())
}

/// Lists objects. A list that was cut off is no evidence that an object is missing.
async fn list<K>(
    api: Api<K>,
    which: ListParams,
    kind: &'static str,
    resource: &'static str,
) -> Known<Vec<K>>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let request = request("list", kind, resource, None);
    let list = known(request, api.list(&which.limit(LIMIT))).await?;
    match list.metadata.continue_.filter(|token| !token.is_empty()) {
        Some(_) => Err(format!("there are more than {LIMIT} {resource}")),
        None => Ok(list.items),
    }
}

type Crds = Vec<(
    &'static kinds::KindRow,
    Known<Option<Box<CustomResourceDefinition>>>,
)>;

async fn crds(server: &Server) -> Crds {
    let api: Api<CustomResourceDefinition> = Api::all(server.client.clone());
    let api = &api;
    let each = kinds::all().map(|row| async move {
        let resource = "customresourcedefinitions.apiextensions.k8s.io";
        let kind = "CustomResourceDefinition";
        let request = request("get", kind, resource, Some(row.crd_name));
        let read = known(request, api.get_opt(row.crd_name)).await;
        (row, read.map(|crd| crd.map(Box::new)))
    });
    join_all(each).await
}

async fn deployments(server: &Server) -> Known<Vec<DeploymentView>> {
    let api: Api<Deployment> = Api::all(server.client.clone());
    let which = ListParams::default().labels(OURS);
    let all = list(api, which, "Deployment", "deployments.apps").await?;
    let each = all.iter().map(|one| async move {
        let mut view = deployment(one);
        let is_unready = view.ready < view.wanted;
        match pods(server, &view).await {
            Ok(pods) => {
                if is_unready {
                    view.unready = Ok(pods.iter().filter_map(not_ready).collect());
                }
                let candidates = pods.iter().map(|pod| Candidate::from(&PodView::from(pod)));
                view.pods = Some(candidates.collect());
            }
            Err(why) if is_unready => view.unready = Err(why),
            // A user of a ready operator needs no permission for its Pods.
            Err(_unneeded) => {}
        }
        view
    });
    Ok(join_all(each).await)
}

fn deployment(one: &Deployment) -> DeploymentView {
    let meta = &one.metadata;
    let status = one.status.clone().unwrap_or_default();
    let wanted = one.spec.as_ref().and_then(|spec| spec.replicas);
    let pod = one
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref());
    let account = pod.and_then(|pod| pod.service_account_name.clone());
    let wanted = wanted.unwrap_or(1);
    let is_seen = status.observed_generation >= meta.generation;
    DeploymentView {
        name: meta.name.clone().unwrap_or_default(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        operator: label(meta, COMPONENT),
        account: account.unwrap_or_default(),
        version: label(meta, VERSION),
        wanted,
        ready: status.ready_replicas.unwrap_or_default(),
        is_rolled_out: is_seen && status.updated_replicas.unwrap_or_default() >= wanted,
        unready: Ok(Vec::new()),
        pods: None,
    }
}

fn label(meta: &ObjectMeta, name: &str) -> String {
    let labels = meta.labels.as_ref();
    let value = labels.and_then(|labels| labels.get(name));
    value.cloned().unwrap_or_default()
}

/// Lists the Pods of a Deployment.
async fn pods(server: &Server, of: &DeploymentView) -> Known<Vec<Pod>> {
    let api: Api<Pod> = Api::namespaced(server.client.clone(), &of.namespace);
    let labels = format!(
        "app.kubernetes.io/name=orchestrator,{COMPONENT}={}",
        of.operator
    );
    list(api, ListParams::default().labels(&labels), "Pod", "pods").await
}

/// Returns why a Pod is not ready, or `None` if it is.
fn not_ready(pod: &Pod) -> Option<String> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let status = pod.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let is_true = |kind: &str| {
        let mut all = conditions.iter();
        all.any(|one| one.type_ == kind && one.status == "True")
    };
    if is_true("Ready") {
        return None;
    }
    let containers = status.container_statuses.unwrap_or_default();
    let waiting = containers.iter().find_map(|one| {
        let waiting = one.state.as_ref()?.waiting.as_ref()?;
        waiting.reason.clone()
    });
    let unscheduled = conditions
        .iter()
        .find(|one| one.type_ == "PodScheduled" && one.status == "False");
    let unscheduled = unscheduled.and_then(|one| one.message.clone());
    let why = waiting
        .or(unscheduled)
        .unwrap_or_else(|| "not ready".to_owned());
    Some(format!("Pod '{name}': {why}"))
}

async fn leases(server: &Server) -> BTreeMap<&'static str, Known<Vec<LeaseView>>> {
    let each = OPERATORS.iter().map(|operator| async move {
        let api: Api<Lease> = Api::all(server.client.clone());
        let which = ListParams::default().fields(&format!("metadata.name={}", operator.lease));
        let found = list(api, which, "Lease", "leases.coordination.k8s.io").await;
        let views = found.map(|all| all.iter().map(LeaseView::from).collect());
        (operator.name, views)
    });
    join_all(each).await.into_iter().collect()
}

async fn of_others(server: &Server) -> Known<Vec<WebhookView>> {
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(server.client.clone());
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(server.client.clone());
    let (validating, mutating) = tokio::join!(
        list(
            validating,
            ListParams::default(),
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations.admissionregistration.k8s.io",
        ),
        list(
            mutating,
            ListParams::default(),
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        ),
    );
    let ours = webhooks::resources(OPERATORS);
    let mut all = webhooks::of_validating(&validating?, &ours);
    all.extend(webhooks::of_mutating(&mutating?, &ours));
    let each = all.into_iter().map(|one| async move {
        let backend = backend(server, &one).await;
        WebhookView {
            name: one.name,
            configuration: one.configuration,
            resources: one.resources,
            backend,
        }
    });
    Ok(join_all(each).await)
}

async fn backend(server: &Server, of: &Concerning) -> Backend {
    let Some(service) = &of.client.service else {
        return Backend::Url(of.client.url.clone().unwrap_or_default());
    };
    let name = format!("{}/{}", service.namespace, service.name);
    let services: Api<Service> = Api::namespaced(server.client.clone(), &service.namespace);
    let slices: Api<EndpointSlice> = Api::namespaced(server.client.clone(), &service.namespace);
    let request = request("get", "Service", "services", Some(&name));
    let found = known(request, services.get_opt(&service.name)).await;
    let ready = match found {
        Err(why) => Err(why),
        Ok(None) => Ok(None),
        Ok(Some(_)) => {
            let labels = format!("kubernetes.io/service-name={}", service.name);
            let which = ListParams::default().labels(&labels);
            let resource = "endpointslices.discovery.k8s.io";
            let slices = list(slices, which, "EndpointSlice", resource).await;
            slices.map(|all| Some(ready(&all)))
        }
    };
    Backend::Service(name, ready)
}

fn ready(slices: &[EndpointSlice]) -> usize {
    let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
    let is_ready = |one: &&k8s_openapi::api::discovery::v1::Endpoint| {
        let conditions = one.conditions.as_ref();
        // The field is optional; without it, the endpoint counts as ready.
        conditions.is_none_or(|conditions| conditions.ready != Some(false))
    };
    endpoints.filter(is_ready).count()
}

/// Asks the API server for the permissions of the user: those of the chart's roles, and those to
/// follow a run.
async fn permissions(server: &Server) -> Vec<(String, Known<Vec<Permission>>)> {
    let mut roles: Vec<(String, Vec<ResourceAttributes>)> = Vec::new();
    for operator in OPERATORS {
        for role in (operator.policies)().user_roles {
            let name = role.metadata.name.unwrap_or_default();
            let rules = role.rules.unwrap_or_default();
            let asked = rules.iter().flat_map(|rule| attributes(rule, operator));
            let name = format!("{name} ({})", operator.name);
            roles.push((name, asked.collect()));
        }
    }
    let follow = FOLLOW.iter().map(|(verb, group, resource)| {
        let (resource, part) = resource.split_once('/').unwrap_or((*resource, ""));
        ResourceAttributes {
            verb: Some((*verb).to_owned()),
            group: Some((*group).to_owned()),
            resource: Some(resource.to_owned()),
            subresource: Some(part.to_owned()).filter(|part| !part.is_empty()),
            ..ResourceAttributes::default()
        }
    });
    roles.push(("follow runs".to_owned(), follow.collect()));
    let each = roles.into_iter().map(|(role, asked)| async move {
        let reviews = asked.into_iter().map(|one| review(server, one));
        let known = join_all(reviews).await.into_iter().collect();
        (role, known)
    });
    join_all(each).await
}

fn attributes(rule: &PolicyRule, operator: &OperatorRow) -> Vec<ResourceAttributes> {
    let mut all = Vec::new();
    for group in rule.api_groups.iter().flat_map(|all| all.iter()) {
        for resource in rule.resources.iter().flat_map(|all| all.iter()) {
            let mut kinds = operator.kinds.iter();
            // A kind of an operator that is off would be asked for without an effect.
            let is_kind = kinds.any(|kind| kind.resource.plural == *resource);
            for verb in rule.verbs.iter().filter(|_| is_kind) {
                all.push(ResourceAttributes {
                    verb: Some(verb.clone()),
                    group: Some(group.clone()),
                    resource: Some(resource.clone()),
                    ..ResourceAttributes::default()
                });
            }
        }
    }
    all
}

async fn review(server: &Server, asked: ResourceAttributes) -> Known<Permission> {
    let text = text(&asked);
    let mut asked = asked;
    let resource = asked.resource.as_deref().unwrap_or_default();
    let mut rows = kinds::all().filter(|row| Some(row.resource.group) == asked.group.as_deref());
    let row = rows.find(|row| row.resource.plural == resource);
    // A cluster-scoped object is in no namespace: a role in a namespace does not give it.
    if row.is_none_or(|row| row.is_namespaced) {
        asked.namespace = Some(server.namespace.clone());
    }
    let api: Api<SelfSubjectAccessReview> = Api::all(server.client.clone());
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(asked),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let resource = "selfsubjectaccessreviews.authorization.k8s.io";
    let request = request("create", "SelfSubjectAccessReview", resource, None);
    let how = PostParams::default();
    let reviewed = known(request, api.create(&how, &review)).await?;
    Ok(Permission {
        text,
        is_allowed: reviewed.status.is_some_and(|status| status.allowed),
    })
}

/// Formats a permission: `create taskruns.orchestrator.io`.
fn text(asked: &ResourceAttributes) -> String {
    let of = |field: &Option<String>| field.clone().unwrap_or_default();
    let part = asked.subresource.iter().map(|part| format!("/{part}"));
    let group = asked.group.iter().filter(|group| !group.is_empty());
    let group = group.map(|group| format!(".{group}"));
    format!(
        "{} {}{}{}",
        of(&asked.verb),
        of(&asked.resource),
        group.collect::<String>(),
        part.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_is_not_ready_has_a_reason() {
        let pod = |status| {
            let pod = json!({ "metadata": { "name": "p" }, "status": status });
            not_ready(&serde_json::from_value(pod).unwrap())
        };
        let condition = |kind: &str, status: &str| json!([{ "type": kind, "status": status, "message": "0/1 nodes are available" }]);
        let crashed = json!({ "containerStatuses": [{ "name": "c", "image": "", "imageID": "",
            "ready": false, "restartCount": 3, "state": { "waiting": { "reason": "CrashLoopBackOff" } } }] });
        assert_eq!(
            pod(json!({ "conditions": condition("Ready", "True") })),
            None
        );
        assert_eq!(pod(crashed).unwrap(), "Pod 'p': CrashLoopBackOff");
        let unplaced = json!({ "conditions": condition("PodScheduled", "False") });
        assert_eq!(pod(unplaced).unwrap(), "Pod 'p': 0/1 nodes are available");
        assert_eq!(pod(json!({})).unwrap(), "Pod 'p': not ready");
    }

    #[test]
    fn permissions_are_named_as_in_a_role() {
        let mut all: Vec<String> = Vec::new();
        for operator in OPERATORS {
            for role in (operator.policies)().user_roles {
                let rules = role.rules.unwrap_or_default();
                let asked = rules.iter().flat_map(|rule| attributes(rule, operator));
                all.extend(asked.map(|one| text(&one)));
            }
        }
        for wanted in [
            "create taskruns.orchestrator.io",
            "use agents.orchestrator.io",
            "get tenants.orchestrator.io",
        ] {
            assert!(all.iter().any(|one| one == wanted), "{all:?}");
        }
        let log = ResourceAttributes {
            verb: Some("get".to_owned()),
            group: Some(String::new()),
            resource: Some("pods".to_owned()),
            subresource: Some("log".to_owned()),
            ..ResourceAttributes::default()
        };
        assert_eq!(text(&log), "get pods/log");
    }

    #[test]
    fn only_ready_endpoints_count() {
        let slice = |ready: serde_json::Value| {
            let slice = json!({ "metadata": {}, "addressType": "IPv4",
                "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": ready }] });
            serde_json::from_value::<EndpointSlice>(slice).unwrap()
        };
        let all = [
            slice(json!({ "ready": true })),
            slice(json!({ "ready": false })),
            slice(json!({})),
        ];
        assert_eq!(ready(&all), 2);
        assert_eq!(ready(&[]), 0);
    }
}
