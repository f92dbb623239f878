//! All mutants. Each has an edit in `tests/mutants/edits`, at the place of the bug. Some need a second edit, because
//! the engine would reject the first bug.

use super::About;

macro_rules! mutants {
    ($($name:ident { id: $id:literal, class: $class:literal, words: $words:literal, seen_by: $seen_by:literal $(,)? })*) => {
        /// A bug.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Mutant {
            $(#[doc = $words] $name,)*
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// What is known of it.
            #[must_use]
            pub const fn about(self) -> About {
                match self {
                    $(Self::$name => About { id: $id, class: $class, words: $words, seen_by: $seen_by },)*
                }
            }
        }
    };
}

mutants! {
    TakenNameSuffixed {
        id: "taken-name-suffixed",
        class: "double create from a stale cache",
        words: "A create that is answered with 409 is repeated under another name.",
        seen_by: "success, create-jobs=409; success, create-jobs=lost-504 with watch-jobs=stale-2000",
    }
    AbsenceFromCache {
        id: "absence-from-cache",
        class: "double create from a stale cache",
        words: "An object that the cache lacks counts as deleted, without a live read.",
        seen_by: "replicas, watch-jobs=silent-15000; handover, watch-namespaces=silent-15000",
    }
    LostAnswerRepeated {
        id: "lost-answer-repeated",
        class: "duplicate after a lost answer",
        words: "A create without an answer is repeated under a generated name.",
        seen_by: "success, create-jobs=lost-reset; success, create-jobs=lost-504",
    }
    PartialWriteBelieved {
        id: "partial-write-believed",
        class: "partial multi-write",
        words: "A ConfigMap that is there is taken for the Job that comes after it.",
        seen_by: "success, create-jobs=500; success, create-configmaps=kill-after",
    }
    StatusFirst {
        id: "status-first",
        class: "partial multi-write",
        words: "The status names a Job before it is created.",
        seen_by: "success, create-jobs=kill-before",
    }
    EvidenceAfterStop {
        id: "evidence-after-stop",
        class: "partial multi-write",
        words: "A Pod is stopped in the pass that gives its attempt up, before the evidence is stored.",
        seen_by: "cancel, patch-pods=kill-after",
    }
    StopDeletesLog {
        id: "stop-deletes-log",
        class: "evidence destroyed",
        words: "An attempt is stopped by the deletion of its Job, which deletes its Pod and its log.",
        seen_by: "cancel; e2e tasks: deadline; e2e tasks: cancel-during",
    }
    IntentUnstored {
        id: "intent-unstored",
        class: "partial multi-write",
        words: "A DocsRun's Job is created before the status announces its push.",
        seen_by: "docs, create-jobs=kill-after; e2e docs: kill-job",
    }
    ForeignChildAdopted {
        id: "foreign-child-adopted",
        class: "name reused with a new UID",
        words: "An object that has a child's name is taken for ours, whoever owns it.",
        seen_by: "e2e tasks: name-taken",
    }
    WakeForgotten {
        id: "wake-forgotten",
        class: "dependence on an edge",
        words: "The time at which a decision wants to be asked again is forgotten.",
        seen_by: "retry",
    }
    StartUnseen {
        id: "start-unseen",
        class: "dependence on an edge",
        words: "Objects that exist at the start are reconciled only after a change.",
        seen_by: "backoff; success, patch-taskruns.status=kill-relayed; restart",
    }
    StandbyForgets {
        id: "standby-forgets",
        class: "dependence on an edge",
        words: "A process that takes over reconciles only the objects that change afterwards.",
        seen_by: "replicas; replicas, patch-taskruns.status=kill-before",
    }
    AgentUnheard {
        id: "agent-unheard",
        class: "dependence on an edge",
        words: "A change of an Agent does not reconcile its runs.",
        seen_by: "agent; e2e tasks: agent-missing",
    }
    ReferenceUnheard {
        id: "reference-unheard",
        class: "dependence on an edge",
        words: "An Agent is not reconciled when an object that it names is created or deleted.",
        seen_by: "agent; e2e tasks: agent-not-ready",
    }
    FinalizerKept {
        id: "finalizer-kept",
        class: "finalizer leak",
        words: "The finalizer stays on a run that has ended.",
        seen_by: "success; e2e tasks: delete-finished",
    }
    ReleaseFaultSwallowed {
        id: "release-fault-swallowed",
        class: "finalizer leak",
        words: "The error of a removal of a finalizer is ignored.",
        seen_by: "retry, patch-taskruns#2=500x5",
    }
    PodsOrphaned {
        id: "pods-orphaned",
        class: "finalizer leak",
        words: "A Job is deleted without its Pods, and the run waits for them.",
        seen_by: "delete",
    }
    FinalizerEarly {
        id: "finalizer-early",
        class: "finalizer too early",
        words: "The finalizer of a deleted run is removed when the deletion of its Jobs was requested, before they are gone.",
        seen_by: "delete; e2e tasks: delete-running",
    }
    ConflictSwallowed {
        id: "conflict-swallowed",
        class: "status conflict lost",
        words: "A status that is refused with 409 counts as recorded.",
        seen_by: "agent, patch-agents.status=409",
    }
    GenerationAcknowledged {
        id: "generation-acknowledged",
        class: "observedGeneration lies",
        words: "A new generation is acknowledged before a decision was made about it.",
        seen_by: "suspend; supersede; agent",
    }
    OldReadinessBelieved {
        id: "old-readiness-believed",
        class: "observedGeneration lies",
        words: "An Agent's readiness counts although it is that of an older spec.",
        seen_by: "old-readiness, patch-agents.status#2=500x3",
    }
    FaultAfterEnd {
        id: "fault-after-end",
        class: "terminal regresses",
        words: "A fault is recorded on a run that has ended.",
        seen_by: "retry, patch-taskruns#2=403",
    }
    LeaseLossIgnored {
        id: "lease-loss-ignored",
        class: "write after lease loss",
        words: "A pass goes on writing when the Lease is lost.",
        seen_by: "freeze",
    }
    ForeignClockBelieved {
        id: "foreign-clock-believed",
        class: "clock skew",
        words: "A stored retry is waited for, however far ahead the clock of whoever stored it was.",
        seen_by: "backoff",
    }
    RelistAddsOnly {
        id: "relist-adds-only",
        class: "410 mishandled",
        words: "A second listing does not remove deleted objects from the cache.",
        seen_by: "delete, watch-jobs=missed-deletion; delete, watch-pods=missed-deletion",
    }
    WatchErrorSilent {
        id: "watch-error-silent",
        class: "410 mishandled",
        words: "A watch that ends with an error is not opened again.",
        seen_by: "success, watch-jobs=gone-1",
    }
    BackoffUnstored {
        id: "backoff-unstored",
        class: "restart herd",
        words: "How long an object has to wait after a fault is not stored.",
        seen_by: "backoff",
    }
    RetryWaitForgotten {
        id: "retry-wait-forgotten",
        class: "restart herd",
        words: "The next attempt does not wait for its time.",
        seen_by: "retry",
    }
    NameCut {
        id: "name-cut",
        class: "63-character collision",
        words: "A Job's name is the raw one, cut.",
        seen_by: "e2e tasks: names",
    }
    SizeUnchecked {
        id: "size-unchecked",
        class: "ConfigMap over 1 MiB",
        words: "The size of the files has no limit.",
        seen_by: "e2e tasks: too-large",
    }
    CrossNamespaceOwner {
        id: "cross-namespace-owner",
        class: "cross-namespace owner",
        words: "Children are made in the namespace 'default'.",
        seen_by: "success",
    }
    HotLoop {
        id: "hot-loop",
        class: "hot loop",
        words: "Every pass writes the status, if only its time.",
        seen_by: "success; e2e docs: quiet",
    }
    EventRenamed {
        id: "event-renamed",
        class: "Event spam",
        words: "An Event's name has the time in it.",
        seen_by: "success, create-events=kill-after; success, create-events=lost-reset",
    }
    EventAwaited {
        id: "event-awaited",
        class: "namespace terminating",
        words: "Nothing is recorded before its Event was sent.",
        seen_by: "success, create-events=403x1000; e2e tasks: delete-ns",
    }
    QuotaUnsaid {
        id: "quota-unsaid",
        class: "quota",
        words: "The Events of rejected Pods are not read.",
        seen_by: "e2e tasks: quota; e2e tasks: pod-security",
    }
    UnschedulableUnsaid {
        id: "unschedulable-unsaid",
        class: "PVC pending",
        words: "Why a Pod has no node is not read.",
        seen_by: "e2e tasks: no-node",
    }
    EvictionCounted {
        id: "eviction-counted",
        class: "eviction",
        words: "An eviction uses an attempt.",
        seen_by: "e2e tasks: evicted",
    }
    ContentsKept {
        id: "contents-kept",
        class: "unbounded memory",
        words: "The files of all runs stay in memory.",
        seen_by: "e2e attacks: large-files",
    }
    PlantedFilesBelieved {
        id: "planted-files-believed",
        class: "false success",
        words: "A ConfigMap or Job that carries our labels is ours, whatever is in it.",
        seen_by: "e2e attacks: planted-files",
    }
    OwnerNamespaceIgnored {
        id: "owner-namespace-ignored",
        class: "cross-namespace owner",
        words: "Objects of any namespace belong to the object whose UID they name.",
        seen_by: "e2e attacks: other-namespace",
    }
    BackoffDeaf {
        id: "backoff-deaf",
        class: "drift",
        words: "A Tenant of which something was refused is not repaired until the next retry.",
        seen_by: "e2e attacks: deaf-backoff",
    }
    FinalizerNotRestored {
        id: "finalizer-not-restored",
        class: "finalizer leak",
        words: "A finalizer that someone removed is not put back.",
        seen_by: "e2e attacks: stripped-finalizer",
    }
    OomExitZeroSucceeds {
        id: "oom-exit-zero-succeeds",
        class: "false success",
        words: "Exit code 0 is a success, although the kubelet reports a kill for memory.",
        seen_by: "e2e attacks: oom-exit-zero",
    }
    StoppedIsSuccess {
        id: "stopped-is-success",
        class: "eviction",
        words: "The exit code of a Pod after its termination was requested counts as its result.",
        seen_by: "e2e tasks: pod-deleted",
    }
    StoppingUnsaid {
        id: "stopping-unsaid",
        class: "node loss",
        words: "A Pod that does not terminate is reported as running.",
        seen_by: "e2e tasks: node-lost",
    }
    PullUnsaid {
        id: "pull-unsaid",
        class: "image pull failure",
        words: "That an image cannot be pulled is not read.",
        seen_by: "e2e tasks: unknown-image",
    }
    JobLossUnseen {
        id: "job-loss-unseen",
        class: "child deleted",
        words: "A Job that is gone is waited for.",
        seen_by: "e2e tasks: job-deleted",
    }
    JobLossIsSuccess {
        id: "job-loss-is-success",
        class: "TTL deletes the Job before its result is read",
        words: "A Job that is gone has succeeded.",
        seen_by: "e2e tasks: job-deleted",
    }
    CompleteIsEnough {
        id: "complete-is-enough",
        class: "TTL deletes the Job before its result is read",
        words: "A complete Job is a success, whatever became of its Pod.",
        seen_by: "e2e tasks: evidence-lost",
    }
    RetryAtOnce {
        id: "retry-at-once",
        class: "429 starvation",
        words: "A failed request is repeated without a delay.",
        seen_by: "backoff",
    }
    DenialUnshown {
        id: "denial-unshown",
        class: "RBAC revoked",
        words: "A missing permission is not reported in the status.",
        seen_by: "e2e tasks: job-refused",
    }
    FirstErrorUnshown {
        id: "first-error-unshown",
        class: "RBAC revoked",
        words: "An error that a retry may fix is not shown before it has lasted for 48 seconds.",
        seen_by: "e2e tasks: webhook-down",
    }
    WaitWithoutDeadline {
        id: "wait-without-deadline",
        class: "quota",
        words: "A run waits indefinitely for a child that the API server rejects.",
        seen_by: "e2e tasks: name-kept",
    }
    PanicOnOddResult {
        id: "panic-on-odd-result",
        class: "poison object",
        words: "A result that is no JSON object is a panic.",
        seen_by: "e2e tasks: result-invalid",
    }
    OutcomeUnwritten {
        id: "outcome-unwritten",
        class: "restore of objects without status",
        words: "How a run ended is not left on it.",
        seen_by: "e2e tasks: restored",
    }
    OutcomeIgnored {
        id: "outcome-ignored",
        class: "restore of objects without status",
        words: "How a run ended before it was restored is not read.",
        seen_by: "e2e tasks: restored",
    }
    InsideAllowed {
        id: "inside-allowed",
        class: "Git URL that is an option or points inside",
        words: "Repositories may be at any address, by any protocol.",
        seen_by: "e2e docs: addresses",
    }
    RawLabel {
        id: "raw-label",
        class: "label and template injection",
        words: "A service's name is a label as it is.",
        seen_by: "e2e tasks: names",
    }
    BodyLogged {
        id: "body-logged",
        class: "secret leakage",
        words: "Created objects are logged with their content.",
        seen_by: "success",
    }
    TokenMounted {
        id: "token-mounted",
        class: "escalation through the pod template",
        words: "Every agent gets its ServiceAccount's token.",
        seen_by: "e2e tasks: contract",
    }
    ExitCodeIgnored {
        id: "exit-code-ignored",
        class: "false success",
        words: "A program that ended has succeeded, whatever its exit code.",
        seen_by: "retry",
    }
    OldResultCounts {
        id: "old-result-counts",
        class: "false success",
        words: "The Job of the old version counts for the new one.",
        seen_by: "revise",
    }
    PushUnconfirmed {
        id: "push-unconfirmed",
        class: "false success",
        words: "A reported push is not verified on the server.",
        seen_by: "docs-lost",
    }
    ReadyForEver {
        id: "ready-for-ever",
        class: "false success",
        words: "A ready Agent is not reconciled again.",
        seen_by: "agent",
    }
    SuspendUnenforced {
        id: "suspend-unenforced",
        class: "an order lost",
        words: "A run is reported as suspended, and its Pod runs on.",
        seen_by: "suspend; e2e tasks: suspend-during",
    }
    ResumeStartsAnother {
        id: "resume-starts-another",
        class: "an order lost",
        words: "A run that is resumed gets another Job, by another attempt.",
        seen_by: "suspend",
    }
    CancelUnheard {
        id: "cancel-unheard",
        class: "an order lost",
        words: "A run that is cancelled before its start is started.",
        seen_by: "e2e tasks: cancel-first",
    }
    TenantReadyUnseen {
        id: "tenant-ready-unseen",
        class: "false success",
        words: "A Tenant's Redis or server that is there counts as ready.",
        seen_by: "rollout; full",
    }
    IsolationAssumed {
        id: "isolation-assumed",
        class: "false success",
        words: "A Tenant with policies is reported as isolated before a probe has run.",
        seen_by: "isolated",
    }
    ProofOutlived {
        id: "proof-outlived",
        class: "false success",
        words: "A proof of isolation from before a foreign policy counts again after the deletion of that policy.",
        seen_by: "reopened",
    }
    NamespaceUnoffered {
        id: "namespace-unoffered",
        class: "name reused with a new UID",
        words: "A namespace that is someone else's is taken without having been offered.",
        seen_by: "foreign; e2e tenants: foreign",
    }
    NamespaceByName {
        id: "namespace-by-name",
        class: "name reused with a new UID",
        words: "A namespace of an earlier Tenant of the same name is taken for this one's.",
        seen_by: "foreign; e2e tenants: foreign",
    }
    TenantReleasedEarly {
        id: "tenant-released-early",
        class: "finalizer too early",
        words: "The finalizer of a deleted Tenant is removed when the deletion of its namespace was requested, before it is gone.",
        seen_by: "removal; blocked; e2e tenants: delete",
    }
    NamespaceUnannounced {
        id: "namespace-unannounced",
        class: "partial multi-write",
        words: "A namespace is deleted before the status announces it.",
        seen_by: "removal",
    }
    NamespaceUnheard {
        id: "namespace-unheard",
        class: "dependence on an edge",
        words: "A Tenant is not reconciled when its namespace changes or is deleted.",
        seen_by: "foreign; removal",
    }
    RetainedIsDeleted {
        id: "retained-is-deleted",
        class: "an order lost",
        words: "A namespace that is to be retained is deleted.",
        seen_by: "retained; e2e tenants: retained",
    }
    RuleUnpruned {
        id: "rule-unpruned",
        class: "an order lost",
        words: "A rule that is removed keeps its policy.",
        seen_by: "change; e2e tenants: changes",
    }
    PauseUnenforced {
        id: "pause-unenforced",
        class: "an order lost",
        words: "A Tenant is reported as suspended, and its Redis runs on.",
        seen_by: "pause; e2e tenants: suspended",
    }
    DriftUnrepaired {
        id: "drift-unrepaired",
        class: "drift",
        words: "A child that another actor changed is not restored until the wanted state changes.",
        seen_by: "drift; e2e tenants: edits",
    }
    NobodyIsEverybody {
        id: "nobody-is-everybody",
        class: "isolation lost",
        words: "No allowed namespace means all of them.",
        seen_by: "full; e2e tenants: isolated",
    }
    SecretRenewed {
        id: "secret-renewed",
        class: "hot loop",
        words: "The password of a Redis is recreated in each reconciliation.",
        seen_by: "rollout; full",
    }
    PvcsFoundAtZero {
        id: "pvcs-found-at-zero",
        class: "evidence destroyed",
        words: "The volumes of an application are discovered again when its workloads are at zero.",
        seen_by: "upgrade; rollback",
    }
    ReadyTrusted {
        id: "ready-trusted",
        class: "false success",
        words: "The condition Ready of Flux counts as the evidence of an upgrade.",
        seen_by: "upgrade; rollback",
    }
    ZeroOfZeroHealthy {
        id: "zero-of-zero-healthy",
        class: "an order lost",
        words: "A workload at zero is healthy, and its replica count is not restored.",
        seen_by: "e2e apps: no-replicas",
    }
    StableForIgnored {
        id: "stable-for-ignored",
        class: "false success",
        words: "An application that is healthy for a moment is healthy for long enough.",
        seen_by: "upgrade; rollback",
    }
    NoEffectIgnored {
        id: "no-effect-ignored",
        class: "an order lost",
        words: "A commit that Flux applied without a change of the version is waited for.",
        seen_by: "e2e apps: no-effect",
    }
    SuspendWithoutToken {
        id: "suspend-without-token",
        class: "an order lost",
        words: "A suspension counts before the controller of Flux has confirmed it.",
        seen_by: "upgrade; upgrade-fails",
    }
    HelmReleaseUnlocked {
        id: "helm-release-unlocked",
        class: "an order lost",
        words: "Only the Kustomization is suspended, and not its HelmRelease.",
        seen_by: "upgrade; rollback",
    }
    ResumedBeforeVersion {
        id: "resumed-before-version",
        class: "an order lost",
        words: "The HelmRelease is resumed before its spec has the new version.",
        seen_by: "upgrade; rollback",
    }
    CountsNotRestored {
        id: "counts-not-restored",
        class: "an order lost",
        words: "An undo does not restore the replica counts.",
        seen_by: "upgrade-fails; upgrade-deleted",
    }
    CountsFromMemory {
        id: "counts-from-memory",
        class: "an order lost",
        words: "Each workload is restored to one replica.",
        seen_by: "e2e apps: multi-workload",
    }
    UndoWithoutResume {
        id: "undo-without-resume",
        class: "finalizer too early",
        words: "An undo leaves Flux suspended and locked.",
        seen_by: "upgrade-fails; upgrade-deleted",
    }
    SnapshotBeforeStop {
        id: "snapshot-before-stop",
        class: "evidence destroyed",
        words: "A snapshot is taken while the workloads write.",
        seen_by: "upgrade; rollback",
    }
    AnyEventIsProgress {
        id: "any-event-is-progress",
        class: "an order lost",
        words: "Each reconciliation counts as progress of a snapshot.",
        seen_by: "e2e apps: slow-snapshot",
    }
    SnapshotsDeletedLate {
        id: "snapshots-deleted-late",
        class: "evidence destroyed",
        words: "A failure after the commit deletes the snapshots.",
        seen_by: "auto-rollback",
    }
    CommitBeforeIntent {
        id: "commit-before-intent",
        class: "partial multi-write",
        words: "The Job that pushes is created before the intent is stored.",
        seen_by: "upgrade, create-jobs#2=kill-before; upgrade",
    }
    SecondCommit {
        id: "second-commit",
        class: "duplicate after a lost answer",
        words: "Each attempt to push has another trailer, and does not find the commit of an earlier one.",
        seen_by: "e2e apps: lost-response",
    }
    RejectedPushBelieved {
        id: "rejected-push-believed",
        class: "partial multi-write",
        words: "A rejected push counts as a pushed commit.",
        seen_by: "upgrade-fails",
    }
    RetainNotSet {
        id: "retain-not-set",
        class: "evidence destroyed",
        words: "A replaced volume keeps its reclaim policy, and is deleted with its claim.",
        seen_by: "rollback; auto-rollback",
    }
    LabelsLost {
        id: "labels-lost",
        class: "drift",
        words: "A restored claim has no labels.",
        seen_by: "rollback; auto-rollback",
    }
    OwnersCopied {
        id: "owners-copied",
        class: "finalizer leak",
        words: "A restored claim is owned by the request, and is deleted with it.",
        seen_by: "rollback; auto-rollback",
    }
    UnmanagedPvcAdopted {
        id: "unmanaged-pvc-adopted",
        class: "name reused with a new UID",
        words: "A claim that someone else created is taken for the restored one.",
        seen_by: "e2e apps: unmanaged-pvc",
    }
    TemporaryLeft {
        id: "temporary-left",
        class: "finalizer leak",
        words: "The undo of a restore leaves the temporary claims.",
        seen_by: "e2e apps: tight-quota",
    }
    DryRunFinalizer {
        id: "dry-run-finalizer",
        class: "finalizer leak",
        words: "A dry run has a finalizer.",
        seen_by: "dry-run",
    }
    LostLockIgnored {
        id: "lost-lock-ignored",
        class: "dependence on an edge",
        words: "A ManagedApp leaves the lock of a request that was removed by hand.",
        seen_by: "e2e apps: finalizer-removed",
    }
    OverlapUnchecked {
        id: "overlap-unchecked",
        class: "double create from a stale cache",
        words: "Two ManagedApps with the same objects are both valid.",
        seen_by: "e2e apps: overlap",
    }
    WhenScaledIgnored {
        id: "when-scaled-ignored",
        class: "evidence destroyed",
        words: "A StatefulSet that deletes its claims at zero is stopped.",
        seen_by: "e2e apps: when-scaled-delete",
    }
    NoVolumesAccepted {
        id: "no-volumes-accepted",
        class: "evidence destroyed",
        words: "An application without volumes is upgraded without protection.",
        seen_by: "e2e apps: no-volumes",
    }
    ScaledUpIgnored {
        id: "scaled-up-ignored",
        class: "drift",
        words: "A workload that someone scaled up is stopped again.",
        seen_by: "e2e apps: scaled-up",
    }
    ApprovalSkipped {
        id: "approval-skipped",
        class: "an order lost",
        words: "A plan that needs a decision continues without one.",
        seen_by: "e2e apps: approval",
    }
    OwnTokenUsed {
        id: "own-token-used",
        class: "confused deputy",
        words: "The gateway sends its own token to the API server, and not that of its caller.",
        seen_by: "e2e gateway: token-account; e2e gateway: audit",
    }
    OriginUnchecked {
        id: "origin-unchecked",
        class: "cross-site request",
        words: "The gateway accepts requests that a page of another site made a browser send.",
        seen_by: "e2e gateway: browsers",
    }
    SessionHeaderUnchecked {
        id: "session-header-unchecked",
        class: "cross-site request",
        words: "A write with a session needs no header that forms cannot send.",
        seen_by: "e2e gateway: session; e2e gateway: proxy",
    }
    SeedFieldsIgnored {
        id: "seed-fields-ignored",
        class: "field without effect",
        words: "Service and Agent in the body of a submitted task are not read.",
        seen_by: "e2e gateway: pm-200-submit",
    }
    UnknownFieldsIgnored {
        id: "unknown-fields-ignored",
        class: "field without effect",
        words: "A misspelled field in the body of a request is ignored.",
        seen_by: "e2e gateway: pm-400",
    }
    VersionUncompared {
        id: "version-uncompared",
        class: "lost update",
        words: "Context is added whatever version its author has seen.",
        seen_by: "e2e gateway: pm-409-version; e2e gateway: context-20",
    }
}
