//! Problems that stop the operator itself at a Tenant: responses of the API server, names that
//! already exist, internal errors.

use api::{
    Reason,
    messages::{self, Request},
};

use super::{
    super::{
        Finding,
        answers::{self, ReasonRule, RequestContext},
        commands,
        create::Refusal,
    },
    context::TenantContext,
    refused,
};
use crate::{
    explanation::{Health, Link, State},
    world::ObjectRef,
};

/// Explains an error in the status.
pub(super) fn find(context: TenantContext<'_>) -> Option<Finding> {
    let reason = context.reason()?;
    let is_request = Request::find(context.message()).is_some();
    let rules: [ReasonRule<TenantContext<'_>>; 7] = [
        (Reason::Denied, true, denied),
        (Reason::ApiUnavailable, true, unavailable),
        (Reason::InternalError, true, internal),
        (Reason::ChildNameTaken, true, taken),
        (Reason::InvalidChild, is_request, invalid),
        (Reason::QuotaExceeded, is_request, of_request),
        (Reason::AdmissionDenied, is_request, of_request),
    ];
    answers::apply_rule(context, reason, &rules)
}

fn request_context(context: TenantContext<'_>) -> RequestContext<'_> {
    RequestContext {
        world: context.world,
        object: context.object(),
        word: "Tenant",
        namespace: context.namespace(),
        progress: &context.tenant.status.progress,
    }
}

/// Returns the kind for a request such as `create rolebindings`.
fn kind(what: &str) -> &'static str {
    let kinds = [
        ("namespaces", "Namespace"),
        ("resourcequotas", "ResourceQuota"),
        ("limitranges", "LimitRange"),
        ("rolebindings", "RoleBinding"),
        ("networkpolicies", "NetworkPolicy"),
        ("configmaps", "ConfigMap"),
        ("services", "Service"),
        ("secrets", "Secret"),
        ("statefulsets", "StatefulSet"),
        ("deployments", "Deployment"),
        ("pods", "Pod"),
    ];
    let plural = what.rsplit(' ').next().unwrap_or_default();
    let known = kinds.iter().find(|(known, _)| *known == plural);
    known.map_or("Child", |(_, kind)| kind)
}

fn child(context: TenantContext<'_>, what: &str, name: &str) -> ObjectRef {
    match kind(what) {
        "Namespace" => context.place(),
        kind => context.here(kind, name),
    }
}

/// Explains a rejected request for a child of the Tenant.
fn of_request(context: TenantContext<'_>) -> Finding {
    let request = Request::find(context.message());
    let (what, name) = request.map_or(("", "?"), |request| (request.action, request.name));
    let link = Link::new(
        child(context, what, name),
        Health::Waiting,
        "FailedCreate",
        format!(
            "cannot be set by the operator ('{what}' is refused); it tries again{}",
            request_context(context).tried_at()
        ),
    );
    let refusal = Refusal {
        what: kind(what),
        message: context.message(),
        source: "status.message",
        at: context.written(),
        since: None,
    };
    refused::explain(context, None, &refusal, link)
}

fn denied(context: TenantContext<'_>) -> Finding {
    answers::denied(&request_context(context), "", "")
}

fn invalid(context: TenantContext<'_>) -> Finding {
    let link = Link::new(
        context.object(),
        Health::Error,
        Reason::InvalidChild,
        "asks for something that the API server does not accept: see the first lines",
    )
    .since(context.tenant.changed.as_ref())
    .seen("status.message", context.message(), context.written());
    Finding::new(
        State::Blocked,
        format!(
            "Change the field that the first lines name in Tenant '{}'. It counts by itself.",
            context.name()
        ),
    )
    .link(link)
    .then(context.edit("change the field"))
    .then(context.look_again())
}

fn unavailable(context: TenantContext<'_>) -> Finding {
    answers::unavailable(&request_context(context))
}

fn internal(context: TenantContext<'_>) -> Finding {
    answers::internal(&request_context(context))
}

/// Explains a name that the Tenant needs but that belongs to another object.
fn taken(context: TenantContext<'_>) -> Finding {
    let message = context.message();
    let (kind, name) = messages::object_with_name(message).unwrap_or(("Secret", "tenant-redis"));
    let object = context.here(kind, name);
    let other = context
        .world
        .others
        .iter()
        .find(|other| other.kind == kind && other.meta.name == name);
    let whose = match other {
        Some(other) => match (&other.meta.owner, &other.meta.retained_from) {
            (Some(owner), _) => format!("it belongs to {} '{}'", owner.kind, owner.name),
            (None, Some(tenant)) => format!("Tenant '{tenant}' left it"),
            (None, None) => "it names nobody whose it would be".to_owned(),
        },
        None => "whose it is could not be read".to_owned(),
    };
    let is_gone = other.is_none() && context.exists(kind, name) == Some(false);
    let made = other.and_then(|other| other.meta.created.as_ref());
    let link = if is_gone {
        Link::new(
            object.clone(),
            Health::Ok,
            "GoneNow",
            "had a name that the Tenant needs, and no longer exists",
        )
    } else {
        Link::new(
            object.clone(),
            Health::Error,
            Reason::ChildNameTaken,
            format!("has a name that the Tenant needs, and is not the Tenant's: {whose}"),
        )
    };
    let mut link = link.seen("status.message", message, context.written());
    if made.is_some() {
        link = link.seen("metadata.creationTimestamp", "", made);
    }
    if is_gone {
        let mut finding = Finding::new(
            State::Waiting,
            format!(
                "Wait: {kind} '{name}' no longer exists, and {} succeeds by itself.",
                request_context(context).next_try()
            ),
        )
        .link(link)
        .then(context.look_again());
        finding.is_newer = true;
        return finding;
    }
    Finding::new(
        State::Blocked,
        format!("Check whether {kind} '{name}' in namespace '{}' is in use; delete it only if nobody needs it (it cannot be renamed). The Tenant goes on by itself within a minute.", context.namespace()),
    )
    .link(link)
    .then(commands::describe(&object, "what it is"))
    .then(commands::delete(&object, "only if nobody needs it"))
}
