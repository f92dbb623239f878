//! The table of kinds: names, scope, lifecycle, columns, conditions and phases of each kind, and the
//! permissions, policies and reasons of its operator.
//!
//! The row of a kind stands beside its type, and the rows of an operator in its own directory. CRDs, RBAC,
//! the command line, `why`, the chart and the docs read this table, so none of them lists kinds.

use std::fmt;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition,
};

use crate::{
    GROUP, Lifecycle, Reason, apps, crd::complete, decide::ResourceType, notebooks,
    phase::PhaseText, policy::Policies, rbac::Permission, tasks, tenants,
};

/// All operators, in the order of the docs.
pub const OPERATORS: &[&OperatorRow] = &[
    &tasks::OPERATOR,
    &tenants::OPERATOR,
    &apps::OPERATOR,
    &notebooks::OPERATOR,
];

/// Returns all kinds, in the order of the docs.
pub fn all() -> impl Iterator<Item = &'static KindRow> {
    OPERATORS.iter().flat_map(|operator| operator.kinds)
}

/// Returns the kind of this name.
#[must_use]
pub fn named(kind: &str) -> Option<&'static KindRow> {
    all().find(|row| row.name() == kind)
}

/// Returns the kind with this plural name, as in the path of a request.
#[must_use]
pub fn with_plural(plural: &str) -> Option<&'static KindRow> {
    all().find(|row| row.resource.plural == plural)
}

/// Returns the operator of the kind of this name.
#[must_use]
pub fn operator_of(kind: &str) -> Option<&'static OperatorRow> {
    let mut all = OPERATORS.iter().copied();
    all.find(|operator| operator.kinds.iter().any(|row| row.name() == kind))
}

/// Returns the operator of this name.
#[must_use]
pub fn operator(name: &str) -> Option<&'static OperatorRow> {
    let mut all = OPERATORS.iter().copied();
    all.find(|operator| operator.name == name)
}

/// An operator: one process, with a ServiceAccount, permissions and a Lease of its own.
pub struct OperatorRow {
    /// Name in the chart's values, in `--operator`, in labels of its Pods, and of its crate.
    pub name: &'static str,
    /// Summary of its purpose, for the help of `--operator`.
    pub summary: &'static str,
    /// Name of the Lease that its processes compete for.
    pub lease: &'static str,
    /// Reason why it needs the whole cluster, if it does. Then the list of watched namespaces must be empty.
    pub needs_all_namespaces: Option<&'static str>,
    /// Its kinds, in the order of the docs.
    pub kinds: &'static [KindRow],
    /// Its permissions, for RBAC.
    pub permissions: &'static [Permission],
    /// Returns its admission policies, and the roles of its users.
    pub policies: fn() -> Policies,
    /// Reasons that only its kinds have.
    pub reasons: &'static [Reason],
}

impl OperatorRow {
    /// Returns the CRDs of its kinds.
    #[must_use]
    pub fn crds(&self) -> Vec<CustomResourceDefinition> {
        self.kinds.iter().map(KindRow::crd).collect()
    }

    /// Returns the plural names of its kinds, sorted.
    #[must_use]
    pub fn plurals(&self) -> Vec<&'static str> {
        let mut plurals: Vec<&str> = self.kinds.iter().map(|kind| kind.resource.plural).collect();
        plurals.sort_unstable();
        plurals
    }
}

impl PartialEq for OperatorRow {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for OperatorRow {}

impl fmt::Debug for OperatorRow {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name)
    }
}

/// A kind, without its Rust types.
pub struct KindRow {
    /// Group, version, kind and plural.
    pub resource: ResourceType,
    /// Name of the CRD: the plural and the group.
    pub crd_name: &'static str,
    /// Singular name, as in `kubectl get`.
    pub singular: &'static str,
    /// Short name, as in `kubectl get`.
    pub short_name: &'static str,
    /// Argument of `orc get` that lists the kind.
    pub listed: &'static str,
    /// Further names on the command line.
    pub aliases: &'static [&'static str],
    /// Whether the kind is namespaced.
    pub is_namespaced: bool,
    /// Whether the kind runs to completion or is long-lived.
    pub lifecycle: Lifecycle,
    /// Columns of `kubectl get` and `orc get`, after the name.
    pub columns: &'static [Column],
    /// Conditions that only this kind has, with their meanings.
    pub conditions: &'static [(&'static str, &'static str)],
    /// Field of the spec that starts a finished object again: see [`crate::Status::EPOCH`].
    pub epoch: Option<&'static str>,
    /// Returns the phases.
    pub phases: fn() -> Vec<PhaseText>,
    /// Returns the CRD as it is derived from the types.
    pub derived_crd: fn() -> CustomResourceDefinition,
}

impl KindRow {
    /// Returns the name of the kind.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.resource.kind
    }

    /// Returns whether an object of the kind is a run: a user can suspend, cancel and repeat it. Requests to other operators
    /// run to completion too, but are not runs.
    #[must_use]
    pub fn is_run(&self) -> bool {
        self.lifecycle == Lifecycle::RunToCompletion && tasks::OPERATOR.kinds.contains(self)
    }

    /// Returns whether `word` is a name of the kind on the command line, with or without the group.
    #[must_use]
    pub fn has_name(&self, word: &str) -> bool {
        let word = word.to_ascii_lowercase();
        let word = word
            .strip_suffix(GROUP)
            .and_then(|word| word.strip_suffix('.'))
            .unwrap_or(&word);
        let known = [
            self.singular,
            self.resource.plural,
            self.short_name,
            self.listed,
        ];
        known.contains(&word) || self.aliases.contains(&word)
    }

    /// Returns the name of an object with its kind and group, as `kubectl get -o name` prints it.
    #[must_use]
    pub fn qualified(&self, name: &str) -> String {
        format!("{}.{GROUP}/{name}", self.singular)
    }

    /// Returns the complete CRD.
    #[must_use]
    pub fn crd(&self) -> CustomResourceDefinition {
        let mut crd = complete((self.derived_crd)());
        let columns: Vec<_> = self.columns.iter().map(Column::definition).collect();
        for version in &mut crd.spec.versions {
            version.additional_printer_columns = Some(columns.clone());
        }
        crd
    }
}

impl PartialEq for KindRow {
    fn eq(&self, other: &Self) -> bool {
        self.resource == other.resource
    }
}

impl Eq for KindRow {}

impl fmt::Debug for KindRow {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A column of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Title of the column.
    pub name: &'static str,
    /// Content of the column.
    pub content: Content,
    /// Whether only `-o wide` shows the column.
    pub is_wide: bool,
}

/// The content of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Text, at this path below the object, such as `status.phase`.
    Text(&'static str),
    /// Number, at this path below the object.
    Number(&'static str),
    /// Status of the condition of this type.
    Condition(&'static str),
    /// Reason of the condition of this type.
    Reason(&'static str),
    /// Age of the object.
    Age,
}

impl Column {
    /// The age of the object.
    pub const AGE: Self = Self::new("Age", Content::Age);

    /// The time at which the agent's container of the last attempt started.
    pub const STARTED: Self = Self::new("Started", Content::Text("status.startedAt")).wide();

    /// The time at which a run ended.
    pub const FINISHED: Self = Self::new("Finished", Content::Text("status.finishedAt")).wide();

    /// The message of the status.
    pub const MESSAGE: Self = Self::new("Message", Content::Text("status.message")).wide();

    /// Creates a column.
    #[must_use]
    pub const fn new(name: &'static str, content: Content) -> Self {
        Self {
            name,
            content,
            is_wide: false,
        }
    }

    /// Shows the column only with `-o wide`.
    #[must_use]
    pub const fn wide(mut self) -> Self {
        self.is_wide = true;
        self
    }

    fn definition(&self) -> CustomResourceColumnDefinition {
        let (type_, json_path) = match self.content {
            Content::Text(path) => ("string", format!(".{path}")),
            Content::Number(path) => ("integer", format!(".{path}")),
            Content::Condition(kind) => (
                "string",
                format!(".status.conditions[?(@.type==\"{kind}\")].status"),
            ),
            Content::Reason(kind) => (
                "string",
                format!(".status.conditions[?(@.type==\"{kind}\")].reason"),
            ),
            Content::Age => ("date", ".metadata.creationTimestamp".to_owned()),
        };
        CustomResourceColumnDefinition {
            name: self.name.to_owned(),
            type_: type_.to_owned(),
            json_path,
            priority: self.is_wide.then_some(1),
            ..CustomResourceColumnDefinition::default()
        }
    }
}

#[cfg(test)]
mod tests;
