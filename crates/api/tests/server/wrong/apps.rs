//! Mistakes in a ManagedApp.

use serde_json::{Value, json};

use super::{Wrong, changed, gone};
use crate::support::Kind;

const NAME: &str = "should match '^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$'";
const LABEL: &str = "should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'";
const SAME: &str = "cannot be changed; submit another ManagedApp";

/// Returns a ManagedApp to change.
pub(crate) fn whole() -> Value {
    json!({
        "kustomizationRef": { "name": "shop", "namespace": "flux-system" },
        "helmReleaseRef": { "name": "shop" },
    })
}

/// Returns ManagedApps that must be rejected.
#[rustfmt::skip]
pub(crate) fn apps() -> Vec<Wrong> {
    wrong! { Kind::ManagedApp.least();
        "nothing to report": kustomizationRef = (gone()) => "spec.kustomizationRef", "Required value";
        "a Kustomization without a name": kustomizationRef = { "namespace": "shop" } => "spec.kustomizationRef.name", "Required value";
        "a Kustomization as text": kustomizationRef = "shop" => "spec.kustomizationRef", "must be of type object";
        "a name in upper case": kustomizationRef = { "name": "Shop" } => "spec.kustomizationRef.name", NAME;
        "a name with a path": kustomizationRef = { "name": "../shop" } => "spec.kustomizationRef.name", NAME;
        "a namespace with a dot": kustomizationRef = { "name": "shop", "namespace": "a.b" } => "spec.kustomizationRef.namespace", LABEL;
        "an empty namespace": kustomizationRef = { "name": "shop", "namespace": "" } => "spec.kustomizationRef.namespace", "at least 1 chars";
        "a HelmRelease without a name": helmReleaseRef = {} => "spec.helmReleaseRef.name", "Required value";
    }
}

/// Returns changes that must be rejected.
#[rustfmt::skip]
pub(crate) fn changes() -> Vec<Wrong> {
    wrong! { whole();
        "another Kustomization": kustomizationRef = { "name": "other", "namespace": "flux-system" } => "spec.kustomizationRef", SAME;
        "a Kustomization elsewhere": kustomizationRef = { "name": "shop", "namespace": "shop" } => "spec.kustomizationRef", SAME;
        "a Kustomization here": kustomizationRef = { "name": "shop" } => "spec.kustomizationRef", SAME;
    }
}

/// Returns a valid change: an application may get another HelmRelease.
pub(crate) fn accepted_change() -> Value {
    changed(whole(), &[("helmReleaseRef", json!({ "name": "other" }))])
}
