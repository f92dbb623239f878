//! Trust in hosts, authorities, addresses and credentials.

use std::process::Command;

use git::remote::heads;
use git::{Networks, Reason, Url};
use testkit::git::Server;

use crate::support::{Data, error, expect, key_pair, key_pair_as, question, text, with};

#[tokio::test]
async fn hosts_are_known_in_every_way_that_ssh_knows() {
    let server = Server::on_loopback().unwrap();
    server.create("docs", "main", &[("a", "b")]).unwrap();
    let (url, data) = (server.ssh_url("docs"), server.credentials_ssh());
    let lines = text(&data, "known_hosts");
    let hashed = {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("known_hosts");
        std::fs::write(&file, &lines).unwrap();
        let hash = Command::new("ssh-keygen")
            .args(["-q", "-H", "-f"])
            .arg(&file)
            .output();
        assert!(hash.unwrap().status.success());
        std::fs::read_to_string(&file).unwrap()
    };
    assert!(
        hashed.contains("|1|") && !hashed.contains("127.0.0.1"),
        "{hashed}"
    );
    let only = |kind: &str| -> String {
        let lines = lines.lines().filter(|line| line.contains(kind));
        lines.map(|line| format!("{line}\n")).collect()
    };
    for known in [hashed, only("ssh-rsa"), only("ssh-ed25519")] {
        assert!(!known.is_empty());
        let question = question(&url, &with(&data, "known_hosts", known));
        assert!(heads(&question).await.unwrap()["main"].is_some());
    }

    let (_, stranger) = key_pair("ed25519");
    let port = Url::parse(&url, false).unwrap().port();
    let other = format!("[127.0.0.1]:{port} {stranger}\n");
    let revoked: String = lines
        .lines()
        .map(|line| format!("@revoked {line}\n{line}\n"))
        .collect();
    let authority: String = lines
        .lines()
        .map(|line| format!("@cert-authority {line}\n"))
        .collect();
    let name = format!("[127.0.0.1]:{port}");
    let begin = format!("'known_hosts', in a line that begins with '{name}'");
    for (known, words) in [
        // ssh in the Pod does not accept it either.
        (lines.replace(&name, "127.0.0.1"), begin.as_str()),
        (
            lines.replace("127.0.0.1", "127.0.0.2"),
            "is not in 'known_hosts'; it offered ssh-ed25519 SHA256:",
        ),
        (other, "is not the one in 'known_hosts'"),
        (revoked, "is revoked"),
        (authority, "is not in 'known_hosts'"),
        ("nonsense".to_owned(), "is not in 'known_hosts'"),
    ] {
        expect(
            &question(&url, &with(&data, "known_hosts", known)),
            Reason::HostKeyUnknown,
            words,
        )
        .await;
    }
}

#[tokio::test]
async fn refused_credentials_are_named() {
    let server = Server::on_loopback().unwrap();
    server.create("docs", "main", &[("a", "b")]).unwrap();
    let (https, data) = (server.https_url("docs"), server.credentials_https());
    let wrong = question(&https, &with(&data, "password", "canary-2718"));
    expect(
        &wrong,
        Reason::AuthenticationFailed,
        "does not accept the username and password",
    )
    .await;
    assert!(!error(&wrong).await.message.contains("canary"));
    let mut none = data.clone();
    none.retain(|key, _| key == "ca.crt");
    expect(
        &question(&https, &none),
        Reason::AuthenticationFailed,
        "none were given",
    )
    .await;

    let (ssh, data) = (server.ssh_url("docs"), server.credentials_ssh());
    for kind in ["ed25519", "rsa", "ecdsa"] {
        let (identity, _) = key_pair(kind);
        let wrong = question(&ssh, &with(&data, "identity", identity.clone()));
        expect(
            &wrong,
            Reason::AuthenticationFailed,
            "does not accept the identity SHA256:",
        )
        .await;
    }
    let broken = "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n";
    let broken = question(&ssh, &with(&data, "identity", broken));
    expect(&broken, Reason::CredentialsInvalid, "'identity'").await;
    let mut mixed = question(&ssh, &data);
    mixed.url = Url::parse(&https, false).unwrap();
    expect(&mixed, Reason::CredentialsInvalid, "another scheme").await;
}

#[tokio::test]
async fn only_the_given_authority_is_trusted() {
    let server = Server::on_loopback().unwrap();
    let other = Server::on_loopback().unwrap();
    server.create("docs", "main", &[("a", "b")]).unwrap();
    let (url, data) = (server.https_url("docs"), server.credentials_https());
    let wrong = with(&data, "ca.crt", other.credentials_https()["ca.crt"].clone());
    expect(
        &question(&url, &wrong),
        Reason::CertificateNotTrusted,
        "'ca.crt'",
    )
    .await;
    let mut system = data.clone();
    system.remove("ca.crt");
    expect(
        &question(&url, &system),
        Reason::CertificateNotTrusted,
        "'ca.crt'",
    )
    .await;
    // The authority is correct, the name is wrong.
    let elsewhere = url.replace("127.0.0.1", "localhost");
    expect(
        &question(&elsewhere, &data),
        Reason::CertificateNotTrusted,
        "not valid for name",
    )
    .await;
    let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let nonsense = with(&data, "ca.crt", nonsense);
    expect(
        &question(&url, &nonsense),
        Reason::CredentialsInvalid,
        "'ca.crt'",
    )
    .await;
}

#[tokio::test]
async fn addresses_and_names_are_refused() {
    let server = Server::on_loopback().unwrap();
    server.create("docs", "main", &[("a", "b")]).unwrap();
    for (url, data) in [
        (server.https_url("docs"), server.credentials_https()),
        (server.ssh_url("docs"), server.credentials_ssh()),
    ] {
        for (host, networks, words) in [
            ("127.0.0.1", vec![], "it is loopback"),
            ("127.0.0.1", vec!["10.0.0.0/8"], "it is loopback"),
            ("localhost", vec![], "the machine itself"),
            // The name is allowed, its address is not.
            ("localhost", vec!["10.0.0.0/8"], "it is loopback"),
            ("[::ffff:127.0.0.1]", vec![], "it is loopback"),
            ("git.tools.svc", vec![], "a name of the cluster"),
        ] {
            let mut question = question(&url.replace("127.0.0.1", host), &data);
            question.networks = Networks::parse(networks).unwrap();
            expect(&question, Reason::AddressNotAllowed, words).await;
        }
    }
    let activity = server.repository("docs").unwrap().activity().unwrap();
    assert_eq!(activity.read_visits, 0);
    let nowhere = question("https://nowhere.invalid/docs", &Data::new());
    expect(
        &nowhere,
        Reason::RepositoryUnreachable,
        "'nowhere.invalid' has no address",
    )
    .await;
}

#[tokio::test]
async fn identities_of_every_kind_log_in() {
    let server = Server::on_loopback().unwrap();
    let repository = server.create("docs", "main", &[("a", "b")]).unwrap();
    let keys = repository
        .folder
        .ancestors()
        .nth(2)
        .unwrap()
        .join("authorized-keys");
    for (kind, form) in [
        ("rsa", "RFC4716"),
        ("rsa", "PEM"),
        ("rsa", "PKCS8"),
        ("ecdsa", "RFC4716"),
        ("ed25519", "RFC4716"),
    ] {
        let (identity, public) = key_pair_as(kind, form);
        std::fs::write(&keys, format!("{public}\n")).unwrap();
        let data = with(&server.credentials_ssh(), "identity", identity);
        let found = heads(&question(&server.ssh_url("docs"), &data)).await;
        assert!(
            found.as_ref().is_ok_and(|heads| heads["main"].is_some()),
            "{kind} {form}: {found:?}"
        );
    }
}
