//! The Git server of the testbed, used by the real git.

mod cluster;
mod somebody;

use std::{
    fs,
    io::{ErrorKind, Read},
    net::TcpStream,
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use testkit::git::{Behaviour, Credentials, Entry, Hook, Repository, Server};

use somebody::{Somebody, said};

const PUSH: [&str; 5] = ["-C", "work", "push", "origin", "HEAD:docs/run"];

fn server_with_docs() -> Result<(Server, Repository)> {
    let server = Server::on_loopback()?;
    let docs = server.create("team/docs", "main", &[("README.md", "hello")])?;
    Ok((server, docs))
}

#[test]
fn it_starts_fast() -> Result<()> {
    let start = Instant::now();
    let (mut server, _docs) = server_with_docs()?;
    let started = start.elapsed();
    server.stop()?;
    server.resume()?;
    println!("first start {started:?}, all {:?}", start.elapsed());
    // On an idle machine a third of a second.
    assert!(started < Duration::from_secs(30), "{started:?}");
    Ok(())
}

#[test]
fn clone_and_push_over_both_speak_version_two() -> Result<()> {
    let (server, docs) = server_with_docs()?;
    let ways = [
        (server.https_url("team/docs"), server.credentials_https()),
        (server.http_url("team/docs"), server.credentials_https()),
        (server.ssh_url("team/docs"), server.credentials_ssh()),
    ];
    for (number, (url, credentials)) in ways.into_iter().enumerate() {
        let before = docs.activity()?;
        let somebody = Somebody::new(&credentials)?;
        somebody.prepare(&url)?;
        let readme = fs::read_to_string(somebody.work().join("README.md"))?;
        assert_eq!(readme, "hello");
        let branch = format!("docs/{number}");
        somebody.git(&["-C", "work", "push", "origin", &format!("HEAD:{branch}")])?;
        let head = somebody.git(&["-C", "work", "rev-parse", "HEAD"])?;
        assert_eq!(docs.head(&branch)?.as_deref(), Some(head.trim()));

        let log = docs.log(&branch)?;
        assert_eq!(log.len(), 2);
        assert_eq!(log[0].id, head.trim());
        assert_eq!(log[0].parents, [log[1].id.clone()]);
        assert_eq!(log[0].author, "Somebody <somebody@example.com>");
        assert_eq!(log[0].message, "Something\n\nRun: 1234");
        assert_eq!(log[0].trailers, [("Run".to_owned(), "1234".to_owned())]);
        assert_eq!(docs.read(&branch, "new.md")?, Some(b"new".to_vec()));
        assert_eq!(docs.read(&branch, "none.md")?, None);

        let after = docs.activity()?;
        assert_eq!(after.read_visits, before.read_visits + 1, "{url}");
        assert_eq!(after.write_visits, before.write_visits + 1, "{url}");
        assert_eq!(after.fetches, before.fetches + 1, "{url}");
        assert_eq!(after.pushes, before.pushes + 1, "{url}");
        assert_eq!(after.accepted, before.accepted + 1, "{url}");
        let versions: Vec<_> = after.versions.into_iter().collect();
        assert_eq!(versions, ["version=2"], "{url}");
    }
    assert_eq!(docs.branches()?.len(), 4);
    let password = String::from_utf8(server.credentials_https()["password"].clone())?;
    assert!(!server.log_text()?.contains(&password));
    Ok(())
}

/// The header is not only in the log: the server answers in that version.
#[test]
fn the_server_itself_speaks_version_two() -> Result<()> {
    let (server, _docs) = server_with_docs()?;
    for (url, credentials) in [
        (server.https_url("team/docs"), server.credentials_https()),
        (server.ssh_url("team/docs"), server.credentials_ssh()),
    ] {
        let somebody = Somebody::new(&credentials)?;
        let mut command = somebody.command(&["ls-remote", &url]);
        let output = command.env("GIT_TRACE_PACKET", "1").output()?;
        assert!(said(&output).contains("< version 2"), "{}", said(&output));
    }
    Ok(())
}

#[test]
fn wrong_credentials_are_refused() -> Result<()> {
    let (server, docs) = server_with_docs()?;
    let other = Server::on_loopback()?;
    let (https, ssh) = (server.https_url("team/docs"), server.ssh_url("team/docs"));
    let with = |good: Credentials, key: &str, bad: Option<&Credentials>| {
        let mut credentials = good;
        match bad {
            Some(bad) => credentials.insert(key.to_owned(), bad[key].clone()),
            None => credentials.insert(key.to_owned(), Vec::new()),
        };
        credentials
    };
    let (good_https, good_ssh) = (server.credentials_https(), server.credentials_ssh());
    let (bad_https, bad_ssh) = (other.credentials_https(), other.credentials_ssh());
    for (url, credentials, wanted) in [
        (
            &https,
            with(good_https.clone(), "password", Some(&bad_https)),
            "Authentication failed",
        ),
        (
            &https,
            with(good_https, "ca.crt", Some(&bad_https)),
            "certificate",
        ),
        (
            &ssh,
            with(good_ssh.clone(), "identity", Some(&bad_ssh)),
            "Permission denied (publickey)",
        ),
        (
            &ssh,
            with(good_ssh.clone(), "known_hosts", None),
            "Host key verification failed",
        ),
        // The same place, another key: the host was changed.
        (
            &ssh,
            with(
                good_ssh,
                "known_hosts",
                Some(&renamed(&bad_ssh, &other, &server)?),
            ),
            "HAS CHANGED",
        ),
    ] {
        let error = Somebody::new(&credentials)?.refused(&["ls-remote", url])?;
        assert!(error.contains(wanted), "{wanted}: {error}");
    }
    assert_eq!(docs.activity()?.read_visits, 0);
    Ok(())
}

/// Of `SCHEME://HOST:PORT/NAME.git`.
fn port_of(url: &str) -> Result<u16> {
    let end = url.rsplit(':').next().unwrap_or_default();
    let port = end.split('/').next().unwrap_or_default();
    port.parse().with_context(|| format!("no port in '{url}'"))
}

/// The known hosts of one server, under the address of another.
fn renamed(credentials: &Credentials, from: &Server, to: &Server) -> Result<Credentials> {
    let port = |server: &Server| port_of(&server.ssh_url("a")).map(|port| format!("]:{port} "));
    let text = String::from_utf8(credentials["known_hosts"].clone())?;
    let text = text.replace(&port(from)?, &port(to)?);
    Ok(Credentials::from([(
        "known_hosts".to_owned(),
        text.into_bytes(),
    )]))
}

#[test]
fn what_is_not_there_is_said_to_be_missing() -> Result<()> {
    let (server, _docs) = server_with_docs()?;
    for (url, credentials, wanted) in [
        (
            server.https_url("none"),
            server.credentials_https(),
            "not found",
        ),
        (
            server.ssh_url("none"),
            server.credentials_ssh(),
            "does not appear to be a git repository",
        ),
    ] {
        let error = Somebody::new(&credentials)?.refused(&["ls-remote", &url])?;
        assert!(error.contains(wanted), "{error}");
    }
    // The key opens git's commands only.
    let somebody = Somebody::new(&server.credentials_ssh())?;
    let url = server.ssh_url("team/docs");
    let error = somebody.refused(&["ls-remote", "--upload-pack=id;git-upload-pack", &url])?;
    assert!(error.contains("only git may use this key"), "{error}");
    Ok(())
}

#[test]
fn hooks_refuse_and_delay() -> Result<()> {
    let (server, docs) = server_with_docs()?;
    let somebody = Somebody::new(&server.credentials_https())?;
    somebody.prepare(&server.https_url("team/docs"))?;

    docs.set_hook(&Hook::Refuse("it's protected".to_owned()))?;
    let error = somebody.refused(&PUSH)?;
    assert!(error.contains("remote: it's protected"), "{error}");
    assert!(error.contains("pre-receive hook declined"), "{error}");
    let activity = docs.activity()?;
    assert_eq!((activity.pushes, activity.accepted), (1, 0));

    for (hook, changes_at_once) in [
        (Hook::SlowBefore(Duration::from_secs(6)), false),
        (Hook::SlowAfter(Duration::from_secs(6)), true),
    ] {
        docs.delete_branch("docs/run")?;
        docs.set_hook(&hook)?;
        let pushes = docs.activity()?.pushes;
        let start = Instant::now();
        let mut push = somebody.command(&PUSH).spawn()?;
        while docs.activity()?.pushes == pushes {
            assert!(start.elapsed() < Duration::from_secs(60), "no push");
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(800));
        assert!(push.try_wait()?.is_none(), "{hook:?}: answered");
        assert_eq!(
            docs.head("docs/run")?.is_some(),
            changes_at_once,
            "{hook:?}"
        );
        assert!(push.wait()?.success());
        assert!(start.elapsed() >= Duration::from_secs(2));
        assert!(docs.head("docs/run")?.is_some());
    }
    Ok(())
}

#[test]
fn the_default_branch_rules_hold() -> Result<()> {
    let (server, docs) = server_with_docs()?;
    let somebody = Somebody::new(&server.credentials_ssh())?;
    somebody.prepare(&server.ssh_url("team/docs"))?;
    docs.commit("main", "Meanwhile", &[("other.md", Entry::File(b"x"))])?;
    let push = ["-C", "work", "push", "--force", "origin", "HEAD:main"];
    let error = somebody.refused(&push)?;
    assert!(error.contains("denying non-fast-forward"), "{error}");
    let error = somebody.refused(&["-C", "work", "push", "origin", ":main"])?;
    assert!(error.contains("deletion prohibited"), "{error}");

    docs.set_config("http.receivepack", "false")?;
    let somebody = Somebody::new(&server.credentials_https())?;
    somebody.prepare(&server.https_url("team/docs"))?;
    assert!(somebody.refused(&PUSH)?.contains("403"));
    Ok(())
}

#[test]
fn a_repository_is_silent_slow_broken_or_elsewhere() -> Result<()> {
    let (server, docs) = server_with_docs()?;
    server.create("other", "main", &[("file", "elsewhere")])?;
    let ways = [
        Somebody::new(&server.credentials_https())?,
        Somebody::new(&server.credentials_ssh())?,
    ];
    let urls = [server.https_url("team/docs"), server.ssh_url("team/docs")];
    for (somebody, url) in ways.iter().zip(&urls) {
        docs.set_behaviour(&Behaviour::Silent)?;
        assert!(somebody.hears_nothing(&["ls-remote", url])?, "{url}");

        docs.set_behaviour(&Behaviour::Slow(300))?;
        let start = Instant::now();
        somebody.git(&["ls-remote", url])?;
        assert!(
            start.elapsed() > Duration::from_secs(1),
            "{:?}",
            start.elapsed()
        );

        // Others are not affected.
        docs.set_behaviour(&Behaviour::Normal)?;
        somebody.git(&["ls-remote", url])?;
    }
    let [somebody, _] = &ways;
    docs.set_behaviour(&Behaviour::Status(503))?;
    let error = somebody.refused(&["ls-remote", &urls[0]])?;
    assert!(error.contains("503"), "{error}");
    let elsewhere = server.https_url("other");
    docs.set_behaviour(&Behaviour::Redirect(elsewhere))?;
    somebody.git(&[
        "-c",
        "http.followRedirects=true",
        "clone",
        "--quiet",
        &urls[0],
        "work",
    ])?;
    let text = fs::read_to_string(somebody.work().join("file"))?;
    assert_eq!(text, "elsewhere");
    Ok(())
}

#[test]
fn a_stopped_server_refuses_a_frozen_one_hangs() -> Result<()> {
    let (mut server, _docs) = server_with_docs()?;
    let ways = [
        (
            server.https_url("team/docs"),
            Somebody::new(&server.credentials_https())?,
        ),
        (
            server.ssh_url("team/docs"),
            Somebody::new(&server.credentials_ssh())?,
        ),
    ];
    server.freeze()?;
    for (url, somebody) in &ways {
        assert!(somebody.hears_nothing(&["ls-remote", url])?, "{url}");
    }
    server.thaw()?;
    for (url, somebody) in &ways {
        somebody.git(&["ls-remote", url])?;
    }
    server.stop()?;
    for (url, somebody) in &ways {
        let error = somebody.refused(&["ls-remote", url])?.to_lowercase();
        assert!(
            error.contains("refused")
                || error.contains("couldn't connect")
                || error.contains("failed to connect"),
            "{error}"
        );
    }
    server.resume()?;
    for (url, somebody) in &ways {
        somebody.git(&["ls-remote", url])?;
    }
    Ok(())
}

/// Neither a client that waits nor one that went away keeps anything of it alive.
#[test]
fn nothing_outlives_the_server() -> Result<()> {
    let (mut server, docs) = server_with_docs()?;
    docs.set_behaviour(&Behaviour::Silent)?;
    let here = docs.folder.ancestors().nth(3).context("no folder")?;
    let home = format!("HOME={}\0", here.display());
    let left = || -> Result<usize> {
        let mut count = 0;
        for entry in fs::read_dir("/proc")? {
            // Most have none, or are gone meanwhile.
            if let Ok(text) = fs::read(entry?.path().join("environ")) {
                count += usize::from(String::from_utf8_lossy(&text).contains(&home));
            }
        }
        Ok(count)
    };
    let wait_until_left = |wanted: usize| -> Result<()> {
        let start = Instant::now();
        while left()? != wanted {
            ensure!(
                start.elapsed() < Duration::from_secs(20),
                "{} left",
                left()?
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    };
    for (url, credentials) in [
        (server.https_url("team/docs"), server.credentials_https()),
        (server.ssh_url("team/docs"), server.credentials_ssh()),
    ] {
        for waits in [true, false] {
            let somebody = Somebody::new(&credentials)?;
            let mut git = somebody.command(&["ls-remote", &url]).spawn()?;
            wait_until_left(1).with_context(|| format!("no silent program: {url}"))?;
            if !waits {
                somebody.end(&mut git)?;
            }
            server.stop()?;
            wait_until_left(0)?;
            git.wait()?;
            server.resume()?;
        }
    }
    Ok(())
}

/// Also one that has not said yet who it is.
#[test]
fn stopping_cuts_connections() -> Result<()> {
    let (mut server, _docs) = server_with_docs()?;
    let mut stream = TcpStream::connect((server.address, port_of(&server.ssh_url("a"))?))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.read_exact(&mut [0; 4]).context("no greeting")?;
    server.stop()?;
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    Ok(())
}

/// Starts itself once more, as the owner that is killed.
#[test]
fn the_servers_die_with_their_owner() -> Result<()> {
    const OWNER: &str = "TESTKIT_TEST_GIT_OWNER";
    if let Some(folder) = std::env::var_os(OWNER) {
        let server = Server::on_loopback()?;
        let ports = [server.https_url("a"), server.ssh_url("a")].join("\n");
        fs::write(PathBuf::from(folder).join("urls"), ports)?;
        std::thread::sleep(Duration::from_secs(60));
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let mut owner = Command::new(std::env::current_exe()?)
        .args(["--exact", "git::the_servers_die_with_their_owner"])
        .env(OWNER, folder.path())
        .env("TMPDIR", folder.path())
        .stdout(Stdio::null())
        .spawn()?;
    let start = Instant::now();
    let mut urls = String::new();
    while urls.lines().count() < 2 {
        assert!(start.elapsed() < Duration::from_secs(60), "no server");
        std::thread::sleep(Duration::from_millis(20));
        urls = fs::read_to_string(folder.path().join("urls")).unwrap_or_default();
    }
    let ports: Vec<u16> = urls.lines().map(port_of).collect::<Result<_>>()?;
    for port in &ports {
        TcpStream::connect(("127.0.0.1", *port))?;
    }
    owner.kill()?;
    owner.wait()?;
    let start = Instant::now();
    for port in ports {
        while TcpStream::connect(("127.0.0.1", port)).is_ok() {
            assert!(start.elapsed() < Duration::from_secs(60), "still there");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

/// An answer is lost with the server: what it served dies with it, and the branch has moved.
#[test]
fn stopping_cuts_what_is_served() -> Result<()> {
    let (mut server, docs) = server_with_docs()?;
    for (url, credentials) in [
        (server.https_url("team/docs"), server.credentials_https()),
        (server.ssh_url("team/docs"), server.credentials_ssh()),
    ] {
        let somebody = Somebody::new(&credentials)?;
        somebody.prepare(&url)?;
        docs.delete_branch("docs/run")?;
        docs.set_hook(&Hook::SlowAfter(Duration::from_secs(50)))?;
        let push = somebody.command(&PUSH).stderr(Stdio::piped()).spawn()?;
        let start = Instant::now();
        while docs.head("docs/run")?.is_none() {
            assert!(start.elapsed() < Duration::from_secs(20), "no push");
            std::thread::sleep(Duration::from_millis(20));
        }
        server.stop()?;
        let output = push.wait_with_output()?;
        assert!(!output.status.success(), "{}", said(&output));
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{:?}",
            start.elapsed()
        );
        server.resume()?;
    }
    Ok(())
}

#[test]
fn all_kinds_of_entries_are_kept() -> Result<()> {
    let (server, docs) = server_with_docs()?;
    let other = docs.head("main")?.context("no branch")?;
    let commit = docs.commit(
        "odd",
        "Odd things",
        &[
            ("a \"b\"\\c", Entry::File(b"\0\xff")),
            ("run", Entry::Program(b"#!/bin/sh\n")),
            ("link", Entry::Link("/etc/passwd")),
            ("module", Entry::Submodule(&other)),
            ("gone", Entry::File(b"x")),
        ],
    )?;
    let commit = {
        assert_eq!(docs.read(&commit, "gone")?, Some(b"x".to_vec()));
        docs.commit("odd", "Less", &[("gone", Entry::Removed)])?
    };
    let files = docs.files(&commit)?;
    let wanted = [
        ("a \"b\"\\c", "100644"),
        ("link", "120000"),
        ("module", "160000"),
        ("run", "100755"),
    ];
    let wanted = wanted.map(|(path, mode)| (path.to_owned(), mode.to_owned()));
    assert_eq!(files, wanted.into());
    assert_eq!(docs.read("odd", "a \"b\"\\c")?, Some(b"\0\xff".to_vec()));
    docs.set_branch("odd", &other)?;
    assert_eq!(docs.head("odd")?, Some(other));
    assert!(server.create("team/docs", "main", &[]).is_err());
    assert!(server.create("../docs", "main", &[]).is_err());
    assert!(server.repository("none").is_err());
    Ok(())
}
