//! A namespace with objects to steal, users with exact permissions in it, and the policies.

use std::time::Duration;

use anyhow::{Context, Result};
use api::{
    GROUP,
    rbac::{Permission, Scope},
};
use http::Method;
use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, Secret, ServiceAccount},
    rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
};
use kube::{Api, Client, api::DeleteParams};
use serde_json::{Value, json};
use testkit::{suite::Env, wait::until};

use crate::{
    policies::{self, make, named},
    support::{Answer, Kind, create, install, send, send_as, taken},
};

/// The user of a request. Each is a user of the API server and has only the permissions below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// Writes Agents and runs. May use only the Agent 'free'.
    Author,
    /// Like the author, and may get Secrets and ConfigMaps.
    Reader,
    /// Like the author, and may impersonate the ServiceAccount 'robot'.
    Borrower,
    /// Like a GitOps controller: writes Agents and runs, uses all Agents, creates Pods.
    Deployer,
    /// Restores TaskRuns from a backup, with their status. Also writes DocsRuns.
    Restorer,
    /// Like the restorer, with the two kinds exchanged.
    DocsRestorer,
    /// May change DocsRuns, and nothing else.
    Patcher,
    /// May only read.
    Viewer,
    /// A user of another tenant: may do everything in their own namespace, and write runs in this
    /// one.
    Neighbour,
    /// Has exactly the permissions that are generated for the operator.
    Operator,
}

impl Who {
    const ALL: [Self; 10] = [
        Self::Author,
        Self::Reader,
        Self::Borrower,
        Self::Deployer,
        Self::Restorer,
        Self::DocsRestorer,
        Self::Patcher,
        Self::Viewer,
        Self::Neighbour,
        Self::Operator,
    ];

    /// Returns the user name that the API server authenticates.
    pub(crate) fn user(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    fn rules(self) -> Vec<PolicyRule> {
        let agents = || rule(GROUP, "agents", &["create", "get", "patch", "update"]);
        let runs = || PolicyRule {
            resources: Some(vec!["taskruns".to_owned(), "docsruns".to_owned()]),
            ..rule(GROUP, "", &["create", "get", "patch", "update"])
        };
        let uses_free = PolicyRule {
            resource_names: Some(vec!["free".to_owned()]),
            ..rule(GROUP, "agents", &["use"])
        };
        let mut author = vec![agents(), runs(), uses_free];
        match self {
            Self::Author => author,
            Self::Reader => {
                author.extend([
                    rule("", "secrets", &["get"]),
                    rule("", "configmaps", &["get"]),
                ]);
                author
            }
            Self::Borrower => {
                author.extend([
                    PolicyRule {
                        resource_names: Some(vec!["robot".to_owned()]),
                        ..rule("", "serviceaccounts", &["impersonate"])
                    },
                    PolicyRule {
                        resource_names: Some(vec!["lent".to_owned()]),
                        ..rule("", "secrets", &["get"])
                    },
                ]);
                author
            }
            Self::Deployer => vec![
                agents(),
                runs(),
                rule(GROUP, "agents", &["use"]),
                rule("", "pods", &["create"]),
            ],
            Self::Restorer => vec![
                runs(),
                rule(GROUP, "agents", &["use"]),
                rule(GROUP, "taskruns/status", &["patch"]),
            ],
            Self::DocsRestorer => vec![
                runs(),
                rule(GROUP, "agents", &["use"]),
                rule(GROUP, "docsruns/status", &["patch"]),
            ],
            Self::Patcher => vec![rule(GROUP, "docsruns", &["patch"])],
            Self::Viewer => vec![
                rule(GROUP, "agents", &["get", "list", "watch"]),
                rule(GROUP, "taskruns", &["get", "list", "watch"]),
                rule(GROUP, "docsruns", &["get", "list", "watch"]),
            ],
            Self::Neighbour => vec![runs()],
            Self::Operator => api::tasks::OPERATOR
                .permissions
                .iter()
                .filter(|permission| permission.scope == Scope::Watched)
                .map(
                    |Permission {
                         group,
                         resource,
                         verbs,
                         ..
                     }| rule(group, resource, verbs),
                )
                .collect(),
        }
    }
}

pub(crate) fn rule(group: &str, resource: &str, verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        non_resource_urls: None,
        resource_names: None,
    }
}

/// A request. No request stores anything.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Creates an object with this spec.
    Create(Kind, Value),
    /// Creates an object with this spec, and with this metadata in addition to its name.
    CreateWith(Kind, Value, Value),
    /// Sends `kubectl patch --type merge`.
    Merge(Kind, &'static str, Value),
    /// Sends the same for the status.
    MergeStatus(Kind, &'static str, Value),
    /// Sends `kubectl apply --server-side --force-conflicts` with this spec.
    Apply(Kind, &'static str, Value),
    /// Sends `kubectl replace` with the stored object and these changes of its spec.
    Replace(Kind, &'static str, Value),
}

/// A prepared namespace, with its users and policies.
pub(crate) struct Arena<'a> {
    env: &'a Env,
    policies: Vec<String>,
}

impl<'a> Arena<'a> {
    /// Creates the objects, the users and their permissions, without policies.
    pub(crate) async fn without_policies(env: &'a Env) -> Result<Self> {
        install(&env.client).await?;
        things(env).await?;
        for who in Who::ALL {
            grant(&env.client, &env.namespace, &who.user(), who.rules()).await?;
        }
        let next = next_door(env);
        make(
            &Api::all(env.client.clone()),
            &Namespace {
                metadata: named(&next),
                ..Namespace::default()
            },
        )
        .await?;
        let all = vec![
            rule(GROUP, "agents", &["create", "get", "update", "use"]),
            rule(GROUP, "taskruns", &["create", "get", "update"]),
            rule(GROUP, "docsruns", &["create", "get", "update"]),
            rule("", "pods", &["create"]),
            rule("", "secrets", &["get"]),
        ];
        grant(&env.client, &next, &Who::Neighbour.user(), all).await?;
        Ok(Self {
            env,
            policies: Vec::new(),
        })
    }

    /// Also creates the policies, only for this namespace, because other tests share the cluster.
    pub(crate) async fn with_policies(env: &'a Env) -> Result<Self> {
        let mut arena = Self::without_policies(env).await?;
        let scope = policies::only_in(&env.namespace);
        arena.policies = policies::bind(env, api::policy::tasks(), Some(&scope)).await?;
        Ok(arena)
    }

    /// Waits until the API server enforces each policy, that is, until it rejects each of these
    /// requests.
    pub(crate) async fn until_refused(&self, probes: &[(Who, Act)]) -> Result<()> {
        for (who, act) in probes {
            until("a policy to act", Duration::from_secs(30), async || {
                Ok(match self.ask(*who, act).await? {
                    Ok(_) => Err(format!("{who:?} may still {act:?}")),
                    Err(_) => Ok(()),
                })
            })
            .await?;
        }
        Ok(())
    }

    /// Returns the warnings of the API server's type check of the policies' expressions.
    pub(crate) async fn warnings(&self) -> Result<Vec<String>> {
        policies::warnings(self.env, &self.policies).await
    }

    /// Deletes the objects that the deletion of the namespace does not delete.
    pub(crate) async fn leave(self) -> Result<()> {
        policies::unbind(self.env, &self.policies).await?;
        let namespaces: Api<Namespace> = Api::all(self.env.client.clone());
        let quick = DeleteParams::background();
        namespaces.delete(&next_door(self.env), &quick).await?;
        Ok(())
    }

    /// Sends a request of a user as a dry run. Unknown fields are rejected.
    pub(crate) async fn ask(&self, who: Who, act: &Act) -> Result<Answer> {
        self.ask_with(who, act, "Strict").await
    }

    /// Like [`Self::ask`], with this validation of unknown fields.
    pub(crate) async fn ask_with(&self, who: Who, act: &Act, fields: &str) -> Result<Answer> {
        let client = self.client(who)?;
        let namespace = &self.env.namespace;
        let query = format!("dryRun=All&fieldValidation={fields}");
        let at = |kind: Kind, name: &str| kind.path(namespace, &format!("/{name}"));
        let merge = "application/merge-patch+json";
        match act {
            Act::Create(kind, spec) => {
                let object = kind.object("tried", spec);
                let path = kind.path(namespace, "");
                send(&client, Method::POST, &path, &query, Some(&object)).await
            }
            Act::CreateWith(kind, spec, metadata) => {
                let mut object = kind.object("tried", spec);
                object["metadata"] = metadata.clone();
                object["metadata"]["name"] = json!("tried");
                let path = kind.path(namespace, "");
                send(&client, Method::POST, &path, &query, Some(&object)).await
            }
            Act::Merge(kind, name, patch) => {
                let path = at(*kind, name);
                send_as(&client, Method::PATCH, merge, &path, &query, Some(patch)).await
            }
            Act::MergeStatus(kind, name, patch) => {
                let path = format!("{}/status", at(*kind, name));
                send_as(&client, Method::PATCH, merge, &path, &query, Some(patch)).await
            }
            Act::Apply(kind, name, spec) => {
                let query = format!("{query}&fieldManager=test&force=true");
                let object = kind.object(name, spec);
                send(
                    &client,
                    Method::PATCH,
                    &at(*kind, name),
                    &query,
                    Some(&object),
                )
                .await
            }
            Act::Replace(kind, name, changes) => {
                let path = at(*kind, name);
                let stored = send(&self.env.client, Method::GET, &path, "", None).await?;
                let mut object = taken(stored)?;
                let changes = changes.as_object().context("no changes")?;
                for (field, value) in changes {
                    object["spec"][field] = value.clone();
                }
                send(&client, Method::PUT, &path, &query, Some(&object)).await
            }
        }
    }

    fn client(&self, who: Who) -> Result<Client> {
        policies::client_of(self.env, &who.user())
    }
}

/// Returns the namespace of the other tenant.
fn next_door(env: &Env) -> String {
    format!("{}-next", env.namespace)
}

async fn grant(client: &Client, namespace: &str, user: &str, rules: Vec<PolicyRule>) -> Result<()> {
    let role = Role {
        metadata: named(user),
        rules: Some(rules),
    };
    make(&Api::namespaced(client.clone(), namespace), &role).await?;
    let group = "rbac.authorization.k8s.io";
    let binding = RoleBinding {
        metadata: named(user),
        role_ref: RoleRef {
            api_group: group.to_owned(),
            kind: "Role".to_owned(),
            name: user.to_owned(),
        },
        subjects: Some(vec![Subject {
            api_group: Some(group.to_owned()),
            kind: "User".to_owned(),
            name: user.to_owned(),
            namespace: None,
        }]),
    };
    make(&Api::namespaced(client.clone(), namespace), &binding).await
}

/// Returns a spec with these fields.
pub(crate) fn with(mut spec: Value, fields: &Value) -> Value {
    for (field, value) in fields.as_object().into_iter().flat_map(|map| map.iter()) {
        spec[field] = value.clone();
    }
    spec
}

/// Creates the objects to steal or to change, as the administrator and before any policy.
async fn things(env: &Env) -> Result<()> {
    make(
        &env.api(),
        &Secret {
            metadata: named("vault"),
            ..Secret::default()
        },
    )
    .await?;
    make(
        &env.api(),
        &ConfigMap {
            metadata: named("settings"),
            ..ConfigMap::default()
        },
    )
    .await?;
    make(
        &env.api(),
        &ServiceAccount {
            metadata: named("robot"),
            ..ServiceAccount::default()
        },
    )
    .await?;
    let agent = |more: Value| with(Kind::Agent.least(), &more);
    let holder = agent(json!({
        "serviceAccountName": "robot",
        "envFrom": [{ "secretRef": { "name": "vault" } }],
    }));
    for (name, spec) in [
        ("plain", agent(json!({}))),
        ("free", agent(json!({}))),
        ("holder", holder),
    ] {
        taken(create(env, Kind::Agent, &Kind::Agent.object(name, &spec)).await?)?;
    }
    let ended = json!({ "version": 1, "outcome": "Failed", "reason": "NonZeroExit", "uid": "u" });
    for (name, agent, suspend, annotations) in [
        ("on-holder", "holder", false, json!({})),
        ("on-free", "free", false, json!({})),
        ("held", "holder", true, json!({})),
        (
            "ended",
            "holder",
            false,
            json!({ api::names::OUTCOME: ended.to_string() }),
        ),
    ] {
        let mut spec = Kind::TaskRun.least();
        spec["agentName"] = json!(agent);
        spec["suspend"] = json!(suspend);
        let mut object = Kind::TaskRun.object(name, &spec);
        object["metadata"]["annotations"] = annotations;
        taken(create(env, Kind::TaskRun, &object).await?)?;
    }
    let vault = json!({ "name": "vault" });
    for (name, spec, annotations) in [
        (
            "on-holder",
            json!({ "agentName": "holder", "timeout": "1h" }),
            json!({}),
        ),
        ("on-free", json!({ "agentName": "free" }), json!({})),
        (
            "held",
            json!({ "agentName": "holder", "suspend": true }),
            json!({}),
        ),
        (
            "with-secret",
            json!({ "agentName": "free", "credentialsSecretRef": vault }),
            json!({}),
        ),
        (
            "held-with-secret",
            json!({ "agentName": "free", "credentialsSecretRef": vault, "suspend": true }),
            json!({}),
        ),
        (
            "ended",
            json!({ "agentName": "free" }),
            json!({ api::names::OUTCOME: ended.to_string() }),
        ),
    ] {
        let mut object = Kind::DocsRun.object(name, &with(Kind::DocsRun.least(), &spec));
        object["metadata"]["annotations"] = annotations;
        taken(create(env, Kind::DocsRun, &object).await?)?;
    }
    Ok(())
}
