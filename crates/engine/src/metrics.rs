//! Metrics for Prometheus. Their names are public: the documentation and alerts rely on them.
//!
//! Every label has few values. Kinds, phases, reasons and classes are names in the code. The
//! resources of requests are cut off after [`RESOURCES`] different ones.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder, text::encode},
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::Histogram,
    },
    registry::{Registry, Unit},
};

/// Content type of the text, for the header of a response.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Maximum number of resources with series of their own. The operator uses a fraction of that.
pub const RESOURCES: usize = 64;

/// Label of the resources beyond [`RESOURCES`].
const OTHER: &str = "other";

/// The metrics of this process. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Registry,
    resources: Mutex<BTreeSet<Arc<str>>>,
    runs: Family<RunEnd, Counter>,
    active: Family<InPhase, Gauge>,
    objects: Family<InPhase, Gauge>,
    conditions: Family<InCondition, Gauge>,
    phases: Family<InPhase, Histogram, Buckets>,
    reconciles: Family<Reconcile, Histogram, Buckets>,
    errors: Family<Failure, Counter>,
    depth: Family<OfKind, Gauge>,
    oldest: Family<OfKind, Gauge<f64, AtomicU64>>,
    requests: Family<Request, Counter>,
    leader: Gauge,
    watch_errors: Family<OfResource, Counter>,
    undecodable: Family<OfKind, Gauge>,
    gateway_requests: Family<Response, Counter>,
    gateway_durations: Family<OfRoute, Histogram, Buckets>,
    gateway_streams: Gauge,
    gateway_rejected: Family<Rejection, Counter>,
    notebook_cells: Family<OfOutcome, Counter>,
    notebook_mismatches: Family<OfClass, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfOutcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfClass {
    class: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Response {
    route: &'static str,
    code: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRoute {
    route: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Rejection {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RunEnd {
    kind: &'static str,
    outcome: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InPhase {
    kind: &'static str,
    phase: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InCondition {
    kind: &'static str,
    condition: &'static str,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reconcile {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Failure {
    kind: &'static str,
    class: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfResource {
    resource: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    verb: &'static str,
    resource: Arc<str>,
    code: Code,
}

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// The server responded with this status.
    Status(u16),
    /// No response arrived: no connection, a broken one, or silence for too long.
    Error,
    /// The caller did not wait for the response.
    Dropped,
}

impl EncodeLabelValue for Code {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        match self {
            Self::Status(status) => EncodeLabelValue::encode(&u64::from(*status), encoder),
            Self::Error => EncodeLabelValue::encode(&"error", encoder),
            Self::Dropped => EncodeLabelValue::encode(&"dropped", encoder),
        }
    }
}

#[derive(Debug, Clone)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// In seconds, from a phase that another controller ends at once to a run of a day.
const PHASE_BUCKETS: Buckets = Buckets(&[
    0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 10_800.0, 21_600.0,
    86_400.0,
]);

/// In seconds, from a read of the cache to the timeout of a reconciliation, 60 s.
const RECONCILE_BUCKETS: Buckets = Buckets(&[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
]);

impl Default for Metrics {
    fn default() -> Self {
        // The library appends `_total` to counters and the unit to the others.
        let mut registry = Registry::with_prefix("orchestrator");
        let (runs, active) = (Family::default(), Family::default());
        let (objects, conditions) = (Family::default(), Family::default());
        let phases = Family::new_with_constructor(PHASE_BUCKETS);
        let reconciles = Family::new_with_constructor(RECONCILE_BUCKETS);
        let (errors, depth, oldest) = (Family::default(), Family::default(), Family::default());
        let (requests, leader) = (Family::default(), Gauge::default());
        let (watch_errors, undecodable) = (Family::default(), Family::default());
        let (gateway_requests, gateway_rejected) = (Family::default(), Family::default());
        let (notebook_cells, notebook_mismatches) = (Family::default(), Family::default());
        let gateway_durations = Family::new_with_constructor(RECONCILE_BUCKETS);
        let gateway_streams = Gauge::default();
        registry.register(
            "runs",
            "Number of finished runs, by outcome and reason",
            Family::clone(&runs),
        );
        registry.register(
            "runs_active",
            "Number of unfinished runs, by phase",
            Family::clone(&active),
        );
        registry.register(
            "resource_status_phase",
            "Number of long-lived objects, by phase",
            Family::clone(&objects),
        );
        registry.register(
            "resource_status_condition",
            "Number of long-lived objects, by condition type and status",
            Family::clone(&conditions),
        );
        registry.register_with_unit(
            "phase_duration",
            "Time that objects spent in a phase, observed when they left it",
            Unit::Seconds,
            Family::clone(&phases),
        );
        registry.register_with_unit(
            "reconcile_duration",
            "Duration of a reconciliation",
            Unit::Seconds,
            Family::clone(&reconciles),
        );
        registry.register(
            "reconcile_errors",
            "Number of failed reconciliations, by class of the error",
            Family::clone(&errors),
        );
        registry.register(
            "queue_depth",
            "Number of keys that are due and wait for a worker",
            Family::clone(&depth),
        );
        registry.register_with_unit(
            "queue_oldest",
            "Time that the oldest due key has waited",
            Unit::Seconds,
            Family::clone(&oldest),
        );
        registry.register(
            "api_requests",
            "Number of requests to the API server; the code is the HTTP status, 'error' or 'dropped'",
            Family::clone(&requests),
        );
        registry.register(
            "leader",
            "1 if this process is the leader, else 0",
            Gauge::clone(&leader),
        );
        registry.register(
            "watch_errors",
            "Number of watches that broke and were started again",
            Family::clone(&watch_errors),
        );
        registry.register(
            "undecodable_objects",
            "Number of stored objects that cannot be decoded as their kind",
            Family::clone(&undecodable),
        );
        registry.register(
            "gateway_requests",
            "Number of requests to the REST API, by route and HTTP status",
            Family::clone(&gateway_requests),
        );
        registry.register_with_unit(
            "gateway_request_duration",
            "Time until the response of the REST API, or the start of a stream",
            Unit::Seconds,
            Family::clone(&gateway_durations),
        );
        registry.register(
            "gateway_streams",
            "Number of open streams and followed logs of the REST API",
            Gauge::clone(&gateway_streams),
        );
        registry.register(
            "gateway_rejected",
            "Number of requests that the REST API rejected itself, or for their token",
            Family::clone(&gateway_rejected),
        );
        registry.register(
            "notebook_cells",
            "Number of code cells of finished NotebookValidationJobs, by outcome",
            Family::clone(&notebook_cells),
        );
        registry.register(
            "notebook_mismatches",
            "Number of differences from golden notebooks, by class",
            Family::clone(&notebook_mismatches),
        );
        Self(Arc::new(Inner {
            registry,
            resources: Mutex::default(),
            runs,
            active,
            objects,
            conditions,
            phases,
            reconciles,
            errors,
            depth,
            oldest,
            requests,
            leader,
            watch_errors,
            undecodable,
            gateway_requests,
            gateway_durations,
            gateway_streams,
            gateway_rejected,
            notebook_cells,
            notebook_mismatches,
        }))
    }
}

impl Metrics {
    /// Counts a run that ended.
    pub fn run_ended(&self, kind: &'static str, outcome: &'static str, reason: &'static str) {
        let labels = RunEnd {
            kind,
            outcome,
            reason,
        };
        self.0.runs.get_or_create(&labels).inc();
    }

    /// Counts code cells of a notebook whose job ended.
    pub fn notebook_cells(&self, outcome: &'static str, count: u32) {
        let cells = &self.0.notebook_cells;
        let counter = cells.get_or_create(&OfOutcome { outcome });
        counter.inc_by(u64::from(count));
    }

    /// Counts differences of a notebook whose job ended.
    pub fn notebook_mismatches(&self, class: &'static str, count: u32) {
        let mismatches = &self.0.notebook_mismatches;
        let counter = mismatches.get_or_create(&OfClass { class });
        counter.inc_by(u64::from(count));
    }

    /// Sets the number of runs that are in a phase now.
    pub fn set_active(&self, kind: &'static str, phase: &'static str, count: usize) {
        let labels = InPhase { kind, phase };
        self.0.active.get_or_create(&labels).set(whole(count));
    }

    /// Sets the number of long-lived objects that are in a phase now.
    pub fn set_objects(&self, kind: &'static str, phase: &'static str, count: usize) {
        let labels = InPhase { kind, phase };
        self.0.objects.get_or_create(&labels).set(whole(count));
    }

    /// Sets the number of long-lived objects with this status of a condition now.
    pub fn set_condition(
        &self,
        kind: &'static str,
        condition: &'static str,
        status: &'static str,
        count: usize,
    ) {
        let labels = InCondition {
            kind,
            condition,
            status,
        };
        self.0.conditions.get_or_create(&labels).set(whole(count));
    }

    /// Records how long an object was in a phase that it left.
    pub fn phase_ended(&self, kind: &'static str, phase: &'static str, after: Duration) {
        let labels = InPhase { kind, phase };
        let phases = &self.0.phases;
        phases.get_or_create(&labels).observe(after.as_secs_f64());
    }

    /// Records the duration and the outcome of a reconciliation.
    pub fn reconciled(&self, kind: &'static str, outcome: &'static str, took: Duration) {
        let labels = Reconcile { kind, outcome };
        let reconciles = &self.0.reconciles;
        reconciles
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }

    /// Counts a reconciliation that failed.
    pub fn error(&self, kind: &'static str, class: &'static str) {
        self.0.errors.get_or_create(&Failure { kind, class }).inc();
    }

    /// Sets the number of due keys, and how long the oldest has waited.
    pub fn queue(&self, kind: &'static str, depth: usize, oldest: Duration) {
        let labels = OfKind { kind };
        self.0.depth.get_or_create(&labels).set(whole(depth));
        self.0
            .oldest
            .get_or_create(&labels)
            .set(oldest.as_secs_f64());
    }

    /// Counts a request to the API server that ended.
    pub fn request(&self, verb: &'static str, resource: &str, code: Code) {
        let resource = self.bounded(resource);
        let labels = Request {
            verb,
            resource,
            code,
        };
        self.0.requests.get_or_create(&labels).inc();
    }

    /// Sets whether this process leads.
    pub fn leading(&self, is_leading: bool) {
        self.0.leader.set(i64::from(is_leading));
    }

    /// Counts a watch that broke and is reopened.
    pub fn watch_error(&self, resource: &str) {
        let resource = self.bounded(resource);
        self.0
            .watch_errors
            .get_or_create(&OfResource { resource })
            .inc();
    }

    /// Sets the number of stored objects that cannot be decoded now.
    pub fn undecodable(&self, kind: &'static str, count: usize) {
        let labels = OfKind { kind };
        self.0.undecodable.get_or_create(&labels).set(whole(count));
    }

    /// Records a response of the REST API.
    pub fn gateway_responded(&self, route: &'static str, code: u16, took: Duration) {
        let code = u32::from(code);
        self.0
            .gateway_requests
            .get_or_create(&Response { route, code })
            .inc();
        self.0
            .gateway_durations
            .get_or_create(&OfRoute { route })
            .observe(took.as_secs_f64());
    }

    /// Sets the number of open streams of the REST API.
    pub fn gateway_streams(&self, count: u32) {
        self.0.gateway_streams.set(i64::from(count));
    }

    /// Counts a request that the REST API rejected itself, or for its token.
    pub fn gateway_rejected(&self, reason: &'static str) {
        let labels = Rejection { reason };
        self.0.gateway_rejected.get_or_create(&labels).inc();
    }

    /// Returns one sample of each metric, as text of [`CONTENT_TYPE`]. `cargo xtask generate` writes the
    /// list of metrics in the documentation from it.
    #[must_use]
    pub fn samples() -> String {
        let metrics = Self::default();
        // Without `..`: a metric that has no sample here would be missing in the documentation.
        let Inner {
            registry: _,
            resources: _,
            runs,
            active,
            objects,
            conditions,
            phases,
            reconciles,
            errors,
            depth,
            oldest,
            requests,
            leader,
            watch_errors,
            undecodable,
            gateway_requests,
            gateway_durations,
            gateway_streams,
            gateway_rejected,
            notebook_cells,
            notebook_mismatches,
        } = &*metrics.0;
        let (kind, phase, outcome) = ("TaskRun", "Succeeded", "Succeeded");
        let in_phase = InPhase { kind, phase };
        let run_end = RunEnd {
            kind,
            outcome,
            reason: "Succeeded",
        };
        runs.get_or_create(&run_end).inc();
        active.get_or_create(&in_phase).set(1);
        objects.get_or_create(&in_phase).set(1);
        let in_condition = InCondition {
            kind,
            condition: "Ready",
            status: "True",
        };
        conditions.get_or_create(&in_condition).set(1);
        phases.get_or_create(&in_phase).observe(1.0);
        let reconcile = Reconcile { kind, outcome };
        reconciles.get_or_create(&reconcile).observe(1.0);
        let class = "Transient";
        errors.get_or_create(&Failure { kind, class }).inc();
        depth.get_or_create(&OfKind { kind }).set(1);
        oldest.get_or_create(&OfKind { kind }).set(1.0);
        let resource: Arc<str> = Arc::from("pods");
        let request = Request {
            verb: "get",
            resource: Arc::clone(&resource),
            code: Code::Status(200),
        };
        requests.get_or_create(&request).inc();
        leader.set(1);
        watch_errors.get_or_create(&OfResource { resource }).inc();
        undecodable.get_or_create(&OfKind { kind }).set(1);
        let route = "/api/v1/runs";
        gateway_requests
            .get_or_create(&Response { route, code: 200 })
            .inc();
        gateway_durations
            .get_or_create(&OfRoute { route })
            .observe(1.0);
        gateway_streams.set(1);
        let reason = "CrossOrigin";
        gateway_rejected.get_or_create(&Rejection { reason }).inc();
        notebook_cells.get_or_create(&OfOutcome { outcome }).inc();
        let class = "Noise";
        notebook_mismatches.get_or_create(&OfClass { class }).inc();
        metrics.text()
    }

    /// Returns all metrics as text of [`CONTENT_TYPE`].
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        if let Err(error) = encode(&mut text, &self.0.registry) {
            // The text then lacks its `# EOF`, and a scraper rejects it.
            tracing::error!("metrics cannot be written as text: {error}");
        }
        text
    }

    fn bounded(&self, resource: &str) -> Arc<str> {
        let resources = &self.0.resources;
        let mut known = resources.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = known.get(resource) {
            return Arc::clone(name);
        }
        if known.len() >= RESOURCES {
            return Arc::from(OTHER);
        }
        let name: Arc<str> = Arc::from(resource);
        known.insert(Arc::clone(&name));
        name
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_exactly_the_documented_ones() {
        let metrics = Metrics::default();
        metrics.run_ended("TaskRun", "Failed", "OOMKilled");
        metrics.set_active("TaskRun", "Running", 3);
        metrics.set_objects("Tenant", "Degraded", 2);
        metrics.set_condition("Tenant", "NetworkIsolated", "False", 1);
        metrics.phase_ended("TaskRun", "Running", Duration::from_secs(7));
        metrics.reconciled("TaskRun", "ok", Duration::from_millis(3));
        metrics.error("TaskRun", "Transient");
        metrics.queue("TaskRun", 4, Duration::from_millis(1500));
        metrics.request("get", "pods", Code::Status(404));
        metrics.request("create", "pods/eviction", Code::Error);
        metrics.request("update", "leases", Code::Dropped);
        metrics.leading(true);
        metrics.watch_error("jobs");
        metrics.undecodable("TaskRun", 2);
        metrics.gateway_responded("/api/v1/runs", 200, Duration::from_millis(3));
        metrics.gateway_streams(7);
        metrics.gateway_rejected("CrossOrigin");
        metrics.notebook_cells("Succeeded", 12);
        metrics.notebook_mismatches("Noise", 2);
        let text = metrics.text();
        for line in [
            r#"orchestrator_runs_total{kind="TaskRun",outcome="Failed",reason="OOMKilled"} 1"#,
            r#"orchestrator_runs_active{kind="TaskRun",phase="Running"} 3"#,
            r#"orchestrator_resource_status_phase{kind="Tenant",phase="Degraded"} 2"#,
            r#"orchestrator_resource_status_condition{kind="Tenant",condition="NetworkIsolated",status="False"} 1"#,
            r#"orchestrator_phase_duration_seconds_sum{kind="TaskRun",phase="Running"} 7.0"#,
            r#"orchestrator_phase_duration_seconds_bucket{le="5.0",kind="TaskRun",phase="Running"} 0"#,
            r#"orchestrator_phase_duration_seconds_bucket{le="10.0",kind="TaskRun",phase="Running"} 1"#,
            r#"orchestrator_reconcile_duration_seconds_count{kind="TaskRun",outcome="ok"} 1"#,
            r#"orchestrator_reconcile_errors_total{kind="TaskRun",class="Transient"} 1"#,
            r#"orchestrator_queue_depth{kind="TaskRun"} 4"#,
            r#"orchestrator_queue_oldest_seconds{kind="TaskRun"} 1.5"#,
            r#"orchestrator_api_requests_total{verb="get",resource="pods",code="404"} 1"#,
            r#"orchestrator_api_requests_total{verb="create",resource="pods/eviction",code="error"} 1"#,
            r#"orchestrator_api_requests_total{verb="update",resource="leases",code="dropped"} 1"#,
            "orchestrator_leader 1",
            r#"orchestrator_watch_errors_total{resource="jobs"} 1"#,
            r#"orchestrator_undecodable_objects{kind="TaskRun"} 2"#,
            r#"orchestrator_gateway_requests_total{route="/api/v1/runs",code="200"} 1"#,
            r#"orchestrator_gateway_request_duration_seconds_count{route="/api/v1/runs"} 1"#,
            "orchestrator_gateway_streams 7",
            r#"orchestrator_gateway_rejected_total{reason="CrossOrigin"} 1"#,
            r#"orchestrator_notebook_cells_total{outcome="Succeeded"} 12"#,
            r#"orchestrator_notebook_mismatches_total{class="Noise"} 2"#,
            "# EOF",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "no {line} in\n{text}"
            );
        }
    }

    #[test]
    fn clones_share_and_gauges_go_down() {
        let metrics = Metrics::default();
        metrics.clone().leading(true);
        metrics.set_active("TaskRun", "Running", 3);
        metrics.leading(false);
        metrics.clone().set_active("TaskRun", "Running", 0);
        let text = metrics.text();
        assert!(text.contains("\norchestrator_leader 0\n"), "{text}");
        assert!(text.contains(r#"phase="Running"} 0"#), "{text}");
    }

    #[test]
    fn resources_cannot_grow_without_bound() {
        let metrics = Metrics::default();
        for number in 0..1000 {
            metrics.request("get", &format!("made-up-{number}"), Code::Status(404));
        }
        metrics.request("get", "made-up-3", Code::Status(404));
        let text = metrics.text();
        let series = text.matches("orchestrator_api_requests_total{").count();
        assert_eq!(series, RESOURCES + 1, "{text}");
        assert!(
            text.contains(r#"resource="other",code="404"} 936"#),
            "{text}"
        );
        assert!(
            text.contains(r#"resource="made-up-3",code="404"} 2"#),
            "{text}"
        );
    }
}
