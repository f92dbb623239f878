//! The binary `orchestrator`.

use std::process::ExitCode;

fn main() -> ExitCode {
    operator::main()
}
