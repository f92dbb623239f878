//! Checks besides the comparison, at each level.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::fixture::{Bench, brief, cell, notebook, phase_of, reason_of, source, tagged};

const STDERR: &str = "import sys\nprint('careful', file=sys.stderr)";
const WARNING: &str = "import warnings\nwarnings.warn('old', FutureWarning)";

/// Submits the same notebook at each level, without a golden notebook, and compares the reasons.
async fn at_each_level(
    bench: &Bench,
    name: &str,
    cells: &[Value],
    expected: [&str; 3],
) -> Result<String> {
    let text = notebook(cells);
    bench
        .repository(name, &[(super::fixture::NOTEBOOK, &text)])
        .await?;
    let mut said = Vec::new();
    for (level, reason) in ["development", "staging", "production"]
        .into_iter()
        .zip(expected)
    {
        let job = format!("{name}-{level}");
        let more = json!({
            "notebook": { "git": source(&bench.git, name, "main"), "path": super::fixture::NOTEBOOK },
            "validation": { "level": level, "requireGolden": false },
        });
        bench.submit(&job, more).await?;
        if reason == "Succeeded" {
            bench.succeeds(&job, &[]).await?;
        } else {
            bench.fails(&job, reason, &["cell 1"]).await?;
        }
        said.push(format!("{level}: {reason}"));
    }
    Ok(said.join(", "))
}

fn first() -> Value {
    cell("print('ok')", &[])
}

pub(super) async fn stderr(bench: &Bench) -> Result<String> {
    let cells = [first(), cell(STDERR, &[])];
    let expected = ["Succeeded", "Succeeded", "OutputOnStderr"];
    at_each_level(bench, "stderr", &cells, expected).await
}

pub(super) async fn warnings(bench: &Bench) -> Result<String> {
    let cells = [first(), cell(WARNING, &[])];
    let expected = ["Succeeded", "WarningsFound", "OutputOnStderr"];
    at_each_level(bench, "warning", &cells, expected).await
}

pub(super) async fn skipped(bench: &Bench) -> Result<String> {
    let cells = [first(), tagged(cell("1 / 0", &[]), "skip-execution")];
    let expected = ["Succeeded", "Succeeded", "CellsSkipped"];
    at_each_level(bench, "skipped", &cells, expected).await
}

/// A field overrides its level, in both directions.
pub(super) async fn overridden(bench: &Bench) -> Result<String> {
    let cells = ["print('ok')", STDERR];
    let strict = json!({ "validation": { "failOnStderr": true } });
    bench.run("strict", &cells, strict).await?;
    bench
        .fails("strict", "OutputOnStderr", &["cell 1", "careful"])
        .await?;
    let lax = json!({ "validation": {
        "level": "production", "failOnStderr": false, "failOnWarnings": false, "requireGolden": false,
    } });
    bench.run("lax", &cells, lax).await?;
    let status = bench.succeeds("lax", &[]).await?;
    Ok(brief(&status))
}

/// A cell with the tag `raises-exception` must raise.
pub(super) async fn must_raise(bench: &Bench) -> Result<String> {
    let raises = |source: &str| tagged(cell(source, &[]), "raises-exception");
    let text = notebook(&[cell("1", &[]), raises("1 / 0")]);
    bench
        .repository("raises", &[(super::fixture::NOTEBOOK, &text)])
        .await?;
    bench.submit("raises", json!({})).await?;
    bench.succeeds("raises", &["2 cells ran"]).await?;
    let text = notebook(&[cell("1", &[]), raises("1 / 1")]);
    bench
        .repository("calm", &[(super::fixture::NOTEBOOK, &text)])
        .await?;
    bench.submit("calm", json!({})).await?;
    let status = bench
        .fails("calm", "CellFailed", &["cell 1", "raises-exception"])
        .await?;
    Ok(brief(&status))
}

/// Nothing was executed, so nothing is proven.
pub(super) async fn nothing_ran(bench: &Bench) -> Result<String> {
    let text = notebook(&[tagged(cell("1", &[]), "nbval-skip")]);
    bench
        .repository("nothing", &[(super::fixture::NOTEBOOK, &text)])
        .await?;
    bench.submit("nothing", json!({})).await?;
    let status = bench.fails("nothing", "NothingValidated", &[]).await?;
    Ok(brief(&status))
}

/// Expected outputs of all kinds, met and not met.
pub(super) async fn expectations(bench: &Bench) -> Result<String> {
    let cells = ["import numpy", "numpy.arange(6.0).reshape(2, 3)", "'text'"];
    let good = json!({ "validation": { "expectedOutputs": [
        { "cell": 1, "type": "ndarray", "shape": "2,-1", "minValue": "0", "maxValue": "5", "notEmpty": true },
        { "cell": 2, "type": "str" },
    ] } });
    bench.run("good", &cells, good).await?;
    let status = bench.succeeds("good", &[]).await?;
    let counts = status.expectations.clone().unwrap_or_default();
    ensure!((counts.total, counts.failed) == (2, 0), "{counts:?}");
    let mut said = Vec::new();
    for (name, check) in [
        ("shape", json!({ "cell": 1, "shape": "3,2" })),
        ("range", json!({ "cell": 1, "maxValue": "4" })),
        ("type", json!({ "cell": 2, "type": "int" })),
        ("absent", json!({ "cell": 7, "notEmpty": true })),
    ] {
        let more = json!({
            "notebook": { "git": source(&bench.git, "good", "main"), "path": super::fixture::NOTEBOOK },
            "validation": { "expectedOutputs": [check] },
        });
        bench.submit(name, more).await?;
        let job = bench.finished(name, super::fixture::LIMIT).await?;
        let status = job.status.unwrap_or_default();
        ensure!(
            phase_of(&status) == "Failed" && reason_of(&status) == "ExpectationFailed",
            "{name}: {}",
            brief(&status)
        );
        said.push(brief(&status));
    }
    Ok(said.join(" | "))
}
