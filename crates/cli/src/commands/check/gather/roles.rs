//! Reads the roles of the operators and their bindings.

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, Role, RoleBinding, RoleRef, Subject,
};
use kube::{Api, api::ListParams};

use super::{OURS, list};
use crate::{
    commands::check::view::{Known, RoleBindingView, RoleView, Roles},
    session::Server,
};

/// Lists the roles and the bindings of the chart, in all namespaces.
pub(super) async fn roles(server: &Server) -> Known<Roles> {
    let ours = || ListParams::default().labels(OURS);
    let (cluster_roles, roles, cluster_bindings, bindings) = tokio::join!(
        list(
            Api::<ClusterRole>::all(server.client.clone()),
            ours(),
            "ClusterRole",
            "clusterroles.rbac.authorization.k8s.io",
        ),
        list(
            Api::<Role>::all(server.client.clone()),
            ours(),
            "Role",
            "roles.rbac.authorization.k8s.io",
        ),
        list(
            Api::<ClusterRoleBinding>::all(server.client.clone()),
            ours(),
            "ClusterRoleBinding",
            "clusterrolebindings.rbac.authorization.k8s.io",
        ),
        list(
            Api::<RoleBinding>::all(server.client.clone()),
            ours(),
            "RoleBinding",
            "rolebindings.rbac.authorization.k8s.io",
        ),
    );
    let of_cluster = cluster_roles?.into_iter().map(|role| RoleView {
        name: role.metadata.name.unwrap_or_default(),
        namespace: None,
        rules: role.rules.unwrap_or_default(),
    });
    let of_namespaces = roles?.into_iter().map(|role| RoleView {
        name: role.metadata.name.unwrap_or_default(),
        namespace: role.metadata.namespace,
        rules: role.rules.unwrap_or_default(),
    });
    let everywhere = cluster_bindings?.into_iter();
    let everywhere = everywhere.map(|one| binding(None, one.role_ref, one.subjects));
    let local = bindings?.into_iter();
    let local = local.map(|one| binding(one.metadata.namespace, one.role_ref, one.subjects));
    Ok(Roles {
        roles: of_cluster.chain(of_namespaces).collect(),
        bindings: everywhere.chain(local).collect(),
    })
}

fn binding(
    namespace: Option<String>,
    role: RoleRef,
    subjects: Option<Vec<Subject>>,
) -> RoleBindingView {
    let accounts = subjects.unwrap_or_default().into_iter();
    let accounts = accounts
        .filter(|subject| subject.kind == "ServiceAccount")
        .map(|subject| {
            let namespace = subject.namespace.unwrap_or_default();
            format!("{namespace}/{}", subject.name)
        });
    RoleBindingView {
        namespace,
        role: role.name,
        is_cluster_role: role.kind == "ClusterRole",
        accounts: accounts.collect(),
    }
}
