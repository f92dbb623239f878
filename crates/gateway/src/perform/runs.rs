//! Lists of runs, in the `Table` format.

use actions::Request;
use api::kinds::KindRow;
use form_urlencoded::Serializer;
use http::header::ACCEPT;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, api::ListParams};
use serde_json::json;

use super::Caller;
use crate::{
    problem::{Problem, Reason},
    request::{NAMESPACES, RunsQuery},
    results::Done,
    table::{Columns, Newest, Row, TABLE, Table},
};

/// Number of runs in one response of the API server. A row has about 3 KiB with its metadata.
const CHUNK: &str = "1000";

/// Lists runs, newest first. All of them are read, and only one page is kept in memory.
pub(super) async fn runs(query: RunsQuery, caller: &Caller<'_>) -> Result<Done, Problem> {
    let busy =
        |error: tokio::sync::AcquireError| Problem::new(Reason::Unanswered, error.to_string());
    let _permit = caller.lists.acquire().await.map_err(busy)?;
    let mut newest = Newest::new(query.limit, query.after.clone());
    let mut denied = None;
    let mut is_readable = false;
    for kind in query.kinds {
        let scopes = match query.namespaces.as_slice() {
            [] => vec![None],
            names => names.iter().map(|name| Some(name.as_str())).collect(),
        };
        for scope in scopes {
            let read = match add(kind, scope, &query, caller, &mut newest).await {
                Err(problem) if problem.reason == Reason::Denied && scope.is_none() => {
                    add_readable(kind, &query, caller, &mut newest, problem).await
                }
                read => read,
            };
            match read {
                Ok(()) => is_readable = true,
                // Without a question for one kind or namespace, the caller gets the readable ones.
                Err(problem) if problem.reason == Reason::Denied => denied = Some(problem),
                Err(problem) => return Err(problem),
            }
        }
    }
    let is_exact = query.kinds.len() == 1 && query.namespaces.len() == 1;
    if let Some(problem) = denied
        && (!is_readable || is_exact)
    {
        return Err(problem);
    }
    let (rows, next) = newest.page();
    let mut page = json!({ "items": rows });
    if let Some(next) = next {
        page["cursor"] = json!(next.text());
    }
    Ok(Done::Document(page))
}

/// Adds the runs of the namespaces in which the caller may list them.
async fn add_readable(
    kind: &'static KindRow,
    query: &RunsQuery,
    caller: &Caller<'_>,
    newest: &mut Newest,
    denied: Problem,
) -> Result<(), Problem> {
    let api: Api<Namespace> = Api::all(caller.client.clone());
    let limit = u32::try_from(NAMESPACES).unwrap_or(u32::MAX);
    let list = match api.list_metadata(&ListParams::default().limit(limit)).await {
        Ok(list) => list,
        Err(kube::Error::Api(status)) if status.code == 403 => {
            let advice = "; name the namespaces that you may read in parameter 'namespace'";
            return Err(Problem {
                detail: format!("{}{advice}", denied.detail),
                ..denied
            });
        }
        Err(error) => return Err(runs_failed(kind, None, error)),
    };
    let mut is_readable = false;
    for namespace in list.items {
        let name = namespace.metadata.name.unwrap_or_default();
        match add(kind, Some(&name), query, caller, newest).await {
            Ok(()) => is_readable = true,
            Err(problem) if problem.reason == Reason::Denied => {}
            Err(problem) => return Err(problem),
        }
    }
    match is_readable {
        true => Ok(()),
        false => Err(denied),
    }
}

/// Adds the runs of one kind in one namespace, or in all of them.
async fn add(
    kind: &'static KindRow,
    namespace: Option<&str>,
    query: &RunsQuery,
    caller: &Caller<'_>,
    newest: &mut Newest,
) -> Result<(), Problem> {
    let selector = query.filter.selector();
    let mut rest = String::new();
    let mut columns = Columns::default();
    loop {
        let mut parameters = vec![("limit", CHUNK)];
        if !selector.is_empty() {
            parameters.push(("labelSelector", selector.as_str()));
        }
        if !rest.is_empty() {
            parameters.push(("continue", rest.as_str()));
        }
        let table = table(&caller.client, kind, namespace, &parameters).await;
        let table = table.map_err(|error| runs_failed(kind, namespace, error))?;
        if let Some(definitions) = &table.column_definitions {
            columns = Columns::of(definitions);
        }
        for row in table.rows.unwrap_or_default() {
            let row = Row::of(kind, &columns, &row);
            if query.filter.matches(&row, caller.now) {
                newest.add(row);
            }
        }
        rest = table.metadata.continue_;
        if rest.is_empty() {
            return Ok(());
        }
    }
}

/// Converts the error of a list or of a watch.
pub(crate) fn runs_failed(kind: &KindRow, namespace: Option<&str>, error: kube::Error) -> Problem {
    let request = Request {
        verb: "list",
        kind: kind.name(),
        resource: kind.crd_name,
        name: None,
        namespace: namespace.map(str::to_owned),
    };
    Problem::of_action(&request.failed(error), namespace.unwrap_or_default())
}

/// Returns the address of a list of runs.
fn address(kind: &KindRow, namespace: Option<&str>, parameters: &[(&str, &str)]) -> String {
    let resource = &kind.resource;
    let within = match namespace {
        Some(namespace) => format!("/namespaces/{namespace}"),
        None => String::new(),
    };
    let query = Serializer::new(String::new())
        .append_pair("includeObject", "Metadata")
        .extend_pairs(parameters)
        .finish();
    format!(
        "/apis/{}{within}/{}?{query}",
        resource.api_version(),
        resource.plural
    )
}

/// Returns the request for a list of runs, or for a watch.
pub(crate) fn table_request(
    kind: &KindRow,
    namespace: Option<&str>,
    parameters: &[(&str, &str)],
) -> Result<http::Request<Vec<u8>>, http::Error> {
    http::Request::get(address(kind, namespace, parameters))
        .header(ACCEPT, TABLE)
        .body(Vec::new())
}

/// Reads one part of a list of runs.
pub(crate) async fn table(
    client: &Client,
    kind: &KindRow,
    namespace: Option<&str>,
    parameters: &[(&str, &str)],
) -> Result<Table, kube::Error> {
    let request = table_request(kind, namespace, parameters);
    let request = request.map_err(kube::Error::HttpError)?;
    client.request(request).await
}

#[cfg(test)]
mod tests {
    use api::tasks::{DOCS_RUN, TASK_RUN};

    use super::*;

    #[test]
    fn no_parameter_leaves_its_place_in_the_address() {
        let parameters = [("labelSelector", "task-id=7,a=b&limit=0#x"), ("limit", "9")];
        assert_eq!(
            address(&TASK_RUN, Some("team"), &parameters),
            "/apis/orchestrator.io/v1/namespaces/team/taskruns?includeObject=Metadata\
             &labelSelector=task-id%3D7%2Ca%3Db%26limit%3D0%23x&limit=9"
        );
        assert_eq!(
            address(&DOCS_RUN, None, &[]),
            "/apis/orchestrator.io/v1alpha1/docsruns?includeObject=Metadata"
        );
    }
}
