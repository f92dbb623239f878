//! `version`

use actions::Request;
use api::{
    Timestamp,
    kinds::{OPERATORS, OperatorRow},
    names,
};
use k8s_openapi::api::coordination::v1::Lease;
use serde_json::{Value, json};
use why::{
    leader::{Installation, Leader, judge},
    world::LeaseView,
};

use crate::{
    Exit,
    arguments::{DataFormat, Version},
    failure::Failure,
    leadership, operators, output,
    session::{Server, Session, ask},
    text::{between, clean, span},
};

const OURS: &str = env!("CARGO_PKG_VERSION");

/// Prints the versions. A version that cannot be read is printed as such and is not an error,
/// because the client's version is known.
pub(crate) async fn run(verb: Version, session: &mut Session<'_>) -> Result<Exit, Failure> {
    if let Some(format) = verb.output {
        let data = data(session).await;
        let text = match format {
            DataFormat::Json => output::json(&data)?,
            DataFormat::Yaml => output::yaml(&data)?,
        };
        session.print(&text)?;
        return Ok(Exit::Ok);
    }
    session.line(&format!("orc {OURS}"))?;
    let server = match reached(session).await {
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
        match found(operator, &server, session).await {
            Ok(found) if found.is_empty() => session.line(&absent(operator))?,
            Ok(found) => {
                for found in &found {
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

/// Returns the versions as data. Each operator has an entry for each of its Leases, and at least one.
async fn data(session: &Session<'_>) -> Value {
    let (server, version) = match reached(session).await {
        Ok(reached) => reached,
        Err(failure) => {
            let message = clean(&failure.message());
            return json!({ "orc": OURS, "kubernetes": null, "message": message, "operators": [] });
        }
    };
    let mut operators = Vec::new();
    for operator in OPERATORS {
        match found(operator, &server, session).await {
            Ok(found) if found.is_empty() => operators.push(unknown(operator, &absent(operator))),
            Ok(found) => operators.extend(found.iter().map(|found| found.data(operator))),
            Err(failure) => operators.push(unknown(operator, &clean(&failure.message()))),
        }
    }
    json!({ "orc": OURS, "kubernetes": version, "operators": operators })
}

fn unknown(operator: &OperatorRow, message: &str) -> Value {
    json!({ "name": operator.name, "version": null, "leader": null, "message": message })
}

/// Connects to the API server, and reads its version.
async fn reached(session: &Session<'_>) -> Result<(Server, String), Failure> {
    let server = session.server().await?;
    let version = server_version(&server).await?;
    Ok((server, version))
}

/// Reads the Leases of an operator, and judges their holders.
async fn found(
    operator: &OperatorRow,
    server: &Server,
    session: &Session<'_>,
) -> Result<Vec<Found>, Failure> {
    let leases = leadership::leases(server, operator, session.namespace_flag()).await?;
    let mut all = Vec::new();
    for lease in &leases {
        let home = lease.metadata.namespace.as_deref().unwrap_or_default();
        let installed = leadership::installation(server, operator, home).await;
        all.push(Found::read(lease, session.now(), installed.as_ref()));
    }
    Ok(all)
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
/// The leader writes its own version beside each renewal. So a fresh Lease of a process that can lead
/// proves which version leads now. It proves nothing about standbys, and nothing about the CRDs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    version: Option<String>,
    namespace: String,
    /// The process that leads, or the reason why none does.
    leader: Result<String, String>,
    /// Time since the last renewal.
    renewed: String,
}

impl Found {
    /// Without the Deployment, `None`, only the Lease counts.
    fn read(lease: &Lease, now: Timestamp, installed: Option<&Installation>) -> Self {
        let annotations = lease.metadata.annotations.as_ref();
        let version = annotations.and_then(|all| all.get(names::VERSION));
        let view = LeaseView::from(lease);
        let renewed = view.renewed.as_ref().map(|time| time.0);
        let holder = clean(view.holder.as_deref().unwrap_or_default());
        let name = &view.name;
        let leader = match judge(&view, now, installed) {
            Leader::Leads => Ok(holder),
            Leader::Released | Leader::Expired => Err(format!("no process holds Lease '{name}'")),
            Leader::Absent(absence) => Err(format!(
                "'{holder}' holds Lease '{name}', but {}",
                absence.describe()
            )),
        };
        Self {
            version: version.map(|version| clean(version)),
            namespace: clean(lease.metadata.namespace.as_deref().unwrap_or_default()),
            leader,
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
        let name = operator.name;
        let version = match version {
            Some(version) => version,
            None => "of unknown version (it writes none to its Lease)",
        };
        match leader {
            Ok(leader) => format!(
                "operator {name} {version}, leading: '{leader}' in namespace '{namespace}', {renewed}"
            ),
            Err(why) => format!(
                "operator {name} {version}, not running: {why} in namespace '{namespace}', {renewed}"
            ),
        }
    }

    fn data(&self, operator: &OperatorRow) -> Value {
        let leader = match &self.leader {
            Ok(leader) => json!(leader),
            Err(_described_in_the_message) => Value::Null,
        };
        json!({
            "name": operator.name,
            "version": self.version,
            "namespace": self.namespace,
            "leader": leader,
            "message": self.sentence(operator),
        })
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

    use super::*;

    fn found(annotations: &Value, holder: &str) -> Found {
        let lease = serde_json::from_value(json!({
            "metadata": { "name": "orchestrator-tasks", "namespace": "system",
                "annotations": annotations },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15,
                "renewTime": "2026-01-01T00:00:00.000000Z" },
        }))
        .unwrap();
        Found::read(&lease, "2026-01-01T00:00:20Z".parse().unwrap(), None)
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
        let data = running.data(&tasks::OPERATOR);
        assert_eq!(data["name"], "tasks");
        assert_eq!(data["version"], OURS);
        assert_eq!(data["leader"], "pod-a_1");
        assert_eq!(
            found(&ours, "").data(&tasks::OPERATOR)["leader"],
            json!(null)
        );
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
            let found = Found::read(&lease, now.parse().unwrap(), None);
            assert_eq!(found.leader.is_ok(), leads, "{now}");
        }
    }

    /// The Lease outlives its holder.
    #[test]
    fn an_operator_that_was_uninstalled_does_not_lead() {
        let lease: Lease = serde_json::from_value(json!({
            "metadata": { "name": "orchestrator-tasks", "namespace": "system",
                "annotations": { names::VERSION: "0.1.0" } },
            "spec": { "holderIdentity": "orchestrator-tasks-6d5f-abcde_1", "leaseDurationSeconds": 15,
                "renewTime": "2026-01-01T00:00:00.000000Z" } }))
        .unwrap();
        let now = "2026-01-01T00:00:08Z".parse().unwrap();
        let uninstalled = Installation {
            operator: "tasks".to_owned(),
            ..Installation::default()
        };
        let found = Found::read(&lease, now, Some(&uninstalled));
        assert_eq!(
            found.sentence(&tasks::OPERATOR),
            "operator tasks 0.1.0, not running: 'orchestrator-tasks-6d5f-abcde_1' holds Lease 'orchestrator-tasks', but its Deployment does not exist in namespace 'system', renewed 8s ago"
        );
        assert!(Found::read(&lease, now, None).leader.is_ok());
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
