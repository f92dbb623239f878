//! Every reason of a condition, an Event or a result, in one list. Each has a meaning and the next
//! step for the user. The reason reference of the docs is generated from this list.

use std::fmt;

macro_rules! reasons {
    ($($(#[$docs:meta])* $name:ident: $meaning:literal, $advice:literal;)+) => {
        /// The reason for the state of an object. `Display` writes it in CamelCase, as in the
        /// condition.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $(#[doc = $meaning] $name,)+
        }

        impl Reason {
            /// All reasons, in the order of the docs.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the name in conditions and Events.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// Returns the meaning, in one or two sentences.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)+ }
            }

            /// Returns the next step for the user.
            #[must_use]
            pub fn advice(self) -> &'static str {
                match self { $(Self::$name => $advice,)+ }
            }
        }
    };
}

reasons! {
    // Normal progress.
    Progressing: "Work goes on; nothing is wrong.",
        "Wait. The message says what is waited for.";
    Succeeded: "The run ended well, and the evidence for it was read.",
        "Nothing.";
    Ready: "Everything that the object names exists and can be used.",
        "Nothing.";
    Created: "What the condition speaks of was created and is ours.",
        "Nothing.";
    Superseded: "A newer version of the context took the place of this one before it ended.",
        "Nothing. `status.history` has what was known of it.";
    Suspended: "The object is suspended by `spec.suspend`. A run: nothing is started, and no time counts. A Tenant: server and Redis are stopped, their data stays.",
        "Set `spec.suspend` to false when it should go on (a run: `orc resume`).";
    Deleting: "The object is being deleted; what it started is being stopped first. A Tenant: what its `deletion.policy` says is being done.",
        "Wait. The message says what is still there.";

    // Prerequisites of a run.
    AgentNotFound: "The Agent that the run names does not exist in its namespace.",
        "Create the Agent, or delete the run and submit it again with the right `agentName` (it cannot be changed).";
    AgentNotReady: "The Agent exists, but it says of itself that it cannot be used yet.",
        "Look at the Agent's `Ready` condition: it names what is missing.";
    DependencyNotReady: "Something that the object names does not exist or is not ready.",
        "Create what the message names.";
    ContextTooLarge: "The files of a run, the Agent's instructions included, are larger than 900 KiB together.",
        "Make them smaller, or let the agent fetch them itself.";
    ChildNameTaken: "An object of the name that we need exists and belongs to someone else. It was not touched.",
        "Delete the object that the message names, if nobody needs it; it goes on by itself within a minute. Otherwise submit a TaskRun with another `serviceName` or `taskId`, a DocsRun with another name, a Tenant with another `namespace`.";

    // Causes for a Pod that does not start: a Pod of an agent, or one of a Tenant.
    StartTimeout: "The agent's container did not start within `startTimeout`, or the operator could not query the Git server of a DocsRun in time.",
        "The message names the cause that was seen last. Fix it, then run it again (`orc retry`).";
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
    AdmissionDenied: "An admission rule of the cluster refuses it (Pod Security, a policy, a webhook).",
        "The message is the rule's. Change the spec that it is about, or ask who set the rule.";
    SecretNotFound: "A Secret or ConfigMap that an Agent, a DocsRun or a Tenant's server names does not exist, or lacks the key.",
        "Create it: beside the run, for a Tenant in its namespace. It goes on by itself within seconds.";
    VolumeNotReady: "A volume of the Pod cannot be provided.",
        "The message is the kubelet's or the provisioner's. Check an Agent's `workspace.storageClassName`, a Tenant's `redis.storage`.";

    // Steps of a DocsRun, and problems with its repository.
    Cloning: "The repository is being cloned at the commit that the run works on.",
        "Wait.";
    Publishing: "The agent ended well; what it wrote is being committed and pushed.",
        "Wait.";
    Verifying: "The push was reported; the operator reads the branch from the server itself.",
        "Wait. The message says what the server answered, if it is not what was expected.";
    RepositoryUnreachable: "The Git server does not answer: its name is not known, nothing listens, or it is too slow.",
        "The message says what was tried. Check the URL, the server, and NetworkPolicies of the operator and the namespace.";
    RepositoryNotFound: "The Git server says that there is no such repository. Some say so where they mean that the credentials are not enough.",
        "Check `repositoryUrl` (it cannot be changed: submit another DocsRun) and the credentials' rights.";
    AuthenticationFailed: "The Git server refuses the credentials, or asks for some and there are none.",
        "Correct the Secret that `credentialsSecretRef` names; it is tried again by itself until the deadline in the message.";
    CredentialsInvalid: "The Secret with the credentials lacks a key, or a key's content cannot be used.",
        "The message names the key. https takes `username` and `password`, ssh `identity` and `known_hosts`.";
    CertificateNotTrusted: "The Git server's certificate is not signed by an authority that is trusted here, or is not for this name.",
        "Put the authority's certificate into the Secret as `ca.crt`, or correct the server's.";
    HostKeyUnknown: "The Git server's host key is not the one in `known_hosts`.",
        "Compare the fingerprint in the message with the server's; if it is right, put the key into the Secret's `known_hosts`.";
    AddressNotAllowed: "The repository's address is one that Pods, Services or nodes of a cluster have, or plain http, and the operator's configuration does not allow it.",
        "Ask who runs the operator to add the server's network to `tasks.docs.allowedNetworks`.";
    BranchNotFound: "The repository has no branch of the name in `sourceBranch`.",
        "Check the name, and submit another DocsRun.";
    RepositoryTooLarge: "The repository needs more space than the operator's configuration allows (`tasks.docs.repositoryLimitMiB`).",
        "Ask who runs the operator for more, or use a smaller repository.";
    PathNotFound: "The commit has no folder of the name in `workingDirectory`.",
        "Check the name, and submit another DocsRun.";
    CloneFailed: "The repository cannot be cloned.",
        "The message is Git's.";
    NoChanges: "The agent changed nothing below `output.path`, and `output.requireChanges` asks for a change.",
        "Read the agent's log. If that is right, set `output.requireChanges` to false.";
    OutputTooLarge: "The agent wrote more files, or larger ones, below `output.path` than are taken over.",
        "The message names the limit. Let the agent write less.";
    PushRejected: "The Git server refused the push: a hook, a protected branch, or missing rights.",
        "The message has the server's words.";
    BranchMoved: "Someone else changed the output branch since the run began. It was not touched.",
        "Run it again (`orc retry`): it begins from the new head.";
    PublishFailed: "What the agent wrote cannot be committed or pushed.",
        "The message is Git's.";
    NotVerified: "The push was reported, but the server does not have the branch at that commit. That is not a success.",
        "Look at the branch: someone pushed right after it, or took it away, or the server lost it.";

    // Failures of a run.
    NonZeroExit: "The agent's program ended with an exit code other than 0.",
        "Read the agent's log; `status.result` has the code.";
    OOMKilled: "The agent's container used more memory than its limit, and a process of it was killed. The exit code may be 0: a shell returns the code of its last command.",
        "Raise `resources.limits.memory` of the Agent, or let it use less.";
    ExitContradicted: "A container exited with code 0, but the kubelet reports something that contradicts a success: a signal, a reason other than `Completed`, a restart, or a failed Pod.",
        "The message names it. Read the agent's log; if its work was done nevertheless, let the agent return the error of what it starts.";
    DeadlineExceeded: "The agent did not end within `timeout`, counted from its container's start.",
        "Raise `timeout` of the run or the Agent, or find out what the agent waited for.";
    ResultMissing: "The program ended well, but a result that the Agent requires is not in its termination message.",
        "Let the agent write it to /dev/termination-log, or make the result optional.";
    ResultInvalid: "The termination message is not a JSON object.",
        "Let the agent write one JSON object, and nothing else, to /dev/termination-log.";
    ResultTooLarge: "The termination message is longer than the kubelet keeps (4096 bytes, less in a Pod with more than three containers), so it was cut and proves nothing.",
        "Write large results elsewhere, and their address into the result.";
    EvidenceLost: "The Job says that it ended, but its Pod was gone before we could read how. That is not a success.",
        "Run it again (`orc retry`). Look for what deletes finished Pods.";
    Disrupted: "The Pod was terminated by another actor: evicted, preempted, drained, deleted, or its node was lost. What it returned is not a result.",
        "Nothing: it is started again by itself, and no attempt is used. If the message names a node that does not answer, bring it back; if its machine is off, delete the Node, or taint it with `node.kubernetes.io/out-of-service`.";
    JobLost: "The Job was deleted by another actor while it ran.",
        "Nothing: another one is started, and no attempt is used. Look for what deletes Jobs.";
    TooManyDisruptions: "The agent was terminated by another actor six times.",
        "Look for what stops it: evictions, preemption, a drain that does not end. Then run it again (`orc retry`).";
    Cancelled: "Someone set `spec.cancel`.",
        "Nothing. To run it after all, submit another one.";
    JobFailed: "The Job says that it failed, and no container says why.",
        "The message is the Job controller's.";

    // Causes for a Tenant that is not ready or not isolated.
    NamespaceTaken: "The namespace that the Tenant wants exists and belongs to someone else. It was not touched.",
        "Delete the namespace, let the Tenant take it with the annotation that the message names, or delete the Tenant and make it anew with another `spec.namespace`, which cannot be changed.";
    NotReady: "Not everything that is wanted is ready, and nobody says why.",
        "Look at the Pods that the message speaks of: `kubectl describe`, `kubectl logs`.";
    CrashLoop: "A program ends again and again.",
        "Read its log (`kubectl logs --previous`); the message has its exit code.";
    ProbeFailed: "A program runs, but does not answer as its probe asks.",
        "Check `server.probes` and `server.port`, or the program; the message has the kubelet's words.";
    PoliciesDisabled: "`networkPolicy.enabled` is false: nothing keeps others out.",
        "Set it to true, unless that is what you want.";
    UnmanagedPolicy: "There is a NetworkPolicy in the namespace that is not the Tenant's. Policies add up: it may open what the others close.",
        "Delete it, or say in `networkPolicy` what it is for.";
    PolicyNotEnforced: "A connection passed that the policies refuse, or was refused that they allow: the cluster does not enforce NetworkPolicies, or not as they are now.",
        "The message names the connection. Check the cluster's network plugin, and policies of other kinds.";
    DNSUnreachable: "Names are not resolved from where it is tried.",
        "The message says from where. Check the cluster's DNS, and that it is in the operator's `tenants.dnsNamespace`.";
    Isolated: "Everything that must be refused was refused, and everything that must pass passed.",
        "Nothing.";
    NothingToProbe: "There is nothing to try: neither this Tenant nor one of the next hundred has a server or a Redis that must not be reached.",
        "Nothing. It is tried within ten minutes after there is.";
    IsolationCheckPending: "The connections were not tried since the last change: it waits until the Tenant runs, for its turn, or for the Pods that try. The message says which.",
        "Wait; a Tenant that does not run says why in `Ready`.";
    ProbesDisabled: "`isolation.probe` is false: nobody tries.",
        "Set it to true to have the isolation proven.";
    IsolationCheckFailed: "The Pods that try the connections did not come to their end.",
        "The message says what kept them from it. It is tried again by itself.";

    // Responses of the API server.
    Denied: "The API server refuses us a request for lack of permission.",
        "The message names verb and resource. Compare the operator's RBAC with the chart's.";
    InvalidChild: "The API server does not accept a child that this object asks for.",
        "The message is the API server's and names the field. Change the spec.";
    ApiUnavailable: "The API server or something behind it does not answer, or not in time.",
        "Nothing, if it is short: we try again by ourselves. Otherwise look at the control plane.";
    NamespaceTerminating: "The namespace is being deleted, so nothing can be created in it.",
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
    /// Returns the reason of this name, or `None` if this release does not know it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|known| known.name() == name)
    }

    /// Returns whether an Event with this reason is a warning.
    #[must_use]
    pub fn is_warning(self) -> bool {
        !matches!(
            self,
            Self::Progressing
                | Self::Succeeded
                | Self::Ready
                | Self::Created
                | Self::Isolated
                | Self::NothingToProbe
                | Self::IsolationCheckPending
                | Self::ProbesDisabled
                | Self::Superseded
                | Self::Suspended
                | Self::Cancelled
                | Self::Deleting
                | Self::Cloning
                | Self::Publishing
                | Self::Verifying
                | Self::NamespaceTerminating
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_explains_itself() {
        for reason in Reason::ALL {
            assert!(reason.meaning().ends_with('.'), "{reason}");
            assert!(reason.advice().ends_with(['.', ')']), "{reason}");
            assert_eq!(Reason::from_name(reason.name()), Some(*reason));
        }
    }
}
