//! The apps operator: a [`ManagedApp`](api::apps::ManagedApp) is an application that Flux applies.
//!
//! [`discover`] finds the objects of an application in the inventories of Flux, [`health`] judges them, and
//! [`decide`] reports the result. [`upgrade`] decides about UpgradeRequests, and [`rollback`] about RollbackRequests.
//! [`operations`] adds both to the report, and the module `deletion` decides about a deleted ManagedApp. All of them are pure. The feature `controller` adds the watches.

#[cfg(feature = "controller")]
pub mod controller;
pub mod decide;
mod deletion;
pub mod discover;
pub mod flux;
pub mod health;
pub mod inventory;
pub mod object;
pub mod operations;
pub mod origin;
pub mod overlap;
pub mod pod;
pub mod release;
pub mod rollback;
pub mod upgrade;
pub mod versions;
pub mod volumes;
pub mod workload;
pub mod world;
