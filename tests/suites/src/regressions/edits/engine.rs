//! Edits of the engine.

use super::{Edit, Regression, Suite};

const SUITE: Suite = Suite::lib("engine");

pub(super) const EDITS: &[Regression] = &[
    Regression {
        id: "R02",
        bug: "the result of a failed reconcile is dropped",
        edits: &[Edit {
            file: "crates/engine/src/controller/worker.rs",
            old: r#"        ("Failed", self.failed(key, &object, &fault, observed).await)"#,
            new: r#"        drop((fault, observed));
        ("Failed", Requeue::AwaitChange)"#,
        }],
        suite: SUITE,
    },
    Regression {
        id: "R12",
        bug: "after an error the object waits for a change of it",
        edits: &[Edit {
            file: "crates/engine/src/controller/worker.rs",
            old: "        backoff_until::<K>(fault.class, until)\n",
            new: "        let _ = until;\n        Requeue::AwaitChange\n",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R14",
        bug: "an error of a status update is swallowed",
        edits: &[Edit {
            file: "crates/engine/src/reconcile.rs",
            old: "        let written = self.while_leading(patch).await?;\n",
            new: r"        let written = match self.while_leading(patch).await {
            Err(Abort::Error(_)) => return Ok(None),
            answer => answer?,
        };
",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R16",
        bug: "health is not told of the queue",
        edits: &[Edit {
            file: "crates/engine/src/controller/worker.rs",
            old: "        context.health.queue_depth(kind, depth.open);\n",
            new: "",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R16",
        bug: "health is not told of finished reconciles",
        edits: &[Edit {
            file: "crates/engine/src/controller.rs",
            old: "                health.finished_key(K::RESOURCE.kind);\n",
            new: "                drop(health);\n",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R18",
        bug: "the backoff is `2 ^ attempt`, which is XOR",
        edits: &[Edit {
            file: "crates/engine/src/backoff.rs",
            old: "first.saturating_mul(1 << doublings).min(cap)",
            new: "first.saturating_mul(2 ^ doublings).min(cap)",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R20",
        bug: "a 409 on create means that our object exists",
        edits: &[Edit {
            file: "crates/engine/src/apply.rs",
            old: "let verdict = ours(manifest, &found);",
            new: "let verdict: Result<(), ReconcileError> = Ok(());",
        }],
        suite: SUITE,
    },
];
