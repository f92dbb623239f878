//! O0: nothing says that it ended well, or can be used, unless that is so.

use api::{names, status::condition};
use serde_json::Value;

use super::{DONE, Evidence, agent_end, is_run, which};
use crate::faults::object_history::{Change, Seen};

pub(super) fn false_greens(evidence: &Evidence<'_>) -> Vec<String> {
    let mut words = Vec::new();
    for seen in evidence.seen {
        let kind = if is_run(seen) {
            condition::SUCCEEDED
        } else if seen.resource == "agents" {
            condition::READY
        } else {
            continue;
        };
        if !seen.is_true(kind) {
            continue;
        }
        let borne_out = match seen.resource.as_str() {
            "agents" => has_account(evidence.seen, seen),
            _ if is_restored(evidence.seen, seen) => Ok(()),
            _ => ended_well(evidence, seen),
        };
        let borne_out = borne_out.and_then(|()| (evidence.bears_out)(seen));
        if let Err(why) = borne_out {
            words.push(format!("{} says {kind}=True, but {why}", which(seen)));
        }
    }
    words
}

/// A Pod of this run and of this version of its context, written before the claim, and the word of
/// the agent itself.
fn ended_well(evidence: &Evidence<'_>, run: &Seen) -> Result<(), String> {
    let version = run.object["status"]["contextVersion"].as_i64();
    let is_its_own = |pod: &&Seen| {
        pod.resource == "pods"
            && pod.label(names::UID) == Some(&run.uid)
            && version.is_none_or(|version| {
                pod.label(names::CONTEXT_VERSION) == Some(&version.to_string())
            })
    };
    // After a DocsRun's agent comes the push: the whole Pod must have ended.
    let is_over =
        |pod: &Seen| run.resource != "docsruns" || pod.object["status"]["phase"] == "Succeeded";
    let is_before =
        |pod: &&Seen| pod.version < run.version && agent_end(pod) == Some(0) && is_over(pod);
    if !evidence
        .seen
        .iter()
        .filter(is_its_own)
        .any(|pod| is_before(&pod))
    {
        return Err(format!(
            "before it no Pod of it{} had its container '{}' ended with 0",
            version.map_or_else(String::new, |version| format!(" and its version {version}")),
            super::AGENT
        ));
    }
    let told = evidence
        .effects
        .iter()
        .any(|effect| effect.uid == run.uid && effect.what == DONE && effect.at <= run.at);
    if !told {
        return Err(format!("its agent had not told '{DONE}'"));
    }
    Ok(())
}

/// The ServiceAccount that it names was there. The one that each namespace has is older than the play.
/// A claim about an older spec was judged when that was the spec.
fn has_account(all: &[Seen], agent: &Seen) -> Result<(), String> {
    let observed = &agent.object["status"]["observedGeneration"];
    if *observed != agent.object["metadata"]["generation"] {
        return Ok(());
    }
    let name = agent.object["spec"]["serviceAccountName"].as_str();
    let Some(name) = name.filter(|name| *name != "default") else {
        return Ok(());
    };
    let last = all
        .iter()
        .filter(|one| one.resource == "serviceaccounts" && one.name == name)
        .filter(|one| one.version < agent.version)
        .max_by_key(|one| one.version);
    match last {
        Some(account) if account.change != Change::Deleted => Ok(()),
        Some(_) | None => Err(format!("before it there was no ServiceAccount '{name}'")),
    }
}

/// A run that came into the cluster with the word of how it ended elsewhere.
fn is_restored(all: &[Seen], run: &Seen) -> bool {
    let first = all
        .iter()
        .filter(|one| one.resource == run.resource && one.uid == run.uid)
        .min_by_key(|one| one.version);
    let Some(text) =
        first.and_then(|first| first.object["metadata"]["annotations"][names::OUTCOME].as_str())
    else {
        return false;
    };
    let Ok(outcome) = serde_json::from_str::<Value>(text) else {
        return false;
    };
    let claimed = run.object["status"]["contextVersion"].as_i64().unwrap_or(1);
    outcome["outcome"] == "Succeeded"
        && outcome["version"]
            .as_i64()
            .is_some_and(|version| version >= claimed)
}
