//! The failure of a command: exit code, message, and next steps.

use std::io;

use actions::{Error, FilesError, ObjectName};
use api::{kinds::KindRow, tasks::TASK_RUN};

use crate::{exit::Exit, target};

/// The reason why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the server or of an action.
    Action(Box<Error>),
    /// A problem on this side: arguments, files, kubeconfig.
    Client(String),
    /// The requested object was deleted or does not exist yet. The message has the known details.
    Gone { message: String, next: Vec<Advice> },
    /// The output cannot be written.
    Output(io::Error),
}

/// A suggestion: its purpose, and the command without the program's name.
pub(crate) type Advice = (&'static str, String);

/// Words of the admission policy about Agents, before the name of the Agent.
const MAY_NOT_USE: &str = "must be allowed to 'use' the Agent '";

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

    /// Returns whether to print no error. The reader of our output has closed it, so nobody would
    /// read an error either.
    pub(crate) fn is_silent(&self) -> bool {
        match self {
            Self::Output(error) => error.kind() == io::ErrorKind::BrokenPipe,
            Self::Action(_) | Self::Client(_) | Self::Gone { .. } => false,
        }
    }

    /// Returns the error message.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Action(error) => error.to_string(),
            Self::Client(message) | Self::Gone { message, .. } => message.clone(),
            Self::Output(error) => format!("cannot write the output: {error}"),
        }
    }

    /// Returns suggestions for the next step.
    pub(crate) fn advice(&self) -> Vec<Advice> {
        match self {
            Self::Action(error) => advice(error),
            Self::Gone { next, .. } => next.clone(),
            Self::Client(_) | Self::Output(_) => Vec::new(),
        }
    }

    /// Returns the Agent that the author of a run may not use, and its namespace, if that is why the
    /// request was denied.
    pub(crate) fn unusable_agent(&self) -> Option<(String, String)> {
        match self {
            Self::Action(error) => unusable_agent(error),
            Self::Client(_) | Self::Gone { .. } | Self::Output(_) => None,
        }
    }
}

fn unusable_agent(error: &Error) -> Option<(String, String)> {
    let Error::Denied(request, message) = error else {
        return None;
    };
    let (_, rest) = message.split_once(MAY_NOT_USE)?;
    let (agent, _) = rest.split_once('\'')?;
    // A webhook may write anything. Only a name may become part of a command that users copy.
    let is_of_name = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '-' | '.');
    let is_name = !agent.is_empty() && agent.chars().all(is_of_name);
    let namespace = request.namespace.clone().filter(|_| is_name)?;
    Some((agent.to_owned(), namespace))
}

/// Suggests how to list the objects of a kind. A list of all runs has the names to type.
pub(crate) fn others_of(kind: &KindRow) -> Vec<Advice> {
    let listed = match kind.is_run() {
        true => target::RUNS,
        false => kind.listed,
    };
    vec![("to see which there are", format!("get {listed}"))]
}

fn advice(error: &Error) -> Vec<Advice> {
    let about = |run: &ObjectName, all: &[(&'static str, &str)]| -> Vec<Advice> {
        let name = run.argument();
        let all = all.iter();
        all.map(|(purpose, command)| (*purpose, command.replace("NAME", &name)))
            .collect()
    };
    match error {
        Error::Exists { run, is_going, .. } if *is_going => {
            about(run, &[("to see what it waits for", "why NAME")])
        }
        Error::Deleting(run) => about(run, &[("to see what it waits for", "why NAME")]),
        Error::Exists { run, .. } if *run.kind == TASK_RUN => {
            let more = "to give it more files and run it again";
            let see = ("to see it", "describe NAME");
            about(run, &[see, (more, "context add NAME FILE…")])
        }
        Error::Exists { run, .. } => {
            let again = ("to run it again when it has ended", "retry NAME");
            about(run, &[("to see it", "describe NAME"), again])
        }
        Error::NotFound { kind, .. } => others_of(target::kind(kind).unwrap_or(&TASK_RUN)),
        Error::Conflict { run, .. } => {
            let add = ("to add yours on top of it", "context add NAME FILE…");
            about(run, &[("to see what was added", "describe NAME"), add])
        }
        Error::FileExists { run, .. } => {
            let add = "context add NAME - < FILE";
            about(run, &[("to add it under the default name", add)])
        }
        Error::Finished { run, .. } => {
            let again = ("to run it again", "retry NAME");
            about(run, &[("to see how it ended", "describe NAME"), again])
        }
        Error::NotFinished { run, .. } => {
            let wait = ("to wait for its end", "wait NAME");
            let why = ("to see what it waits for", "why NAME");
            about(run, &[wait, why, ("to stop it for good", "cancel NAME")])
        }
        Error::Blocked { run, .. } => {
            let why = ("to see what blocks it", "why NAME");
            let wait = ("to wait for its end", "wait NAME");
            about(run, &[why, wait, ("to stop it for good", "cancel NAME")])
        }
        Error::Cancelled(run) if *run.kind == TASK_RUN => {
            let submit = "submit --task-id OTHER …";
            about(run, &[("to run the task after all", submit)])
        }
        Error::Cancelled(run) => {
            let purpose = "to run it after all, when it has ended";
            about(run, &[(purpose, "retry NAME")])
        }
        Error::Busy(run) if run.is_run() => {
            about(run, &[("to see what changes it", "events NAME")])
        }
        Error::Busy(object) => about(object, &[("to see it", "describe NAME")]),
        Error::Unanswered(request, _) if matches!(request.verb, "create" | "patch" | "delete") => {
            match (&request.name, target::kind(request.kind)) {
                (Some(name), Some(kind)) => {
                    let purpose = "it may have been done or not; to see";
                    let run = ObjectName::new(kind, name);
                    about(&run, &[(purpose, "describe NAME")])
                }
                (Some(_) | None, _) => Vec::new(),
            }
        }
        // The log of a run needs both.
        Error::Denied(request, _) if matches!(request.resource, "pods" | "pods/log") => {
            vec![("to see which permissions are missing", "check".to_owned())]
        }
        Error::Files(_)
        | Error::Unknown { .. }
        | Error::Overloaded { .. }
        | Error::KeyReused { .. }
        | Error::Denied { .. }
        | Error::Unauthenticated { .. }
        | Error::Refused { .. }
        | Error::Unanswered { .. } => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use api::tasks::DOCS_RUN;

    use super::*;

    #[test]
    fn an_existing_task_is_named_with_the_next_command() {
        let cases = [
            (&TASK_RUN, ["describe shop-7", "context add shop-7 FILE…"]),
            (
                &DOCS_RUN,
                ["describe docsrun/shop-7", "retry docsrun/shop-7"],
            ),
        ];
        for (kind, wanted) in cases {
            let failure = Failure::from(Error::Exists {
                run: ObjectName::new(kind, "shop-7"),
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
            namespace: None,
        });
        assert_eq!(failure.message(), "Tenant 'acme' was not found");
        assert_eq!(failure.advice()[0].1, "get tenants");
    }

    /// `events` takes only runs.
    #[test]
    fn advice_about_a_tenant_is_a_command_for_tenants() {
        let failure = Failure::from(Error::Busy(ObjectName::new(&api::tenants::TENANT, "acme")));
        assert_eq!(failure.advice()[0].1, "describe tenant/acme");
    }

    #[test]
    fn an_agent_that_may_not_be_used_is_named() {
        let denied = |message: &str| {
            let run = ObjectName::new(&TASK_RUN, "shop-7");
            let request = actions::Request::about("create", &run, "team");
            Failure::from(Error::Denied(request, message.to_owned())).unusable_agent()
        };
        let of = |agent: &str| {
            denied(&format!(
                "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: spec.agentName: 'anna' {MAY_NOT_USE}{agent}' in the namespace 'team'"
            ))
        };
        let wanted = ("writer".to_owned(), "team".to_owned());
        assert_eq!(of("writer"), Some(wanted));
        for agent in ["", "a; rm -rf ~", "$(x)"] {
            assert_eq!(of(agent), None, "{agent}");
        }
        assert_eq!(denied("taskruns is forbidden"), None);
        // The words are those of the policies.
        let policies = (api::tasks::OPERATOR.policies)().policies;
        let text = serde_json::to_string(&policies).unwrap();
        assert!(text.contains(MAY_NOT_USE), "{text}");
    }

    #[test]
    fn a_closed_pipe_is_silent() {
        let closed = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        let full = Failure::from(io::Error::from(io::ErrorKind::StorageFull));
        assert!(closed.is_silent() && !full.is_silent());
    }
}
