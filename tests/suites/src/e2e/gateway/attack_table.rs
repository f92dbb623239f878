//! The attacks that the suite tries, and the table of them that it prints at its end.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, Result, ensure};
use testkit::suite::Env;

use crate::e2e::attacks::tried;

/// Minimum number of different attacks of the whole suite.
const WANTED: usize = 45;

/// What an attack is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// No token, or one that is not valid.
    Token,
    /// Reads and actions in a namespace of others.
    Namespace,
    /// Actions without the permission.
    Permission,
    /// The name of another user.
    Identity,
    /// Pages of other sites, and sessions.
    Browser,
    /// Names, keys, filters, positions and lines of a log.
    Input,
    /// Heads and bodies that are no requests.
    Request,
    /// More than a server has room for.
    Flood,
    /// Requests that only an admission policy rejects.
    Policy,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Token,
        Self::Namespace,
        Self::Permission,
        Self::Identity,
        Self::Browser,
        Self::Input,
        Self::Request,
        Self::Flood,
        Self::Policy,
    ];

    fn title(self) -> &'static str {
        match self {
            Self::Token => "tokens",
            Self::Namespace => "another namespace",
            Self::Permission => "permissions",
            Self::Identity => "another user",
            Self::Browser => "browsers",
            Self::Input => "hostile input",
            Self::Request => "heads and bodies",
            Self::Flood => "floods",
            Self::Policy => "admission policies",
        }
    }
}

/// How often an attack was tried, and with which results.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Row {
    rejected: usize,
    succeeded: usize,
    /// How often it succeeded in the control, without the admission policies.
    without_policies: usize,
}

type Rows = BTreeMap<(Kind, String), Row>;

static ROWS: Mutex<Rows> = Mutex::new(Rows::new());

fn change(kind: Kind, name: &str, change: impl FnOnce(&mut Row)) {
    let mut rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    change(rows.entry((kind, name.to_owned())).or_default());
}

/// Counts an attack, and adds its name to its failure. The result says whether the attack was rejected.
pub(super) fn withstood<T>(kind: Kind, name: &str, result: Result<T>) -> Result<T> {
    tried(noted(kind, name, result))
}

/// The same for an attack that [`tried`] has counted already.
pub(super) fn noted<T>(kind: Kind, name: &str, result: Result<T>) -> Result<T> {
    change(kind, name, |row| match &result {
        Ok(_) => row.rejected += 1,
        Err(_) => row.succeeded += 1,
    });
    result.with_context(|| format!("'{name}'"))
}

/// Records that an attack succeeded without the admission policies.
pub(super) fn succeeded_without_policies(name: &str) {
    change(Kind::Policy, name, |row| row.without_policies += 1);
}

/// Returns the names of attacks, for the line of a case.
pub(super) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    format!("{} rejected: {}", names.len(), names.join(", "))
}

/// After all other cases: each kind of attack was tried and rejected. Without the admission policies, the attacks that
/// they reject succeeded, so these attacks can succeed.
pub(super) async fn judged(_env: Env) -> Result<String> {
    let table = Table::now().context("no attack was tried")?;
    table.judge()
}

/// All attacks of this process.
pub(crate) struct Table(Rows);

impl Table {
    /// Returns the attacks until now, or `None` if there were none.
    pub(crate) fn now() -> Option<Self> {
        let rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
        (!rows.is_empty()).then(|| Self(rows.clone()))
    }

    fn judge(&self) -> Result<String> {
        let Self(rows) = self;
        for kind in Kind::ALL {
            let is_there = rows.keys().any(|(of, _)| *of == kind);
            ensure!(is_there, "no attack was about {}", kind.title());
        }
        for ((kind, name), row) in rows {
            ensure!(
                row.succeeded == 0 && row.rejected > 0,
                "'{name}' was rejected {} times, and succeeded {} times",
                row.rejected,
                row.succeeded
            );
            ensure!(
                *kind != Kind::Policy || row.without_policies > 0,
                "'{name}' did not succeed without the policies"
            );
        }
        ensure!(rows.len() >= WANTED, "{} attacks, not {WANTED}", rows.len());
        Ok(format!(
            "{} attacks of {} kinds, each rejected",
            rows.len(),
            Kind::ALL.len()
        ))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(rows) = self;
        write!(
            out,
            "| about | attack | rejected | succeeded | without policies |\n|---|---|---|---|---|"
        )?;
        for ((kind, name), row) in rows {
            let title = kind.title();
            let name = cell(name);
            let without = match row.without_policies {
                _ if *kind != Kind::Policy => "–",
                0 => "not tried",
                _ => "succeeded",
            };
            let Row {
                rejected,
                succeeded,
                without_policies: _,
            } = row;
            write!(
                out,
                "\n| {title} | {name} | {rejected} | {succeeded} | {without} |"
            )?;
        }
        write!(out, "\n{} different attacks", rows.len())
    }
}

/// Returns the name of an attack for a cell of the table. It may be the attack itself.
fn cell(name: &str) -> String {
    let letters = name.chars().map(|letter| match letter {
        '|' => "¦".to_owned(),
        letter if letter.is_control() => letter.escape_unicode().to_string(),
        letter => letter.to_string(),
    });
    letters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change of the rows, and a part of the error that it must cause.
    type Change = (fn(&mut Rows), &'static str);

    fn table(count: usize) -> Table {
        let row = |rejected: usize, without_policies: usize| Row {
            rejected,
            succeeded: 0,
            without_policies,
        };
        let mut rows = Rows::new();
        for kind in Kind::ALL {
            rows.insert((kind, "x".to_owned()), row(1, 1));
        }
        for number in 0..count {
            rows.insert((Kind::Input, number.to_string()), row(2, 0));
        }
        Table(rows)
    }

    #[test]
    fn each_attack_is_rejected_and_each_policy_has_a_control() {
        assert!(table(40).judge().is_ok());
        let judged = |change: fn(&mut Rows)| {
            let mut table = table(40);
            change(&mut table.0);
            table.judge().unwrap_err().to_string()
        };
        let few = table(10).judge().unwrap_err().to_string();
        assert!(few.contains("19 attacks, not 45"), "{few}");
        let cases: [Change; 4] = [
            (
                |rows| rows.retain(|(kind, _), _| *kind != Kind::Flood),
                "no attack was about floods",
            ),
            (
                |rows| rows.values_mut().for_each(|row| row.succeeded = 1),
                "succeeded 1 times",
            ),
            (
                |rows| rows.values_mut().for_each(|row| row.rejected = 0),
                "rejected 0 times",
            ),
            (
                |rows| rows.values_mut().for_each(|row| row.without_policies = 0),
                "did not succeed without the policies",
            ),
        ];
        for (change, wanted) in cases {
            let error = judged(change);
            assert!(error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn the_table_has_a_line_for_each_attack() {
        let mut table = table(0);
        table
            .0
            .insert((Kind::Token, "a\u{1b}|b".to_owned()), Row::default());
        let text = table.to_string();
        assert_eq!(text.lines().count(), 2 + 10 + 1, "{text}");
        assert!(
            text.contains("| admission policies | x | 1 | 0 | succeeded |"),
            "{text}"
        );
        assert!(
            text.contains("| tokens | a\\u{1b}¦b | 0 | 0 | – |"),
            "{text}"
        );
        assert!(text.ends_with("10 different attacks"), "{text}");
    }
}
