//! Runs git. Configuration of the machine, the user and the agent has no effect.

use std::{
    ffi::{OsStr, OsString},
    net::IpAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use git::{Credentials, Reason, Url};

use crate::{
    askpass,
    child::{self, Bounds, ChildError, Ended, Input},
    failure::{Failure, Step},
    git_errors,
    secret::Home,
};

/// Maximum number of bytes to read from a short output.
pub(crate) const SHORT: usize = 1 << 20;

/// Configuration of every call.
///
/// `transfer.fsckObjects` is disabled, because it rejects repositories with old objects that break today's
/// rules. A checkout itself rejects the objects that this check would find (`.git` or `..` in a tree, a
/// linked `.gitmodules`). Publish makes no checkout.
const ALWAYS: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.logAllRefUpdates=false",
    // Larger objects are streamed, not kept in memory.
    "core.bigFileThreshold=1m",
    "pack.threads=1",
    "protocol.allow=never",
    "credential.helper=",
    "http.followRedirects=false",
    "http.proxy=",
    "http.sslVerify=true",
    // Sends the largest output in one piece. Some servers reject a request without a length.
    "http.postBuffer=64m",
    // A server below 1000 bytes per second for a minute counts as dead. A push has more time: hooks of the
    // server run meanwhile, and nothing is sent.
    "http.lowSpeedLimit=1000",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    // Objects stay in the received pack. Loose objects are slow to find.
    "fetch.unpackLimit=1",
    "push.recurseSubmodules=no",
    "transfer.fsckObjects=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.detachedHead=false",
];

/// Options of ssh. No other configuration has an effect, and prompts and forwarding are disabled.
const SSH: &[&str] = &[
    "IdentitiesOnly=yes",
    "IdentityAgent=none",
    "GlobalKnownHostsFile=/dev/null",
    "StrictHostKeyChecking=yes",
    "VerifyHostKeyDNS=no",
    "UpdateHostKeys=no",
    "CheckHostIP=no",
    "BatchMode=yes",
    "PreferredAuthentications=publickey",
    "ConnectTimeout=20",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=4",
    "ProxyCommand=none",
    "ProxyJump=none",
    "PermitLocalCommand=no",
    "KnownHostsCommand=none",
    "CanonicalizeHostname=no",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ControlMaster=no",
    "ControlPath=none",
    "Tunnel=no",
];

/// Maximum time without data from a server.
const SILENCE: Duration = Duration::from_secs(60);
const SILENCE_OF_PUSH: Duration = Duration::from_secs(300);

/// Runs git on one repository, with one server.
#[derive(Debug)]
pub(crate) struct Git {
    pub(crate) step: Step,
    pub(crate) url: Url,
    /// The only address that git connects to.
    pub(crate) address: IpAddr,
    pub(crate) credentials: Credentials,
    pub(crate) credentials_folder: Option<PathBuf>,
    pub(crate) home: Home,
    /// The path of this program, which answers git's prompts.
    pub(crate) program: PathBuf,
    pub(crate) path: OsString,
    pub(crate) repository: PathBuf,
    pub(crate) bounds: Bounds,
    pub(crate) disk_mib: u64,
    pub(crate) timeout: Duration,
}

impl Git {
    /// Runs a command that needs no server, and returns its output.
    ///
    /// # Errors
    /// When the command fails.
    pub(crate) fn local(
        &self,
        arguments: &[&str],
        input: Option<Input>,
        stdout_bytes: usize,
    ) -> Result<Vec<u8>, Failure> {
        self.finish(self.command(), arguments, input, stdout_bytes)
    }

    /// Like [`Git::local`], with files in `work_tree`.
    ///
    /// # Errors
    /// When the command fails.
    pub(crate) fn checkout(&self, work_tree: &Path, arguments: &[&str]) -> Result<(), Failure> {
        let mut command = self.command();
        command
            .args(["-c", "core.bare=false"])
            .arg(option("--work-tree=", work_tree))
            .current_dir(work_tree);
        self.finish(command, arguments, None, SHORT).map(|_| ())
    }

    fn finish(
        &self,
        mut command: Command,
        arguments: &[&str],
        input: Option<Input>,
        stdout_bytes: usize,
    ) -> Result<Vec<u8>, Failure> {
        let what = arguments.first().copied().unwrap_or_default();
        let ended = child::run(command.args(arguments), input, stdout_bytes, &self.bounds)
            .map_err(|error| self.crossed(error, &format!("'git {what}'"), None))?;
        if ended.status.success() {
            return Ok(ended.stdout);
        }
        let quote = git_errors::quote(&ended.stderr, &self.credentials);
        let message = format!("'git {what}' failed: {quote}");
        Err(match git_errors::reason(&ended.stderr) {
            // A local command has no server, so no other reason applies.
            Some(Reason::RepositoryTooLarge) => Failure::new(Reason::RepositoryTooLarge, message),
            Some(_) | None => self.step.failed(message),
        })
    }

    /// Runs a command that connects to the server, and returns its result even if it failed.
    ///
    /// # Errors
    /// When the command cannot run, or exceeds a limit.
    pub(crate) fn remote(&self, arguments: &[&str]) -> Result<Ended, Failure> {
        let mut command = self.command();
        self.allow_server(&mut command, arguments.first() == Some(&"push"));
        child::run(command.args(arguments), None, SHORT, &self.bounds).map_err(|error| {
            let what = format!("talking to {}", self.url);
            self.crossed(error, &what, Some(Reason::RepositoryUnreachable))
        })
    }

    /// Converts a failed result of [`Git::remote`] to a failure. `what` is the attempted operation.
    pub(crate) fn refused(&self, ended: &Ended, what: &str) -> Failure {
        let quote = git_errors::quote(&ended.stderr, &self.credentials);
        let reason = git_errors::reason(&ended.stderr);
        let mut advice = reason.map_or("", git_errors::advice).to_owned();
        if reason == Some(Reason::HostKeyUnknown) {
            let name = self.url.known_host();
            advice.push_str(&format!(", in a line that begins with '{name}'"));
        }
        let message = format!("cannot {what} {}: {quote}{advice}", self.url);
        match reason {
            Some(reason) => Failure::new(reason, message),
            None => self.step.failed(message),
        }
    }

    fn crossed(&self, error: ChildError, what: &str, late: Option<Reason>) -> Failure {
        match error {
            ChildError::Failed(error) => self.step.failed(format!("{what} failed: {error}")),
            ChildError::TimedOut => {
                let limit = self.timeout.as_secs();
                let message =
                    format!("{what} did not finish within the {limit} s that the step has");
                match late {
                    Some(reason) => Failure::new(reason, message),
                    None => self.step.failed(message),
                }
            }
            ChildError::DiskFull => too_large(&format!("needs more than {} MiB", self.disk_mib)),
            ChildError::TooMuchSaid => too_large("has longer lists of files than can be read"),
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new("git");
        command
            .env_clear()
            .env("PATH", &self.path)
            .env("HOME", &self.home.folder)
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_LITERAL_PATHSPECS", "1")
            .current_dir(&self.home.folder)
            .arg(option("--git-dir=", &self.repository));
        configure(&mut command, ALWAYS);
        command
    }

    fn allow_server(&self, command: &mut Command, is_push: bool) {
        let silence = if is_push { SILENCE_OF_PUSH } else { SILENCE };
        let scheme = self.url.scheme().as_str();
        configure(
            command,
            [
                format!("protocol.{scheme}.allow=always"),
                format!("http.lowSpeedTime={}", silence.as_secs()),
            ],
        );
        match &self.credentials {
            Credentials::Http { login, authorities } => {
                configure(command, pin(&self.url, self.address));
                if authorities.is_some() {
                    let key_value = |key: &str, path: &Path| option(&format!("{key}="), path);
                    configure(
                        command,
                        [
                            key_value("http.sslCAInfo", &self.home.authorities),
                            key_value("http.sslCAPath", &self.home.nothing),
                        ],
                    );
                }
                if let (Some(_), Some(folder)) = (login, &self.credentials_folder) {
                    command
                        .env("GIT_ASKPASS", &self.program)
                        .env(askpass::FOLDER, folder)
                        .env(askpass::URL, self.url.to_string());
                }
            }
            Credentials::Ssh { .. } => {
                command
                    .env("GIT_SSH_VARIANT", "ssh")
                    .env("GIT_SSH_COMMAND", ssh(&self.url, self.address, &self.home));
            }
        }
    }
}

fn too_large(what: &str) -> Failure {
    let reason = Reason::RepositoryTooLarge;
    Failure::new(
        reason,
        format!("the repository {what}{}", git_errors::advice(reason)),
    )
}

fn configure<Setting: AsRef<OsStr>>(
    command: &mut Command,
    settings: impl IntoIterator<Item = Setting>,
) {
    for setting in settings {
        command.arg("-c").arg(setting);
    }
}

fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(path);
    option
}

/// Returns the setting that makes curl connect to the checked address without a lookup. A host that is an
/// address needs none.
fn pin(url: &Url, address: IpAddr) -> Option<String> {
    if url.host().parse::<IpAddr>().is_ok() {
        return None;
    }
    let address = match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    Some(format!(
        "http.curloptResolve={}:{}:{address}",
        url.host(),
        url.port()
    ))
}

/// Returns the command with which git calls ssh, through a shell.
///
/// Caveat: ssh searches for `HostKeyAlias` literally, so the alias contains the port as `known_hosts` does.
fn ssh(url: &Url, address: IpAddr, home: &Home) -> String {
    let own = [
        format!("IdentityFile={}", home.identity.display()),
        format!("UserKnownHostsFile={}", home.known_hosts.display()),
        format!("HostName={address}"),
        format!("HostKeyAlias={}", url.known_host()),
    ];
    let options = SSH.iter().map(|option| (*option).to_owned()).chain(own);
    let quoted: Vec<String> = options.map(|option| format!("-o '{option}'")).collect();
    format!("ssh -F none {}", quoted.join(" "))
}

/// Returns the directories of `PATH` that the agent cannot have written to.
pub(crate) fn trusted_path(path: Option<&OsStr>, source: &Path) -> OsString {
    const USUAL: &str = "/usr/local/bin:/usr/bin:/bin";
    let trusted: Vec<PathBuf> = std::env::split_paths(path.unwrap_or(OsStr::new(USUAL)))
        .filter(|folder| folder.is_absolute() && !folder.starts_with(source))
        .collect();
    match std::env::join_paths(trusted) {
        Ok(path) => path,
        // A directory with a ':' cannot come from a PATH.
        Err(_) => USUAL.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text, false).unwrap()
    }

    #[test]
    fn https_is_pinned_to_the_checked_address() {
        for (text, address, wanted) in [
            (
                "https://h.org/a",
                "1.2.3.4",
                Some("http.curloptResolve=h.org:443:1.2.3.4"),
            ),
            (
                "https://h.org:8443/a",
                "2a00::1",
                Some("http.curloptResolve=h.org:8443:[2a00::1]"),
            ),
            ("https://1.2.3.4/a", "1.2.3.4", None),
            ("https://[2a00::1]/a", "2a00::1", None),
        ] {
            let found = pin(&url(text), address.parse().unwrap());
            assert_eq!(found.as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn ssh_is_pinned_and_keeps_the_name_for_the_host_key() {
        let home = Home {
            folder: "/h".into(),
            identity: "/h/identity".into(),
            known_hosts: "/h/known_hosts".into(),
            authorities: "/h/ca.crt".into(),
            nothing: "/h/nothing".into(),
        };
        for (text, alias) in [
            ("ssh://git@h.org/a", "-o 'HostKeyAlias=h.org'"),
            ("ssh://git@h.org:2222/a", "-o 'HostKeyAlias=[h.org]:2222'"),
            (
                "ssh://git@[2a00::1]:2222/a",
                "-o 'HostKeyAlias=[2a00::1]:2222'",
            ),
        ] {
            let command = ssh(&url(text), "1.2.3.4".parse().unwrap(), &home);
            assert!(command.contains(alias), "{command}");
            assert!(command.contains("-o 'HostName=1.2.3.4'"), "{command}");
            assert!(command.starts_with("ssh -F none -o "), "{command}");
        }
    }

    #[test]
    fn programs_of_the_agent_are_not_found() {
        let source = Path::new("/workspace/source");
        for (path, wanted) in [
            (Some("/usr/bin:/bin"), "/usr/bin:/bin"),
            (Some("/workspace/source/bin:/usr/bin"), "/usr/bin"),
            (Some(":.:bin:/usr/bin"), "/usr/bin"),
            (None, "/usr/local/bin:/usr/bin:/bin"),
        ] {
            let found = trusted_path(path.map(OsStr::new), source);
            assert_eq!(found, OsStr::new(wanted), "{path:?}");
        }
    }
}
