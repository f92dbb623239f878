//! A folder as one layer, and the layer as an archive that can be imported.
//!
//! The same folder gives the same bytes: entries are sorted, times are 0, owners are numbers.
//! Headers are ustar with PAX records where ustar ends, the form that all readers know.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use nix::unistd::{Gid, Uid};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::declaration::{Image, Runtime};

/// File capabilities, such as those of `newuidmap`: the one extended attribute that changes what
/// a program may do.
const CAPABILITY: &str = "security.capability";
const CAPABILITY_RECORD: &str = "SCHILY.xattr.security.capability";

/// Folders that the container runtime fills: the image has them empty.
const RUNTIME_FOLDERS: [&str; 3] = ["dev", "proc", "sys"];

const MEDIA_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MEDIA_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const MEDIA_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MEDIA_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// What identifies a blob of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blob {
    sha256: String,
    size: u64,
}

impl Blob {
    fn of(bytes: &[u8]) -> Self {
        Self {
            sha256: format!("{:x}", Sha256::digest(bytes)),
            size: bytes.len() as u64,
        }
    }

    fn digest(&self) -> String {
        format!("sha256:{}", self.sha256)
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.sha256)
    }
}

/// Writes the folder `root` as an uncompressed layer: images are imported on the machine that
/// made them, where compressing costs more than it saves.
///
/// Guarantees: setuid bits, file capabilities, symbolic and hard links are kept. Devices, sockets
/// and pipes are left out, and what is in `/dev`, `/proc`, `/sys`. Files of the user who builds
/// are root's in the image, so that no root is needed to build from files alone.
pub(super) fn write_layer(root: &Path, to: &Path) -> Result<Blob> {
    let file = File::create_new(to).with_context(|| format!("create {}", to.display()))?;
    let hashing = Hashing {
        inner: BufWriter::new(file),
        hash: Sha256::new(),
        size: 0,
    };
    let mut layer = Layer {
        tar: Builder::new(hashing),
        uid: Uid::effective().as_raw(),
        gid: Gid::effective().as_raw(),
        hard_links: HashMap::new(),
    };
    layer.append_folder(root, "")?;
    let mut hashing = layer.tar.into_inner().context("finish the layer")?;
    hashing.flush().context("finish the layer")?;
    Ok(Blob {
        sha256: format!("{:x}", hashing.hash.finalize()),
        size: hashing.size,
    })
}

struct Hashing<W> {
    inner: W,
    hash: Sha256,
    size: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

struct Layer<W: Write> {
    tar: Builder<W>,
    uid: u32,
    gid: u32,
    /// Name in the layer of each file that has more than one, by device and inode.
    hard_links: HashMap<(u64, u64), String>,
}

impl<W: Write> Layer<W> {
    fn append_folder(&mut self, folder: &Path, name: &str) -> Result<()> {
        let reading = || format!("read {}", folder.display());
        let mut entries = Vec::new();
        for entry in fs::read_dir(folder).with_context(reading)? {
            entries.push(entry.with_context(reading)?.file_name());
        }
        entries.sort();
        for entry in entries {
            let path = folder.join(&entry);
            let entry = entry
                .to_str()
                .with_context(|| format!("{}: the name is not UTF-8", path.display()))?;
            let name = if name.is_empty() {
                entry.to_owned()
            } else {
                format!("{name}/{entry}")
            };
            self.append_entry(&path, &name)
                .with_context(|| format!("add {} to the layer", path.display()))?;
        }
        Ok(())
    }

    fn append_entry(&mut self, path: &Path, name: &str) -> Result<()> {
        let metadata = fs::symlink_metadata(path)?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            self.append(
                EntryType::Directory,
                &format!("{name}/"),
                &metadata,
                "",
                None,
                io::empty(),
            )?;
            if !RUNTIME_FOLDERS.contains(&name) {
                self.append_folder(path, name)?;
            }
        } else if kind.is_symlink() {
            let target = fs::read_link(path)?;
            let target = target.to_str().context("the link's target is not UTF-8")?;
            self.append(
                EntryType::Symlink,
                name,
                &metadata,
                target,
                None,
                io::empty(),
            )?;
        } else if kind.is_file() {
            self.append_file(path, name, &metadata)?;
        } else {
            // A new kind of special file would need a decision: these are left out knowingly.
            ensure!(
                kind.is_block_device()
                    || kind.is_char_device()
                    || kind.is_fifo()
                    || kind.is_socket(),
                "unknown kind of file"
            );
        }
        Ok(())
    }

    fn append_file(&mut self, path: &Path, name: &str, metadata: &Metadata) -> Result<()> {
        if metadata.nlink() > 1 {
            let inode = (metadata.dev(), metadata.ino());
            if let Some(first) = self.hard_links.get(&inode).cloned() {
                return self.append(EntryType::Link, name, metadata, &first, None, io::empty());
            }
            self.hard_links.insert(inode, name.to_owned());
        }
        let capability = xattr::get(path, CAPABILITY).context("read its capabilities")?;
        let content = BufReader::new(File::open(path)?);
        self.append(
            EntryType::Regular,
            name,
            metadata,
            "",
            capability.as_deref(),
            content,
        )
    }

    fn append(
        &mut self,
        kind: EntryType,
        name: &str,
        metadata: &Metadata,
        target: &str,
        capability: Option<&[u8]>,
        content: impl Read,
    ) -> Result<()> {
        let owner = |id, builder| if id == builder { 0 } else { u64::from(id) };
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(metadata.mode() & 0o7777);
        header.set_uid(owner(metadata.uid(), self.uid));
        header.set_gid(owner(metadata.gid(), self.gid));
        header.set_mtime(0);
        let is_content = kind == EntryType::Regular;
        header.set_size(if is_content { metadata.size() } else { 0 });

        let mut records: Vec<(&str, &[u8])> = Vec::new();
        let fields = header.as_ustar_mut().context("a ustar header is not one")?;
        if !fill(&mut fields.name, name) {
            records.push(("path", name.as_bytes()));
        }
        if !fill(&mut fields.linkname, target) {
            records.push(("linkpath", target.as_bytes()));
        }
        if let Some(capability) = capability {
            records.push((CAPABILITY_RECORD, capability));
        }
        header.set_cksum();
        self.tar.append_pax_extensions(records)?;
        self.tar.append(&header, content)?;
        Ok(())
    }
}

/// Writes `text` to a header field, as much as fits; false if readers need a PAX record for it.
fn fill(field: &mut [u8], text: &str) -> bool {
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = if from.is_ascii() { from } else { b'_' };
    }
    text.is_ascii() && text.len() <= field.len()
}

/// Writes the archive: an OCI image layout that is a Docker archive too, for tools that know only
/// one of the two.
pub(super) fn write_archive(image: &Image, layer: &Path, blob: &Blob, to: &Path) -> Result<()> {
    let reference = image.reference();
    let config = to_json(&config(&image.runtime, blob)?)?;
    let config_blob = Blob::of(&config);
    let manifest = to_json(&json!({
        "schemaVersion": 2,
        "mediaType": MEDIA_MANIFEST,
        "config": descriptor(MEDIA_CONFIG, &config_blob),
        "layers": [descriptor(MEDIA_LAYER, blob)],
    }))?;
    let manifest_blob = Blob::of(&manifest);
    let mut manifest_descriptor = descriptor(MEDIA_MANIFEST, &manifest_blob);
    manifest_descriptor["platform"] = json!({ "architecture": architecture()?, "os": "linux" });
    manifest_descriptor["annotations"] = json!({
        "io.containerd.image.name": reference,
        "org.opencontainers.image.ref.name": reference,
    });
    let index = to_json(&json!({
        "schemaVersion": 2,
        "mediaType": MEDIA_INDEX,
        "manifests": [manifest_descriptor],
    }))?;
    let docker = to_json(&json!([{
        "Config": config_blob.path(),
        "RepoTags": [reference],
        "Layers": [blob.path()],
    }]))?;

    let file = File::create_new(to).with_context(|| format!("create {}", to.display()))?;
    let mut tar = Builder::new(BufWriter::new(file));
    let small: [(&str, &[u8]); 5] = [
        ("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#),
        ("index.json", &index),
        ("manifest.json", &docker),
        (&config_blob.path(), &config),
        (&manifest_blob.path(), &manifest),
    ];
    for (name, content) in small {
        append_member(&mut tar, name, content.len() as u64, content)?;
    }
    let layer = File::open(layer).with_context(|| format!("open {}", layer.display()))?;
    append_member(&mut tar, &blob.path(), blob.size, layer)?;
    let file = tar.into_inner().and_then(|buffer| Ok(buffer.into_inner()?));
    // The archive is used for as long as its name exists: no half of it may survive a crash.
    file.and_then(|file| file.sync_all())
        .context("finish the archive")
}

fn append_member(
    tar: &mut Builder<impl Write>,
    name: &str,
    size: u64,
    content: impl Read,
) -> Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    tar.append_data(&mut header, name, content)
        .with_context(|| format!("add {name} to the archive"))
}

fn descriptor(media_type: &str, blob: &Blob) -> Value {
    json!({ "mediaType": media_type, "digest": blob.digest(), "size": blob.size })
}

fn config(runtime: &Runtime, layer: &Blob) -> Result<Value> {
    let Runtime {
        entrypoint,
        cmd,
        env,
        user,
        workdir,
    } = runtime;
    let env: Vec<_> = env
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let mut config = json!({ "Env": env });
    if !entrypoint.is_empty() {
        config["Entrypoint"] = json!(entrypoint);
    }
    if !cmd.is_empty() {
        config["Cmd"] = json!(cmd);
    }
    if let Some(user) = user {
        config["User"] = json!(format!("{user}:{user}"));
    }
    if let Some(workdir) = workdir {
        config["WorkingDir"] = json!(workdir.to_string());
    }
    Ok(json!({
        "created": "1970-01-01T00:00:00Z",
        "architecture": architecture()?,
        "os": "linux",
        "config": config,
        "rootfs": { "type": "layers", "diff_ids": [layer.digest()] },
        "history": [{ "created": "1970-01-01T00:00:00Z", "created_by": "testkit" }],
    }))
}

fn to_json(value: &Value) -> Result<Vec<u8>> {
    serde_json::to_vec(value).context("write JSON")
}

/// This machine's architecture, as images name it.
fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => anyhow::bail!("no image architecture is known for {other}"),
    }
}

/// Adds a file's content to a hash, preceded by its length, and reads it piece by piece.
pub(super) fn hash_file(hash: &mut Sha256, path: &Path) -> Result<()> {
    let reading = || format!("read {}", path.display());
    let mut file = File::open(path).with_context(reading)?;
    let size = file.metadata().with_context(reading)?.len();
    hash_bytes(hash, &size.to_le_bytes());
    io::copy(&mut file, hash).with_context(reading)?;
    Ok(())
}

/// Adds bytes to a hash, preceded by their length, so that no two lists of them look the same.
pub(super) fn hash_bytes(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

/// Adds a path to a hash.
pub(super) fn hash_path(hash: &mut Sha256, path: &Path) {
    hash_bytes(hash, path.as_os_str().as_bytes());
}
