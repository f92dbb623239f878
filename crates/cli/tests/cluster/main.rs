//! The real binary on a real API server. There is no operator: what it would record, the tests
//! record themselves.

mod context;
mod docs;
mod logs;
mod reading;
mod submit;
mod support;
mod tenants;
mod wait;
