//! Services, names and policies.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    core::v1::{Pod, Service},
    networking::v1::NetworkPolicy,
};
use serde_json::json;
use testkit::{
    suite::Env,
    wait::{met, until},
};

use super::fixture::{create, exec, phase, pod, typed};

const POLICY_LIMIT: Duration = Duration::from_secs(30);

/// A web server that says its own name.
async fn serve(env: &Env) -> Result<Pod> {
    create(
        env,
        pod(
            "web",
            "mkdir /tmp/www && hostname > /tmp/www/index.html && exec httpd -f -p 8080 -h /tmp/www",
        )?,
    )
    .await?;
    phase(env, "web", "Running").await
}

pub(super) async fn service_by_name(env: Env) -> Result<String> {
    serve(&env).await?;
    let service: Service = typed(json!({
        "metadata": {"name": "front"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }))?;
    create(&env, service).await?;
    create(&env, pod("client", "sleep 3600")?).await?;
    phase(&env, "client", "Running").await?;
    let name = format!("front.{}.svc.cluster.local", env.namespace);
    for url in [name.as_str(), "front"] {
        let fetch = format!("timeout 5 wget -q -O - http://{url}/");
        until(
            &format!("an answer from '{url}'"),
            POLICY_LIMIT,
            async || {
                let (success, said) = exec(&env, "client", &fetch).await?;
                Ok(met(success && said == "web\n", || said))
            },
        )
        .await?;
    }
    Ok(format!("http://{name}/ answered"))
}

pub(super) async fn policy(env: Env) -> Result<String> {
    let web = serve(&env).await?;
    let address = web
        .status
        .and_then(|status| status.pod_ip)
        .context("the Pod has no address")?;
    for name in ["friend", "stranger"] {
        create(&env, pod(name, "sleep 3600")?).await?;
        phase(&env, name, "Running").await?;
    }
    reaches(&env, "friend", &address, true)
        .await
        .context("before any policy")?;
    reaches(&env, "stranger", &address, true)
        .await
        .context("before any policy")?;

    let deny: NetworkPolicy = typed(
        json!({"metadata": {"name": "deny"}, "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}}),
    )?;
    create(&env, deny).await?;
    reaches(&env, "friend", &address, false)
        .await
        .context("under default deny")?;
    reaches(&env, "stranger", &address, false)
        .await
        .context("under default deny")?;

    let allow: NetworkPolicy = typed(json!({
        "metadata": {"name": "allow"},
        "spec": {
            "podSelector": {"matchLabels": {"app": "web"}},
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}], "ports": [{"port": 8080}]}],
        },
    }))?;
    create(&env, allow).await?;
    reaches(&env, "friend", &address, true)
        .await
        .context("with the allow rule")?;
    // It must still be the rule that decides, not a policy engine that gave up.
    let (open, said) = exec(&env, "stranger", &fetch(&address)).await?;
    ensure!(
        !open,
        "the allow rule for another opened the way for 'stranger': {said}"
    );
    Ok("open, blocked, open for the allowed one only".to_owned())
}

fn fetch(address: &str) -> String {
    format!("timeout 2 wget -q -O - http://{address}:8080/")
}

/// Denied traffic shows as refused or as a timeout: both are a failed fetch.
async fn reaches(env: &Env, from: &str, address: &str, wanted: bool) -> Result<()> {
    let what = format!(
        "'{from}' {} the server",
        if wanted { "to reach" } else { "not to reach" }
    );
    until(&what, POLICY_LIMIT, async || {
        let (success, said) = exec(env, from, &fetch(address)).await?;
        Ok(if success == wanted { Ok(()) } else { Err(said) })
    })
    .await
}
