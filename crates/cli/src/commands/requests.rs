//! `upgrade`, `rollback`, `approve`, `deny`

use actions::{Object, ObjectName};
use api::{
    apps::{
        ApprovalDecision, ROLLBACK_REQUEST, RollbackRequestSpec, TargetVersion, UPGRADE_REQUEST,
        UpgradeRequestSpec,
    },
    pod::NamedRef,
};

use crate::{
    Exit,
    arguments::{Decide, RollBack, UpgradeApp, WaitOptions},
    commands::wait,
    failure::Failure,
    session::{Server, Session, bounded},
    text::clean,
};

pub(crate) async fn upgrade(verb: UpgradeApp, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let UpgradeApp {
        app,
        chart,
        images,
        name,
        dry_run,
        skip_snapshot,
        allow_unhealthy,
        wait_options,
    } = verb;
    let server = session.server().await?;
    let target = TargetVersion { chart, images };
    let kind = match target.chart.is_some() {
        true => "chart ",
        false => "",
    };
    let words = format!("upgrades ManagedApp '{app}' to {kind}{target}");
    let about = ObjectName::new(&UPGRADE_REQUEST, name.as_deref().unwrap_or(&app));
    let spec = UpgradeRequestSpec {
        managed_app_ref: NamedRef { name: app },
        target_version: target,
        skip_snapshot,
        allow_unhealthy,
        dry_run,
        approval: None,
    };
    let action = actions::request_upgrade(&server.client, &server.namespace, name.as_deref(), spec);
    let created = bounded(server.request("create", &about), action).await?;
    let created = created.metadata.name.unwrap_or_default();
    let request = ObjectName::new(&UPGRADE_REQUEST, &created);
    submitted(session, &server, request, (&words, dry_run), &wait_options).await
}

pub(crate) async fn roll_back(verb: RollBack, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let RollBack {
        upgrade,
        name,
        dry_run,
        wait_options,
    } = verb;
    let server = session.server().await?;
    let words = format!("returns to the state before UpgradeRequest '{upgrade}'");
    let about = ObjectName::new(&ROLLBACK_REQUEST, name.as_deref().unwrap_or(&upgrade));
    let spec = RollbackRequestSpec {
        upgrade_request_ref: NamedRef { name: upgrade },
        dry_run,
    };
    let action =
        actions::request_rollback(&server.client, &server.namespace, name.as_deref(), spec);
    let created = bounded(server.request("create", &about), action).await?;
    let created = created.metadata.name.unwrap_or_default();
    let request = ObjectName::new(&ROLLBACK_REQUEST, &created);
    submitted(session, &server, request, (&words, dry_run), &wait_options).await
}

/// Prints that a request was created, and waits for its end if the user wants to.
async fn submitted(
    session: &mut Session<'_>,
    server: &Server,
    request: ObjectName,
    (words, is_dry_run): (&str, bool),
    options: &WaitOptions,
) -> Result<Exit, Failure> {
    let end = match is_dry_run {
        true => "; it makes the plan only (dry run)",
        false => "",
    };
    session.line(&format!(
        "{request} {words}{end}, in namespace '{}'",
        clean(&server.namespace)
    ))?;
    wait::afterwards(session, server, request, options).await
}

pub(crate) async fn decide(
    verb: Decide,
    decision: ApprovalDecision,
    session: &mut Session<'_>,
) -> Result<Exit, Failure> {
    let server = session.server().await?;
    let name = ObjectName::new(&UPGRADE_REQUEST, &verb.upgrade);
    let action = actions::decide(&server.client, &server.namespace, &verb.upgrade, decision);
    let changed = bounded(server.request("patch", &name), action).await?;
    if changed.is_new {
        session.line(&decided(&changed.object, decision))?;
        let next = session.command(&format!("wait {}", name.argument()));
        session.line(&format!("  to follow it: {next}"))?;
        return Ok(Exit::Ok);
    }
    match unchanged(&changed.object, decision) {
        Ok(sentence) => {
            session.line(&sentence)?;
            Ok(Exit::Ok)
        }
        Err(sentence) => Err(Failure::client(sentence)),
    }
}

fn word(decision: ApprovalDecision) -> &'static str {
    match decision {
        ApprovalDecision::Approved => "approved",
        ApprovalDecision::Denied => "denied",
    }
}

fn decided(request: &Object, decision: ApprovalDecision) -> String {
    let by = clean(request.text("spec.approval.by"));
    let follows = match decision {
        ApprovalDecision::Approved => "the upgrade continues",
        ApprovalDecision::Denied => "the request ends, and nothing is changed",
    };
    format!(
        "{} is {} by '{by}': {follows}",
        request.name,
        word(decision)
    )
}

/// Returns the sentence about a request without a change: it has the same decision already, or it does not wait for one.
fn unchanged(request: &Object, decision: ApprovalDecision) -> Result<String, String> {
    let name = &request.name;
    let by = clean(request.text("spec.approval.by"));
    match request.part::<ApprovalDecision>("spec.approval.decision") {
        Some(stored) if stored == decision => Ok(format!(
            "{name} was {} by '{by}' before; nothing was changed",
            word(stored)
        )),
        Some(stored) => Err(format!(
            "{name} was {} by '{by}', and a decision cannot be changed",
            word(stored)
        )),
        None => Err(format!(
            "{name} is in phase {}, and only a request in phase Approval waits for a decision",
            clean(request.phase())
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn request(approval: &Value) -> Object {
        let object = json!({
            "metadata": { "name": "up" }, "spec": { "approval": approval },
            "status": { "phase": "Approval" },
        });
        Object::new(&UPGRADE_REQUEST, serde_json::from_value(object).unwrap())
    }

    #[test]
    fn a_decision_is_made_once() {
        use ApprovalDecision::{Approved, Denied};
        let by = |decision: &str| json!({ "decision": decision, "by": "ann" });
        for (stored, wanted, expected) in [
            (by("Approved"), Approved, Ok("approved by 'ann' before")),
            (
                by("Denied"),
                Approved,
                Err("denied by 'ann', and a decision cannot"),
            ),
            (
                by("Approved"),
                Denied,
                Err("approved by 'ann', and a decision cannot"),
            ),
            (
                Value::Null,
                Approved,
                Err("only a request in phase Approval"),
            ),
        ] {
            let found = unchanged(&request(&stored), wanted);
            let is_as_expected = match (&found, expected) {
                (Ok(text), Ok(part)) | (Err(text), Err(part)) => text.contains(part),
                (Ok(_), Err(_)) | (Err(_), Ok(_)) => false,
            };
            assert!(is_as_expected, "{stored}, {wanted:?}: {found:?}");
        }
        let said = decided(&request(&by("Approved")), Approved);
        assert_eq!(
            said,
            "UpgradeRequest 'up' is approved by 'ann': the upgrade continues"
        );
    }
}
