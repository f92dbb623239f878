use super::*;

#[test]
fn blockers_of_a_namespace_are_found() {
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
