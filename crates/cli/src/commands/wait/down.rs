//! Operators that are down while a command waits for their objects.

use std::collections::BTreeMap;

use actions::{Object, ObjectName};
use api::kinds::{self, KindRow, OperatorRow};
use futures::{Stream, StreamExt, stream};

use crate::{
    leadership::{self, Leadership},
    session::{Server, Session},
    state,
};

/// Returns whether the operators of these objects lead, now and repeatedly.
pub(super) fn leaders(
    session: &Session<'_>,
    server: &Server,
    runs: &[ObjectName],
) -> impl Stream<Item = (&'static OperatorRow, Leadership)> + Unpin + use<> {
    let mut operators: Vec<&'static OperatorRow> = Vec::new();
    for operator in runs.iter().filter_map(|run| operator_of(run.kind)) {
        if !operators.contains(&operator) {
            operators.push(operator);
        }
    }
    let each = operators.into_iter().map(|operator| {
        let watcher = leadership::Watcher {
            server: server.clone(),
            operator,
            now: session.environment.now,
        };
        watcher.stream().boxed_local()
    });
    stream::select_all(each.collect::<Vec<_>>())
}

fn operator_of(kind: &KindRow) -> Option<&'static OperatorRow> {
    kinds::operator_of(kind.name())
}

/// The operators that do not lead, with the reason.
#[derive(Debug, Default)]
pub(super) struct Down(BTreeMap<&'static str, String>);

impl Down {
    /// Returns the remark about a change, if it is one.
    pub(super) fn observe(&mut self, operator: &OperatorRow, found: Leadership) -> Option<String> {
        let name = operator.name;
        match found {
            Leadership::Down(why) => {
                let remark =
                    format!("operator '{name}' is down, no process leads: {why}; still waiting");
                let is_new = self.0.insert(name, why).is_none();
                is_new.then_some(remark)
            }
            Leadership::Leads => {
                let was_down = self.0.remove(name).is_some();
                was_down.then(|| format!("operator '{name}' leads again"))
            }
            Leadership::Unknown => None,
        }
    }

    /// Returns why the operator of this kind does not lead, if that is known.
    pub(super) fn of(&self, kind: &KindRow) -> Option<&str> {
        let why = self.0.get(operator_of(kind)?.name)?;
        Some(why.as_str())
    }
}

/// Describes an object that has not ended. Without a leader, nothing shows whether it makes progress.
pub(super) fn described(object: &Object, down: Option<&str>) -> String {
    match down.filter(|_| !state::is_suspended(object)) {
        Some(down) => format!("waits for its operator, which is down: {down}"),
        None => state::unfinished(object),
    }
}

#[cfg(test)]
mod tests {
    use api::{tasks::TASK_RUN, tenants::TENANT};
    use serde_json::json;

    use super::*;
    use crate::state::tests::a_run;

    /// An object does not continue while nobody reconciles it.
    #[test]
    fn an_operator_that_is_down_is_reported_once() {
        let tasks = &api::tasks::OPERATOR;
        let is_down = || Leadership::Down("nobody holds the Lease".to_owned());
        let remark =
            "operator 'tasks' is down, no process leads: nobody holds the Lease; still waiting";
        let mut down = Down::default();
        for (found, expected) in [
            (Leadership::Leads, None),
            (Leadership::Unknown, None),
            (is_down(), Some(remark)),
            (is_down(), None),
            (Leadership::Unknown, None),
            (Leadership::Leads, Some("operator 'tasks' leads again")),
            (is_down(), Some(remark)),
        ] {
            let words = down.observe(tasks, found.clone());
            assert_eq!(words.as_deref(), expected, "{found:?}");
        }
        let going = a_run(&json!({}), &json!({ "phase": "Pending" }));
        let held = a_run(&json!({ "suspend": true }), &json!({ "phase": "Pending" }));
        let of_tasks = down.of(&TASK_RUN);
        assert_eq!(
            described(&going, of_tasks),
            "waits for its operator, which is down: nobody holds the Lease"
        );
        assert_eq!(described(&going, down.of(&TENANT)), "continues");
        assert!(described(&held, of_tasks).contains("is suspended"));
    }
}
