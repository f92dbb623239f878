//! Decisions about UpgradeRequests, one by one and as whole runs on a simulated cluster.

mod checks;
mod cluster;
mod deletion;
mod delivery;
mod evidence;
mod failures;
pub(crate) mod fixtures;
mod objects;
mod plans;
mod recovery;
mod runs;
mod upgraded;
