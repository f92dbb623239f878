//! Restores and swaps on a simulated cluster, whole rollbacks, also with a fault at each write, and decisions about
//! requests.

mod after_upgrade;
mod automatic;
mod cluster;
mod delivery;
mod images;
mod plans;
mod requests;
mod runs;
mod storage;
mod volumes;
