//! Restores and swaps on a simulated cluster, also with a fault at each write.

mod automatic;
mod storage;
mod volumes;
