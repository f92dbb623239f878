//! Valid repositories of a DocsRun: all common forms are accepted, but no branch that git would
//! reject.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use api::tasks::DocsRun;
use serde_json::{Value, json};
use testkit::{cluster::Tier, suite};

use crate::{
    support::{Kind, install, taken, would_create, would_create_named},
    wrong::{changed, docs, files},
};

const ADDRESSES: &[&str] = &[
    "https://git.example.com/shop",
    "https://git.example.com/team/shop.git",
    "https://git.example.com/team/shop/",
    "https://git.example.com:8443/team/sub-team/shop",
    "https://git.example.com:1/x",
    "https://git.example.com:65535/x",
    "http://git.example.com/shop",
    "https://localhost/x",
    "https://GIT.Example.COM/x",
    "https://1-2.x--y.example/a",
    "https://192.0.2.1:3000/shop",
    "https://[2001:db8::1]/shop",
    "https://[2001:DB8::1]:8443/shop",
    "ssh://git@[2001:db8::1]:2222/shop",
    "ssh://git@git.example.com/team/shop.git",
    "ssh://git@git.example.com:2222/team/shop",
    "ssh://git.example.com/team/shop",
    "ssh://first.last_1-2@git.example.com/x",
    "ssh://git@git.example.com/~user/shop",
    "https://git.example.com/~user/shop",
    "https://git.example.com/a.b/c++/d_e/f-g/..h/i..",
    "https://git.example.com/team/my%20shop/_git/%C3%A4",
    "https://git.example.com/a,b/c=d/e@f",
];

const BRANCHES: &[&str] = &[
    "main",
    "a",
    "0",
    "_",
    "release/1.x",
    "v1.2.3",
    "feature/JIRA-1_x",
    "user/team/long-name",
    "a+b",
    "fix#12",
    "key=value",
    "a-",
    "a_",
    "a.b/c.d",
    "head",
    "HEAD/x",
    "HEADS",
    "x.lockx",
    "x.lock-1",
    "refs",
    "myrefs/heads/x",
    "heads/x",
    "FETCH_HEAD",
    "0123456789abcdef0123456789abcdef01234567",
];

const FOLDERS: &[&str] = &[
    ".",
    "docs",
    "docs/",
    "services/api",
    "a/b/c/d/e/f/",
    ".hidden/x",
    ".g",
    "...",
    "a..b",
    "x.git",
    "git",
    "a-b/c_d/e.f",
    "c++/@scope/My Docs",
    "0",
];

const MESSAGES: &[&str] = &[
    "Describe the API",
    "Describe the API\n\nLonger words: ä, \"quoted\", `x`, 'y'.\n\nSigned-off-by: A <a@example.com>\n",
    "orchestrator-run",
    "Orchestrator-Run\n: x",
    "Orchestrator-Running: x",
    "\u{a0}Words\u{200b}",
    "# not a comment",
    "-m",
];

/// Returns whether git accepts the name as a branch.
fn is_branch(name: &str) -> Result<bool> {
    let answer = Command::new("git")
        .args(["check-ref-format", "--branch", name])
        .output()
        .context("cannot run git")?;
    Ok(answer.status.success())
}

fn valid() -> Vec<(&'static str, Value)> {
    let mut all = Vec::new();
    let mut each = |field: &'static str, values: &[&str]| {
        all.extend(values.iter().map(|value| (field, json!(value))));
    };
    each("repositoryUrl", ADDRESSES);
    each("sourceBranch", BRANCHES);
    each("workingDirectory", FOLDERS);
    each("model", &["small", "vendor/large:2 (new)", "ä"]);
    let mut output = |part: &str, values: &[&str]| {
        all.extend(
            values
                .iter()
                .map(|value| ("output", json!({ part: value }))),
        );
    };
    output("branch", BRANCHES);
    output("path", FOLDERS);
    output("commitMessage", MESSAGES);
    let many: Vec<String> = (0..128).map(|number| format!("{number}.md")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let longest = format!("https://git.example.com/{}", "a".repeat(476));
    all.extend([
        ("repositoryUrl", json!(longest)),
        ("sourceBranch", json!("b".repeat(200))),
        ("workingDirectory", json!("f".repeat(200))),
        (
            "output",
            json!({ "commitMessage": "\u{1f600}".repeat(2000) }),
        ),
        ("output", json!({ "requireChanges": false })),
        ("output", json!(null)),
        ("model", json!(null)),
        ("instructions", files(&many)),
        (
            "instructions",
            files(&["0", &"a".repeat(253), "A_b-c..d.md"]),
        ),
        ("instructions", json!([])),
        ("includeCodebase", json!(true)),
        ("credentialsSecretRef", json!({ "name": "git.shop-1" })),
        ("credentialsSecretRef", json!(null)),
        ("timeout", json!("1h30m")),
        ("timeout", json!(null)),
        ("suspend", json!(true)),
        ("cancel", json!(true)),
        ("childTTL", json!({ "succeeded": "0s", "failed": "8760h" })),
    ]);
    all
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn valid_repositories_are_accepted_and_understood() -> Result<()> {
    suite::test(Tier::Api, "repository", async |env| {
        install(&env.client).await?;
        let kind = Kind::DocsRun;
        for (field, value) in valid() {
            let spec = changed(kind.least(), &[(field, value)]);
            let answer = would_create(&env, kind, &spec).await?;
            let made = taken(answer).with_context(|| format!("{spec}"))?;
            let read: DocsRun = serde_json::from_value(made)?;
            assert_eq!(read.spec.agent_name, "writer", "{spec}");
        }
        for branch in BRANCHES {
            ensure!(is_branch(branch)?, "git refuses '{branch}'");
        }
        println!("{} valid specs accepted", valid().len());
        Ok(())
    })
    .await
}

/// Returns messages with each character that a rule could be about, at every position of our line.
fn messages() -> Vec<String> {
    let ascii = '\0'..='\u{a1}';
    let others = "\u{ad}\u{17f}\u{1680}\u{180e}\u{2000}\u{200a}\u{200b}\u{2028}\u{2029}\u{202f}\u{205f}\u{212a}\u{3000}\u{feff}\u{fffd}\u{1f600}";
    let mut all: Vec<String> = ascii
        .chain(others.chars())
        .flat_map(|one| {
            [
                format!("{one}"),
                format!("a{one}b"),
                format!("a\n{one}Orchestrator-Run: b"),
                format!("a\nOrche{one}trator-Run: b"),
                format!("a\nOrchestrator-Run{one}: b"),
                format!("a\nOrchestrator-Run {one} : b"),
            ]
        })
        .collect();
    all.extend(["\u{1f600}".repeat(2000), "a".repeat(2001), String::new()]);
    all
}

/// The step in the Pod must accept every message that the API server accepts. Otherwise the run
/// would fail after all its work is done.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn messages_are_those_that_the_step_takes() -> Result<()> {
    suite::test(Tier::Api, "messages", async |env| {
        install(&env.client).await?;
        let (mut accepted, mut failures) = (0, Vec::new());
        for message in messages() {
            let output = json!({ "commitMessage": message });
            let spec = changed(Kind::DocsRun.least(), &[("output", output)]);
            let is_taken = would_create(&env, Kind::DocsRun, &spec).await?.is_ok();
            accepted += usize::from(is_taken);
            if is_taken != git::refs::check_message(&message).is_ok() {
                failures.push(message);
            }
        }
        println!("{} messages tried, {accepted} accepted", messages().len());
        ensure!(accepted > 200, "only {accepted} accepted");
        ensure!(failures.is_empty(), "they differ about {failures:?}");
        Ok(())
    })
    .await
}

/// Returns each printable character beside a letter, a dot, a slash and itself, and all names with
/// a meaning in git.
fn candidates() -> Vec<String> {
    let mut all: Vec<String> = (' '..='~')
        .flat_map(|one| {
            [
                format!("{one}"),
                format!("{one}a"),
                format!("a{one}"),
                format!("a{one}b"),
                format!("a{one}{one}b"),
                format!("a/{one}"),
                format!("{one}/a"),
                format!("a.{one}"),
                format!("a{one}.lock"),
                format!("@{one}"),
            ]
        })
        .collect();
    let words = [
        "HEAD",
        "@",
        "@{-1}",
        "@{u}",
        "refs/heads/a",
        "a.lock/b",
        "a\n",
        "ä",
    ];
    all.extend(words.map(str::to_owned));
    all
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn no_branch_is_accepted_that_git_refuses() -> Result<()> {
    suite::test(Tier::Api, "branches", async |env| {
        install(&env.client).await?;
        let (mut accepted, mut failures) = (0, Vec::new());
        for name in candidates() {
            let spec = changed(Kind::DocsRun.least(), &[("sourceBranch", json!(name))]);
            if would_create(&env, Kind::DocsRun, &spec).await?.is_ok() {
                accepted += 1;
                if !is_branch(&name)? {
                    failures.push(name);
                }
            }
        }
        println!("{} branches tried, {accepted} accepted", candidates().len());
        ensure!(accepted > 200, "only {accepted} accepted");
        ensure!(failures.is_empty(), "git refuses {failures:?}");
        Ok(())
    })
    .await
}

/// If no branch is set, the name of the run determines the branch.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn the_branch_made_of_a_name_is_one() -> Result<()> {
    suite::test(Tier::Api, "named", async |env| {
        install(&env.client).await?;
        let kind = Kind::DocsRun;
        let longest = [
            "a".repeat(60),
            "b".repeat(60),
            "c".repeat(60),
            "d".repeat(12),
        ]
        .join(".");
        for name in ["shop", "a.b", "a--b", "lock", "x.locks", "1", &longest] {
            let made = taken(would_create_named(&env, kind, name, &kind.least()).await?)?;
            let run: DocsRun = serde_json::from_value(made)?;
            let branch = run.output_branch();
            assert_eq!(branch, format!("docs/{name}"));
            ensure!(is_branch(&branch)?, "git refuses '{branch}'");
            let given = changed(kind.least(), &[("sourceBranch", json!(branch))]);
            taken(would_create(&env, kind, &given).await?)?;
        }
        // If a branch is set, any name is valid.
        let given = changed(kind.least(), &[("output", json!({ "branch": "docs/a" }))]);
        for name in docs::names() {
            taken(would_create_named(&env, kind, &name, &given).await?)?;
        }
        Ok(())
    })
    .await
}
