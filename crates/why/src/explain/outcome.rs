//! Descriptions of the end of an attempt, by its reason.

use api::{Reason, tasks::Evidence as RunResult};

use super::{commands, docs, ended::took, plain, run_context::RunContext};
use crate::{explanation::Command, times};

/// The description of an end: the sentence, the advice, and an optional command that changes the
/// cause.
pub(super) struct Explained {
    pub(super) sentence: String,
    pub(super) advice: String,
    pub(super) change: Option<Command>,
}

pub(super) fn explain_outcome(
    context: RunContext<'_>,
    result: &RunResult,
    reason: Reason,
) -> Explained {
    let explained = |sentence: String, advice: String, change| Explained {
        sentence,
        advice,
        change,
    };
    let edit = |purpose: &str| Some(commands::edit_agent(context, purpose));
    let agent = context.world.agent.as_ref();
    let name = &context.run.agent_name;
    if reason == Reason::NonZeroExit {
        return exited(context, result);
    }
    if reason == Reason::OOMKilled {
        let limit = agent.and_then(|agent| agent.limits.get("memory"));
        let limit = limit.map_or_else(
            || "its limit".to_owned(),
            |limit| format!("its limit{}", of(context, limit)),
        );
        return explained(
            format!(
                "the agent used more memory than {limit} and was killed{}",
                took(result)
            ),
            format!(
                "Raise 'resources.limits.memory' of Agent '{name}', or let the agent use less; then run it again (orc retry)."
            ),
            edit("raise 'resources.limits.memory'"),
        );
    }
    if reason == Reason::DeadlineExceeded {
        if let Some(explained) = docs::late(context, result) {
            return explained;
        }
        return late(context, result);
    }
    if reason == Reason::ResultMissing {
        let missing: Vec<&str> = agent
            .iter()
            .flat_map(|agent| &agent.required_results)
            .filter(|name| !result.results.contains_key(*name))
            .map(String::as_str)
            .collect();
        let missing = if missing.is_empty() {
            "a required one".to_owned()
        } else {
            format!("'{}'", missing.join("', '"))
        };
        return explained(
            format!("the agent exited with code 0, but without the result {missing}"),
            format!(
                "Let the program of image '{}' write {missing} into the JSON object in /dev/termination-log, or make the result optional in Agent '{name}'; then run it again (orc retry).",
                agent.map_or("?", |agent| agent.image.as_str())
            ),
            edit("or make the result optional"),
        );
    }
    if reason == Reason::ResultInvalid {
        return explained(
            "what the agent wrote to /dev/termination-log is not one JSON object".to_owned(),
            format!(
                "Have the program of image '{}' changed (by whoever builds it): it must write one JSON object, and nothing else, to /dev/termination-log. Then run it again (orc retry).",
                agent.map_or("?", |agent| agent.image.as_str())
            ),
            None,
        );
    }
    if reason == Reason::ResultTooLarge {
        return explained(
            "what the agent wrote to /dev/termination-log was cut off by the kubelet, so it cannot be read".to_owned(),
            format!(
                "Have the program of image '{}' changed (by whoever builds it): large results go elsewhere, and only their address into /dev/termination-log. Then run it again (orc retry).",
                agent.map_or("?", |agent| agent.image.as_str())
            ),
            None,
        );
    }
    if reason == Reason::EvidenceLost {
        return explained(
            "ended, and its Pod was deleted before anyone could read how".to_owned(),
            "Find out what deletes finished Pods here. The agent may well have done its work: running it again (orc retry) repeats that, side effects included.".to_owned(),
            None,
        );
    }
    if reason == Reason::TooManyDisruptions {
        return explained(
            format!("was the last of {} that were terminated by another actor", context.status().disruptions),
            "Find out what stops its Pods: evictions, preemption, a drain that does not end. Then run it again (orc retry).".to_owned(),
            None,
        );
    }
    if reason == Reason::Disrupted {
        return explained(
            format!("was terminated by another actor{}", took(result)),
            plain(reason),
            None,
        );
    }
    if reason == Reason::JobLost {
        return explained(
            "was deleted by another actor".to_owned(),
            plain(reason),
            None,
        );
    }
    if let Some(explained) = docs::explained(context, result, reason) {
        return explained;
    }
    let sentence = match &result.message {
        Some(message) if !context.message().contains(message.as_str()) => message.clone(),
        Some(_) | None => "ended so; the first lines say why".to_owned(),
    };
    let change = matches!(
        reason,
        Reason::ImageNeedsRoot | Reason::ContainerNotStartable
    );
    explained(
        sentence,
        format!("{} Then run it again (orc retry).", plain(reason)),
        if change { edit("correct it") } else { None },
    )
}

fn exited(context: RunContext<'_>, result: &RunResult) -> Explained {
    let code = result.exit_code.unwrap_or_default();
    let hint = match code {
        126 => " (126: the program is not executable)",
        127 => " (127: a program was not found)",
        134 => " (134: it aborted)",
        137 => " (137: it was killed)",
        139 => " (139: it crashed)",
        143 => " (143: it was told to stop)",
        _ => "",
    };
    let is_there = context.pod_of_result(result).is_some();
    let is_command = matches!(code, 126 | 127);
    let advice = match (is_command, is_there) {
        (true, _) => format!(
            "Check the 'command' of Agent '{}', and that its image has every program that it calls; then run it again (orc retry).",
            context.run.agent_name
        ),
        (false, true) => {
            "Read the agent's log for the cause, fix it, then run it again (orc retry).".to_owned()
        }
        (false, false) => {
            "Its log went with its Pod: run it again (orc retry), and follow the log this time (orc logs -f)."
                .to_owned()
        }
    };
    Explained {
        sentence: format!("the agent exited with code {code}{hint}{}", took(result)),
        advice,
        change: is_command.then(|| commands::edit_agent(context, "check 'command' and 'image'")),
    }
}

/// Formats the limit as ` of 2m`, unless it was changed after the failed attempt.
fn of(context: RunContext<'_>, limit: &str) -> String {
    if context
        .message()
        .split([' ', ';'])
        .any(|word| word == limit)
    {
        format!(" of {limit}")
    } else {
        format!(" (it is {limit} now)")
    }
}

/// Explains a timeout. The run's own timeout overrides the Agent's.
fn late(context: RunContext<'_>, result: &RunResult) -> Explained {
    let words = |seconds: u64| times::span(i64::try_from(seconds).unwrap_or(i64::MAX));
    let (kind, name) = (context.kind(), &context.run.meta.name);
    let find = "or find out what the agent waited for";
    let (limit, advice, change) = match (context.run.timeout_seconds, &context.world.agent) {
        (Some(own), _) => (
            format!("this run's own 'timeout'{}", of(context, &words(own))),
            format!(
                "Raise 'timeout' of {kind} '{name}' (it overrides the Agent's), {find}; then run it again (orc retry)."
            ),
            Some(Command::new(
                format!(
                    "kubectl patch {} {name} -n {} --type=merge -p '{{\"spec\":{{\"timeout\":\"<DURATION>\"}}}}'",
                    commands::resource(kind),
                    context.namespace()
                ),
                format!("raise this run's 'timeout' above {}", words(own)),
            )),
        ),
        (None, Some(agent)) => (
            format!(
                "the Agent's 'timeout'{}",
                of(context, &words(agent.timeout_seconds))
            ),
            format!(
                "Raise 'timeout' of Agent '{}', {find}; then run it again (orc retry).",
                agent.meta.name
            ),
            Some(commands::edit_agent(context, "raise 'timeout'")),
        ),
        (None, None) => (
            "its 'timeout'".to_owned(),
            format!(
                "Raise 'timeout' of the run or its Agent, {find}; then run it again (orc retry)."
            ),
            None,
        ),
    };
    Explained {
        sentence: format!(
            "the agent did not end within {limit} and was stopped{}",
            took(result)
        ),
        advice,
        change,
    }
}
