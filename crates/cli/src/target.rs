//! What a command is about: names as users write them, and as `-o name` prints them.

use std::str::FromStr;

use why::gather::TargetKind;

/// A kind that can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `TaskRun`.
    Run,
    /// `Agent`.
    Agent,
}

impl Kind {
    /// By any of its names.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase();
        match word.strip_suffix(".orchestrator.io").unwrap_or(&word) {
            "run" | "runs" | "taskrun" | "taskruns" | "otr" => Some(Self::Run),
            "agent" | "agents" | "oag" => Some(Self::Agent),
            _ => None,
        }
    }

    /// The kind.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Run => "TaskRun",
            Self::Agent => "Agent",
        }
    }

    /// The plural in paths.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Self::Run => "taskruns",
            Self::Agent => "agents",
        }
    }

    /// The plural with its group, as in a Role.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            Self::Run => "taskruns.orchestrator.io",
            Self::Agent => "agents.orchestrator.io",
        }
    }

    /// The version of the API.
    #[must_use]
    pub fn version(self) -> &'static str {
        match self {
            Self::Run => "v1",
            Self::Agent => "v1alpha1",
        }
    }

    /// As `-o name` prints it, before the slash.
    #[must_use]
    pub fn singular(self) -> &'static str {
        match self {
            Self::Run => "taskrun.orchestrator.io",
            Self::Agent => "agent.orchestrator.io",
        }
    }
}

/// One object of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) = split(text)?;
        let kind = match kind {
            None => Kind::Run,
            Some(word) => Kind::parse(word)
                .ok_or_else(|| format!("'{word}' is no kind; there are 'taskrun' and 'agent'"))?,
        };
        Ok(Self {
            kind,
            name: name.to_owned(),
        })
    }
}

/// A run's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunName(pub String);

impl FromStr for RunName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Selection { kind, name } = text.parse()?;
        match kind {
            Kind::Run => Ok(Self(name)),
            Kind::Agent => Err(format!("'{text}' is no run")),
        }
    }
}

/// What `why` can be asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its kind.
    pub kind: TargetKind,
    /// Its name.
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
                Some(Kind::Run) => TargetKind::TaskRun,
                Some(Kind::Agent) => TargetKind::Agent,
                None => {
                    return Err(format!(
                        "'{word}' cannot be asked; 'taskrun', 'agent', 'job' and 'pod' can"
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

/// `KIND/NAME` or `NAME`.
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

/// What `get` was asked for: a kind, and perhaps a name.
///
/// # Errors
/// Where the words are neither.
pub(crate) fn of_words(words: &[String]) -> Result<(Kind, Option<String>), String> {
    match words {
        [] => Ok((Kind::Run, None)),
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
                "'{kind}' is no kind; there are 'runs' and 'agents'"
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_get() {
        type Found<'a> = Result<(Kind, Option<&'a str>), &'a str>;
        let cases: [(&[&str], Found<'_>); 9] = [
            (&[], Ok((Kind::Run, None))),
            (&["runs"], Ok((Kind::Run, None))),
            (&["oag"], Ok((Kind::Agent, None))),
            (&["shop-7"], Ok((Kind::Run, Some("shop-7")))),
            (&["run", "agents"], Ok((Kind::Run, Some("agents")))),
            (&["agent/writer"], Ok((Kind::Agent, Some("writer")))),
            (&["taskrun.orchestrator.io/x"], Ok((Kind::Run, Some("x")))),
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
        assert_eq!(kind("Agent/writer"), Ok(TargetKind::Agent));
        assert_eq!(kind("job.batch/x"), Ok(TargetKind::Job));
        assert_eq!(kind("po/x"), Ok(TargetKind::Pod));
        assert!(kind("node/x").is_err() && kind("pod/").is_err() && kind("").is_err());
    }
}
