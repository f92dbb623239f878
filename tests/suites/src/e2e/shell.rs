//! Commands as people type them, with the testbed's helm and kubectl, on one cluster.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::{
    layout, parts,
    process::{ended, this_program},
    suite::Env,
};

/// `helm install --wait` gives up by itself after five minutes.
const LIMIT: Duration = Duration::from_secs(6 * 60);

/// Where commands run: in the repository's folder, on one cluster.
pub(crate) struct Shell {
    path: OsString,
    kubeconfig: PathBuf,
    cache: PathBuf,
    variables: Vec<(String, String)>,
}

/// What a command left.
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Shell {
    /// For the cluster of `kubeconfig`; `cache` is a folder for what kubectl remembers of it, because
    /// another cluster had the same address before.
    pub(crate) fn new(kubeconfig: &Path, cache: &Path) -> Result<Self> {
        let mut folders = Vec::new();
        for part in ["kubernetes", "helm"] {
            folders.push(parts::folder_of(part)?.join("bin"));
        }
        folders.extend(std::env::split_paths(
            &std::env::var_os("PATH").unwrap_or_default(),
        ));
        Ok(Self {
            path: std::env::join_paths(folders)?,
            kubeconfig: kubeconfig.to_owned(),
            cache: cache.to_owned(),
            variables: Vec::new(),
        })
    }

    /// With programs of this folder, too, and these variables.
    pub(crate) fn with(mut self, programs: &Path, variables: &[(&str, &str)]) -> Result<Self> {
        let known = std::env::split_paths(&self.path).collect::<Vec<_>>();
        self.path = std::env::join_paths([programs.to_owned()].into_iter().chain(known))?;
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        self.variables.extend(variables.iter().map(own));
        Ok(self)
    }

    /// Creates a shell with the real `orc`, `kubectl` and `helm` on the cluster of a case.
    pub(crate) fn of_case(env: &Env) -> Result<Self> {
        let folders = &env.testbed("the real 'orc'")?.folders;
        let program = this_program()?;
        let programs = program.parent().context("this program is in no folder")?;
        ensure!(
            programs.join("orc").is_file(),
            "'{}' has no 'orc'; run 'cargo build -p cli'",
            programs.display()
        );
        let cache = folders.run.join(format!("kubectl-{}", env.namespace));
        Self::new(&folders.kubeconfig(), &cache)?.with(programs, &[])
    }

    /// Returns the shell with another kubeconfig.
    pub(crate) fn with_kubeconfig(self, kubeconfig: PathBuf) -> Self {
        Self { kubeconfig, ..self }
    }

    /// Writes a kubeconfig that acts as this user. `orc` has no flag for it.
    pub(crate) async fn kubeconfig_of(&self, env: &Env, user: &str) -> Result<PathBuf> {
        let text = self
            .check("kubectl config view --raw --minify --flatten --output json")
            .await?;
        let mut kubeconfig: Value = serde_json::from_str(&text)?;
        let known = kubeconfig.pointer_mut("/users/0/user");
        known.context("no user")?["as"] = json!(user);
        let folder = &env.testbed("a kubeconfig")?.folders.run;
        let path = folder.join(format!("{user}-{}.json", env.namespace));
        fs::write(&path, kubeconfig.to_string())?;
        Ok(path)
    }

    /// For commands that need no cluster.
    pub(crate) fn without_cluster() -> Result<Self> {
        Self::new(Path::new("/dev/null"), &std::env::temp_dir())
    }

    /// Runs one command to its end, whatever that is.
    pub(crate) async fn run(&self, line: &str) -> Result<Output> {
        let child = tokio::process::Command::new("sh")
            .args(["-c", line])
            .current_dir(layout::repository())
            .env("PATH", &self.path)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECACHEDIR", &self.cache)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(LIMIT, child)
            .await
            .with_context(|| format!("'{line}' took longer than {} s", LIMIT.as_secs()))?
            .with_context(|| format!("cannot run '{line}'"))?;
        Ok(Output {
            status: output.status,
            stdout: String::from_utf8(output.stdout)
                .with_context(|| format!("'{line}' printed what is not text"))?,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs a command that must succeed, and without a warning of the API server.
    pub(crate) async fn check(&self, line: &str) -> Result<String> {
        let output = self.run(line).await?;
        let Output {
            status,
            stdout,
            stderr,
        } = output;
        ensure!(
            status.success(),
            "'{line}' {}: {}{}",
            ended(status),
            stdout,
            stderr.trim_end()
        );
        ensure!(
            !has_warning(&stderr),
            "'{line}' warns: {}",
            stderr.trim_end()
        );
        Ok(stdout)
    }

    /// Reads objects: `kubectl get … --output json`.
    pub(crate) async fn get(&self, what: &str) -> Result<Value> {
        let text = self
            .check(&format!("kubectl get {what} --output json"))
            .await?;
        serde_json::from_str(&text).with_context(|| format!("'kubectl get {what}' printed no JSON"))
    }
}

/// Whether kubectl printed a warning of the API server. These begin a line. The log line that kubectl writes when
/// it cancels its own watch has the word in the middle: `I1117 … "Warning: watch ended with error"`.
fn has_warning(stderr: &str) -> bool {
    stderr.lines().any(|line| line.starts_with("Warning:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_warnings_of_the_api_server_count() {
        let own =
            "I1117 22:40:41.171199    4638 reflector.go:664] \"Warning: watch ended with error\"";
        for (stderr, expected) in [
            ("", false),
            (own, false),
            ("Warning: unknown field \"spec.x\"", true),
            (&[own, "\nWarning: it is deprecated\n"].concat(), true),
        ] {
            assert_eq!(has_warning(stderr), expected, "{stderr}");
        }
    }
}
