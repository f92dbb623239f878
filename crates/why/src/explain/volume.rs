//! Volumes: claims that stay pending, volumes that cannot be attached or mounted.

use pods::{MOUNT_WARNINGS, warning_reason};

use super::container::AFTER_EDIT;
use super::*;

/// The way to another class for the claim of a Tenant's Redis.
const UNCHANGING: &str = "'redis.storage' cannot be changed: for another class, take the data elsewhere, remove 'redis' from the Tenant, delete the claim, and ask for 'redis' again.";

/// Returns the link of a Pod that waits for a claim.
pub(super) fn waits(pod: &PodView, claim: &str) -> Link {
    link! { Waiting pod.object(), Reason::VolumeNotReady, "waits for its volume, claim '{claim}'";
        seen pod.unscheduled().map(|known| known.evidence());
    }
}

/// Explains the first claim of the Pod that is not bound, or returns `None` if all are bound. A
/// claim that could not be read proves nothing.
pub(super) fn claims(run: Run<'_>, pod: &PodView) -> Option<Finding> {
    let claim = |name: &str| {
        run.world
            .claims
            .iter()
            .find(|claim| claim.meta.name == name)
    };
    let mut names = pod.claims.iter();
    let name = names.find(|name| claim(name).is_none_or(|claim| claim.phase != "Bound"))?;
    let within = run.namespace;
    let finding = match claim(name) {
        Some(claim) => Pending::new(*run, claim).explain(Origin::Agent(run)),
        None if run.exists("PersistentVolumeClaim", name) == Some(false) => finding! {
            Blocked "Claim '{name}' is created with the Pod: check the namespace's quota for claims, and find out who deletes them.";
            Error run.here("PersistentVolumeClaim", name), Reason::VolumeNotReady, "does not exist";
            seen run.not_found();
            then commands::list("PersistentVolumeClaim", within, "those that exist");
            then commands::list("ResourceQuota", within, "does a quota count claims?");
        },
        None => return None,
    };
    Some(finding.below([waits(pod, name)]))
}

/// A claim without a volume, and the facts about its class.
pub(super) struct Pending<'a> {
    subject: Subject<'a>,
    claim: &'a ClaimView,
    object: ObjectRef,
    class: &'a str,
    /// The newest Event about the claim; a warning comes first.
    said: Option<&'a EventView>,
    provisioner: Option<&'a str>,
}

impl<'a> Pending<'a> {
    pub(super) fn new(subject: Subject<'a>, claim: &'a ClaimView) -> Self {
        let class = claim.class.as_deref().unwrap_or_default();
        let events = subject.world.events.iter();
        let said = events.filter(|event| event.uid == claim.meta.uid);
        let known = subject.world.known.iter();
        let mut known = known.filter(|known| known.object.kind == "StorageClass");
        let known = known.find(|known| known.object.name == class);
        Self {
            subject,
            claim,
            object: subject.here("PersistentVolumeClaim", &claim.meta.name),
            class,
            said: said.max_by_key(|event| (event.warning, event.last.clone())),
            provisioner: known.and_then(|known| known.provisioner.as_deref()),
        }
    }

    fn link(&self, health: Health, more: &str) -> Link {
        let ClaimView {
            meta, phase, size, ..
        } = self.claim;
        let since = self.subject.since(meta.created.as_ref());
        let of_class = match self.class {
            "" => "without a class".to_owned(),
            class => format!("of class '{class}'"),
        };
        link! { (health) self.object.clone(), Reason::VolumeNotReady, "is {phase}{since}: {size} {of_class} are not there yet{more}";
            since meta.created.as_ref();
            seen self.said.map_or_else(|| self.subject.seen("status.phase", phase), |event| event.evidence());
        }
    }

    /// Explains that the claim waits for a missing object, the deepest link.
    fn missing(&self, advice: String, object: ObjectRef, sentence: String) -> Finding {
        let reason = match object.kind.as_str() {
            "CSIDriver" => "NoProvisioner",
            _ => Reason::DependencyNotReady.name(),
        };
        finding! { Blocked (advice);
            link self.link(Health::Waiting, "");
            Error object, reason, (sentence); since self.claim.meta.created.as_ref();
        }
    }

    /// Explains why the claim has no volume: the class, the driver, or the provisioner's message.
    pub(super) fn explain(&self, origin: Origin<'_>) -> Finding {
        let (subject, class) = (self.subject, self.class);
        let look = self.object.describe("the claim's Events");
        let is_run = matches!(origin, Origin::Agent(_));
        let (names, create, or) = match origin {
            Origin::Agent(_) => (
                "the Agent's workspace",
                text! { "Have StorageClass '{class}' created, or name another in the Agent's 'workspace.storageClassName'. {AFTER_EDIT}" },
                text! { ", or name another class in the Agent's 'workspace.storageClassName'. {AFTER_EDIT}" },
            ),
            Origin::Tenant(..) => (
                "the Tenant's 'redis.storage.storageClassName'",
                text! { "Have StorageClass '{class}' created: it goes on by itself then. Otherwise: {UNCHANGING}" },
                format!(". Otherwise: {UNCHANGING}"),
            ),
        };
        if class.is_empty() && !is_run {
            let advice = text! { "Have one StorageClass marked as the default; the claim gets it by itself. Or: {UNCHANGING}" };
            let object = ObjectRef::cluster("StorageClass", "(default)");
            let sentence = text! { "the cluster has no default StorageClass, and 'redis.storage.storageClassName' names none" };
            return rows! { self.missing(advice, object, sentence);
                seen "spec.storageClassName" => "none", self.claim.meta.created.as_ref();
                then commands::storage_classes(), look;
            };
        }
        if subject.exists("StorageClass", class) == Some(false) {
            let object = ObjectRef::cluster("StorageClass", class);
            let sentence = format!("does not exist, and {names} names it");
            let edit = is_run.then(|| origin.edit("name another class"));
            return rows! { self.missing(create, object, sentence);
                seen subject.not_found();
                then commands::storage_classes(), edit.unwrap_or(look), origin.retry_after_edit();
            };
        }
        let warning = self.said.filter(|event| event.warning);
        let driver = self.provisioner.unwrap_or("(unknown)");
        let is_missing = subject.exists("CSIDriver", driver) == Some(false);
        if is_missing && (is_run || warning.is_none()) {
            let object = ObjectRef::cluster("CSIDriver", driver);
            let sentence = text! { "no CSIDriver object: the driver is probably not installed, so nobody makes volumes of class '{class}'" };
            let advice = text! { "Check with an administrator of the cluster whether the storage driver '{driver}' is installed and runs{or}" };
            return rows! { self.missing(advice, object, sentence); seen subject.not_found();
                shell "kubectl get csidrivers,storageclass" => "what is installed";
                then look;
            };
        }
        let waits = |event: &EventView| event.reason == "WaitForFirstConsumer" && !event.warning;
        if is_run && self.said.is_some_and(waits) {
            return finding! { Waiting "The volume is made when the Pod has a node: what blocks is above.";
                link self.link(Health::Waiting, "");
                then look;
            };
        }
        let why = warning.map(|event| format!("; {}", event.message));
        let and = if is_run { "" } else { ", and read their log" };
        // A user without permission to list objects of all namespaces cannot run these commands.
        let may_look = subject.may_read("leases");
        let pods = shell!("kubectl get pods -A -o wide | grep -i -E 'csi|provisioner'" => "find the Pods of '{driver}'{and}");
        let logs = shell!("kubectl logs -n <NAMESPACE> <POD> --all-containers --prefix --tail=50" => "then read their log");
        finding! { Blocked "The words are those of the provisioner '{driver}', or about it: read its log, and check the space that it has. It tries again by itself.";
            link self.link(Health::Error, &why.unwrap_or_default());
            then look, Some(pods).filter(|_| may_look), Some(logs).filter(|_| may_look && is_run);
        }
    }
}

/// Explains the messages of the kubelet and the attacher about the volumes of a scheduled Pod.
pub(super) fn mounts(run: Run<'_>, pod: &PodView) -> Option<Finding> {
    let (event, link) = unmounted(run.world, pod)?;
    if link.reason == Reason::SecretNotFound.name() {
        let (origin, said) = (Origin::Agent(run), Report::in_event(event));
        return Some(container::missing(origin, pod.object(), &said, false));
    }
    let look = pod.object().describe("all Events of the Pod");
    if event.message.to_lowercase().contains("multi-attach") {
        return Some(attached_elsewhere(run, pod, link).then(look));
    }
    let node = pod.node.as_deref().unwrap_or("?");
    let driver = shell! {
        "kubectl get pods -A --field-selector spec.nodeName={node}" => "does the storage driver's Pod run on that node?"
    };
    let may_look = pod.node.is_some() && run.may_read("nodes");
    Some(finding! {
        Blocked "The words are the kubelet's or the storage driver's: check the driver's Pod on node '{node}'. The kubelet tries again by itself.";
        link link;
        then look, Some(driver).filter(|_| may_look);
    })
}

/// Returns the newest Event about a volume that the Pod waits for, and the Pod's link.
pub(super) fn unmounted<'a>(world: &'a World, pod: &PodView) -> Option<(&'a EventView, Link)> {
    let event = world.warning(&pod.meta.uid, MOUNT_WARNINGS)?;
    let reason = warning_reason(&event.reason, &event.message, event.count)?;
    let verb = match event.reason.as_str() {
        "FailedAttachVolume" => "attached",
        _ => "mounted",
    };
    let link = link! { Error pod.object(), reason, "a volume cannot be {verb}{}", pod.on_node();
        since event.first.as_ref(); seen event.evidence();
    };
    Some((event, link))
}

/// Explains a volume that is attached to another node, which may still write to it.
fn attached_elsewhere(run: Run<'_>, pod: &PodView, link: Link) -> Finding {
    let mut others = run.world.pods.iter().filter(|other| {
        other.node != pod.node && other.claims.iter().any(|name| pod.claims.contains(name))
    });
    let other = others.find_map(|other| other.node.as_deref());
    let node = other.map_or_else(
        || "another node (the first command shows which)".to_owned(),
        |node| format!("node '{node}'"),
    );
    finding! { Blocked "The volume is still attached to {node}. It is released when the Pod there is deleted. Only if that node's machine is off: have the Node tainted out-of-service, which lets go of all its Pods, those of other teams, too.";
        link link;
        shell "kubectl get volumeattachments" => "which node has the volume";
        then commands::heartbeat(other.unwrap_or("<NODE>"));
    }
}
