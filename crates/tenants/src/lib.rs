//! The tenants operator: a [`Tenant`](api::tenants::Tenant) is a namespace for one customer in a shared
//! cluster.
//!
//! [`build`] creates the manifests of a Tenant, and [`decide`] chooses the next effects. Both are pure. The
//! feature `controller` adds the watches.

pub mod build;
#[cfg(feature = "controller")]
pub mod controller;
pub mod decide;
pub mod drift;
pub mod view;
pub mod world;
