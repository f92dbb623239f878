//! Large objects that anyone may create who may create runs or ConfigMaps.

use anyhow::{Result, anyhow, ensure};
use api::names;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::PostParams};
use serde_json::json;
use testkit::suite::Env;

use super::{
    super::attacks::tried,
    fixture::{Bench, Expect},
};

/// So many runs, and as many ConfigMaps. `cargo xtask bench memory` has 600.
const COUNT: usize = 100;
/// The most files that a run may have, in bytes, and nearly the most that a ConfigMap may have.
const FILES: usize = 900 * 1024 - 64;
const DATA: usize = 1000 * 1024;
/// The operator may grow by so much, in MiB: it keeps files of 32 MiB at most, and reads several objects at once. With
/// all files it would have at least 88 more.
const GROWTH: f64 = 80.0;
/// Requests at once.
const AT_ONCE: usize = 4;

/// A4: someone creates suspended runs with large files, and large ConfigMaps with our labels.
pub(super) async fn large_files(env: Env) -> Result<String> {
    let mut bench = Bench::new(env).await?;
    bench.agent("small", "sleep 3", json!({})).await?;
    bench.submit_as("before", "small", json!({})).await?;
    bench.ends("before", Expect::default()).await?;
    let before = bench.operator.memory_mib("VmRSS")?;

    let text = "0123456789abcdef".repeat(FILES / 16);
    let files = json!([{ "filename": "task.md", "content": text }]);
    let spec = json!({ "suspend": true, "markdownFiles": files });
    let submit = async |number: usize| -> Result<()> {
        let name = format!("large-{number}");
        bench.submit_as(&name, "small", spec.clone()).await?;
        Ok(())
    };
    stream::iter(0..COUNT)
        .map(submit)
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    let last = format!("large-{}", COUNT - 1);
    bench.says(&last, "Suspended").await?;
    let maps: Api<ConfigMap> = bench.env.api();
    let data = "0123456789abcdef".repeat(DATA / 16);
    let plant = async |number: usize| -> Result<()> {
        let map = serde_json::from_value(json!({
            "metadata": {
                "name": format!("large-{number}"),
                "labels": { names::KIND: "TaskRun", names::UID: format!("none-{number}") },
            },
            "data": { "task.md": data },
        }))?;
        maps.create(&PostParams::default(), &map).await?;
        Ok(())
    };
    stream::iter(0..COUNT)
        .map(plant)
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    // The operator has seen all of them when a run that was created later has ended.
    bench.submit_as("after", "small", json!({})).await?;
    bench.ends("after", Expect::default()).await?;
    let ended = bench.operator.has_ended()?;
    ensure!(ended.is_none(), "the operator ended: {ended:?}");
    let peak = bench.operator.memory_mib("VmHWM")?;
    tried(if peak - before <= GROWTH {
        Ok(())
    } else {
        Err(anyhow!(
            "the operator grew from {before:.0} to {peak:.0} MiB"
        ))
    })?;
    bench.done().await?;
    Ok(format!(
        "{COUNT} runs of 900 KiB and {COUNT} ConfigMaps: from {before:.0} MiB to at most {peak:.0} MiB"
    ))
}
