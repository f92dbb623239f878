//! Changes of specs, made from a CRD's schema: each field at its bounds and beyond them, empty,
//! absent, of another type, with samples of its pattern; each alone, and two together.
//!
//! Guarantee: a change's name says all of it. The seed only chooses: [`find`] makes the change of a
//! name again, whatever the seed was.

mod samples;
mod values;

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Map, Value, json};

pub use samples::AGENT;

/// Values above this many bytes are used alone only: two of them would not fit into a request.
const HEAVY: usize = 50_000;
/// Tries for one pair, before there are taken to be no more of them.
const TRIES: usize = 1000;

/// Whether the API server should take a spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Its schema allows it, and no rule has a say.
    Taken,
    /// Its schema forbids it.
    Refused,
    /// A rule decides.
    Maybe,
}

impl Expect {
    /// Of two changes in one spec.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Refused, _) | (_, Self::Refused) => Self::Refused,
            (Self::Taken, Self::Taken) => Self::Taken,
            (Self::Maybe, _) | (_, Self::Maybe) => Self::Maybe,
        }
    }
}

/// From a base's spec to another one.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    /// `Kind/base:path=what`, and `+path=what` for a second change.
    pub name: String,
    /// Of which kind.
    pub kind: String,
    /// The spec that it begins with.
    pub base: Value,
    /// The spec that it leads to.
    pub spec: Value,
    /// Whether that should be taken.
    pub expect: Expect,
}

/// One field, changed.
#[derive(Debug, Clone)]
struct Change {
    path: Vec<String>,
    what: String,
    /// `None`: it is absent.
    value: Option<Value>,
    expect: Expect,
    is_heavy: bool,
}

impl Change {
    fn new(path: &[String], what: &str, value: Option<Value>, expect: Expect) -> Self {
        let is_heavy = value
            .as_ref()
            .is_some_and(|value| value.to_string().len() > HEAVY);
        Self {
            path: path.to_vec(),
            what: what.to_owned(),
            value,
            expect,
            is_heavy,
        }
    }

    fn name(&self) -> String {
        format!("{}={}", self.path.join("."), self.what)
    }

    /// Whether both can be made in one spec.
    fn goes_with(&self, other: &Self) -> bool {
        let is_inside = self.path.starts_with(&other.path) || other.path.starts_with(&self.path);
        !is_inside && !self.is_heavy && !other.is_heavy
    }
}

/// All changes of one spec.
#[derive(Debug, Clone)]
pub struct Catalogue {
    /// Of which kind.
    pub kind: String,
    /// `Kind/name`, of the spec that they begin with.
    title: String,
    base: Value,
    schema: Value,
    changes: Vec<Change>,
}

impl Catalogue {
    /// Of a CRD's newest version, from this valid spec on.
    ///
    /// # Errors
    /// When it has no schema of a spec.
    pub fn new(crd: &CustomResourceDefinition, name: &str, base: Value) -> Result<Self> {
        let kind = crd.spec.names.kind.clone();
        let crd = serde_json::to_value(crd)?;
        let schema = crd
            .pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec")
            .with_context(|| format!("{kind} has no schema of a spec"))?
            .clone();
        let changes = values::changes(&schema);
        Ok(Self {
            title: format!("{kind}/{name}"),
            kind,
            base,
            schema,
            changes,
        })
    }

    /// How many changes of one field there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    fn transition(&self, changes: &[&Change]) -> Transition {
        let mut spec = self.base.clone();
        let mut expect = Expect::Taken;
        for change in changes {
            set(&mut spec, &self.schema, &change.path, change.value.as_ref());
            expect = expect.and(change.expect);
        }
        let names: Vec<String> = changes.iter().map(|change| change.name()).collect();
        Transition {
            name: format!("{}:{}", self.title, names.join("+")),
            kind: self.kind.clone(),
            base: self.base.clone(),
            spec,
            expect,
        }
    }

    /// Every change of one field.
    #[must_use]
    pub fn singles(&self) -> Vec<Transition> {
        let changes = self.changes.iter();
        changes.map(|change| self.transition(&[change])).collect()
    }

    /// Two changes at once, mostly of those that are not refused for one of them alone.
    fn pair(&self, random: &mut Random) -> Option<Transition> {
        let is_any = random.below(8) == 0;
        for _ in 0..TRIES {
            let first = self.changes.get(random.below(self.changes.len()))?;
            let second = self.changes.get(random.below(self.changes.len()))?;
            let is_open = first.expect.and(second.expect) != Expect::Refused;
            if first.goes_with(second) && (is_any || is_open) {
                return Some(self.transition(&[first, second]));
            }
        }
        None
    }

    /// One change or two, mostly such as are not refused for one of them alone, few of them large.
    #[must_use]
    pub fn any(&self, random: &mut Random) -> Option<Transition> {
        if random.below(2) == 0 {
            return self.pair(random);
        }
        let is_any = random.below(8) == 0;
        for _ in 0..TRIES {
            let change = self.changes.get(random.below(self.changes.len()))?;
            let is_wanted = !change.is_heavy || random.below(32) == 0;
            if is_wanted && (is_any || change.expect != Expect::Refused) {
                return Some(self.transition(&[change]));
            }
        }
        None
    }

    fn find(&self, name: &str) -> Option<Transition> {
        let names = name.strip_prefix(&self.title)?.strip_prefix(':')?;
        let known = |name: &str| self.changes.iter().find(|change| change.name() == name);
        let found: Option<Vec<&Change>> = names.split('+').map(known).collect();
        found.map(|changes| self.transition(&changes))
    }
}

/// The specs of the tasks operator that changes begin with: one with all that its kind has, and one
/// with as little as it may have.
///
/// Its repositories are at addresses that are refused before anyone asks them.
///
/// # Errors
/// When a CRD has no schema of a spec.
pub fn tasks() -> Result<Vec<Catalogue>> {
    let mut catalogues = Vec::new();
    for crd in api::tasks::OPERATOR.crds() {
        for (kind, name, base) in samples::bases() {
            if kind == crd.spec.names.kind {
                catalogues.push(Catalogue::new(&crd, name, base)?);
            }
        }
    }
    Ok(catalogues)
}

/// So many different transitions: at least a quarter of them pairs, at most a third single changes
/// that the schema forbids. The same seed chooses the same ones.
#[must_use]
pub fn choose(catalogues: &[Catalogue], count: usize, seed: u64) -> Vec<Transition> {
    let mut random = Random::new(seed);
    let mut singles: Vec<Transition> = catalogues.iter().flat_map(Catalogue::singles).collect();
    random.shuffle(&mut singles);
    let (mut chosen, mut open): (Vec<_>, Vec<_>) = singles
        .into_iter()
        .partition(|one| one.expect == Expect::Refused);
    chosen.truncate(count / 3);
    open.truncate(count - count / 4 - chosen.len());
    chosen.append(&mut open);
    let mut names: BTreeSet<String> = chosen.iter().map(|one| one.name.clone()).collect();
    for catalogue in catalogues.iter().cycle().take(count.saturating_mul(4)) {
        if chosen.len() >= count {
            break;
        }
        if let Some(pair) = catalogue.pair(&mut random)
            && names.insert(pair.name.clone())
        {
            chosen.push(pair);
        }
    }
    // What follows each other should not be alike.
    random.shuffle(&mut chosen);
    chosen
}

/// The transition of this name.
#[must_use]
pub fn find(catalogues: &[Catalogue], name: &str) -> Option<Transition> {
    catalogues.iter().find_map(|one| one.find(name))
}

/// The JSON merge patch that makes `to` from `from`.
#[must_use]
pub fn merge_patch(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return to.clone();
    };
    let mut patch = Map::new();
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, wanted) in to {
        match from.get(key) {
            Some(known) if known == wanted => {}
            Some(known) => {
                patch.insert(key.clone(), merge_patch(known, wanted));
            }
            None => {
                patch.insert(key.clone(), wanted.clone());
            }
        }
    }
    Value::Object(patch)
}

/// Sets the field at `path`, and makes what it is in, where that is missing, as small as the schema
/// allows.
fn set(into: &mut Value, schema: &Value, path: &[String], value: Option<&Value>) {
    let Some((key, rest)) = path.split_first() else {
        if let Some(value) = value {
            *into = value.clone();
        }
        return;
    };
    let inner = values::part(schema, key);
    match into {
        Value::Object(fields) => match (rest.is_empty(), value) {
            (true, None) => {
                fields.remove(key);
            }
            (true, Some(value)) => {
                fields.insert(key.clone(), value.clone());
            }
            (false, _) => {
                let field = fields
                    .entry(key.clone())
                    .or_insert_with(|| values::smallest(inner, key));
                set(field, inner, rest, value);
            }
        },
        Value::Array(entries) => {
            if entries.is_empty() {
                entries.push(values::smallest(inner, key));
            }
            if let Some(first) = entries.first_mut() {
                set(first, inner, rest, value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            *into = json!({});
        }
    }
}

/// SplitMix64: small, and good enough to choose.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The same numbers for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.any() % limit).unwrap_or(0)
    }

    fn shuffle<T>(&mut self, list: &mut [T]) {
        for end in (1..list.len()).rev() {
            list.swap(end, self.below(end + 1));
        }
    }
}

#[cfg(test)]
mod tests;
