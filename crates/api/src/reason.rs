//! Reasons of conditions, Events and results. Each has a meaning and the next step for the user.
//!
//! This module has the reasons that operators share. An operator declares its own reasons in its own
//! directory with the same macro, and lists them in its row of [`crate::kinds`]. The reason reference of
//! the docs is generated from all of them.

use std::fmt;

use crate::kinds;

/// The reason for the state of an object. `Display` writes it in CamelCase, as in the condition.
///
/// Each reason is a constant of this type, such as [`Reason::Progressing`], so a pattern can match it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reason(&'static Row);

/// The properties of a reason. Both derives are needed for patterns.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) meaning: &'static str,
    pub(crate) advice: &'static str,
    pub(crate) is_warning: bool,
}

/// Declares reasons, each with its meaning and its advice, as constants of [`Reason`] and as the list
/// `REASONS`. An Event with a reason is a warning, unless the reason has the mark `#[normal]`.
macro_rules! reasons {
    (@is_warning) => { true };
    (@is_warning normal) => { false };
    ($($(#[$mark:ident])? $name:ident: $meaning:literal, $advice:literal;)+) => {
        #[allow(non_upper_case_globals, reason = "a reason is written as in the condition")]
        impl $crate::Reason {
            $(
                #[doc = $meaning]
                pub const $name: Self = Self::of(&$crate::reason::Row {
                    name: stringify!($name),
                    meaning: $meaning,
                    advice: $advice,
                    is_warning: $crate::reason::reasons!(@is_warning $($mark)?),
                });
            )+
        }

        /// The reasons of this module, in the order of the docs.
        pub(crate) const REASONS: &[$crate::Reason] = &[$($crate::Reason::$name,)+];
    };
}
pub(crate) use reasons;

reasons! {
    // Normal progress.
    #[normal] Progressing: "Work goes on; nothing is wrong.",
        "Wait. The message says what is waited for.";
    #[normal] Succeeded: "The run ended well, and the evidence for it was read.",
        "Nothing.";
    #[normal] Ready: "Everything that the object names exists and can be used.",
        "Nothing.";
    #[normal] Created: "What the condition speaks of was created and is ours.",
        "Nothing.";
    #[normal] Suspended: "The object is suspended by `spec.suspend`. A run: nothing is started, and no time counts. A Tenant: server and Redis are stopped, their data stays.",
        "Set `spec.suspend` to false when it should go on (a run: `orc resume`).";
    #[normal] Deleting: "The object is being deleted; what it started is being stopped first. A Tenant: what its `deletion.policy` says is being done.",
        "Wait. The message says what is still there.";

    // Prerequisites.
    DependencyNotReady: "Something that the object names does not exist or is not ready.",
        "Create what the message names.";
    ChildNameTaken: "An object of the name that we need exists and belongs to someone else. It was not touched.",
        "Delete the object that the message names, if nobody needs it; it goes on by itself within a minute. Otherwise submit a TaskRun with another `serviceName` or `taskId`, a DocsRun with another name, a Tenant with another `namespace`.";

    // Causes for a Pod that does not start.
    ImagePullFailed: "The image cannot be pulled: it does not exist, or the registry refuses.",
        "Check the `image`; for an Agent its `imagePullSecrets`, too.";
    ImageNeedsRoot: "The image runs as root, or as a user with a name instead of a number. Nothing here runs as root.",
        "Make the image work with a user of a number other than 0: an Agent's `runAsUser`, for a Tenant 65532.";
    ContainerNotStartable: "The kubelet cannot create or start the container.",
        "The message is the kubelet's. Check the image; for an Agent its `command`, too.";
    Unschedulable: "No node can take the Pod.",
        "The message is the scheduler's. Check the `resources`, for an Agent its `nodeSelector` and `tolerations`, too; or add a node.";
    QuotaExceeded: "A ResourceQuota or LimitRange of the namespace does not allow it.",
        "Free some quota, ask for more, or lower the `resources` of what does not fit: an Agent's, or those of a Tenant's `server` or `redis`. A Tenant's own quota is its `spec.resources`.";
    AdmissionDenied: "An admission rule of the cluster refuses it (Pod Security, a policy, a webhook), or its webhook cannot be called.",
        "The message is the rule's. Change the spec that it is about, or ask who set the rule.";
    SecretNotFound: "A Secret or ConfigMap that an Agent, a DocsRun or a Tenant's server names does not exist, or lacks the key.",
        "Create it: beside the run, for a Tenant in its namespace. It goes on by itself within seconds.";
    VolumeNotReady: "A volume of the Pod cannot be provided.",
        "The message is the kubelet's or the provisioner's. Check an Agent's `workspace.storageClassName`, a Tenant's `redis.storage`.";

    // Responses of the API server.
    Denied: "The API server refuses us a request for lack of permission.",
        "The message names verb and resource. Compare the operator's RBAC with the chart's.";
    InvalidChild: "The API server does not accept a child that this object asks for.",
        "The message is the API server's and names the field. Change the spec.";
    ApiUnavailable: "The API server or something behind it does not answer, or not in time.",
        "Nothing, if it is short: we try again by ourselves. Otherwise look at the control plane.";
    #[normal] NamespaceTerminating: "The namespace is being deleted, so nothing can be created in it.",
        "Nothing: the object will be deleted with its namespace. A Tenant makes another one when it is gone.";

    // Blocked deletions and internal errors.
    DeletionBlocked: "Deletion waits for something longer than it should: ten minutes, for a Tenant its `deletion.deadline`.",
        "The message names it. To let the object go without waiting, set the annotation `orchestrator.io/force-delete: \"true\"`.";
    Undecodable: "The stored object does not fit the schema that this operator knows, so it is left alone.",
        "The message names the field. Correct or delete the object; it was probably stored through another version of the CRD.";
    InternalError: "A fault in Orchestrator: a panic, a broken rule of its own, or a step that did not end in time.",
        "Please report it with the message and the operator's log. It is tried again at long intervals.";
}

impl Reason {
    pub(crate) const fn of(row: &'static Row) -> Self {
        Self(row)
    }

    /// Returns all reasons, in the order of the docs: the shared ones, then those of each operator.
    pub fn all() -> impl Iterator<Item = Self> {
        let of_operators = kinds::OPERATORS
            .iter()
            .flat_map(|operator| operator.reasons);
        REASONS.iter().chain(of_operators).copied()
    }

    /// Returns the reason of this name, or `None` if this release does not know it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|known| known.name() == name)
    }

    /// Returns the name in conditions and Events.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Returns the meaning, in one or two sentences.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        self.0.meaning
    }

    /// Returns the next step for the user.
    #[must_use]
    pub fn advice(self) -> &'static str {
        self.0.advice
    }

    /// Returns whether an Event with this reason is a warning.
    #[must_use]
    pub fn is_warning(self) -> bool {
        self.0.is_warning
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_reason_explains_itself() {
        for reason in Reason::all() {
            assert!(reason.meaning().ends_with('.'), "{reason}");
            assert!(reason.advice().ends_with(['.', ')']), "{reason}");
            assert_eq!(Reason::from_name(reason.name()), Some(reason));
        }
    }

    /// Programs read the names, and `from_name` finds one reason only.
    #[test]
    fn operators_declare_reasons_of_different_names() {
        let names: BTreeSet<&str> = Reason::all().map(Reason::name).collect();
        assert_eq!(names.len(), Reason::all().count());
        assert!(names.contains("AgentNotFound") && names.contains("NamespaceTaken"));
    }

    #[test]
    fn a_mark_makes_an_event_normal() {
        for reason in [Reason::Progressing, Reason::Superseded, Reason::Isolated] {
            assert!(!reason.is_warning(), "{reason}");
        }
        for reason in [Reason::Denied, Reason::OOMKilled, Reason::CrashLoop] {
            assert!(reason.is_warning(), "{reason}");
        }
    }
}
