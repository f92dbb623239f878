//! Opens streams.

use std::time::Duration;

use api::kinds::KindRow;
use http::HeaderName;
use hyper::body::Bytes;
use kube::Client;

use super::{Caller, get, pods::pods, request};
use crate::{
    logs::{Choice, choose},
    problem::Problem,
    request::{LogQuery, RunsQuery, StreamQuery, Target},
    results::{LOG_SOURCE, LOG_STATE, LogState},
    streams::{
        Ends, Texts, end,
        hub::{Hub, Key, Subscription},
        log::{self, Format, Mark, Source},
        object::{self, Known},
        runs::{Now, RunStream},
        sse,
    },
};

/// Maximum time to find out whether the caller may watch the runs of a namespace.
const WATCH_TIMEOUT: Duration = Duration::from_secs(5);

/// The context of a stream, besides its query.
pub(crate) struct Stage<'a, G> {
    pub(crate) hub: &'a Hub,
    pub(crate) now: Now,
    pub(crate) ends: Ends,
    /// The header `Last-Event-ID`, if it is not empty.
    pub(crate) last_id: Option<&'a str>,
    /// Dropped with the stream.
    pub(crate) guard: G,
}

/// A stream that was opened.
pub(crate) struct Opened {
    pub(crate) texts: Texts,
    /// Whether the texts are events.
    pub(crate) is_events: bool,
    pub(crate) headers: Vec<(HeaderName, String)>,
}

impl Opened {
    fn events(texts: Texts) -> Self {
        Self {
            texts,
            is_events: true,
            headers: Vec::new(),
        }
    }
}

/// Opens a stream.
///
/// # Errors
/// The API server rejects the first request.
pub(crate) async fn open<G: Send + 'static>(
    query: StreamQuery,
    caller: &Caller<'_>,
    stage: Stage<'_, G>,
) -> Result<Opened, Problem> {
    match query {
        StreamQuery::Runs(query) => runs(query, caller, stage).await,
        StreamQuery::Run(target) => run(target, caller, stage).await,
        StreamQuery::Log {
            target,
            query,
            is_events,
        } => follow(&target, &query, is_events, caller, stage).await,
    }
}

async fn subscribe(
    hub: &Hub,
    caller: &Caller<'_>,
    kind: &'static KindRow,
    namespace: Option<String>,
    resume: Option<u64>,
) -> Result<Subscription, Problem> {
    let key = Key {
        caller: caller.token.digest,
        plural: kind.resource.plural,
        namespace,
    };
    hub.subscribe(key, kind, &caller.client, resume).await
}

async fn runs<G: Send + 'static>(
    query: RunsQuery,
    caller: &Caller<'_>,
    stage: Stage<'_, G>,
) -> Result<Opened, Problem> {
    let resume = stage.last_id.map(|id| sse::read_id(id, query.kinds.len()));
    let mut subscriptions = Vec::new();
    for (index, kind) in query.kinds.iter().enumerate() {
        let known = resume.as_ref().and_then(|known| known.as_ref());
        let known = known.and_then(|known| known.get(index)).copied();
        let namespace = query.namespaces.first().cloned();
        subscriptions.push(subscribe(stage.hub, caller, kind, namespace, known).await?);
    }
    let resume = resume.map(|known| known.ok_or(()));
    let Stage {
        now, ends, guard, ..
    } = stage;
    let texts = RunStream::texts(subscriptions, resume, query.filter, now, ends, guard);
    Ok(Opened::events(texts))
}

async fn run<G: Send + 'static>(
    target: Target,
    caller: &Caller<'_>,
    stage: Stage<'_, G>,
) -> Result<Opened, Problem> {
    // Its errors are those of the stream.
    get(&caller.client, &target).await?;
    let kind = target.name.kind;
    let namespace = Some(target.namespace.clone());
    let subscribed = subscribe(stage.hub, caller, kind, namespace, None);
    // Without the permission to watch, the run is read at intervals.
    let subscription = match tokio::time::timeout(WATCH_TIMEOUT, subscribed).await {
        Ok(Ok(subscription)) => Some(subscription),
        Ok(Err(_not_permitted)) => None,
        Err(_elapsed) => None,
    };
    let known = stage.last_id.map_or_else(Known::default, Known::parse);
    let client: Client = caller.client.clone();
    let Stage {
        now, ends, guard, ..
    } = stage;
    let texts = object::texts(client, target, subscription, known, now, ends, guard);
    Ok(Opened::events(texts))
}

async fn follow<G: Send + 'static>(
    target: &Target,
    query: &LogQuery,
    is_events: bool,
    caller: &Caller<'_>,
    stage: Stage<'_, G>,
) -> Result<Opened, Problem> {
    let client = &caller.client;
    let mark = match stage.last_id.map(Mark::parse) {
        Some(None) => return Err(Problem::invalid("the header 'Last-Event-ID' is not valid")),
        Some(mark) => mark,
        None => None,
    };
    let run = get(client, target).await?;
    let namespace = target.namespace.as_str();
    let pods = pods(client, &run, namespace).await?;
    let headers = |state: LogState| {
        let source = (LOG_SOURCE, "live".to_owned());
        vec![source, (LOG_STATE, state.name().to_owned())]
    };
    let (pod, container, state) = match choose(&run, &pods, query)? {
        Choice::Container {
            pod,
            container,
            state,
        } => (pod, container, state),
        Choice::Nothing(state) => {
            let text = match is_events {
                true => end(state.name(), "there is no log"),
                false => String::new(),
            };
            let texts = futures::stream::iter([Bytes::from(text)]);
            return Ok(Opened {
                texts: Box::pin(texts),
                is_events,
                headers: headers(state),
            });
        }
    };
    let format = match is_events {
        true => Format::Events,
        false => Format::Text {
            timestamps: query.timestamps,
        },
    };
    let request = request("get", "Pod", "pods/log", Some(&pod), namespace);
    let source = Source {
        client: client.clone(),
        namespace: namespace.to_owned(),
        pod,
        container,
        tail: query.tail,
        from: query.from,
    };
    let texts = log::texts(source, format, mark, stage.ends, stage.guard).await;
    let texts = texts.map_err(|error| Problem::of_action(&request.failed(error), namespace))?;
    Ok(Opened {
        texts,
        is_events,
        headers: headers(state),
    })
}
