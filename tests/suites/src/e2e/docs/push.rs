//! What is pushed, and what is not.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use api::tasks::{DocsRun, docs_names};
use kube::ResourceExt;
use serde_json::{Value, json};
use testkit::git::{Entry, Hook, Repository};

use super::{
    super::reading::logs_creation,
    fixture::{Bench, Expect, LIMIT, SECRET, WRITER, reason_of, says_all},
    gate::Gate,
    leaks::has_begun,
};

pub(super) async fn https(bench: &Bench) -> Result<String> {
    let repository = bench.repository("https").await?;
    let base = repository.head("main")?;
    bench.agent("https", WRITER, json!({})).await?;
    let more =
        json!({ "output": { "commitMessage": "Docs: $HOME and $(STEP_URL) stay\n\nas they are" } });
    bench.submit("https", more).await?;
    let run = bench
        .pushed("https", &repository, &Expect::default())
        .await?;
    let status = run.status.clone().unwrap_or_default();
    ensure!(status.base_commit == base, "{:?}", status.base_commit);
    ensure!(status.branch.as_deref() == Some("docs/https"), "{status:?}");
    ensure!(status.branch_head.is_none(), "{status:?}");
    let changed = status.changed_files.clone().context("no changed files")?;
    ensure!(
        changed.count == 1 && changed.first == ["docs/index.md"],
        "{changed:?}"
    );
    let commit = status.commit.clone().unwrap_or_default();
    let page = repository.read(&commit, "docs/index.md")?;
    let page = String::from_utf8(page.context("no page")?)?;
    ensure!(page.contains("by https"), "{page}");
    // Only what is below the output's path came with it.
    has_files(&repository, &commit, &with_base(&["docs/index.md"]))?;
    let log = repository.log("docs/https")?;
    let message = log.first().map_or("", |one| one.message.as_str());
    let wanted = format!(
        "Docs: $HOME and $(STEP_URL) stay\n\nas they are\n\n\
         Orchestrator-Name: {}/https\nOrchestrator-Run: {}",
        bench.env.namespace,
        run.uid().unwrap_or_default()
    );
    ensure!(message.trim_end() == wanted, "{message}");
    let author = log.first().map_or("", |one| one.author.as_str());
    ensure!(
        author == "Orchestrator <orchestrator@localhost>",
        "{author}"
    );
    ensure!(repository.head("main")? == base, "main was touched");
    let place = &bench.env.namespace;
    let log = bench.operator.log_text()?;
    for (kind, child) in [
        ("ConfigMap", docs_names::config_map("https")),
        ("Job", docs_names::job("https", 1, None)),
    ] {
        let (run, child) = (format!("{place}/https"), format!("{place}/{child}"));
        logs_creation(&log, &run, kind, &child)?;
    }
    bench.deletes(&run).await?;
    Ok(format!("{commit} on docs/https, 1 file"))
}

pub(super) async fn ssh(bench: &Bench) -> Result<String> {
    let repository = bench.repository("ssh").await?;
    bench.secret(SECRET, &bench.git.credentials_ssh()).await?;
    bench.agent("ssh", WRITER, json!({})).await?;
    let more = json!({ "repositoryUrl": bench.git.ssh_url("ssh") });
    bench.submit("ssh", more).await?;
    let run = bench.pushed("ssh", &repository, &Expect::default()).await?;
    bench.deletes(&run).await?;
    Ok("pushed and verified".to_owned())
}

/// What every repository of the cases begins with.
const BASE: &[&str] = &[
    "README.md",
    "docs/old.md",
    "service/api/api.txt",
    "src/main.c",
];

/// The files of the base commit, and these.
pub(super) fn with_base(more: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = BASE
        .iter()
        .chain(more)
        .map(|path| (*path).to_owned())
        .collect();
    all.sort();
    all
}

/// A commit or branch has exactly these files.
pub(super) fn has_files(repository: &Repository, commit: &str, wanted: &[String]) -> Result<()> {
    let files: Vec<String> = repository.files(commit)?.into_keys().collect();
    ensure!(files == wanted, "{commit} has {files:?}, wanted {wanted:?}");
    Ok(())
}

/// No branch was made and none was moved: `main` is at `base`, and nothing else is there.
pub(super) fn untouched(repository: &Repository, base: Option<&String>) -> Result<()> {
    let branches = repository.branches()?;
    ensure!(
        branches.len() == 1 && branches.get("main") == base,
        "the remote was touched: {branches:?}"
    );
    Ok(())
}

/// A failure before there was a Job.
pub(super) fn not_started(reason: &'static str) -> Expect<'static> {
    Expect {
        attempts: 0,
        jobs: 0,
        ..Expect::failure(reason)
    }
}

/// What a run on the repository of another name needs.
pub(super) fn on(bench: &Bench, repository: &str, more: Value) -> Value {
    let mut spec = json!({ "repositoryUrl": bench.git.https_url(repository) });
    super::super::merge(&mut spec, more);
    spec
}

pub(super) async fn no_changes(bench: &Bench) -> Result<String> {
    let repository = bench.repository("same").await?;
    let base = repository.head("main")?;
    let script = r#"printf 'old\n' > "$ORCHESTRATOR_OUTPUT_DIR/old.md""#;
    bench.start("same", script).await?;
    let calm =
        json!({ "agentName": "same", "output": { "requireChanges": false, "path": "docs/" } });
    bench.submit("calm", on(bench, "same", calm)).await?;
    let expect = Expect::failure("NoChanges").saying(&["'docs/'", "nothing changed"]);
    bench.ended("same", &expect).await?;
    let expect = Expect::default().saying(&["nothing changed below", "nothing was pushed"]);
    let calm = bench.ended("calm", &expect).await?;
    let status = calm.status.clone().unwrap_or_default();
    ensure!(
        status.commit.is_none() && status.changed_files.is_none(),
        "{status:?}"
    );
    untouched(&repository, base.as_ref())?;
    let activity = repository.activity()?;
    ensure!(activity.write_visits == 0, "{activity:?}");
    Ok("fails if changes are wanted, succeeds if not; the server saw no push".to_owned())
}

pub(super) async fn agent_failed(bench: &Bench) -> Result<String> {
    let repository = bench.repository("broken").await?;
    let base = repository.head("main")?;
    let retry =
        json!({ "retry": { "maxAttempts": 2, "backoff": { "initial": "1s", "max": "1s" } } });
    let script = r#"echo page > "$ORCHESTRATOR_OUTPUT_DIR/page.md"; echo no model > "$ORCHESTRATOR_RESULT_FILE"; exit 3"#;
    bench.agent("broken", script, retry.clone()).await?;
    bench.submit("broken", json!({})).await?;
    let expect = Expect {
        says: &["exited with code 3", "no model"],
        attempts: 2,
        jobs: 2,
        ..Expect::failure("NonZeroExit")
    };
    let run = bench.ended("broken", &expect).await?;
    for pod in bench.pods_of(&run).await? {
        ensure!(!has_begun(&pod, "publish"), "publish ran: {:?}", pod.status);
    }
    untouched(&repository, base.as_ref())?;
    let activity = repository.activity()?;
    ensure!(activity.write_visits == 0, "{activity:?}");

    // The second attempt sees nothing of what the first one wrote.
    let script = r#"cd "$ORCHESTRATOR_OUTPUT_DIR"
if [ "$ORCHESTRATOR_ATTEMPT" = 1 ]; then echo half > half.md; exit 3; fi
echo page > page.md"#;
    bench.agent("mended", script, retry).await?;
    bench
        .submit("mended", on(bench, "broken", json!({})))
        .await?;
    let expect = Expect {
        attempts: 2,
        jobs: 2,
        events: &["NonZeroExit"],
        ..Expect::default()
    };
    bench.pushed("mended", &repository, &expect).await?;
    has_files(&repository, "docs/mended", &with_base(&["docs/page.md"]))?;
    Ok("two attempts, publish never ran; a second attempt that ends well pushes its own files only".to_owned())
}

pub(super) async fn push_refused(bench: &Bench) -> Result<String> {
    let repository = bench.repository("frozen").await?;
    let base = repository.head("main")?;
    repository.set_hook(&Hook::Refuse("documentation is frozen, ask Ann".to_owned()))?;
    bench
        .agent("frozen", WRITER, json!({ "retry": { "maxAttempts": 3 } }))
        .await?;
    bench.submit("frozen", json!({})).await?;
    let expect = Expect::failure("PushRejected")
        .saying(&["documentation is frozen, ask Ann", "docs/frozen"]);
    let run = bench.ended("frozen", &expect).await?;
    untouched(&repository, base.as_ref())?;
    let activity = repository.activity()?;
    ensure!(
        activity.pushes == 1 && activity.accepted == 0,
        "{activity:?}"
    );
    // Over https a server may also refuse to hear of any push.
    repository.set_hook(&Hook::Accept)?;
    repository.set_config("http.receivepack", "false")?;
    bench.agent("reader", WRITER, json!({})).await?;
    bench
        .submit("reader", on(bench, "frozen", json!({})))
        .await?;
    bench
        .ended("reader", &Expect::failure("AuthenticationFailed"))
        .await?;
    untouched(&repository, base.as_ref())?;
    let said = run.status.and_then(|status| status.progress.message);
    Ok(said.unwrap_or_default())
}

pub(super) async fn branch_moved(bench: &Bench) -> Result<String> {
    let repository = bench.repository("moving").await?;
    let base = repository.head("main")?.context("no main")?;
    let mut gate = Gate::new(bench)?;
    bench
        .agent("moving", &(gate.line() + WRITER), json!({}))
        .await?;
    for branch in ["docs/moved", "docs/removed"] {
        repository.set_branch(branch, &base)?;
    }
    // What somebody else does while the agent runs.
    let names = ["moved", "made", "removed"];
    for name in names {
        let more = on(bench, "moving", json!({ "agentName": "moving" }));
        bench.submit(name, more).await?;
    }
    gate.arrived(names.len()).await?;
    let others = [("docs/theirs.md", Entry::File(b"theirs\n"))];
    let moved = repository.commit("docs/moved", "theirs", &others)?;
    repository.set_branch("docs/made", &base)?;
    let made = repository.commit("docs/made", "theirs", &others)?;
    repository.delete_branch("docs/removed")?;
    gate.open();
    for (name, is) in [
        ("moved", moved.as_str()),
        ("made", &made),
        ("removed", "not there"),
    ] {
        let expect = Expect {
            says: &[is, "somebody else", "run again"],
            ..Expect::failure("BranchMoved")
        };
        let run = bench.ended(name, &expect).await?;
        let commit = run.status.and_then(|status| status.commit);
        ensure!(commit.is_none(), "{name}: {commit:?}");
    }
    ensure!(repository.head("docs/moved")? == Some(moved), "overwritten");
    ensure!(repository.head("docs/made")? == Some(made), "overwritten");
    ensure!(repository.head("docs/removed")?.is_none(), "made again");
    let activity = repository.activity()?;
    ensure!(activity.accepted == 0, "{activity:?}");
    Ok("moved, made and removed meanwhile: the others' commits are untouched".to_owned())
}

pub(super) async fn existing_branch(bench: &Bench) -> Result<String> {
    let repository = bench.repository("existing").await?;
    let base = repository.head("main")?.context("no main")?;
    repository.set_branch("pages", &base)?;
    let theirs = [
        ("docs/theirs.md", Entry::File(b"theirs\n")),
        ("docs/new.md", Entry::File(b"older\n")),
    ];
    let head = repository.commit("pages", "theirs", &theirs)?;
    // The base goes on beside it.
    let main = repository.commit("main", "more", &[("src/more.c", Entry::File(b"int x;\n"))])?;
    let script = r#"cd "$ORCHESTRATOR_OUTPUT_DIR"; rm old.md; echo new > new.md; mkdir -p a/b; echo deep > a/b/deep.md; echo '#!/bin/sh' > run.sh; chmod 755 run.sh"#;
    // Not the user of our own containers.
    bench
        .agent("existing", script, json!({ "runAsUser": 1234 }))
        .await?;
    let more = json!({ "output": { "branch": "pages" } });
    bench.submit("existing", more).await?;
    let run = bench
        .pushed("existing", &repository, &Expect::default())
        .await?;
    let status = run.status.clone().unwrap_or_default();
    ensure!(
        status.branch_head.as_ref() == Some(&head) && status.base_commit.as_ref() == Some(&main),
        "{status:?}"
    );
    let mut wanted = with_base(&[
        "docs/a/b/deep.md",
        "docs/new.md",
        "docs/run.sh",
        "docs/theirs.md",
    ]);
    wanted.retain(|path| path != "docs/old.md");
    has_files(&repository, "pages", &wanted)?;
    let new = repository.read("pages", "docs/new.md")?;
    ensure!(new.as_deref() == Some(b"new\n"), "{new:?}");
    let modes = repository.files("pages")?;
    ensure!(
        modes.get("docs/run.sh").map(String::as_str) == Some("100755"),
        "{modes:?}"
    );
    ensure!(repository.log("pages")?.len() == 3, "one commit more");
    let changed = status.changed_files.clone().unwrap_or_default();
    ensure!(changed.count == 4, "{changed:?}");

    // Once more on top of it: the same content is no change.
    let more = json!({ "agentName": "existing", "output": { "branch": "pages" } });
    bench.submit("again", on(bench, "existing", more)).await?;
    bench.ended("again", &Expect::failure("NoChanges")).await?;
    ensure!(repository.head("pages")? == status.commit, "pushed again");
    Ok(
        "one commit on top; removed files went, unseen ones stayed; the same again is NoChanges"
            .to_owned(),
    )
}

pub(super) async fn same_branch(bench: &Bench) -> Result<String> {
    let repository = bench.repository("main").await?;
    bench.agent("main", WRITER, json!({})).await?;
    let more = json!({ "output": { "branch": "main" } });
    bench.submit("main", more).await?;
    let run = bench
        .pushed("main", &repository, &Expect::default())
        .await?;
    let status = run.status.unwrap_or_default();
    ensure!(status.branch_head == status.base_commit, "one head");
    has_files(&repository, "main", &with_base(&["docs/index.md"]))?;
    ensure!(repository.branches()?.len() == 1, "another branch");
    Ok("one commit more on the source branch itself".to_owned())
}

pub(super) async fn codebase_both(bench: &Bench) -> Result<String> {
    let repository = bench.repository("code").await?;
    let script = r#"cd /workspace
find . -path ./context -prune -o -path ./source/.git -prune -o -print | sort | sed 's/^/SEEN /'
if [ -d source/.git ]; then
  sed 's/^/CONFIG /' source/.git/config
  cat source/.git/HEAD
  find source/.git -type f -exec cat {} + | tr -cd '\n\040-\176'
fi
pwd; echo page > "$ORCHESTRATOR_OUTPUT_DIR/page.md""#;
    bench.agent("code", script, json!({})).await?;
    bench
        .submit("code", json!({ "includeCodebase": true }))
        .await?;
    let part = json!({ "agentName": "code", "workingDirectory": "service/api" });
    bench.submit("part", on(bench, "code", part)).await?;

    let run = bench
        .pushed("code", &repository, &Expect::default())
        .await?;
    let said = bench.leaks_nothing(&run, &repository).await?;
    let agent = said.agent;
    for path in BASE {
        let line = format!("SEEN ./source/{path}");
        ensure!(agent.lines().any(|one| one == line), "no {path}: {agent}");
    }
    let config: Vec<&str> = agent
        .lines()
        .filter(|line| line.starts_with("CONFIG"))
        .collect();
    ensure!(!config.is_empty(), "no .git: {agent}");
    for word in ["remote", "url", "credential", "http", "ssh", "include"] {
        ensure!(
            !config.iter().any(|line| line.to_lowercase().contains(word)),
            "{word} in {config:?}"
        );
    }
    has_files(&repository, "docs/code", &with_base(&["docs/page.md"]))?;

    let run = bench
        .pushed("part", &repository, &Expect::default())
        .await?;
    let agent = bench.leaks_nothing(&run, &repository).await?.agent;
    let seen: Vec<&str> = agent
        .lines()
        .filter_map(|line| line.strip_prefix("SEEN "))
        .collect();
    let wanted = [
        ".",
        "./source",
        "./source/docs",
        "./source/service",
        "./source/service/api",
        "./source/service/api/api.txt",
    ];
    ensure!(seen == wanted, "{seen:?}");
    // What it never saw stays.
    has_files(&repository, "docs/part", &with_base(&["docs/page.md"]))?;
    Ok("all with a .git that names no server, or the folder and nothing else".to_owned())
}

pub(super) async fn two_at_once(bench: &Bench) -> Result<String> {
    let repository = bench.repository("shared").await?;
    // Both pushes are under way at the same moment.
    repository.set_hook(&Hook::SlowBefore(Duration::from_secs(3)))?;
    let mut gate = Gate::new(bench)?;
    let script = gate.line() + r#"echo "$ORCHESTRATOR_RUN" > "$ORCHESTRATOR_OUTPUT_DIR/page.md""#;
    bench.agent("shared", &script, json!({})).await?;
    let names = ["one", "two", "left", "right"];
    for name in names {
        let more = match name {
            "left" | "right" => json!({ "agentName": "shared", "output": { "branch": "both" } }),
            _ => json!({ "agentName": "shared" }),
        };
        bench.submit(name, on(bench, "shared", more)).await?;
    }
    gate.arrived(names.len()).await?;
    gate.open();
    for name in ["one", "two"] {
        bench.pushed(name, &repository, &Expect::default()).await?;
    }
    let mut reasons = Vec::new();
    for name in ["left", "right"] {
        let run = bench
            .until(name, LIMIT, "an end", |status| status.finished_at.is_some())
            .await?;
        let reason = reason_of(&run.status.clone().unwrap_or_default()).to_owned();
        match reason.as_str() {
            "Succeeded" => drop(bench.pushed(name, &repository, &Expect::default()).await?),
            _ => drop(bench.ended(name, &Expect::failure("BranchMoved")).await?),
        }
        reasons.push(reason);
    }
    reasons.sort();
    ensure!(reasons == ["BranchMoved", "Succeeded"], "{reasons:?}");
    let log = repository.log("both")?;
    ensure!(
        log.len() == 2,
        "a commit was lost or is one too many: {log:?}"
    );
    let activity = repository.activity()?;
    ensure!(activity.accepted == 3, "{activity:?}");
    Ok("two branches: both; one branch: one pushed, the other BranchMoved".to_owned())
}

pub(super) async fn required_result(bench: &Bench) -> Result<String> {
    let repository = bench.repository("results").await?;
    let results = json!({ "results": [{ "name": "pages", "required": true }] });
    bench.agent("results", WRITER, results.clone()).await?;
    bench.submit("results", json!({})).await?;
    let script = WRITER.to_owned() + "\necho '{\"pages\": 7}' > \"$ORCHESTRATOR_RESULT_FILE\"";
    bench.agent("counted", &script, results).await?;
    bench
        .submit("counted", on(bench, "results", json!({})))
        .await?;
    let expect = Expect::failure("ResultMissing").saying(&["pages"]);
    let run = bench.ended("results", &expect).await?;
    // The kubelet shows what the agent returned only to the API server, so publish cannot know it:
    // the run fails, and says that its commit is there all the same.
    tells_its_push(&run, &repository)?;

    let run = bench
        .pushed("counted", &repository, &Expect::default())
        .await?;
    let result = run.status.and_then(|status| status.attempt.result);
    let results = result.map(|result| result.results).unwrap_or_default();
    ensure!(
        results.get("pages").map(String::as_str) == Some("7"),
        "{results:?}"
    );
    Ok("a missing result fails the run, which names the commit that was pushed".to_owned())
}

/// A failed run says which commit it pushed.
fn tells_its_push(run: &DocsRun, repository: &Repository) -> Result<()> {
    let status = run.status.clone().unwrap_or_default();
    let branch = status.branch.clone().context("no branch")?;
    let head = repository.head(&branch)?.context("nothing was pushed")?;
    says_all(&status, &[&head, "was pushed"])
}
