//! Documentation for a repository: submits a `DocsRun`, or repeats one as a new `DocsRun`.

use std::time::Duration;

use api::{
    Phase, names,
    tasks::{DocsRun, DocsRunSpec, NamedRef, Output, RunPhase},
};
use kube::{Api, Client};

use crate::{
    Error, Files, Request, Run, RunKind, outcome,
    submit::{DryRun, create},
};

/// Maximum length of an object name, in characters.
const NAME_LIMIT: usize = 253;

/// A request for documentation, from which a `DocsRun` is created.
#[derive(Debug, Clone, PartialEq)]
pub struct Docs {
    /// The run's name.
    pub name: String,
    /// The URL of the repository.
    pub repository_url: String,
    /// The branch that the agent reads.
    pub source_branch: String,
    /// The directory in which the agent works. Default: the root of the repository.
    pub working_directory: Option<String>,
    /// The Agent that writes the documentation.
    pub agent_name: String,
    /// The model that the agent should use.
    pub model: Option<String>,
    /// Instruction files for the agent.
    pub instructions: Option<Files>,
    /// Whether the agent sees the whole checkout.
    pub include_codebase: bool,
    /// The Secret with the credentials for the Git server.
    pub credentials_secret: Option<String>,
    /// The branch to push to. Default: `docs/` followed by the run's name.
    pub output_branch: Option<String>,
    /// The directory that is copied from the agent's work into the commit. Default: `docs/`.
    pub output_path: Option<String>,
    /// Whether a run without changes fails.
    pub require_changes: bool,
    /// The commit message.
    pub commit_message: Option<String>,
    /// How long the agent may write. Default: the Agent's own timeout.
    pub timeout: Option<Duration>,
}

impl Docs {
    /// Returns the `DocsRun` to be sent to the API server.
    #[must_use]
    pub fn run(&self, namespace: &str) -> DocsRun {
        let usual = Output::default();
        let instructions = self.instructions.as_ref().map(Files::as_slice);
        let spec = DocsRunSpec {
            repository_url: self.repository_url.clone(),
            source_branch: self.source_branch.clone(),
            working_directory: self
                .working_directory
                .clone()
                .unwrap_or_else(|| ".".to_owned()),
            agent_name: self.agent_name.clone(),
            model: self.model.clone(),
            instructions: instructions.unwrap_or_default().to_vec(),
            include_codebase: self.include_codebase,
            credentials_secret_ref: self
                .credentials_secret
                .clone()
                .map(|name| NamedRef { name }),
            output: Output {
                branch: self.output_branch.clone(),
                path: self.output_path.clone().unwrap_or(usual.path),
                require_changes: self.require_changes,
                commit_message: self.commit_message.clone(),
            },
            timeout: self.timeout.map(Into::into),
            suspend: false,
            cancel: false,
            child_ttl: None,
        };
        let mut run = DocsRun::new(&self.name, spec);
        run.metadata.namespace = Some(namespace.to_owned());
        run
    }
}

/// Creates the `DocsRun`.
///
/// # Guarantees
/// If several callers submit the same name at once, exactly one succeeds. The server decides, and
/// we do not check beforehand whether the name exists.
///
/// # Errors
/// [`Error::Exists`] if the name already exists; otherwise an error of the server.
pub async fn submit_docs(
    client: &Client,
    namespace: &str,
    docs: &Docs,
    dry_run: DryRun,
) -> Result<DocsRun, Error> {
    create(client, namespace, &docs.run(namespace), dry_run).await
}

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
    let old = runs
        .get(name)
        .await
        .map_err(|error| Request::of_kind(RunKind::Docs, "get", namespace, name).failed(error))?;
    create(client, namespace, &again(&old, name)?, DryRun::Off).await
}

fn again(old: &DocsRun, name: &str) -> Result<DocsRun, Error> {
    if old.metadata.deletion_timestamp.is_some() {
        return Err(Error::Deleting {
            kind: RunKind::Docs,
            name: name.to_owned(),
        });
    }
    if outcome(old).is_none() {
        let phase = old.status_view().and_then(|status| status.phase);
        return Err(Error::NotFinished {
            kind: RunKind::Docs,
            name: name.to_owned(),
            version: None,
            phase: phase.unwrap_or(RunPhase::Pending).name(),
        });
    }
    let mut spec = old.spec.clone();
    spec.output.branch = Some(old.output_branch());
    spec.suspend = false;
    spec.cancel = false;
    let mut run = DocsRun::new(&next_name(name), spec);
    run.metadata.namespace.clone_from(&old.metadata.namespace);
    Ok(run)
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
            let new = again(&old, "guide").unwrap();
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
            let refused = again(&run(json!({}), status), "guide").unwrap_err();
            assert_eq!(
                refused.to_string(),
                format!("DocsRun 'guide' has not finished: it is {phase}")
            );
        }
        let mut going = run(json!({}), ended("NoChanges"));
        going.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        let refused = again(&going, "guide").unwrap_err();
        assert_eq!(refused.to_string(), "DocsRun 'guide' is being deleted");
    }

    #[test]
    fn what_is_not_said_is_the_kinds_default() {
        let docs = Docs {
            name: "guide".to_owned(),
            repository_url: "https://git.example/team/shop".to_owned(),
            source_branch: "main".to_owned(),
            working_directory: None,
            agent_name: "writer".to_owned(),
            model: None,
            instructions: None,
            include_codebase: false,
            credentials_secret: None,
            output_branch: None,
            output_path: None,
            require_changes: true,
            commit_message: None,
            timeout: None,
        };
        let plain = json!({ "repositoryUrl": "https://git.example/team/shop",
            "sourceBranch": "main", "agentName": "writer" });
        let plain: DocsRunSpec = serde_json::from_value(plain).unwrap();
        assert_eq!(docs.run("team").spec, plain);
    }
}
