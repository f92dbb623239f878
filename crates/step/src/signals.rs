//! Ending when told to. As the first process of a container the default would be to go on: the
//! kernel drops signals that such a process has no handler for.

use std::thread;

use nix::{
    errno::Errno,
    sys::signal::{SigSet, Signal},
};

/// What a shell says for a program that SIGTERM ended.
const TERMINATED: i32 = 128 + 15;

/// Ends the process at SIGTERM, from now on. Must be called before any thread is started.
///
/// # Errors
/// When the system does not let signals be held.
pub(crate) fn end_on_terminate() -> Result<(), Errno> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    // Children start with no signal held: the standard library sees to it.
    set.thread_block()?;
    thread::spawn(move || {
        if set.wait().is_ok() {
            #[expect(
                clippy::disallowed_methods,
                reason = "no destructor matters: the container ends, and its private folder with it"
            )]
            std::process::exit(TERMINATED);
        }
    });
    Ok(())
}
