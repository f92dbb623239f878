//! The kinds on the real API server: what it refuses, with which words, and that it keeps all
//! that we write.

mod arena;
mod attacks;
mod bounds;
mod examples;
mod fixtures;
mod hostile;
mod lists;
mod policies;
mod refused;
mod repository;
mod round_trip;
mod support;
mod tenants;
mod wrong;
