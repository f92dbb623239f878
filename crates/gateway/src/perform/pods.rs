//! Pods of runs, and their logs.

use actions::Object;
use api::names;
use futures::AsyncReadExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{ListParams, LogParams},
};

use super::{get, request};
use crate::{
    logs::{Choice, choose},
    problem::Problem,
    request::{LogQuery, Target},
    results::{Done, LogState},
};

/// Maximum size of a log in one response, in bytes.
const LOG_LIMIT: u64 = 8 * 1024 * 1024;

/// Maximum number of Pods of a run. It has one for each attempt and disruption.
const PODS: u32 = 200;

/// Lists the Pods of a run.
pub(crate) async fn pods(
    client: &Client,
    run: &Object,
    namespace: &str,
) -> Result<Vec<Pod>, Problem> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let uid = run.metadata.uid.as_deref().unwrap_or_default();
    let which = ListParams::default()
        .labels(&format!("{}={uid}", names::UID))
        .limit(PODS);
    let request = request("list", "Pod", "pods", None, namespace);
    let found = api.list(&which).await;
    let found = found.map_err(|error| Problem::of_action(&request.failed(error), namespace))?;
    Ok(found.items)
}

/// Reads the log of an attempt.
pub(super) async fn log(
    client: &Client,
    target: &Target,
    query: &LogQuery,
) -> Result<Done, Problem> {
    let run = get(client, target).await?;
    let namespace = target.namespace.as_str();
    let pods = pods(client, &run, namespace).await?;
    let (pod, container, state) = match choose(&run, &pods, query)? {
        Choice::Container {
            pod,
            container,
            state,
        } => (pod, container, state),
        Choice::Nothing(state) => return Ok(Done::Log(Vec::new(), state)),
    };
    let how = LogParams {
        container: Some(container),
        tail_lines: query.tail,
        since_time: query.from,
        timestamps: query.timestamps,
        ..LogParams::default()
    };
    let request = || request("get", "Pod", "pods/log", Some(&pod), namespace);
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let log = api.log_stream(&pod, &how).await;
    let log = log.map_err(|error| Problem::of_action(&request().failed(error), namespace))?;
    let log = std::pin::pin!(log);
    let mut text = Vec::new();
    let read = log.take(LOG_LIMIT).read_to_end(&mut text).await;
    read.map_err(|error| {
        let error = actions::Error::Unanswered(request(), error.to_string());
        Problem::of_action(&error, namespace)
    })?;
    let is_cut = u64::try_from(text.len()).is_ok_and(|size| size >= LOG_LIMIT);
    let is_part = query.tail.is_some() || query.from.is_some();
    Ok(Done::Log(
        text,
        match is_cut && !is_part {
            true => LogState::Gap,
            false => state,
        },
    ))
}
