//! The gateway as the chart installs it: enabled and disabled while runs are active, after an upgrade from an earlier chart,
//! before a downgrade to it, for one namespace only, and uninstalled.

use std::{
    collections::BTreeSet,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use testkit::wait::{met, until};

use super::{
    client::{Answer, Call, HOST, Https, get, post},
    fixture::new_run,
};
use crate::e2e::{chart::NAMESPACE, shell::Shell};

/// The commit before the gateway. Its chart does not know the value `gateway`.
const EARLIER: &str = "8cfdbac2665f6f4edbe3a8987ba2452aa15341f2";

const CHART: &str = "charts/orchestrator";

/// The name of the gateway's Deployment, Service and ServiceAccount.
const NAME: &str = "orchestrator-gateway";

/// Values of an installation that may write in one namespace only.
const ONE_NAMESPACE: &str = "--set 'watchNamespaces={default}'";

const ENABLE: &str =
    "--reset-then-reuse-values --set gateway.enabled=true --set gateway.tlsSecret=gateway-tls";
const DISABLE: &str = "--reset-then-reuse-values --set gateway.enabled=false";

/// Active runs.
const RUNS: usize = 2;

/// The user that submits a run through the gateway.
const SUBMITTER: &str = "system:serviceaccount:default:submitter";

/// For Pods to start and to end, and for permissions.
const LIMIT: Duration = Duration::from_secs(60);

/// Installs, changes and removes the gateway. The active runs must not notice.
pub(in crate::e2e) async fn life(shell: &Shell) -> Result<String> {
    let folder = tempfile::tempdir()?;
    let earlier = earlier_chart(shell, folder.path()).await?;
    shell.check(&upgrade(&earlier, ONE_NAMESPACE)).await?;
    let active = start(shell).await?;
    let certificate = certificate(shell, folder.path()).await?;

    shell.check(&upgrade(CHART, ENABLE)).await?;
    is_enabled(shell).await.context("after the upgrade")?;
    let token = submitter(shell).await?;
    let submit = post(
        "/api/v1/namespaces/default/taskruns",
        &new_run("submitted", "sleeper"),
    );
    let answer = sent(shell, &certificate, submit.by(&token)).await?;
    answer.is(201)?;
    shell.check("kubectl wait --for=jsonpath='{.status.phase}'=Running taskruns.orchestrator.io/submitted --timeout=2m").await?;
    is_unharmed(shell, &active).await.context("enabled")?;

    shell.check(&upgrade(CHART, DISABLE)).await?;
    is_removed(shell).await.context("disabled")?;
    is_unharmed(shell, &active).await.context("disabled")?;

    // The earlier chart knows no value of the gateway, so the values of the release cannot be used again.
    shell.check(&upgrade(CHART, ENABLE)).await?;
    let reset = format!("--reset-values {ONE_NAMESPACE}");
    shell.check(&upgrade(&earlier, &reset)).await?;
    is_removed(shell).await.context("after the downgrade")?;
    is_unharmed(shell, &active)
        .await
        .context("after the downgrade")?;

    shell.check(&upgrade(CHART, ENABLE)).await?;
    is_enabled(shell).await.context("after another upgrade")?;
    let read = get("/api/v1/namespaces/default/taskruns/submitted").by(&token);
    let body = sent(shell, &certificate, read).await?.is(200)?;
    ensure!(
        body["run"]["status"]["phase"] == "Running",
        "{}",
        body["run"]["status"]
    );
    is_unharmed(shell, &active).await?;
    uninstall(shell).await?;
    Ok(format!(
        "upgraded, enabled, disabled, downgraded, upgraded, uninstalled; {RUNS} runs kept their Pods"
    ))
}

fn upgrade(chart: &str, values: &str) -> String {
    format!(
        "helm upgrade orchestrator '{chart}' --install --namespace {NAMESPACE} --create-namespace --wait --timeout 3m {values}"
    )
}

/// Writes the chart of the commit before the gateway to a directory. Returns its path.
async fn earlier_chart(shell: &Shell, folder: &Path) -> Result<String> {
    let archive = folder.join("chart.tar");
    let (archive, folder) = (archive.display(), folder.display());
    let line = format!(
        "git archive --output '{archive}' {EARLIER} {CHART} && tar -x -f '{archive}' -C '{folder}'"
    );
    let written = shell.check(&line).await;
    written.context("the history of the repository is needed")?;
    let chart = format!("{folder}/{CHART}");
    let values = fs::read_to_string(format!("{chart}/values.yaml"))?;
    ensure!(
        !values.contains("\ngateway:"),
        "the chart of {EARLIER} has a gateway already"
    );
    Ok(chart)
}

/// Starts runs that do not end. Returns the UIDs of their Pods.
async fn start(shell: &Shell) -> Result<BTreeSet<String>> {
    let agent = json!({
        "apiVersion": "orchestrator.io/v1alpha1", "kind": "Agent", "metadata": { "name": "sleeper" },
        "spec": { "image": "docker.io/library/busybox:1.35", "command": ["sleep", "900"] },
    });
    let run = |number: usize| {
        json!({
            "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
            "metadata": { "name": format!("active-{number}"), "labels": { "suite": "gateway" } },
            "spec": {
                "taskId": 100 + number, "serviceName": "gateway", "agentName": "sleeper",
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
        .check("kubectl wait --for=jsonpath='{.status.phase}'=Running taskruns.orchestrator.io --selector suite=gateway --timeout=2m")
        .await?;
    let pods = pods(shell).await?;
    ensure!(pods.len() == RUNS, "{} Pods run", pods.len());
    Ok(pods)
}

/// Returns the UIDs of the running Pods of runs.
async fn pods(shell: &Shell) -> Result<BTreeSet<String>> {
    let list = shell
        .get("pods --namespace default --selector orchestrator.io/kind=TaskRun --field-selector status.phase=Running")
        .await?;
    let pods = list["items"].as_array().context("a list without items")?;
    let remaining = pods
        .iter()
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    Ok(remaining
        .map(|pod| pod["metadata"]["uid"].to_string())
        .collect())
}

/// The runs that were active before are active in the same Pods.
async fn is_unharmed(shell: &Shell, active: &BTreeSet<String>) -> Result<()> {
    let now = pods(shell).await?;
    ensure!(now.is_superset(active), "Pods were {active:?}, are {now:?}");
    let list = shell
        .get("taskruns.orchestrator.io --namespace default --selector suite=gateway")
        .await?;
    let runs = list["items"].as_array().context("a list without items")?;
    ensure!(runs.len() == RUNS, "{} runs", runs.len());
    for run in runs {
        let status = &run["status"];
        ensure!(
            status["phase"] == "Running" && status["attempts"] == 1,
            "{status}"
        );
    }
    Ok(())
}

/// Creates the certificate of the gateway. Returns it as PEM.
async fn certificate(shell: &Shell, folder: &Path) -> Result<String> {
    let made = rcgen::generate_simple_self_signed([HOST.to_owned()])?;
    let (certificate, key) = (folder.join("tls.crt"), folder.join("tls.key"));
    fs::write(&certificate, made.cert.pem())?;
    fs::write(&key, made.signing_key.serialize_pem())?;
    shell
        .check(&format!(
            "kubectl create secret tls gateway-tls --namespace {NAMESPACE} --cert '{}' --key '{}'",
            certificate.display(),
            key.display()
        ))
        .await?;
    Ok(made.cert.pem())
}

/// The gateway runs, and neither its account nor the operators have permissions in other namespaces.
async fn is_enabled(shell: &Shell) -> Result<()> {
    shell
        .check(&format!(
            "kubectl --namespace {NAMESPACE} rollout status deployment/{NAME} --timeout 60s"
        ))
        .await?;
    for namespace in ["default", NAMESPACE, "kube-public"] {
        let own = permissions(shell, namespace, NAME).await?;
        ensure!(
            own == permissions(shell, namespace, "nobody").await?,
            "the gateway has permissions in '{namespace}': {own}"
        );
    }
    for (namespace, wanted) in [("default", "yes"), ("kube-public", "no")] {
        let line = format!(
            "kubectl auth can-i create jobs --namespace {namespace} --as system:serviceaccount:{NAMESPACE}:orchestrator-tasks"
        );
        let found = shell.run(&line).await?.stdout;
        ensure!(found.trim() == wanted, "'{line}' prints '{found}'");
    }
    Ok(())
}

/// Returns what `kubectl` lists as the permissions of an account.
async fn permissions(shell: &Shell, namespace: &str, account: &str) -> Result<String> {
    let line = format!(
        "kubectl auth can-i --list --no-headers --namespace {namespace} --as system:serviceaccount:{NAMESPACE}:{account}"
    );
    shell.check(&line).await
}

/// No object of the gateway exists.
async fn is_removed(shell: &Shell) -> Result<()> {
    let kinds =
        "deployments,services,networkpolicies,poddisruptionbudgets,serviceaccounts,ingresses,pods";
    let line = format!(
        "kubectl get {kinds} --namespace {NAMESPACE} --selector app.kubernetes.io/component=gateway --output name"
    );
    until("the gateway to be removed", LIMIT, async || {
        let left = shell.check(&line).await?;
        Ok(met(left.is_empty(), || left))
    })
    .await
}

/// Creates a user that may submit runs. Returns its token.
async fn submitter(shell: &Shell) -> Result<String> {
    for line in [
        "kubectl create serviceaccount submitter --namespace default",
        "kubectl create rolebinding submitter --namespace default --clusterrole edit --serviceaccount default:submitter",
    ] {
        shell.check(line).await?;
    }
    // The cluster's own role takes in those of the chart after a while.
    for permission in [
        "create taskruns.orchestrator.io",
        "use agents.orchestrator.io",
    ] {
        let line = format!("kubectl auth can-i {permission} --namespace default --as {SUBMITTER}");
        until("the permissions of the user", LIMIT, async || {
            let output = shell.run(&line).await?;
            Ok(met(output.stdout.trim() == "yes", || output.stdout))
        })
        .await?;
    }
    let token = shell
        .check("kubectl create token submitter --namespace default")
        .await?;
    Ok(token.trim().to_owned())
}

/// Sends a request through a forwarded port of the Service.
async fn sent(shell: &Shell, certificate: &str, call: Call) -> Result<Answer> {
    // Another process could take the port before kubectl does; then kubectl ends with an error.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port();
    let https = Https::new(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), certificate)?;
    // Without `exec`, only the shell would be killed.
    let line =
        format!("exec kubectl port-forward --namespace {NAMESPACE} service/{NAME} {port}:443");
    let exchange = async {
        until("the forwarded port", LIMIT, async || {
            Ok(match https.open().await {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("{error:#}")),
            })
        })
        .await?;
        https.send(call).await
    };
    tokio::select! {
        ended = shell.run(&line) => bail!("the port is not forwarded: {}", ended?.stderr),
        answer = exchange => answer,
    }
}

/// Removes the runs and the release, with the gateway enabled.
async fn uninstall(shell: &Shell) -> Result<()> {
    for line in [
        "kubectl delete taskruns.orchestrator.io --all --namespace default --timeout=100s",
        "kubectl delete serviceaccount,rolebinding submitter --namespace default",
        &format!("helm uninstall orchestrator --namespace {NAMESPACE} --wait --timeout 2m"),
        &format!("kubectl delete secret gateway-tls --namespace {NAMESPACE}"),
    ] {
        shell.check(line).await?;
    }
    is_removed(shell).await.context("uninstalled")?;
    for kind in ["clusterrolebindings", "rolebindings --all-namespaces"] {
        let all: Value = shell.get(kind).await?;
        ensure!(!all.to_string().contains(NAME), "{kind} name the gateway");
    }
    Ok(())
}
