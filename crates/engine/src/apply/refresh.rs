//! Objects that the cache has in an old version, or has although they were deleted: they are read again.

use api::decide::{ErrorClass, ReconcileError, Target};
use http::Method;
use serde_json::Value;

use super::{Applier, Failed, ResourcePath, is};

impl Applier {
    /// Reads the current state of an object into the cache, because the watch is behind. Returns its
    /// version, or `None` if the object does not exist.
    pub(crate) async fn refresh(
        &self,
        path: ResourcePath<'_>,
        uid: &str,
    ) -> Result<Option<String>, ReconcileError> {
        match self.send(Method::GET, path.object(), None).await {
            Ok(object) => {
                let version = object.pointer("/metadata/resourceVersion");
                let version = version.and_then(Value::as_str).map(str::to_owned);
                self.keep(path, object);
                Ok(version)
            }
            Err(Failed::Api(error)) if is(&error, 404) => {
                self.forget(path, uid);
                Ok(None)
            }
            Err(failed) => Err(failed.fault("get", path)),
        }
    }

    /// Merge-patches the target of an effect.
    pub(crate) async fn patch_target(
        &self,
        target: &Target,
        subresource: Option<&'static str>,
        patch: Value,
    ) -> Result<(), ReconcileError> {
        let object = ResourcePath::from(target);
        let path = ResourcePath {
            subresource,
            ..object
        };
        let version = target.version.as_deref();
        match self.patch(path, &target.uid, version, patch).await {
            Ok(_patched) => Ok(()),
            Err(fault) => Err(self.after_conflict(object, &target.uid, fault).await),
        }
    }

    /// Reads the target of an effect into the cache if the effect met a conflict. Returns the fault of the effect, or
    /// that of the read.
    ///
    /// After conflicts, the worker reads only the object that is reconciled. Without this read, each retry would be
    /// decided from the same old target, and would meet the same conflict.
    pub(super) async fn after_conflict(
        &self,
        path: ResourcePath<'_>,
        uid: &str,
        fault: ReconcileError,
    ) -> ReconcileError {
        if fault.class != ErrorClass::Conflict {
            return fault;
        }
        let found = match self.send(Method::GET, path.object(), None).await {
            Ok(found) => Some(found),
            Err(Failed::Api(error)) if is(&error, 404) => None,
            Err(failed) => return failed.fault("get", path),
        };
        let is_same =
            |found: &Value| found.pointer("/metadata/uid").and_then(Value::as_str) == Some(uid);
        match found.filter(is_same) {
            // It may have left the selector of the watch. Then the deletion event of the watch removes it, or the next
            // list if that event arrived before.
            Some(found) => self.keep(path, found),
            // Another object of this name may not match the selector of the watch. So only the watch may add it.
            None => self.forget(path, uid),
        }
        fault
    }

    /// Returns the UID of the object that the cache has under this path.
    pub(super) fn cached_uid(&self, path: ResourcePath<'_>) -> Option<String> {
        let cache = self
            .caches
            .writer(path.resource.group, path.resource.plural)?;
        cache.uid(&path.key()).map(|(_, uid)| uid)
    }
}
