use serde_json::json;

use super::*;
use crate::run::docs::Purpose;

fn run(spec: serde_json::Value) -> DocsRun {
    serde_json::from_value(json!({
        "apiVersion": "orchestrator.io/v1alpha1", "kind": "DocsRun",
        "metadata": { "name": "a", "namespace": "team", "uid": "uid-a" },
        "spec": spec,
    }))
    .unwrap()
}

fn request(secret: &str, purpose: Purpose) -> HeadsRequest {
    let run = run(json!({
        "repositoryUrl": "https://git.example.com:8443/a", "sourceBranch": "main",
        "agentName": "writer", "credentialsSecretRef": { "name": secret },
    }));
    let branches = vec!["main".to_owned()];
    HeadsRequest::new(&run, LsRemoteRequest { branches, purpose })
}

/// The engine drops a reply if the request changed. A response from before the push proves nothing about the push, and
/// a response with other credentials nothing about these.
#[test]
fn another_purpose_or_secret_is_another_request() {
    let resolve = request("token", Purpose::Resolve);
    assert_eq!(resolve, request("token", Purpose::Resolve));
    assert_ne!(resolve, request("token", Purpose::Verify("c1".to_owned())));
    assert_ne!(resolve, request("other", Purpose::Resolve));
    assert_eq!(resolve.host(), "[git.example.com]:8443");
    assert_eq!(resolve.namespace, "team");
    assert_eq!(resolve.required_intent(), None, "it only reads");
}

/// The failures of the Secret and of the server name the cause, so they must come before the engine's.
#[test]
fn the_own_timeouts_end_before_the_engines() {
    assert!(SECRET_LIMIT + LIMIT < HeadsRequest::TIMEOUT);
}

#[test]
fn a_secret_without_a_key_that_counts_is_named() {
    let data = |key: &str| SecretData::from([(key.to_owned(), b"x".to_vec())]);
    let refused = credentials(Scheme::Https, &data("user")).unwrap_err();
    assert_eq!(refused.reason, Reason::CredentialsInvalid);
    assert!(refused.message.contains("'username'"), "{refused}");
    let half = credentials(Scheme::Https, &data("username")).unwrap_err();
    assert!(half.message.contains("password"), "{half}");
    // Without a Secret, the repository is public.
    assert!(credentials(Scheme::Https, &SecretData::new()).is_ok());
    let ssh = credentials(Scheme::Ssh, &SecretData::new()).unwrap_err();
    assert_eq!(ssh.reason, Reason::CredentialsInvalid);
}

#[test]
fn servers_are_told_apart_by_host_and_port() {
    for (url, wanted) in [
        ("https://git.example.com/a/b", "git.example.com"),
        ("https://[2001:DB8:0::1]/a", "2001:db8::1"),
        ("https://[2001:db8::443]/a", "2001:db8::443"),
        // Another port is another server.
        ("https://git.example.com:8443/a", "[git.example.com]:8443"),
        ("ssh://me@git.example.com:2222/a", "[git.example.com]:2222"),
        ("https://[2001:db8::1]:8443/a", "[2001:db8::1]:8443"),
        // The default ports of all schemes are one server.
        ("HTTPS://Git.Example.com:443/a", "git.example.com"),
        ("https://git.example.com:00443/a", "git.example.com"),
        ("https://[2001:db8::1]:443/a", "2001:db8::1"),
        ("https://git.example.com:22/a", "git.example.com"),
        ("http://git.example.com/a", "git.example.com"),
        ("http://git.example.com:80/a", "git.example.com"),
        ("ssh://git@git.example.com:22/a", "git.example.com"),
        ("ssh://git.example.com/a", "git.example.com"),
        // An invalid URL has no server.
        ("https://Me@git.example/a", "https://me@git.example/a"),
        ("git.example.com:443", "git.example.com:443"),
    ] {
        assert_eq!(host(url), wanted, "{url}");
    }
}
