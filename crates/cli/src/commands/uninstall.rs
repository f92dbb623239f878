//! `uninstall --check`: would an uninstallation hang?
//!
//! An object with a finalizer of an operator is deleted only while that operator runs. If the chart
//! is uninstalled first, the deletion of the CRD waits for such an object indefinitely.

use actions::{Error, Object, Request};
use api::kinds::{self, KindRow};
use kube::{api::ListParams, core::DynamicObject};

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
    let lines = advice(found, &named, |rest, namespace| match namespace {
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

/// Returns whether the deletion of the object needs an operator that runs. An unfinished run or request counts
/// even without a finalizer: its operator may add one at any time.
fn hangs(object: &Object) -> bool {
    let has_finalizer = all_finalizers(object).next().is_some();
    let is_unfinished = object.name.is_ending() && object.outcome().is_none();
    has_finalizer || is_unfinished
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
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::state::tests::{a_run, a_tenant, condition};

    #[test]
    fn what_needs_the_operator_to_be_deleted_would_hang() {
        let finished = json!({ "phase": "Succeeded", "contextVersion": 1,
            "conditions": [condition("Finished", "True", "Succeeded"), condition("Succeeded", "True", "Succeeded")] });
        let with = |mut object: Object| {
            object.metadata.finalizers = Some(vec!["x.orchestrator.io/finalizer".to_owned()]);
            object
        };
        let run = |status| a_run(&json!({}), status);
        let running = json!({ "phase": "Running", "contextVersion": 1 });
        let cases = [
            ("finished", run(&finished), false, "none yet"),
            ("unfinished", run(&running), true, "none yet"),
            (
                "finished, not released",
                with(run(&finished)),
                true,
                "x.orchestrator.io/finalizer",
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
                "x.orchestrator.io/finalizer",
            ),
        ];
        for (name, object, wanted, shown) in cases {
            assert_eq!(hangs(&object), wanted, "{name}");
            assert_eq!(finalizers(&object), shown, "{name}");
        }
        let mut named = Vec::new();
        for name in ["a", "b"] {
            let mut object = run(&running);
            object.name.name = name.to_owned();
            object.metadata.namespace = Some("team".to_owned());
            add(&mut named, &object);
        }
        add(&mut named, &a_tenant(1, &json!({})));
        let lines = advice(3, &named, |rest, namespace| {
            let namespace = namespace.map_or_else(String::new, |name| format!(" -n {name}"));
            format!("kubectl {rest}{namespace}")
        });
        assert!(lines[0].starts_with("3 objects would"), "{lines:?}");
        assert_eq!(
            lines[2],
            "    kubectl delete taskruns.orchestrator.io a b -n team"
        );
        assert!(lines[3].starts_with("    kubectl delete tenants.orchestrator.io "));
        assert!(lines[4].contains("deletion.policy"), "{lines:?}");
    }
}
