//! `get`

use std::collections::BTreeMap;

use actions::{Object, Request};
use api::{
    Lifecycle, Reason, Timestamp,
    kinds::{Column, Content, KindRow},
    status::condition::READY,
    tenants::{TENANT, condition::NETWORK_ISOLATED},
};
use futures::TryStreamExt;
use kube::{
    Api,
    api::ListParams,
    core::DynamicObject,
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};

use crate::{
    Exit,
    arguments::{Format, Get},
    failure::Failure,
    output,
    session::{Server, Session, ask},
    target,
    text::{Cell, Table, Tone, age, cell, toned},
    watching::{Trouble, trouble},
};

/// Objects per list request. A run may have 900 KiB of files.
const PAGE: u32 = 100;

/// The objects to be listed, and their format.
struct Question {
    kind: &'static KindRow,
    name: Option<String>,
    selector: Option<String>,
    is_everywhere: bool,
    /// The columns after the name.
    columns: Vec<Column>,
}

pub(crate) async fn run(verb: Get, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let (kind, name) = target::of_words(&verb.what).map_err(Failure::Client)?;
    if name.is_some() && (verb.all_namespaces || verb.selector.is_some()) {
        return Err(Failure::client(
            "one object is asked for by its name: '-A' and '-l' have no meaning then",
        ));
    }
    let is_data = matches!(verb.output, Some(Format::Json | Format::Yaml));
    if verb.watch && is_data {
        return Err(Failure::client(
            "'-w' prints lines: use it with '-o wide', '-o name' or without '-o'",
        ));
    }
    let question = Question {
        kind,
        name,
        selector: verb.selector,
        is_everywhere: verb.all_namespaces,
        columns: columns(kind, verb.output == Some(Format::Wide)),
    };
    let server = session.server().await?;
    if verb.watch {
        watch(&question, verb.output, &server, session).await?;
    } else if is_data {
        data(&question, verb.output, &server, session).await?;
    } else {
        lines(&question, verb.output, &server, session).await?;
    }
    Ok(Exit::Ok)
}

impl Question {
    fn api(&self, server: &Server) -> Api<DynamicObject> {
        let namespace = (!self.is_everywhere).then_some(server.namespace.as_str());
        actions::objects(&server.client, self.kind, namespace)
    }

    fn request(&self, verb: &'static str, server: &Server) -> Request {
        let is_here = !self.is_everywhere && self.kind.is_namespaced;
        Request {
            verb,
            kind: self.kind.name(),
            resource: self.kind.crd_name,
            name: self.name.clone(),
            namespace: is_here.then(|| server.namespace.clone()),
        }
    }

    /// Returns whether the rows begin with a namespace.
    fn has_namespace(&self) -> bool {
        self.is_everywhere && self.kind.is_namespaced
    }

    /// Reads the objects page by page.
    async fn each(
        &self,
        server: &Server,
        mut take: impl FnMut(DynamicObject) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut next = None;
        loop {
            let (objects, following) = self.page(server, next).await?;
            objects.into_iter().try_for_each(&mut take)?;
            match following {
                Some(_) => next = following,
                None => return Ok(()),
            }
        }
    }

    /// Reads the next page, and returns the token for the page after it.
    async fn page(
        &self,
        server: &Server,
        from: Option<String>,
    ) -> Result<(Vec<DynamicObject>, Option<String>), Failure> {
        if let Some(name) = &self.name {
            let object = ask(self.request("get", server), self.api(server).get(name)).await?;
            return Ok((vec![object], None));
        }
        let which = ListParams {
            label_selector: self.selector.clone(),
            limit: Some(PAGE),
            continue_token: from,
            ..ListParams::default()
        };
        let list = ask(self.request("list", server), self.api(server).list(&which)).await?;
        let next = list.metadata.continue_.filter(|token| !token.is_empty());
        Ok((list.items, next))
    }

    fn table(&self) -> Table {
        let mut head = Vec::new();
        if self.has_namespace() {
            head.push("NAMESPACE".to_owned());
        }
        head.push("NAME".to_owned());
        let columns = self.columns.iter();
        head.extend(columns.map(|column| column.name.to_ascii_uppercase()));
        Table::new(head)
    }

    fn row(&self, object: &Object, now: Timestamp) -> Vec<Cell> {
        let mut row = Vec::new();
        if self.has_namespace() {
            let namespace = object.metadata.namespace.as_deref();
            row.push(cell(namespace.unwrap_or_default()));
        }
        row.push(cell(&object.name.name));
        let columns = self.columns.iter();
        row.extend(columns.map(|column| self.cell(column.content, object, now)));
        row
    }

    fn cell(&self, content: Content, object: &Object, now: Timestamp) -> Cell {
        match content {
            Content::Text("status.phase") => self.phase(object),
            Content::Text(path) => cell(object.text(path)),
            Content::Number(path) => {
                let number = object.at(path).as_i64();
                cell(number.map_or_else(String::new, |number| number.to_string()))
            }
            Content::Condition(kind) => {
                let value = condition(object, kind)["status"].as_str();
                let value = value.unwrap_or("Unknown");
                let tone = match value {
                    "True" => Tone::Good,
                    "False" => Tone::Bad,
                    _ => Tone::Waiting,
                };
                toned(value, tone)
            }
            Content::Reason(_) if *self.kind == TENANT => cell(tenant_reason(object)),
            Content::Reason(kind) => {
                let reason = condition(object, kind)["reason"].as_str();
                cell(reason.unwrap_or_default())
            }
            Content::Age => {
                let created = object.metadata.creation_timestamp.as_ref();
                cell(age(created.map(|time| time.0), now))
            }
        }
    }

    fn phase(&self, object: &Object) -> Cell {
        let phase = object.text("status.phase");
        let tone = match (self.kind.lifecycle, phase) {
            (Lifecycle::LongLived, _) => Tone::Plain,
            (Lifecycle::RunToCompletion, "Succeeded") => Tone::Good,
            (Lifecycle::RunToCompletion, "Failed") => Tone::Bad,
            (Lifecycle::RunToCompletion, "Running") => Tone::Busy,
            (Lifecycle::RunToCompletion, _) => Tone::Waiting,
        };
        let is_deleting = object.metadata.deletion_timestamp.is_some();
        if is_deleting && phase != "Terminating" {
            toned(format!("{phase},Deleting"), tone)
        } else {
            toned(phase, tone)
        }
    }

    fn line_name(&self, object: &Object) -> String {
        format!("{}\n", self.kind.qualified(&object.name.name))
    }

    /// Returns the message for an empty result.
    fn nothing(&self, server: &Server) -> String {
        let what = self.kind.listed;
        let which = match &self.selector {
            Some(selector) => format!(" with labels '{selector}'"),
            None => String::new(),
        };
        if !self.kind.is_namespaced {
            format!("no {what}{which}")
        } else if self.is_everywhere {
            format!("no {what}{which} in any namespace")
        } else {
            format!("no {what}{which} in namespace '{}'", server.namespace)
        }
    }
}

/// Returns the columns after the name.
fn columns(kind: &KindRow, is_wide: bool) -> Vec<Column> {
    let all = kind.columns.iter().copied();
    let mut columns: Vec<Column> = all.filter(|column| is_wide || !column.is_wide).collect();
    if *kind == TENANT {
        // The reason of a Tenant that is not isolated must not be hidden.
        columns.retain(|column| column.content != Content::Reason(READY));
        columns.insert(2, Column::new("Reason", Content::Reason(READY)));
    }
    columns
}

/// Returns the reason of a Tenant. A running Tenant that is not isolated must not appear healthy.
fn tenant_reason(tenant: &Object) -> &str {
    let ready = condition(tenant, READY)["reason"].as_str();
    let isolated = condition(tenant, NETWORK_ISOLATED)["reason"].as_str();
    match (ready, isolated) {
        (Some("Ready"), Some(isolated)) if isolated != Reason::Isolated.name() => isolated,
        (ready, _) => ready.unwrap_or_default(),
    }
}

fn condition<'a>(object: &'a Object, kind: &str) -> &'a Value {
    let conditions = object.at("status.conditions").as_array();
    conditions
        .and_then(|all| all.iter().find(|condition| condition["type"] == kind))
        .unwrap_or(&Value::Null)
}

/// Prints the objects as lines. It reads them page by page and keeps only their rows.
async fn lines(
    question: &Question,
    format: Option<Format>,
    server: &Server,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    let mut table = question.table();
    let show = |object: DynamicObject| -> Result<(), Failure> {
        let object = Object::new(question.kind, object);
        if format == Some(Format::Name) {
            session.print(&question.line_name(&object))?;
        }
        table.push(question.row(&object, session.now()));
        Ok(())
    };
    question.each(server, show).await?;
    if table.is_empty() {
        session.remark(&question.nothing(server))?;
    } else if format != Some(Format::Name) {
        let room = session.room();
        session.print(&table.render(session.paint, room))?;
    }
    Ok(())
}

async fn data(
    question: &Question,
    format: Option<Format>,
    server: &Server,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    let mut items = Vec::new();
    let keep = |mut object: DynamicObject| -> Result<(), Failure> {
        // The items of a list have no type.
        object.types = Some(kube::core::TypeMeta {
            api_version: question.kind.resource.api_version(),
            kind: question.kind.name().to_owned(),
        });
        items.push(output::plain(&object)?);
        Ok(())
    };
    question.each(server, keep).await?;
    let value = match (&question.name, items.pop()) {
        (Some(_), Some(only)) => only,
        (_, last) => {
            items.extend(last);
            json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": items })
        }
    };
    let text = if format == Some(Format::Yaml) {
        output::yaml(&value)?
    } else {
        output::json(&value)?
    };
    session.print(&text)?;
    Ok(())
}

async fn watch(
    question: &Question,
    format: Option<Format>,
    server: &Server,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    if question.name.is_some() {
        // Without this request, a name that does not exist would lead to an endless wait instead of
        // an error.
        question.page(server, None).await?;
    }
    let mut which = watcher::Config::default();
    if let Some(selector) = &question.selector {
        which = which.labels(selector);
    }
    if let Some(name) = &question.name {
        which = which.fields(&format!("metadata.name={name}"));
    }
    let events = watcher(question.api(server), which).default_backoff();
    let mut events = std::pin::pin!(events);
    let (mut table, mut is_first) = (question.table(), true);
    let mut shown: BTreeMap<String, Vec<Cell>> = BTreeMap::new();
    loop {
        let event = tokio::select! {
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                return Ok(());
            }
            event = events.try_next() => event,
        };
        let (object, is_gone) = match event {
            Ok(Some(watcher::Event::Apply(object) | watcher::Event::InitApply(object))) => {
                (object, false)
            }
            Ok(Some(watcher::Event::Delete(object))) => (object, true),
            Ok(Some(watcher::Event::Init)) => continue,
            Ok(Some(watcher::Event::InitDone)) => {
                if is_first && format != Some(Format::Name) {
                    let room = session.room();
                    session.print(&table.render(session.paint, room))?;
                }
                is_first = false;
                continue;
            }
            Ok(None) => return Ok(()),
            Err(error) => match trouble(error, question.request("watch", server)) {
                Trouble::Fatal(failure) => return Err(failure),
                Trouble::Passing(words) => {
                    session.remark(&format!("{words}; trying again"))?;
                    continue;
                }
            },
        };
        let object = Object::new(question.kind, object);
        let row = |now| {
            let mut row = question.row(&object, now);
            if is_gone && let Some(phase) = row.get_mut(usize::from(question.has_namespace()) + 1) {
                *phase = toned("Deleted", Tone::Dim);
            }
            row
        };
        // Print no row if only the age has changed. After a lost connection, the watch delivers all
        // objects again.
        let news = row(Timestamp::UNIX_EPOCH);
        let uid = object.metadata.uid.clone().unwrap_or_default();
        if shown.get(&uid) == Some(&news) {
            continue;
        }
        if is_gone {
            shown.remove(&uid);
        } else {
            shown.insert(uid, news);
        }
        if format == Some(Format::Name) {
            session.print(&question.line_name(&object))?;
        } else if is_first {
            table.push(row(session.now()));
        } else {
            let row = row(session.now());
            table.widen(&row);
            let room = session.room();
            session.print(&table.render_row(&row, session.paint, room))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use api::tasks::{AGENT, DOCS_RUN, TASK_RUN};

    use super::*;
    use crate::text::Paint;

    fn question(kind: &'static KindRow, is_everywhere: bool, is_wide: bool) -> Question {
        Question {
            kind,
            name: None,
            selector: None,
            is_everywhere,
            columns: columns(kind, is_wide),
        }
    }

    fn object_of(kind: &'static KindRow, value: &Value) -> Object {
        Object::new(kind, serde_json::from_value(value.clone()).unwrap())
    }

    fn rendered(question: &Question, objects: &[Value]) -> String {
        let mut table = question.table();
        for object in objects {
            let object = object_of(question.kind, object);
            table.push(question.row(&object, "2026-01-01T01:00:00Z".parse().unwrap()));
        }
        table.render(Paint { is_on: false }, None)
    }

    #[test]
    fn runs_are_a_table() {
        let metadata = |name: &str| {
            json!({ "name": name, "namespace": "team",
            "creationTimestamp": "2026-01-01T00:00:00Z" })
        };
        let objects = [
            json!({ "metadata": metadata("shop-7"), "status": { "phase": "Failed",
                "contextVersion": 2, "attempts": 3, "message": "exit code 3",
                "conditions": [{ "type": "Succeeded", "status": "False", "reason": "NonZeroExit" }] } }),
            json!({ "metadata": metadata("new"), "status": { "phase": "Pending",
                "observedGeneration": -1, "message": "waiting for the operator to look at it" } }),
            json!({ "metadata": metadata("poison"), "status": { "phase": 7 } }),
        ];
        assert_eq!(
            rendered(&question(&TASK_RUN, false, false), &objects),
            "NAME     PHASE     REASON        VERSION   ATTEMPT   AGE\n\
             shop-7   Failed    NonZeroExit   2         3         60m\n\
             new      Pending                                     60m\n\
             poison                                               60m\n"
        );
        assert_eq!(
            rendered(&question(&TASK_RUN, true, true), &objects[..1]),
            "NAMESPACE   NAME     PHASE    REASON        VERSION   ATTEMPT   AGE   MESSAGE\n\
             team        shop-7   Failed   NonZeroExit   2         3         60m   exit code 3\n"
        );
    }

    #[test]
    fn documentation_is_a_table() {
        let objects = [
            json!({ "metadata": { "name": "guide", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "status": { "phase": "Succeeded", "branch": "docs/guide", "attempts": 1,
                "commit": "c0535e4", "message": "pushed",
                "conditions": [{ "type": "Succeeded", "status": "True", "reason": "Succeeded" }] } }),
        ];
        let docs = |is_wide| question(&DOCS_RUN, false, is_wide);
        assert_eq!(
            rendered(&docs(false), &objects),
            "NAME    PHASE       REASON      BRANCH       ATTEMPT   AGE\n\
             guide   Succeeded   Succeeded   docs/guide   1         60m\n"
        );
        assert_eq!(
            rendered(&docs(true), &objects),
            "NAME    PHASE       REASON      BRANCH       ATTEMPT   AGE   COMMIT    MESSAGE\n\
             guide   Succeeded   Succeeded   docs/guide   1         60m   c0535e4   pushed\n"
        );
        // A watch prints a row again only if more than the age has changed.
        let object = object_of(&DOCS_RUN, &objects[0]);
        let row = |clock: &str| docs(true).row(&object, clock.parse().unwrap());
        assert_ne!(row("2026-01-01T01:00:00Z"), row("2026-01-01T02:00:00Z"));
        assert_eq!(row("1970-01-01T00:00:00Z"), row("1971-01-01T00:00:00Z"));
    }

    #[test]
    fn agents_are_a_table() {
        let objects = [json!({ "metadata": { "name": "writer" }, "status": {
            "conditions": [{ "type": "Ready", "status": "True", "reason": "Ready" }] } })];
        assert_eq!(
            rendered(&question(&AGENT, false, false), &objects),
            "NAME     READY   STATUS   AGE\n\
             writer   True    Ready    <unknown>\n"
        );
        assert_eq!(
            rendered(&question(&AGENT, false, true), &objects),
            "NAME     READY   STATUS   AGE         IMAGE   MESSAGE\n\
             writer   True    Ready    <unknown>\n"
        );
    }

    #[test]
    fn tenants_are_a_table_without_a_namespace_of_their_own() {
        let condition = |kind: &str, value: &str, reason: &str| json!({ "type": kind, "status": value, "reason": reason });
        let objects = [
            json!({ "metadata": { "name": "acme", "creationTimestamp": "2026-01-01T00:00:00Z" },
                "status": { "phase": "Running", "namespace": "tenant-acme", "message": "redis 1/1 ready",
                    "conditions": [condition("Ready", "True", "Ready"),
                        condition("NetworkIsolated", "True", "Isolated")] } }),
            json!({ "metadata": { "name": "open", "creationTimestamp": "2026-01-01T00:00:00Z" },
                "status": { "phase": "Running", "namespace": "shop", "message": "ready",
                    "conditions": [condition("Ready", "True", "Ready"),
                        condition("NetworkIsolated", "False", "PolicyNotEnforced")] } }),
            json!({ "metadata": { "name": "new" }, "status": {} }),
        ];
        // Tenants are cluster-scoped, so `-A` makes no difference.
        for is_everywhere in [false, true] {
            assert_eq!(
                rendered(&question(&TENANT, is_everywhere, false), &objects),
                "NAME   READY     STATUS    REASON              ISOLATED   AGE\n\
                 acme   True      Running   Ready               True       60m\n\
                 open   True      Running   PolicyNotEnforced   False      60m\n\
                 new    Unknown                                 Unknown    <unknown>\n"
            );
        }
        assert_eq!(
            rendered(&question(&TENANT, false, true), &objects[..1]),
            "NAME   READY   STATUS    REASON   ISOLATED   AGE   NAMESPACE     MESSAGE\n\
             acme   True    Running   Ready    True       60m   tenant-acme   redis 1/1 ready\n"
        );
    }
}
