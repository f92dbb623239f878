//! Tests of the built binary, without a cluster and on a real API server.

mod apps;
mod binary;
mod mutants;
mod process;
mod regressions;
