//! Running a program to its end: bounded in time, its output in a file, its failure readable.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    iter,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
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
const TAIL_LINES: usize = 20;
const TAIL_BYTES: u64 = 4000;
/// How much of a command goes into an error.
const SHOWN_CHARACTERS: usize = 240;

/// The kernel's unit of times in `/proc`, for all programs: 1/100 s.
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the time since this process was started. A process that became this program counts, too.
///
/// # Errors
/// When `/proc` cannot be read or has another form.
pub fn age() -> Result<Duration> {
    let uptime = fs::read_to_string("/proc/uptime")?;
    parse_age(&fs::read_to_string("/proc/self/stat")?, &uptime)
}

fn parse_age(stat: &str, uptime: &str) -> Result<Duration> {
    // The name of the program, in parentheses, may contain anything. 20 fields after it is the start.
    let (_, fields) = stat.rsplit_once(')').context("'/proc/self/stat'")?;
    let start = fields.split_whitespace().nth(19).context("no start time")?;
    let start: f64 = start.parse().context("the start time")?;
    let now = uptime.split_whitespace().next().context("'/proc/uptime'")?;
    let now: f64 = now.parse().context("the uptime")?;
    Ok(Duration::from_secs_f64(
        (now - start / TICKS_PER_SECOND).max(0.0),
    ))
}

/// Runs `command` with both outputs appended to `log`; calls `every_second` with the time so far.
///
/// Guarantees: the program has its own process group and all of it is killed at `limit`. When the
/// thread that called this is gone, by whatever signal, the kernel kills the program.
///
/// Caveats: what the program started is not killed with this process, unless the program sees to
/// it; nor is the program itself in its first millisecond. Of `command` count program, arguments,
/// folder, and variables that were set or removed; `env_clear` cannot be seen and has no effect.
///
/// # Errors
/// When it cannot start, fails, or takes longer than `limit`; the error names the command and ends
/// with the log's tail.
pub fn run(
    command: &Command,
    log: &Path,
    limit: Duration,
    every_second: &mut dyn FnMut(Duration),
) -> Result<()> {
    let output = File::options()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("cannot write '{}'", log.display()))?;
    let what = describe(command);
    let mut child = tied(command)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start setpriv (of util-linux) for {what}"))?;
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
                "{what} took longer than {} s and was killed; end of '{}':\n{}",
                limit.as_secs_f32(),
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

/// The same command, by way of a program that sets the signal of its parent's death. Rust can set
/// it only in unsafe code.
fn tied(command: &Command) -> Command {
    let mut tied = Command::new("setpriv");
    tied.args(["--pdeathsig", "KILL", "--"])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => tied.env(name, value),
            None => tied.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        tied.current_dir(folder);
    }
    tied
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
    match last_bytes(log) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
        }
        Err(error) => format!("(unreadable: {error})"),
    }
}

fn last_bytes(log: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(log)?;
    let start = file.metadata()?.len().saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The command on one line: without scripts, and cut, because linker flags fill a page.
fn describe(command: &Command) -> String {
    let words: Vec<_> = iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .filter(|word| !word.contains('\n'))
        .collect();
    let text = words.join(" ");
    match text.char_indices().nth(SHOWN_CHARACTERS) {
        Some((end, _)) => format!("'{} …'", &text[..end]),
        None => format!("'{text}'"),
    }
}

/// Path of the program that runs. Cargo may have built it anew meanwhile: then the kernel says that
/// the file is deleted, and the new one is in its place.
///
/// # Errors
/// When the system does not tell it.
pub fn this_program() -> Result<PathBuf> {
    let path = std::env::current_exe().context("this program does not know its path")?;
    let text = path.to_string_lossy();
    Ok(match text.strip_suffix(" (deleted)") {
        Some(before) => before.into(),
        None => path.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_a_process_counts_from_its_start() {
        let stat = "7 (a (odd) name) S 1 7 7 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 12345 99 0";
        let found = parse_age(stat, "130.45 7.0\n").unwrap();
        assert_eq!(found.as_millis(), 7000);
        assert_eq!(parse_age(stat, "1.0 0").unwrap(), Duration::ZERO);
        for (stat, uptime) in [("", "1 1"), ("7 (a) S 1", "1 1"), (stat, "")] {
            assert!(parse_age(stat, uptime).is_err(), "'{stat}' '{uptime}'");
        }
        assert!(age().unwrap() < Duration::from_secs(3600));
    }

    const LONG: Duration = Duration::from_secs(30);

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
        shell("exit 0", LONG).unwrap();
    }

    #[test]
    fn failure_names_the_command_the_code_and_the_last_lines() {
        let script = "for i in $(seq 2000); do echo line $i >&2; done; exit 3";
        let error = shell(script, LONG).unwrap_err().to_string();
        assert!(error.starts_with("'sh -c for i in"), "{error}");
        assert!(error.contains("exited with 3"), "{error}");
        assert!(
            error.ends_with("line 2000") && !error.contains("line 1980\n"),
            "{error}"
        );
    }

    #[test]
    fn error_is_bounded_and_leaves_out_scripts() {
        let script = "head -c 100000 /dev/zero | tr '\\0' x\nexit 1";
        let error = shell(script, LONG).unwrap_err().to_string();
        assert!(
            error.starts_with("'sh -c' ") && error.len() < 5000,
            "{error}"
        );
        let long = describe(Command::new("go").arg("-X=ő".repeat(1000)));
        assert!(long.len() < 500 && long.ends_with(" …'"), "{long}");
    }

    #[test]
    fn limit_kills_the_whole_group() {
        let start = Instant::now();
        let error = shell(
            "echo waiting; sleep 60 & sleep 60",
            Duration::from_millis(200),
        )
        .unwrap_err()
        .to_string();
        assert!(
            error.contains("took longer than 0.2 s") && error.ends_with("waiting"),
            "{error}"
        );
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn missing_program_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let command = Command::new("/no/such-program");
        let error = run(&command, &folder.path().join("log"), LONG, &mut |_| ()).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("No such file"), "{error}");
        assert!(error.starts_with("'/no/such-program' "), "{error}");
    }

    #[test]
    fn folder_and_variables_of_the_command_count() {
        let folder = tempfile::tempdir().unwrap();
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let script = "test $A = b && test -z ${CARGO_MANIFEST_DIR+set} && echo here > file";
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .env("A", "b")
            .env_remove("CARGO_MANIFEST_DIR")
            .current_dir(folder.path());
        run(&command, &folder.path().join("log"), LONG, &mut |_| ()).unwrap();
        assert!(folder.path().join("file").is_file());
    }

    /// Starts itself once more, as the caller that is killed.
    #[test]
    fn program_dies_with_its_caller() {
        const VICTIM: &str = "TESTKIT_TEST_VICTIM";
        if let Some(folder) = std::env::var_os(VICTIM) {
            let mut command = Command::new("sh");
            command.args(["-c", "echo $$ > pid; exec sleep 60"]);
            command.current_dir(&folder);
            run(&command, &Path::new(&folder).join("log"), LONG, &mut |_| ()).unwrap();
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut caller = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "process::tests::program_dies_with_its_caller"])
            .env(VICTIM, folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let program = wait_for(|| {
            let text = fs::read_to_string(folder.path().join("pid")).unwrap_or_default();
            text.strip_suffix('\n').map(str::to_owned)
        });
        // A process that nobody waits for may stay as a zombie, which has no command line.
        let command_line = || fs::read(format!("/proc/{program}/cmdline")).unwrap_or_default();
        assert!(!command_line().is_empty());
        caller.kill().unwrap();
        caller.wait().unwrap();
        wait_for(|| command_line().is_empty().then_some(()));
    }

    fn wait_for<T>(look: impl Fn() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(seen) = look() {
                return seen;
            }
            assert!(start.elapsed() < Duration::from_secs(10));
            thread::sleep(Duration::from_millis(20));
        }
    }
}
