//! `cargo xtask faults replicas`: two operators with one Lease, and what happens to the leader.
//!
//! Runs are submitted all the time. The leader is killed, told to stop, and frozen for longer than
//! its Lease lasts, again and again; judged is by watches of our own and the audit log.

mod judge;
mod log;

use std::{
    collections::BTreeSet,
    fmt, fs,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use api::{
    status::condition,
    tasks::{Agent, TaskRun},
};
use futures::future::try_join_all;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{Api, Client, Config, api::ListParams, core::ApiResource};
use nix::sys::signal::Signal;
use serde_json::json;
use testbed::commands::announce;
use testkit::{
    cluster::{Cluster, Tier},
    faults::object_history::ObjectHistory,
    junit::CaseResult,
    operator::{self, Operator, Plan},
    suite,
    wait::until,
};
use tokio::time::sleep;

use self::log::{Late, late, made_twice, writes};
use super::{results, tasks};
use crate::e2e::budget::until_ready;

/// No play's namespace has it in its name.
const NAMESPACE: &str = "takeover";
const AGENT: &str = "agent";
/// Without a hyphen: the children of a run are named after it.
const SERVICE: &str = "replicas";
/// Two thirds of the Lease, after which a leader gives up, are 2 s.
const CONFIG: &str = "leaderElection: {leaseDurationSeconds: 3, renewSeconds: 1}\n\
                      tasks: {cleanup: {completedJobDelayMinutes: 0}}\n";
/// Between two runs: what the fake nodes can follow on two cores.
const PACE: Duration = Duration::from_millis(250);
/// The same on a real node, where each is a container.
const REAL_PACE: Duration = Duration::from_millis(1000);
/// Submitted together just before a freeze, so that it finds passes on their way.
const BURST: usize = 16;
/// More than the whole suite submits; the object history keeps so many.
const RUNS: usize = 3000;
/// Longer than the Lease lasts.
const FROZEN: Duration = Duration::from_secs(5);
/// Of a takeover; the Lease lasts 3 s.
const TAKEOVER: Duration = Duration::from_secs(15);
/// Of the last runs, and of what is cleaned up after them.
const REST: Duration = Duration::from_secs(120);

/// What was seen.
pub(crate) struct Report {
    /// How many were submitted.
    pub(crate) runs: usize,
    /// How long it took from the signal until the other one led, each time.
    pub(crate) kills: Vec<Duration>,
    /// The same.
    pub(crate) terms: Vec<Duration>,
    /// The same.
    pub(crate) freezes: Vec<Duration>,
    /// How long it took from a thaw until the frozen one said that it does not lead.
    pub(crate) steps_down: Vec<Duration>,
    /// Stops that did not end well: a machine without time for it makes them. In words.
    pub(crate) unclean: Vec<String>,
    /// Writes of all operators, those of the Lease left out.
    pub(crate) writes: usize,
    /// Writes that arrived after the Lease was lost, on their way before: refused. In words.
    pub(crate) refused: Vec<String>,
    /// The same, but carried out.
    pub(crate) accepted: Vec<String>,
    /// What must not be; in words.
    pub(crate) contradictions: Vec<String>,
}

impl Report {
    /// Whether every promise was kept.
    pub(crate) fn is_clean(&self) -> bool {
        self.contradictions.is_empty()
    }

    pub(crate) fn result(&self) -> CaseResult {
        results::whole(self.is_clean(), &self.contradictions, self.to_string())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            runs,
            kills,
            terms,
            freezes,
            steps_down,
            unclean,
            writes,
            refused,
            accepted,
            contradictions,
        } = self;
        writeln!(out, "{runs} runs, {writes} writes of the operators")?;
        writeln!(out, "killed:   {}", Times(kills))?;
        writeln!(out, "stopped:  {}", Times(terms))?;
        for stop in unclean {
            writeln!(out, "  a stop that did not end well: {stop}")?;
        }
        writeln!(out, "frozen:   {}", Times(freezes))?;
        writeln!(out, "thawed, stepped down: {}", Times(steps_down))?;
        writeln!(
            out,
            "{} writes were on their way when the Lease was lost: {} refused, {} carried out",
            refused.len() + accepted.len(),
            refused.len(),
            accepted.len()
        )?;
        for write in refused {
            writeln!(out, "  refused: {write}")?;
        }
        for write in accepted {
            writeln!(out, "  carried out: {write}")?;
        }
        for what in contradictions {
            writeln!(out, "  MUST NOT BE: {what}")?;
        }
        if contradictions.is_empty() {
            writeln!(
                out,
                "no Job twice, no end changed, no run left behind, no write begun without the Lease"
            )?;
        }
        Ok(())
    }
}

struct Times<'a>(&'a [Duration]);

impl fmt::Display for Times<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.0.to_vec();
        sorted.sort();
        let at = |index: usize| sorted.get(index).map_or(0.0, Duration::as_secs_f64);
        let (count, last) = (sorted.len(), sorted.len().saturating_sub(1));
        write!(
            out,
            "{count} times, {:.2} s at least, {:.2} s in the middle, {:.2} s at most",
            at(0),
            at(count / 2),
            at(last)
        )
    }
}

/// Kills the leader so often, tells it to stop so often, freezes it so often; on a cluster of fake nodes,
/// which can follow more runs.
///
/// # Errors
/// When that could not be done, or nobody took over; what the operators did wrong is in the report.
pub(crate) async fn run(counts: [usize; 3]) -> Result<Report> {
    let name = format!("replicas-{}", std::process::id());
    let cluster = Cluster::start(&name, Tier::Kwok).await?;
    announce(&cluster);
    let report = on(&cluster, counts).await;
    cluster.stop().await?;
    report
}

/// The same on this cluster, in a namespace of its own. Others may use the cluster: the operators are told
/// apart by their tokens.
///
/// # Errors
/// As [`run`].
pub(crate) async fn on(cluster: &Cluster, counts: [usize; 3]) -> Result<Report> {
    let (client, config) = (cluster.client().await?, cluster.config().await?);
    operator::install(&client, api::tasks::OPERATOR.crds()).await?;
    suite::new_namespace(&client, json!({ "name": NAMESPACE })).await?;
    let history = ObjectHistory::start(&client, watched()).await?;
    let launcher = Launcher {
        client: client.clone(),
        config,
        plan: Plan {
            watched: vec![NAMESPACE.to_owned()],
            config: CONFIG.to_owned(),
            ..Plan::new(operator::built()?, &api::tasks::OPERATOR, NAMESPACE)
        },
    };
    let load = Load {
        runs: Api::namespaced(client.clone(), NAMESPACE),
        count: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
        pace: match cluster.tier {
            Tier::Node => REAL_PACE,
            Tier::Api | Tier::Kwok => PACE,
        },
    };
    let mut pair = Pair::start(&launcher).await?;
    ready_agent(&client, cluster.tier).await?;
    let disturbed = async {
        let times = pair.disturb(&launcher, &load, counts).await;
        load.is_over.store(true, Ordering::Relaxed);
        times
    };
    let (times, loaded) = tokio::join!(disturbed, load.run());
    let times = times?;
    loaded?;
    let settled = load.settled().await;
    let tokens = pair.stop().await?;

    history.caught_up(&client).await?;
    let submitted = load.names();
    let mut contradictions = judge::contradictions(&history.of(NAMESPACE, &watched()), &submitted);
    contradictions.extend(settled.err().map(|error| format!("{error:#}")));
    // With the mark everything that was answered is in the log.
    cluster.audit().mark(&client).await?;
    let audit = fs::read_to_string(cluster.folders.logs.join("audit.log"))?;
    let writes = writes(&audit, &tokens)?;
    for (what, count) in made_twice(&writes) {
        contradictions.push(format!("{what} was made {count} times"));
    }
    let (begun, on_their_way): (Vec<Late>, Vec<Late>) = late(&writes, run_of)
        .into_iter()
        .partition(|late| late.was_begun);
    let words = |late: &Late| format!("{}, {} ms after the Lease was lost", late.write, late.after);
    let was_begun = |late: &Late| format!("begun without the Lease: {}", words(late));
    contradictions.extend(begun.iter().map(was_begun));
    let (refused, accepted): (Vec<&Late>, Vec<&Late>) = on_their_way
        .iter()
        .partition(|late| matches!(late.write.code, 404 | 409));
    Ok(Report {
        runs: submitted.len(),
        kills: times.kills,
        terms: times.terms,
        freezes: times.freezes,
        steps_down: times.steps_down,
        unclean: times.unclean,
        writes: writes.iter().filter(|write| !write.is_lease()).count(),
        refused: refused.into_iter().map(words).collect(),
        accepted: accepted.into_iter().map(words).collect(),
        contradictions,
    })
}

fn watched() -> Vec<ApiResource> {
    vec![
        ApiResource::erase::<TaskRun>(&()),
        ApiResource::erase::<Job>(&()),
        ApiResource::erase::<Pod>(&()),
    ]
}

/// On fake nodes no image is ever pulled.
async fn ready_agent(client: &Client, tier: Tier) -> Result<()> {
    let agents: Api<Agent> = Api::namespaced(client.clone(), NAMESPACE);
    let agent = json!({
        "apiVersion": "orchestrator.io/v1alpha1", "kind": "Agent",
        "metadata": { "name": AGENT }, "spec": match tier {
            Tier::Node => json!({
                "image": tasks::BUSYBOX, "command": ["/bin/true"],
                "resources": {
                    "requests": { "cpu": "1m", "memory": "4Mi" }, "limits": { "memory": "64Mi" },
                },
            }),
            Tier::Api | Tier::Kwok => json!({ "image": "none:1" }),
        },
    });
    until_ready(&agents, agent).await
}

/// Runs that are submitted all the time.
struct Load {
    runs: Api<TaskRun>,
    count: AtomicUsize,
    is_over: AtomicBool,
    pace: Duration,
}

fn name_of(index: usize) -> String {
    format!("load-{index}")
}

/// A run's number, from its name, a child's (`SERVICE-NUMBER-…`) or an Event's (`NAME.…`).
fn run_of(name: &str) -> &str {
    name.split(['-', '.']).nth(1).unwrap_or(name)
}

impl Load {
    async fn run(&self) -> Result<()> {
        while !self.is_over.load(Ordering::Relaxed) {
            self.submit().await?;
            sleep(self.pace).await;
        }
        Ok(())
    }

    async fn submit(&self) -> Result<()> {
        // From 1: a task has no number 0.
        let index = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        ensure!(index <= RUNS, "more than {RUNS} runs: something hangs");
        let run = json!({
            "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
            "metadata": { "name": name_of(index) },
            "spec": {
                "taskId": index, "serviceName": SERVICE, "agentName": AGENT,
                "markdownFiles": [{ "filename": "task.md", "content": "work" }],
            },
        });
        suite::create(&self.runs, run).await?;
        Ok(())
    }

    async fn burst(&self) -> Result<()> {
        try_join_all((0..BURST).map(|_| self.submit())).await?;
        Ok(())
    }

    fn names(&self) -> BTreeSet<String> {
        (1..=self.count.load(Ordering::Relaxed))
            .map(name_of)
            .collect()
    }

    /// All have ended and are let go.
    async fn settled(&self) -> Result<()> {
        until("all runs to end", REST, async || {
            sleep(Duration::from_secs(1)).await; // a list of all is not free
            let list = self.runs.list(&ListParams::default()).await?.items;
            let is_left = |run: &&TaskRun| {
                let status = run.status.as_ref();
                let is_over =
                    status.is_some_and(|status| status.progress.is_true(condition::FINISHED));
                !is_over || run.metadata.finalizers.is_some()
            };
            Ok(match list.iter().filter(is_left).count() {
                0 => Ok(()),
                left => Err(format!("{left} have not")),
            })
        })
        .await
    }
}

/// Starts operators with one configuration.
struct Launcher {
    client: Client,
    config: Config,
    plan: Plan,
}

impl Launcher {
    async fn start(&self) -> Result<Operator> {
        Operator::start(&self.client, &self.config, &self.plan).await
    }
}

#[derive(Default)]
struct Observed {
    kills: Vec<Duration>,
    terms: Vec<Duration>,
    freezes: Vec<Duration>,
    steps_down: Vec<Duration>,
    unclean: Vec<String>,
}

struct Pair {
    leader: Operator,
    other: Operator,
    /// Of all that ever ran.
    tokens: BTreeSet<String>,
}

impl Pair {
    async fn start(launcher: &Launcher) -> Result<Self> {
        let leader = launcher.start().await?;
        leads(&leader, Instant::now()).await?;
        let other = launcher.start().await?;
        let tokens = [leader.credential()?, other.credential()?].into();
        Ok(Self {
            leader,
            other,
            tokens,
        })
    }

    async fn disturb(
        &mut self,
        launcher: &Launcher,
        load: &Load,
        [kills, terms, freezes]: [usize; 3],
    ) -> Result<Observed> {
        let mut seen = Observed::default();
        for _ in 0..kills {
            self.find_leader().await?;
            let since = Instant::now();
            self.leader.signal(Signal::SIGKILL)?;
            seen.kills.push(leads(&self.other, since).await?);
            let old = self.replace(launcher).await?;
            drop(old); // it is dead, and is waited for
        }
        for _ in 0..terms {
            self.find_leader().await?;
            let since = Instant::now();
            self.leader.signal(Signal::SIGTERM)?;
            seen.terms.push(leads(&self.other, since).await?);
            let stopped = stops(self.replace(launcher).await?, since).await;
            seen.unclean
                .extend(stopped.err().map(|error| format!("{error:#}")));
        }
        for _ in 0..freezes {
            let (freeze, step_down) = self.freeze(load).await?;
            seen.freezes.push(freeze);
            seen.steps_down.push(step_down);
        }
        Ok(seen)
    }

    /// On a machine that has no time for it, a leader loses its Lease without our doing.
    async fn find_leader(&mut self) -> Result<()> {
        let since = Instant::now();
        while !self.leader.is_leading().await? {
            ensure!(since.elapsed() < TAKEOVER, "nobody leads");
            std::mem::swap(&mut self.leader, &mut self.other);
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// The other one leads; a new one takes its place. The old leader.
    async fn replace(&mut self, launcher: &Launcher) -> Result<Operator> {
        let new = launcher.start().await?;
        self.tokens.insert(new.credential()?);
        let heir = std::mem::replace(&mut self.other, new);
        Ok(std::mem::replace(&mut self.leader, heir))
    }

    /// Until the other one led; from the thaw until the frozen one knew that it does not.
    async fn freeze(&mut self, load: &Load) -> Result<(Duration, Duration)> {
        self.find_leader().await?;
        load.burst().await?;
        let since = Instant::now();
        self.leader.signal(Signal::SIGSTOP)?;
        let took = leads(&self.other, since).await;
        sleep(FROZEN.saturating_sub(since.elapsed())).await;
        let thaw = Instant::now();
        self.leader.signal(Signal::SIGCONT)?;
        let took = took?;
        while self.leader.is_leading().await? {
            ensure!(thaw.elapsed() < TAKEOVER, "a thawed leader goes on leading");
            sleep(Duration::from_millis(5)).await;
        }
        let noticed = thaw.elapsed();
        std::mem::swap(&mut self.leader, &mut self.other);
        // What it had on its way comes now, or never.
        sleep(Duration::from_secs(1)).await;
        Ok((took, noticed))
    }

    async fn stop(self) -> Result<BTreeSet<String>> {
        let Self {
            leader,
            other,
            tokens,
        } = self;
        // How they stop was judged before, under load; here nothing depends on it.
        other.kill().await?;
        leader.kill().await?;
        Ok(tokens)
    }
}

/// It was told to stop at this moment, and must do so well.
async fn stops(mut operator: Operator, since: Instant) -> Result<()> {
    let ended = loop {
        if let Some(ended) = operator.has_ended()? {
            break ended;
        }
        ensure!(since.elapsed() < TAKEOVER, "it does not stop");
        sleep(Duration::from_millis(20)).await;
    };
    let log = operator.log_text()?;
    let errors: Vec<&str> = log
        .lines()
        .filter(|line| line.contains(r#""level":"ERROR""#))
        .collect();
    ensure!(ended.success(), "{ended}: {}", errors.join("; "));
    Ok(())
}

/// How long after this moment it leads.
async fn leads(operator: &Operator, since: Instant) -> Result<Duration> {
    loop {
        if operator.is_leading().await? {
            return Ok(since.elapsed());
        }
        ensure!(
            since.elapsed() < TAKEOVER,
            "nobody leads: {}",
            operator.log_text()?
        );
        sleep(Duration::from_millis(5)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_run() {
        let own = name_of(17);
        let event = format!("{own}.5f");
        let child = format!("{SERVICE}-17-v1-files");
        for name in [own, event, child] {
            assert_eq!(run_of(&name), "17", "{name}");
        }
        assert_eq!(run_of(AGENT), AGENT);
    }

    #[test]
    fn times_are_sorted_before_they_are_told() {
        let of = |all: &[u64]| {
            let all: Vec<Duration> = all.iter().copied().map(Duration::from_secs).collect();
            Times(&all).to_string()
        };
        assert_eq!(
            of(&[3, 1, 2]),
            "3 times, 1.00 s at least, 2.00 s in the middle, 3.00 s at most"
        );
        assert!(of(&[]).starts_with("0 times"));
    }
}
