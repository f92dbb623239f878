//! Agents: as the target of the question, and as the blocker of a run.

use super::*;

impl<'a> Explain<'a> for Agent<'a> {
    fn find(self) -> Finding {
        secrets(self, stand(self))
    }
}

impl<'a> Agent<'a> {
    /// Returns the objects that the Agent needs and that do not exist: those that only its runs wait
    /// for, or those that count for its readiness.
    fn missing(self, of_runs: bool) -> Vec<&'a Need> {
        let needs = self.view.needs.iter();
        let is_of_runs = |need: &&Need| {
            let kind = need.kind.as_str();
            matches!(kind, "Secret" | "ConfigMap" | "PersistentVolumeClaim")
        };
        let of_kind = needs.filter(|need| is_of_runs(need) == of_runs);
        of_kind
            .filter(|need| self.exists(&need.kind, &need.name) == Some(false))
            .collect()
    }

    fn create(self, need: &Need) -> Command {
        commands::create(&need.kind, &need.name, need.key.as_deref(), self.namespace)
    }
}

fn names(needs: &[&Need]) -> Vec<String> {
    let needs = needs.iter();
    needs
        .map(|need| format!("{} '{}'", need.kind, need.name))
        .collect()
}

/// Returns the Agent's own link, followed by the missing objects.
fn stand(agent: Agent<'_>) -> Finding {
    if let Some(finding) = faults::undecodable(*agent).or_else(|| operator::not_seen(*agent)) {
        return finding;
    }
    let (name, within, ready) = (agent.name(), agent.namespace, agent.main());
    let since = ready.map(|ready| &ready.last_transition_time);
    let says_ready = ready.is_some_and(|ready| ready.status == "True");
    let own = |health: Health, sentence: &str| {
        link! { (health) agent.object(), agent.main_reason(), (sentence); since since;
            seen ready.map(Evidence::of);
        }
    };
    let missing = agent.missing(false);
    let names = names(&missing);
    let Some((first, rest)) = missing.split_first() else {
        return match says_ready {
            true => finding! { Ready "";
                link own(Health::Ok, "is ready: everything that it names exists");
                then commands::list("TaskRun", within, "the runs of this namespace");
            },
            false => finding! {
                Waiting "Wait: everything that Agent '{name}' names exists by now. If it is not ready in a minute, look into the operator's log.";
                link own(Health::Waiting, "is not ready yet, though everything that it names exists by now");
                newer; then agent.look_again(), operator::log(agent.world);
            },
        };
    };
    let create = match names.as_slice() {
        [one] => format!("Create {one}"),
        [one, other] => format!("Create both: {one} and {other}"),
        more => format!("Create all of these: {}", more.join(", ")),
    };
    let place = place(&missing, within);
    // The missing objects do not depend on each other, so the chain ends with one link for all of
    // them.
    let mut deepest = absent(agent, first).since(since);
    for need in rest {
        let more =
            text! { "; {} '{}' ('{}') does not exist either", need.kind, need.name, need.role };
        deepest.message.push_str(&more);
    }
    let mut finding = finding! {
        Blocked "{create}{place}, or name another in Agent '{name}'; it becomes ready by itself within seconds.";
        link own(Health::Waiting, &format!("is not ready: missing {}", names.join(", ")));
        link deepest;
    };
    finding.next = missing.iter().map(|need| agent.create(need)).collect();
    finding.is_newer = says_ready;
    finding.then(agent.edit("or name another"))
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

fn absent(agent: Agent<'_>, need: &Need) -> Link {
    let thing = match need.kind.as_str() {
        "ServiceAccount" => agent.here(&need.kind, &need.name),
        _ => ObjectRef::cluster(&need.kind, &need.name),
    };
    link! { Error thing, Reason::DependencyNotReady, "does not exist, and the Agent's '{}' names it", need.role;
        seen agent.not_found();
    }
}

/// Reports missing Secrets, ConfigMaps and PersistentVolumeClaims. Readiness ignores them, but a missing one blocks every
/// run.
fn secrets(agent: Agent<'_>, mut finding: Finding) -> Finding {
    let gone = agent.missing(true);
    if finding.state == State::Ready
        && let Some(first) = gone.first()
    {
        let (names, within) = (names(&gone).join(", "), agent.namespace);
        finding.advice = text! { "Create {names} in namespace '{within}' before the next run: it will wait for it." };
        finding.next.insert(0, agent.create(first));
        if let Some(link) = finding.links.first_mut() {
            link.health = Health::Waiting;
            link.message = text! { "is ready, but {names} does not exist: runs will wait for it (Secrets, ConfigMaps and volume claims do not count for readiness)" };
        }
        return finding.newer();
    }
    for need in gone {
        finding = finding.note(text! { "{} '{}' (the Agent's '{}') does not exist: runs of this Agent will wait for it", need.kind, need.name, need.role });
    }
    finding
}

/// Explains a run without a Job that waits for its Agent.
pub(super) fn blocking(run: Run<'_>) -> Option<Finding> {
    let (name, within) = (&run.view.agent_name, run.namespace);
    let said = run.reason();
    let is_said = matches!(said, Some(Reason::AgentNotFound | Reason::AgentNotReady));
    let is_early = run.status().result.is_none() && run.status().job_name.is_none();
    if !(is_said || is_early) || run.job().is_some() {
        return None;
    }
    let Some(agent) = &run.world.agent else {
        if run.exists("Agent", name) != Some(false) {
            return None;
        }
        let deadline = run.progress.deadline_at.as_ref();
        let until = deadline.map_or_else(String::new, |deadline| {
            let until = times::clock(run.world.now.0, deadline.0);
            format!(" (it waits until {until})")
        });
        return Some(finding! {
            Blocked "Create Agent '{name}': the run starts by itself then{until}. If the name is wrong, delete the run and submit it again: 'agentName' cannot be changed.";
            Error run.agent(), Reason::AgentNotFound, "does not exist in namespace '{within}'";
            since run.meta.created.as_ref(); seen run.not_found();
            then commands::list("Agent", within, "the Agents that exist here");
            shell "kubectl apply -n {within} -f <AGENT.yaml>" => "create Agent '{name}'";
            then run.object().delete("or give the run up, if the name is wrong");
        });
    };
    let mut finding = stand(Agent::new(run.world, agent));
    // The finding may contradict the Agent's status but agree with the run's status.
    finding.is_newer = false;
    if finding.state != State::Ready {
        return Some(finding);
    }
    // The run waited for the Agent, and the Agent is ready now. The operator continues in a moment.
    if !is_said {
        return None;
    }
    if let Some(link) = finding.links.last_mut() {
        "ReadyNow".clone_into(&mut link.reason);
        "exists and is ready by now".clone_into(&mut link.message);
        link.since = None;
    }
    finding.state = State::Waiting;
    finding.advice = text! { "Wait: Agent '{name}' can be used by now, and the run starts by itself. If it has not started in a minute, look at the operator." };
    finding.next = vec![run.look_again()];
    Some(finding.newer().then(operator::log(run.world)))
}
