//! Converts API objects into the thin views of a [`World`](crate::world::World). Data that is left
//! out here never leaves the cluster.

/// Conditions of built-in kinds have the same fields but no common type.
macro_rules! condition {
    ($condition:expr) => {
        $crate::world::ConditionView {
            kind: $condition.type_.clone(),
            status: $condition.status.clone(),
            reason: $crate::view::optional($condition.reason.as_ref()),
            message: $crate::view::optional($condition.message.as_ref()),
            since: $condition.last_transition_time.clone(),
        }
    };
}

mod apps;
mod core;
mod crd;
mod notebooks;
mod ours;
mod requests;
mod tenants;

use api::{names, status::bounded};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::world::{LIST, Meta, Owner, TEXT};

/// The label for the component of a Tenant that an object belongs to.
const COMPONENT: &str = "orchestrator.io/component";

fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

fn text(words: &str) -> String {
    bounded(words, TEXT)
}

fn optional(words: Option<&String>) -> String {
    words.map(|words| text(words)).unwrap_or_default()
}

impl From<&ObjectMeta> for Meta {
    fn from(meta: &ObjectMeta) -> Self {
        let label = |key: &str| meta.labels.as_ref()?.get(key).cloned();
        let mut owners = meta.owner_references.iter().flat_map(|all| all.iter());
        let owner = owners.find(|owner| owner.controller == Some(true));
        let finalizers = meta.finalizers.iter().flat_map(|all| all.iter());
        let has_grace = meta
            .deletion_grace_period_seconds
            .is_some_and(|grace| grace > 0);
        Self {
            name: optional(meta.name.as_ref()),
            namespace: optional(meta.namespace.as_ref()),
            uid: optional(meta.uid.as_ref()),
            generation: meta.generation.unwrap_or_default(),
            created: meta.creation_timestamp.clone(),
            deleting: pods::stop_asked(meta).map(Time),
            stop_by: meta.deletion_timestamp.clone().filter(|_| has_grace),
            finalizers: finalizers.take(LIST).map(|name| text(name)).collect(),
            owner: owner.map(|owner| Owner {
                kind: owner.kind.clone(),
                name: owner.name.clone(),
                uid: owner.uid.clone(),
            }),
            run_uid: label(names::UID),
            run_name: label(names::NAME),
            run_kind: label(names::KIND),
            component: label(COMPONENT),
            retained_from: annotation(meta, names::RETAINED_FROM).map(text),
        }
    }
}
