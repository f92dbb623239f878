//! Volumes, labels, annotations and affinity of an Agent's Pods.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
use serde_json::{Value, json};

use super::{
    fixture::{Bench, Expect},
    start::times_out,
};

/// Fails unless the volumes have the right content and the right permissions. Leaves a file in the claim. A container that
/// ends before its first status write leaves no Event.
const WRITES: &str = "[ \"$(cat /keys/k)\" = secret ] && [ \"$(cat /rules/r)\" = plain ] \
     && ! touch /keys/x 2> /dev/null && ! touch /rules/x 2> /dev/null && echo left > /data/file && sleep 3";
/// Fails unless the file is there and cannot be changed.
const READS: &str =
    "[ \"$(cat /data/file)\" = left ] && ! touch /data/file 2> /dev/null && sleep 3";

fn claim_at_data(name: &str, read_only: bool) -> Value {
    json!({
        "name": "data", "mountPath": "/data", "readOnly": read_only,
        "persistentVolumeClaimRef": { "name": name },
    })
}

pub(super) async fn mounted(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let keys = json!({ "metadata": { "name": "keys" }, "stringData": { "k": "secret" } });
    env.create::<Secret>(keys).await?;
    let rules = json!({ "metadata": { "name": "rules" }, "data": { "r": "plain" } });
    env.create::<ConfigMap>(rules).await?;
    let claim = json!({
        "metadata": { "name": "data" },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "64Mi" } },
        },
    });
    env.create::<PersistentVolumeClaim>(claim).await?;
    let expression = json!({ "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] });
    let terms = json!([{ "matchExpressions": [expression] }]);
    let more = json!({
        "volumes": [
            { "name": "keys", "mountPath": "/keys", "secretRef": { "name": "keys" } },
            { "name": "rules", "mountPath": "/rules", "configMapRef": { "name": "rules" } },
            claim_at_data("data", false),
        ],
        "podLabels": { "example.com/team": "writers" },
        "podAnnotations": { "example.com/owner": "a person" },
        "affinity": { "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms },
        } },
    });
    bench.agent("writes", WRITES, more).await?;
    bench.submit("writes", json!({})).await?;
    let run = bench.ended("writes", &Expect::default()).await?;
    let pods = bench.pods_of(&run).await?;
    let pod = pods.first().context("no Pod of the run")?;
    let has = |map: &Option<BTreeMap<String, String>>, key: &str, value: &str| {
        map.as_ref()
            .and_then(|map| map.get(key))
            .map(String::as_str)
            == Some(value)
    };
    ensure!(
        has(&pod.metadata.labels, "example.com/team", "writers")
            && has(&pod.metadata.annotations, "example.com/owner", "a person"),
        "labels and annotations of the Pod: {:?}",
        pod.metadata
    );
    bench.deletes(&run).await?;
    let more = json!({ "volumes": [claim_at_data("data", true)] });
    bench.plays("reads", READS, more, Expect::default()).await?;
    Ok("three kinds of volumes, read-only by default; the claim keeps its data".to_owned())
}

pub(super) async fn missing(bench: &Bench) -> Result<String> {
    for (name, reference, cause) in [
        ("no-secret", "secretRef", "SecretNotFound"),
        ("no-map", "configMapRef", "SecretNotFound"),
        ("no-claim", "persistentVolumeClaimRef", "VolumeNotReady"),
    ] {
        let mut volume = json!({ "name": "a", "mountPath": "/a" });
        volume[reference] = json!({ "name": "not-there" });
        let more = json!({ "volumes": [volume] });
        times_out(bench, name, more, (cause, &["not-there"])).await?;
    }
    Ok("each names what is missing".to_owned())
}
