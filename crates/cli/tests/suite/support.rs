//! The binary with its own kubeconfig, and helpers that write statuses as the operator would.

use std::{
    fs,
    path::PathBuf,
    process::{Output, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};
use api::tasks::TaskRun;
use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    core::v1::ServiceAccount,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testkit::suite::Env;
use tokio::process::{Child, Command};

/// Timeout of one command. A command that hangs must not block the whole test run.
const LIMIT: Duration = Duration::from_secs(60);

/// The binary, run as one user.
pub(crate) struct Orc {
    folder: tempfile::TempDir,
}

/// The exit code and the output of a command.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    fn of(output: Output) -> Result<Self> {
        Ok(Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout)?,
            err: String::from_utf8(output.stderr)?,
        })
    }

    /// Checks the exit code and the output. A failure prints the whole output.
    pub(crate) fn expect(self, code: i32, words: &[&str]) -> Self {
        let all = format!("{}{}", self.out, self.err);
        assert_eq!(self.code, Some(code), "{all}");
        for word in words {
            assert!(all.contains(word), "no '{word}' in: {all}");
        }
        self
    }
}

impl Orc {
    /// Creates a user with the usual permissions in this namespace.
    pub(crate) async fn of_user(env: &Env) -> Result<Self> {
        let role: Role = serde_json::from_value(json!({
            "metadata": { "name": "user" },
            "rules": [
                { "apiGroups": ["orchestrator.io"], "resources": ["*"],
                    "verbs": ["get", "list", "watch", "create", "patch", "delete", "use"] },
                { "apiGroups": ["", "batch"],
                    "resources": ["pods", "pods/log", "jobs", "configmaps", "events"],
                    "verbs": ["get", "list", "watch"] },
            ],
        }))?;
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": { "name": "user" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "user" },
            "subjects": [{ "kind": "ServiceAccount", "name": "user", "namespace": env.namespace }],
        }))?;
        let how = PostParams::default();
        env.api::<Role>().create(&how, &role).await?;
        env.api::<RoleBinding>().create(&how, &binding).await?;
        Self::of_account(env, "user").await
    }

    /// Creates a user who may read and change Tenants, but none of their children.
    ///
    /// Tenants are cluster-scoped, so the role is a ClusterRole. The caller has to delete `name`.
    pub(crate) async fn of_tenants(env: &Env, name: &str) -> Result<Self> {
        testkit::operator::install(&env.client, api::tenants::OPERATOR.crds()).await?;
        let role: ClusterRole = serde_json::from_value(json!({
            "metadata": { "name": name },
            "rules": [{ "apiGroups": ["orchestrator.io"], "resources": ["tenants"],
                "verbs": ["get", "list", "watch", "patch"] }],
        }))?;
        let binding: ClusterRoleBinding = serde_json::from_value(json!({
            "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": "user", "namespace": env.namespace }],
        }))?;
        let how = PostParams::default();
        let roles: Api<ClusterRole> = Api::all(env.client.clone());
        roles.create(&how, &role).await?;
        let bindings: Api<ClusterRoleBinding> = Api::all(env.client.clone());
        bindings.create(&how, &binding).await?;
        Self::of_account(env, "user").await
    }

    /// Creates a user without permissions.
    pub(crate) async fn of_stranger(env: &Env) -> Result<Self> {
        Self::of_account(env, "stranger").await
    }

    async fn of_account(env: &Env, name: &str) -> Result<Self> {
        testkit::operator::install(&env.client, api::tasks::OPERATOR.crds()).await?;
        let accounts: Api<ServiceAccount> = env.api();
        let account = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
        let how = PostParams::default();
        accounts.create(&how, &account).await?;
        let request = TokenRequest::default();
        let token = accounts.create_token_request(name, &how, &request).await?;
        let token = token.status.context("no token")?.token;
        let folder = tempfile::tempdir()?;
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": {
                "server": env.config.cluster_url.to_string(), "insecure-skip-tls-verify": true } }],
            "users": [{ "name": "test", "user": { "token": token } }],
            "contexts": [{ "name": "test", "context": {
                "cluster": "test", "user": "test", "namespace": env.namespace } }],
        });
        fs::write(folder.path().join("kubeconfig"), config.to_string())?;
        fs::write(folder.path().join("task.md"), "Do it.\n")?;
        fs::write(folder.path().join("a.md"), "From a.\n")?;
        fs::write(folder.path().join("b.md"), "From b.\n")?;
        Ok(Self { folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orc"));
        command
            .args(line.split_whitespace())
            .env_clear()
            .env("KUBECONFIG", self.path("kubeconfig"))
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs a command and waits until it exits.
    pub(crate) async fn run(&self, line: &str) -> Result<Said> {
        finish(self.start(line)?).await
    }

    /// Starts a command.
    pub(crate) fn start(&self, line: &str) -> Result<Child> {
        self.command(line).spawn().context("cannot start orc")
    }

    /// Submits the task that most tests use.
    pub(crate) async fn submit(&self) -> Result<Said> {
        self.run("submit task.md --service shop --task-id 7 --agent writer")
            .await
    }
}

/// Waits until a command exits.
pub(crate) async fn finish(child: Child) -> Result<Said> {
    let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await;
    Said::of(output.context("orc does not end")??)
}

/// Writes a status as the operator would.
pub(crate) async fn record(env: &Env, status: &Value) -> Result<()> {
    record_for(env, "shop-7", status).await
}

/// Writes a status of this run as the operator would.
pub(crate) async fn record_for(env: &Env, run: &str, status: &Value) -> Result<()> {
    let patch = Patch::Merge(json!({ "status": status }));
    let how = PatchParams::default();
    env.api::<TaskRun>().patch_status(run, &how, &patch).await?;
    Ok(())
}

/// Returns the status of a finished run.
pub(crate) fn ended(version: i64, phase: &str, reason: &str) -> Value {
    let condition = |kind: &str, value: &str| {
        json!({ "type": kind, "status": value, "reason": reason, "message": "as the test says",
            "lastTransitionTime": "2026-01-01T00:00:00Z" })
    };
    let value = if phase == "Succeeded" {
        "True"
    } else {
        "False"
    };
    json!({
        "observedGeneration": 1, "contextVersion": version, "phase": phase, "attempts": 1,
        "message": "as the test says",
        "conditions": [condition("Finished", "True"), condition("Succeeded", value)],
        "result": { "exitCode": 3, "reason": reason, "podName": "shop-7-v1-x" },
    })
}
