//! Git servers that are away, slow, strange, or do not know us.

use std::{
    fs::File,
    io::Read,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::{Api, api::DeleteParams};
use serde_json::json;
use testkit::{
    git::{Behaviour, Credentials, Entry, Server},
    suite::Env,
};

use super::{
    fixture::{Bench, Expect, LIMIT, SECRET, WRITER, reason_of, says_all},
    gate::Gate,
    push::{has_files, not_started, on, untouched, with_base},
};

/// A wait that ends while a case looks on.
const SHORT: &str = "8s";

/// Another server: for its keys, or to be somebody else.
fn another(bench: &Bench) -> Result<Server> {
    Server::in_cluster(bench.env.testbed("a Git server in the cluster's network")?)
}

/// These credentials with one value of others.
fn with(mut ours: Credentials, key: &str, theirs: &Credentials) -> Result<Credentials> {
    let value = theirs.get(key).with_context(|| format!("no '{key}'"))?;
    ours.insert(key.to_owned(), value.clone());
    Ok(ours)
}

pub(super) async fn unreachable(env: Env) -> Result<String> {
    let mut bench = Bench::new(env).await?;
    let repository = bench.repository("away").await?;
    let base = repository.head("main")?;
    bench.agent("away", WRITER, json!({})).await?;
    bench
        .agent("hasty", WRITER, json!({ "startTimeout": SHORT }))
        .await?;
    bench.git.stop()?;
    let url = bench.git.https_url("away");
    let words = ["no connection", url.as_str(), "check that the server is up"];
    bench.submit("away", json!({})).await?;
    bench.submit("hasty", on(&bench, "away", json!({}))).await?;
    bench
        .waits_for("away", "RepositoryUnreachable", &words)
        .await?;
    let expect = not_started("RepositoryUnreachable").saying(&["not started", "no connection"]);
    bench.ended("hasty", &expect).await?;
    untouched(&repository, base.as_ref())?;
    bench.git.resume()?;
    let expect = Expect::after(&["RepositoryUnreachable"]);
    bench.pushed("away", &repository, &expect).await?;
    bench.done().await?;
    Ok("named within 10 s, failed after startTimeout, went on when it was back".to_owned())
}

pub(super) async fn slow(bench: &Bench) -> Result<String> {
    let repository = bench.repository("slow").await?;
    repository.set_behaviour(&Behaviour::Silent)?;
    bench.agent("slow", WRITER, json!({})).await?;
    // More than one server gets at once.
    for name in ["slow", "slow-2", "slow-3", "slow-4", "slow-5", "slow-6"] {
        let more = on(bench, "slow", json!({ "agentName": "slow" }));
        bench.submit(name, more).await?;
    }
    let other = another(bench)?;
    let quick = other.create("quick", "main", &[("README.md", "hello\n")])?;
    bench.secret("other", &other.credentials_https()).await?;
    let start = Instant::now();
    let more = json!({
        "agentName": "slow", "repositoryUrl": other.https_url("quick"),
        "credentialsSecretRef": { "name": "other" },
    });
    bench.submit("quick", more).await?;
    bench
        .until("quick", LIMIT, "an answer of its server", |status| {
            status.base_commit.is_some()
        })
        .await?;
    let took = start.elapsed();
    // T11: before any question to the silent server was over.
    let log = bench.operator.log_text()?;
    ensure!(
        took < Duration::from_secs(10) || !log.contains("no complete answer"),
        "T11: {took:?} beside a silent server"
    );
    bench.pushed("quick", &quick, &Expect::default()).await?;
    let asking = Duration::from_secs(15);
    bench
        .until("slow-6", asking, "what it waits for", |status| {
            let said = status.progress.message.clone().unwrap_or_default();
            said.contains("asking https://") || reason_of(status) == "RepositoryUnreachable"
        })
        .await?;
    let within = Duration::from_secs(40);
    let seen = bench
        .says_within("slow", "RepositoryUnreachable", within)
        .await?;
    says_all(
        &seen.status.unwrap_or_default(),
        &["no complete answer within 20 s"],
    )?;
    repository.set_behaviour(&Behaviour::Normal)?;
    let expect = Expect::after(&["RepositoryUnreachable"]);
    bench.pushed("slow", &repository, &expect).await?;
    Ok(format!(
        "silence is named, another server was asked within {:.1} s meanwhile",
        took.as_secs_f64()
    ))
}

/// What cannot be made smaller.
fn noise(bytes: usize) -> Result<Vec<u8>> {
    let mut noise = vec![0; bytes];
    File::open("/dev/urandom")?.read_exact(&mut noise)?;
    Ok(noise)
}

pub(super) async fn slow_clone(bench: &Bench) -> Result<String> {
    let repository = bench.repository("drip").await?;
    let noise = noise(200 << 10)?;
    let base = repository.commit("main", "noise", &[("noise", Entry::File(&noise))])?;
    // Enough for the operator's question, and for the clone's; too little for the objects.
    repository.set_behaviour(&Behaviour::Slow(400))?;
    bench.agent("drip", WRITER, json!({})).await?;
    bench
        .agent("hasty", WRITER, json!({ "startTimeout": "25s" }))
        .await?;
    bench.submit("drip", json!({})).await?;
    bench.submit("hasty", on(bench, "drip", json!({}))).await?;
    let within = Duration::from_secs(45);
    let seen = bench.says_within("drip", "Cloning", within).await?;
    says_all(&seen.status.unwrap_or_default(), &["clones the repository"])?;
    let expect = Expect {
        says: &["25s", "Cloning"],
        ..Expect::failure("StartTimeout")
    };
    bench.ended("hasty", &expect).await?;
    // Below 1000 bytes a second for a minute is the same as nothing.
    let expect = Expect::failure("RepositoryUnreachable")
        .saying(&["drip.git"])
        .within(Duration::from_secs(150));
    let run = bench.ended("drip", &expect).await?;
    untouched(&repository, Some(&base))?;
    let said = run.status.and_then(|status| status.progress.message);
    Ok(said.unwrap_or_default())
}

pub(super) async fn huge(env: Env) -> Result<String> {
    let docs = "    allowedNetworks: [198.18.0.0/24]\n    repositoryLimitMiB: 1\n";
    let bench = Bench::configured(env, docs).await?;
    let large = bench.repository("large").await?;
    large.commit("main", "noise", &[("noise", Entry::File(&noise(3 << 20)?))])?;
    // Small on the way, large on the disk.
    let bomb = bench.repository("bomb").await?;
    bomb.commit(
        "main",
        "zeros",
        &[("zeros", Entry::File(&vec![0; 3 << 20]))],
    )?;
    bench.agent("large", WRITER, json!({})).await?;
    for name in ["large", "bomb"] {
        bench.submit(name, json!({ "agentName": "large" })).await?;
    }
    let mut said = Vec::new();
    for (name, repository) in [("large", &large), ("bomb", &bomb)] {
        let base = repository.head("main")?;
        let expect = Expect::failure("RepositoryTooLarge")
            .saying(&["1 MiB", "the operator's configuration"]);
        let run = bench.ended(name, &expect).await?;
        untouched(repository, base.as_ref())?;
        said.extend(run.status.and_then(|status| status.progress.message));
    }
    bench.done().await?;
    Ok(said.join(" | "))
}

pub(super) async fn wrong_credentials(bench: &Bench) -> Result<String> {
    let repository = bench.repository("guarded").await?;
    let other = another(bench)?;
    let (https, ssh) = (bench.git.credentials_https(), bench.git.credentials_ssh());
    let wrong = with(https.clone(), "password", &other.credentials_https())?;
    bench.secret(SECRET, &wrong).await?;
    let wrong = with(ssh.clone(), "identity", &other.credentials_ssh())?;
    bench.secret("keys", &wrong).await?;
    bench.start("guarded", WRITER).await?;
    let more = json!({
        "agentName": "guarded", "repositoryUrl": bench.git.ssh_url("guarded"),
        "credentialsSecretRef": { "name": "keys" },
    });
    bench.submit("keyed", more).await?;
    let words = ["401", "username and password"];
    bench
        .waits_for("guarded", "AuthenticationFailed", &words)
        .await?;
    bench
        .waits_for("keyed", "AuthenticationFailed", &["ssh://"])
        .await?;
    bench.secret(SECRET, &https).await?;
    bench.secret("keys", &ssh).await?;
    let expect = Expect::after(&["AuthenticationFailed"]);
    for name in ["guarded", "keyed"] {
        bench.pushed(name, &repository, &expect).await?;
    }
    let log = bench.operator.log_text()?;
    for credentials in [other.credentials_https(), other.credentials_ssh()] {
        for key in ["password", "identity"] {
            let value = credentials
                .get(key)
                .map(|value| String::from_utf8_lossy(value));
            let line = value
                .as_deref()
                .and_then(|text| text.lines().nth(2).or(text.lines().next()));
            ensure!(
                line.is_none_or(|line| !log.contains(line)),
                "T12: a wrong {key} is in the log"
            );
        }
    }
    Ok("password and key: refused within 10 s, went on when the Secret was corrected".to_owned())
}

pub(super) async fn no_secret(bench: &Bench) -> Result<String> {
    let repository = bench.repository("bare").await?;
    bench.agent("bare", WRITER, json!({})).await?;
    let more = json!({ "credentialsSecretRef": { "name": "later" } });
    bench.submit("bare", more).await?;
    let words = ["Secret 'later'", "does not exist", "create it"];
    bench.waits_for("bare", "SecretNotFound", &words).await?;
    bench
        .secret("later", &bench.git.credentials_https())
        .await?;
    let expect = Expect::after(&["SecretNotFound"]);
    bench.pushed("bare", &repository, &expect).await?;
    Ok("named within 10 s, went on when it was made".to_owned())
}

pub(super) async fn bad_secret(bench: &Bench) -> Result<String> {
    let repository = bench.repository("keyless").await?;
    let base = repository.head("main")?;
    let (mut https, mut ssh) = (bench.git.credentials_https(), bench.git.credentials_ssh());
    https.remove("password");
    ssh.remove("known_hosts");
    bench.secret("half", &https).await?;
    bench.secret("keys", &ssh).await?;
    bench.agent("keyless", WRITER, json!({})).await?;
    let hasty = json!({ "startTimeout": SHORT });
    bench.agent("hasty", WRITER, hasty).await?;
    let more = json!({ "credentialsSecretRef": { "name": "half" } });
    bench.submit("keyless", more).await?;
    let more = json!({
        "repositoryUrl": bench.git.ssh_url("keyless"),
        "credentialsSecretRef": { "name": "keys" },
    });
    bench.submit("hasty", more).await?;
    bench
        .waits_for("keyless", "CredentialsInvalid", &["'password'", "https"])
        .await?;
    let expect = not_started("CredentialsInvalid").saying(&["'known_hosts'", "ssh-keyscan"]);
    bench.ended("hasty", &expect).await?;
    untouched(&repository, base.as_ref())?;
    // Server-side apply took the key away; here the whole is back.
    bench.secret("half", &bench.git.credentials_https()).await?;
    let expect = Expect::after(&["CredentialsInvalid"]);
    bench.pushed("keyless", &repository, &expect).await?;
    Ok("names the key that is missing, within 10 s".to_owned())
}

pub(super) async fn wrong_ca(bench: &Bench) -> Result<String> {
    let repository = bench.repository("sealed").await?;
    let other = another(bench)?;
    let right = bench.git.credentials_https();
    let wrong = with(right.clone(), "ca.crt", &other.credentials_https())?;
    bench.secret(SECRET, &wrong).await?;
    bench.start("sealed", WRITER).await?;
    let words = ["certificate is not trusted", "ca.crt"];
    bench
        .waits_for("sealed", "CertificateNotTrusted", &words)
        .await?;
    // No password went to a server that did not prove who it is.
    let visits = repository.activity()?.read_visits;
    ensure!(visits == 0, "{visits} visits");
    bench.secret(SECRET, &right).await?;
    let expect = Expect::after(&["CertificateNotTrusted"]);
    bench.pushed("sealed", &repository, &expect).await?;
    Ok("named within 10 s, went on when the Secret was corrected".to_owned())
}

pub(super) async fn unknown_host_key(env: Env) -> Result<String> {
    let mut bench = Bench::new(env).await?;
    let repository = bench.repository("host").await?;
    let base = repository.head("main")?;
    let other = another(&bench)?;
    let right = bench.git.credentials_ssh();
    // Another server's lines name another port: this one is unknown.
    let unknown = with(right.clone(), "known_hosts", &other.credentials_ssh())?;
    bench.secret("unknown", &unknown).await?;
    bench.secret("changed", &changed(&right, &other)?).await?;
    bench.secret("right", &right).await?;
    bench.agent("host", WRITER, json!({})).await?;
    let url = bench.git.ssh_url("host");
    let naming = |secret: &str, agent: &str| {
        json!({
            "agentName": agent, "repositoryUrl": url,
            "credentialsSecretRef": { "name": secret },
        })
    };
    for name in ["unknown", "changed"] {
        bench.submit(name, naming(name, "host")).await?;
    }
    for name in ["unknown", "changed"] {
        bench
            .waits_for(name, "HostKeyUnknown", &["SHA256:", "known_hosts"])
            .await?;
        bench.secret(name, &right).await?;
        let expect = Expect::after(&["HostKeyUnknown"]);
        bench.pushed(name, &repository, &expect).await?;
    }
    let pushed = repository.branches()?;

    // At the clone only: the Pod comes later than the operator's question.
    let hard = json!({ "hard": { "pods": "0" } });
    let quota = json!({ "metadata": { "name": "no-pods" }, "spec": hard });
    bench.env.create::<ResourceQuota>(quota).await?;
    let quotas: Api<ResourceQuota> = bench.env.api();
    tokio::time::sleep(Duration::from_secs(2)).await;
    bench.secret("cloning", &right).await?;
    bench.submit("cloning", naming("cloning", "host")).await?;
    bench.says("cloning", "QuotaExceeded").await?;
    bench.secret("cloning", &changed(&right, &other)?).await?;
    quotas.delete("no-pods", &DeleteParams::default()).await?;
    let expect = Expect::failure("HostKeyUnknown")
        .saying(&["SHA256:", "known_hosts"])
        .within(Duration::from_secs(120));
    bench.ended("cloning", &expect).await?;

    // At the push only: the server has other keys by then.
    let mut gate = Gate::new(&bench)?;
    let script = gate.line() + WRITER;
    bench.agent("gated", &script, json!({})).await?;
    bench.submit("pushing", naming("right", "gated")).await?;
    gate.arrived(1).await?;
    bench.git.renew_host_keys()?;
    gate.open();
    let run = bench.ended("pushing", &expect).await?;
    ensure!(repository.branches()? == pushed, "the remote was touched");
    ensure!(repository.head("main")? == base, "main was touched");
    bench.done().await?;
    let said = run.status.and_then(|status| status.progress.message);
    Ok(said.unwrap_or_default())
}

/// The right host with another's key.
fn changed(right: &Credentials, other: &Server) -> Result<Credentials> {
    let text = |credentials: &Credentials| {
        let lines = credentials.get("known_hosts").cloned().unwrap_or_default();
        String::from_utf8_lossy(&lines).into_owned()
    };
    let (ours, theirs) = (text(right), text(&other.credentials_ssh()));
    let lines = ours.lines().zip(theirs.lines());
    let mut mixed = String::new();
    for (ours, theirs) in lines {
        let (host, _) = ours.split_once(' ').context("no host")?;
        let (_, key) = theirs.split_once(' ').context("no key")?;
        mixed.push_str(&format!("{host} {key}\n"));
    }
    let mut changed = right.clone();
    changed.insert("known_hosts".to_owned(), mixed.into());
    Ok(changed)
}

pub(super) async fn branch_missing(bench: &Bench) -> Result<String> {
    let repository = bench.repository("there").await?;
    let base = repository.head("main")?;
    bench.agent("there", WRITER, json!({})).await?;
    bench
        .submit("there", json!({ "sourceBranch": "nowhere" }))
        .await?;
    let expect = not_started("BranchNotFound")
        .saying(&["no branch 'nowhere'"])
        .within(Duration::from_secs(10));
    bench.ended("there", &expect).await?;

    // A repository of that name is not there, over either way.
    let more = json!({ "agentName": "there", "repositoryUrl": bench.git.https_url("nothing") });
    bench.submit("nothing", more).await?;
    bench.secret("keys", &bench.git.credentials_ssh()).await?;
    let more = json!({
        "agentName": "there", "repositoryUrl": bench.git.ssh_url("nothing"),
        "credentialsSecretRef": { "name": "keys" },
    });
    bench.submit("keyed", more).await?;
    for name in ["nothing", "keyed"] {
        // The server is asked again after 5 s, and its second response is final.
        let expect = not_started("RepositoryNotFound")
            .saying(&["nothing.git"])
            .within(Duration::from_secs(15));
        bench.ended(name, &expect).await?;
    }
    untouched(&repository, base.as_ref())?;
    Ok("BranchNotFound and RepositoryNotFound at once, without a Job".to_owned())
}

pub(super) async fn redirect(bench: &Bench) -> Result<String> {
    let repository = bench.repository("moved").await?;
    let base = repository.head("main")?;
    let trap = bench.repository("trap").await?;
    let away = Behaviour::Redirect(bench.git.https_url("trap"));
    let mut gate = Gate::new(bench)?;
    let script = gate.line() + WRITER;
    bench.agent("gated", &script, json!({})).await?;
    let hasty = json!({ "startTimeout": SHORT });
    bench.agent("hasty", WRITER, hasty).await?;
    bench.submit("gated", on(bench, "moved", json!({}))).await?;
    gate.arrived(1).await?;
    // From here on: publish, and the operator's question of another run.
    repository.set_behaviour(&away)?;
    gate.open();
    bench.submit("hasty", on(bench, "moved", json!({}))).await?;
    let expect = not_started("RepositoryUnreachable").saying(&["redirects are not followed"]);
    bench.ended("hasty", &expect).await?;
    let expect = Expect::failure("RepositoryUnreachable").saying(&["moved.git"]);
    bench.ended("gated", &expect).await?;
    untouched(&repository, base.as_ref())?;
    let activity = trap.activity()?;
    ensure!(
        activity.read_visits + activity.write_visits == 0,
        "followed: {activity:?}"
    );
    Ok("followed neither by the operator nor by publish".to_owned())
}

pub(super) async fn path_missing(bench: &Bench) -> Result<String> {
    let repository = bench.repository("paths").await?;
    let base = repository.head("main")?;
    bench.agent("paths", WRITER, json!({})).await?;
    let nowhere = json!({ "agentName": "paths", "workingDirectory": "service/nowhere" });
    bench.submit("nowhere", on(bench, "paths", nowhere)).await?;
    let file = json!({ "agentName": "paths", "output": { "path": "README.md/docs" } });
    bench.submit("file", on(bench, "paths", file)).await?;
    for (name, words) in [("nowhere", "'service/nowhere'"), ("file", "'README.md'")] {
        let expect = Expect {
            says: &[words],
            ..Expect::failure("PathNotFound")
        };
        bench.ended(name, &expect).await?;
    }
    untouched(&repository, base.as_ref())?;
    // One that is there only in the agent's commit is made.
    let fresh = json!({ "agentName": "paths", "output": { "path": "handbook/pages" } });
    bench.submit("fresh", on(bench, "paths", fresh)).await?;
    bench
        .pushed("fresh", &repository, &Expect::default())
        .await?;
    has_files(
        &repository,
        "docs/fresh",
        &with_base(&["handbook/pages/index.md"]),
    )?;
    Ok("workingDirectory and output.path are named; a new output.path is made".to_owned())
}
