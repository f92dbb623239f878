//! A gateway as a process, with the chart's configuration and a certificate, and its callers.
//!
//! The process has a kubeconfig with a token, which it must not use: the case `no-own-requests` looks for the account of
//! this token in the audit log.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use api::tasks::TaskRun;
use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    authorization::v1::SubjectAccessReview,
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{
    faults::proxy::Endpoint,
    operator::{self, Operator, Plan},
    suite::{Env, create, new_namespace},
    wait::{met, until},
};

use super::client::{Answer, Call, HOST, Https};

/// Beginning of the names of the gateways' own namespaces.
pub(super) const HOME: &str = "gateway-home-";

/// The address of the seed's first endpoint.
pub(super) const TASKS: &str = "/api/v1/pm/tasks";

/// A caller of the gateway: a ServiceAccount with a token.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    /// Name, as the API server authenticates it.
    pub(super) user: String,
    pub(super) token: String,
    pub(super) namespace: String,
    pub(super) account: String,
}

/// How a gateway is started.
#[derive(Debug, Clone, Default)]
pub(super) struct Options {
    /// Namespace of the seed's endpoints. Default: that of the case.
    pub(super) pm_namespace: Option<String>,
    /// A fault proxy between the gateway and the API server.
    pub(super) endpoint: Option<Endpoint>,
    /// The key of sessions. Without it, browsers cannot sign in.
    pub(super) session_key: Option<&'static str>,
    /// The binary of the gateway. Default: the one that `cargo build` made.
    pub(super) binary: Option<PathBuf>,
    /// More lines of the gateway's configuration, indented by two blanks.
    pub(super) lines: &'static str,
}

/// A running gateway.
pub(super) struct Gateway {
    pub(super) operator: Operator,
    pub(super) https: Https,
}

/// A gateway for a case, and its callers.
pub(super) struct Stage {
    pub(super) env: Env,
    pub(super) gateway: Gateway,
    /// PEM of the certificate with which the gateway was started.
    pub(super) certificate: String,
    tls: TempDir,
    plan: Plan,
    /// Parts of tokens that the gateway must not log.
    secrets: Mutex<Vec<String>>,
    /// Names of ClusterRoles and their bindings.
    cluster_roles: Mutex<Vec<String>>,
}

impl Stage {
    /// Starts a gateway whose endpoints of the seed have the namespace of the case.
    pub(super) async fn new(env: Env) -> Result<Self> {
        Self::with(env, Options::default()).await
    }

    pub(super) async fn with(env: Env, options: Options) -> Result<Self> {
        operator::install(&env.client, api::tasks::OPERATOR.crds()).await?;
        let home = new_namespace(&env.client, json!({ "generateName": HOME })).await?;
        let tls = tempfile::tempdir()?;
        let certificate = write_certificate(tls.path())?;
        let mut arguments = vec![
            // The process logs the port that it gets.
            "--gateway-address=127.0.0.1:0".to_owned(),
            format!("--tls-directory={}", tls.path().display()),
        ];
        if let Some(key) = options.session_key {
            let directory = tls.path().join("session");
            fs::create_dir(&directory)?;
            fs::write(directory.join("current"), key)?;
            arguments.push(format!("--session-directory={}", directory.display()));
        }
        let namespace = options.pm_namespace.as_deref().unwrap_or(&env.namespace);
        let lines = options.lines;
        let binary = options.binary.map_or_else(operator::built, Ok)?;
        let plan = Plan {
            operator: "gateway",
            permissions: &[],
            config: format!("gateway:\n  pm:\n    namespace: {namespace}\n{lines}"),
            endpoint: options.endpoint,
            arguments,
            ..Plan::new(binary, &api::tasks::OPERATOR, &home)
        };
        let gateway = start(&env, &plan, &certificate).await?;
        Ok(Self {
            env,
            gateway,
            certificate,
            tls,
            plan,
            secrets: Mutex::default(),
            cluster_roles: Mutex::default(),
        })
    }

    /// Starts another replica of the same installation.
    pub(super) async fn replica(&self) -> Result<Gateway> {
        start(&self.env, &self.plan, &self.certificate).await
    }

    /// Stops the gateway, and starts it again.
    pub(super) async fn restart(&mut self) -> Result<()> {
        let next = self.replica().await?;
        let last = std::mem::replace(&mut self.gateway, next);
        last.operator.stop().await
    }

    /// Replaces the certificate in the directory of the gateway. Returns the new one.
    pub(super) fn rotate_certificate(&self) -> Result<String> {
        write_certificate(self.tls.path())
    }

    /// Replaces the key by text that is no key.
    pub(super) fn break_key(&self) -> Result<()> {
        Ok(fs::write(self.tls.path().join("tls.key"), "no key")?)
    }

    /// Sends a request with the token of this caller.
    pub(super) async fn send(&self, caller: &Caller, call: Call) -> Result<Answer> {
        self.gateway.https.send(call.by(&caller.token)).await
    }

    /// Sends a request without a token.
    pub(super) async fn send_anonymous(&self, call: Call) -> Result<Answer> {
        self.gateway.https.send(call).await
    }

    /// Creates a caller with these permissions in the namespace of the case.
    pub(super) async fn caller(&self, name: &str, rules: Value) -> Result<Caller> {
        let namespace = self.env.namespace.clone();
        let caller = self.account(&namespace, name).await?;
        let role = json!({ "metadata": { "name": name }, "rules": rules });
        self.env.create::<Role>(role).await?;
        let binding = json!({
            "metadata": { "name": name },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": namespace }],
        });
        self.env.create::<RoleBinding>(binding).await?;
        self.is_permitted(&caller, &rules, &namespace).await?;
        Ok(caller)
    }

    /// Creates a caller that may submit and change runs.
    pub(super) async fn editor(&self, name: &str) -> Result<Caller> {
        self.caller(name, editor()).await
    }

    /// Creates a caller that may only read.
    pub(super) async fn viewer(&self, name: &str) -> Result<Caller> {
        self.caller(name, viewer()).await
    }

    /// Creates a caller with these permissions in all namespaces.
    pub(super) async fn cluster_caller(&self, name: &str, rules: Value) -> Result<Caller> {
        let namespace = self.env.namespace.clone();
        let caller = self.account(&namespace, name).await?;
        let full = format!("{namespace}-{name}");
        let role = json!({ "metadata": { "name": full }, "rules": rules });
        create::<ClusterRole>(&Api::all(self.env.client.clone()), role).await?;
        let binding = json!({
            "metadata": { "name": full },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": full },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": namespace }],
        });
        create::<ClusterRoleBinding>(&Api::all(self.env.client.clone()), binding).await?;
        lock(&self.cluster_roles).push(full);
        self.is_permitted(&caller, &rules, "").await?;
        Ok(caller)
    }

    /// Creates a ServiceAccount without permissions.
    pub(super) async fn account(&self, namespace: &str, name: &str) -> Result<Caller> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.env.client.clone(), namespace);
        create(&accounts, json!({ "metadata": { "name": name } })).await?;
        let token = token_of(&self.env.client, namespace, name, &[]).await?;
        self.keep_secret(&token);
        Ok(Caller {
            user: format!("system:serviceaccount:{namespace}:{name}"),
            token,
            namespace: namespace.to_owned(),
            account: name.to_owned(),
        })
    }

    /// Remembers a token, which must not be in the log of the gateway.
    pub(super) fn keep_secret(&self, token: &str) {
        let signature = token.rsplit('.').next().unwrap_or(token);
        // A forged token may have none, and a short word may be in the log for another reason.
        if signature.len() > 16 {
            lock(&self.secrets).push(signature.to_owned());
        }
    }

    /// The API server acts by a new role a moment after its creation.
    async fn is_permitted(&self, caller: &Caller, rules: &Value, namespace: &str) -> Result<()> {
        let reviews: Api<SubjectAccessReview> = Api::all(self.env.client.clone());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for rule in rules.as_array().into_iter().flat_map(|all| all.iter()) {
            let resource = text(&rule["resources"][0]);
            let (resource, part) = resource.split_once('/').unwrap_or((&resource, ""));
            let review: SubjectAccessReview = serde_json::from_value(json!({
                "metadata": {},
                "spec": { "user": caller.user, "resourceAttributes": {
                    "namespace": namespace, "verb": text(&rule["verbs"][0]),
                    "group": text(&rule["apiGroups"][0]), "resource": resource, "subresource": part,
                } },
            }))?;
            let limit = Duration::from_secs(20);
            until("the permissions of a caller", limit, async || {
                let seen = reviews.create(&PostParams::default(), &review).await?;
                let is_allowed = seen.status.is_some_and(|status| status.allowed);
                Ok(met(is_allowed, || format!("{} may not", caller.user)))
            })
            .await?;
        }
        Ok(())
    }

    pub(super) fn runs(&self) -> Api<TaskRun> {
        self.env.api()
    }

    /// Returns a run, as it is stored.
    pub(super) async fn run(&self, name: &str) -> Result<TaskRun> {
        Ok(self.runs().get(name).await?)
    }

    /// Checks that the namespace of the case has so many TaskRuns.
    pub(super) async fn has_runs(&self, wanted: usize) -> Result<()> {
        let found = self.runs().list(&ListParams::default()).await?.items.len();
        ensure!(found == wanted, "{found} runs exist, not {wanted}");
        Ok(())
    }

    /// Returns the address of TaskRuns in the namespace of the case.
    pub(super) fn taskruns(&self) -> String {
        format!("/api/v1/namespaces/{}/taskruns", self.env.namespace)
    }

    /// Returns the address of a TaskRun, and of a part of it.
    pub(super) fn at(&self, name: &str, part: &str) -> String {
        match part {
            "" => format!("{}/{name}", self.taskruns()),
            _ => format!("{}/{name}/{part}", self.taskruns()),
        }
    }

    /// Ends the gateway. It must stop well, and must not have panicked or logged a token.
    pub(super) async fn done(self) -> Result<()> {
        let log = self.gateway.operator.log_text()?;
        ensure!(!log.contains("panicked"), "the gateway panicked: {log}");
        for secret in lock(&self.secrets).iter() {
            ensure!(!log.contains(secret), "a token is in the log");
        }
        let names = lock(&self.cluster_roles).clone();
        let Self {
            env, gateway, plan, ..
        } = self;
        gateway.operator.stop().await?;
        let (gone, client) = (DeleteParams::default(), env.client);
        let roles: Api<ClusterRole> = Api::all(client.clone());
        let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
        for name in names {
            bindings.delete(&name, &gone).await?;
            roles.delete(&name, &gone).await?;
        }
        let namespaces: Api<Namespace> = Api::all(client);
        namespaces.delete(&plan.home, &gone).await?;
        Ok(())
    }
}

fn lock(names: &Mutex<Vec<String>>) -> MutexGuard<'_, Vec<String>> {
    names.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn start(env: &Env, plan: &Plan, certificate: &str) -> Result<Gateway> {
    let operator = Operator::start(&env.client, &env.config, plan).await?;
    let address = address_in(&operator.log_text()?)?;
    Ok(Gateway {
        https: Https::new(address, certificate)?,
        operator,
    })
}

/// Returns the address that a gateway logs when it has started.
fn address_in(log: &str) -> Result<SocketAddr> {
    let (_, rest) = log
        .split_once(r#""gateway":""#)
        .with_context(|| format!("the gateway did not log its address: {log}"))?;
    let (address, _) = rest.split_once('"').context("half of a line")?;
    Ok(address.parse()?)
}

/// Writes a new certificate and its key, as the kubelet mounts them. Returns the certificate.
fn write_certificate(directory: &Path) -> Result<String> {
    let made = rcgen::generate_simple_self_signed([HOST.to_owned()])?;
    // The key first: a certificate without its key would be read as broken.
    fs::write(directory.join("tls.key"), made.signing_key.serialize_pem())?;
    fs::write(directory.join("tls.crt"), made.cert.pem())?;
    Ok(made.cert.pem())
}

/// Returns a token of a ServiceAccount for these audiences. Without one, it is for the API server.
pub(super) async fn token_of(
    client: &Client,
    namespace: &str,
    account: &str,
    audiences: &[&str],
) -> Result<String> {
    let request: TokenRequest = serde_json::from_value(json!({
        "metadata": {}, "spec": { "audiences": audiences, "expirationSeconds": 3600 },
    }))?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let made = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await?;
    Ok(made.status.context("no token")?.token)
}

/// Permissions to submit, change and read runs.
pub(super) fn editor() -> Value {
    rules(&[
        "get", "list", "watch", "create", "patch", "update", "delete",
    ])
}

/// Permissions to read runs, and all that belongs to them.
pub(super) fn viewer() -> Value {
    rules(&["get", "list", "watch"])
}

fn rules(verbs: &[&str]) -> Value {
    let read = ["get", "list", "watch"];
    json!([
        { "apiGroups": ["orchestrator.io"], "resources": ["taskruns", "docsruns"], "verbs": verbs },
        { "apiGroups": ["orchestrator.io"], "resources": ["agents"], "verbs": read },
        { "apiGroups": [""], "resources": ["pods", "pods/log", "events", "configmaps"], "verbs": read },
        { "apiGroups": ["batch"], "resources": ["jobs"], "verbs": read },
    ])
}

/// Returns the body that submits a task at the endpoint of the seed.
pub(super) fn task(id: i64) -> Value {
    json!({
        "id": id, "service_name": "shop", "agent_name": "writer",
        "markdown_files": [{ "filename": "task.md", "content": "Do it." }],
    })
}

/// Returns the body that adds context at the endpoint of the seed.
pub(super) fn context(version: i64) -> Value {
    json!({ "version": version, "additional_context": format!("more for {version}") })
}

/// Returns the address that adds context at the endpoint of the seed.
pub(super) fn context_of(id: i64) -> String {
    format!("{TASKS}/{id}/context")
}

/// Returns the body that submits a TaskRun.
pub(super) fn new_run(name: &str, agent: &str) -> Value {
    json!({
        "name": name, "taskId": 7, "serviceName": name, "agentName": agent,
        "files": [{ "filename": "task.md", "content": "Do it." }],
    })
}

/// Returns the names of a run's files, sorted.
pub(super) fn files_of(run: &TaskRun) -> Vec<&str> {
    let files = run.spec.markdown_files.iter();
    let mut names: Vec<&str> = files.map(|file| file.filename.as_str()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_read_from_the_log() {
        let log =
            r#"{"fields":{"message":"started","gateway":"127.0.0.1:4711","probes":"127.1.1.1:1"}}"#;
        assert_eq!(address_in(log).unwrap().port(), 4711);
        assert!(address_in("{}").is_err());
    }
}
