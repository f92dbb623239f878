//! The tutorial as a reader types it.

use anyhow::{Context, Result, ensure};
use testkit::layout;

use super::{
    super::{quickstart, shell::Shell},
    fixture::{BUSYBOX, Bench, one_commit},
};

/// What the page has in place of the case's own.
const URL: &str = "https://git.example.com/team/shop.git";
const NAMESPACE: &str = "default";

pub(super) async fn tutorial(bench: &Bench) -> Result<String> {
    let cluster = bench.env.testbed("an image by another name")?;
    cluster
        .tag_image(BUSYBOX, "docker.io/library/busybox:1.35")
        .await?;
    let repository = bench.repository("team/shop").await?;
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::copy(cluster.folders.kubeconfig(), &kubeconfig)?;
    let mut credentials = bench.git.credentials_https();
    let authority = folder.path().join("ca.crt");
    std::fs::write(&authority, credentials.remove("ca.crt").context("no CA")?)?;
    let mut text = |key: &str| -> Result<String> {
        let value = credentials.remove(key).with_context(|| key.to_owned())?;
        Ok(String::from_utf8(value)?)
    };
    let (user, token) = (text("username")?, text("password")?);
    let binary = testkit::process::this_program()?;
    let programs = binary.parent().context("this program is in no folder")?;
    let url = bench.git.https_url("team/shop");
    let shell = Shell::new(&kubeconfig, folder.path())?.with(
        programs,
        &[
            ("REPOSITORY", &url),
            ("GIT_USER", &user),
            ("GIT_TOKEN", &token),
            ("GIT_CA", &authority.to_string_lossy()),
        ],
    )?;
    let namespace = &bench.env.namespace;
    shell
        .check(&format!(
            "kubectl config set-context --current --namespace {namespace}"
        ))
        .await?;
    let page =
        std::fs::read_to_string(layout::repository().join("docs/tutorials/documentation.md"))?;
    let steps = quickstart::steps(&page)?;
    let (mut failing, mut wrong) = (Vec::new(), String::new());
    for step in &steps {
        let output = shell.run(&step.command).await?;
        if !output.status.success() {
            failing.push(step.command.as_str());
        }
        // A reader sees both.
        let printed = (output.stdout + &output.stderr)
            .replace(&url, URL)
            .replace(namespace, NAMESPACE);
        if let Err(error) = quickstart::compare(&step.shown, &printed) {
            wrong.push_str(&format!("\n$ {}\n{error}", step.command));
        }
    }
    ensure!(wrong.is_empty(), "{wrong}");
    // The page shows how a failure looks.
    ensure!(
        failing.len() == 1
            && failing
                .iter()
                .all(|line| line.contains("submit docs shop-again")),
        "{failing:?} failed"
    );
    one_commit(&bench.runs().get("shop").await?, &repository)?;
    Ok(format!("{} commands", steps.len()))
}
