//! Performs actions on the cluster, with the client of the caller. All requests to the API server
//! are here.

mod diff;
mod explain;
mod pods;
mod runs;
mod streams;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use actions::{Deleted, Object, Request, Run, Submission, submit_as};
use api::{
    Timestamp,
    tasks::{DOCS_RUN, File},
};
use http::{StatusCode, header::AUTHORIZATION};
use k8s_openapi::{
    api::{authentication::v1::UserInfo, core::v1::Namespace},
    apimachinery::pkg::apis::meta::v1::ListMeta,
};
use kube::{Api, Client, api::ListParams, client::Body};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    authors::Authors,
    logs::check_version,
    openapi,
    problem::{Problem, Reason},
    request::{Action, NewRun, Page, Target},
    results::Done,
    token::Token,
};

pub(crate) use runs::{runs_failed, table, table_request};
pub(crate) use streams::{Opened, Stage, open};

/// Returns a client that sends this token with every request, and nothing else of the caller.
/// `base` has no credentials of its own. `accepted` becomes true when the API server accepts the token.
pub(crate) fn client_of(base: &Client, token: &Token, accepted: &Arc<AtomicBool>) -> Client {
    let (base, header) = (base.clone(), token.header.clone());
    let accepted = Arc::clone(accepted);
    let service = tower::service_fn(move |mut request: http::Request<Body>| {
        let (base, accepted) = (base.clone(), Arc::clone(&accepted));
        request.headers_mut().insert(AUTHORIZATION, header.clone());
        async move {
            let response = base.send(request).await?;
            if shows_acceptance(response.status()) {
                accepted.store(true, Ordering::Relaxed);
            }
            Ok::<_, kube::Error>(response)
        }
    });
    Client::new(service, "default")
}

/// Returns whether the API server has authenticated the caller of a request with this response. Its
/// limits may reject a request before that.
fn shows_acceptance(status: StatusCode) -> bool {
    status != StatusCode::UNAUTHORIZED
        && status != StatusCode::TOO_MANY_REQUESTS
        && !status.is_server_error()
}

/// The caller of an action.
pub(crate) struct Caller<'a> {
    pub(crate) client: Client,
    pub(crate) token: &'a Token,
    pub(crate) authors: &'a Authors,
    /// Permits for lists of runs, which need memory.
    pub(crate) lists: &'a Semaphore,
    pub(crate) now: Timestamp,
}

/// Reads the parts of a run: the run without the content of its files, its Pods, its Events, and its
/// explanation.
///
/// # Errors
/// As [`perform`].
pub(crate) async fn parts_of(
    client: &Client,
    now: Timestamp,
    target: &Target,
) -> Result<[Value; 4], Problem> {
    let run = get(client, target).await?;
    let pods = pods::pods(client, &run, &target.namespace).await?;
    let all: Result<Vec<Value>, Problem> = pods.iter().map(plain).collect();
    let events = explain::events(client, target, &run, pods).await?;
    let why = explain::explain(client, now, target).await?;
    let mut object = plain_object(&run);
    for field in ["markdownFiles", "instructions"] {
        let spec = object.get_mut("spec");
        let files = spec.and_then(|spec| spec.get_mut(field)?.as_array_mut());
        for file in files.into_iter().flat_map(|all| all.iter_mut()) {
            let bytes = file["content"].as_str().map_or(0, str::len);
            *file = json!({ "filename": file["filename"], "bytes": bytes });
        }
    }
    Ok([object, json!(all?), events["events"].clone(), why])
}

/// Performs an action.
///
/// # Errors
/// The API server rejects a request, or gives no usable response.
pub(crate) async fn perform(action: Action, caller: &Caller<'_>) -> Result<Done, Problem> {
    let client = &caller.client;
    match action {
        Action::OpenApi => Ok(Done::Document(openapi::document())),
        Action::WhoAmI => {
            let user = who_am_i(client).await?;
            Ok(Done::Document(json!({
                "username": user.username.unwrap_or_default(),
                "groups": user.groups.unwrap_or_default(),
            })))
        }
        Action::Namespaces(page) => namespaces(client, &page).await,
        Action::List {
            kind,
            namespace,
            page,
        } => {
            let request = Request {
                verb: "list",
                kind: kind.name(),
                resource: kind.crd_name,
                name: None,
                namespace: namespace.clone(),
            };
            let api = actions::objects(client, kind, namespace.as_deref());
            let found = api.list(&params(&page)).await;
            let list = found.map_err(|error| list_failed(request, error, &page))?;
            let items = list.items.into_iter();
            let items = items.map(|object| plain_object(&Object::new(kind, object)));
            Ok(page_of(items.collect(), &list.metadata))
        }
        Action::Object(target) => {
            let object = get(client, &target).await?;
            Ok(Done::Document(plain_object(&object)))
        }
        Action::Submit {
            namespace,
            run,
            dry_run,
            key,
        } => {
            let author = author(caller).await?;
            match run {
                NewRun::Task(run) => {
                    let submission = Submission {
                        run: *run,
                        dry_run,
                        author: Some(author),
                        idempotency_key: key,
                    };
                    submit(client, namespace, submission).await
                }
                NewRun::Docs(run) => {
                    let submission = Submission {
                        run: *run,
                        dry_run,
                        author: Some(author),
                        idempotency_key: key,
                    };
                    submit(client, namespace, submission).await
                }
            }
        }
        Action::AddContext {
            target,
            files,
            expected,
            dry_run,
        } => {
            let Target { namespace, name } = target;
            let added =
                actions::add_context(client, &namespace, &name.name, &files, expected, dry_run);
            let added = added.await;
            let added = added.map_err(|error| Problem::of_action(&error, &namespace))?;
            Ok(Done::Added {
                name: name.name,
                namespace,
                version: added.version,
                files: added.files,
            })
        }
        Action::Get {
            target,
            version,
            uid,
        } => {
            let run = get(client, &target).await?;
            check_version(&run, version)?;
            if uid.is_some() && uid != run.metadata.uid {
                let detail = format!("{} has another UID", run.name);
                return Err(Problem::new(Reason::NotFound, detail));
            }
            Ok(Done::Found(plain_object(&run)))
        }
        Action::Change(target, change) => {
            let changed = actions::change(client, &target.namespace, &target.name, change).await;
            let changed = changed.map_err(|error| failed(&error, &target))?;
            Ok(Done::Changed {
                is_new: changed.is_new,
                run: plain_object(&changed.object),
            })
        }
        Action::Retry(target) => retry(client, &target).await,
        Action::Delete(target) => {
            let deleted = actions::delete(client, &target.namespace, &target.name).await;
            let deleted = deleted.map_err(|error| failed(&error, &target))?;
            Ok(Done::Deleted {
                is_gone: deleted == Deleted::Gone,
            })
        }
        Action::Logs(target, query) => pods::log(client, &target, &query).await,
        Action::Files(target, version) => {
            let run = get(client, &target).await?;
            let version = version.unwrap_or_else(|| run.version().unwrap_or(1));
            let files = diff::files_at(client, &run, &target.namespace, version).await?;
            let files: Vec<Value> = files
                .iter()
                .map(|file| json!({ "filename": file.filename, "bytes": file.content.len() }))
                .collect();
            Ok(Done::Document(
                json!({ "version": version, "files": files }),
            ))
        }
        Action::File {
            target,
            version,
            filename,
        } => {
            let run = get(client, &target).await?;
            let version = version.unwrap_or_else(|| run.version().unwrap_or(1));
            let files = diff::files_at(client, &run, &target.namespace, version).await?;
            let mut files = files.into_iter();
            match files.find(|file| file.filename == filename) {
                Some(file) => Ok(Done::Text(file.content.into_bytes())),
                None => Err(Problem::new(
                    Reason::NotFound,
                    format!("{} has no file '{filename}'", run.name),
                )),
            }
        }
        Action::Why(target) => {
            let why = explain::explain(client, caller.now, &target).await?;
            Ok(Done::Document(why))
        }
        Action::Events(target) => {
            let run = get(client, &target).await?;
            let pods = pods::pods(client, &run, &target.namespace).await?;
            let events = explain::events(client, &target, &run, pods).await?;
            Ok(Done::Document(events))
        }
        Action::Runs(query) => runs::runs(query, caller).await,
        Action::Diff { target, from, to } => diff::diff(client, &target, from, to).await,
    }
}

fn failed(error: &actions::Error, target: &Target) -> Problem {
    Problem::of_action(error, &target.namespace)
}

async fn get(client: &Client, target: &Target) -> Result<Object, Problem> {
    let found = actions::get(client, &target.namespace, &target.name).await;
    found.map_err(|error| failed(&error, target))
}

async fn who_am_i(client: &Client) -> Result<UserInfo, Problem> {
    let user = actions::who_am_i(client).await;
    user.map_err(|error| Problem::of_action(&error, ""))
}

/// Returns the name of the caller. A wrong name would be rejected with the write, by an admission
/// policy, so a name may come from a cache.
pub(crate) async fn author(caller: &Caller<'_>) -> Result<String, Problem> {
    if let Some(name) = caller.authors.get(caller.token.digest) {
        return Ok(name);
    }
    let name = who_am_i(&caller.client).await?.username;
    let name = name.unwrap_or_default();
    caller.authors.insert(caller.token.digest, name.clone());
    Ok(name)
}

async fn submit<R: Run>(
    client: &Client,
    namespace: String,
    submission: Submission<R>,
) -> Result<Done, Problem> {
    let run = submit_as(client, &namespace, &submission).await;
    let run = run.map_err(|error| Problem::of_action(&error, &namespace))?;
    Ok(Done::Submitted {
        namespace,
        kind: R::KIND,
        name: run.meta().name.clone().unwrap_or_default(),
        run: plain(&run)?,
    })
}

async fn retry(client: &Client, target: &Target) -> Result<Done, Problem> {
    let Target { namespace, name } = target;
    let run = match *name.kind == DOCS_RUN {
        true => {
            let run = actions::run_docs_again(client, namespace, &name.name).await;
            plain(&run.map_err(|error| failed(&error, target))?)?
        }
        false => {
            let run = actions::run_again(client, namespace, &name.name).await;
            plain_object(&run.map_err(|error| failed(&error, target))?)
        }
    };
    Ok(Done::Changed { is_new: true, run })
}

async fn namespaces(client: &Client, page: &Page) -> Result<Done, Problem> {
    let api: Api<Namespace> = Api::all(client.clone());
    let request = Request {
        verb: "list",
        kind: "Namespace",
        resource: "namespaces",
        name: None,
        namespace: None,
    };
    let found = api.list(&params(page)).await;
    let list = found.map_err(|error| list_failed(request, error, page))?;
    let items: Result<Vec<Value>, Problem> = list
        .items
        .iter()
        .map(|namespace| {
            let mut item = plain(namespace)?;
            item["apiVersion"] = json!("v1");
            item["kind"] = json!("Namespace");
            Ok(item)
        })
        .collect();
    Ok(page_of(items?, &list.metadata))
}

fn params(page: &Page) -> ListParams {
    let params = ListParams::default().limit(page.limit);
    match &page.cursor {
        Some(cursor) => params.continue_token(cursor),
        None => params,
    }
}

/// Converts the error of a list. The API server keeps the position of a page for some minutes.
fn list_failed(request: Request, error: kube::Error, page: &Page) -> Problem {
    if let kube::Error::Api(status) = &error
        && page.cursor.is_some()
        && matches!(status.code, 400 | 410)
    {
        return Problem::invalid("parameter 'cursor' is not valid or has expired; start again");
    }
    let namespace = request.namespace.clone().unwrap_or_default();
    Problem::of_action(&request.failed(error), &namespace)
}

fn page_of(items: Vec<Value>, metadata: &ListMeta) -> Done {
    let mut page = json!({ "items": items });
    let cursor = metadata.continue_.as_deref();
    if let Some(cursor) = cursor.filter(|cursor| !cursor.is_empty()) {
        page["cursor"] = json!(cursor);
    }
    Done::Document(page)
}

/// Returns an object as JSON, without `metadata.managedFields`.
fn plain<T: Serialize>(object: &T) -> Result<Value, Problem> {
    let mut value = serde_json::to_value(object)
        .map_err(|error| Problem::new(Reason::Unanswered, error.to_string()))?;
    let metadata = value.get_mut("metadata").and_then(Value::as_object_mut);
    if let Some(metadata) = metadata {
        metadata.remove("managedFields");
    }
    Ok(value)
}

fn plain_object(object: &Object) -> Value {
    let kind = object.name.kind;
    let mut metadata = object.metadata.clone();
    metadata.managed_fields = None;
    let mut value = json!({
        "apiVersion": kind.resource.api_version(),
        "kind": kind.name(),
        "metadata": metadata,
    });
    for field in ["spec", "status"] {
        if !object.data[field].is_null() {
            value[field] = object.data[field].clone();
        }
    }
    value
}

fn files_of(run: &Object) -> Vec<File> {
    let path = match *run.name.kind == DOCS_RUN {
        true => "spec.instructions",
        false => "spec.markdownFiles",
    };
    run.part(path).unwrap_or_default()
}

fn request(
    verb: &'static str,
    kind: &'static str,
    resource: &'static str,
    name: Option<&str>,
    namespace: &str,
) -> Request {
    Request {
        verb,
        kind,
        resource,
        name: name.map(str::to_owned),
        namespace: Some(namespace.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use api::tasks::TASK_RUN;

    use super::*;

    #[test]
    fn only_a_response_after_the_authentication_shows_an_accepted_token() {
        for (status, wanted) in [
            (200, true),
            (201, true),
            (403, true),
            (404, true),
            (409, true),
            (422, true),
            (401, false),
            (429, false),
            (500, false),
            (503, false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(shows_acceptance(status), wanted, "{status}");
        }
    }

    #[test]
    fn an_object_has_no_managed_fields_and_its_type() {
        let object = json!({ "metadata": { "name": "shop-7", "managedFields": [{}] },
            "spec": { "taskId": 7 }, "status": { "phase": "Running" } });
        let object = Object::new(&TASK_RUN, serde_json::from_value(object).unwrap());
        assert_eq!(
            plain_object(&object),
            json!({ "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
                "metadata": { "name": "shop-7" }, "spec": { "taskId": 7 },
                "status": { "phase": "Running" } })
        );
    }

    #[test]
    fn a_page_names_the_next_one_unless_it_is_the_last() {
        for (continue_, wanted) in [
            (Some("abc"), json!({ "items": [], "cursor": "abc" })),
            (Some(""), json!({ "items": [] })),
            (None, json!({ "items": [] })),
        ] {
            let metadata = ListMeta {
                continue_: continue_.map(str::to_owned),
                ..ListMeta::default()
            };
            assert_eq!(page_of(Vec::new(), &metadata), Done::Document(wanted));
        }
    }

    #[test]
    fn an_expired_position_is_an_error_of_the_caller() {
        let gone = |code: u16| {
            let status = json!({ "code": code, "reason": "Expired", "message": "too old" });
            let status: kube::core::Status = serde_json::from_value(status).unwrap();
            kube::Error::Api(status.boxed())
        };
        let page = |cursor: Option<&str>| Page {
            limit: 1,
            cursor: cursor.map(str::to_owned),
        };
        for (cursor, code, wanted) in [
            (Some("a"), 410, 400),
            (Some("a"), 403, 403),
            (None, 410, 502),
        ] {
            let request = request("list", "Agent", "agents.orchestrator.io", None, "team");
            let problem = list_failed(request, gone(code), &page(cursor));
            assert_eq!(problem.reason.status(), wanted, "{cursor:?} {code}");
        }
    }
}
