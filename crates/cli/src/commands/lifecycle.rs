//! `cancel`, `suspend`, `resume`

use actions::{Change, Changed, Request, Run, RunKind};
use api::{
    tasks::{DocsRun, TaskRun},
    tenants::{TENANT, Tenant},
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{
    Exit,
    failure::Failure,
    session::{Server, Session, ask, bounded},
    target::{RunName, RunOrTenant},
};

pub(crate) async fn run(
    target: RunOrTenant,
    change: Change,
    session: &mut Session<'_>,
) -> Result<Exit, Failure> {
    let server = session.server().await?;
    let is_new = match &target {
        RunOrTenant::Run(RunName { kind, name }) => match kind {
            RunKind::Task => write::<TaskRun>(&server, name, change).await?,
            RunKind::Docs => write::<DocsRun>(&server, name, change).await?,
        },
        RunOrTenant::Tenant(name) => {
            suspend_tenant(&server, name, change == Change::Suspend).await?
        }
    };
    session.line(&sentence(&target, change, is_new))?;
    // A suspended Tenant does not become ready, so there is nothing to wait for.
    let is_waited = matches!(target, RunOrTenant::Run(_)) || change == Change::Resume;
    if is_new && is_waited {
        let next = session.command(&format!("wait {}", target.argument()));
        session.line(&format!("  to follow it: {next}"))?;
    }
    Ok(Exit::Ok)
}

/// Changes a run. Returns whether a write was necessary.
async fn write<R: Run>(server: &Server, name: &str, change: Change) -> Result<bool, Failure> {
    let request = Request::of_kind(R::KIND, "patch", &server.namespace, name);
    let action = actions::change::<R>(&server.client, &server.namespace, name, change);
    Ok(match bounded(request, action).await? {
        Changed::Now(_) => true,
        Changed::Before(_) => false,
    })
}

/// Suspends or resumes a Tenant. Returns whether a write was necessary.
async fn suspend_tenant(server: &Server, name: &str, suspend: bool) -> Result<bool, Failure> {
    let tenants: Api<Tenant> = Api::all(server.client.clone());
    let request = |verb: &'static str| server.request(verb, &TENANT, name);
    let found = ask(request("get"), tenants.get(name)).await?;
    if found.spec.suspend == suspend {
        return Ok(false);
    }
    let patch = Patch::Merge(json!({ "spec": { "suspend": suspend } }));
    let how = PatchParams {
        field_manager: Some(actions::MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let written = tenants.patch(name, &how, &patch);
    ask(request("patch"), written).await?;
    Ok(true)
}

/// Returns the message about the change. The message promises no result, because the operator acts
/// later and reports it only in the status.
fn sentence(target: &RunOrTenant, change: Change, is_new: bool) -> String {
    let is_run = matches!(target, RunOrTenant::Run(_));
    let words = match (change, is_new) {
        (Change::Cancel, true) => "is asked to end; that cannot be taken back",
        (Change::Cancel, false) => "was cancelled before; nothing was changed",
        (Change::Suspend, true) if is_run => {
            "is asked to suspend: its container is stopped, and no time counts"
        }
        (Change::Suspend, true) => {
            "is asked to suspend: its server and Redis are stopped, their data stays"
        }
        (Change::Suspend, false) => "was suspended before; nothing was changed",
        (Change::Resume, true) if is_run => "is asked to go on: its attempt starts again",
        (Change::Resume, true) => "is asked to go on: its server and Redis start again",
        (Change::Resume, false) => "is not suspended; nothing was changed",
    };
    format!("{target} {words}")
}
