//! Building a part into the cache.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use super::Part;
use crate::{lock::Lock, process};

/// The largest part takes 5 minutes on two idle cores; a machine ten times slower still ends.
const BUILD_LIMIT: Duration = Duration::from_secs(3000);
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(1200);
/// A progress line at most this often.
const PROGRESS_EVERY: u64 = 20;

/// What building one part did.
#[derive(Debug)]
pub struct Built {
    /// Its finished folder.
    pub folder: PathBuf,
    /// How long it took; nothing when the cache had it.
    pub took: Option<Duration>,
}

/// Builds those of `parts` that `cache` lacks, one after another, and tells `progress` a line at a time.
///
/// Guarantees: a finished part is never touched; an unfinished one is never visible (built aside,
/// then renamed); a second builder waits for the first; Go's caches are gone when it returns, and
/// those of a killed builder at the next start.
///
/// # Errors
/// At the first part that fails, with the end of its log.
pub fn build(parts: &[Part], cache: &Path, progress: &mut dyn FnMut(&str)) -> Result<Vec<Built>> {
    fs::create_dir_all(cache.join("parts"))
        .with_context(|| format!("cannot create '{}'", cache.display()))?;
    fs::create_dir_all(cache.join("log"))?;
    let _lock = Lock::take(&cache.join("lock"), &mut |holder| {
        progress(&format!(
            "waiting: {holder} is building into '{}'",
            cache.display()
        ));
    })?;
    let work = cache.join("work");
    remove(&work)?;
    let result = parts
        .iter()
        .map(|part| build_one(part, cache, &work, progress))
        .collect();
    remove(&work)?;
    result
}

fn build_one(
    part: &Part,
    cache: &Path,
    work: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<Built> {
    let folder = part.folder(cache);
    let title = format!("{} {}", part.name, part.version);
    if folder.is_dir() {
        progress(&format!("{title}: cached"));
        return Ok(Built { folder, took: None });
    }
    progress(&format!("{title}: building"));
    let start = Instant::now();
    let log = cache.join("log").join(format!("{}.log", part.name));
    fs::write(&log, "")?;
    let made = work.join("made");
    remove(&made)?;
    fs::create_dir_all(made.join("bin"))?;

    // The recipe is built from a copy: Go must not write into the checkout.
    let source = work.join("source");
    remove(&source)?;
    copy(&part.source, &source)?;
    let mut told = 0;
    let mut ticker = |elapsed: Duration| {
        if elapsed.as_secs() >= told + PROGRESS_EVERY {
            told = elapsed.as_secs();
            progress(&format!("{title}: still building, {told} s"));
        }
    };
    process::run(
        &mut go_build(part, &source, work, &made),
        &log,
        BUILD_LIMIT,
        &mut ticker,
    )?;
    finish(part, &source, work, &made, &log)?;
    fs::create_dir_all(cache.join("parts"))?;
    fs::rename(&made, &folder)
        .with_context(|| format!("cannot move the finished part to '{}'", folder.display()))?;
    let took = start.elapsed();
    progress(&format!(
        "{title}: built in {} s, {} MB",
        took.as_secs(),
        size(&folder)? / 1_000_000
    ));
    Ok(Built {
        folder,
        took: Some(took),
    })
}

fn go(part: &Part, source: &Path, work: &Path) -> Command {
    let mut command = Command::new("go");
    command
        .current_dir(source)
        .env("GOFLAGS", "-mod=readonly -modcacherw -buildvcs=false")
        .env("GOWORK", "off")
        .env("GOTOOLCHAIN", "local")
        .env("GOCACHE", work.join("gocache"))
        .env("GOMODCACHE", work.join("gomodcache"))
        .env("GOTMPDIR", work)
        .env("CGO_ENABLED", if part.recipe.cgo { "1" } else { "0" });
    command
}

fn go_build(part: &Part, source: &Path, work: &Path, made: &Path) -> Command {
    let mut flags = vec!["-s".to_owned(), "-w".to_owned()];
    flags.extend(
        part.recipe
            .ldflags
            .iter()
            .map(|flag| flag.replace("{version}", &part.version)),
    );
    let mut command = go(part, source, work);
    command
        .args(["build", "-trimpath", "-tags"])
        .arg(part.recipe.tags.join(","));
    command.arg("-ldflags").arg(flags.join(" "));
    command.arg("-o").arg(made.join("bin/"));
    command.arg(if source.join("main.go").is_file() {
        "."
    } else {
        "tool"
    });
    command
}

/// Gives binaries their names, copies the kept files of the module, and checks that all is there.
fn finish(part: &Part, source: &Path, work: &Path, made: &Path, log: &Path) -> Result<()> {
    for (from, to) in &part.recipe.rename {
        fs::rename(made.join("bin").join(from), made.join("bin").join(to))
            .with_context(|| format!("part '{}': no binary '{from}' was made", part.name))?;
    }
    ensure!(
        fs::read_dir(made.join("bin"))?.next().is_some(),
        "part '{}': no binary was made",
        part.name
    );
    if part.recipe.keep.is_empty() {
        return Ok(());
    }
    let listed = work.join("module-folder");
    fs::write(&listed, "")?;
    process::run(
        go(part, source, work)
            .args(["list", "-m", "-f", "{{.Dir}}"])
            .arg(&part.recipe.module),
        &listed,
        DOWNLOAD_LIMIT,
        &mut |_| (),
    )?;
    let text = fs::read_to_string(&listed)?;
    let Some(module) = text
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with('/'))
    else {
        bail!(
            "part '{}': go did not say where the module is; see '{}'",
            part.name,
            log.display()
        );
    };
    for kept in &part.recipe.keep {
        copy(&Path::new(module).join(kept), &made.join("keep").join(kept))
            .with_context(|| format!("part '{}': keep '{kept}'", part.name))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    } else {
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::copy(from, to).with_context(|| format!("cannot copy '{}'", from.display()))?;
    }
    Ok(())
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot remove '{}'", path.display())),
    }
}

fn size(path: &Path) -> Result<u64> {
    let data = fs::symlink_metadata(path)?;
    if !data.is_dir() {
        return Ok(data.len());
    }
    let mut total = 0;
    for entry in fs::read_dir(path)? {
        total += size(&entry?.path())?;
    }
    Ok(total)
}
