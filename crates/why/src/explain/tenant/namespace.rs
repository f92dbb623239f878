//! The ownership of the namespace that a Tenant requests.

use super::*;

/// Time in seconds within which the operator creates or adopts a namespace.
const SOON: i64 = 30;

/// Explains a problem with the namespace. Returns `None` if the Tenant owns the namespace and it is
/// not being deleted, or if nothing is known.
pub(super) fn find(tenant: Tenant<'_>) -> Option<Finding> {
    let Some(namespace) = &tenant.world.namespace else {
        return match tenant.exists("Namespace", tenant.namespace) {
            Some(false) => Some(absent(tenant)),
            Some(true) | None => unread(tenant),
        };
    };
    if namespace.deleting.is_some() {
        return Some(dying(tenant, namespace));
    }
    if operator::namespace(tenant.world) == Some(tenant.namespace) {
        return Some(of_the_operator(tenant));
    }
    if tenant.is_own(namespace) {
        return None;
    }
    let mut offers = [&namespace.meta.retained_from, &namespace.adopt].into_iter();
    let is_offered = offers.any(|offer| offer.as_deref() == Some(tenant.name()));
    // A former Tenant of the same name may have owned the namespace. A restored Tenant has another
    // UID.
    let is_free = namespace.meta.run_uid.is_none()
        || namespace.meta.run_name == Some(names::label_value(tenant.name()));
    Some(match is_offered && is_free {
        true => offered(tenant, namespace),
        false => taken(tenant, namespace),
    })
}

/// Explains that the Tenant requests the operator's own namespace, which no annotation can offer.
fn of_the_operator(tenant: Tenant<'_>) -> Finding {
    let (place, name) = (tenant.namespace, tenant.name());
    finding! { Blocked "'spec.namespace' cannot be changed: delete Tenant '{name}' (nothing of namespace '{place}' is touched), and create it with another namespace.";
        Error tenant.place(), Reason::NamespaceTaken, "is the namespace in which the operator runs: no Tenant can adopt it";
        since tenant.meta.created.as_ref(); seen tenant.world.seen("namespace of the operator's Lease", place);
        then tenant.object().delete("to create this one again with another 'namespace'");
    }
}

fn absent(tenant: Tenant<'_>) -> Finding {
    let created = tenant.meta.created.as_ref();
    let was_there = tenant.view.status.namespace_uid.is_some();
    let sentence = match was_there {
        true => "was deleted, with everything in it: the operator makes another one",
        false => "does not exist yet: the operator makes it",
    };
    let is_late = tenant.age(created) > SOON;
    let is_freed = is_late && tenant.reason() == Some(Reason::NamespaceTaken);
    finding! {
        Waiting "Wait: this takes seconds. If it stays so, the first lines will say what keeps the operator from it.";
        Waiting tenant.place(), Reason::Progressing, (sentence); since created.filter(|_| !was_there);
        seen tenant.not_found(); newer if was_there || is_freed;
        then tenant.look_again(), operator::log(tenant.world);
    }
}

/// Explains a namespace that may not be read, by the reason in the status.
fn unread(tenant: Tenant<'_>) -> Option<Finding> {
    let reason = tenant.reason()?;
    let (state, health, advice) = of_reason! { reason;
        NamespaceTaken => (State::Blocked, Health::Error, "Ask whoever may see the namespace whose it is, with this output; the first lines say how it is offered to this Tenant."),
        NamespaceTerminating => (State::Waiting, Health::Waiting, "Wait: when it is deleted, another one is created. Ask whoever may see the namespace what its deletion waits for."),
    }?;
    Some(finding! { (state) (advice);
        (health) tenant.place(), reason, "is as the first lines say; you may not look at it yourself";
        seen tenant.said(); then tenant.look_again();
    })
}

fn dying(tenant: Tenant<'_>, namespace: &NamespaceView) -> Finding {
    let whose = match tenant.is_own(namespace) {
        true => "with everything in it",
        false => "and is not this Tenant's",
    };
    let mut finding = terminating::find(tenant, namespace, Reason::NamespaceTerminating, whose);
    finding
        .advice
        .push_str(" When the namespace is deleted, another one is created automatically.");
    finding.then(tenant.look_again())
}

fn offered(tenant: Tenant<'_>, namespace: &NamespaceView) -> Finding {
    let (name, value) = match (&namespace.adopt, &namespace.meta.retained_from) {
        (Some(tenant), _) => (names::ADOPT, tenant.as_str()),
        (None, from) => (names::RETAINED_FROM, from.as_deref().unwrap_or_default()),
    };
    finding! {
        Waiting "Wait: the operator takes the namespace with everything in it. If it stays so, read the operator's log.";
        Waiting tenant.place(), "Offered", "is offered to this Tenant: the operator takes it within seconds";
        seen "annotation {name}" => (value), Some(&tenant.world.now);
        newer if tenant.reason() == Some(Reason::NamespaceTaken);
        then tenant.look_again(), operator::log(tenant.world);
    }
}

/// Describes the owner of the namespace.
fn whose(tenant: Tenant<'_>, namespace: &NamespaceView) -> String {
    let meta = &namespace.meta;
    let is_of_tenant = meta.run_kind.as_deref() == Some("Tenant") && meta.run_uid.is_some();
    match (&meta.run_name, &meta.retained_from, &namespace.adopt) {
        (Some(name), _, _) if is_of_tenant && *name != names::label_value(tenant.name()) => {
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
            let by = namespace.made_by.as_ref();
            let by = by.map_or_else(String::new, |by| format!(" by '{by}'"));
            let at = tenant.ago(meta.created.as_ref());
            format!("it was made{by}{at}, and nobody offered it to a Tenant")
        }
    }
}

fn taken(tenant: Tenant<'_>, namespace: &NamespaceView) -> Finding {
    let (place, name) = (tenant.namespace, tenant.name());
    let meta = &namespace.meta;
    let created = meta.created.as_ref();
    let whose = whose(tenant, namespace);
    let proof = match (&meta.run_name, &meta.retained_from) {
        (Some(name), _) => Evidence::new("label orchestrator.io/name", name, created),
        (None, Some(from)) => Evidence::new(
            format!("annotation {}", names::RETAINED_FROM),
            from,
            created,
        ),
        (None, None) => Evidence::new("labels and annotations of Orchestrator", "none", created),
    };
    let link = link! {
        Error tenant.place(), Reason::NamespaceTaken, "exists and is not this Tenant's: {whose}";
        since tenant.meta.created.as_ref().max(created); seen proof;
    };
    let other = meta.run_name.as_ref();
    let other = other.filter(|other| meta.run_uid.is_some() && **other != names::label_value(name));
    let again = text! { "'spec.namespace' cannot be changed: for another namespace, delete Tenant '{name}' (nothing of the namespace is touched) and create it anew." };
    let look = tenant
        .place()
        .describe("whose it is: labels, annotations, quotas");
    if let Some(other) = other {
        return finding! { Blocked "It is Tenant '{other}' that has this namespace; two cannot share one. {again}";
            link link;
            then look, ObjectRef::cluster("Tenant", other).describe("the Tenant that has it");
            then tenant.object().delete("to create this one again with another 'namespace'");
        };
    }
    let adopt = names::ADOPT;
    let fate = match tenant.view.deletion.as_str() {
        "Delete" => "; with its 'deletion.policy: Delete' it would delete all of it one day",
        _ => "",
    };
    finding! { Blocked "If Tenant '{name}' may have namespace '{place}' with everything in it, offer it with the annotation '{adopt}': it is taken within seconds{fate}. Otherwise: {again}";
        link link;
        then look;
        shell "kubectl get all,pvc -n {place}" => "what is in it";
        shell "kubectl annotate namespace {place} {adopt}={name}" => "only if this Tenant may have all of that: offer it";
    }
}
