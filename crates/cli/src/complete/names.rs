//! Names from the cluster and from the kubeconfig.

use api::kinds::KindRow;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt, api::ListParams};
use tokio::{runtime, sync::oneshot, time::timeout};

use super::{Candidate, LIMIT, line::Source};
use crate::{arguments::Cluster, environment::Environment, failure::Failure, server};

/// Maximum number of names per kind. Only the metadata is requested, because the files of runs are
/// large.
const NAMES: u32 = 200;

/// Reads the names, or returns none if that fails or takes too long.
pub(super) async fn read(
    source: Source,
    cluster: Cluster,
    environment: Environment,
) -> Vec<Candidate> {
    let (sender, receiver) = oneshot::channel();
    // A thread of its own: a kubeconfig may start a login program, and kube waits for it without
    // yielding, so no timer would fire here. The process does not wait for the thread.
    std::thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let words = match runtime {
            Ok(runtime) => runtime.block_on(of_source(source, &cluster, &environment)),
            Err(_no_runtime) => Vec::new(),
        };
        if sender.send(words).is_err() {
            // Too late: the answer was given without names.
        }
    });
    match timeout(LIMIT, receiver).await {
        Ok(Ok(words)) => words,
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

async fn of_source(source: Source, cluster: &Cluster, environment: &Environment) -> Vec<Candidate> {
    let words = match source {
        Source::Contexts => server::contexts(cluster, environment)
            .map(|contexts| contexts.into_iter().map(Candidate::new).collect()),
        Source::Namespaces => namespaces(cluster, environment).await,
        Source::Objects(kinds, words) => objects(&kinds, cluster, environment)
            .await
            .map(|found| [words.as_slice(), found.as_slice()].concat())
            .or(Ok(words)),
    };
    // An error message would destroy the line that is being typed.
    words.unwrap_or_else(|_unreadable: Failure| Vec::new())
}

async fn objects(
    kinds: &[(&'static KindRow, String)],
    cluster: &Cluster,
    environment: &Environment,
) -> Result<Vec<Candidate>, Failure> {
    let (client, namespace) = connect(cluster, environment).await?;
    let (client, namespace) = (&client, &namespace);
    let all = kinds.iter().map(|(kind, before)| async move {
        let api = actions::objects(client, kind, Some(namespace));
        match api.list_metadata(&ListParams::default().limit(NAMES)).await {
            Ok(found) => of_objects(before, &found.items, kind.name()),
            // A kind that is not installed, or that may not be read.
            Err(_unreadable) => Vec::new(),
        }
    });
    Ok(join_all(all).await.concat())
}

fn of_objects(before: &str, objects: &[impl ResourceExt], kind: &str) -> Vec<Candidate> {
    let names = objects.iter().map(ResourceExt::name_any);
    let words = names.map(|name| Candidate::described(format!("{before}{name}"), kind));
    words.collect()
}

async fn namespaces(
    cluster: &Cluster,
    environment: &Environment,
) -> Result<Vec<Candidate>, Failure> {
    let (client, _) = connect(cluster, environment).await?;
    let which = ListParams::default().limit(NAMES);
    let found = Api::<Namespace>::all(client).list_metadata(&which).await;
    Ok(found.map_or_else(
        |_unreadable| Vec::new(),
        |found| {
            found
                .items
                .iter()
                .map(|one| Candidate::new(one.name_any()))
                .collect()
        },
    ))
}

async fn connect(
    cluster: &Cluster,
    environment: &Environment,
) -> Result<(Client, String), Failure> {
    let config = server::config(cluster, environment).await?;
    let namespace = cluster.namespace.clone();
    let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
    Ok((server::client(config)?, namespace))
}
