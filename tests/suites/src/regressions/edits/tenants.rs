//! Edits of Tenants.

use super::{Edit, Regression, Suite};

const SUITE: Suite = Suite::lib("tenants");

pub(super) const EDITS: &[Regression] = &[
    Regression {
        id: "R50",
        bug: "a component is Running without a check of its readiness",
        edits: &[Edit {
            file: "crates/tenants/src/decide/component.rs",
            old: "    if is_seen && is_there && leads && cause::mismatch(state, name).is_none() {",
            new: "    if is_applied {",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R52",
        bug: "the configuration is rendered in the order of a hash map",
        edits: &[Edit {
            file: "crates/tenants/src/build/redis.rs",
            old: "    for (name, value) in &redis.config {",
            new: "    let unordered: std::collections::HashMap<_, _> = redis.config.iter().collect();\n    for (name, value) in unordered {",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R53",
        bug: "policies of removed rules stay",
        edits: &[Edit {
            file: "crates/tenants/src/decide/children.rs",
            old: "is_ours(*resource, child) && !is_wanted(wanted, *resource, child)",
            new: "is_ours(*resource, child) && !is_wanted(wanted, *resource, child) && *resource != types::NETWORK_POLICY",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R54",
        bug: "an empty list of namespaces opens the server to all",
        edits: &[Edit {
            file: "crates/tenants/src/build/network.rs",
            old: "        .filter(|_| !allowed_namespaces.is_empty())\n",
            new: "",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R55",
        bug: "an existing namespace without an owner is adopted",
        edits: &[Edit {
            file: "crates/tenants/src/decide/namespace.rs",
            old: "    if is_offered {",
            new: "    if is_offered || namespace.owner_uid.is_none() {",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R56",
        bug: "the Tenant is released before its namespace is deleted",
        edits: &[Edit {
            file: "crates/tenants/src/decide/delete.rs",
            old: "    let what = namespace::remaining(namespace);\n",
            new: r#"    if namespace.deleting.is_some() {
        let verdict = Verdict::working(Reason::Deleting, "the deletion of the namespace was requested");
        return Decision::status_only(status, TenantPhase::Terminating, verdict).remove_finalizer();
    }
    let what = namespace::remaining(namespace);
"#,
        }],
        suite: SUITE,
    },
    Regression {
        id: "R56",
        bug: "the deadline of a deletion is always the default",
        edits: &[Edit {
            file: "crates/api/src/tenants/status.rs",
            old: "|spec: &TenantSpec| spec.deletion.deadline.into()",
            new: "|_: &TenantSpec| Duration::from_mins(15)",
        }],
        suite: SUITE,
    },
    Regression {
        id: "R57",
        bug: "`spec.resources` is not used",
        edits: &[Edit {
            file: "crates/tenants/src/build/quota.rs",
            old: "                hard.insert([word, \".\", name].concat(), json!(amount));\n",
            new: "                drop(amount);\n",
        }],
        suite: SUITE,
    },
];
