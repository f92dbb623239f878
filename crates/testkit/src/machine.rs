//! What is on this machine outside of any cluster: to check that a cluster left nothing behind.

use std::{
    collections::BTreeSet,
    fmt, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::layout;

/// Everything that a cluster could leave behind, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    things: BTreeSet<Thing>,
}

/// One thing that exists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thing {
    /// A process of a cluster: by control group, by its program or by its arguments.
    Process(String),
    /// A mount in the machine's own namespace.
    Mount(String),
    /// A network link of the machine.
    Link(String),
    /// A control group of a cluster.
    Cgroup(PathBuf),
    /// A port that something listens on.
    Port(u16),
    /// A loop device in use.
    Loop(String),
    /// A named network namespace, or one that a process holds.
    Network(String),
    /// A cluster's folder.
    Folder(PathBuf),
}

impl fmt::Display for Thing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(text) => write!(out, "process {text}"),
            Self::Mount(text) => write!(out, "mount {text}"),
            Self::Link(text) => write!(out, "link {text}"),
            Self::Cgroup(path) => write!(out, "control group {}", path.display()),
            Self::Port(port) => write!(out, "port {port}"),
            Self::Loop(text) => write!(out, "loop device {text}"),
            Self::Network(text) => write!(out, "network namespace {text}"),
            Self::Folder(path) => write!(out, "folder {}", path.display()),
        }
    }
}

impl Snapshot {
    /// Looks at the machine.
    ///
    /// # Errors
    /// When something cannot be read: not to see is not to find nothing.
    pub fn take() -> Result<Self> {
        let mut things = BTreeSet::new();
        processes(&mut things)?;
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        things.extend(mounts.lines().map(|line| Thing::Mount(line.to_owned())));
        links(&mut things)?;
        cgroups(Path::new("/sys/fs/cgroup"), &mut things)?;
        for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
            if Path::new(table).exists() {
                things.extend(listening(&fs::read_to_string(table)?).map(Thing::Port));
            }
        }
        loops(&mut things)?;
        for folder in ["/run/netns", "/var/run/netns"] {
            things.extend(names(Path::new(folder))?.into_iter().map(Thing::Network));
        }
        things.extend(
            names(&layout::state().join("run"))?
                .into_iter()
                .map(|name| Thing::Folder(name.into())),
        );
        Ok(Self { things })
    }

    /// What is here and was not in `before`.
    pub fn since<'a>(&'a self, before: &'a Self) -> Vec<&'a Thing> {
        self.things.difference(&before.things).collect()
    }
}

/// A process of a cluster is in its control group, or is a part, or works in a cluster's folder.
fn processes(things: &mut BTreeSet<Thing>) -> Result<()> {
    let state = layout::state();
    let parts = layout::cache()?.join("parts");
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let pid = entry.file_name().to_string_lossy().into_owned();
        if !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let (Some(arguments), Some(groups), Some(status)) = (
            content(&entry.path().join("cmdline"))?,
            content(&entry.path().join("cgroup"))?,
            content(&entry.path().join("status"))?,
        ) else {
            continue; // ended while we looked
        };
        // A zombie is the table's entry of a process that has ended.
        if status
            .lines()
            .any(|line| line.starts_with("State:") && (line.contains('Z') || line.contains('X')))
        {
            continue;
        }
        let arguments = arguments.replace('\0', " ");
        let ours = groups.contains("/testbed-")
            || arguments.contains(&state.display().to_string())
            || arguments.contains(&parts.display().to_string());
        if ours {
            things.insert(Thing::Process(format!(
                "{pid}: {}",
                arguments.chars().take(120).collect::<String>()
            )));
        }
        match fs::read_link(entry.path().join("ns/net")) {
            Ok(namespace) => {
                things.insert(Thing::Network(namespace.display().to_string()));
            }
            // Some machines hide their own first process even from root; ours are never hidden.
            Err(error) if vanished(&error) || error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error).context("cannot read a process's network namespace"),
        }
    }
    Ok(())
}

fn links(things: &mut BTreeSet<Thing>) -> Result<()> {
    let output = Command::new("ip")
        .args(["-o", "link"])
        .output()
        .context("cannot run 'ip'")?;
    ensure!(
        output.status.success(),
        "'ip link' failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    things.extend(
        text.lines()
            .filter_map(|line| line.split(": ").nth(1))
            .map(|name| Thing::Link(name.to_owned())),
    );
    Ok(())
}

fn cgroups(folder: &Path, things: &mut BTreeSet<Thing>) -> Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if vanished(&error) => return Ok(()),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read '{}'", folder.display()));
        }
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            if entry.file_name().to_string_lossy().starts_with("testbed-") {
                things.insert(Thing::Cgroup(entry.path()));
            }
            cgroups(&entry.path(), things)?;
        }
    }
    Ok(())
}

/// State 0A is LISTEN; the local address is `HEX:HEXPORT`.
fn listening(table: &str) -> impl Iterator<Item = u16> {
    table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, port) = fields.get(1)?.rsplit_once(':')?;
        match (fields.get(3), u16::from_str_radix(port, 16)) {
            (Some(&"0A"), Ok(port)) => Some(port),
            (_, Ok(_) | Err(_)) => None,
        }
    })
}

fn loops(things: &mut BTreeSet<Thing>) -> Result<()> {
    for name in names(Path::new("/sys/block"))? {
        let file = Path::new("/sys/block")
            .join(&name)
            .join("loop/backing_file");
        if let Some(backing) = content(&file)? {
            things.insert(Thing::Loop(format!("{name} on {}", backing.trim())));
        }
    }
    Ok(())
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    match fs::read_dir(folder) {
        Ok(entries) => {
            for entry in entries {
                names.push(entry?.file_name().to_string_lossy().into_owned());
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read '{}'", folder.display()));
        }
    }
    Ok(names)
}

fn content(path: &Path) -> Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if vanished(&error) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read '{}'", path.display())),
    }
}

/// ESRCH: the process ended; ENODEV: the control group went away.
fn vanished(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || matches!(error.raw_os_error(), Some(3 | 19))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_that_listen_are_read_from_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue\n   0: 0100007F:1F90 00000000:0000 0A 0\n   1: 0100007F:1F91 0100007F:1F90 01 0\n";
        assert_eq!(listening(table).collect::<Vec<_>>(), [8080]);
    }

    #[test]
    fn a_listening_port_is_seen() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        assert!(listening(&table).any(|found| found == port));
    }
}
