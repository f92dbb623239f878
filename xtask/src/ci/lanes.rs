//! Runs stages in two lanes: clusters at normal priority, compilers in what they leave of the
//! processors.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use testbed::build;
use testkit::{
    junit::{self, CaseResult},
    layout,
    load::{Load, Ticks},
    process, times,
};

/// Cases that a stage lists as its slowest.
const SLOWEST: usize = 10;

/// The directory of the JUnit files beside the logs, with one directory for each try of a stage.
pub(super) const RESULTS: &str = "junit";

/// Processor priority of a stage's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Priority {
    /// Clusters and tests: their cases have time limits.
    Normal,
    /// Compilers: they get idle processor time only.
    Idle,
}

/// One stage of a lane.
pub(super) struct Stage {
    pub(super) name: &'static str,
    pub(super) priority: Priority,
    /// A stage of the other lane that must have passed before.
    pub(super) after: Option<&'static str>,
    /// Whether it runs once more if it fails while the host gives the processors to other machines.
    pub(super) repeats: bool,
    pub(super) work: fn(&Runner) -> Result<()>,
}

/// How a stage ended.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub(super) name: &'static str,
    pub(super) lane: &'static str,
    pub(super) took: Duration,
    /// Of the whole machine while it ran.
    pub(super) load: Load,
    pub(super) failure: Option<String>,
    /// The failure of the first of two tries, see [`Stage::repeats`].
    pub(super) first_failure: Option<String>,
}

impl Ended {
    /// Adds the stage as a case: stages without cases, such as `clippy`, write no JUnit file.
    pub(super) fn add_to(&self, results: &mut junit::Report) {
        let mut add = |took, result| results.add(self.lane, self.name, took, result);
        if let Some(why) = &self.first_failure {
            add(Duration::ZERO, CaseResult::Repeated(why.clone()));
        }
        let result = match &self.failure {
            Some(why) => CaseResult::Failed(why.clone()),
            None => CaseResult::Passed(String::new()),
        };
        add(self.took, result);
    }
}

/// Starts the processes of a stage.
pub(super) struct Runner {
    priority: Priority,
    /// Where output goes; without it, to this process's own.
    log: Option<PathBuf>,
    times: PathBuf,
    environment: BTreeMap<&'static str, String>,
}

impl Runner {
    /// Sets the directory for the JUnit files of the stage's suites.
    fn set_results(&mut self, folder: &Path, name: &str) {
        let path = folder.join(RESULTS).join(name);
        let path = path.display().to_string();
        self.environment.insert(junit::DIRECTORY_VARIABLE, path);
    }

    /// Runs a command of cargo.
    pub(super) fn cargo(&self, arguments: &[&str]) -> Result<()> {
        self.run(&build::cargo(arguments))
    }

    /// Runs a task as a process of its own: a stage that crashes is a failed stage.
    pub(super) fn xtask(&self, arguments: &[&str]) -> Result<()> {
        self.run(Command::new(process::this_program()?).args(arguments))
    }

    /// Runs two tasks at the same time; the output of the second comes when both have ended.
    pub(super) fn xtask_beside(&self, first: &[&str], second: &[&str]) -> Result<()> {
        let log = self.times.with_extension("second.log");
        fs::write(&log, "").with_context(|| format!("cannot write '{}'", log.display()))?;
        let aside = Self {
            priority: self.priority,
            log: Some(log.clone()),
            times: self.times.clone(),
            environment: self.environment.clone(),
        };
        let (first, second) = thread::scope(|scope| {
            let second = scope.spawn(|| aside.xtask(second));
            let first = self.xtask(first);
            (first, second.join())
        });
        match fs::read_to_string(&log) {
            Ok(text) => println!("{text}"),
            Err(error) => println!("cannot read '{}': {error}", log.display()),
        }
        let second = second.unwrap_or_else(|_panic| bail!("the second task's thread panicked"));
        match (first, second) {
            (Err(first), Err(second)) => Err(first.context(format!("and: {second:#}"))),
            (first, second) => first.and(second),
        }
    }

    /// Runs a program in the repository.
    pub(super) fn run(&self, command: &Command) -> Result<()> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut started = match self.priority {
            Priority::Normal => {
                let mut plain = Command::new(command.get_program());
                plain.args(command.get_args());
                plain
            }
            Priority::Idle => in_background(command),
        };
        started
            .current_dir(layout::repository())
            .stdin(Stdio::null())
            .envs(&self.environment)
            .env(times::FILE_VARIABLE, &self.times);
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => started.env(name, value),
                None => started.env_remove(name),
            };
        }
        if let Some(log) = &self.log {
            let file = File::options().create(true).append(true).open(log)?;
            started.stdout(file.try_clone()?).stderr(file);
        }
        let status = started
            .status()
            .with_context(|| format!("cannot run '{program}'"))?;
        if !status.success() {
            bail!("'{program}' {}", process::ended(status));
        }
        Ok(())
    }
}

/// Returns `command` in a session of its own that gets only idle processors.
///
/// Linux groups processes by session (`sched_autogroup`) and divides processor time among groups first:
/// a priority within the group of the compilers would take nothing from it. It ends with this process.
fn in_background(command: &Command) -> Command {
    let script =
        "echo 19 2>/dev/null >/proc/self/autogroup; exec setpriv --pdeathsig KILL -- \"$@\"";
    let mut started = Command::new("setsid");
    started
        .args(["sh", "-c", script, "sh"])
        .args(["chrt", "--idle", "0"])
        .arg(command.get_program())
        .args(command.get_args());
    started
}

/// The stages that have ended, for both lanes.
#[derive(Default)]
struct Board {
    ended: Mutex<Vec<Ended>>,
    changed: Condvar,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, Vec<Ended>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, ended: Ended) {
        self.lock().push(ended);
        self.changed.notify_all();
    }

    /// Waits for a stage of the other lane; false if something failed, so that no more should start.
    fn may_start(&self, after: Option<&str>) -> bool {
        let mut ended = self.lock();
        loop {
            if ended.iter().any(|stage| stage.failure.is_some()) {
                return false;
            }
            let has_passed = |name| ended.iter().any(|stage: &Ended| stage.name == name);
            if after.is_none_or(has_passed) {
                return true;
            }
            ended = self
                .changed
                .wait(ended)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Runs both lanes until all stages have passed or one has failed; the stages that ran.
///
/// # Errors
/// When the directory for logs cannot be made. A failed stage is no error: see [`Ended::failure`].
pub(super) fn run(
    folder: &Path,
    main: &[&Stage],
    shadow: &[&Stage],
    environment: &BTreeMap<&'static str, String>,
) -> Result<Vec<Ended>> {
    fs::create_dir_all(folder)?;
    // A stage that does not run must not have the results of an earlier run.
    match fs::remove_dir_all(folder.join(RESULTS)) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        Ok(()) | Err(_) => {}
    }
    let board = Board::default();
    thread::scope(|scope| {
        scope.spawn(|| lane("compilers", shadow, folder, environment, &board));
        lane("clusters", main, folder, environment, &board);
    });
    Ok(board.lock().clone())
}

fn lane(
    name: &'static str,
    stages: &[&Stage],
    folder: &Path,
    environment: &BTreeMap<&'static str, String>,
    board: &Board,
) {
    for stage in stages {
        if !board.may_start(stage.after) {
            return;
        }
        let file_name = stage.name.replace(' ', "-");
        let file = folder.join(&file_name);
        let mut runner = Runner {
            priority: stage.priority,
            log: (name == "compilers").then(|| file.with_extension("log")),
            times: file.with_extension("times"),
            environment: environment.clone(),
        };
        runner.set_results(folder, &file_name);
        let mut ended = perform(stage, name, &runner);
        if runs_again(stage, &ended) {
            println!("== {}: again, because of stolen processor time", stage.name);
            // In the same directory, the second try would replace the failures of the first.
            runner.set_results(folder, &format!("{file_name}-second-try"));
            let first = ended;
            ended = perform(stage, name, &runner);
            ended.took += first.took;
            ended.first_failure = first.failure;
        }
        board.add(ended);
    }
}

/// Returns whether a stage failed on a host that gave the processors to other machines.
fn runs_again(stage: &Stage, ended: &Ended) -> bool {
    stage.repeats && ended.failure.is_some() && ended.load.is_stolen()
}

/// Runs one stage and prints how it went.
fn perform(stage: &Stage, lane: &'static str, runner: &Runner) -> Ended {
    let Stage { name, work, .. } = stage;
    println!("== {name}");
    let (start, before) = (Instant::now(), Ticks::now());
    let result = fresh(runner).and_then(|()| work(runner));
    let took = start.elapsed();
    let load = Ticks::load_between(before, Ticks::now());
    let failure = result.err().map(|error| format!("{error:#}"));
    let word = if failure.is_none() { "ok" } else { "FAILED" };
    let mut text = String::new();
    if let Some(log) = &runner.log {
        text.push_str(&fs::read_to_string(log).unwrap_or_default());
    }
    text.push_str(&format!(
        "== {name}: {word} in {:.0} s, processors busy {load}\n",
        took.as_secs_f64()
    ));
    match times::slowest(&runner.times, SLOWEST) {
        Ok(cases) => {
            for (took, case) in cases {
                text.push_str(&format!("   {:>6.1} s  {case}\n", took.as_secs_f64()));
            }
        }
        Err(error) => text.push_str(&format!("   durations are unreadable: {error}\n")),
    }
    println!("{text}");
    Ended {
        name,
        lane,
        took,
        load,
        failure,
        first_failure: None,
    }
}

/// Removes what an earlier run left.
fn fresh(runner: &Runner) -> Result<()> {
    for path in runner.log.iter().chain([&runner.times]) {
        fs::write(path, "").with_context(|| format!("cannot write '{}'", path.display()))?;
    }
    Ok(())
}

/// Compiles all programs once; returns the variables that tell later stages not to compile them again. The
/// stage `tests build` compiles the tests and writes their list.
pub(super) fn built(folder: &Path) -> Result<BTreeMap<&'static str, String>> {
    fs::create_dir_all(folder)?;
    build::programs()?;
    let list = folder.join("test-binaries.json");
    match fs::remove_file(&list) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        Ok(()) | Err(_) => {}
    }
    Ok(BTreeMap::from([
        (build::BUILT_VARIABLE, "1".to_owned()),
        (build::TEST_BINARIES_VARIABLE, list.display().to_string()),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(
        name: &'static str,
        after: Option<&'static str>,
        work: fn(&Runner) -> Result<()>,
    ) -> Stage {
        Stage {
            after,
            ..crate::ci::stage(name, Priority::Normal, work)
        }
    }

    /// Runs `install`, which waits for `image`, beside these stages.
    fn ended_beside(shadow: &[&Stage]) -> Vec<Ended> {
        let folder = tempfile::tempdir().unwrap();
        let install = stage("install", Some("image"), |_| Ok(()));
        run(folder.path(), &[&install], shadow, &BTreeMap::new()).unwrap()
    }

    fn names(ended: &[Ended]) -> Vec<&str> {
        ended.iter().map(|stage| stage.name).collect()
    }

    #[test]
    fn a_stage_waits_for_the_one_of_the_other_lane() {
        let shadow = [
            stage("clippy", None, |_| Ok(())),
            stage("image", None, |runner| {
                runner.run(Command::new("sleep").arg("0.2"))
            }),
        ];
        let ended = ended_beside(&shadow.each_ref());
        assert_eq!(names(&ended), ["clippy", "image", "install"]);
        assert!(ended.iter().all(|stage| stage.failure.is_none()));
    }

    #[test]
    fn after_a_failure_neither_lane_starts_another_stage() {
        let shadow = [
            stage("clippy", None, |runner| runner.run(&Command::new("false"))),
            stage("image", None, |_| Ok(())),
        ];
        let ended = ended_beside(&shadow.each_ref());
        assert_eq!(names(&ended), ["clippy"]);
        let failure = ended[0].failure.clone().unwrap();
        assert!(failure.contains("'false' exited with 1"), "{failure}");
        let mut results = junit::Report::new("stages");
        ended[0].add_to(&mut results);
        let xml = results.to_string();
        assert!(xml.contains(r#"tests="1" failures="1""#), "{xml}");
    }

    #[test]
    fn a_stage_runs_again_only_if_it_may_and_the_host_took_the_processors() {
        let cases = [
            (true, Some("late"), 20, true),
            (true, Some("late"), 19, false),
            (true, None, 90, false),
            (false, Some("a false success"), 90, false),
        ];
        for (repeats, failure, stolen, again) in cases {
            let stage = Stage {
                repeats,
                ..stage("fleet", None, |_| Ok(()))
            };
            let ended = Ended {
                name: stage.name,
                lane: "clusters",
                took: Duration::ZERO,
                load: Load { busy: 100, stolen },
                failure: failure.map(str::to_owned),
                first_failure: None,
            };
            assert_eq!(runs_again(&stage, &ended), again, "{ended:?}");
        }
    }

    #[test]
    fn a_stage_has_a_directory_for_results_and_none_of_an_earlier_run() {
        let folder = tempfile::tempdir().unwrap();
        let old = folder.path().join(RESULTS).join("old");
        fs::create_dir_all(&old).unwrap();
        let shadow = [stage("unit tests", None, |runner| {
            let script = format!("echo ${}", junit::DIRECTORY_VARIABLE);
            runner.run(Command::new("sh").arg("-c").arg(script))
        })];
        let ended = run(folder.path(), &[], &shadow.each_ref(), &BTreeMap::new()).unwrap();
        assert!(ended.iter().all(|stage| stage.failure.is_none()));
        let wanted = folder.path().join(RESULTS).join("unit-tests");
        let printed = fs::read_to_string(folder.path().join("unit-tests.log")).unwrap();
        assert_eq!(printed.trim(), wanted.display().to_string());
        assert!(!old.exists());
    }

    #[test]
    fn a_stage_gets_its_arguments_and_variables() {
        let folder = tempfile::tempdir().unwrap();
        for priority in [Priority::Normal, Priority::Idle] {
            let log = folder.path().join("log");
            let runner = Runner {
                priority,
                log: Some(log.clone()),
                times: folder.path().join("times"),
                environment: BTreeMap::from([("FIRST", "1".to_owned())]),
            };
            let mut command = Command::new("sh");
            command
                .args(["-c", "echo $FIRST $SECOND"])
                .env("SECOND", "2");
            runner.run(&command).unwrap();
            assert_eq!(fs::read_to_string(&log).unwrap(), "1 2\n");
            fs::remove_file(&log).unwrap();
        }
    }
}
