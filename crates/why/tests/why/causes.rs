//! The cause of a waiting container: the same as in the decisions of the operators.

use why::{World, explain};

use crate::{
    build::{POD, Scene, created},
    tenant_build::{SERVER, Site, UNKNOWN, status},
};

/// Returns the reason of the link of this Pod.
fn reason_of(world: &World, pod: &str) -> Option<String> {
    let found = explain(world);
    let link = found
        .chain
        .iter()
        .find(|link| link.object.kind == "Pod" && link.object.name == pod);
    link.map(|link| link.reason.clone())
}

/// The same table is read by the tests of tasks and of tenants.
#[test]
fn a_waiting_container_has_the_same_cause_everywhere() {
    let table = include_str!("../../../api/src/kubelet/waiting_containers.tsv");
    for row in table.lines().filter(|row| !row.starts_with('#')) {
        let columns: Vec<&str> = row.split('\t').collect();
        let &[reason, message, expected] = columns.as_slice() else {
            panic!("not a row: {row}");
        };
        let run = Scene::new(created()).waits(reason, message);
        let found = reason_of(&run.0, POD);
        assert_eq!(found.as_deref(), Some(expected), "run: {row}");

        let phase = match expected {
            "Progressing" => "Provisioning",
            _ => "Degraded",
        };
        let tenant = Site::bare(status(phase, expected, "server: not ready", UNKNOWN))
            .redis(serde_json::json!({}))
            .server_with(2, 0)
            .waits(reason, message);
        let found = reason_of(&tenant.0, SERVER);
        assert_eq!(found.as_deref(), Some(expected), "Tenant: {row}");
    }
}
