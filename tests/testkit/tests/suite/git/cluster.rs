//! The server inside a cluster's network.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Pod, Secret},
};
use kube::{
    Api, Client,
    api::{LogParams, ObjectMeta, PostParams},
};
use serde_json::json;
use testkit::{
    cluster::{REGISTRY, Tier},
    git::{Network, Server},
    suite,
    wait::until,
};

use super::somebody::{Somebody, said};

/// In a Pod of the kind that every run gets: not root, nothing writable but its volumes.
fn cloning_pod(script: &str) -> Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": { "name": "clone" },
        "spec": {
            "restartPolicy": "Never",
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": "clone",
                "image": format!("{REGISTRY}/toolbox:1"),
                "command": ["sh", "-euc", script],
                "env": [{ "name": "HOME", "value": "/work" }],
                "securityContext": {
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": { "drop": ["ALL"] },
                },
                "volumeMounts": [
                    { "name": "work", "mountPath": "/work" },
                    { "name": "secret", "mountPath": "/secret", "readOnly": true },
                ],
            }],
            "volumes": [
                { "name": "work", "emptyDir": {} },
                { "name": "secret", "secret": { "secretName": "git", "defaultMode": 0o440 } },
            ],
        },
    }))?)
}

const CLONE: &str = r#"
git -c http.sslCAInfo=/secret/ca.crt \
  -c credential.helper='!echo username=$(cat /secret/username); echo password=$(cat /secret/password); :' \
  clone --quiet "$HTTPS" /work/https
export GIT_SSH_COMMAND='ssh -F none -i /secret/identity -o IdentitiesOnly=yes -o StrictHostKeyChecking=yes \
  -o UserKnownHostsFile=/secret/known_hosts -o BatchMode=yes'
git clone --quiet "$SSH" /work/ssh
cat /work/https/README.md /work/ssh/README.md
"#;

async fn log_of_ended(client: &Client, namespace: &str, name: &str) -> Result<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let phase = until("the Pod to end", Duration::from_secs(90), async || {
        let phase = pods.get(name).await?.status.and_then(|status| status.phase);
        Ok(match phase.as_deref() {
            Some("Succeeded" | "Failed") => Ok(phase.unwrap_or_default()),
            other => Err(format!("{other:?}")),
        })
    })
    .await?;
    let log = pods.logs(name, &LogParams::default()).await?;
    ensure!(phase == "Succeeded", "the Pod {phase}: {log}");
    Ok(log)
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn pods_and_processes_of_a_cluster_reach_it() -> Result<()> {
    suite::test(Tier::Node, "git", async |env| {
        let cluster = env.testbed("a Git server on the node")?;
        let server = Server::in_cluster(cluster)?;
        let docs = server.create("docs", "main", &[("README.md", "hello")])?;
        let (https, ssh) = (server.https_url("docs"), server.ssh_url("docs"));
        assert!(https.starts_with("https://198.18.0.1:"), "{https}");

        let mut data = server.credentials_https();
        data.extend(server.credentials_ssh());
        let data = data
            .into_iter()
            .map(|(key, value)| (key, ByteString(value)));
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some("git".to_owned()),
                ..ObjectMeta::default()
            },
            data: Some(data.collect()),
            ..Secret::default()
        };
        let params = PostParams::default();
        env.api::<Secret>().create(&params, &secret).await?;
        let script = format!("HTTPS={https} SSH={ssh}\n{CLONE}");
        env.api::<Pod>()
            .create(&params, &cloning_pod(&script)?)
            .await?;
        let log = log_of_ended(&env.client, &env.namespace, "clone").await?;
        assert_eq!(log.trim(), "hellohello");
        let activity = docs.activity()?;
        assert_eq!((activity.read_visits, activity.fetches), (2, 2));

        // Where an operator of a test is: a process with the machine's files in this network.
        let network = Network::of(cluster)?;
        for (url, credentials) in [
            (https, server.credentials_https()),
            (ssh, server.credentials_ssh()),
        ] {
            let somebody = Somebody::new(&credentials)?;
            let mut command = somebody.command(&["ls-remote", &url]);
            let output = network.run(move || command.output())??;
            assert!(output.status.success(), "{}", said(&output));
        }
        Ok(())
    })
    .await
}
