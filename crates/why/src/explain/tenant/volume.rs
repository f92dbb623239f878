//! The volume of a Redis: a claim that stays pending, or is smaller than requested.

use api::Reason;

use super::{
    super::{Finding, commands, create::times, quantity::value},
    context::TenantContext,
};
use crate::{
    explanation::{Command, Health, Link, State},
    world::{ClaimView, ObjectRef},
};

/// The claim of the only Pod of a Redis.
const CLAIM: &str = "data-redis-0";
const UNCHANGING: &str = "'redis.storage' cannot be changed: for another class, take the data elsewhere, remove 'redis' from the Tenant, delete the claim, and ask for 'redis' again.";

pub(super) fn claim(context: TenantContext<'_>) -> Option<&ClaimView> {
    let claims = context.world.claims.iter();
    claims.into_iter().find(|claim| claim.meta.name == CLAIM)
}

/// Explains a claim that already existed and is smaller than requested.
pub(super) fn mismatch(context: TenantContext<'_>) -> Option<Finding> {
    let wanted = &context.tenant.redis.as_ref()?.size;
    let claim = claim(context)?;
    if value(&claim.size)? >= value(wanted)? {
        return None;
    }
    let object = context.here("PersistentVolumeClaim", CLAIM);
    let link = Link::new(
        object.clone(),
        Health::Error,
        Reason::VolumeNotReady,
        format!(
            "was there before and has {}, but 'redis.storage.size' asks for {wanted}",
            claim.size
        ),
    )
    .since(claim.meta.created.as_ref())
    .seen(
        "spec.resources.requests.storage",
        &claim.size,
        claim.meta.created.as_ref(),
    );
    Some(
        Finding::new(
            State::Blocked,
            "Enlarge the claim, if its StorageClass allows that, or create the Tenant with the size that is there. Delete the claim only if nobody needs its data.",
        )
        .link(link)
        .then(commands::describe(&object, "its size, its class and who uses it"))
        .then(commands::edit(
            &object,
            &format!("enlarge 'spec.resources.requests.storage' to {wanted}"),
        )),
    )
}

/// Explains a claim without a volume.
pub(super) fn pending(context: TenantContext<'_>, claim: &ClaimView) -> Finding {
    let object = context.here("PersistentVolumeClaim", &claim.meta.name);
    let class = claim.class.as_deref().unwrap_or_default();
    let of_class = match class {
        "" => "without a class".to_owned(),
        class => format!("of class '{class}'"),
    };
    let events = context.world.events.iter();
    let said = events
        .filter(|event| event.uid == claim.meta.uid)
        .max_by_key(|event| (event.warning, event.last.clone()));
    let link = Link::new(
        object.clone(),
        Health::Error,
        Reason::VolumeNotReady,
        format!(
            "is {}{}: {} {of_class} are not there yet",
            claim.phase,
            context.world.since(claim.meta.created.as_ref()),
            claim.size
        ),
    )
    .since(claim.meta.created.as_ref());
    let link = match said {
        Some(event) => link.seen(
            format!("Event {}{}", event.reason, times(event.count)),
            &event.message,
            event.last.as_ref(),
        ),
        None => link.seen("status.phase", &claim.phase, Some(&context.world.now)),
    };
    let waits = |link: Link| Link {
        health: Health::Waiting,
        ..link
    };
    let look = commands::describe(&object, "the claim's Events");
    let classes = Command::new("kubectl get storageclass", "those that exist");
    if class.is_empty() {
        let missing = Link::new(
            ObjectRef::cluster("StorageClass", "(default)"),
            Health::Error,
            Reason::DependencyNotReady,
            "the cluster has no default StorageClass, and 'redis.storage.storageClassName' names none",
        )
        .since(claim.meta.created.as_ref())
        .seen("spec.storageClassName", "none", claim.meta.created.as_ref());
        return Finding::new(
            State::Blocked,
            format!("Have one StorageClass marked as the default; the claim gets it by itself. Or: {UNCHANGING}"),
        )
        .link(waits(link))
        .link(missing)
        .then(classes)
        .then(look);
    }
    if context.exists("StorageClass", class) == Some(false) {
        let missing = Link::new(
            ObjectRef::cluster("StorageClass", class),
            Health::Error,
            Reason::DependencyNotReady,
            "does not exist, and the Tenant's 'redis.storage.storageClassName' names it",
        )
        .since(claim.meta.created.as_ref())
        .seen("looked for it", "not found", Some(&context.world.now));
        return Finding::new(
            State::Blocked,
            format!("Have StorageClass '{class}' created: it goes on by itself then. Otherwise: {UNCHANGING}"),
        )
        .link(waits(link))
        .link(missing)
        .then(classes)
        .then(look);
    }
    let known = context.world.known.iter();
    let provisioner = known
        .filter(|known| known.object.kind == "StorageClass" && known.object.name == class)
        .find_map(|known| known.provisioner.as_deref());
    let absent = provisioner.filter(|driver| context.exists("CSIDriver", driver) == Some(false));
    if let (Some(driver), true) = (absent, said.is_none_or(|event| !event.warning)) {
        let missing = Link::new(
            ObjectRef::cluster("CSIDriver", driver),
            Health::Error,
            "NoProvisioner",
            format!("no CSIDriver object: the driver is probably not installed, so nobody makes volumes of class '{class}'"),
        )
        .since(claim.meta.created.as_ref())
        .seen("looked for it", "not found", Some(&context.world.now));
        return Finding::new(
            State::Blocked,
            format!("Check with whoever runs the cluster whether the storage driver '{driver}' is installed and runs. Otherwise: {UNCHANGING}"),
        )
        .link(waits(link))
        .link(missing)
        .then(Command::new(
            "kubectl get csidrivers,storageclass",
            "what is installed",
        ))
        .then(look);
    }
    let driver = provisioner.unwrap_or("(unknown)");
    let link = match said.filter(|event| event.warning) {
        Some(event) => Link {
            message: format!("{}; {}", link.message, event.message),
            ..link
        },
        None => link,
    };
    let finding = Finding::new(
        State::Blocked,
        format!("The words are those of the provisioner '{driver}', or about it: read its log, and check the space that it has. It tries again by itself."),
    )
    .link(link)
    .then(look);
    // A user who may not list objects of all namespaces cannot run this command.
    if !context.may_read("leases") {
        return finding;
    }
    finding.then(Command::new(
        "kubectl get pods -A -o wide | grep -i -E 'csi|provisioner'",
        format!("find the Pods of '{driver}', and read their log"),
    ))
}
