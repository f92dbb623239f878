//! Runs a program with limits on its time, its output and its disk usage.

use std::{
    collections::VecDeque,
    fs,
    io::{self, Read, Write},
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process_group},
};

/// Minimum interval between two measurements of the directories' size.
const SIZE_EVERY: Duration = Duration::from_millis(250);
/// After a measurement, the next one waits at least this multiple of its duration.
const SIZE_SHARE: u32 = 5;
/// Number of bytes to keep from the end of a program's standard error.
const ERRORS_KEPT: usize = 16 << 10;

/// The limits of a program.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// The time at which the program is killed.
    pub(crate) deadline: Instant,
    /// The directories that it writes to.
    pub(crate) folders: Vec<PathBuf>,
    /// Maximum total size of these directories, in bytes.
    pub(crate) disk_bytes: u64,
}

/// Writes a program's input, in a separate thread.
pub(crate) type Input = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send>;

/// The result of a program.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    /// The end of its standard error.
    pub(crate) stderr: String,
}

/// The reason why there is no result.
#[derive(Debug)]
pub(crate) enum ChildError {
    Failed(io::Error),
    TimedOut,
    /// The directories exceed their limit.
    DiskFull,
    /// Its standard output exceeds the limit.
    TooMuchSaid,
}

impl From<io::Error> for ChildError {
    fn from(error: io::Error) -> Self {
        ChildError::Failed(error)
    }
}

/// Runs a program until it exits.
///
/// Guarantees: the program has its own process group, and no process of the group remains when this
/// function returns.
///
/// # Errors
/// When the program cannot run, or exceeds a limit.
pub(crate) fn run(
    command: &mut Command,
    input: Option<Input>,
    stdout_bytes: usize,
    bounds: &Bounds,
) -> Result<Ended, ChildError> {
    let mut child = command
        .process_group(0)
        .stdin(if input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let writer = input.zip(child.stdin.take()).map(|(input, mut pipe)| {
        // A program that exits early breaks the pipe. Its exit status has more information than this error.
        thread::spawn(move || match input(&mut pipe) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other,
        })
    });
    let stdout = child.stdout.take().map(|pipe| {
        thread::spawn(move || {
            let mut kept = Vec::new();
            // One extra byte shows that the output exceeds the limit.
            let limit = u64::try_from(stdout_bytes)
                .unwrap_or(u64::MAX)
                .saturating_add(1);
            pipe.take(limit).read_to_end(&mut kept).map(|_| kept)
        })
    });
    let stderr = child
        .stderr
        .take()
        .map(|pipe| thread::spawn(move || last_bytes(pipe)));
    let waited = wait(&mut child, bounds);
    end_group(&mut child)?;
    let stdout = joined(stdout)?.unwrap_or_default();
    let stderr = joined(stderr)?.unwrap_or_default();
    let status = waited?;
    joined(writer)?;
    if stdout.len() > stdout_bytes {
        return Err(ChildError::TooMuchSaid);
    }
    // A fast program may exit between two measurements.
    if status.success() && disk_bytes(&bounds.folders)? > bounds.disk_bytes {
        return Err(ChildError::DiskFull);
    }
    Ok(Ended {
        status,
        stdout,
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    })
}

fn wait(child: &mut Child, bounds: &Bounds) -> Result<ExitStatus, ChildError> {
    let mut pause = Duration::from_millis(1);
    let mut look_at = Instant::now() + SIZE_EVERY;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let now = Instant::now();
        if now >= bounds.deadline {
            return Err(ChildError::TimedOut);
        }
        if now >= look_at {
            if disk_bytes(&bounds.folders)? > bounds.disk_bytes {
                return Err(ChildError::DiskFull);
            }
            look_at = Instant::now() + SIZE_EVERY.max(now.elapsed() * SIZE_SHARE);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Kills the remaining processes of the group. A helper that outlives git would keep the pipes open.
fn end_group(child: &mut Child) -> io::Result<()> {
    match kill_process_group(Pid::from_child(child), Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(errno) => return Err(errno.into()),
    }
    child.wait().map(|_| ())
}

fn joined<T>(thread: Option<JoinHandle<io::Result<T>>>) -> io::Result<Option<T>> {
    let Some(thread) = thread else {
        return Ok(None);
    };
    match thread.join() {
        Ok(result) => result.map(Some),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn last_bytes(mut pipe: impl Read) -> io::Result<Vec<u8>> {
    let mut kept = VecDeque::new();
    let mut chunk = [0; 4096];
    loop {
        let count = pipe.read(&mut chunk)?;
        if count == 0 {
            return Ok(kept.into());
        }
        kept.extend(&chunk[..count]);
        kept.drain(..kept.len().saturating_sub(ERRORS_KEPT));
    }
}

/// Returns the disk usage of directories. Files that disappear meanwhile do not count.
fn disk_bytes(folders: &[PathBuf]) -> io::Result<u64> {
    folders.iter().map(|folder| folder_bytes(folder)).sum()
}

fn folder_bytes(folder: &Path) -> io::Result<u64> {
    let mut total = 0;
    let Some(entries) = unless_gone(fs::read_dir(folder))? else {
        return Ok(0);
    };
    for entry in entries {
        let Some(entry) = unless_gone(entry)? else {
            continue;
        };
        let Some(metadata) = unless_gone(entry.metadata())? else {
            continue;
        };
        total += metadata.blocks() * 512;
        if metadata.is_dir() {
            total += folder_bytes(&entry.path())?;
        }
    }
    Ok(total)
}

fn unless_gone<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, bounds: &Bounds) -> Result<Ended, ChildError> {
        run(Command::new("sh").args(["-c", script]), None, 100, bounds)
    }

    fn bounds(limit: Duration) -> Bounds {
        Bounds {
            deadline: Instant::now() + limit,
            folders: Vec::new(),
            disk_bytes: 0,
        }
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn end_is_told() {
        let ended = shell("echo out; echo err >&2; exit 3", &bounds(LONG)).unwrap();
        assert_eq!(ended.status.code(), Some(3));
        assert_eq!(ended.stdout, b"out\n");
        assert_eq!(ended.stderr, "err\n");
    }

    #[test]
    fn input_is_written_and_a_program_may_leave_it() {
        for (script, said) in [("cat", "words"), ("exec <&-; echo no", "no\n")] {
            let input: Input = Box::new(|pipe| pipe.write_all(b"words"));
            let ended = run(
                Command::new("sh").args(["-c", script]),
                Some(input),
                100,
                &bounds(LONG),
            )
            .unwrap();
            assert_eq!(String::from_utf8_lossy(&ended.stdout), said);
        }
    }

    #[test]
    fn the_whole_group_ends_at_the_deadline() {
        let start = Instant::now();
        let error = shell("sleep 60 & sleep 60", &bounds(Duration::from_millis(200))).unwrap_err();
        assert!(matches!(error, ChildError::TimedOut), "{error:?}");
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_helper_that_outlives_the_program_does_not_hold_us() {
        let start = Instant::now();
        let ended = shell("sleep 60 & echo done", &bounds(LONG)).unwrap();
        assert_eq!(ended.stdout, b"done\n");
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn output_is_bounded_and_errors_keep_their_end() {
        let error = shell("head -c 101 /dev/zero", &bounds(LONG)).unwrap_err();
        assert!(matches!(error, ChildError::TooMuchSaid), "{error:?}");
        let script = "head -c 1000000 /dev/zero >&2; echo the end >&2";
        let ended = shell(script, &bounds(LONG)).unwrap();
        assert_eq!(ended.stderr.len(), ERRORS_KEPT);
        assert!(ended.stderr.ends_with("the end\n"));
    }

    #[test]
    fn endless_output_ends() {
        let error = shell("yes", &bounds(LONG)).unwrap_err();
        assert!(matches!(error, ChildError::TooMuchSaid), "{error:?}");
    }

    #[test]
    fn disk_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("a");
        fs::create_dir(&below).unwrap();
        let script = format!(
            "head -c 3000000 /dev/zero > {}/b; sleep 60",
            below.display()
        );
        let bounds = Bounds {
            folders: vec![folder.path().to_owned()],
            disk_bytes: 2 << 20,
            ..bounds(LONG)
        };
        let error = shell(&script, &bounds).unwrap_err();
        assert!(matches!(error, ChildError::DiskFull), "{error:?}");
    }
}
