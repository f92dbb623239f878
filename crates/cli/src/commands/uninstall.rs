//! `uninstall --check`: would an uninstallation hang?
//!
//! An object with a finalizer of an operator is deleted only while that operator runs. If the chart
//! is uninstalled first, the deletion of the CRD waits for such an object indefinitely.

use actions::{Error, Object, Request};
use api::{
    kinds::{self, KindRow},
    names,
};
use kube::{api::ListParams, core::DynamicObject};
use serde_json::{Value, json};

use crate::{
    Exit,
    arguments::Uninstall,
    failure::Failure,
    session::{Server, Session, ask},
    state,
    text::{Table, cell, count, toned},
};

/// Objects per list request. A run may have 900 KiB of files.
const PAGE: u32 = 100;

/// Maximum number of objects that are shown. All of them are counted.
const SHOWN: usize = 50;

/// Maximum number of commands that remove a finalizer. The others differ only in the name.
const PATCHES: usize = 3;

pub(crate) async fn run(verb: Uninstall, session: &mut Session<'_>) -> Result<Exit, Failure> {
    if !verb.check {
        return Err(Failure::client(
            "orc does not uninstall: give '--check' to see what would hang, then run 'helm uninstall'",
        ));
    }
    let server = session.server().await?;
    let mut table = Table::new(vec!["NAMESPACE", "OBJECT", "STATE", "FINALIZERS"]);
    let (mut found, mut installed) = (0_usize, 0_usize);
    let mut named: Vec<Named> = Vec::new();
    let mut patches = Vec::new();
    for row in kinds::all() {
        let mut next = None;
        loop {
            let Some(page) = page(&server, row, next).await? else {
                break;
            };
            installed = installed.saturating_add(1);
            for object in page.0 {
                let object = Object::new(row, object);
                if !hangs(&object) {
                    continue;
                }
                found = found.saturating_add(1);
                if found <= SHOWN {
                    add(&mut named, &object);
                    patches.extend(Release::of(&object));
                    let standing = state::standing(&object);
                    table.push(vec![
                        cell(object.metadata.namespace.as_deref().unwrap_or("-")),
                        cell(format!("{}/{}", row.singular, object.name.name)),
                        toned(standing.text(), standing.tone),
                        cell(finalizers(&object)),
                    ]);
                }
            }
            match page.1 {
                Some(token) => next = Some(token),
                None => break,
            }
        }
    }
    if installed == 0 {
        session.line("no CRD of Orchestrator exists: nothing would hang")?;
        return Ok(Exit::Ok);
    }
    if found == 0 {
        session.line("nothing would hang: no run is unfinished, and no object has a finalizer")?;
        return Ok(Exit::Ok);
    }
    session.print(&table.render(session.paint, session.room()))?;
    if found > SHOWN {
        session.remark(&format!("and {} more", found.saturating_sub(SHOWN)))?;
    }
    let lines = advice(found, &named, &patches, |rest, namespace| match namespace {
        Some(namespace) => session.kubectl(rest, namespace),
        None => session.same_cluster(&format!("kubectl {rest}")),
    });
    for line in lines {
        session.remark(&line)?;
    }
    Ok(Exit::Failed)
}

/// Objects of one kind in one namespace, which one command deletes.
#[derive(Debug)]
struct Named {
    row: &'static KindRow,
    namespace: Option<String>,
    names: Vec<String>,
}

fn add(all: &mut Vec<Named>, object: &Object) {
    let (row, namespace) = (object.name.kind, object.metadata.namespace.clone());
    let name = object.name.name.clone();
    let same = |known: &&mut Named| known.row == row && known.namespace == namespace;
    match all.iter_mut().find(same) {
        Some(known) => known.names.push(name),
        None => all.push(Named {
            row,
            namespace,
            names: vec![name],
        }),
    }
}

/// The removal of our finalizer from an object.
#[derive(Debug, PartialEq)]
struct Release {
    /// The command for kubectl, without the namespace.
    command: String,
    namespace: Option<String>,
}

impl Release {
    /// Returns `None` if the object has no finalizer of ours. Finalizers of others stay.
    fn of(object: &Object) -> Option<Self> {
        if !has_our_finalizer(object) {
            return None;
        }
        let ours = our_finalizer(object);
        let others: Vec<&String> = all_finalizers(object).filter(|one| **one != ours).collect();
        let others = match others.is_empty() {
            true => Value::Null,
            false => json!(others),
        };
        let patch = json!({ "metadata": { "finalizers": others } });
        let (crd, name) = (object.name.kind.crd_name, &object.name.name);
        Some(Self {
            command: format!("patch {crd} {name} --type merge --patch '{patch}'"),
            namespace: object.metadata.namespace.clone(),
        })
    }
}

/// Objects of one page, and the token for the next one.
type Page = (Vec<DynamicObject>, Option<String>);

/// Lists a page of the objects of a kind in all namespaces. `None`: the kind is not installed.
async fn page(
    server: &Server,
    row: &'static KindRow,
    from: Option<String>,
) -> Result<Option<Page>, Failure> {
    let request = Request {
        verb: "list",
        kind: row.name(),
        resource: row.crd_name,
        name: None,
        namespace: None,
    };
    let which = ListParams {
        limit: Some(PAGE),
        continue_token: from,
        ..ListParams::default()
    };
    let api = actions::objects(&server.client, row, None);
    match ask(request, api.list(&which)).await {
        Ok(list) => {
            let next = list.metadata.continue_.filter(|token| !token.is_empty());
            Ok(Some((list.items, next)))
        }
        Err(Failure::Action(error)) if matches!(*error, Error::Unknown { .. }) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Returns whether the deletion of the object needs an operator that runs. An unfinished run or request
/// counts even without a finalizer: its operator may add one at any time. A finalizer of another controller does
/// not count: that controller removes it.
fn hangs(object: &Object) -> bool {
    let is_unfinished = object.name.is_ending() && !is_finished(object);
    has_our_finalizer(object) || is_unfinished
}

/// Returns whether the run or request has finished. The conditions of a status can be missing or undecodable, and a
/// run that was restored without its status has only an annotation.
fn is_finished(run: &Object) -> bool {
    let (version, recorded) = (run.version(), run.recorded_version());
    let is_current = recorded.is_none() || recorded == version;
    let is_over = matches!(run.text("status.phase"), "Succeeded" | "Failed");
    let annotations = run.metadata.annotations.as_ref();
    let outcome = annotations.and_then(|all| all.get(names::OUTCOME));
    // Text that is no JSON is no evidence of an end.
    let of_version = |text: &String| {
        serde_json::from_str::<Value>(text).is_ok_and(|outcome| {
            let ended = outcome["version"].as_i64();
            outcome["outcome"].is_string() && version.is_none_or(|version| ended >= Some(version))
        })
    };
    run.outcome().is_some() || (is_over && is_current) || outcome.is_some_and(of_version)
}

/// Returns the finalizer that the operator of this kind adds.
fn our_finalizer(object: &Object) -> String {
    format!("{}/finalizer", object.name.kind.crd_name)
}

fn has_our_finalizer(object: &Object) -> bool {
    let ours = our_finalizer(object);
    all_finalizers(object).any(|one| *one == ours)
}

fn all_finalizers(object: &Object) -> impl Iterator<Item = &String> {
    let lists = object.metadata.finalizers.iter();
    lists.flat_map(|list| list.iter())
}

fn finalizers(object: &Object) -> String {
    match all_finalizers(object)
        .cloned()
        .collect::<Vec<String>>()
        .join(", ")
    {
        none if none.is_empty() => "none yet".to_owned(),
        some => some,
    }
}

/// Returns the next steps, in their order. `kubectl` completes a command for a namespace. The commands name each object:
/// others of the same kind may be finished, or nobody may want to delete them.
fn advice(
    found: usize,
    named: &[Named],
    patches: &[Release],
    kubectl: impl Fn(&str, Option<String>) -> String,
) -> Vec<String> {
    let mut lines = vec![
        format!(
            "{} would keep an uninstallation waiting after the operator is gone",
            count(found, "object")
        ),
        "  to delete them while the operator runs:".to_owned(),
    ];
    for Named {
        row,
        namespace,
        names,
    } in named
    {
        let rest = format!("delete {} {}", row.crd_name, names.join(" "));
        lines.push(format!("    {}", kubectl(&rest, namespace.clone())));
    }
    if named.iter().any(|one| !one.row.is_namespaced) {
        lines.push(
            "  a Tenant with 'deletion.policy: Delete' is deleted with its namespace and its data"
                .to_owned(),
        );
    }
    lines.push("  if the operator is gone already, install the chart again first".to_owned());
    if !patches.is_empty() {
        lines.push(
            "  if that is not possible, remove the finalizers; nothing waits for the Pods then:"
                .to_owned(),
        );
    }
    for patch in patches.iter().take(PATCHES) {
        let command = kubectl(&patch.command, patch.namespace.clone());
        lines.push(format!("    {command}"));
    }
    if let Some(more @ 1..) = patches.len().checked_sub(PATCHES) {
        let more = count(more, "object");
        lines.push(format!("    and {more} more in the same way"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use api::tasks::TASK_RUN;

    use super::*;
    use crate::state::tests::{a_run, a_tenant, condition};

    #[test]
    fn what_needs_the_operator_to_be_deleted_would_hang() {
        let finished = json!({ "phase": "Succeeded", "contextVersion": 1,
            "conditions": [condition("Finished", "True", "Succeeded"), condition("Succeeded", "True", "Succeeded")] });
        let with_finalizer = |mut object: Object, finalizer: &str| {
            object.metadata.finalizers = Some(vec![finalizer.to_owned()]);
            object
        };
        let with = |object: Object| {
            let ours = our_finalizer(&object);
            with_finalizer(object, &ours)
        };
        let restored = |text: &str| {
            let mut object = a_run(&json!({}), &json!({}));
            let outcome = (names::OUTCOME.to_owned(), text.to_owned());
            object.metadata.annotations = Some([outcome].into());
            object
        };
        let run = |status| a_run(&json!({}), status);
        let running = json!({ "phase": "Running", "contextVersion": 1 });
        let Object {
            metadata, mut data, ..
        } = a_run(&json!({}), &json!({ "phase": "Failed" }));
        data["status"]["conditions"] = json!("no list");
        let of_another_release = Object::new(
            &TASK_RUN,
            DynamicObject {
                types: None,
                metadata,
                data,
            },
        );
        let cases = [
            ("finished", run(&finished), false, "none yet"),
            ("unfinished", run(&running), true, "none yet"),
            (
                "finished, not released",
                with(run(&finished)),
                true,
                "taskruns.orchestrator.io/finalizer",
            ),
            (
                "finished, with a finalizer of another controller",
                with_finalizer(run(&finished), "backup.example/hold"),
                false,
                "backup.example/hold",
            ),
            (
                "finished, with a status of another release",
                of_another_release,
                false,
                "none yet",
            ),
            (
                "restored without its status",
                restored("{\"version\":1,\"outcome\":\"Succeeded\"}"),
                false,
                "none yet",
            ),
            (
                "restored, with the outcome of an earlier version",
                restored("{\"version\":0,\"outcome\":\"Succeeded\"}"),
                true,
                "none yet",
            ),
            (
                "an annotation that is no outcome",
                restored("yes"),
                true,
                "none yet",
            ),
            (
                "a new version",
                a_run(&json!({ "contextVersion": 2 }), &finished),
                true,
                "none yet",
            ),
            ("Tenant", a_tenant(1, &json!({})), false, "none yet"),
            (
                "Tenant with its finalizer",
                with(a_tenant(1, &json!({}))),
                true,
                "tenants.orchestrator.io/finalizer",
            ),
        ];
        for (name, object, wanted, shown) in cases {
            assert_eq!(hangs(&object), wanted, "{name}");
            assert_eq!(finalizers(&object), shown, "{name}");
        }
    }

    #[test]
    fn there_is_a_way_with_the_operator_and_one_without() {
        let mut named = Vec::new();
        let mut patches = Vec::new();
        let running = json!({ "phase": "Running", "contextVersion": 1 });
        for (name, finalizers) in [
            ("a", &[][..]),
            ("b", &["taskruns.orchestrator.io/finalizer"][..]),
            (
                "c",
                &["taskruns.orchestrator.io/finalizer", "backup.example/hold"][..],
            ),
        ] {
            let mut object = a_run(&json!({}), &running);
            object.name.name = name.to_owned();
            object.metadata.namespace = Some("team".to_owned());
            let finalizers = finalizers.iter().map(|one| (*one).to_owned());
            object.metadata.finalizers = Some(finalizers.collect());
            add(&mut named, &object);
            patches.extend(Release::of(&object));
        }
        add(&mut named, &a_tenant(1, &json!({})));
        let kubectl = |rest: &str, namespace: Option<String>| {
            let namespace = namespace.map_or_else(String::new, |name| format!(" -n {name}"));
            format!("kubectl {rest}{namespace}")
        };
        let lines = advice(4, &named, &patches, kubectl);
        assert!(lines[0].starts_with("4 objects would"), "{lines:?}");
        assert_eq!(
            lines[2],
            "    kubectl delete taskruns.orchestrator.io a b c -n team"
        );
        assert!(lines[3].starts_with("    kubectl delete tenants.orchestrator.io "));
        assert!(lines[4].contains("deletion.policy"), "{lines:?}");
        assert_eq!(
            lines[5..],
            [
                "  if the operator is gone already, install the chart again first",
                "  if that is not possible, remove the finalizers; nothing waits for the Pods then:",
                "    kubectl patch taskruns.orchestrator.io b --type merge --patch '{\"metadata\":{\"finalizers\":null}}' -n team",
                "    kubectl patch taskruns.orchestrator.io c --type merge --patch '{\"metadata\":{\"finalizers\":[\"backup.example/hold\"]}}' -n team",
            ]
        );
        let many: Vec<Release> = (0..5)
            .map(|number| Release {
                command: format!("patch {number}"),
                namespace: None,
            })
            .collect();
        let lines = advice(5, &named, &many, kubectl);
        assert_eq!(
            lines.last().map(String::as_str),
            Some("    and 2 objects more in the same way")
        );
    }
}
