//! Exit codes, in one table for the code and for the docs.

use actions::{Error, Outcome};

/// The result of a command, for scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The command succeeded, and so did a run that was waited for.
    Ok = 0,
    /// The run failed.
    Failed = 1,
    /// An error of the client: usage, files, kubeconfig, connection, or a state of the object that
    /// does not allow the action.
    Client = 2,
    /// The run has not finished: the time is up, or the run is suspended.
    Timeout = 3,
    /// The run was cancelled, or a write was denied.
    Denied = 4,
    /// The object does not exist, or it was deleted meanwhile.
    NotFound = 5,
}

impl Exit {
    /// All exit codes with their meanings, for the docs.
    pub const ALL: [(Self, &'static str); 6] = [
        (
            Self::Ok,
            "done; a run that was waited for succeeded, a Tenant is ready; 'check' found no failure, 'uninstall --check' no obstacle",
        ),
        (
            Self::Failed,
            "the run failed, or the Tenant's spec cannot be carried out; 'check' found a failure, 'uninstall --check' an obstacle",
        ),
        (
            Self::Client,
            "usage or client error: arguments, files, kubeconfig, no connection, a read that is not allowed, a name that is taken, or the run's state does not allow it",
        ),
        (
            Self::Timeout,
            "the run has not finished: timed out, interrupted, or the run is suspended; for 'delete --wait', it still exists",
        ),
        (
            Self::Denied,
            "the run was cancelled, or a change was denied by RBAC or by an admission rule",
        ),
        (
            Self::NotFound,
            "not found, or deleted while it was waited for; for 'logs', there is no log; for 'result', there is no such result",
        ),
    ];

    /// Returns the number.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the exit code for the outcome of a run.
    #[must_use]
    pub fn of_outcome(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Succeeded => Self::Ok,
            Outcome::Failed(_) => Self::Failed,
            Outcome::Cancelled => Self::Denied,
        }
    }

    /// Returns the exit code for an error.
    #[must_use]
    pub fn of_error(error: &Error) -> Self {
        match error {
            Error::NotFound { .. } => Self::NotFound,
            Error::Denied(request, _) => match request.verb {
                "create" | "patch" | "delete" => Self::Denied,
                _ => Self::Client,
            },
            Error::Cancelled { .. } => Self::Denied,
            Error::Files(_)
            | Error::Exists { .. }
            | Error::Unknown { .. }
            | Error::Conflict { .. }
            | Error::Busy { .. }
            | Error::KeyReused { .. }
            | Error::Overloaded { .. }
            | Error::FileExists { .. }
            | Error::Finished { .. }
            | Error::NotFinished { .. }
            | Error::Blocked { .. }
            | Error::Deleting { .. }
            | Error::Unauthenticated { .. }
            | Error::Refused { .. }
            | Error::Unanswered { .. } => Self::Client,
        }
    }

    /// Returns the code to report for several runs. An unknown outcome is more severe than a known
    /// failure, and a failure is more severe than a cancellation.
    #[must_use]
    pub fn most_severe(all: impl IntoIterator<Item = Self>) -> Self {
        let weight = |exit: &Self| match exit {
            Self::Ok => 0,
            Self::Denied => 1,
            Self::Failed => 2,
            Self::Timeout => 3,
            Self::NotFound => 4,
            Self::Client => 5,
        };
        all.into_iter().max_by_key(weight).unwrap_or(Self::Ok)
    }
}

#[cfg(test)]
mod tests {
    use actions::{FilesError, ObjectName, Request};
    use api::tasks::{DOCS_RUN, TASK_RUN};

    use super::*;

    #[test]
    fn each_error_has_its_code() {
        let name = || "shop-7".to_owned();
        let run = || ObjectName::new(&TASK_RUN, "shop-7");
        let request = |verb| Request::about(verb, &run(), "team");
        let message = || "why".to_owned();
        let denied = |verb| Error::Denied(request(verb), message());
        let cases = [
            (Error::Files(FilesError::None), 2),
            (
                Error::Exists {
                    run: run(),
                    namespace: message(),
                    is_going: false,
                },
                2,
            ),
            (
                Error::NotFound {
                    kind: "TaskRun",
                    name: name(),
                    namespace: Some(message()),
                },
                5,
            ),
            (
                Error::Conflict {
                    run: run(),
                    wanted: 2,
                    found: 2,
                },
                2,
            ),
            (Error::Cancelled(ObjectName::new(&DOCS_RUN, "guide")), 4),
            (
                Error::Finished {
                    run: run(),
                    outcome: Outcome::Failed(message()),
                    version: Some(1),
                },
                2,
            ),
            (denied("create"), 4),
            (denied("patch"), 4),
            (denied("delete"), 4),
            (denied("get"), 2),
            (denied("list"), 2),
            (denied("watch"), 2),
            (Error::Unauthenticated(message()), 2),
            (Error::Unanswered(request("create"), message()), 2),
        ];
        for (error, wanted) in cases {
            assert_eq!(Exit::of_error(&error).code(), wanted, "{error}");
        }
    }

    #[test]
    fn each_outcome_has_its_code() {
        let failed = Outcome::Failed("OOMKilled".to_owned());
        let codes = [Outcome::Succeeded, failed, Outcome::Cancelled]
            .map(|outcome| Exit::of_outcome(&outcome).code());
        assert_eq!(codes, [0, 1, 4]);
    }

    #[test]
    fn the_most_severe_is_reported() {
        let cases = [
            (vec![], 0),
            (vec![Exit::Ok, Exit::Denied], 4),
            (vec![Exit::Failed, Exit::Denied, Exit::Ok], 1),
            (vec![Exit::Failed, Exit::Timeout], 3),
            (vec![Exit::NotFound, Exit::Timeout, Exit::Ok], 5),
        ];
        for (all, wanted) in cases {
            assert_eq!(Exit::most_severe(all.clone()).code(), wanted, "{all:?}");
        }
    }
}
