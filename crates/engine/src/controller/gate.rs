//! The gate of a dispatcher: while a watch is in trouble, no object in its scope is reconciled.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

use crate::watch_health::BlockedScopes;

/// Time after which objects report the watch that they wait for. Most interruptions are shorter, and the control plane
/// has other problems than our status writes. `/readyz`, the log and the metrics report the watch before.
const REPORT_AFTER: Duration = Duration::from_mins(3);

/// Number of objects of a kind that report a watch in one second. Thousands may wait for it.
pub(super) const REPORTS_PER_SECOND: usize = 10;

/// The scopes in which the objects of a kind wait for a watch.
#[derive(Debug)]
pub(super) struct Gate {
    kind: &'static str,
    closed: BTreeMap<Option<String>, Closed>,
}

#[derive(Debug)]
struct Closed {
    since: Instant,
    reason: String,
}

impl Gate {
    /// Returns a gate that is open everywhere.
    pub(super) fn new(kind: &'static str) -> Self {
        Self {
            kind,
            closed: BTreeMap::new(),
        }
    }

    /// Closes the gate for blocked scopes and opens it for the others. Returns whether a scope changed.
    ///
    /// Each change is one log line, for any number of objects.
    pub(super) fn update(&mut self, blocked: BlockedScopes) -> bool {
        let kind = self.kind;
        let before = self.closed.len();
        self.closed.retain(|scope, _| {
            let is_blocked = blocked.contains_key(scope);
            if !is_blocked {
                let namespace = namespace_for_logs(scope.as_deref());
                tracing::info!(kind, namespace, "reconciliations continue");
            }
            is_blocked
        });
        let mut has_changed = self.closed.len() < before;
        for (scope, reason) in blocked {
            if let Some(closed) = self.closed.get_mut(&scope) {
                closed.reason = reason;
                continue;
            }
            let namespace = namespace_for_logs(scope.as_deref());
            tracing::warn!(kind, namespace, "reconciliations wait for {reason}");
            let since = Instant::now();
            self.closed.insert(scope, Closed { since, reason });
            has_changed = true;
        }
        has_changed
    }

    /// Returns the closed scopes. The scope `None` is everything.
    pub(super) fn scopes(&self) -> BTreeSet<Option<String>> {
        self.closed.keys().cloned().collect()
    }

    /// Returns the reason that objects of a namespace report, once they have waited for long enough.
    pub(super) fn overdue(&self, namespace: Option<&str>) -> Option<&str> {
        let own = namespace.and_then(|name| self.closed.get(&Some(name.to_owned())));
        let mut closed = self.closed.get(&None::<String>).into_iter().chain(own);
        let overdue = closed.find(|closed| closed.since.elapsed() >= REPORT_AFTER);
        overdue.map(|closed| closed.reason.as_str())
    }
}

fn namespace_for_logs(scope: Option<&str>) -> &str {
    scope.unwrap_or("all namespaces")
}
