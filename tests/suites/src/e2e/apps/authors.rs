//! The policies about authors of ManagedApps: the status of a ManagedApp shows the application to its author.

use std::time::Duration;

use anyhow::{Result, ensure};
use api::{
    apps::{HELM_RELEASE, KUSTOMIZATION, ManagedApp},
    decide::ResourceType,
};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};
use testkit::{cluster::FLUX_NAMESPACE, suite::Env, wait::until};

use super::{
    super::policies::client_of,
    fixture::{Bench, LIMIT, RARELY, brief, managed_app},
    manifests::{BUSYBOX, deployment},
};

/// The API server acts by new policies and permissions a moment later.
const EFFECTIVE: Duration = Duration::from_secs(30);

/// An author of ManagedApps in the case's namespace.
struct Author {
    user: String,
    apps: Api<ManagedApp>,
}

impl Author {
    /// Creates the permission to write ManagedApps, and nothing else.
    async fn new(env: &Env) -> Result<Self> {
        let user = format!("author-{}", env.namespace);
        let rules = json!([{
            "apiGroups": ["orchestrator.io"], "resources": ["managedapps"], "verbs": ["create", "get", "patch"],
        }]);
        grant(env, &user, "author", rules).await?;
        let apps = Api::namespaced(client_of(env, &user)?, &env.namespace);
        Ok(Self { user, apps })
    }

    /// Waits until a policy rejects a ManagedApp with this text. Nothing is stored.
    async fn is_rejected(&self, object: Value, says: &str) -> Result<String> {
        let app: ManagedApp = serde_json::from_value(object)?;
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        until(&format!("the rejection '{says}'"), EFFECTIVE, async || {
            let created = self.apps.create(&params, &app).await;
            Ok(match created {
                Err(kube::Error::Api(status)) if is_by_policy(&status.message, says) => {
                    Ok(status.message.clone())
                }
                // Before the Role is effective, RBAC rejects it.
                Err(kube::Error::Api(status)) => Err(status.message.clone()),
                Err(error) => return Err(error.into()),
                Ok(_) => Err("accepted".to_owned()),
            })
        })
        .await
    }

    /// Waits until the author may create a ManagedApp. Nothing is stored.
    async fn is_accepted(&self, object: Value) -> Result<()> {
        let app: ManagedApp = serde_json::from_value(object)?;
        let params = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        until("the ManagedApp to be accepted", EFFECTIVE, async || {
            Ok(match self.apps.create(&params, &app).await {
                Ok(_) => Ok(()),
                Err(kube::Error::Api(status)) => Err(status.message.clone()),
                Err(error) => return Err(error.into()),
            })
        })
        .await
    }

    /// The text of the rejection for lack of permission on an object of Flux.
    fn lacks(&self, kind: &str, name: &str, namespace: &str) -> String {
        format!(
            "'{}' must be allowed to 'patch' the {kind} '{name}' in the namespace '{namespace}'",
            self.user
        )
    }
}

fn is_by_policy(message: &str, says: &str) -> bool {
    message.contains("ValidatingAdmissionPolicy") && message.contains(says)
}

/// Gives a user these permissions in the case's namespace.
async fn grant(env: &Env, user: &str, name: &str, rules: Value) -> Result<()> {
    let role = json!({ "metadata": { "name": name }, "rules": rules });
    env.create::<Role>(role).await?;
    let binding = json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user }],
    });
    env.create::<RoleBinding>(binding).await?;
    Ok(())
}

/// Permission to patch one object of Flux.
fn patches(resource: ResourceType, name: &str) -> Value {
    json!([{
        "apiGroups": [resource.group], "resources": [resource.plural],
        "resourceNames": [name], "verbs": ["patch"],
    }])
}

fn with(field: &str, reference: Value) -> Value {
    let mut app = managed_app("app", "app");
    app["spec"][field] = reference;
    app
}

pub(super) async fn without_permission(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let author = Author::new(env).await?;
    let says = author.lacks("Kustomization", "app", &env.namespace);
    let app = managed_app("app", "app");
    let message = author.is_rejected(app.clone(), &says).await?;
    // A Kustomization in a namespace without any permission of the author.
    let elsewhere = json!({ "name": "flux-system", "namespace": FLUX_NAMESPACE });
    let says = author.lacks("Kustomization", "flux-system", FLUX_NAMESPACE);
    author
        .is_rejected(with("kustomizationRef", elsewhere), &says)
        .await?;
    // Without a dry run, nothing is stored, and the audit log has the rejection.
    let audit = env.testbed("the audit log")?.audit();
    let mark = audit.mark(&env.client).await?;
    let created = author
        .apps
        .create(&PostParams::default(), &serde_json::from_value(app)?)
        .await;
    ensure!(created.is_err(), "accepted: {created:?}");
    let entries = audit.entries(&env.client, mark).await?;
    let codes: Vec<u16> = entries
        .iter()
        .filter(|entry| entry.request.user == author.user && entry.request.verb == "create")
        .map(|entry| entry.code)
        .collect();
    ensure!(codes == [403], "the API server answered {codes:?}");
    let stored = bench.apps().list(&ListParams::default()).await?.items;
    ensure!(stored.is_empty(), "{} ManagedApps exist", stored.len());
    Ok(message)
}

pub(super) async fn with_permission(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let web = [deployment("web", BUSYBOX, &[])];
    let source = bench.apply(("app", RARELY), &web).await?;
    let author = Author::new(env).await?;
    let rules = patches(KUSTOMIZATION, "app");
    grant(env, &author.user, "kustomization", rules).await?;
    // The policy acts: the permission is for one Kustomization only.
    let says = author.lacks("Kustomization", "other", &env.namespace);
    author
        .is_rejected(managed_app("app", "other"), &says)
        .await?;
    let helm = with("helmReleaseRef", json!({ "name": "shop" }));
    let says = author.lacks("HelmRelease", "shop", &env.namespace);
    author.is_rejected(helm.clone(), &says).await?;
    let rules = patches(HELM_RELEASE, "shop");
    grant(env, &author.user, "helm-release", rules).await?;
    author.is_accepted(helm).await?;

    let app = managed_app("app", "app");
    author.is_accepted(app.clone()).await?;
    let app: ManagedApp = serde_json::from_value(app)?;
    author.apps.create(&PostParams::default(), &app).await?;
    let status = bench.ready("app", &source.revision()?, LIMIT).await?;
    Ok(brief(&status))
}
