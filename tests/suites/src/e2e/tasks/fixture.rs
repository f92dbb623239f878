//! TaskRuns, as their cases play them.

use std::{sync::Arc, time::Duration};

use ::why::gather::TargetKind;
use anyhow::{Result, bail, ensure};
use api::tasks::{Agent, TaskRun, TaskRunStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{ListParams, LogParams},
};
use serde_json::{Value, json};
use testkit::{git::Network, suite::Env};

pub(super) use super::super::{
    fixture::{BUSYBOX, Expect},
    reading::{brief, phase_of, reason_of, says_all},
};
use super::super::{
    fixture::{Fixture, RunKind},
    merge,
};

pub(super) type Bench = Fixture<Tasks>;

pub(super) const LIMIT: Duration = Tasks::LIMIT;
pub(super) const COLLECTED: Duration = Tasks::COLLECTED;

/// The Lease of an operator that was killed expires soon.
pub(super) const SHORT_LEASE: &str =
    "leaderElection: { leaseDurationSeconds: 4, renewSeconds: 1 }\n";

/// A program that runs for this long, and ends at once when it is told to.
pub(super) fn busy(seconds: u32) -> String {
    format!("trap 'exit 143' TERM; sleep {seconds} & wait")
}

/// A program that runs until the time that [`lasts`] gives its run; started later, it is done at once.
pub(super) const UNTIL: &str = r#"trap 'exit 143' TERM
end=$(cat "$ORCHESTRATOR_CONTEXT_DIR/end")
while [ $(date +%s) -lt $end ]; do sleep 0.2; done
sleep 3"#;

/// The files of a run of [`UNTIL`]: so long from its Agent's creation.
pub(super) fn lasts(agent: &Agent, seconds: i64) -> Value {
    let created = agent.metadata.creation_timestamp.as_ref();
    let end = created.map_or(0, |time| time.0.as_second()) + seconds;
    json!({ "markdownFiles": [{ "filename": "end", "content": end.to_string() }] })
}

/// TaskRuns.
pub(in super::super) struct Tasks;

impl RunKind for Tasks {
    type Run = TaskRun;
    type Status = TaskRunStatus;
    type Git = ();

    const TARGET: TargetKind = TargetKind::TaskRun;
    const LIMIT: Duration = Duration::from_secs(45);
    const WITHIN: Duration = Duration::from_secs(60);
    // Also when the garbage collector has just heard of our kinds.
    const COLLECTED: Duration = Duration::from_secs(120);
    const MEMORY: &'static str = "64Mi";
    const LINES: &'static str = "";
    const IS_EXACT: bool = true;

    fn git(_env: &Env) -> Result<((), Option<Arc<Network>>)> {
        Ok(((), None))
    }

    fn config(lines: &str) -> String {
        lines.to_owned()
    }

    fn spec(_git: &(), name: &str) -> Value {
        json!({
            "taskId": 7, "serviceName": name, "agentName": name,
            "markdownFiles": [{ "filename": "task.md", "content": "the task\n" }],
        })
    }

    fn secrets(_git: &()) -> Vec<String> {
        Vec::new()
    }
}

impl Bench {
    /// A run of another name than its agent's.
    pub(super) async fn submit_as(&self, name: &str, agent: &str, more: Value) -> Result<TaskRun> {
        let mut spec = json!({ "agentName": agent });
        merge(&mut spec, more);
        self.submit(name, spec).await
    }

    /// The only Pod of a Job is over, and its log has these words.
    pub(super) async fn log_of(&self, job: &str, words: &str) -> Result<()> {
        let pods: Api<Pod> = self.env.api();
        let of_job = format!("batch.kubernetes.io/job-name={job}");
        let found = pods.list(&ListParams::default().labels(&of_job)).await?;
        let [pod] = found.items.as_slice() else {
            bail!("{} Pods of Job '{job}', wanted 1", found.items.len());
        };
        let log = pods.logs(&pod.name_any(), &LogParams::default()).await?;
        ensure!(log.contains(words), "the log of Job '{job}' is '{log}'");
        Ok(())
    }

    /// An agent that runs a script, and a run of it that ends so; `more` is merged into the agent's spec.
    pub(super) async fn plays(
        &self,
        name: &str,
        script: &str,
        more: Value,
        expect: Expect<'_>,
    ) -> Result<String> {
        self.agent(name, script, more).await?;
        self.submit(name, json!({})).await?;
        self.ends(name, expect).await
    }
}
