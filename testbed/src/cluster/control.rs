//! How a cluster's owner talks to the cluster's first process: one JSON line each way, over a unix
//! socket in the cluster's folder (a path is reachable across network namespaces).

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// Longest request or answer. An answer carries at most two outputs of [`OUTPUT_LIMIT`].
pub(super) const MESSAGE_LIMIT: u64 = 8 << 20;
/// What is kept of each output of [`Request::Run`].
pub(super) const OUTPUT_LIMIT: u64 = 1 << 20;

/// A program to run inside the cluster's namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Names its log, and the process in later requests.
    pub name: String,
    /// Path of the program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Added to the environment.
    pub environment: BTreeMap<String, String>,
}

impl Process {
    /// A program with arguments and nothing added to its environment.
    pub fn new(
        name: &str,
        program: impl Into<PathBuf>,
        arguments: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: BTreeMap::new(),
        }
    }

    /// Adds a variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Start and supervise; refused while a process of that name runs.
    Start(Process),
    /// Start again what ran under this name before.
    Restart(String),
    /// SIGTERM, after `grace` SIGKILL; answers when it has ended.
    Stop { name: String, grace: Duration },
    /// Any signal, e.g. SIGSTOP.
    Signal { name: String, signal: i32 },
    /// All supervised processes.
    List,
    /// Run to its end and answer with its outputs.
    Run { process: Process, limit: Duration },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Response {
    Done,
    Processes(Vec<ProcessState>),
    Ran(Output),
    Failed(String),
}

/// A supervised process as the cluster's first process sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProcessState {
    /// As in [`Process::name`].
    pub name: String,
    /// In the cluster's process namespace.
    pub pid: i32,
    /// How it ended; nothing while it runs.
    pub ended: Option<String>,
}

/// What a program that ran to its end left.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Output {
    /// Exit code, or 128 + signal.
    pub code: i32,
    /// Standard output, cut at 1 MiB.
    pub stdout: String,
    /// Standard error, cut at 1 MiB.
    pub stderr: String,
}

/// The owner's end.
#[derive(Debug, Clone)]
pub struct Control {
    socket: PathBuf,
}

impl Control {
    pub(super) fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Starts and supervises a program in the cluster's namespaces.
    ///
    /// # Errors
    /// When it cannot be started or a process of that name runs.
    pub async fn start(&self, process: Process) -> Result<()> {
        self.done(Request::Start(process)).await
    }

    /// Starts again what was stopped or ended.
    ///
    /// # Errors
    /// When nothing of that name was ever started, or it runs.
    pub async fn restart(&self, name: &str) -> Result<()> {
        self.done(Request::Restart(name.to_owned())).await
    }

    /// Stops a process and waits for its end.
    ///
    /// # Errors
    /// When there is none of that name.
    pub async fn stop(&self, name: &str) -> Result<()> {
        self.done(Request::Stop {
            name: name.to_owned(),
            grace: Duration::from_secs(5),
        })
        .await
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When there is none of that name.
    pub async fn signal(&self, name: &str, signal: nix::sys::signal::Signal) -> Result<()> {
        self.done(Request::Signal {
            name: name.to_owned(),
            signal: signal as i32,
        })
        .await
    }

    /// All supervised processes.
    ///
    /// # Errors
    /// When the cluster is gone.
    pub async fn processes(&self) -> Result<Vec<ProcessState>> {
        match self.ask(Request::List, Duration::from_secs(10)).await? {
            Response::Processes(list) => Ok(list),
            other @ (Response::Done | Response::Ran(_) | Response::Failed(_)) => {
                bail!("unexpected answer {other:?}")
            }
        }
    }

    /// Runs a program in the cluster's namespaces to its end.
    ///
    /// # Errors
    /// When it cannot start or takes longer than `limit`. A non-zero exit is not an error here.
    pub async fn run(&self, process: Process, limit: Duration) -> Result<Output> {
        let name = process.name.clone();
        match self
            .ask(
                Request::Run { process, limit },
                limit + Duration::from_secs(5),
            )
            .await?
        {
            Response::Ran(output) => Ok(output),
            Response::Failed(why) => bail!("'{name}': {why}"),
            other @ (Response::Done | Response::Processes(_)) => {
                bail!("unexpected answer {other:?}")
            }
        }
    }

    /// As [`Control::run`], but a non-zero exit is an error that carries the outputs.
    ///
    /// # Errors
    /// Also when the program fails.
    pub async fn check(&self, process: Process, limit: Duration) -> Result<String> {
        let shown = format!(
            "{} {}",
            process.program.display(),
            process.arguments.join(" ")
        );
        let output = self.run(process, limit).await?;
        if output.code != 0 {
            bail!(
                "'{shown}' exited with {}: {}{}",
                output.code,
                output.stdout,
                output.stderr
            );
        }
        Ok(output.stdout)
    }

    async fn done(&self, request: Request) -> Result<()> {
        let what = format!("{request:?}");
        match self.ask(request, Duration::from_secs(20)).await? {
            Response::Done => Ok(()),
            Response::Failed(why) => bail!("{why}"),
            other @ (Response::Processes(_) | Response::Ran(_)) => {
                bail!("unexpected answer {other:?} to {what}")
            }
        }
    }

    async fn ask(&self, request: Request, limit: Duration) -> Result<Response> {
        let socket = self.socket.clone();
        tokio::task::spawn_blocking(move || ask(&socket, &request, limit)).await?
    }
}

/// One question and its answer.
pub(super) fn ask(socket: &Path, request: &Request, limit: Duration) -> Result<Response> {
    let gone = || format!("no cluster answers at '{}'", socket.display());
    let mut stream = UnixStream::connect(socket).with_context(gone)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    send(&mut stream, request).with_context(gone)?;
    receive(&stream).with_context(|| {
        let seconds = limit.as_secs();
        format!(
            "no answer within {seconds} s at '{}', or the cluster is gone",
            socket.display()
        )
    })
}

pub(super) fn send<T: Serialize>(stream: &mut UnixStream, message: &T) -> Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    Ok(())
}

pub(super) fn receive<T: for<'a> Deserialize<'a>>(stream: &UnixStream) -> Result<T> {
    let mut line = String::new();
    BufReader::new(stream.take(MESSAGE_LIMIT)).read_line(&mut line)?;
    serde_json::from_str(&line).context("not a message of this protocol")
}
