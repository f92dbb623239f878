//! Objects of an application, by kind, namespace and name.

use std::fmt;

use api::apps::{HELM_RELEASE, KUSTOMIZATION, NamespacedName};

/// A kind of objects that the operator reads. Other kinds in an inventory are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// A Kustomization of Flux.
    Kustomization,
    /// A HelmRelease of Flux.
    HelmRelease,
    /// A Deployment.
    Deployment,
    /// A StatefulSet.
    StatefulSet,
    /// A DaemonSet.
    DaemonSet,
    /// A CronJob.
    CronJob,
    /// A PersistentVolumeClaim.
    Claim,
}

impl ObjectKind {
    pub(crate) const ALL: [Self; 7] = [
        Self::Kustomization,
        Self::HelmRelease,
        Self::Deployment,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::CronJob,
        Self::Claim,
    ];

    /// Returns the kind with this API group and name, if the operator reads it.
    #[must_use]
    pub fn of(group: &str, name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|kind| kind.group() == group && kind.name() == name)
    }

    pub(crate) fn group(self) -> &'static str {
        match self {
            Self::Kustomization => KUSTOMIZATION.group,
            Self::HelmRelease => HELM_RELEASE.group,
            Self::Deployment | Self::StatefulSet | Self::DaemonSet => "apps",
            Self::CronJob => "batch",
            Self::Claim => "",
        }
    }

    /// Returns the name of the kind in Kubernetes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kustomization => KUSTOMIZATION.kind,
            Self::HelmRelease => HELM_RELEASE.kind,
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::CronJob => "CronJob",
            Self::Claim => "PersistentVolumeClaim",
        }
    }

    /// Returns whether objects of this kind have Pods.
    #[must_use]
    pub fn is_workload(self) -> bool {
        self.has_replicas() || self == Self::CronJob
    }

    /// Returns whether objects of this kind keep a number of Pods, so that their health can be judged.
    #[must_use]
    pub fn has_replicas(self) -> bool {
        matches!(self, Self::Deployment | Self::StatefulSet | Self::DaemonSet)
    }
}

/// An object of an application.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// Kind of the object.
    pub kind: ObjectKind,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl ObjectId {
    /// Creates an id.
    #[must_use]
    pub fn new(kind: ObjectKind, namespace: &str, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Returns the id of an object of Flux.
    #[must_use]
    pub fn named(kind: ObjectKind, name: &NamespacedName) -> Self {
        Self::new(kind, &name.namespace, &name.name)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            namespace,
            name,
        } = self;
        write!(out, "{} '{namespace}/{name}'", kind.name())
    }
}
