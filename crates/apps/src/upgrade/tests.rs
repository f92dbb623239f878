//! Decisions about UpgradeRequests, one by one and as whole runs on a simulated cluster.

mod cluster;
mod deletion;
mod failures;
mod fixtures;
mod objects;
mod plans;
mod recovery;
mod runs;
