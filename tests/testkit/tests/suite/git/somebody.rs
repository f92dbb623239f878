//! The real git, with credentials.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use anyhow::Result;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use testkit::git::Credentials;

/// Somebody with credentials and a folder.
pub(crate) struct Somebody {
    folder: TempDir,
    settings: Vec<String>,
}

impl Somebody {
    pub(crate) fn new(credentials: &Credentials) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut settings = vec![
            "user.name=Somebody".to_owned(),
            "user.email=somebody@example.com".to_owned(),
        ];
        for (key, value) in credentials {
            let file = folder.path().join(key);
            fs::write(&file, value)?;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
        }
        let file = |key: &str| folder.path().join(key).display().to_string();
        if credentials.contains_key("ca.crt") {
            settings.push(format!("http.sslCAInfo={}", file("ca.crt")));
        }
        if credentials.contains_key("password") {
            settings.push(format!(
                "credential.helper=!echo username=$(cat {}); echo password=$(cat {}); :",
                file("username"),
                file("password")
            ));
        }
        if credentials.contains_key("identity") {
            settings.push(format!(
                "core.sshCommand=ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=yes \
                 -o IdentitiesOnly=yes -i {} -o UserKnownHostsFile={} -o GlobalKnownHostsFile=none",
                file("identity"),
                file("known_hosts")
            ));
        }
        Ok(Self { folder, settings })
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["60", "git"])
            .args(self.settings.iter().flat_map(|setting| ["-c", setting]))
            .args(arguments)
            .current_dir(self.folder.path())
            // A proxy or other authorities of who runs the test.
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("LC_ALL", "C");
        command
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(arguments).output()?;
        assert!(output.status.success(), "{arguments:?}: {}", said(&output));
        Ok(String::from_utf8(output.stdout)?)
    }

    pub(crate) fn refused(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(arguments).output()?;
        assert!(!output.status.success(), "{arguments:?} succeeded");
        Ok(said(&output))
    }

    /// Whether git still waits after a moment.
    pub(crate) fn hears_nothing(&self, arguments: &[&str]) -> Result<bool> {
        let mut command = self.command(arguments);
        let mut git = command.stdout(Stdio::null()).spawn()?;
        std::thread::sleep(Duration::from_millis(700));
        let waits = git.try_wait()?.is_none();
        if waits {
            self.end(&mut git)?;
        }
        Ok(waits)
    }

    /// Not by SIGKILL: 'timeout' passes this signal on to git.
    pub(crate) fn end(&self, git: &mut Child) -> Result<()> {
        kill(Pid::from_raw(git.id().try_into()?), Signal::SIGTERM)?;
        git.wait()?;
        Ok(())
    }

    /// Clones and makes a commit that is not pushed yet.
    pub(crate) fn prepare(&self, url: &str) -> Result<()> {
        self.git(&["clone", "--quiet", url, "work"])?;
        fs::write(self.work().join("new.md"), "new")?;
        self.git(&["-C", "work", "add", "."])?;
        let message = "Something\n\nRun: 1234";
        self.git(&["-C", "work", "commit", "--quiet", "-m", message])?;
        Ok(())
    }
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
