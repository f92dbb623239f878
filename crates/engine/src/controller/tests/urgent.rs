//! Changes that bring a reconciliation forward.

use super::*;

fn toy(annotations: &Value) -> Arc<Toy> {
    let metadata = json!({
        "name": "a", "namespace": "n", "uid": "u", "generation": 1, "annotations": annotations,
    });
    let toy = json!({
        "apiVersion": "test/v1", "kind": "Toy", "metadata": metadata, "spec": { "act": "" },
    });
    Arc::new(serde_json::from_value(toy).unwrap())
}

#[test]
fn a_kind_names_the_annotations_that_its_decisions_read() {
    let comes_first = |annotation: &str, of_kind: &[&str]| {
        let (old, new) = (toy(&json!({})), toy(&json!({ annotation: "now" })));
        let change = Change {
            key: &Key::of(&new.metadata),
            old: Some(&old),
            new: Some(&new),
        };
        is_urgent(&change, "toys.test/finalizer", of_kind)
    };
    assert!(comes_first(names::RECONCILE_AT, &[]));
    assert!(comes_first("test/keep", &["test/keep"]));
    assert!(!comes_first("test/keep", &[]));
    assert!(!comes_first(names::PRESERVE, &[]), "only runs read it");
}
