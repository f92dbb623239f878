//! Tests of the built binary without a cluster.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output, Stdio},
};

use anyhow::{Context, Result};

fn run(program: &Path, arguments: &[&str], kubeconfig: Option<&Path>) -> Result<Output> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().stdin(Stdio::null());
    if let Some(path) = kubeconfig {
        command.env("KUBECONFIG", path);
    }
    command.output().context("cannot start it")
}

fn orc(arguments: &[&str], kubeconfig: Option<&Path>) -> Result<(Option<i32>, String, String)> {
    let output = run(Path::new(env!("CARGO_BIN_EXE_orc")), arguments, kubeconfig)?;
    Ok((
        output.status.code(),
        String::from_utf8(output.stdout)?,
        String::from_utf8(output.stderr)?,
    ))
}

#[test]
fn a_server_that_does_not_answer_is_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let config = folder.path().join("kubeconfig");
    // Nothing listens on port 1 of this machine.
    fs::write(
        &config,
        "{apiVersion: v1, kind: Config, current-context: c,
         clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}],
         users: [{name: c, user: {}}], contexts: [{name: c, context: {cluster: c, user: c}}]}",
    )?;
    let (code, out, err) = orc(&["get"], Some(&config))?;
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    assert!(
        err.contains("list taskruns.orchestrator.io in namespace 'default'")
            && err.contains("refused"),
        "{err}"
    );
    let (code, _, err) = orc(&["wait", "shop-7", "--timeout", "1s"], Some(&config))?;
    assert_eq!(code, Some(2), "not 3, 'it goes on': {err}");
    assert!(
        err.contains("trying again") && err.contains("is not known"),
        "{err}"
    );
    let (code, out, _) = orc(&["version"], Some(&config))?;
    assert_eq!(code, Some(0));
    assert!(
        out.starts_with("orc ") && out.contains("not reached"),
        "{out}"
    );

    let (code, _, err) = orc(&["get"], None)?;
    assert!(code == Some(2) && err.contains("no kubeconfig"), "{err}");
    Ok(())
}

#[test]
fn a_manifest_is_made_without_a_cluster() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let task = folder.path().join("task.md");
    fs::write(&task, "Do it.\n")?;
    let task = task.to_str().context("not text")?;
    let line = [
        "submit",
        task,
        "--service=shop",
        "--task-id=7",
        "--agent=writer",
        "-n=team",
        "--dry-run=client",
    ];
    let (code, out, err) = orc(&line, None)?;
    assert_eq!(code, Some(0), "{err}");
    for wanted in ["name: shop-7\n", "namespace: team\n", "filename: task.md\n"] {
        assert!(out.contains(wanted), "{out}");
    }
    Ok(())
}

#[test]
fn a_link_makes_it_a_plugin() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let link = folder.path().join("kubectl-orc");
    symlink(env!("CARGO_BIN_EXE_orc"), &link)?;
    let output = run(&link, &["wait", "--help"], None)?;
    let said = String::from_utf8(output.stdout)?;
    assert!(said.contains("Usage: kubectl orc wait"), "{said}");
    Ok(())
}

/// Uses the shells that this machine has. bash is always installed.
#[test]
fn completions_are_read_by_their_shells() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let cases = [
        ("bash", "source SCRIPT && complete -p orc"),
        (
            "zsh",
            "autoload -U compinit && compinit -D && source SCRIPT && print -r -- $_comps[orc]",
        ),
        ("fish", "source SCRIPT; complete -C 'orc sub'"),
    ];
    let mut tried = 0;
    for (shell, check) in cases {
        let (code, script, err) = orc(&["completion", shell], None)?;
        assert_eq!(code, Some(0), "{err}");
        let path = folder.path().join(shell);
        fs::write(&path, script)?;
        let check = check.replace("SCRIPT", path.to_str().context("not text")?);
        let result = Command::new(shell)
            .args(["-c", &check])
            .env("HOME", folder.path())
            .output();
        let output = match result {
            Ok(output) => output,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                println!("no {shell} on this machine");
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        tried += 1;
        let out = String::from_utf8(output.stdout)?;
        let err = String::from_utf8(output.stderr)?;
        assert!(output.status.success() && err.is_empty(), "{shell}: {err}");
        let wanted = if shell == "fish" { "submit" } else { "_orc" };
        assert!(out.contains(wanted), "{shell}: {out}");
    }
    assert!(tried > 0);
    Ok(())
}
