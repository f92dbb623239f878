//! Every version of a cluster's objects that the API server showed, seen by watches of our own.

mod markers;
mod places;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, future::try_join_all};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, WatchEvent, WatchParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::Value;
use tokio::{
    sync::{Mutex as Turn, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

use self::places::{is_of, place};

/// The most versions that are kept: some ten kilobytes each. A suite that needs more does not
/// forget its namespaces.
const VERSIONS: usize = 50_000;
/// A watch that ended is followed by the next one after this time.
const PAUSE: Duration = Duration::from_millis(100);
/// So many broken connections in a row, and nothing between them, mean that nobody answers.
const BROKEN_CONNECTIONS: u32 = 50;
/// An event is there within milliseconds; under load within seconds.
const CATCH_UP: Duration = Duration::from_secs(30);

/// What became of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// It is gone; the object is the last one that there was.
    Deleted,
}

/// One version of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// When it was seen.
    pub at: Instant,
    /// The plural.
    pub resource: String,
    /// What became of it.
    pub change: Change,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its `resourceVersion`. The versions of all resources are of one store: a lower one was
    /// written earlier. That of a deleted object is the deletion's.
    pub version: u64,
    /// All of it but `managedFields`.
    pub object: Arc<Value>,
}

impl Seen {
    /// The label of this name.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.object["metadata"]["labels"][name].as_str()
    }

    /// The condition of this type.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Value> {
        let conditions = self.object["status"]["conditions"].as_array()?;
        conditions.iter().find(|known| known["type"] == kind)
    }

    /// Whether the condition of this type is True.
    #[must_use]
    pub fn is_true(&self, kind: &str) -> bool {
        self.condition(kind)
            .is_some_and(|known| known["status"] == "True")
    }
}

/// The last version of each object that is still there, by resource and name.
#[must_use]
pub fn present(seen: &[Seen]) -> Vec<&Seen> {
    let mut last: HashMap<(&str, &str), &Seen> = HashMap::new();
    for one in seen {
        last.insert((&one.resource, &one.uid), one);
    }
    let mut left: Vec<&Seen> = last
        .into_values()
        .filter(|one| one.change != Change::Deleted)
        .collect();
    left.sort_by_key(|one| (&one.resource, &one.name));
    left
}

/// Watches some resources in all namespaces. Dropping it ends the watches.
///
/// # Guarantees
/// As long as [`ObjectHistory::check`] says nothing, every version that was written since the start is
/// seen, once, each resource's in the order in which they were written.
///
/// # Caveats
/// What is older than the object history is seen only when it changes. Versions of different resources
/// come in any order: compare [`Seen::version`].
pub struct ObjectHistory {
    kept: Arc<Mutex<Kept>>,
    watched: Vec<Watched>,
    /// Of the markers.
    namespace: String,
    /// How often a marker was written; one at a time.
    turn: Turn<u64>,
    _watches: JoinSet<()>,
}

struct Watched {
    resource: ApiResource,
    /// Every version up to this one was seen. Its sender is gone when the watch is.
    reached: watch::Receiver<u64>,
}

#[derive(Default)]
struct Kept {
    seen: HashMap<String, Vec<Seen>>,
    forgotten: BTreeSet<String>,
    count: usize,
    broken: Option<String>,
}

impl ObjectHistory {
    /// Sees everything from now on.
    ///
    /// # Errors
    /// When a resource is not served, or there is no marker for it (see [`ObjectHistory::caught_up`]).
    pub async fn start(client: &Client, resources: Vec<ApiResource>) -> Result<Self> {
        let namespace = markers::home(client).await?;
        let kept = Arc::new(Mutex::new(Kept::default()));
        // The markers are nobody's evidence.
        locked(&kept).forgotten.insert(namespace.clone());
        let mut watches = JoinSet::new();
        let mut watched = Vec::new();
        for resource in resources {
            let plural = &resource.plural;
            ensure!(
                markers::marker(&resource, &namespace).is_some(),
                "there is no marker for '{plural}'"
            );
            let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let now = all
                .list(&ListParams::default().limit(1))
                .await
                .with_context(|| format!("cannot list '{plural}'"))?;
            let version = parsed(now.metadata.resource_version.as_deref())?;
            let (sender, reached) = watch::channel(version);
            let (kept, plural) = (Arc::clone(&kept), plural.clone());
            watches.spawn(async move {
                let Err(why) = follow(&all, &plural, &kept, &sender).await;
                locked(&kept).breaks(format!("'{plural}': {why:#}"));
            });
            watched.push(Watched { resource, reached });
        }
        Ok(Self {
            kept,
            watched,
            namespace,
            turn: Turn::new(0),
            _watches: watches,
        })
    }

    /// Whether nothing was missed so far.
    ///
    /// # Errors
    /// When something may have been: then for ever.
    pub fn check(&self) -> Result<()> {
        if let Some(why) = &locked(&self.kept).broken {
            bail!("the object history is not complete: {why}");
        }
        for watched in &self.watched {
            ensure!(
                watched.reached.has_changed().is_ok(),
                "the object history of '{}' is gone",
                watched.resource.plural
            );
        }
        Ok(())
    }

    /// Every version of a play's objects of these resources, those of one resource in the order in which
    /// they were seen.
    ///
    /// A play is a namespace, all namespaces that have its name in theirs, and what of no namespace has
    /// it in its own.
    #[must_use]
    pub fn of(&self, play: &str, resources: &[ApiResource]) -> Vec<Seen> {
        let plurals: BTreeSet<&str> = resources.iter().map(|one| one.plural.as_str()).collect();
        locked(&self.kept).of(play, &plurals)
    }

    /// The last version of each object of a play that is still there, by resource and name.
    #[must_use]
    pub fn now(&self, play: &str, resources: &[ApiResource]) -> Vec<Seen> {
        let seen = self.of(play, resources);
        present(&seen).into_iter().cloned().collect()
    }

    /// Lets go of all that was seen of a play. What comes later of it is not kept either: its name is
    /// not to be used again.
    pub fn forget(&self, play: &str) {
        let mut kept = locked(&self.kept);
        let mut dropped = 0;
        kept.seen.retain(|place, seen| {
            let is_of_it = is_of(place, play);
            dropped += if is_of_it { seen.len() } else { 0 };
            !is_of_it
        });
        kept.count = kept.count.saturating_sub(dropped);
        kept.forgotten.insert(play.to_owned());
    }

    /// Waits until everything is seen that was written before this call.
    ///
    /// # Guarantees
    /// Each watched resource has an object of its own in a namespace of its own, the marker, which
    /// is changed now. A watch shows the changes of its resource in their order; so when it has
    /// shown the marker's, it has shown all of that resource that were written before, in whatever
    /// namespace.
    ///
    /// # Errors
    /// When the object history is broken or a marker is not seen in time.
    pub async fn caught_up(&self, client: &Client) -> Result<()> {
        let marks = {
            let mut turn = self.turn.lock().await;
            *turn += 1;
            let (turn, namespace) = (*turn, self.namespace.as_str());
            let written = self
                .watched
                .iter()
                .map(|watched| markers::mark(client, namespace, &watched.resource, turn));
            try_join_all(written).await?
        };
        for (watched, version) in self.watched.iter().zip(marks) {
            let mut reached = watched.reached.clone();
            match timeout(CATCH_UP, reached.wait_for(|reached| *reached >= version)).await {
                Ok(Ok(_)) => {}
                Ok(Err(_gone)) => self.check()?,
                Err(_elapsed) => bail!(
                    "the object history did not see the marker of '{}' within {} s",
                    watched.resource.plural,
                    CATCH_UP.as_secs()
                ),
            }
        }
        self.check()
    }

    /// Ends the watches and takes the markers away.
    ///
    /// # Errors
    /// When their namespace cannot be deleted.
    pub async fn stop(self, client: &Client) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces
            .delete(&self.namespace, &DeleteParams::default())
            .await?;
        Ok(())
    }
}

impl Kept {
    fn breaks(&mut self, why: String) {
        self.broken.get_or_insert(why);
    }

    fn of(&self, play: &str, plurals: &BTreeSet<&str>) -> Vec<Seen> {
        let of_it = self.seen.iter().filter(|(place, _)| is_of(place, play));
        let mut all: Vec<Seen> = of_it
            .flat_map(|(_, seen)| seen.iter())
            .filter(|one| plurals.contains(one.resource.as_str()))
            .cloned()
            .collect();
        // Each place is in order already.
        all.sort_by_key(|one| one.at);
        all
    }

    fn keep(&mut self, place: String, seen: Seen) {
        if self.forgotten.iter().any(|play| is_of(&place, play)) {
            return;
        }
        if self.count >= VERSIONS {
            self.breaks(format!("more than {VERSIONS} versions are kept"));
            return;
        }
        self.count += 1;
        self.seen.entry(place).or_default().push(seen);
    }
}

fn locked(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

fn parsed(version: Option<&str>) -> Result<u64> {
    let version = version.context("no resourceVersion")?;
    version
        .parse()
        .with_context(|| format!("the resourceVersion '{version}' is not a number"))
}

/// How a watch ended.
enum End {
    /// As all do after some minutes, or by a connection that broke: the next one goes on from the
    /// last version, or is told that it cannot.
    Plain(Option<kube::Error>),
    /// Something was missed.
    Lost(anyhow::Error),
}

/// Goes on from one watch to the next. Ends only by an error.
async fn follow(
    all: &Api<DynamicObject>,
    plural: &str,
    kept: &Mutex<Kept>,
    reached: &watch::Sender<u64>,
) -> Result<std::convert::Infallible> {
    let mut broken = 0;
    loop {
        let before = *reached.borrow();
        match watch_once(all, plural, kept, reached).await {
            End::Lost(why) => return Err(why),
            End::Plain(None) => broken = 0,
            End::Plain(Some(_)) if *reached.borrow() > before => broken = 1,
            End::Plain(Some(error)) => {
                broken += 1;
                if broken > BROKEN_CONNECTIONS {
                    return Err(error).context("the watch broke again and again");
                }
            }
        }
        sleep(PAUSE).await;
    }
}

async fn watch_once(
    all: &Api<DynamicObject>,
    plural: &str,
    kept: &Mutex<Kept>,
    reached: &watch::Sender<u64>,
) -> End {
    let version = reached.borrow().to_string();
    let mut events = match all.watch(&WatchParams::default(), &version).await {
        Ok(events) => events.boxed(),
        Err(error) => return ended_by(error),
    };
    loop {
        let event = match events.try_next().await {
            Ok(Some(event)) => event,
            Ok(None) => return End::Plain(None),
            Err(error) => return ended_by(error),
        };
        let version = match event {
            WatchEvent::Added(object) => keep(kept, plural, Change::Added, object),
            WatchEvent::Modified(object) => keep(kept, plural, Change::Modified, object),
            WatchEvent::Deleted(object) => keep(kept, plural, Change::Deleted, object),
            WatchEvent::Bookmark(mark) => parsed(Some(&mark.metadata.resource_version)),
            WatchEvent::Error(status) => {
                return End::Lost(anyhow::anyhow!("the watch was ended: {status:?}"));
            }
        };
        match version {
            Ok(version) => reached.send_replace(version),
            Err(error) => return End::Lost(error),
        };
    }
}

fn ended_by(error: kube::Error) -> End {
    let is_gone = matches!(&error, kube::Error::Api(status) if status.code == 410);
    if is_gone {
        End::Lost(anyhow::Error::new(error).context("the versions since are not known any more"))
    } else {
        End::Plain(Some(error))
    }
}

/// Its version.
fn keep(
    kept: &Mutex<Kept>,
    plural: &str,
    change: Change,
    mut object: DynamicObject,
) -> Result<u64> {
    let at = Instant::now();
    object.metadata.managed_fields = None;
    let metadata = &object.metadata;
    let version = parsed(metadata.resource_version.as_deref())?;
    let (place, name, uid) = (
        place(&object),
        metadata.name.clone().unwrap_or_default(),
        metadata.uid.clone().unwrap_or_default(),
    );
    let seen = Seen {
        at,
        resource: plural.to_owned(),
        change,
        name,
        uid,
        version,
        object: Arc::new(serde_json::to_value(&object)?),
    };
    locked(kept).keep(place, seen);
    Ok(version)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn seen(resource: &str, name: &str, uid: &str, version: u64, change: Change) -> Seen {
        Seen {
            at: Instant::now(),
            resource: resource.to_owned(),
            change,
            name: name.to_owned(),
            uid: uid.to_owned(),
            version,
            object: Arc::default(),
        }
    }

    #[test]
    fn present_is_the_last_version_of_what_is_not_gone() {
        use Change::{Added, Deleted, Modified};
        let all = [
            seen("pods", "b", "1", 1, Added),
            seen("pods", "a", "2", 2, Added),
            seen("pods", "b", "1", 3, Modified),
            seen("jobs", "a", "3", 4, Added),
            seen("pods", "a", "2", 5, Deleted),
            seen("pods", "a", "4", 6, Added),
        ];
        let left: Vec<(&str, &str, u64)> = present(&all)
            .into_iter()
            .map(|one| (one.resource.as_str(), one.name.as_str(), one.version))
            .collect();
        assert_eq!(left, [("jobs", "a", 4), ("pods", "a", 6), ("pods", "b", 3)]);
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_forgotten_stays_so() {
        let mut kept = Kept::default();
        kept.forgotten.insert("old".to_owned());
        kept.keep("old".to_owned(), seen("pods", "a", "1", 1, Change::Added));
        assert!(kept.seen.is_empty() && kept.broken.is_none());
        kept.count = VERSIONS - 1;
        kept.keep("new".to_owned(), seen("pods", "a", "1", 1, Change::Added));
        assert!(kept.broken.is_none());
        kept.keep(
            "new".to_owned(),
            seen("pods", "a", "1", 2, Change::Modified),
        );
        assert_eq!(kept.seen["new"].len(), 1);
        assert!(kept.broken.unwrap().contains("versions"));
    }

    /// One version of an object, as a watch shows it.
    fn event(kind: &str, version: u64) -> String {
        let metadata = json!({
            "name": "a", "namespace": "n", "uid": "u", "resourceVersion": version.to_string(),
            "managedFields": [{ "manager": "x" }],
        });
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata });
        format!("{}\n", json!({ "type": kind, "object": object }))
    }

    fn gone() -> Value {
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410,
                "reason": "Expired", "message": "too old" })
    }

    fn stream(body: &str) -> String {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{body}"
        )
    }

    /// Follows watches that are answered so, one after the other; from which versions they began,
    /// what was kept, and how it ended.
    async fn followed(answers: Vec<String>) -> (Vec<String>, Vec<(Change, u64)>, String) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = async move {
            let mut asked = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = vec![0; 8192];
                let length = stream.read(&mut head).await.unwrap();
                let head = String::from_utf8_lossy(&head[..length]).into_owned();
                let path = head.split(' ').nth(1).unwrap();
                let version = path.split("resourceVersion=").nth(1).unwrap();
                asked.push(version.split('&').next().unwrap().to_owned());
                assert!(path.contains("allowWatchBookmarks=true"), "{path}");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            asked
        };
        let client = Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
        let resource = ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&());
        let all: Api<DynamicObject> = Api::all_with(client, &resource);
        let kept = Mutex::new(Kept::default());
        let reached = watch::Sender::new(5);
        let (asked, Err(why)) = tokio::join!(server, follow(&all, "configmaps", &kept, &reached));
        let seen = locked(&kept).seen.remove("n").unwrap_or_default();
        assert!(
            seen.iter()
                .all(|one| one.object["metadata"].get("managedFields").is_none())
        );
        let seen = seen.iter().map(|one| (one.change, one.version)).collect();
        (asked, seen, format!("{why:#}"))
    }

    #[tokio::test]
    async fn a_watch_that_ended_goes_on_from_what_it_saw_last() {
        let mark = event("BOOKMARK", 8);
        let cut = &event("MODIFIED", 9)[..20];
        let answers = vec![
            stream(&[event("ADDED", 6), event("MODIFIED", 7)].concat()),
            stream(&mark),
            // In the middle of an event: that one comes again.
            stream(cut),
            String::new(),
            stream(&[event("MODIFIED", 9), event("DELETED", 10)].concat()),
            stream(&format!(
                "{}\n",
                json!({ "type": "ERROR", "object": gone() })
            )),
        ];
        let (asked, seen, why) = followed(answers).await;
        assert_eq!(asked, ["5", "7", "8", "8", "8", "10"]);
        let wanted = [
            (Change::Added, 6),
            (Change::Modified, 7),
            (Change::Modified, 9),
            (Change::Deleted, 10),
        ];
        assert_eq!(seen, wanted);
        assert!(why.contains("Expired"), "{why}");
    }

    #[tokio::test]
    async fn versions_that_are_not_known_any_more_break_it() {
        let body = gone().to_string();
        let refused = format!(
            "HTTP/1.1 410 Gone\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let (asked, seen, why) = followed(vec![refused]).await;
        assert_eq!((asked.len(), seen.len()), (1, 0));
        assert!(why.contains("not known any more"), "{why}");
    }
}
