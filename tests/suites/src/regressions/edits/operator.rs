//! Edits of the operator's program.

use super::{Edit, Regression, Suite};

const SUITE: Suite = Suite::lib("operator");

pub(super) const EDITS: &[Regression] = &[
    Regression {
        id: "R01",
        bug: "the log filter names crates, and none of ours",
        edits: &[Edit {
            file: "crates/operator/src/logging.rs",
            old: r#"    "info,hyper=warn,"#,
            new: r#"    "orchestrator=info,kube=info,hyper=warn,"#,
        }],
        suite: SUITE,
    },
    Regression {
        id: "R01",
        bug: "a log filter may turn a target off, its errors too",
        edits: &[Edit {
            file: "crates/operator/src/logging.rs",
            old: "matches!(value.parse(), Ok(LevelFilter::OFF))",
            new: "target.is_empty() && matches!(value.parse(), Ok(LevelFilter::OFF))",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R16",
        bug: "defaults replace a configuration that cannot be read",
        edits: &[Edit {
            file: "crates/operator/src/config.rs",
            old: "fs::read_to_string(path).map_err(unreadable)?",
            new: "fs::read_to_string(path).map_err(unreadable).unwrap_or_default()",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R16",
        bug: "liveness does not depend on the controllers",
        edits: &[Edit {
            file: "crates/operator/src/http.rs",
            old: "verdict(health.live(), plain)",
            new: "verdict(Ok(()), plain)",
        }],
        suite: SUITE,
    },
];
