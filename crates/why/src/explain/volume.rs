//! Volumes: claims that stay pending, volumes that cannot be attached or mounted.

use pods::{MOUNT_WARNINGS, warning_reason};

use super::container::AFTER_EDIT;
use super::*;

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
        Some(claim) => of_run(run, claim),
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
    pub(super) class: &'a str,
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

    /// Returns the warning about the claim.
    fn warning(&self) -> Option<&'a EventView> {
        self.said.filter(|event| event.warning)
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
    pub(super) fn missing(&self, advice: String, object: ObjectRef, sentence: &str) -> Finding {
        let reason = match object.kind.as_str() {
            "CSIDriver" => "NoProvisioner",
            _ => Reason::DependencyNotReady.name(),
        };
        finding! { Blocked (advice);
            link self.link(Health::Waiting, "");
            Error object, reason, (sentence); since self.claim.meta.created.as_ref();
        }
    }

    /// Explains that the storage class does not exist. `names` is the field with its name.
    pub(super) fn no_class(&self, names: &str, advice: String) -> Option<Finding> {
        let class = ObjectRef::cluster("StorageClass", self.class);
        let is_missing = self.subject.exists("StorageClass", self.class) == Some(false);
        let sentence = format!("does not exist, and {names} names it");
        is_missing.then(|| {
            let finding = self.missing(advice, class, &sentence);
            finding
                .evidence(self.subject.not_found())
                .then(commands::storage_classes())
        })
    }

    /// Explains that the storage driver is not installed. `or` is the end of the advice.
    pub(super) fn no_driver(&self, or: &str) -> Option<Finding> {
        let driver = self.provisioner?;
        if self.subject.exists("CSIDriver", driver) != Some(false) {
            return None;
        }
        let object = ObjectRef::cluster("CSIDriver", driver);
        let sentence = text! { "no CSIDriver object: the driver is probably not installed, so nobody makes volumes of class '{}'", self.class };
        let advice = text! { "Check with whoever runs the cluster whether the storage driver '{driver}' is installed and runs{or}" };
        Some(
            rows! { self.missing(advice, object, &sentence); seen self.subject.not_found();
                shell "kubectl get csidrivers,storageclass" => "what is installed";
                then self.look();
            },
        )
    }

    /// Explains the problem by the provisioner's message. `and` is the end of a command's purpose.
    pub(super) fn refused(&self, and: &str) -> Finding {
        let driver = self.provisioner.unwrap_or("(unknown)");
        let why = self.warning().map(|event| format!("; {}", event.message));
        // A user who may not list objects of all namespaces cannot run this command.
        let pods = self.subject.may_read("leases").then(|| {
            shell!("kubectl get pods -A -o wide | grep -i -E 'csi|provisioner'" => "find the Pods of '{driver}'{and}")
        });
        finding! { Blocked "The words are those of the provisioner '{driver}', or about it: read its log, and check the space that it has. It tries again by itself.";
            link self.link(Health::Error, &why.unwrap_or_default());
            then self.look(), pods;
        }
    }

    pub(super) fn look(&self) -> Command {
        self.object.describe("the claim's Events")
    }

    /// Returns whether the provisioner reports a problem.
    pub(super) fn is_refused(&self) -> bool {
        self.warning().is_some()
    }
}

fn of_run(run: Run<'_>, claim: &ClaimView) -> Finding {
    let pending = Pending::new(*run, claim);
    let class = pending.class;
    let advice = text! { "Have StorageClass '{class}' created, or name another in the Agent's 'workspace.storageClassName'. {AFTER_EDIT}" };
    if let Some(finding) = pending.no_class("the Agent's workspace", advice) {
        return finding
            .then(run.edit_agent("name another class"))
            .then(run.retry_after_edit());
    }
    let or = text! { ", or name another class in the Agent's 'workspace.storageClassName'. {AFTER_EDIT}" };
    if let Some(finding) = pending.no_driver(&or) {
        return finding;
    }
    let waits = pending
        .said
        .filter(|event| event.reason == "WaitForFirstConsumer");
    if waits.is_some_and(|event| !event.warning) {
        return finding! { Waiting "The volume is made when the Pod has a node: what blocks is above.";
            link pending.link(Health::Waiting, "");
            then pending.look();
        };
    }
    let finding = pending.refused("");
    match run.may_read("leases") {
        true => rows! { finding;
            shell "kubectl logs -n <NAMESPACE> <POD> --all-containers --prefix --tail=50" => "then read their log";
        },
        false => finding,
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
