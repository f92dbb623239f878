//! Agents that attack what comes after them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use serde_json::json;

use super::{
    TOOLBOX,
    fixture::{Bench, Expect, SECRET},
    gate::Gate,
    leaks::containers,
    push::{has_files, on, untouched, with_base},
};

/// What a planted program would write.
const MARK: &str = "PLANTED-PROGRAM-RAN";

/// Whatever git, ssh or a shell could take for its own, everywhere the agent can write.
///
/// Hazard: it must only ever run in the agent's container, whose environment it insists on.
const PLANT: &str = include_str!("plant.sh");

/// What git does where all that is planted.
const OWN_GIT: &str = r#"
export GIT_DIR=/workspace/source/.git GIT_WORK_TREE=/workspace/source
for command in 'status' 'add docs/page.md' 'ls-remote https://git.invalid/x'; do
  timeout 5 git $command </dev/null || true
done"#;

/// Looks everywhere and shows what it finds.
const SEARCH: &str = include_str!("search.sh");

pub(super) async fn planted(bench: &Bench) -> Result<String> {
    let repository = bench.repository("planted").await?;
    bench.secret("keys", &bench.git.credentials_ssh()).await?;
    // Where the planted configuration leads.
    let trap = Gate::new(bench)?;
    bench
        .agent("planted", &PLANT.replace("PLACE", &trap.place), json!({}))
        .await?;
    bench
        .submit("planted", json!({ "includeCodebase": true }))
        .await?;
    let more = json!({
        "agentName": "planted", "includeCodebase": true,
        "repositoryUrl": bench.git.ssh_url("planted"), "credentialsSecretRef": { "name": "keys" },
    });
    bench.submit("by-ssh", more).await?;
    for name in ["planted", "by-ssh"] {
        let run = bench.pushed(name, &repository, &Expect::default()).await?;
        let said = bench.leaks_nothing(&run, &repository).await?;
        ensure!(!said.publish.contains(MARK), "it ran: {}", said.publish);
        // What looks like a repository is a folder of files, without what belongs to Git.
        let files = repository.files(&format!("docs/{name}"))?;
        ensure!(files.contains_key("docs/page.md"), "{files:?}");
        let known = with_base(&["docs/page.md"]);
        let strange: Vec<&String> = files
            .keys()
            .filter(|path| !known.contains(path) && !path.starts_with("docs/bare/"))
            .collect();
        ensure!(strange.is_empty(), "{strange:?} came along");
        ensure!(
            files
                .values()
                .all(|mode| mode == "100644" || mode == "100755"),
            "{files:?}"
        );
    }
    ensure!(trap.knocks().await? == 0, "the planted server was asked");

    // An agent that uses its own git is caught by what it planted: it is no dud.
    let own = Gate::new(bench)?;
    let script = PLANT.replace("PLACE", &own.place) + OWN_GIT;
    let image = json!({ "image": TOOLBOX });
    bench.agent("own-git", &script, image).await?;
    let more = on(bench, "planted", json!({ "includeCodebase": true }));
    bench.submit("own-git", more).await?;
    let run = bench
        .pushed("own-git", &repository, &Expect::default())
        .await?;
    let said = bench.leaks_nothing(&run, &repository).await?;
    ensure!(said.agent.contains(MARK), "a dud: {}", said.agent);
    ensure!(!said.publish.contains(MARK), "it ran: {}", said.publish);
    ensure!(own.knocks().await? > 0, "a dud: nobody knocked");
    Ok("hooks, sshCommand, askPass, credential.helper, insteadOf, http.proxy, filters, textconv, fsmonitor, submodules, alternates, include, gpg, .netrc, ssh config, programs in the way: none had any effect, over https and ssh".to_owned())
}

pub(super) async fn links(bench: &Bench) -> Result<String> {
    let repository = bench.repository("links").await?;
    let base = repository.head("main")?;
    let files = r#"set -e; cd "${ORCHESTRATOR_OUTPUT_DIR:?}"
for target in /credentials /credentials/password /credentials/identity /proc/1/environ /proc/self/environ \
  /proc/self/fd /var/run/secrets /scratch /dev/termination-log ../../../../credentials/password ../README.md; do
  ln -s "$target" "link$(echo "$target" | tr / _)"
done
mkdir sub; ln -s /credentials sub/creds; ln -s . loop; ln -s missing dangling
echo page > page.md"#;
    let folder =
        r#"set -e; cd "${ORCHESTRATOR_SOURCE_DIR:?}"; mv docs aside; ln -s /credentials docs"#;
    let parent = r#"set -e; cd "${ORCHESTRATOR_SOURCE_DIR:?}"; mv a aside; ln -s / a"#;
    let source = r#"set -e; cd "${ORCHESTRATOR_WORKSPACE:?}"; mv source aside; ln -s / source"#;
    for (name, script, path) in [
        ("links", files, "docs/"),
        ("folder", folder, "docs/"),
        ("parent", parent, "a/credentials"),
        ("source", source, "credentials"),
    ] {
        bench.agent(name, script, json!({})).await?;
        let more = json!({ "output": { "path": path } });
        bench.submit(name, on(bench, "links", more)).await?;
    }
    for (name, reason) in [
        ("folder", "NoChanges"),
        ("parent", "NoChanges"),
        ("source", "PublishFailed"),
    ] {
        let run = bench.ended(name, &Expect::failure(reason)).await?;
        bench.leaks_nothing(&run, &repository).await?;
        ensure!(
            repository.head(&format!("docs/{name}"))?.is_none(),
            "{name} was pushed"
        );
    }
    let run = bench
        .pushed("links", &repository, &Expect::default())
        .await?;
    bench.leaks_nothing(&run, &repository).await?;
    has_files(&repository, "docs/links", &with_base(&["docs/page.md"]))?;
    ensure!(repository.head("main")? == base, "main was touched");
    Ok("links to /credentials, /proc, /var/run/secrets, /scratch: as files, as folders, as the output folder, above it, as the whole checkout: none was followed or pushed".to_owned())
}

/// What `publish` would report of a push.
const FORGED: &str = r#"set -e
printf '{"outcome":"Pushed","commit":"%s","changed":{"count":1,"first":["docs/forged.md"]},"skipped":{"count":0,"first":[]}}' "$ORCHESTRATOR_BASE_COMMIT" > "${ORCHESTRATOR_RESULT_FILE:?}"
"#;

pub(super) async fn forged(bench: &Bench) -> Result<String> {
    let repository = bench.repository("forged").await?;
    let base = repository.head("main")?;
    let failed = format!("{FORGED}exit 1");
    let written = format!("{FORGED}echo page > \"${{ORCHESTRATOR_OUTPUT_DIR:?}}/page.md\"");
    for (name, script) in [
        ("idle", FORGED),
        ("failed", failed.as_str()),
        ("written", &written),
    ] {
        bench.agent(name, script, json!({})).await?;
    }
    // A branch that is at the claimed commit by itself.
    let more = json!({ "output": { "branch": "main" } });
    for (name, reason) in [("idle", "NoChanges"), ("failed", "NonZeroExit")] {
        bench
            .submit(name, on(bench, "forged", more.clone()))
            .await?;
        let run = bench.ended(name, &Expect::failure(reason)).await?;
        let status = run.status.unwrap_or_default();
        ensure!(
            status.commit.is_none() && status.changed_files.is_none(),
            "{name}: {status:?}"
        );
    }
    untouched(&repository, base.as_ref())?;
    // What it returns beside a real push changes nothing of what is said about the push.
    bench
        .submit("written", on(bench, "forged", json!({})))
        .await?;
    let run = bench
        .pushed("written", &repository, &Expect::default())
        .await?;
    let status = run.status.unwrap_or_default();
    ensure!(status.commit != base, "the forged commit was believed");
    let changed = status.changed_files.unwrap_or_default();
    ensure!(changed.first == ["docs/page.md"], "{changed:?}");
    Ok(
        "a report of a push in the agent's own result is never believed: idle, failed, written"
            .to_owned(),
    )
}

pub(super) async fn flood(bench: &Bench) -> Result<String> {
    let repository = bench.repository("flood").await?;
    let base = repository.head("main")?;
    let attacks = [
        ("names", "seq 100000 | xargs touch", "10000 names"),
        ("files", "seq 3000 | xargs touch", "2000 files"),
        ("sparse", "truncate -s 900G sparse", "a file may have"),
        (
            "sum",
            "for i in $(seq 11); do dd if=/dev/zero of=$i bs=1M count=5 2>/dev/null; done",
            "bytes together",
        ),
        (
            "deep",
            "for i in $(seq 40); do mkdir d; cd d; done; echo x > x",
            "folders deep",
        ),
    ];
    for (name, attack, _) in attacks {
        let script = format!("set -e; cd \"${{ORCHESTRATOR_OUTPUT_DIR:?}}\"; {attack}");
        bench.agent(name, &script, json!({})).await?;
        bench.submit(name, on(bench, "flood", json!({}))).await?;
    }
    for (name, _, words) in attacks {
        let expect = Expect {
            says: &[words],
            ..Expect::failure("OutputTooLarge")
        };
        bench.ended(name, &expect).await?;
    }
    untouched(&repository, base.as_ref())?;
    let activity = repository.activity()?;
    ensure!(activity.write_visits == 0, "{activity:?}");
    let names: Vec<&str> = attacks.iter().map(|(name, ..)| *name).collect();
    Ok(format!(
        "OutputTooLarge, nothing pushed: {}",
        names.join(", ")
    ))
}

pub(super) async fn odd_files(bench: &Bench) -> Result<String> {
    let repository = bench.repository("odd").await?;
    let script = r#"cd "${ORCHESTRATOR_SOURCE_DIR:?}" || exit 9
echo changed > README.md; mv src aside; echo new > new.md; mkdir other; echo x > other/x
cd docs || exit 9
for name in .git .GIT .gitignore .gitattributes .gitmodules .github 'git~1' GIT~2 gi7eba~1 '.git ' '.git.' \
  "$(printf '.g\342\200\214it')" "$(printf 'caf\351')" "$(printf 'two\nlines')" 'back\slash' "$(printf 'esc\033[0m')"; do
  echo x > "$name"; mkdir -p "in/$name"; echo x > "in/$name/x"
done
mkfifo pipe; mknod null c 1 3 2>/dev/null
unlink old.md; mkfifo old.md
echo page > page.md; echo spaces > 'a b.md'; echo dash > ./-rf; echo é > é.md"#;
    bench.start("odd", script).await?;
    let script =
        r#"set -e; cd "${ORCHESTRATOR_OUTPUT_DIR:?}"; echo x > locked.md; chmod 000 locked.md"#;
    bench.agent("locked", script, json!({})).await?;
    bench.submit("locked", on(bench, "odd", json!({}))).await?;
    let run = bench.pushed("odd", &repository, &Expect::default()).await?;
    bench.leaks_nothing(&run, &repository).await?;
    let plain = ["docs/page.md", "docs/a b.md", "docs/-rf", "docs/é.md"];
    has_files(&repository, "docs/odd", &with_base(&plain))?;
    for (path, text) in [("README.md", "hello\n"), ("docs/old.md", "old\n")] {
        let found = repository.read("docs/odd", path)?;
        ensure!(
            found.as_deref() == Some(text.as_bytes()),
            "{path} was changed"
        );
    }
    let expect = Expect::failure("PublishFailed").saying(&["docs/locked.md", "readable"]);
    bench.ended("locked", &expect).await?;
    ensure!(repository.head("docs/locked")?.is_none(), "pushed");
    Ok(".git and its other spellings, FIFO, device, names that cannot be shown, files outside output.path: left out; an unreadable file is named".to_owned())
}

pub(super) async fn left_process(bench: &Bench) -> Result<String> {
    let repository = bench.repository("process").await?;
    let mut gate = Gate::new(bench)?;
    let before = r#"set -e; cd "${ORCHESTRATOR_OUTPUT_DIR:?}"; echo page > page.md
"#;
    // They write only after the container's program has ended, if they live on.
    let after = r#"setsid sh -c 'trap "" TERM HUP INT; sleep 1; while sleep 0.1; do date > late.md; date > page.md; done' </dev/null >/dev/null 2>&1 &
(trap '' TERM HUP; sleep 1; while sleep 0.1; do date > late-too.md; done) &
exit 0"#;
    let script = [before, &gate.line(), after].concat();
    bench.start("process", &script).await?;
    gate.arrived(1).await?;
    // Publish looks at the server before it looks at the files.
    bench.git.freeze()?;
    gate.open();
    bench.says("process", "Publishing").await?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    bench.git.thaw()?;
    bench
        .pushed("process", &repository, &Expect::default())
        .await?;
    has_files(&repository, "docs/process", &with_base(&["docs/page.md"]))?;
    let page = repository.read("docs/process", "docs/page.md")?;
    ensure!(page.as_deref() == Some(b"page\n"), "{page:?}");
    Ok("what the agent left running wrote nothing more: it ended with its container".to_owned())
}

pub(super) async fn credentials_absent(bench: &Bench) -> Result<String> {
    let repository = bench.repository("search").await?;
    // Both kinds of secrets in one: whichever it finds counts.
    let mut all = bench.git.credentials_https();
    all.extend(bench.git.credentials_ssh());
    bench.secret(SECRET, &all).await?;
    bench.agent("search", SEARCH, json!({})).await?;
    bench
        .agent("token", SEARCH, json!({ "automountToken": true }))
        .await?;
    // One that it must find: a search that finds nothing shows nothing.
    let decoy = json!([{ "filename": "decoy.md", "content": "canary-decoy\n" }]);
    let more = json!({ "includeCodebase": true, "instructions": decoy.clone() });
    bench.submit("search", more).await?;
    let more = json!({ "repositoryUrl": bench.git.ssh_url("search"), "instructions": decoy });
    bench.submit("token", more).await?;
    for name in ["search", "token"] {
        let run = bench.pushed(name, &repository, &Expect::default()).await?;
        let said = bench.leaks_nothing(&run, &repository).await?.agent;
        // Whole lines: the script itself is in the list of processes.
        let has = |wanted: &str| said.lines().any(|line| line == wanted);
        ensure!(has("SEARCH done"), "{said}");
        let found: Vec<&str> = said
            .lines()
            .filter_map(|line| line.strip_prefix("FOUND in "))
            .collect();
        let is_decoy =
            |path: &&str| path.starts_with("/workspace/context/") && path.ends_with("/decoy.md");
        ensure!(
            !found.is_empty() && found.iter().all(is_decoy),
            "{name}: {found:?}: {said}"
        );
        for place in [
            "/credentials",
            "/scratch",
            "/var/lib/kubelet",
            "/run/containerd",
        ] {
            ensure!(!has(&format!("THERE {place}")), "{name}: {place}");
        }
        let has_token = has("TOKEN there");
        ensure!(has_token == (name == "token"), "{name}: token {has_token}");
        let strange = said
            .lines()
            .filter_map(|line| line.strip_prefix("PROCESS "))
            .find(|line| {
                line.contains("bin/step") || line.starts_with("git ") || line.contains("pause")
            });
        ensure!(strange.is_none(), "{name}: {strange:?} runs beside it");
        let pods = bench.pods_of(&run).await?;
        one_after_the_other(pods.first().context("no Pod")?)?;
    }
    Ok("neither key, password nor their folders in files, environment, mounts or processes, with a token neither; clone had ended and publish had not begun".to_owned())
}

/// Clone ended before the agent began, and the agent before publish.
fn one_after_the_other(pod: &Pod) -> Result<()> {
    let all = containers(pod);
    let times = |name: &str| -> Result<(Time, Time)> {
        let ended = all
            .iter()
            .find(|one| one.name == name)
            .and_then(|one| one.state.as_ref()?.terminated.as_ref())
            .with_context(|| format!("{name} did not end"))?;
        let begun = ended.started_at.clone().context("no start")?;
        Ok((begun, ended.finished_at.clone().context("no end")?))
    };
    let (clone, agent, publish) = (times("clone")?, times("agent")?, times("publish")?);
    ensure!(
        clone.1 <= agent.0 && agent.1 <= publish.0,
        "beside each other: {clone:?} {agent:?} {publish:?}"
    );
    Ok(())
}
