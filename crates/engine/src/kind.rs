//! The trait that an operator implements for each of its kinds.

use std::{collections::BTreeMap, fmt::Debug, future::Future, sync::Arc};

use api::{
    Timestamp,
    decide::{Decision, Input, ReconcileError, ResourceType},
};
use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};

use crate::metrics::Metrics;

/// The spec from which the limits in the phase table of a kind are computed.
pub type PhaseSpec<K> = <<<K as Kind>::Status as api::Status>::Phase as api::Phase>::Spec;

/// A kind that the engine reconciles.
///
/// An operator implements how to observe and how to decide. The engine does the rest: watching,
/// queueing, carrying out effects, writing the status, retries, finalizers, Events and metrics.
pub trait Kind: Send + Sync + Sized + 'static {
    /// The type of the objects.
    type Object: Resource<DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static;
    /// The type of the status.
    type Status: api::Status;
    /// The observed state: everything that a decision depends on, besides the object and the time.
    type World: Send + Sync;

    /// The resource type of the objects.
    const RESOURCE: ResourceType;

    /// The finalizer. The engine adds it before the first effect, and removes it when a
    /// decision releases the object. If the decisions of a kind have no effects, its objects
    /// never get the finalizer.
    const FINALIZER: &'static str;

    /// Annotations of users that the decisions read, in addition to those of all kinds. A change of one
    /// triggers an immediate reconciliation.
    const ANNOTATIONS: &'static [&'static str] = &[];

    /// Returns the labels that every object of the kind carries, derived from fields that cannot
    /// change. The engine sets them together with the finalizer, or else before the first status write
    /// with another reason than `Progressing`.
    fn labels(_object: &Self::Object) -> BTreeMap<&'static str, String> {
        BTreeMap::new()
    }

    /// Returns the status of an object, if it has one.
    fn status(object: &Self::Object) -> Option<&Self::Status>;

    /// Returns the spec from which the limits of the phase table are computed.
    fn phase_spec(object: &Self::Object) -> &PhaseSpec<Self>;

    /// Returns the progress of the current phase: a text that changes with each step, such as the
    /// number of bytes. Only for phases whose deadline depends on progress. `None` if no progress
    /// can be observed.
    fn phase_progress(_world: &Self::World) -> Option<String> {
        None
    }

    /// Counts the end of an object in metrics that only this kind has. It is called once, when the status with the end
    /// was written.
    fn count_end(_metrics: &Metrics, _status: &Self::Status) {}

    /// Collects the observed state from caches, and from the replies to requests outside of them
    /// ([`crate::external::Requests::ask`]).
    ///
    /// # Caveats
    /// Requests to the API server are allowed only where no cache has the data, each with its own deadline. The
    /// whole reconciliation has 60 s. It must not wait for any other server.
    fn observe(
        &self,
        object: &Arc<Self::Object>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Self::World, ReconcileError>> + Send;

    /// Returns the decision for an object. The function is pure: the same input gives the same
    /// decision. It must not panic. If it does, the engine catches the panic, and only this
    /// object is affected.
    fn decide(input: &Input<'_, Self::Object, Self::World>) -> Decision<Self::Status>;
}
