//! The step's lines for people.

use std::io::Write;

/// One line per step of work, with the run's name.
pub(crate) struct Say<'a> {
    out: &'a mut dyn Write,
    run: String,
}

impl<'a> Say<'a> {
    pub(crate) fn new(out: &'a mut dyn Write, run: &str) -> Say<'a> {
        Say {
            out,
            run: run.to_owned(),
        }
    }

    /// Writes a line. Nobody needs it: that it cannot be written does not stop the step.
    pub(crate) fn line(&mut self, text: &str) {
        match writeln!(self.out, "{}: {text}", self.run) {
            Ok(()) | Err(_) => {}
        }
    }
}
