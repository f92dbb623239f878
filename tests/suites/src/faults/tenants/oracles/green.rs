//! Nothing says that it can be used, or that it is isolated, unless that is so.

use std::collections::{BTreeMap, BTreeSet};

use api::names;
use serde_json::{Value, json};
use testkit::faults::object_history::{Change, Seen};

use super::{
    View,
    expected::{Wanted, expected, wanted},
    is_deleting, is_of, is_probe, namespace, wanted_namespace,
};

fn is_current(tenant: &Seen) -> bool {
    let (status, metadata) = (&tenant.object["status"], &tenant.object["metadata"]);
    status["observedGeneration"] == metadata["generation"]
}

/// What a condition speaks for, by resource: all of it, if there is none.
const CLAIMS: &[(&str, &[&str])] = &[
    ("Ready", &[]),
    ("QuotaReady", &["resourcequotas", "limitranges"]),
    ("NetworkPoliciesReady", &["networkpolicies"]),
    ("RedisReady", &["statefulsets"]),
    ("ServerReady", &["deployments"]),
];

/// Versions of Tenants that say something of their spec as it is, and it is not so.
pub(super) fn false_greens(view: &View<'_>) -> Vec<String> {
    let mut words = Vec::new();
    for tenant in view.of("tenants") {
        if tenant.change == Change::Deleted || !is_current(tenant) {
            continue;
        }
        for (claim, resources) in CLAIMS.iter().filter(|(claim, _)| tenant.is_true(claim)) {
            for why in missing(view, tenant, resources) {
                words.push(format!(
                    "tenants/{} at version {} says {claim}=True, but {why}",
                    tenant.name, tenant.version
                ));
            }
        }
    }
    words
}

/// What was not there, or not as it must be, when a Tenant said that it is: of these resources, or all.
fn missing(view: &View<'_>, tenant: &Seen, resources: &[&str]) -> Vec<String> {
    let place = wanted_namespace(tenant);
    let uid = tenant.uid.clone();
    let mut all = vec![wanted("namespaces", &place, move |one| {
        one["metadata"]["labels"][names::UID] == json!(uid)
    })];
    all.extend(expected(&tenant.object["spec"]));
    let is_meant = |resource: &str| resources.is_empty() || resources.contains(&resource);
    let mut words: Vec<String> = all
        .iter()
        .filter(|wanted| is_meant(wanted.resource))
        .filter_map(|wanted| wrong(view, tenant, wanted, &place))
        .collect();
    if is_meant("networkpolicies") {
        words.extend(too_many(view, tenant, &place, &all));
    }
    words
}

/// Why something was not there: not now, and not a moment ago.
fn wrong(view: &View<'_>, tenant: &Seen, wanted: &Wanted, place: &str) -> Option<String> {
    let Wanted {
        resource,
        name,
        check,
    } = wanted;
    let is_it = |one: &&Seen| match *resource {
        "endpointslices" => {
            let service = one.label("kubernetes.io/service-name");
            service == Some(name) && namespace(one) == place
        }
        "namespaces" => one.name == *name,
        _ => one.name == *name && namespace(one) == place,
    };
    let mut last_good: Option<&Seen> = None;
    let mut bad_since: Option<&Seen> = None;
    for one in view.of(resource).filter(is_it) {
        if one.version >= tenant.version {
            break;
        }
        if !is_deleting(one) && check(&one.object) {
            (last_good, bad_since) = (Some(one), None);
        } else {
            bad_since = bad_since.or(Some(one));
        }
    }
    match (last_good, bad_since) {
        (None, _) => Some(format!("{resource}/{name} was never as it must be")),
        (Some(_), None) => None,
        // We changed it ourselves: its readiness before says nothing, and we knew.
        (Some(good), Some(bad)) if generation(bad) > generation(good) && is_work(resource) => Some(
            format!("{resource}/{name} was not yet what it was changed to"),
        ),
        (Some(_), Some(bad)) => {
            let since = tenant.at.saturating_duration_since(bad.at);
            (since > view.late).then(|| {
                let since = since.as_secs();
                format!("{resource}/{name} was not as it must be for {since} s")
            })
        }
    }
}

fn is_work(resource: &str) -> bool {
    ["deployments", "statefulsets"].contains(&resource)
}

fn generation(seen: &Seen) -> i64 {
    seen.object["metadata"]["generation"].as_i64().unwrap_or(0)
}

/// Policies of the Tenant beyond those that its spec asks for.
fn too_many(view: &View<'_>, tenant: &Seen, place: &str, all: &[Wanted]) -> Vec<String> {
    let names: BTreeSet<&str> = all
        .iter()
        .filter(|one| one.resource == "networkpolicies")
        .map(|one| one.name.as_str())
        .collect();
    let mut words = Vec::new();
    for versions in view.objects("networkpolicies") {
        let mut before = versions.iter().filter(|one| one.version < tenant.version);
        let Some(last) = before.next_back() else {
            continue;
        };
        let is_extra = is_of(last, tenant)
            && namespace(last) == place
            && !is_deleting(last)
            && !names.contains(last.name.as_str());
        let first = versions.first().map_or(tenant.at, |first| first.at);
        if is_extra && tenant.at.saturating_duration_since(first) > view.late {
            words.push(format!(
                "networkpolicies/{} is there, and nobody asks for it",
                last.name
            ));
        } else if is_extra && spec_is_old(view, tenant) {
            words.push(format!("networkpolicies/{} is not wanted", last.name));
        }
    }
    words
}

/// Whether the Tenant's spec is the first that it had: then nothing that is not in it was ever asked for.
fn spec_is_old(view: &View<'_>, tenant: &Seen) -> bool {
    let generation = &tenant.object["metadata"]["generation"];
    let mut of_it = view.of("tenants").filter(|one| one.uid == tenant.uid);
    of_it
        .next()
        .is_some_and(|first| first.object["metadata"]["generation"] == *generation)
}

/// Versions that say that a Tenant is isolated, without Pods that tried it from both sides.
pub(super) fn unproven(view: &View<'_>) -> Vec<String> {
    let mut words = Vec::new();
    for tenant in view.of("tenants") {
        if tenant.change == Change::Deleted || !tenant.is_true("NetworkIsolated") {
            continue;
        }
        let place = wanted_namespace(tenant);
        let changed = policies_changed(view, tenant, &place);
        let mut told = view
            .of("pods")
            .filter(|one| is_probe(one) && is_of(one, tenant))
            .filter(|one| changed < one.version && one.version < tenant.version)
            .filter(|one| has_proven(one));
        let (inside, outside): (Vec<&Seen>, Vec<&Seen>) =
            told.by_ref().partition(|one| namespace(one) == place);
        for (side, pods) in [("inside", inside), ("outside", outside)] {
            if pods.is_empty() {
                words.push(format!(
                    "tenants/{} at version {} says NetworkIsolated=True, but since the last change of its policies no Pod {side} had told so",
                    tenant.name, tenant.version
                ));
            }
        }
    }
    words
}

/// When the policies in a namespace were made, changed or deleted last, as far as the Tenant can know.
fn policies_changed(view: &View<'_>, tenant: &Seen, place: &str) -> u64 {
    let mut known: BTreeMap<&str, i64> = BTreeMap::new();
    let mut last = 0;
    for one in view.of("networkpolicies") {
        let is_late = tenant.at.saturating_duration_since(one.at) <= view.late;
        if namespace(one) != place || one.version >= tenant.version || is_late {
            continue;
        }
        let is_new = known.insert(&one.uid, generation(one)) != Some(generation(one));
        if is_new || one.change == Change::Deleted {
            last = one.version;
        }
    }
    last
}

/// Whether the container of a probe ended well, and each of its connections as it must.
///
/// The kubelet reports the end of a container up to a few seconds before the end of its Pod, and a container that a
/// webhook injected may never end.
fn has_proven(pod: &Seen) -> bool {
    let containers = pod.object["status"]["containerStatuses"].as_array();
    let is_own = |one: &&Value| one["name"] == "probe";
    let Some(own) = containers.and_then(|all| all.iter().find(is_own)) else {
        return false;
    };
    let end = &own["state"]["terminated"];
    let told = end["message"].as_str().unwrap_or_default().lines();
    let plan = pod.object["metadata"]["annotations"]["orchestrator.io/probe-plan"].as_str();
    let plan: Vec<&str> = plan.unwrap_or_default().lines().collect();
    let told: Vec<&str> = told.collect();
    let is_as_planned = |(wanted, found): (&&str, &&str)| {
        let sign = if wanted.starts_with('+') { "1 " } else { "0 " };
        found.starts_with(sign)
    };
    end["exitCode"] == 0
        && own["restartCount"] == 0
        && !plan.is_empty()
        && plan.len() == told.len()
        && plan.iter().zip(&told).all(is_as_planned)
}

/// Versions whose phase and whose condition do not say the same.
pub(super) fn disagreements(view: &View<'_>) -> Vec<String> {
    let mut words = Vec::new();
    for tenant in view.of("tenants") {
        let status = &tenant.object["status"];
        let is_looked_at = status["observedGeneration"].as_i64().unwrap_or(-1) >= 0;
        let is_running = status["phase"] == "Running";
        if is_looked_at && !is_deleting(tenant) && is_running != tenant.is_true("Ready") {
            words.push(format!(
                "tenants/{} at version {}: Ready and the phase {} disagree",
                tenant.name, tenant.version, status["phase"]
            ));
        }
    }
    words
}
