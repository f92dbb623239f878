//! The gate of a dispatcher: while a watch is in trouble, no object in its scope is reconciled.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

use crate::watch_health::BlockedScopes;

/// Time after which objects report the watch that they wait for, as for each transient error (T2). Most interruptions
/// are shorter, and status writes would add load to a control plane in trouble.
const REPORT_AFTER: Duration = Duration::from_secs(30);

/// Time for which the gate remembers a scope after it has opened. Without it, a watch that works for a moment now and
/// then would never be reported.
const REMEMBERED_FOR: Duration = Duration::from_secs(30);

/// Time for which objects report the same message of a watch. A watch often fails in turn with two messages, and each
/// change would be a status write of each object.
const MESSAGE_KEPT_FOR: Duration = Duration::from_mins(5);

/// The scopes in which the objects of a kind wait for a watch.
#[derive(Debug)]
pub(super) struct Gate {
    kind: &'static str,
    /// The scopes that are closed, or were closed a short time ago.
    scopes: BTreeMap<Option<String>, Closed>,
}

#[derive(Debug)]
struct Closed {
    /// Time at which the scope was closed, plus the time in which it was open since.
    since: Instant,
    /// Time at which the scope was opened, or `None` if it is closed.
    opened: Option<Instant>,
    /// The watch that the objects report, with its message at `read`.
    watch: String,
    message: String,
    read: Instant,
}

impl Gate {
    /// Returns a gate that is open everywhere.
    pub(super) fn new(kind: &'static str) -> Self {
        Self {
            kind,
            scopes: BTreeMap::new(),
        }
    }

    /// Closes the gate for blocked scopes and opens it for the others. Returns whether a scope changed.
    ///
    /// Each change is one log line, for any number of objects.
    pub(super) fn update(&mut self, blocked: &BlockedScopes) -> bool {
        let (kind, now) = (self.kind, Instant::now());
        let mut has_changed = false;
        for (scope, closed) in &mut self.scopes {
            if closed.opened.is_none() && !blocked.contains_key(scope) {
                closed.opened = Some(now);
                has_changed = true;
                let namespace = namespace_for_logs(scope.as_deref());
                tracing::info!(kind, namespace, "reconciliations continue");
            }
        }
        self.scopes.retain(|_, closed| {
            closed
                .opened
                .is_none_or(|opened| now - opened < REMEMBERED_FOR)
        });
        for (scope, watches) in blocked {
            let Some((first, message)) = watches.first_key_value() else {
                continue;
            };
            let closed = self.scopes.entry(scope.clone()).or_insert_with(|| Closed {
                since: now,
                opened: Some(now),
                watch: first.clone(),
                message: message.clone(),
                read: now,
            });
            closed.read_watches(watches, now);
            if let Some(opened) = closed.opened.take() {
                closed.since += now - opened;
                has_changed = true;
                let namespace = namespace_for_logs(scope.as_deref());
                let reason = closed.reason();
                tracing::warn!(kind, namespace, "reconciliations wait for {reason}");
            }
        }
        has_changed
    }

    /// Returns the closed scopes. The scope `None` is everything.
    pub(super) fn closed(&self) -> BTreeSet<Option<String>> {
        let closed = self.scopes.iter();
        let closed = closed.filter(|(_, closed)| closed.opened.is_none());
        closed.map(|(scope, _)| scope.clone()).collect()
    }

    /// Returns whether there is a scope whose objects have waited for long enough to report it.
    pub(super) fn has_overdue(&self) -> bool {
        self.scopes.values().any(Closed::is_overdue)
    }

    /// Returns the reason that objects of a namespace report, once they have waited for long enough.
    pub(super) fn overdue(&self, namespace: Option<&str>) -> Option<String> {
        let own = namespace.and_then(|name| self.scopes.get(&Some(name.to_owned())));
        let mut scopes = self.scopes.get(&None::<String>).into_iter().chain(own);
        let overdue = scopes.find(|closed| closed.is_overdue());
        overdue.map(Closed::reason)
    }
}

impl Closed {
    /// Keeps the watch and its message, unless that watch works again or the message is old.
    fn read_watches(&mut self, watches: &BTreeMap<String, String>, now: Instant) {
        let is_current = now - self.read < MESSAGE_KEPT_FOR;
        let same = watches.get_key_value(&self.watch);
        if same.is_some() && is_current {
            return;
        }
        if let Some((watch, message)) = same.or_else(|| watches.first_key_value()) {
            self.watch.clone_from(watch);
            self.message.clone_from(message);
            self.read = now;
        }
    }

    fn is_overdue(&self) -> bool {
        self.opened.is_none() && self.since.elapsed() >= REPORT_AFTER
    }

    fn reason(&self) -> String {
        format!("the {}: {}", self.watch, self.message)
    }
}

fn namespace_for_logs(scope: Option<&str>) -> &str {
    scope.unwrap_or("all namespaces")
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns one blocked scope with these watches and their messages.
    fn blocked(scope: Option<&str>, watches: &[(&str, &str)]) -> BlockedScopes {
        let watches = watches.iter();
        let watches = watches.map(|(name, message)| ((*name).to_owned(), (*message).to_owned()));
        BlockedScopes::from([(scope.map(str::to_owned), watches.collect())])
    }

    #[tokio::test(start_paused = true)]
    async fn a_scope_is_overdue_after_half_a_minute() {
        // Columns: the blocked scope, and whether objects of 'a', of 'b' and of the cluster wait for it.
        let table = [
            (Some("a"), [true, false, false]),
            (None, [true, true, true]),
        ];
        for (scope, wanted) in table {
            let mut gate = Gate::new("Toy");
            let pods = blocked(scope, &[("watch of pods", "forbidden")]);
            assert!(gate.update(&pods));
            assert!(!gate.update(&pods), "nothing has changed");
            assert_eq!(gate.closed(), BTreeSet::from([scope.map(str::to_owned)]));
            advance(29 * SECOND).await;
            assert!(!gate.has_overdue());
            assert_eq!(gate.overdue(Some("a")), None);
            advance(SECOND).await;
            assert!(gate.has_overdue());
            let overdue = [Some("a"), Some("b"), None].map(|namespace| gate.overdue(namespace));
            assert_eq!(overdue.each_ref().map(Option::is_some), wanted);
            assert_eq!(overdue[0].as_deref(), Some("the watch of pods: forbidden"));
            assert!(gate.update(&BlockedScopes::new()));
            assert!(!gate.has_overdue() && gate.closed().is_empty());
        }
    }

    /// The time in which the scope is open does not count, and 30 s later the wait is forgotten.
    #[tokio::test(start_paused = true)]
    async fn a_scope_that_opens_for_a_moment_goes_on_with_its_wait() {
        for (open, wanted) in [(SECOND, true), (29 * SECOND, true), (30 * SECOND, false)] {
            let mut gate = Gate::new("Toy");
            let pods = blocked(None, &[("watch of pods", "forbidden")]);
            gate.update(&pods);
            advance(20 * SECOND).await;
            gate.update(&BlockedScopes::new());
            advance(open).await;
            gate.update(&BlockedScopes::new());
            assert!(gate.update(&pods), "it is closed again");
            advance(9 * SECOND).await;
            assert!(!gate.has_overdue(), "open for {open:?}");
            advance(SECOND).await;
            assert_eq!(gate.has_overdue(), wanted, "open for {open:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_reported_message_stays_while_its_watch_is_in_trouble() {
        let mut gate = Gate::new("Toy");
        let reason = |gate: &Gate| gate.overdue(None).unwrap();
        gate.update(&blocked(None, &[("watch of pods", "timeout")]));
        advance(REPORT_AFTER).await;
        for message in ["refused", "timeout", "refused"] {
            let both = [("watch of jobs", "away"), ("watch of pods", message)];
            assert!(!gate.update(&blocked(None, &both)));
            assert_eq!(reason(&gate), "the watch of pods: timeout");
        }
        gate.update(&blocked(None, &[("watch of jobs", "away")]));
        assert_eq!(reason(&gate), "the watch of jobs: away", "pods work again");
        advance(MESSAGE_KEPT_FOR).await;
        gate.update(&blocked(None, &[("watch of jobs", "forbidden")]));
        assert_eq!(reason(&gate), "the watch of jobs: forbidden", "much later");
    }
}
