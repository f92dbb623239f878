//! Single reads, bounded in time and number, and never fatal. A failed read becomes an entry in the
//! world.

use std::{fmt::Debug, time::Duration};

use api::status::bounded;
use kube::{Api, Client, Error, Resource, api::ListParams, core::NamespaceResourceScope};
use serde::de::DeserializeOwned;

use crate::world::{LIST, TEXT, Unreadable};

/// The result of a read.
pub(super) type Read<T> = Result<T, Unreadable>;

/// A kind that can be read.
pub(super) trait Kind:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug
{
}
impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug> Kind for K {}

/// A reader for one namespace.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) timeout: Duration,
}

impl Reader {
    pub(super) fn here<K: Kind + Resource<Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Reads one object. Returns `None` if it does not exist.
    pub(super) async fn get<K: Kind>(&self, api: &Api<K>, name: &str) -> Read<Option<K>> {
        let what = format!("{} '{name}'", K::kind(&()));
        self.timed(&what, api.get_opt(name)).await
    }

    /// Returns whether an object exists. Only its metadata is requested, not its content.
    pub(super) async fn exists<K: Kind>(&self, api: &Api<K>, name: &str) -> Read<bool> {
        let what = format!("{} '{name}'", K::kind(&()));
        let found = self.timed(&what, api.get_metadata_opt(name)).await?;
        Ok(found.is_some())
    }

    /// Returns the first objects of a list, and whether there are more.
    pub(super) async fn list<K: Kind>(
        &self,
        api: &Api<K>,
        params: ListParams,
    ) -> Read<(Vec<K>, bool)> {
        let what = K::plural(&()).into_owned();
        let limit = u32::try_from(LIST).unwrap_or(u32::MAX);
        let list = self.timed(&what, api.list(&params.limit(limit))).await?;
        let more = list.metadata.continue_.is_some_and(|rest| !rest.is_empty());
        Ok((list.items, more))
    }

    pub(super) async fn timed<T>(
        &self,
        what: &str,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Read<T> {
        // A request is large, and many run at once. Without boxing, they would not fit on a
        // thread's stack.
        let request = Box::pin(request);
        match tokio::time::timeout(self.timeout, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(unreadable(what, &error)),
            Err(_elapsed) => Err(Unreadable {
                what: what.to_owned(),
                forbidden: false,
                why: format!("no answer within {} s", self.timeout.as_secs()),
            }),
        }
    }
}

fn unreadable(what: &str, error: &Error) -> Unreadable {
    let status = if let Error::Api(status) = error {
        Some(status)
    } else {
        None
    };
    Unreadable {
        what: what.to_owned(),
        forbidden: status.is_some_and(|status| matches!(status.code, 401 | 403)),
        why: status.map_or_else(
            || bounded(&error.to_string(), TEXT),
            |status| bounded(&status.message, TEXT),
        ),
    }
}
