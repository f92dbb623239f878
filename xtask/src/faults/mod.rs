//! `cargo xtask faults …`: crashes, lost answers, refusals and old caches, on the real node.

pub(crate) mod mutants;
mod replicas;
mod report;
mod tasks;
mod tenants;
mod transitions;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use testkit::{
    cluster::{Cluster, Tier, apply},
    faults::{
        campaign::{self, Lesson, Manner, Tally, Verdict},
        ledger::Ledger,
        plan::{self, Plan},
        play::{QUIET, Scenario, Theatre},
        witness::Witness,
    },
    git::{Network, Server},
    layout, operator,
};

use crate::{
    image,
    testbed::{announce, build_driver, require_root, runtime},
};

/// Plays wait more than they work.
const PARALLEL: usize = 10;

/// A whole campaign watches each scenario's end for so long, once.
const LONG_QUIET: Duration = Duration::from_secs(60);

/// What CI plays, and by which seed.
const SHARE: (usize, u64) = (110, 7);

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Every plan of the tasks family, or some of them
    Tasks(Arguments),
    /// Every plan of the tenants family, or some of them
    Tenants(Arguments),
    /// Two operators with one Lease: the leader is killed, stopped and frozen, again and again
    Replicas {
        /// How often it is killed
        #[arg(long, default_value_t = 20)]
        kills: usize,
        /// How often it is asked to stop
        #[arg(long, default_value_t = 20)]
        terms: usize,
        /// How often it is frozen
        #[arg(long, default_value_t = 5)]
        freezes: usize,
    },
    /// Specs made from the CRDs' schemas, on live objects: taken and acted upon, or refused
    Transitions {
        /// How many
        #[arg(long, default_value_t = 2000)]
        count: usize,
        /// Which
        #[arg(long, default_value_t = 7)]
        seed: u64,
        /// Only the one of this name
        #[arg(long)]
        only: Option<String>,
    },
}

#[derive(Args)]
pub(crate) struct Arguments {
    /// Only the plan of this id; may be repeated
    #[arg(long = "plan")]
    plans: Vec<String>,
    /// Only plans of this scenario; may be repeated
    #[arg(long = "scenario")]
    scenarios: Vec<String>,
    /// A share of all plans that hit something in each play, by a fixed seed, as CI plays it
    #[arg(long)]
    share: bool,
    /// How many plans the share has
    #[arg(long, default_value_t = SHARE.0)]
    size: usize,
    /// How many compound schedules there are, by seeds from 0
    #[arg(long, default_value_t = 520)]
    compound: u64,
    /// How many plays there are at a time
    #[arg(long, default_value_t = PARALLEL)]
    parallel: usize,
    /// Play nothing; print the plans
    #[arg(long)]
    list: bool,
    /// Write the page of the docs
    #[arg(long)]
    report: bool,
}

/// Runs one of them.
pub(crate) fn run(command: &Command) -> Result<ExitCode> {
    require_root()?;
    build_driver()?;
    crate::e2e::build_operator()?;
    match command {
        Command::Tasks(arguments) => runtime()?.block_on(family(Family::Tasks, arguments)),
        Command::Tenants(arguments) => runtime()?.block_on(family(Family::Tenants, arguments)),
        Command::Replicas {
            kills,
            terms,
            freezes,
        } => {
            let report = runtime()?.block_on(replicas::run(*kills, *terms, *freezes))?;
            print!("{report}");
            Ok(ending(report.is_clean()))
        }
        Command::Transitions { count, seed, only } => {
            let report = runtime()?.block_on(async {
                match only {
                    Some(name) => transitions::run_only(name).await,
                    None => transitions::run(*count, *seed).await,
                }
            })?;
            print!("{report}");
            Ok(ending(report.is_clean()))
        }
    }
}

fn ending(is_clean: bool) -> ExitCode {
    if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Whose scenarios are played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Tasks,
    Tenants,
}

impl Family {
    const ALL: [Self; 2] = [Self::Tasks, Self::Tenants];

    fn name(self) -> &'static str {
        match self {
            Self::Tasks => "tasks",
            Self::Tenants => "tenants",
        }
    }

    /// The page of the docs.
    fn page(self) -> &'static str {
        match self {
            Self::Tasks => "docs/reference/fault-report.md",
            Self::Tenants => "docs/reference/fault-report-tenants.md",
        }
    }
}

async fn family(family: Family, arguments: &Arguments) -> Result<ExitCode> {
    let stand = Stand::of(family, binary()?).await?;
    let result = campaign(&stand, arguments).await;
    stand.down().await?;
    result
}

async fn campaign(stand: &Stand, arguments: &Arguments) -> Result<ExitCode> {
    let wanted = &arguments.scenarios;
    let asked = |name: &str| {
        let is_planned = |id: &String| id.split('/').next() == Some(name);
        (wanted.is_empty() && arguments.plans.is_empty())
            || wanted.iter().any(|one| one == name)
            || arguments.plans.iter().any(is_planned)
    };
    let scenarios: Vec<Arc<dyn Scenario>> = stand
        .scenarios
        .iter()
        .filter(|one| asked(one.name()))
        .cloned()
        .collect();
    ensure!(!scenarios.is_empty(), "there is no such scenario");
    let is_whole = arguments.plans.is_empty() && !arguments.share && !arguments.list;
    let quiet = if is_whole { LONG_QUIET } else { QUIET };
    let lessons = learned(stand, &scenarios, arguments.parallel, quiet).await?;
    for lesson in &lessons {
        println!(
            "learned {:<12} {} writes ({} not each time), {} kinds of requests, {} watched resources",
            lesson.scenario.name(),
            lesson.learned.writes.len(),
            lesson.learned.varying.len(),
            lesson.learned.routes.len(),
            lesson.learned.watched.len()
        );
    }
    let mut plans = campaign::plans(&lessons, arguments.compound);
    if !arguments.plans.is_empty() {
        plans = chosen(&lessons, plans, &arguments.plans)?;
    }
    if arguments.share {
        let steady = plan::steady(&campaign::known(&lessons), plans);
        plans = plan::share(steady, arguments.size, SHARE.1);
    }
    if arguments.list {
        for plan in &plans {
            println!("{}", plan.id());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let tally = play(stand, &lessons, plans, arguments.parallel).await?;
    print!("{tally}");
    if arguments.report {
        let path = layout::repository().join(stand.family.page());
        let page = report::page(stand.family.name(), &lessons, &tally);
        std::fs::write(path, page)?;
    }
    Ok(ending(tally.is_clean()))
}

/// Learns the scenarios, and says which had to be learned again, and why.
async fn learned(
    stand: &Stand,
    scenarios: &[Arc<dyn Scenario>],
    parallel: usize,
    quiet: Duration,
) -> Result<Vec<Lesson>> {
    let lessons = campaign::learn(&stand.theatre, scenarios, parallel, quiet).await?;
    for lesson in &lessons {
        if let Some(why) = &lesson.disturbed {
            println!("learned again '{}': {why}", lesson.scenario.name());
        }
    }
    Ok(lessons)
}

/// The plans of these ids: as they were made, or as they are written.
fn chosen(lessons: &[Lesson], plans: Vec<Plan>, ids: &[String]) -> Result<Vec<Plan>> {
    let mut known: BTreeMap<String, Plan> =
        plans.into_iter().map(|plan| (plan.id(), plan)).collect();
    let mut chosen = Vec::new();
    for id in ids {
        let plan = match known.remove(id) {
            Some(plan) => plan,
            None => {
                let (scenario, words) = id.split_once('/').context("an id is SCENARIO/FAULTS")?;
                let mut names = lessons.iter().map(|lesson| lesson.scenario.name());
                let scenario = names.find(|name| *name == scenario);
                plan::of_words(scenario.context("no such scenario")?, words)
                    .with_context(|| format!("there is no plan '{id}'"))?
            }
        };
        chosen.push(plan);
    }
    Ok(chosen)
}

async fn play(
    stand: &Stand,
    lessons: &[Lesson],
    plans: Vec<Plan>,
    parallel: usize,
) -> Result<Tally> {
    let (all, mut done) = (plans.len(), 0);
    campaign::run(
        &stand.theatre,
        lessons,
        plans,
        &Manner {
            parallel,
            stops_at_first: false,
            environment: Vec::new(),
        },
        |id, verdict| {
            done += 1;
            println!("{done:>5}/{all} {}", line(id, verdict));
        },
    )
    .await
}

/// How a plan ended, in one line.
fn line(id: &str, verdict: &Result<Verdict>) -> String {
    match verdict {
        Err(error) => format!("BROKEN    {id}: {error:#}"),
        Ok(verdict) => {
            let took = verdict.took.as_secs_f64();
            // A seed says little to who was not there.
            let script: Vec<String> = match verdict.plan.seed {
                Some(_) => verdict
                    .plan
                    .script
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
                None => Vec::new(),
            };
            let script = script.join("+");
            if verdict.violations.is_empty() && verdict.was_reached {
                format!("ok        {took:>5.1} s  {id} {script}")
            } else if verdict.violations.is_empty() {
                format!("unreached {took:>5.1} s  {id} {script}")
            } else {
                let words = campaign::words(&verdict.violations);
                let kept = verdict.kept.as_deref().unwrap_or(Path::new("no file"));
                format!(
                    "DIVERGES  {took:>5.1} s  {id} {script}: {words}; see {}",
                    kept.display()
                )
            }
        }
    }
}

/// A cluster with everything that plays need.
struct Stand {
    family: Family,
    cluster: Cluster,
    theatre: Arc<Theatre>,
    scenarios: Vec<Arc<dyn Scenario>>,
}

impl Stand {
    /// For a family, with operators of this binary.
    async fn of(family: Family, binary: PathBuf) -> Result<Self> {
        let name = format!("faults-{}", std::process::id());
        let cluster = Cluster::start(&name, Tier::Node).await?;
        announce(&cluster);
        image::load_toolbox(&cluster).await?;
        let (client, config) = (cluster.client().await?, cluster.config().await?);
        let (definitions, permissions, watched, selected) = match family {
            Family::Tasks => (
                api::crd::tasks(),
                api::rbac::tasks(),
                tasks::watched(),
                &[][..],
            ),
            Family::Tenants => (
                api::crd::tenants(),
                api::rbac::tenants(),
                tenants::watched(),
                tenants::SELECTED,
            ),
        };
        operator::install(&client, definitions).await?;
        if family == Family::Tenants {
            for object in tenants::beside() {
                apply(&client, "default", &object.to_string()).await?;
            }
        }
        let network = Arc::new(Network::of(&cluster)?);
        let address = network.address();
        let listener = network.run(move || std::net::TcpListener::bind((address, 0)))??;
        let theatre = Theatre {
            witness: Arc::new(Witness::start(&client, watched.clone()).await?),
            ledger: Arc::new(Ledger::start(listener)?),
            watched,
            selected,
            audit: cluster.audit(),
            logs: cluster.folders.logs.join("plays"),
            operator: operator::Plan {
                binary,
                family: family.name(),
                home: String::new(),
                watched: Vec::new(),
                config: String::new(),
                permissions,
                network: None,
                endpoint: None,
                environment: Vec::new(),
            },
            client,
            config,
            network,
        };
        let scenarios = match family {
            Family::Tasks => tasks::scenarios(Server::in_cluster(&cluster)?),
            Family::Tenants => tenants::scenarios(),
        };
        Ok(Self {
            family,
            cluster,
            theatre: Arc::new(theatre),
            scenarios,
        })
    }

    async fn down(self) -> Result<()> {
        drop(self.scenarios);
        drop(self.theatre);
        self.cluster.stop().await
    }
}

fn binary() -> Result<PathBuf> {
    let program = testkit::process::this_program()?;
    let folder = program.parent().context("this program is in no folder")?;
    operator::built(folder)
}
