//! What the services share.

use std::{collections::HashMap, fs, sync::Arc};

use anyhow::Context as _;
use tokio::sync::{Mutex, MutexGuard};
use tonic::Status;

use crate::{
    args::Args,
    btrfs::{BtrfsError, Pool},
    mounts::MountsError,
    proto::csi::Topology,
    report,
    store::{Id, Kind, PageError, Record, Snapshot, StoreError, Table, Volume},
};

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) volumes: Table<Volume>,
    pub(crate) snapshots: Table<Snapshot>,
}

#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) pool: Pool,
    /// Held for the whole of each change, so that one change at a time is under way.
    store: Mutex<Store>,
}

impl Driver {
    pub(crate) async fn open(args: &Args) -> anyhow::Result<Self> {
        let pool = Pool::open(&args.root).await?;
        let mut volumes = Table::open(pool.records(Kind::Volume)).context("volumes")?;
        let mut snapshots = Table::open(pool.records(Kind::Snapshot)).context("snapshots")?;
        compare(&pool, &mut volumes)?;
        compare(&pool, &mut snapshots)?;
        Ok(Self {
            name: args.name.clone(),
            node: args.node.clone(),
            pool,
            store: Mutex::new(Store { volumes, snapshots }),
        })
    }

    pub(crate) async fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().await
    }

    /// The only place that its volumes can be reached from.
    pub(crate) fn topology(&self) -> Topology {
        Topology {
            segments: HashMap::from([(format!("topology.{}/node", self.name), self.node.clone())]),
        }
    }

    pub(crate) fn holds(&self, topology: &Topology) -> bool {
        let own = self.topology().segments;
        topology
            .segments
            .iter()
            .all(|(key, value)| own.get(key) == Some(value))
    }
}

/// Tells of what a crash or a stranger left. It only tells: remains are cleared by the retry of the call that left
/// them, and a record whose subvolume is gone answers NOT_FOUND from now on.
fn compare<R: Record>(pool: &Pool, table: &mut Table<R>) -> anyhow::Result<()> {
    let dir = pool.dir(R::KIND);
    let mut lost = Vec::new();
    for id in table.ids() {
        let path = pool.path(R::KIND, id);
        if !path
            .try_exists()
            .with_context(|| format!("cannot look at {}", path.display()))?
        {
            report::line(format_args!(
                "csi-btrfs: {} is recorded but not there: ignoring its record",
                path.display()
            ));
            lost.push(id.clone());
        }
    }
    for id in lost {
        table.disregard(&id);
    }
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry
            .with_context(|| format!("cannot list {}", dir.display()))?
            .path();
        let id = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| Id::parse(R::KIND, name));
        if id.is_none_or(|id| table.get(&id).is_none()) {
            report::line(format_args!(
                "csi-btrfs: {} has no record: left over from a call that did not end",
                path.display()
            ));
        }
    }
    Ok(())
}

/// Runs `work` to its end even if the caller hangs up. Tonic drops the future of a call whose client is gone, which
/// would leave a `btrfs` command half-way while the client's retry starts the next one.
///
/// The blocking pool also takes the file operations between the commands off the threads that serve.
pub(crate) async fn to_the_end<T, F, W>(driver: &Arc<Driver>, work: W) -> Result<T, Status>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Status>>,
    W: FnOnce(Arc<Driver>) -> F + Send + 'static,
{
    let driver = Arc::clone(driver);
    let runtime = tokio::runtime::Handle::current();
    match tokio::task::spawn_blocking(move || runtime.block_on(work(driver))).await {
        Ok(result) => result,
        Err(error) => Err(Status::internal(format!(
            "the call's work broke off: {error}"
        ))),
    }
}

impl From<BtrfsError> for Status {
    fn from(error: BtrfsError) -> Self {
        match error {
            BtrfsError::Timeout { .. } => Self::deadline_exceeded(error.to_string()),
            BtrfsError::Start { .. } | BtrfsError::Failed { .. } | BtrfsError::Io { .. } => {
                Self::internal(error.to_string())
            }
        }
    }
}

impl From<StoreError> for Status {
    fn from(error: StoreError) -> Self {
        Self::internal(error.to_string())
    }
}

impl From<MountsError> for Status {
    fn from(error: MountsError) -> Self {
        Self::internal(error.to_string())
    }
}

impl From<PageError> for Status {
    fn from(error: PageError) -> Self {
        match error {
            PageError::Token { .. } => Self::aborted(error.to_string()),
            PageError::Entries { .. } => Self::invalid_argument(error.to_string()),
        }
    }
}
