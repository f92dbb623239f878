//! `cargo xtask bench gateway`: what the gateway costs. Each measurement has two sides in one run: the gateway, and the
//! same without it.

mod connection;
mod list;
mod streams;
mod submits;
mod table;

use std::{path::PathBuf, process::ExitCode, sync::OnceLock, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use serde_json::json;
use testkit::{
    cluster::Tier,
    suite::{Case, Env, When},
    wait::{met, until},
};

use self::table::Table;
use super::{
    client::get,
    fixture::{Caller, Options, Stage, editor},
};

/// The size of the measurements.
pub(crate) struct Size {
    /// Number of runs of the list.
    pub(crate) runs: usize,
    /// The operator to measure.
    pub(crate) binary: PathBuf,
}

static SIZE: OnceLock<Size> = OnceLock::new();

/// Creates a case that has the cluster for itself: a neighbor would be measured as well.
macro_rules! measurement {
    ($name:literal, $shows:literal, $run:path) => {
        Case {
            name: $name,
            shows: $shows,
            tier: Tier::Api,
            additions: &[],
            suite: "",
            when: When::Alone,
            limit: Duration::from_secs(1800),
            run: |env| $run(env).boxed(),
        }
    };
}

/// Runs all measurements, and prints their table.
pub(crate) async fn run(size: Size) -> Result<ExitCode> {
    ensure!(size.runs > 0, "'--runs' must be at least 1");
    SIZE.get_or_init(|| size);
    let cases = vec![
        measurement!("submits", "submits, beside creates", submits::submits),
        measurement!("list", "a list, beside the list as a table", list::list),
        measurement!("streams", "200 streams of 20 callers", streams::streams),
        measurement!("silent", "2,000 silent connections", submits::silent),
    ];
    let code = crate::cases::run("bench-gateway", cases, &[], 1).await?;
    println!("{}", Table::now());
    Ok(code)
}

fn size() -> Result<&'static Size> {
    SIZE.get().context("no size")
}

/// Starts the gateway that is to be measured, with these lines of its configuration.
async fn stage(env: Env, lines: &'static str) -> Result<Stage> {
    let options = Options {
        binary: Some(size()?.binary.clone()),
        lines,
        ..Options::default()
    };
    Stage::with(env, options).await
}

/// Creates callers with the permissions of an editor. The gateway and the API server know their tokens afterwards.
async fn callers(stage: &Stage, count: usize) -> Result<Vec<Caller>> {
    let namespace = &stage.env.namespace;
    let role = json!({ "metadata": { "name": "load" }, "rules": editor() });
    stage.env.create::<Role>(role).await?;
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": { "name": "load" },
        "roleRef": { "apiGroup": group, "kind": "Role", "name": "load" },
        "subjects": [{ "apiGroup": group, "kind": "Group", "name": format!("system:serviceaccounts:{namespace}") }],
    });
    stage.env.create::<RoleBinding>(binding).await?;
    let mut callers = Vec::new();
    for number in 0..count {
        callers.push(
            stage
                .account(namespace, &format!("caller-{number}"))
                .await?,
        );
    }
    let path = format!("/api/v1/runs?namespace={namespace}&kind=taskruns&limit=1");
    for caller in &callers {
        // The API server acts by a new role a moment after its creation.
        let limit = Duration::from_secs(20);
        until("the permissions of a caller", limit, async || {
            let status = stage.send(caller, get(path.clone())).await?.status;
            Ok(met(status == 200, || format!("{status}")))
        })
        .await?;
    }
    Ok(callers)
}
