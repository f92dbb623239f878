//! Edits of the types, their schemas, and submitting.

use super::{Edit, Needs, Regression, Suite};

/// Tests of the types without a server.
const PLAIN: Suite = Suite::test("api", "server", Needs::Nothing);
/// Tests of the types on a real API server.
const SERVER: Suite = Suite::test("api", "server", Needs::Cluster);

pub(super) const EDITS: &[Regression] = &[
    Regression {
        id: "R51",
        bug: "parsing a quantity panics on user input",
        edits: &[Edit {
            file: "crates/api/src/quantity.rs",
            old: "        return None;",
            new: r#"        panic!("no quantity: '{text}'");"#,
        }],
        suite: Suite::lib("api"),
    },
    Regression {
        id: "R06",
        bug: "the status of a TaskRun is not renamed to camelCase",
        edits: &[Edit {
            file: "crates/api/src/tasks/run.rs",
            old: "#[serde(rename_all = \"camelCase\")]\npub struct TaskRunStatus {",
            new: "pub struct TaskRunStatus {",
        }],
        suite: PLAIN,
    },
    Regression {
        id: "R15",
        bug: "an apply of one file replaces all earlier files",
        edits: &[Edit {
            file: "crates/api/src/tasks/run.rs",
            old: r#"merge_strategy = ListMerge::Map(vec!["filename".into()]),"#,
            new: "merge_strategy = ListMerge::Atomic,",
        }],
        suite: SERVER,
    },
    Regression {
        id: "R51",
        bug: "the API server accepts any text as a quantity",
        edits: &[Edit {
            file: "crates/api/src/rules.rs",
            old: "string(self).matches('^[0-9]{1,18}([.][0-9]{1,9})?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$')",
            new: "string(self).size() > 0",
        }],
        suite: SERVER,
    },
    Regression {
        id: "R21",
        bug: "submitting checks first and then writes whether or not the run exists by now",
        edits: &[Edit {
            file: "crates/actions/src/submit.rs",
            old: "    let failed = match runs.create(&how, &run).await {\n",
            new: r#"    if matches!(runs.get_opt(name).await, Ok(None)) {
        let how = kube::api::PatchParams::apply(MANAGER).force();
        return runs
            .patch(name, &how, &kube::api::Patch::Apply(&run))
            .await
            .map_err(|error| request("create").failed(error));
    }
    let failed = match runs.create(&how, &run).await {
"#,
        }],
        suite: Suite::test("actions", "server", Needs::Cluster),
    },
];
