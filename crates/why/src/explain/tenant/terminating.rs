//! The objects that remain in a namespace that is being deleted, and the finalizers that keep them.

use super::*;

/// Time in seconds after which a deletion is considered blocked.
const PATIENCE: i64 = 60;

/// Explains a namespace that is being deleted, down to the object that blocks the deletion. `whose`
/// is the end of the sentence about the namespace.
pub(super) fn find(
    tenant: Tenant<'_>,
    namespace: &NamespaceView,
    reason: Reason,
    whose: &str,
) -> Finding {
    let since = namespace.deleting.as_ref();
    let mut above = link! {
        Waiting tenant.place(), reason, "is being deleted{}, {whose}", tenant.since(since); since since;
    };
    above.evidence = namespace.deletion(4);
    let finding = undiscovered(tenant, namespace)
        .or_else(|| held(tenant))
        .or_else(|| of_pod(tenant))
        .or_else(|| left(tenant));
    match finding {
        Some(finding) => finding.below([above]),
        None => alone(tenant, namespace, above),
    }
}

/// Explains the deletion by the namespace's own conditions, because nothing deeper is known.
fn alone(tenant: Tenant<'_>, namespace: &NamespaceView, mut link: Link) -> Finding {
    let is_late = tenant.age(namespace.deleting.as_ref()) > PATIENCE;
    link.health = Health::error_if(is_late);
    let mut holds = namespace.holds();
    let finalizer = holds.find_map(|known| {
        let names = namespace_conditions::finalizers(&known.message);
        names.into_iter().next()
    });
    let advice = match finalizer {
        Some(name) => format!("The finalizer '{name}' holds something in it that you may not see: ask whoever runs what sets it."),
        None if is_late => "Its conditions say what it waits for; if they say nothing, check the kube-controller-manager.".to_owned(),
        None => "Wait: what is in it is being removed.".to_owned(),
    };
    finding! { Waiting (advice);
        link link;
        then tenant.place().yaml("what its deletion waits for");
        shell "kubectl api-resources --verbs=list --namespaced -o name | xargs -n1 kubectl get --show-kind --ignore-not-found -n {}", tenant.namespace => "everything that is left in it";
    }
}

/// Explains an API group that does not respond. It blocks the deletion of every namespace.
fn undiscovered(tenant: Tenant<'_>, namespace: &NamespaceView) -> Option<Finding> {
    let mut holds = namespace.holds();
    let known = holds.find(|known| known.kind == "NamespaceDeletionDiscoveryFailure")?;
    let name = namespace_conditions::stale_group(&known.message);
    let (object, look) = match &name {
        Some(name) => {
            let object = ObjectRef::cluster("APIService", name);
            let look = object.describe("what serves it, and why it does not");
            (object, look)
        }
        None => (
            ObjectRef::cluster("APIServer", "kubernetes"),
            tenant.place().yaml("all of its conditions"),
        ),
    };
    Some(finding! {
        Blocked "Bring what serves that part of the API back, or delete its APIService if it no longer exists.";
        Error object, "DiscoveryFailed", "does not answer, so nobody knows what else is in the namespace: no namespace of the cluster can go";
        since known.since.as_ref();
        seen "condition NamespaceDeletionDiscoveryFailure=True" => (&known.message), known.since.as_ref();
        shell "kubectl get apiservices | grep -v True" => "which parts of the API do not answer";
        then look;
    })
}

/// Explains an object that is kept by a finalizer.
fn held(tenant: Tenant<'_>) -> Option<Finding> {
    let all = tenant
        .world
        .left
        .iter()
        .filter(|one| !one.meta.finalizers.is_empty());
    let mut all: Vec<&OtherView> = all.collect();
    // The finalizer of a claim is removed with its Pod, so the cause is behind the Pod.
    let is_plain = |one: &OtherView| {
        let own = |name: &String| name == "kubernetes.io/pvc-protection";
        one.meta.finalizers.iter().all(own)
    };
    all.sort_by_key(|one| {
        (
            is_plain(one),
            one.meta.deleting.clone(),
            one.meta.name.clone(),
        )
    });
    let (first, rest) = all.split_first()?;
    if is_plain(first) && pods(tenant).next().is_some() {
        return None;
    }
    let holders = |one: &OtherView| one.meta.finalizers.join("', '");
    let more = rest
        .iter()
        .take(3)
        .map(|one| format!("{} '{}' by '{}'", one.kind, one.meta.name, holders(one)));
    let more: Vec<String> = more.collect();
    let more = match (more.is_empty(), rest.len().saturating_sub(more.len())) {
        (true, _) => String::new(),
        (false, 0) => format!("; also {}", more.join(", ")),
        (false, count) => format!("; also {} and {count} more", more.join(", ")),
    };
    let since = first.meta.deleting.as_ref();
    let is_late = tenant.age(since) > PATIENCE || tenant.reason() == Some(Reason::DeletionBlocked);
    let state = if is_late {
        State::Blocked
    } else {
        State::Waiting
    };
    let (kind, name, within) = (&first.kind, &first.meta.name, tenant.namespace);
    let resource = match first.resource.as_str() {
        "" => commands::resource(kind),
        resource => resource.to_owned(),
    };
    let holders = holders(first);
    Some(finding! {
        (state) "Find out what set '{holders}' on {kind} '{name}' and let it finish. Take it off by hand only if that no longer exists.";
        (Health::error_if(is_late)) tenant.here(kind, name), "Finalizer", "is held by the finalizer '{holders}'{more}";
        since since; seen "metadata.finalizers" => (first.meta.finalizers.join(", ")), since;
        shell "kubectl get {resource} {name} -n {within} -o yaml --show-managed-fields" => "'metadata.managedFields' names the manager that set it";
        shell "kubectl edit {resource} {name} -n {within}" => "only if that no longer exists: delete its line under 'metadata.finalizers'";
    })
}

/// Returns the Pods in the Tenant's namespace.
fn pods(tenant: Tenant<'_>) -> impl Iterator<Item = &PodView> {
    let pods = tenant.world.pods.iter();
    pods.filter(move |pod| pod.meta.namespace == tenant.namespace)
}

/// Explains a Pod that has not stopped, and a node that prevents it.
fn of_pod(tenant: Tenant<'_>) -> Option<Finding> {
    let pod = pods(tenant).max_by_key(|pod| (pod.may_run(), pod.meta.created.clone()))?;
    Some(stop::stopping(*tenant, pod, Stop::Ours(Reason::Deleting)))
}

/// Explains objects without a finalizer, which the namespace controller is still deleting.
fn left(tenant: Tenant<'_>) -> Option<Finding> {
    let all = &tenant.world.left;
    let first = all.iter().min_by_key(|one| one.meta.deleting.clone())?;
    let since = first.meta.deleting.as_ref();
    let others = match all.len() {
        1 => String::new(),
        count => format!(" ({count} things are left in all)"),
    };
    Some(finding! {
        Waiting "Wait: the namespace controller removes it. If it stays for minutes, check the kube-controller-manager.";
        (Health::error_if(tenant.age(since) > PATIENCE)) tenant.here(&first.kind, &first.meta.name), Reason::Deleting, "is still there, and no finalizer holds it{others}";
        since since; seen first.meta.deletion(tenant.world);
        then tenant.place().yaml("what its deletion waits for");
    })
}
