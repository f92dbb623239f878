//! The target of a command: names as users type them, and as `-o name` prints them.

use std::{fmt, str::FromStr};

use actions::RunKind;
use api::{
    Lifecycle,
    kinds::{self, KindRow},
    tenants::TENANT,
};
use why::gather::TargetKind;

/// A kind that `get` can list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A run.
    Run(RunKind),
    /// `Tenant`.
    Tenant,
    /// A kind without commands of its own, such as `Agent`.
    Other(&'static KindRow),
}

impl Kind {
    /// Parses any of the names of a kind.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        kinds::all().find(|row| row.has_name(word)).map(Self::of)
    }

    /// Returns the kind of this row.
    #[must_use]
    pub fn of(row: &'static KindRow) -> Self {
        let mut runs = RunKind::ALL.into_iter();
        match runs.find(|run| run.row() == row) {
            Some(run) => Self::Run(run),
            None if *row == TENANT => Self::Tenant,
            None => Self::Other(row),
        }
    }

    /// Returns the row of the kind in the table of kinds.
    #[must_use]
    pub fn row(self) -> &'static KindRow {
        match self {
            Self::Run(run) => run.row(),
            Self::Tenant => &TENANT,
            Self::Other(row) => row,
        }
    }

    /// Returns an object as an argument of the command line. A name without a kind is a TaskRun's.
    #[must_use]
    pub fn argument(self, name: &str) -> String {
        match self {
            Self::Run(run) => run.argument(name),
            Self::Tenant | Self::Other(_) => format!("{}/{name}", self.row().singular),
        }
    }
}

/// Returns all kinds, runs first.
fn runs_first() -> Vec<&'static KindRow> {
    let mut rows: Vec<_> = kinds::all().collect();
    rows.sort_by_key(|row| row.lifecycle == Lifecycle::LongLived);
    rows
}

/// Joins words to a list such as `a, b and c`.
fn join(words: &[String], last: &str) -> String {
    match words {
        [] => String::new(),
        [one] => one.clone(),
        [others @ .., end] => format!("{} {last} {end}", others.join(", ")),
    }
}

/// Returns the singular names of all kinds, and `more`.
fn singulars<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut words: Vec<&'a str> = Vec::new();
    words.extend(runs_first().iter().map(|row| row.singular));
    words.extend(more);
    words
}

/// Returns the singular names of all kinds, and `more`, in quotes.
fn quoted(more: &[&str]) -> String {
    let words = singulars(more).into_iter();
    let words: Vec<String> = words.map(|word| format!("'{word}'")).collect();
    join(&words, "and")
}

/// Returns the names of all kinds for help texts: `run, agent or tenant`, with `ending` after each.
pub(crate) fn nouns(ending: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for row in runs_first() {
        let noun = match row.lifecycle {
            Lifecycle::RunToCompletion => "run",
            Lifecycle::LongLived => row.singular,
        };
        let word = format!("{noun}{ending}");
        if !words.contains(&word) {
            words.push(word);
        }
    }
    join(&words, "or")
}

/// Returns the help for the argument of `get`.
pub(crate) fn help_of_get() -> String {
    let listed: Vec<&str> = runs_first().into_iter().map(|row| row.listed).collect();
    format!(
        "Kind ({}), kind and name, or the name of a run [default: runs]",
        listed.join(", ")
    )
}

/// Returns the help for a target: an object of any kind, or of one of `more` kinds.
pub(crate) fn help_of_target(more: &[&str]) -> String {
    let words = singulars(more).into_iter();
    let words: Vec<String> = words.map(|word| format!("{word}/NAME")).collect();
    format!("A run's NAME, {}; or KIND NAME", join(&words, "or"))
}

/// One object of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The object's kind.
    pub kind: Kind,
    /// The object's name.
    pub name: String,
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) = split(text)?;
        let kind = match kind {
            None => Kind::Run(RunKind::Task),
            Some(word) => Kind::parse(word)
                .ok_or_else(|| format!("'{word}' is no kind; there are {}", quoted(&[])))?,
        };
        Ok(Self {
            kind,
            name: name.to_owned(),
        })
    }
}

/// The kind and name of a run. A name without a kind is a TaskRun's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunName {
    /// The run's kind.
    pub kind: RunKind,
    /// The run's name.
    pub name: String,
}

impl RunName {
    /// Returns the run as an argument of the command line.
    #[must_use]
    pub fn argument(&self) -> String {
        self.kind.argument(&self.name)
    }
}

/// Formats the run for messages: `TaskRun 'shop-7'`.
impl fmt::Display for RunName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} '{}'", self.kind, self.name)
    }
}

impl FromStr for RunName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Selection { kind, name } = text.parse()?;
        match kind {
            Kind::Run(kind) => Ok(Self { kind, name }),
            Kind::Tenant | Kind::Other(_) => Err(format!("'{text}' is no run")),
        }
    }
}

/// A run or a Tenant: an object that can be suspended and waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOrTenant {
    /// A run.
    Run(RunName),
    /// The Tenant with this name.
    Tenant(String),
}

impl RunOrTenant {
    /// Returns the object as an argument of the command line.
    #[must_use]
    pub fn argument(&self) -> String {
        self.kind().argument(self.name())
    }

    /// Returns the object's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Run(run) => &run.name,
            Self::Tenant(name) => name,
        }
    }

    /// Returns the object's kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Run(run) => Kind::Run(run.kind),
            Self::Tenant(_) => Kind::Tenant,
        }
    }
}

/// Formats the object for messages: `Tenant 'acme'`.
impl fmt::Display for RunOrTenant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(run) => run.fmt(out),
            Self::Tenant(name) => write!(out, "{} '{name}'", TENANT.name()),
        }
    }
}

impl From<RunName> for RunOrTenant {
    fn from(run: RunName) -> Self {
        Self::Run(run)
    }
}

impl FromStr for RunOrTenant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Selection { kind, name } = text.parse()?;
        match kind {
            Kind::Run(kind) => Ok(Self::Run(RunName { kind, name })),
            Kind::Tenant => Ok(Self::Tenant(name)),
            Kind::Other(_) => Err(format!("'{text}' is neither a run nor a Tenant")),
        }
    }
}

/// An object that `why` can explain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The object's kind.
    pub kind: TargetKind,
    /// The object's name.
    pub name: String,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) = split(text)?;
        let kind = match kind {
            None => TargetKind::TaskRun,
            Some(word) => TargetKind::parse(word).ok_or_else(|| {
                let known = quoted(&["job", "pod"]);
                format!("'{word}' cannot be asked; {known} can")
            })?,
        };
        Ok(Self {
            kind,
            name: name.to_owned(),
        })
    }
}

/// Splits `KIND/NAME` or `NAME`.
fn split(text: &str) -> Result<(Option<&str>, &str), String> {
    let (kind, name) = match text.split_once('/') {
        Some((kind, name)) => (Some(kind), name),
        None => (None, text),
    };
    if name.is_empty() || name.contains('/') {
        return Err(format!("'{text}' is neither NAME nor KIND/NAME"));
    }
    Ok((kind, name))
}

/// Joins `KIND/NAME`, `KIND NAME` or `NAME` into one argument.
pub(crate) fn one_word(words: &[String]) -> String {
    words.join("/")
}

/// Parses the arguments of `get`: a kind, and perhaps a name.
///
/// # Errors
/// The arguments contain an unknown kind or an invalid name.
pub(crate) fn of_words(words: &[String]) -> Result<(Kind, Option<String>), String> {
    match words {
        [] => Ok((Kind::Run(RunKind::Task), None)),
        [word] => match Kind::parse(word) {
            Some(kind) => Ok((kind, None)),
            None => {
                let Selection { kind, name } = word.parse()?;
                Ok((kind, Some(name)))
            }
        },
        [kind, name, ..] => match Kind::parse(kind) {
            Some(known) => Ok((known, Some(name.clone()))),
            None => {
                let listed = runs_first().into_iter();
                let words: Vec<String> = listed.map(|row| format!("'{}'", row.listed)).collect();
                let known = join(&words, "and");
                Err(format!("'{kind}' is no kind; there are {known}"))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: Kind = Kind::Run(RunKind::Task);
    const DOCS: Kind = Kind::Run(RunKind::Docs);
    const AGENT_KIND: Kind = Kind::Other(&api::tasks::AGENT);

    #[test]
    fn words_of_get() {
        type Found<'a> = Result<(Kind, Option<&'a str>), &'a str>;
        let cases: [(&[&str], Found<'_>); 15] = [
            (&[], Ok((TASK, None))),
            (&["runs"], Ok((TASK, None))),
            (&["oag"], Ok((AGENT_KIND, None))),
            (&["shop-7"], Ok((TASK, Some("shop-7")))),
            (&["run", "agents"], Ok((TASK, Some("agents")))),
            (&["agent/writer"], Ok((AGENT_KIND, Some("writer")))),
            (&["taskrun.orchestrator.io/x"], Ok((TASK, Some("x")))),
            (&["docs"], Ok((DOCS, None))),
            (&["odr", "guide"], Ok((DOCS, Some("guide")))),
            (&["docs/guide"], Ok((DOCS, Some("guide")))),
            (&["docsrun.orchestrator.io/docs"], Ok((DOCS, Some("docs")))),
            (&["tenants"], Ok((Kind::Tenant, None))),
            (&["oten", "acme"], Ok((Kind::Tenant, Some("acme")))),
            (&["pods", "x"], Err("'pods' is no kind")),
            (&["a/b/c"], Err("'a/b/c' is neither")),
        ];
        for (words, wanted) in cases {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            match (of_words(&words), wanted) {
                (Ok((kind, name)), Ok(wanted)) => {
                    assert_eq!((kind, name.as_deref()), wanted, "{words:?}");
                }
                (Err(said), Err(wanted)) => assert!(said.contains(wanted), "{said}"),
                (found, wanted) => panic!("{words:?}: {found:?}, not {wanted:?}"),
            }
        }
    }

    #[test]
    fn each_kind_is_named_in_help_and_errors() {
        let unknown = "node/x".parse::<Selection>().unwrap_err();
        let listed = of_words(&["pods".to_owned(), "x".to_owned()]).unwrap_err();
        let asked = "node/x".parse::<Target>().unwrap_err();
        for row in kinds::all() {
            assert_eq!(Kind::of(row).row(), row);
            let quoted = format!("'{}'", row.singular);
            assert!(
                unknown.contains(&quoted) && asked.contains(&quoted),
                "{row:?}"
            );
            assert!(listed.contains(&format!("'{}'", row.listed)), "{row:?}");
            assert!(help_of_get().contains(row.listed), "{row:?}");
            let target = format!("{}/NAME", row.singular);
            assert!(help_of_target(&["job"]).contains(&target), "{row:?}");
        }
        assert!(asked.contains("'job' and 'pod' can"), "{asked}");
        assert!(nouns("s").starts_with("runs, agents"), "{}", nouns("s"));
    }

    #[test]
    fn targets_of_why() {
        let kind = |text: &str| text.parse::<Target>().map(|target| target.kind);
        assert_eq!(kind("shop-7"), Ok(TargetKind::TaskRun));
        assert_eq!(kind("docs/guide"), Ok(TargetKind::DocsRun));
        assert_eq!(kind("Agent/writer"), Ok(TargetKind::Agent));
        assert_eq!(kind("job.batch/x"), Ok(TargetKind::Job));
        assert_eq!(kind("po/x"), Ok(TargetKind::Pod));
        assert_eq!(kind("oten/acme"), Ok(TargetKind::Tenant));
        let two = ["tenant".to_owned(), "acme".to_owned()];
        assert_eq!(kind(&one_word(&two)), Ok(TargetKind::Tenant));
        assert!(kind("node/x").is_err() && kind("pod/").is_err() && kind("").is_err());
    }

    #[test]
    fn what_can_be_held_is_a_run_or_a_tenant() {
        let parsed = |text: &str| text.parse::<RunOrTenant>().map(|found| found.argument());
        assert_eq!(parsed("shop-7"), Ok("shop-7".to_owned()));
        assert_eq!(parsed("docs/guide"), Ok("docsrun/guide".to_owned()));
        assert_eq!(parsed("tenants/acme"), Ok("tenant/acme".to_owned()));
        assert!(parsed("agent/writer").is_err());
        assert!("tenant/acme".parse::<RunName>().is_err());
    }
}
