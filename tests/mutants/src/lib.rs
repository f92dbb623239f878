//! Bugs that a test build can be told to have: they test the suites.
//!
//! The product does not know this crate. `cargo xtask mutants` builds a copy of the repository, and the edits
//! in `tests/mutants/edits` write `mutant::on(Mutant::X)` into the copy where bug X would be. The copy is built with
//! the feature `switches`. Without it, no bug can be chosen.

mod table;

#[cfg(feature = "switches")]
use std::sync::OnceLock;

pub use table::Mutant;

/// What is known of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// Its name, as it is chosen.
    pub id: &'static str,
    /// The class of bugs that it stands for.
    pub class: &'static str,
    /// What goes wrong with it.
    pub words: &'static str,
    /// The plays that can see it, the cheapest first, with `; ` between them: a scenario and what it
    /// is hit with, or a case of `cargo xtask e2e`.
    pub seen_by: &'static str,
}

impl About {
    /// The oracle that must see it, whoever else does: by its class, or none in particular.
    #[must_use]
    pub fn oracle(&self) -> Option<&'static str> {
        match self.class {
            // An attack of its own fails when it succeeds: there is nothing left to be judged.
            _ if self.seen_by.starts_with("e2e attacks: ") => None,
            "false success" => Some("O0"),
            "secret leakage" => Some("O7"),
            _ => None,
        }
    }
}

impl Mutant {
    /// The mutant of this name.
    #[must_use]
    pub fn named(id: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|mutant| mutant.about().id == id)
    }
}

/// Whether this process has the bug.
#[cfg(not(feature = "switches"))]
#[must_use]
pub const fn on(_mutant: Mutant) -> bool {
    false
}

#[cfg(feature = "switches")]
static CHOSEN: OnceLock<Mutant> = OnceLock::new();

/// Whether this process has the bug.
#[cfg(feature = "switches")]
#[must_use]
pub fn on(mutant: Mutant) -> bool {
    chosen() == Some(mutant)
}

/// The bug that this process has, if one was chosen.
#[cfg(feature = "switches")]
#[must_use]
pub fn chosen() -> Option<Mutant> {
    CHOSEN.get().copied()
}

/// Gives this process the bug of this name, until its end.
///
/// # Errors
/// When there is none of this name, or one was chosen before.
#[cfg(feature = "switches")]
pub fn choose(name: &str) -> Result<(), String> {
    let Some(mutant) = Mutant::named(name) else {
        let known: Vec<&str> = Mutant::ALL.iter().map(|known| known.about().id).collect();
        return Err(format!(
            "there is no mutant '{name}'; there are: {}",
            known.join(", ")
        ));
    };
    CHOSEN
        .set(mutant)
        .map_err(|_refused| "a mutant was chosen before".to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The catalog's classes that code of the engine, of an operator or of the gateway can break. The last nine are
    /// promises that the catalog does not list. Three of its classes have no mutant: path traversal in file names,
    /// huge numbers, and YAML and gzip bombs. References to another namespace are part of "cross-namespace owner".
    const CLASSES: &[&str] = &[
        "double create from a stale cache",
        "duplicate after a lost answer",
        "partial multi-write",
        "name reused with a new UID",
        "dependence on an edge",
        "finalizer leak",
        "finalizer too early",
        "status conflict lost",
        "observedGeneration lies",
        "terminal regresses",
        "unbounded memory",
        "write after lease loss",
        "clock skew",
        "410 mishandled",
        "restart herd",
        "63-character collision",
        "ConfigMap over 1 MiB",
        "cross-namespace owner",
        "hot loop",
        "Event spam",
        "namespace terminating",
        "quota",
        "PVC pending",
        "eviction",
        "node loss",
        "image pull failure",
        "child deleted",
        "429 starvation",
        "RBAC revoked",
        "TTL deletes the Job before its result is read",
        "poison object",
        "restore of objects without status",
        "Git URL that is an option or points inside",
        "label and template injection",
        "secret leakage",
        "escalation through the pod template",
        "false success",
        "an order lost",
        "drift",
        "evidence destroyed",
        "isolation lost",
        "confused deputy",
        "cross-site request",
        "field without effect",
        "lost update",
    ];

    #[test]
    fn every_class_has_a_mutant_and_every_mutant_a_class() {
        let known: BTreeSet<&str> = CLASSES.iter().copied().collect();
        let found: BTreeSet<&str> = Mutant::ALL.iter().map(|one| one.about().class).collect();
        assert_eq!(found, known);
    }

    #[test]
    fn names_are_unique_and_can_be_typed() {
        let mut seen = BTreeSet::new();
        for mutant in Mutant::ALL {
            let About {
                id, words, seen_by, ..
            } = mutant.about();
            let fits = |letter: char| letter.is_ascii_lowercase() || letter == '-';
            assert!(id.chars().all(fits) && !id.starts_with('-'), "{id}");
            assert!(seen.insert(id), "'{id}' twice");
            assert_eq!(Mutant::named(id), Some(*mutant));
            assert!(!words.is_empty() && !seen_by.is_empty(), "{id}");
        }
        assert_eq!(Mutant::named("none-such"), None);
    }

    #[test]
    fn a_lie_and_a_leak_must_be_seen_by_their_oracles() {
        let of = |id: &str| Mutant::named(id).and_then(|one| one.about().oracle());
        assert_eq!(of("push-unconfirmed"), Some("O0"));
        assert_eq!(of("body-logged"), Some("O7"));
        assert_eq!(of("hot-loop"), None);
        // Cases of other suites are no oracles.
        for mutant in Mutant::ALL {
            let about = mutant.about();
            let has_case = about.seen_by.contains("e2e ");
            assert!(about.oracle().is_none() || !has_case, "{}", about.id);
        }
    }

    #[cfg(not(feature = "switches"))]
    #[test]
    fn none_is_on_where_none_can_be_chosen() {
        assert!(Mutant::ALL.iter().all(|mutant| !on(*mutant)));
    }

    #[cfg(feature = "switches")]
    #[test]
    fn one_is_chosen_once() {
        assert!(Mutant::ALL.iter().all(|mutant| !on(*mutant)));
        let unknown = choose("none-such").unwrap_err();
        assert!(
            unknown.contains("'none-such'") && unknown.contains("hot-loop"),
            "{unknown}"
        );
        choose("hot-loop").unwrap();
        assert!(choose("event-renamed").is_err());
        for mutant in Mutant::ALL {
            assert_eq!(on(*mutant), *mutant == Mutant::HotLoop, "{mutant:?}");
        }
    }
}
