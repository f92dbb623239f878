//! The decision of a user about a plan: its recorded name, a denial, and a plan that is too old.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::{
    Timestamp,
    apps::{UpgradeRequest, UpgradeRequestStatus},
};
use k8s_openapi::{
    api::rbac::v1::{Role, RoleBinding},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use testkit::{git::Entry, suite::Env, wait::until};

use super::{
    evidence::{commits_of, fingerprint, head, mark, writes, wrote_reports_only},
    fixture::{App, Bench, END, PLANNED, Setup},
};
use crate::{e2e::policies::client_of, flux::BRANCH};

/// The API server acts by new permissions and policies a moment later.
const EFFECTIVE: Duration = Duration::from_secs(30);
/// A plan counts for ten minutes.
const OLDER: i64 = 11 * 60;

/// A user that may change requests of the namespace.
struct User {
    name: String,
    requests: Api<UpgradeRequest>,
}

impl User {
    /// Creates the permissions: to change requests, and perhaps to approve for the ManagedApp.
    async fn new(env: &Env, role: &str, may_approve: bool) -> Result<Self> {
        let name = format!("{role}-{}", env.namespace);
        let mut rules = vec![json!({
            "apiGroups": ["orchestrator.io"], "resources": ["upgraderequests"], "verbs": ["get", "patch"],
        })];
        if may_approve {
            rules.push(json!({
                "apiGroups": ["orchestrator.io"], "resources": ["managedapps"],
                "resourceNames": ["app"], "verbs": ["approve"],
            }));
        }
        let rules = json!({ "metadata": { "name": role }, "rules": rules });
        env.create::<Role>(rules).await?;
        let binding = json!({
            "metadata": { "name": role },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name }],
        });
        env.create::<RoleBinding>(binding).await?;
        let requests = Api::namespaced(client_of(env, &name)?, &env.namespace);
        Ok(Self { name, requests })
    }

    async fn send(&self, request: &str, approval: Value, dry: bool) -> Result<(), kube::Error> {
        let params = PatchParams {
            dry_run: dry,
            ..PatchParams::default()
        };
        let patch = Patch::Merge(json!({ "spec": { "approval": approval } }));
        self.requests.patch(request, &params, &patch).await?;
        Ok(())
    }

    /// Waits until the API server rejects a decision with this text. Nothing is stored.
    async fn is_rejected(&self, request: &str, by: &str, says: &str) -> Result<()> {
        let approval = json!({ "decision": "Approved", "by": by });
        until(&format!("the rejection '{says}'"), EFFECTIVE, async || {
            Ok(match self.send(request, approval.clone(), true).await {
                Err(kube::Error::Api(status)) if status.message.contains(says) => Ok(()),
                Err(kube::Error::Api(status)) => Err(status.message),
                Err(error) => return Err(error.into()),
                Ok(()) => Err("accepted".to_owned()),
            })
        })
        .await
    }

    /// Decides in the own name. Before the permissions are effective, the API server rejects it.
    async fn decides(&self, request: &str, decision: &str) -> Result<()> {
        let approval = json!({ "decision": decision, "by": self.name });
        until("the decision to be accepted", EFFECTIVE, async || {
            Ok(match self.send(request, approval.clone(), false).await {
                Ok(()) => Ok(()),
                Err(kube::Error::Api(status)) => Err(status.message),
                Err(error) => return Err(error.into()),
            })
        })
        .await
    }
}

/// Submits an upgrade, and waits until it waits for a decision.
async fn planned(bench: &Bench, name: &str) -> Result<UpgradeRequestStatus> {
    bench.upgrade(name, "app", "2.0.0", json!({})).await?;
    let parts = [name];
    bench
        .waits::<UpgradeRequest>(name, PLANNED, "AwaitingApproval", &parts)
        .await
}

/// Makes a plan look older than it is. Nobody waits for ten minutes.
async fn age(bench: &Bench, name: &str, state: &UpgradeRequestStatus) -> Result<Timestamp> {
    let planned = state.planned_at.as_ref().context("no time of the plan")?;
    let older = Timestamp::from_second(planned.0.as_second() - OLDER)?;
    let patch = Patch::Merge(json!({ "status": { "plannedAt": Time(older) } }));
    let params = PatchParams::default();
    bench.upgrades().patch_status(name, &params, &patch).await?;
    Ok(older)
}

async fn denied(bench: &Bench, app: &App, user: &User) -> Result<()> {
    let before = fingerprint(&bench.env, "app").await?;
    let since = mark(&bench.env).await?;
    planned(bench, "denied").await?;
    user.decides("denied", "Denied").await?;
    bench
        .fails::<UpgradeRequest>("denied", PLANNED, "ApprovalDenied", &[&user.name])
        .await?;
    wrote_reports_only(bench, since).await?;
    let after = fingerprint(&bench.env, "app").await?;
    ensure!(before == after, "{before} is now {after}");
    let uid = bench.uid::<UpgradeRequest>("denied").await?;
    ensure!(commits_of(app, &uid)?.is_empty(), "a commit was pushed");
    Ok(())
}

/// The plan is made again. Its change in Git is another one: Flux would apply also a commit of others.
async fn outdated(bench: &Bench, app: &App, user: &User) -> Result<()> {
    let state = planned(bench, "outdated").await?;
    let change = [("other.txt", Entry::File(b"of others"))];
    // Flux does not fetch it before its interval.
    app.source
        .repository()
        .commit(BRANCH, "Add a file", &change)?;
    age(bench, "outdated", &state).await?;
    user.decides("outdated", "Approved").await?;
    bench
        .fails::<UpgradeRequest>("outdated", PLANNED, "PlanOutdated", &[&user.name])
        .await?;
    let uid = bench.uid::<UpgradeRequest>("outdated").await?;
    ensure!(commits_of(app, &uid)?.is_empty(), "a commit was pushed");
    app.source.push("Let Flux fetch", &change).await?;
    bench.settled(app).await
}

pub(super) async fn approval(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = bench
        .launch(Setup {
            app: json!({ "approval": "Required" }),
            ..Setup::store("app")
        })
        .await?;
    let approver = User::new(env, "approver", true).await?;
    let other = User::new(env, "other", false).await?;
    denied(bench, &app, &approver).await?;
    outdated(bench, &app, &approver).await?;

    let since = mark(env).await?;
    let state = planned(bench, "approved").await?;
    let request = bench.upgrades().get("approved").await?;
    ensure!(
        request.metadata.finalizers.is_none(),
        "a request without a decision has the finalizers {:?}",
        request.metadata.finalizers
    );
    other
        .is_rejected("approved", &other.name, "must be allowed to 'approve'")
        .await?;
    approver
        .is_rejected("approved", &other.name, "spec.approval.by")
        .await?;
    let older = age(bench, "approved", &state).await?;
    approver.decides("approved", "Approved").await?;
    let state = bench.succeeds::<UpgradeRequest>("approved", END).await?;

    // The plan was made twice, by two Jobs.
    let all = writes(bench, since).await?;
    let plans = all
        .iter()
        .filter(|entry| entry.request.resource == "jobs.batch" && entry.request.verb == "create");
    let plans = plans.count();
    // The third Job pushes.
    ensure!(plans == 3, "the operator created {plans} Jobs");
    let planned = state.planned_at.as_ref().map(|planned| planned.0);
    ensure!(
        planned.is_some_and(|planned| planned.as_second() >= older.as_second() + OLDER),
        "the plan of {older} was not made again, but {planned:?}"
    );
    let stored = bench.upgrades().get("approved").await?;
    let by = stored.spec.approval.as_ref().map(|one| one.by.as_str());
    let recorded = state.approved.as_ref().map(|one| one.by.as_str());
    ensure!(
        by == Some(&*approver.name) && recorded == by,
        "the approver is {by:?}, recorded as {recorded:?}"
    );
    let twice = approver.send("approved", json!({ "by": other.name }), true);
    ensure!(twice.await.is_err(), "a decision can be changed");
    let uid = bench.uid::<UpgradeRequest>("approved").await?;
    let own = commits_of(&app, &uid)?;
    ensure!(
        own.len() == 1 && own[0].id == head(&app)?,
        "commits of the request: {own:?}"
    );
    bench.settled(&app).await?;
    Ok(format!(
        "'{}' is recorded; another name and another user are rejected; an old plan was made again",
        approver.name
    ))
}
