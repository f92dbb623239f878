//! An application that a Kustomization alone applies: an upgrade changes the tag of its image.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use api::{
    apps::{RollbackRequest, UpgradeRequest},
    names,
};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::super::{
    fixture::{self as apps, RARELY},
    manifests::{BUSYBOX, stateful_set},
};
use super::{
    evidence::{head, images, snapshots},
    fixture::{App, Bench, END, PLANNED, Setup},
    volume::exec,
};
use crate::flux::{KUSTOMIZE, create_any, dynamic, kustomization};

/// An image with two tags, which are names of the same image.
const IMAGE: &str = "testbed.local/program";
/// The Pod of the application.
const POD: &str = "program-0";
/// The file that an upgrade changes.
const FILE: &str = "app/kustomization.yaml";

fn tagged(tag: &str) -> String {
    format!("{IMAGE}:{tag}")
}

/// Returns the file with the tag. The operator searches it, because the ManagedApp names none.
fn tags(tag: &str) -> String {
    format!(
        "# Nobody may lose this comment.\n\
         apiVersion: kustomize.config.k8s.io/v1beta1\n\
         kind: Kustomization\n\
         resources: [statefulset-program.yaml]\n\
         images:\n  - name: {IMAGE}\n    newTag: \"{tag}\" # of the program\n"
    )
}

async fn launch(bench: &Bench) -> Result<App> {
    let env = &bench.env;
    let cluster = env.testbed("an image with two tags")?;
    for tag in ["1", "2"] {
        cluster.tag_image(BUSYBOX, &tagged(tag)).await?;
    }
    let setup = Setup {
        app: json!({ "git": { "images": [{
            "image": IMAGE, "document": { "kind": "Kustomization" },
            "fieldPath": "images[0].newTag",
        }] } }),
        ..Setup::store("app")
    };
    let mut program = stateful_set("program");
    program["spec"]["template"]["spec"]["containers"][0]["image"] = json!(IMAGE);
    let files = [(FILE.to_owned(), tags("1")), apps::file(&program)];
    let source = bench.commit_files(&setup, &files).await?;
    let mut object = kustomization(env, "app", "app", "./app");
    object["spec"]["interval"] = json!(RARELY);
    create_any(env, object).await?;
    bench.adopt(&setup, source).await
}

async fn request(bench: &Bench, name: &str, image: &str, more: Value) -> Result<()> {
    let mut spec = json!({
        "managedAppRef": { "name": "app" },
        "targetVersion": { "images": [{ "name": image, "tag": "2" }] },
    });
    crate::e2e::merge(&mut spec, more);
    let request = json!({
        "apiVersion": "orchestrator.io/v1alpha1", "kind": "UpgradeRequest",
        "metadata": { "name": name }, "spec": spec,
    });
    bench.env.create::<UpgradeRequest>(request).await?;
    Ok(())
}

/// Checks that this tag is in Git, in the Pod templates and in the Pod, and that Flux works.
async fn has_tag(bench: &Bench, app: &App, tag: &str) -> Result<()> {
    let env = &bench.env;
    bench.settled(app).await?;
    let file = app.source.repository().read(&head(app)?, FILE)?;
    let file = String::from_utf8(file.context("no file")?)?;
    ensure!(file == tags(tag), "the file is '{file}'");
    let wanted = BTreeSet::from([tagged(tag)]);
    let templates = images(env).await?;
    ensure!(templates == wanted, "images {templates:?}");
    let pod = env.api::<Pod>().get(POD).await?;
    let image = pod.spec.context("no spec")?.containers[0].image.clone();
    ensure!(image == Some(tagged(tag)), "the Pod runs {image:?}");
    let object = dynamic(env, KUSTOMIZE, "Kustomization").get("app").await?;
    let lock = object.annotations().get(names::LOCK);
    let suspend = &object.data["spec"]["suspend"];
    ensure!(
        lock.is_none() && *suspend != true,
        "the Kustomization has lock {lock:?} and suspend {suspend}"
    );
    Ok(())
}

/// R40, S1.2: the upgrade of an image with its snapshot, a rollback with the data, and an image without a field.
pub(super) async fn upgrade(bench: &Bench) -> Result<String> {
    let env = &bench.env;
    let app = launch(bench).await?;
    has_tag(bench, &app, "1").await?;
    request(bench, "other", "other", json!({ "dryRun": true })).await?;
    bench
        .fails::<UpgradeRequest>("other", PLANNED, "NoVersionPath", &["'other'"])
        .await?;

    exec(env, POD, "echo before > /data/file").await?;
    request(bench, "up", IMAGE, json!({})).await?;
    let state = bench.succeeds::<UpgradeRequest>("up", END).await?;
    has_tag(bench, &app, "2").await?;
    let evidence = state.evidence.context("no evidence")?;
    ensure!(
        evidence.images == [tagged("2")] && evidence.release.is_none(),
        "evidence {evidence:?}"
    );
    let taken = snapshots(env).await?;
    ensure!(
        taken.len() == 1 && state.snapshots.len() == 1,
        "{} snapshots, and in the status {:?}",
        taken.len(),
        state.snapshots
    );
    exec(env, POD, "echo after > /data/file").await?;

    bench.roll_back("back", "up").await?;
    bench.succeeds::<RollbackRequest>("back", END).await?;
    has_tag(bench, &app, "1").await?;
    let found = exec(env, POD, "cat /data/file").await?;
    ensure!(found == "before", "the file has '{found}'");
    Ok("image 1 to 2 and back, with the data from before".to_owned())
}
