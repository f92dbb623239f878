//! What a family implements, and what it gets.

use std::{fmt::Debug, future::Future, sync::Arc};

use api::{
    Timestamp,
    decide::{Decision, Fault, Input, ResourceType},
};
use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};

/// A kind that the engine runs.
///
/// A family implements observing and deciding; the engine does the rest: watching, queueing,
/// acting, recording, retrying, finalizers, Events, metrics.
pub trait Kind: Send + Sync + Sized + 'static {
    /// The object.
    type Object: Resource<DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static;
    /// Its status.
    type Status: api::Status;
    /// Everything that a decision depends on, besides the object and the time.
    type World: Send + Sync;
    /// Effects beyond Kubernetes; [`api::decide::NoExternal`] if there are none.
    type External: Debug + Clone + PartialEq + Send + Sync;

    /// Its type.
    const RESOURCE: ResourceType;

    /// The finalizer, put on before the first effect and removed when a decision releases the
    /// object. A kind whose decisions have no effects never gets it.
    const FINALIZER: &'static str;

    /// The status of an object, if it has one.
    fn status(object: &Self::Object) -> Option<&Self::Status>;

    /// Gathers the world, from caches.
    ///
    /// # Caveats
    /// It may touch the network only where no cache can answer, with deadlines of its own: the
    /// whole pass has 60 s.
    fn observe(
        &self,
        object: &Arc<Self::Object>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Self::World, Fault>> + Send;

    /// Decides. Pure: the same input gives the same decision. It must not panic; if it does, the
    /// engine catches it, and only this object is hurt.
    fn decide(
        input: &Input<'_, Self::Object, Self::World>,
    ) -> Decision<Self::Status, Self::External>;

    /// Performs an effect beyond Kubernetes. It must be idempotent: after a lost answer it is
    /// asked again, and must find what it did.
    fn perform(
        &self,
        object: &Self::Object,
        effect: &Self::External,
    ) -> impl Future<Output = Result<(), Fault>> + Send;
}
