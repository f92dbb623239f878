//! Submits a run by creating it.

use std::{collections::BTreeMap, fmt::Debug};

use api::{
    kinds::KindRow,
    names,
    tasks::{DOCS_RUN, DocsRun, TASK_RUN, TaskRun, docs_labels, run_labels},
};
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

use crate::{Error, MANAGER, ObjectName, Request};

/// Whether a write is stored or only validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DryRun {
    /// The write is stored.
    Off,
    /// The server validates the write fully but stores nothing.
    On,
}

impl DryRun {
    pub(crate) fn is_on(self) -> bool {
        match self {
            Self::Off => false,
            Self::On => true,
        }
    }
}

/// Returns the usual name of a task's run: `{service}-{task}`.
#[must_use]
pub fn run_name(service: &str, task_id: i64) -> String {
    names::child(service, &format!("-{task_id}"))
}

/// A kind of run that users create.
pub trait Run:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
{
    /// The row of the kind.
    const KIND: &'static KindRow;

    /// Returns the labels by which users select runs. The operator sets them, too.
    fn task_labels(&self) -> BTreeMap<&'static str, String>;
}

impl Run for TaskRun {
    const KIND: &'static KindRow = &TASK_RUN;

    fn task_labels(&self) -> BTreeMap<&'static str, String> {
        run_labels(&self.spec)
    }
}

impl Run for DocsRun {
    const KIND: &'static KindRow = &DOCS_RUN;

    fn task_labels(&self) -> BTreeMap<&'static str, String> {
        docs_labels(&self.spec)
    }
}

/// A run to be created, with everything that its creation stores.
#[derive(Debug, Clone, PartialEq)]
pub struct Submission<R> {
    /// The run.
    pub run: R,
    /// Whether the run is stored.
    pub dry_run: DryRun,
    /// The name of the author, as the API server authenticates users. It is stored in the run.
    pub author: Option<String>,
    /// The author's key for this submission. With a key, the submission can be repeated after a
    /// lost response: see [`submit_as`].
    pub idempotency_key: Option<String>,
}

impl<R: Run> Submission<R> {
    /// Creates a submission without an author and without a key.
    #[must_use]
    pub fn new(run: R, dry_run: DryRun) -> Self {
        Self {
            run,
            dry_run,
            author: None,
            idempotency_key: None,
        }
    }

    /// Returns the run as it is sent to the server, and its annotation about the key.
    fn prepared(&self) -> Result<(R, Option<Repeatable>), serde_json::Error> {
        let mut run = self.run.clone();
        let labels = self.run.task_labels().into_iter();
        run.labels_mut()
            .extend(labels.map(|(key, value)| (key.to_owned(), value)));
        let author = self.author.as_deref().unwrap_or_default();
        let repeatable = match &self.idempotency_key {
            Some(key) => Some(Repeatable::new(key, author, &run)?),
            None => None,
        };
        if !author.is_empty() {
            let value = author.to_owned();
            run.annotations_mut()
                .insert(names::SUBMITTED_BY.to_owned(), value);
        }
        if let Some(Repeatable { key, content }) = &repeatable {
            let value = format!("{key}.{content}");
            run.annotations_mut()
                .insert(names::IDEMPOTENCY.to_owned(), value);
        }
        Ok((run, repeatable))
    }
}

/// Hashes that identify a submission.
#[derive(Debug, PartialEq)]
struct Repeatable {
    /// Hash of the key and the author. Two authors may choose the same key.
    key: String,
    /// Hash of the run.
    content: String,
}

/// Relation of an existing run to a submission.
#[derive(Debug, PartialEq)]
enum Existing {
    /// The submission created it.
    SameSubmission,
    /// A submission with the same key and with other content created it.
    OtherContent,
    /// It was created otherwise.
    Other,
}

impl Repeatable {
    fn new<R: Run>(key: &str, author: &str, run: &R) -> Result<Self, serde_json::Error> {
        // The length separates the two texts, whatever they contain.
        let key = format!("{}:{author}:{key}", author.len());
        Ok(Self {
            key: digest(key.as_bytes()),
            content: digest(&serde_json::to_vec(run)?),
        })
    }

    fn compare<R: Run>(&self, existing: &R) -> Existing {
        let annotation = existing.annotations().get(names::IDEMPOTENCY);
        match annotation.and_then(|value| value.split_once('.')) {
            // A run in deletion cannot be the result of a submission.
            Some(_) | None if existing.meta().deletion_timestamp.is_some() => Existing::Other,
            Some((key, content)) if key == self.key && content == self.content => {
                Existing::SameSubmission
            }
            Some((key, _)) if key == self.key => Existing::OtherContent,
            Some(_) | None => Existing::Other,
        }
    }
}

fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Creates a run, without an author and without an idempotency key.
///
/// # Guarantees
/// If several callers submit the same name at once, exactly one succeeds. The server decides, and
/// we do not check beforehand whether the name exists.
///
/// # Errors
/// [`Error::Exists`] if the name already exists; otherwise an error of the server.
pub async fn submit<R: Run>(
    client: &Client,
    namespace: &str,
    run: &R,
    dry_run: DryRun,
) -> Result<R, Error> {
    submit_as(client, namespace, &Submission::new(run.clone(), dry_run)).await
}

/// Creates a run, as [`submit`] does, and stores its author and its idempotency key.
///
/// # Guarantees
/// With a key, a repeated submission creates nothing, and returns the run that the first one
/// created. The run itself has the hash of the key, so this holds for any process, and as long as
/// the run exists.
///
/// # Errors
/// [`Error::Exists`] if another submission created a run of this name. [`Error::KeyReused`] if the
/// same key was used with other content. Otherwise an error of the server.
pub async fn submit_as<R: Run>(
    client: &Client,
    namespace: &str,
    submission: &Submission<R>,
) -> Result<R, Error> {
    let runs: Api<R> = Api::namespaced(client.clone(), namespace);
    let how = PostParams {
        dry_run: submission.dry_run.is_on(),
        field_manager: Some(MANAGER.to_owned()),
    };
    let name = submission.run.meta().name.as_deref().unwrap_or_default();
    let object = ObjectName::new(R::KIND, name);
    let request = |verb| Request::about(verb, &object, namespace);
    let (run, repeatable) = submission
        .prepared()
        .map_err(|error| Error::Refused(request("create"), error.to_string()))?;
    let failed = match runs.create(&how, &run).await {
        Ok(run) => return Ok(run),
        Err(error) => request("create").failed(error),
    };
    let repeatable = repeatable.filter(|_| matches!(failed, Error::Exists { .. }));
    let Some(repeatable) = repeatable else {
        return Err(failed);
    };
    let existing = match runs.get_opt(name).await {
        Ok(Some(existing)) => existing,
        // It was deleted meanwhile. The caller may submit it again.
        Ok(None) => return Err(failed),
        Err(error) => return Err(request("get").failed(error)),
    };
    match repeatable.compare(&existing) {
        Existing::SameSubmission => Ok(existing),
        Existing::OtherContent => Err(Error::KeyReused(object)),
        Existing::Other => Err(failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_are_those_of_the_types() {
        assert_eq!(TaskRun::KIND.name(), TaskRun::kind(&()));
        assert_eq!(DocsRun::KIND.name(), DocsRun::kind(&()));
    }

    fn submission(change: impl FnOnce(&mut Submission<TaskRun>)) -> Submission<TaskRun> {
        let run = serde_json::json!({
            "apiVersion": "orchestrator.io/v1", "kind": "TaskRun",
            "metadata": { "name": "shop-7", "labels": { "team": "a" } },
            "spec": { "taskId": 7, "serviceName": "Shop / Web", "agentName": "writer",
                "markdownFiles": [{ "filename": "task.md", "content": "Do it." }] },
        });
        let run = serde_json::from_value(run).unwrap();
        let mut submission = Submission::new(run, DryRun::Off);
        submission.author = Some("ann".to_owned());
        submission.idempotency_key = Some("k1".to_owned());
        change(&mut submission);
        submission
    }

    #[test]
    fn s3_11_a_submitted_run_has_the_labels_of_its_task() {
        let (run, _) = submission(|_| ()).prepared().unwrap();
        let service = names::label_value("Shop / Web");
        for (label, wanted) in [
            ("task-id", "7"),
            ("service-name", service.as_str()),
            ("orchestrator.io/agent", "writer"),
            ("team", "a"),
        ] {
            assert_eq!(run.labels()[label], wanted, "{label}");
        }
        assert_eq!(run.annotations()[names::SUBMITTED_BY], "ann");
        let (plain, _) = Submission::new(run.clone(), DryRun::Off)
            .prepared()
            .unwrap();
        assert_eq!(plain, run, "without an author, nothing is added");
    }

    #[test]
    fn only_the_same_key_and_content_of_the_same_author_is_a_repetition() {
        let (existing, _) = submission(|_| ()).prepared().unwrap();
        type Change = fn(&mut Submission<TaskRun>);
        let cases: [(&str, Change, Existing); 6] = [
            ("the same", |_| (), Existing::SameSubmission),
            (
                "other files",
                |one| one.run.spec.markdown_files[0].content.push('!'),
                Existing::OtherContent,
            ),
            (
                "other labels",
                |one| {
                    one.run.labels_mut().remove("team");
                },
                Existing::OtherContent,
            ),
            (
                "another key",
                |one| one.idempotency_key = Some("k2".to_owned()),
                Existing::Other,
            ),
            (
                "another author",
                |one| one.author = Some("bob".to_owned()),
                Existing::Other,
            ),
            (
                "an author and a key that are the same together",
                |one| {
                    one.author = Some("annk".to_owned());
                    one.idempotency_key = Some("1".to_owned());
                },
                Existing::Other,
            ),
        ];
        for (name, change, wanted) in cases {
            let (_, repeatable) = submission(change).prepared().unwrap();
            assert_eq!(repeatable.unwrap().compare(&existing), wanted, "{name}");
        }

        let (_, repeatable) = submission(|_| ()).prepared().unwrap();
        let repeatable = repeatable.unwrap();
        let mut plain = existing.clone();
        plain.annotations_mut().remove(names::IDEMPOTENCY);
        assert_eq!(repeatable.compare(&plain), Existing::Other);
        let mut deleted = existing;
        deleted.metadata.deletion_timestamp =
            Some(serde_json::from_value(serde_json::json!("2026-01-01T00:00:00Z")).unwrap());
        assert_eq!(repeatable.compare(&deleted), Existing::Other);
    }

    #[test]
    fn a_run_is_named_after_its_service_and_task() {
        assert_eq!(run_name("shop", 7), "shop-7");
        assert_eq!(
            run_name("Shop / Web", 7),
            format!("shop---web-{}-7", names::hash("Shop / Web"))
        );
    }
}
