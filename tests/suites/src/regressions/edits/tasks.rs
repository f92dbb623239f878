//! Edits of runs.

use super::{Edit, Needs, Regression, Suite};

const SUITE: Suite = Suite::lib("tasks");

pub(super) const EDITS: &[Regression] = &[
    Regression {
        id: "R03",
        bug: "Jobs are selected by label instead of the owner's UID",
        edits: &[Edit {
            file: "crates/attempts/src/run.rs",
            old: ".filter(move |job| !uid.is_empty() && job.owner_uid.as_deref() == Some(uid))",
            new: ".filter(move |_| !uid.is_empty())",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R04",
        bug: "Jobs are created with a sanitized name and looked for by the raw one",
        edits: &[Edit {
            file: "crates/tasks/src/run/run_spec.rs",
            old: "        Run::new(self, self.spec, &self.world.children, status, now)\n",
            new: r"
        let raw = match self.work {
            Workload::Task(run) => run.spec.service_name.as_str(),
            Workload::Docs(_) => self.name(),
        };
        let mut children = self.world.children.clone();
        children.jobs.retain(|job| job.name.starts_with(raw));
        Run::new(self, self.spec, Box::leak(Box::new(children)), status, now)
",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R07",
        bug: "the controller raises the context version of the run that it watches",
        edits: &[Edit {
            file: "crates/attempts/src/decide.rs",
            old: "    confirm::first(run, with_conditions(run, proof::first(run, decision)))\n",
            new: r#"    let mut decision = with_conditions(run, decision);
    let name = run.spec.metadata.name.as_deref().unwrap_or_default();
    decision.effects.push(api::decide::Effect::Patch {
        target: run.target(run.spec.resource, name, run.uid),
        subresource: None,
        patch: serde_json::json!({ "spec": { "contextVersion": run.spec.version + 1 } }),
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
            file: "crates/attempts/src/outcome.rs",
            old: "    if !run.has_ended() || is_superseded {",
            new: "    if !run.has_ended() || is_superseded || run.jobs().next().is_none() {",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R11",
        bug: "the cleanup deletes Jobs whoever owns them",
        edits: &[Edit {
            file: "crates/attempts/src/cleanup.rs",
            old: "        .jobs()\n",
            new: "        .world\n        .jobs\n        .iter()\n",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R13",
        bug: "the delay of the cleanup counts from the reconcile, not from a stored time",
        edits: &[Edit {
            file: "crates/attempts/src/cleanup.rs",
            old: "time::after(end, wait)",
            new: "time::after(run.now, wait)",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R19",
        bug: "the counters of a Job decide instead of its conditions",
        edits: &[Edit {
            file: "crates/pods/src/job.rs",
            old: "        let conditions = job.status.as_ref()?.conditions.as_ref()?;\n        let found =",
            new: r"        let status = job.status.as_ref()?;
        if status.succeeded.unwrap_or(0) > 0 {
            return Some(Self::Complete { at: None });
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
            file: "crates/pods/src/cause.rs",
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
            file: "crates/attempts/src/decide.rs",
            old: "    if let Some(since) = &run.spec.metadata.deletion_timestamp {",
            new: "    if let Some(since) = &run.spec.metadata.deletion_timestamp\n        && run.has_ended()\n    {",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R10",
        bug: "Jobs are not watched",
        edits: &[Edit {
            file: "crates/attempts/src/children.rs",
            old: "        enqueue_by_label(&self.jobs, runs, handle);\n",
            new: "",
        }],
        suite: Suite::test("operator", "suite", Needs::Cluster),
    },
];
