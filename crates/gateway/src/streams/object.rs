//! The stream of one run: the run, its Pods, its Events and its explanation.

use std::time::Duration;

use futures::{StreamExt, stream::unfold};
use hyper::body::Bytes;
use kube::Client;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep};

use super::{
    Ends, HEARTBEAT, Texts, end,
    hub::{Phase, Subscription},
    runs::Now,
    sse,
};
use crate::{
    perform::parts_of,
    problem::{Problem, Reason},
    request::Target,
};

/// Interval between checks whether the run has changed.
const CHECK: Duration = Duration::from_millis(500);

/// Interval between reads of the parts that can change without the run.
const REFRESH: Duration = Duration::from_secs(10);

/// Names of the parts, in the order of their events.
const PARTS: [&str; 4] = ["run", "pods", "events", "why"];

/// Hashes of the parts that a client has. They are the id of an event, so no process must remember
/// its clients.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Known([String; 4]);

impl Known {
    /// Reads the id of an event. What cannot be read is sent again.
    pub(crate) fn parse(text: &str) -> Self {
        let mut known = Self::default();
        for (known, part) in known.0.iter_mut().zip(text.split('-')) {
            if part.len() == 16 && part.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                part.clone_into(known);
            }
        }
        known
    }

    fn text(&self) -> String {
        self.0.join("-")
    }

    /// Returns the events for the parts that the client does not have.
    fn update(&mut self, parts: [Value; 4]) -> String {
        let mut text = String::new();
        for (index, (name, value)) in PARTS.iter().zip(parts).enumerate() {
            let hash = hash(&value);
            let Some(known) = self.0.get_mut(index).filter(|known| **known != hash) else {
                continue;
            };
            *known = hash;
            let data = json!({ "part": name, "value": value }).to_string();
            text += &sse::event("put", Some(&self.text()), &data);
        }
        text
    }
}

fn hash(value: &Value) -> String {
    let digest = Sha256::digest(value.to_string().as_bytes());
    let first = digest.iter().take(8);
    first.map(|byte| format!("{byte:02x}")).collect()
}

struct ObjectStream {
    client: Client,
    target: Target,
    now: Now,
    /// The watch that tells when the run changed. A caller without permission has none.
    subscription: Option<Subscription>,
    known: Known,
    /// The version of the run that was read last.
    revision: Option<u64>,
    refresh: Instant,
    heartbeat: Instant,
    ends: Ends,
    is_live: bool,
    is_over: bool,
}

/// Returns the texts of the stream of one run.
pub(crate) fn texts(
    client: Client,
    target: Target,
    subscription: Option<Subscription>,
    known: Known,
    now: Now,
    ends: Ends,
    guard: impl Send + 'static,
) -> Texts {
    let stream = ObjectStream {
        client,
        target,
        now,
        subscription,
        known,
        revision: None,
        refresh: Instant::now(),
        heartbeat: Instant::now() + HEARTBEAT,
        ends,
        is_live: false,
        is_over: false,
    };
    let texts = unfold((stream, guard), |(mut stream, guard)| async move {
        let text = stream.next().await?;
        Some((Bytes::from(text), (stream, guard)))
    });
    texts.boxed()
}

impl ObjectStream {
    async fn next(&mut self) -> Option<String> {
        loop {
            if self.is_over {
                return None;
            }
            if let Some(reason) = self.ends.reached() {
                self.is_over = true;
                return Some(end(reason, "connect again to go on"));
            }
            let revision = self.current();
            if Instant::now() >= self.refresh || revision != self.revision {
                self.revision = revision;
                self.refresh = Instant::now() + REFRESH;
                let text = self.read().await;
                if !text.is_empty() {
                    return Some(text);
                }
            }
            if Instant::now() >= self.heartbeat {
                self.heartbeat = Instant::now() + HEARTBEAT;
                return Some(sse::comment(None));
            }
            tokio::select! {
                () = sleep(CHECK) => {}
                _reason = self.ends.wait() => {}
            }
        }
    }

    /// Returns the version of the run in the watch.
    fn current(&self) -> Option<u64> {
        let subscription = self.subscription.as_ref()?;
        let key = format!("{}/{}", self.target.namespace, self.target.name.name);
        subscription.shared.read(|phase| match phase {
            Phase::Running(state) => Some(state.row(&key).map_or(0, |row| row.revision)),
            Phase::Starting | Phase::Ended(_) => None,
        })
    }

    async fn read(&mut self) -> String {
        match parts_of(&self.client, (self.now)(), &self.target).await {
            Ok(parts) => {
                let mut text = self.known.update(parts);
                if !self.is_live {
                    self.is_live = true;
                    text += &sse::event("live", Some(&self.known.text()), "{}");
                }
                text
            }
            Err(problem) => self.failed(&problem),
        }
    }

    fn failed(&mut self, problem: &Problem) -> String {
        let is_final = matches!(
            problem.reason,
            Reason::NotFound | Reason::Denied | Reason::Unauthenticated | Reason::Unknown
        );
        if !is_final {
            // The next read may succeed.
            tracing::debug!("cannot read a run: {}", problem.detail);
            return String::new();
        }
        self.is_over = true;
        let end = end(problem.reason.name(), &problem.detail);
        if problem.reason == Reason::NotFound {
            let data = json!({ "part": "run" }).to_string();
            return sse::event("delete", Some(""), &data) + &end;
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(phase: &str, pods: u32) -> [Value; 4] {
        [json!({ "phase": phase }), json!(pods), json!([]), json!({})]
    }

    #[test]
    fn a_client_gets_each_state_of_a_part_once_also_after_a_restart() {
        let count = |text: &str| text.matches("event: put").count();
        let mut known = Known::default();
        assert_eq!(count(&known.update(parts("Pending", 0))), 4);
        assert_eq!(count(&known.update(parts("Pending", 0))), 0);
        let mut other_process = Known::parse(&known.text());
        assert_eq!(other_process, known);
        assert_eq!(count(&other_process.update(parts("Pending", 1))), 1);
        assert_eq!(count(&other_process.update(parts("Running", 1))), 1);
    }

    #[test]
    fn a_client_that_is_cut_between_two_events_gets_the_other_parts() {
        let text = Known::default().update(parts("Pending", 0));
        let id = text.lines().find_map(|line| line.strip_prefix("id: "));
        let mut known = Known::parse(id.unwrap());
        let rest = known.update(parts("Pending", 0));
        assert_eq!(rest.matches("event: put").count(), 3, "{rest}");
        assert!(!rest.contains(r#""part":"run""#));
    }

    #[test]
    fn a_hostile_id_is_nothing() {
        for id in ["", "---", "x", "0123456789abcdeg-", "\n", &"a".repeat(9999)] {
            assert_eq!(Known::parse(id), Known::default(), "{id}");
        }
    }
}
