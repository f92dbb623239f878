//! The control of the attacks that only admission policies reject: without the policies, each of them succeeds.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::policy;
use kube::ResourceExt;
use serde_json::{Value, json};
use testkit::wait::until;

use super::{
    attack_table::{Kind, listed, succeeded_without_policies, withstood},
    client::{Call, action, post},
    fixture::{Stage, TASKS, editor, new_run, task},
};
use crate::e2e::policies::Bound;

/// The API server acts by its policies a moment after they are created.
const LIMIT: Duration = Duration::from_secs(30);

/// An Agent that only one caller may use.
const AGENT: &str = "writer";

/// The permission that the rejections name.
const USE: &str = "'use' the Agent 'writer'";

/// The policies that reject the attacks.
const POLICIES: [&str; 2] = ["use-agent", "docs-references"];

/// An attack through the gateway.
struct Attack {
    name: &'static str,
    /// Whether the caller may use the Agent.
    may_use: bool,
    /// The request while the policies do not exist.
    without: Call,
    /// The request while they do. A request that stores something cannot be sent twice.
    with: Call,
    /// Words of the rejection.
    says: &'static str,
}

impl Attack {
    fn new(name: &'static str, without: Call, with: Call) -> Self {
        Self {
            name,
            may_use: false,
            without,
            with,
            says: USE,
        }
    }

    /// Creates an attack that stores nothing.
    fn dry(name: &'static str, path: &str, body: &Value) -> Self {
        let call = post(format!("{path}?dryRun=true"), body);
        Self::new(name, call.clone(), call)
    }
}

/// Returns all attacks. The first one stores nothing, so it can be repeated until its policy acts.
fn attacks(stage: &Stage) -> Vec<Attack> {
    let docs_path = format!("/api/v1/namespaces/{}/docsruns", stage.env.namespace);
    let docs = json!({
        "name": "guide", "repositoryUrl": "https://git.example/team/shop",
        "sourceBranch": "main", "agentName": AGENT,
    });
    let mut with_secret = docs.clone();
    with_secret["credentialsSecretRef"] = json!({ "name": "of-others" });
    let added = json!({ "files": [{ "filename": "more.md", "content": "x" }] });
    let resume = |name: &str| action(stage.at(name, "resume"));
    vec![
        Attack::dry(
            "a TaskRun of an Agent",
            &stage.taskruns(),
            &new_run("mine", AGENT),
        ),
        Attack::dry("a DocsRun of an Agent", &docs_path, &docs),
        Attack {
            may_use: true,
            says: "spec.credentialsSecretRef names the Secret 'of-others'",
            ..Attack::dry("a DocsRun with a Secret", &docs_path, &with_secret)
        },
        Attack::dry(
            "context for an Agent",
            &stage.at("first", "context"),
            &added,
        ),
        Attack::new(
            "a resumed run of an Agent",
            resume("second"),
            resume("third"),
        ),
        Attack::new(
            "a task of an Agent",
            post(TASKS, &task(8)),
            post(TASKS, &task(9)),
        ),
    ]
}

/// Requests for Agents and Secrets that the caller may not use: accepted without the policies, then rejected.
pub(super) async fn through_gateway(stage: &Stage) -> Result<String> {
    let ann = stage.editor("ann").await?;
    let mut rules = editor();
    let may_use =
        json!({ "apiGroups": ["orchestrator.io"], "resources": ["agents"], "verbs": ["use"] });
    rules.as_array_mut().context("no rules")?.push(may_use);
    let eve = stage.caller("eve", rules).await?;
    for (name, is_suspended) in [("first", false), ("second", true), ("third", true)] {
        let mut body = new_run(name, AGENT);
        body["suspend"] = json!(is_suspended);
        let call = post(stage.taskruns(), &body);
        stage.send(&ann, call).await?.is(201)?;
    }
    let attacks = attacks(stage);
    let caller = |attack: &Attack| if attack.may_use { &eve } else { &ann };
    for attack in &attacks {
        let answer = stage.send(caller(attack), attack.without.clone()).await?;
        ensure!(
            answer.status < 300,
            "'{}' is rejected without the policies: {}",
            attack.name,
            answer.text()
        );
        succeeded_without_policies(attack.name);
    }

    let mut policies = policy::tasks();
    policies.retain(|policy| {
        POLICIES
            .iter()
            .any(|name| policy.name_any().ends_with(name))
    });
    ensure!(
        policies.len() == POLICIES.len(),
        "{} policies",
        policies.len()
    );
    let bound = Bound::new(&stage.env, policies, Some(&stage.env.namespace)).await?;
    for attack in &attacks {
        let answer = until(attack.name, LIMIT, async || {
            let answer = stage.send(caller(attack), attack.with.clone()).await?;
            Ok(match answer.status {
                403 => Ok(answer.text()),
                status => Err(format!("{status}")),
            })
        });
        let rejected = answer.await.and_then(|text| {
            ensure!(
                text.contains(attack.says),
                "'{}' is not in {text}",
                attack.says
            );
            Ok(())
        });
        withstood(Kind::Policy, attack.name, rejected)?;
    }
    ensure!(stage.run("third").await?.spec.suspend, "it was resumed");
    let task = stage.runs().get_opt("task-9").await?;
    ensure!(task.is_none(), "the task was submitted");
    bound.release().await?;
    let names = attacks.iter().map(|attack| attack.name);
    Ok(format!(
        "all succeeded without the policies; {}",
        listed(names)
    ))
}
