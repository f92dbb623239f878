use super::*;

#[test]
fn what_is_missing_is_read_from_the_kubelets_words() {
    let thing =
        |kind, name: &str, key: Option<&str>| Some((kind, name.to_owned(), key.map(str::to_owned)));
    for (message, expected) in [
        ("secret \"token\" not found", thing("Secret", "token", None)),
        (
            "configmap \"c.d\" not found",
            thing("ConfigMap", "c.d", None),
        ),
        (
            "MountVolume.SetUp failed for volume \"a\" : secret \"s\" not found",
            thing("Secret", "s", None),
        ),
        (
            "couldn't find key k in Secret team/token",
            thing("Secret", "token", Some("k")),
        ),
        (
            "couldn't find key a.b in ConfigMap team/map",
            thing("ConfigMap", "map", Some("a.b")),
        ),
        ("something else", None),
    ] {
        assert_eq!(missing_object(message), expected, "{message}");
    }
}

#[test]
fn the_schedulers_words_are_taken_apart() {
    let message = "0/6 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {dedicated: gpu}, 1 node(s) were unschedulable, 2 node(s) didn't match Pod's node affinity/selector, 1 Too many pods. preemption: 0/6 nodes are available: 6 Preemption is not helpful for scheduling.";
    let what: Vec<(usize, Unfit)> = unfit_nodes(message)
        .into_iter()
        .map(|part| (part.count, part.cause))
        .collect();
    assert_eq!(
        what,
        [
            (1, Unfit::Insufficient("cpu".to_owned())),
            (1, Unfit::Taint("dedicated: gpu".to_owned())),
            (1, Unfit::Cordoned),
            (2, Unfit::Selector),
            (1, Unfit::TooManyPods),
        ]
    );
    assert_eq!(unfit_nodes("no nodes available to schedule pods"), []);
    assert_eq!(
        unfit_nodes("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."),
        [UnfitNodes {
            count: 0,
            cause: Unfit::Other("pod has unbound immediate PersistentVolumeClaims".to_owned())
        }]
    );
}

#[test]
fn a_failed_pull_has_one_cause() {
    for (reason, message, expected) in [
        ("ErrImageNeverPull", "", PullFailure::Never),
        ("InvalidImageName", "not found", PullFailure::InvalidName),
        (
            "ErrImagePull",
            "dial tcp: lookup registry.example: no such host",
            PullFailure::Unresolved,
        ),
        (
            "ErrImagePull",
            "dial tcp 10.0.0.1:443: i/o timeout",
            PullFailure::Unreachable,
        ),
        (
            "ErrImagePull",
            "toomanyrequests: rate limit",
            PullFailure::Limited,
        ),
        (
            "ImagePullBackOff",
            "pull access denied",
            PullFailure::Refused,
        ),
        ("ErrImagePull", "manifest unknown", PullFailure::NotFound),
        ("ErrImagePull", "", PullFailure::Other),
    ] {
        assert_eq!(PullFailure::of(reason, message), expected, "{message}");
    }
}

#[test]
fn a_host_that_does_not_resolve_is_named() {
    let pull = "failed to do request: Head \"https://registry.invalid/v2/x\": dial tcp";
    for (message, host) in [
        (
            format!("{pull}: lookup registry.invalid on 10.96.0.10:53: no such host"),
            Some("registry.invalid"),
        ),
        (
            format!("{pull}: lookup registry.invalid: no such host"),
            Some("registry.invalid"),
        ),
        (
            format!("{pull} 10.0.0.1:443: connect: connection refused"),
            None,
        ),
    ] {
        assert_eq!(unresolved_host(&message), host, "{message}");
        let failure = match host {
            Some(_) => PullFailure::Unresolved,
            None => PullFailure::Unreachable,
        };
        assert_eq!(PullFailure::of("ErrImagePull", &message), failure);
    }
}
