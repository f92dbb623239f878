//! Errors of the REST API: one table of reasons, and one `match` over the errors of the actions.

use actions::{Error, ObjectName, Outcome};
use api::tasks::TASK_RUN;
use serde_json::{Value, json};

/// The page of the documentation with one section for each reason.
const PAGE: &str = "docs/reference/rest-api.md";

/// Seconds after which a request may be repeated that met too many others.
const RETRY_SECONDS: u32 = 1;

/// Defines the reasons: name, status code and title.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident $status:literal $title:literal;)*) => {
        /// The reason of an error, for programs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// All reasons, in the order of their status codes.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the name in responses.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// Returns the status code.
            #[must_use]
            pub fn status(self) -> u16 {
                match self {
                    $(Self::$name => $status,)*
                }
            }

            /// Returns the title, which is the same for all problems with this reason.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)*
                }
            }
        }
    };
}

reasons! {
    /// The request cannot be read: malformed JSON, an unknown field, an invalid parameter.
    InvalidRequest 400 "The request is not valid";
    /// The files are not valid as the files of a run.
    InvalidFiles 400 "The files are not valid";
    /// There is no token, or the API server does not accept it.
    Unauthenticated 401 "The token is missing or not accepted";
    /// The caller lacks a permission, or an admission rule rejects the request.
    Denied 403 "The request is not allowed";
    /// A browser sent the request for another site.
    CrossOrigin 403 "The request comes from another site";
    /// The object or the address does not exist.
    NotFound 404 "Not found";
    /// The cluster does not know the kind, or the namespace does not exist.
    Unknown 404 "The kind or the namespace does not exist";
    /// An optional part of Orchestrator is not installed.
    NotInstalled 404 "This part is not installed";
    /// The address exists, but not with this method.
    MethodNotAllowed 405 "The method is not allowed";
    /// The request did not arrive in time.
    SlowRequest 408 "The request did not arrive in time";
    /// An object of this name exists.
    Exists 409 "The object exists already";
    /// The version is not the expected one.
    Conflict 409 "The run has another version";
    /// The run has a file of this name.
    FileExists 409 "The file exists already";
    /// The run has finished.
    Finished 409 "The run has finished";
    /// The run has not finished.
    NotFinished 409 "The run has not finished";
    /// The run was cancelled.
    Cancelled 409 "The run was cancelled";
    /// The object is being deleted.
    Deleting 409 "The object is being deleted";
    /// The object changed during every try.
    Busy 409 "The object changed during every try";
    /// The idempotency key was used with other content.
    KeyReused 409 "The idempotency key was used with other content";
    /// The body is too large.
    TooLarge 413 "The body is too large";
    /// The content type is not accepted.
    UnsupportedMediaType 415 "The content type is not accepted";
    /// The request is for another host.
    OtherHost 421 "The request is for another host";
    /// The API server rejects the object as invalid.
    Refused 422 "The object is not valid";
    /// A limit is exceeded.
    TooManyRequests 429 "Too many requests";
    /// The API server gave no usable response.
    Unanswered 502 "The API server gave no usable response";
}

/// An error of the REST API.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// The reason.
    pub reason: Reason,
    /// Description of this problem, for people.
    pub detail: String,
    /// Single causes, such as one for each invalid field.
    pub causes: Vec<String>,
    /// Commands that a user can type next.
    pub next_steps: Vec<String>,
    /// The current version of the run, after a conflict of versions.
    pub current: Option<i64>,
    /// The methods that the address accepts, if the method is the problem.
    pub allow: Option<String>,
}

impl Problem {
    /// Creates a problem without causes and next steps.
    #[must_use]
    pub fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self {
            reason,
            detail: detail.into(),
            causes: Vec::new(),
            next_steps: Vec::new(),
            current: None,
            allow: None,
        }
    }

    /// Creates the problem of a request that cannot be read.
    #[must_use]
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(Reason::InvalidRequest, detail)
    }

    /// Creates the problem of an action in this namespace.
    #[must_use]
    pub fn of_action(error: &Error, namespace: &str) -> Self {
        let (reason, current) = match error {
            Error::Files(_) => (Reason::InvalidFiles, None),
            Error::Exists { .. } => (Reason::Exists, None),
            Error::NotFound { .. } => (Reason::NotFound, None),
            Error::Unknown(..) => (Reason::Unknown, None),
            Error::Conflict { found, .. } => (Reason::Conflict, Some(*found)),
            Error::Overloaded(..) => (Reason::TooManyRequests, None),
            Error::KeyReused(_) => (Reason::KeyReused, None),
            Error::Busy(_) => (Reason::Busy, None),
            Error::FileExists { .. } => (Reason::FileExists, None),
            Error::Finished { .. } => (Reason::Finished, None),
            Error::NotFinished { .. } | Error::Blocked { .. } => (Reason::NotFinished, None),
            Error::Cancelled(_) => (Reason::Cancelled, None),
            Error::Deleting(_) => (Reason::Deleting, None),
            Error::Denied(..) => (Reason::Denied, None),
            Error::Unauthenticated(_) => (Reason::Unauthenticated, None),
            Error::Refused(..) => (Reason::Refused, None),
            Error::Unanswered(..) => (Reason::Unanswered, None),
        };
        Self {
            reason,
            detail: detail(error),
            causes: causes(error),
            next_steps: next_steps(error, namespace),
            current,
            allow: None,
        }
    }

    /// Returns after how many seconds the request may be repeated unchanged.
    #[must_use]
    pub fn retry_after(&self) -> Option<u32> {
        matches!(self.reason, Reason::Busy | Reason::TooManyRequests).then_some(RETRY_SECONDS)
    }

    /// Returns the body of a response, as in RFC 9457.
    #[must_use]
    pub fn body(&self) -> Value {
        let name = self.reason.name();
        let mut body = json!({
            "type": format!("{PAGE}#{}", name.to_ascii_lowercase()),
            "title": self.reason.title(),
            "status": self.reason.status(),
            "detail": self.detail,
            "reason": name,
            "causes": self.causes,
            "nextSteps": self.next_steps,
        });
        if let Some(current) = self.current {
            body["current"] = json!(current);
        }
        body
    }
}

fn detail(error: &Error) -> String {
    // Reads and reviews change nothing.
    if let Error::Unanswered(request, _) = error
        && request.name.is_some()
        && matches!(request.verb, "create" | "patch" | "delete")
    {
        return format!("{error}; the outcome is unknown; read the object again");
    }
    error.to_string()
}

fn causes(error: &Error) -> Vec<String> {
    if let Error::Refused(_, message) = error {
        return message.split("; ").map(str::to_owned).collect();
    }
    Vec::new()
}

/// Returns commands of `orc`. All names in them come from the API server, which accepted them as
/// names, or were checked when the request was read.
fn next_steps(error: &Error, namespace: &str) -> Vec<String> {
    let within = match namespace {
        // Of an object of the cluster.
        "" => String::new(),
        namespace => format!(" -n {namespace}"),
    };
    let about = |object: &ObjectName, verbs: &[&str]| -> Vec<String> {
        let name = object.argument();
        let command = |verb: &&str| format!("orc {verb} {name}{within}");
        verbs.iter().map(command).collect()
    };
    match error {
        Error::Exists {
            run,
            is_going: true,
            ..
        }
        | Error::Deleting(run) => about(run, &["why"]),
        Error::Exists { run, .. }
        | Error::Conflict { run, .. }
        | Error::KeyReused(run)
        | Error::FileExists { run, .. }
        | Error::Busy(run) => about(run, &["describe"]),
        Error::Finished { run, outcome, .. } => match outcome {
            Outcome::Cancelled => about(run, &["describe"]),
            Outcome::Succeeded | Outcome::Failed(_) => about(run, &["describe", "retry"]),
        },
        Error::NotFinished { run, .. } => about(run, &["wait", "why"]),
        Error::Blocked { run, .. } => about(run, &["why", "wait"]),
        Error::Cancelled(run) if *run.kind == TASK_RUN => about(run, &["describe"]),
        Error::Cancelled(run) => about(run, &["describe", "retry"]),
        Error::NotFound { .. } => vec![format!("orc get{within}")],
        Error::Unknown(..) => vec!["orc check".to_owned()],
        Error::Files(_)
        | Error::Overloaded(..)
        | Error::Denied(..)
        | Error::Unauthenticated(_)
        | Error::Refused(..)
        | Error::Unanswered(..) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use actions::{FilesError, Request};
    use api::tasks::DOCS_RUN;

    use super::*;

    #[test]
    fn each_error_of_an_action_has_its_code() {
        let run = || ObjectName::new(&TASK_RUN, "shop-7");
        let guide = || ObjectName::new(&DOCS_RUN, "guide");
        let request = |verb| Request::about(verb, &run(), "team");
        let text = || "why".to_owned();
        let exists = |is_going| Error::Exists {
            run: run(),
            namespace: "team".to_owned(),
            is_going,
        };
        let cases: Vec<(Error, u16, &str, &[&str])> = vec![
            (Error::Files(FilesError::None), 400, "InvalidFiles", &[]),
            (Error::Unauthenticated(text()), 401, "Unauthenticated", &[]),
            (Error::Denied(request("create"), text()), 403, "Denied", &[]),
            (
                Error::NotFound {
                    kind: "TaskRun",
                    name: text(),
                    namespace: Some("team".to_owned()),
                },
                404,
                "NotFound",
                &["orc get -n team"],
            ),
            (
                Error::Unknown(request("create"), text()),
                404,
                "Unknown",
                &["orc check"],
            ),
            (
                exists(false),
                409,
                "Exists",
                &["orc describe shop-7 -n team"],
            ),
            (exists(true), 409, "Exists", &["orc why shop-7 -n team"]),
            (
                Error::Conflict {
                    run: run(),
                    wanted: 2,
                    found: 4,
                },
                409,
                "Conflict",
                &["orc describe shop-7 -n team"],
            ),
            (
                Error::FileExists {
                    run: run(),
                    file: text(),
                },
                409,
                "FileExists",
                &["orc describe shop-7 -n team"],
            ),
            (
                Error::Finished {
                    run: guide(),
                    outcome: Outcome::Succeeded,
                    version: None,
                },
                409,
                "Finished",
                &[
                    "orc describe docsrun/guide -n team",
                    "orc retry docsrun/guide -n team",
                ],
            ),
            (
                Error::NotFinished {
                    run: run(),
                    version: Some(1),
                    phase: text(),
                },
                409,
                "NotFinished",
                &["orc wait shop-7 -n team", "orc why shop-7 -n team"],
            ),
            (
                Error::Blocked {
                    run: run(),
                    reason: text(),
                    retry: None,
                },
                409,
                "NotFinished",
                &["orc why shop-7 -n team", "orc wait shop-7 -n team"],
            ),
            (
                Error::Cancelled(run()),
                409,
                "Cancelled",
                &["orc describe shop-7 -n team"],
            ),
            (
                Error::Deleting(run()),
                409,
                "Deleting",
                &["orc why shop-7 -n team"],
            ),
            (
                Error::Busy(run()),
                409,
                "Busy",
                &["orc describe shop-7 -n team"],
            ),
            (
                Error::KeyReused(run()),
                409,
                "KeyReused",
                &["orc describe shop-7 -n team"],
            ),
            (
                Error::Refused(request("create"), text()),
                422,
                "Refused",
                &[],
            ),
            (
                Error::Overloaded(request("create"), text()),
                429,
                "TooManyRequests",
                &[],
            ),
            (
                Error::Unanswered(request("create"), text()),
                502,
                "Unanswered",
                &[],
            ),
        ];
        for (error, status, reason, steps) in cases {
            let body = Problem::of_action(&error, "team").body();
            assert_eq!(body["status"], status, "{error}");
            assert_eq!(body["reason"], reason, "{error}");
            assert_eq!(body["nextSteps"], json!(steps), "{error}");
        }
    }

    #[test]
    fn an_unknown_outcome_is_named_after_writes_only() {
        let run = ObjectName::new(&TASK_RUN, "shop-7");
        for (verb, wanted) in [("create", true), ("patch", true), ("get", false)] {
            let request = Request::about(verb, &run, "team");
            let problem = Problem::of_action(&Error::Unanswered(request, String::new()), "team");
            let is_named = problem.detail.contains("the outcome is unknown");
            assert_eq!(is_named, wanted, "{verb}");
        }
    }

    #[test]
    fn a_conflict_has_the_current_version_and_a_limit_has_a_time() {
        let run = ObjectName::new(&TASK_RUN, "shop-7");
        let conflict = Error::Conflict {
            run: run.clone(),
            wanted: 2,
            found: 4,
        };
        let conflict = Problem::of_action(&conflict, "team");
        assert_eq!(conflict.body()["current"], 4);
        assert_eq!(conflict.retry_after(), None);
        assert_eq!(
            Problem::of_action(&Error::Busy(run), "team").retry_after(),
            Some(1)
        );
    }

    #[test]
    fn each_invalid_field_is_a_cause() {
        let run = ObjectName::new(&TASK_RUN, "shop-7");
        let request = Request::about("create", &run, "team");
        let refused = Error::Refused(request, "spec.a: small; spec.b: large".to_owned());
        let causes = Problem::of_action(&refused, "team").causes;
        assert_eq!(causes, ["spec.a: small", "spec.b: large"]);
    }

    /// The field `type` of each problem is a link to its section.
    #[test]
    fn each_reason_has_a_section_in_the_docs() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let page = fs::read_to_string(root.join(PAGE)).unwrap();
        let sections = page.lines().filter_map(|line| line.strip_prefix("### "));
        let sections: BTreeSet<&str> = sections.collect();
        for reason in Reason::ALL {
            assert!(sections.contains(reason.name()), "{reason:?}");
        }
    }
}
