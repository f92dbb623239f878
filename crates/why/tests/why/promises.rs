//! Properties of every explanation.

use api::Timestamp;
use why::{Explanation, World, explain, explanation::State, render};

use crate::all;

#[test]
fn each_explanation_says_what_to_type() {
    for case in all() {
        let found = explain(&case.world);
        assert!(!found.chain.is_empty(), "{}", case.name);
        assert!(
            (1..=3).contains(&found.next_steps.len()),
            "{}: {:?}",
            case.name,
            found.next_steps
        );
        assert!(!found.summary.is_empty(), "{}", case.name);
        for command in &found.next_steps {
            assert!(!command.description.is_empty());
            assert!(
                !command.command.contains("(none)"),
                "{}: {}",
                case.name,
                command.command
            );
        }
        let links = found.chain.iter().filter(|link| link.evidence.is_empty());
        let bare: Vec<&str> = links.map(|link| link.object.kind.as_str()).collect();
        assert!(
            bare.len() < found.chain.len(),
            "{}: no evidence at all",
            case.name
        );
        if let Some(deepest) = found.chain.last() {
            assert!(
                !deepest.evidence.is_empty(),
                "{}: the deepest link has no evidence",
                case.name
            );
        }
    }
}

#[test]
fn worlds_and_explanations_survive_json() {
    for case in all() {
        let text = serde_json::to_string(&case.world).unwrap();
        let world: World = serde_json::from_str(&text).unwrap();
        assert_eq!(world, case.world, "{}", case.name);
        let found = explain(&world);
        let text = serde_json::to_string(&found).unwrap();
        assert_eq!(serde_json::from_str::<Explanation>(&text).unwrap(), found);
    }
}

#[test]
fn text_fits_and_color_adds_nothing_but_color() {
    for case in all() {
        let found = explain(&case.world);
        for width in [80, 200] {
            let plain = render(&found, width, false);
            let commands: Vec<&str> = found
                .next_steps
                .iter()
                .map(|next| next.command.as_str())
                .collect();
            for line in plain.lines() {
                let is_command = commands.contains(&line.trim());
                let is_one_word = line.split_whitespace().count() == 1;
                assert!(
                    line.chars().count() <= width || is_command || is_one_word,
                    "{} at {width}: {line}",
                    case.name
                );
                assert!(!line.chars().any(char::is_control), "{}: {line}", case.name);
            }
            let mut colored = render(&found, width, true);
            assert_ne!(colored, plain);
            for code in ["1;31", "33", "32", "36", "1", "2", "0"] {
                colored = colored.replace(&format!("\u{1b}[{code}m"), "");
            }
            assert_eq!(colored, plain, "{}", case.name);
        }
    }
}

/// Text from the cluster may contain control sequences for a terminal.
#[test]
fn no_control_sequence_reaches_the_terminal() {
    let mut case = all().swap_remove(0);
    let run = case.world.run.as_mut().unwrap();
    run.status.progress.message = Some("bad \u{1b}[2J \r words".to_owned());
    let text = render(&explain(&case.world), 100, false);
    assert!(!text.contains('\u{1b}') && !text.contains('\r'), "{text}");
}

/// A world that is stored or sent must not contain files, values of environment variables, or
/// arguments.
#[test]
fn a_world_carries_no_content() {
    let canary = "c4n4ry";
    let run = serde_json::json!({
        "metadata": { "name": "a", "annotations": { "x": canary } },
        "spec": {
            "taskId": 1, "serviceName": "s", "agentName": "a",
            "markdownFiles": [{ "filename": "f.md", "content": canary }],
        },
    });
    let agent = serde_json::json!({
        "metadata": { "name": "a", "annotations": { "x": canary } },
        "spec": {
            "image": "i", "command": [canary], "args": [canary],
            "env": [{ "name": "A", "value": canary }],
            "instructions": [{ "filename": "f.md", "content": canary }],
        },
    });
    let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(serde_json::json!({
        "metadata": { "name": "a", "annotations": { "x": canary } },
        "spec": { "containers": [{
            "name": "agent", "args": [canary], "command": [canary],
            "env": [{ "name": "A", "value": canary }],
        }]},
    }))
    .unwrap();
    let tenant = serde_json::json!({
        "metadata": { "name": "a", "annotations": { "x": canary } },
        "spec": {
            "deletion": { "policy": "Delete" }, "description": canary,
            "server": { "image": "i", "env": [{ "name": "A", "value": canary }] },
            "redis": { "image": "i", "storage": { "size": "1Gi" }, "config": { "maxmemory": canary } },
        },
    });
    let deployment: k8s_openapi::api::apps::v1::Deployment =
        serde_json::from_value(serde_json::json!({
            "metadata": { "name": "a", "annotations": { "x": canary } },
            "spec": { "selector": {}, "template": { "spec": { "containers": [{
                "name": "server", "env": [{ "name": "A", "value": canary }],
            }]}}},
        }))
        .unwrap();
    let tenant = why::world::TenantView::read(&tenant);
    assert_eq!(tenant.undecodable, None);
    // The values of a HelmRelease may be passwords.
    let release = serde_json::json!({ "spec": { "values": { "password": canary } },
        "status": { "history": [{ "name": canary }] } });
    let meta = serde_json::from_value(serde_json::json!({ "annotations": { "x": canary } }));
    let release = why::world::FluxView::read("HelmRelease", &meta.unwrap(), &release);
    let views = [
        serde_json::to_string(&release).unwrap(),
        serde_json::to_string(&tenant).unwrap(),
        serde_json::to_string(&why::world::WorkloadView::from(&deployment)).unwrap(),
        serde_json::to_string(&why::world::RunView::read(&run)).unwrap(),
        serde_json::to_string(&why::world::AgentView::read(&agent)).unwrap(),
        serde_json::to_string(&why::world::PodView::from(&pod)).unwrap(),
    ];
    for view in views {
        assert!(!view.contains(canary), "{view}");
    }
}

/// A user who has fewer permissions, or reads a moment later, still gets an explanation with a next
/// command.
#[test]
fn a_world_with_holes_is_explained_too() {
    type Hole = (&'static str, fn(&mut World));
    let holes: [Hole; 18] = [
        ("agent", |world| world.agent = None),
        ("jobs", |world| world.jobs.clear()),
        ("pods", |world| world.pods.clear()),
        ("events", |world| world.events.clear()),
        ("claims", |world| world.claims.clear()),
        ("quotas", |world| world.quotas.clear()),
        ("nodes", |world| world.nodes.clear()),
        ("known", |world| world.known.clear()),
        ("namespace", |world| world.namespace = None),
        ("leases", |world| world.leases = None),
        ("workloads", |world| world.workloads.clear()),
        ("endpoints", |world| world.endpoints.clear()),
        ("policies", |world| world.policies = None),
        ("left", |world| world.left.clear()),
        ("operator", |world| world.operator = None),
        ("crds", |world| world.crds.clear()),
        ("flux", |world| world.flux.clear()),
        ("sources", |world| world.sources.clear()),
    ];
    for case in all() {
        for (index, (first, one)) in holes.iter().enumerate() {
            for (second, other) in holes.iter().skip(index) {
                let mut world = case.world.clone();
                one(&mut world);
                other(&mut world);
                let found = explain(&world);
                let what = format!("{} without {first} and {second}", case.name);
                assert!(!found.chain.is_empty(), "{what}");
                assert!((1..=3).contains(&found.next_steps.len()), "{what}");
                let is_well = matches!(found.state, State::Succeeded | State::Ready);
                assert!(is_well || !found.advice.is_empty(), "{what}");
                assert!(!render(&found, 80, true).is_empty(), "{what}");
            }
        }
    }
}

/// A Tenant that is not isolated, or with unknown isolation, must never appear healthy.
#[test]
fn only_a_proven_tenant_is_called_ready() {
    for case in all() {
        let Some(tenant) = &case.world.tenant else {
            continue;
        };
        let found = explain(&case.world);
        let isolated = tenant.status.progress.condition("NetworkIsolated");
        let text = render(&found, 100, false);
        if isolated.is_none_or(|known| known.status != "True") {
            assert_ne!(found.state, State::Ready, "{}", case.name);
        }
        if isolated.is_some_and(|known| known.status == "False") && found.state != State::Deleting {
            let text = text.to_lowercase();
            assert!(text.contains("isolated"), "{}: {text}", case.name);
        }
        // A Tenant is cluster-scoped, and no command may print the content of its Secret.
        for command in &found.next_steps {
            assert!(
                !(command.command.contains(" oten ") && command.command.contains(" -n ")),
                "{}: {}",
                case.name,
                command.command
            );
            assert!(
                !command.command.contains("get secret tenant-redis"),
                "{}",
                case.name
            );
        }
    }
}

/// The first sentence is the message of the status. If the cluster contradicts it, the explanation
/// contains both.
#[test]
fn the_status_speaks_first_unless_it_is_outdated() {
    for case in all() {
        let found = explain(&case.world);
        let progress = match (&case.world.run, &case.world.tenant) {
            (Some(run), _) if found.subject.kind != "Agent" => &run.status.progress,
            (_, Some(tenant)) => &tenant.status.progress,
            _ => continue,
        };
        let isolated = progress.condition("NetworkIsolated");
        let said = match (found.state, isolated) {
            (State::NotIsolated | State::NotProven, Some(known)) => known.message.clone(),
            _ => progress.message.clone().unwrap(),
        };
        match &found.outdated {
            None => assert_eq!(found.summary, said, "{}", case.name),
            Some(outdated) => {
                assert_eq!(outdated.message, said, "{}", case.name);
                assert_ne!(found.summary, said, "{}", case.name);
                assert!(
                    render(&found, 200, false).contains("status still says"),
                    "{}",
                    case.name
                );
            }
        }
    }
}

#[test]
fn nothing_is_called_well_that_is_not() {
    for case in all() {
        let found = explain(&case.world);
        let lease = case.world.leases.iter().flat_map(|all| all.iter()).next();
        let is_led = lease.is_none_or(|lease| lease.renewed.as_ref().unwrap().0 > time("10:05:00"));
        let is_well = matches!(found.state, State::Running | State::Ready | State::Waiting);
        if found.advice.contains("Nothing is wrong") {
            assert!(
                is_led && is_well && found.blocker.is_none(),
                "{}",
                case.name
            );
            assert!(
                found.notes.is_empty() || case.name == "running-new-version",
                "{}",
                case.name
            );
        }
    }
}

/// A command that an on-call engineer pastes must not leak secrets, destroy data, or fail in a
/// cluster without a kind.
#[test]
fn no_command_is_dangerous_or_does_not_do_what_it_says() {
    for case in all() {
        let found = explain(&case.world);
        for command in &found.next_steps {
            let run = &command.command;
            for bad in [
                "--from-literal",
                "password",
                "delete node",
                "configurations,",
            ] {
                assert!(!run.contains(bad), "{}: {run}", case.name);
            }
            let asks_who = command.description.contains("managedFields");
            assert!(!asks_who || run.contains("--show-managed-fields"), "{run}");
            let run_of = case.world.run.as_ref();
            // A DocsRun can be repeated as a new one after it has ended.
            let is_cancelled = run_of.is_some_and(|run| run.cancel && run.docs.is_none());
            assert!(
                !(is_cancelled && run.starts_with("orc retry")),
                "{}",
                case.name
            );
        }
        let changes = |run: &str| {
            ["kubectl taint", "kubectl uncordon", "kubectl delete job"]
                .iter()
                .any(|start| run.starts_with(start))
        };
        let first = found.next_steps.first().unwrap();
        assert!(!changes(&first.command), "{}: look first", case.name);
    }
}

fn time(clock: &str) -> Timestamp {
    crate::build::at(clock).parse().unwrap()
}

/// Checks the same for Tenants.
#[test]
fn the_times_of_tenants_are_possible() {
    for case in all() {
        let Some(tenant) = &case.world.tenant else {
            continue;
        };
        let name = case.name;
        let created = tenant.meta.created.as_ref().unwrap();
        let Some(written) = &tenant.status.progress.last_updated else {
            continue;
        };
        assert!(
            written >= created && *written <= case.world.now,
            "{name}: {written:?}"
        );
        let deleting = tenant.meta.deleting.as_ref();
        assert!(deleting.is_none_or(|at| at >= created), "{name}");
        let ready = tenant.status.progress.condition("Ready");
        if ready.is_some_and(|known| known.reason.starts_with("Delet")) {
            assert!(deleting.is_some_and(|at| at <= written), "{name}");
        }
        for pod in &case.world.pods {
            assert!(pod.meta.created.as_ref().unwrap() >= created, "{name}");
        }
        for lease in case.world.leases.iter().flat_map(|all| all.iter()) {
            assert!(
                lease.renewed.as_ref().unwrap() >= written,
                "{name}: written by an operator that was gone"
            );
        }
    }
}

/// A world with an impossible order of times would be a useless test.
#[test]
fn the_worlds_times_are_possible() {
    for case in all() {
        let Some(run) = &case.world.run else { continue };
        let status = &run.status;
        let Some(written) = &status.progress.last_updated else {
            continue;
        };
        let name = case.name;
        let now = &case.world.now;
        assert!(
            written >= run.meta.created.as_ref().unwrap() && written <= now,
            "{name}"
        );
        let result = status.result.as_ref();
        let known = [
            result.and_then(|result| result.finished_at.as_ref()),
            result.and_then(|result| result.started_at.as_ref()),
            status.finished_at.as_ref(),
            status.started_at.as_ref(),
            status
                .pod
                .as_ref()
                .and_then(|pod| pod.disrupted_at.as_ref()),
        ];
        for at in known.into_iter().flat_map(Option::into_iter) {
            assert!(
                written >= at,
                "{name}: the status knows what comes later: {at:?}"
            );
        }
        for lease in case.world.leases.iter().flat_map(|all| all.iter()) {
            let renewed = lease.renewed.as_ref().unwrap();
            assert!(
                renewed >= written,
                "{name}: written by an operator that was gone"
            );
        }
        for pod in &case.world.pods {
            let created = pod.meta.created.as_ref().unwrap();
            assert!(
                created >= run.meta.created.as_ref().unwrap(),
                "{name}: a Pod before its run"
            );
            assert!(
                pod.meta.deleting.as_ref().is_none_or(|at| at >= created),
                "{name}"
            );
        }
    }
}
