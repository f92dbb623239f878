//! Watches: which of their errors pass by themselves.

use actions::{Error, Request};
use kube::runtime::watcher;

use crate::failure::Failure;

/// What a watch's error means: an end, or a remark while it is tried again.
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
        | Error::FileExists { .. }
        | Error::Finished { .. }
        | Error::NotFinished { .. }
        | Error::Cancelled { .. }
        | Error::Deleting { .. }
        | Error::Unanswered { .. } => Trouble::Passing(error.to_string()),
    }
}
