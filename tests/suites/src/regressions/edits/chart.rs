//! Edits of the chart. They need no compilation.

use super::{Edit, Needs, Regression, Suite};

/// Tests that render the chart with the testbed's helm.
const HELM: Suite = Suite {
    needs: Needs::Testbed,
    ..Suite::bin("suites")
};

const DEPLOYMENT: &str = "charts/orchestrator/templates/deployment.yaml";

pub(super) const EDITS: &[Regression] = &[
    Regression {
        id: "R05",
        bug: "the CRD lacks a field that the type has",
        edits: &[Edit {
            file: "charts/orchestrator/generated/crds/tasks/taskruns.yaml",
            old: "              jobName:\n",
            new: "              job:\n",
        }],
        suite: Suite::bin("xtask"),
    },
    Regression {
        id: "R17",
        bug: "the name of the mounted ConfigMap is empty",
        edits: &[Edit {
            file: DEPLOYMENT,
            old: r#"            name: {{ include "orchestrator.configName" $ }}"#,
            new: r#"            name: """#,
        }],
        suite: HELM,
    },
    Regression {
        id: "R17",
        bug: "a changed configuration does not replace the Pods",
        edits: &[Edit {
            file: DEPLOYMENT,
            old: r#"{{ include "orchestrator.config" $ | sha256sum }}"#,
            new: r#"{{ "" | sha256sum }}"#,
        }],
        suite: HELM,
    },
];
