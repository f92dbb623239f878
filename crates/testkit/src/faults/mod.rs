//! Faults between an operator and its API server, and the oracles that judge what came of them.
//!
//! Each operator has scenarios; everything else is here: the proxy that injects, the witness that
//! sees (by watches of its own, never through the proxy), the plans, and the judges.

pub mod campaign;
pub mod canonical;
pub mod classify;
pub mod crew;
pub mod ledger;
pub mod oracles;
pub mod plan;
pub mod play;
pub mod point;
pub mod proxy;
pub mod silent;
pub mod specs;
pub mod witness;
