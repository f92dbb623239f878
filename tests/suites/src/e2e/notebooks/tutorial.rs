//! The tutorial as a reader types it.

use anyhow::{Context, Result, ensure};
use testkit::layout;

use super::{
    super::{quickstart, shell::Shell},
    fixture::{Bench, KERNEL},
};

/// Values of the page in place of the case's own.
const URL: &str = "https://git.example.com/team/notebooks.git";
const NAMESPACE: &str = "default";
/// Image of the examples.
const IMAGE: &str = "quay.io/jupyter/base-notebook:python-3.12";

pub(super) async fn tutorial(bench: &Bench) -> Result<String> {
    let cluster = bench.env.testbed("an image by another name")?;
    cluster.tag_image(KERNEL, IMAGE).await?;
    let repository = bench
        .git
        .create("team/notebooks", "main", &[("README.md", "notebooks\n")])?;
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
    let url = bench.git.https_url("team/notebooks");
    let work = folder.path().join("work");
    // Commands of the reader run outside of the cluster's network, so git reaches the repository by its folder.
    let key = format!("url.{}.insteadOf", repository.folder.display());
    let shell = Shell::new(&kubeconfig, folder.path())?.with(
        programs,
        &[
            ("REPOSITORY", &url),
            ("WORK", &work.to_string_lossy()),
            ("GIT_USER", &user),
            ("GIT_TOKEN", &token),
            ("GIT_CA", &authority.to_string_lossy()),
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", &key),
            ("GIT_CONFIG_VALUE_0", &url),
            ("GIT_AUTHOR_NAME", "Reader"),
            ("GIT_AUTHOR_EMAIL", "reader@example.org"),
            ("GIT_COMMITTER_NAME", "Reader"),
            ("GIT_COMMITTER_EMAIL", "reader@example.org"),
        ],
    )?;
    let namespace = &bench.env.namespace;
    shell
        .check(&format!(
            "kubectl config set-context --current --namespace {namespace}"
        ))
        .await?;
    let path = layout::repository().join("docs/tutorials/notebooks.md");
    let steps = quickstart::steps(&std::fs::read_to_string(path)?)?;
    let (mut failing, mut wrong) = (Vec::new(), String::new());
    for step in &steps {
        let output = shell.run(&step.command).await?;
        if !output.status.success() {
            failing.push(step.command.as_str());
        }
        let printed = (output.stdout + &output.stderr)
            .replace(&url, URL)
            .replace(namespace, NAMESPACE);
        if let Err(error) = quickstart::compare(&step.shown, &printed) {
            wrong.push_str(&format!("\n$ {}\n{error}", step.command));
        }
    }
    ensure!(wrong.is_empty(), "{wrong}");
    // Only the broken job fails.
    ensure!(
        failing == ["orc wait notebook/sales-changed"],
        "{failing:?} failed"
    );
    Ok(format!("{} commands", steps.len()))
}
