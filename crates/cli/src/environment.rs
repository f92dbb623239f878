//! The environment of the process. Tests pass their own.

use std::{
    ffi::OsString,
    io::{IsTerminal, Read, stderr, stdin, stdout},
    path::{Path, PathBuf},
};

use api::Timestamp;

/// The environment of the process.
#[derive(Debug, Clone)]
pub struct Environment {
    /// The command that users type: `orc` or `kubectl orc`.
    pub program: &'static str,
    /// The variable `KUBECONFIG`.
    pub kubeconfig: Option<OsString>,
    /// The user's home directory.
    pub home: Option<PathBuf>,
    /// Whether the process runs in a Pod. Then it uses its ServiceAccount if there is no
    /// kubeconfig.
    pub is_in_pod: bool,
    /// Whether the variable `NO_COLOR` forbids colors.
    pub no_color: bool,
    /// Whether the standard output is a terminal.
    pub is_terminal: bool,
    /// Whether the standard error is a terminal.
    pub is_error_terminal: bool,
    /// Returns the current number of columns and lines of the terminal.
    pub size: fn() -> Option<(usize, usize)>,
    /// Returns the current time.
    pub now: fn() -> Timestamp,
    /// Opens the input that `-` stands for.
    pub input: fn() -> Box<dyn Read>,
}

impl Environment {
    /// Reads the environment of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            program: program(std::env::args_os().next().as_deref().map(Path::new)),
            kubeconfig: variable("KUBECONFIG"),
            home: variable("HOME").map(PathBuf::from),
            is_in_pod: variable("KUBERNETES_SERVICE_HOST").is_some(),
            no_color: variable("NO_COLOR").is_some(),
            is_terminal: stdout().is_terminal(),
            is_error_terminal: stderr().is_terminal(),
            size: || {
                terminal_size::terminal_size()
                    .map(|(width, height)| (usize::from(width.0), usize::from(height.0)))
            },
            now: clock,
            input: || Box::new(stdin()),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the clock of this crate")]
fn clock() -> Timestamp {
    Timestamp::now()
}

/// Returns the command that users type. kubectl finds a plugin by the name of its file.
fn program(path: Option<&Path>) -> &'static str {
    let name = path.and_then(Path::file_name);
    if name.is_some_and(|name| name.to_string_lossy().starts_with("kubectl-")) {
        "kubectl orc"
    } else {
        "orc"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_name_says_how_it_is_called() {
        let cases = [
            (Some("/usr/bin/orc"), "orc"),
            (Some("kubectl-orc"), "kubectl orc"),
            (Some("/a/kubectl-orc"), "kubectl orc"),
            (Some("/kubectl-x/orc"), "orc"),
            (None, "orc"),
        ];
        for (path, wanted) in cases {
            assert_eq!(program(path.map(Path::new)), wanted);
        }
    }
}
