//! A decision that assumes an absent object takes effect only after a read from the API server.

use api::decide::LiveRead;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};

use super::*;

pub(super) fn reads() -> impl Iterator<Item = LiveRead> {
    let object = LiveRead::Object {
        resource: ResourceType::CONFIG_MAP,
        namespace: Some("n".to_owned()),
        name: "x".to_owned(),
    };
    let children = LiveRead::Children {
        resource: ResourceType::POD,
        namespace: "n".to_owned(),
        owner_kind: "Toy",
        owner_uid: "uid-absent".to_owned(),
    };
    [object, children].into_iter()
}

/// Adds the caches that receive the reads.
pub(super) fn watch(watches: &mut WatchManager) {
    fn nothing<K>() -> Watch<K, ()> {
        Watch {
            labels: None,
            fields: None,
            transform: Arc::new(|_, _| ()),
            index: |()| Vec::new(),
        }
    }
    watches.namespaced(("", "configmaps"), nothing::<ConfigMap>());
    watches.namespaced(("", "pods"), nothing::<Pod>());
}

fn paths(room: &Room) -> Vec<(String, String)> {
    let requests = room.server.requests.lock().unwrap();
    let line = |(method, path, _): &(String, String, Value)| (method.clone(), path.clone());
    requests.iter().map(line).collect()
}

fn is_read((method, path): &(String, String)) -> bool {
    method == "GET" && (path.ends_with("/configmaps") || path.ends_with("/pods"))
}

#[tokio::test(start_paused = true)]
async fn absence_is_read_live_before_it_is_recorded() {
    let room = room(&["absent"]);
    pass(SECOND).await;
    let paths = paths(&room);
    assert_eq!(
        paths.iter().filter(|one| is_read(one)).count(),
        2,
        "{paths:?}"
    );
    let written = paths.iter().position(|(_, path)| path.ends_with("/status"));
    let last_read = paths.iter().rposition(is_read);
    assert!(written.is_some() && last_read < written, "{paths:?}");
    assert_eq!(room.looks("absent").len(), 2, "observed once more after it");
    let status = room.server.statuses("absent").pop().unwrap();
    assert_eq!(status["message"], "it is really absent");
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_recorded_while_it_cannot_be_read() {
    let room = room(&["absent"]);
    room.server.refuse.store(true, Ordering::SeqCst);
    pass(20 * SECOND).await;
    let is_error = |status: &Value| status["conditions"].to_string().contains("ApiUnavailable");
    let errors = room.server.statuses("absent");
    assert!(errors.iter().all(is_error), "{errors:?}");
    room.server.refuse.store(false, Ordering::SeqCst);
    pass(40 * SECOND).await;
    let statuses = room.server.statuses("absent");
    let after: Vec<&Value> = statuses.iter().skip(errors.len()).collect();
    assert_eq!(after.len(), 1, "{after:?}");
    assert_eq!(after[0]["message"], "it is really absent");
    room.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_asks_for_ever_is_a_bug() {
    let room = room(&["endless"]);
    pass(SECOND).await;
    let status = room.server.statuses("endless").pop().unwrap();
    assert_eq!(status["message"], "a decision asked twice for a live read");
    room.end().await;
}
