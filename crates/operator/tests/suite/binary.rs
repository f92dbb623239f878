//! Tests of the built binary without a cluster: rejected inputs and their error messages.

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Command, Output, Stdio},
};

use anyhow::{Context, Result};

fn orchestrator(arguments: &[&str]) -> Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_orchestrator"))
        .args(arguments)
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .context("cannot start it")
}

/// Runs the binary with this configuration. Returns whether it succeeded, and its error output.
fn with(config: &str, more: &[&str]) -> Result<(bool, String)> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("config.yaml");
    fs::write(&path, config)?;
    let mut arguments = vec!["--config", path.to_str().context("not text")?];
    arguments.extend(more);
    let output = orchestrator(&arguments)?;
    let said = String::from_utf8(output.stderr)?;
    Ok((output.status.success(), said))
}

#[test]
fn r16_without_its_configuration_it_does_not_start() {
    let missing = "/no/such/folder/config.yaml";
    let output = orchestrator(&["--config", missing]).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains(missing) && said.contains("cannot read"),
        "{said}"
    );
    assert!(
        !Path::new("/config/config.yaml").exists(),
        "this machine hides what the next line shows"
    );
    let output = orchestrator(&[]).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("'/config/config.yaml'"),
        "{said}"
    );
}

#[test]
fn r16_an_unknown_key_is_named_with_its_line() {
    for check in [&["--check-config"][..], &[]] {
        let (is_success, said) = with("concurrency: 4\n\nconcurency: 8\n", check).unwrap();
        assert!(!is_success, "{said}");
        assert!(
            said.contains("line 3") && said.contains("`concurency`"),
            "{said}"
        );
        assert!(said.contains("config.yaml"), "{said}");
    }
}

#[test]
fn a_configuration_can_be_checked_without_a_cluster() {
    for config in ["", "concurrency: 4\n"] {
        assert_eq!(
            with(config, &["--check-config"]).unwrap(),
            (true, String::new())
        );
    }
}

#[test]
fn what_an_operator_would_not_heed_is_refused() {
    let some = "watchNamespaces: [team-a]\n";
    let check = |operator| with(some, &["--check-config", operator]).unwrap();
    assert_eq!(check("--operator=tasks"), (true, String::new()));
    assert_eq!(check("--operator=gateway"), (true, String::new()));
    let (is_success, said) = check("--operator=tenants");
    assert!(
        !is_success && said.contains("watchNamespaces: must be empty"),
        "{said}"
    );
}

#[test]
fn it_does_not_guess_a_cluster() {
    let (is_success, said) = with("", &["--probe-address", "127.0.0.1:0"]).unwrap();
    assert!(!is_success && said.contains("--kubeconfig"), "{said}");
    let missing = [
        "--probe-address",
        "127.0.0.1:0",
        "--kubeconfig",
        "/no/such/kubeconfig",
    ];
    let (is_success, said) = with("", &missing).unwrap();
    assert!(
        !is_success && said.contains("'/no/such/kubeconfig'"),
        "{said}"
    );
}

#[test]
fn a_taken_port_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let text = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}]}"#;
    fs::write(&kubeconfig, text).unwrap();
    for (which, other) in [
        ("--probe-address", "--metrics-address"),
        ("--metrics-address", "--probe-address"),
    ] {
        let (is_success, said) = with(
            "",
            &[
                which,
                &address,
                other,
                "127.0.0.1:0",
                "--kubeconfig",
                kubeconfig.to_str().unwrap(),
            ],
        )
        .unwrap();
        assert!(!is_success && said.contains(&address), "{which}: {said}");
    }
}

#[test]
fn it_knows_its_version() {
    let output = orchestrator(&["--version"]).unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        said,
        format!("orchestrator {}\n", env!("CARGO_PKG_VERSION"))
    );
}
