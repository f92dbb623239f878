//! The root folder of an image: packages, users, files, links, and a script in it.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::Uid;

use super::Resolver;
use super::declaration::{Image, ImagePath, Source, User};

const SUITE: &str = "bookworm";
const MERGED_USR_HOOK: &str = "/usr/share/mmdebstrap/hooks/merged-usr";

/// Downloads of tens of megabytes; seen: 4 s to 25 s.
const PACKAGES_LIMIT: Duration = Duration::from_secs(5 * 60);
/// `pip install` from the network; seen: 30 s.
const SCRIPT_LIMIT: Duration = Duration::from_secs(10 * 60);
/// How much of a failed command's output an error shows.
const SHOWN_LINES: usize = 20;
const SHOWN_BYTES: usize = 4000;
/// As in the kernel.
const MAX_SYMLINKS: usize = 40;

/// What mmdebstrap, apt and dpkg leave behind, and what it copies from the host.
const LEFTOVERS: [&str; 14] = [
    "/etc/apt",
    "/etc/dpkg",
    "/etc/fstab",
    "/etc/hostname",
    "/etc/machine-id",
    "/etc/resolv.conf",
    "/usr/share/doc",
    "/usr/share/lintian",
    "/usr/share/locale",
    "/usr/share/man",
    "/var/cache/apt",
    "/var/lib/apt",
    "/var/lib/dpkg",
    "/var/log/apt",
];
/// Folders that stay for the programs that write to them, without the files in them, which
/// differ from build to build (logs, ldconfig's aux-cache, debconf).
const EMPTIED: [&str; 2] = ["/var/cache", "/var/log"];

/// Runs in a mount and process namespace of its own. All that the script needs from the host is
/// mounted over the root folder there, so none of it can stay in the image, nor stay mounted.
const ENTER_SCRIPT: &str = r#"
set -eu
root=$1 beside=$2 script=$3
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=0755 tmpfs "$root/dev"
for device in null zero full random urandom; do
    : > "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=0755 tmpfs "$root/run"
mkdir "$root/run/image"
mount --bind "$beside" "$root/run/image"
mount -o remount,bind,ro "$root/run/image"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/run/ca.crt"
cp -L /etc/resolv.conf "$root/run/resolv.conf"
mount --bind "$root/run/resolv.conf" "$root/etc/resolv.conf"
cd /
exec chroot "$root" /bin/sh -eu "/run/image/$script"
"#;

/// Makes the root folder of `image` at `root`, which must not exist. `work` is for logs.
pub(super) fn make(
    image: &Image,
    root: &Path,
    work: &Path,
    resolve: &Resolver<'_>,
    progress: &dyn Fn(&str),
) -> Result<()> {
    if image.packages.is_empty() {
        fs::create_dir(root).with_context(|| format!("create {}", root.display()))?;
    } else {
        progress("packages");
        extract_packages(image, root, work).context("packages")?;
    }
    progress("files");
    make_base_folders(root).context("base folders")?;
    write_users(root, &image.users).context("users")?;
    for (to, file) in &image.files {
        let from = match &file.from {
            Source::Built(source) => resolve(source)?,
            Source::Beside(path) => image.dir.join(path),
        };
        add_file(root, &from, to, file.mode)
            .with_context(|| format!("file {to} from {}", from.display()))?;
    }
    for (path, target) in &image.links {
        add_link(root, path, target).with_context(|| format!("link {path} to {target}"))?;
    }
    if let Some(script) = &image.script {
        progress("script");
        run_script(image, script, root, work)
            .with_context(|| format!("script {}", script.display()))?;
    }
    remove_leftovers(root).context("remove leftovers")
}

fn extract_packages(image: &Image, root: &Path, work: &Path) -> Result<()> {
    require_root("mmdebstrap sets owners")?;
    let packages: Vec<_> = image.packages.iter().map(String::as_str).collect();
    let mut command = contained();
    command
        .args([
            "mmdebstrap",
            "--mode=root",
            "--variant=extract",
            "--format=directory",
        ])
        .arg(format!("--hook-dir={MERGED_USR_HOOK}"))
        .arg("--aptopt=Acquire::Languages \"none\"")
        .arg("--aptopt=APT::Install-Recommends \"false\"")
        .arg("--aptopt=Acquire::Retries \"3\"")
        .arg("--dpkgopt=path-exclude=/usr/share/man/*")
        .arg("--dpkgopt=path-exclude=/usr/share/doc/*")
        .arg("--dpkgopt=path-exclude=/usr/share/locale/*")
        .arg(format!("--include={}", packages.join(",")))
        .arg(SUITE)
        .arg(root);
    run(command, &work.join("packages.log"), PACKAGES_LIMIT)
}

fn run_script(image: &Image, script: &Path, root: &Path, work: &Path) -> Result<()> {
    require_root("the script runs in a chroot")?;
    let shell = in_root(root, Path::new("/bin/sh"))?;
    ensure!(
        shell.symlink_metadata().is_ok(),
        "the image has no /bin/sh: add a package with one, or a link to busybox"
    );
    // Only a place to mount the host's over; removed with the leftovers.
    let resolv_conf = in_root(root, Path::new("/etc"))?.join("resolv.conf");
    remove(&resolv_conf)?;
    fs::write(&resolv_conf, "").with_context(|| format!("create {}", resolv_conf.display()))?;

    let mut command = contained();
    command
        .args(["sh", "-c", ENTER_SCRIPT, "sh"])
        .arg(root)
        .arg(&image.dir)
        .arg(script);
    command.env("HOME", "/root").env("TMPDIR", "/tmp");
    for variable in [
        "SSL_CERT_FILE",
        "CURL_CA_BUNDLE",
        "GIT_SSL_CAINFO",
        "PIP_CERT",
        "REQUESTS_CA_BUNDLE",
    ] {
        command.env(variable, "/run/ca.crt");
    }
    run(command, &work.join("script.log"), SCRIPT_LIMIT)
}

/// A command whose first argument is a program to run in mount and process namespaces of its
/// own, as the first process there: when it ends, or is killed, or this process is, nothing that
/// it started goes on and nothing that it mounted stays. Its environment is not the caller's, but
/// for a proxy on the way to the network.
///
/// The thread that starts it must be the one that waits for it: its end is the signal to stop.
fn contained() -> Command {
    let mut command = Command::new("setpriv");
    command
        .args([
            "--pdeathsig",
            "KILL",
            "unshare",
            "--mount",
            "--propagation",
            "private",
        ])
        .args(["--pid", "--fork", "--kill-child=KILL", "--mount-proc"])
        .env_clear()
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .env("LC_ALL", "C.UTF-8")
        .env("DEBIAN_FRONTEND", "noninteractive")
        // Bytecode that names its source's time would be stale in an image, where times are 0.
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // The first second that zip archives, such as wheels, can express.
        .env("SOURCE_DATE_EPOCH", "315532800");
    for proxy in ["http_proxy", "https_proxy", "no_proxy"] {
        if let Some(value) = std::env::var_os(proxy) {
            command.env(proxy, value);
        }
    }
    command
}

/// Runs `command` to its end, its output in the file `log`.
fn run(mut command: Command, log: &Path, limit: Duration) -> Result<()> {
    let output = File::create(log).with_context(|| format!("create {}", log.display()))?;
    let errors = output
        .try_clone()
        .with_context(|| format!("open {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    let end = match wait(&mut command, limit) {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => format!("failed: {status}"),
        Err(error) => format!("{error:#}"),
    };
    bail!(
        "{} {end}; its last lines:\n{}",
        shown(&command),
        last_lines(log)
    )
}

fn wait(command: &mut Command, limit: Duration) -> Result<ExitStatus> {
    let start = Instant::now();
    let mut child = command.spawn().context("could not be started")?;
    loop {
        if let Some(status) = child.try_wait().context("could not be waited for")? {
            return Ok(status);
        }
        if start.elapsed() >= limit {
            child.kill().context("could not be killed")?;
            child.wait().context("could not be waited for")?;
            bail!("took longer than {} s and was killed", limit.as_secs_f32());
        }
        sleep(Duration::from_millis(20));
    }
}

/// The program and its arguments on one line, without scripts.
fn shown(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .filter(|word| !word.contains('\n'))
        .collect();
    words.join(" ")
}

fn last_lines(log: &Path) -> String {
    let bytes = match fs::read(log) {
        Ok(bytes) => bytes,
        Err(error) => return format!("(its output could not be read: {error})"),
    };
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(SHOWN_BYTES)..]);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}

fn require_root(why: &str) -> Result<()> {
    ensure!(Uid::effective().is_root(), "needs root: {why}");
    Ok(())
}

fn make_base_folders(root: &Path) -> Result<()> {
    set_mode(root, 0o755)?;
    for (folder, mode) in [
        ("/dev", 0o755),
        ("/etc", 0o755),
        ("/proc", 0o755),
        ("/root", 0o700),
        ("/run", 0o755),
        ("/sys", 0o755),
        ("/tmp", 0o1777),
    ] {
        let path = make_folder(root, Path::new(folder))?;
        set_mode(&path, mode)?;
    }
    Ok(())
}

fn write_users(root: &Path, users: &[User]) -> Result<()> {
    let mut passwd = String::new();
    let mut group = String::new();
    for User {
        name,
        id,
        home,
        shell,
    } in users
    {
        passwd += &format!("{name}:x:{id}:{id}:{name}:{home}:{shell}\n");
        let name = if name == "nobody" { "nogroup" } else { name };
        group += &format!("{name}:x:{id}:\n");
    }
    for (path, content) in [("/etc/passwd", passwd), ("/etc/group", group)] {
        let path = place(root, Path::new(path))?;
        fs::write(&path, content).with_context(|| format!("write {}", path.display()))?;
        set_mode(&path, 0o644)?;
    }
    Ok(())
}

fn add_file(root: &Path, from: &Path, to: &ImagePath, mode: u32) -> Result<()> {
    let to = place(root, Path::new(to.relative()))?;
    ensure!(from.is_file(), "{} is not a file", from.display());
    fs::copy(from, &to).context("copy")?;
    set_mode(&to, mode)
}

fn add_link(root: &Path, path: &ImagePath, target: &str) -> Result<()> {
    let path = place(root, Path::new(path.relative()))?;
    symlink(target, &path).with_context(|| format!("create {}", path.display()))
}

/// The place on this machine for the entry `path` of the image: its folder exists, and nothing
/// is there. What was there is removed, unless it is a folder.
fn place(root: &Path, path: &Path) -> Result<PathBuf> {
    let name = path
        .file_name()
        .with_context(|| format!("{} has no name", path.display()))?;
    let folder = make_folder(root, path.parent().unwrap_or(Path::new("/")))?;
    let place = folder.join(name);
    remove(&place)?;
    Ok(place)
}

fn make_folder(root: &Path, path: &Path) -> Result<PathBuf> {
    let mut folder = PathBuf::from("/");
    for part in path.components() {
        let Component::Normal(part) = part else {
            continue;
        };
        folder.push(part);
        let real = in_root(root, &folder)?;
        if !real.is_dir() {
            fs::create_dir(&real).with_context(|| format!("create {}", real.display()))?;
            set_mode(&real, 0o755)?;
        }
    }
    in_root(root, path)
}

/// Where the image's `path` is on this machine, with the links on the way read as a container
/// would: an absolute link in the image must not lead to this machine's own files.
fn in_root(root: &Path, path: &Path) -> Result<PathBuf> {
    let mut todo: Vec<_> = path
        .components()
        .rev()
        .map(|part| part.as_os_str().to_owned())
        .collect();
    let mut done = PathBuf::new();
    let mut links = 0;
    while let Some(part) = todo.pop() {
        match Path::new(&part).components().next() {
            Some(Component::Normal(_)) => {}
            Some(Component::ParentDir) => {
                done.pop();
                continue;
            }
            Some(Component::RootDir | Component::CurDir | Component::Prefix(_)) | None => continue,
        }
        let here = root.join(&done).join(&part);
        match fs::read_link(&here) {
            Ok(target) => {
                links += 1;
                ensure!(links <= MAX_SYMLINKS, "{}: too many links", path.display());
                if target.is_absolute() {
                    done = PathBuf::new();
                }
                todo.extend(
                    target
                        .components()
                        .rev()
                        .map(|part| part.as_os_str().to_owned()),
                );
            }
            // Not there yet, or not a link.
            Err(_) => done.push(part),
        }
    }
    Ok(root.join(done))
}

fn remove_leftovers(root: &Path) -> Result<()> {
    for path in LEFTOVERS.map(Path::new) {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            continue;
        };
        let path = in_root(root, parent)?.join(name);
        if path
            .symlink_metadata()
            .is_ok_and(|metadata| metadata.is_dir())
        {
            fs::remove_dir_all(&path).with_context(|| format!("remove {}", path.display()))?;
        } else {
            remove(&path)?;
        }
    }
    for folder in EMPTIED {
        let folder = in_root(root, Path::new(folder))?;
        if folder.is_dir() {
            remove_files(&folder)?;
        }
    }
    Ok(())
}

fn remove_files(folder: &Path) -> Result<()> {
    let reading = || format!("read {}", folder.display());
    for entry in fs::read_dir(folder).with_context(reading)? {
        let entry = entry.with_context(reading)?;
        if entry.file_type().with_context(reading)?.is_dir() {
            remove_files(&entry.path())?;
        } else {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a file or link; that there is none is fine.
fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", path.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| format!("set the mode of {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_in_the_image_do_not_lead_out_of_it() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        for (path, target) in [
            ("bin", "usr/bin"),
            ("abs", "/usr"),
            ("up", "../../../../usr/bin"),
            ("usr/bin/back", "../../etc"),
            ("loop", "loop"),
        ] {
            symlink(target, root.join(path)).unwrap();
        }
        for (path, real) in [
            ("/bin/sh", "usr/bin/sh"),
            ("/abs/bin/sh", "usr/bin/sh"),
            ("/up/sh", "usr/bin/sh"),
            ("/bin/back/passwd", "etc/passwd"),
            ("/not/there", "not/there"),
            ("/", ""),
        ] {
            assert_eq!(
                in_root(root, Path::new(path)).unwrap(),
                root.join(real),
                "{path}"
            );
        }
        assert!(in_root(root, Path::new("/loop/x")).is_err());
    }

    #[test]
    fn a_placed_entry_replaces_a_link_not_what_it_points_to() {
        let root = tempfile::tempdir().unwrap();
        let outside = tempfile::NamedTempFile::new().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        symlink(outside.path(), root.path().join("etc/passwd")).unwrap();
        write_users(root.path(), &[]).unwrap();
        assert!(
            root.path()
                .join("etc/passwd")
                .symlink_metadata()
                .unwrap()
                .is_file()
        );
        assert!(outside.path().exists());
    }

    #[test]
    fn leftovers_go_and_folders_for_logs_stay() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for folder in [
            "etc/apt",
            "var/lib/dpkg/info",
            "var/log/redis",
            "var/cache/ldconfig",
        ] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for file in [
            "etc/hostname",
            "var/log/dpkg.log",
            "var/cache/ldconfig/aux-cache",
            "etc/a",
        ] {
            fs::write(root.join(file), "x").unwrap();
        }
        remove_leftovers(root).unwrap();
        for (path, stays) in [
            ("etc/apt", false),
            ("etc/hostname", false),
            ("etc/a", true),
            ("var/lib/dpkg", false),
            ("var/log/dpkg.log", false),
            ("var/log/redis", true),
            ("var/cache/ldconfig/aux-cache", false),
        ] {
            assert_eq!(root.join(path).exists(), stays, "{path}");
        }
    }

    #[test]
    fn a_failed_command_says_what_it_said_last() {
        let work = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "for i in $(seq 99); do echo line $i >&2; done; exit 3",
        ]);
        let error = run(command, &work.path().join("log"), Duration::from_secs(60)).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("exit status: 3"), "{error}");
        assert!(
            error.ends_with("line 99") && !error.contains("line 79\n"),
            "{error}"
        );
    }

    #[test]
    fn a_command_past_its_limit_is_killed() {
        let work = tempfile::tempdir().unwrap();
        let start = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-c", "echo waiting; exec sleep 60"]);
        let error = run(
            command,
            &work.path().join("log"),
            Duration::from_millis(300),
        )
        .unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.contains("killed") && error.contains("waiting"),
            "{error}"
        );
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}
