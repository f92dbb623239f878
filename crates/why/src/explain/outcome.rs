//! Descriptions of the end of an attempt, by its reason.

use pods::is_permission;

use super::ended::took;
use super::*;

/// Returns the advice for a run's reason as plain text. The docs describe a reason that several
/// kinds share for all of them.
pub(super) fn plain(reason: Reason) -> String {
    let of_run = of_reason! { reason;
        ImagePullFailed => "Check the Agent's 'image' and 'imagePullSecrets'.",
        ImageNeedsRoot => "Build the image so that its program works with the Agent's 'runAsUser'.",
        ContainerNotStartable => "The message is the kubelet's. Check the Agent's 'command' and the image.",
        Unschedulable => "The message is the scheduler's. Check the Agent's 'resources', 'nodeSelector' and 'tolerations', or add a node.",
        QuotaExceeded => "Free some quota, ask for more, or lower the Agent's 'resources'.",
        AdmissionDenied => "The message is the rule's. Change the Agent, or ask who set the rule.",
        SecretNotFound => "Create it; the run goes on by itself within seconds.",
        VolumeNotReady => "The message is the kubelet's or the provisioner's. Check the Agent's 'workspace.storageClassName'.",
    };
    of_run.map_or_else(|| plain_advice(reason), str::to_owned)
}

/// The description of an end: the sentence, the advice, and an optional command that changes the
/// cause.
pub(super) type Explained = (String, String, Option<Command>);

pub(super) fn explain_outcome(run: Run<'_>, result: &RunResult, reason: Reason) -> Explained {
    let agent = run.world.agent.as_ref();
    let name = &run.view.agent_name;
    let image = agent.map_or("?", |agent| agent.image.as_str());
    let memory = agent.and_then(|agent| agent.limits.get("memory"));
    let memory = memory.map_or_else(String::new, |limit| of(run, limit));
    let required = agent.iter().flat_map(|agent| &agent.required_results);
    let missing = required.filter(|name| !result.results.contains_key(*name));
    let missing: Vec<&str> = missing.map(String::as_str).collect();
    let missing = one_of! { missing.as_slice();
        [] => "a required one";
        names => "'{}'", names.join("', '");
    };
    let (took, count) = (took(result), run.status().disruptions);
    let row = of_reason! { reason;
        NonZeroExit => exited(run, result),
        DeadlineExceeded => docs::late(run, result).unwrap_or_else(|| late(run, result)),
        OOMKilled => (format!("the agent used more memory than its limit{memory} and was killed{took}"),
            format!("Raise 'resources.limits.memory' of Agent '{name}', or let the agent use less; then run it again (orc retry)."), Some(run.edit_agent("raise 'resources.limits.memory'"))),
        ResultMissing => (format!("the agent exited with code 0, but without the result {missing}"),
            format!("Let the program of image '{image}' write {missing} into the JSON object in /dev/termination-log, or make the result optional in Agent '{name}'; then run it again (orc retry)."), Some(run.edit_agent("or make the result optional"))),
        ResultInvalid => ("what the agent wrote to /dev/termination-log is not one JSON object".to_owned(),
            format!("Have the program of image '{image}' changed (by whoever builds it): it must write one JSON object, and nothing else, to /dev/termination-log. Then run it again (orc retry)."), None),
        ResultTooLarge => ("what the agent wrote to /dev/termination-log was cut off by the kubelet, so it cannot be read".to_owned(),
            format!("Have the program of image '{image}' changed (by whoever builds it): large results go elsewhere, and only their address into /dev/termination-log. Then run it again (orc retry)."), None),
        EvidenceLost => ("ended, and its Pod was deleted before anyone could read how".to_owned(),
            "Find out what deletes finished Pods here. The agent may well have done its work: running it again (orc retry) repeats that, side effects included.".to_owned(), None),
        TooManyDisruptions => (format!("was the last of {count} that were terminated by another actor"),
            "Find out what stops its Pods: evictions, preemption, a drain that does not end. Then run it again (orc retry).".to_owned(), None),
        ContainerNotStartable => not_started(run, result),
        ImageNeedsRoot => ("the container could not be started: its image needs root".to_owned(),
            format!("{} Then run it again (orc retry).", container::user_advice(agent)), Some(run.edit_agent("name another 'image', or change 'runAsUser'"))),
        Disrupted => (format!("was terminated by another actor{took}"), plain(reason), None),
        JobLost => ("was deleted by another actor".to_owned(), plain(reason), None),
    };
    row.or_else(|| docs::explained(run, result, reason))
        .unwrap_or_else(|| {
            let sentence = match &result.message {
                Some(message) if !run.message().contains(message.as_str()) => message.clone(),
                Some(_) | None => format!("ended as {reason}"),
            };
            let advice = format!("{} Then run it again (orc retry).", plain(reason));
            (sentence, advice, None)
        })
}

/// Explains a container that the runtime could not start, in the runtime's words.
fn not_started(run: Run<'_>, result: &RunResult) -> Explained {
    let message = result.message.as_deref().unwrap_or_default();
    let words = container::last_words(message);
    let advice = match is_permission(message) {
        true => container::executable(Origin::Agent(run)),
        false => "Check the Agent's 'command', and whether its image has that program.".to_owned(),
    };
    (
        format!("the container could not be started{words}"),
        format!("{advice} Then run it again (orc retry)."),
        Some(run.edit_agent("correct 'command' or 'image'")),
    )
}

fn exited(run: Run<'_>, result: &RunResult) -> Explained {
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
    let is_command = matches!(code, 126 | 127);
    let advice = match (is_command, run.pod_of_result(result)) {
        (true, _) => format!("Check the 'command' of Agent '{}', and that its image has every program that it calls; then run it again (orc retry).", run.view.agent_name),
        (false, Some(_)) => "Read the agent's log for the cause, fix it, then run it again (orc retry).".to_owned(),
        (false, None) if !run.was_read("pods") => "Ask someone who may read its Pod for the agent's log, fix the cause, then run it again (orc retry).".to_owned(),
        (false, None) => "Its log went with its Pod: run it again (orc retry), and follow the log this time (orc logs -f).".to_owned(),
    };
    let written = result.message.as_deref().unwrap_or_default();
    let user = run.world.agent.as_ref().map(|agent| agent.user);
    let advice = advice + &permission_hint(written, user);
    let sentence = format!("the agent exited with code {code}{hint}{}", took(result));
    let change = is_command.then(|| run.edit_agent("check 'command' and 'image'"));
    (sentence, advice, change)
}

/// Returns a hint if a permission was denied to the agent, as far as it wrote that into its termination
/// message. Its log is not read. `user` is the number of its user, which is never root.
fn permission_hint(written: &str, user: Option<i64>) -> String {
    if !is_permission(written) {
        return String::new();
    }
    one_of! { user.filter(|user| *user > 0);
        Some(user) => " The agent may lack permission for a file or a port: it runs as user {user}, and never as root (Agent field 'runAsUser').";
        None => " The agent may lack permission for a file or a port: it never runs as root (Agent field 'runAsUser').";
    }
}

/// Formats the limit as ` of 2m`, unless it was changed after the failed attempt.
fn of(run: Run<'_>, limit: &str) -> String {
    let mut words = run.message().split([' ', ';']);
    match words.any(|word| word == limit) {
        true => format!(" of {limit}"),
        false => format!(" (it is {limit} now)"),
    }
}

/// Explains a timeout. The run's own timeout overrides the Agent's.
fn late(run: Run<'_>, result: &RunResult) -> Explained {
    let words = |seconds: u64| times::span(i64::try_from(seconds).unwrap_or(i64::MAX));
    let (kind, name, within) = (run.kind, run.name(), run.namespace);
    let (limit, whose, change) = match (run.view.timeout_seconds, &run.world.agent) {
        (Some(own), _) => (
            format!("this run's own 'timeout'{}", of(run, &words(own))),
            format!("{kind} '{name}' (it overrides the Agent's)"),
            Some(shell! {
                "kubectl patch {} {name} -n {within} --type=merge -p '{{\"spec\":{{\"timeout\":\"<DURATION>\"}}}}'", commands::resource(kind)
                    => "raise this run's 'timeout' above {}", words(own)
            }),
        ),
        (None, Some(agent)) => (
            text! { "the Agent's 'timeout'{}", of(run, &words(agent.timeout_seconds)) },
            format!("Agent '{}'", agent.meta.name),
            Some(run.edit_agent("raise 'timeout'")),
        ),
        (None, None) => (
            "its 'timeout'".to_owned(),
            "the run or its Agent".to_owned(),
            None,
        ),
    };
    let log = run.pod_of_result(result).filter(|pod| pod.has_log());
    let start = match log {
        Some(_) => "Read the agent's log for the cause of the delay. Then raise",
        None => "Raise",
    };
    // Many programs exit with code 0 after SIGTERM.
    let code = match result.exit_code {
        Some(0) => "; it ended with exit code 0 after it was stopped",
        Some(_) | None => "",
    };
    (
        text! { "the agent did not end within {limit} and was stopped{}{code}", took(result) },
        text! { "{start} 'timeout' of {whose}, or find out what the agent waited for; then run it again (orc retry)." },
        change,
    )
}

#[cfg(test)]
mod tests {
    use super::permission_hint;

    #[test]
    fn a_denied_permission_may_be_of_the_user() {
        let of_user = " The agent may lack permission for a file or a port: it runs as user 65532, and never as root (Agent field 'runAsUser').";
        let unknown = " The agent may lack permission for a file or a port: it never runs as root (Agent field 'runAsUser').";
        let cases = [
            ("mkdir: /data: Permission denied", Some(65532), of_user),
            ("bind: permission denied", Some(65532), of_user),
            ("bind: permission denied", None, unknown),
            ("the tests are red", Some(65532), ""),
            ("", Some(65532), ""),
        ];
        for (written, user, expected) in cases {
            assert_eq!(permission_hint(written, user), expected, "{written}");
        }
    }
}
