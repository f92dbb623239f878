//! `cargo xtask testbed prove`: the cluster does what a real one does.

mod kit;
mod kwok;
mod network;
mod node;
mod requests;
mod workloads;

use std::{collections::BTreeMap, process::ExitCode, sync::Arc};

use anyhow::{Result, anyhow};
use futures::FutureExt;
use testkit::{
    cluster::{Cluster, Tier},
    suite::{self, CASE_LIMIT, Case, Place},
};

use crate::testbed::announce;

/// Two cores: more at once only makes each slower.
const PARALLEL: usize = 4;

macro_rules! case {
    ($tier:ident, $name:literal, $shows:literal, $run:path) => {
        Case {
            name: $name,
            shows: $shows,
            tier: Tier::$tier,
            alone: false,
            limit: CASE_LIMIT,
            run: |env| $run(env).boxed(),
        }
    };
}

fn cases() -> Vec<Case> {
    vec![
        case!(
            Node,
            "job",
            "a Job from a local image completes, logs and exec are read through the API",
            workloads::job
        ),
        case!(
            Node,
            "oom",
            "a container over its memory limit is OOMKilled",
            workloads::out_of_memory
        ),
        case!(
            Node,
            "image",
            "an unknown image is reported",
            workloads::unknown_image
        ),
        case!(
            Node,
            "volume",
            "a PVC is provisioned, written, and read by a second Pod",
            workloads::volume
        ),
        case!(
            Node,
            "eviction",
            "the eviction API evicts, and a PodDisruptionBudget stops it",
            workloads::eviction
        ),
        case!(
            Node,
            "dns",
            "a Service is reached by its DNS name",
            network::service_by_name
        ),
        case!(
            Node,
            "policy",
            "a default-deny NetworkPolicy blocks, an allow rule opens again",
            network::policy
        ),
        case!(
            Node,
            "quota",
            "a ResourceQuota refuses a Pod",
            requests::quota
        ),
        case!(
            Node,
            "podsecurity",
            "Pod Security 'restricted' refuses a privileged Pod",
            requests::pod_security
        ),
        case!(
            Api,
            "audit",
            "the audit reader's counts equal what was done",
            requests::audit
        ),
        case!(
            Kwok,
            "kwok",
            "kwok completes 1,000 Jobs",
            kwok::thousand_jobs
        ),
        Case {
            alone: true,
            ..case!(
                Node,
                "csi-sanity",
                "the volume driver passes csi-sanity",
                workloads::csi_sanity
            )
        },
        Case {
            alone: true,
            ..case!(
                Node,
                "kubelet",
                "a stopped kubelet makes the node NotReady, and it comes back",
                node::kubelet
            )
        },
    ]
}

/// Runs all cases, or those whose names are given, on fresh clusters of the tiers they need.
pub(crate) async fn run(only: &[String]) -> Result<ExitCode> {
    let mut cases = cases();
    if let Some(unknown) = only
        .iter()
        .find(|name| !cases.iter().any(|case| case.name == *name))
    {
        let known: Vec<&str> = cases.iter().map(|case| case.name).collect();
        anyhow::bail!("no case '{unknown}'; there are {}", known.join(", "));
    }
    cases.retain(|case| only.is_empty() || only.iter().any(|name| name == case.name));
    let places = places(&cases).await?;
    let summary = suite::run(cases, &places, PARALLEL, &mut |line| println!("{line}")).await;
    let stopped = stop(places).await;
    println!("{summary}");
    stopped?;
    Ok(if summary.is_success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn places(cases: &[Case]) -> Result<BTreeMap<Tier, Place>> {
    let mut tiers: Vec<Tier> = cases.iter().map(|case| case.tier).collect();
    tiers.sort();
    tiers.dedup();
    let mut places = BTreeMap::new();
    if let Some(external) = Place::external() {
        external.check().await?;
        // A contributor's cluster has an API server and nodes; fake nodes it has not.
        tiers.retain(|tier| *tier != Tier::Kwok);
        places.extend(tiers.into_iter().map(|tier| (tier, external.clone())));
        return Ok(places);
    }
    for tier in tiers {
        let cluster = Cluster::start(
            &format!("prove-{}-{}", std::process::id(), tier.name()),
            tier,
        )
        .await?;
        announce(&cluster);
        places.insert(tier, Place::Testbed(Arc::new(cluster)));
    }
    Ok(places)
}

/// Ends all of them, also when one does not end.
async fn stop(places: BTreeMap<Tier, Place>) -> Result<()> {
    let mut result = Ok(());
    for place in places.into_values() {
        if let Place::Testbed(cluster) = place {
            let ended = match Arc::into_inner(cluster) {
                Some(cluster) => cluster.stop().await,
                None => Err(anyhow!("a case still holds its cluster")),
            };
            result = result.and(ended);
        }
    }
    result
}
