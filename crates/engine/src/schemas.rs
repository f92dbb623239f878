//! Compares the installed CRDs with those of this program, for `/readyz`.
//!
//! With an older CRD, the API server drops new fields of a status without an error. Without a CRD,
//! there is nothing to reconcile. Both are invisible to watches that are already open.

use std::{convert::Infallible, fmt, time::Duration};

use api::{
    crd::{INSTALL, first_parts, lacking},
    error::chain,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, ResourceExt};
use tokio::time::{sleep, timeout};

use crate::{health::Health, supervise::Shutdown};

/// Interval of the checks.
const INTERVAL: Duration = Duration::from_secs(30);

/// Interval of the checks while something is wrong, so that the process is ready soon after it was fixed.
const INTERVAL_IN_TROUBLE: Duration = Duration::from_secs(2);

/// Timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// State before the first response.
const NOT_CHECKED: &str = "not checked yet";

/// Checks the CRDs of an operator's kinds.
pub struct SchemaCheck {
    client: Client,
    health: Health,
    /// The CRDs of this program, each with its problem.
    crds: Vec<(CustomResourceDefinition, Option<String>)>,
}

impl fmt::Debug for SchemaCheck {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.crds.iter().map(|(crd, _)| crd.name_any());
        formatter.debug_list().entries(names).finish()
    }
}

impl SchemaCheck {
    /// Creates the check. The process is not ready until its first round has ended.
    #[must_use]
    pub fn new(client: Client, crds: Vec<CustomResourceDefinition>, health: Health) -> Self {
        let crds = crds.into_iter().map(|crd| {
            let problem = format!("CRD '{}': {NOT_CHECKED}", crd.name_any());
            (crd, Some(problem))
        });
        let check = Self {
            client,
            crds: crds.collect(),
            health,
        };
        check.health.set_schema_problems(check.problems());
        check
    }

    /// Checks until shutdown. It is a supervised task of its own.
    ///
    /// # Errors
    /// None: a request that fails is sent again.
    pub async fn run(mut self, shutdown: Shutdown) -> Result<(), Infallible> {
        while !shutdown.is_on() {
            tokio::select! {
                () = shutdown.wait() => return Ok(()),
                () = self.check() => {}
            }
            let interval = if self.problems().is_empty() {
                INTERVAL
            } else {
                INTERVAL_IN_TROUBLE
            };
            tokio::select! {
                () = shutdown.wait() => {}
                () = sleep(interval) => {}
            }
        }
        Ok(())
    }

    fn problems(&self) -> Vec<String> {
        let problems = self.crds.iter().filter_map(|(_, problem)| problem.clone());
        problems.collect()
    }

    async fn check(&mut self) {
        let installed: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for (ours, problem) in &mut self.crds {
            let name = ours.name_any();
            let found = match timeout(REQUEST_TIMEOUT, installed.get_opt(&name)).await {
                Ok(Ok(found)) => problem_of(&name, found.as_ref(), ours),
                Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403) => {
                    Some(format!("CRD '{name}' cannot be read: {}", status.message))
                }
                // The watches report an API server that does not respond. It says nothing about the CRD.
                Ok(Err(error)) => {
                    let error = chain(&error);
                    tracing::debug!(crd = name, error, "the CRD could not be read");
                    continue;
                }
                Err(_elapsed) => {
                    tracing::debug!(crd = name, "no response to the request for the CRD");
                    continue;
                }
            };
            match &found {
                Some(found) if problem.as_ref() != Some(found) => {
                    tracing::error!(crd = name, "not ready: {found}");
                }
                None if problem.is_some() => {
                    tracing::info!(crd = name, "the CRD has all fields of this operator");
                }
                Some(_) | None => {}
            }
            *problem = found;
        }
        self.health.set_schema_problems(self.problems());
    }
}

/// Returns the problem of an installed CRD for this operator.
fn problem_of(
    name: &str,
    installed: Option<&CustomResourceDefinition>,
    ours: &CustomResourceDefinition,
) -> Option<String> {
    let Some(installed) = installed else {
        return Some(format!("CRD '{name}' does not exist: {INSTALL}"));
    };
    if installed.metadata.deletion_timestamp.is_some() {
        return Some(format!("CRD '{name}' is being deleted"));
    }
    let lacks = lacking(installed, ours);
    if lacks.is_empty() {
        return None;
    }
    let parts = first_parts(&lacks);
    Some(format!(
        "CRD '{name}' is older than this operator: it lacks {parts}: {INSTALL}"
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use api::tasks::TASK_RUN;
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::task::JoinSet;

    use super::*;

    /// Returns a client that gets the current response to each request, and that response.
    fn server() -> (Client, Arc<Mutex<(u16, Value)>>) {
        let response = Arc::new(Mutex::new((200, json!(TASK_RUN.crd()))));
        let current = Arc::clone(&response);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (code, body) = current.lock().unwrap().clone();
            let path = request.uri().path().to_owned();
            async move {
                assert!(path.ends_with("/customresourcedefinitions/taskruns.orchestrator.io"));
                let body = Body::from(body.to_string().into_bytes());
                let response = Response::builder().status(code).body(body);
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(response?)
            }
        });
        (Client::new(service, "default"), response)
    }

    fn status(code: u16, message: &str) -> (u16, Value) {
        let reason = if code == 404 { "NotFound" } else { "" };
        let body = json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
            "code": code, "reason": reason, "message": message,
        });
        (code, body)
    }

    #[tokio::test(start_paused = true)]
    async fn readiness_follows_the_installed_crd() {
        let (client, response) = server();
        let health = Health::default();
        health.set_synced("TaskRun", true);
        assert_eq!(health.ready(), Ok(()), "without a check");
        let check = SchemaCheck::new(client, vec![TASK_RUN.crd()], health.clone());
        assert!(health.ready().unwrap_err().contains(NOT_CHECKED));
        let (stop, shutdown) = Shutdown::pair();
        let mut task = JoinSet::new();
        task.spawn(check.run(shutdown.clone()));
        task.spawn(health.clone().tick(shutdown));

        let mut old = json!(TASK_RUN.crd());
        let path = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
        let fields = old.pointer_mut(path).unwrap().as_object_mut().unwrap();
        fields.remove("reason").unwrap();
        let mut deleting = json!(TASK_RUN.crd());
        deleting["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
        let well = (200, json!(TASK_RUN.crd()));
        for (case, now, wanted) in [
            ("all is well", well.clone(), None),
            ("it is missing", status(404, "no"), Some("does not exist")),
            (
                "the API server is away: the last result stays",
                status(503, "away"),
                Some("does not exist"),
            ),
            ("it is back", well.clone(), None),
            ("the API server is away", status(503, "away"), None),
            (
                "it is older",
                (200, old),
                Some("is older than this operator: it lacks 'status.reason': install"),
            ),
            ("it is deleted", (200, deleting), Some("is being deleted")),
            (
                "it is denied",
                status(403, "may not"),
                Some("cannot be read: may not"),
            ),
            ("well again", well, None),
        ] {
            *response.lock().unwrap() = now;
            sleep(INTERVAL + INTERVAL_IN_TROUBLE).await;
            match (health.ready(), wanted) {
                (Ok(()), None) => {}
                (Err(why), Some(wanted)) => {
                    let names = why.contains("CRD 'taskruns.orchestrator.io'");
                    assert!(names && why.contains(wanted), "{case}: {why}");
                }
                (found, _) => panic!("{case}: {found:?}"),
            }
            assert_eq!(health.live(), Ok(()), "{case}: it is no matter of liveness");
        }
        stop.pull();
        task.join_all()
            .await
            .into_iter()
            .for_each(|ended| ended.unwrap());
    }
}
