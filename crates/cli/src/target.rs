//! The target of a command: names as users type them, and as `-o name` prints them.

use std::{fmt, str::FromStr};

use actions::RunKind;
use why::gather::TargetKind;

/// A kind that `get` can list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A run.
    Run(RunKind),
    /// `Agent`.
    Agent,
    /// `Tenant`, which is cluster-scoped.
    Tenant,
}

impl Kind {
    /// Parses any of the names of a kind.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase();
        match word.strip_suffix(".orchestrator.io").unwrap_or(&word) {
            "run" | "runs" | "taskrun" | "taskruns" | "otr" => Some(Self::Run(RunKind::Task)),
            "docs" | "docsrun" | "docsruns" | "odr" => Some(Self::Run(RunKind::Docs)),
            "agent" | "agents" | "oag" => Some(Self::Agent),
            "tenant" | "tenants" | "oten" => Some(Self::Tenant),
            _ => None,
        }
    }

    /// Returns the name of the kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Run(kind) => kind.name(),
            Self::Agent => "Agent",
            Self::Tenant => "Tenant",
        }
    }

    /// Returns the plural, as in URL paths.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Self::Run(kind) => kind.plural(),
            Self::Agent => "agents",
            Self::Tenant => "tenants",
        }
    }

    /// Returns the plural with its API group, as in a Role.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            Self::Run(kind) => kind.resource(),
            Self::Agent => "agents.orchestrator.io",
            Self::Tenant => "tenants.orchestrator.io",
        }
    }

    /// Returns the API version.
    #[must_use]
    pub fn version(self) -> &'static str {
        match self {
            Self::Run(kind) => kind.version(),
            Self::Agent | Self::Tenant => "v1alpha1",
        }
    }

    /// Returns the prefix that `-o name` prints before the slash.
    #[must_use]
    pub fn singular(self) -> &'static str {
        match self {
            Self::Run(kind) => kind.singular(),
            Self::Agent => "agent.orchestrator.io",
            Self::Tenant => "tenant.orchestrator.io",
        }
    }

    /// Returns the argument of `get` that lists this kind.
    #[must_use]
    pub fn listed(self) -> &'static str {
        match self {
            Self::Run(RunKind::Task) => "runs",
            Self::Run(RunKind::Docs) => "docs",
            Self::Agent => "agents",
            Self::Tenant => "tenants",
        }
    }

    /// Returns whether the kind is namespaced.
    #[must_use]
    pub fn is_namespaced(self) -> bool {
        match self {
            Self::Run(_) | Self::Agent => true,
            Self::Tenant => false,
        }
    }
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
            Some(word) => Kind::parse(word).ok_or_else(|| {
                format!("'{word}' is no kind; there are 'taskrun', 'docsrun', 'agent' and 'tenant'")
            })?,
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
            Kind::Agent | Kind::Tenant => Err(format!("'{text}' is no run")),
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
        match self {
            Self::Run(run) => run.argument(),
            Self::Tenant(name) => format!("tenant/{name}"),
        }
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
            Self::Tenant(name) => write!(out, "Tenant '{name}'"),
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
            Kind::Agent => Err(format!("'{text}' is neither a run nor a Tenant")),
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
        let kind = match kind.map(str::to_ascii_lowercase).as_deref() {
            None => TargetKind::TaskRun,
            Some("job" | "jobs" | "job.batch" | "jobs.batch") => TargetKind::Job,
            Some("pod" | "pods" | "po") => TargetKind::Pod,
            Some(word) => match Kind::parse(word) {
                Some(Kind::Run(RunKind::Task)) => TargetKind::TaskRun,
                Some(Kind::Run(RunKind::Docs)) => TargetKind::DocsRun,
                Some(Kind::Agent) => TargetKind::Agent,
                Some(Kind::Tenant) => TargetKind::Tenant,
                None => {
                    return Err(format!(
                        "'{word}' cannot be asked; 'taskrun', 'docsrun', 'agent', 'tenant', 'job' and 'pod' can"
                    ));
                }
            },
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
            None => Err(format!(
                "'{kind}' is no kind; there are 'runs', 'docs', 'agents' and 'tenants'"
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: Kind = Kind::Run(RunKind::Task);
    const DOCS: Kind = Kind::Run(RunKind::Docs);

    #[test]
    fn words_of_get() {
        type Found<'a> = Result<(Kind, Option<&'a str>), &'a str>;
        let cases: [(&[&str], Found<'_>); 15] = [
            (&[], Ok((TASK, None))),
            (&["runs"], Ok((TASK, None))),
            (&["oag"], Ok((Kind::Agent, None))),
            (&["shop-7"], Ok((TASK, Some("shop-7")))),
            (&["run", "agents"], Ok((TASK, Some("agents")))),
            (&["agent/writer"], Ok((Kind::Agent, Some("writer")))),
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
