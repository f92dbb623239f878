//! Records a world from the cluster of the current kubeconfig, for `tests/worlds`:
//!
//! ```text
//! cargo run -p why --example record -- NAMESPACE taskrun/NAME > crates/why/tests/worlds/CASE.json
//! ```
//! A Tenant is cluster-scoped, so NAMESPACE can be any value for it. With `--text` the program
//! prints the explanation instead.

use std::io::Write;

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use why::{
    explain, gather,
    gather::{Options, Target, TargetKind},
    render,
};

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (namespace, object) = match arguments.as_slice() {
        [namespace, object, ..] => (namespace.clone(), object.clone()),
        _ => bail!("needs NAMESPACE KIND/NAME"),
    };
    let (kind, name) = object.split_once('/').context("needs KIND/NAME")?;
    let kind = TargetKind::parse(kind).with_context(|| format!("'{kind}' cannot be explained"))?;
    #[expect(clippy::disallowed_methods, reason = "the clock of this program")]
    let options = Options::at(Timestamp::now());
    let client = kube::Client::try_default().await?;
    let target = Target {
        kind,
        namespace,
        name: name.to_owned(),
    };
    let world = gather(client, target, options).await?;
    let text = if arguments.iter().any(|argument| argument == "--text") {
        render(&explain(&world), 100, false)
    } else {
        format!("{}\n", serde_json::to_string_pretty(&world)?)
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
