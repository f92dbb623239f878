//! Errors of watches, divided into fatal and temporary ones.

use actions::{Error, Request};
use kube::runtime::watcher;

use crate::failure::Failure;

/// The meaning of a watch error: a failure of the command, or a remark before the next try.
pub(crate) enum Trouble {
    Fatal(Failure),
    Passing(String),
}

pub(crate) fn trouble(error: watcher::Error, request: Request) -> Trouble {
    let error = match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => error,
        watcher::Error::WatchError(status) => kube::Error::Api(status),
        watcher::Error::NoResourceVersion => {
            return Trouble::Fatal(Failure::client(
                "the server sent an object without a version",
            ));
        }
    };
    let error = request.failed(error);
    match error {
        Error::Denied { .. }
        | Error::Unauthenticated { .. }
        | Error::Unknown { .. }
        | Error::Refused { .. } => Trouble::Fatal(error.into()),
        Error::Files(_)
        | Error::Exists { .. }
        | Error::NotFound { .. }
        | Error::Conflict { .. }
        | Error::Busy { .. }
        | Error::KeyReused { .. }
        | Error::Overloaded { .. }
        | Error::FileExists { .. }
        | Error::Finished { .. }
        | Error::NotFinished { .. }
        | Error::Blocked { .. }
        | Error::Cancelled { .. }
        | Error::Deleting { .. }
        | Error::Unanswered { .. } => Trouble::Passing(error.to_string()),
    }
}
