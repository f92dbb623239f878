//! Policies on a cluster that other tests share, and users to ask.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use k8s_openapi::api::admissionregistration::v1::{
    MatchResources, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicyBindingSpec,
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

/// A client that asks as this user.
pub(crate) fn client_of(env: &Env, user: &str) -> Result<Client> {
    let mut config = env.config.clone();
    config.auth_info.impersonate = Some(user.to_owned());
    Client::try_from(config).map_err(|error| anyhow!("a client for '{user}': {error}"))
}

/// Makes the policies, with names of this test's own, and has them refuse in this scope.
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

/// Takes them away: they are in no namespace, and do not go with the test's.
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

/// What the API server finds strange in the policies' expressions, by its own types.
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
