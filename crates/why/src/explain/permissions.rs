//! Objects that may not be read. Nothing is concluded from their absence.

use super::*;

impl World {
    /// Returns whether this list could be read, such as `pods`. Without it, a missing object is not
    /// known to be missing.
    pub(super) fn was_read(&self, list: &str) -> bool {
        let mut all = self.unreadable.iter();
        !all.any(|one| one.what.eq_ignore_ascii_case(list))
    }

    /// Returns whether the Jobs, Pods and Events of a run could be read.
    pub(super) fn sees_runs(&self) -> bool {
        ["jobs", "pods", "events"]
            .iter()
            .all(|list| self.was_read(list))
    }
}

/// Formats the permissions that the API server reported as missing: `list pods and get secrets in
/// namespace 'team'; list nodes in the cluster`.
pub(super) fn missing(world: &World) -> String {
    let mut scopes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for one in world.unreadable.iter().filter(|one| one.forbidden) {
        let Some((scope, action)) = permission(&one.why) else {
            continue;
        };
        let actions = scopes.entry(scope).or_default();
        if !actions.contains(&action) {
            actions.push(action);
        }
    }
    let scopes = scopes.iter().map(|(scope, actions)| {
        let actions = actions.join(", ");
        format!("{actions} {scope}")
    });
    scopes.collect::<Vec<String>>().join("; ")
}

/// Parses scope and action from `User "anna" cannot list resource "pods" in API group "" in the
/// namespace "team"`.
fn permission(message: &str) -> Option<(String, String)> {
    let (_, rest) = message.split_once(" cannot ")?;
    let (verb, rest) = rest.split_once(" resource \"")?;
    let (resource, rest) = rest.split_once('"')?;
    let scope = inside(rest, "in the namespace \"", "\"");
    let scope = one_of! { scope;
        Some(namespace) => "in namespace '{namespace}'";
        None => "in the cluster";
    };
    Some((scope, format!("{verb} {resource}")))
}

/// Explains a run with an attempt of which the user may not read a part. Only the status is known.
/// `what` is the plural of the unreadable kind, and `object` the deepest one that can be named.
pub(super) fn hidden(run: Run<'_>, object: ObjectRef, what: &str) -> Finding {
    let unread = one_of! { run.may_read(what);
        true => "its {what} could not be read";
        false => "you may not read its {what}";
    };
    let reason = run.reason().unwrap_or(Reason::Progressing);
    let (state, health, sentence, advice) = if run::is_cause(reason) {
        (
            State::Blocked,
            Health::Error,
            format!("is reported as {reason} by the operator; {unread}"),
            outcome::plain(reason),
        )
    } else if run.phase() == RunPhase::Running {
        (
            State::Running,
            Health::Ok,
            format!("is reported as running by the operator; {unread}"),
            "Wait for the end of the run.".to_owned(),
        )
    } else {
        (
            State::Waiting,
            Health::Waiting,
            format!("is reported as in progress by the operator; {unread}"),
            "Wait: the first lines are the operator's last report.".to_owned(),
        )
    };
    let ask = text! { "kubectl auth can-i list {what} -n {}", run.namespace };
    let ask = Command::new(ask, format!("may you list {what}?"));
    finding! { (state) (advice);
        (health) object, reason, (sentence); seen run.said();
        then run.look_again(), ask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_permission_has_its_verb_resource_and_scope() {
        for (message, expected) in [
            (
                "pods is forbidden: User \"anna\" cannot list resource \"pods\" in API group \"\" in the namespace \"team\"",
                Some(("in namespace 'team'", "list pods")),
            ),
            (
                "nodes \"a\" is forbidden: User \"anna\" cannot get resource \"nodes\" in API group \"\" at the cluster scope",
                Some(("in the cluster", "get nodes")),
            ),
            ("Unauthorized", None),
        ] {
            let found = permission(message);
            let found = found
                .as_ref()
                .map(|(scope, action)| (scope.as_str(), action.as_str()));
            assert_eq!(found, expected, "{message}");
        }
    }
}
