//! Running cases on clusters that they share: each gets a client and a fresh namespace, says where
//! its logs are when it fails, and says why when it cannot run at all.

mod env;

use std::{
    collections::BTreeMap,
    fmt, fs,
    io::Write,
    panic::AssertUnwindSafe,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, Config, api::DeleteParams};
use tokio::{sync::Semaphore, task::JoinSet, time::timeout};

pub(crate) use env::namespace;
pub use env::{Env, create, new_namespace};

use crate::{
    cluster::{Addition, Cluster, KUBECONFIG_VARIABLE, Tier, client_config},
    junit::{self, CaseResult},
    load::{Load, Ticks},
    times,
};

/// Names the run whose clusters the tests share; set by `cargo xtask test`.
pub const RUN_VARIABLE: &str = "ORCHESTRATOR_TEST_RUN";
/// Names the file for tests that cannot run; set by `cargo xtask test`.
pub const SKIPPED_VARIABLE: &str = "ORCHESTRATOR_TEST_SKIPPED";
/// Names the test binary in that file; set by `cargo xtask test`.
pub const BINARY_VARIABLE: &str = "ORCHESTRATOR_TEST_BINARY";
/// Enough for most; a case that hangs must not take the run with it.
pub const CASE_LIMIT: Duration = Duration::from_secs(300);

/// Why a case cannot run on this cluster. Neither passed nor failed.
#[derive(Debug)]
pub struct CannotRun(pub String);

impl fmt::Display for CannotRun {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for CannotRun {}

/// A cluster that cases run on.
#[derive(Debug, Clone)]
pub enum Place {
    /// One of ours, with all that a tier has.
    Testbed(Arc<Cluster>),
    /// A contributor's own, known by its kubeconfig only.
    External(PathBuf),
}

impl Place {
    /// The contributor's cluster, if the variable names one.
    pub fn external() -> Option<Self> {
        std::env::var_os(KUBECONFIG_VARIABLE)
            .filter(|value| !value.is_empty())
            .map(|path| Self::External(path.into()))
    }

    /// Whether its API server answers.
    ///
    /// # Errors
    /// When it does not, or the kubeconfig is unreadable.
    pub async fn check(&self) -> Result<()> {
        let client = Client::try_from(self.config().await?)?;
        client
            .apiserver_version()
            .await
            .context("the cluster does not answer")?;
        Ok(())
    }

    async fn config(&self) -> Result<Config> {
        match self {
            Self::Testbed(cluster) => cluster.config().await,
            Self::External(path) => client_config(path).await,
        }
    }

    fn logs(&self) -> String {
        match self {
            Self::Testbed(cluster) => format!("logs are in '{}'", cluster.folders.logs.display()),
            Self::External(path) => format!("the cluster is that of '{}'", path.display()),
        }
    }
}

/// When a case runs, beside the other cases of its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At the same time as others.
    Together,
    /// Alone, because it stops or removes something that others need.
    Alone,
    /// After all others, because it judges all of them.
    Last,
}

/// One case.
pub struct Case {
    /// Short; letters, digits and hyphens: part of its namespace's name.
    pub name: &'static str,
    /// What it shows, for the line that it prints.
    pub shows: &'static str,
    /// The suite that it belongs to, for its line; empty where there is only one.
    pub suite: &'static str,
    /// Where.
    pub tier: Tier,
    /// Components that its cluster needs beyond the tier.
    pub additions: &'static [Addition],
    /// Beside others or not.
    pub when: When,
    /// Longer is a failure; [`CASE_LIMIT`] does for most.
    pub limit: Duration,
    /// Says what it saw.
    pub run: fn(Env) -> BoxFuture<'static, Result<String>>,
}

/// How cases ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Showed what they should.
    pub passed: usize,
    /// Did not.
    pub failed: usize,
    /// Could not run on this cluster, and said why.
    pub skipped: usize,
    /// Failed while the host gave the processors to other machines, and ran once more; each is also one of the
    /// above.
    pub repeated: usize,
}

impl Summary {
    /// Something passed and nothing failed: to have run nothing is not success. On a cluster of the
    /// testbed every case can run, so a skipped one is a failure there.
    pub fn is_success(&self) -> bool {
        let may_skip = Place::external().is_some();
        self.succeeds(may_skip)
    }

    /// Adds a failed case for a suite that fails without one: nothing ran, or a case was skipped that must run. Without
    /// it, the suite would fail while its file has no failed case.
    pub fn add_failure(&self, results: &mut junit::Report) {
        if self.failed == 0 {
            let why = format!("{self}: nothing ran, or a case was skipped that must run");
            let result = CaseResult::Failed(why);
            results.add("", "all cases", Duration::ZERO, result);
        }
    }

    fn succeeds(&self, may_skip: bool) -> bool {
        self.failed == 0 && self.passed > 0 && (self.skipped == 0 || may_skip)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(out, ", {} skipped", self.skipped)?;
        }
        if self.repeated > 0 {
            write!(out, ", {} run twice", self.repeated)?;
        }
        Ok(())
    }
}

enum Outcome {
    Passed(String),
    Failed(String),
    /// Failed, and runs once more.
    Repeated(String),
    CannotRun(String),
}

/// Runs `cases`, `parallel` at a time. Adds the outcome of each to `results` and passes it to `line` as it comes.
///
/// Guarantees: a case that panics or hangs is one failed case. The namespace of a failed case stays, so that it can be
/// examined. A case that failed while the host gave much of the processors to other machines runs once more, alone; its
/// first failure is printed and added, too.
pub async fn run(
    cases: Vec<Case>,
    places: &BTreeMap<Tier, Place>,
    parallel: usize,
    results: &mut junit::Report,
    line: &mut dyn FnMut(&str),
) -> Summary {
    let mut rounds = Rounds {
        places,
        gate: Arc::new(Semaphore::new(parallel)),
        results,
        line,
        summary: Summary::default(),
        again: Vec::new(),
    };
    let (mut together, mut alone, mut last) = (Vec::new(), Vec::new(), Vec::new());
    for case in cases {
        match case.when {
            When::Together => together.push(case),
            When::Alone => alone.push(case),
            When::Last => last.push(case),
        }
    }
    rounds.together(together, Try::First).await;
    rounds.one_by_one(alone).await;
    rounds.one_by_one(last).await;
    rounds.summary
}

/// How often a case has run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Try {
    First,
    Second,
}

/// The cases that are run, and their outcomes.
struct Rounds<'a> {
    places: &'a BTreeMap<Tier, Place>,
    gate: Arc<Semaphore>,
    results: &'a mut junit::Report,
    line: &'a mut dyn FnMut(&str),
    summary: Summary,
    /// Failed, and deserve a second try.
    again: Vec<Case>,
}

impl Rounds<'_> {
    /// Runs cases one after another, and before them those that deserve a second try.
    async fn one_by_one(&mut self, cases: Vec<Case>) {
        self.second_tries().await;
        for case in cases {
            self.together(vec![case], Try::First).await;
        }
        self.second_tries().await;
    }

    async fn second_tries(&mut self) {
        for case in std::mem::take(&mut self.again) {
            self.summary.repeated += 1;
            self.together(vec![case], Try::Second).await;
        }
    }

    async fn together(&mut self, cases: Vec<Case>, nth: Try) {
        let mut tasks = JoinSet::new();
        for case in cases {
            let (place, gate) = (self.places.get(&case.tier).cloned(), Arc::clone(&self.gate));
            tasks.spawn(async move {
                let _permit = gate.acquire().await;
                let (start, ticks) = (Instant::now(), Ticks::now());
                let outcome = judge(&case, place).await;
                let load = Ticks::load_between(ticks, Ticks::now());
                (case, outcome, start.elapsed(), load)
            });
        }
        while let Some(ended) = tasks.join_next().await {
            match ended {
                Ok((case, Outcome::Failed(why), took, load)) if deserves_another(nth, load) => {
                    let outcome = Outcome::Repeated(format!("processors busy {load}; {why}"));
                    self.end(&case, outcome, took);
                    self.again.push(case);
                }
                Ok((case, outcome, took, _)) => self.end(&case, outcome, took),
                Err(error) => {
                    self.summary.failed += 1;
                    let why = format!("a case ended without an outcome: {error}");
                    (self.line)(&format!("FAILED  {why}"));
                    let result = CaseResult::Failed(why);
                    self.results.add("", "no outcome", Duration::ZERO, result);
                }
            }
        }
    }

    fn end(&mut self, case: &Case, outcome: Outcome, took: Duration) {
        (self.line)(&report(case, &outcome, took, &mut self.summary));
        let result = match outcome {
            Outcome::Passed(seen) => CaseResult::Passed(seen),
            Outcome::Failed(why) => CaseResult::Failed(why),
            Outcome::Repeated(why) => CaseResult::Repeated(why),
            Outcome::CannotRun(why) => CaseResult::Skipped(why),
        };
        self.results.add(case.suite, case.name, took, result);
    }
}

/// Returns whether a case that failed runs once more. What fails on a host with time to spare has failed.
fn deserves_another(nth: Try, load: Load) -> bool {
    nth == Try::First && load.is_stolen()
}

async fn judge(case: &Case, place: Option<Place>) -> Outcome {
    match place {
        Some(Place::External(_)) if !case.additions.is_empty() => {
            let names: Vec<&str> = case.additions.iter().map(|one| one.name()).collect();
            Outcome::CannotRun(format!(
                "needs a cluster of the testbed with {}",
                names.join(", ")
            ))
        }
        Some(place) => attempt(place, case.name, case.limit, case.run).await,
        None => Outcome::CannotRun(format!(
            "needs a cluster of the tier '{}'",
            case.tier.name()
        )),
    }
}

async fn attempt<F>(
    place: Place,
    name: &str,
    limit: Duration,
    body: impl FnOnce(Env) -> F,
) -> Outcome
where
    F: Future<Output = Result<String>>,
{
    let env = match Env::new(place.clone(), name).await {
        Ok(env) => env,
        Err(error) => return Outcome::Failed(format!("{error:#}; {}", place.logs())),
    };
    let running = AssertUnwindSafe(body(env.clone())).catch_unwind();
    let failure = match timeout(limit, running).await {
        Ok(Ok(Ok(seen))) => match remove(&env).await {
            Ok(()) => return Outcome::Passed(seen),
            Err(error) => format!("{error:#}"),
        },
        Ok(Ok(Err(error))) => match error.downcast_ref::<CannotRun>() {
            Some(CannotRun(why)) => {
                return match remove(&env).await {
                    Ok(()) => Outcome::CannotRun(why.clone()),
                    Err(error) => Outcome::Failed(format!("{error:#}")),
                };
            }
            None => format!("{error:#}"),
        },
        Ok(Err(panic)) => format!("panicked: {}", panic_text(panic.as_ref())),
        Err(_elapsed) => format!("took longer than {} s", limit.as_secs()),
    };
    Outcome::Failed(format!(
        "{failure}; namespace '{}' was kept; {}",
        env.namespace,
        place.logs()
    ))
}

/// Runs the body of one `#[tokio::test]` on a cluster that all tests of a run share.
///
/// Such a test carries `#[ignore = "cluster: run by 'cargo xtask test'"]`: plain `cargo test` has no
/// cluster. `name` is part of its namespace's name: short, letters, digits, hyphens.
///
/// A test that cannot run on a contributor's own cluster says so by [`CannotRun`]; it then passes for
/// Cargo, which knows no third outcome. `cargo xtask test` lists it at the end and counts it as skipped.
///
/// # Errors
/// When the body fails or panics: with its namespace, which is kept, and where the logs are.
pub async fn test<F>(tier: Tier, name: &str, body: impl FnOnce(Env) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let outcome = match shared(tier)? {
        Some(place) => {
            attempt(place, name, CASE_LIMIT, |env| async {
                body(env).await.map(|()| String::new())
            })
            .await
        }
        None => Outcome::CannotRun(format!("needs a cluster of the tier '{}'", tier.name())),
    };
    match outcome {
        Outcome::Passed(_) => Ok(()),
        Outcome::Failed(why) | Outcome::Repeated(why) => bail!("{why}"),
        Outcome::CannotRun(why) => note_skipped(name, &why),
    }
}

/// The cluster of this run: a contributor's, or the one that `cargo xtask test` started.
fn shared(tier: Tier) -> Result<Option<Place>> {
    if let Some(external) = Place::external() {
        return Ok((tier != Tier::Kwok).then_some(external));
    }
    let run =
        std::env::var(RUN_VARIABLE).context("tests on a cluster are run by 'cargo xtask test'")?;
    let cluster = Cluster::attach(&shared_name(&run, tier))?;
    Ok(Some(Place::Testbed(Arc::new(cluster))))
}

/// Name of the cluster that the tests of a run share.
pub fn shared_name(run: &str, tier: Tier) -> String {
    format!("{run}-{}", tier.name())
}

/// Adds a line to the file of tests that cannot run: binary, test and reason.
fn note_skipped(name: &str, why: &str) -> Result<()> {
    const NO_RUN: &str = "tests on a cluster are run by 'cargo xtask test'";
    let path = std::env::var_os(SKIPPED_VARIABLE).context(NO_RUN)?;
    let binary = std::env::var(BINARY_VARIABLE).context(NO_RUN)?;
    // The harness names the thread of a test after the test. `#[tokio::test]` polls the test itself on this thread, also
    // if it has more threads. A harness with one thread may use the main thread.
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main");
    let line = skipped_line(&binary, test.unwrap_or(name), why);
    let mut file = fs::File::options().create(true).append(true).open(&path)?;
    // One write: tests of several processes share the file.
    file.write_all(line.as_bytes())?;
    Ok(())
}

fn skipped_line(binary: &str, test: &str, why: &str) -> String {
    let why = why.replace('\n', " ");
    format!("{binary}\t{test}\t{why}\n")
}

/// Reads a line of the file of tests that cannot run: binary, test and reason.
pub fn read_skipped(line: &str) -> [&str; 3] {
    let mut parts = line.splitn(3, '\t');
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

/// The namespace goes away in the background; nothing of a case waits for it.
async fn remove(env: &Env) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(env.client.clone());
    namespaces
        .delete(&env.namespace, &DeleteParams::default())
        .await
        .with_context(|| format!("cannot delete namespace '{}'", env.namespace))?;
    Ok(())
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

fn report(case: &Case, outcome: &Outcome, took: Duration, summary: &mut Summary) -> String {
    let (word, said) = match outcome {
        Outcome::Passed(seen) => {
            summary.passed += 1;
            ("ok     ", seen)
        }
        Outcome::Failed(why) => {
            summary.failed += 1;
            ("FAILED ", why)
        }
        Outcome::Repeated(why) => ("AGAIN  ", why),
        Outcome::CannotRun(why) => {
            summary.skipped += 1;
            ("skipped", why)
        }
    };
    let separator = if case.suite.is_empty() { "" } else { "/" };
    let name = format!("{}{separator}{}", case.suite, case.name);
    let recorded = match times::record(&name, took) {
        Ok(()) => String::new(),
        Err(error) => format!(" (its duration was not recorded: {error})"),
    };
    format!(
        "{word} {name:<13} {:>5.1} s  {}: {said}{recorded}",
        took.as_secs_f64(),
        case.shows
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_names_skipped_only_when_there_are_some() {
        let summary = Summary {
            passed: 3,
            ..Summary::default()
        };
        assert_eq!(summary.to_string(), "3 passed, 0 failed");
        assert_eq!(
            Summary {
                skipped: 2,
                ..summary
            }
            .to_string(),
            "3 passed, 0 failed, 2 skipped"
        );
        let repeated = Summary {
            repeated: 1,
            ..summary
        };
        assert_eq!(repeated.to_string(), "3 passed, 0 failed, 1 run twice");
    }

    #[test]
    fn only_a_first_failure_on_a_host_that_took_the_processors_is_tried_again() {
        let load = |stolen| Load {
            stolen,
            ..Load::default()
        };
        let cases = [
            (Try::First, 0, false),
            (Try::First, 19, false),
            (Try::First, 20, true),
            (Try::Second, 90, false),
        ];
        for (nth, stolen, again) in cases {
            assert_eq!(deserves_another(nth, load(stolen)), again, "{stolen} %");
        }
    }

    #[test]
    fn to_have_run_nothing_or_to_have_skipped_is_not_success() {
        let cases = [
            ((1, 0, 0), (true, true)),
            ((1, 0, 5), (false, true)),
            ((0, 0, 3), (false, false)),
            ((0, 0, 0), (false, false)),
            ((5, 1, 0), (false, false)),
        ];
        for ((passed, failed, skipped), (on_testbed, elsewhere)) in cases {
            let summary = Summary {
                passed,
                failed,
                skipped,
                repeated: 0,
            };
            assert_eq!(summary.succeeds(false), on_testbed, "{summary}");
            assert_eq!(summary.succeeds(true), elsewhere, "{summary}");
        }
    }

    #[test]
    fn a_suite_that_fails_has_a_failed_case() {
        for (failed, wanted) in [(0, r#"tests="1" failures="1""#), (1, r#"tests="0""#)] {
            let summary = Summary {
                failed,
                skipped: 1,
                ..Summary::default()
            };
            let mut results = junit::Report::new("suite");
            summary.add_failure(&mut results);
            let xml = results.to_string();
            assert!(xml.contains(wanted), "{xml}");
        }
    }

    #[test]
    fn a_skipped_test_is_read_as_it_was_written() {
        let line = skipped_line("cli suite", "docs::logs", "needs:\na\tnode");
        let wanted = ["cli suite", "docs::logs", "needs: a\tnode"];
        assert_eq!(read_skipped(line.trim_end()), wanted);
    }

    #[tokio::test]
    async fn a_case_without_a_place_is_skipped_not_passed() {
        let case = Case {
            name: "x",
            shows: "nothing",
            suite: "",
            tier: Tier::Kwok,
            additions: &[],
            when: When::Together,
            limit: CASE_LIMIT,
            run: |_| async { Ok(String::new()) }.boxed(),
        };
        let (mut lines, mut results) = (Vec::new(), junit::Report::new("suite"));
        let summary = run(vec![case], &BTreeMap::new(), 1, &mut results, &mut |line| {
            lines.push(line.to_owned())
        })
        .await;
        assert_eq!(
            summary,
            Summary {
                skipped: 1,
                ..Summary::default()
            }
        );
        assert!(
            lines[0].contains("skipped") && lines[0].contains("kwok"),
            "{lines:?}"
        );
        let xml = results.to_string();
        assert!(
            xml.contains(r#"failures="0" errors="0" skipped="1""#),
            "{xml}"
        );
    }
}
