//! The commits of the notebook and of the golden notebook.
//!
//! # Guarantees
//! A commit is only concluded from the current response of the server to a request for this reference. A name that is
//! both a branch and a tag has no commit (F2).

use std::collections::BTreeMap;

use api::{
    Reason, Status,
    external::Reply,
    notebooks::{GitSource, NotebookValidationJob, NotebookValidationJobSpec},
};
use git::refs::Reference;

/// Commits of branches or tags, by name. `None` means that the repository does not have it.
pub type Commits = BTreeMap<String, Option<String>>;

/// A reference that was not asked for, because the user excludes it.
const ABSENT: &Option<String> = &None;

/// References to read from a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RefsRequest {
    /// Names of branches.
    pub branches: Vec<String>,
    /// Names of tags.
    pub tags: Vec<String>,
}

/// Response of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refs {
    /// Commits of the branches.
    pub branches: Commits,
    /// Commits of the tags: of an annotated tag, the commit that it points to.
    pub tags: Commits,
}

/// Responses of the Git servers, or `None` before the first response.
#[derive(Debug, Clone, Default)]
pub struct Responses {
    /// Response about the notebook's repository.
    pub notebook: Option<Reply<Refs>>,
    /// Response about the golden notebook's own repository.
    pub golden: Option<Reply<Refs>>,
}

/// The commit of a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved {
    /// The commit.
    Commit(String),
    /// The server has not responded, or its response has expired or is a failure.
    Unknown,
    /// The reference has no commit, for this reason.
    Failed(Reason, String),
}

/// The commits that a job works on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    /// Commit of the notebook.
    pub commit: String,
    /// Commit of the golden notebook, if there is one.
    pub golden_commit: Option<String>,
}

/// Returns the request that finds the commit of a reference. A commit ID needs none.
#[must_use]
pub fn request(source: &GitSource) -> Option<RefsRequest> {
    let (branches, tags) = match Reference::parse(&source.reference) {
        Ok(Reference::Commit(_)) | Err(_) => return None,
        Ok(Reference::Branch(name)) => (vec![name], Vec::new()),
        Ok(Reference::Tag(name)) => (Vec::new(), vec![name]),
        Ok(Reference::Name(name)) => (vec![name.clone()], vec![name]),
    };
    Some(RefsRequest { branches, tags })
}

/// The requests that a job needs now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Questions {
    /// Request to the notebook's repository.
    pub notebook: Option<RefsRequest>,
    /// Request to the golden notebook's own repository.
    pub golden: Option<RefsRequest>,
}

/// Returns the requests that a job needs now. A job whose commits are recorded, or that starts nothing, needs none.
#[must_use]
pub fn questions(job: &NotebookValidationJob) -> Questions {
    let status = job.status.as_ref();
    let is_recorded = status.is_some_and(|status| status.commit.is_some() || status.is_over());
    let is_held = job.spec.suspend || job.spec.cancel;
    if is_recorded || is_held || job.metadata.deletion_timestamp.is_some() {
        return Questions::default();
    }
    let golden = job.spec.golden_notebook.as_ref();
    Questions {
        notebook: request(&job.spec.notebook.git),
        golden: golden.and_then(|golden| request(golden.git.as_ref()?)),
    }
}

/// Returns the commit of a reference.
#[must_use]
pub fn resolve(source: &GitSource, reply: Option<&Reply<Refs>>) -> Resolved {
    let (url, text) = (&source.url, &source.reference);
    let reference = match Reference::parse(text) {
        Ok(Reference::Commit(commit)) => return Resolved::Commit(commit.to_string()),
        Ok(reference) => reference,
        Err(message) => return Resolved::Failed(Reason::RefNotFound, message),
    };
    let Some(refs) = reply.and_then(Reply::success) else {
        return Resolved::Unknown;
    };
    // A name that the response does not have was not asked for.
    let (branch, tag) = match &reference {
        Reference::Commit(_) => return Resolved::Unknown,
        Reference::Branch(name) => (refs.branches.get(name), Some(ABSENT)),
        Reference::Tag(name) => (Some(ABSENT), refs.tags.get(name)),
        Reference::Name(name) => (refs.branches.get(name), refs.tags.get(name)),
    };
    match (branch, tag) {
        (None, _) | (_, None) => Resolved::Unknown,
        (Some(Some(_)), Some(Some(_))) => Resolved::Failed(
            Reason::RefAmbiguous,
            format!(
                "{url} has a branch and a tag '{text}'; submit another job with 'refs/heads/{text}' or 'refs/tags/{text}'"
            ),
        ),
        (Some(Some(commit)), Some(None)) | (Some(None), Some(Some(commit))) => {
            Resolved::Commit(commit.clone())
        }
        (Some(None), Some(None)) => Resolved::Failed(
            Reason::RefNotFound,
            format!("{url} has no branch and no tag '{text}'"),
        ),
    }
}

/// Returns the commits of a job, or why they are not known.
///
/// # Errors
/// Returns the first reference without a commit.
pub fn resolve_all(
    spec: &NotebookValidationJobSpec,
    responses: &Responses,
) -> Result<Sources, Resolved> {
    let commit = match resolve(&spec.notebook.git, responses.notebook.as_ref()) {
        Resolved::Commit(commit) => commit,
        other @ (Resolved::Unknown | Resolved::Failed(..)) => return Err(other),
    };
    let Some(golden) = &spec.golden_notebook else {
        return Ok(Sources {
            commit,
            golden_commit: None,
        });
    };
    // F3: without a repository of its own, the golden notebook is that of the notebook's commit.
    let golden_commit = match &golden.git {
        None => commit.clone(),
        Some(source) => match resolve(source, responses.golden.as_ref()) {
            Resolved::Commit(commit) => commit,
            other @ (Resolved::Unknown | Resolved::Failed(..)) => return Err(other),
        },
    };
    Ok(Sources {
        commit,
        golden_commit: Some(golden_commit),
    })
}

#[cfg(test)]
mod tests {
    use api::Timestamp;

    use super::*;

    const BRANCH: &str = "1111111111111111111111111111111111111111";
    const TAG: &str = "2222222222222222222222222222222222222222";

    fn source(reference: &str) -> GitSource {
        GitSource {
            url: "https://git.example.org/team/notebooks".to_owned(),
            reference: reference.to_owned(),
            credentials_secret_ref: None,
        }
    }

    fn reply(is_fresh: bool) -> Reply<Refs> {
        let commits = |all: &[(&str, Option<&str>)]| {
            let owned = all
                .iter()
                .map(|(name, commit)| ((*name).to_owned(), commit.map(str::to_owned)));
            owned.collect::<Commits>()
        };
        Reply {
            response: Ok(Refs {
                branches: commits(&[("main", Some(BRANCH)), ("both", Some(BRANCH)), ("v1", None)]),
                tags: commits(&[("main", None), ("both", Some(TAG)), ("v1", Some(TAG))]),
            }),
            since: Timestamp::UNIX_EPOCH,
            next_at: Timestamp::UNIX_EPOCH,
            is_fresh,
        }
    }

    /// F1, F2, R67: each kind of reference has the commit that the server shows now, and a name is never guessed.
    #[test]
    fn f02_a_tag_is_never_taken_for_a_branch() {
        let reply = reply(true);
        let found = |reference: &str| resolve(&source(reference), Some(&reply));
        for (reference, commit) in [
            ("main", BRANCH),
            ("v1", TAG),
            ("refs/heads/both", BRANCH),
            ("refs/tags/both", TAG),
            ("refs/tags/v1", TAG),
            ("refs/heads/main", BRANCH),
            (BRANCH, BRANCH),
        ] {
            let expected = Resolved::Commit(commit.to_owned());
            assert_eq!(found(reference), expected, "{reference}");
        }
        for (reference, reason) in [
            ("both", Reason::RefAmbiguous),
            ("refs/tags/main", Reason::RefNotFound),
            ("refs/heads/v1", Reason::RefNotFound),
            ("-x", Reason::RefNotFound),
        ] {
            let Resolved::Failed(found, message) = found(reference) else {
                panic!("{reference}")
            };
            assert_eq!(found, reason, "{message}");
        }
        assert_eq!(found("not-asked-for"), Resolved::Unknown);
    }

    #[test]
    fn only_a_current_response_counts() {
        let old = reply(false);
        assert_eq!(resolve(&source("main"), Some(&old)), Resolved::Unknown);
        assert_eq!(resolve(&source("main"), None), Resolved::Unknown);
        assert_eq!(
            resolve(&source(TAG), None),
            Resolved::Commit(TAG.to_owned())
        );
    }

    /// R61: a job asks only while it needs the response, and each repository has its own request.
    #[test]
    fn only_a_job_that_waits_for_its_commits_asks() {
        let job = |changes: serde_json::Value| -> NotebookValidationJob {
            let mut job = serde_json::json!({
                "apiVersion": "orchestrator.io/v1alpha1", "kind": "NotebookValidationJob",
                "metadata": { "name": "nb", "namespace": "team" },
                "spec": {
                    "notebook": { "git": { "url": "https://a.example/a", "ref": "main" }, "path": "a.ipynb" },
                    "goldenNotebook": { "path": "b.ipynb", "git": { "url": "https://b.example/b", "ref": "refs/tags/v1" } },
                    "podConfig": { "containerImage": "i" },
                },
            });
            for (path, value) in changes.as_object().unwrap() {
                let (parent, key) = path.rsplit_once('/').unwrap();
                job.pointer_mut(parent).unwrap()[key] = value.clone();
            }
            serde_json::from_value(job).unwrap()
        };
        let asked = questions(&job(serde_json::json!({})));
        assert_eq!(asked.notebook.unwrap().branches, ["main"]);
        let golden = asked.golden.unwrap();
        assert_eq!((golden.branches.len(), golden.tags.len()), (0, 1));
        for changes in [
            serde_json::json!({ "/spec/suspend": true }),
            serde_json::json!({ "/spec/cancel": true }),
            serde_json::json!({ "/metadata/deletionTimestamp": "2026-01-01T00:00:00Z" }),
            serde_json::json!({ "/status": { "commit": BRANCH } }),
            serde_json::json!({ "/status": { "phase": "Failed" } }),
        ] {
            assert_eq!(
                questions(&job(changes.clone())),
                Questions::default(),
                "{changes}"
            );
        }
        let same = questions(&job(
            serde_json::json!({ "/spec/goldenNotebook": { "path": "b.ipynb" } }),
        ));
        assert_eq!(same.golden, None);
    }

    #[test]
    fn a_plain_name_asks_for_a_branch_and_a_tag() {
        let asked = request(&source("x")).unwrap();
        assert_eq!((asked.branches.len(), asked.tags.len()), (1, 1));
        assert_eq!(request(&source(BRANCH)), None);
    }
}
