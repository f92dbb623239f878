//! Single reads, bounded in time and number, and never fatal. A failed read becomes an entry in the
//! world.

use std::{fmt::Debug, time::Duration};

use api::{
    error::chain,
    kinds::{self, KindRow},
    status::bounded,
};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, StatefulSet},
        batch::v1::Job,
        core::v1::{
            ConfigMap, LimitRange, PersistentVolumeClaim, ResourceQuota, Secret, Service,
            ServiceAccount,
        },
        networking::v1::NetworkPolicy,
        node::v1::RuntimeClass,
        rbac::v1::RoleBinding,
        scheduling::v1::PriorityClass,
        storage::v1::CSIDriver,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, Error, Resource,
    api::{DynamicObject, ListParams},
    core::{ApiResource, NamespaceResourceScope},
};
use serde::de::DeserializeOwned;

use crate::world::{Known, LIST, ObjectRef, TEXT, Unreadable, World};

/// The result of a read.
pub(super) type Read<T> = Result<T, Unreadable>;

/// The first objects of a list, and whether there are more.
pub(super) type List<K> = Read<(Vec<K>, bool)>;

/// A kind that can be read.
pub(super) trait Kind:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug
{
}
impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug> Kind for K {}

/// A function that returns the resource of a built-in kind.
type Erase = fn(&()) -> ApiResource;

/// The built-in kinds of which only the metadata is read: name, resource, and whether they are
/// namespaced.
const BUILT_IN: &[(&str, Erase, bool)] = &[
    ("Job", ApiResource::erase::<Job>, true),
    ("ConfigMap", ApiResource::erase::<ConfigMap>, true),
    ("Secret", ApiResource::erase::<Secret>, true),
    (
        "PersistentVolumeClaim",
        ApiResource::erase::<PersistentVolumeClaim>,
        true,
    ),
    ("Service", ApiResource::erase::<Service>, true),
    ("ServiceAccount", ApiResource::erase::<ServiceAccount>, true),
    ("Deployment", ApiResource::erase::<Deployment>, true),
    ("StatefulSet", ApiResource::erase::<StatefulSet>, true),
    ("ResourceQuota", ApiResource::erase::<ResourceQuota>, true),
    ("LimitRange", ApiResource::erase::<LimitRange>, true),
    ("RoleBinding", ApiResource::erase::<RoleBinding>, true),
    ("NetworkPolicy", ApiResource::erase::<NetworkPolicy>, true),
    ("RuntimeClass", ApiResource::erase::<RuntimeClass>, false),
    ("PriorityClass", ApiResource::erase::<PriorityClass>, false),
    ("CSIDriver", ApiResource::erase::<CSIDriver>, false),
];

/// Returns the resource of a kind of ours.
fn resource(row: &KindRow) -> ApiResource {
    ApiResource {
        group: row.resource.group.to_owned(),
        version: row.resource.version.to_owned(),
        api_version: row.resource.api_version(),
        kind: row.name().to_owned(),
        plural: row.resource.plural.to_owned(),
    }
}

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

    pub(super) fn all<K: Kind>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// Returns a kind by its name, and its reference in the namespace or in the cluster. Our own
    /// kinds come from the table of kinds.
    pub(super) fn kind(&self, kind: &str, name: &str) -> Option<(Api<DynamicObject>, ObjectRef)> {
        let (resource, is_here) = match kinds::named(kind) {
            Some(row) => (resource(row), row.is_namespaced),
            None => {
                let mut built_in = BUILT_IN.iter();
                let (_, erase, is_here) = built_in.find(|(known, ..)| *known == kind)?;
                (erase(&()), *is_here)
            }
        };
        let client = self.client.clone();
        Some(match is_here {
            true => (
                Api::namespaced_with(client, &self.namespace, &resource),
                ObjectRef::namespaced(kind, &self.namespace, name),
            ),
            false => (
                Api::all_with(client, &resource),
                ObjectRef::cluster(kind, name),
            ),
        })
    }

    /// Reads one object. Returns `None` if it does not exist.
    pub(super) async fn get<K: Kind>(&self, api: Api<K>, name: &str) -> Read<Option<K>> {
        let what = format!("{} '{name}'", K::kind(&()));
        self.timed(&what, api.get_opt(name)).await
    }

    /// Reads only the metadata of an object, not its content. Returns `None` if it does not exist,
    /// or if its kind is not known here.
    pub(super) async fn metadata(&self, kind: &str, name: &str) -> Read<Option<ObjectMeta>> {
        let Some((api, _)) = self.kind(kind, name) else {
            return Ok(None);
        };
        let what = format!("{kind} '{name}'");
        let found = self.timed(&what, api.get_metadata_opt(name)).await?;
        Ok(found.map(|found| found.metadata))
    }

    /// Returns the first objects of a list, and whether there are more.
    pub(super) async fn list<K: Kind>(&self, api: Api<K>, params: ListParams) -> List<K> {
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
        let unreadable = |forbidden: bool, why: String| Unreadable {
            what: what.to_owned(),
            forbidden,
            why: bounded(&why, TEXT),
        };
        // A request is large, and many run at once. Without boxing, they would not fit on a
        // thread's stack.
        let request = Box::pin(request);
        match tokio::time::timeout(self.timeout, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(Error::Api(status))) => Err(unreadable(
                matches!(status.code, 401 | 403),
                status.message.clone(),
            )),
            Ok(Err(error)) => Err(unreadable(false, chain(&error))),
            Err(_elapsed) => {
                let why = format!("no answer within {} s", self.timeout.as_secs());
                Err(unreadable(false, why))
            }
        }
    }
}

impl World {
    /// Returns the result of a read, or records that it failed.
    pub(super) fn keep<T>(&mut self, read: Read<T>) -> Option<T> {
        match read {
            Ok(found) => Some(found),
            Err(what) => {
                if !self.unreadable.contains(&what) {
                    self.unreadable.push(what);
                }
                None
            }
        }
    }

    /// Returns an object that was found, or records that it does not exist.
    pub(super) fn keep_one<T>(&mut self, object: ObjectRef, read: Read<Option<T>>) -> Option<T> {
        let found = self.keep(read)?;
        if found.is_none() {
            self.know(object, false);
        }
        found
    }

    /// Converts the items of a list, and records if the list is incomplete.
    pub(super) fn keep_list<K, V>(&mut self, what: &str, read: List<K>) -> Option<Vec<V>>
    where
        for<'a> V: From<&'a K>,
    {
        let (items, more) = self.keep(read)?;
        if more {
            self.cut.push(what.to_owned());
        }
        Some(items.iter().map(V::from).collect())
    }

    /// Stores the quotas and the LimitRanges of the namespace.
    pub(super) fn keep_limits(&mut self, quotas: List<ResourceQuota>, ranges: List<LimitRange>) {
        self.quotas = self.keep_list("ResourceQuotas", quotas).unwrap_or_default();
        self.limit_ranges = self.keep_list("LimitRanges", ranges).unwrap_or_default();
    }

    /// Records whether an object exists.
    pub(super) fn know(&mut self, object: ObjectRef, exists: bool) {
        self.known.push(Known {
            object,
            exists,
            provisioner: None,
        });
    }
}

#[cfg(test)]
mod tests;
