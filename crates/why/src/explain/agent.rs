//! Agents: as the target of the question, and as the blocker of a run.

use api::{Reason, status::condition};

use super::{
    Finding, Summary, commands, conclude,
    operator::{self, Looked},
    run_context::{RunContext, exists},
};
use crate::{
    explanation::{Command, Explanation, Health, Link, NoteKind, State},
    world::{AgentView, Need, ObjectRef, World},
};

fn object(agent: &AgentView) -> ObjectRef {
    ObjectRef::namespaced("Agent", &agent.meta.namespace, &agent.meta.name)
}

/// Explains why an Agent is or is not ready.
pub(super) fn explain(world: &World, agent: &AgentView) -> Explanation {
    let progress = &agent.status.progress;
    let ready = progress.condition(condition::READY);
    let summary = Summary {
        text: progress
            .message
            .clone()
            .unwrap_or_else(|| "the Agent has no status yet".to_owned()),
        reason: ready.map_or_else(|| "NotSeen".to_owned(), |ready| ready.reason.clone()),
        since: ready.map(|ready| ready.last_transition_time.clone()),
        written: progress.last_updated.clone(),
    };
    let finding = unreadable(world, agent)
        .or_else(|| not_seen(world, agent))
        .unwrap_or_else(|| stand(world, agent));
    let finding = secrets(world, agent, finding);
    conclude(
        world,
        &object(agent),
        summary,
        operator::needed(world, finding),
    )
}

fn unreadable(world: &World, agent: &AgentView) -> Option<Finding> {
    let error = agent.undecodable.as_ref()?;
    let link = Link::new(
        object(agent),
        Health::Error,
        Reason::Undecodable,
        format!("does not fit the schema that this release knows: {error}"),
    );
    Some(
        Finding::new(
            State::Blocked,
            format!("Look in Agent '{}' for the value that the words above name, and correct it. It was probably stored through another version of the CRD.", agent.meta.name),
        )
        .link(link.seen("spec", error, Some(&world.now)))
        .then(commands::edit(&object(agent), "correct the value")),
    )
}

fn not_seen(world: &World, agent: &AgentView) -> Option<Finding> {
    let looked = Looked {
        kind: "Agent",
        meta: &agent.meta,
        observed: agent.status.progress.observed_generation,
        changed: agent.changed.as_ref(),
    };
    operator::not_seen(world, &looked)
}

/// Returns the Agent's own link, followed by the missing objects.
fn stand(world: &World, agent: &AgentView) -> Finding {
    let ready = agent.status.progress.condition(condition::READY);
    let says_ready = ready.is_some_and(|ready| ready.status == "True");
    let missing = missing(world, agent);
    let link = |health, sentence: &str| {
        let reason = ready.map_or("NotSeen", |ready| ready.reason.as_str());
        let link = Link::new(object(agent), health, reason, sentence)
            .since(ready.map(|ready| &ready.last_transition_time));
        match ready {
            Some(ready) => link.seen(
                format!("condition Ready={} ({})", ready.status, ready.reason),
                &ready.message,
                Some(&ready.last_transition_time),
            ),
            None => link,
        }
    };
    if missing.is_empty() {
        return if says_ready {
            Finding::new(State::Ready, "Nothing is wrong: runs can use it.")
                .link(link(
                    Health::Ok,
                    "is ready: everything that it names exists",
                ))
                .then(commands::list(
                    "TaskRun",
                    &agent.meta.namespace,
                    "the runs of this namespace",
                ))
        } else {
            Finding::new(
                State::Waiting,
                format!("Wait: everything that Agent '{}' names exists by now. If it is not ready in a minute, look into the operator's log.", agent.meta.name),
            )
            .link(link(Health::Waiting, "is not ready yet, though everything that it names exists by now"))
            .newer()
                .then(commands::again(
                    "Agent",
                    &agent.meta.name,
                    &agent.meta.namespace,
                ))
                .maybe(operator::log(world))
        };
    }
    let names: Vec<String> = missing
        .iter()
        .map(|need| format!("{} '{}'", need.kind, need.name))
        .collect();
    let create = match names.as_slice() {
        [one] => format!("Create {one}"),
        [one, other] => format!("Create both: {one} and {other}"),
        more => format!("Create all of these: {}", more.join(", ")),
    };
    let mut finding = Finding::new(
        State::Blocked,
        format!(
            "{create}{}, or name another in Agent '{}'; it becomes ready by itself within seconds.",
            place(&missing, &agent.meta.namespace),
            agent.meta.name
        ),
    )
    .link(link(
        Health::Waiting,
        &format!("is not ready: missing {}", names.join(", ")),
    ));
    // The missing objects do not depend on each other, so the chain ends with one link for all of
    // them.
    if let Some((first, rest)) = missing.split_first() {
        let mut deepest = absent(world, agent, first);
        for need in rest {
            deepest.message.push_str(&format!(
                "; {} '{}' ('{}') does not exist either",
                need.kind, need.name, need.role
            ));
        }
        finding = finding.link(deepest.since(ready.map(|ready| &ready.last_transition_time)));
    }
    for need in &missing {
        finding = finding.then(commands::create(
            &need.kind,
            &need.name,
            need.key.as_deref(),
            &agent.meta.namespace,
        ));
    }
    if says_ready {
        finding = finding.newer();
    }
    finding.then(commands::edit(&object(agent), "or name another"))
}

/// Returns the namespace for the advice. Only ServiceAccounts are namespaced; classes are not.
fn place(missing: &[&Need], namespace: &str) -> String {
    let is_here = |need: &&&Need| need.kind == "ServiceAccount";
    match (missing.iter().filter(is_here).count(), missing.len()) {
        (0, _) => String::new(),
        (here, all) if here == all => format!(" in namespace '{namespace}'"),
        _ => format!(" (the ServiceAccount in namespace '{namespace}'; classes have none)"),
    }
}

fn absent(world: &World, agent: &AgentView, need: &Need) -> Link {
    let thing = match need.kind.as_str() {
        "ServiceAccount" => ObjectRef::namespaced(&need.kind, &agent.meta.namespace, &need.name),
        _ => ObjectRef::cluster(&need.kind, &need.name),
    };
    Link::new(
        thing,
        Health::Error,
        Reason::DependencyNotReady,
        format!("does not exist, and the Agent's '{}' names it", need.role),
    )
    .seen("looked for it", "not found", Some(&world.now))
}

/// Returns the missing objects on which readiness depends.
fn missing<'a>(world: &World, agent: &'a AgentView) -> Vec<&'a Need> {
    let is_missing = |need: &&Need| {
        !matches!(need.kind.as_str(), "Secret" | "ConfigMap")
            && exists(world, &need.kind, &need.name) == Some(false)
    };
    agent.needs.iter().filter(is_missing).collect()
}

/// Reports missing Secrets and ConfigMaps. Readiness ignores them, but a missing one blocks every
/// run.
fn secrets(world: &World, agent: &AgentView, mut finding: Finding) -> Finding {
    let gone = agent.needs.iter().filter(|need| {
        matches!(need.kind.as_str(), "Secret" | "ConfigMap")
            && exists(world, &need.kind, &need.name) == Some(false)
    });
    let gone: Vec<&Need> = gone.collect();
    if finding.state == State::Ready
        && let Some(first) = gone.first()
    {
        let names: Vec<String> = gone
            .iter()
            .map(|need| format!("{} '{}'", need.kind, need.name))
            .collect();
        finding.advice = format!(
            "Create {} in namespace '{}' before the next run: it will wait for it.",
            names.join(", "),
            agent.meta.namespace
        );
        let create = commands::create(
            &first.kind,
            &first.name,
            first.key.as_deref(),
            &agent.meta.namespace,
        );
        finding.next.insert(0, create);
        if let Some(link) = finding.links.first_mut() {
            link.health = Health::Waiting;
            link.message = format!(
                "is ready, but {} does not exist: runs will wait for it (Secrets and ConfigMaps do not count for readiness)",
                names.join(", ")
            );
        }
        return finding.newer();
    }
    for need in gone {
        finding = finding.note(
            NoteKind::Hint,
            format!(
                "{} '{}' (the Agent's '{}') does not exist: runs of this Agent will wait for it",
                need.kind, need.name, need.role
            ),
        );
    }
    finding
}

/// Explains a run without a Job that waits for its Agent.
pub(super) fn blocking(context: RunContext<'_>) -> Option<Finding> {
    let world = context.world;
    let name = &context.run.agent_name;
    let said = context.reason();
    let waits = matches!(said, Some(Reason::AgentNotFound | Reason::AgentNotReady))
        || (context.status().result.is_none() && context.status().job_name.is_none());
    if !waits || context.job().is_some() {
        return None;
    }
    let again = || commands::look_again(context);
    let Some(agent) = &world.agent else {
        if context.exists("Agent", name) != Some(false) {
            return None;
        }
        let link = Link::new(
            context.here("Agent", name),
            Health::Error,
            Reason::AgentNotFound,
            format!("does not exist in namespace '{}'", context.namespace()),
        )
        .since(context.run.meta.created.as_ref());
        return Some(
            Finding::new(
                State::Blocked,
                format!(
                    "Create Agent '{name}': the run starts by itself then{}. If the name is wrong, delete the run and submit it again: 'agentName' cannot be changed.",
                    until(context)
                ),
            )
            .link(link.seen("looked for it", "not found", Some(&world.now)))
            .then(commands::list("Agent", context.namespace(), "the Agents that exist here"))
            .then(Command::new(
                format!("kubectl apply -n {} -f <AGENT.yaml>", context.namespace()),
                format!("create Agent '{name}'"),
            ))
            .then(commands::delete(&context.object(), "or give the run up, if the name is wrong")),
        );
    };
    let mut finding = unreadable(world, agent)
        .or_else(|| not_seen(world, agent))
        .unwrap_or_else(|| stand(world, agent));
    // The finding may contradict the Agent's status but agree with the run's status.
    finding.is_newer = false;
    if finding.state != State::Ready {
        return Some(finding);
    }
    // The run waited for the Agent, and the Agent is ready now. The operator continues in a moment.
    if !matches!(said, Some(Reason::AgentNotFound | Reason::AgentNotReady)) {
        return None;
    }
    finding.state = State::Waiting;
    if let Some(link) = finding.links.last_mut() {
        "ReadyNow".clone_into(&mut link.reason);
        "exists and is ready by now".clone_into(&mut link.message);
        link.since = None;
    }
    finding.advice = format!(
        "Wait: Agent '{name}' can be used by now, and the run starts by itself. If it has not started in a minute, look at the operator."
    );
    finding.next = vec![again()];
    Some(finding.newer().maybe(operator::log(world)))
}

/// Formats the deadline: ` (it waits until 10:20:11Z (in 5m))`.
fn until(context: RunContext<'_>) -> String {
    let deadline = context.status().progress.deadline_at.as_ref();
    deadline.map_or_else(String::new, |deadline| {
        format!(
            " (it waits until {})",
            crate::times::clock(context.now(), deadline.0)
        )
    })
}
