//! What a case gets.

use std::{fmt::Debug, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{Namespace, ServiceAccount},
};
use kube::{Api, Client, Config, Resource, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{CannotRun, Place};
use crate::{cluster::Cluster, wait::until};

/// What a case gets.
#[derive(Clone)]
pub struct Env {
    /// With the administrator's rights.
    pub client: Client,
    /// To make other clients from.
    pub config: Config,
    /// Fresh, its default ServiceAccount made.
    pub namespace: String,
    place: Place,
}

/// Creates an object from its JSON.
///
/// # Errors
/// When it is not of this type, or the API server rejects it.
pub async fn create<K>(objects: &Api<K>, object: Value) -> Result<K>
where
    K: Clone + Debug + Serialize + DeserializeOwned,
{
    let object: K = serde_json::from_value(object)?;
    Ok(objects.create(&PostParams::default(), &object).await?)
}

/// A fresh namespace whose name begins so, when its default ServiceAccount is made.
pub(crate) async fn namespace(client: &Client, prefix: &str) -> Result<String> {
    new_namespace(client, json!({ "generateName": prefix })).await
}

/// A new namespace with this metadata, when its default ServiceAccount is made.
///
/// # Errors
/// When it cannot be created, or has no ServiceAccount for long.
pub async fn new_namespace(client: &Client, metadata: Value) -> Result<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let made = create(&namespaces, json!({ "metadata": metadata }))
        .await
        .context("cannot create a namespace")?;
    let namespace = made.metadata.name.context("a namespace without a name")?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &namespace);
    until(
        "the namespace's ServiceAccount",
        Duration::from_secs(30),
        async || {
            let found = accounts.get_opt("default").await?;
            Ok(found.map(drop).ok_or_else(|| "not there".to_owned()))
        },
    )
    .await?;
    Ok(namespace)
}

impl Env {
    pub(super) async fn new(place: Place, case: &str) -> Result<Self> {
        let config = place.config().await?;
        let client = Client::try_from(config.clone())?;
        let namespace = namespace(&client, &format!("t-{case}-")).await?;
        Ok(Self {
            client,
            config,
            namespace,
            place,
        })
    }

    /// A namespaced API in this case's namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates an object in this case's namespace.
    ///
    /// # Errors
    /// When it is not of this type, or the API server rejects it.
    pub async fn create<K>(&self, object: Value) -> Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned,
        K::DynamicType: Default,
    {
        create(&self.api(), object).await
    }

    /// The cluster as one of ours: to stop a part of it, or to read its audit log.
    ///
    /// # Errors
    /// [`CannotRun`] on a contributor's own cluster.
    pub fn testbed(&self, what_for: &str) -> Result<&Cluster> {
        match &self.place {
            Place::Testbed(cluster) => Ok(cluster),
            Place::External(_) => {
                Err(CannotRun(format!("{what_for} needs a cluster of the testbed")).into())
            }
        }
    }
}
