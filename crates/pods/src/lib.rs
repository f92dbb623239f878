//! One view of Pods, Jobs, rollouts and endpoints, and one table of the causes that block them.
//!
//! The operators and `orc why` read Pods through this crate, so they report the same cause for the same Pod. A kind adds
//! only its own text, and the choice of the container that counts. This crate makes no requests and reads no clock.
//!
//! # Guarantees
//! - A container is found by its name, because other components may inject containers into a Pod.
//! - Texts of other components are bounded. A message of a cause has no part that changes with each retry, so a repeated
//!   decision writes nothing.

mod cause;
mod container;
mod detail;
mod endpoints;
mod job;
mod kubelet;
mod pod;
mod rollout;

pub use cause::{
    Cause, MOUNT_WARNINGS, Rejection, StartFailure, after_colon, unscheduled_reason, warning_reason,
};
pub use container::{ContainerState, ContainerView, Exit, OUT_OF_MEMORY, Reported, message_limit};
pub use detail::{PullFailure, Unfit, UnfitNodes, missing_object, unfit_nodes, unresolved_host};
pub use endpoints::EndpointsView;
pub use job::{JobEnd, JobView};
pub use kubelet::is_permission;
pub use pod::{PodPhase, PodView, controller_uid, stop_asked};
pub use rollout::{Rollout, replica_failure};
