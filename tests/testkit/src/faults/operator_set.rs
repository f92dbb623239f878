//! The operators of one play: each behind a proxy of its own, and started again when it ends.

use std::{
    net::{IpAddr, Ipv4Addr, TcpListener},
    os::unix::process::ExitStatusExt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use kube::{Client, Config};
use nix::sys::signal::Signal;
use tokio::task::JoinSet;

use super::{
    point::Injection,
    proxy::{KillTarget, Part, Proxy, Traced},
};
use crate::operator::{Launch, Operator, Pages, Plan};

/// How often it is looked whether a process has ended.
const LOOK: Duration = Duration::from_millis(10);

/// A set that starts more often than this is not asked any more what is wrong.
const MOST_STARTS: usize = 40;

/// One operator and its way to the API server.
struct Instance {
    proxy: Proxy,
    target: KillTarget,
    shared: Arc<Shared>,
    /// Starts it again; ends with the set.
    _supervisor: JoinSet<()>,
}

impl Instance {
    /// The pages of its process, if there is one.
    fn pages(&self) -> Option<Pages> {
        self.shared.state().operator.as_ref().map(Operator::pages)
    }

    /// Kills it for good, and waits until it is dead.
    async fn kill_permanently(&self) -> Result<()> {
        self.shared.is_kept.store(false, Ordering::Relaxed);
        // One that was killed by a fault a moment ago is not there.
        let (true | false) = self.target.kill();
        let begin = Instant::now();
        loop {
            self.shared.look(&self.target)?;
            if self.shared.state().operator.is_none() {
                return Ok(());
            }
            anyhow::ensure!(
                begin.elapsed() < Duration::from_secs(5),
                "an operator does not die"
            );
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// What an instance's supervisor and the set know of it.
struct Shared {
    launch: Launch,
    /// Whether it is started again when it ends.
    is_kept: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    operator: Option<Operator>,
    /// What ended processes wrote.
    logs: Vec<String>,
    /// How processes ended that nobody had killed.
    ends: Vec<String>,
    /// Whether the process was asked to stop: it may say that it could not do so well.
    is_asked: bool,
    starts: usize,
    /// Why it cannot be kept running.
    broken: Option<String>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a process if there is none, and notices one that has ended.
    fn look(&self, target: &KillTarget) -> Result<()> {
        let mut state = self.state();
        if let Some(operator) = &mut state.operator {
            let Some(ended) = operator.has_ended()? else {
                return Ok(());
            };
            target.set(None);
            let log = operator.log_text()?;
            // One that has just been started may be asked to stop before it can hear that.
            let is_unheard = ended.signal() == Some(Signal::SIGTERM as i32);
            let is_expected = ended.success()
                || ended.signal() == Some(Signal::SIGKILL as i32)
                || (state.is_asked && (ended.code() == Some(1) || is_unheard));
            if !is_expected {
                let last = log.lines().last().unwrap_or_default();
                state
                    .ends
                    .push(format!("an operator ended with {ended}: {last}"));
            }
            state.is_asked = false;
            state.logs.push(log);
            state.operator = None;
        }
        if self.is_kept.load(Ordering::Relaxed) {
            anyhow::ensure!(state.starts < MOST_STARTS, "started {MOST_STARTS} times");
            let operator = self.launch.spawn()?;
            target.set(Some(operator.pid()?));
            state.starts += 1;
            state.operator = Some(operator);
        }
        Ok(())
    }
}

/// All operators of one play. Dropping it kills them.
pub struct OperatorSet {
    instances: Vec<Instance>,
}

impl OperatorSet {
    /// Starts as many as asked for; each gets the script.
    ///
    /// # Errors
    /// When rights cannot be granted, or a process cannot be started.
    pub async fn start(
        client: &Client,
        config: &Config,
        plan: &Plan,
        size: usize,
        script: &[Injection],
        part: &Part,
    ) -> Result<Self> {
        let mut instances = Vec::new();
        for _ in 0..size {
            let bind = || TcpListener::bind((IpAddr::V4(Ipv4Addr::LOCALHOST), 0));
            let listener = match &plan.network {
                Some(network) => network.run(bind)??,
                None => bind()?,
            };
            let target = KillTarget::default();
            let (hit, part) = (script.to_vec(), part.clone());
            let proxy = Proxy::of_part(listener, config, target.clone(), hit, part).await?;
            let plan = Plan {
                endpoint: Some(proxy.endpoint().clone()),
                ..plan.clone()
            };
            let launch = Launch::new(client, config, &plan).await?;
            let shared = Arc::new(Shared {
                launch,
                is_kept: AtomicBool::new(true),
                state: Mutex::new(State::default()),
            });
            shared.look(&target)?;
            let mut supervisor = JoinSet::new();
            supervisor.spawn(keep(Arc::clone(&shared), target.clone()));
            instances.push(Instance {
                proxy,
                target,
                shared,
                _supervisor: supervisor,
            });
        }
        Ok(Self { instances })
    }

    /// Who they are to the audit log.
    ///
    /// # Errors
    /// When there is nobody.
    pub fn user(&self) -> Result<String> {
        let first = self.instances.first().context("an empty set")?;
        Ok(first.shared.launch.user.clone())
    }

    /// Sends a signal to the process of one.
    ///
    /// # Errors
    /// When there is no such one, or it is not running.
    pub fn signal(&self, place: usize, signal: Signal) -> Result<()> {
        let instance = self.instances.get(place).context("no such operator")?;
        let mut state = instance.shared.state();
        let operator = state.operator.as_ref().context("it is not running")?;
        operator.signal(signal)?;
        state.is_asked |= signal == Signal::SIGTERM;
        Ok(())
    }

    /// Kills one, which stays so until [`OperatorSet::restart`].
    ///
    /// # Errors
    /// When there is no such one, or it does not die.
    pub async fn kill_permanently(&self, place: usize) -> Result<()> {
        let instance = self.instances.get(place).context("no such operator")?;
        instance.kill_permanently().await
    }

    /// Starts one again.
    ///
    /// # Errors
    /// When there is no such one.
    pub fn restart(&self, place: usize) -> Result<()> {
        let instance = self.instances.get(place).context("no such operator")?;
        instance.shared.is_kept.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The place of the one that leads by its own metric, if any does.
    pub async fn leader(&self) -> Option<usize> {
        for (place, instance) in self.instances.iter().enumerate() {
            if let Some(page) = instance.pages()
                && let Ok(true) = page.is_leading().await
            {
                return Some(place);
            }
        }
        None
    }

    /// All requests of all of them.
    #[must_use]
    pub fn trace(&self) -> Vec<Traced> {
        self.instances
            .iter()
            .flat_map(|instance| instance.proxy.trace())
            .collect()
    }

    /// When the last write was sent, Leases excepted.
    #[must_use]
    pub fn last_write(&self) -> Option<Instant> {
        let trace = self.trace();
        let writes = trace.iter().filter(|traced| {
            traced.point.route.is_write() && traced.point.route.resource != "leases"
        });
        writes.map(|traced| traced.at).max()
    }

    /// Which injections have hit, with any of them.
    #[must_use]
    pub fn hits(&self) -> Vec<bool> {
        let mut sum: Vec<bool> = Vec::new();
        for instance in &self.instances {
            for (place, hit) in instance.proxy.hits().into_iter().enumerate() {
                match sum.get_mut(place) {
                    Some(known) => *known |= hit,
                    None => sum.push(hit),
                }
            }
        }
        sum
    }

    /// From now on nothing is injected.
    pub fn calm(&self) {
        for instance in &self.instances {
            instance.proxy.calm();
        }
    }

    /// The metrics of all that answer.
    pub async fn metrics(&self) -> String {
        let mut text = String::new();
        for instance in &self.instances {
            if let Some(page) = instance.pages()
                && let Ok(metrics) = page.metrics().await
            {
                text.push_str(&metrics);
            }
        }
        text
    }

    /// Ends all of them; everything that they wrote, and how those ended that nobody had killed.
    ///
    /// # Errors
    /// When one could not be kept running.
    pub async fn dismiss(self) -> Result<(Vec<String>, Vec<String>)> {
        let (mut logs, mut ends) = (Vec::new(), Vec::new());
        for instance in &self.instances {
            instance.kill_permanently().await?;
            let mut state = instance.shared.state();
            logs.append(&mut state.logs);
            ends.append(&mut state.ends);
            if let Some(why) = state.broken.take() {
                anyhow::bail!("an operator could not be kept running: {why}");
            }
        }
        Ok((logs, ends))
    }
}

async fn keep(shared: Arc<Shared>, target: KillTarget) {
    loop {
        if let Err(error) = shared.look(&target) {
            shared.state().broken = Some(format!("{error:#}"));
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}
