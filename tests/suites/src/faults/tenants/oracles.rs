//! What must hold of Tenants at every instant: pure functions of what was seen.

mod amount;
mod expected;
mod green;
mod places;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use api::names;
use testkit::faults::{
    object_history::{Change, Seen},
    oracles::{Evidence, Oracle, Violation},
};

/// A word about something that was so until a moment ago is no lie: the watches of a campaign are up to
/// 2.5 s late, and a write takes its time on a busy machine.
pub(super) const LATE: Duration = Duration::from_secs(3);

/// Of one oracle no more is said.
const MOST: usize = 10;

/// Everything that was seen of a play, in order.
struct View<'a> {
    /// By their versions.
    seen: Vec<&'a Seen>,
    /// How long ago a change may be that an operator need not have noticed.
    late: Duration,
}

impl<'a> View<'a> {
    fn new(seen: &'a [Seen]) -> Self {
        let mut seen: Vec<&Seen> = seen.iter().collect();
        seen.sort_by_key(|one| one.version);
        Self { seen, late: LATE }
    }

    /// The same of a play in which a watch was silent.
    fn after_silence(mut self, silence: Duration) -> Self {
        self.late += silence;
        self
    }

    fn of(&self, resource: &'a str) -> impl Iterator<Item = &'a Seen> + '_ {
        let all = self.seen.iter().copied();
        all.filter(move |one| one.resource == resource)
    }

    /// The versions of each object of a resource, in order.
    fn objects(&self, resource: &'a str) -> Vec<Vec<&'a Seen>> {
        let mut objects: BTreeMap<&str, Vec<&Seen>> = BTreeMap::new();
        for one in self.of(resource) {
            objects.entry(&one.uid).or_default().push(one);
        }
        objects.into_values().collect()
    }
}

/// The namespace of an object.
fn namespace(seen: &Seen) -> &str {
    let namespace = seen.object["metadata"]["namespace"].as_str();
    namespace.unwrap_or_default()
}

/// The namespace that a Tenant wants.
fn wanted_namespace(tenant: &Seen) -> String {
    let named = tenant.object["spec"]["namespace"].as_str();
    named.map_or_else(|| format!("tenant-{}", tenant.name), str::to_owned)
}

fn is_deleting(seen: &Seen) -> bool {
    seen.change == Change::Deleted || !seen.object["metadata"]["deletionTimestamp"].is_null()
}

/// A Pod that tries connections.
pub(super) fn is_probe(seen: &Seen) -> bool {
    seen.resource == "pods" && seen.label("orchestrator.io/component") == Some("probe")
}

fn is_of(seen: &Seen, tenant: &Seen) -> bool {
    seen.label(names::UID) == Some(&tenant.uid)
}

/// All promises of the tenants operator that were not kept.
pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let view = View::new(evidence.seen).after_silence(evidence.silence);
    let said = [
        (Oracle::NoFalseGreen, green::false_greens(&view)),
        (Oracle::NoFalseGreen, green::unproven(&view)),
        (Oracle::TrueAtEveryInstant, green::disagreements(&view)),
        (Oracle::OneEffect, places::taken(&view)),
        (Oracle::OneEffect, places::ended(&view)),
        (Oracle::OneEffect, places::unheld(&view)),
        (Oracle::OneEffect, places::renewed(&view)),
        (Oracle::NothingLeft, places::outlived(&view)),
    ];
    let violations = said.into_iter().flat_map(|(oracle, words)| {
        let few = words.into_iter().take(MOST);
        few.map(move |words| Violation { oracle, words })
    });
    violations.collect()
}
