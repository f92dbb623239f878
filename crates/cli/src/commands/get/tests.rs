//! Tests of `get`.

use api::tasks::{AGENT, DOCS_RUN, TASK_RUN};

use super::*;
use crate::text::Paint;

fn question(kind: &'static KindRow, is_everywhere: bool, is_wide: bool) -> Question {
    question_of(vec![kind], is_everywhere, is_wide)
}

fn question_of(kinds: Vec<&'static KindRow>, is_everywhere: bool, is_wide: bool) -> Question {
    Question {
        columns: columns(&kinds, is_wide),
        kinds,
        name: None,
        named: Vec::new(),
        selector: None,
        filter: Filter::default(),
        sort: None,
        is_everywhere,
    }
}

/// Objects by their names can be of kinds that share few columns.
#[test]
fn kinds_without_common_columns_have_a_table() {
    let all = [&TENANT, &TASK_RUN, &AGENT];
    for first in all {
        let mut kinds = vec![first];
        kinds.extend(all.into_iter().filter(|kind| *kind != first));
        let shared = columns(&kinds, true);
        assert!(
            shared.iter().any(|one| one.content == Content::Age),
            "{first:?}"
        );
        for kind in kinds {
            assert!(shared.iter().all(|one| kind.columns.contains(one)));
        }
    }
    let objects = [ObjectName::new(&AGENT, "a"), ObjectName::new(&AGENT, "b")];
    assert_eq!(kinds_of(&objects), [&AGENT]);
}

fn object_of(kind: &'static KindRow, value: &Value) -> Object {
    Object::new(kind, serde_json::from_value(value.clone()).unwrap())
}

fn rendered(question: &Question, objects: &[Value]) -> String {
    let mut table = question.table();
    for object in objects {
        let object = object_of(question.kinds[0], object);
        table.push(question.row(&object, "2026-01-01T01:00:00Z".parse().unwrap()));
    }
    table.render(Paint { is_on: false }, None)
}

#[test]
fn runs_are_a_table() {
    let metadata = |name: &str| {
        json!({ "name": name, "namespace": "team",
        "creationTimestamp": "2026-01-01T00:00:00Z" })
    };
    let objects = [
        json!({ "metadata": metadata("shop-7"), "status": { "phase": "Failed",
            "contextVersion": 2, "attempts": 3, "message": "exit code 3",
            "conditions": [{ "type": "Succeeded", "status": "False", "reason": "NonZeroExit" }] } }),
        json!({ "metadata": metadata("new"), "status": { "phase": "Pending",
            "observedGeneration": -1, "message": "waiting for the operator to look at it" } }),
        json!({ "metadata": metadata("poison"), "status": { "phase": 7 } }),
    ];
    assert_eq!(
        rendered(&question(&TASK_RUN, false, false), &objects),
        "NAME     PHASE     REASON        VERSION   ATTEMPT   AGE\n\
         shop-7   Failed    NonZeroExit   2         3         60m\n\
         new      Pending                                     60m\n\
         poison                                               60m\n"
    );
    assert_eq!(
        rendered(&question(&TASK_RUN, true, true), &objects[..1]),
        "NAMESPACE   NAME     PHASE    REASON        VERSION   ATTEMPT   AGE   STARTED   FINISHED   MESSAGE\n\
         team        shop-7   Failed   NonZeroExit   2         3         60m                        exit code 3\n"
    );
}

#[test]
fn documentation_is_a_table() {
    let objects = [
        json!({ "metadata": { "name": "guide", "creationTimestamp": "2026-01-01T00:00:00Z" },
        "status": { "phase": "Succeeded", "branch": "docs/guide", "attempts": 1,
            "commit": "c0535e4", "message": "pushed",
            "conditions": [{ "type": "Succeeded", "status": "True", "reason": "Succeeded" }] } }),
    ];
    let docs = |is_wide| question(&DOCS_RUN, false, is_wide);
    assert_eq!(
        rendered(&docs(false), &objects),
        "NAME    PHASE       REASON      BRANCH       ATTEMPT   AGE\n\
         guide   Succeeded   Succeeded   docs/guide   1         60m\n"
    );
    assert_eq!(
        rendered(&docs(true), &objects),
        "NAME    PHASE       REASON      BRANCH       ATTEMPT   AGE   STARTED   FINISHED   COMMIT    MESSAGE\n\
         guide   Succeeded   Succeeded   docs/guide   1         60m                        c0535e4   pushed\n"
    );
    // A watch prints a row again only if more than the age has changed.
    let object = object_of(&DOCS_RUN, &objects[0]);
    let row = |clock: &str| docs(true).row(&object, clock.parse().unwrap());
    assert_ne!(row("2026-01-01T01:00:00Z"), row("2026-01-01T02:00:00Z"));
    assert_eq!(row("1970-01-01T00:00:00Z"), row("1971-01-01T00:00:00Z"));
}

#[test]
fn agents_are_a_table() {
    let objects = [json!({ "metadata": { "name": "writer" }, "status": {
        "conditions": [{ "type": "Ready", "status": "True", "reason": "Ready" }] } })];
    assert_eq!(
        rendered(&question(&AGENT, false, false), &objects),
        "NAME     READY   STATUS   AGE\n\
         writer   True    Ready    <unknown>\n"
    );
    assert_eq!(
        rendered(&question(&AGENT, false, true), &objects),
        "NAME     READY   STATUS   AGE         IMAGE   MESSAGE\n\
         writer   True    Ready    <unknown>\n"
    );
}

#[test]
fn tenants_are_a_table_without_a_namespace_of_their_own() {
    let condition = |kind: &str, value: &str, reason: &str| json!({ "type": kind, "status": value, "reason": reason });
    let objects = [
        json!({ "metadata": { "name": "acme", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "status": { "phase": "Running", "namespace": "tenant-acme", "message": "redis 1/1 ready",
                "conditions": [condition("Ready", "True", "Ready"),
                    condition("NetworkIsolated", "True", "Isolated")] } }),
        json!({ "metadata": { "name": "open", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "status": { "phase": "Running", "namespace": "shop", "message": "ready",
                "conditions": [condition("Ready", "True", "Ready"),
                    condition("NetworkIsolated", "False", "PolicyNotEnforced")] } }),
        json!({ "metadata": { "name": "new" }, "status": {} }),
    ];
    // Tenants are cluster-scoped, so `-A` makes no difference.
    for is_everywhere in [false, true] {
        assert_eq!(
            rendered(&question(&TENANT, is_everywhere, false), &objects),
            "NAME   READY     STATUS    REASON              ISOLATED   AGE\n\
             acme   True      Running   Ready               True       60m\n\
             open   True      Running   PolicyNotEnforced   False      60m\n\
             new    Unknown                                 Unknown    <unknown>\n"
        );
    }
    assert_eq!(
        rendered(&question(&TENANT, false, true), &objects[..1]),
        "NAME   READY   STATUS    REASON   ISOLATED   AGE   NAMESPACE     MESSAGE\n\
         acme   True    Running   Ready    True       60m   tenant-acme   redis 1/1 ready\n"
    );
}

#[test]
fn runs_of_several_kinds_share_their_columns() {
    let condition = json!([{ "type": "Succeeded", "status": "False", "reason": "NonZeroExit" }]);
    let run = |name: &str| {
        json!({ "metadata": { "name": name, "namespace": "team",
                "creationTimestamp": "2026-01-01T00:00:00Z" },
            "status": { "phase": "Failed", "attempts": 3, "contextVersion": 2, "branch": "docs/x",
                "message": "exit code 3", "conditions": condition } })
    };
    for (is_wide, wanted) in [
        (
            false,
            "NAME            PHASE    REASON        ATTEMPT   AGE\n\
             shop-7          Failed   NonZeroExit   3         60m\n\
             docsrun/guide   Failed   NonZeroExit   3         60m\n",
        ),
        (
            true,
            "NAME            PHASE    REASON        ATTEMPT   AGE   STARTED   FINISHED   MESSAGE\n\
             shop-7          Failed   NonZeroExit   3         60m                        exit code 3\n\
             docsrun/guide   Failed   NonZeroExit   3         60m                        exit code 3\n",
        ),
    ] {
        let question = question_of(vec![&TASK_RUN, &DOCS_RUN], false, is_wide);
        let mut table = question.table();
        for (kind, name) in [(&TASK_RUN, "shop-7"), (&DOCS_RUN, "guide")] {
            let object = object_of(kind, &run(name));
            table.push(question.row(&object, "2026-01-01T01:00:00Z".parse().unwrap()));
        }
        assert_eq!(table.render(Paint { is_on: false }, None), wanted);
    }
}

#[test]
fn a_run_that_is_named_like_a_kind_is_no_riddle() {
    let missing = |name: &str| {
        Failure::from(Error::NotFound {
            kind: "TaskRun",
            name: name.to_owned(),
            namespace: Some("team".to_owned()),
        })
    };
    let said = not_found("jobs", missing("jobs"));
    assert_eq!(said.exit().code(), 5);
    for word in [
        "TaskRun 'jobs' was not found",
        "'taskruns'",
        "kubectl get jobs",
    ] {
        assert!(said.message().contains(word), "{}", said.message());
    }
    let said = not_found("shop-7", missing("shop-7"));
    assert!(!said.message().contains("kubectl"), "{}", said.message());
    assert_eq!(said.advice()[0].1, "get runs");
}
