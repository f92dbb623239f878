//! The parts of a Pod that the Pod Security level `restricted` requires. All Pods of runs have them.

use k8s_openapi::api::core::v1::{
    Capabilities, PodSecurityContext, SeccompProfile, SecurityContext,
};

/// Builds the security context of a Pod whose processes and volumes belong to this user and its group.
#[must_use]
pub fn pod_security_context(user: i64) -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(user),
        run_as_group: Some(user),
        fs_group: Some(user),
        fs_group_change_policy: Some("OnRootMismatch".to_owned()),
        seccomp_profile: Some(SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            localhost_profile: None,
        }),
        ..PodSecurityContext::default()
    }
}

/// Builds the security context of a container with a user's image. It runs as the Pod's user, and its root filesystem
/// is writable.
#[must_use]
pub fn security_context() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".to_owned()]),
            add: None,
        }),
        run_as_non_root: Some(true),
        ..SecurityContext::default()
    }
}

/// Builds the security context of a container with an image of ours: it runs as this user, and its root filesystem is
/// read-only.
#[must_use]
pub fn own_security_context(user: i64) -> SecurityContext {
    SecurityContext {
        read_only_root_filesystem: Some(true),
        run_as_user: Some(user),
        run_as_group: Some(user),
        ..security_context()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without one of these fields, the API server rejects the Pod in a namespace that enforces `restricted`.
    #[test]
    fn the_contexts_have_all_fields_that_restricted_requires() {
        let pod = pod_security_context(1000);
        assert_eq!(pod.run_as_non_root, Some(true));
        assert_eq!((pod.run_as_user, pod.fs_group), (Some(1000), Some(1000)));
        let profile = pod.seccomp_profile.map(|profile| profile.type_);
        assert_eq!(profile.as_deref(), Some("RuntimeDefault"));
        for context in [security_context(), own_security_context(1000)] {
            assert_eq!(context.allow_privilege_escalation, Some(false));
            assert_eq!(context.run_as_non_root, Some(true));
            let drop = context.capabilities.and_then(|all| all.drop);
            assert_eq!(drop, Some(vec!["ALL".to_owned()]));
        }
        assert_eq!(security_context().run_as_user, None);
        let own = own_security_context(1000);
        assert_eq!(own.read_only_root_filesystem, Some(true));
    }
}
