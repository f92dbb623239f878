//! The examples are accepted without changes, with strict field validation.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use api::kinds;
use http::Request;
use serde_json::Value;
use testkit::{cluster::Tier, layout, suite};

use crate::support::{install, path_of};

/// Returns the YAML files below a directory.
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

/// Returns the kind of an example, and the path where it is created.
fn place<'a>(document: &'a str, namespace: &str) -> Result<(&'a str, String)> {
    let kind = document
        .lines()
        .find_map(|line| line.strip_prefix("kind: "));
    let path = match (kind, kind.and_then(kinds::named)) {
        (_, Some(row)) => path_of(row, namespace, ""),
        (Some("Secret"), None) => format!("/api/v1/namespaces/{namespace}/secrets"),
        (Some(_) | None, None) => bail!("{kind:?} is no kind of an example"),
    };
    Ok((kind.unwrap_or_default(), path))
}

/// Checks that a Secret is a template: its keys are known, and its values cannot be real.
fn ensure_template(secret: &Value) -> Result<()> {
    let keys = secret["data"].as_object().context("no data")?;
    for key in keys.keys() {
        let known = ["username", "password", "identity", "known_hosts", "ca.crt"];
        ensure!(known.contains(&key.as_str()), "nobody reads '{key}'");
    }
    ensure!(secret.to_string().len() < 2000, "too much for a template");
    Ok(())
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
                let (kind, place) =
                    place(document, &env.namespace).with_context(|| path.display().to_string())?;
                // The API server parses the YAML itself, so it also rejects a duplicate key.
                let request = Request::post(format!("{place}?dryRun=All&fieldValidation=Strict"))
                    .header("Content-Type", "application/yaml")
                    .body(document.as_bytes().to_vec())?;
                let made: Value = env
                    .client
                    .request(request)
                    .await
                    .with_context(|| path.display().to_string())?;
                ensure!(made["kind"] == kind, "{made}");
                if kind == "Secret" {
                    ensure_template(&made)?;
                }
                count += 1;
            }
        }
        ensure!(count >= 12, "only {count} examples were found");
        println!("{count} examples accepted");
        Ok(())
    })
    .await
}
