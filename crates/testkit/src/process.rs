//! Running a program to its end: bounded in time, its output in a file, its failure readable.

use std::{
    fs::{self, File},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

/// How much of a log's end goes into an error.
const TAIL_LINES: usize = 15;

/// Runs `command` with both outputs appended to `log`; calls `every_second` with the time so far.
///
/// Guarantees: the program has its own process group and all of it is killed at `limit`.
///
/// # Errors
/// When it cannot start, fails, or takes longer than `limit`; the error ends with the log's tail.
pub fn run(
    command: &mut Command,
    log: &Path,
    limit: Duration,
    every_second: &mut dyn FnMut(Duration),
) -> Result<()> {
    let output = File::options()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("cannot write '{}'", log.display()))?;
    command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .process_group(0);
    let what = describe(command);
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start {what}"))?;
    let start = Instant::now();
    let mut told = 0;
    loop {
        if let Some(status) = child.try_wait()? {
            if status.success() {
                return Ok(());
            }
            bail!(
                "{what} {}; end of '{}':\n{}",
                ended(status),
                log.display(),
                tail(log)
            );
        }
        let elapsed = start.elapsed();
        if elapsed > limit {
            killpg(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGKILL)
                .with_context(|| format!("cannot stop {what}"))?;
            child.wait()?;
            bail!(
                "{what} took longer than {} s; end of '{}':\n{}",
                limit.as_secs(),
                log.display(),
                tail(log)
            );
        }
        if elapsed.as_secs() > told {
            told = elapsed.as_secs();
            every_second(elapsed);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// "exited with 3" or "was killed by signal 9".
pub fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

/// The last lines of a log, or why they cannot be read.
pub fn tail(log: &Path) -> String {
    match fs::read(log) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
        }
        Err(error) => format!("(unreadable: {error})"),
    }
}

fn describe(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args().take(6) {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    format!("'{text}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Result<()> {
        let folder = tempfile::tempdir().unwrap();
        run(
            Command::new("sh").arg("-c").arg(script),
            &folder.path().join("log"),
            limit,
            &mut |_| (),
        )
    }

    #[test]
    fn success_is_ok() {
        shell("exit 0", Duration::from_secs(10)).unwrap();
    }

    #[test]
    fn failure_names_the_code_and_the_last_lines() {
        let error = shell(
            "echo first; echo the cause >&2; exit 3",
            Duration::from_secs(10),
        )
        .unwrap_err()
        .to_string();
        assert!(
            error.contains("exited with 3") && error.contains("the cause"),
            "{error}"
        );
    }

    #[test]
    fn limit_kills_the_whole_group() {
        let start = Instant::now();
        let error = shell("sleep 60 & sleep 60", Duration::from_millis(200))
            .unwrap_err()
            .to_string();
        assert!(error.contains("took longer"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
