//! The kinds on a real API server: which objects it rejects, with which message, and that it stores
//! everything that we write.

mod apps;
mod arena;
mod asks;
mod attacks;
mod bounds;
mod children;
mod examples;
mod fixtures;
mod hostile;
mod lists;
mod policies;
mod refused;
mod repository;
mod round_trip;
mod seed;
mod stolen;
mod support;
mod tenant_attacks;
mod tenant_operator;
mod tenants;
mod wrong;
