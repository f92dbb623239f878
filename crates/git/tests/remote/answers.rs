//! Failures of the connection, and servers that are no Git servers.

use std::time::{Duration, Instant};

use git::Reason;
use testkit::git::{Behaviour, Server};

use crate::hostile::Hostile;
use crate::support::{Data, TIMEOUT, expect, question, with};

#[tokio::test]
async fn missing_repositories_are_named() {
    let server = Server::on_loopback().unwrap();
    for (url, data) in [
        (server.https_url("none"), server.credentials_https()),
        (server.ssh_url("none"), server.credentials_ssh()),
    ] {
        expect(&question(&url, &data), Reason::RepositoryNotFound, "").await;
    }
}

#[tokio::test]
async fn silence_ends_with_the_timeout() {
    let mut server = Server::on_loopback().unwrap();
    let repository = server.create("docs", "main", &[("a", "b")]).unwrap();
    repository.set_behaviour(&Behaviour::Silent).unwrap();
    let silent = Hostile::silent();
    let mut questions = vec![
        question(&server.https_url("docs"), &server.credentials_https()),
        question(&server.ssh_url("docs"), &server.credentials_ssh()),
    ];
    questions.extend(["https", "http", "ssh"].map(|scheme| {
        let data = if scheme == "ssh" {
            server.credentials_ssh()
        } else {
            Data::new()
        };
        question(&silent.url(scheme), &data)
    }));
    for mut question in questions {
        question.timeout = Duration::from_secs(1);
        let start = Instant::now();
        expect(&question, Reason::RepositoryUnreachable, "within 1 s").await;
        assert!(start.elapsed() < TIMEOUT, "{:?}", start.elapsed());
    }
    silent.wait_until_left();

    server.stop().unwrap();
    for (url, data) in [
        (server.https_url("docs"), server.credentials_https()),
        (server.ssh_url("docs"), server.credentials_ssh()),
    ] {
        expect(
            &question(&url, &data),
            Reason::RepositoryUnreachable,
            "no connection",
        )
        .await;
    }
}

#[tokio::test]
async fn the_libraries_own_task_ends_with_the_question() {
    let server = Server::on_loopback().unwrap();
    let trickling = Hostile::trickling();
    let mut question = question(&trickling.url("ssh"), &server.credentials_ssh());
    question.timeout = Duration::from_secs(1);
    expect(&question, Reason::RepositoryUnreachable, "within 1 s").await;
    // The test does not wait for the task. The task must make progress while this one sleeps.
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    trickling.wait_until_left();
}

#[tokio::test]
async fn other_answers_are_refused() {
    let server = Server::on_loopback().unwrap();
    let repository = server.create("docs", "main", &[("a", "b")]).unwrap();
    let https = question(&server.https_url("docs"), &server.credentials_https());
    for (code, reason) in [
        (403, Reason::AuthenticationFailed),
        (404, Reason::RepositoryNotFound),
        (429, Reason::RepositoryUnreachable),
        (500, Reason::RepositoryUnreachable),
        (503, Reason::RepositoryUnreachable),
    ] {
        repository.set_behaviour(&Behaviour::Status(code)).unwrap();
        expect(&https, reason, &code.to_string()).await;
    }
    let elsewhere = "https://me:canary@elsewhere.example/docs.git".to_owned();
    repository
        .set_behaviour(&Behaviour::Redirect(elsewhere))
        .unwrap();
    expect(
        &https,
        Reason::RepositoryUnreachable,
        "redirects to 'elsewhere.example'",
    )
    .await;

    let git =
        "HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\n\r\n";
    let html = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>";
    let refused = format!("{git}0030ERR access denied\x1b[31m, you sent \nhush-2718!");
    let huge = "\u{ff}".repeat(5 << 19);
    let line = format!("{} refs/heads/main-2\n", "1".repeat(40));
    let line = format!("{:04x}{line}", line.len() + 4);
    let unended = format!("{git}{}", line.repeat(90_000));
    let http = with(
        &with(&Data::new(), "username", "me"),
        "password",
        "hush-2718",
    );
    for (scheme, answer, reason, words) in [
        ("http", "garbage", Reason::RepositoryUnreachable, "not http"),
        ("http", &huge, Reason::RepositoryUnreachable, "not http"),
        (
            "http",
            html,
            Reason::RepositoryUnreachable,
            "'text/html' and not as a git server",
        ),
        (
            "http",
            &format!("{git}{huge}"),
            Reason::RepositoryUnreachable,
            "is not git's",
        ),
        (
            "http",
            &format!("{git}{}", "f".repeat(5 << 20)),
            Reason::RepositoryUnreachable,
            "is not git's",
        ),
        ("http", &unended, Reason::RepositoryTooLarge, "4 MiB"),
        (
            "http",
            git,
            Reason::RepositoryUnreachable,
            "ended too early",
        ),
        (
            "http",
            &refused,
            Reason::AuthenticationFailed,
            "'access denied [31m, you sent ***!'",
        ),
        (
            "https",
            "garbage",
            Reason::RepositoryUnreachable,
            "TLS failed",
        ),
        (
            "ssh",
            "garbage\r\n",
            Reason::RepositoryUnreachable,
            "ssh failed",
        ),
        ("ssh", &huge, Reason::RepositoryUnreachable, "ssh failed"),
        (
            "ssh",
            &format!("SSH-2.0-x\r\n{huge}"),
            Reason::RepositoryUnreachable,
            "ssh failed",
        ),
        ("ssh", "", Reason::RepositoryUnreachable, "ssh failed"),
    ] {
        let hostile = Hostile::answering(answer);
        let data = match scheme {
            "ssh" => server.credentials_ssh(),
            "http" => http.clone(),
            _ => Data::new(),
        };
        expect(&question(&hostile.url(scheme), &data), reason, words).await;
    }
}

#[tokio::test]
async fn questions_are_checked() {
    let server = Server::on_loopback().unwrap();
    let mut question = question(&server.https_url("docs"), &server.credentials_https());
    for branches in [vec![], vec!["a"; 5], vec!["-x"], vec!["a\nb"]] {
        question.branches = branches.into_iter().map(str::to_owned).collect();
        expect(&question, Reason::BranchNotFound, "").await;
    }
}
