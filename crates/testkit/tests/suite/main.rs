//! The parts that tests rely on: the cluster, the Git server, the fault proxy, the witness.

mod cluster;
mod git;
mod proxy;
mod witness;
