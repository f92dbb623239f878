//! Scenarios that are what users do, and no more.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use futures::{FutureExt, future::BoxFuture};
use serde_json::Value;
use testkit::faults::{
    object_history::Seen,
    oracles::{Evidence, Violation},
    scenario_run::{Proof, SCENARIO_TIMEOUT, Scenario, Stage},
};

/// What users do in one scenario.
pub(super) type ScenarioFn = for<'a> fn(&'a Stage) -> BoxFuture<'a, Result<()>>;

/// A scenario of an operator. Its claims are judged by everything that was seen.
pub(super) struct Actions {
    pub(super) name: &'static str,
    pub(super) replicas: usize,
    pub(super) begins_as: Option<&'static str>,
    pub(super) limit: Duration,
    pub(super) stirs: &'static [&'static str],
    pub(super) judge: fn(&Evidence<'_>) -> Vec<Violation>,
    pub(super) run: ScenarioFn,
}

impl Actions {
    pub(super) fn new(name: &'static str, run: ScenarioFn) -> Self {
        Self {
            name,
            replicas: 1,
            begins_as: None,
            limit: SCENARIO_TIMEOUT,
            stirs: &[],
            judge: |_| Vec::new(),
            run,
        }
    }
}

impl Scenario for Actions {
    fn name(&self) -> &'static str {
        self.name
    }

    fn replicas(&self) -> usize {
        self.replicas
    }

    fn begins_as(&self) -> Option<&'static str> {
        self.begins_as
    }

    fn limit(&self) -> Duration {
        self.limit
    }

    fn stirs(&self) -> &'static [&'static str] {
        self.stirs
    }

    fn judge(&self, evidence: &Evidence<'_>) -> Vec<Violation> {
        (self.judge)(evidence)
    }

    fn run<'a>(&'a self, stage: &'a Stage) -> BoxFuture<'a, Result<Proof>> {
        async move {
            (self.run)(stage).await?;
            Ok(proof())
        }
        .boxed()
    }
}

/// Nothing that only the scenario can know.
pub(super) fn proof() -> Proof {
    Box::new(|_| Ok(()))
}

/// The scenarios that are these actions.
pub(super) fn all<const N: usize>(actions: [Actions; N]) -> Vec<Arc<dyn Scenario>> {
    let all = actions.into_iter();
    all.map(|one| Arc::new(one) as Arc<dyn Scenario>).collect()
}

/// The last version of the object of this resource and name.
pub(super) fn find<'a>(seen: &'a [Seen], resource: &str, name: &str) -> Option<&'a Seen> {
    seen.iter()
        .find(|one| one.resource == resource && one.name == name)
}

/// Merges fields into a spec.
pub(super) fn merged(mut spec: Value, more: Value) -> Value {
    if let (Value::Object(spec), Value::Object(more)) = (&mut spec, more) {
        spec.extend(more);
    }
    spec
}
