//! `get`

mod filter;
mod watch;

use actions::{Error, Object, ObjectName, Request};
use api::{
    Lifecycle, Reason, Timestamp,
    kinds::{Column, Content, KindRow},
    status::condition::READY,
    tenants::{TENANT, condition::NETWORK_ISOLATED},
};
use kube::{Api, api::ListParams, core::DynamicObject};
use serde_json::{Value, json};

use self::filter::{Filter, SortKey};
use crate::{
    Exit,
    arguments::{Format, Get, Sort},
    failure::Failure,
    operators, output,
    session::{Server, Session, ask},
    target::{self, Listed, Target},
    text::{Cell, Table, Tone, age, cell, toned},
};

/// Objects per list request. A run may have 900 KiB of files.
const PAGE: u32 = 100;

/// The objects to be listed, and their format.
struct Question {
    /// The kinds of the objects. Several kinds have the columns that they share.
    kinds: Vec<&'static KindRow>,
    name: Option<String>,
    /// Several objects, by their names.
    named: Vec<ObjectName>,
    selector: Option<String>,
    filter: Filter,
    sort: Option<Sort>,
    is_everywhere: bool,
    /// The columns after the name.
    columns: Vec<Column>,
}

pub(crate) async fn run(verb: Get, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let filter = Filter::new(&verb);
    let listed = target::of_words(&verb.what).map_err(Failure::Client)?;
    if verb.all_namespaces && session.namespace_flag().is_some() {
        return Err(Failure::client(
            "'-n' names one namespace and '-A' means all of them; give one of the two",
        ));
    }
    let is_list = verb.all_namespaces || verb.selector.is_some() || verb.sort.is_some();
    let is_named = matches!(listed, Listed::One(_) | Listed::Several(_));
    if is_named && (is_list || !filter.is_empty()) {
        return Err(Failure::client(
            "objects are asked for by their names: '-A', '-l', '--sort' and filters have no meaning then",
        ));
    }
    if verb.watch && matches!(listed, Listed::Several(_)) {
        return Err(Failure::client(
            "'-w' watches a list or one object, and not several by their names",
        ));
    }
    let is_data = matches!(verb.output, Some(Format::Json | Format::Yaml));
    if verb.watch && is_data {
        return Err(Failure::client(
            "'-w' prints lines: use it with '-o wide', '-o name' or without '-o'",
        ));
    }
    let server = session.server().await?;
    let (mut named, mut unread) = (Vec::new(), Vec::new());
    let (kinds, name) = match listed {
        Listed::Kinds(kinds) => (kinds, None),
        Listed::One(target) => {
            let object = resolved(&server, target).await?;
            (vec![object.kind], Some(object.name))
        }
        Listed::Several(targets) => {
            for target in targets {
                match resolved(&server, target).await {
                    Ok(object) if named.contains(&object) => {}
                    Ok(object) => named.push(object),
                    Err(failure) => unread.push(failure),
                }
            }
            (kinds_of(&named), None)
        }
    };
    if named.is_empty() && !unread.is_empty() {
        return report(unread, session).await;
    }
    let kinds = filter.kinds(kinds).map_err(Failure::Client)?;
    let question = Question {
        columns: columns(&kinds, verb.output == Some(Format::Wide)),
        kinds,
        name,
        named,
        selector: verb.selector,
        filter,
        sort: verb.sort,
        is_everywhere: verb.all_namespaces,
    };
    if verb.watch {
        watch::run(&question, verb.output, &server, session).await?;
        Ok(Exit::Ok)
    } else if is_data {
        data(&question, verb.output, &server, session, unread).await
    } else {
        lines(&question, verb.output, &server, session, unread).await
    }
}

/// Returns the kind and the name of a target. A name without a kind is that of a run.
async fn resolved(server: &Server, target: Target) -> Result<ObjectName, Failure> {
    match target {
        Target::Object(object) => Ok(object),
        Target::Run(name) => {
            let found = server.find(&name).await;
            Ok(found.map_err(|failure| not_found(&name, failure))?.name)
        }
    }
}

/// Returns the kinds of objects, each once.
fn kinds_of(objects: &[ObjectName]) -> Vec<&'static KindRow> {
    let mut kinds: Vec<&'static KindRow> = Vec::new();
    for object in objects {
        if !kinds.contains(&object.kind) {
            kinds.push(object.kind);
        }
    }
    kinds
}

/// Adds the kinds to the error for a missing run whose name is a word for a kind, such as `jobs`.
fn not_found(name: &str, failure: Failure) -> Failure {
    match failure {
        Failure::Action(error) if matches!(*error, Error::NotFound { .. }) => {
            match target::looks_like_a_kind(name) {
                true => Failure::Gone {
                    message: format!("{error}; {}", target::kinds_to_list(name)),
                    next: Vec::new(),
                },
                false => Failure::Action(error),
            }
        }
        failure @ (Failure::Action(_)
        | Failure::Client(_)
        | Failure::Gone { .. }
        | Failure::Output(_)) => failure,
    }
}

impl Question {
    fn api(&self, kind: &KindRow, server: &Server) -> Api<DynamicObject> {
        let namespace = (!self.is_everywhere).then_some(server.namespace.as_str());
        actions::objects(&server.client, kind, namespace)
    }

    fn request(&self, verb: &'static str, kind: &KindRow, server: &Server) -> Request {
        let is_here = !self.is_everywhere && kind.is_namespaced;
        Request {
            verb,
            kind: kind.name(),
            resource: kind.crd_name,
            name: self.name.clone(),
            namespace: is_here.then(|| server.namespace.clone()),
        }
    }

    /// Returns whether the rows begin with a namespace.
    fn has_namespace(&self) -> bool {
        self.is_everywhere && self.kinds.iter().any(|kind| kind.is_namespaced)
    }

    /// Reads the objects that the filters admit, kind by kind and page by page. Returns the failures
    /// of kinds that cannot be read, if there are others that can.
    async fn each(
        &self,
        server: &Server,
        mut take: impl FnMut(Object, DynamicObject) -> Result<(), Failure>,
    ) -> Result<Vec<Failure>, Failure> {
        if !self.named.is_empty() {
            return self.each_named(server, &mut take).await;
        }
        let mut unread = Vec::new();
        for &kind in &self.kinds {
            match self.each_of(kind, server, &mut take).await {
                Ok(()) => {}
                Err(failure) if is_about_the_kind(&failure) => unread.push(failure),
                Err(failure) => return Err(failure),
            }
        }
        if unread.len() < self.kinds.len() {
            return Ok(unread);
        }
        match unread.into_iter().next() {
            Some(first) => Err(first),
            None => Ok(Vec::new()),
        }
    }

    /// Reads the objects by their names. Returns the failures of those that cannot be read.
    async fn each_named(
        &self,
        server: &Server,
        take: &mut impl FnMut(Object, DynamicObject) -> Result<(), Failure>,
    ) -> Result<Vec<Failure>, Failure> {
        let mut unread = Vec::new();
        for name in &self.named {
            let api = actions::objects(&server.client, name.kind, Some(&server.namespace));
            match ask(server.request("get", name), api.get(&name.name)).await {
                Ok(found) => take(Object::new(name.kind, found.clone()), found)?,
                Err(failure) => unread.push(failure),
            }
        }
        Ok(unread)
    }

    async fn each_of(
        &self,
        kind: &'static KindRow,
        server: &Server,
        take: &mut impl FnMut(Object, DynamicObject) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut next = None;
        loop {
            let (objects, following) = self.page(kind, server, next).await?;
            for found in objects {
                let object = Object::new(kind, found.clone());
                if self.filter.admits(&object) {
                    take(object, found)?;
                }
            }
            match following {
                Some(_) => next = following,
                None => return Ok(()),
            }
        }
    }

    /// Reads the next page, and returns the token for the page after it.
    async fn page(
        &self,
        kind: &KindRow,
        server: &Server,
        from: Option<String>,
    ) -> Result<(Vec<DynamicObject>, Option<String>), Failure> {
        let api = self.api(kind, server);
        if let Some(name) = &self.name {
            let object = ask(self.request("get", kind, server), api.get(name)).await?;
            return Ok((vec![object], None));
        }
        let which = ListParams {
            label_selector: self.selector.clone(),
            limit: Some(PAGE),
            continue_token: from,
            ..ListParams::default()
        };
        let list = ask(self.request("list", kind, server), api.list(&which)).await?;
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
        // In a list of several kinds, the name is the argument for other commands.
        row.push(match self.kinds.len() {
            1 => cell(&object.name.name),
            _ => cell(object.name.argument()),
        });
        let columns = self.columns.iter();
        row.extend(columns.map(|column| Self::cell(column.content, object, now)));
        row
    }

    fn cell(content: Content, object: &Object, now: Timestamp) -> Cell {
        match content {
            Content::Text("status.phase") => Self::phase(object),
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
            Content::Reason(_) if *object.name.kind == TENANT => cell(tenant_reason(object)),
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

    fn phase(object: &Object) -> Cell {
        let phase = object.text("status.phase");
        let tone = match (object.name.kind.lifecycle, phase) {
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

    fn line_name(object: &Object) -> String {
        format!("{}\n", object.name.kind.qualified(&object.name.name))
    }

    /// Returns the message for an empty result.
    fn nothing(&self, server: &Server) -> String {
        let noun = match self.kinds.as_slice() {
            [only] => only.listed,
            _ => target::RUNS,
        };
        let what = self.filter.describe(noun);
        let which = match &self.selector {
            Some(selector) => format!(" with labels '{selector}'"),
            None => String::new(),
        };
        if !self.kinds.iter().any(|kind| kind.is_namespaced) {
            format!("no {what}{which}")
        } else if self.is_everywhere {
            format!("no {what}{which} in any namespace")
        } else {
            format!("no {what}{which} in namespace '{}'", server.namespace)
        }
    }
}

/// Returns whether only this kind cannot be read, and others perhaps can.
fn is_about_the_kind(failure: &Failure) -> bool {
    match failure {
        Failure::Action(error) => matches!(**error, Error::Denied(..) | Error::Unknown(..)),
        Failure::Client(_) | Failure::Gone { .. } | Failure::Output(_) => false,
    }
}

/// Returns the columns after the name: of one kind, or those that all the kinds share.
fn columns(kinds: &[&KindRow], is_wide: bool) -> Vec<Column> {
    let Some((first, others)) = kinds.split_first() else {
        return Vec::new();
    };
    let all = first.columns.iter().copied();
    let mut columns: Vec<Column> = all.filter(|column| is_wide || !column.is_wide).collect();
    columns.retain(|column| others.iter().all(|kind| kind.columns.contains(column)));
    if **first == TENANT && others.is_empty() {
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
    mut unread: Vec<Failure>,
) -> Result<Exit, Failure> {
    let mut rows = Vec::new();
    let now = session.now();
    let keep = |object: Object, _| -> Result<(), Failure> {
        let row = (Question::line_name(&object), question.row(&object, now));
        rows.push((SortKey::of(&object), row));
        Ok(())
    };
    unread.extend(question.each(server, keep).await?);
    filter::sort(&mut rows, question.sort);
    if rows.is_empty() {
        // For objects by their names, the failures report more.
        if question.named.is_empty() {
            session.remark(&question.nothing(server))?;
        }
    } else if format == Some(Format::Name) {
        for (_, (name, _)) in &rows {
            session.print(name)?;
        }
    } else {
        let mut table = question.table();
        for (_, (_, row)) in rows {
            table.push(row);
        }
        let room = session.room();
        session.print(&table.render(session.paint, room))?;
    }
    report(unread, session).await
}

/// Prints why some kinds are not in the list. The list is incomplete then, so the command failed.
async fn report(unread: Vec<Failure>, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let mut exits = Vec::new();
    for failure in unread {
        let failure = operators::explained(failure, session).await;
        session.report(&failure)?;
        exits.push(failure.exit());
    }
    Ok(Exit::most_severe(exits))
}

async fn data(
    question: &Question,
    format: Option<Format>,
    server: &Server,
    session: &mut Session<'_>,
    mut unread: Vec<Failure>,
) -> Result<Exit, Failure> {
    let mut items = Vec::new();
    let keep = |read: Object, mut object: DynamicObject| -> Result<(), Failure> {
        // The items of a list have no type.
        object.types = Some(kube::core::TypeMeta {
            api_version: read.name.kind.resource.api_version(),
            kind: read.name.kind.name().to_owned(),
        });
        items.push((SortKey::of(&read), output::plain(&object)?));
        Ok(())
    };
    unread.extend(question.each(server, keep).await?);
    filter::sort(&mut items, question.sort);
    let mut items: Vec<Value> = items.into_iter().map(|(_, item)| item).collect();
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
    report(unread, session).await
}

#[cfg(test)]
mod tests;
