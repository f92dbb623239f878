//! Terminates the process on SIGTERM.
//!
//! The kernel drops signals that the first process of a container has no handler for. Without a handler,
//! the step would keep running.

use std::thread;

use nix::{
    errno::Errno,
    sys::signal::{SigSet, Signal},
};

/// Exit code that shells use for a program that SIGTERM terminated.
const TERMINATED: i32 = 128 + 15;

/// Exits the process on SIGTERM, from now on. Must be called before any thread starts.
///
/// # Errors
/// When the system does not allow blocking the signal.
pub(crate) fn end_on_terminate() -> Result<(), Errno> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    // The standard library starts child processes with no signal blocked.
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
