use super::*;

const POD: &str = "orchestrator-tasks-6d5f8b7c9-x2k9p";
const HOLDER: &str = "orchestrator-tasks-6d5f8b7c9-x2k9p_00112233445566ff";

fn time(clock: &str) -> Timestamp {
    format!("2026-03-02T{clock}Z").parse().unwrap()
}

fn lease(holder: Option<&str>, renewed: Option<&str>) -> LeaseView {
    LeaseView {
        name: "orchestrator-tasks".to_owned(),
        namespace: "orchestrator".to_owned(),
        holder: holder.map(str::to_owned),
        renewed: renewed.map(|clock| Time(time(clock))),
        duration_seconds: 15,
        version: None,
    }
}

fn judged(lease: &LeaseView, installed: Option<&Installation>) -> Leader {
    judge(lease, time("10:00:00"), installed)
}

fn installed(
    replicas: Option<(i32, i32)>,
    pods: Option<&[(&str, Program)]>,
) -> Option<Installation> {
    Some(Installation {
        operator: "tasks".to_owned(),
        deployment: replicas.map(|(wanted, ready)| Deployment {
            name: "orchestrator-tasks".to_owned(),
            wanted,
            ready,
        }),
        pods: pods.map(|pods| {
            let pods = pods.iter().map(|(name, program)| Candidate {
                name: (*name).to_owned(),
                program: *program,
            });
            pods.collect()
        }),
    })
}

#[test]
fn a_lease_that_nobody_renews_has_no_leader() {
    let cases = [
        (None, Some("09:59:57"), Leader::Released),
        (Some(HOLDER), None, Leader::Expired),
        (Some(HOLDER), Some("09:59:29"), Leader::Expired),
        // Twice the duration, for clocks that differ.
        (Some(HOLDER), Some("09:59:30"), Leader::Leads),
        (Some(HOLDER), Some("10:00:20"), Leader::Leads),
    ];
    for (holder, renewed, wanted) in cases {
        let lease = lease(holder, renewed);
        assert_eq!(judged(&lease, None), wanted, "{holder:?} {renewed:?}");
    }
}

#[test]
fn a_fresh_lease_counts_only_if_its_holder_can_lead() {
    use Absence::*;
    let runs = Program::Runs(Some(time("09:00:00")));
    let again = Program::Runs(Some(time("09:59:58")));
    let outside = "vm_00112233445566ff";
    let cases = [
        ("Deployment not read", HOLDER, None, None),
        (
            "a Pod that runs",
            HOLDER,
            installed(Some((2, 2)), Some(&[("other", runs), (POD, runs)])),
            None,
        ),
        // A leader with outdated CRDs is not ready, and leads.
        (
            "a Pod that runs and is not ready",
            HOLDER,
            installed(Some((2, 0)), Some(&[(POD, runs)])),
            None,
        ),
        (
            "a Pod whose start is not reported yet",
            HOLDER,
            installed(Some((2, 0)), Some(&[(POD, Program::Runs(None))])),
            None,
        ),
        (
            "a Pod that outlived its Deployment",
            HOLDER,
            installed(None, Some(&[(POD, runs)])),
            None,
        ),
        (
            "scaled to 0",
            HOLDER,
            installed(Some((0, 0)), Some(&[])),
            Some(NoReplicas),
        ),
        (
            "scaled to 0, and the Pod on a lost node",
            HOLDER,
            installed(Some((0, 0)), Some(&[(POD, runs)])),
            Some(NoReplicas),
        ),
        (
            "the Pod was deleted at once",
            HOLDER,
            installed(Some((2, 1)), Some(&[("other", runs)])),
            Some(PodDeleted),
        ),
        (
            "the program was killed",
            HOLDER,
            installed(Some((2, 1)), Some(&[(POD, Program::Ended)])),
            Some(PodStopped),
        ),
        (
            "the program was killed and started again",
            HOLDER,
            installed(Some((2, 2)), Some(&[(POD, again)])),
            Some(PodRestarted),
        ),
        (
            "the Deployment was deleted",
            HOLDER,
            installed(None, Some(&[])),
            Some(NoDeployment),
        ),
        (
            "the Deployment of another release was deleted",
            "my-orchestrator-tasks-6d5f8b7c9-x2k9p_1",
            installed(None, None),
            Some(NoDeployment),
        ),
        (
            "a process outside of the cluster, without a Deployment",
            outside,
            installed(None, Some(&[])),
            None,
        ),
        (
            "another machine whose name ends like a Pod's",
            "office-laptop-12345_1",
            installed(None, Some(&[])),
            None,
        ),
        (
            "a process outside of the cluster, beside a Deployment",
            outside,
            installed(Some((2, 2)), Some(&[(POD, runs)])),
            Some(OtherProcess),
        ),
        (
            "a Pod of another Deployment",
            "orchestrator-tenants-6d5f8b7c9-x2k9p_1",
            installed(Some((2, 2)), Some(&[(POD, runs)])),
            Some(OtherProcess),
        ),
        (
            "the Deployment itself",
            "orchestrator-tasks",
            installed(Some((2, 2)), None),
            Some(OtherProcess),
        ),
        (
            "Pods not read, some ready",
            HOLDER,
            installed(Some((2, 1)), None),
            None,
        ),
        (
            "Pods not read, none ready",
            HOLDER,
            installed(Some((2, 0)), None),
            Some(NoneReady),
        ),
        // The API server cuts the name of a ReplicaSet, with its '-'.
        (
            "a shortened name",
            "orchestrator-tasks-6d5f8b7c9x2k9p_1",
            installed(Some((2, 2)), None),
            None,
        ),
    ];
    for (name, holder, installed, wanted) in cases {
        let found = judged(&lease(Some(holder), Some("09:59:57")), installed.as_ref());
        let wanted = wanted.map_or(Leader::Leads, Leader::Absent);
        assert_eq!(found, wanted, "{name}");
    }
}

#[test]
fn a_container_shows_whether_its_program_runs() {
    let states = serde_json::json!([
        [{ "running": { "startedAt": "2026-03-02T09:00:00Z" } }, {}],
        [{ "terminated": { "exitCode": 137 } }, {}],
        [{ "waiting": { "reason": "CrashLoopBackOff" } }, { "terminated": { "exitCode": 137 } }],
        [{ "waiting": { "reason": "ContainerCreating" } }, {}],
        [{}, {}],
    ]);
    let wanted = [
        Program::Runs(Some(time("09:00:00"))),
        Program::Ended,
        Program::Ended,
        Program::Runs(None),
        Program::Runs(None),
    ];
    let pod = |phase: &str, state: &serde_json::Value| {
        let of = |name: &str, state: &serde_json::Value, before: &serde_json::Value| {
            serde_json::json!({ "name": name, "state": state, "lastState": before, "ready": false,
                "restartCount": 1, "image": "", "imageID": "" })
        };
        let mesh = of(
            "mesh",
            &serde_json::json!({ "terminated": { "exitCode": 1 } }),
            &serde_json::json!({}),
        );
        let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(serde_json::json!({
            "metadata": { "name": POD },
            "spec": { "containers": [{ "name": "mesh" }, { "name": "orchestrator" }] },
            "status": { "phase": phase, "containerStatuses": [mesh, of("orchestrator", &state[0], &state[1])] },
        }))
        .unwrap();
        Candidate::from(&PodView::from(&pod))
    };
    for (state, wanted) in states.as_array().unwrap().iter().zip(wanted) {
        assert_eq!(pod("Running", state).program, wanted, "{state}");
        assert_eq!(pod("Failed", state).program, Program::Ended, "{state}");
    }
}
