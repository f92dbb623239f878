//! Watches of the children of runs, and of the warnings about them.

use std::sync::Arc;

use api::{decide::ResourceType, names, warning::Warning};
use engine::{
    Cache, Handle, Watch, WatchManager,
    children::{Child, owned_by, with_uid},
    proven::Proven,
};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, Pod},
};
use kube::{Resource, ResourceExt, core::PartialObjectMeta};

use crate::{
    World,
    view::{ConfigMapView, JobView, PodView, is_foreign},
};

/// Caches of the objects that runs create, and of the warnings about them.
#[derive(Debug, Clone)]
pub struct Children {
    jobs: Cache<Child<JobView>>,
    pods: Cache<Child<PodView>>,
    config_maps: Cache<Child<ConfigMapView>>,
    /// Warning Events. Quota, admission and volume problems that keep a Pod from starting appear only there.
    job_warnings: Cache<Warning>,
    pod_warnings: Cache<Warning>,
    proven: Proven,
}

impl Children {
    /// Watches the children of runs of these kinds.
    pub fn watch(
        watches: &mut WatchManager,
        kinds: &'static [ResourceType],
        job: fn(&Job) -> JobView,
        pod: fn(&Pod) -> PodView,
    ) -> Self {
        let kind_names: Vec<&str> = kinds.iter().map(|kind| kind.kind).collect();
        let selector = format!("{} in ({})", names::KIND, kind_names.join(","));
        let map =
            move |map: &PartialObjectMeta<ConfigMap>| ConfigMapView::new(&map.metadata, kinds);
        Self {
            jobs: watches.namespaced(("batch", "jobs"), ours(&selector, job)),
            pods: watches.namespaced(("", "pods"), ours(&selector, pod)),
            // Any user with permission to create ConfigMaps can put our labels on large ones, so we watch metadata
            // only.
            config_maps: watches.namespaced(("", "configmaps"), ours(&selector, map)),
            job_warnings: watches.warnings("Job"),
            pod_warnings: watches.warnings("Pod"),
            proven: watches.proven(),
        }
    }

    /// Reconciles a run when a child of it changes, or when there is a warning about one.
    pub fn connect<R: Send + Sync + 'static>(&self, runs: &Cache<R>, handle: &Handle) {
        enqueue_by_label(&self.jobs, runs, handle);
        enqueue_by_label(&self.pods, runs, handle);
        enqueue_by_label(&self.config_maps, runs, handle);
        enqueue_by_warning(&self.job_warnings, &self.jobs, runs, handle);
        enqueue_by_warning(&self.pod_warnings, &self.pods, runs, handle);
    }

    /// Calls `listener` with the index key of the owner when a Job or a ConfigMap was deleted.
    pub fn on_deleted(&self, listener: impl Fn(&str) + Clone + Send + Sync + 'static) {
        call_when_deleted(&self.jobs, listener.clone());
        call_when_deleted(&self.config_maps, listener);
    }

    /// Returns whether a run has a Job or a ConfigMap. Labels can be copied, so the owner's UID counts.
    #[must_use]
    pub fn exist(&self, kind: &str, namespace: &str, uid: &str) -> bool {
        let owner = owned_by(kind, namespace, uid);
        let is_owner = |found: &Option<String>| found.as_deref() == Some(uid);
        let jobs = self.jobs.by_index(&owner);
        let maps = self.config_maps.by_index(&owner);
        jobs.iter().any(|job| is_owner(&job.view.owner_uid))
            || maps.iter().any(|map| is_owner(&map.view.owner_uid))
    }

    /// Returns the children of a run. `accept_changed`: a Pod may run other content than its Job specifies.
    pub fn of(&self, kind: &str, run: &impl Resource, accept_changed: bool) -> World {
        let namespace = run.namespace().unwrap_or_default();
        let uid = run.uid().unwrap_or_default();
        let mut jobs = views(&self.jobs.children(kind, &namespace, &uid));
        for job in &mut jobs {
            job.proven = self.proven.has(&job.uid);
        }
        let mut config_maps = views(&self.config_maps.children(kind, &namespace, &uid));
        for map in &mut config_maps {
            map.proven = self.proven.has(&map.uid);
        }
        let mut pods = views(&self.pods.children(kind, &namespace, &uid));
        for pod in &mut pods {
            pod.foreign = !accept_changed && is_foreign(pod, &jobs);
        }
        World {
            warnings: self.warnings(&namespace, &jobs, &pods),
            jobs,
            pods,
            config_maps,
        }
    }

    fn warnings(&self, namespace: &str, jobs: &[JobView], pods: &[PodView]) -> Vec<Warning> {
        let about =
            |warnings: &Cache<Warning>, uid: &str| warnings.by_index(&with_uid(namespace, uid));
        let of_jobs = jobs
            .iter()
            .flat_map(|job| about(&self.job_warnings, &job.uid));
        let of_pods = pods
            .iter()
            .flat_map(|pod| about(&self.pod_warnings, &pod.uid));
        of_jobs
            .chain(of_pods)
            .map(|warning| (*warning).clone())
            .collect()
    }
}

/// Returns the watch of a type of children with these labels.
fn ours<K: Resource + 'static, V: 'static>(
    selector: &str,
    view: impl Fn(&K) -> V + Send + Sync + 'static,
) -> Watch<K, Child<V>> {
    Watch {
        labels: Some(selector.to_owned()),
        fields: None,
        transform: Arc::new(move |object: K, _| Child::new(&object, view(&object))),
        index: Child::words,
    }
}

fn views<V: Clone>(children: &[Arc<Child<V>>]) -> Vec<V> {
    children.iter().map(|child| child.view.clone()).collect()
}

fn call_when_deleted<V: Send + Sync + 'static>(
    children: &Cache<Child<V>>,
    listener: impl Fn(&str) + Send + Sync + 'static,
) {
    children.on_change(move |change| {
        if let (None, Some(child)) = (change.new, change.old) {
            listener(&child.owner());
        }
    });
}

fn enqueue_by_label<V: Send + Sync + 'static, R: Send + Sync + 'static>(
    children: &Cache<Child<V>>,
    runs: &Cache<R>,
    handle: &Handle,
) {
    let (runs, handle) = (runs.clone(), handle.clone());
    children.on_change(move |change| {
        if let Some(child) = change.new.or(change.old) {
            enqueue_run(&runs, &handle, &child.owner());
        }
    });
}

fn enqueue_by_warning<V: Send + Sync + 'static, R: Send + Sync + 'static>(
    warnings: &Cache<Warning>,
    children: &Cache<Child<V>>,
    runs: &Cache<R>,
    handle: &Handle,
) {
    let (children, runs, handle) = (children.clone(), runs.clone(), handle.clone());
    warnings.on_change(move |change| {
        // An expired Event carries no new information.
        let Some(warning) = change.new else { return };
        for child in children.by_index(&with_uid(&warning.namespace, &warning.object_uid)) {
            enqueue_run(&runs, &handle, &child.owner());
        }
    });
}

fn enqueue_run<R: Send + Sync + 'static>(runs: &Cache<R>, handle: &Handle, owner: &str) {
    for key in runs.keys_of(owner) {
        handle.enqueue(&key);
    }
}
