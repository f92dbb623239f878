//! The rows of the chart `shop`, read through its own client.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use testkit::{suite::Env, wait::until};

use super::volume::{delete_pod, exec, pod_with, restored};
use crate::verify::fixture;

/// The Pod of the database.
pub(super) const DATABASE: &str = "shop-database-0";
/// The claim of the database.
pub(super) const CLAIM: &str = "data-shop-database-0";

const IMAGE: &str = "testbed.local/postgres:15";

/// Time in which PostgreSQL starts on a volume with data.
const STARTED: Duration = Duration::from_secs(60);

/// Number, sum and md5 of all rows of version 1, in their order.
const ALL_ROWS: &str = "select count(*) || ' rows, sum ' || coalesce(sum(id), 0) || ', md5 ' || \
     md5(string_agg(id || ':' || note, ',' order by id)) from items";

/// Returns the output of a statement.
pub(super) async fn query(env: &Env, pod: &str, statement: &str) -> Result<String> {
    let script = format!(
        "psql --no-psqlrc --quiet --tuples-only --no-align --set ON_ERROR_STOP=1 --command \"{statement}\""
    );
    exec(env, pod, &script).await
}

/// Adds rows with different texts.
pub(super) async fn fill(env: &Env, rows: usize) -> Result<()> {
    let insert = format!(
        "insert into items (note) select 'note ' || md5(n || '') from generate_series(1, {rows}) n"
    );
    query(env, DATABASE, &insert).await?;
    let count = count(env, DATABASE).await?;
    ensure!(count == rows.to_string(), "{count} rows of {rows}");
    Ok(())
}

/// Returns number, sum and md5 of all rows of version 1.
pub(super) async fn checksum(env: &Env, pod: &str) -> Result<String> {
    let found = query(env, pod, ALL_ROWS).await?;
    ensure!(found.contains(", md5 "), "no md5: '{found}'");
    Ok(found)
}

pub(super) async fn count(env: &Env, pod: &str) -> Result<String> {
    query(env, pod, "select count(*) from items").await
}

/// Returns the names of the columns. Version 2 has dropped the column `note`.
pub(super) async fn columns(env: &Env, pod: &str) -> Result<String> {
    let statement = "select string_agg(column_name, ',' order by ordinal_position) \
         from information_schema.columns where table_name = 'items'";
    query(env, pod, statement).await
}

/// Starts PostgreSQL on the volume of a claim, and waits until it answers.
pub(super) async fn start(env: &Env, name: &str, claim: &str) -> Result<()> {
    let container = json!({ "name": "postgres", "image": IMAGE });
    fixture::create(env, pod_with(name, claim, container)?).await?;
    fixture::phase(env, name, "Running").await?;
    until("PostgreSQL to answer", STARTED, async || {
        let answer = query(env, name, "select 1").await;
        Ok(answer.map(drop).map_err(|error| format!("{error:#}")))
    })
    .await
}

/// Returns the checksum of the rows in a snapshot, which is restored to a volume of its own.
pub(super) async fn checksum_of_snapshot(env: &Env, snapshot: &str, size: &str) -> Result<String> {
    restored(env, "from-snapshot", snapshot, size).await?;
    start(env, "from-snapshot", "from-snapshot").await?;
    let found = checksum(env, "from-snapshot").await?;
    delete_pod(env, "from-snapshot").await?;
    Ok(found)
}
