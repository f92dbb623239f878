//! Problems that stop the operator itself: responses of the API server, names that already exist,
//! files that are too large, objects that cannot be decoded, internal errors.

use api::tasks::CONTEXT_LIMIT;

use super::*;

/// A rule: the reason, whether the rule applies, and the function that explains it.
pub(super) type ReasonRule<C> = (Reason, bool, fn(C) -> Finding);

/// Returns the finding of the first rule that applies to the reason.
pub(super) fn by_reason<C: Copy>(
    context: C,
    reason: Reason,
    rules: &[ReasonRule<C>],
) -> Option<Finding> {
    let mut rules = rules.iter();
    let (_, _, explain) = rules.find(|(known, applies, _)| *known == reason && *applies)?;
    Some(explain(context))
}

/// Explains an error in the status that nothing in the cluster contradicts.
pub(super) fn find(run: Run<'_>) -> Option<Finding> {
    let request = Request::find(run.message());
    let is_refused_child =
        run.job().is_none() && request.is_some_and(|request| request.action.starts_with("create "));
    let rules: [ReasonRule<Run<'_>>; 8] = [
        (Reason::Denied, true, of_namespace),
        (Reason::InvalidChild, is_refused_child, invalid),
        (Reason::ApiUnavailable, true, |run| unavailable(*run)),
        (Reason::InternalError, true, |run| internal(*run)),
        (Reason::ChildNameTaken, true, taken),
        (Reason::ContextTooLarge, true, too_large),
        (Reason::QuotaExceeded, is_refused_child, not_created),
        (Reason::AdmissionDenied, is_refused_child, not_created),
    ];
    by_reason(run, run.reason()?, &rules)
}

/// Explains an object that does not match its type.
pub(super) fn undecodable(subject: Subject<'_>) -> Option<Finding> {
    let error = subject.undecodable?;
    let (kind, name, noun) = (subject.kind, subject.name(), subject.noun);
    let is_said = noun == "run" && subject.message().contains(error.as_str());
    let sentence = one_of! { is_said;
        true => "has a value that does not fit: see the first lines";
        false => "does not fit the schema that this release knows, so the operator leaves it alone: {error}";
    };
    let or_delete = if noun == "run" {
        ", or delete the run"
    } else {
        ""
    };
    Some(finding! {
        Blocked "Look in {kind} '{name}' for the value that the words above name, and correct it{or_delete}. It was probably stored through another version of the CRD.";
        Error subject.object(), Reason::Undecodable, (sentence);
        seen "spec" => (error), subject.changed.or(subject.meta.created.as_ref());
        then subject.object().yaml(format!("the {noun} as it is stored")), subject.edit("correct the value");
    })
}

/// Explains a rejected Job or ConfigMap of the run.
fn not_created(run: Run<'_>) -> Finding {
    let (what, name) = match Request::find(run.message()) {
        Some(request) if request.action.ends_with("configmaps") => ("ConfigMap", request.name),
        Some(request) => ("Job", request.name),
        None => ("Job", "?"),
    };
    let retry = run.progress.retry.as_ref();
    let next = retry.map_or_else(String::new, |retry| {
        format!("; {}", run.world.next_try(retry))
    });
    let above = link! {
        Waiting run.here(what, name), "FailedCreate", "cannot be created by the operator{next}";
    };
    let said = Report::in_status(run.message(), run.written());
    Refusal::new(Origin::Agent(run), what, said).explain(above)
}

fn of_namespace(run: Run<'_>) -> Finding {
    let namespace = run.namespace;
    let place = format!(" in namespace '{namespace}'");
    denied(
        *run,
        &place,
        &format!(", or add namespace '{namespace}' to its 'watchNamespaces'"),
    )
}

/// Explains that the operator lacks a permission. `place` is ` in namespace 'x'` if the namespace
/// matters. `or` is a remedy other than the chart.
pub(super) fn denied(subject: Subject<'_>, place: &str, or: &str) -> Finding {
    let message = subject.message();
    let what = Request::find(message).map_or("do it", |request| request.action);
    let user = message.split_once("User \"");
    let user = user.and_then(|(_, rest)| rest.split('"').next());
    let account = user.and_then(|user| user.strip_prefix("system:serviceaccount:"));
    let object = match account.and_then(|account| account.split_once(':')) {
        Some((namespace, name)) => ObjectRef::namespaced("ServiceAccount", namespace, name),
        None => ObjectRef::cluster("User", user.unwrap_or("(the operator)")),
    };
    let ask = user.map(|user| {
        shell!("kubectl auth can-i {what} --as={user} -n {}", subject.namespace => "may it by now?")
    });
    finding! { Blocked "The operator's rights are not those of its chart. Upgrade or reinstall the chart{or}. After that, {} succeeds by itself.", subject.next_try();
        Error object, Reason::Denied, "the operator's account may not '{what}'{place}"; seen subject.said();
        then ask, operator::log(subject.world);
    }
}

/// Explains that the API server did not respond, or responded with an error.
pub(super) fn unavailable(subject: Subject<'_>) -> Finding {
    let how = messages::answered_code(subject.message()).map_or_else(
        || "did not answer the operator in time".to_owned(),
        |code| format!("answered the operator with {code}"),
    );
    finding! { Waiting "Wait: the operator tries again by itself{}. If that fails, too, check the control plane.", subject.tried_at();
        Error ObjectRef::cluster("APIServer", "kubernetes"), Reason::ApiUnavailable, "{how}{}; it answers me now", subject.ago(subject.written());
        since subject.written(); seen subject.said();
        then commands::readyz(), operator::log(subject.world);
    }
}

/// Explains an internal error of the operator.
pub(super) fn internal(subject: Subject<'_>) -> Finding {
    let noun = subject.noun;
    finding! { Blocked "This is a bug in Orchestrator: report it with this output and the operator's log. It is tried again by itself{}.", subject.tried_at();
        Error ObjectRef::cluster("Operator", "orchestrator"), Reason::InternalError, "has an internal error with this {noun}";
        seen subject.said();
        then operator::log(subject.world), subject.object().yaml(format!("the {noun}, for the report"));
    }
}

/// Returns the Agent's field from which `spec.template.spec.containers[0].resources.requests` is
/// derived.
fn agent_field(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once(" is invalid: ")?;
    let (path, _) = rest.trim_start_matches('[').split_once(": ")?;
    let path = path.strip_prefix("spec.template.spec.")?;
    Some(path.strip_prefix("containers[0].").unwrap_or(path))
}

fn invalid(run: Run<'_>) -> Finding {
    let field = agent_field(run.message()).map_or_else(
        || "the field that the words above name".to_owned(),
        |field| format!("'{field}'"),
    );
    finding! { Blocked "Change {field} in Agent '{}'. After that, {} succeeds by itself.", run.view.agent_name, run.next_try();
        Error run.agent(), Reason::InvalidChild, "asks for something that the API server does not accept: see {field}";
        seen run.said(); then run.edit_agent(format!("change {field}")), run.look_again();
    }
}

/// Returns kind and name of the object that has the name of a child, and the object if it was read.
pub(super) fn holder<'a>(
    subject: Subject<'a>,
    otherwise: (&'a str, &'a str),
) -> (&'a str, &'a str, Option<&'a OtherView>) {
    let (kind, name) = messages::object_with_name(subject.message()).unwrap_or(otherwise);
    let mut others = subject.world.others.iter();
    let other = others.find(|other| other.kind == kind && other.meta.name == name);
    (kind, name, other)
}

/// Explains a name that the run needs but that belongs to another object.
fn taken(run: Run<'_>) -> Finding {
    let (kind, name, other) = holder(*run, ("Job", "?"));
    let object = run.here(kind, name);
    let owner = other.and_then(|other| other.meta.owner.as_ref());
    let whose = one_of! { (other, owner);
        (_, Some(owner)) => "it belongs to {} '{}'", owner.kind, owner.name;
        (Some(_), None) if messages::is_left_over(run.message()) => "an earlier {} of this name left it, and it has no owner that would take it along", run.kind;
        (Some(_), None) => "it belongs to nobody (no controller owner): someone created it by hand or with a tool";
        (None, None) if run.exists(kind, name) == Some(false) => "it no longer exists";
        (None, None) => "whose it is could not be read";
    };
    let another = match &run.view.docs {
        Some(_) => "name",
        None => "'serviceName' or 'taskId'",
    };
    let owned = owner.map_or_else(
        || "none".to_owned(),
        |owner| format!("{} '{}' (uid {})", owner.kind, owner.name, owner.uid),
    );
    finding! { Blocked "Check whether {kind} '{name}' is in use; delete it only if nobody needs it (it cannot be renamed). The run goes on by itself within a minute. Otherwise submit the run with another {another}.";
        Error object.clone(), Reason::ChildNameTaken, "has the name that the run needs, and is not the run's: {whose}";
        seen run.said();
        seen other.map(|other| Evidence::new("metadata.ownerReferences", owned, other.meta.created.as_ref()));
        then object.describe("what it is, and whether it runs"), object.delete("only if nobody needs it");
    }
}

fn too_large(run: Run<'_>) -> Finding {
    let mut files: Vec<(&String, &usize)> = run.view.files.iter().collect();
    files.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
    let own: usize = files.iter().map(|(_, bytes)| **bytes).sum();
    let agent = run.world.agent.as_ref();
    let agents = agent.map_or(0, |agent| agent.instruction_bytes);
    let shown = files
        .iter()
        .take(3)
        .map(|(name, bytes)| format!("{name} {bytes}"));
    let shown: Vec<String> = shown.collect();
    let largest = files.first().map_or("?", |(name, _)| name.as_str());
    let field = match &run.view.docs {
        Some(_) => "spec.instructions",
        None => "spec.markdownFiles",
    };
    let link = link! {
        Error run.object(), Reason::ContextTooLarge, "its files have {own} bytes and the Agent's instructions {agents}; {CONTEXT_LIMIT} fit together. The largest is '{largest}'";
        since run.changed; seen "{field}, the largest (bytes)" => (shown.join(", ")), run.changed;
    };
    if run.view.docs.is_some() {
        return docs::too_large(run, largest, link);
    }
    let (name, within) = (run.name(), run.namespace);
    finding! { Blocked "Shorten '{largest}' and raise 'contextVersion' (in a file, it is too long for an editor), or let the agent fetch the data itself.";
        link link;
        shell "kubectl get otr {name} -n {within} -o yaml > {name}.yaml" => "take it into a file; in there, shorten '{largest}' and raise 'contextVersion'";
        shell "kubectl replace -f {name}.yaml" => "then store it ('apply' would keep a copy that is too large)";
        then (agents > 0).then(|| run.edit_agent("or shorten 'instructions'"));
    }
}

#[cfg(test)]
mod tests;
