//! Checks that all rows share: the line that `kubectl get -o wide` prints, and the text of `orc why`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use api::tasks::TaskRun;
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use serde_json::Value;
use testkit::{
    suite::Env,
    wait::{met, until},
};

use super::super::{fixture::Fixture, shell::Shell, tasks::Tasks};

pub(super) type Bench = Fixture<Tasks>;

/// The status and `orc why` name a cause within this time after the operator can see it.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// A Pod starts and ends within this time on a machine with much to do.
const START: Duration = Duration::from_secs(60);

/// Phrases of answers that were once wrong. No output of `orc why` may have them.
const WRONG: &[&str] = &["its words are below", "it answers me now", "tried 1 times"];

/// The cause that the line of a run must name.
pub(super) struct Cause<'a> {
    reason: &'a str,
    /// Words of the message.
    says: Vec<&'a str>,
    /// Whether a Pod of the run shows the cause to the operator. `None`: the operator can see it at once.
    visible: Option<fn(&Pod) -> bool>,
}

impl<'a> Cause<'a> {
    /// A cause that the operator can see at once.
    pub(super) fn at_once(reason: &'a str, says: &[&'a str]) -> Self {
        Self {
            reason,
            says: says.to_vec(),
            visible: None,
        }
    }

    /// A cause that the kubelet reports about the agent's container.
    pub(super) fn of_container(reason: &'a str, says: &[&'a str]) -> Self {
        Self {
            visible: Some(is_reported),
            ..Self::at_once(reason, says)
        }
    }
}

/// Returns whether the kubelet reports that the agent's container has ended or cannot start.
fn is_reported(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_ref());
    let mut states = containers
        .into_iter()
        .flat_map(|all| all.iter())
        .filter_map(|container| container.state.as_ref());
    states.any(|state| {
        let waiting = state.waiting.as_ref();
        let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
        let is_normal = matches!(reason, None | Some("ContainerCreating" | "PodInitializing"));
        state.terminated.is_some() || !is_normal
    })
}

/// The helpful part of `orc why`.
enum Help<'a> {
    /// A part of exactly one of the commands under "Next".
    Command(&'a str),
    /// A command anywhere in the output, such as in a note.
    Note(&'a str),
}

/// What `orc why` must print.
pub(super) struct Why<'a> {
    /// Words of the output.
    says: Vec<&'a str>,
    /// Words that would be wrong.
    never: Vec<&'a str>,
    help: Help<'a>,
}

impl<'a> Why<'a> {
    /// An output with these words and one command with these words.
    pub(super) fn command(says: &[&'a str], command: &'a str) -> Self {
        Self {
            says: says.to_vec(),
            never: Vec::new(),
            help: Help::Command(command),
        }
    }

    /// An output with these words and one command with these words, also in a note.
    pub(super) fn note(says: &[&'a str], command: &'a str) -> Self {
        Self {
            help: Help::Note(command),
            ..Self::command(says, "")
        }
    }

    /// The same without these words.
    pub(super) fn never(self, never: &[&'a str]) -> Self {
        Self {
            never: never.to_vec(),
            ..self
        }
    }

    /// Checks an output. Returns its blocker and the help, for the table.
    fn check(&self, output: &str) -> Result<String, String> {
        let text = flat(output);
        for words in &self.says {
            if !text.contains(words) {
                return Err(format!("no '{words}'"));
            }
        }
        for words in self.never.iter().copied().chain(WRONG.iter().copied()) {
            if text.contains(words) {
                return Err(format!("'{words}' is wrong"));
            }
        }
        let advice = advice(output);
        if advice.contains("Wait") && advice.contains("Nothing") {
            return Err("it says 'Wait' and 'Nothing'".to_owned());
        }
        let help = match self.help {
            Help::Command(words) => {
                let commands = commands(output);
                let mut fitting = commands.iter().filter(|line| line.contains(words));
                match (fitting.next(), fitting.next()) {
                    (Some(command), None) => (*command).to_owned(),
                    (None, _) => return Err(format!("no command '{words}'")),
                    (Some(_), Some(_)) => return Err(format!("'{words}' in two commands")),
                }
            }
            Help::Note(words) => match text.matches(words).count() {
                1 => words.to_owned(),
                count => return Err(format!("'{words}' {count} times")),
            },
        };
        Ok(format!("{} → {help}", blocker(output)))
    }
}

/// Text in one line: lines of the output are wrapped.
pub(super) fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The commands under "Next".
fn commands(output: &str) -> Vec<&str> {
    let after = output
        .split_once("\nNext:\n")
        .map_or("", |(_, after)| after);
    let lines = after.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

/// The text of "To do", in one line.
fn advice(output: &str) -> String {
    let after = output.split_once("\nTo do:").map_or("", |(_, after)| after);
    flat(after.split("\n\n").next().unwrap_or_default())
}

/// The object that the output marks as the cause, with its reason.
fn blocker(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    let marked = lines.iter().position(|line| line.contains('◀'));
    let upto = marked.map_or(&lines[..], |at| &lines[..=at]);
    // A marked sentence can be wrapped. Its first line has the symbol of its object.
    let start = upto.iter().rev().find_map(|line| {
        let line = line.trim_start_matches([' ', '└', '─']);
        line.strip_prefix(['✗', '○', '✓'])
    });
    let start = start.unwrap_or_default().trim();
    start
        .split_once(']')
        .map_or(start, |(object, _)| object)
        .replace('[', "")
}

/// A row of the table.
#[derive(Debug)]
pub(super) struct Seen {
    /// The printed reason, or where the cause was named instead.
    pub(super) reason: String,
    /// Seconds until it was, where the operator could name it.
    pub(super) seconds: Option<f64>,
    /// Blocker and help of `orc why`.
    pub(super) why: String,
}

/// One line of `kubectl get taskrun NAME -o wide`.
#[derive(Debug)]
pub(super) struct Printed {
    pub(super) reason: String,
    pub(super) message: String,
}

impl Printed {
    fn has(&self, cause: &Cause<'_>) -> bool {
        self.reason == cause.reason && cause.says.iter().all(|words| self.message.contains(words))
    }
}

/// Reads the line of a run: the table that the API server makes for kubectl.
pub(super) async fn printed(env: &Env, name: &str) -> Result<Printed> {
    let version = TaskRun::api_version(&());
    let namespace = &env.namespace;
    let request = Request::get(format!(
        "/apis/{version}/namespaces/{namespace}/taskruns/{name}"
    ))
    .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
    .body(Vec::new())?;
    let table: Value = env.client.request(request).await?;
    let columns = table["columnDefinitions"]
        .as_array()
        .context("a table without columns")?;
    let cell = |name: &str| {
        let at = columns.iter().position(|column| column["name"] == name);
        let at = at.with_context(|| format!("no column '{name}'"))?;
        let cell = table["rows"][0]["cells"][at].as_str();
        anyhow::Ok(cell.unwrap_or_default().to_owned())
    };
    Ok(Printed {
        reason: cell("Reason")?,
        message: cell("Message")?,
    })
}

/// Waits until the line of a run names the cause. Returns the seconds from `since`.
///
/// The limit counts from the time at which the operator can see the cause.
async fn shows(bench: &Bench, name: &str, since: Instant, cause: &Cause<'_>) -> Result<f64> {
    if let Some(is_visible) = cause.visible {
        let run = bench.runs().get(name).await?;
        until("the Pod to show the cause", START, async || {
            let pods = bench.pods_of(&run).await?;
            let line = printed(&bench.env, name).await?;
            let is_named = line.has(cause) || pods.iter().any(is_visible);
            Ok(met(is_named, || format!("{line:?}")))
        })
        .await?;
    }
    let what = format!("{} in the line of '{name}'", cause.reason);
    until(&what, LIMIT, async || {
        let line = printed(&bench.env, name).await?;
        Ok(met(line.has(cause), || {
            format!("{line:?}, wanted {:?}", cause.says)
        }))
    })
    .await?;
    Ok(since.elapsed().as_secs_f64())
}

/// Submits a run of the agent of the same name. Its line and `orc why` must name the cause.
pub(super) async fn submitted(
    bench: &Bench,
    name: &str,
    more: Value,
    cause: Cause<'_>,
    why: Why<'_>,
) -> Result<Seen> {
    let since = Instant::now();
    bench.submit(name, more).await?;
    named(bench, name, since, &cause, &why).await
}

/// The line of a run and `orc why` must name the cause.
pub(super) async fn named(
    bench: &Bench,
    name: &str,
    since: Instant,
    cause: &Cause<'_>,
    why: &Why<'_>,
) -> Result<Seen> {
    let seconds = shows(bench, name, since, cause).await?;
    Ok(Seen {
        reason: cause.reason.to_owned(),
        seconds: Some(seconds),
        why: explained(&bench.env, name, why).await?,
    })
}

/// `orc why` must explain a run so. It may take the time that the status may take: it reads what the cluster reports.
pub(super) async fn explained(env: &Env, name: &str, why: &Why<'_>) -> Result<String> {
    let shell = Shell::of_case(env)?;
    let line = format!("orc why {name} --namespace {}", env.namespace);
    until("orc why to name the cause", LIMIT, async || {
        let output = shell.check(&line).await?;
        Ok(why
            .check(&output)
            .map_err(|wrong| format!("{wrong} in:\n{output}")))
    })
    .await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const OUTPUT: &str = "✗ BLOCKED · TaskRun a/b · SecretNotFound · since 10:00:00Z (now)
  secret \"the-key\" not found

  ○ TaskRun b [SecretNotFound]: waiting
  └─ ✗ Secret the-key [SecretNotFound]: does not exist, and the
       container needs it ◀ blocker
         looked for it: not found

To do: Create Secret 'the-key' in namespace
       'a'.

Next:
  # create it
  kubectl create secret generic the-key -n a
  # or name another
  kubectl edit oag b -n a
";

    #[test]
    fn an_output_is_checked_for_words_and_for_one_command() {
        let create = "kubectl create secret generic the-key";
        let seen = Why::command(&["and the container needs it"], create).check(OUTPUT);
        let wanted = "Secret the-key SecretNotFound → kubectl create secret generic the-key -n a";
        assert_eq!(seen.as_deref(), Ok(wanted));
        let seen = Why::note(&[], "kubectl create").check(OUTPUT);
        assert!(seen.is_ok_and(|seen| seen.ends_with("→ kubectl create")));
        for (why, wrong) in [
            (Why::note(&[], "kubectl apply"), "0 times"),
            (Why::note(&[], "kubectl"), "2 times"),
            (Why::command(&["ConfigMap"], create), "no 'ConfigMap'"),
            (Why::command(&[], "kubectl apply"), "no command"),
            (Why::command(&[], "kubectl"), "in two commands"),
            // A command of the advice or of a description is none to type.
            (Why::command(&[], "name another"), "no command"),
            (
                Why::command(&[], create).never(&["not found"]),
                "'not found' is wrong",
            ),
        ] {
            let error = why.check(OUTPUT).unwrap_err();
            assert!(error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn a_wrong_answer_of_before_is_found_in_every_output() {
        for (old, new, wrong) in [
            ("looked for it", "its words are below", "its words"),
            ("Create Secret", "Wait: it goes on. Nothing:", "'Wait' and"),
        ] {
            let output = OUTPUT.replace(old, new);
            let error = Why::command(&[], "create secret").check(&output);
            let error = error.unwrap_err();
            assert!(error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn a_pod_shows_a_cause_when_its_container_ended_or_cannot_start() {
        for (state, expected) in [
            (
                json!({ "waiting": { "reason": "ContainerCreating" } }),
                false,
            ),
            (json!({ "waiting": {} }), false),
            (json!({ "waiting": { "reason": "ErrImagePull" } }), true),
            (
                json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } }),
                false,
            ),
            (json!({ "terminated": { "exitCode": 0 } }), true),
        ] {
            let container = json!({
                "name": "agent", "state": state, "image": "", "imageID": "", "ready": false,
                "restartCount": 0,
            });
            let pod = json!({ "status": { "containerStatuses": [container] } });
            let pod: Pod = serde_json::from_value(pod).unwrap();
            assert_eq!(is_reported(&pod), expected, "{state}");
        }
        assert!(!is_reported(&Pod::default()));
    }
}
