//! `cargo xtask testbed …`, except for the suites that verify the testbed.

#![expect(clippy::print_stdout, reason = "a command line talks by printing")]

use std::{path::PathBuf, process::ExitCode, time::Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Subcommand;

use crate::{
    addition::Addition,
    build,
    cluster::{self, Cluster, Folders, KUBECONFIG_VARIABLE, Tier},
    image_cache,
    images::Image,
    layout,
    parts::{self, Part},
    process,
};

/// The commands that build and run clusters.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Build what is not in the cache: parts from Go modules, images from declarations
    Build {
        /// Only the parts and images of these names (default: all)
        names: Vec<String>,
    },
    /// Start a cluster that stays up, and say how to use it
    Up {
        /// Its name
        #[arg(default_value = "dev")]
        name: String,
        /// api, node or kwok
        #[arg(long, default_value = "node")]
        tier: Tier,
        /// Also start these, separated by commas: snapshots, flux, shop, notebooks
        #[arg(long, value_delimiter = ',')]
        with: Vec<Addition>,
    },
    /// End a cluster and remove all of it but the logs
    Down {
        /// Its name
        #[arg(default_value = "dev")]
        name: String,
        /// All clusters of this machine
        #[arg(long)]
        all: bool,
    },
    /// List the clusters of this machine
    Status,
    /// Print shell lines that point kubectl and helm at a cluster: eval "$(cargo xtask testbed env)"
    Env {
        /// Its name
        #[arg(default_value = "dev")]
        name: String,
    },
    /// Load image archives into the nodes of a running cluster, such as target/image/orchestrator.tar
    Load {
        /// Files of the form that `docker save` and `cargo xtask image` write
        #[arg(required = true)]
        archives: Vec<PathBuf>,
        /// Name of the cluster
        #[arg(long, default_value = "dev")]
        name: String,
    },
    /// Print the archives of images, for `kind load image-archive`
    Images {
        /// Only these (default: all)
        names: Vec<String>,
    },
    /// Own a cluster until killed; for `isolation`
    #[command(hide = true)]
    Own {
        /// Its name
        name: String,
    },
    /// The process beside a cluster; started by `up` and by tests
    #[command(hide = true)]
    Keeper {
        /// Its name
        name: String,
    },
    /// The first process inside a cluster; started by the keeper
    #[command(hide = true)]
    Init {
        /// Its name
        name: String,
    },
}

/// Runs one of the commands.
///
/// # Errors
/// When it fails.
pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Build { names } => build(&names)?,
        Command::Up { name, tier, with } => runtime()?.block_on(up(&name, tier, &with))?,
        Command::Down { name, all } => down(&name, all)?,
        Command::Status => status()?,
        Command::Env { name } => env(&Cluster::attach(&name)?)?,
        Command::Own { name } => runtime()?.block_on(async {
            let cluster = Cluster::start(&name, Tier::Node).await?;
            std::future::pending::<()>().await;
            cluster.stop().await
        })?,
        Command::Load { archives, name } => runtime()?.block_on(load(&name, &archives))?,
        Command::Images { names } => {
            for archive in image_cache::archives(&names)? {
                println!("{}", archive.display());
            }
        }
        Command::Keeper { name } => {
            let mut init = std::process::Command::new(process::this_program()?);
            init.args(["testbed", "init", &name]);
            cluster::keeper::run(&Folders::new(&name)?, &mut init)?;
        }
        Command::Init { name } => cluster::init::run(&Folders::new(&name)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// More threads than processors: cases run Git and other programs and wait for them on these threads. With
/// two, two such waits stop the clocks of all other cases.
const THREADS: usize = 16;

/// Starts the runtime of a suite.
///
/// # Errors
/// When the system has no threads for it.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

fn build(names: &[String]) -> Result<()> {
    let cache = layout::cache()?;
    let (mut parts, mut images) = (Part::all()?, image_cache::declared()?);
    let known: Vec<&str> = parts
        .iter()
        .map(|part| part.name.as_str())
        .chain(images.iter().map(Image::name))
        .collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!(
            "no part or image '{unknown}'; there are {}",
            known.join(", ")
        );
    }
    let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    parts.retain(|part| wanted(&part.name));
    images.retain(|image| wanted(image.name()));
    parts::build(&parts, &cache, &mut |line| println!("{line}"))?;
    image_cache::build(&images, &|line| println!("{line}"))?;
    println!("all in '{}'", cache.display());
    Ok(())
}

/// Checks that this process may start a cluster, or has one from a contributor. Call it first: nobody should
/// wait for a build to read this.
///
/// # Errors
/// When it may not.
pub fn require_root() -> Result<()> {
    ensure!(
        nix::unistd::geteuid().is_root() || std::env::var_os(KUBECONFIG_VARIABLE).is_some(),
        "a cluster needs root (namespaces, mounts, control groups); without it the same tests run on \
         kind or k3d: see 'On a cluster of your own' in docs/developing/testbed.md"
    );
    Ok(())
}

async fn up(name: &str, tier: Tier, with: &[Addition]) -> Result<()> {
    require_root()?;
    build::programs()?;
    let mut cluster = Cluster::start(name, tier).await?;
    cluster.add(with).await?;
    announce(&cluster);
    let folders = cluster.folders.clone();
    cluster.detach()?;
    // Cargo and xtask become this process, so its age includes their builds and their locks.
    println!(
        "whole wait: {:.1} s, with builds and locks",
        process::age()?.as_secs_f64()
    );
    println!("logs:    {}", folders.logs.display());
    println!("use it:  eval \"$(cargo xtask testbed env {name})\"");
    println!("end it:  cargo xtask testbed down {name}");
    Ok(())
}

async fn load(name: &str, archives: &[PathBuf]) -> Result<()> {
    let cluster = Cluster::attach(name)?;
    ensure!(
        cluster.tier == Tier::Node,
        "cluster '{name}' has the tier '{}', which has no container runtime; start one with '--tier node'",
        cluster.tier.name()
    );
    for archive in archives {
        let start = Instant::now();
        // The importing process has another working directory.
        let path = archive
            .canonicalize()
            .with_context(|| format!("cannot read '{}'", archive.display()))?;
        cluster.load_image(&path).await?;
        println!(
            "'{}' is loaded into cluster '{name}', {:.1} s",
            archive.display(),
            start.elapsed().as_secs_f64()
        );
    }
    Ok(())
}

/// Prints how a start went, and the remains of an earlier cluster that could not be removed.
pub fn announce(cluster: &Cluster) {
    let (name, tier) = (&cluster.folders.name, cluster.tier.name());
    if let Some(times) = &cluster.times {
        println!("cluster '{name}' ({tier}): {times}");
    }
    for warning in &cluster.warnings {
        println!("warning: {warning}");
    }
}

fn down(name: &str, all: bool) -> Result<()> {
    let clusters = if all {
        cluster::all()?
    } else {
        vec![Folders::new(name)?]
    };
    for folders in clusters {
        cluster::down(&folders)?;
        println!(
            "cluster '{}' is gone; its logs stay in '{}'",
            folders.name,
            folders.logs.display()
        );
    }
    Ok(())
}

fn status() -> Result<()> {
    let clusters = cluster::all()?;
    if clusters.is_empty() {
        println!("no clusters; 'cargo xtask testbed up' starts one");
    }
    for folders in clusters {
        let state = match (folders.is_alive()?, folders.is_ready()) {
            (true, true) => "ready",
            (true, false) => "starting",
            (false, _) => "dead; the next start of any cluster removes what is left",
        };
        println!(
            "{:<20} {state}  {} processes  {}",
            folders.name,
            folders.cgroup().processes()?.len(),
            folders.logs.display()
        );
    }
    Ok(())
}

fn env(cluster: &Cluster) -> Result<()> {
    let mut path = Vec::new();
    for part in ["kubernetes", "helm"] {
        path.push(parts::folder_of(part)?.join("bin"));
    }
    let path: Vec<String> = path
        .iter()
        .map(|folder: &PathBuf| folder.display().to_string())
        .collect();
    println!(
        "export KUBECONFIG='{}'",
        cluster.folders.kubeconfig().display()
    );
    println!("export PATH='{}':\"$PATH\"", path.join(":"));
    Ok(())
}
