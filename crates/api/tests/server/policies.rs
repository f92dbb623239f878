//! Policies in a cluster that other tests share, and clients of several users.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use k8s_openapi::{
    api::admissionregistration::v1::{
        MatchResources, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
        ValidatingAdmissionPolicyBindingSpec,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use testkit::{suite::Env, wait::until};

pub(crate) fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    }
}

pub(crate) async fn make<K>(api: &Api<K>, object: &K) -> Result<()>
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let name = object.meta().name.clone().unwrap_or_default();
    api.create(&PostParams::default(), object)
        .await
        .with_context(|| format!("cannot create '{name}'"))?;
    Ok(())
}

/// Returns a client that sends requests as this user.
pub(crate) fn client_of(env: &Env, user: &str) -> Result<Client> {
    let mut config = env.config.clone();
    config.auth_info.impersonate = Some(user.to_owned());
    Client::try_from(config).map_err(|error| anyhow!("a client for '{user}': {error}"))
}

/// Selects only this namespace, because other tests share the cluster.
pub(crate) fn only_in(namespace: &str) -> MatchResources {
    let label = (
        "kubernetes.io/metadata.name".to_owned(),
        namespace.to_owned(),
    );
    MatchResources {
        namespace_selector: Some(LabelSelector {
            match_labels: Some([label].into()),
            match_expressions: None,
        }),
        ..MatchResources::default()
    }
}

/// Creates the policies under names of this test, and binds them in this scope.
pub(crate) async fn bind(
    env: &Env,
    policies: Vec<ValidatingAdmissionPolicy>,
    scope: Option<&MatchResources>,
) -> Result<Vec<String>> {
    let all: Api<ValidatingAdmissionPolicy> = Api::all(env.client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(env.client.clone());
    let mut names = Vec::new();
    for mut policy in policies {
        let name = policy.metadata.name.take().context("no name")?;
        let name = format!("{}-{name}", env.namespace);
        policy.metadata = named(&name);
        make(&all, &policy).await?;
        let binding = ValidatingAdmissionPolicyBinding {
            metadata: named(&name),
            spec: Some(ValidatingAdmissionPolicyBindingSpec {
                policy_name: Some(name.clone()),
                validation_actions: Some(vec!["Deny".to_owned()]),
                match_resources: scope.cloned(),
                ..ValidatingAdmissionPolicyBindingSpec::default()
            }),
        };
        make(&bindings, &binding).await?;
        names.push(name);
    }
    Ok(names)
}

/// Deletes the policies and their bindings. They are cluster-scoped, so the deletion of the test's
/// namespace does not delete them.
pub(crate) async fn unbind(env: &Env, names: &[String]) -> Result<()> {
    let quick = DeleteParams::background();
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(env.client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(env.client.clone());
    for name in names {
        bindings.delete(name, &quick).await?;
        policies.delete(name, &quick).await?;
    }
    Ok(())
}

/// Returns the warnings of the API server's type check of the policies' expressions.
pub(crate) async fn warnings(env: &Env, names: &[String]) -> Result<Vec<String>> {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(env.client.clone());
    let mut found = Vec::new();
    for name in names {
        let checked = until(
            "the types to be checked",
            Duration::from_secs(30),
            async || {
                let status = policies.get(name).await?.status;
                Ok(status
                    .filter(|status| status.observed_generation.is_some())
                    .ok_or_else(|| "not yet".to_owned()))
            },
        )
        .await?;
        let warnings = checked
            .type_checking
            .and_then(|types| types.expression_warnings);
        for warning in warnings.into_iter().flat_map(|list| list.into_iter()) {
            found.push(format!("{name} {}: {}", warning.field_ref, warning.warning));
        }
    }
    Ok(found)
}

/// Returns the policy for authors of Tenants. It applies to the whole cluster, which other tests
/// share. The policies about labels are tested elsewhere, in one namespace.
pub(crate) fn tenant_references() -> Vec<ValidatingAdmissionPolicy> {
    let mut policies = api::policy::tenants();
    policies.retain(|policy| policy.metadata.name.as_deref() == Some("references"));
    policies
}
