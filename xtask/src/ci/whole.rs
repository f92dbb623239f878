//! Stages of `.ci/run --whole`: everything of which CI plays a share.

use anyhow::Result;

use super::{
    lanes::{Priority, Runner, Stage},
    stage,
};

/// After the stages of CI, on the same commit.
pub(super) const STAGES: &[Stage] = &[
    stage("whole unit tests", Priority::Normal, |run| {
        run.xtask(&["unit", "--whole"])
    }),
    stage("whole testbed", Priority::Normal, |run| {
        run.xtask(&["testbed", "verify"])?;
        run.xtask(&["testbed", "isolation"])
    }),
    stage("whole image", Priority::Normal, |run| run.xtask(&["image"])),
    stage("whole fleet", Priority::Normal, |run| {
        run.xtask(&["e2e", "fleet"])
    }),
    stage("whole first-user", Priority::Normal, |run| {
        run.xtask(&["e2e", "first-user"])
    }),
    stage("whole gateway", Priority::Normal, |run| {
        run.xtask(&["e2e", "gateway"])
    }),
    stage("whole install", Priority::Normal, |run| {
        run.xtask(&["e2e", "install", "--whole"])
    }),
    stage("whole campaigns", Priority::Normal, campaigns),
    stage("whole mutants", Priority::Normal, |run| {
        run.xtask(&["mutants", "--report"])
    }),
    stage("whole regressions", Priority::Normal, |run| {
        run.xtask(&["regressions"])
    }),
];

fn campaigns(run: &Runner) -> Result<()> {
    run.xtask(&["faults", "tasks", "--report"])?;
    run.xtask(&["faults", "tenants", "--compound", "100", "--report"])?;
    run.xtask(&["faults", "tasks", "--silent"])?;
    run.xtask(&["faults", "tenants", "--silent"])?;
    run.xtask(&["faults", "replicas"])?;
    run.xtask(&["faults", "transitions"])
}
