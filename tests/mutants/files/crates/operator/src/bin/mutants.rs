//! The operator of `cargo xtask mutants`. `$ORCHESTRATOR_MUTANT` names the bug that it has.
//!
//! It is a separate program: building the feature into `orchestrator` would replace the binary that tests
//! and images take from the target directory.

use std::process::ExitCode;

fn main() -> ExitCode {
    operator::main()
}
