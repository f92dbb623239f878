//! Why a command was not done: exit code, words, and what to do next.

use std::io;

use actions::{Error, FilesError, RunKind};

use crate::{exit::Exit, target::Kind};

/// Why a command was not done.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What the server or an action says.
    Action(Box<Error>),
    /// Something on this side: arguments, files, kubeconfig.
    Client(String),
    /// What is looked for is gone or not there yet, with what is known of it.
    Gone { message: String, next: Vec<Advice> },
    /// The output cannot be written.
    Output(io::Error),
}

/// What can be done, and the command for it, without the program's name.
pub(crate) type Advice = (&'static str, String);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Action(Box::new(error))
    }
}

impl From<FilesError> for Failure {
    fn from(error: FilesError) -> Self {
        Self::from(Error::from(error))
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl Failure {
    pub(crate) fn client(message: impl Into<String>) -> Self {
        Self::Client(message.into())
    }

    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Action(error) => Exit::of_error(error),
            Self::Client(_) | Self::Output(_) => Exit::Client,
            Self::Gone { .. } => Exit::NotFound,
        }
    }

    /// Who reads our output has gone, so nobody would read an error either.
    pub(crate) fn is_silent(&self) -> bool {
        match self {
            Self::Output(error) => error.kind() == io::ErrorKind::BrokenPipe,
            Self::Action(_) | Self::Client(_) | Self::Gone { .. } => false,
        }
    }

    /// What went wrong.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Action(error) => words(error),
            Self::Client(message) | Self::Gone { message, .. } => message.clone(),
            Self::Output(error) => format!("cannot write the output: {error}"),
        }
    }

    /// What to do next.
    pub(crate) fn advice(&self) -> Vec<Advice> {
        match self {
            Self::Action(error) => advice(error),
            Self::Gone { next, .. } => next.clone(),
            Self::Client(_) | Self::Output(_) => Vec::new(),
        }
    }
}

/// An error's words; what is in no namespace was looked for in none.
fn words(error: &Error) -> String {
    if let Error::NotFound {
        kind,
        name,
        namespace,
    } = error
        && namespace.is_empty()
    {
        return format!("{kind} '{name}' was not found");
    }
    error.to_string()
}

/// How to see which objects of a kind there are. A name alone is a TaskRun's, so one that was not
/// found may be of the other kind.
pub(crate) fn others_of(kind: Kind) -> Vec<Advice> {
    let list = |kind: Kind| format!("get {}", kind.listed());
    let mut all = vec![("to see which there are", list(kind))];
    if kind == Kind::Run(RunKind::Task) {
        let docs = list(Kind::Run(RunKind::Docs));
        all.push(("a DocsRun is named docsrun/NAME; to see those", docs));
    }
    all
}

fn advice(error: &Error) -> Vec<Advice> {
    match error {
        Error::Exists {
            kind,
            name,
            is_going: false,
            ..
        } => {
            let argument = kind.argument(name);
            let again = match kind {
                RunKind::Task => (
                    "to give it more files and run it again",
                    format!("context add {name} FILE…"),
                ),
                RunKind::Docs => (
                    "to run it again when it has ended",
                    format!("retry {argument}"),
                ),
            };
            vec![("to see it", format!("describe {argument}")), again]
        }
        Error::Exists {
            kind,
            name,
            is_going: true,
            ..
        }
        | Error::Deleting { kind, name } => {
            vec![(
                "to see what it waits for",
                format!("why {}", kind.argument(name)),
            )]
        }
        Error::NotFound { kind, .. } => {
            let kind = Kind::parse(kind).unwrap_or(Kind::Run(RunKind::Task));
            others_of(kind)
        }
        Error::Conflict { name, .. } => vec![
            ("to see what was added", format!("describe {name}")),
            (
                "to add yours on top of it",
                format!("context add {name} FILE…"),
            ),
        ],
        Error::FileExists { name, .. } => vec![(
            "to add it under the default name",
            format!("context add {name} - < FILE"),
        )],
        Error::Finished { kind, name, .. } => {
            let name = kind.argument(name);
            vec![
                ("to see how it ended", format!("describe {name}")),
                ("to run it again", format!("retry {name}")),
            ]
        }
        Error::NotFinished { kind, name, .. } => {
            let name = kind.argument(name);
            vec![
                ("to wait for its end", format!("wait {name}")),
                ("to see what it waits for", format!("why {name}")),
                ("to stop it for good", format!("cancel {name}")),
            ]
        }
        Error::Cancelled { kind, name } => vec![match kind {
            RunKind::Task => (
                "to run the task after all",
                "submit --task-id OTHER …".to_owned(),
            ),
            RunKind::Docs => (
                "to run it after all, when it has ended",
                format!("retry {}", kind.argument(name)),
            ),
        }],
        Error::Busy { kind, name } => vec![(
            "to see what changes it",
            format!("events {}", kind.argument(name)),
        )],
        Error::Unanswered { request, .. } if matches!(request.verb, "create" | "patch") => {
            match (&request.name, Kind::parse(request.kind)) {
                (Some(name), Some(Kind::Run(kind))) => vec![(
                    "it may have been done or not; to see",
                    format!("describe {}", kind.argument(name)),
                )],
                (Some(name), Some(Kind::Tenant)) => vec![(
                    "it may have been done or not; to see",
                    format!("describe tenant/{name}"),
                )],
                (Some(_) | None, _) => Vec::new(),
            }
        }
        Error::Files(_)
        | Error::Unknown { .. }
        | Error::Denied { .. }
        | Error::Unauthenticated { .. }
        | Error::Refused { .. }
        | Error::Unanswered { .. } => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_task_is_named_with_the_next_command() {
        let cases = [
            (
                RunKind::Task,
                ["describe shop-7", "context add shop-7 FILE…"],
            ),
            (
                RunKind::Docs,
                ["describe docsrun/shop-7", "retry docsrun/shop-7"],
            ),
        ];
        for (kind, wanted) in cases {
            let failure = Failure::from(Error::Exists {
                kind,
                name: "shop-7".to_owned(),
                namespace: "team".to_owned(),
                is_going: false,
            });
            assert_eq!(failure.exit().code(), 2);
            assert!(failure.message().contains("'shop-7' exists already"));
            let commands = failure.advice().into_iter().map(|(_, next)| next);
            assert_eq!(commands.collect::<Vec<_>>(), wanted);
        }
    }

    #[test]
    fn what_is_in_no_namespace_was_looked_for_in_none() {
        let failure = Failure::from(Error::NotFound {
            kind: "Tenant",
            name: "acme".to_owned(),
            namespace: String::new(),
        });
        assert_eq!(failure.message(), "Tenant 'acme' was not found");
        assert_eq!(failure.advice()[0].1, "get tenants");
    }

    #[test]
    fn a_closed_pipe_is_silent() {
        let closed = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        let full = Failure::from(io::Error::from(io::ErrorKind::StorageFull));
        assert!(closed.is_silent() && !full.is_silent());
    }
}
