//! Tests of the built binary, without a cluster and on a real API server. There is no operator; the
//! tests write the statuses that it would write.

mod binary;
mod context;
mod docs;
mod installation;
mod logs;
mod reading;
mod submit;
mod support;
mod tenants;
mod wait;
