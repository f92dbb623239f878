//! The examples are accepted as they stand, strictly.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use http::Request;
use serde_json::Value;
use testkit::{cluster::Tier, layout, suite};

use crate::support::{Kind, install};

/// The YAML files below a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else if path.extension().is_some_and(|end| end == "yaml") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn kind(document: &str) -> Result<Kind> {
    let line = document.lines().find(|line| line.starts_with("kind: "));
    match line {
        Some("kind: Agent") => Ok(Kind::Agent),
        Some("kind: TaskRun") => Ok(Kind::TaskRun),
        other => bail!("{other:?} is none of our kinds"),
    }
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn examples_are_accepted() -> Result<()> {
    suite::test(Tier::Api, "examples", async |env| {
        install(&env.client).await?;
        let mut count = 0;
        for path in files(&layout::repository().join("examples"))? {
            let text = fs::read_to_string(&path)?;
            for document in text.split("\n---\n") {
                let kind = kind(document).with_context(|| path.display().to_string())?;
                let place = kind.path(&env.namespace, "");
                // The server reads the YAML itself: a key that stands twice is refused, too.
                let request = Request::post(format!("{place}?dryRun=All&fieldValidation=Strict"))
                    .header("Content-Type", "application/yaml")
                    .body(document.as_bytes().to_vec())?;
                let made: Value = env
                    .client
                    .request(request)
                    .await
                    .with_context(|| path.display().to_string())?;
                ensure!(made["kind"] == format!("{kind:?}"), "{made}");
                count += 1;
            }
        }
        ensure!(count >= 8, "only {count} examples were found");
        println!("{count} examples accepted");
        Ok(())
    })
    .await
}
