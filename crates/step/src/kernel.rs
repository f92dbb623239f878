//! `step kernel`: supervises the Jupyter kernel in the user's image, as process 1 of its container.
//!
//! The runner in the other container hands over a connection, and the supervisor starts the kernel with it.
//! `runner/README.md` describes the files in the directory that both share.
//!
//! # Guarantees
//! - The exit code is 0 only if the kernel ended after the runner had asked for it, or if the runner asked before there
//!   was a kernel (F13).
//! - The kernel does not outlive its runner, nor the request to stop by more than [`GRACE`].
//! - A lock shows that this process lives. It is free as soon as the process ends, also if nothing was written.
//!
//! # Caveats
//! The kernel can write into the shared directory, too. Nothing that it writes there makes a run succeed.

mod find;
mod link;

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::wait::{WaitPidFlag, WaitStatus, waitpid},
    unistd::Pid,
};
use serde_json::{Value, json};

use self::{
    find::{FindError, KernelSpec, Search},
    link::Link,
};
use crate::{progress::ProgressLog, settings::Environment};

/// The directory that the supervisor shares with the runner.
const LINK: &str = "ORCHESTRATOR_LINK";
/// The directory of the notebook.
const DIRECTORY: &str = "ORCHESTRATOR_DIRECTORY";
/// The kernel's own copy of the connection file, in its home. Kernels write to that file, and the runner's copy is not
/// writable for them.
const CONNECTION_COPY: &str = ".connection.json";

/// Time between two checks of the link and of the kernel.
const POLL: Duration = Duration::from_millis(20);
/// Time that the kernel has to end after the request to stop.
const GRACE: Duration = Duration::from_secs(10);
/// Time after which a kernel that was killed, but did not end, is given up. It waits for a device then.
const KILL_LIMIT: Duration = Duration::from_secs(30);

/// The start of the supervision.
enum Start {
    /// The runner wants a kernel with this connection.
    Connection(Vec<u8>),
    /// The runner wants none.
    Stop,
    /// The runner ended.
    RunnerLost,
}

/// The end of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    code: i32,
    signal: Option<i32>,
}

/// Runs the supervisor. Returns whether the kernel ended on request.
///
/// # Errors
/// When the kernel cannot be supervised at all.
pub(crate) fn run(
    environment: &Environment,
    progress: &mut ProgressLog<'_>,
) -> Result<bool, String> {
    let link = Link::new(folder(environment, LINK)?);
    let directory = folder(environment, DIRECTORY)?;
    let home = folder(environment, "HOME")?;
    let failed = |error: io::Error| format!("cannot use '{}': {error}", link.directory().display());
    // The lock is held until this process ends.
    let _lock = link.hold().map_err(failed)?;
    let connection = match wait_for_runner(&link).map_err(failed)? {
        Start::Connection(connection) => connection,
        Start::Stop => return Ok(true),
        Start::RunnerLost => {
            progress.line("the runner ended before it wanted a kernel");
            return Ok(false);
        }
    };
    let name = kernel_name(&connection)?;
    let spec = match find::find(&name, &Search::new(environment)) {
        Ok(spec) => spec,
        Err(error) => {
            progress.line(&format!("cannot start the kernel '{name}': {error}"));
            link.write_exit(&not_started(&name, &error))
                .map_err(failed)?;
            return Ok(false);
        }
    };
    let copy = home.join(CONNECTION_COPY);
    write_private(&copy, &connection)
        .map_err(|error| format!("cannot write '{}': {error}", copy.display()))?;
    let kills = oom_kills();
    let child = match start(&spec, &copy, &directory) {
        Ok(child) => child,
        Err(error) => {
            let message = format!("cannot start '{}': {error}", spec.program());
            progress.line(&message);
            link.write_exit(&json!({ "message": message }))
                .map_err(failed)?;
            return Ok(false);
        }
    };
    progress.line(&format!("started the kernel '{}'", spec.program()));
    let (end, is_requested) = supervise(child, &link)?;
    let killed = oom_kills().saturating_sub(kills);
    link.write_exit(&record(end, killed, is_requested))
        .map_err(failed)?;
    progress.line(&format!(
        "the kernel ended: {}",
        describe(end, is_requested)
    ));
    Ok(is_requested)
}

fn folder(environment: &Environment, name: &str) -> Result<PathBuf, String> {
    match environment.get(&OsString::from(name)) {
        Some(path) if Path::new(path).is_absolute() => Ok(PathBuf::from(path)),
        Some(_) => Err(format!("the variable {name} is no absolute path")),
        None => Err(format!("the variable {name} is not set")),
    }
}

/// Waits for the connection. The operator limits this wait: it limits the time of the whole container.
fn wait_for_runner(link: &Link) -> io::Result<Start> {
    loop {
        // The runner frees its lock after it asked to stop, so the lock is checked first.
        let is_lost = link.has_lost_runner()?;
        if link.has_stop()? {
            return Ok(Start::Stop);
        }
        if is_lost {
            return Ok(Start::RunnerLost);
        }
        if let Some(connection) = link.connection()? {
            return Ok(Start::Connection(connection));
        }
        thread::sleep(POLL);
    }
}

/// Returns the name of the kernel that the runner wants. An empty name means the default.
fn kernel_name(connection: &[u8]) -> Result<String, String> {
    let value: Value = serde_json::from_slice(connection)
        .map_err(|error| format!("the connection file is no JSON: {error}"))?;
    match value.get("kernel_name") {
        Some(Value::String(name)) if name.is_empty() => Ok(find::DEFAULT.to_owned()),
        Some(Value::String(name)) => Ok(name.clone()),
        Some(_) | None => Err("the connection file has no text 'kernel_name'".to_owned()),
    }
}

fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(content)
}

fn start(spec: &KernelSpec, connection: &Path, directory: &Path) -> io::Result<Child> {
    Command::new(spec.program())
        .args(spec.arguments(connection))
        .envs(&spec.environment)
        .current_dir(directory)
        .stdin(Stdio::null())
        .spawn()
}

/// Waits for the end of the kernel. Returns it, and whether the request to stop existed before.
fn supervise(mut child: Child, link: &Link) -> Result<(End, bool), String> {
    let failed = |error: io::Error| format!("cannot supervise the kernel: {error}");
    let (mut asked, mut killed): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        let is_lost = link.has_lost_runner().map_err(failed)?;
        // F13: a request that came after the end did not cause the end, so the request is read first.
        let has_stop = link.has_stop().map_err(failed)?;
        if let Some(end) = reap(&child).map_err(failed)? {
            return Ok((end, has_stop));
        }
        if has_stop && asked.is_none() {
            asked = Some(Instant::now());
        }
        if must_kill(asked.map(|asked| asked.elapsed()), is_lost) {
            let since = killed.get_or_insert_with(Instant::now);
            if since.elapsed() > KILL_LIMIT {
                return Err("the kernel does not end although it was killed".to_owned());
            }
            child.kill().map_err(failed)?;
        }
        thread::sleep(POLL);
    }
}

/// Returns whether the kernel may not run any longer. `asked` is the time since the request to stop.
fn must_kill(asked: Option<Duration>, is_runner_lost: bool) -> bool {
    match asked {
        Some(elapsed) => elapsed >= GRACE,
        None => is_runner_lost,
    }
}

/// Collects all processes that ended. Process 1 inherits those that lost their parent, and they would fill the table of
/// processes. Returns the end of the kernel.
fn reap(child: &Child) -> io::Result<Option<End>> {
    loop {
        let status = match waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG)) {
            Ok(status) => status,
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        let (pid, end) = match status {
            WaitStatus::StillAlive => return Ok(None),
            WaitStatus::Exited(pid, code) => (pid, End { code, signal: None }),
            WaitStatus::Signaled(pid, signal, _has_core) => {
                let signal = Some(signal as i32);
                (pid, End { code: 0, signal })
            }
            // Only a tracer receives these.
            WaitStatus::Stopped(..)
            | WaitStatus::PtraceEvent(..)
            | WaitStatus::PtraceSyscall(_)
            | WaitStatus::Continued(_) => continue,
        };
        if pid.as_raw().cast_unsigned() == child.id() {
            return Ok(Some(end));
        }
    }
}

/// Returns the number of processes of this container that were killed for memory, or 0 if the node does not show it.
fn oom_kills() -> u64 {
    let files = [
        "/sys/fs/cgroup/memory.events",
        "/sys/fs/cgroup/memory/memory.oom_control",
    ];
    let count = files
        .iter()
        .find_map(|file| match fs::read_to_string(file) {
            Ok(text) => oom_count(&text),
            // A node has one of them, or hides both. The runner then reports a signal without a cause.
            Err(_) => None,
        });
    count.unwrap_or_default()
}

fn oom_count(text: &str) -> Option<u64> {
    let count = text
        .lines()
        .find_map(|line| line.strip_prefix("oom_kill "))?;
    Some(count.trim().parse().unwrap_or_default())
}

/// Returns the record of the end for the runner.
fn record(end: End, oom_kills: u64, is_requested: bool) -> Value {
    json!({
        "code": end.code,
        "signal": end.signal,
        "oomKills": oom_kills,
        "requested": is_requested,
    })
}

fn not_started(name: &str, error: &FindError) -> Value {
    match error {
        FindError::NotFound { searched, found } => {
            json!({ "notFound": { "name": name, "searched": searched, "found": found } })
        }
        FindError::Invalid(message) => json!({ "message": message }),
    }
}

fn describe(end: End, is_requested: bool) -> String {
    let how = match end.signal {
        Some(signal) => format!("signal {signal}"),
        None => format!("code {}", end.code),
    };
    let request = if is_requested { "after" } else { "without" };
    format!("{how}, {request} a request")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_killed_after_its_grace_or_with_its_runner() {
        let early = GRACE.saturating_sub(Duration::from_millis(1));
        for (asked, is_lost, expected) in [
            (None, false, false),
            (None, true, true),
            (Some(Duration::ZERO), false, false),
            (Some(early), false, false),
            // The runner ends after it asked to stop, and the kernel keeps its grace.
            (Some(early), true, false),
            (Some(GRACE), false, true),
            (Some(GRACE), true, true),
        ] {
            assert_eq!(must_kill(asked, is_lost), expected, "{asked:?} {is_lost}");
        }
    }

    #[test]
    fn kills_for_memory_are_counted_in_both_versions_of_cgroups() {
        for (text, expected) in [
            ("low 0\nhigh 0\nmax 5\noom 1\noom_kill 1\n", Some(1)),
            ("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", Some(3)),
            ("oom_kill_disable 0\nunder_oom 0\n", None),
            ("oom_kill many\n", Some(0)),
            ("", None),
        ] {
            assert_eq!(oom_count(text), expected, "{text}");
        }
    }

    /// The runner reads these keys.
    #[test]
    fn the_record_has_the_keys_that_the_runner_reads() {
        let end = End {
            code: 0,
            signal: Some(9),
        };
        assert_eq!(
            record(end, 1, false),
            json!({ "code": 0, "signal": 9, "oomKills": 1, "requested": false })
        );
        let error = FindError::NotFound {
            searched: vec!["/a".to_owned()],
            found: vec!["python3".to_owned()],
        };
        assert_eq!(
            not_started("ir", &error),
            json!({ "notFound": { "name": "ir", "searched": ["/a"], "found": ["python3"] } })
        );
    }

    #[test]
    fn a_connection_names_its_kernel() {
        for (text, expected) in [
            (r#"{"kernel_name":"ir"}"#, Some("ir")),
            (r#"{"kernel_name":""}"#, Some("python3")),
            (r#"{"kernel_name":1}"#, None),
            (r"{}", None),
            ("{", None),
        ] {
            let found = kernel_name(text.as_bytes());
            match expected {
                Some(name) => assert_eq!(found.as_deref(), Ok(name)),
                None => assert!(found.is_err(), "{text}"),
            }
        }
    }
}
