//! One run of a DocsRun: a server with a repository, the directories of the Pod, and the variables.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use git::{
    Files, Reason, Report,
    edits::{CommitReason, CommitReport},
};
use tempfile::TempDir;
use testkit::git::{Credentials, Entry, Repository, Server};

pub(crate) const UID: &str = "11111111-2222-4333-8444-555555555555";
pub(crate) const BRANCH: &str = "docs/run";

/// A time that only a hanging operation exceeds, even beside clusters with a higher priority.
pub(crate) const HANG: Duration = Duration::from_mins(1);

/// The files of the base commit.
const FILES: [(&str, &str); 4] = [
    ("README.md", "read me\n"),
    ("docs/old.md", "old\n"),
    ("src/main.rs", "fn main() {}\n"),
    ("src/deep/lib.rs", "//! lib\n"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Https,
    Ssh,
}

pub(crate) struct Run {
    pub(crate) server: Server,
    pub(crate) repository: Repository,
    pub(crate) folder: TempDir,
    pub(crate) variables: BTreeMap<String, String>,
    secrets: Vec<String>,
}

/// The result of a step.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) report: Report,
    pub(crate) output: String,
}

/// The result of `step commit`.
#[derive(Debug)]
pub(crate) struct Committed {
    pub(crate) report: CommitReport,
    pub(crate) output: String,
}

impl Run {
    pub(crate) fn new(scheme: Scheme) -> Run {
        let server = Server::on_loopback().unwrap();
        let repository = server.create("project", "main", &FILES).unwrap();
        let folder = tempfile::tempdir().unwrap();
        for name in ["source", "scratch", "credentials"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let base = repository.head("main").unwrap().unwrap();
        let variables = [
            ("STEP_SOURCE_BRANCH", "main"),
            ("STEP_BASE_COMMIT", &base),
            ("STEP_OUTPUT_BRANCH", BRANCH),
            ("STEP_OUTPUT_HEAD", ""),
            ("STEP_WORKING_DIRECTORY", "."),
            ("STEP_INCLUDE_CODEBASE", "true"),
            ("STEP_OUTPUT_PATH", "docs/"),
            ("STEP_COMMIT_MESSAGE", ""),
            ("STEP_RUN_UID", UID),
            ("STEP_RUN_NAME", "team/run"),
            ("STEP_COMMIT_TIME", "1700000000"),
            ("STEP_ALLOWED_NETWORKS", "127.0.0.0/8"),
            ("STEP_PLAIN_HTTP", "false"),
            ("STEP_LIMIT_MIB", "64"),
            ("STEP_TIMEOUT_SECONDS", "60"),
        ];
        let mut run = Run {
            server,
            repository,
            variables: variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            secrets: Vec::new(),
            folder,
        };
        for (name, folder) in [
            ("STEP_SOURCE", "source"),
            ("STEP_SCRATCH", "scratch"),
            ("STEP_CREDENTIALS", "credentials"),
            ("STEP_REPORT", "report"),
        ] {
            let path = run.path(folder).to_str().unwrap().to_owned();
            run.set(name, &path);
        }
        let (url, credentials) = match scheme {
            Scheme::Https => (
                run.server.https_url("project"),
                run.server.credentials_https(),
            ),
            Scheme::Ssh => (run.server.ssh_url("project"), run.server.credentials_ssh()),
        };
        run.set("STEP_URL", &url);
        run.set_credentials(&credentials);
        run
    }

    /// Returns a run after its clone step.
    pub(crate) fn cloned(scheme: Scheme) -> Run {
        let run = Run::new(scheme);
        let done = run.step("clone");
        assert!(matches!(done.report, Report::Cloned { .. }), "{done:?}");
        run
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.variables.insert(name.to_owned(), value.to_owned());
    }

    pub(crate) fn set_credentials(&mut self, credentials: &Credentials) {
        let folder = self.path("credentials");
        fs::remove_dir_all(&folder).unwrap();
        fs::create_dir(&folder).unwrap();
        for (key, value) in credentials {
            fs::write(folder.join(key), value).unwrap();
            if key == "password" {
                self.secrets.push(String::from_utf8(value.clone()).unwrap());
            }
            if key == "identity" {
                let text = String::from_utf8(value.clone()).unwrap();
                let lines = text
                    .lines()
                    .filter(|line| line.len() > 20 && !line.contains(' '));
                self.secrets.extend(lines.map(str::to_owned));
            }
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns a path in the agent's directory.
    pub(crate) fn source(&self, path: &str) -> PathBuf {
        self.path("source").join(path)
    }

    /// Writes a file as the agent.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.source(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Creates a link as the agent.
    pub(crate) fn link(&self, path: &str, target: &Path) {
        symlink(target, self.source(path)).unwrap();
    }

    /// Returns the file that a planted command would create.
    pub(crate) fn marker(&self) -> PathBuf {
        self.path("marker")
    }

    pub(crate) fn base(&self) -> &str {
        &self.variables["STEP_BASE_COMMIT"]
    }

    pub(crate) fn command(&self, step: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_step"));
        command
            .arg(step)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .envs(&self.variables);
        command
    }

    pub(crate) fn step(&self, step: &str) -> Done {
        self.done(self.command(step).output().unwrap())
    }

    /// Reads the result of a step.
    pub(crate) fn done(&self, output: Output) -> Done {
        let (report, text) = self.checked(&output);
        let report = Report::read(&report).unwrap();
        let failed = matches!(report, Report::Failed { .. });
        assert_eq!(output.status.code(), Some(i32::from(failed)), "{text}");
        Done {
            code: output.status.code(),
            report,
            output: text,
        }
    }

    pub(crate) fn commit_step(&self) -> Committed {
        self.committed(&self.command("commit").output().unwrap())
    }

    /// Reads the result of `step commit`.
    pub(crate) fn committed(&self, output: &Output) -> Committed {
        let (report, text) = self.checked(output);
        let report = CommitReport::read(&report).unwrap();
        let failed = matches!(
            report,
            CommitReport::Failed { .. } | CommitReport::Uncertain { .. }
        );
        assert_eq!(output.status.code(), Some(i32::from(failed)), "{text}");
        Committed {
            report,
            output: text,
        }
    }

    /// Returns the report and the output of a step. Checks in every test that they contain no secret, and
    /// that the private directory is deleted.
    pub(crate) fn checked(&self, output: &Output) -> (String, String) {
        let report = fs::read_to_string(self.path("report")).unwrap();
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        for secret in &self.secrets {
            assert!(!report.contains(secret), "a secret is in the report");
            assert!(!text.contains(secret), "a secret is in the output");
        }
        assert_eq!(fs::read_dir(self.path("scratch")).unwrap().count(), 0);
        (report, text)
    }

    /// Returns the files of the output branch.
    pub(crate) fn published(&self) -> Vec<String> {
        self.repository.files(BRANCH).unwrap().into_keys().collect()
    }

    pub(crate) fn published_file(&self, path: &str) -> String {
        let content = self.repository.read(BRANCH, path).unwrap().unwrap();
        String::from_utf8(content).unwrap()
    }

    /// Commits as somebody else.
    pub(crate) fn commit(&self, branch: &str, path: &str, text: &str) -> String {
        let entries = [(path, Entry::File(text.as_bytes()))];
        self.repository.commit(branch, "Other", &entries).unwrap()
    }

    /// Checks that no object of the repository contains a secret.
    pub(crate) fn assert_nothing_leaked(&self) {
        let output = Command::new("git")
            .args(["cat-file", "--batch-all-objects", "--batch"])
            .current_dir(&self.repository.folder)
            .output()
            .unwrap();
        assert!(output.status.success());
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("read me"), "objects are read");
        for secret in &self.secrets {
            assert!(!text.contains(secret), "a secret is on the server");
        }
    }
}

/// Returns content that does not compress in a pack.
pub(crate) fn noise(bytes: usize) -> Vec<u8> {
    let mut noise = Vec::with_capacity(bytes);
    let mut state: u64 = 88_172_645_463_325_252;
    while noise.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.extend(state.to_le_bytes());
    }
    noise
}

impl Done {
    pub(crate) fn failed(&self, reason: Reason, words: &str) {
        let Report::Failed {
            reason: found,
            message,
        } = &self.report
        else {
            panic!("{self:?}");
        };
        assert_eq!(*found, reason, "{message}");
        assert!(message.contains(words), "{message}");
        assert_eq!(self.code, Some(1));
    }

    /// Returns the message of a failed step.
    pub(crate) fn message(&self) -> &str {
        match &self.report {
            Report::Failed { message, .. } => message,
            Report::Cloned { .. }
            | Report::Pushed { .. }
            | Report::Found { .. }
            | Report::NoChanges { .. } => panic!("{self:?}"),
        }
    }

    pub(crate) fn pushed(&self) -> (String, Files, Files) {
        let Report::Pushed {
            commit,
            changed,
            skipped,
        } = &self.report
        else {
            panic!("{self:?}");
        };
        (commit.to_string(), changed.clone(), skipped.clone())
    }
}

impl Committed {
    pub(crate) fn failed(&self, reason: CommitReason, words: &str) {
        let CommitReport::Failed {
            reason: found,
            message,
        } = &self.report
        else {
            panic!("{self:?}");
        };
        assert_eq!(*found, reason, "{message}");
        assert!(message.contains(words), "{message}");
    }

    pub(crate) fn pushed(&self) -> String {
        let CommitReport::Pushed { commit } = &self.report else {
            panic!("{self:?}");
        };
        commit.to_string()
    }

    pub(crate) fn found(&self) -> String {
        let CommitReport::Found { commit } = &self.report else {
            panic!("{self:?}");
        };
        commit.to_string()
    }
}
