//! Rows of the `Table` format, in which the API server lists runs without their files. Pure.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc, time::Duration};

use api::{Timestamp, kinds::KindRow, names, status::bounded};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The content type of the `Table` format.
pub(crate) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Maximum length of a message in a row, in characters.
const MESSAGE: usize = 1024;

/// A list of the API server, or one object in an event of a watch.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Table {
    pub(crate) metadata: TableMeta,
    /// Only in lists, and in the first event of a watch.
    pub(crate) column_definitions: Option<Vec<ColumnDefinition>>,
    pub(crate) rows: Option<Vec<TableRow>>,
}

/// Metadata of a list.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TableMeta {
    pub(crate) resource_version: String,
    #[serde(rename = "continue")]
    pub(crate) continue_: String,
}

/// A column.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ColumnDefinition {
    name: String,
}

/// A row, with the metadata of its object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TableRow {
    cells: Vec<Value>,
    object: PartialObject,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct PartialObject {
    metadata: RowMeta,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RowMeta {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
    creation_timestamp: String,
    deletion_timestamp: Option<String>,
    labels: BTreeMap<String, String>,
}

/// The positions of the columns.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Columns(BTreeMap<String, usize>);

impl Columns {
    pub(crate) fn of(definitions: &[ColumnDefinition]) -> Self {
        let names = definitions.iter().map(|column| column.name.clone());
        Self(names.zip(0..).collect())
    }

    fn cell<'a>(&self, row: &'a TableRow, name: &str) -> &'a Value {
        let index = self.0.get(name).copied();
        index
            .and_then(|index| row.cells.get(index))
            .unwrap_or(&Value::Null)
    }

    fn text(&self, row: &TableRow, name: &str) -> String {
        let cell = self.cell(row, name);
        cell.as_str().unwrap_or_default().to_owned()
    }
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    /// Kind: `TaskRun` or `DocsRun`.
    pub(crate) kind: String,
    /// Namespace.
    pub(crate) namespace: String,
    /// Name.
    pub(crate) name: String,
    /// UID.
    pub(crate) uid: String,
    /// Time of the creation.
    pub(crate) created: String,
    /// Whether the run is being deleted.
    pub(crate) deleting: bool,
    /// Phase.
    pub(crate) phase: String,
    /// Reason of the condition `Succeeded`.
    pub(crate) reason: String,
    /// Message of the status. A long one is cut off.
    pub(crate) message: String,
    /// Version that the status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<i64>,
    /// Number of attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempts: Option<i64>,
    /// Start of the last attempt's container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) started: Option<String>,
    /// End of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) finished: Option<String>,
    /// Value of the label `task-id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) task_id: Option<String>,
    /// Value of the label `service-name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) service: Option<String>,
    /// Value of the label `orchestrator.io/agent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
    /// The `resourceVersion`, as a number.
    #[serde(skip)]
    pub(crate) revision: u64,
    /// Namespace and name.
    #[serde(skip)]
    pub(crate) key: Arc<str>,
}

impl Row {
    /// Converts a row of the API server.
    pub(crate) fn of(kind: &KindRow, columns: &Columns, row: &TableRow) -> Self {
        let RowMeta {
            name,
            namespace,
            uid,
            resource_version,
            creation_timestamp,
            deletion_timestamp,
            labels,
        } = &row.object.metadata;
        let label = |key: &str| labels.get(key).cloned();
        let time = |name: &str| Some(columns.text(row, name)).filter(|time| !time.is_empty());
        let mut phase = columns.text(row, "Phase");
        if phase.is_empty() {
            phase.push_str("Pending");
        }
        Self {
            kind: kind.name().to_owned(),
            namespace: namespace.clone(),
            name: name.clone(),
            uid: uid.clone(),
            created: creation_timestamp.clone(),
            deleting: deletion_timestamp.is_some(),
            phase,
            reason: columns.text(row, "Reason"),
            message: bounded(&columns.text(row, "Message"), MESSAGE),
            version: columns.cell(row, "Version").as_i64(),
            attempts: columns.cell(row, "Attempt").as_i64(),
            started: time("Started"),
            finished: time("Finished"),
            task_id: label(names::TASK_ID),
            service: label(names::SERVICE_NAME),
            agent: label(names::AGENT),
            revision: revision(resource_version),
            key: format!("{namespace}/{name}").into(),
        }
    }

    fn key(&self) -> (&str, &str) {
        (&self.created, &self.uid)
    }
}

/// Returns a `resourceVersion` as a number, or 0 if it is none.
pub(crate) fn revision(text: &str) -> u64 {
    text.parse().unwrap_or_default()
}

/// Which runs a list has. An empty filter has all.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Filter {
    pub(crate) name: Option<String>,
    pub(crate) phase: Option<String>,
    pub(crate) reason: Option<String>,
    /// Value of the label.
    pub(crate) service: Option<String>,
    pub(crate) task_id: Option<String>,
    /// Value of the label.
    pub(crate) agent: Option<String>,
    /// Runs that finished before this time do not match.
    pub(crate) from: Option<Timestamp>,
    /// Runs that finished at this time or later do not match, and no unfinished ones.
    pub(crate) to: Option<Timestamp>,
    /// Time since the start, or between the start and the end.
    pub(crate) min_duration: Option<Duration>,
}

impl Filter {
    /// Returns the selector of labels, which the API server evaluates.
    pub(crate) fn selector(&self) -> String {
        let labels = [
            (names::TASK_ID, &self.task_id),
            (names::SERVICE_NAME, &self.service),
            (names::AGENT, &self.agent),
        ];
        let wanted = labels.into_iter().filter_map(|(key, value)| {
            let value = value.as_ref()?;
            Some(format!("{key}={value}"))
        });
        wanted.collect::<Vec<_>>().join(",")
    }

    /// Returns whether a run matches.
    pub(crate) fn matches(&self, row: &Row, now: Timestamp) -> bool {
        let is = |wanted: &Option<String>, found: &str| match wanted {
            Some(wanted) => wanted == found,
            None => true,
        };
        let has =
            |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        is(&self.name, &row.name)
            && is(&self.phase, &row.phase)
            && is(&self.reason, &row.reason)
            && has(&self.service, &row.service)
            && has(&self.task_id, &row.task_id)
            && has(&self.agent, &row.agent)
            && self.matches_times(row, now)
    }

    fn matches_times(&self, row: &Row, now: Timestamp) -> bool {
        let time = |text: &Option<String>| match text.as_ref().map(|text| text.parse()) {
            Some(Ok(time)) => Some(time),
            // The schema of the kind has no such value.
            Some(Err(_)) | None => None::<Timestamp>,
        };
        let (started, finished) = (time(&row.started), time(&row.finished));
        let is_late = self
            .from
            .is_none_or(|from| finished.is_none_or(|at| at >= from));
        let is_early = self.to.is_none_or(|to| finished.is_some_and(|at| at < to));
        let is_long = self.min_duration.is_none_or(|wanted| {
            let lasted = started.map(|start| finished.unwrap_or(now).duration_since(start));
            let lasted = lasted.map(|lasted| u64::try_from(lasted.as_secs()).unwrap_or_default());
            lasted.is_some_and(|seconds| seconds >= wanted.as_secs())
        });
        is_late && is_early && is_long
    }
}

/// A position in a list of runs, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    created: String,
    uid: String,
}

impl Position {
    /// Reads the text of a cursor. Returns `None` if it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (created, uid) = text.split_once('_')?;
        let is_uid = (1..=64).contains(&uid.len())
            && uid
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let is_time = created.len() <= 32 && created.parse::<Timestamp>().is_ok();
        (is_uid && is_time).then(|| Self {
            created: created.to_owned(),
            uid: uid.to_owned(),
        })
    }

    /// Returns the text of the cursor.
    pub(crate) fn text(&self) -> String {
        format!("{}_{}", self.created, self.uid)
    }
}

/// Orders the newest first: by time of creation and UID. The API server writes all times in one
/// format, so their texts have the order of the times.
fn newest_first(one: (&str, &str), other: (&str, &str)) -> Ordering {
    other.cmp(&one)
}

/// The newest runs after a position.
#[derive(Debug)]
pub(crate) struct Newest {
    limit: usize,
    after: Option<Position>,
    rows: Vec<Row>,
    has_more: bool,
}

impl Newest {
    pub(crate) fn new(limit: usize, after: Option<Position>) -> Self {
        Self {
            limit,
            after,
            rows: Vec::new(),
            has_more: false,
        }
    }

    /// Adds a run. Memory is bounded by twice the limit.
    pub(crate) fn add(&mut self, row: Row) {
        let is_after = |after: &Position| {
            newest_first(row.key(), (&after.created, &after.uid)) == Ordering::Greater
        };
        if !self.after.as_ref().is_none_or(is_after) {
            return;
        }
        self.rows.push(row);
        if self.rows.len() >= self.limit.saturating_mul(2) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.rows
            .sort_by(|one, other| newest_first(one.key(), other.key()));
        self.has_more |= self.rows.len() > self.limit;
        self.rows.truncate(self.limit);
    }

    /// Returns the page, and the position of the next one.
    pub(crate) fn page(mut self) -> (Vec<Row>, Option<Position>) {
        self.cut();
        let last = self.rows.last().filter(|_| self.has_more);
        let next = last.map(|row| Position {
            created: row.created.clone(),
            uid: row.uid.clone(),
        });
        (self.rows, next)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use api::tasks::TASK_RUN;
    use serde_json::json;

    use super::*;

    /// Returns the run of this number, with this phase and revision.
    pub(crate) fn row(number: u32, phase: &str, revision: u64) -> Row {
        let names = [
            "Name", "Phase", "Reason", "Version", "Attempt", "Age", "Started", "Finished",
            "Message",
        ];
        let table: Table = serde_json::from_value(json!({
            "metadata": {},
            "columnDefinitions": names.map(|name| json!({ "name": name, "type": "string" })),
            "rows": [{
                "cells": [format!("shop-{number}"), phase, "Progressing", 1, 2, "5m",
                    "2026-01-01T00:00:10Z", "", "it runs"],
                "object": { "kind": "PartialObjectMetadata", "metadata": {
                    "name": format!("shop-{number}"), "namespace": "team",
                    "uid": format!("uid-{number}"), "resourceVersion": revision.to_string(),
                    "creationTimestamp": format!("2026-01-01T00:00:{number:02}Z"),
                    "labels": { "task-id": number.to_string(), "service-name": "shop" },
                    "managedFields": [{ "manager": "orc" }] } },
            }],
        }))
        .unwrap();
        let columns = Columns::of(&table.column_definitions.unwrap());
        Row::of(&TASK_RUN, &columns, &table.rows.unwrap()[0])
    }

    #[test]
    fn a_row_has_the_columns_and_labels_of_its_run() {
        let found = serde_json::to_value(row(7, "Running", 42)).unwrap();
        assert_eq!(
            found,
            json!({ "kind": "TaskRun", "namespace": "team", "name": "shop-7", "uid": "uid-7",
                "created": "2026-01-01T00:00:07Z", "deleting": false, "phase": "Running",
                "reason": "Progressing", "message": "it runs", "version": 1, "attempts": 2,
                "started": "2026-01-01T00:00:10Z", "taskId": "7", "service": "shop" })
        );
        assert_eq!(row(7, "", 42).phase, "Pending");
        assert_eq!(row(7, "", 42).revision, 42);
        let empty: Table = serde_json::from_value(json!({ "metadata": {}, "rows": null,
            "columnDefinitions": null }))
        .unwrap();
        assert!(empty.rows.is_none());
    }

    #[test]
    fn each_filter_leaves_out_other_runs() {
        let running = row(7, "Running", 1);
        let mut ended = row(8, "Succeeded", 1);
        ended.finished = Some("2026-01-01T00:01:10Z".to_owned());
        let now: Timestamp = "2026-01-01T00:00:40Z".parse().unwrap();
        let text = |text: &str| Some(text.to_owned());
        let time = |text: &str| Some(text.parse().unwrap());
        let all = Filter::default;
        let cases = [
            (all(), true, true),
            (
                Filter {
                    name: text("shop-7"),
                    ..all()
                },
                true,
                false,
            ),
            (
                Filter {
                    phase: text("Succeeded"),
                    ..all()
                },
                false,
                true,
            ),
            (
                Filter {
                    reason: text("OOMKilled"),
                    ..all()
                },
                false,
                false,
            ),
            (
                Filter {
                    service: text("shop"),
                    ..all()
                },
                true,
                true,
            ),
            (
                Filter {
                    agent: text("writer"),
                    ..all()
                },
                false,
                false,
            ),
            (
                Filter {
                    task_id: text("8"),
                    ..all()
                },
                false,
                true,
            ),
            (
                Filter {
                    from: time("2026-01-01T00:01:11Z"),
                    ..all()
                },
                true,
                false,
            ),
            (
                Filter {
                    from: time("2026-01-01T00:01:10Z"),
                    ..all()
                },
                true,
                true,
            ),
            (
                Filter {
                    to: time("2026-01-01T00:01:10Z"),
                    ..all()
                },
                false,
                false,
            ),
            (
                Filter {
                    to: time("2026-01-01T00:01:11Z"),
                    ..all()
                },
                false,
                true,
            ),
            (
                Filter {
                    min_duration: Some(Duration::from_secs(30)),
                    ..all()
                },
                true,
                true,
            ),
            (
                Filter {
                    min_duration: Some(Duration::from_secs(31)),
                    ..all()
                },
                false,
                true,
            ),
        ];
        for (filter, of_running, of_ended) in cases {
            assert_eq!(filter.matches(&running, now), of_running, "{filter:?}");
            assert_eq!(filter.matches(&ended, now), of_ended, "{filter:?}");
        }
        let filter = Filter {
            task_id: text("8"),
            agent: text("writer"),
            ..all()
        };
        assert_eq!(filter.selector(), "task-id=8,orchestrator.io/agent=writer");
    }

    #[test]
    fn pages_have_each_run_once_and_the_newest_first() {
        let mut after = None;
        let mut seen = Vec::new();
        for page in 0..4 {
            let mut newest = Newest::new(3, after.take());
            for number in [4, 9, 1, 8, 2, 7, 3, 6, 5, 0] {
                newest.add(row(number, "Running", 1));
            }
            let (rows, next) = newest.page();
            assert_eq!(rows.len(), if page == 3 { 1 } else { 3 });
            seen.extend(rows.into_iter().map(|row| row.uid));
            after = next.map(|next| Position::parse(&next.text()).unwrap());
            assert_eq!(after.is_none(), page == 3);
        }
        let wanted: Vec<String> = (0..10)
            .rev()
            .map(|number| format!("uid-{number}"))
            .collect();
        assert_eq!(seen, wanted);
    }

    #[test]
    fn a_hostile_cursor_is_refused() {
        let long = format!("2026-01-01T00:00:00Z_{}", "a".repeat(65));
        for text in [
            "",
            "_",
            "x_y",
            "2026-01-01T00:00:00Z_",
            "2026-01-01T00:00:00Z_a b",
            &long,
        ] {
            assert_eq!(Position::parse(text), None, "{text}");
        }
    }
}
