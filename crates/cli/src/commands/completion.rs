//! `completion`

use clap_complete::{Shell, generate};

use crate::{Exit, arguments::Completion, command, failure::Failure, session::Session};

pub(crate) fn run(verb: Completion, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    let mut command = command(session.environment);
    generate(Shell::from(verb.shell), &mut command, "orc", &mut script);
    session.out.write_all(&script)?;
    Ok(Exit::Ok)
}
