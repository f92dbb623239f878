//! The agent contract, from the tables that Jobs are built from.

use anyhow::{Context, Result};
use api::tasks::AgentSpec;
use serde_json::json;
use tasks::build::contract::{
    CONTAINER, ENVIRONMENT, EXIT_CODES, GRACE_SECONDS, MOUNTS, Mount, RESERVED, RESULT_FILE,
    RESULT_LIMIT, RESULTS, Rule, STOPPING, Variable, WORKSPACE,
};

use super::{
    Output,
    markdown::{cell, code, page, table},
};

pub(super) fn output() -> Result<Output> {
    let agent: AgentSpec = serde_json::from_value(json!({ "image": "any" }))
        .context("an Agent needs more than an image")?;
    Ok(Output::reference("agent-contract", text(&agent)))
}

/// `agent` has the defaults.
fn text(agent: &AgentSpec) -> String {
    let mut text = page("The agent contract");
    let mut section = |title: &str, paragraphs: &[String], table: &str, after: &[String]| {
        text.push_str(&format!("\n## {title}\n"));
        text.push_str(&paragraphs.join("\n\n"));
        if !table.is_empty() {
            text.push_str(&format!("\n\n{}", table.trim_end()));
        }
        for paragraph in after {
            text.push_str(&format!("\n\n{paragraph}"));
        }
        text.push('\n');
    };
    section(
        "What an agent is",
        &[format!(
            "An agent is a program in a container. It reads files, does its work, may return results, and ends. \
                 The container is called `{CONTAINER}`; its exit is what counts. `examples/agents/shell.yaml` \
                 of the sources keeps all of this in 30 lines of shell."
        )],
        "",
        &[],
    );
    section(
        "Environment",
        &["Set before the Agent's own `env`, which may refer to them as `$(NAME)`. `envFrom` cannot replace them.".to_owned()],
        &environment(),
        &[format!("Names that begin with `{RESERVED}` are ours; an Agent that sets one is refused.")],
    );
    section(
        "Folders",
        &[format!("The program starts in `{WORKSPACE}`.")],
        &mounts(agent),
        &[
            format!(
                "It runs as user and group `runAsUser` of the Agent ({} by default), never as root, without capabilities and \
                 without a way to more rights. All of it satisfies Pod Security `restricted`. Elsewhere it may write what the image \
                 lets that user write; nothing of it outlives the container.",
                agent.run_as_user
            ),
            "A token of the ServiceAccount is there only with `automountToken: true`.".to_owned(),
            "`volumes` of the Agent adds Secrets, ConfigMaps and PersistentVolumeClaims, read-only by default.".to_owned(),
        ],
    );
    section(
        "Results",
        &[format!(
            "Results are one JSON object, written to `{RESULT_FILE}` (`ORCHESTRATOR_RESULT_FILE`), at most {} bytes. \
             **They are public to everyone who can read the run**: no secrets.",
            RESULT_LIMIT.saturating_sub(1)
        )],
        &rules("when", "what we conclude", RESULTS),
        &["Larger things belong where the agent can put them: a repository, a bucket. Return their address.".to_owned()],
    );
    section(
        "Exit codes",
        &["A success needs a proof: exit code 0, read from the container, and the results that the Agent requires.".to_owned()],
        &rules("exit code", "what we conclude", EXIT_CODES),
        &["A failed attempt is repeated as the `retry` of the run or the Agent says, in a new Pod with empty folders.".to_owned()],
    );
    section(
        "Stopping",
        &[format!(
            "A program that is asked to stop gets SIGTERM and has {GRACE_SECONDS} seconds. A shell that is the container's \
             first program ignores SIGTERM unless it sets a `trap`, and then hears of it only between commands: let it `wait` for its work."
        )],
        &rules("when", "then", STOPPING),
        &[],
    );
    section(
        "Being started again",
        &[
            "**The same work may be started more than once.** A drained or lost node, an eviction, a deleted Pod use no attempt: \
             the agent is started again in a new Pod, with the same files, the same `ORCHESTRATOR_ATTEMPT` and empty folders. \
             A run that is suspended while its agent runs stops it, by SIGTERM as above; when it is resumed, the attempt starts from \
             its beginning. Kubernetes itself may, rarely, start a container twice.".to_owned(),
            "So make the work idempotent. `ORCHESTRATOR_UID` and `ORCHESTRATOR_CONTEXT_VERSION` together are the same for each start \
             of the same work, and different for any other: use them as the key of what must happen once (a branch's name, a request's \
             idempotency key), and look whether it has happened before you do it. `ORCHESTRATOR_RUN` is for people: another run may \
             have the name later. What must not be lost between two starts belongs outside the Pod.".to_owned(),
        ],
        "",
        &[],
    );
    section(
        "Logs",
        &[
            "What the program writes to its output and error output is its log: `kubectl logs job/NAME`, with `status.jobName` of the \
             run. **Logs live as long as the Pod**: it goes some time after the end (`childTTL` of the run, or the operator's \
             `cleanup`), and at once when the run is deleted or suspended, or when the agent is started again elsewhere. A deadline, a cancel \
             and the next version of the context keep it. What must stay belongs into the results.".to_owned(),
        ],
        "",
        &[],
    );
    text
}

fn environment() -> String {
    let rows: Vec<[String; 2]> = ENVIRONMENT
        .iter()
        .map(
            |Variable {
                 name,
                 meaning,
                 value: _,
             }| [code(name), cell(meaning)],
        )
        .collect();
    table(["variable", "what it holds"], &rows)
}

fn mounts(agent: &AgentSpec) -> String {
    let rows: Vec<[String; 3]> = MOUNTS
        .iter()
        .map(
            |Mount {
                 volume: _,
                 meaning,
                 read_only,
                 path,
             }| {
                let access = if *read_only { "read only" } else { "writable" };
                [code(path(agent)), access.to_owned(), cell(meaning)]
            },
        )
        .collect();
    table(["folder (by default)", "access", "what it is"], &rows)
}

fn rules(when: &str, then: &str, rules: &[Rule]) -> String {
    let rows: Vec<[String; 2]> = rules
        .iter()
        .map(|Rule { when, then }| [cell(when), cell(then)])
        .collect();
    table([when, then], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_contract_is_on_the_page() {
        let text = output().unwrap().text;
        for variable in ENVIRONMENT {
            assert!(text.contains(&code(variable.name)), "{}", variable.name);
        }
        for mount in MOUNTS {
            assert!(text.contains(&cell(mount.meaning)), "{}", mount.volume);
        }
        for rule in RESULTS.iter().chain(EXIT_CODES).chain(STOPPING) {
            assert!(text.contains(&cell(rule.then)), "{}", rule.when);
        }
    }
}
