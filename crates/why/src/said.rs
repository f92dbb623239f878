//! Facts that exist only in a `status.message`. Each phrase of the operator is parsed in one place.
//!
//! # Caveats
//! The operator does not export these phrases. If a phrase changes, the explanation becomes
//! shorter, but not wrong. An unknown phrase is ignored, and the message is shown unchanged.

use api::Reason;

/// A request of the operator that the API server rejected: `'create jobs' of 'shop-7-v1'`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    /// Verb and resource, such as `create jobs`.
    pub(crate) what: &'a str,
    /// The object's name.
    pub(crate) name: &'a str,
}

pub(crate) fn request(message: &str) -> Option<Request<'_>> {
    let (before, rest) = message.split_once("' of '")?;
    let (_, what) = before.rsplit_once('\'')?;
    let (name, _) = rest.split_once('\'')?;
    what.contains(' ').then_some(Request { what, name })
}

/// Returns the kind and name of an object that already has the name of a child: `Job 'x' exists
/// already and belongs to someone else; …`.
pub(crate) fn taken(message: &str) -> Option<(&str, &str)> {
    let (object, _) = message
        .split_once(" exists already")
        .or_else(|| message.split_once(" belongs to an earlier "))?;
    let (kind, name) = object.split_once(" '")?;
    let kind = kind.rsplit(' ').next().unwrap_or(kind);
    Some((kind, name.strip_suffix('\'')?))
}

/// Returns whether the existing object belongs to a former object with the run's name.
pub(crate) fn is_left_over(message: &str) -> bool {
    message.contains(" belongs to an earlier ")
}

/// Returns the last observed cause of a start timeout: `the container did not start within 5m:
/// QuotaExceeded: …`.
pub(crate) fn start_cause(message: &str) -> Option<(Reason, &str)> {
    let (_, said) = message.split_once("the container did not start within ")?;
    let (_, cause) = said.split_once(": ")?;
    let (name, words) = cause.split_once(": ")?;
    let words = match words.rsplit_once(" (after ") {
        Some((words, end)) if end.ends_with(" attempts)") => words,
        Some(_) | None => words,
    };
    Some((Reason::from_name(name)?, words))
}

/// Returns whether the message reports an attempt in progress without a problem: `Job 'x' was
/// created; waiting for its Pod`, `Pod 'x' on node 'n' runs; it has until …`.
pub(crate) fn is_calm(message: &str) -> bool {
    message.ends_with(" was created; waiting for its Pod")
        || message.contains(" runs; it has until ")
}

/// Returns whether the step `publish`, not the agent, exceeded its timeout: `…: the container
/// 'publish' did not end within 10m`.
pub(crate) fn is_late_publish(message: &str) -> bool {
    message.contains("the container 'publish' did not end within ")
}

/// Returns whether an object was restored without its status: `restored: version 1 ended as …`.
pub(crate) fn is_restored(message: &str) -> bool {
    message.starts_with("restored: ")
}

/// Returns the status code of a response: `the API server answered 503 to …`.
pub(crate) fn answer(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("the API server answered ")?;
    rest.split(' ').next()
}

/// Returns the finalizers that block a namespace, from its controller's message: `…:
/// example.com/backup in 1 resource instances, …`.
pub(crate) fn finalizers(message: &str) -> Vec<String> {
    let Some((_, list)) = message.split_once("finalizers remaining: ") else {
        return Vec::new();
    };
    list.split(", ")
        .filter_map(|one| Some(one.split_once(" in ")?.0.to_owned()))
        .collect()
}

/// Returns plural and group of the objects that remain in a namespace: `…: configmaps. has 1
/// resource instances, deployments.apps has 2 resource instances`.
#[cfg(any(feature = "gather", test))]
pub(crate) fn remaining(message: &str) -> Vec<(&str, &str)> {
    let Some((_, list)) = message.split_once("resources are remaining: ") else {
        return Vec::new();
    };
    list.split(", ")
        .filter_map(|one| one.split_once(" has ")?.0.split_once('.'))
        .collect()
}

/// Returns the APIService of an API group that does not respond: `…: metrics.k8s.io/v1beta1: stale
/// GroupVersion discovery: …`.
pub(crate) fn stale_group(message: &str) -> Option<String> {
    let (_, list) = message.split_once("list of server APIs: ")?;
    let (group, rest) = list.split_once('/')?;
    let version = rest.split([':', ',', ' ']).next()?;
    (!group.contains(' ')).then(|| [version, ".", group].concat())
}

/// Returns name and namespace of the first policy in the message: `NetworkPolicy 'a', 'b' in
/// namespace 'c' …`.
pub(crate) fn policy(message: &str) -> Option<(&str, &str)> {
    let (_, rest) = message.split_once("NetworkPolicy '")?;
    let (names, rest) = rest.split_once("' in namespace '")?;
    let name = names.split('\'').next()?;
    Some((name, rest.split('\'').next()?))
}

/// Returns a Pod and the text about it: `Pod 'x': …`.
pub(crate) fn pod(message: &str) -> Option<(&str, &str)> {
    let (_, rest) = message.split_once("Pod '")?;
    rest.split_once("': ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_recognised() {
        for (message, expected) in [
            (
                "the operator lacks the permission for 'create jobs' of 'shop-7-v1': no",
                Some(Request {
                    what: "create jobs",
                    name: "shop-7-v1",
                }),
            ),
            (
                "'create configmaps' of 'a' is refused: it's",
                Some(Request {
                    what: "create configmaps",
                    name: "a",
                }),
            ),
            ("the Pod cannot be created", None),
        ] {
            assert_eq!(request(message), expected, "{message}");
        }
    }

    #[test]
    fn what_is_in_the_way_is_recognised() {
        let taken_words = "Job 'x' exists already and belongs to someone else; it was not touched";
        for (message, expected) in [
            (taken_words, Some(("Job", "x"))),
            ("ConfigMap 'y' exists already", Some(("ConfigMap", "y"))),
            ("something else", None),
        ] {
            assert_eq!(taken(message), expected, "{message}");
        }
    }

    #[test]
    fn the_last_cause_of_a_late_start_is_recognised() {
        let start = "the container did not start within 5m: ";
        for (said, expected) in [
            (
                "QuotaExceeded: no: room",
                Some((Reason::QuotaExceeded, "no: room")),
            ),
            (
                "QuotaExceeded: no (after 3 attempts)",
                Some((Reason::QuotaExceeded, "no")),
            ),
            ("Pod 'x' does not say why", None),
            ("Job 'x' has no Pod, and nothing says why", None),
        ] {
            assert_eq!(start_cause(&format!("{start}{said}")), expected, "{said}");
        }
        assert_eq!(start_cause("another message: QuotaExceeded: no"), None);
        assert_eq!(
            answer("the API server answered 503 to 'create jobs'"),
            Some("503")
        );
        assert_eq!(answer("a timeout"), None);
    }

    #[test]
    fn a_message_that_names_no_trouble_is_calm() {
        for (message, expected) in [
            ("Job 'x' was created; waiting for its Pod", true),
            (
                "Pod 'x' on node 'n' runs; it has until 2026-03-02T11:00:09Z",
                true,
            ),
            (
                "Pod 'x': the container ended with exit code 1, but Job 'x' does not say so; is the Job controller running?",
                false,
            ),
            ("the Pod cannot be created: no", false),
        ] {
            assert_eq!(is_calm(message), expected, "{message}");
        }
    }

    #[test]
    fn what_holds_a_namespace_is_recognised() {
        let held = "Some content in the namespace has finalizers remaining: example.com/backup in 1 resource instances, kubernetes.io/pvc-protection in 2 resource instances";
        assert_eq!(
            finalizers(held),
            ["example.com/backup", "kubernetes.io/pvc-protection"]
        );
        let left = "Some resources are remaining: configmaps. has 1 resource instances, deployments.apps has 2 resource instances";
        assert_eq!(
            remaining(left),
            [("configmaps", ""), ("deployments", "apps")]
        );
        assert!(finalizers(left).is_empty() && remaining(held).is_empty());
        for (message, wanted) in [
            (
                "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: metrics.k8s.io/v1beta1: stale GroupVersion discovery: metrics.k8s.io/v1beta1",
                Some("v1beta1.metrics.k8s.io"),
            ),
            ("All resources successfully discovered", None),
        ] {
            assert_eq!(stale_group(message).as_deref(), wanted);
        }
    }

    #[test]
    fn what_a_tenant_speaks_of_is_recognised() {
        let message = "NetworkPolicy 'by-hand', 'other' in namespace 'tenant-acme' is not this Tenant's, and may open it";
        assert_eq!(policy(message), Some(("by-hand", "tenant-acme")));
        assert_eq!(policy("NetworkPolicy 'a' is being set"), None);
        assert_eq!(
            pod("Pod 'probe-acme-inside-1': it has no node: none"),
            Some(("probe-acme-inside-1", "it has no node: none"))
        );
        assert_eq!(pod("nothing was told"), None);
    }
}
