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
const LIST_LIMIT: Duration = Duration::from_secs(120);
/// A progress line at most this often.
const PROGRESS_EVERY: u64 = 20;
/// Results of one part that are kept: branches with other versions share a cache.
const KEPT: usize = 3;

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
/// those of a killed builder at the next start; of each part the newest three results are kept.
///
/// # Errors
/// At the first part that fails, with the end of its log.
pub fn build(parts: &[Part], cache: &Path, progress: &mut dyn FnMut(&str)) -> Result<Vec<Built>> {
    build_with(Path::new("go"), parts, cache, progress)
}

fn build_with(
    go: &Path,
    parts: &[Part],
    cache: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Built>> {
    for folder in ["parts", "log"] {
        let folder = cache.join(folder);
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create '{}'", folder.display()))?;
    }
    let _lock = Lock::take(&cache.join("lock"), &mut |holder| {
        progress(&format!(
            "waiting: {holder} is building into '{}'",
            cache.display()
        ));
    })?;
    let workshop = Workshop {
        go,
        work: cache.join("work"),
        cache,
    };
    remove(&workshop.work)?;
    let result = parts
        .iter()
        .map(|part| workshop.build(part, progress))
        .collect();
    remove(&workshop.work)?;
    result
}

struct Workshop<'a> {
    go: &'a Path,
    cache: &'a Path,
    /// Removed before and after: Go's caches, a copy of the recipe, the part in the making.
    work: PathBuf,
}

impl Workshop<'_> {
    fn build(&self, part: &Part, progress: &mut dyn FnMut(&str)) -> Result<Built> {
        let folder = part.folder(self.cache);
        let title = format!("{} {}", part.name, part.version);
        if folder.is_dir() {
            progress(&format!("{title}: cached"));
            return Ok(Built { folder, took: None });
        }
        progress(&format!("{title}: building"));
        let start = Instant::now();
        let made = self.make(part, &title, progress)?;
        fs::rename(&made, &folder)
            .with_context(|| format!("cannot move the finished part to '{}'", folder.display()))?;
        let took = start.elapsed();
        let size = size(&folder)? / 1_000_000;
        progress(&format!(
            "{title}: built in {} s, {size} MB",
            took.as_secs()
        ));
        self.prune(part)?;
        Ok(Built {
            folder,
            took: Some(took),
        })
    }

    fn make(&self, part: &Part, title: &str, progress: &mut dyn FnMut(&str)) -> Result<PathBuf> {
        let log = self.cache.join("log").join(format!("{}.log", part.name));
        fs::write(&log, "").with_context(|| format!("cannot write '{}'", log.display()))?;
        let made = self.work.join("made");
        remove(&made)?;
        fs::create_dir_all(made.join("bin"))?;
        // The recipe is built from a copy: Go must not write into the checkout.
        let source = self.work.join("source");
        remove(&source)?;
        copy(&part.source, &source)?;
        let mut told = 0;
        let mut ticker = |elapsed: Duration| {
            if elapsed.as_secs() >= told + PROGRESS_EVERY {
                told = elapsed.as_secs();
                progress(&format!("{title}: still building, {told} s"));
            }
        };
        let mut build = self.go_build(part, &source, &made);
        process::run(&mut build, &log, BUILD_LIMIT, &mut ticker)
            .with_context(|| format!("part '{}' does not build", part.name))?;
        self.finish(part, &source, &made)?;
        Ok(made)
    }

    fn go(&self, part: &Part, source: &Path) -> Command {
        let mut command = Command::new(self.go);
        command
            .current_dir(source)
            .env("GOFLAGS", "-mod=readonly -modcacherw -buildvcs=false")
            .env("GOWORK", "off")
            .env("GOTOOLCHAIN", "local")
            .env("GOCACHE", self.work.join("gocache"))
            .env("GOMODCACHE", self.work.join("gomodcache"))
            .env("GOTMPDIR", &self.work)
            .env("CGO_ENABLED", if part.recipe.cgo { "1" } else { "0" });
        command
    }

    fn go_build(&self, part: &Part, source: &Path, made: &Path) -> Command {
        let mut flags = vec!["-s".to_owned(), "-w".to_owned()];
        let more = part.recipe.ldflags.iter();
        flags.extend(more.map(|flag| flag.replace("{version}", &part.version)));
        let mut command = self.go(part, source);
        command.args(["build", "-trimpath", "-tags", &part.recipe.tags.join(",")]);
        command.args(["-ldflags", &flags.join(" ")]);
        command.arg("-o").arg(made.join("bin/"));
        command.arg(if source.join("main.go").is_file() {
            "."
        } else {
            "tool"
        });
        command
    }

    /// Gives binaries their names, copies the kept files of the module, checks that all is there.
    fn finish(&self, part: &Part, source: &Path, made: &Path) -> Result<()> {
        let name = &part.name;
        for (from, to) in &part.recipe.rename {
            fs::rename(made.join("bin").join(from), made.join("bin").join(to))
                .with_context(|| format!("part '{name}': no binary '{from}' was made"))?;
        }
        let some = fs::read_dir(made.join("bin"))?.next().is_some();
        ensure!(some, "part '{name}': no binary was made");
        if part.recipe.keep.is_empty() {
            return Ok(());
        }
        let listed = self.work.join("module-folder");
        fs::write(&listed, "")?;
        let mut list = self.go(part, source);
        list.args(["list", "-m", "-f", "{{.Dir}}", &part.recipe.module]);
        process::run(&mut list, &listed, LIST_LIMIT, &mut |_| ())?;
        let text = fs::read_to_string(&listed)?;
        let Some(module) = text
            .lines()
            .map(str::trim)
            .find(|line| line.starts_with('/'))
        else {
            bail!("part '{name}': go did not say where the module is, but: {text}");
        };
        for kept in &part.recipe.keep {
            copy(&Path::new(module).join(kept), &made.join("keep").join(kept))
                .with_context(|| format!("part '{name}': keep '{kept}'"))?;
        }
        Ok(())
    }

    fn prune(&self, part: &Part) -> Result<()> {
        let mut results = Vec::new();
        for entry in fs::read_dir(self.cache.join("parts"))? {
            let entry = entry?;
            // A version starts with 'v': 'kube-v1' is not a result of 'kube-router'.
            if entry
                .file_name()
                .to_string_lossy()
                .starts_with(&format!("{}-v", part.name))
            {
                results.push((entry.metadata()?.modified()?, entry.path()));
            }
        }
        results.sort();
        results
            .iter()
            .rev()
            .skip(KEPT)
            .try_for_each(|(_, path)| remove(path))
    }
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
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove '{}'", path.display()))
        }
        Ok(()) | Err(_) => Ok(()),
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

/// With a script in place of Go; `cargo xtask testbed build` in CI is the same with the real one.
#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;

    use super::*;

    /// `$OUT` is the folder after `-o`, `$COUNT` counts the calls.
    fn workbench(script: &str) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let go = folder.path().join("go");
        let count = folder.path().join("count");
        let head = format!("#!/bin/sh\necho called >> {}\n", count.display());
        let find = "while [ $# -gt 0 ]; do [ \"$1\" = -o ] && OUT=$2; shift; done\n";
        fs::write(&go, format!("{head}{find}{script}\n")).unwrap();
        fs::set_permissions(&go, fs::Permissions::from_mode(0o755)).unwrap();
        (folder, go)
    }

    fn part(folder: &TempDir, version: &str) -> Part {
        let source = folder.path().join("tool");
        fs::create_dir_all(&source).unwrap();
        fs::write(source.join("part.toml"), "module = \"a.b/tool\"\n").unwrap();
        fs::write(
            source.join("go.mod"),
            format!("require a.b/tool {version}\n"),
        )
        .unwrap();
        Part::read(&source).unwrap()
    }

    fn run(go: &Path, part: &Part, folder: &TempDir) -> Result<Vec<Built>> {
        build_with(
            go,
            std::slice::from_ref(part),
            &folder.path().join("cache"),
            &mut |_| (),
        )
    }

    fn calls(folder: &TempDir) -> usize {
        match fs::read_to_string(folder.path().join("count")) {
            Ok(text) => text.lines().count(),
            Err(_) => 0,
        }
    }

    #[test]
    fn a_finished_part_is_not_touched_again() {
        let (folder, go) = workbench("echo program > $OUT/tool");
        let part = part(&folder, "v1.0.0");
        let first = run(&go, &part, &folder).unwrap().remove(0);
        assert!(first.took.is_some() && first.folder.join("bin/tool").is_file());
        let before = fs::metadata(&first.folder).unwrap().modified().unwrap();
        let second = run(&go, &part, &folder).unwrap().remove(0);
        assert!(second.took.is_none());
        assert_eq!(
            fs::metadata(&second.folder).unwrap().modified().unwrap(),
            before
        );
        assert_eq!(calls(&folder), 1);
        assert!(
            !folder.path().join("cache/work").exists(),
            "Go's caches are still there"
        );
    }

    #[test]
    fn a_failed_part_is_not_visible_and_says_why() {
        let (folder, go) = workbench("echo half > $OUT/tool; echo the cause >&2; exit 1");
        let part = part(&folder, "v1.0.0");
        let error = format!("{:#}", run(&go, &part, &folder).unwrap_err());
        assert!(
            error.contains("'tool'") && error.contains("the cause"),
            "{error}"
        );
        assert!(!part.folder(&folder.path().join("cache")).exists());
        assert!(!folder.path().join("cache/work").exists());
    }

    #[test]
    fn no_binary_is_a_failure() {
        let (folder, go) = workbench("true");
        let error = run(&go, &part(&folder, "v1.0.0"), &folder)
            .unwrap_err()
            .to_string();
        assert!(error.contains("no binary was made"), "{error}");
    }

    #[test]
    fn what_a_killed_builder_left_is_removed() {
        let (folder, go) = workbench("echo program > $OUT/tool");
        let left = folder.path().join("cache/work/gocache");
        fs::create_dir_all(&left).unwrap();
        run(&go, &part(&folder, "v1.0.0"), &folder).unwrap();
        assert!(!left.exists());
    }

    #[test]
    fn of_two_builders_at_once_one_builds() {
        let (folder, go) = workbench("sleep 0.3; echo program > $OUT/tool");
        let part = part(&folder, "v1.0.0");
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| run(&go, &part, &folder).unwrap());
            }
        });
        assert_eq!(calls(&folder), 1);
    }

    #[test]
    fn the_newest_results_are_kept() {
        let (folder, go) = workbench("echo program > $OUT/tool");
        let other = folder.path().join("cache/parts/tool-box-v1.0.0-0");
        fs::create_dir_all(&other).unwrap();
        for version in ["v1.0.0", "v1.1.0", "v1.2.0", "v1.3.0", "v1.4.0"] {
            run(&go, &part(&folder, version), &folder).unwrap();
        }
        let results = fs::read_dir(folder.path().join("cache/parts")).unwrap();
        let mut names: Vec<String> = results
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        let versions: Vec<&str> = names
            .iter()
            .map(|name| &name[..name.len().min(11)])
            .collect();
        assert_eq!(
            versions,
            ["tool-box-v1", "tool-v1.2.0", "tool-v1.3.0", "tool-v1.4.0"]
        );
    }

    #[test]
    fn a_missing_go_is_named() {
        let (folder, _) = workbench("");
        let missing = folder.path().join("nothing");
        let error = format!(
            "{:#}",
            run(&missing, &part(&folder, "v1.0.0"), &folder).unwrap_err()
        );
        assert!(
            error.contains("cannot start") && error.contains("nothing"),
            "{error}"
        );
    }
}
