//! Responses of servers in all versions and formats.

use std::process::Command;

use git::remote::{Heads, heads, references};
use git::{Commit, Reason};
use testkit::git::Server;

use crate::hostile::Hostile;
use crate::support::{Data, expect, git, question};

#[tokio::test]
async fn heads_are_those_of_the_repository() {
    let server = Server::on_loopback().unwrap();
    let repository = server.create("group/docs", "main", &[("a", "b")]).unwrap();
    let main = repository.head("main").unwrap().unwrap();
    repository.set_branch("main-2", &main).unwrap();
    let wanted = Heads::from([
        ("main".to_owned(), Some(Commit::parse(&main).unwrap())),
        ("docs/none".to_owned(), None),
    ]);
    for (url, data) in [
        (server.https_url("group/docs"), server.credentials_https()),
        (
            server.https_url("group/docs") + "/",
            server.credentials_https(),
        ),
        (server.ssh_url("group/docs"), server.credentials_ssh()),
    ] {
        assert_eq!(
            heads(&question(&url, &data)).await.unwrap(),
            wanted,
            "{url}"
        );
    }
    let mut without_ca = server.credentials_https();
    without_ca.remove("ca.crt");
    let http = question(&server.http_url("group/docs"), &without_ca);
    assert_eq!(heads(&http).await.unwrap(), wanted);
    // The servers used the second version of the protocol. The first version lists all references.
    let versions = repository.activity().unwrap().versions;
    assert_eq!(versions.iter().collect::<Vec<_>>(), ["version=2"]);
}

#[tokio::test]
async fn tags_are_read_as_the_commits_that_they_point_to() {
    let server = Server::on_loopback().unwrap();
    let repository = server.create("docs", "main", &[("a", "b")]).unwrap();
    let main = repository.head("main").unwrap().unwrap();
    git(&repository.folder, &["tag", "light", &main]);
    git(
        &repository.folder,
        &[
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b.invalid",
            "tag",
            "-m",
            "x",
            "annotated",
            &main,
        ],
    );
    for (url, data) in [
        (server.https_url("docs"), server.credentials_https()),
        (server.ssh_url("docs"), server.credentials_ssh()),
    ] {
        let mut question = question(&url, &data);
        question.branches = vec!["main".to_owned()];
        question.tags = ["light", "annotated", "main"].map(str::to_owned).to_vec();
        let found = references(&question).await.unwrap();
        let commit = |tag: &str| found.tags[tag].as_ref().map(Commit::as_str);
        assert_eq!(commit("light"), Some(main.as_str()), "{url}");
        assert_eq!(commit("annotated"), Some(main.as_str()), "{url}");
        assert_eq!(commit("main"), None, "a branch is no tag");
        assert!(found.branches["main"].is_some());
    }
}

#[tokio::test]
async fn the_first_version_of_the_protocol_is_read() {
    let server = Server::on_loopback().unwrap();
    let repository = server.create("docs", "main", &[("a", "b")]).unwrap();
    let main = repository.head("main").unwrap().unwrap();
    for extra in [None, Some("version=1")] {
        let mut list = b"001e# service=git-upload-pack\n0000".to_vec();
        let mut upload = Command::new("git-upload-pack");
        upload
            .args(["--stateless-rpc", "--advertise-refs"])
            .arg(&repository.folder);
        upload
            .env("GIT_CONFIG_COUNT", "1")
            .env("GIT_CONFIG_KEY_0", "safe.directory")
            .env("GIT_CONFIG_VALUE_0", "*");
        upload.envs(extra.map(|version| ("GIT_PROTOCOL", version)));
        let output = upload.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        list.extend(output.stdout);
        let head =
            "HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-advertisement\r\n\r\n";
        let old = Hostile::answering([head.as_bytes(), &list].concat());
        let found = heads(&question(&old.url("http"), &Data::new()))
            .await
            .unwrap();
        assert_eq!(
            found["main"].as_ref().map(Commit::as_str),
            Some(main.as_str())
        );
        assert_eq!(found["docs/none"], None);
    }
}

#[tokio::test]
async fn servers_that_refuse_the_environment_are_read() {
    let server = Server::on_loopback().unwrap();
    let repository = server.create("docs", "main", &[("a", "b")]).unwrap();
    let program = repository
        .folder
        .ancestors()
        .nth(2)
        .unwrap()
        .join("serve-ssh");
    let text = std::fs::read_to_string(&program).unwrap();
    std::fs::write(
        &program,
        text.replace("note visit", "unset GIT_PROTOCOL\nnote visit"),
    )
    .unwrap();
    let found = heads(&question(
        &server.ssh_url("docs"),
        &server.credentials_ssh(),
    ))
    .await
    .unwrap();
    assert!(found["main"].is_some() && found["docs/none"].is_none());
    let versions = repository.activity().unwrap().versions;
    assert_eq!(versions.iter().collect::<Vec<_>>(), ["version=0"]);
}

#[tokio::test]
async fn many_references_do_not_matter() {
    let server = Server::on_loopback().unwrap();
    let repository = server.create("docs", "main", &[("a", "b")]).unwrap();
    let main = repository.head("main").unwrap().unwrap();
    // With these long names, all references together exceed the limit.
    let name = "x".repeat(200);
    let mut lines: Vec<String> = (0..20_000)
        .map(|number| format!("{main} refs/heads/{name}-{number}"))
        .chain([format!("{main} refs/heads/main")])
        .collect();
    lines.sort_unstable();
    let packed = format!(
        "# pack-refs with: peeled fully-peeled sorted \n{}\n",
        lines.join("\n")
    );
    std::fs::write(repository.folder.join("packed-refs"), packed).unwrap();
    let listed = git(&repository.folder, &["for-each-ref", "--format=%(refname)"]);
    assert!(listed.len() > 4 << 20, "{}", listed.len());
    for (url, data) in [
        (server.https_url("docs"), server.credentials_https()),
        (server.ssh_url("docs"), server.credentials_ssh()),
    ] {
        let mut question = question(&url, &data);
        question.branches = vec!["main".to_owned(), format!("{}-7", "x".repeat(197))];
        let found = heads(&question).await.unwrap();
        assert_eq!(
            found["main"].as_ref().map(Commit::as_str),
            Some(main.as_str())
        );
        question.branches = vec!["x".to_owned()];
        expect(&question, Reason::RepositoryTooLarge, "4 MiB").await;
    }
}

#[tokio::test]
async fn other_object_formats_are_read() {
    let server = Server::on_loopback().unwrap();
    let repository = server.create("docs", "main", &[("a", "b")]).unwrap();
    std::fs::remove_dir_all(&repository.folder).unwrap();
    let parent = repository.folder.parent().unwrap();
    let folder = repository.folder.to_string_lossy();
    git(
        parent,
        &[
            "init",
            "-q",
            "--bare",
            "--object-format=sha256",
            "-b",
            "main",
            &folder,
        ],
    );
    for (url, data) in [
        (server.https_url("docs"), server.credentials_https()),
        (server.ssh_url("docs"), server.credentials_ssh()),
    ] {
        // The repository is empty at first.
        assert_eq!(heads(&question(&url, &data)).await.unwrap()["main"], None);
    }
    let tree = "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321";
    let who = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
    git(
        &repository.folder,
        &["hash-object", "-t", "tree", "-w", "/dev/null"],
    );
    let commit = git(
        &repository.folder,
        &[&who[..], &["commit-tree", "-m", "a", tree]].concat(),
    );
    let commit = String::from_utf8(commit).unwrap().trim().to_owned();
    git(
        &repository.folder,
        &["update-ref", "refs/heads/main", &commit],
    );
    for (url, data) in [
        (server.https_url("docs"), server.credentials_https()),
        (server.ssh_url("docs"), server.credentials_ssh()),
    ] {
        let found = heads(&question(&url, &data)).await.unwrap();
        assert_eq!(
            found["main"].as_ref().map(Commit::as_str),
            Some(commit.as_str())
        );
    }
}
