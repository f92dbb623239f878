//! Why an action was not done.

use kube::core::Status;

use crate::{FilesError, RunKind};

/// Why an action was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The files cannot be the files of a run.
    #[error(transparent)]
    Files(#[from] FilesError),

    /// A run of this name exists.
    #[error("{kind} '{name}' exists already in namespace '{namespace}'{}", if *.is_going { " and is being deleted" } else { "" })]
    Exists {
        /// Its kind.
        kind: RunKind,
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
        /// Whether it is being deleted: the name will be free again.
        is_going: bool,
    },

    /// There is no such object.
    #[error("{kind} '{name}' was not found in namespace '{namespace}'")]
    NotFound {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Where it was looked for.
        namespace: String,
    },

    /// The server does not know the kind, or the namespace does not exist.
    #[error("cannot {request}: {message}")]
    Unknown {
        /// What was asked.
        request: Request,
        /// The server's words.
        message: String,
    },

    /// Someone else made this version of the context meanwhile. Nothing of ours was written.
    #[error(
        "version {wanted} of TaskRun '{name}' was made by someone else meanwhile; it is at version {found}, and nothing was added"
    )]
    Conflict {
        /// The run.
        name: String,
        /// The version that we wanted to make.
        wanted: i64,
        /// The version that it has now.
        found: i64,
    },

    /// The object changed at each try.
    #[error(
        "{kind} '{name}' changed during each of {} tries; nothing was written",
        crate::TRIES
    )]
    Busy {
        /// The run's kind.
        kind: RunKind,
        /// Its name.
        name: String,
    },

    /// A file of this name is in the run already.
    #[error("TaskRun '{name}' has a file '{file}' already; an added file needs a new name")]
    FileExists {
        /// The run.
        name: String,
        /// The file.
        file: String,
    },

    /// The run is over.
    #[error("{kind} '{name}' has finished: {phase} ({reason}){}", of_version(*.version))]
    Finished {
        /// The run's kind.
        kind: RunKind,
        /// Its name.
        name: String,
        /// `Succeeded` or `Failed`.
        phase: &'static str,
        /// Why.
        reason: String,
        /// The version that finished, where the kind has versions.
        version: Option<i64>,
    },

    /// The run is not over.
    #[error("{kind} '{name}' has not finished: {}{phase}", subject(*.version))]
    NotFinished {
        /// The run's kind.
        kind: RunKind,
        /// Its name.
        name: String,
        /// The version that goes on, where the kind has versions.
        version: Option<i64>,
        /// Its phase.
        phase: &'static str,
    },

    /// The run was cancelled, which cannot be taken back.
    #[error("{kind} '{name}' was cancelled, and that cannot be taken back")]
    Cancelled {
        /// The run's kind.
        kind: RunKind,
        /// Its name.
        name: String,
    },

    /// The run is being deleted.
    #[error("{kind} '{name}' is being deleted")]
    Deleting {
        /// The run's kind.
        kind: RunKind,
        /// Its name.
        name: String,
    },

    /// The author lacks a permission, or an admission rule refuses it.
    #[error("not allowed to {request}: {message}")]
    Denied {
        /// What was asked.
        request: Request,
        /// The server's words.
        message: String,
    },

    /// The server does not know who asks.
    #[error("the server does not accept these credentials: {message}")]
    Unauthenticated {
        /// The server's words.
        message: String,
    },

    /// The server does not accept the object.
    #[error("the server refuses to {request}: {}", .causes.join("; "))]
    Refused {
        /// What was asked.
        request: Request,
        /// What is wrong, one sentence for each field.
        causes: Vec<String>,
    },

    /// No usable answer: for a write, it is not known whether it happened.
    #[error("no usable answer to {request}: {message}")]
    Unanswered {
        /// What was asked.
        request: Request,
        /// What came instead.
        message: String,
    },
}

/// What is asked of the server, for the words of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The verb, as in a Role.
    pub verb: &'static str,
    /// The kind, for people.
    pub kind: &'static str,
    /// The plural with its group, as in a Role.
    pub resource: &'static str,
    /// The name, where one object is meant.
    pub name: Option<String>,
    /// The namespace; none for all of them.
    pub namespace: Option<String>,
}

impl Request {
    /// About one `TaskRun`.
    #[must_use]
    pub fn of_run(verb: &'static str, namespace: &str, name: &str) -> Self {
        Self::of_kind(RunKind::Task, verb, namespace, name)
    }

    /// About one run of this kind.
    #[must_use]
    pub fn of_kind(kind: RunKind, verb: &'static str, namespace: &str, name: &str) -> Self {
        Self {
            verb,
            kind: kind.name(),
            resource: kind.resource(),
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
        }
    }

    /// What its failure means.
    #[must_use]
    pub fn failed(self, error: kube::Error) -> Error {
        if let kube::Error::Api(status) = error {
            return self.answered(*status);
        }
        Error::Unanswered {
            message: chain(&error),
            request: self,
        }
    }

    /// Only runs are written here.
    fn run_kind(&self) -> RunKind {
        let mut all = RunKind::ALL.into_iter();
        all.find(|kind| kind.name() == self.kind)
            .unwrap_or(RunKind::Task)
    }

    fn answered(self, status: Status) -> Error {
        let message = status.message.trim().to_owned();
        if is_denial(&message) {
            return Error::Denied {
                request: self,
                message,
            };
        }
        match (status.code, self.name.clone()) {
            (401, _) => Error::Unauthenticated { message },
            (403, _) => Error::Denied {
                request: self,
                message,
            },
            (404, Some(name)) if is_about(&status, &name) => Error::NotFound {
                kind: self.kind,
                name,
                namespace: self.namespace.unwrap_or_default(),
            },
            (404, _) => Error::Unknown {
                message: format!(
                    "{message} (is Orchestrator installed, does the namespace exist?)"
                ),
                request: self,
            },
            (409, Some(name)) if status.reason == "AlreadyExists" => Error::Exists {
                kind: self.run_kind(),
                name,
                namespace: self.namespace.unwrap_or_default(),
                is_going: message.starts_with("object is being deleted"),
            },
            (409, Some(name)) => Error::Busy {
                kind: self.run_kind(),
                name,
            },
            (400 | 413 | 422, _) => Error::Refused {
                causes: causes(&status),
                request: self,
            },
            (code, _) => Error::Unanswered {
                message: format!("{message} (code {code})"),
                request: self,
            },
        }
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}", self.verb, self.resource)?;
        if let Some(name) = &self.name {
            write!(out, " '{name}'")?;
        }
        match &self.namespace {
            Some(namespace) => write!(out, " in namespace '{namespace}'"),
            None => write!(out, " in all namespaces"),
        }
    }
}

/// `, version 2`.
fn of_version(version: Option<i64>) -> String {
    version.map_or_else(String::new, |version| format!(", version {version}"))
}

/// `version 2 is `.
fn subject(version: Option<i64>) -> String {
    version.map_or_else(
        || "it is ".to_owned(),
        |version| format!("version {version} is "),
    )
}

/// A policy or webhook may answer with any code; its words are the API server's own.
fn is_denial(message: &str) -> bool {
    message.contains("denied request:") || message.contains("denied the request")
}

/// A 404 speaks of the object itself only where it names it; otherwise of its kind.
fn is_about(status: &Status, name: &str) -> bool {
    status
        .details
        .as_ref()
        .is_some_and(|details| details.name == name && details.kind != "namespaces")
}

fn causes(status: &Status) -> Vec<String> {
    let causes: Vec<String> = status
        .details
        .iter()
        .flat_map(|details| &details.causes)
        .filter(|cause| {
            !cause
                .message
                .contains("some validation rules were not checked")
        })
        .map(|cause| format!("{}: {}", cause.field, cause.message))
        .collect();
    if causes.is_empty() {
        vec![status.message.trim().to_owned()]
    } else {
        causes
    }
}

/// An error with all that caused it; a cause that its parent repeats is left out.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16, reason: &str, message: &str, about: &str) -> Error {
        let status: Status = serde_json::from_value(serde_json::json!({
            "code": code, "reason": reason, "message": message,
            "details": { "name": about, "causes": [] },
        }))
        .unwrap();
        Request::of_run("create", "team", "shop-7").failed(kube::Error::Api(status.boxed()))
    }

    #[test]
    fn each_answer_has_its_error() {
        let cases = [
            (
                answer(401, "Unauthorized", "Unauthorized", ""),
                "the server does not accept these credentials: Unauthorized",
            ),
            (
                answer(403, "Forbidden", "taskruns is forbidden", "shop-7"),
                "not allowed to create taskruns.orchestrator.io 'shop-7' in namespace 'team': taskruns is forbidden",
            ),
            (
                answer(
                    422,
                    "Invalid",
                    "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
                    "shop-7",
                ),
                "not allowed to create taskruns.orchestrator.io 'shop-7' in namespace 'team': ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
            ),
            (
                answer(
                    400,
                    "",
                    "admission webhook \"w\" denied the request: no",
                    "",
                ),
                "not allowed to create taskruns.orchestrator.io 'shop-7' in namespace 'team': admission webhook \"w\" denied the request: no",
            ),
            (
                answer(404, "NotFound", "not found", "shop-7"),
                "TaskRun 'shop-7' was not found in namespace 'team'",
            ),
            (
                answer(404, "NotFound", "404 page not found", ""),
                "cannot create taskruns.orchestrator.io 'shop-7' in namespace 'team': 404 page not found (is Orchestrator installed, does the namespace exist?)",
            ),
            (
                answer(409, "AlreadyExists", "it already exists", "shop-7"),
                "TaskRun 'shop-7' exists already in namespace 'team'",
            ),
            (
                answer(
                    409,
                    "AlreadyExists",
                    "object is being deleted: it already exists",
                    "shop-7",
                ),
                "TaskRun 'shop-7' exists already in namespace 'team' and is being deleted",
            ),
            (
                answer(409, "Conflict", "the object has been modified", "shop-7"),
                "TaskRun 'shop-7' changed during each of 5 tries; nothing was written",
            ),
            (
                answer(422, "Invalid", "spec.taskId is wrong", "shop-7"),
                "the server refuses to create taskruns.orchestrator.io 'shop-7' in namespace 'team': spec.taskId is wrong",
            ),
            (
                answer(504, "Timeout", "took too long", ""),
                "no usable answer to create taskruns.orchestrator.io 'shop-7' in namespace 'team': took too long (code 504)",
            ),
        ];
        for (error, wanted) in cases {
            assert_eq!(error.to_string(), wanted);
        }
    }

    #[test]
    fn a_refusal_names_each_field() {
        let status: Status = serde_json::from_value(serde_json::json!({
            "code": 422, "reason": "Invalid", "message": "all of it",
            "details": { "name": "shop-7", "causes": [
                { "field": "spec.taskId", "message": "too small" },
                { "field": "spec.agentName", "message": "not a name" },
            ] },
        }))
        .unwrap();
        assert_eq!(
            causes(&status),
            ["spec.taskId: too small", "spec.agentName: not a name"]
        );
    }
}
