//! The root folder of an image: packages, users, files, links, and a script in it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::unistd::Uid;

use super::Resolver;
use super::declaration::{Image, ImagePath, Source, User};
use crate::process;

const SUITE: &str = "bookworm";
const MERGED_USR_HOOK: &str = "/usr/share/mmdebstrap/hooks/merged-usr";

/// Downloads of tens of megabytes; seen: 4 s to 25 s.
const PACKAGES_LIMIT: Duration = Duration::from_secs(5 * 60);
/// `pip install` from the network; seen: 30 s.
const SCRIPT_LIMIT: Duration = Duration::from_secs(10 * 60);
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
    let log = work.join("packages.log");
    process::run(&command, &log, PACKAGES_LIMIT, &mut |_| ())
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
    let log = work.join("script.log");
    process::run(&command, &log, SCRIPT_LIMIT, &mut |_| ())
}

/// A command whose first argument is a program to run in mount and process namespaces of its
/// own, as the first process there: when it ends, or is killed, or, as [`process::run`] sees to,
/// this process is, nothing that it started goes on and nothing that it mounted stays. Its
/// environment is not the caller's, but for a proxy on the way to the network.
fn contained() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]).args([
        "--pid",
        "--fork",
        "--kill-child=KILL",
        "--mount-proc",
    ]);
    // One by one: `process::run` does not see `env_clear`.
    for (name, _) in std::env::vars_os() {
        command.env_remove(name);
    }
    command
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
    fn a_contained_program_has_none_of_the_caller_s_variables() {
        let work = tempfile::tempdir().unwrap();
        let given = contained();
        let mut command = Command::new("env");
        for (name, value) in given.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let log = work.path().join("log");
        process::run(&command, &log, Duration::from_secs(60), &mut |_| ()).unwrap();
        let text = fs::read_to_string(log).unwrap();
        assert!(
            text.contains("SOURCE_DATE_EPOCH=") && !text.contains("CARGO"),
            "{text}"
        );
    }
}
