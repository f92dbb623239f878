//! Judges by the Deployment of an operator whether the holder of its Lease can lead.
//!
//! A Lease alone proves little. A process that was killed leaves a fresh Lease until it expires,
//! and so does a Deployment that someone scaled to 0 or deleted.

use api::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::world::{ContainerState, LeaseView, OperatorView, PodView};

/// Shortest time in seconds within which a Lease counts as fresh. Clocks of machines differ.
const PATIENCE: i64 = 30;

/// The name of the operator's container in the chart.
const CONTAINER: &str = "orchestrator";

/// Maximum length of the two generated parts of a Pod's name, of its ReplicaSet and its own.
const GENERATED: usize = 10;

/// Whether an operator leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leader {
    /// The holder renews the Lease, and nothing shows that it cannot lead.
    Leads,
    /// Nobody holds the Lease.
    Released,
    /// The holder did not renew the Lease in time.
    Expired,
    /// The Lease is fresh, but its holder cannot lead.
    Absent(Absence),
}

/// The reason why the holder of a fresh Lease cannot lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// The Deployment has 0 replicas.
    NoReplicas,
    /// No Pod of the Deployment is ready, and its Pods could not be read.
    NoneReady,
    /// The holder has the name of a Pod of a Deployment, and there is no Deployment.
    NoDeployment,
    /// The Deployment has no Pod with the holder's name any more.
    PodDeleted,
    /// The program of the holder's Pod does not run.
    PodStopped,
    /// The holder's container started again after the Lease was last renewed.
    PodRestarted,
    /// The holder is not a Pod of the Deployment.
    OtherProcess,
}

impl Absence {
    /// Describes the reason, as the end of a sentence about the holder.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::NoReplicas => "its Deployment has 0 replicas",
            Self::NoneReady => "no Pod of its Deployment is ready",
            Self::NoDeployment => "its Deployment does not exist",
            Self::PodDeleted => "its Pod does not exist any more",
            Self::PodStopped => "its Pod does not run",
            Self::PodRestarted => "its Pod was restarted since",
            Self::OtherProcess => "it is no Pod of the operator's Deployment",
        }
    }
}

/// The Deployment and the Pods that can lead.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Installation {
    /// The name of the operator, which ends the name of its Deployment.
    pub operator: String,
    /// The Deployment, or `None` if it does not exist.
    pub deployment: Option<Deployment>,
    /// The Pods, or `None` if they could not be read.
    pub pods: Option<Vec<Candidate>>,
}

/// A Deployment with its number of replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployment {
    /// Its name, with which the names of its Pods start.
    pub name: String,
    /// Number of desired replicas.
    pub wanted: i32,
    /// Number of ready replicas.
    pub ready: i32,
}

/// A Pod that may lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Whether its program runs.
    pub program: Program,
}

/// Whether the program of a Pod runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// It runs since this time, if the time is known.
    Runs(Option<Timestamp>),
    /// It ended, and has not started again.
    Ended,
}

impl From<&PodView> for Candidate {
    fn from(pod: &PodView) -> Self {
        // Other parties may inject containers before the operator's.
        let mut containers = pod.containers.iter();
        let operator = containers.find(|one| one.name == CONTAINER);
        let program = match operator.or(pod.containers.first()) {
            Some(container) => match &container.state {
                ContainerState::Running { since } => Program::Runs(*since),
                ContainerState::Ended(_) => Program::Ended,
                ContainerState::Waiting(_) if container.before.exit().is_some() => Program::Ended,
                // The kubelet reports a start late, and the program leads within a second.
                ContainerState::Waiting(_) | ContainerState::Unknown => Program::Runs(None),
            },
            None => Program::Runs(None),
        };
        let is_over = matches!(pod.phase.as_str(), "Succeeded" | "Failed");
        Self {
            name: pod.meta.name.clone(),
            program: if is_over { Program::Ended } else { program },
        }
    }
}

impl Installation {
    /// Returns the installation in the namespace of a Lease.
    #[must_use]
    pub fn of(operator: &str, namespace: &str, found: &OperatorView) -> Self {
        let mut deployments = found.deployments.iter();
        let deployment = deployments.find(|one| one.meta.namespace == namespace);
        let pods = found.pods.as_ref().map(|pods| {
            let here = pods.iter().filter(|pod| pod.meta.namespace == namespace);
            here.map(Candidate::from).collect()
        });
        Self {
            operator: operator.to_owned(),
            deployment: deployment.map(|one| Deployment {
                name: one.meta.name.clone(),
                wanted: one.rollout.wanted,
                ready: one.rollout.ready,
            }),
            pods,
        }
    }
}

/// Judges whether the holder of a Lease leads. Without the Deployment, `None`, only the Lease counts.
#[must_use]
pub fn judge(lease: &LeaseView, now: Timestamp, installed: Option<&Installation>) -> Leader {
    let Some(holder) = &lease.holder else {
        return Leader::Released;
    };
    let age = |at: &Time| now.as_second().saturating_sub(at.0.as_second());
    // An age above twice the duration is too long for a difference of clocks.
    let limit = lease.duration_seconds.saturating_mul(2).max(PATIENCE);
    let Some(renewed) = lease.renewed.as_ref().filter(|at| age(at) <= limit) else {
        return Leader::Expired;
    };
    // A process appends a random number to the name of its Pod. No name of a Pod has a '_'.
    let host = holder
        .split_once('_')
        .map_or(holder.as_str(), |(host, _)| host);
    match installed.and_then(|found| found.absence(host, renewed.0)) {
        Some(absence) => Leader::Absent(absence),
        None => Leader::Leads,
    }
}

impl Installation {
    /// Returns why the process on this host cannot lead, or `None` if it can.
    fn absence(&self, host: &str, renewed: Timestamp) -> Option<Absence> {
        let deployment = self.deployment.as_ref();
        if deployment.is_some_and(|one| one.wanted == 0) {
            return Some(Absence::NoReplicas);
        }
        let mut pods = self.pods.iter().flat_map(|pods| pods.iter());
        if let Some(pod) = pods.find(|pod| pod.name == host) {
            // The Pod counts even if its Deployment was deleted without it.
            return match pod.program {
                Program::Ended => Some(Absence::PodStopped),
                // Both times are of the clock of the same node.
                Program::Runs(Some(since)) if since > renewed => Some(Absence::PodRestarted),
                Program::Runs(_) => None,
            };
        }
        match (deployment, &self.pods) {
            // Someone may run an operator outside of the cluster, without a Deployment.
            (None, _) => self
                .has_name_of_a_pod(host)
                .then_some(Absence::NoDeployment),
            (Some(one), _) if !is_pod_of(host, &one.name) => Some(Absence::OtherProcess),
            (Some(_), Some(_)) => Some(Absence::PodDeleted),
            (Some(one), None) => (one.ready == 0).then_some(Absence::NoneReady),
        }
    }

    /// Returns whether a Deployment of the operator, of any release, could have a Pod of this name.
    fn has_name_of_a_pod(&self, host: &str) -> bool {
        let part = format!("-{}-", self.operator);
        let at = host.rfind(&part);
        let name = at.and_then(|at| host.get(..at.saturating_add(part.len() - 1)));
        name.is_some_and(|name| is_pod_of(host, name))
    }
}

/// Returns whether a Pod of this Deployment could have this name: the name of the Deployment and one
/// or two generated parts. The API server shortens a long name of a ReplicaSet, so that only one part
/// remains.
fn is_pod_of(host: &str, deployment: &str) -> bool {
    let rest = host.strip_prefix(deployment);
    let Some(rest) = rest.and_then(|rest| rest.strip_prefix('-')) else {
        return false;
    };
    let is_generated = |part: &str| {
        let is_word = |one: char| one.is_ascii_lowercase() || one.is_ascii_digit();
        !part.is_empty() && part.chars().all(is_word)
    };
    match rest.split_once('-') {
        Some((set, pod)) => {
            set.len() <= GENERATED
                && pod.len() <= GENERATED
                && is_generated(set)
                && is_generated(pod)
        }
        None => rest.len() <= GENERATED.saturating_mul(2) && is_generated(rest),
    }
}

#[cfg(test)]
mod tests;
