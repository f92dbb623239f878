//! The session with `orc` in the docs, as a user types it.

use std::os::unix::fs::symlink;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use testkit::layout;

use super::{
    super::{quickstart, shell::Shell},
    fixture::Bench,
};

/// The page with the session.
const PAGE: &str = "docs/reference/orc-transcript.md";

/// The namespace that the page shows.
const NAMESPACE: &str = "default";

/// The Agent of the page.
const COUNTER: &str = r#"count=$(cat "$ORCHESTRATOR_CONTEXT_DIR"/* | grep -c .)
echo "counted $count shelves"
printf '{"shelves": "%s"}' "$count" > "$ORCHESTRATOR_RESULT_FILE"
"#;

/// Runs each command of the page, and compares what it prints with the page.
pub(super) async fn transcript(bench: &Bench) -> Result<String> {
    let page = std::fs::read_to_string(layout::repository().join(PAGE))?;
    for line in COUNTER.lines() {
        ensure!(page.contains(line), "the Agent of the page lacks '{line}'");
    }
    let results = json!({ "results": [{ "name": "shelves", "required": true }] });
    bench.agent("counter", COUNTER, results).await?;
    let cluster = bench.env.testbed("commands as a user types them")?;
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::copy(cluster.folders.kubeconfig(), &kubeconfig)?;
    let program = testkit::process::this_program()?;
    let programs = program.parent().context("this program is in no folder")?;
    let links = folder.path().join("links");
    std::fs::create_dir(&links)?;
    symlink(programs.join("orc"), links.join("kubectl-orc"))?;
    // A command of the page makes a folder.
    let temporary = folder.path().display().to_string();
    let shell = Shell::new(&kubeconfig, folder.path())?
        .with(&links, &[("TMPDIR", temporary.as_str())])?
        .with(programs, &[])?;
    let namespace = &bench.env.namespace;
    shell
        .check(&format!(
            "kubectl config set-context --current --namespace {namespace}"
        ))
        .await?;
    let steps = quickstart::steps(&page)?;
    let mut wrong = String::new();
    for step in &steps {
        // A reader sees both outputs, in the order in which they are written.
        let command = step.command.replace(NAMESPACE, namespace);
        let output = shell.run(&format!("{{ {command}; }} 2>&1")).await?;
        let printed = output.stdout.replace(namespace, NAMESPACE);
        if let Err(error) = quickstart::compare(&step.shown, &printed) {
            wrong.push_str(&format!("\n$ {}\n{error}", step.command));
        }
    }
    ensure!(wrong.is_empty(), "{PAGE}: {wrong}");
    Ok(format!("{} commands", steps.len()))
}
