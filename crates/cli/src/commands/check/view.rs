//! The state of an installation, as far as `check` judges it. No client in here.

use std::collections::BTreeMap;

use api::{Timestamp, kinds::KindRow};
use k8s_openapi::{
    api::{admissionregistration::v1::ValidatingAdmissionPolicySpec, rbac::v1::PolicyRule},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use why::{leader::Candidate, world::LeaseView};

/// A part of the state, or why it could not be read.
pub(super) type Known<T> = Result<T, String>;

/// The state of an installation.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) now: Timestamp,
    /// The version of this program.
    pub(super) version: String,
    /// The version of the API server, such as `v1.36.3`.
    pub(super) kubernetes: String,
    /// The namespace in which the permissions are checked.
    pub(super) namespace: String,
    /// The CRDs of all kinds. `None`: it does not exist.
    pub(super) crds: Vec<(
        &'static KindRow,
        Known<Option<Box<CustomResourceDefinition>>>,
    )>,
    pub(super) deployments: Known<Vec<DeploymentView>>,
    /// The Leases, by the name of the operator.
    pub(super) leases: BTreeMap<&'static str, Known<Vec<LeaseView>>>,
    /// The roles of the operators.
    pub(super) roles: Known<Roles>,
    pub(super) policies: Known<Vec<PolicyView>>,
    pub(super) bindings: Known<Vec<BindingView>>,
    pub(super) webhooks: Known<Vec<WebhookView>>,
    /// The permissions of the user, by the role that gives them.
    pub(super) permissions: Vec<(String, Known<Vec<Permission>>)>,
}

/// The Deployment of an operator.
#[derive(Debug, Clone)]
pub(super) struct DeploymentView {
    pub(super) name: String,
    pub(super) namespace: String,
    /// The operator, from the label `app.kubernetes.io/component`.
    pub(super) operator: String,
    /// The name of its ServiceAccount.
    pub(super) account: String,
    /// The version of the chart's application, from the label `app.kubernetes.io/version`.
    pub(super) version: String,
    pub(super) wanted: i32,
    pub(super) ready: i32,
    /// Whether the Deployment controller has observed the latest spec and updated all Pods.
    pub(super) is_rolled_out: bool,
    /// The Pods that are not ready, with the reason.
    pub(super) unready: Known<Vec<String>>,
    /// The Pods that can lead, or `None` if they could not be read.
    pub(super) pods: Option<Vec<Candidate>>,
}

/// A ValidatingAdmissionPolicy of the installation.
#[derive(Debug, Clone)]
pub(super) struct PolicyView {
    pub(super) name: String,
    pub(super) operator: String,
    pub(super) spec: Box<ValidatingAdmissionPolicySpec>,
}

/// A ValidatingAdmissionPolicyBinding.
#[derive(Debug, Clone)]
pub(super) struct BindingView {
    pub(super) policy: String,
    pub(super) denies: bool,
    pub(super) reach: Reach,
}

/// The requests to which a binding applies its policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reach {
    /// All requests that the policy matches.
    All,
    /// Those in these namespaces, as the chart binds a policy with `watchNamespaces`.
    Namespaces(Vec<String>),
    /// Some of them, by other selectors or by parameters.
    Part,
}

/// The roles of an installation, and the bindings that give them to ServiceAccounts.
#[derive(Debug, Clone)]
pub(super) struct Roles {
    pub(super) roles: Vec<RoleView>,
    pub(super) bindings: Vec<RoleBindingView>,
}

/// A Role or a ClusterRole.
#[derive(Debug, Clone)]
pub(super) struct RoleView {
    pub(super) name: String,
    /// The namespace of a Role. `None`: a ClusterRole.
    pub(super) namespace: Option<String>,
    pub(super) rules: Vec<PolicyRule>,
}

/// A RoleBinding or a ClusterRoleBinding.
#[derive(Debug, Clone)]
pub(super) struct RoleBindingView {
    /// The namespace of a RoleBinding. `None`: a ClusterRoleBinding.
    pub(super) namespace: Option<String>,
    pub(super) role: String,
    pub(super) is_cluster_role: bool,
    /// The ServiceAccounts among the subjects, as `namespace/name`.
    pub(super) accounts: Vec<String>,
}

/// A webhook that concerns objects of an installation and rejects them if it fails.
#[derive(Debug, Clone)]
pub(super) struct WebhookView {
    /// The name of the configuration and of the webhook in it.
    pub(super) name: String,
    pub(super) configuration: String,
    /// The resources of ours that it is called for.
    pub(super) resources: Vec<String>,
    pub(super) backend: Backend,
}

/// The server of a webhook.
#[derive(Debug, Clone)]
pub(super) enum Backend {
    /// A Service, by namespace and name, and its number of ready endpoints.
    Service(String, Known<Option<usize>>),
    /// A URL outside of the cluster, which cannot be checked from here.
    Url(String),
}

/// One permission of a role.
#[derive(Debug, Clone)]
pub(super) struct Permission {
    /// Such as `create taskruns.orchestrator.io`.
    pub(super) text: String,
    pub(super) is_allowed: bool,
}
