//! Images for tests, made without a Docker daemon.
//!
//! An image is a folder with an `image.toml` ([`Image::load`]); [`build`] makes an archive of it
//! that `ctr images import`, `kind load image-archive`, `docker load` and skopeo read. It is done
//! in the order of the declaration's fields: Debian `packages` with what they depend on, `users`,
//! `files`, `links`, then the `script` in a chroot of the result.
//!
//! Caveats: packages are unpacked, not configured: what their maintainer scripts would do (users,
//! alternatives, the bundle of CA certificates) is the script's to do. Versions are those of the
//! day of the build: an archive is remade when its inputs here change, not when Debian does.
//! Packages and scripts need root and the network; files alone need neither.

mod declaration;
mod oci;
mod rootfs;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

pub use declaration::{DECLARATION, Image, REGISTRY};

use crate::cache;

/// Finds the binary of a source such as `part:coredns/coredns` or `cargo:csi-btrfs`.
pub type Resolver<'a> = dyn Fn(&str) -> Result<PathBuf> + 'a;

/// Part of every key: raise it when the same inputs shall give another archive.
const FORMAT: u32 = 1;
const KEY_LENGTH: usize = 12;
const WORK_PREFIX: &str = ".work-";

impl Image {
    /// The same image under another registry's name than [`REGISTRY`]: one that is not for tests.
    #[must_use]
    pub fn in_registry(mut self, registry: &str) -> Self {
        registry.clone_into(&mut self.registry);
        self
    }

    /// Hash, in hexadecimal, over all inputs: the declaration, the files beside it, the content
    /// of the built binaries, this machine's architecture and the archive's format.
    pub fn key(&self, resolve: &Resolver<'_>) -> Result<String> {
        self.hash_inputs(resolve)
            .map(|hash| format!("{:x}", hash.finalize()))
            .with_context(|| format!("image {}: key", self.name()))
    }

    /// Name of the archive that [`build`] makes: `NAME-TAG-KEY.tar`.
    pub fn archive_name(&self, resolve: &Resolver<'_>) -> Result<String> {
        let key = self.key(resolve)?;
        Ok(format!(
            "{}-{}-{}.tar",
            self.name,
            self.tag,
            &key[..KEY_LENGTH]
        ))
    }

    fn hash_inputs(&self, resolve: &Resolver<'_>) -> Result<Sha256> {
        let mut hash = Sha256::new();
        oci::hash_bytes(&mut hash, &FORMAT.to_le_bytes());
        oci::hash_bytes(&mut hash, std::env::consts::ARCH.as_bytes());
        oci::hash_bytes(&mut hash, self.reference().as_bytes());
        hash_folder(&mut hash, &self.dir, Path::new(""))?;
        for source in self.sources() {
            oci::hash_bytes(&mut hash, source.as_bytes());
            oci::hash_file(&mut hash, &resolve(source)?).with_context(|| source.to_owned())?;
        }
        Ok(hash)
    }
}

/// Makes the archive of `image` in `out_dir` if it is not there yet, and returns its path,
/// `NAME-TAG-KEY.tar`.
///
/// Guarantees: an archive that has its name is whole, and is not touched again. Of each image the
/// newest three archives are kept, and this one; work folders of builds that were killed are
/// removed. An error names the image, the step and, if a command failed, its last lines.
///
/// Caveats: the caller sees to it that only one build works in `out_dir` at a time. Blocks, up to
/// 15 minutes for packages and script; `progress` hears of each step, not more often.
pub fn build(
    image: &Image,
    out_dir: &Path,
    resolve: &Resolver<'_>,
    progress: &dyn Fn(&str),
) -> Result<PathBuf> {
    let name = image.archive_name(resolve)?;
    let context = |step: &'static str| move || format!("image {}: {step}", image.name());
    fs::create_dir_all(out_dir).with_context(context("create the output folder"))?;
    let out_dir = out_dir
        .canonicalize()
        .with_context(context("find the output folder"))?;
    remove_stale_work(&out_dir).with_context(context("remove stale work folders"))?;

    let archive = out_dir.join(&name);
    if !archive
        .try_exists()
        .with_context(context("look for the archive"))?
    {
        let work = out_dir.join(format!("{WORK_PREFIX}{name}"));
        fs::create_dir(&work).with_context(context("create the work folder"))?;
        let progress = |step: &str| progress(&format!("image {}: {step}", image.name()));
        let made = make_archive(image, &work, &archive, resolve, &progress);
        let removed = cache::remove_folder(&work, cache::REMOVE_LIMIT);
        made.with_context(context("build"))?;
        removed.with_context(context("remove the work folder"))?;
    }
    remove_old_archives(&out_dir, image.name(), &archive)
        .with_context(context("remove old archives"))?;
    Ok(archive)
}

fn make_archive(
    image: &Image,
    work: &Path,
    archive: &Path,
    resolve: &Resolver<'_>,
    progress: &dyn Fn(&str),
) -> Result<()> {
    let root = work.join("root");
    rootfs::make(image, &root, work, resolve, progress)?;
    progress("archive");
    let layer = work.join("layer.tar");
    let blob = oci::write_layer(&root, &layer).context("layer")?;
    let whole = work.join("archive.tar");
    oci::write_archive(image, &layer, &blob, &whole).context("archive")?;
    fs::rename(&whole, archive).with_context(|| format!("rename to {}", archive.display()))
}

fn hash_folder(hash: &mut Sha256, root: &Path, folder: &Path) -> Result<()> {
    let path = root.join(folder);
    let mut entries = Vec::new();
    let reading = || format!("read {}", path.display());
    for entry in fs::read_dir(&path).with_context(reading)? {
        let entry = entry.with_context(reading)?;
        entries.push((
            folder.join(entry.file_name()),
            entry.file_type().with_context(reading)?,
        ));
    }
    entries.sort_by(|(left, _), (right, _)| left.cmp(right));
    for (entry, kind) in entries {
        if kind.is_dir() {
            hash_folder(hash, root, &entry)?;
        } else if kind.is_file() {
            oci::hash_path(hash, &entry);
            oci::hash_file(hash, &root.join(&entry))?;
        } else {
            bail!("{} is neither file nor folder", root.join(&entry).display());
        }
    }
    Ok(())
}

fn remove_stale_work(out_dir: &Path) -> Result<()> {
    cache::entries(out_dir, |name| name.starts_with(WORK_PREFIX))?
        .iter()
        .try_for_each(|work| cache::remove_folder(work, cache::REMOVE_LIMIT))
}

fn remove_old_archives(out_dir: &Path, image: &str, current: &Path) -> Result<()> {
    let belongs = |name: &str| image_of_archive(name) == Some(image);
    for path in cache::outdated(out_dir, current, belongs)? {
        fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
    }
    Ok(())
}

/// The NAME of `NAME-TAG-KEY.tar`, None for other files. Names may have a `-`, tags and keys not.
fn image_of_archive(file_name: &str) -> Option<&str> {
    let (rest, key) = file_name.strip_suffix(".tar")?.rsplit_once('-')?;
    let (image, _tag) = rest.rsplit_once('-')?;
    let is_key = key.len() == KEY_LENGTH && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_key && !image.is_empty()).then_some(image)
}

#[cfg(test)]
mod tests;
