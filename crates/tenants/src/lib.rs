//! The tenants family: a [`Tenant`](api::tenants::Tenant) is a place of its own for one customer.
//!
//! [`build`] says what it is made of, [`decide`] what to do next. Both are pure; the feature
//! `controller` adds the watches.

pub mod build;
#[cfg(feature = "controller")]
pub mod controller;
pub mod decide;
pub mod drift;
pub mod view;
pub mod world;
