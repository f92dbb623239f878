//! `version`

use actions::{Error, Request};
use api::{
    Timestamp,
    kinds::{OPERATORS, OperatorRow},
    names,
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::ListParams};

use crate::{
    Exit,
    failure::Failure,
    operators,
    session::{Server, Session, ask},
    text::{between, clean, span},
};

const OURS: &str = env!("CARGO_PKG_VERSION");

/// Shortest time without a renewal after which an operator does not lead, in seconds.
const PATIENCE: i64 = 30;

/// Prints the versions. A version that cannot be read is printed as such and is not an error,
/// because the client's version is known.
pub(crate) async fn run(session: &mut Session<'_>) -> Result<Exit, Failure> {
    session.line(&format!("orc {OURS}"))?;
    let reached = async {
        let server = session.server().await?;
        let version = server_version(&server).await?;
        Ok::<_, Failure>((server, version))
    };
    let server = match reached.await {
        Ok((server, version)) => {
            session.line(&format!("Kubernetes {version}"))?;
            server
        }
        Err(failure) => {
            let message = clean(&failure.message());
            session.line(&format!("Kubernetes not reached: {message}"))?;
            return Ok(Exit::Ok);
        }
    };
    for operator in OPERATORS {
        match leases(operator, &server, session).await {
            Ok(leases) if leases.is_empty() => session.line(&absent(operator))?,
            Ok(leases) => {
                for lease in &leases {
                    let found = Found::read(lease, session.now());
                    session.line(&found.sentence(operator))?;
                    if let Some(warning) = found.warning(operator) {
                        session.remark(&warning)?;
                    }
                }
            }
            Err(failure) => {
                let message = clean(&failure.message());
                session.line(&format!("operator {}: unknown: {message}", operator.name))?;
                if session.namespace_flag().is_none() {
                    let next = session.command("version -n NAMESPACE");
                    session.remark(&format!(
                        "  with permission to read Leases in the operator's namespace: {next}"
                    ))?;
                }
            }
        }
    }
    Ok(Exit::Ok)
}

async fn server_version(server: &Server) -> Result<String, Failure> {
    let request = Request {
        verb: "get",
        kind: "version",
        resource: "/version",
        name: None,
        namespace: None,
    };
    let version = ask(request, server.client.apiserver_version()).await?;
    Ok(version.git_version)
}

/// Reads the Leases of an operator in all namespaces, or where that is denied, in the namespace of
/// the flag `-n`.
async fn leases(
    operator: &OperatorRow,
    server: &Server,
    session: &Session<'_>,
) -> Result<Vec<Lease>, Failure> {
    let which = ListParams::default().fields(&format!("metadata.name={}", operator.lease));
    let list = async |namespace: Option<&str>| {
        let api: Api<Lease> = match namespace {
            Some(namespace) => Api::namespaced(server.client.clone(), namespace),
            None => Api::all(server.client.clone()),
        };
        let request = Request {
            verb: "list",
            kind: "Lease",
            resource: "leases.coordination.k8s.io",
            name: None,
            namespace: namespace.map(str::to_owned),
        };
        let found = ask(request, api.list(&which)).await;
        found.map(|list| list.items)
    };
    match (list(None).await, session.namespace_flag()) {
        (Err(Failure::Action(error)), Some(namespace)) if matches!(*error, Error::Denied(..)) => {
            list(Some(namespace)).await
        }
        (found, _) => found,
    }
}

/// Formats the result for an operator without a Lease.
fn absent(operator: &OperatorRow) -> String {
    format!(
        "operator {}: no Lease '{}' exists, so it is off or never started (chart value '{}')",
        operator.name,
        operator.lease,
        operators::value(operator)
    )
}

/// The Lease of an operator.
///
/// The leader writes its own version beside each renewal. So a fresh Lease proves which version
/// leads now. It proves nothing about standbys, and nothing about the CRDs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    version: Option<String>,
    namespace: String,
    /// The leader, or `None` if the Lease was released or not renewed in time.
    leader: Option<String>,
    /// Time since the last renewal.
    renewed: String,
}

impl Found {
    fn read(lease: &Lease, now: Timestamp) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        let annotations = lease.metadata.annotations.as_ref();
        let version = annotations.and_then(|all| all.get(names::VERSION));
        let limit = i64::from(spec.lease_duration_seconds.unwrap_or_default()) * 2;
        let renewed = spec.renew_time.as_ref().map(|time| time.0);
        let is_fresh = renewed
            .is_some_and(|renewed| now.as_second() - renewed.as_second() <= limit.max(PATIENCE));
        let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
        Self {
            version: version.map(|version| clean(version)),
            namespace: clean(lease.metadata.namespace.as_deref().unwrap_or_default()),
            leader: holder.filter(|_| is_fresh).map(|holder| clean(&holder)),
            renewed: renewed.map_or_else(
                || "never renewed".to_owned(),
                |renewed| format!("renewed {} ago", span(between(renewed, now))),
            ),
        }
    }

    fn sentence(&self, operator: &OperatorRow) -> String {
        let Self {
            version,
            namespace,
            leader,
            renewed,
        } = self;
        let (name, lease) = (operator.name, operator.lease);
        let version = match version {
            Some(version) => version,
            None => "of unknown version (it writes none to its Lease)",
        };
        match leader {
            Some(leader) => format!(
                "operator {name} {version}, leading: '{leader}' in namespace '{namespace}', {renewed}"
            ),
            None => format!(
                "operator {name} {version}, not running: no process holds Lease '{lease}' in namespace '{namespace}', {renewed}"
            ),
        }
    }

    /// Returns the warning if this program and the operator are of different versions.
    fn warning(&self, operator: &OperatorRow) -> Option<String> {
        let theirs = self.version.as_deref()?;
        let differs = release(OURS) != release(theirs);
        differs.then(|| {
            format!(
                "warning: orc {OURS} and the operator '{}' {theirs} are different releases; fields and reasons that only one of them knows are missing or not understood. Use the orc of the operator's release",
                operator.name
            )
        })
    }
}

/// Returns a version without its patch number, which changes no field.
fn release(version: &str) -> (&str, &str) {
    let mut parts = version.split(['.', '-', '+']);
    let major = parts.next().unwrap_or_default();
    (major, parts.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use api::{tasks, tenants};
    use serde_json::{Value, json};

    use super::*;

    fn found(annotations: &Value, holder: &str) -> Found {
        let lease = serde_json::from_value(json!({
            "metadata": { "name": "orchestrator-tasks", "namespace": "system",
                "annotations": annotations },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15,
                "renewTime": "2026-01-01T00:00:00.000000Z" },
        }))
        .unwrap();
        Found::read(&lease, "2026-01-01T00:00:20Z".parse().unwrap())
    }

    #[test]
    fn the_leader_tells_its_version() {
        let ours = json!({ names::VERSION: OURS });
        let running = found(&ours, "pod-a_1");
        assert_eq!(
            running.sentence(&tasks::OPERATOR),
            format!(
                "operator tasks {OURS}, leading: 'pod-a_1' in namespace 'system', renewed 20s ago"
            )
        );
        assert_eq!(running.warning(&tasks::OPERATOR), None);
        let released = found(&ours, "").sentence(&tasks::OPERATOR);
        assert!(
            released.contains("not running: no process holds Lease 'orchestrator-tasks'"),
            "{released}"
        );
        let old = found(&json!({}), "pod-a_1");
        assert!(
            old.sentence(&tasks::OPERATOR)
                .contains("of unknown version")
        );
        assert_eq!(old.warning(&tasks::OPERATOR), None);
        let off = absent(&tenants::OPERATOR);
        assert!(off.contains("'operators.tenants.enabled'"), "{off}");
    }

    #[test]
    fn a_lease_that_is_not_renewed_has_no_leader() {
        let lease: Lease = serde_json::from_value(json!({
            "metadata": { "namespace": "system", "annotations": { names::VERSION: "0.1.0" } },
            "spec": { "holderIdentity": "pod-a_1", "leaseDurationSeconds": 15,
                "renewTime": "2026-01-01T00:00:00.000000Z" } }))
        .unwrap();
        for (now, leads) in [
            ("2026-01-01T00:00:30Z", true),
            ("2026-01-01T00:00:31Z", false),
        ] {
            let found = Found::read(&lease, now.parse().unwrap());
            assert_eq!(found.leader.is_some(), leads, "{now}");
        }
    }

    #[test]
    fn another_release_is_a_warning_and_another_patch_is_none() {
        let of = |version: &str| found(&json!({ names::VERSION: version }), "a");
        let warning = of("77.0.1").warning(&tasks::OPERATOR).unwrap();
        assert!(warning.contains("the operator 'tasks' 77.0.1"), "{warning}");
        assert_eq!(release("0.1.0"), release("0.1.7"));
        assert_ne!(release("0.1.0"), release("0.2.0"));
        assert_ne!(release("0.1.0"), release("1.1.0"));
    }
}
