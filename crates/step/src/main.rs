//! The binary `step`. See the library.

use std::{env, io, process::ExitCode};

fn main() -> ExitCode {
    step::run(env::args_os().skip(1), env::vars_os(), &mut io::stdout())
}
