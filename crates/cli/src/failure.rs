//! Why a command was not done: exit code, words, and what to do next.

use std::io;

use actions::{Error, FilesError};

use crate::exit::Exit;

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
            Self::Action(error) => error.to_string(),
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

fn advice(error: &Error) -> Vec<Advice> {
    match error {
        Error::Exists {
            name,
            is_going: false,
            ..
        } => vec![
            ("to see it", format!("describe {name}")),
            (
                "to give it more files and run it again",
                format!("context add {name} FILE…"),
            ),
        ],
        Error::Exists {
            name,
            is_going: true,
            ..
        }
        | Error::Deleting { name } => {
            vec![("to see what it waits for", format!("why {name}"))]
        }
        Error::NotFound { kind, .. } if *kind == "Agent" => {
            vec![("to see which there are", "get agents".to_owned())]
        }
        Error::NotFound { .. } => vec![("to see which there are", "get runs".to_owned())],
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
        Error::Finished { name, .. } => {
            vec![
                ("to see how it ended", format!("describe {name}")),
                ("to run it again", format!("retry {name}")),
            ]
        }
        Error::NotFinished { name, .. } => vec![
            ("to wait for its end", format!("wait {name}")),
            ("to see what it waits for", format!("why {name}")),
            ("to stop it for good", format!("cancel {name}")),
        ],
        Error::Cancelled { .. } => {
            vec![(
                "to run the task after all",
                "submit --task-id OTHER …".to_owned(),
            )]
        }
        Error::Busy { name } => vec![("to see what changes it", format!("events {name}"))],
        Error::Unanswered { request, .. } if matches!(request.verb, "create" | "patch") => {
            match &request.name {
                Some(name) => vec![(
                    "it may have been done or not; to see",
                    format!("describe {name}"),
                )],
                None => Vec::new(),
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
        let failure = Failure::from(Error::Exists {
            name: "shop-7".to_owned(),
            namespace: "team".to_owned(),
            is_going: false,
        });
        assert_eq!(failure.exit().code(), 2);
        assert!(failure.message().contains("'shop-7' exists already"));
        let commands: Vec<String> = failure.advice().into_iter().map(|(_, next)| next).collect();
        assert_eq!(commands, ["describe shop-7", "context add shop-7 FILE…"]);
    }

    #[test]
    fn a_closed_pipe_is_silent() {
        let closed = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        let full = Failure::from(io::Error::from(io::ErrorKind::StorageFull));
        assert!(closed.is_silent() && !full.is_silent());
    }
}
