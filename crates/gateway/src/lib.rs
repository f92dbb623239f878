//! The REST API: submit, extend, control and follow runs over HTTP.
//!
//! A request becomes an action, the crates `actions` and `why` perform it, and its result becomes a
//! response. Everything but `perform` and `server` is pure.
//!
//! # Guarantees
//! - Every request to the API server has the caller's own token, so the API server authenticates,
//!   authorizes and audits the caller. The gateway has no credentials, and forwards no header.
//! - Every body, list, wait and cache is bounded.
//!
//! # Caveats
//! Only objects in the cluster are read.

mod app;
mod authors;
mod bodies;
mod body_memory;
mod diff;
mod json;
mod limits;
mod logs;
mod observer;
mod openapi;
mod perform;
mod problem;
mod request;
mod results;
mod routes;
mod server;
mod session;
mod stall;
mod streams;
mod table;
mod tls;
mod token;

pub use app::Settings;
pub use observer::{NoObserver, Observer};
pub use openapi::document;
pub use problem::{Problem, Reason};
pub use server::serve;
pub use session::{SessionError, Sessions};
pub use tls::{Tls, TlsError};
