//! Applying manifests, as `kubectl apply --server-side` does.

use anyhow::{Context, Result, bail};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};

/// Kinds that have no namespace, of those that test manifests use.
const CLUSTER_SCOPED: &[&str] = &[
    "Namespace",
    "Node",
    "ClusterRole",
    "ClusterRoleBinding",
    "CSIDriver",
    "StorageClass",
    "CustomResourceDefinition",
    "PriorityClass",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "VolumeSnapshotClass",
    "IngressClass",
    "RuntimeClass",
    "PersistentVolume",
];

/// Applies every document of `yaml`; those without a namespace go to `namespace`.
///
/// # Errors
/// At the first document that is unreadable or refused.
pub async fn apply(client: &Client, namespace: &str, yaml: &str) -> Result<Vec<DynamicObject>> {
    let mut applied = Vec::new();
    for document in documents(yaml)? {
        applied.push(apply_one(client, namespace, &document).await?);
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
) -> Result<DynamicObject> {
    let Some(types) = &object.types else {
        bail!("a document has no apiVersion and kind");
    };
    let resource = ApiResource::from_gvk(&types.try_into()?);
    let api: Api<DynamicObject> = if CLUSTER_SCOPED.contains(&types.kind.as_str()) {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(
            client.clone(),
            object.namespace().as_deref().unwrap_or(namespace),
            &resource,
        )
    };
    let parameters = PatchParams::apply("testbed").force().validation_strict();
    let name = object.name_any();
    api.patch(&name, &parameters, &Patch::Apply(object))
        .await
        .with_context(|| format!("cannot apply {} '{name}'", types.kind))
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
