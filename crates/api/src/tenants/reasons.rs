//! The reasons of the tenants operator, beside the shared ones of [`crate::reason`].

use crate::reason::reasons;

reasons! {
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
    #[normal] Isolated: "Everything that must be refused was refused, and everything that must pass passed.",
        "Nothing.";
    #[normal] NothingToProbe: "There is nothing to try: neither this Tenant nor one of the next hundred has a server or a Redis that must not be reached.",
        "Nothing. It is tried within ten minutes after there is.";
    #[normal] IsolationCheckPending: "The connections were not tried since the last change: it waits until the Tenant runs, for its turn, or for the Pods that try. The message says which.",
        "Wait; a Tenant that does not run says why in `Ready`.";
    #[normal] ProbesDisabled: "`isolation.probe` is false: nobody tries.",
        "Set it to true to have the isolation proven.";
    IsolationCheckFailed: "The Pods that try the connections did not come to their end.",
        "The message says what kept them from it. It is tried again by itself.";
}
