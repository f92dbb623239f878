//! Decisions about UpgradeRequests, one by one and as whole runs on a simulated cluster.

mod approval;
mod automatic;
mod checks;
mod cluster;
mod deletion;
mod delivery;
mod evidence;
mod failures;
pub(crate) mod fixtures;
mod images;
pub(crate) mod objects;
mod plans;
mod recovery;
mod runs;
mod unprotected;
mod upgraded;
