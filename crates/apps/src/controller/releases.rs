//! Reads release Secrets of Helm, one by one, and remembers the names of the objects in them.
//!
//! # Guarantees
//! No content of a Secret is kept: [`crate::release::content`] returns only kinds, names and whether there are hooks. A
//! Secret is read once for each release, and then every 30 minutes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use api::{
    Reason, Timestamp,
    apps::NamespacedName,
    decide::{ErrorClass, ReconcileError},
    time,
};
use engine::fault::{Request, from_kube};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, Error};

use crate::{
    discover::ReleaseRead,
    flux::{HelmReleaseView, ReleaseEntry},
    release::{self, DATA_KEY},
};

/// Timeout of one request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Time after which a release is read again, because someone may have changed it by hand.
const RECHECK: Duration = Duration::from_secs(30 * 60);

/// Time after which a release that could not be read is read again.
const RETRY: Duration = Duration::from_secs(30);

/// Type of the Secrets in which Helm stores releases.
const SECRET_TYPE: &str = "helm.sh/release.v1";

/// The releases that were read. Clones share them.
#[derive(Clone)]
pub(super) struct Releases {
    client: Client,
    is_enabled: bool,
    /// Held while a release is decoded. Many hostile releases at once would fill the memory, each up to its limit.
    decoding: Arc<tokio::sync::Mutex<()>>,
    known: Arc<Mutex<BTreeMap<NamespacedName, Known>>>,
}

/// The result of a request.
enum Fetched {
    Content(release::Content),
    /// The reason why there is no content.
    Failed(ReleaseRead),
}

/// The last result for a HelmRelease.
struct Known {
    storage: Option<String>,
    entry: ReleaseEntry,
    read: ReleaseRead,
    /// Whether the chart has hooks before an upgrade, or `None` if the release was not read.
    has_upgrade_hooks: Option<bool>,
    at: Timestamp,
}

impl Known {
    fn is_of(&self, helm: &HelmReleaseView) -> bool {
        self.storage == helm.storage_namespace && Some(&self.entry) == helm.newest.as_ref()
    }

    fn is_fresh(&self, now: Timestamp) -> bool {
        let limit = match self.read {
            ReleaseRead::Objects(_) => RECHECK,
            ReleaseRead::Disabled | ReleaseRead::Unreadable(_) | ReleaseRead::Newer(_) => RETRY,
        };
        self.at <= now && now < time::after(self.at, limit)
    }
}

impl Releases {
    pub(super) fn new(client: Client, is_enabled: bool) -> Self {
        Self {
            client,
            is_enabled,
            decoding: Arc::default(),
            known: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<NamespacedName, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the result for a HelmRelease that was deleted.
    pub(super) fn forget(&self, name: &NamespacedName) {
        self.lock().remove(name);
    }

    /// Returns the last result for the newest release, without a request.
    pub(super) fn known(&self, helm: &HelmReleaseView) -> ReleaseRead {
        let known = self.lock();
        let known = known.get(&helm.flux.name).filter(|known| known.is_of(helm));
        known.map_or(ReleaseRead::Disabled, |known| known.read.clone())
    }

    /// Returns whether the chart of the newest release has hooks before an upgrade, without a request. `None` if the
    /// release is not known.
    pub(super) fn has_upgrade_hooks(&self, helm: &HelmReleaseView) -> Option<bool> {
        let known = self.lock();
        let known = known.get(&helm.flux.name).filter(|known| known.is_of(helm));
        known.and_then(|known| known.has_upgrade_hooks)
    }

    /// Returns the objects of the newest release.
    ///
    /// # Errors
    /// If the API server does not respond. A missing permission is a result.
    pub(super) async fn read(
        &self,
        helm: &HelmReleaseView,
        now: Timestamp,
    ) -> Result<ReleaseRead, ReconcileError> {
        let Some(entry) = helm.newest.as_ref().filter(|_| self.is_enabled) else {
            return Ok(ReleaseRead::Disabled);
        };
        {
            let known = self.lock();
            let known = known.get(&helm.flux.name).filter(|known| known.is_of(helm));
            if let Some(known) = known.filter(|known| known.is_fresh(now)) {
                return Ok(known.read.clone());
            }
        }
        let storage = helm.storage_namespace.clone();
        let fetched = match &storage {
            Some(namespace) => self.fetch(namespace, entry).await?,
            None => Fetched::Failed(ReleaseRead::Unreadable(
                "its status has no 'storageNamespace'".to_owned(),
            )),
        };
        let (read, has_upgrade_hooks) = match fetched {
            Fetched::Content(content) => (
                ReleaseRead::Objects(Arc::new(content.objects)),
                Some(content.has_upgrade_hooks),
            ),
            Fetched::Failed(read) => (read, None),
        };
        let known = Known {
            storage,
            entry: entry.clone(),
            read: read.clone(),
            has_upgrade_hooks,
            at: now,
        };
        self.lock().insert(helm.flux.name.clone(), known);
        Ok(read)
    }

    async fn fetch(
        &self,
        namespace: &str,
        entry: &ReleaseEntry,
    ) -> Result<Fetched, ReconcileError> {
        let unreadable = |why: String| Fetched::Failed(ReleaseRead::Unreadable(why));
        if let Err(why) = release::check_location(namespace, &entry.name, entry.version) {
            return Ok(unreadable(why));
        }
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let name = release::secret_name(&entry.name, entry.version);
        let found = request(&name, secrets.get_opt(&name)).await?;
        let secret = match found {
            Ok(Some(secret)) => secret,
            Ok(None) => {
                let why = format!("Secret '{namespace}/{name}' does not exist");
                return Ok(unreadable(why));
            }
            Err(why) => return Ok(unreadable(why)),
        };
        let newer = entry.version.saturating_add(1);
        let next = release::secret_name(&entry.name, newer);
        match request(&next, secrets.get_metadata_opt(&next)).await? {
            Ok(None) => {}
            Ok(Some(_)) => return Ok(Fetched::Failed(ReleaseRead::Newer(newer))),
            Err(why) => return Ok(unreadable(why)),
        }
        let unusable = |why: String| unreadable(format!("Secret '{namespace}/{name}': {why}"));
        if secret.type_.as_deref() != Some(SECRET_TYPE) {
            return Ok(unusable(format!("its type is not '{SECRET_TYPE}'")));
        }
        let data = secret.data.unwrap_or_default();
        let Some(stored) = data.get(DATA_KEY) else {
            return Ok(unusable(format!("it has no key '{DATA_KEY}'")));
        };
        let turn = self.decoding.lock().await;
        let decoded = release::content(&stored.0, entry);
        drop(turn);
        Ok(match decoded {
            Ok(content) => Fetched::Content(content),
            Err(why) => unusable(why),
        })
    }
}

/// Sends a request for a Secret. The inner error is a missing permission, for a message.
async fn request<T>(
    name: &str,
    sent: impl Future<Output = Result<T, Error>>,
) -> Result<Result<T, String>, ReconcileError> {
    let request = Request {
        verb: "get",
        resource: "secrets",
        name,
    };
    let answer = tokio::time::timeout(TIMEOUT, sent)
        .await
        .map_err(|_elapsed| {
            let message = format!("no answer to {request} within 10 s");
            ReconcileError::new(ErrorClass::Transient, Reason::ApiUnavailable, message)
        })?;
    match answer {
        Ok(found) => Ok(Ok(found)),
        Err(Error::Api(status)) if matches!(status.code, 401 | 403) => Ok(Err(format!(
            "the operator lacks the permission for {request}"
        ))),
        Err(error) => Err(from_kube(request, &error)),
    }
}
