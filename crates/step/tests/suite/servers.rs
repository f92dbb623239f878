//! Servers that reject requests, give wrong responses or do not respond.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use git::Reason;
use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use testkit::git::{Behaviour, Credentials, Network, Server};

use crate::fixture::{HANG, Run, Scheme};

fn with(credentials: &Credentials, key: &str, value: &[u8]) -> Credentials {
    let mut changed = credentials.clone();
    changed.insert(key.to_owned(), value.to_vec());
    changed
}

/// Checks that both steps fail in the same way.
fn both_fail(run: &Run, reason: Reason, words: &str) {
    for step in ["clone", "publish"] {
        run.step(step).failed(reason, words);
        fs::remove_dir_all(run.path("source")).unwrap();
        fs::create_dir(run.path("source")).unwrap();
    }
}

#[test]
fn wrong_password() {
    let mut run = Run::new(Scheme::Https);
    let good = run.server.credentials_https();
    run.set_credentials(&with(&good, "password", b"wrong-canary-password"));
    both_fail(&run, Reason::AuthenticationFailed, "check the Secret");
}

#[test]
fn no_password() {
    let mut run = Run::new(Scheme::Https);
    let mut credentials = run.server.credentials_https();
    credentials.remove("username");
    credentials.remove("password");
    run.set_credentials(&credentials);
    both_fail(&run, Reason::AuthenticationFailed, "and the run has none");
}

#[test]
fn half_a_secret() {
    let mut run = Run::new(Scheme::Https);
    let mut credentials = run.server.credentials_https();
    credentials.remove("password");
    run.set_credentials(&credentials);
    both_fail(&run, Reason::CredentialsInvalid, "'password'");
}

#[test]
fn certificate_of_another_authority() {
    let mut run = Run::new(Scheme::Https);
    let other = Server::on_loopback().unwrap().credentials_https();
    let good = run.server.credentials_https();
    run.set_credentials(&with(&good, "ca.crt", &other["ca.crt"]));
    both_fail(
        &run,
        Reason::CertificateNotTrusted,
        "verification failed; put the",
    );
}

#[test]
fn certificate_of_no_known_authority() {
    let mut run = Run::new(Scheme::Https);
    let mut credentials = run.server.credentials_https();
    credentials.remove("ca.crt");
    run.set_credentials(&credentials);
    both_fail(
        &run,
        Reason::CertificateNotTrusted,
        "verification failed; put the",
    );
}

#[test]
fn unknown_host_key() {
    let mut run = Run::new(Scheme::Ssh);
    let good = run.server.credentials_ssh();
    let other = Server::on_loopback().unwrap().credentials_ssh();
    run.set_credentials(&with(&good, "known_hosts", &other["known_hosts"]));
    both_fail(
        &run,
        Reason::HostKeyUnknown,
        "host key is known for [127.0.0.1]",
    );
}

/// A line with only the host name applies to port 22. The operator treats it in the same way.
#[test]
fn host_key_that_is_known_for_another_port() {
    let mut run = Run::new(Scheme::Ssh);
    let good = run.server.credentials_ssh();
    let lines = String::from_utf8(good["known_hosts"].clone()).unwrap();
    let name = lines.split(' ').next().unwrap();
    assert!(name.starts_with("[127.0.0.1]:"), "{lines}");
    let bare = lines.replace(name, "127.0.0.1");
    run.set_credentials(&with(&good, "known_hosts", bare.as_bytes()));
    let advice = format!("'known_hosts', in a line that begins with '{name}'");
    both_fail(&run, Reason::HostKeyUnknown, &advice);
}

#[test]
fn changed_host_key() {
    let mut run = Run::new(Scheme::Ssh);
    let good = run.server.credentials_ssh();
    let known = String::from_utf8(good["known_hosts"].clone()).unwrap();
    let other = Server::on_loopback().unwrap().credentials_ssh();
    let other = String::from_utf8(other["known_hosts"].clone()).unwrap();
    let host = known.split(' ').next().unwrap();
    let changed: String = other
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(_, key)| format!("{host} {key}\n"))
        .collect();
    run.set_credentials(&with(&good, "known_hosts", changed.as_bytes()));
    both_fail(
        &run,
        Reason::HostKeyUnknown,
        "the server's host key has changed, it is SHA256:",
    );
}

#[test]
fn wrong_identity() {
    let mut run = Run::new(Scheme::Ssh);
    let good = run.server.credentials_ssh();
    let other = Server::on_loopback().unwrap().credentials_ssh();
    run.set_credentials(&with(&good, "identity", &other["identity"]));
    both_fail(&run, Reason::AuthenticationFailed, "Permission denied");
}

#[test]
fn no_such_repository() {
    for scheme in [Scheme::Https, Scheme::Ssh] {
        let mut run = Run::new(scheme);
        let url = run.variables["STEP_URL"].replace("project", "nothing");
        run.set("STEP_URL", &url);
        both_fail(&run, Reason::RepositoryNotFound, "check the URL");
    }
}

#[test]
fn refused_address_and_plain_http() {
    let mut run = Run::new(Scheme::Https);
    run.set("STEP_ALLOWED_NETWORKS", "");
    both_fail(&run, Reason::AddressNotAllowed, "127.0.0.1");
    let url = run.server.http_url("project");
    run.set("STEP_ALLOWED_NETWORKS", "127.0.0.0/8");
    run.set("STEP_URL", &url);
    run.step("clone").failed(Reason::CloneFailed, "STEP_URL");
}

#[test]
fn plain_http_if_configured() {
    let mut run = Run::new(Scheme::Https);
    let url = run.server.http_url("project");
    let mut credentials = run.server.credentials_https();
    credentials.remove("ca.crt");
    run.set_credentials(&credentials);
    run.set("STEP_URL", &url);
    run.set("STEP_PLAIN_HTTP", "true");
    assert_eq!(run.step("clone").code, Some(0));
    run.write("docs/new.md", "new");
    run.step("publish").pushed();
}

#[test]
fn server_that_is_gone() {
    for scheme in [Scheme::Https, Scheme::Ssh] {
        let mut run = Run::new(scheme);
        run.server.stop().unwrap();
        both_fail(&run, Reason::RepositoryUnreachable, "cannot connect");
    }
}

#[test]
fn silent_server_ends_with_the_time() {
    for scheme in [Scheme::Https, Scheme::Ssh] {
        let mut run = Run::new(scheme);
        run.repository.set_behaviour(&Behaviour::Silent).unwrap();
        run.set("STEP_TIMEOUT_SECONDS", "2");
        let start = Instant::now();
        both_fail(
            &run,
            Reason::RepositoryUnreachable,
            "did not finish within the 2 s",
        );
        assert!(start.elapsed() < HANG);
    }
}

#[test]
fn redirect_is_not_followed() {
    let run = Run::new(Scheme::Https);
    run.server.create("other", "main", &[("a", "b")]).unwrap();
    let target = run.server.https_url("other");
    run.repository
        .set_behaviour(&Behaviour::Redirect(target))
        .unwrap();
    both_fail(&run, Reason::RepositoryUnreachable, "30");
    let visits = run.server.repository("other").unwrap().activity().unwrap();
    assert_eq!(visits.read_visits, 0);
}

#[test]
fn broken_server() {
    let run = Run::new(Scheme::Https);
    for (status, reason, words) in [
        (500, Reason::RepositoryUnreachable, "500"),
        (503, Reason::RepositoryUnreachable, "503"),
        (403, Reason::AuthenticationFailed, "403"),
        (404, Reason::RepositoryNotFound, "not found"),
    ] {
        run.repository
            .set_behaviour(&Behaviour::Status(status))
            .unwrap();
        both_fail(&run, reason, words);
    }
}

/// Waits until a process has a child, and returns it.
fn child_of(id: Pid) -> Pid {
    let deadline = Instant::now() + HANG;
    while Instant::now() < deadline {
        let mut children = Vec::new();
        // A child belongs to the thread that created it.
        for task in fs::read_dir(format!("/proc/{id}/task")).unwrap() {
            let path = task.unwrap().path().join("children");
            children.extend(fs::read_to_string(path));
        }
        if let Some(child) = children.concat().split_whitespace().next() {
            return Pid::from_raw(child.parse().unwrap());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("process {id} has no child");
}

/// Starts a clone that waits for a silent server, and sends SIGTERM to the step.
fn ends_when_told_to(before: &[&str], step_of: impl Fn(Pid) -> Pid) {
    let run = Run::new(Scheme::Https);
    run.repository.set_behaviour(&Behaviour::Silent).unwrap();
    let mut line = before.to_vec();
    line.extend([env!("CARGO_BIN_EXE_step"), "clone"]);
    let mut child = Command::new(line[0])
        .args(&line[1..])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .envs(&run.variables)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let step = step_of(Pid::from_raw(child.id().try_into().unwrap()));
    // The step waits for git.
    child_of(step);
    signal::kill(step, Signal::SIGTERM).unwrap();
    let start = Instant::now();
    // A process without a handler is terminated by the signal and has no exit code.
    assert_eq!(child.wait().unwrap().code(), Some(143));
    // A kubelet waits for 30 s by default.
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn step_ends_when_told_to() {
    ends_when_told_to(&[], |id| id);
}

/// In a container, the step is the first process. The kernel drops signals that it does not handle.
#[test]
#[ignore = "root: run by 'cargo xtask test'"]
fn step_ends_when_told_to_as_the_first_process() {
    ends_when_told_to(&["unshare", "--pid", "--fork", "--kill-child"], child_of);
}

#[test]
fn wrong_calls_are_told() {
    let mut run = Run::new(Scheme::Https);
    for arguments in [&[][..], &["push"], &["clone", "publish"], &["--help"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_step"))
            .args(arguments)
            .env_clear()
            .envs(&run.variables)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("usage"));
    }
    run.variables.remove("STEP_BASE_COMMIT");
    run.step("clone")
        .failed(Reason::CloneFailed, "STEP_BASE_COMMIT");
    run.step("publish")
        .failed(Reason::PublishFailed, "STEP_BASE_COMMIT");
    run.variables.remove("STEP_REPORT");
    let output = run.command("clone").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stdout).contains("STEP_REPORT"));
}

/// git cannot resolve the name itself, because a wrapper of git first unmounts the file that contains it.
#[test]
#[ignore = "root: run by 'cargo xtask test'"]
fn git_talks_only_to_the_checked_address() {
    const NAME: &str = "git.example.org";
    for scheme in [Scheme::Https, Scheme::Ssh] {
        let mut run = Run::new(scheme);
        let server = Server::start(Network::machine().unwrap(), &[NAME]).unwrap();
        run.repository = server
            .create("project", "main", &[("docs/a", "b")])
            .unwrap();
        let (url, credentials) = match scheme {
            Scheme::Https => (server.https_url("project"), server.credentials_https()),
            Scheme::Ssh => (server.ssh_url("project"), server.credentials_ssh()),
        };
        assert!(url.contains(NAME), "{url}");
        run.set("STEP_URL", &url);
        let base = run.repository.head("main").unwrap().unwrap();
        run.set("STEP_BASE_COMMIT", &base);
        run.set_credentials(&credentials);
        let hosts = run.path("hosts");
        fs::write(&hosts, format!("127.0.0.1 {NAME}\n")).unwrap();
        fs::create_dir(run.path("bin")).unwrap();
        let git = run.path("bin/git");
        fs::write(
            &git,
            "#!/bin/sh\numount /etc/hosts\nexec /usr/bin/git \"$@\"\n",
        )
        .unwrap();
        fs::set_permissions(&git, fs::Permissions::from_mode(0o755)).unwrap();
        let script = format!(
            "mount --bind {} /etc/hosts && exec {} clone",
            hosts.display(),
            env!("CARGO_BIN_EXE_step")
        );
        let output = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", &script])
            .env_clear()
            .env(
                "PATH",
                format!("{}:/usr/sbin:/usr/bin:/bin", run.path("bin").display()),
            )
            .envs(&run.variables)
            .output()
            .unwrap();
        let done = run.done(output);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(run.source("docs/a").exists());
    }
}
