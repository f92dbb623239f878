//! The run that holds a task. Of several TaskRuns with the same `serviceName` and `taskId` in a namespace, one may
//! have children at a time, because the names of the children are made of these fields.

use std::cmp::Reverse;

use api::{Reason, Timestamp, Verdict, messages, tasks::TaskRunSpec};

/// A run of a task, as far as the other runs of that task depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Name of the run.
    pub name: String,
    /// Creation time of the run.
    pub created: Option<Timestamp>,
    /// Whether it has a Job or a ConfigMap.
    pub has_children: bool,
    /// Whether it has the finalizer, which comes before the first child.
    pub has_finalizer: bool,
    /// Whether it can create no child any more: it has ended, or is being deleted.
    pub is_over: bool,
}

/// Another run that holds the task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Name of the run.
    pub name: String,
    /// Whether it ended or is being deleted. Then only its children hold the task.
    pub is_over: bool,
}

/// Returns the run that holds the task, unless it is `own`. The order is: runs with children, runs that are about to
/// create some, then the oldest run, then the first name.
///
/// # Guarantees
/// A run with children is never blocked. Two runs with children can only exist if they created them at the same
/// moment, in different versions. Neither is stopped then.
#[must_use]
pub fn holder(own: &Claim, others: impl IntoIterator<Item = Claim>) -> Option<Holder> {
    if own.has_children {
        return None;
    }
    let holds = |other: &Claim| other.has_children || !other.is_over;
    let first = others.into_iter().filter(holds).min_by(|one, other| {
        let (one, other) = (rank(one), rank(other));
        one.cmp(&other)
    })?;
    (rank(&first) < rank(own)).then_some(Holder {
        name: first.name,
        is_over: first.is_over,
    })
}

fn rank(claim: &Claim) -> (Reverse<bool>, Reverse<bool>, Option<Timestamp>, &str) {
    let Claim {
        name,
        created,
        has_children,
        has_finalizer,
        is_over: _,
    } = claim;
    (
        Reverse(*has_children),
        Reverse(*has_finalizer),
        *created,
        name,
    )
}

/// Returns the verdict about a run if another run holds its task.
pub(super) fn taken(spec: &TaskRunSpec, holder: &Holder) -> Verdict {
    let message = messages::task_taken(
        &holder.name,
        spec.task_id,
        &spec.service_name,
        holder.is_over,
    );
    Verdict::working(Reason::TaskTaken, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str, second: i64) -> Claim {
        Claim {
            name: name.to_owned(),
            created: Some(Timestamp::from_second(second).unwrap()),
            has_children: false,
            has_finalizer: false,
            is_over: false,
        }
    }

    fn with_children(claim: Claim) -> Claim {
        Claim {
            has_children: true,
            has_finalizer: true,
            ..claim
        }
    }

    fn over(claim: Claim) -> Claim {
        Claim {
            has_finalizer: false,
            is_over: true,
            ..claim
        }
    }

    #[test]
    fn the_oldest_run_holds_the_task_unless_another_one_has_started() {
        let own = || claim("own", 10);
        let started = Claim {
            has_finalizer: true,
            ..claim("newer", 20)
        };
        for (case, own, others, wanted) in [
            ("it is alone", own(), vec![], None),
            ("it is the oldest", own(), vec![claim("a", 11)], None),
            (
                "another one is older",
                own(),
                vec![claim("b", 8), claim("a", 9)],
                Some(("b", false)),
            ),
            (
                "two of one second: the first name",
                own(),
                vec![claim("a", 10), claim("z", 10)],
                Some(("a", false)),
            ),
            (
                "a newer one has children",
                own(),
                vec![claim("older", 5), with_children(claim("newer", 20))],
                Some(("newer", false)),
            ),
            (
                "a newer one is about to create some",
                own(),
                vec![started.clone()],
                Some(("newer", false)),
            ),
            (
                "it has children itself",
                with_children(claim("own", 30)),
                vec![with_children(claim("older", 5))],
                None,
            ),
            (
                "an older one has ended, and its children are kept",
                own(),
                vec![over(with_children(claim("older", 5)))],
                Some(("older", true)),
            ),
            (
                "an older one has ended, and has no children",
                own(),
                vec![over(claim("older", 5))],
                None,
            ),
        ] {
            let found = holder(&own, others);
            let found = found
                .as_ref()
                .map(|holder| (holder.name.as_str(), holder.is_over));
            assert_eq!(found, wanted, "{case}");
        }
    }

    /// Whatever the order of their reconciliations, the runs agree on one of them.
    #[test]
    fn exactly_one_run_of_a_task_may_start() {
        for bits in 0_u32..(1 << 9) {
            let is_set = |bit: u32| bits & (1 << bit) != 0;
            let claims: Vec<Claim> = (0..3)
                .map(|run| Claim {
                    name: format!("run-{run}"),
                    created: Some(Timestamp::from_second(i64::from(is_set(run * 3))).unwrap()),
                    // At most one has children: their names are the lock.
                    has_children: is_set(run * 3 + 1) && (0..run).all(|one| !is_set(one * 3 + 1)),
                    has_finalizer: is_set(run * 3 + 2),
                    is_over: false,
                })
                .collect();
            let free = claims.iter().filter(|own| {
                let others = claims.iter().filter(|other| other.name != own.name);
                holder(own, others.cloned()).is_none()
            });
            assert_eq!(free.count(), 1, "{claims:?}");
        }
    }
}
