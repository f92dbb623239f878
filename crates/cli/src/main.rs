//! The binary `orc`.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
