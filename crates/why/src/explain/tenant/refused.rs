//! An object of a Tenant that the API server rejects: the Tenant's own quota, other quotas, limits,
//! admission rules.

use api::Reason;
use pods::Rejection;

use super::{
    super::{
        Finding, admission, commands,
        create::{
            Beyond, Refusal, beyond, blocked, exceeded, missing_name, quota_link, seen, unset,
        },
    },
    context::TenantContext,
};
use crate::{
    explanation::{Command, Health, Link, State},
    world::ObjectRef,
};

/// The effect of a change of the Tenant.
pub(super) const AFTER_EDIT: &str = "A change of the Tenant counts by itself.";
const WHOSE: &str = "the Tenant";

/// The quotas that the operator creates.
const OURS: &[&str] = &["tenant", "tenant-objects"];
/// The quota for the probe Pods, which nobody can change.
const PROBES: &str = "tenant-probes";

/// Returns the field of a Tenant from which a resource of its quota is derived.
fn field(resource: &str) -> Option<&'static str> {
    let fields = [
        ("requests.cpu", "resources.cpu.request"),
        ("limits.cpu", "resources.cpu.limit"),
        ("requests.memory", "resources.memory.request"),
        ("limits.memory", "resources.memory.limit"),
        ("requests.storage", "resources.storage.request"),
        ("pods", "resources.pods.limit"),
    ];
    let known = fields.iter().find(|(known, _)| *known == resource);
    known.map(|(_, field)| *field)
}

/// Explains a rejection. `above` is the link of the object that was to be created. `part` is the
/// component that the object belongs to.
pub(super) fn explain(
    context: TenantContext<'_>,
    part: Option<&str>,
    refusal: &Refusal<'_>,
    above: Link,
) -> Finding {
    let edit = |finding: Finding| finding.then(context.edit("change what it refuses"));
    let finding = match Rejection::of(refusal.message) {
        Rejection::Quota => quota(context, part, refusal),
        Rejection::LimitMissing => limit_missing(context, part, refusal),
        Rejection::LimitRange => limit_range(context, part, refusal),
        Rejection::PodSecurity => admission::altered(context.world, context.namespace(), refusal),
        Rejection::NamesMissing => names_missing(context, refusal),
        Rejection::WebhookDown => admission::hook(refusal, false, WHOSE, AFTER_EDIT),
        Rejection::Webhook => edit(admission::hook(refusal, true, WHOSE, AFTER_EDIT)),
        Rejection::Policy => edit(admission::ruled(refusal, WHOSE, AFTER_EDIT)),
        Rejection::Denied => edit(admission::forbidden(
            context.namespace(),
            refusal,
            WHOSE,
            AFTER_EDIT,
        )),
        Rejection::Invalid => invalid(context, refusal),
        Rejection::Unanswered => {
            return Finding::new(
                State::Waiting,
                "Wait: it is tried again by itself. If it stays so for minutes, check the control plane.",
            )
            .link(seen(above, refusal))
            .then(context.look_again())
            .then(Command::new(
                "kubectl get --raw '/readyz?verbose'",
                "the API server's state",
            ));
        }
    };
    finding.below(vec![above])
}

/// Explains a rejection by a quota. The quota follows from the Tenant's own fields such as
/// `'resources.pods.limit'`, is the quota for probe Pods, or is unmanaged.
fn quota(context: TenantContext<'_>, part: Option<&str>, refusal: &Refusal<'_>) -> Finding {
    let known = exceeded(context.world, refusal.message);
    let name = known.name;
    let what = refusal.what;
    let object = context.here("ResourceQuota", name);
    let link = quota_link(context.world, object.clone(), refusal, &known);
    let describe = |purpose: &str| commands::describe(&object, purpose);
    if known.has_room {
        return Finding::new(
            State::Waiting,
            format!("Wait: ResourceQuota '{name}' has room now, and the next try to create the {what} succeeds by itself (within some minutes)."),
        )
        .link(link)
        .newer()
        .then(context.look_again())
        .then(describe("what is used of it now"));
    }
    let own: Vec<String> = known
        .asked
        .iter()
        .filter_map(|(resource, _)| field(resource))
        .map(|field| format!("'{field}'"))
        .collect();
    let is_of = |words: &[&str]| {
        let mut asked = known.asked.iter();
        asked.any(|(resource, _)| words.iter().any(|word| resource.contains(word)))
    };
    let less = match (part, is_of(&["cpu", "memory"])) {
        (Some("server"), true) => ", or lower 'server.replicas' or 'server.resources'",
        (Some("server"), false) => ", or lower 'server.replicas'",
        (Some("redis"), true) => ", or lower 'redis.resources'",
        (Some(_), _) | (None, _) => "",
    };
    let is_ours = OURS.contains(&name) && !own.is_empty();
    let advice = if is_ours {
        format!(
            "This quota is the Tenant's own: raise {} of Tenant '{}'{less}. {AFTER_EDIT} Or free some: delete what nobody needs in namespace '{}'.",
            own.join(", "),
            context.name(),
            context.namespace()
        )
    } else if name == PROBES {
        format!(
            "This quota is for the Pods that try connections: delete the others that say they are such ('priorityClassName') in namespace '{}'.",
            context.namespace()
        )
    } else {
        format!(
            "ResourceQuota '{name}' is not the Tenant's: ask whoever made it to raise it, or free some{less}. The {what} is created by itself then."
        )
    };
    let finding = blocked(advice)
        .link(link)
        .then(describe("what is used, and how much there is"))
        .then(commands::list(
            if is_of(&["storage"]) {
                "PersistentVolumeClaim"
            } else {
                "Pod"
            },
            context.namespace(),
            "what uses it up",
        ));
    if is_ours {
        finding.then(context.edit(&format!("raise {}", own.join(", "))))
    } else {
        finding
    }
}

fn limit_missing(context: TenantContext<'_>, part: Option<&str>, refusal: &Refusal<'_>) -> Finding {
    let (name, fields) = unset(refusal.message);
    let part = part.unwrap_or("server");
    let link = Link::new(
        context.here("ResourceQuota", name),
        Health::Error,
        "LimitMissing",
        format!("counts {fields}, so each container must set it, and '{part}.resources' does not"),
    );
    blocked(format!(
        "Set {fields} in '{part}.resources' of Tenant '{}'. {AFTER_EDIT}",
        context.name()
    ))
    .link(seen(link, refusal))
    .then(context.edit(&format!("set {fields} in '{part}.resources'")))
    .then(context.look_again())
}

fn limit_range(context: TenantContext<'_>, part: Option<&str>, refusal: &Refusal<'_>) -> Finding {
    let Beyond {
        resource,
        object,
        link,
    } = beyond(context.world, context.namespace(), "Tenant", refusal);
    let of_storage = resource == "storage";
    let advice = if of_storage {
        "Raise 'resources.storage.limit' of the Tenant, which is the largest single volume; 'redis.storage' itself cannot be changed.".to_owned()
    } else {
        format!(
            "Change '{resource}' in '{}.resources' of the Tenant to fit, or have {} '{}' changed.",
            part.unwrap_or("server"),
            object.kind,
            object.name
        )
    };
    blocked(format!("{advice} {AFTER_EDIT}"))
        .link(link)
        .then(commands::describe(&object, "the limits"))
        .then(context.edit(if of_storage {
            "raise 'resources.storage.limit'"
        } else {
            "change it"
        }))
}

fn names_missing(context: TenantContext<'_>, refusal: &Refusal<'_>) -> Finding {
    let (kind, name) = missing_name(refusal.message);
    let object = match kind {
        "ServiceAccount" => context.here(kind, name),
        _ => ObjectRef::cluster(kind, name),
    };
    let link = Link::new(
        object,
        Health::Error,
        Reason::DependencyNotReady,
        format!("does not exist, and the {} needs it", refusal.what),
    );
    let advice = match kind {
        "PriorityClass" => format!(
            "The chart installs PriorityClass '{name}': upgrade or reinstall it. It goes on by itself then."
        ),
        _ => format!(
            "Create {kind} '{name}': the cluster makes it by itself in every namespace, so find out who deletes it. It goes on by itself then."
        ),
    };
    blocked(advice)
        .link(seen(link, refusal))
        .then(commands::create(kind, name, None, context.namespace()))
        .then(context.look_again())
}

fn invalid(context: TenantContext<'_>, refusal: &Refusal<'_>) -> Finding {
    let link = Link::new(
        context.object(),
        Health::Error,
        Reason::InvalidChild,
        format!(
            "asks for a {} that the API server does not accept",
            refusal.what
        ),
    );
    blocked(format!(
        "The words above name the field. Change it in Tenant '{}'. {AFTER_EDIT}",
        context.name()
    ))
    .link(seen(link, refusal))
    .then(context.edit("change the field"))
    .then(context.look_again())
}
