//! Problems that stop the operator itself: responses of the API server, names that already exist,
//! files that are too large, objects that cannot be decoded, internal errors.

use api::tasks::CONTEXT_LIMIT;

use super::*;

/// Explains an error in the status that nothing in the cluster contradicts.
pub(super) fn find(origin: Origin<'_>) -> Option<Finding> {
    let subject = origin.subject();
    let request = Request::find(subject.message());
    let is_child = match origin {
        Origin::Agent(run) => {
            let creates = |request: Request<'_>| request.action.starts_with("create ");
            run.job().is_none() && request.is_some_and(creates)
        }
        Origin::Tenant(..) => request.is_some(),
    };
    let reason = subject.reason()?;
    // The object is not the cause. The topic of the CRDs explains it.
    if messages::outdated_crd(subject.message()).is_some() {
        return None;
    }
    let is_fault = matches!(
        reason,
        Reason::ApiUnavailable | Reason::Denied | Reason::InvalidChild | Reason::InternalError
    );
    // A webhook that fails answers with codes of the API server, which is well.
    if is_fault && Rejection::of(subject.message()) == Rejection::WebhookDown {
        return Some(not_created(origin));
    }
    let found = of_reason! { reason;
        Denied => Some(denied(origin)),
        InvalidChild => is_child.then(|| invalid(origin)),
        ApiUnavailable => Some(unavailable(subject)),
        InternalError => Some(internal(subject)),
        ChildNameTaken => Some(taken(origin)),
        TaskTaken => task_taken(origin),
        ContextTooLarge => too_large(origin),
        QuotaExceeded => is_child.then(|| not_created(origin)),
        AdmissionDenied => (is_child || request.is_some() && is_webhook(subject)).then(|| not_created(origin)),
    };
    found.flatten()
}

/// Returns whether a webhook failed. It also rejects a patch or a deletion.
fn is_webhook(subject: Subject<'_>) -> bool {
    Rejection::of(subject.message()) == Rejection::WebhookDown
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

/// Explains a rejected request for a child.
fn not_created(origin: Origin<'_>) -> Finding {
    let subject = origin.subject();
    let request = Request::find(subject.message());
    let (action, name) = request.map_or(("", "?"), |request| (request.action, request.name));
    let kind = kind(action);
    let next = match (origin, &subject.progress.retry) {
        (Origin::Agent(_), Some(retry)) => format!("; {}", subject.world.next_try(retry)),
        (Origin::Agent(_), None) => String::new(),
        (Origin::Tenant(..), _) => {
            text! { " ('{action}' is refused); it tries again{}", subject.tried_at() }
        }
    };
    let (object, verb) = match (origin, kind) {
        (Origin::Agent(_), _) => (subject.here(kind, name), "created"),
        (Origin::Tenant(tenant, _), "Namespace") => (tenant.place(), "set"),
        (Origin::Tenant(..), _) => (subject.here(kind, name), "set"),
    };
    let above = link! { Waiting object, "FailedCreate", "cannot be {verb} by the operator{next}"; };
    let said = Report::in_status(subject.message(), subject.written());
    Refusal::new(origin, kind, said).explain(above)
}

/// The kinds of all children.
const CHILDREN: &str = "Namespace ResourceQuota LimitRange RoleBinding NetworkPolicy ConfigMap Service Secret StatefulSet Deployment Pod Job";

/// Returns the kind for a request such as `create rolebindings`.
fn kind(action: &str) -> &'static str {
    let plural = action.rsplit(' ').next().unwrap_or_default();
    let stem = plural.trim_end_matches("ies").trim_end_matches('s');
    let is_it = |kind: &&str| kind.to_lowercase().trim_end_matches('y') == stem;
    CHILDREN.split(' ').find(is_it).unwrap_or("Child")
}

/// Explains that the operator lacks a permission.
fn denied(origin: Origin<'_>) -> Finding {
    let subject = origin.subject();
    // A run may be in a namespace that the operator does not watch.
    let (place, or) = match (origin, subject.namespace) {
        (Origin::Agent(_), namespace) => (
            format!(" in namespace '{namespace}'"),
            format!(", or add namespace '{namespace}' to its 'watchNamespaces'"),
        ),
        (Origin::Tenant(..), _) => (String::new(), String::new()),
    };
    let message = subject.message();
    let what = Request::find(message).map_or("do it", |request| request.action);
    let user = inside(message, "User \"", "\"");
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
fn unavailable(subject: Subject<'_>) -> Finding {
    if let Some(name) = messages::missing_crd(subject.message()) {
        // If the CRD is still missing, it replaces this link.
        return finding! { Waiting "Wait: the operator finds the CRD within a minute, and continues.";
            Ok ObjectRef::cluster("CustomResourceDefinition", name), "ExistsNow", "was not installed{}, and is installed now", subject.ago(subject.written());
            since subject.written(); seen subject.said();
            newer; then subject.look_again(), operator::log(subject.world);
        };
    }
    let how = messages::answered_code(subject.message()).map_or_else(
        || "did not answer the operator in time".to_owned(),
        |code| format!("answered the operator with {code}"),
    );
    if messages::is_hanging(subject.message()) {
        return finding! { Waiting "Wait some seconds: the API server then names the webhook that does not answer. If it names none, check the control plane.";
            Error ObjectRef::cluster("APIServer", "kubernetes"), Reason::ApiUnavailable, "has not answered a write of the operator yet, probably because of an admission webhook";
            since subject.written(); seen subject.said();
            shell "kubectl get validatingwebhookconfigurations" => "webhooks that may hang";
            shell "kubectl get mutatingwebhookconfigurations" => "others that may hang";
            then commands::readyz();
        };
    }
    finding! { Waiting "Wait: the operator tries again by itself{}. If that fails, too, check the control plane.", subject.tried_at();
        Error ObjectRef::cluster("APIServer", "kubernetes"), Reason::ApiUnavailable, "{how}{}; it answers now", subject.ago(subject.written());
        since subject.written(); seen subject.said();
        then commands::readyz(), operator::log(subject.world);
    }
}

/// Explains an internal error of the operator.
fn internal(subject: Subject<'_>) -> Finding {
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

/// Explains a child that the API server does not accept.
fn invalid(origin: Origin<'_>) -> Finding {
    let (subject, object) = (origin.subject(), origin.object());
    let (field, see, purpose, after) = match origin {
        Origin::Agent(_) => {
            let field = agent_field(subject.message()).map_or_else(
                || "the field that the words above name".to_owned(),
                |field| format!("'{field}'"),
            );
            let after = format!("After that, {} succeeds by itself.", subject.next_try());
            (field.clone(), field.clone(), field, after)
        }
        Origin::Tenant(..) => (
            "the field that the first lines name".to_owned(),
            "the first lines".to_owned(),
            "the field".to_owned(),
            "It counts by itself.".to_owned(),
        ),
    };
    let since = match origin {
        Origin::Agent(_) => None,
        Origin::Tenant(..) => subject.changed,
    };
    finding! { Blocked "Change {field} in {} '{}'. {after}", object.kind, object.name;
        Error object.clone(), Reason::InvalidChild, "asks for something that the API server does not accept: see {see}";
        since since; seen subject.said();
        then origin.edit(format!("change {purpose}")), subject.look_again();
    }
}

/// Explains a name that a child needs but that belongs to another object.
fn taken(origin: Origin<'_>) -> Finding {
    let subject = origin.subject();
    let (noun, message, within) = (subject.noun, subject.message(), subject.namespace);
    let unknown = match origin {
        Origin::Agent(_) => ("Job", "?"),
        Origin::Tenant(..) => ("Secret", "tenant-redis"),
    };
    let (kind, name) = messages::object_with_name(message).unwrap_or(unknown);
    let mut others = subject.world.others.iter();
    let other = others.find(|other| other.kind == kind && other.meta.name == name);
    let object = subject.here(kind, name);
    if other.is_none() && subject.exists(kind, name) == Some(false) {
        return finding! { Waiting "Wait: {kind} '{name}' no longer exists, and {} succeeds by itself.", subject.next_try();
            Ok object, "GoneNow", "had a name that the {noun} needs, and no longer exists"; seen subject.said();
            newer; then subject.look_again();
        };
    }
    if let Some(finding) = held_by_run(origin, &object, other) {
        return finding;
    }
    let owner = other.and_then(|other| other.meta.owner.as_ref());
    let retained = other.and_then(|other| other.meta.retained_from.as_ref());
    let whose = one_of! { (other, owner, retained, origin);
        (_, Some(owner), _, _) => "it belongs to {} '{}'", owner.kind, owner.name;
        (_, None, Some(tenant), Origin::Tenant(..)) => "Tenant '{tenant}' left it";
        (Some(_), None, _, Origin::Tenant(..)) => "it names nobody whose it would be";
        (Some(_), None, _, Origin::Agent(run)) if messages::is_left_over(message) => "an earlier {} of this name left it, and it has no owner that would take it along", run.kind;
        (Some(_), None, _, Origin::Agent(_)) => "it belongs to nobody (no controller owner): someone created it by hand or with a tool";
        (None, None, _, _) => "whose it is could not be read";
    };
    let created = other.and_then(|other| other.meta.created.as_ref());
    let owned = one_of! { owner;
        Some(owner) => "{} '{}' (uid {})", owner.kind, owner.name, owner.uid;
        None => "none";
    };
    let (place, the, or, look, proof) = match origin {
        Origin::Agent(run) => (
            String::new(),
            "the",
            match run.view.docs {
                Some(_) => " Otherwise submit the run with another name.",
                None => " Otherwise submit the run with another 'serviceName' or 'taskId'.",
            },
            "what it is, and whether it runs",
            other.map(|_| Evidence::new("metadata.ownerReferences", owned, created)),
        ),
        Origin::Tenant(..) => (
            format!(" in namespace '{within}'"),
            "a",
            "",
            "what it is",
            created.map(|at| Evidence::new("metadata.creationTimestamp", "", Some(at))),
        ),
    };
    finding! { Blocked "Check whether {kind} '{name}'{place} is in use; delete it only if nobody needs it (it cannot be renamed). The {noun} goes on by itself within a minute.{or}";
        Error object.clone(), Reason::ChildNameTaken, "has {the} name that the {noun} needs, and is not the {noun}'s: {whose}";
        seen subject.said(); seen proof;
        then object.describe(look), object.delete("only if nobody needs it");
    }
}

/// Explains a task that another run holds.
fn task_taken(origin: Origin<'_>) -> Option<Finding> {
    let Origin::Agent(run) = origin else {
        return None;
    };
    let holder = run.here("TaskRun", messages::task_holder(run.message())?);
    let name = holder.name.clone();
    Some(finding! {
        Blocked "To run the task of '{name}' again, raise its contextVersion (orc context add), and delete this run. To run both, submit this one with another 'taskId'. Otherwise wait: the run starts when '{name}' is deleted, or ended and was cleaned up.";
        Error holder.clone(), Reason::TaskTaken, "has the same 'serviceName' and 'taskId', and came first";
        seen run.said();
        then holder.describe("how far it is"), run.object().delete("only if it was submitted twice");
    })
}

/// Explains a name that a child of another run has. That run needs its child, so the advice never
/// is to delete it.
fn held_by_run(
    origin: Origin<'_>,
    child: &ObjectRef,
    other: Option<&OtherView>,
) -> Option<Finding> {
    let Origin::Agent(run) = origin else {
        return None;
    };
    let meta = &other?.meta;
    let owner = meta.owner.as_ref();
    let owner = owner.map(|owner| (owner.kind.as_str(), owner.name.as_str(), &owner.uid));
    let labels = meta.run_kind.as_deref().zip(meta.run_name.as_deref());
    let by_label = || {
        let ((kind, name), uid) = labels.zip(meta.run_uid.as_ref())?;
        Some((kind, name, uid))
    };
    let (kind, name, uid) = owner.or_else(by_label)?;
    let is_run = matches!(kind, "TaskRun" | "DocsRun");
    let is_same = kind == run.kind && name == run.name();
    if !is_run || is_same || *uid == run.meta.uid {
        return None;
    }
    let holder = run.here(kind, name);
    let (own, within, argument) = (run.name(), run.namespace, kind.to_lowercase());
    let instead = one_of! { run.view.docs;
        Some(_) => "Use {kind} '{name}', or submit this run with another name";
        None => "Use {kind} '{name}', or submit this run with another 'serviceName' or 'taskId'";
    };
    let (of, owned_by) = (&child.kind, &child.name);
    let above = link! { Waiting child.clone(), Reason::ChildNameTaken, "belongs to {kind} '{name}'";
        seen "metadata.ownerReferences" => "{kind} '{name}' (uid {uid})", meta.created.as_ref();
    };
    Some(
        finding! { Blocked "{instead}. Leave {of} '{owned_by}' alone: it belongs to that run. This run continues if {kind} '{name}' is deleted.";
            link above;
            Error holder, Reason::ChildNameTaken, "has the same child names as {} '{own}', and had them first", run.kind;
            seen run.said();
            shell "orc why {argument}/{name} -n {within}" => "how the other run stands";
            then run.object().delete("delete this run, if the other one is the right one");
        },
    )
}

fn too_large(origin: Origin<'_>) -> Option<Finding> {
    let Origin::Agent(run) = origin else {
        return None;
    };
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
        return Some(docs::too_large(run, largest, link));
    }
    let (name, within) = (run.name(), run.namespace);
    Some(finding! {
        Blocked "Shorten '{largest}' and raise 'contextVersion' (in a file, it is too long for an editor), or let the agent fetch the data itself.";
        link link;
        shell "kubectl get otr {name} -n {within} -o yaml > {name}.yaml" => "take it into a file; in there, shorten '{largest}' and raise 'contextVersion'";
        shell "kubectl replace -f {name}.yaml" => "then store it ('apply' would keep a copy that is too large)";
        then (agents > 0).then(|| run.edit_agent("or shorten 'instructions'"));
    })
}

#[cfg(test)]
mod tests;
