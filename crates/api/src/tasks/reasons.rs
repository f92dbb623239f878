//! The reasons of the tasks operator, beside the shared ones of [`crate::reason`].

use crate::reason::reasons;

reasons! {
    // A new version of the context, and the prerequisites of a run.
    #[normal] Superseded: "A newer version of the context took the place of this one before it ended.",
        "Nothing. `status.history` has what was known of it.";
    TaskTaken: "Another TaskRun of the namespace has the same `serviceName` and `taskId`, and came first. Nothing of this one was started.",
        "The message names the other run. To run its task again, raise its `contextVersion` (`orc context add`). To run both, submit one of them with another `taskId`. The run starts by itself when the other one is deleted, or ended and was cleaned up; it fails at the time in the message.";
    AgentNotFound: "The Agent that the run names does not exist in its namespace.",
        "Create the Agent, or delete the run and submit it again with the right `agentName` (it cannot be changed).";
    AgentNotReady: "The Agent exists, but it says of itself that it cannot be used yet.",
        "Look at the Agent's `Ready` condition: it names what is missing.";
    ContextTooLarge: "The files of a run, the Agent's instructions included, are larger than 900 KiB together.",
        "Make them smaller with a higher `contextVersion` (for a DocsRun: submit another), or let the agent fetch them itself.";
    StartTimeout: "The agent's container did not start within `startTimeout`, or the operator could not query the Git server of a DocsRun in time.",
        "The message names the cause that was seen last. Fix it, then run it again (`orc retry`).";

    // Steps of a DocsRun, and problems with its repository.
    #[normal] Cloning: "The repository is being cloned at the commit that the run works on.",
        "Wait.";
    #[normal] Publishing: "The agent ended well; what it wrote is being committed and pushed.",
        "Wait.";
    #[normal] Verifying: "The push was reported; the operator reads the branch from the server itself.",
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
    #[normal] Cancelled: "Someone set `spec.cancel`.",
        "Nothing. To run it after all, submit another one.";
    JobFailed: "The Job says that it failed, and no container says why.",
        "The message is the Job controller's.";
}
