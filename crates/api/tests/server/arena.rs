//! A namespace with something to steal, people with exact rights in it, and the policies.

use std::time::Duration;

use anyhow::{Context, Result};
use api::{
    GROUP,
    rbac::{Permission, Scope},
};
use http::Method;
use k8s_openapi::{
    api::{
        admissionregistration::v1::MatchResources,
        core::v1::{ConfigMap, Namespace, Secret, ServiceAccount},
        rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{Api, Client, api::DeleteParams};
use serde_json::{Value, json};
use testkit::{suite::Env, wait::until};

use crate::{
    policies::{self, make, named},
    support::{Answer, Kind, create, install, send, send_as, taken},
};

/// Who asks. Each is a user of the API server, with these rights in the namespace and no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// Writes Agents and runs; may use the Agent 'free' only.
    Author,
    /// As the author, and may get Secrets and ConfigMaps.
    Reader,
    /// As the author, and may impersonate the ServiceAccount 'robot'.
    Borrower,
    /// As a GitOps controller: writes Agents and runs, uses all Agents, creates Pods.
    Deployer,
    /// Brings TaskRuns back from a backup, with their status; writes DocsRuns, too.
    Restorer,
    /// The same with the kinds exchanged.
    DocsRestorer,
    /// May change DocsRuns, and nothing else at all.
    Patcher,
    /// Only reads.
    Viewer,
    /// Of another tenant: may do all in his own namespace, and write runs in this one.
    Neighbour,
    /// Has exactly the rights that are generated for the operator.
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

    /// As the API server knows him.
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
            Self::Operator => api::rbac::tasks()
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

/// A request. None of them stores anything.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// A new object with this spec.
    Create(Kind, Value),
    /// A new object with this spec and these metadata besides its name.
    CreateWith(Kind, Value, Value),
    /// `kubectl patch --type merge`.
    Merge(Kind, &'static str, Value),
    /// The same of the status.
    MergeStatus(Kind, &'static str, Value),
    /// `kubectl apply --server-side --force-conflicts` of this spec.
    Apply(Kind, &'static str, Value),
    /// `kubectl replace` of what is stored, with these fields of its spec changed.
    Replace(Kind, &'static str, Value),
}

/// What was set up.
pub(crate) struct Arena<'a> {
    env: &'a Env,
    policies: Vec<String>,
}

impl<'a> Arena<'a> {
    /// Objects, people and their rights; no policies.
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

    /// The same with the policies, for this namespace only: other tests share the cluster.
    pub(crate) async fn with_policies(env: &'a Env) -> Result<Self> {
        let mut arena = Self::without_policies(env).await?;
        let scope = MatchResources {
            namespace_selector: Some(LabelSelector {
                match_labels: Some(
                    [(
                        "kubernetes.io/metadata.name".to_owned(),
                        env.namespace.clone(),
                    )]
                    .into(),
                ),
                match_expressions: None,
            }),
            ..MatchResources::default()
        };
        arena.policies = policies::bind(env, api::policy::tasks(), Some(&scope)).await?;
        Ok(arena)
    }

    /// Waits until the API server acts by each policy: until it refuses each of these.
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

    /// What the API server finds strange in the policies' expressions, by its own types.
    pub(crate) async fn warnings(&self) -> Result<Vec<String>> {
        policies::warnings(self.env, &self.policies).await
    }

    /// What the namespace's deletion leaves.
    pub(crate) async fn leave(self) -> Result<()> {
        policies::unbind(self.env, &self.policies).await?;
        let namespaces: Api<Namespace> = Api::all(self.env.client.clone());
        let quick = DeleteParams::background();
        namespaces.delete(&next_door(self.env), &quick).await?;
        Ok(())
    }

    /// One request of one user, without effect; unknown fields are refused.
    pub(crate) async fn ask(&self, who: Who, act: &Act) -> Result<Answer> {
        self.ask_with(who, act, "Strict").await
    }

    /// As [`Self::ask`], with this way of treating unknown fields.
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

/// The namespace of the other tenant.
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

/// A spec with these fields.
pub(crate) fn with(mut spec: Value, fields: &Value) -> Value {
    for (field, value) in fields.as_object().into_iter().flat_map(|map| map.iter()) {
        spec[field] = value.clone();
    }
    spec
}

/// What there is to steal or to change: all made by the administrator, before any policy.
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
