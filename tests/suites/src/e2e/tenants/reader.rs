//! The commands of the docs that let an owner read their own Tenant.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use testkit::{layout, suite::Env, wait::until};

use super::{
    super::{
        quickstart::{self, Step},
        shell::{Output, Shell},
    },
    fixture::{Bench, SAID},
};

/// The page with the commands.
const PAGE: &str = "docs/concepts/tenants.md";
/// The Tenant of the page.
const TENANT: &str = "shop";
/// The owner of the page.
const OWNER: &str = "alice@example.com";

/// The user of a command of the page, and its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// The administrator grants the permission.
    Grants,
    /// The owner reads.
    Reads,
    /// The administrator revokes the permission.
    Revokes,
}

/// The effects of the commands, in the order of the page.
const PLAN: [Effect; 5] = [
    Effect::Grants,
    Effect::Grants,
    Effect::Reads,
    Effect::Reads,
    Effect::Revokes,
];

impl Effect {
    fn of(step: &Step) -> Result<Self> {
        let Step { command, .. } = step;
        let known = [
            ("kubectl create ", Self::Grants),
            ("kubectl get ", Self::Reads),
            ("orc why ", Self::Reads),
            ("kubectl delete ", Self::Revokes),
        ];
        let found = known.iter().find(|(begin, _)| command.starts_with(begin));
        let (_, effect) =
            found.with_context(|| format!("'{command}' is none of these: {known:?}"))?;
        ensure!(command.contains(TENANT), "'{command}' names no '{TENANT}'");
        Ok(*effect)
    }
}

/// Returns the commands of the page.
fn steps() -> Result<Vec<Step>> {
    let page = std::fs::read_to_string(layout::repository().join(PAGE))?;
    let steps = quickstart::steps(&page).context(PAGE)?;
    let effects: Vec<Effect> = steps.iter().map(Effect::of).collect::<Result<_>>()?;
    ensure!(effects == PLAN, "the commands of {PAGE} are {effects:?}");
    Ok(steps)
}

/// Runs the commands of the page in its order. The owner may read the Tenant only between the first ones and
/// the last one, and never another Tenant.
pub(super) async fn reads_own_tenant(env: Env) -> Result<String> {
    let steps = steps()?;
    let bench = Bench::new(env).await?;
    let owner = format!("{}@example.com", bench.env.namespace);
    let owners = json!([{ "kind": "User", "name": owner }]);
    // The cause that `orc why` must name to the owner.
    let open = json!({ "owners": owners, "networkPolicy": { "enabled": false } });
    let name = bench.launch("a", open).await?;
    let other = bench.create("b", json!({})).await?;
    let admin = Shell::of_case(&bench.env)?;
    let kubeconfig = admin.kubeconfig_of(&bench.env, &owner).await?;
    let user = Shell::of_case(&bench.env)?.with_kubeconfig(kubeconfig);
    let why = format!("orc why tenant/{name}");

    is_denied(&user.run(&why).await?, &why)?;
    for (step, effect) in steps.iter().zip(PLAN) {
        let command = step.command.replace(OWNER, &owner).replace(TENANT, &name);
        let printed = match effect {
            Effect::Grants | Effect::Revokes => admin.check(&command).await?,
            Effect::Reads => read(&user, &command).await?,
        };
        let printed = printed.replace(&owner, OWNER).replace(&name, TENANT);
        quickstart::compare(&step.shown, &printed).with_context(|| command.clone())?;
        if command == why {
            explains(&printed)?;
            for line in [
                format!("orc why tenant/{other}"),
                format!("kubectl get tenants.orchestrator.io {other}"),
                "kubectl get tenants.orchestrator.io".to_owned(),
            ] {
                is_denied(&user.run(&line).await?, &line)?;
            }
        }
    }
    // The API server acts on a deleted binding a moment later.
    until("the owner to lose the permission", SAID, async || {
        let output = user.run(&why).await?;
        Ok(is_denied(&output, &why).map_err(|error| error.to_string()))
    })
    .await?;
    bench.deletes(&name).await?;
    bench.deletes(&other).await?;
    Ok(format!("{} commands of the page", steps.len()))
}

/// Runs a command of the owner, now or when the API server acts on the new binding.
async fn read(user: &Shell, command: &str) -> Result<String> {
    until(command, SAID, async || {
        let Output {
            status,
            stdout,
            stderr,
        } = user.run(command).await?;
        Ok(status.success().then_some(stdout).ok_or(stderr))
    })
    .await
}

/// Returns a text as one line: `orc` breaks lines between any words.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Checks that the owner learns the cause, and may read everything but the operator's Lease.
fn explains(printed: &str) -> Result<()> {
    let flat = flat(printed);
    for words in [
        "READY, NOT ISOLATED · Tenant shop · PoliciesDisabled",
        "you may not read leases:",
    ] {
        ensure!(flat.contains(words), "no '{words}' in:\n{printed}");
    }
    Ok(())
}

/// Checks that the API server denied a read.
fn is_denied(output: &Output, line: &str) -> Result<()> {
    let Output {
        status,
        stdout,
        stderr,
    } = output;
    ensure!(!status.success(), "'{line}' succeeded: {stdout}");
    let words = match line.split_once(' ') {
        Some(("orc", _)) => "not allowed to read Tenant",
        Some(_) | None => "(Forbidden)",
    };
    ensure!(flat(stderr).contains(words), "'{line}' {status}: {stderr}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_commands_that_are_run() {
        steps().unwrap();
    }

    #[test]
    fn another_command_or_another_tenant_is_rejected() {
        let step = |command: &str| Step {
            command: command.to_owned(),
            shown: Vec::new(),
        };
        assert_eq!(
            Effect::of(&step("orc why tenant/shop")).unwrap(),
            Effect::Reads
        );
        for command in ["kubectl apply -f shop.yaml", "orc why tenant/bakery"] {
            Effect::of(&step(command)).unwrap_err();
        }
    }
}
