//! Problems that stop the operator itself: responses of the API server, names that already exist,
//! files that are too large, internal errors.

use api::{
    Reason,
    messages::{self, Request},
    tasks::CONTEXT_LIMIT,
};

use super::{
    Finding,
    answers::{self, ReasonRule, RequestContext},
    commands, create, docs,
    run_context::RunContext,
};
use crate::explanation::{Command, Health, Link, State};

/// Explains an error in the status that nothing in the cluster contradicts.
pub(super) fn find(context: RunContext<'_>) -> Option<Finding> {
    let reason = context.reason()?;
    let request = Request::find(context.message());
    let is_refused_child = context.job().is_none()
        && request.is_some_and(|request| request.action.starts_with("create "));
    let rules: [ReasonRule<RunContext<'_>>; 8] = [
        (Reason::Denied, true, denied),
        (Reason::InvalidChild, is_refused_child, invalid),
        (Reason::ApiUnavailable, true, unavailable),
        (Reason::InternalError, true, internal),
        (Reason::ChildNameTaken, true, taken),
        (Reason::ContextTooLarge, true, too_large),
        (Reason::QuotaExceeded, is_refused_child, refused),
        (Reason::AdmissionDenied, is_refused_child, refused),
    ];
    answers::apply_rule(context, reason, &rules)
}

fn request_context(context: RunContext<'_>) -> RequestContext<'_> {
    RequestContext {
        world: context.world,
        object: context.object(),
        word: "run",
        namespace: context.namespace(),
        progress: &context.status().progress,
    }
}

/// Explains a rejected Job or ConfigMap of the run.
fn refused(context: RunContext<'_>) -> Finding {
    let request = Request::find(context.message());
    let (what, name) = match &request {
        Some(request) if request.action.ends_with("configmaps") => ("ConfigMap", request.name),
        Some(request) => ("Job", request.name),
        None => ("Job", "?"),
    };
    let link = Link::new(
        context.here(what, name),
        Health::Waiting,
        "FailedCreate",
        format!("cannot be created by the operator{}", next_try(context)),
    );
    let refusal = create::Refusal {
        what,
        message: context.message(),
        source: "status.message",
        at: context.written(),
        since: None,
    };
    create::explain(context, &refusal, link)
}

/// Formats the time of the next try: `; next try at 10:05:53Z (in 42s)`.
fn next_try(context: RunContext<'_>) -> String {
    let retry = context.status().progress.retry.as_ref();
    retry.map_or_else(String::new, |retry| {
        ["; ", &context.world.next_try(retry)].concat()
    })
}

fn denied(context: RunContext<'_>) -> Finding {
    let namespace = context.namespace();
    let place = format!(" in namespace '{namespace}'");
    let advice = format!(", or add namespace '{namespace}' to its 'watchNamespaces'");
    answers::denied(&request_context(context), &place, &advice)
}

/// Returns the Agent's field from which `spec.template.spec.containers[0].resources.requests` is
/// derived.
fn agent_field(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once(" is invalid: ")?;
    let (path, _) = rest.trim_start_matches('[').split_once(": ")?;
    let path = path.strip_prefix("spec.template.spec.")?;
    Some(path.strip_prefix("containers[0].").unwrap_or(path))
}

fn invalid(context: RunContext<'_>) -> Finding {
    let field = agent_field(context.message()).map_or_else(
        || "the field that the words above name".to_owned(),
        |field| format!("'{field}'"),
    );
    let agent = &context.run.agent_name;
    let link = Link::new(
        context.here("Agent", agent),
        Health::Error,
        Reason::InvalidChild,
        format!("asks for something that the API server does not accept: see {field}"),
    )
    .seen("status.message", context.message(), context.written());
    Finding::new(
        State::Blocked,
        format!(
            "Change {field} in Agent '{agent}'. After that, {} succeeds by itself.",
            request_context(context).next_try()
        ),
    )
    .link(link)
    .then(commands::edit_agent(context, &format!("change {field}")))
    .then(commands::look_again(context))
}

fn unavailable(context: RunContext<'_>) -> Finding {
    answers::unavailable(&request_context(context))
}

fn internal(context: RunContext<'_>) -> Finding {
    answers::internal(&request_context(context))
}

/// Explains a name that the run needs but that belongs to another object.
fn taken(context: RunContext<'_>) -> Finding {
    let message = context.message();
    let (kind, name) = messages::object_with_name(message).unwrap_or(("Job", "?"));
    let object = context.here(kind, name);
    let other = context
        .world
        .others
        .iter()
        .find(|other| other.kind == kind && other.meta.name == name);
    let whose = match other.map(|other| (&other.meta.owner, &other.meta.created)) {
        Some((Some(owner), _)) => format!("it belongs to {} '{}'", owner.kind, owner.name),
        Some((None, _)) if messages::is_left_over(message) => {
            format!(
                "an earlier {} of this name left it, and it has no owner that would take it along",
                context.kind()
            )
        }
        Some((None, _)) => {
            "it belongs to nobody (no controller owner): someone created it by hand or with a tool"
                .to_owned()
        }
        None if context.exists(kind, name) == Some(false) => "it no longer exists".to_owned(),
        None => "whose it is could not be read".to_owned(),
    };
    let mut link = Link::new(
        object.clone(),
        Health::Error,
        Reason::ChildNameTaken,
        format!("has the name that the run needs, and is not the run's: {whose}"),
    )
    .seen("status.message", message, context.written());
    if let Some(other) = other {
        let owner = other.meta.owner.as_ref();
        let owner = owner.map_or_else(
            || "none".to_owned(),
            |owner| format!("{} '{}' (uid {})", owner.kind, owner.name, owner.uid),
        );
        link = link.seen(
            "metadata.ownerReferences",
            owner,
            other.meta.created.as_ref(),
        );
    }
    Finding::new(
        State::Blocked,
        format!(
            "Check whether {kind} '{name}' is in use; delete it only if nobody needs it (it cannot be renamed). The run goes on by itself within a minute. Otherwise submit the run with another {}.",
            match &context.run.docs {
                Some(_) => "name",
                None => "'serviceName' or 'taskId'",
            }
        ),
    )
    .link(link)
    .then(commands::describe(&object, "what it is, and whether it runs"))
    .then(commands::delete(&object, "only if nobody needs it"))
}

fn too_large(context: RunContext<'_>) -> Finding {
    let mut files: Vec<(&String, &usize)> = context.run.files.iter().collect();
    files.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
    let own: usize = files.iter().map(|(_, bytes)| **bytes).sum();
    let agents = context
        .world
        .agent
        .as_ref()
        .map_or(0, |agent| agent.instruction_bytes);
    let shown: Vec<String> = files
        .iter()
        .take(3)
        .map(|(name, bytes)| format!("{name} {bytes}"))
        .collect();
    let field = match &context.run.docs {
        Some(_) => "spec.instructions",
        None => "spec.markdownFiles",
    };
    let largest = files.first().map_or("?", |(name, _)| name.as_str());
    let link = Link::new(
        context.object(),
        Health::Error,
        Reason::ContextTooLarge,
        format!("its files have {own} bytes and the Agent's instructions {agents}; {CONTEXT_LIMIT} fit together. The largest is '{largest}'"),
    )
    .since(context.run.changed.as_ref())
    .seen(format!("{field}, the largest (bytes)"), shown.join(", "), context.run.changed.as_ref());
    if context.run.docs.is_some() {
        return docs::too_large(context, largest, link);
    }
    let name = &context.run.meta.name;
    let within = context.namespace();
    let finding = Finding::new(
        State::Blocked,
        format!("Shorten '{largest}' and raise 'contextVersion' (in a file, it is too long for an editor), or let the agent fetch the data itself."),
    )
    .link(link)
    .then(Command::new(
        format!("kubectl get otr {name} -n {within} -o yaml > {name}.yaml"),
        format!("take it into a file; in there, shorten '{largest}' and raise 'contextVersion'"),
    ))
    .then(Command::new(
        format!("kubectl replace -f {name}.yaml"),
        "then store it ('apply' would keep a copy that is too large)",
    ));
    if agents > 0 {
        finding.then(commands::edit_agent(context, "or shorten 'instructions'"))
    } else {
        finding
    }
}

#[cfg(test)]
mod tests;
