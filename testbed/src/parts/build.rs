//! Building a part into the cache.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use super::Part;
use crate::{cache, process};

/// The largest part takes 5 minutes on two idle cores; a machine ten times slower still ends.
const BUILD_LIMIT: Duration = Duration::from_secs(3000);
const LIST_LIMIT: Duration = Duration::from_secs(120);
/// A progress line at most this often.
const PROGRESS_EVERY: u64 = 20;
/// Begins the name of a builder's work folder; its process's number ends it.
const WORK_PREFIX: &str = "work-";

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
/// then renamed; moved aside, then removed); a second builder waits for the first; what a killed
/// builder started never writes into a later builder's part; Go's caches are gone when it returns,
/// and those of a killed builder at the next start; of each part the newest three results are kept.
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
    let _lock = cache::lock(cache, progress)?;
    // An orphan of a killed builder may write until it notices: so no two builders share a folder.
    let is_work = |name: &str| name == "work" || name.starts_with(WORK_PREFIX);
    for stale in cache::entries(cache, is_work)? {
        cache::remove_folder(&stale, cache::REMOVE_LIMIT)?;
    }
    let work = cache.join(format!("{WORK_PREFIX}{}", std::process::id()));
    fs::create_dir(&work).with_context(|| format!("cannot create '{}'", work.display()))?;
    let workshop = Workshop { go, cache, work };
    let built: Result<_> = parts
        .iter()
        .map(|part| workshop.build(part, progress))
        .collect();
    let removed = cache::remove_folder(&workshop.work, cache::REMOVE_LIMIT);
    let built = built?;
    removed?;
    Ok(built)
}

struct Workshop<'a> {
    go: &'a Path,
    cache: &'a Path,
    /// Removed after: Go's caches, a copy of the recipe, the part in the making, parts that go.
    work: PathBuf,
}

impl Workshop<'_> {
    fn build(&self, part: &Part, progress: &mut dyn FnMut(&str)) -> Result<Built> {
        let folder = part.folder(self.cache);
        let title = format!("{} {}", part.name, part.version);
        if is_finished(&folder)? {
            progress(&format!("{title}: cached"));
            return Ok(Built { folder, took: None });
        }
        ensure!(
            is_program(self.go),
            "part '{}' cannot be built: no program '{}'; needs Go 1.26 or newer, see CONTRIBUTING.md",
            part.name,
            self.go.display()
        );
        self.discard(&folder)?;
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
        self.prune(part, &folder)?;
        Ok(Built {
            folder,
            took: Some(took),
        })
    }

    fn make(&self, part: &Part, title: &str, progress: &mut dyn FnMut(&str)) -> Result<PathBuf> {
        let log = self.cache.join("log").join(format!("{}.log", part.name));
        fs::write(&log, "").with_context(|| format!("cannot write '{}'", log.display()))?;
        let made = self.work.join("made");
        cache::remove_folder(&made, cache::REMOVE_LIMIT)?;
        fs::create_dir_all(made.join("bin"))?;
        // The recipe is built from a copy: Go must not write into the checkout.
        let source = self.work.join("source");
        cache::remove_folder(&source, cache::REMOVE_LIMIT)?;
        copy(&part.source, &source)?;
        let mut told = 0;
        let mut ticker = |elapsed: Duration| {
            if elapsed.as_secs() >= told + PROGRESS_EVERY {
                told = elapsed.as_secs();
                progress(&format!("{title}: still building, {told} s"));
            }
        };
        let build = self.go_build(part, &source, &made);
        process::run(&build, &log, BUILD_LIMIT, &mut ticker)
            .with_context(|| format!("part '{}' does not build", part.name))?;
        self.finish(part, &source, &made)?;
        Ok(made)
    }

    fn go(&self, part: &Part, source: &Path) -> Command {
        let mut command = Command::new(self.go);
        command
            .current_dir(source)
            // The parts run on this machine, whatever the caller builds for.
            .env_remove("GOOS")
            .env_remove("GOARCH")
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

    /// Gives binaries their names, copies the kept files of modules, checks that all is there.
    fn finish(&self, part: &Part, source: &Path, made: &Path) -> Result<()> {
        let name = &part.name;
        for (from, to) in &part.recipe.rename {
            fs::rename(made.join("bin").join(from), made.join("bin").join(to))
                .with_context(|| format!("part '{name}': no binary '{from}' was made"))?;
        }
        let some = fs::read_dir(made.join("bin"))?.next().is_some();
        ensure!(some, "part '{name}': no binary was made");
        for (module, kept) in part.recipe.kept() {
            let folder = self.module_folder(part, source, module)?;
            for kept in kept {
                copy(&folder.join(kept), &made.join("keep").join(kept))
                    .with_context(|| format!("part '{name}': keep '{kept}' of '{module}'"))?;
            }
        }
        Ok(())
    }

    /// Asks Go for the directory with the sources of a module.
    fn module_folder(&self, part: &Part, source: &Path, module: &str) -> Result<PathBuf> {
        let listed = self.work.join("module-folder");
        fs::write(&listed, "")?;
        let mut list = self.go(part, source);
        list.args(["list", "-m", "-f", "{{.Dir}}", module]);
        process::run(&list, &listed, LIST_LIMIT, &mut |_| ())?;
        let text = fs::read_to_string(&listed)?;
        let folder = text
            .lines()
            .map(str::trim)
            .find(|line| line.starts_with('/'));
        folder.map(PathBuf::from).with_context(|| {
            format!(
                "part '{}': go did not report the directory of '{module}', but: {text}",
                part.name
            )
        })
    }

    fn prune(&self, part: &Part, current: &Path) -> Result<()> {
        // A version starts with 'v': 'kube-v1' is not a result of 'kube-router'.
        let prefix = format!("{}-v", part.name);
        let belongs = |name: &str| name.starts_with(&prefix);
        cache::outdated(&self.cache.join("parts"), current, belongs)?
            .iter()
            .try_for_each(|path| self.discard(path))
    }

    /// Removes a part, if there is one, so that nobody sees half of it.
    fn discard(&self, part: &Path) -> Result<()> {
        let aside = self.work.join("discarded");
        match fs::rename(part, &aside) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot move '{}' aside", part.display()))
            }
            Ok(()) | Err(_) => cache::remove_folder(&aside, cache::REMOVE_LIMIT),
        }
    }
}

/// A folder without binaries is no part: someone began to remove it in place.
fn is_finished(part: &Path) -> Result<bool> {
    let binaries = part.join("bin");
    Ok(binaries.is_dir() && !cache::entries(&binaries, |_| true)?.is_empty())
}

fn is_program(program: &Path) -> bool {
    if program.components().count() > 1 {
        return program.is_file();
    }
    std::env::var_os("PATH").is_some_and(|folders| {
        std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
    })
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

    fn work_folders(folder: &TempDir) -> Vec<PathBuf> {
        cache::entries(&folder.path().join("cache"), |name| {
            name.starts_with("work")
        })
        .unwrap()
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
        assert_eq!(work_folders(&folder), Vec::<PathBuf>::new());
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
        assert_eq!(work_folders(&folder), Vec::<PathBuf>::new());
    }

    #[test]
    fn files_of_several_modules_are_kept() {
        // `go list -m -f FORMAT MODULE` prints the directory of MODULE.
        let (folder, go) = workbench("echo program > \"$OUT/tool\"");
        let text = fs::read_to_string(&go).unwrap();
        let modules = folder.path().join("modules");
        let list = format!(
            "if [ \"$1\" = list ]; then echo {}/\"$5\"; exit 0; fi\nwhile",
            modules.display()
        );
        fs::write(&go, text.replacen("while", &list, 1)).unwrap();
        for file in ["a.b/tool/rbac/role.yaml", "a.b/client/crd/x.yaml"] {
            let file = modules.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        let mut part = part(&folder, "v1.0.0");
        part.recipe.keep = vec!["rbac".to_owned()];
        let crds = vec!["crd".to_owned()];
        part.recipe.keep_of.insert("a.b/client".to_owned(), crds);
        let built = run(&go, &part, &folder).unwrap().remove(0).folder;
        assert!(built.join("keep/rbac/role.yaml").is_file());
        assert!(built.join("keep/crd/x.yaml").is_file());
        let other = vec!["none".to_owned()];
        part.recipe.keep_of.insert("a.b/client".to_owned(), other);
        fs::remove_dir_all(&built).unwrap();
        let error = format!("{:#}", run(&go, &part, &folder).unwrap_err());
        assert!(error.contains("keep 'none' of 'a.b/client'"), "{error}");
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
        for left in ["work/gocache", "work-1/made/bin"] {
            fs::create_dir_all(folder.path().join("cache").join(left)).unwrap();
        }
        run(&go, &part(&folder, "v1.0.0"), &folder).unwrap();
        assert_eq!(work_folders(&folder), Vec::<PathBuf>::new());
    }

    #[test]
    fn an_orphan_of_a_killed_builder_does_not_reach_the_next_part() {
        let (folder, go) =
            workbench("sleep 0.5; mkdir -p $OUT; echo program > $OUT/${NAME:-tool}; sleep 0.5");
        let orphans = ["work", "work-1"].map(|work| {
            let out = folder.path().join("cache").join(work).join("made/bin");
            fs::create_dir_all(&out).unwrap();
            let mut orphan = Command::new(&go);
            orphan.arg("-o").arg(out).env("NAME", "orphan");
            orphan.spawn().unwrap()
        });
        let built = run(&go, &part(&folder, "v1.0.0"), &folder).unwrap();
        for mut orphan in orphans {
            assert!(orphan.wait().unwrap().success());
        }
        let binaries = cache::entries(&built[0].folder.join("bin"), |_| true).unwrap();
        assert_eq!(binaries, [built[0].folder.join("bin/tool")]);
        assert_eq!(work_folders(&folder).len(), 2, "the orphans did not write");
        run(&go, &part(&folder, "v1.1.0"), &folder).unwrap();
        assert_eq!(work_folders(&folder), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_half_removed_part_is_built_again() {
        let (folder, go) = workbench("echo program > $OUT/tool");
        let part = part(&folder, "v1.0.0");
        let built = run(&go, &part, &folder).unwrap().remove(0).folder;
        fs::create_dir(built.join("keep")).unwrap();
        fs::remove_file(built.join("bin/tool")).unwrap();
        for calls_then in [2, 3] {
            assert!(run(&go, &part, &folder).unwrap()[0].took.is_some());
            assert!(built.join("bin/tool").is_file() && !built.join("keep").exists());
            assert_eq!(calls(&folder), calls_then);
            fs::remove_dir_all(built.join("bin")).unwrap();
            fs::create_dir(built.join("keep")).unwrap();
        }
    }

    #[test]
    fn the_caller_s_target_does_not_count() {
        let (folder, go) = workbench("");
        let workshop = Workshop {
            go: &go,
            cache: folder.path(),
            work: folder.path().join("work"),
        };
        let command = workshop.go(&part(&folder, "v1.0.0"), folder.path());
        for name in ["GOOS", "GOARCH"] {
            assert!(
                command
                    .get_envs()
                    .any(|variable| variable == (name.as_ref(), None))
            );
        }
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
        for text in ["nothing", "Go 1.26 or newer", "CONTRIBUTING.md"] {
            assert!(error.contains(text), "{error}");
        }
        assert!(!is_program(Path::new("no-such-program")) && is_program(Path::new("sh")));
    }
}
