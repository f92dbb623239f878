//! Progress output of a step, for people.

use std::io::{self, Write};

/// Writes one line per operation, prefixed with the run's name.
pub(crate) struct ProgressLog<'a> {
    out: &'a mut dyn Write,
    run: String,
}

impl<'a> ProgressLog<'a> {
    pub(crate) fn new(out: &'a mut dyn Write, run: &str) -> ProgressLog<'a> {
        ProgressLog {
            out,
            run: run.to_owned(),
        }
    }

    /// Writes a line. A failed write does not stop the step, because nothing depends on the output.
    pub(crate) fn line(&mut self, text: &str) {
        match writeln!(self.out, "{}: {text}", self.run) {
            Ok(()) | Err(_) => {}
        }
    }

    /// Writes lines without the name of the run, for programs.
    ///
    /// # Errors
    /// When the write fails.
    pub(crate) fn frame(&mut self, lines: &str) -> io::Result<()> {
        self.out.write_all(lines.as_bytes())?;
        self.out.flush()
    }
}
