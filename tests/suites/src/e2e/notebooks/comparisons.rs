//! Comparisons with golden notebooks: differences of all types, plots, and golden notebooks that prove nothing.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::git::Entry;

use super::fixture::{
    Bench, GOLDEN, NOTEBOOK, brief, cell, differences, notebook, result, source, stdout, tagged,
    with_golden,
};

/// Draws points with Pillow, without a library for plots.
fn plot(points: &str) -> String {
    format!(
        "from PIL import Image, ImageDraw\n\
         image = Image.new('RGB', (320, 240), 'white')\n\
         draw = ImageDraw.Draw(image)\n\
         points = {points}\n\
         for index in points:\n    \
         x, y = 10 + (index * 37) % 300, 10 + (index * 53) % 220\n    \
         draw.ellipse([x - 3, y - 3, x + 3, y + 3], fill='blue')\n\
         image"
    )
}

/// Twelve cells differ, each in another way. Each difference has its type, and the runner has executed all cells.
pub(super) async fn twelve(bench: &Bench) -> Result<String> {
    let same = |source: &str, outputs: &[Value]| (cell(source, &[]), cell(source, outputs));
    let error =
        json!({ "output_type": "error", "ename": "KeyError", "evalue": "'a'", "traceback": [] });
    let raising = |outputs: &[Value]| {
        let (run, golden) = same("raise ValueError('b')", outputs);
        (
            tagged(run, "raises-exception"),
            tagged(golden, "raises-exception"),
        )
    };
    let html = json!({ "output_type": "display_data", "metadata": {}, "data": { "text/html": "<b>1</b>" } });
    let pairs = [
        same("print('a')", &[stdout("b\n")]),
        same("print(0.5)", &[stdout("0.7\n")]),
        same("print(3)", &[stdout("4\n")]),
        same("print(1.00005)", &[stdout("1.0\n")]),
        same("print('one')\nprint('two')", &[stdout("one\n")]),
        same("print('x')", &[]),
        same("None", &[stdout("gone\n")]),
        same("7", &[result("8")]),
        same("{'a': [1, 2.5]}", &[result("{'a': [1, 2.75]}")]),
        raising(&[error]),
        same("print('html')", &[html, stdout("html\n")]),
        (cell("changed = 2", &[]), cell("changed = 1", &[])),
    ];
    let (run, golden): (Vec<Value>, Vec<Value>) = pairs.into_iter().unzip();
    let more =
        json!({ "results": { "store": "Full" }, "comparison": { "floatTolerance": "0.00001" } });
    bench.compare("twelve", &run, &golden, more).await?;
    let status = bench.fails("twelve", "Mismatch", &["cell 0"]).await?;
    ensure!(
        differences(&status).len() == 10,
        "{:?}",
        differences(&status)
    );
    let full = bench.full_result(&status).await?;
    let all = full["diffs"].as_array().context("no differences")?;
    let cells: BTreeSet<u64> = all.iter().filter_map(|one| one["cell"].as_u64()).collect();
    let expected: BTreeSet<u64> = (0..12).collect();
    ensure!(cells == expected, "differences in {cells:?}: {all:?}");
    let types: BTreeSet<&str> = all
        .iter()
        .filter_map(|one| one["diffType"].as_str())
        .collect();
    for wanted in [
        "OutputMismatch",
        "MissingOutput",
        "ExtraOutput",
        "ErrorMismatch",
        "SourceChanged",
    ] {
        ensure!(types.contains(wanted), "no {wanted} in {types:?}");
    }
    ensure!(full["notebook"].is_object(), "no executed notebook");
    let compared = status.comparison_result.context("no comparison")?;
    ensure!(compared.mismatched_cells == 12, "{compared:?}");
    // R68: each metric of the operator has a value.
    let mut series = vec![r#"orchestrator_notebook_cells_total{outcome="Succeeded"}"#.to_owned()];
    let of_class =
        |class: &String| format!(r#"orchestrator_notebook_mismatches_total{{class="{class}"}}"#);
    series.extend(compared.classes.keys().map(of_class));
    for one in &series {
        ensure!(
            bench.operator.metric(one).await? >= 1.0,
            "{one} did not move"
        );
    }
    Ok(format!("{types:?}, classes {:?}", compared.classes))
}

/// A difference that a wider tolerance removes is noise, and still a mismatch (F23).
pub(super) async fn classes(bench: &Bench) -> Result<String> {
    let golden = [cell("print(1.0)", &[stdout("1.0005\n")])];
    let run = [cell("print(1.0)", &[])];
    bench.compare("noise", &run, &golden, json!({})).await?;
    let status = bench.fails("noise", "Mismatch", &["Noise"]).await?;
    let first = differences(&status).first().context("no difference")?;
    ensure!(
        first.class == "Noise" && !first.expected.is_empty(),
        "{first:?}"
    );
    // With the tolerance that the rule names, it matches.
    let more = json!({
        "notebook": { "git": source(&bench.git, "noise", "main"), "path": NOTEBOOK },
        "goldenNotebook": { "path": GOLDEN }, "comparison": { "floatTolerance": "0.001" },
    });
    bench.submit("wider", more).await?;
    bench.succeeds("wider", &["1 outputs compared"]).await?;
    // An integer has no tolerance (F18).
    let run = [cell("print(1000001)", &[])];
    let golden = [cell("print(1000001)", &[stdout("1000000\n")])];
    bench.compare("integer", &run, &golden, json!({})).await?;
    bench.fails("integer", "Mismatch", &["Unknown"]).await?;
    Ok(brief(&status))
}

/// The executed notebook of one job is the golden one of the next. Then a mismatch is a regression, because the packages
/// are recorded and equal.
pub(super) async fn proposed_golden(bench: &Bench) -> Result<String> {
    let repository = bench
        .repository(
            "proposed",
            &[(NOTEBOOK, &notebook(&[cell("print(6 * 7)", &[])]))],
        )
        .await?;
    let full = json!({ "results": { "store": "Full" } });
    bench.submit("proposed", full).await?;
    let status = bench.succeeds("proposed", &[]).await?;
    let executed = bench.full_result(&status).await?["notebook"].to_string();
    repository.commit(
        "main",
        "take the golden notebook",
        &[(GOLDEN, Entry::File(executed.as_bytes()))],
    )?;
    let on = |mut more: Value| {
        more["notebook"] =
            json!({ "git": source(&bench.git, "proposed", "main"), "path": NOTEBOOK });
        more
    };
    bench.submit("again", on(with_golden())).await?;
    bench.succeeds("again", &["1 outputs compared"]).await?;
    let changed = notebook(&[cell("print(6 * 7)\nprint('more')", &[])]);
    repository.commit(
        "main",
        "break it",
        &[(NOTEBOOK, Entry::File(changed.as_bytes()))],
    )?;
    bench.submit("broken", on(with_golden())).await?;
    let status = bench.fails("broken", "Mismatch", &["Regression"]).await?;
    Ok(brief(&status))
}

/// The same plot drawn again matches; a plot with one point less does not (F17, F18).
pub(super) async fn plots(bench: &Bench) -> Result<String> {
    let whole = plot("range(100)");
    let repository = bench
        .repository("plot", &[(NOTEBOOK, &notebook(&[cell(&whole, &[])]))])
        .await?;
    bench
        .submit("plot", json!({ "results": { "store": "Full" } }))
        .await?;
    let status = bench.succeeds("plot", &[]).await?;
    let executed = bench.full_result(&status).await?["notebook"].clone();
    let image = &executed["cells"][0]["outputs"][0]["data"]["image/png"];
    ensure!(image.is_string(), "no image: {executed}");
    repository.commit(
        "main",
        "golden",
        &[(GOLDEN, Entry::File(executed.to_string().as_bytes()))],
    )?;
    let on = || {
        let mut more = with_golden();
        more["notebook"] = json!({ "git": source(&bench.git, "plot", "main"), "path": NOTEBOOK });
        more
    };
    bench.submit("same", on()).await?;
    bench.succeeds("same", &["1 outputs compared"]).await?;
    // The same source, whose point depends on a file of the repository.
    let mut less = executed.clone();
    less["cells"][0]["source"] = json!(plot("[one for one in range(100) if one != 40]"));
    less["cells"][0]["outputs"] = json!([]);
    let mut golden = executed;
    golden["cells"][0]["source"] = less["cells"][0]["source"].clone();
    let (less, golden) = (less.to_string(), golden.to_string());
    let entries = [
        (NOTEBOOK, Entry::File(less.as_bytes())),
        (GOLDEN, Entry::File(golden.as_bytes())),
    ];
    repository.commit("main", "one point less", &entries)?;
    bench.submit("less", on()).await?;
    let status = bench.fails("less", "Mismatch", &["image/png"]).await?;
    Ok(brief(&status))
}

/// Golden notebooks that prove nothing: empty, cut, of a stale source.
pub(super) async fn golden_without_proof(bench: &Bench) -> Result<String> {
    let run = [cell("print(1)", &[])];
    bench.compare("empty", &run, &run, json!({})).await?;
    bench.fails("empty", "GoldenEmpty", &[]).await?;
    let golden = [cell("print(2)", &[stdout("2\n")])];
    bench.compare("stale", &run, &golden, json!({})).await?;
    bench.fails("stale", "Mismatch", &["cell 0"]).await?;
    let whole = notebook(&[cell("print(1)", &[stdout("1\n")])]);
    let cut = whole.get(..whole.len() / 2).context("too short")?;
    let files = [(NOTEBOOK, whole.as_str()), (GOLDEN, cut)];
    bench.repository("cut", &files).await?;
    bench.submit("cut", with_golden()).await?;
    bench.fails("cut", "NotebookInvalid", &["golden"]).await?;
    let more = json!({ "comparison": { "ignoreOutputTypes": ["stream"] } });
    let golden = [cell("print(1)", &[stdout("1\n")])];
    bench.compare("ignored", &run, &golden, more).await?;
    let status = bench.fails("ignored", "NothingCompared", &[]).await?;
    Ok(brief(&status))
}

/// The golden notebook is that of the resolved commit, also if the branch moves meanwhile (F1, F3).
pub(super) async fn golden_of_commit(bench: &Bench) -> Result<String> {
    let right = notebook(&[cell("print(1)", &[stdout("1\n")])]);
    let wrong = notebook(&[cell("print(1)", &[stdout("9\n")])]);
    let repository = bench
        .repository("moves", &[(NOTEBOOK, &right), (GOLDEN, &right)])
        .await?;
    let first = repository.head("main")?.context("no commit")?;
    bench.submit("moves", with_golden()).await?;
    bench
        .until("moves", super::fixture::LIMIT, "its commit", |status| {
            status.commit.is_some()
        })
        .await?;
    let moved = repository.commit(
        "main",
        "a wrong golden",
        &[(GOLDEN, Entry::File(wrong.as_bytes()))],
    )?;
    let status = bench.succeeds("moves", &[]).await?;
    ensure!(
        status.commit.as_ref() == Some(&first),
        "{:?}",
        status.commit
    );
    // With the moved branch as the golden one's own reference, the outputs differ.
    let more = json!({
        "notebook": { "git": source(&bench.git, "moves", &first), "path": NOTEBOOK },
        "goldenNotebook": { "git": source(&bench.git, "moves", "main"), "path": GOLDEN },
    });
    bench.submit("newer", more).await?;
    let status = bench.fails("newer", "Mismatch", &[]).await?;
    ensure!(
        status.golden_commit.as_ref() == Some(&moved),
        "{:?}",
        status.golden_commit
    );
    Ok(brief(&status))
}

/// Values that differ in each run are normalized, and `exact` compares bytes.
pub(super) async fn normalized(bench: &Bench) -> Result<String> {
    let sources = [
        "import datetime\nprint('at', datetime.datetime.now().isoformat())",
        "object()",
        "import time\nprint('took', time.perf_counter() % 1)",
    ];
    let outputs = [
        stdout("at 2020-01-01T10:00:00.123456\n"),
        result("<object object at 0x7f0000000000>"),
        stdout("took 0.5\n"),
    ];
    let run: Vec<Value> = sources.iter().map(|source| cell(source, &[])).collect();
    let pairs = sources.iter().zip(outputs);
    let golden: Vec<Value> = pairs
        .map(|(source, output)| cell(source, &[output]))
        .collect();
    let pattern = json!({ "comparison": {
        "customPatterns": [{ "pattern": "took [0-9.e-]+", "replaceWith": "took T" }],
    } });
    bench.compare("normal", &run, &golden, pattern).await?;
    let status = bench.succeeds("normal", &[]).await?;
    let exact = json!({
        "notebook": { "git": source(&bench.git, "normal", "main"), "path": NOTEBOOK },
        "goldenNotebook": { "path": GOLDEN }, "comparison": { "strategy": "exact" },
    });
    bench.submit("exact", exact).await?;
    bench.fails("exact", "Mismatch", &["cell 0"]).await?;
    Ok(brief(&status))
}

/// A pattern that backtracks ends the comparison, and is a failure.
pub(super) async fn slow_pattern(bench: &Bench) -> Result<String> {
    let text = format!("{}!", "a".repeat(64));
    let source = format!("print('{text}')");
    let run = [cell(&source, &[])];
    let golden = [cell(&source, &[stdout(&format!("{text}\n"))])];
    let more = json!({ "comparison": {
        "customPatterns": [{ "pattern": "(a|aa)+$", "replaceWith": "" }],
    } });
    bench.compare("pattern", &run, &golden, more).await?;
    let status = bench.fails("pattern", "PatternInvalid", &[]).await?;
    Ok(brief(&status))
}

/// Cells are aligned by their sources: an inserted and a removed cell are named.
pub(super) async fn other_cells(bench: &Bench) -> Result<String> {
    let shared = || cell("print('shared')", &[stdout("shared\n")]);
    let run = [cell("extra = 1", &[]), shared()];
    let golden = [shared(), cell("missing = 1", &[])];
    bench.compare("cells", &run, &golden, json!({})).await?;
    let status = bench.fails("cells", "Mismatch", &[]).await?;
    let types: Vec<&str> = differences(&status)
        .iter()
        .map(|one| one.diff_type.as_str())
        .collect();
    ensure!(
        types.contains(&"ExtraCell") && types.contains(&"MissingCell"),
        "{types:?}"
    );
    Ok(types.join(", "))
}
