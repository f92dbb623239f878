//! Edits of runs.

use super::{Edit, Needs, Regression, Suite};

const SUITE: Suite = Suite::lib("tasks");

pub(super) const EDITS: &[Regression] = &[
    Regression {
        id: "R03",
        bug: "Jobs are selected by label instead of the owner's UID",
        edits: &[Edit {
            file: "crates/tasks/src/run/world.rs",
            old: ".filter(move |job| !uid.is_empty() && job.owner_uid.as_deref() == Some(uid))",
            new: ".filter(move |_| !uid.is_empty())",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R04",
        bug: "Jobs are created with a sanitized name and looked for by the raw one",
        edits: &[Edit {
            file: "crates/tasks/src/run/world.rs",
            old: ".filter(move |job| !uid.is_empty() && job.owner_uid.as_deref() == Some(uid))",
            new: r"
            .filter({
                let raw = match self.run_spec.work {
                    super::run_spec::Workload::Task(run) => run.spec.service_name.as_str(),
                    super::run_spec::Workload::Docs(_) => self.run_spec.name(),
                };
                move |job| job.owner_uid.as_deref() == Some(uid) && job.name.starts_with(raw)
            })",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R07",
        bug: "the controller raises the context version of the run that it watches",
        edits: &[Edit {
            file: "crates/tasks/src/run/decide.rs",
            old: "    confirm::first(run, with_conditions(proof::first(run, decision)))\n",
            new: r#"    let mut decision = with_conditions(decision);
    decision.effects.push(api::decide::Effect::Patch {
        target: run.target(run.run_spec.resource(), run.run_spec.name(), run.uid),
        subresource: None,
        patch: serde_json::json!({ "spec": { "contextVersion": run.version() + 1 } }),
    });
    decision
"#,
        }],
        suite: SUITE,
    },
    Regression {
        id: "R08",
        bug: "the Job's name is computed a second time, without the limit of its length",
        edits: &[Edit {
            file: "crates/tasks/src/build/job.rs",
            old: "        ResourceType::JOB,\n        &run_spec,\n        name,",
            new: r#"        ResourceType::JOB,
        &run_spec,
        &match run_spec.work {
            crate::run::run_spec::Workload::Task(run) => format!("{}-{}-v{}", run.spec.service_name, run.spec.task_id, run.spec.context_version),
            crate::run::run_spec::Workload::Docs(_) => name.to_owned(),
        },"#,
        }],
        suite: SUITE,
    },
    Regression {
        id: "R09",
        bug: "a run that ended starts again when its Job is gone",
        edits: &[Edit {
            file: "crates/tasks/src/run/outcome.rs",
            old: "    if !run.has_ended() || version::is_superseded(run) {",
            new: "    if !run.has_ended() || version::is_superseded(run) || run.jobs().next().is_none() {",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R11",
        bug: "the cleanup deletes Jobs whoever owns them",
        edits: &[Edit {
            file: "crates/tasks/src/run/cleanup.rs",
            old: "        .jobs()\n",
            new: "        .world\n        .jobs\n        .iter()\n",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R13",
        bug: "the delay of the cleanup counts from the reconcile, not from a stored time",
        edits: &[Edit {
            file: "crates/tasks/src/run/cleanup.rs",
            old: "time::after(end, wait)",
            new: "time::after(run.now, wait)",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R19",
        bug: "the counters of a Job decide instead of its conditions",
        edits: &[Edit {
            file: "crates/tasks/src/view.rs",
            old: "    let conditions = job.status.as_ref()?.conditions.as_ref()?;\n    let found =",
            new: r"    let status = job.status.as_ref()?;
    if status.succeeded.unwrap_or(0) > 0 {
        return Some(JobEnd::Complete { at: None });
    }
    let conditions = status.conditions.as_ref()?;
    let found =",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R22",
        bug: "a missing Secret is not recognized",
        edits: &[Edit {
            file: "crates/tasks/src/run/cause.rs",
            old: r#""CreateContainerConfigError" if is_missing(message) => Some"#,
            new: r#""CreateContainerConfigError" if is_missing(message) => None,
        "CreateContainerConfigError" if message.is_empty() => Some"#,
        }],
        suite: SUITE,
    },
    Regression {
        id: "R23",
        bug: "a run in deletion goes on as if it were not deleted",
        edits: &[Edit {
            file: "crates/tasks/src/run/decide.rs",
            old: "    if let Some(since) = &input.object.metadata.deletion_timestamp {",
            new: "    if let Some(since) = &input.object.metadata.deletion_timestamp\n        && run.has_ended()\n    {",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R10",
        bug: "Jobs are not watched",
        edits: &[Edit {
            file: "crates/tasks/src/controller.rs",
            old: "        enqueue_by_label(&self.jobs, runs, handle);\n",
            new: "",
        }],
        suite: Suite::test("operator", "suite", Needs::Cluster),
    },
];
