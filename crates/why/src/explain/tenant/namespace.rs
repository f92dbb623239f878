//! The ownership of the namespace that a Tenant requests.

use api::{Reason, names};

use super::{
    super::{Finding, commands, operator},
    context::TenantContext,
    terminating,
};
use crate::{
    explanation::{Command, Health, Link, State},
    world::NamespaceView,
};

/// Time in seconds within which the operator creates or adopts a namespace.
const SOON: i64 = 30;

/// Explains a problem with the namespace. Returns `None` if the Tenant owns the namespace and it is
/// not being deleted, or if nothing is known.
pub(super) fn find(context: TenantContext<'_>) -> Option<Finding> {
    let Some(namespace) = &context.world.namespace else {
        return match context.exists("Namespace", context.namespace()) {
            Some(false) => Some(absent(context)),
            Some(true) | None => unread(context),
        };
    };
    if namespace.deleting.is_some() {
        return Some(dying(context, namespace));
    }
    if context.is_own(namespace) {
        return None;
    }
    let offers = [&namespace.meta.retained_from, &namespace.adopt];
    let is_offered = offers
        .iter()
        .any(|tenant| tenant.as_deref() == Some(context.name()));
    // A former Tenant of the same name may have owned the namespace. A restored Tenant has another
    // UID.
    let is_free = namespace.meta.run_uid.is_none()
        || namespace.meta.run_name.as_deref() == Some(&*names::label_value(context.name()));
    if is_offered && is_free {
        return Some(offered(context, namespace));
    }
    Some(taken(context, namespace))
}

fn absent(context: TenantContext<'_>) -> Finding {
    let age = context
        .tenant
        .meta
        .created
        .as_ref()
        .map_or(0, |at| context.world.age(at));
    let was_there = context.tenant.status.namespace_uid.is_some();
    let sentence = if was_there {
        "was deleted, with everything in it: the operator makes another one"
    } else {
        "does not exist yet: the operator makes it"
    };
    let link = Link::new(
        context.place(),
        Health::Waiting,
        Reason::Progressing,
        sentence,
    )
    .since(context.tenant.meta.created.as_ref().filter(|_| !was_there))
    .seen("looked for it", "not found", Some(&context.world.now));
    let mut finding = Finding::new(
        State::Waiting,
        "Wait: this takes seconds. If it stays so, the first lines will say what keeps the operator from it.",
    )
    .link(link)
    .then(context.look_again())
    .maybe(operator::log(context.world));
    finding.is_newer =
        was_there || (age > SOON && context.reason() == Some(Reason::NamespaceTaken));
    finding
}

/// Explains a namespace that may not be read, by the reason in the status.
fn unread(context: TenantContext<'_>) -> Option<Finding> {
    let reason = context.reason()?;
    let (health, advice) = if reason == Reason::NamespaceTaken {
        (
            Health::Error,
            "Ask whoever may see the namespace whose it is, with this output; the first lines say how it is offered to this Tenant.",
        )
    } else if reason == Reason::NamespaceTerminating {
        (
            Health::Waiting,
            "Wait: when it is deleted, another one is created. Ask whoever may see the namespace what its deletion waits for.",
        )
    } else {
        return None;
    };
    let link = Link::new(
        context.place(),
        health,
        reason,
        "is as the first lines say; you may not look at it yourself",
    )
    .seen("status.message", context.message(), context.written());
    let state = match health {
        Health::Error => State::Blocked,
        Health::Ok | Health::Waiting => State::Waiting,
    };
    Some(
        Finding::new(state, advice)
            .link(link)
            .then(context.look_again()),
    )
}

fn dying(context: TenantContext<'_>, namespace: &NamespaceView) -> Finding {
    let whose = if context.is_own(namespace) {
        "with everything in it"
    } else {
        "and is not this Tenant's"
    };
    let mut finding = terminating::find(context, namespace, Reason::NamespaceTerminating, whose);
    finding.advice = format!(
        "{} When the namespace is deleted, another one is created automatically.",
        finding.advice
    );
    finding.then(context.look_again())
}

fn offered(context: TenantContext<'_>, namespace: &NamespaceView) -> Finding {
    let (name, value) = match &namespace.adopt {
        Some(tenant) => (names::ADOPT, tenant.clone()),
        None => (
            names::RETAINED_FROM,
            namespace.meta.retained_from.clone().unwrap_or_default(),
        ),
    };
    let link = Link::new(
        context.place(),
        Health::Waiting,
        "Offered",
        "is offered to this Tenant: the operator takes it within seconds",
    )
    .seen(
        format!("annotation {name}"),
        value,
        Some(&context.world.now),
    );
    let mut finding = Finding::new(
        State::Waiting,
        "Wait: the operator takes the namespace with everything in it. If it stays so, read the operator's log.",
    )
    .link(link)
    .then(context.look_again())
    .maybe(operator::log(context.world));
    finding.is_newer = context.reason() == Some(Reason::NamespaceTaken);
    finding
}

/// Describes the owner of the namespace.
fn whose(context: TenantContext<'_>, namespace: &NamespaceView) -> String {
    let meta = &namespace.meta;
    let is_of_tenant = meta.run_kind.as_deref() == Some("Tenant") && meta.run_uid.is_some();
    match (&meta.run_name, &meta.retained_from, &namespace.adopt) {
        (Some(name), _, _) if is_of_tenant && *name != names::label_value(context.name()) => {
            format!("it belongs to Tenant '{name}'")
        }
        (Some(_), _, _) if is_of_tenant => {
            "it belongs to an earlier Tenant of this name, and does not say that it was left"
                .to_owned()
        }
        (_, Some(tenant), _) => {
            format!("Tenant '{tenant}' left it, and only a Tenant of that name takes it back")
        }
        (_, None, Some(tenant)) => format!("it is offered to Tenant '{tenant}'"),
        (_, None, None) => {
            let made = namespace
                .made_by
                .as_ref()
                .map_or_else(String::new, |by| format!(" by '{by}'"));
            format!(
                "it was made{made}{}, and nobody offered it to a Tenant",
                context.world.ago(meta.created.as_ref())
            )
        }
    }
}

fn taken(context: TenantContext<'_>, namespace: &NamespaceView) -> Finding {
    let (place, tenant) = (context.namespace(), context.name());
    let meta = &namespace.meta;
    let mut link = Link::new(
        context.place(),
        Health::Error,
        Reason::NamespaceTaken,
        format!(
            "exists and is not this Tenant's: {}",
            whose(context, namespace)
        ),
    )
    .since(
        context
            .tenant
            .meta
            .created
            .as_ref()
            .max(meta.created.as_ref()),
    );
    link = match (&meta.run_name, &meta.retained_from) {
        (Some(name), _) => link.seen("label orchestrator.io/name", name, meta.created.as_ref()),
        (None, Some(from)) => link.seen(
            format!("annotation {}", names::RETAINED_FROM),
            from,
            meta.created.as_ref(),
        ),
        (None, None) => link.seen(
            "labels and annotations of Orchestrator",
            "none",
            meta.created.as_ref(),
        ),
    };
    let other = meta
        .run_name
        .as_ref()
        .filter(|name| meta.run_uid.is_some() && **name != names::label_value(tenant));
    let again = format!(
        "'spec.namespace' cannot be changed: for another namespace, delete Tenant '{tenant}' (nothing of the namespace is touched) and create it anew."
    );
    let look = commands::describe(&context.place(), "whose it is: labels, annotations, quotas");
    if let Some(other) = other {
        return Finding::new(
            State::Blocked,
            format!(
                "It is Tenant '{other}' that has this namespace; two cannot share one. {again}"
            ),
        )
        .link(link)
        .then(look)
        .then(commands::describe(
            &crate::world::ObjectRef::cluster("Tenant", other),
            "the Tenant that has it",
        ))
        .then(commands::delete(
            &context.object(),
            "to create this one again with another 'namespace'",
        ));
    }
    let fate = match context.tenant.deletion.as_str() {
        "Delete" => "; with its 'deletion.policy: Delete' it would delete all of it one day",
        _ => "",
    };
    Finding::new(
        State::Blocked,
        format!("If Tenant '{tenant}' may have namespace '{place}' with everything in it, offer it with the annotation '{}': it is taken within seconds{fate}. Otherwise: {again}", names::ADOPT),
    )
    .link(link)
    .then(look)
    .then(Command::new(
        format!("kubectl get all,pvc -n {place}"),
        "what is in it",
    ))
    .then(Command::new(
        format!("kubectl annotate namespace {place} {}={tenant}", names::ADOPT),
        "only if this Tenant may have all of that: offer it",
    ))
}
