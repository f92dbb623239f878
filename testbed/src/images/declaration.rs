//! `image.toml`: what an image is made of, validated once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::addition::Addition;

/// Name of the file that declares an image, in the folder that gives the image its name.
pub const DECLARATION: &str = "image.toml";

/// Registry host of all test images: no real registry answers under it, so that an image which
/// was not imported fails to start instead of being pulled from somewhere.
pub const REGISTRY: &str = "testbed.local";

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A declared image.
///
/// Guarantees: made only by [`Image::load`]; the names, the tag and the paths are well formed,
/// no two entries write the same path, and the files beside the declaration that it names exist.
#[derive(Clone, Debug)]
pub struct Image {
    pub(super) registry: String,
    pub(super) name: String,
    pub(super) tag: String,
    pub(super) addition: Option<Addition>,
    pub(super) dir: PathBuf,
    pub(super) packages: BTreeSet<String>,
    pub(super) files: BTreeMap<ImagePath, File>,
    pub(super) links: BTreeMap<ImagePath, String>,
    pub(super) users: Vec<User>,
    pub(super) script: Option<PathBuf>,
    pub(super) runtime: Runtime,
}

/// A file to put into the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    pub(super) from: Source,
    pub(super) mode: u32,
}

/// Where a file comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// `part:…` or `cargo:…`, as written: the caller's resolver knows where it was built.
    Built(String),
    /// A file beside the declaration, relative to its folder.
    Beside(PathBuf),
}

/// An entry of `/etc/passwd`, with a group of the same name and number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) id: u32,
    pub(super) home: String,
    pub(super) shell: String,
}

/// How a container of the image runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Runtime {
    pub(super) entrypoint: Vec<String>,
    pub(super) cmd: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) user: Option<u32>,
    pub(super) workdir: Option<ImagePath>,
}

/// An absolute path in an image, other than `/`, without `.`, `..` and empty components, and not
/// in `/proc`, `/sys` or `/dev`, whose content an image does not carry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ImagePath(String);

impl ImagePath {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let Some(relative) = text.strip_prefix('/') else {
            bail!("{text:?} is not an absolute path");
        };
        for component in relative.split('/') {
            ensure!(
                !matches!(component, "" | "." | "..") && !component.contains(char::is_control),
                "{text:?} has an empty, `.`, `..` or unprintable component"
            );
        }
        let top = relative.split('/').next().unwrap_or_default();
        ensure!(
            !matches!(top, "proc" | "sys" | "dev"),
            "{text:?} is in a folder that the container runtime fills"
        );
        Ok(Self(text.to_owned()))
    }

    /// The path without its leading `/`.
    pub(super) fn relative(&self) -> &str {
        &self.0[1..]
    }
}

impl fmt::Display for ImagePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `image.toml` as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawImage {
    tag: String,
    /// Only clusters with this addition load the image; all clusters if absent.
    addition: Option<String>,
    /// Debian packages, unpacked with what they depend on but not configured.
    #[serde(default)]
    packages: Vec<String>,
    #[serde(default)]
    files: Vec<RawFile>,
    /// Symbolic links: path in the image = target.
    #[serde(default)]
    links: BTreeMap<String, String>,
    /// In addition to root 0, app 65532 and nobody 65534.
    #[serde(default)]
    users: Vec<RawUser>,
    /// A file beside the declaration, run by the image's `/bin/sh -eu` in a chroot with network;
    /// the files beside the declaration are in `/run/image`. `/run` and `/tmp` are not kept.
    script: Option<String>,
    #[serde(default)]
    entrypoint: Vec<String>,
    #[serde(default)]
    cmd: Vec<String>,
    /// In addition to a usual `PATH`.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Number of user and group; root if absent. A number, because the kubelet cannot tell from
    /// a name that it is not root's.
    user: Option<u32>,
    workdir: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    /// `part:PART/BINARY`, `cargo:BINARY` or `./FILE`.
    from: String,
    to: String,
    /// If absent, 0o755 for binaries and 0o644 for files beside the declaration.
    mode: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawUser {
    name: String,
    /// Of the user, and of a group of the same name.
    id: u32,
    /// If absent, `/tmp`.
    home: Option<String>,
    /// If absent, `/bin/sh`.
    shell: Option<String>,
}

impl Image {
    /// Reads and validates the declaration in the folder `dir`; the folder's name is the image's.
    pub fn load(dir: &Path) -> Result<Self> {
        let name = dir
            .file_name()
            .and_then(|name| name.to_str())
            .with_context(|| format!("{} has no name that an image can have", dir.display()))?;
        Self::read(name, dir).with_context(|| {
            format!(
                "image {name}: declaration {}",
                dir.join(DECLARATION).display()
            )
        })
    }

    fn read(name: &str, dir: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(dir.join(DECLARATION))?;
        let image = Self::validate(name, dir, toml::from_str(&text)?)?;
        image.check_files_beside()?;
        Ok(image)
    }

    /// All images declared in the folders of `root`, by name. A folder without a declaration is
    /// an error: it would be an image that silently does not exist.
    pub fn load_all(root: &Path) -> Result<Vec<Self>> {
        let listing = || format!("list images in {}", root.display());
        let mut dirs = Vec::new();
        for entry in std::fs::read_dir(root).with_context(listing)? {
            let entry = entry.with_context(listing)?;
            if entry.file_type().with_context(listing)?.is_dir() {
                dirs.push(entry.path());
            }
        }
        dirs.sort();
        dirs.iter().map(|dir| Self::load(dir)).collect()
    }

    /// The image's name: that of its folder.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The addition that loads the image, or `None` if every cluster does.
    #[must_use]
    pub fn addition(&self) -> Option<Addition> {
        self.addition
    }

    /// What pods write in `image:`, `testbed.local/NAME:TAG` unless it is for another registry.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("{}/{}:{}", self.registry, self.name, self.tag)
    }

    /// The sources that the resolver will be asked for, such as `part:coredns/coredns`.
    pub fn sources(&self) -> impl Iterator<Item = &str> {
        self.files.values().filter_map(|file| match &file.from {
            Source::Built(source) => Some(source.as_str()),
            Source::Beside(_) => None,
        })
    }

    fn validate(name: &str, dir: &Path, raw: RawImage) -> Result<Self> {
        let RawImage {
            tag,
            addition,
            packages,
            files,
            links,
            users,
            script,
            entrypoint,
            cmd,
            env,
            user,
            workdir,
        } = raw;
        ensure!(
            is_image_name(name),
            "{name:?} is not [a-z0-9] words joined by `-`"
        );
        ensure!(
            is_tag(&tag),
            "tag {tag:?} is not [A-Za-z0-9][A-Za-z0-9._]*, or is `latest`"
        );
        let addition = addition.map(|name| name.parse()).transpose()?;
        for package in &packages {
            ensure!(
                is_package_name(package),
                "package {package:?} is not a Debian package name"
            );
        }
        let files = validate_files(files)?;
        let links = validate_links(links, &files)?;
        let users = validate_users(users)?;
        let script = script
            .map(|script| beside(&script).context("script"))
            .transpose()?;
        ensure!(
            !(entrypoint.is_empty() && cmd.is_empty()),
            "neither entrypoint nor cmd: a container would have nothing to run"
        );
        let env = validate_env(env)?;
        let workdir = workdir
            .map(|path| ImagePath::parse(&path).context("workdir"))
            .transpose()?;
        Ok(Self {
            registry: REGISTRY.to_owned(),
            name: name.to_owned(),
            tag,
            addition,
            dir: dir.to_owned(),
            packages: packages.into_iter().collect(),
            files,
            links,
            users,
            script,
            runtime: Runtime {
                entrypoint,
                cmd,
                env,
                user,
                workdir,
            },
        })
    }

    fn check_files_beside(&self) -> Result<()> {
        let files = self.files.values().filter_map(|file| match &file.from {
            Source::Built(_) => None,
            Source::Beside(path) => Some(path),
        });
        for path in files.chain(&self.script) {
            let metadata = std::fs::symlink_metadata(self.dir.join(path))
                .with_context(|| format!("file {}", path.display()))?;
            ensure!(
                metadata.is_file(),
                "{} is not a regular file",
                path.display()
            );
        }
        Ok(())
    }
}

fn validate_files(raw: Vec<RawFile>) -> Result<BTreeMap<ImagePath, File>> {
    let mut files = BTreeMap::new();
    for RawFile { from, to, mode } in raw {
        let to = ImagePath::parse(&to).context("files.to")?;
        let from = Source::parse(&from).with_context(|| format!("file {to}: from"))?;
        let mode = mode.unwrap_or(match from {
            Source::Built(_) => 0o755,
            Source::Beside(_) => 0o644,
        });
        ensure!(
            mode <= 0o7777,
            "file {to}: mode {mode:#o} is more than 0o7777"
        );
        ensure!(
            files.insert(to.clone(), File { from, mode }).is_none(),
            "{to} is declared twice"
        );
    }
    Ok(files)
}

fn validate_links(
    raw: BTreeMap<String, String>,
    files: &BTreeMap<ImagePath, File>,
) -> Result<BTreeMap<ImagePath, String>> {
    let mut links = BTreeMap::new();
    for (path, target) in raw {
        let path = ImagePath::parse(&path).context("links")?;
        ensure!(
            !target.is_empty() && !target.contains(char::is_control),
            "link {path}: target {target:?} is empty or unprintable"
        );
        ensure!(
            !files.contains_key(&path),
            "{path} is declared as file and as link"
        );
        links.insert(path, target);
    }
    Ok(links)
}

/// The declared users after those that every image has.
fn validate_users(raw: Vec<RawUser>) -> Result<Vec<User>> {
    let user = |name: &str, id, home: &str, shell: &str| User {
        name: name.to_owned(),
        id,
        home: home.to_owned(),
        shell: shell.to_owned(),
    };
    let mut users = vec![
        user("root", 0, "/root", "/bin/sh"),
        user("app", 65532, "/tmp", "/bin/sh"),
        user("nobody", 65534, "/nonexistent", "/usr/sbin/nologin"),
    ];
    for RawUser {
        name,
        id,
        home,
        shell,
    } in raw
    {
        ensure!(
            is_image_name(&name),
            "user {name:?} is not [a-z0-9] words joined by `-`"
        );
        ensure!(
            users.iter().all(|user| user.name != name && user.id != id),
            "user {name} ({id}) is there already; every image has root 0, app 65532, nobody 65534"
        );
        let path = |value: Option<String>, default: &str| {
            let text = value.unwrap_or_else(|| default.to_owned());
            ensure!(!text.contains(':'), "{text:?} has a `:`");
            ImagePath::parse(&text).map(|path| path.to_string())
        };
        let home = path(home, "/tmp").with_context(|| format!("user {name}: home"))?;
        let shell = path(shell, "/bin/sh").with_context(|| format!("user {name}: shell"))?;
        users.push(User {
            name,
            id,
            home,
            shell,
        });
    }
    users.sort_by_key(|user| user.id);
    Ok(users)
}

fn validate_env(mut env: BTreeMap<String, String>) -> Result<BTreeMap<String, String>> {
    for (key, value) in &env {
        ensure!(
            !key.is_empty() && !key.contains('=') && !format!("{key}{value}").contains('\0'),
            "env {key:?} is not a name that a process can have in its environment"
        );
    }
    env.entry("PATH".to_owned())
        .or_insert_with(|| DEFAULT_PATH.to_owned());
    Ok(env)
}

impl Source {
    fn parse(text: &str) -> Result<Self> {
        let built = |names: &[&str]| {
            ensure!(
                names.iter().all(|name| is_file_name(name)),
                "{text:?} names no binary"
            );
            Ok(Self::Built(text.to_owned()))
        };
        if let Some(rest) = text.strip_prefix("part:") {
            let Some((part, binary)) = rest.split_once('/') else {
                bail!("{text:?} is not part:PART/BINARY");
            };
            built(&[part, binary])
        } else if let Some(package) = text.strip_prefix("cargo:") {
            built(&[package])
        } else if let Some(path) = text.strip_prefix("./") {
            beside(path).map(Self::Beside)
        } else {
            bail!("{text:?} is none of part:PART/BINARY, cargo:BINARY and ./FILE")
        }
    }
}

/// A relative path that stays in the image's folder.
fn beside(text: &str) -> Result<PathBuf> {
    let path = Path::new(text);
    ensure!(
        !text.is_empty()
            && path
                .components()
                .all(|part| matches!(part, Component::Normal(_))),
        "{text:?} is not a path below the image's folder"
    );
    Ok(path.to_owned())
}

fn is_image_name(text: &str) -> bool {
    text.split('-').all(|word| {
        !word.is_empty()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    })
}

/// Stricter than registries are: without `-`, `NAME-TAG-KEY` can be taken apart again.
fn is_tag(text: &str) -> bool {
    text != "latest"
        && text.len() <= 128
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_'))
}

fn is_package_name(text: &str) -> bool {
    text.len() >= 2
        && text.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit())
        && text.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'+' | b'.' | b'-')
        })
}

fn is_file_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'+'))
}

#[cfg(test)]
mod tests;
