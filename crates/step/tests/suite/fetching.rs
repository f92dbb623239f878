//! `step fetch`: the files for the kernel, and the notebooks for the runner.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use git::{
    Reason,
    edits::sha256,
    fetch::{FetchReason, FetchReport, NotebookReason},
};
use testkit::git::{Entry, Repository, Server};

use crate::fixture::{Run, Scheme};

const NOTEBOOK: &str = "{\"cells\": [1]}";
const GOLDEN: &str = "{\"cells\": [2]}";

/// A validation with a repository that has a notebook and its golden notebook.
struct Fetch {
    run: Run,
    commit: String,
}

impl Fetch {
    fn new(scheme: Scheme) -> Fetch {
        let run = Run::new(scheme);
        let entries = [
            ("reports/a.ipynb", Entry::File(NOTEBOOK.as_bytes())),
            ("reports/golden.ipynb", Entry::File(GOLDEN.as_bytes())),
            ("link.ipynb", Entry::Link("reports/a.ipynb")),
            ("linked", Entry::Link("reports")),
        ];
        let commit = run
            .repository
            .commit("main", "Notebooks", &entries)
            .unwrap();
        for name in ["inputs", "program"] {
            fs::create_dir(run.path(name)).unwrap();
        }
        let mut fetch = Fetch { run, commit };
        let commit = fetch.commit.clone();
        let program = fetch.program().display().to_string();
        let inputs = fetch.run.path("inputs").display().to_string();
        for (name, value) in [
            ("STEP_COMMIT", commit.as_str()),
            ("STEP_NOTEBOOK", "reports/a.ipynb"),
            ("STEP_GOLDEN_COMMIT", &commit),
            ("STEP_GOLDEN_NOTEBOOK", "reports/golden.ipynb"),
            ("STEP_GOLDEN_URL", ""),
            ("STEP_GOLDEN_CREDENTIALS", ""),
            ("STEP_INPUTS", &inputs),
            ("STEP_PROGRAM", &program),
        ] {
            fetch.run.set(name, value);
        }
        fetch
    }

    fn program(&self) -> PathBuf {
        self.run.path("program").join("step")
    }

    fn step(&self) -> FetchReport {
        let output = self.run.command("fetch").output().unwrap();
        let (report, text) = self.run.checked(&output);
        let report = FetchReport::read(&report).unwrap();
        let failed = matches!(report, FetchReport::Failed { .. });
        assert_eq!(output.status.code(), Some(i32::from(failed)), "{text}");
        report
    }

    fn failed(&self, reason: FetchReason, part: &str) {
        let report = self.step();
        let FetchReport::Failed {
            reason: found,
            message,
        } = report
        else {
            panic!("{report:?}")
        };
        assert_eq!(found, reason, "{message}");
        assert!(message.contains(part), "{message}");
        assert!(self.inputs().is_empty());
    }

    /// Returns the names and contents of the files for the runner.
    fn inputs(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.run.path("inputs")).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_string_lossy().into_owned();
            found.push((name, fs::read_to_string(entry.path()).unwrap()));
        }
        found.sort();
        found
    }
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

/// R67: a commit is fetched by its ID, over https and ssh.
#[test]
fn r67_the_kernel_gets_the_commit_and_the_runner_gets_the_notebooks() {
    for scheme in [Scheme::Https, Scheme::Ssh] {
        let fetch = Fetch::new(scheme);
        // The branch moves after the operator resolved it (F1).
        fetch.run.commit("main", "reports/a.ipynb", "{}");
        let report = fetch.step();
        assert!(
            matches!(&report, FetchReport::Fetched { commit } if commit.as_str() == fetch.commit)
        );
        let inputs = fetch.inputs();
        let names: Vec<&str> = inputs.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["golden.ipynb", "notebook.ipynb", "source.json"]);
        assert_eq!((&*inputs[0].1, &*inputs[1].1), (GOLDEN, NOTEBOOK));
        let source = &inputs[2].1;
        for part in [
            format!("\"commit\":\"{}\"", fetch.commit),
            format!("\"goldenCommit\":\"{}\"", fetch.commit),
            format!("\"notebookSha256\":\"{}\"", sha256(NOTEBOOK.as_bytes())),
            format!("\"goldenSha256\":\"{}\"", sha256(GOLDEN.as_bytes())),
        ] {
            assert!(source.contains(&part), "{source}");
        }
        for path in ["README.md", "src/main.rs", "reports/a.ipynb"] {
            let path = fetch.run.source(path);
            // The kernel belongs to the group.
            assert_eq!(mode(&path) & 0o660, 0o660, "{}", path.display());
        }
        assert!(!fetch.run.source(".git").exists());
        assert_eq!(mode(&fetch.program()), 0o755);
        let program = fs::read(env!("CARGO_BIN_EXE_step")).unwrap();
        assert!(fs::read(fetch.program()).unwrap() == program);
    }
}

#[test]
fn without_a_golden_notebook_there_is_no_file() {
    let mut fetch = Fetch::new(Scheme::Https);
    fetch.run.set("STEP_GOLDEN_COMMIT", "");
    fetch.run.set("STEP_GOLDEN_NOTEBOOK", "");
    fetch.step();
    let inputs = fetch.inputs();
    assert_eq!(inputs.len(), 2);
    assert!(!inputs[1].1.contains("golden"), "{}", inputs[1].1);
}

/// Each repository has its own credentials.
#[test]
fn the_golden_notebook_may_have_a_repository_of_its_own() {
    let mut fetch = Fetch::new(Scheme::Ssh);
    let files = [("expected.ipynb", "{\"cells\": [3]}")];
    let repository: Repository = fetch.run.server.create("golden", "main", &files).unwrap();
    let commit = repository.head("main").unwrap().unwrap();
    let folder = fetch.run.path("golden-credentials");
    fs::create_dir(&folder).unwrap();
    for (key, value) in fetch.run.server.credentials_https() {
        fs::write(folder.join(key), value).unwrap();
    }
    let url = fetch.run.server.https_url("golden");
    for (name, value) in [
        ("STEP_GOLDEN_COMMIT", commit.as_str()),
        ("STEP_GOLDEN_NOTEBOOK", "expected.ipynb"),
        ("STEP_GOLDEN_URL", &url),
        ("STEP_GOLDEN_CREDENTIALS", folder.to_str().unwrap()),
    ] {
        fetch.run.set(name, value);
    }
    let report = fetch.step();
    assert!(matches!(report, FetchReport::Fetched { .. }), "{report:?}");
    let inputs = fetch.inputs();
    assert_eq!(inputs[0].1, files[0].1);
    assert!(inputs[2].1.contains(&commit), "{}", inputs[2].1);
    assert!(!fetch.run.source("expected.ipynb").exists());
}

#[test]
fn a_missing_notebook_is_named() {
    let notebook = FetchReason::Notebook(NotebookReason::NotebookNotFound);
    let golden = FetchReason::Notebook(NotebookReason::GoldenNotFound);
    for (variable, path, reason) in [
        ("STEP_NOTEBOOK", "reports/b.ipynb", notebook),
        ("STEP_NOTEBOOK", "reports", notebook),
        ("STEP_NOTEBOOK", "link.ipynb", notebook),
        ("STEP_NOTEBOOK", "linked/a.ipynb", notebook),
        ("STEP_NOTEBOOK", "*", notebook),
        ("STEP_GOLDEN_NOTEBOOK", "golden.ipynb", golden),
    ] {
        let mut fetch = Fetch::new(Scheme::Https);
        fetch.run.set(variable, path);
        fetch.failed(reason, &format!("no regular file '{path}'"));
    }
}

#[test]
fn a_notebook_beyond_its_limit_is_not_copied() {
    let mut fetch = Fetch::new(Scheme::Https);
    let large = vec![b' '; (50 << 20) + 1];
    let entries = [("large.ipynb", Entry::File(&large))];
    let commit = fetch
        .run
        .repository
        .commit("main", "Large", &entries)
        .unwrap();
    fetch.run.set("STEP_COMMIT", &commit);
    fetch.run.set("STEP_GOLDEN_COMMIT", &commit);
    fetch.run.set("STEP_NOTEBOOK", "large.ipynb");
    let reason = FetchReason::Notebook(NotebookReason::NotebookInvalid);
    fetch.failed(reason, "50 MiB are allowed");
}

#[test]
fn failures_of_the_server_keep_their_reasons() {
    let mut fetch = Fetch::new(Scheme::Https);
    fetch.run.set("STEP_ALLOWED_NETWORKS", "");
    fetch.failed(FetchReason::Git(Reason::AddressNotAllowed), "");
    let mut fetch = Fetch::new(Scheme::Https);
    let absent = "0123456789012345678901234567890123456789";
    fetch.run.set("STEP_COMMIT", absent);
    fetch.run.set("STEP_GOLDEN_COMMIT", absent);
    let reason = FetchReason::Git(Reason::CloneFailed);
    fetch.failed(reason, "no longer on the server");
}

/// R67: a server with another host key gets no credentials.
#[test]
fn r67_an_unknown_host_key_is_rejected() {
    let mut fetch = Fetch::new(Scheme::Ssh);
    let mut credentials = fetch.run.server.credentials_ssh();
    let other = Server::on_loopback().unwrap().credentials_ssh();
    credentials.insert("known_hosts".to_owned(), other["known_hosts"].clone());
    fetch.run.set_credentials(&credentials);
    fetch.failed(FetchReason::Git(Reason::HostKeyUnknown), "known_hosts");
}

#[test]
fn files_of_an_earlier_attempt_are_rejected() {
    let fetch = Fetch::new(Scheme::Https);
    fetch.run.write("left.txt", "x");
    fetch.failed(FetchReason::Git(Reason::CloneFailed), "not empty");
}
