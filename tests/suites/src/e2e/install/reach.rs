//! Connections to the installed operators: only the kubelet and chosen scrapers may make them.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::wait::{met, until};

use super::{LIMIT, NAMESPACE, Shell};

/// The image of the neighbor; `prepare` gave the node this name.
const IMAGE: &str = "docker.io/library/busybox:1.35";

/// A Pod of another namespace reaches no port of the operators. It reaches the metrics, and only these,
/// after `metrics.from` allows its namespace. The kubelet's probes pass all the time.
pub(super) async fn closed(shell: &Shell) -> Result<String> {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "neighbor" },
        "spec": {
            "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": "neighbor", "image": IMAGE, "command": ["sleep", "600"],
                "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            }],
        },
    });
    shell
        .check(&format!("kubectl create -f - <<'END'\n{pod}\nEND"))
        .await?;
    shell
        .check("kubectl wait --for=condition=Ready pod/neighbor --timeout=60s")
        .await?;
    let address = address(shell).await?;
    for (port, path) in [(8080, "metrics"), (8081, "livez")] {
        ensure!(
            !reaches(shell, &address, port, path).await?,
            "a Pod of another namespace reaches port {port} of the operator"
        );
    }
    let upgrade =
        format!("helm upgrade orchestrator charts/orchestrator --namespace {NAMESPACE} --wait");
    let default =
        "metrics.from[0].namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name=default";
    shell.check(&format!("{upgrade} --set '{default}'")).await?;
    // Without this, the refusals above could have another cause than the policy.
    until("the metrics to be open", LIMIT, async || {
        let is_open = reaches(shell, &address, 8080, "metrics").await?;
        Ok(met(is_open, || "no connection".to_owned()))
    })
    .await?;
    ensure!(
        !reaches(shell, &address, 8081, "livez").await?,
        "'metrics.from' opens the probe port, too"
    );
    shell.check(&format!("{upgrade} --reset-values")).await?;
    shell.check("kubectl delete pod neighbor --now").await?;
    is_healthy(shell).await?;
    Ok("no port is open to others, the metrics are by 'metrics.from'; probes pass".to_owned())
}

async fn reaches(shell: &Shell, address: &str, port: u16, path: &str) -> Result<bool> {
    let line = format!(
        "kubectl exec neighbor -- sh -c 'timeout 2 wget -q -O - http://{address}:{port}/{path}'"
    );
    Ok(shell.run(&line).await?.status.success())
}

async fn operators(shell: &Shell) -> Result<Vec<Value>> {
    let list = shell
        .get(&format!(
            "pods --namespace {NAMESPACE} --selector app.kubernetes.io/name=orchestrator"
        ))
        .await?;
    let pods = list["items"].as_array().context("a list without items")?;
    Ok(pods.clone())
}

async fn address(shell: &Shell) -> Result<String> {
    let pods = operators(shell).await?;
    let address = pods.first().and_then(|pod| pod["status"]["podIP"].as_str());
    Ok(address.context("no operator with an address")?.to_owned())
}

/// The kubelet's probes passed: no operator was restarted, and all are ready.
async fn is_healthy(shell: &Shell) -> Result<()> {
    for pod in operators(shell).await? {
        let container = &pod["status"]["containerStatuses"][0];
        ensure!(
            container["restartCount"] == 0 && container["ready"] == true,
            "probes of '{}' fail: {container}",
            pod["metadata"]["name"]
        );
    }
    Ok(())
}
