//! Applying manifests, as `kubectl apply --server-side` does.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    discovery::{ApiCapabilities, Scope, pinned_kind},
};

/// Applies every document of `yaml`; those without a namespace go to `namespace`.
///
/// # Errors
/// At the first document that is unreadable, of an unknown kind, or refused.
pub async fn apply(client: &Client, namespace: &str, yaml: &str) -> Result<Vec<DynamicObject>> {
    let mut known = BTreeMap::new();
    let mut applied = Vec::new();
    for document in documents(yaml)? {
        let Some(types) = &document.types else {
            bail!("a document has no apiVersion and kind");
        };
        let key = (types.api_version.clone(), types.kind.clone());
        if !known.contains_key(&key) {
            let kind = pinned_kind(client, &types.try_into()?)
                .await
                .with_context(|| format!("the API server has no {} {}", key.0, key.1))?;
            known.insert(key.clone(), kind);
        }
        applied.push(apply_one(client, namespace, &document, &known[&key]).await?);
    }
    Ok(applied)
}

fn documents(yaml: &str) -> Result<Vec<DynamicObject>> {
    let documents: Vec<Option<DynamicObject>> =
        serde_saphyr::from_multiple(yaml).context("unreadable manifest")?;
    Ok(documents.into_iter().flat_map(Option::into_iter).collect())
}

async fn apply_one(
    client: &Client,
    namespace: &str,
    object: &DynamicObject,
    (resource, capabilities): &(ApiResource, ApiCapabilities),
) -> Result<DynamicObject> {
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), resource),
        Scope::Namespaced => {
            let own = object.namespace();
            Api::namespaced_with(
                client.clone(),
                own.as_deref().unwrap_or(namespace),
                resource,
            )
        }
    };
    let parameters = PatchParams::apply("testbed").force().validation_strict();
    let name = object.name_any();
    api.patch(&name, &parameters, &Patch::Apply(object))
        .await
        .with_context(|| format!("cannot apply {} '{name}'", resource.kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_documents_comments_and_empty_ones() {
        let text = "# a comment\napiVersion: v1\nkind: Node\nmetadata: {name: a}\n---\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: b}\n";
        let names: Vec<String> = documents(text)
            .unwrap()
            .iter()
            .map(ResourceExt::name_any)
            .collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn a_document_that_is_not_an_object_is_refused() {
        assert!(documents("- 1\n- 2\n").is_err());
    }
}
