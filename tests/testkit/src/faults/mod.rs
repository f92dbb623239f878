//! Faults between an operator and its API server, and the oracles that judge what came of them.
//!
//! Each operator has scenarios; everything else is here: the proxy that injects, the object history that
//! sees (by watches of its own, never through the proxy), the plans, and the judges.

pub mod campaign;
pub mod canonical;
pub mod classify;
pub mod object_history;
pub mod operator_set;
pub mod oracles;
pub mod plan;
pub mod point;
pub mod proxy;
pub mod scenario_run;
pub mod side_effect_log;
pub mod silent;
pub mod specs;
