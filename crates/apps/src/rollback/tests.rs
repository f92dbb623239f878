//! Restores and swaps on a simulated cluster, also with a fault at each write, and decisions about requests.

mod automatic;
mod requests;
mod storage;
mod volumes;
