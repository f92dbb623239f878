//! The task of one watch: lists the runs, and then follows their changes.

use std::{pin::pin, sync::Arc, time::Duration};

use api::kinds::KindRow;
use futures::TryStreamExt;
use kube::{Client, core::WatchEvent};
use tokio::time::{Instant, interval, sleep};

use super::{
    hub::{Key, Phase, Shared, Watches},
    state::State,
};
use crate::{
    perform::{runs_failed, table, table_request},
    problem::{Problem, Reason},
    table::{Columns, Row, Table, revision},
};

/// Number of runs in one response of the API server.
const CHUNK: &str = "500";

/// Maximum number of runs of a watch.
const ROWS: usize = 100_000;

/// Seconds after which the API server ends a watch. The next one is authorized again, so a permission
/// that is revoked ends within this time.
const LIFETIME: &str = "90";

/// By how many versions a watch begins earlier than its first client needs. Others that come back after
/// it may know less.
const REWIND: u64 = 2_000;

/// Interval between checks whether any stream uses the watch.
const CHECK: Duration = Duration::from_secs(5);

/// Pause after the first error; it doubles with each one.
const PAUSE: Duration = Duration::from_millis(500);

/// Minimum age of a watch that the API server closes as agreed.
const MIN_AGE: Duration = Duration::from_secs(5);

/// Maximum pause.
const PAUSE_LIMIT: Duration = Duration::from_secs(15);

/// How a watch ended.
#[derive(Debug)]
enum End {
    /// The API server closed it, as agreed.
    Closed,
    /// Its version is too old.
    Expired,
    /// No stream uses it any more.
    Unused,
    Failed(Problem),
}

/// Runs a watch until no stream uses it, or the API server rejects it.
pub(super) async fn run(
    watches: Arc<Watches>,
    shared: Arc<Shared>,
    key: Key,
    kind: &'static KindRow,
    client: Client,
    resume: Option<u64>,
) {
    let runs = Runs {
        client,
        kind,
        namespace: key.namespace.clone(),
    };
    let (rows, listed, mut columns) = match runs.list().await {
        Ok(listed) => listed,
        Err(problem) => return watches.end(&key, &shared, problem),
    };
    // With each failure, the watch begins later. The version of the list is always new enough.
    let resume = resume.filter(|known| *known < listed);
    let mut starts = resume.map_or_else(Vec::new, |known| {
        vec![known, known.saturating_sub(REWIND).max(1)]
    });
    let mut floor = starts.pop().unwrap_or(listed);
    let state = State::new(watches.share(rows), listed, floor);
    shared.update(|phase| *phase = Phase::Running(state));
    let mut pause = PAUSE;
    loop {
        let position = shared.read(|phase| match phase {
            Phase::Running(state) => state.revision(),
            Phase::Starting | Phase::Ended(_) => listed,
        });
        let began = Instant::now();
        let end = runs
            .follow(position, &watches, &shared, &key, &mut columns)
            .await;
        match end {
            End::Unused => return,
            End::Closed if began.elapsed() >= MIN_AGE => {
                pause = PAUSE;
                continue;
            }
            End::Closed => {}
            End::Expired if position == floor && floor < listed => {
                floor = starts.pop().unwrap_or(listed);
                with_state(&shared, |state| state.start_later(floor));
                continue;
            }
            End::Expired => match runs.list().await {
                Ok((rows, listed, new)) => {
                    columns = new;
                    let rows = watches.share(rows);
                    with_state(&shared, |state| state.relist(rows, listed));
                    continue;
                }
                Err(problem) if is_final(&problem) => return watches.end(&key, &shared, problem),
                Err(problem) => tracing::debug!("cannot list: {}", problem.detail),
            },
            End::Failed(problem) if is_final(&problem) => {
                return watches.end(&key, &shared, problem);
            }
            End::Failed(problem) => tracing::debug!("a watch broke: {}", problem.detail),
        }
        if watches.retire(&key, &shared) {
            return;
        }
        sleep(pause).await;
        pause = pause.saturating_mul(2).min(PAUSE_LIMIT);
    }
}

/// Returns whether another try would fail as well.
fn is_final(problem: &Problem) -> bool {
    matches!(
        problem.reason,
        Reason::Denied | Reason::Unauthenticated | Reason::Unknown | Reason::TooLarge
    )
}

fn with_state(shared: &Shared, change: impl FnOnce(&mut State)) {
    shared.update(|phase| match phase {
        Phase::Running(state) => change(state),
        Phase::Starting | Phase::Ended(_) => {}
    });
}

/// The runs of one kind, in one namespace or in all of them.
struct Runs {
    client: Client,
    kind: &'static KindRow,
    namespace: Option<String>,
}

impl Runs {
    fn failed(&self, error: kube::Error) -> Problem {
        runs_failed(self.kind, self.namespace.as_deref(), error)
    }

    /// Returns all runs, the version of the list, and the columns.
    async fn list(&self) -> Result<(Vec<Row>, u64, Columns), Problem> {
        let (mut rows, mut rest) = (Vec::new(), String::new());
        let mut columns = Columns::default();
        loop {
            let mut parameters = vec![("limit", CHUNK)];
            if !rest.is_empty() {
                parameters.push(("continue", rest.as_str()));
            }
            let namespace = self.namespace.as_deref();
            let part = table(&self.client, self.kind, namespace, &parameters).await;
            let part = part.map_err(|error| self.failed(error))?;
            if let Some(definitions) = &part.column_definitions {
                columns = Columns::of(definitions);
            }
            let of_part = part.rows.unwrap_or_default();
            rows.extend(of_part.iter().map(|row| Row::of(self.kind, &columns, row)));
            if rows.len() > ROWS {
                let detail = format!("more than {ROWS} runs; name a namespace");
                return Err(Problem::new(Reason::TooLarge, detail));
            }
            rest = part.metadata.continue_;
            if rest.is_empty() {
                return Ok((rows, revision(&part.metadata.resource_version), columns));
            }
        }
    }

    /// Follows the changes after a version.
    async fn follow(
        &self,
        after: u64,
        watches: &Watches,
        shared: &Arc<Shared>,
        key: &Key,
        columns: &mut Columns,
    ) -> End {
        let after = after.to_string();
        let parameters = [
            ("watch", "true"),
            ("resourceVersion", after.as_str()),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", LIFETIME),
        ];
        let request = match table_request(self.kind, self.namespace.as_deref(), &parameters) {
            Ok(request) => request,
            Err(error) => return End::Failed(self.failed(kube::Error::HttpError(error))),
        };
        let events = match self.client.request_events::<Table>(request).await {
            Ok(events) => events,
            Err(error) => return self.end_of(error),
        };
        let mut events = pin!(events);
        let mut check = interval(CHECK);
        loop {
            let event = tokio::select! {
                event = events.try_next() => event,
                _ = check.tick() => {
                    if watches.retire(key, shared) {
                        return End::Unused;
                    }
                    continue;
                }
            };
            match event {
                Ok(Some(WatchEvent::Added(table) | WatchEvent::Modified(table))) => {
                    for row in self.rows(table, columns, watches) {
                        with_state(shared, |state| state.put(row));
                    }
                }
                Ok(Some(WatchEvent::Deleted(table))) => {
                    for row in self.rows(table, columns, watches) {
                        with_state(shared, |state| state.delete(row));
                    }
                }
                Ok(Some(WatchEvent::Bookmark(bookmark))) => {
                    let known = revision(&bookmark.metadata.resource_version);
                    with_state(shared, |state| state.bookmark(known));
                }
                Ok(Some(WatchEvent::Error(status))) => {
                    return self.end_of(kube::Error::Api(status));
                }
                Ok(None) => return End::Closed,
                Err(error) => return self.end_of(error),
            }
        }
    }

    fn end_of(&self, error: kube::Error) -> End {
        match matches!(&error, kube::Error::Api(status) if status.code == 410) {
            true => End::Expired,
            false => End::Failed(self.failed(error)),
        }
    }

    fn rows(&self, table: Table, columns: &mut Columns, watches: &Watches) -> Vec<Arc<Row>> {
        if let Some(definitions) = &table.column_definitions
            && !definitions.is_empty()
        {
            *columns = Columns::of(definitions);
        }
        let rows = table.rows.unwrap_or_default();
        let rows: Vec<Row> = rows
            .iter()
            .map(|row| Row::of(self.kind, columns, row))
            .collect();
        watches.share(rows)
    }
}
