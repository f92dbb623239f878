//! `cargo xtask e2e install`: the chart, and the README's quickstart, the page about checks, the tutorial of
//! Tenants and the removal of everything, command by command.
//!
//! What a reader of the README does and this does not is one line, `kind load image-archive`: here
//! the node takes the archive directly. What this does beyond it is said in [`prepare`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use futures::{FutureExt, future::BoxFuture};
use serde_json::Value;
use testbed::{commands::announce, operator_image};
use testkit::{
    cluster::{Cluster, REGISTRY, Tier},
    layout,
    wait::{met, until},
};

mod earlier_values;
mod reach;
mod readiness;
mod rights;
mod uninstall;

use super::{
    chart::{self, NAMESPACE, Rules},
    gateway,
    quickstart::{self, Step},
    shell::Shell,
};
use crate::cases::Report;

/// Images of the examples, and what the node knows them as. Debian's busybox is a 1.35 too, and its Redis
/// a 7; the server is another one, which listens where it is told to, too.
const EXAMPLES: &[(&str, &str)] = &[
    ("busybox:1", "docker.io/library/busybox:1.35"),
    ("redis:7", "docker.io/library/redis:7"),
    ("notes:1", "docker.io/traefik/whoami:v1.10"),
];
const ACCOUNT: &str = "orchestrator-tasks";
/// For Pods that were told to stop: twice their grace.
const LIMIT: Duration = Duration::from_secs(20);

/// What must hold after a command of the README, beyond what it prints.
struct Check {
    /// How the command begins. One that the README has not is a failure.
    after: &'static str,
    name: &'static str,
    run: for<'a> fn(&'a Shell) -> BoxFuture<'a, Result<String>>,
}

const CHECKS: &[Check] = &[
    Check {
        after: "helm install ",
        name: "restricted",
        run: |shell| restricted(shell).boxed(),
    },
    Check {
        after: "helm install ",
        name: "rights",
        run: |shell| rights::generated(shell).boxed(),
    },
    Check {
        after: "helm install ",
        name: "who-may-what",
        run: |shell| who_may_what(shell).boxed(),
    },
    Check {
        after: "helm install ",
        name: "leader",
        run: |shell| leader(shell).boxed(),
    },
    Check {
        after: "helm install ",
        name: "closed",
        run: |shell| reach::closed(shell).boxed(),
    },
    Check {
        after: "kubectl wait --for=condition=Finished taskrun/first-run",
        name: "first-run",
        run: |shell| first_run(shell).boxed(),
    },
    Check {
        after: "kubectl wait --for=condition=Finished taskrun/first-failure",
        name: "first-failure",
        run: |shell| first_failure(shell).boxed(),
    },
    Check {
        after: "kubectl wait --for=condition=Finished taskrun/first-failure",
        name: "r17-restart",
        run: |shell| r17_restart(shell).boxed(),
    },
    Check {
        after: "kubectl wait --for=condition=Finished taskrun/first-failure",
        name: "old-crd",
        run: |shell| readiness::old_crd(shell).boxed(),
    },
    Check {
        after: "helm uninstall ",
        name: "kept",
        run: |shell| kept(shell).boxed(),
    },
    Check {
        after: "kubectl get taskruns",
        name: "some-namespaces",
        run: |shell| some_namespaces(shell).boxed(),
    },
];

/// Checks of the tutorial of Tenants.
const TENANT_CHECKS: &[Check] = &[Check {
    after: "helm upgrade ",
    name: "earlier-values",
    run: |shell| earlier_values::kept(shell).boxed(),
}];

/// Checks after all pages, each with an installation of its own.
const REMOVALS: &[Check] = &[
    Check {
        after: "",
        name: "uninstall",
        run: |shell| uninstall::with_operator(shell).boxed(),
    },
    Check {
        after: "",
        name: "uninstall-without-operator",
        run: |shell| uninstall::without_operator(shell).boxed(),
    },
];

/// Runs all checks. CI has no time for those of the gateway, which need `is_whole`.
pub(super) async fn run(is_whole: bool) -> Result<ExitCode> {
    let mut report = Report::start("e2e-install")?;
    let start = Instant::now();
    if let Err(error) = install(&mut report, is_whole).await {
        // Without this case, the suite would fail while its JUnit file has no failed case.
        report.case("install", start, Err(error));
    }
    report.end()
}

/// The commands of a page, with the checks after them.
fn page(path: &str, checks: &[Check]) -> Result<Vec<Step>> {
    let text = fs::read_to_string(layout::repository().join(path))?;
    let steps = quickstart::steps(&text).with_context(|| path.to_owned())?;
    for Check { after, name, .. } in checks {
        ensure!(
            steps.iter().any(|step| step.command.starts_with(after)),
            "{path} has no command '{after}…', after which '{name}' is to be checked"
        );
    }
    Ok(steps)
}

/// Reports the chart, then each command of the pages.
async fn install(report: &mut Report, is_whole: bool) -> Result<()> {
    chart::run(report).await?;
    let steps = page("README.md", CHECKS)?;
    let checked = page("docs/operate/check.md", &[])?;
    let tenants = page("docs/tutorials/tenants.md", TENANT_CHECKS)?;
    let cluster =
        Cluster::start(&format!("e2e-install-{}", std::process::id()), Tier::Node).await?;
    announce(&cluster);
    let folders = &cluster.folders;
    let program = testkit::process::this_program()?;
    let programs = program.parent().context("this program is in no folder")?;
    let shell = Shell::new(&folders.kubeconfig(), &folders.run.join("kubectl"))?;
    let shell = shell.with(programs, &[])?;
    let ran = match prepare(&cluster, &shell).await {
        Ok(()) => {
            let mut followed = follow(&cluster, &shell, &steps, CHECKS, "readme", report).await;
            let start = Instant::now();
            report.case("earlier-value", start, earlier_values::set(&shell).await);
            let none: &[Check] = &[];
            for (name, steps, checks) in [
                ("check", &checked, none),
                ("tenants", &tenants, TENANT_CHECKS),
            ] {
                let next = follow(&cluster, &shell, steps, checks, name, report).await;
                followed = followed.and(next);
            }
            for Check { name, run, .. } in REMOVALS {
                let start = Instant::now();
                report.case(name, start, run(&shell).await);
            }
            if is_whole {
                let start = Instant::now();
                report.case(
                    "gateway-life",
                    start,
                    gateway::installed::life(&shell).await,
                );
            }
            followed
        }
        Err(error) => Err(error),
    };
    let stopped = cluster.stop().await;
    ran.and(stopped)
}

/// What a reader need not do: the node gets the examples' images under the names that are pulled
/// elsewhere, and both namespaces refuse Pods that are not `restricted`.
async fn prepare(cluster: &Cluster, shell: &Shell) -> Result<()> {
    for (image, name) in EXAMPLES {
        cluster
            .tag_image(&format!("{REGISTRY}/{image}"), name)
            .await?;
    }
    shell
        .check(&format!("kubectl create namespace {NAMESPACE}"))
        .await?;
    shell
        .check(&format!(
            "kubectl label namespace default {NAMESPACE} pod-security.kubernetes.io/enforce=restricted"
        ))
        .await?;
    Ok(())
}

/// Does what a page says, until something is not as it says.
async fn follow(
    cluster: &Cluster,
    shell: &Shell,
    steps: &[Step],
    checks: &[Check],
    page: &str,
    report: &mut Report,
) -> Result<()> {
    let mut failed = None;
    for (index, step) in steps.iter().enumerate() {
        let name = format!("{page}-{}", index + 1);
        let checks = || {
            checks
                .iter()
                .filter(|check| step.command.starts_with(check.after))
        };
        if let Some(failed) = &failed {
            let why = format!("after '{failed}' failed");
            report.skipped(&name, &why);
            checks().for_each(|check| report.skipped(check.name, &why));
            continue;
        }
        let start = Instant::now();
        let result = perform(cluster, shell, step).await;
        if !report.case(&name, start, result) {
            failed = Some(step.command.clone());
        }
        for check in checks() {
            let start = Instant::now();
            let result = (check.run)(shell).await;
            report.case(check.name, start, result);
        }
    }
    if report.summary.failed > 0 {
        println!("{}", diagnosis(shell).await);
    }
    Ok(())
}

/// One command of the README, and that it prints what the README shows.
async fn perform(cluster: &Cluster, shell: &Shell, step: &Step) -> Result<String> {
    let Step { command, shown } = step;
    if let Some(archive) = command.strip_prefix("kind load image-archive ") {
        cluster
            .load_image(&layout::repository().join(archive).canonicalize()?)
            .await?;
        return Ok(format!("'{command}', here by the node itself"));
    }
    let line = match command.split_once(' ') {
        // The one beside this program, not one to be built anew.
        Some(("cargo", rest)) => {
            let task = rest
                .strip_prefix("xtask ")
                .with_context(|| format!("'{command}': of cargo's commands only 'xtask' is run"))?;
            let xtask = testkit::process::this_program()?.with_file_name("xtask");
            format!("'{}' {task}", xtask.display())
        }
        Some(("helm" | "kubectl" | "orc", _)) => command.clone(),
        Some(_) | None => {
            bail!("'{command}' is none of cargo xtask, kind load, helm, kubectl, orc")
        }
    };
    let printed = if refuses(step) {
        let output = shell.run(&line).await?;
        ensure!(!output.status.success(), "'{command}' succeeded");
        output.stdout
    } else if fails(step) {
        // A reader sees both outputs.
        let output = shell.run(&format!("{{ {line}; }} 2>&1")).await?;
        ensure!(!output.status.success(), "'{command}' succeeded");
        output.stdout
    } else {
        shell.check(&line).await?
    };
    quickstart::compare(shown, &printed)
        .and_then(|()| {
            quickstart::compare_figures(shown, &printed, operator_image::is_users_profile())
        })
        .with_context(|| format!("'{command}'"))?;
    Ok(format!("'{command}'"))
}

/// Whether the answer is no, which is another code than 0.
fn refuses(step: &Step) -> bool {
    step.shown.iter().map(String::as_str).eq(["no"])
}

/// Whether the page shows an error.
fn fails(step: &Step) -> bool {
    step.shown.iter().any(|line| line.starts_with("error: "))
}

/// What who looks for the fault would ask first.
async fn diagnosis(shell: &Shell) -> String {
    let mut text = String::new();
    for line in [
        "kubectl get pods --all-namespaces --output wide".to_owned(),
        "kubectl get agents,taskruns --all-namespaces --output wide".to_owned(),
        "kubectl get events --all-namespaces --field-selector type=Warning".to_owned(),
        format!(
            "kubectl --namespace {NAMESPACE} logs --prefix --tail 40 --selector app.kubernetes.io/name=orchestrator"
        ),
    ] {
        match shell.run(&line).await {
            Ok(output) => {
                text.push_str(&format!("--- {line}\n{}{}", output.stdout, output.stderr));
            }
            Err(error) => text.push_str(&format!("--- {line}\n{error:#}\n")),
        }
    }
    text
}

/// The Pods of the operator that are not on their way out, by UID.
async fn pods(shell: &Shell) -> Result<BTreeSet<String>> {
    let list = shell
        .get(&format!(
            "pods --namespace {NAMESPACE} --selector app.kubernetes.io/component=tasks"
        ))
        .await?;
    Ok(list["items"]
        .as_array()
        .context("a list without items")?
        .iter()
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
        .map(|pod| pod["metadata"]["uid"].to_string())
        .collect())
}

/// Both Pods run in a namespace that refuses all that is not `restricted`.
async fn restricted(shell: &Shell) -> Result<String> {
    let namespace = shell.get(&format!("namespace {NAMESPACE}")).await?;
    ensure!(
        namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted",
        "the namespace does not enforce anything: {}",
        namespace["metadata"]["labels"]
    );
    let rollout = format!(
        "kubectl --namespace {NAMESPACE} rollout status deployment/{ACCOUNT} --timeout 60s"
    );
    shell.check(&rollout).await?;
    let count = pods(shell).await?.len();
    ensure!(count == 2, "{count} Pods instead of 2");
    Ok("2 Pods are ready in a namespace that enforces 'restricted'".to_owned())
}

/// Who may write Agents and nothing else is refused one that names a Secret, and may run what names
/// none; the cluster's own role `edit`, which may create Pods, may do both.
async fn who_may_what(shell: &Shell) -> Result<String> {
    let (plain, secret) = ("first-run.yaml", "agents/language-model.yaml");
    for (user, role) in [("author", "orchestrator-tasks-edit"), ("editor", "edit")] {
        shell
            .check(&format!(
                "kubectl create rolebinding {user} --clusterrole {role} --user {user}"
            ))
            .await?;
    }
    let submit = |user: &str, example: &str| {
        format!("kubectl create --dry-run=server --as {user} -f examples/{example}")
    };
    // The roles that the cluster's own take in are put together after a while.
    until("the editor's rights", LIMIT, async || {
        let output = shell.run(&submit("editor", secret)).await?;
        Ok(met(output.status.success(), || output.stderr))
    })
    .await?;
    shell.check(&submit("author", plain)).await?;
    let words = "spec.env 'MODEL_API_KEY' names the Secret 'language-model': 'author' must be allowed to \
                 'create pods' or to 'get secrets' in the namespace 'default'";
    let refused = shell.run(&submit("author", secret)).await?;
    ensure!(
        !refused.status.success() && refused.stderr.contains(words),
        "not refused with \"{words}\", but: {}{}",
        refused.stdout,
        refused.stderr
    );
    shell
        .check("kubectl delete rolebinding author editor")
        .await?;
    Ok("a Secret needs a right to it; 'edit' has all that running agents needs".to_owned())
}

/// One of the two leads, by a Lease beside them.
async fn leader(shell: &Shell) -> Result<String> {
    let lease = shell
        .get(&format!("lease {ACCOUNT} --namespace {NAMESPACE}"))
        .await?;
    let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
    ensure!(!holder.is_empty(), "nobody holds the Lease: {lease}");
    Ok(format!("Lease '{ACCOUNT}' is held by '{holder}'"))
}

/// The condition of a run that is so named.
fn condition<'a>(run: &'a Value, wanted: &str) -> &'a Value {
    run["status"]["conditions"]
        .as_array()
        .and_then(|list| list.iter().find(|condition| condition["type"] == wanted))
        .unwrap_or(&Value::Null)
}

fn has_ended(run: &Value, phase: &str, succeeded: &str, reason: &str) -> Result<()> {
    let (how, message) = (condition(run, "Succeeded"), &run["status"]["message"]);
    for (what, wanted, found) in [
        ("phase", phase, &run["status"]["phase"]),
        ("Finished", "True", &condition(run, "Finished")["status"]),
        ("Succeeded", succeeded, &how["status"]),
        ("reason", reason, &how["reason"]),
    ] {
        ensure!(
            found == wanted,
            "{what} is {found}, not '{wanted}'; message: {message}; status: {}",
            run["status"]
        );
    }
    ensure!(
        message.as_str().is_some_and(|text| !text.is_empty()),
        "no message"
    );
    Ok(())
}

async fn first_run(shell: &Shell) -> Result<String> {
    let run = shell.get("taskrun first-run").await?;
    has_ended(&run, "Succeeded", "True", "Succeeded")?;
    // "Count the words of this file."
    let words = &run["status"]["result"]["results"]["words"];
    ensure!(words == "6", "the agent counted {words} words instead of 6");
    Ok(format!("6 words; {}", run["status"]["message"]))
}

async fn first_failure(shell: &Shell) -> Result<String> {
    let run = shell.get("taskrun first-failure").await?;
    has_ended(&run, "Failed", "False", "NonZeroExit")?;
    let (code, message) = (
        &run["status"]["result"]["exitCode"],
        run["status"]["message"].as_str().unwrap_or_default(),
    );
    ensure!(code == 3, "exit code {code} instead of 3");
    ensure!(
        message.contains("exited with code 3"),
        "the message does not name the exit code: {message}"
    );
    Ok(message.to_owned())
}

/// A changed configuration replaces the Pods; an upgrade without a change does not.
async fn r17_restart(shell: &Shell) -> Result<String> {
    let upgrade =
        format!("helm upgrade orchestrator charts/orchestrator --namespace {NAMESPACE} --wait");
    let before = pods(shell).await?;
    shell.check(&upgrade).await?;
    let same = pods(shell).await?;
    ensure!(
        same == before,
        "an upgrade without a change replaced Pods: {before:?}, {same:?}"
    );
    shell
        .check(&format!("{upgrade} --set config.log.filter=debug"))
        .await?;
    until("all Pods to be new", LIMIT, async || {
        let after = pods(shell).await?;
        Ok(met(after.len() == 2 && after.is_disjoint(&before), || {
            format!("{after:?}, before {before:?}")
        }))
    })
    .await?;
    let map = shell
        .get(&format!(
            "configmap orchestrator-config --namespace {NAMESPACE}"
        ))
        .await?;
    let file = map["data"]["config.yaml"].as_str().unwrap_or_default();
    ensure!(file.contains("filter: debug"), "config.yaml is '{file}'");
    Ok("a changed configuration replaced both Pods, an unchanged one none".to_owned())
}

/// Objects and their definitions outlive the release, and a new one finds them as they were.
async fn kept(shell: &Shell) -> Result<String> {
    for kind in chart::kinds("tasks")?.keys() {
        shell.get(&format!("crd {kind}")).await?;
    }
    let before = runs(shell).await?;
    ensure!(before.len() == 2, "left are only {before:?}");
    let gone = format!(
        "kubectl get deployments,serviceaccounts,clusterroles,clusterrolebindings,roles,rolebindings,configmaps,networkpolicies,\
         validatingadmissionpolicies,validatingadmissionpolicybindings \
         --namespace {NAMESPACE} --selector app.kubernetes.io/part-of=orchestrator --output name"
    );
    let left = shell.check(&gone).await?;
    ensure!(left.is_empty(), "uninstalled, but there is still {left}");

    shell
        .check(&format!(
            "helm install orchestrator charts/orchestrator --namespace {NAMESPACE} --wait"
        ))
        .await
        .context("install again")?;
    let after = runs(shell).await?;
    ensure!(
        before == after,
        "the new installation changed what had ended: {before:?}, {after:?}"
    );
    Ok("definitions and both runs stayed; a new installation left them as they were".to_owned())
}

/// Installed for some namespaces, it has rights in no other, and works in these.
async fn some_namespaces(shell: &Shell) -> Result<String> {
    let Rules {
        watched,
        cluster,
        own,
    } = chart::generated("tasks")?;
    shell
        .check(&format!(
            "helm upgrade orchestrator charts/orchestrator --namespace {NAMESPACE} --wait \
             --set 'watchNamespaces={{default}}'"
        ))
        .await?;
    rights::may(shell, "default", &[&watched, &cluster]).await?;
    rights::may(shell, NAMESPACE, &[&cluster, &own]).await?;
    rights::may(shell, "kube-public", &[&cluster]).await?;
    for line in [
        "kubectl delete taskrun first-run --timeout=1m",
        "kubectl apply -f examples/first-run.yaml",
        "kubectl wait --for=condition=Finished taskrun/first-run --timeout=2m",
    ] {
        shell.check(line).await?;
    }
    first_run(shell).await?;
    Ok("with 'watchNamespaces={default}' it may do nothing elsewhere, and runs agents".to_owned())
}

/// Each run with its UID and version.
async fn runs(shell: &Shell) -> Result<BTreeMap<String, (String, String)>> {
    let list = shell.get("taskruns").await?;
    let field = |run: &Value, name: &str| run["metadata"][name].to_string();
    Ok(list["items"]
        .as_array()
        .context("a list without items")?
        .iter()
        .map(|run| {
            let version = field(run, "resourceVersion");
            (field(run, "name"), (field(run, "uid"), version))
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_can_be_run() {
        let none: &[Check] = &[];
        for (path, checks) in [
            ("README.md", CHECKS),
            ("docs/operate/check.md", none),
            ("docs/tutorials/tenants.md", TENANT_CHECKS),
        ] {
            let steps = page(path, checks).unwrap();
            assert!(steps.len() >= 4, "{path}");
        }
    }

    #[test]
    fn a_step_with_an_error_must_fail() {
        let steps = page("docs/operate/check.md", &[]).unwrap();
        let failing: Vec<&str> = steps
            .iter()
            .filter(|step| fails(step))
            .map(|step| step.command.as_str())
            .collect();
        assert_eq!(failing, ["orc get tenants"]);
    }
}
