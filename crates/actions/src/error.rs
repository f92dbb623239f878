//! Errors of the actions.

use api::{error::chain, kinds, status::Retry, tasks::TASK_RUN};
use kube::core::Status;

use crate::{FilesError, ObjectName, Outcome};

/// The reason why an action failed. Errors of the server have the request and the server's message.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The files are not valid as the files of a run.
    #[error(transparent)]
    Files(#[from] FilesError),

    /// A run with this name already exists.
    #[error("{run} exists already in namespace '{namespace}'{}", if *.is_going { " and is being deleted" } else { "" })]
    Exists {
        /// The run's kind and name.
        run: ObjectName,
        /// The run's namespace.
        namespace: String,
        /// Whether the existing run is being deleted. Its name becomes free afterwards.
        is_going: bool,
    },

    /// The object does not exist.
    #[error("{kind} '{name}' was not found{}", in_namespace(.namespace.as_deref()))]
    NotFound {
        /// The kind of the object.
        kind: &'static str,
        /// The name of the object.
        name: String,
        /// The namespace in which we searched, if the object is namespaced.
        namespace: Option<String>,
    },

    /// The server does not know the kind, or the namespace does not exist.
    #[error("cannot {0}: {1}")]
    Unknown(Request, String),

    /// The wanted version is not the next one: another writer created it meanwhile, or the caller
    /// expected another version. We wrote nothing.
    #[error("{}", conflict(.run, *.wanted, *.found))]
    Conflict {
        /// The run's kind and name.
        run: ObjectName,
        /// The version that we wanted to create.
        wanted: i64,
        /// The version that the run has now.
        found: i64,
    },

    /// The server has too many requests. It did not process this one.
    #[error("the server has too many requests, so it did not {0}: {1}")]
    Overloaded(Request, String),

    /// The object was created by a request with the same idempotency key, but with other content.
    #[error("{0} was submitted with this idempotency key before, but with other content")]
    KeyReused(ObjectName),

    /// The object changed during every try.
    #[error("{0} changed during each of {tries} tries; nothing was written", tries = crate::TRIES)]
    Busy(ObjectName),

    /// The run already has a file with this name.
    #[error("{run} has a file '{file}' already; an added file needs a new name")]
    FileExists {
        /// The run's kind and name.
        run: ObjectName,
        /// The name of the file.
        file: String,
    },

    /// The run has already finished.
    #[error("{run} has finished: {} ({}){}", .outcome.phase(), .outcome.reason(), of_version(*.version))]
    Finished {
        /// The run's kind and name.
        run: ObjectName,
        /// The outcome.
        outcome: Outcome,
        /// The version that finished, where the kind has versions.
        version: Option<i64>,
    },

    /// The run has not finished yet.
    #[error("{run} has not finished: {}{phase}", subject(*.version))]
    NotFinished {
        /// The run's kind and name.
        run: ObjectName,
        /// The unfinished version, if the kind has versions.
        version: Option<i64>,
        /// The run's phase.
        phase: String,
    },

    /// The API server rejects the Job or the files of the run. The operator tries again.
    #[error("{run} is blocked ({reason}) and has not started; the operator tries again by itself{}", next_try(.retry.as_deref()))]
    Blocked {
        /// The run's kind and name.
        run: ObjectName,
        /// The reason in the status.
        reason: String,
        /// The next try, if the status has it. The status has none for a delay below 10 seconds.
        retry: Option<Box<Retry>>,
    },

    /// The run was cancelled, which cannot be undone.
    #[error("{0} was cancelled, and that cannot be undone")]
    Cancelled(ObjectName),

    /// The run is being deleted.
    #[error("{0} is being deleted")]
    Deleting(ObjectName),

    /// The author lacks a permission, or an admission rule rejects the request.
    #[error("not allowed to {0}: {1}")]
    Denied(Request, String),

    /// The server does not accept the credentials.
    #[error("the server does not accept these credentials: {0}")]
    Unauthenticated(String),

    /// The server rejects the object as invalid. The message has one sentence per field.
    #[error("the server refuses to {0}: {1}")]
    Refused(Request, String),

    /// The server gave no usable response. After a write, it is unknown whether the write happened.
    #[error("no usable answer to {0}: {1}")]
    Unanswered(Request, String),
}

/// A request to the API server, for use in error messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The verb, as in a Role.
    pub verb: &'static str,
    /// The kind, as people write it.
    pub kind: &'static str,
    /// The plural with its API group, as in a Role.
    pub resource: &'static str,
    /// The object's name, if the request is about one object.
    pub name: Option<String>,
    /// The namespace, or `None` for all namespaces.
    pub namespace: Option<String>,
}

impl Request {
    /// Creates a request about one object. The namespace is that of a namespaced object.
    #[must_use]
    pub fn about(verb: &'static str, object: &ObjectName, namespace: &str) -> Self {
        Self {
            verb,
            kind: object.kind.name(),
            resource: object.kind.crd_name,
            name: Some(object.name.clone()),
            namespace: object.kind.is_namespaced.then(|| namespace.to_owned()),
        }
    }

    /// Converts the client's error for this request into an [`Error`].
    #[must_use]
    pub fn failed(self, error: kube::Error) -> Error {
        if let kube::Error::Api(status) = error {
            return self.answered(*status);
        }
        Error::Unanswered(self, chain(&error))
    }

    /// Returns the object of this name. Only kinds of the table are written here; any other kind
    /// counts as a `TaskRun`.
    fn object(&self, name: &str) -> ObjectName {
        ObjectName::new(kinds::named(self.kind).unwrap_or(&TASK_RUN), name)
    }

    fn answered(self, status: Status) -> Error {
        let message = status.message.trim().to_owned();
        if is_denial(&message) {
            return Error::Denied(self, message);
        }
        match (status.code, self.name.clone()) {
            (401, _) => Error::Unauthenticated(message),
            (403, _) => Error::Denied(self, message),
            (404, Some(name)) if is_about(&status, &name) => Error::NotFound {
                kind: self.kind,
                name,
                namespace: self.namespace,
            },
            (404, _) => {
                let question = "is Orchestrator installed, does the namespace exist?";
                Error::Unknown(self, format!("{message} ({question})"))
            }
            (409, Some(name)) if status.reason == "AlreadyExists" => Error::Exists {
                run: self.object(&name),
                namespace: self.namespace.unwrap_or_default(),
                is_going: message.starts_with("object is being deleted"),
            },
            (409, Some(name)) => Error::Busy(self.object(&name)),
            // Its fairness rejects a request before it is processed.
            (429, _) => Error::Overloaded(self, message),
            (400 | 413 | 422, _) => Error::Refused(self, causes(&status).join("; ")),
            (code, _) => Error::Unanswered(self, format!("{message} (code {code})")),
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

fn conflict(run: &ObjectName, wanted: i64, found: i64) -> String {
    if found >= wanted {
        format!(
            "version {wanted} of {run} was made by someone else meanwhile; it is at version {found}, and nothing was added"
        )
    } else {
        format!(
            "{run} is at version {found}, so version {wanted} is not the next one; nothing was added"
        )
    }
}

/// Formats ` in namespace 'team'`, or an empty string without a namespace.
fn in_namespace(namespace: Option<&str>) -> String {
    namespace.map_or_else(String::new, |name| format!(" in namespace '{name}'"))
}

/// Formats `, version 2`, or an empty string without a version.
fn of_version(version: Option<i64>) -> String {
    version.map_or_else(String::new, |version| format!(", version {version}"))
}

/// Formats `version 2 is `, or `it is ` without a version.
fn subject(version: Option<i64>) -> String {
    version.map_or_else(
        || "it is ".to_owned(),
        |version| format!("version {version} is "),
    )
}

/// Formats `, next at 2026-03-02T10:05:53Z`, or an empty string if the time is unknown.
fn next_try(retry: Option<&Retry>) -> String {
    match retry.map(|retry| (&retry.next_at, &retry.every)) {
        Some((Some(at), _)) => format!(", next at {}", at.0),
        Some((None, Some(every))) => format!(", at the latest every {every}"),
        Some((None, None)) | None => String::new(),
    }
}

/// Returns whether an admission policy or webhook denied the request. Both may respond with any
/// status code, but the API server itself formats the message.
fn is_denial(message: &str) -> bool {
    message.contains("denied request:") || message.contains("denied the request")
}

/// Returns whether a 404 is about the object itself. It is if the response contains the object's
/// name; otherwise the kind or the namespace does not exist.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16, reason: &str, message: &str, about: &str) -> Error {
        let status: Status = serde_json::from_value(serde_json::json!({
            "code": code, "reason": reason, "message": message,
            "details": { "name": about, "causes": [] },
        }))
        .unwrap();
        let run = ObjectName::new(&TASK_RUN, "shop-7");
        Request::about("create", &run, "team").failed(kube::Error::Api(status.boxed()))
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
                answer(429, "TooManyRequests", "try again later", ""),
                "the server has too many requests, so it did not create taskruns.orchestrator.io 'shop-7' in namespace 'team': try again later",
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
    fn a_version_that_is_not_the_next_one_is_named() {
        let run = || ObjectName::new(&TASK_RUN, "shop-7");
        for (wanted, found, text) in [
            (
                3,
                3,
                "version 3 of TaskRun 'shop-7' was made by someone else meanwhile; it is at version 3, and nothing was added",
            ),
            (
                5,
                2,
                "TaskRun 'shop-7' is at version 2, so version 5 is not the next one; nothing was added",
            ),
        ] {
            let run = run();
            let error = Error::Conflict { run, wanted, found };
            assert_eq!(error.to_string(), text);
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
