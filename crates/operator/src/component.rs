//! The parts of the product that a process can run.

use api::kinds::{OPERATORS, OperatorRow};

/// A part of the product that a process can run. One process runs one part, so that no process has the
/// permissions of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// The controllers of an operator.
    Operator(&'static OperatorRow),
    /// The REST API. It has no kinds, no Lease and no permissions.
    Gateway,
}

impl Component {
    /// Returns all parts, in the order of the docs.
    pub fn all() -> impl Iterator<Item = Self> {
        let operators = OPERATORS.iter().copied().map(Self::Operator);
        operators.chain([Self::Gateway])
    }

    /// Returns the part of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|component| component.name() == name)
    }

    /// Returns the name in `--operator`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Operator(operator) => operator.name,
            Self::Gateway => "gateway",
        }
    }

    /// Returns a summary of its purpose.
    #[must_use]
    pub fn summary(self) -> &'static str {
        match self {
            Self::Operator(operator) => operator.summary,
            Self::Gateway => "The REST API",
        }
    }
}

impl From<&'static OperatorRow> for Component {
    fn from(operator: &'static OperatorRow) -> Self {
        Self::Operator(operator)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_part_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = Component::all().map(Component::name).collect();
        assert_eq!(names.len(), OPERATORS.len() + 1);
        for component in Component::all() {
            assert_eq!(Component::named(component.name()), Some(component));
        }
        assert_eq!(Component::named("none"), None);
    }
}
