//! `tree`

use actions::Object;
use api::apps::{
    MANAGED_APP, ManagedAppStatus, ROLLBACK_REQUEST, RollbackRequestStatus, UPGRADE_REQUEST,
    UpgradeRequestStatus, Workload,
};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use crate::{
    Exit,
    arguments::TreeArgs,
    failure::Failure,
    related::{
        self, Children,
        tenant::{self, Family},
    },
    session::Session,
    state,
    text::{Paint, Tone, clean},
    view::{self, Standing},
};

/// The label of a Tenant's Pods with the name of their Deployment or StatefulSet.
const COMPONENT: &str = "orchestrator.io/component";

pub(crate) async fn run(verb: TreeArgs, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let server = session.server().await?;
    let run = server.get(&verb.target).await?;
    let paint = session.paint;
    if tenant::is_tenant(&run) {
        let place = tenant::place(&server, &run);
        let family = tenant::family(&place, &run).await;
        let head = labelled("Tenant", &run.metadata, Some(&state::standing(&run)), paint);
        let place = clean(&place.namespace);
        session.line(&format!("{head} in namespace '{place}'"))?;
        session.print(&of_tenant(&family, paint))?;
        session.line(&legend(paint))?;
        for why in &family.unread {
            session.remark(&format!("not shown: {}", clean(why)))?;
        }
        return Ok(Exit::Ok);
    }
    if *run.name.kind == MANAGED_APP {
        let head = labelled(
            "ManagedApp",
            &run.metadata,
            Some(&state::standing(&run)),
            paint,
        );
        session.line(&head)?;
        session.print(&of_app(&run, paint))?;
        return Ok(Exit::Ok);
    }
    if [UPGRADE_REQUEST, ROLLBACK_REQUEST].contains(run.name.kind) {
        let kind = run.name.kind.name();
        let head = labelled(kind, &run.metadata, Some(&state::standing(&run)), paint);
        session.line(&head)?;
        session.print(&of_request(&run, paint))?;
        return Ok(Exit::Ok);
    }
    let children = related::children(&server, &run).await?;
    let (kind, standing) = (run.name.kind.name(), state::standing(&run));
    let head = labelled(kind, &run.metadata, Some(&standing), paint);
    session.line(&head)?;
    session.print(&render(&run, &children, paint))?;
    session.line(&legend(paint))?;
    Ok(Exit::Ok)
}

fn legend(paint: Paint) -> String {
    paint.apply(Tone::Dim, view::LEGEND)
}

/// Renders the children as branches, without the run itself.
pub(crate) fn render(run: &Object, children: &Children, paint: Paint) -> String {
    if children.is_empty() {
        let why = if run.outcome().is_some() {
            "no children: they are removed some time after the end"
        } else {
            "no children yet"
        };
        return format!("└─ {}\n", paint.apply(Tone::Dim, why));
    }
    // A Pod may exist for a moment longer than its Job.
    let mut orphans: Vec<&Pod> = children.pods.iter().collect();
    let maps = children.config_maps.iter();
    let mut branches: Vec<Branch> = maps
        .map(|map| (labelled("ConfigMap", map, None, paint), Vec::new()))
        .collect();
    for job in &children.jobs {
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let is_owned = |pod: &&Pod| view::is_owned(&pod.metadata, uid);
        let (owned, others): (Vec<&Pod>, Vec<&Pod>) = orphans.into_iter().partition(is_owned);
        orphans = others;
        let label = labelled("Job", &job.metadata, Some(&view::job(job)), paint);
        let leaves = owned.into_iter().map(|pod| pod_label(pod, paint));
        branches.push((label, leaves.collect()));
    }
    let orphans = orphans.into_iter().map(|pod| pod_label(pod, paint));
    branches.extend(orphans.map(|label| (label, Vec::new())));
    draw(&branches)
}

/// Renders the children of a Tenant as branches. The Pods are below their workload.
fn of_tenant(family: &Family, paint: Paint) -> String {
    if family.children.is_empty() && family.pods.is_empty() {
        let why = match family.unread.is_empty() {
            true => "no children",
            false => "no children that you may list",
        };
        return format!("└─ {}\n", paint.apply(Tone::Dim, why));
    }
    let mut orphans: Vec<&Pod> = family.pods.iter().collect();
    let mut branches: Vec<Branch> = Vec::new();
    for child in &family.children {
        let name = child.meta.name.as_deref().unwrap_or_default();
        let is_below = |pod: &&Pod| {
            let labels = pod.metadata.labels.as_ref();
            let component = labels.and_then(|labels| labels.get(COMPONENT));
            child.standing.is_some() && component.is_some_and(|component| component == name)
        };
        let (below, others): (Vec<&Pod>, Vec<&Pod>) = orphans.into_iter().partition(is_below);
        orphans = others;
        let label = labelled(child.kind, &child.meta, child.standing.as_ref(), paint);
        let leaves = below.into_iter().map(|pod| pod_label(pod, paint));
        branches.push((label, leaves.collect()));
    }
    let orphans = orphans.into_iter().map(|pod| pod_label(pod, paint));
    branches.extend(orphans.map(|label| (label, Vec::new())));
    draw(&branches)
}

/// Renders the objects of an application as branches, from the status of the ManagedApp. They are in other namespaces, and
/// the status is at most 30 seconds old.
fn of_app(app: &Object, paint: Paint) -> String {
    let status: ManagedAppStatus = app.part("status").unwrap_or_default();
    let named = |kind: &str, namespace: &str, name: &str| {
        let (kind, namespace, name) = (clean(kind), clean(namespace), clean(name));
        format!("{kind} {namespace}/{name}")
    };
    let own = app.metadata.namespace.as_deref().unwrap_or_default();
    let namespace = match app.text("spec.kustomizationRef.namespace") {
        "" => own,
        namespace => namespace,
    };
    let name = app.text("spec.kustomizationRef.name");
    let mut branches: Vec<Branch> = Vec::new();
    let helm = status.helm_release.iter();
    let helm = helm.map(|found| named("HelmRelease", &found.namespace, &found.name));
    branches.push((named("Kustomization", namespace, name), helm.collect()));
    for workload in &status.workloads {
        let Workload {
            kind,
            namespace,
            name,
            ..
        } = workload;
        let mut label = named(kind, namespace, name);
        if workload.desired.is_some() {
            let standing = view::workload(workload.ready, workload.desired);
            label.push_str(&format!(
                "  {}",
                paint.apply(standing.tone, &standing.text())
            ));
        }
        if !workload.in_inventory {
            label.push_str("  (not in the inventory, mounts a volume)");
        }
        branches.push((label, Vec::new()));
    }
    for volume in &status.volumes {
        let label = named("PersistentVolumeClaim", &volume.namespace, &volume.name);
        let size = volume.size.iter().map(|size| format!(", {}", clean(size)));
        let size: String = size.collect();
        branches.push((
            format!("{label}  {}{size}", clean(&volume.phase)),
            Vec::new(),
        ));
    }
    let listed = status.workloads.len() + status.volumes.len();
    let all = status.workload_count.saturating_add(status.volume_count);
    let all = usize::try_from(all).unwrap_or(usize::MAX);
    if all > listed {
        let more = format!("{} more workloads and volumes", all - listed);
        branches.push((paint.apply(Tone::Dim, &more), Vec::new()));
    }
    draw(&branches)
}

/// Renders the plan of a request as branches: the objects of Flux, the workloads, and the volumes with their snapshots or
/// restored volumes.
fn of_request(request: &Object, paint: Paint) -> String {
    let upgrade: UpgradeRequestStatus = request.part("status").unwrap_or_default();
    let rollback: RollbackRequestStatus = request.part("status").unwrap_or_default();
    let is_rollback = *request.name.kind == ROLLBACK_REQUEST;
    let (plan, commit) = if is_rollback {
        (
            rollback.plan.as_ref().map(|plan| &plan.change),
            rollback.commit,
        )
    } else {
        (upgrade.plan.as_ref(), upgrade.commit)
    };
    let Some(plan) = plan else {
        return format!("└─ {}\n", paint.apply(Tone::Dim, "no plan yet"));
    };
    let named = |kind: &str, namespace: &str, name: &str| {
        let (kind, namespace, name) = (clean(kind), clean(namespace), clean(name));
        format!("{kind} {namespace}/{name}")
    };
    let mut branches: Vec<Branch> = Vec::new();
    let pushed = commit.map_or_else(
        || "no commit yet".to_owned(),
        |commit| format!("commit {}", clean(&commit.id)),
    );
    let branch = clean(&plan.commit.branch);
    branches.push((
        clean(&plan.summary()),
        vec![format!("{pushed}, branch '{branch}'")],
    ));
    for one in &plan.flux_objects {
        let kind = one.kind.resource().kind;
        branches.push((named(kind, &one.namespace, &one.name), Vec::new()));
    }
    for one in &plan.workloads {
        let kind = one.kind.resource().kind;
        let label = named(kind, &one.namespace, &one.name);
        let scale = one.replicas.map_or_else(
            || "suspended during the request".to_owned(),
            |replicas| format!("stopped during the request, {replicas} replicas before"),
        );
        branches.push((format!("{label}  {scale}"), Vec::new()));
    }
    let volumes = plan.volumes.iter();
    branches.extend(volumes.map(|volume| {
        let is_it = |namespace: &str, pvc: &str| namespace == volume.namespace && pvc == volume.pvc;
        let snapshots = upgrade.snapshots.iter();
        let snapshots = snapshots.filter(|one| is_it(&one.namespace, &one.pvc));
        let snapshots = snapshots.map(|one| {
            let state = match one.ready_at {
                Some(_) => "ready",
                None => "not ready",
            };
            format!("VolumeSnapshot {}  {state}", clean(&one.name))
        });
        let restored = rollback.restored.iter();
        let restored = restored.filter(|one| is_it(&one.namespace, &one.pvc));
        let restored = restored.map(|one| format!("PersistentVolume {}  restored", clean(&one.pv)));
        let label = named("PersistentVolumeClaim", &volume.namespace, &volume.pvc);
        (label, snapshots.chain(restored).collect())
    }));
    draw(&branches)
}

/// A child and its own children.
type Branch = (String, Vec<String>);

fn draw(branches: &[Branch]) -> String {
    let fork = |is_last: bool| if is_last { "└─" } else { "├─" };
    let mut out = String::new();
    for (index, (label, leaves)) in branches.iter().enumerate() {
        let is_last = index + 1 == branches.len();
        let side = if is_last { "   " } else { "│  " };
        out.push_str(&format!("{} {label}\n", fork(is_last)));
        for (index, leaf) in leaves.iter().enumerate() {
            let fork = fork(index + 1 == leaves.len());
            out.push_str(&format!("{side}{fork} {leaf}\n"));
        }
    }
    out
}

fn pod_label(pod: &Pod, paint: Paint) -> String {
    let label = labelled("Pod", &pod.metadata, Some(&view::pod(pod)), paint);
    match pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
        Some(node) => format!("{label} on node '{}'", clean(node)),
        None => label,
    }
}

fn labelled(kind: &str, meta: &ObjectMeta, standing: Option<&Standing>, paint: Paint) -> String {
    let name = clean(meta.name.as_deref().unwrap_or_default());
    match standing {
        Some(standing) => format!(
            "{kind} {name}  {}",
            paint.apply(standing.tone, &standing.text())
        ),
        None => format!("{kind} {name}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;
    use crate::state::tests::{a_managed_app, a_run};

    fn meta(name: &str, uid: &str, owner: &str) -> Value {
        json!({ "name": name, "uid": uid, "ownerReferences":
            [{ "apiVersion": "v1", "kind": "X", "name": "x", "uid": owner }] })
    }

    #[test]
    fn the_objects_of_an_app_are_those_of_its_status() {
        let app = a_managed_app(&json!({
            "helmRelease": { "namespace": "shop", "name": "shop" },
            "workloadCount": 3, "volumeCount": 2,
            "workloads": [
                { "kind": "Deployment", "namespace": "shop", "name": "web", "inInventory": true,
                    "desired": 2, "ready": 1 },
                { "kind": "Pod", "namespace": "shop", "name": "shell", "inInventory": false },
            ],
            "volumes": [{ "namespace": "shop", "name": "data", "phase": "Bound", "size": "1Gi" }],
        }));
        assert_eq!(
            of_app(&app, Paint { is_on: false }),
            "├─ Kustomization flux-system/shop\n\
             │  └─ HelmRelease shop/shop\n\
             ├─ Deployment shop/web  ! 1 of 2 ready\n\
             ├─ Pod shop/shell  (not in the inventory, mounts a volume)\n\
             ├─ PersistentVolumeClaim shop/data  Bound, 1Gi\n\
             └─ 2 more workloads and volumes\n"
        );
        let unseen = of_app(&a_managed_app(&json!({})), Paint { is_on: false });
        assert_eq!(unseen, "└─ Kustomization flux-system/shop\n");
    }

    #[test]
    fn pods_of_a_tenant_hang_below_their_workloads() {
        let paint = Paint { is_on: false };
        let child = |kind, name: &str, standing| tenant::Child {
            kind,
            meta: from_value(json!({ "name": name })).unwrap(),
            standing,
        };
        let pod = |name: &str, component: &str| -> Pod {
            from_value(json!({ "metadata": { "name": name, "labels": { COMPONENT: component } },
                "spec": { "containers": [], "nodeName": "node-0" }, "status": { "phase": "Running" } }))
            .unwrap()
        };
        let mut family = Family {
            children: vec![
                child(
                    "Deployment",
                    "server",
                    Some(view::workload(Some(1), Some(1))),
                ),
                // A Service has the name of its workload.
                child("Service", "server", None),
            ],
            pods: vec![pod("server-x", "server"), pod("probe-y", "probe")],
            unread: Vec::new(),
        };
        assert_eq!(
            of_tenant(&family, paint),
            "├─ Deployment server  ✓ 1 of 1 ready\n\
             │  └─ Pod server-x  ● Running on node 'node-0'\n\
             ├─ Service server\n\
             └─ Pod probe-y  ● Running on node 'node-0'\n"
        );
        family = Family::default();
        assert_eq!(of_tenant(&family, paint), "└─ no children\n");
        family.unread.push("not allowed".to_owned());
        assert_eq!(
            of_tenant(&family, paint),
            "└─ no children that you may list\n"
        );
    }

    /// Without color, the symbols and the text say the same.
    #[test]
    fn each_mark_is_in_the_legend_and_color_changes_no_mark() {
        let (plain, colored) = (Paint { is_on: false }, Paint { is_on: true });
        let pod = |phase: &str| -> Pod {
            from_value(json!({ "metadata": { "name": "x" }, "status": { "phase": phase } }))
                .unwrap()
        };
        let job = |condition: &str| {
            let conditions = json!([{ "type": condition, "status": "True" }]);
            from_value(json!({ "status": { "conditions": conditions } })).unwrap()
        };
        let phases = ["Succeeded", "Failed", "Running", "Pending", "Unknown"];
        let jobs = ["Complete", "Failed", "Suspended", "Other"];
        let all = phases.map(|phase| view::pod(&pod(phase))).into_iter();
        let all = all.chain(jobs.map(|condition| view::job(&job(condition))));
        let all = all.chain(
            [(0, 1), (1, 2), (2, 2), (0, 0)]
                .map(|(ready, wanted)| view::workload(Some(ready), Some(wanted))),
        );
        for standing in all {
            let mark = format!("{} ", standing.symbol);
            assert!(view::LEGEND.contains(&mark), "{standing:?}");
            for paint in [plain, colored] {
                let label = labelled("Pod", &ObjectMeta::default(), Some(&standing), paint);
                assert!(label.contains(&standing.text()), "{label}");
            }
        }
        assert_eq!(legend(plain), view::LEGEND);
    }

    #[test]
    fn pods_hang_below_their_jobs() {
        let run = a_run(&json!({}), &json!({}));
        let paint = Paint { is_on: false };
        let failed = json!({ "conditions": [{ "type": "Failed", "status": "True" }] });
        let pod = |name, uid, owner, phase: &str, node: &str| {
            from_value(
                json!({ "metadata": meta(name, uid, owner), "spec": { "containers": [],
                "nodeName": node }, "status": { "phase": phase } }),
            )
            .unwrap()
        };
        let children = Children {
            config_maps: vec![from_value(meta("shop-7-v1-files", "m", "u-1")).unwrap()],
            jobs: vec![
                from_value(json!({ "metadata": meta("shop-7-v1", "j1", "u-1"), "status": failed }))
                    .unwrap(),
                from_value(json!({ "metadata": meta("shop-7-v1-a2", "j2", "u-1") })).unwrap(),
            ],
            pods: vec![
                pod("shop-7-v1-x", "p1", "j1", "Failed", "node-0"),
                pod("shop-7-v1-a2-y", "p2", "j2", "Running", "node-1"),
                pod("shop-7-v0-z", "p3", "gone", "Succeeded", "node-1"),
            ],
        };
        assert_eq!(
            render(&run, &children, paint),
            "├─ ConfigMap shop-7-v1-files\n\
             ├─ Job shop-7-v1  ✗ Failed\n\
             │  └─ Pod shop-7-v1-x  ✗ Failed on node 'node-0'\n\
             ├─ Job shop-7-v1-a2  ● Active\n\
             │  └─ Pod shop-7-v1-a2-y  ● Running on node 'node-1'\n\
             └─ Pod shop-7-v0-z  ✓ Succeeded on node 'node-1'\n"
        );
        assert_eq!(
            render(&run, &Children::default(), paint),
            "└─ no children yet\n"
        );
    }
}
