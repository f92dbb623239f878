//! Whose a namespace is, and how it ends.

use std::collections::{BTreeMap, BTreeSet};

use api::names;
use testkit::faults::object_history::{Change, Seen};

use super::{View, is_deleting, namespace, wanted_namespace};

/// The Tenants by their UIDs, each with its versions.
fn tenants<'a>(view: &View<'a>) -> BTreeMap<&'a str, Vec<&'a Seen>> {
    let all = view.objects("tenants").into_iter();
    all.filter_map(|versions| Some((versions.first()?.uid.as_str(), versions)))
        .collect()
}

/// The last version of a Tenant before this one of something else.
fn last<'a>(versions: &[&'a Seen], before: u64) -> Option<&'a Seen> {
    let mut earlier = versions.iter().filter(|one| one.version < before);
    earlier.next_back().copied()
}

/// Namespaces that someone else made, and that became a Tenant's, or were written into, unoffered.
pub(super) fn taken(view: &View<'_>) -> Vec<String> {
    let mut words = Vec::new();
    let known = tenants(view);
    let wanted: BTreeSet<String> = view.of("tenants").map(wanted_namespace).collect();
    let mut places = view.objects("namespaces");
    places.retain(|all| all.first().is_some_and(|one| wanted.contains(&one.name)));
    for versions in places {
        let mut owners: BTreeSet<&str> = BTreeSet::new();
        let mut offered: Option<(&str, u64)> = None;
        let Some(first) = versions.first() else {
            continue;
        };
        for one in &versions {
            let label = one.label(names::UID).filter(|uid| known.contains_key(uid));
            if let Some(uid) = label
                && owners.insert(uid)
            {
                let name = known.get(uid).and_then(|all| all.first());
                let name = name.map_or("", |tenant| tenant.name.as_str());
                let is_made = one.version == first.version;
                let is_offered = offered.is_some_and(|(to, _)| to == name);
                if !is_made && !is_offered {
                    words.push(format!(
                        "namespaces/{} became Tenant '{name}''s, and nobody had offered it",
                        one.name
                    ));
                }
            }
            let annotations = &one.object["metadata"]["annotations"];
            for word in [names::ADOPT, names::RETAINED_FROM] {
                if let Some(to) = annotations[word].as_str() {
                    offered = offered.or(Some((to, one.version)));
                }
            }
        }
        // What is in it is of Tenants only after that.
        let made_by = first
            .label(names::UID)
            .filter(|uid| known.contains_key(uid));
        if made_by.is_some() {
            continue;
        }
        let since = offered.map_or(u64::MAX, |(_, version)| version);
        let inside = view.seen.iter().filter(|one| {
            let owner = one.label(names::UID).unwrap_or_default();
            namespace(one) == first.name && known.contains_key(owner) && one.version < since
        });
        for one in inside {
            words.push(format!(
                "{}/{} was written into namespace '{}', which nobody had offered",
                one.resource, one.name, first.name
            ));
        }
    }
    words
}

/// Namespaces that were deleted without being announced, or although they are to stay.
pub(super) fn ended(view: &View<'_>) -> Vec<String> {
    let mut words = Vec::new();
    let known = tenants(view);
    for versions in view.objects("namespaces") {
        let Some(end) = versions.iter().find(|one| is_deleting(one)) else {
            continue;
        };
        let owner = versions.iter().rev().find_map(|one| one.label(names::UID));
        let Some(tenant) = owner
            .and_then(|uid| known.get(uid))
            .and_then(|all| last(all, end.version))
        else {
            continue;
        };
        if tenant.object["spec"]["deletion"]["policy"] == "Retain" {
            words.push(format!(
                "namespaces/{} is deleted, and was to be retained",
                end.name
            ));
        }
        let intent = format!("delete {}", end.uid);
        if !is_deleting(tenant) || tenant.object["status"]["intent"] != intent {
            words.push(format!(
                "namespaces/{} is deleted, and that was not announced",
                end.name
            ));
        }
    }
    words
}

/// Tenants that were gone before their namespace was.
pub(super) fn outlived(view: &View<'_>) -> Vec<String> {
    let mut words = Vec::new();
    let namespaces = view.objects("namespaces");
    for (uid, versions) in tenants(view) {
        let Some(end) = versions.last().filter(|one| one.change == Change::Deleted) else {
            continue;
        };
        if end.object["spec"]["deletion"]["policy"] != "Delete" {
            continue;
        }
        for place in &namespaces {
            let is_its = place.iter().any(|one| one.label(names::UID) == Some(uid));
            let is_gone = place
                .last()
                .is_some_and(|one| one.change == Change::Deleted && one.version < end.version);
            let name = place.first().map_or("", |one| one.name.as_str());
            if is_its && !is_gone {
                words.push(format!(
                    "tenants/{} was gone before namespace '{name}'",
                    end.name
                ));
            }
        }
    }
    words
}

/// Children that were made before their Tenant was held by its finalizer.
pub(super) fn unheld(view: &View<'_>) -> Vec<String> {
    let known = tenants(view);
    let mut words = Vec::new();
    let mut met: BTreeSet<&str> = BTreeSet::new();
    for one in &view.seen {
        let owner = one.label(names::UID).unwrap_or_default();
        let Some(versions) = known.get(owner) else {
            continue;
        };
        if one.resource == "tenants" || !met.insert(&one.uid) {
            continue;
        }
        let tenant = last(versions, one.version);
        let is_held = tenant.is_some_and(|tenant| {
            let finalizers = tenant.object["metadata"]["finalizers"].as_array();
            finalizers.is_some_and(|all| all.iter().any(|one| one == FINALIZER))
        });
        if !is_held {
            words.push(format!(
                "{}/{} was made before its Tenant was held",
                one.resource, one.name
            ));
        }
    }
    words
}

const FINALIZER: &str = "tenants.orchestrator.io/finalizer";

/// Secrets that were made more than once: nobody of a play deletes one.
pub(super) fn renewed(view: &View<'_>) -> Vec<String> {
    let mut uids: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for one in view.of("secrets") {
        let key = (namespace(one), one.name.as_str());
        uids.entry(key).or_default().insert(&one.uid);
    }
    let again = uids.into_iter().filter(|(_, uids)| uids.len() > 1);
    again
        .map(|((_, name), uids)| format!("there were {} different secrets/{name}", uids.len()))
        .collect()
}
