//! Real Git servers for tests: https by lighttpd and git's own backend, ssh by sshd.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! use testkit::git::{Hook, Server};
//!
//! let server = Server::on_loopback()?;
//! let docs = server.create("docs", "main", &[("README.md", "hello")])?;
//! let (url, secret) = (server.https_url("docs"), server.credentials_https());
//! // … what is to be tested clones and pushes …
//! docs.set_hook(&Hook::Refuse("protected branch".to_owned()))?;
//! assert_eq!(docs.activity()?.accepted, 0);
//! # Ok(())
//! # }
//! ```
//!
//! All of it blocks, for milliseconds: a test may call it from async code.

mod activity;
mod keys;
mod network;
mod processes;
mod repository;
mod scripts;

use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

pub use activity::Activity;
pub use network::Network;
pub use repository::{Behaviour, Commit, Entry, Hook, Repository};

use crate::{cluster::Cluster, process};
use keys::Keys;

/// Data of a Secret, by key.
pub type Credentials = BTreeMap<String, Vec<u8>>;

/// Who may read and write over https.
pub const USERNAME: &str = "writer";

/// For a server to listen: a tenth of a second on an idle machine.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Somebody else may take a free port before the server does.
const START_ATTEMPTS: usize = 5;

/// An https and an ssh server for the same repositories. Dropping it ends both and removes all.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub address: IpAddr,
    /// By which name tests reach it: the address, unless names were given.
    pub host: String,
    ports: Ports,
    keys: Keys,
    account: String,
    running: Vec<Child>,
    network: Network,
    folder: TempDir,
}

/// All on one address.
#[derive(Debug, Clone, Copy)]
struct Ports {
    https: u16,
    http: u16,
    ssh: u16,
}

impl Ports {
    fn all(self) -> [u16; 3] {
        [self.https, self.http, self.ssh]
    }
}

impl Server {
    /// On the machine's loopback.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn on_loopback() -> Result<Self> {
        Self::start(Network::machine()?, &[])
    }

    /// On the node's address of a cluster: for its Pods, and for what runs in its network.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn in_cluster(cluster: &Cluster) -> Result<Self> {
        Self::start(Network::of(cluster)?, &[])
    }

    /// Starts both servers and waits until they listen. `names` are further names of the
    /// certificate and of the host keys; the first is the host of the URLs.
    ///
    /// # Errors
    /// When a program is missing, or a server does not come up; with the end of its log.
    pub fn start(network: Network, names: &[&str]) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("git-server-")
            .tempdir()
            .context("cannot make a folder")?;
        let here = folder.path().canonicalize()?;
        let address = network.address();
        let host = address.to_string();
        let mut all: Vec<&str> = names.to_vec();
        all.push(&host);
        let keys = Keys::create(&here, &all)?;
        let account = whoami()?;
        prepare(&here)?;
        let mut server = Self {
            address,
            host: all
                .first()
                .map_or_else(String::new, |&name| name.to_owned()),
            ports: free_ports(&network)?,
            keys,
            account,
            running: Vec::new(),
            network,
            folder,
        };
        for attempt in 1.. {
            server.configure()?;
            match server.resume() {
                Ok(()) => break,
                Err(error) if attempt < START_ATTEMPTS && is_port_taken(&error) => {
                    server.ports = free_ports(&server.network)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(server)
    }

    /// Makes a repository with one commit of these files on this branch, which is its default.
    ///
    /// # Errors
    /// When there is one, or its name is not of lower-case letters, digits, `-` and `/`.
    pub fn create(&self, name: &str, branch: &str, files: &[(&str, &str)]) -> Result<Repository> {
        Repository::create(self.here(), name, branch, files)
    }

    /// A repository that was made before.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn repository(&self, name: &str) -> Result<Repository> {
        Repository::open(self.here(), name)
    }

    /// Where a repository is over https.
    pub fn https_url(&self, name: &str) -> String {
        format!("https://{}:{}/{name}.git", self.host, self.ports.https)
    }

    /// Where it is without encryption, with the same passwords.
    pub fn http_url(&self, name: &str) -> String {
        format!("http://{}:{}/{name}.git", self.host, self.ports.http)
    }

    /// Where it is over ssh.
    pub fn ssh_url(&self, name: &str) -> String {
        let Self {
            account,
            host,
            ports,
            ..
        } = self;
        format!("ssh://{account}@{host}:{}/{name}.git", ports.ssh)
    }

    /// `username`, `password` and `ca.crt`. The password is in no other text of the world.
    pub fn credentials_https(&self) -> Credentials {
        BTreeMap::from([
            ("username".to_owned(), USERNAME.into()),
            ("password".to_owned(), self.keys.password.clone().into()),
            ("ca.crt".to_owned(), self.keys.authority.clone().into()),
        ])
    }

    /// `identity` and `known_hosts`.
    pub fn credentials_ssh(&self) -> Credentials {
        let hosts = [self.host.clone(), self.address.to_string()];
        BTreeMap::from([
            ("identity".to_owned(), self.keys.identity.clone().into()),
            (
                "known_hosts".to_owned(),
                self.keys.known_hosts(&hosts, self.ports.ssh).into(),
            ),
        ])
    }

    /// Ends both servers and all that they serve at this moment: connections are cut, later ones
    /// are refused.
    ///
    /// # Errors
    /// When one does not end.
    pub fn stop(&mut self) -> Result<()> {
        for child in &mut self.running {
            processes::end(child)?;
        }
        self.running.clear();
        processes::end_orphans(&self.here().canonicalize()?)
    }

    /// Starts them again, on the same ports.
    ///
    /// # Errors
    /// When one does not come up; with the end of its log.
    pub fn resume(&mut self) -> Result<()> {
        ensure!(self.running.is_empty(), "the server runs already");
        let here = self.here().to_owned();
        let ssh = ["-D", "-e", "-f"];
        let web = ["-D", "-f"];
        for (program, arguments, name) in [
            ("/usr/sbin/lighttpd", &web[..], "lighttpd"),
            ("/usr/sbin/sshd", &ssh[..], "sshd"),
        ] {
            let mut command = Command::new(program);
            command
                .args(arguments)
                .arg(here.join(format!("{name}.conf")));
            let child = self.network.spawn(command, &here.join(name_of_log(name)))?;
            self.running.push(child);
        }
        if let Err(error) = self.wait_until_it_listens() {
            self.stop()?;
            return Err(error);
        }
        Ok(())
    }

    /// Gives the ssh server other host keys: clients that know the old ones must not talk to it.
    ///
    /// # Errors
    /// When a key cannot be made, or a server does not come up again.
    pub fn renew_host_keys(&mut self) -> Result<()> {
        self.stop()?;
        self.keys.renew_host(self.folder.path())?;
        self.resume()
    }

    /// Lets both hang: connections are accepted and nothing is answered, until [`Server::thaw`].
    ///
    /// # Errors
    /// When one has ended.
    pub fn freeze(&self) -> Result<()> {
        self.running.iter().try_for_each(processes::freeze)
    }

    /// Lets them answer again.
    ///
    /// # Errors
    /// When one has ended.
    pub fn thaw(&self) -> Result<()> {
        self.running.iter().try_for_each(processes::thaw)
    }

    /// All that the servers wrote, for a look after a failure and for searches of secrets.
    ///
    /// # Errors
    /// When a log cannot be read.
    pub fn log_text(&self) -> Result<String> {
        let mut text = String::new();
        for name in ["lighttpd", "sshd", "access"] {
            text.push_str(&fs::read_to_string(self.here().join(name_of_log(name)))?);
        }
        Ok(text)
    }

    fn here(&self) -> &Path {
        self.folder.path()
    }

    fn configure(&self) -> Result<()> {
        let here = self.here();
        let user = format!("{USERNAME}:{}\n", self.keys.password);
        write_private(&here.join("passwords"), &user)?;
        let lighttpd = scripts::lighttpd(here, self.address, self.ports.https, self.ports.http);
        write_private(&here.join("lighttpd.conf"), &lighttpd)?;
        let sshd = scripts::sshd(here, self.address, self.ports.ssh);
        write_private(&here.join("sshd.conf"), &sshd)
    }

    fn wait_until_it_listens(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        for port in self.ports.all() {
            let address = (self.address, port);
            while let Err(error) = self.network.run(move || TcpStream::connect(address))? {
                self.fail_if_ended()?;
                ensure!(
                    Instant::now() < deadline,
                    "nothing listens on port {port}: {error}; {}",
                    self.tails()
                );
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        // Somebody else may answer on the port that ours could not have.
        self.fail_if_ended()
    }

    fn fail_if_ended(&mut self) -> Result<()> {
        for child in &mut self.running {
            if let Some(status) = child.try_wait()? {
                bail!("a server {}; {}", process::ended(status), self.tails());
            }
        }
        Ok(())
    }

    fn tails(&self) -> String {
        let tail = |name| process::tail(&self.here().join(name_of_log(name)));
        format!("lighttpd: {}; sshd: {}", tail("lighttpd"), tail("sshd"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        match self.stop() {
            // What is left dies with the network's thread, which ends next.
            Ok(()) | Err(_) => {}
        }
    }
}

fn name_of_log(name: &str) -> String {
    format!("{name}.log")
}

/// Folders, scripts and git's settings: the same for all ports.
fn prepare(here: &Path) -> Result<()> {
    ensure!(
        !here.to_string_lossy().contains('\''),
        "'{}' has a quote in it, which scripts do not",
        here.display()
    );
    for folder in ["repositories", "uploads"] {
        fs::create_dir(here.join(folder))?;
    }
    for log in ["activity", "access.log"] {
        fs::write(here.join(log), "")?;
    }
    fs::write(here.join("gitconfig"), scripts::git_settings(here))?;
    for (name, text) in scripts::programs(here) {
        write_program(&here.join(name), &text)?;
    }
    // Compiled into sshd, made by the package's service, which does not run here.
    let separation = Path::new("/run/sshd");
    if nix::unistd::geteuid().is_root() && !separation.exists() {
        fs::create_dir_all(separation).context("cannot make sshd's folder")?;
    }
    Ok(())
}

/// sshd lets only real users in; without root only the one that it runs as.
fn whoami() -> Result<String> {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid())?;
    Ok(user.context("this user has no name")?.name)
}

fn free_ports(network: &Network) -> Result<Ports> {
    let address = network.address();
    network.run(move || {
        // All held at once, so that they differ.
        let listeners = [0; 3].map(|any| TcpListener::bind((address, any)));
        let mut ports = Vec::new();
        for listener in listeners {
            ports.push(listener.context("cannot listen")?.local_addr()?.port());
        }
        let [https, http, ssh] = ports[..] else {
            bail!("no three ports");
        };
        Ok(Ports { https, http, ssh })
    })?
}

fn is_port_taken(error: &anyhow::Error) -> bool {
    error.to_string().contains("ddress already in use")
}

fn write_private(path: &Path, text: &str) -> Result<()> {
    write(path, text, 0o600)
}

fn write_program(path: &Path, text: &str) -> Result<()> {
    write(path, text, 0o700)
}

/// Aside first: a server that runs sees the whole old file or the whole new one.
fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    let mut aside = PathBuf::from(path).into_os_string();
    aside.push(".new");
    fs::write(&aside, text)
        .and_then(|()| fs::set_permissions(&aside, fs::Permissions::from_mode(mode)))
        .and_then(|()| fs::rename(&aside, path))
        .with_context(|| format!("cannot write '{}'", path.display()))
}
