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
    let (code, _, err) = orc(&["--kubeconfig", "/nosuch", "get"], None)?;
    assert_eq!(code, Some(2));
    assert_eq!(
        err,
        "error: the kubeconfig '/nosuch' cannot be read: No such file or directory (os error 2)\n"
    );
    let (code, _, err) = orc(&["wait", "x", "--timeout", "abc"], None)?;
    assert!(
        code == Some(2) && err.contains("such as 30s, 10m or 1h30m"),
        "{err}"
    );
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

/// A directory of `$PATH` with the program under all of its names, and a kubeconfig of two contexts
/// whose server refuses connections.
fn installed() -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    for name in ["orc", "kubectl-orc", "kubectl_complete-orc"] {
        symlink(env!("CARGO_BIN_EXE_orc"), folder.path().join(name))?;
    }
    fs::write(
        folder.path().join("kubeconfig"),
        "{apiVersion: v1, kind: Config, current-context: here,
         clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}],
         users: [{name: c, user: {}}], contexts: [{name: here, context: {cluster: c, user: c}},
            {name: there, context: {cluster: c, user: c}}]}",
    )?;
    Ok(folder)
}

/// Runs a script, or returns `None` if this machine does not have the shell. CI has all shells.
#[expect(
    clippy::print_stdout,
    reason = "the output of the test names a shell that was not tested"
)]
fn shell(name: &str, script: &str, folder: &Path) -> Result<Option<String>> {
    let path = std::env::var("PATH")?;
    let result = Command::new(name)
        .args(["-c", script])
        .env("HOME", folder)
        .env("PATH", format!("{}:{path}", folder.display()))
        .env("KUBECONFIG", folder.join("kubeconfig"))
        .stdin(Stdio::null())
        .output();
    let output = match result {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
            assert!(!is_ci, "no {name}: install the packages of the testbed");
            println!("no {name} on this machine");
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let err = String::from_utf8(output.stderr)?;
    assert!(output.status.success() && err.is_empty(), "{name}: {err}");
    Ok(Some(String::from_utf8(output.stdout)?))
}

/// Uses the shells that this machine has. bash is always installed.
#[test]
fn completions_are_read_by_their_shells() -> Result<()> {
    let folder = installed()?;
    let bash = r#"source <(orc completion bash) && complete -p orc
        complete_line() { COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _orc; echo "${COMPREPLY[*]}"; }
        complete_line orc sub
        complete_line orc --context ''
        complete_line orc get --context = th
        complete_line orc get --sort ''"#;
    let found = shell("bash", bash, folder.path())?.context("no bash")?;
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(
        lines,
        [
            "complete -F _orc orc",
            "submit",
            "here there",
            "there",
            "age finished name phase"
        ]
    );
    let zsh = "autoload -U compinit && compinit -D && source <(orc completion zsh) && print -r -- $_comps[orc]";
    if let Some(found) = shell("zsh", zsh, folder.path())? {
        assert_eq!(found.trim(), "_orc");
    }
    let fish = "orc completion fish | source; complete -C 'orc sub'; complete -C 'orc --context '";
    if let Some(found) = shell("fish", fish, folder.path())? {
        for word in ["submit", "here", "there"] {
            assert!(found.contains(word), "{found}");
        }
    }
    Ok(())
}

/// kubectl asks the file `kubectl_complete-orc`.
#[test]
fn kubectl_completes_the_plugin() -> Result<()> {
    let folder = installed()?;
    let script = "command -v kubectl >/dev/null || { echo none; exit 0; }
        kubectl __complete orc get --context th 2>/dev/null";
    let found = shell("bash", script, folder.path())?.context("no bash")?;
    if found.trim() == "none" {
        println!("no kubectl on this machine");
    } else {
        assert!(found.lines().any(|line| line == "there"), "{found}");
    }
    Ok(())
}

/// A server that accepts a connection and never answers, as behind a firewall.
#[test]
fn a_completion_is_given_in_time_without_a_cluster() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = silent.local_addr()?;
    let config = folder.path().join("kubeconfig");
    fs::write(
        &config,
        format!(
            "{{apiVersion: v1, kind: Config, current-context: c,
             clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}],
             users: [{{name: c, user: {{}}}}], contexts: [{{name: c, context: {{cluster: c, user: c}}}}]}}"
        ),
    )?;
    // A login program that hangs must not block the prompt, either.
    let login = folder.path().join("login");
    fs::write(
        &login,
        format!(
            "{{apiVersion: v1, kind: Config, current-context: c,
             clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}],
             users: [{{name: c, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1,
                command: sleep, args: ['20'], interactiveMode: Never}}}}}}],
             contexts: [{{name: c, context: {{cluster: c, user: c}}}}]}}"
        ),
    )?;
    for config in [&config, &login] {
        let begin = std::time::Instant::now();
        let mut command = Command::new(env!("CARGO_BIN_EXE_orc"));
        command
            .args(["__complete", "cancel", ""])
            .env("KUBECONFIG", config);
        // A login program that goes on keeps the pipes open, so only the process is waited for.
        let path = folder.path().join("out");
        let status = command
            .stdin(Stdio::null())
            .stdout(fs::File::create(&path)?)
            .stderr(Stdio::null())
            .status()?;
        let took = begin.elapsed();
        assert_eq!(
            (status.code(), fs::read_to_string(&path)?),
            (Some(0), ":4\n".to_owned())
        );
        assert!(took < std::time::Duration::from_secs(10), "{took:?}");
    }
    Ok(())
}
