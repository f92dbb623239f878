//! Every version of a case's runs that the API server showed, judged as other tools judge them.

use std::{
    collections::BTreeMap,
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use api::tenants::Tenant;
use futures::{StreamExt, TryStreamExt};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
    core::{ApiResource, DynamicObject},
};
use testkit::parts;
use tokio::{io::AsyncWriteExt, process::Command, task::JoinSet};

/// What is on its way when a case is done is seen within this time.
const LAST_WORD: Duration = Duration::from_millis(300);

/// How often each status was computed, over all cases of this process.
static TALLY: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

/// Watches runs of some namespaces, or all Tenants.
pub(super) struct StatusHistory {
    watches: JoinSet<Result<()>>,
    seen: Arc<Mutex<Vec<DynamicObject>>>,
}

impl StatusHistory {
    /// All objects of these types from now on.
    pub(super) async fn new(
        client: &Client,
        namespaces: &[String],
        kinds: &[ApiResource],
    ) -> Result<Self> {
        let places = namespaces.iter().flat_map(|namespace| {
            let of = |kind| Api::namespaced_with(client.clone(), namespace, kind);
            kinds.iter().map(of).collect::<Vec<_>>()
        });
        Self::of(places.collect()).await
    }

    /// Every Tenant from now on.
    pub(super) async fn of_tenants(client: &Client) -> Result<Self> {
        let resource = ApiResource::erase::<Tenant>(&());
        Self::of(vec![Api::all_with(client.clone(), &resource)]).await
    }

    /// All objects of these types and namespaces from now on.
    pub(super) async fn of(places: Vec<Api<DynamicObject>>) -> Result<Self> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut watches = JoinSet::new();
        for runs in places {
            let now = runs.list(&ListParams::default().limit(1)).await?;
            let version = now.metadata.resource_version.unwrap_or_default();
            watches.spawn(follow(runs, version, Arc::clone(&seen)));
        }
        Ok(Self { watches, seen })
    }

    /// Every version that was seen.
    pub(super) async fn versions(mut self) -> Result<Vec<DynamicObject>> {
        tokio::time::sleep(LAST_WORD).await;
        if let Some(ended) = self.watches.try_join_next() {
            ended?.context("the watch of the runs broke")?;
        }
        Ok(std::mem::take(&mut *locked(&self.seen)))
    }

    /// Judges all that was seen; how many versions that were.
    pub(super) async fn judge(self) -> Result<usize> {
        let seen = self.versions().await?;
        let judged = computed(&seen).await?;
        ensure!(
            judged.len() == seen.len(),
            "kstatus judged {} of {} versions",
            judged.len(),
            seen.len()
        );
        for (object, status) in seen.iter().zip(&judged) {
            let wanted = expected(object);
            ensure!(
                status == wanted,
                "kstatus says {status}, wanted {wanted}: {}",
                serde_json::to_string(object)?
            );
            *locked(&TALLY).entry(status.clone()).or_default() += 1;
        }
        Ok(seen.len())
    }
}

/// How often each status was computed so far.
pub(super) fn tally() -> BTreeMap<String, usize> {
    locked(&TALLY).clone()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends only by an error.
async fn follow(
    runs: Api<DynamicObject>,
    mut version: String,
    seen: Arc<Mutex<Vec<DynamicObject>>>,
) -> Result<()> {
    let params = WatchParams::default();
    loop {
        let mut events = runs.watch(&params, &version).await?.boxed();
        while let Some(event) = events.try_next().await? {
            match event {
                WatchEvent::Added(object)
                | WatchEvent::Modified(object)
                | WatchEvent::Deleted(object) => {
                    version = object.resource_version().unwrap_or(version);
                    locked(&seen).push(object);
                }
                WatchEvent::Bookmark(mark) => version = mark.metadata.resource_version,
                WatchEvent::Error(error) => bail!("{error:?}"),
            }
        }
    }
}

/// What each object is to the library that Flux, Argo CD and kpt ask.
async fn computed(objects: &[DynamicObject]) -> Result<Vec<String>> {
    let mut input = Vec::new();
    for object in objects {
        serde_json::to_writer(&mut input, object)?;
        input.push(b'\n');
    }
    let mut child = Command::new(parts::binary("kstatus", "kstatus")?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    let write = async {
        stdin.write_all(&input).await?;
        drop(stdin);
        anyhow::Ok(())
    };
    let (written, output) = tokio::join!(write, child.wait_with_output());
    let output = output?;
    ensure!(
        output.status.success(),
        "kstatus: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    written?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// What a run is to be to others.
fn expected(run: &DynamicObject) -> &'static str {
    let status = &run.data["status"];
    let is_true = |kind: &str| {
        let conditions = status["conditions"].as_array();
        conditions.is_some_and(|all| {
            all.iter()
                .any(|one| one["type"] == kind && one["status"] == "True")
        })
    };
    let is_current = status["observedGeneration"].as_i64() == run.metadata.generation;
    if run.metadata.deletion_timestamp.is_some() {
        "Terminating"
    } else if !is_current {
        "InProgress"
    } else if is_true("Finished") && is_true("Succeeded") || is_true("Ready") {
        "Current"
    } else if is_true("Stalled") || status["phase"] == "Failed" {
        "Failed"
    } else {
        "InProgress"
    }
}
