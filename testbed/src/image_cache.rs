//! The images of `testbed/images/`, built into the cache of the parts.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use crate::{
    addition::Addition,
    cache,
    images::{self, Image},
    layout, parts,
};

/// Builds those of `wanted` that the cache lacks.
///
/// # Errors
/// At the first image that fails, or whose parts are not built.
pub fn build(wanted: &[Image], progress: &dyn Fn(&str)) -> Result<()> {
    let _lock = cache::lock(&layout::cache()?, &mut |line| progress(line))?;
    for image in wanted {
        let start = std::time::Instant::now();
        let known = archive(image).is_ok();
        let archive = images::build(image, &folder()?, &resolve, progress)?;
        let size = std::fs::metadata(&archive)?.len() / 1_000_000;
        let how = if known {
            "cached".to_owned()
        } else {
            format!("built in {} s, {size} MB", start.elapsed().as_secs())
        };
        progress(&format!("image {}: {how}", image.reference()));
    }
    Ok(())
}

/// The archives of the images of these names; of all, when there are none.
///
/// # Errors
/// When one is unknown or not built, with the command that builds it.
pub fn archives(names: &[String]) -> Result<Vec<PathBuf>> {
    let images = declared()?;
    if names.is_empty() {
        return images.iter().map(archive).collect();
    }
    let find = |name: &String| images.iter().find(|image| image.name() == name);
    names
        .iter()
        .map(|name| archive(find(name).with_context(|| format!("no image '{name}'"))?))
        .collect()
}

/// The archives that every cluster loads, or those that an addition loads.
///
/// # Errors
/// When one is not built, with the command that builds it.
pub fn archives_of(addition: Option<Addition>) -> Result<Vec<PathBuf>> {
    let images = declared()?;
    let wanted = images.iter().filter(|image| image.addition() == addition);
    wanted.map(archive).collect()
}

/// All images of this checkout.
///
/// # Errors
/// When a declaration is wrong.
pub fn declared() -> Result<Vec<Image>> {
    Image::load_all(&layout::testbed().join("images"))
}

fn folder() -> Result<PathBuf> {
    Ok(layout::cache()?.join("images"))
}

fn archive(image: &Image) -> Result<PathBuf> {
    let path = folder()?.join(image.archive_name(&resolve)?);
    ensure!(
        path.is_file(),
        "image '{}' is not built: run 'cargo xtask testbed build'",
        image.reference()
    );
    Ok(path)
}

/// Binaries that images take from the cache: `part:PART/BINARY`.
fn resolve(source: &str) -> Result<PathBuf> {
    let Some((part, binary)) = source
        .strip_prefix("part:")
        .and_then(|rest| rest.split_once('/'))
    else {
        bail!("'{source}' is not of the form 'part:PART/BINARY'");
    };
    parts::binary(part, binary).with_context(|| format!("source '{source}'"))
}
