//! The permissions of the tasks operator.

use super::{AGENT, DOCS_RUN, LEASE, TASK_RUN};
use crate::{
    GROUP,
    rbac::{Permission, permissions},
};

pub(super) const PERMISSIONS: &[Permission] = permissions! {
    lease LEASE;

    Watched GROUP, "taskruns": delete get list patch watch,
        "reads the runs; patches their finalizer, annotations and labels, never their spec; deletes finished ones where `deleteFinishedRunsAfter` is set";
    Watched GROUP, "taskruns/status": patch,
        "says how a run stands";
    Watched GROUP, "docsruns": delete get list patch watch,
        "as for TaskRuns";
    Watched GROUP, "docsruns/status": patch,
        "says how a run stands";
    Watched "", "secrets": get,
        "the Git credentials that a DocsRun names, to read the heads of its branches; never listed or watched";
    Watched GROUP, "agents": get list watch,
        "reads what runs are to run on";
    Watched GROUP, "agents/status": patch,
        "says whether an Agent can be used";
    Watched "batch", "jobs": create delete get list patch watch,
        "a run's attempts; the patch suspends and resumes one";
    Watched "", "configmaps": create delete get list watch,
        "a run's files; deleted some time after its end";
    Watched "", "pods": get list patch watch,
        "the evidence of how an attempt ended, or why it does not start; the patch sets a Pod's own limit, so that a stop keeps its log, and a policy admits nothing else; a Pod is read after a conflict";
    Watched "", "events": list watch,
        "quota, admission and volumes tell only there why a Pod does not start";
    Watched "events.k8s.io", "events": create,
        "tells users of each transition";
    Watched "", "serviceaccounts": list watch,
        "whether the one that an Agent names exists";
    Cluster "apiextensions.k8s.io", "customresourcedefinitions" [AGENT.crd_name, DOCS_RUN.crd_name, TASK_RUN.crd_name]: get,
        "whether the definitions exist and have all fields of this operator, for `/readyz`";
    Cluster "node.k8s.io", "runtimeclasses": list watch,
        "whether the one that an Agent names exists";
    Cluster "scheduling.k8s.io", "priorityclasses": list watch,
        "whether the one that an Agent names exists";
    Cluster "storage.k8s.io", "storageclasses": list watch,
        "whether the one that an Agent's workspace names exists";
};
