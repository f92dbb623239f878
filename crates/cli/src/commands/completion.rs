//! `completion`

use crate::{
    Exit,
    arguments::{Completion, KnownShell},
    failure::Failure,
    session::Session,
};

/// Prints the script for a shell. The scripts ask this program at each press of Tab, so they do not
/// change with its commands.
pub(crate) fn run(verb: &Completion, session: &mut Session<'_>) -> Result<Exit, Failure> {
    session.print(match verb.shell {
        KnownShell::Bash => include_str!("completion/orc.bash"),
        KnownShell::Zsh => include_str!("completion/orc.zsh"),
        KnownShell::Fish => include_str!("completion/orc.fish"),
    })?;
    Ok(Exit::Ok)
}
