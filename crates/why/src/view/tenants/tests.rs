use serde_json::json;

use super::*;

#[test]
fn a_tenant_that_cannot_be_read_still_has_its_namespace() {
    let meta = json!({ "name": "acme" });
    for (spec, status, wanted) in [
        (json!({}), json!({}), "tenant-acme"),
        (json!({ "namespace": "shop" }), json!({}), "shop"),
        (json!({}), json!({ "namespace": "shop" }), "shop"),
    ] {
        let object = json!({ "metadata": meta, "spec": spec, "status": status });
        let view = TenantView::read(&object);
        assert_eq!(view.namespace, wanted);
        // `deletion` has no default.
        assert!(view.undecodable.is_some_and(|why| why.contains("deletion")));
    }
}
