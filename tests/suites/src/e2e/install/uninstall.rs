//! The commands of the page about the removal of everything, with active runs: with an operator, and
//! after the chart was uninstalled too early.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::{
    layout,
    load::Ticks,
    wait::{met, until},
};

use super::{NAMESPACE, Shell};
use crate::e2e::quickstart::{self, Step};

/// Active runs.
const RUNS: usize = 5;
/// The limit for all commands together.
const TOTAL: Duration = Duration::from_secs(120);
/// Time for the garbage collector, and for Pods in their grace period.
const COLLECTED: Duration = Duration::from_secs(60);
/// Separates the commands with an operator from those without one.
const WITHOUT_OPERATOR: &str = "## The operator is already uninstalled";

/// Returns the commands of both parts of the page.
fn commands() -> Result<(Vec<Step>, Vec<Step>)> {
    let page = fs::read_to_string(layout::repository().join("docs/operate/uninstall.md"))?;
    let (with, without) = page
        .split_once(WITHOUT_OPERATOR)
        .with_context(|| format!("no '{WITHOUT_OPERATOR}'"))?;
    Ok((quickstart::steps(with)?, quickstart::steps(without)?))
}

/// The documented order: the operator stops the runs and removes their finalizers.
pub(super) async fn with_operator(shell: &Shell) -> Result<String> {
    active(shell).await?;
    let (steps, _) = commands()?;
    let removed = removed(shell, &steps).await?;
    repeated(shell, &steps).await?;
    Ok(removed)
}

/// The chart is uninstalled first, and the deletion of the runs already waits.
pub(super) async fn without_operator(shell: &Shell) -> Result<String> {
    active(shell).await?;
    let (_, steps) = commands()?;
    shell
        .check(&format!(
            "helm uninstall orchestrator --namespace {NAMESPACE} --wait --timeout 2m"
        ))
        .await?;
    let waits = shell
        .run("kubectl delete taskruns.orchestrator.io --all --timeout=2s")
        .await?;
    ensure!(
        !waits.status.success(),
        "the runs were deleted without an operator: they were not active"
    );
    let removed = removed(shell, &steps).await?;
    repeated(shell, &steps).await?;
    Ok(removed)
}

/// Runs the commands again, after they removed everything. A reader whose first try was interrupted
/// begins again.
async fn repeated(shell: &Shell, steps: &[Step]) -> Result<()> {
    for Step { command, .. } in steps.iter().filter(|step| !is_check(step)) {
        let checked = shell.check(command).await;
        checked.with_context(|| format!("'{command}' cannot be repeated"))?;
    }
    Ok(())
}

/// Returns whether the command only reports. It fails while there is something to report.
fn is_check(step: &Step) -> bool {
    step.command.starts_with("orc uninstall --check")
}

/// Installs the chart with all operators, and starts runs that do not end by themselves.
async fn active(shell: &Shell) -> Result<()> {
    shell
        .check(&format!(
            "helm upgrade orchestrator charts/orchestrator --install --namespace {NAMESPACE} --create-namespace \
             --set operators.tenants.enabled=true --wait"
        ))
        .await?;
    let agent = json!({
        "apiVersion": "orchestrator.io/v1alpha1", "kind": "Agent", "metadata": { "name": "sleeper" },
        "spec": { "image": "docker.io/library/busybox:1.35", "command": ["sleep", "600"] },
    });
    let run = |number: usize| {
        json!({
            "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
            "metadata": { "name": format!("active-{number}"), "labels": { "suite": "uninstall" } },
            "spec": {
                "taskId": number, "serviceName": "uninstall", "agentName": "sleeper",
                "markdownFiles": [{ "filename": "task.md", "content": "Sleep." }],
            },
        })
    };
    let mut items = vec![agent];
    items.extend((1..=RUNS).map(run));
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    shell
        .check(&format!(
            "kubectl apply --server-side -f - <<'END'\n{list}\nEND"
        ))
        .await?;
    shell
        .check("kubectl wait --for=jsonpath='{.status.phase}'=Running taskruns.orchestrator.io --selector suite=uninstall --timeout=2m")
        .await?;
    // The labels of the operator, and the selectable fields, find the same runs.
    let found = shell
        .check("kubectl get taskruns.orchestrator.io --output name --selector service-name=uninstall,orchestrator.io/agent=sleeper --field-selector status.phase=Running")
        .await?;
    let count = found.lines().count();
    ensure!(
        count == RUNS,
        "{count} runs are found by their labels: {found}"
    );
    Ok(())
}

/// The command lists what the page shows, and its exit code says that there is something.
async fn lists(shell: &Shell, Step { command, shown }: &Step) -> Result<()> {
    // A reader sees both outputs.
    let output = shell.run(&format!("{{ {command}; }} 2>&1")).await?;
    ensure!(
        output.status.code() == Some(1),
        "'{command}' {}: {}",
        output.status,
        output.stdout
    );
    quickstart::compare(shown, &output.stdout).with_context(|| format!("'{command}'"))
}

/// Runs the commands, and checks that they left nothing.
async fn removed(shell: &Shell, steps: &[Step]) -> Result<String> {
    let start = Instant::now();
    let ticks = Ticks::now()?;
    for step in steps {
        let begun = Instant::now();
        let command = &step.command;
        if is_check(step) {
            lists(shell, step).await?;
        } else {
            shell.check(command).await?;
        }
        println!("{:.1} s: {command}", begun.elapsed().as_secs_f64());
    }
    let took = start.elapsed();
    let load = Ticks::now()?.load_since(ticks);
    // Without processor time to spare, any program may be late.
    let limit = if load.is_full() { TOTAL * 3 } else { TOTAL };
    ensure!(
        took <= limit,
        "the commands took {} s, processors busy {load}",
        took.as_secs()
    );
    until("the children to be collected", COLLECTED, async || {
        let left = shell
            .check("kubectl get jobs,pods,configmaps --all-namespaces --selector orchestrator.io/kind --output name")
            .await?;
        Ok(met(left.is_empty(), || left))
    })
    .await?;
    let of_cluster = [
        "crds",
        "clusterroles",
        "clusterrolebindings",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "priorityclasses",
        "namespaces",
    ];
    for kind in of_cluster {
        let all = shell
            .check(&format!("kubectl get {kind} --output name"))
            .await?;
        let left: Vec<&str> = all
            .lines()
            .filter(|name| name.contains("orchestrator"))
            .collect();
        ensure!(left.is_empty(), "left behind: {left:?}");
    }
    for kind in ["leases", "roles", "rolebindings", "serviceaccounts"] {
        let all: Value = shell.get(&format!("{kind} --all-namespaces")).await?;
        let items = all["items"].as_array().context("a list without items")?;
        let name = |item: &Value| item["metadata"]["name"].to_string();
        let left: Vec<String> = items.iter().map(name).collect();
        let left: Vec<&String> = left
            .iter()
            .filter(|name| name.contains("orchestrator"))
            .collect();
        ensure!(left.is_empty(), "left behind of {kind}: {left:?}");
    }
    Ok(format!(
        "{RUNS} active runs: {} commands in {:.0} s left nothing",
        steps.len(),
        took.as_secs_f64()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command without an end would hang the reader's terminal.
    #[test]
    fn each_documented_command_has_an_end() {
        let (with, without) = commands().unwrap();
        assert!(with.len() >= 7 && without.len() >= 8);
        for Step { command, .. } in with.iter().chain(&without) {
            let is_bounded = !command.contains("kubectl delete") || command.contains(" --timeout=");
            assert!(is_bounded, "{command}");
        }
        let uninstall = with
            .iter()
            .position(|step| step.command.starts_with("helm uninstall"));
        let runs = with
            .iter()
            .position(|step| step.command.contains("taskruns") && step.command.contains("delete"));
        assert!(
            runs.is_some() && runs < uninstall,
            "the operator is needed for the runs"
        );
    }

    /// After an interruption, a reader begins again with the first command.
    #[test]
    fn each_documented_command_can_be_repeated() {
        let (with, without) = commands().unwrap();
        for step in with.iter().chain(&without) {
            let command = &step.command;
            // A selector that matches nothing is no error, unless the type does not exist.
            let selects = command.starts_with("kubectl delete jobs,configmaps ");
            let is_repeatable = command.contains(" --ignore-not-found") || selects;
            assert!(is_repeatable || is_check(step), "{command}");
        }
    }
}
