//! Documentation for a repository: repeats a `DocsRun` as a new one.

use api::{
    Phase, names,
    tasks::{DOCS_RUN, DocsRun, RunPhase},
};
use kube::{Api, Client};

use crate::{DryRun, Error, ObjectName, Outcome, Request, submit};

/// Maximum length of an object name, in characters.
const NAME_LIMIT: usize = 253;

/// Repeats a finished `DocsRun`: creates a new one with the same spec. Its name is the old name
/// with the suffix `-r2`. If the old name already has such a suffix, the number grows by one.
///
/// # Guarantees
/// - The new run pushes to the branch of the old run, even if that branch was derived from the old
///   run's name. The branch gets one more commit, and its readers find the result in the same
///   branch.
/// - The new run is neither suspended nor cancelled, even if the old run was.
/// - If several callers retry at once, exactly one succeeds. The new name follows from the old
///   name, and the server decides.
///
/// # Errors
/// [`Error::NotFinished`], because two runs would push to one branch. [`Error::Deleting`],
/// [`Error::Exists`] if the run was already repeated, or an error of the server.
pub async fn run_docs_again(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<DocsRun, Error> {
    let runs: Api<DocsRun> = Api::namespaced(client.clone(), namespace);
    let object = ObjectName::new(&DOCS_RUN, name);
    let old = runs
        .get(name)
        .await
        .map_err(|error| Request::about("get", &object, namespace).failed(error))?;
    let new = again(&old, object)?;
    submit(client, namespace, &new, DryRun::Off).await
}

fn again(old: &DocsRun, run: ObjectName) -> Result<DocsRun, Error> {
    if old.metadata.deletion_timestamp.is_some() {
        return Err(Error::Deleting(run));
    }
    let status = old.status.as_ref();
    if status
        .and_then(|status| Outcome::of(&status.progress))
        .is_none()
    {
        let phase = status.and_then(|status| status.phase);
        return Err(Error::NotFinished {
            run,
            version: None,
            phase: phase.unwrap_or(RunPhase::Pending).name().to_owned(),
        });
    }
    let mut spec = old.spec.clone();
    spec.output.branch = Some(old.output_branch());
    spec.suspend = false;
    spec.cancel = false;
    let mut new = DocsRun::new(&next_name(&run.name), spec);
    new.metadata.namespace.clone_from(&old.metadata.namespace);
    Ok(new)
}

/// Returns the next name: `guide-r2` after `guide`, `guide-r3` after `guide-r2`.
fn next_name(name: &str) -> String {
    let (base, number) = match name.rsplit_once("-r") {
        Some((base, digits)) if !base.is_empty() => match digits.parse::<u32>() {
            Ok(number) if number > 1 && !digits.starts_with(['0', '+']) => (base, number),
            Ok(_) | Err(_) => (name, 1),
        },
        Some(_) | None => (name, 1),
    };
    let suffix = format!("-r{}", number.saturating_add(1));
    if base.len() + suffix.len() <= NAME_LIMIT {
        format!("{base}{suffix}")
    } else {
        names::child(base, &suffix)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn run(spec: Value, status: Value) -> DocsRun {
        let mut all = json!({
            "repositoryUrl": "https://git.example/team/shop", "sourceBranch": "main",
            "agentName": "writer", "model": "m", "timeout": "5m",
        });
        for (key, value) in spec.as_object().unwrap() {
            all[key] = value.clone();
        }
        serde_json::from_value(json!({
            "apiVersion": "orchestrator.io/v1alpha1", "kind": "DocsRun",
            "metadata": { "name": "guide", "namespace": "team", "uid": "u", "resourceVersion": "7",
                "finalizers": ["f"] },
            "spec": all, "status": status,
        }))
        .unwrap()
    }

    fn guide() -> ObjectName {
        ObjectName::new(&DOCS_RUN, "guide")
    }

    fn ended(reason: &str) -> Value {
        let condition = |kind: &str, value: &str| {
            json!({ "type": kind, "status": value, "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z" })
        };
        json!({ "phase": "Failed", "conditions":
            [condition("Finished", "True"), condition("Succeeded", "False")] })
    }

    #[test]
    fn the_next_name_counts_on() {
        let long = "x".repeat(253);
        for (name, wanted) in [
            ("guide", "guide-r2"),
            ("guide-r2", "guide-r3"),
            ("guide-r9", "guide-r10"),
            ("guide-r1", "guide-r1-r2"),
            ("guide-r02", "guide-r02-r2"),
            ("guide-r+2", "guide-r+2-r2"),
            ("guide-runner", "guide-runner-r2"),
            ("a.b", "a.b-r2"),
            ("-r2", "-r2-r2"),
        ] {
            assert_eq!(next_name(name), wanted);
        }
        let cut = next_name(&long);
        assert!(cut.len() <= 63 && cut.ends_with("-r2"), "{cut}");
        assert_ne!(cut, next_name(&format!("{}y", "x".repeat(252))));
        assert_eq!(next_name(&cut), cut.replace("-r2", "-r3"));
    }

    #[test]
    fn another_run_goes_on_on_the_branch_of_the_first() {
        let cases = [
            (json!({}), "docs/guide"),
            (json!({ "output": { "branch": "api" } }), "api"),
            (json!({ "suspend": true, "cancel": true }), "docs/guide"),
        ];
        for (spec, branch) in cases {
            let old = run(spec, ended("Cancelled"));
            let new = again(&old, guide()).unwrap();
            let mut wanted = old.spec.clone();
            wanted.output.branch = Some(branch.to_owned());
            wanted.suspend = false;
            wanted.cancel = false;
            assert_eq!(new.spec, wanted);
            assert_eq!(new.metadata.name.as_deref(), Some("guide-r2"));
            assert_eq!(new.metadata.namespace.as_deref(), Some("team"));
            assert_eq!((new.metadata.uid, new.metadata.finalizers), (None, None));
            assert_eq!(new.status, None);
        }
    }

    #[test]
    fn what_goes_on_is_not_run_again() {
        let waiting = json!({ "phase": "Pending", "conditions": [{ "type": "Succeeded",
            "status": "Unknown", "reason": "AuthenticationFailed", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z" }] });
        for (status, phase) in [
            (json!({}), "Pending"),
            (waiting, "Pending"),
            (json!({ "phase": "Running" }), "Running"),
        ] {
            let refused = again(&run(json!({}), status), guide()).unwrap_err();
            assert_eq!(
                refused.to_string(),
                format!("DocsRun 'guide' has not finished: it is {phase}")
            );
        }
        let mut going = run(json!({}), ended("NoChanges"));
        going.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        let refused = again(&going, guide()).unwrap_err();
        assert_eq!(refused.to_string(), "DocsRun 'guide' is being deleted");
    }
}
