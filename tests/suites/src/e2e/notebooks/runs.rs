//! Jobs that succeed: sources, results and progress.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::{names, notebooks::CellMatch};
use kube::ResourceExt;
use serde_json::json;
use testkit::{git::Server, suite::Env};

use super::{
    super::children::until_gone,
    fixture::{
        Bench, Expect, GOLDEN, LIMIT, NOTEBOOK, SECRET, brief, cell, notebook, of_cell, result,
        source, sources, stdout, with_golden,
    },
};

/// The notebook, the image and the commit of a success are those of the spec, and its result is stored.
pub(super) async fn plain(bench: &Bench) -> Result<String> {
    let cells = [
        cell("x = 40", &[]),
        cell("print('half', x / 2)", &[stdout("half 20.0\n")]),
        cell("x + 2", &[result("42")]),
    ];
    bench.compare("plain", &cells, &cells, json!({})).await?;
    let says = ["3 cells ran, 0 skipped, 2 outputs compared"];
    let status = bench.succeeds("plain", &says).await?;
    let head = bench.git.repository("plain")?.head("main")?;
    ensure!(
        status.commit == head && status.golden_commit == head,
        "{head:?}"
    );
    let cells = status.cells.as_ref().context("no cells")?;
    ensure!(
        (cells.total, cells.done, cells.failed) == (3, 3, 0),
        "{cells:?}"
    );
    let compared = status.comparison_result.as_ref().context("no comparison")?;
    ensure!(
        compared.result == "matched" && compared.matched_cells == 2,
        "{compared:?}"
    );
    ensure!(of_cell(&status, 2)?.comparison == Some(CellMatch::Matched));
    for (kind, value) in [
        ("SourceResolved", "True"),
        ("Compared", "True"),
        ("ResultsStored", "True"),
    ] {
        let found = status
            .progress
            .condition(kind)
            .map(|one| one.status.as_str());
        ensure!(found == Some(value), "{kind} is {found:?}");
    }
    let full = bench.full_result(&status).await?;
    ensure!(
        full["outcome"] == "Succeeded" && full["notebook"].is_null(),
        "{full}"
    );
    Ok(brief(&status))
}

/// A branch, a tag, a plain name and a commit ID each name one commit.
pub(super) async fn references(bench: &Bench) -> Result<String> {
    let repository = bench
        .repository("refs", &[(NOTEBOOK, &sources(&["1"]))])
        .await?;
    let first = repository.head("main")?.context("no commit")?;
    repository.set_tag("v1", &first)?;
    let text = sources(&["2"]);
    let entry = testkit::git::Entry::File(text.as_bytes());
    let second = repository.commit("main", "another notebook", &[(NOTEBOOK, entry)])?;
    for (name, reference, commit) in [
        ("branch", "refs/heads/main", &second),
        ("tag", "refs/tags/v1", &first),
        ("name", "v1", &first),
        ("commit", first.as_str(), &first),
    ] {
        let git = source(&bench.git, "refs", reference);
        let more = json!({ "notebook": { "git": git, "path": NOTEBOOK } });
        bench.submit(name, more).await?;
        let status = bench.succeeds(name, &["nothing compared"]).await?;
        ensure!(
            status.commit.as_ref() == Some(commit),
            "{reference}: {:?}",
            status.commit
        );
    }
    Ok("a branch, an annotated tag, a plain name, a commit ID".to_owned())
}

/// A name that is both a branch and a tag, and a name that is neither, are never guessed.
pub(super) async fn no_commit(bench: &Bench) -> Result<String> {
    let repository = bench
        .repository("names", &[(NOTEBOOK, &sources(&["1"]))])
        .await?;
    let head = repository.head("main")?.context("no commit")?;
    repository.set_tag("main", &head)?;
    let none = |says: &'static [&'static str], reason: &'static str| Expect {
        says,
        attempts: 0,
        jobs: 0,
        ..Expect::failure(reason)
    };
    bench.submit("names", json!({})).await?;
    bench
        .ended("names", &none(&["refs/heads/main"], "RefAmbiguous"))
        .await?;
    let git = source(&bench.git, "names", "absent");
    let more = json!({ "notebook": { "git": git, "path": NOTEBOOK } });
    bench.submit("absent", more).await?;
    bench
        .ended("absent", &none(&["absent"], "RefNotFound"))
        .await?;
    Ok("RefAmbiguous, RefNotFound".to_owned())
}

/// The golden notebook comes from another server, with other credentials.
pub(super) async fn two_repositories(bench: &Bench) -> Result<String> {
    let other = Server::in_cluster(bench.env.testbed("a second Git server")?)?;
    let cells = [cell("print(1)", &[stdout("1\n")])];
    bench
        .repository("two", &[(NOTEBOOK, &notebook(&cells))])
        .await?;
    let golden = other.create("golden", "release", &[("g.ipynb", &notebook(&cells))])?;
    bench.secret("other", &other.credentials_https()).await?;
    let git = json!({
        "url": other.https_url("golden"), "ref": "release", "credentialsSecretRef": { "name": "other" },
    });
    let more = json!({ "goldenNotebook": { "git": git, "path": "g.ipynb" } });
    bench.submit("two", more.clone()).await?;
    let status = bench.succeeds("two", &["1 outputs compared"]).await?;
    ensure!(
        status.golden_commit == golden.head("release")?,
        "another commit"
    );
    // The other way round, each server rejects the credentials of the other one.
    let mut wrong = more;
    wrong["goldenNotebook"]["git"]["credentialsSecretRef"] = json!({ "name": SECRET });
    wrong["startTimeout"] = json!("10s");
    bench.submit("wrong", wrong).await?;
    bench
        .waits_for("wrong", "AuthenticationFailed", &["401"])
        .await?;
    Ok(brief(&status))
}

/// Paths that are no regular file of the commit.
pub(super) async fn missing_files(bench: &Bench) -> Result<String> {
    let repository = bench
        .repository("files", &[("README.md", "hello\n")])
        .await?;
    bench.submit("files", json!({})).await?;
    bench
        .fails("files", "NotebookNotFound", &[NOTEBOOK])
        .await?;
    let text = sources(&["1"]);
    let link = testkit::git::Entry::Link("../README.md");
    let file = testkit::git::Entry::File(text.as_bytes());
    repository.commit("main", "a notebook", &[(NOTEBOOK, file)])?;
    bench
        .submit("no-golden", on_files(bench, with_golden()))
        .await?;
    bench
        .fails("no-golden", "GoldenNotFound", &[GOLDEN])
        .await?;
    repository.commit("main", "a link", &[(GOLDEN, link)])?;
    bench.submit("link", on_files(bench, with_golden())).await?;
    bench.fails("link", "GoldenNotFound", &[GOLDEN]).await?;
    let broken = testkit::git::Entry::File(b"version https://git-lfs.github.com/spec/v1\n");
    repository.commit("main", "a pointer", &[(NOTEBOOK, broken)])?;
    bench.submit("pointer", on_files(bench, json!({}))).await?;
    bench.fails("pointer", "NotebookInvalid", &[]).await?;
    Ok("missing, a link, a pointer of Git LFS".to_owned())
}

/// Merges a spec on the repository `files` into this one.
fn on_files(bench: &Bench, mut more: serde_json::Value) -> serde_json::Value {
    more["notebook"] = json!({ "git": source(&bench.git, "files", "main"), "path": NOTEBOOK });
    more
}

/// The executed notebook is stored with `Full`, nothing with `None`. A result expires after its own time.
pub(super) async fn stored(bench: &Bench) -> Result<String> {
    bench
        .repository("stored", &[(NOTEBOOK, &sources(&["6 * 7"]))])
        .await?;
    bench
        .submit(
            "stored",
            json!({ "results": { "store": "Full", "ttl": "20s" } }),
        )
        .await?;
    let expect = Expect::default();
    let job = bench.ended("stored", &expect).await?;
    let status = job.status.clone().unwrap_or_default();
    let full = bench.full_result(&status).await?;
    ensure!(
        full["notebook"]["cells"][0]["outputs"][0]["data"]["text/plain"] == "42",
        "{full}"
    );
    ensure!(
        full["notebook"]["metadata"]["orchestrator"]["commit"].is_string(),
        "{full}"
    );
    let git = source(&bench.git, "stored", "main");
    let none = json!({
        "notebook": { "git": git, "path": NOTEBOOK }, "results": { "store": "None" },
    });
    bench.submit("none", none).await?;
    let without = bench.succeeds("none", &[]).await?;
    let report = without.report.as_ref().context("no report")?;
    ensure!(
        report.config_map_name.is_none() && without.results.is_empty(),
        "{report:?}"
    );
    let known = without.progress.condition("ResultsStored");
    ensure!(known.is_none(), "{known:?}");
    let maps = bench.env.api::<k8s_openapi::api::core::v1::ConfigMap>();
    until_gone(&maps, "stored-nb-results", LIMIT).await?;
    let after = bench
        .runs()
        .get(&job.name_any())
        .await?
        .status
        .unwrap_or_default();
    ensure!(
        after == status,
        "the status of a finished job changed: {after:?}"
    );
    Ok("Full, None, and deleted after 20 s".to_owned())
}

/// A result above the limit of the configuration loses the notebook first.
pub(super) async fn large_result(env: Env) -> Result<String> {
    let lines = "  allowedNetworks: [198.18.0.0/24]\n  results: {maxBytes: 4096}\n";
    let bench = Bench::configured(env, lines).await?;
    let noise = "import random\nprint(''.join(random.choice('abcdefghij') for _ in range(60000)))";
    bench
        .run("large", &[noise], json!({ "results": { "store": "Full" } }))
        .await?;
    let status = bench.succeeds("large", &[]).await?;
    let report = status.report.clone().context("no report")?;
    ensure!(
        report.bytes <= 4096 && report.truncated == ["notebook"],
        "{report:?}"
    );
    bench.done().await?;
    Ok(format!("{} bytes without the notebook", report.bytes))
}

/// While a cell runs for long, the status names it.
pub(super) async fn progress(bench: &Bench) -> Result<String> {
    let cells = ["1", "import time\ntime.sleep(40)", "3"];
    bench.run("slow", &cells, json!({})).await?;
    let job = bench
        .until("slow", LIMIT, "the cell that runs", |status| {
            let cells = status.cells.as_ref();
            cells.is_some_and(|cells| cells.current == Some(1) && cells.done == 1)
        })
        .await?;
    let cells = job
        .status
        .and_then(|status| status.cells)
        .unwrap_or_default();
    ensure!(
        cells.current_since.is_some() && cells.total == 3,
        "{cells:?}"
    );
    let status = bench.succeeds("slow", &["3 cells ran"]).await?;
    let ended = status.cells.clone().unwrap_or_default();
    ensure!(
        ended.current.is_none() && ended.current_since.is_none(),
        "{ended:?}"
    );
    Ok(format!(
        "cell 1 since {:?}",
        cells.current_since.map(|at| at.0)
    ))
}

/// The cleanup deletes the Job and keeps the result; `preserve` keeps both.
pub(super) async fn cleanup(bench: &Bench) -> Result<String> {
    bench
        .repository("clean", &[(NOTEBOOK, &sources(&["1"]))])
        .await?;
    bench
        .submit("clean", json!({ "childTTL": { "succeeded": "0s" } }))
        .await?;
    let job = bench.finished("clean", LIMIT).await?;
    super::super::children::until_left(&bench.env, &job, (0, 0, 1), LIMIT).await?;
    let git = source(&bench.git, "clean", "main");
    let kept = json!({
        "notebook": { "git": git, "path": NOTEBOOK }, "suspend": true,
        "childTTL": { "succeeded": "0s" }, "results": { "ttl": "0s" },
    });
    bench.submit("kept", kept).await?;
    bench
        .patch(
            "kept",
            json!({ "metadata": { "annotations": { names::PRESERVE: "true" } } }),
        )
        .await?;
    bench.resume("kept").await?;
    let kept = bench.finished("kept", Duration::from_secs(150)).await?;
    super::super::children::keeps(&bench.env, &kept, (1, 1, 1)).await?;
    Ok("the Job is deleted, the result stays; everything stays with 'preserve'".to_owned())
}
