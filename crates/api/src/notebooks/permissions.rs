//! The permissions of the notebooks operator.

use super::NOTEBOOK_VALIDATION_JOB;
use crate::{
    GROUP,
    rbac::{Permission, permissions},
};

pub(super) const LEASE: &str = "orchestrator-notebooks";

/// The permissions of the notebooks operator.
pub const PERMISSIONS: &[Permission] = permissions! {
    lease LEASE;

    Watched GROUP, "notebookvalidationjobs": get list patch watch,
        "reads the jobs; patches their finalizer, annotations and labels, never their spec";
    Watched GROUP, "notebookvalidationjobs/status": patch,
        "reports the progress and the result of a job";
    Watched "", "secrets": get,
        "the Git credentials that a job names, to read the commits of its branches and tags; never listed or watched";
    Watched "batch", "jobs": create delete get list patch watch,
        "the attempts of a job; the patch suspends and resumes one";
    Watched "", "pods": get list patch watch,
        "the evidence of how an attempt ended, or why it does not start; the patch sets a Pod's own limit, so that a stop keeps its log";
    Watched "", "pods/log": get,
        "the full result of a run; read once, with a limit";
    Watched "", "configmaps": create delete get list watch,
        "the stored result of a job; deleted after `results.ttl`";
    Watched "", "events": list watch,
        "quota, admission and volumes have the reason why a Pod does not start only there";
    Watched "events.k8s.io", "events": create,
        "reports each transition to users";
    Cluster "apiextensions.k8s.io", "customresourcedefinitions" [NOTEBOOK_VALIDATION_JOB.crd_name]: get,
        "whether the CRD exists and has all fields of this operator, for `/readyz`";
};
