//! What is on this machine outside of any cluster: to check that a cluster left nothing behind.

use std::{
    collections::BTreeSet,
    fmt, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::{
    cluster::{SUITES, SUITES_VARIABLE},
    layout,
};

/// The kubelet sets these, and they are the machine's own: no namespace has a copy.
pub(crate) const SETTINGS: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];
/// A process with another one of these than this process is in somebody's sandbox.
const NAMESPACES: [&str; 3] = ["ns/mnt", "ns/pid", "ns/net"];
/// State of a socket that waits for a peer: LISTEN of TCP, not connected of UDP.
const TABLES: [(&str, &str, &str); 4] = [
    ("TCP", "/proc/net/tcp", "0A"),
    ("TCP", "/proc/net/tcp6", "0A"),
    ("UDP", "/proc/net/udp", "07"),
    ("UDP", "/proc/net/udp6", "07"),
];
/// A user's path often lacks the folders of system programs: "not found" must mean "not installed".
pub const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Everything that a cluster could leave behind, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    things: BTreeSet<Thing>,
}

/// One thing that exists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thing {
    /// A process of a cluster (by control group, program or arguments), or in namespaces of its own.
    Process(String),
    /// A mount in the machine's own namespace.
    Mount(String),
    /// A network link of the machine.
    Link(String),
    /// An address of a link.
    Address(String),
    /// A route of any table.
    Route(String),
    /// A chain or rule of the firewall.
    Rule(String),
    /// A control group, whoever made it.
    Cgroup(PathBuf),
    /// A port that something listens on, and its protocol.
    Port(&'static str, u16),
    /// A setting of the kernel and its value.
    Setting(String),
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
            Self::Address(text) => write!(out, "address {text}"),
            Self::Route(text) => write!(out, "route {text}"),
            Self::Rule(text) => write!(out, "firewall rule {text}"),
            Self::Cgroup(path) => write!(out, "control group {}", path.display()),
            Self::Port(protocol, port) => write!(out, "{protocol} port {port}"),
            Self::Setting(text) => write!(out, "kernel setting {text}"),
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
        network(&mut things)?;
        firewall(&mut things)?;
        cgroups(Path::new("/sys/fs/cgroup"), &mut things)?;
        for (protocol, table, state) in TABLES {
            // A kernel without IPv6 has no tables of it.
            if let Some(table) = content(Path::new(table))? {
                things.extend(waiting(&table, state).map(|port| Thing::Port(protocol, port)));
            }
        }
        for name in SETTINGS {
            if let Some(value) = content(&Path::new("/proc/sys").join(name))? {
                things.insert(Thing::Setting(format!("{name} = {}", value.trim())));
            }
        }
        loops(&mut things)?;
        for folder in ["/run/netns", "/var/run/netns"] {
            things.extend(names(Path::new(folder))?.into_iter().map(Thing::Network));
        }
        // A folder that is being removed is moved to the second one first.
        for place in ["run", "trash"] {
            let place = layout::state()?.join(place);
            let found = names(&place)?.into_iter();
            things.extend(found.map(|name| Thing::Folder(place.join(name))));
        }
        Ok(Self { things })
    }

    /// What is here and was not in `before`.
    pub fn since<'a>(&'a self, before: &'a Self) -> Vec<&'a Thing> {
        self.things.difference(&before.things).collect()
    }
}

/// A process of a cluster is in its control group, is a part or a keeper, works in a cluster's
/// folder, or has namespaces of its own.
fn processes(things: &mut BTreeSet<Thing>) -> Result<()> {
    let state = layout::state()?.display().to_string();
    let parts = layout::cache()?.join("parts").display().to_string();
    let own_pid = std::process::id().to_string();
    let own_arguments = content(Path::new("/proc/self/cmdline"))?.unwrap_or_default();
    let own_namespaces = namespaces(Path::new("/proc/self"))?;
    for pid in names(Path::new("/proc"))? {
        if !pid.bytes().all(|byte| byte.is_ascii_digit()) || pid == own_pid {
            continue;
        }
        let folder = Path::new("/proc").join(&pid);
        let (Some(stat), Some(arguments), Some(groups)) = (
            content(&folder.join("stat"))?,
            content(&folder.join("cmdline"))?,
            content(&folder.join("cgroup"))?,
        ) else {
            continue; // ended while we looked
        };
        let stat = Stat::parse(&stat).with_context(|| format!("process {pid}: '{stat}'"))?;
        // A child that did not get to its program yet (`ip`, started by another thread) looks like
        // this process. A child that did is no exception: a keeper is one.
        if stat.is_over || stat.is_kernel || (stat.parent == own_pid && arguments == own_arguments)
        {
            continue;
        }
        let found = namespaces(&folder)?;
        if let Some(network) = &found[2] {
            things.insert(Thing::Network(network.display().to_string()));
        }
        let apart = found
            .iter()
            .zip(&own_namespaces)
            .any(|(found, own)| found.is_some() && found != own);
        let arguments = match arguments.replace('\0', " ") {
            empty if empty.is_empty() => stat.name,
            arguments => arguments,
        };
        if apart
            || groups.contains("/testbed-")
            || arguments.contains(&state)
            || arguments.contains(&parts)
            || is_keeper(&folder)?
        {
            let shown: String = arguments.chars().take(120).collect();
            things.insert(Thing::Process(format!("{pid}: {shown}")));
        }
    }
    Ok(())
}

/// What `/proc/PID/stat` says.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    name: String,
    parent: String,
    /// A zombie is the table's entry of a process that has ended.
    is_over: bool,
    /// Its namespaces are the first ones, which need not be this process's.
    is_kernel: bool,
}

impl Stat {
    fn parse(text: &str) -> Result<Self> {
        const PF_KTHREAD: u32 = 0x0020_0000;
        // The name is in brackets and may itself have brackets and spaces.
        let (start, rest) = text.rsplit_once(')').context("no name")?;
        let (_, name) = start.split_once('(').context("no name")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let [state, parent, _, _, _, _, flags, ..] = fields[..] else {
            anyhow::bail!("too short");
        };
        let flags: u32 = flags.parse().context("no flags")?;
        Ok(Self {
            name: name.to_owned(),
            parent: parent.to_owned(),
            is_over: matches!(state, "Z" | "X"),
            is_kernel: flags & PF_KTHREAD != 0,
        })
    }
}

/// As [`NAMESPACES`]; nothing for a process that is ending.
fn namespaces(process: &Path) -> Result<[Option<PathBuf>; 3]> {
    let [mount, pid, network] = NAMESPACES.map(|name| link(&process.join(name)));
    Ok([mount?, pid?, network?])
}

/// Returns whether its program is `suites`, or the program that `ORCHESTRATOR_SUITES` names.
fn is_keeper(process: &Path) -> Result<bool> {
    let Some(program) = link(&process.join("exe"))? else {
        return Ok(false);
    };
    // The program of a process that runs on after a new build has this ending.
    let program = program.to_string_lossy();
    let program = Path::new(program.trim_end_matches(" (deleted)"));
    Ok(program.file_name().is_some_and(|name| name == SUITES)
        || std::env::var_os(SUITES_VARIABLE).is_some_and(|path| Path::new(&path) == program))
}

/// Links, addresses and routes.
fn network(things: &mut BTreeSet<Thing>) -> Result<()> {
    let ip = |arguments: &str| {
        output("ip", arguments)?.context("'ip' is not installed (package iproute2)")
    };
    things.extend(
        ip("-o link")?
            .lines()
            .filter_map(|line| line.split(": ").nth(1))
            .map(|name| Thing::Link(name.to_owned())),
    );
    let addresses = ip("-o address")?;
    things.extend(addresses.lines().map(|line| Thing::Address(lasting(line))));
    let mut routes = ip("route show table all")?;
    // Without IPv6 in the kernel there is nothing to ask.
    if Path::new("/proc/net/if_inet6").exists() {
        routes.push_str(&ip("-6 route show table all")?);
    }
    things.extend(routes.lines().map(|line| Thing::Route(lasting(line))));
    Ok(())
}

/// A line of `ip` without what changes by itself: lifetimes, and the state of a link.
fn lasting(line: &str) -> String {
    let mut words = line
        .split_whitespace()
        .map(|word| word.trim_end_matches('\\'));
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "" | "tentative" | "linkdown" => {}
            "valid_lft" | "preferred_lft" | "expires" => {
                words.next();
            }
            word => kept.push(word),
        }
    }
    kept.join(" ")
}

fn firewall(things: &mut BTreeSet<Thing>) -> Result<()> {
    for program in ["iptables-save", "ip6tables-save"] {
        if let Some(text) = output(program, "")? {
            things.extend(rules(&text).map(|rule| Thing::Rule(format!("{program} {rule}"))));
        }
    }
    Ok(())
}

/// `TABLE: RULE` for each chain and rule, without packet counters and comments.
fn rules(text: &str) -> impl Iterator<Item = String> {
    let mut table = "";
    text.lines().filter_map(move |line| {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
            return None;
        }
        if line.is_empty() || line.starts_with('#') || line == "COMMIT" {
            return None;
        }
        let rule = match (line.starts_with(':'), line.split_once(" [")) {
            (true, Some((chain, _counters))) => chain,
            (true, None) | (false, _) => line,
        };
        Some(format!("{table}: {rule}"))
    })
}

/// What a program prints; nothing when it is not installed.
fn output(program: &str, arguments: &str) -> Result<Option<String>> {
    let output = match Command::new(program)
        .args(arguments.split_whitespace())
        .env("PATH", SYSTEM_PATH)
        .output()
    {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot run '{program}'")),
    };
    ensure!(
        output.status.success(),
        "'{program} {arguments}' failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// All of them: which ones a container runtime makes is what is to be found out.
fn cgroups(folder: &Path, things: &mut BTreeSet<Thing>) -> Result<()> {
    let unreadable = || format!("cannot read '{}'", folder.display());
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if vanished(&error) => return Ok(()),
        Err(error) => return Err(error).with_context(unreadable),
    };
    for entry in entries {
        match entry.and_then(|entry| Ok((entry.file_type()?.is_dir(), entry.path()))) {
            Ok((true, path)) => {
                cgroups(&path, things)?;
                things.insert(Thing::Cgroup(path));
            }
            Ok((false, _)) => {}
            Err(error) if vanished(&error) => {}
            Err(error) => return Err(error).with_context(unreadable),
        }
    }
    Ok(())
}

/// Local ports of the sockets in this state; the local address is `HEX:HEXPORT`.
fn waiting(table: &str, state: &str) -> impl Iterator<Item = u16> {
    table.lines().skip(1).filter_map(move |line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, port) = fields.get(1)?.rsplit_once(':')?;
        match (fields.get(3), u16::from_str_radix(port, 16)) {
            (Some(found), Ok(port)) if *found == state => Some(port),
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

fn link(path: &Path) -> Result<Option<PathBuf>> {
    match fs::read_link(path) {
        Ok(target) => Ok(Some(target)),
        Err(error) if vanished(&error) => Ok(None),
        // Some machines hide their first process even from root; it is not a cluster's.
        Err(error)
            if error.kind() == io::ErrorKind::PermissionDenied && path.starts_with("/proc/1") =>
        {
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| format!("cannot read '{}'", path.display())),
    }
}

/// ESRCH: the process ended; ENODEV: the control group went away.
fn vanished(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || matches!(error.raw_os_error(), Some(3 | 19))
}

#[cfg(test)]
mod tests {
    use std::{
        net::{TcpListener, UdpSocket},
        process::Child,
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn ports_that_wait_are_read_from_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue\n   0: 0100007F:1F90 00000000:0000 0A 0\n   1: 0100007F:1F91 0100007F:1F90 01 0\n   2: 00000000:0035 00000000:0000 07 0\n";
        assert_eq!(waiting(table, "0A").collect::<Vec<_>>(), [8080]);
        assert_eq!(waiting(table, "07").collect::<Vec<_>>(), [53]);
    }

    #[test]
    fn lifetimes_and_link_states_are_no_part_of_an_address_or_route() {
        let address = "4: eth0    inet6 fd00::2/64 scope global tentative dynamic \\       valid_lft 86391sec preferred_lft 14391sec";
        assert_eq!(
            lasting(address),
            "4: eth0 inet6 fd00::2/64 scope global dynamic"
        );
        let address = "1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever";
        assert_eq!(lasting(address), "1: lo inet 127.0.0.1/8 scope host lo");
        let route = "default via fe80::1 dev eth0 proto ra metric 100 expires 1793sec pref medium";
        assert_eq!(
            lasting(route),
            "default via fe80::1 dev eth0 proto ra metric 100 pref medium"
        );
    }

    #[test]
    fn rules_have_their_table_and_no_counters() {
        let text = "# Generated by iptables-save\n*nat\n:POSTROUTING ACCEPT [17:4]\n:KUBE - [0:0]\n-A KUBE -m comment --comment \"a [b\" -j RETURN\nCOMMIT\n# Completed\n*filter\n:INPUT DROP [1:2]\nCOMMIT\n";
        assert_eq!(
            rules(text).collect::<Vec<_>>(),
            [
                "nat: :POSTROUTING ACCEPT",
                "nat: :KUBE -",
                "nat: -A KUBE -m comment --comment \"a [b\" -j RETURN",
                "filter: :INPUT DROP",
            ]
        );
    }

    #[test]
    fn a_process_with_an_odd_name_is_read() {
        let zombie = Stat::parse("7 (a) Z (b) Z 3 7 7 0 -1 4194304 1 2").unwrap();
        assert_eq!(
            (zombie.name.as_str(), zombie.parent.as_str()),
            ("a) Z (b", "3")
        );
        assert!(zombie.is_over && !zombie.is_kernel);
        let kernel = Stat::parse("9 (kworker/0:0) I 2 0 0 0 -1 69238880 0 0").unwrap();
        assert!(kernel.is_kernel && !kernel.is_over);
        Stat::parse("7 (short) S").unwrap_err();
    }

    fn run(command: &str) -> Result<()> {
        let (program, arguments) = command.split_once(' ').unwrap();
        output(program, arguments).map(|text| assert!(text.is_some(), "no '{program}'"))
    }

    /// Undoes by a command, also when the test fails.
    struct Undo(String);

    impl Drop for Undo {
        fn drop(&mut self) {
            if let Err(error) = run(&self.0) {
                eprintln!("cannot undo: {error:#}");
            }
        }
    }

    struct Ends(Child);

    impl Drop for Ends {
        fn drop(&mut self) {
            if let Err(error) = self.0.kill().and_then(|()| self.0.wait()) {
                eprintln!("cannot end process {}: {error}", self.0.id());
            }
        }
    }

    /// Waits until `wanted` of `all` (beginning and part of a thing's text) are new since `before`.
    fn wait(before: &Snapshot, all: &[(String, String)], wanted: usize) {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let now = Snapshot::take().unwrap();
            let new: Vec<String> = now.since(before).iter().map(ToString::to_string).collect();
            let (seen, unseen): (Vec<_>, Vec<_>) = all.iter().partition(|(start, part)| {
                new.iter()
                    .any(|text| text.starts_with(start) && text.contains(part))
            });
            if seen.len() == wanted {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "wanted {wanted}; seen: {seen:?}; not seen: {unseen:?}; new: {new:#?}"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Only what this test makes is judged: other tests and their clusters are at work beside it.
    #[test]
    #[ignore = "root: run by 'cargo xtask test'"]
    fn what_a_cluster_could_leave_is_seen_and_is_not_seen_once_gone() {
        let before = Snapshot::take().unwrap();
        let settings = before.things.iter();
        let settings = settings.filter(|thing| matches!(thing, Thing::Setting(_)));
        assert_eq!(settings.count(), SETTINGS.len());
        let id = std::process::id();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        let mut all: Vec<(String, String)> = Vec::new();
        let mut expect = |start: &str, part: String| all.push((start.to_owned(), part));
        let mut undo = Vec::new();

        fs::create_dir(folder.path().join("mount")).unwrap();
        run(&format!("mount -t tmpfs none {path}/mount")).unwrap();
        undo.push(Undo(format!("umount {path}/mount")));
        expect("mount", format!("{path}/mount"));

        let image = format!("{path}/image");
        fs::write(&image, vec![0; 1 << 20]).unwrap();
        match output("losetup", &format!("--find --show {image}")) {
            Ok(device) => {
                undo.push(Undo(format!("losetup --detach {}", device.unwrap())));
                expect("loop device", image);
            }
            Err(error) => eprintln!("not tried: {error:#}"),
        }

        let groups = Path::new("/sys/fs/cgroup");
        let pids = groups.join("pids");
        let group = if pids.exists() { &pids } else { groups }.join(format!("kubepods-test-{id}"));
        let group = group.display();
        run(&format!("mkdir {group}")).unwrap();
        undo.push(Undo(format!("rmdir {group}")));
        expect("control group", group.to_string());

        let bridge = format!("tk{id}");
        run(&format!("ip link add {bridge} type bridge")).unwrap();
        undo.push(Undo(format!("ip link delete {bridge}")));
        expect("link", bridge.clone());
        run(&format!("ip address add 198.51.100.1/24 dev {bridge}")).unwrap();
        expect("address", format!("{bridge} inet 198.51.100.1/24"));
        run(&format!("ip link set {bridge} up")).unwrap();
        expect("route", format!("198.51.100.0/24 dev {bridge}"));

        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        expect("TCP port", tcp.local_addr().unwrap().port().to_string());
        expect("UDP port", udp.local_addr().unwrap().port().to_string());

        let mut ends = Vec::new();
        // Copied by another process: a program that this one has open for writing cannot start.
        run(&format!("cp /bin/sleep {path}/{SUITES}")).unwrap();
        for command in ["unshare -m sleep 30", &format!("{path}/{SUITES} 30")] {
            let words: Vec<&str> = command.split(' ').collect();
            let child = Command::new(words[0]).args(&words[1..]).spawn().unwrap();
            expect(&format!("process {}: ", child.id()), String::new());
            ends.push(Ends(child));
        }

        wait(&before, &all, all.len());
        drop((undo, tcp, udp, ends));
        wait(&before, &all, 0);
    }
}
