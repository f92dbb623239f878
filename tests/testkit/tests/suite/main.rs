//! The parts that tests rely on: the cluster, the Git server, the fault proxy, the object history.

mod cluster;
mod git;
mod object_history;
mod proxy;
