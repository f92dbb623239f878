//! The logs of a Tenant's Pods.

use actions::Object;
use futures::{AsyncBufReadExt, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::LogParams};

use super::{Log, log_request};
use crate::{
    Exit, containers,
    failure::Failure,
    related::tenant,
    session::{Server, Session, ask},
    state,
    text::clean,
};

/// Prints the logs of all containers of the Tenant's Pods, each line with the name of its Pod.
pub(super) async fn print(
    server: &Server,
    tenant: &Object,
    is_followed: bool,
    session: &mut Session<'_>,
) -> Result<Exit, Failure> {
    let place = tenant::place(server, tenant);
    let pods = tenant::pods(&place, tenant).await?;
    if pods.is_empty() {
        return Err(none(tenant, &place.namespace));
    }
    let mut logs = Vec::new();
    for pod in &pods {
        let (started, waiting) = logs_of(pod, is_followed);
        for name in waiting {
            let words = format!("container '{name}' has not started, so it has no log");
            let pod = clean(pod.metadata.name.as_deref().unwrap_or_default());
            session.remark(&format!("Pod '{pod}': {words}"))?;
        }
        logs.extend(started);
    }
    if is_followed {
        return follow(&place, &logs, session).await;
    }
    for log in &logs {
        if !log.print(&place, session).await? {
            break;
        }
    }
    Ok(Exit::Ok)
}

/// Returns the logs of a Pod, and its containers that have none.
fn logs_of(pod: &Pod, is_followed: bool) -> (Vec<Log>, Vec<String>) {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let spec = pod.spec.as_ref();
    let containers = spec.map_or(&[][..], |spec| spec.containers.as_slice());
    let is_alone = containers.len() == 1;
    let (started, waiting): (Vec<_>, Vec<_>) = containers
        .iter()
        .map(|container| container.name.clone())
        .partition(|container| containers::has_started(pod, container));
    let logs = started.into_iter().map(|container| Log {
        prefix: Some(match is_alone {
            true => format!("[{name}] "),
            false => format!("[{name} {container}] "),
        }),
        pod: name.clone(),
        container,
        is_followed,
    });
    (logs.collect(), waiting)
}

/// Follows several logs at once. A line appears when it is complete.
async fn follow(place: &Server, logs: &[Log], session: &mut Session<'_>) -> Result<Exit, Failure> {
    let pods: Api<Pod> = Api::namespaced(place.client.clone(), &place.namespace);
    let mut streams = Vec::new();
    for log in logs {
        let how = LogParams {
            container: Some(log.container.clone()),
            follow: true,
            ..LogParams::default()
        };
        let request = log_request(place, &log.pod);
        let lines = ask(request, pods.log_stream(&log.pod, &how)).await?.lines();
        let prefix = log.prefix.clone().unwrap_or_default();
        streams.push(lines.map_ok(move |line| format!("{prefix}{line}")).boxed());
    }
    let mut lines = stream::select_all(streams);
    loop {
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                return Ok(Exit::Ok);
            }
            line = lines.next() => match line {
                Some(Ok(line)) => session.line(&line)?,
                Some(Err(error)) => session.remark(&format!("a log broke off: {error}"))?,
                None => return Ok(Exit::Ok),
            },
        }
    }
}

fn none(tenant: &Object, namespace: &str) -> Failure {
    let name = &tenant.name;
    let has = |part: &str| tenant.at(part).is_object();
    let why = if state::is_suspended(tenant) {
        "it is suspended"
    } else if !has("spec.server") && !has("spec.redis") {
        "it has neither a server nor a Redis"
    } else {
        "they are not created yet, or they were deleted"
    };
    Failure::Gone {
        message: format!("{name} has no Pods in namespace '{namespace}': {why}"),
        next: vec![("to see its state", format!("why {}", name.argument()))],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::state::tests::a_tenant;

    fn pod(containers: &[(&str, Value)]) -> Pod {
        let specs: Vec<Value> = containers
            .iter()
            .map(|(name, _)| json!({ "name": name }))
            .collect();
        let statuses: Vec<Value> = containers
            .iter()
            .map(|(name, state)| {
                json!({ "name": name, "image": "", "imageID": "", "ready": false,
                    "restartCount": 0, "state": state })
            })
            .collect();
        serde_json::from_value(json!({ "metadata": { "name": "server-x" },
            "spec": { "containers": specs }, "status": { "containerStatuses": statuses } }))
        .unwrap()
    }

    #[test]
    fn each_container_that_has_started_has_a_log() {
        let (runs, waits) = (json!({ "running": {} }), json!({ "waiting": {} }));
        let (logs, waiting) = logs_of(&pod(&[("server", runs.clone())]), false);
        assert_eq!(logs[0].prefix.as_deref(), Some("[server-x] "));
        assert!(waiting.is_empty());
        let (logs, waiting) = logs_of(&pod(&[("server", runs), ("proxy", waits)]), false);
        assert_eq!(logs.len(), 1);
        assert_eq!(logs[0].prefix.as_deref(), Some("[server-x server] "));
        assert_eq!(waiting, ["proxy"]);
    }

    #[test]
    fn a_tenant_without_pods_says_why() {
        let tenant = a_tenant(1, &json!({}));
        let failure = none(&tenant, "tenant-acme");
        assert_eq!(failure.exit().code(), 5);
        assert!(failure.message().contains("not created yet"), "{failure:?}");
        let mut held = tenant.clone();
        held.data["spec"]["suspend"] = json!(true);
        let said = none(&held, "tenant-acme").message();
        assert!(
            said.ends_with("in namespace 'tenant-acme': it is suspended"),
            "{said}"
        );
        let mut empty = tenant;
        empty.data["spec"]["server"] = Value::Null;
        empty.data["spec"]["redis"] = Value::Null;
        let said = none(&empty, "tenant-acme").message();
        assert!(said.contains("neither a server nor a Redis"), "{said}");
    }
}
