//! `step kernel`: the supervisor of a kernel. The tests take the part of the runner.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fixture::HANG;

/// A kernel that ends when the runner asks.
const OBEYS: &str = "while [ ! -e \"$ORCHESTRATOR_LINK/stop\" ]; do sleep 0.05; done";

/// A container with a kernel `fake` that is a shell script.
struct Container {
    folder: TempDir,
    supervisor: Child,
    /// The lock of the runner.
    runner: Option<File>,
}

impl Container {
    fn new(script: &str) -> Container {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["link", "home", "notebook", "jupyter/kernels/fake"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        let spec = json!({ "argv": ["/bin/sh", "-c", script, "sh", "{connection_file}"], "env": { "OWN": "variable" } });
        fs::write(path("jupyter/kernels/fake/kernel.json"), spec.to_string()).unwrap();
        let supervisor = Command::new(env!("CARGO_BIN_EXE_step"))
            .arg("kernel")
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", path("home"))
            .env("JUPYTER_PATH", path("jupyter"))
            .env("ORCHESTRATOR_LINK", path("link"))
            .env("ORCHESTRATOR_DIRECTORY", path("notebook"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Container {
            folder,
            supervisor,
            runner: None,
        }
    }

    /// Starts the runner, which wants this kernel.
    fn connected(script: &str, kernel: &str) -> Container {
        let mut container = Container::new(script);
        container.hold();
        container.write("connection.json", &json!({ "kernel_name": kernel }));
        container
    }

    fn link(&self, name: &str) -> PathBuf {
        self.folder.path().join("link").join(name)
    }

    /// Takes the lock of the runner as the runner does: the lock is never visible without being held.
    fn hold(&mut self) {
        let lock = File::create(self.link(".lock")).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        fs::rename(self.link(".lock"), self.link("runner.lock")).unwrap();
        self.runner = Some(lock);
    }

    fn write(&self, name: &str, value: &Value) {
        let new = self.link(".new");
        fs::write(&new, value.to_string()).unwrap();
        fs::rename(new, self.link(name)).unwrap();
    }

    fn stop(&self) {
        self.write("stop", &json!({}));
    }

    /// Waits until the kernel writes this file into its directory.
    fn wait_for(&self, name: &str) -> String {
        let path = self.folder.path().join("notebook").join(name);
        let start = Instant::now();
        loop {
            match fs::read_to_string(&path) {
                Ok(text) if text.ends_with('\n') => return text,
                Ok(_) | Err(_) => assert!(start.elapsed() < HANG, "no file '{name}'"),
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the end of the supervisor. Returns its exit code and the record of the kernel's end.
    fn ended(mut self) -> (Option<i32>, Option<Value>) {
        let start = Instant::now();
        let status: ExitStatus = loop {
            if let Some(status) = self.supervisor.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < HANG, "the supervisor does not end");
            thread::sleep(Duration::from_millis(10));
        };
        let record = self.link("exit.json");
        let record = record
            .exists()
            .then(|| serde_json::from_str(&fs::read_to_string(record).unwrap()).unwrap());
        let lock = File::open(self.link("supervisor.lock")).unwrap();
        let is_free = flock(&lock, FlockOperation::NonBlockingLockShared).is_ok();
        assert!(is_free, "the lock is held after the end");
        (status.code(), record)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // It ended already, unless the test failed.
        if let Ok(None) = self.supervisor.try_wait() {
            self.supervisor.kill().unwrap();
            self.supervisor.wait().unwrap();
        }
    }
}

fn record(code: i32, signal: Option<i32>, is_requested: bool) -> Value {
    json!({ "code": code, "signal": signal, "oomKills": 0, "requested": is_requested })
}

#[test]
fn a_kernel_that_ends_on_request_is_a_success() {
    let script = ["pwd > where; echo \"$OWN $1\" > seen; ", OBEYS].concat();
    let container = Container::connected(&script, "fake");
    let seen = container.wait_for("seen");
    let connection = container.folder.path().join("home/.connection.json");
    assert_eq!(seen, format!("variable {}\n", connection.display()));
    let directory = container
        .folder
        .path()
        .join("notebook")
        .canonicalize()
        .unwrap();
    let found = fs::canonicalize(container.wait_for("where").trim()).unwrap();
    assert_eq!(found, directory);
    let lock = File::open(container.link("supervisor.lock")).unwrap();
    assert!(flock(&lock, FlockOperation::NonBlockingLockShared).is_err());
    drop(lock);
    assert!(!container.link("exit.json").exists());
    container.stop();
    assert_eq!(container.ended(), (Some(0), Some(record(0, None, true))));
}

/// F13: an exit code of 0 without a request is no success.
#[test]
fn f13_a_kernel_that_ends_by_itself_is_a_failure() {
    for (script, expected) in [
        ("exit 0", record(0, None, false)),
        ("exit 3", record(3, None, false)),
        ("kill -9 $$", record(0, Some(9), false)),
    ] {
        let container = Container::connected(script, "fake");
        assert_eq!(container.ended(), (Some(1), Some(expected)), "{script}");
    }
}

#[test]
fn a_kernel_that_does_not_end_is_killed_after_its_grace() {
    let container = Container::connected(
        "trap '' TERM INT; echo up > up; while :; do sleep 1; done",
        "fake",
    );
    container.wait_for("up");
    let start = Instant::now();
    container.stop();
    assert_eq!(container.ended(), (Some(0), Some(record(0, Some(9), true))));
    assert!(
        start.elapsed() >= Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn a_request_to_stop_before_the_connection_needs_no_kernel() {
    let mut container = Container::new(OBEYS);
    container.hold();
    container.stop();
    container.runner = None;
    assert_eq!(container.ended(), (Some(0), None));
}

#[test]
fn a_kernel_does_not_outlive_its_runner() {
    let mut container = Container::connected("echo up > up; while :; do sleep 1; done", "fake");
    container.wait_for("up");
    container.runner = None;
    assert_eq!(
        container.ended(),
        (Some(1), Some(record(0, Some(9), false)))
    );
    let mut container = Container::new(OBEYS);
    container.hold();
    container.runner = None;
    assert_eq!(container.ended(), (Some(1), None));
}

#[test]
fn a_missing_kernel_is_recorded_with_those_that_exist() {
    for name in ["ir", "../kernels/fake", "fake/."] {
        let (code, found) = Container::connected(OBEYS, name).ended();
        let found = found.unwrap();
        assert_eq!(code, Some(1));
        assert_eq!(found["notFound"]["name"], name);
        let kernels = found["notFound"]["found"].as_array().unwrap();
        assert!(kernels.contains(&json!("fake")), "{found}");
        let searched = found["notFound"]["searched"].as_array().unwrap();
        assert!(
            searched.contains(&json!("/usr/share/jupyter/kernels")),
            "{found}"
        );
    }
}

#[test]
fn a_program_that_does_not_exist_is_recorded() {
    let container = Container::new("");
    let spec = container
        .folder
        .path()
        .join("jupyter/kernels/fake/kernel.json");
    fs::write(spec, json!({ "argv": ["/absent"] }).to_string()).unwrap();
    let mut container = container;
    container.hold();
    container.write("connection.json", &json!({ "kernel_name": "fake" }));
    let (code, found) = container.ended();
    assert_eq!(code, Some(1));
    let message = found.unwrap()["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("cannot start '/absent'"), "{message}");
}
