use api::tasks::DocsRun;
use serde_json::json;

use super::*;

fn run(name: &str, url: &str) -> DocsRun {
    serde_json::from_value(json!({
        "apiVersion": "orchestrator.io/v1alpha1", "kind": "DocsRun",
        "metadata": { "name": name, "namespace": "team", "uid": format!("uid-{name}") },
        "spec": { "repositoryUrl": url, "sourceBranch": "main", "agentName": "writer" },
    }))
    .unwrap()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_900_000_000 + seconds).unwrap()
}

fn resolve() -> LsRemoteRequest {
    LsRemoteRequest {
        branches: vec!["main".to_owned()],
        purpose: Purpose::Resolve,
    }
}

fn verify(commit: &str) -> LsRemoteRequest {
    LsRemoteRequest {
        purpose: Purpose::Verify(commit.to_owned()),
        ..resolve()
    }
}

fn heads(commit: &str) -> Heads {
    [("main".to_owned(), Some(commit.to_owned()))].into()
}

fn refused() -> Result<Heads, (Reason, String)> {
    Err((Reason::RepositoryUnreachable, "no answer".to_owned()))
}

fn lookups(waiting: usize) -> GitLookups {
    let limits = Limits { waiting, ..LIMITS };
    GitLookups::new(limits, Settings::default())
}

/// Returns the next query, as if it ended at once.
fn next(lookups: &GitLookups) -> Option<Wanted> {
    let (place, wanted) = lookups.start_next()?;
    lock(&lookups.queue).finish(&place);
    Some(wanted)
}

#[test]
fn a_question_is_asked_once_and_its_answer_is_found() {
    let lookups = lookups(8);
    let run = run("a", "https://git.example.com/a");
    for _ in 0..3 {
        assert_eq!(lookups.ask(&run, Some(resolve()), at(0)), None);
    }
    let wanted = next(&lookups).unwrap();
    assert!(next(&lookups).is_none(), "asked twice");
    lookups.store(&wanted, Ok(heads("c1")), at(1));
    let answer = lookups.ask(&run, Some(resolve()), at(2)).unwrap();
    assert_eq!(answer.heads, Ok(heads("c1")));
    assert!(next(&lookups).is_none(), "asked again at once");
}

#[test]
fn an_answer_belongs_to_its_question() {
    let lookups = lookups(8);
    let run = run("a", "https://git.example.com/a");
    lookups.ask(&run, Some(resolve()), at(0));
    let early = next(&lookups).unwrap();
    lookups.store(&early, Ok(heads("c1")), at(1));
    // The response from before the push proves nothing about the push.
    assert_eq!(lookups.ask(&run, Some(verify("c1")), at(2)), None);
    // A late response to the earlier query is dropped.
    lookups.store(&early, Ok(heads("c1")), at(3));
    assert_eq!(lookups.ask(&run, Some(verify("c1")), at(4)), None);
    let late = next(&lookups).unwrap();
    lookups.store(&late, Ok(heads("c2")), at(5));
    let answer = lookups.ask(&run, Some(verify("c1")), at(6)).unwrap();
    assert_eq!(answer.heads, Ok(heads("c2")));
}

#[test]
fn failures_are_asked_again_later_and_later() {
    let lookups = lookups(8);
    let run = run("a", "https://git.example.com/a");
    let (mut now, mut waits) = (0, Vec::new());
    for _ in 0..7 {
        lookups.ask(&run, Some(resolve()), at(now));
        let wanted = next(&lookups).unwrap();
        lookups.store(&wanted, refused(), at(now));
        let answer = lookups.ask(&run, Some(resolve()), at(now)).unwrap();
        let wait = answer.next_at.as_second() - at(now).as_second();
        lookups.ask(&run, Some(resolve()), at(now + wait - 1));
        assert!(next(&lookups).is_none(), "asked before its time");
        waits.push(wait);
        now += wait;
    }
    assert_eq!(waits, [5, 10, 20, 40, 60, 60, 60]);
    // While the query is repeated, the old response stays, with a `next_at` in the future.
    let again = lookups.ask(&run, Some(resolve()), at(now)).unwrap();
    assert_eq!(again.heads, refused());
    assert!(again.next_at > at(now));
    assert!(!again.is_fresh, "something would be concluded from it");
    assert_eq!(again.since, at(0));
}

#[test]
fn a_success_makes_the_next_failure_a_first_one() {
    let lookups = lookups(8);
    let run = run("a", "https://git.example.com/a");
    let mut now = 0;
    let mut ask = |heads: Result<Heads, (Reason, String)>| {
        lookups.ask(&run, Some(verify("c1")), at(now));
        let wanted = next(&lookups).unwrap();
        lookups.store(&wanted, heads, at(now));
        let answer = lookups.ask(&run, Some(verify("c1")), at(now)).unwrap();
        let wait = answer.next_at.as_second() - at(now).as_second();
        now += wait;
        wait
    };
    let waits = [
        ask(refused()),
        ask(refused()),
        ask(Ok(heads("c0"))),
        ask(refused()),
    ];
    assert_eq!(waits, [5, 10, 5, 5]);
}

#[test]
fn a_full_line_is_asked_again_and_nothing_is_kept_of_who_is_gone() {
    let lookups = lookups(1);
    let (one, other) = (
        run("a", "https://git.example.com/a"),
        run("b", "https://git.example.com/b"),
    );
    lookups.ask(&one, Some(resolve()), at(0));
    lookups.ask(&other, Some(resolve()), at(0));
    assert_eq!(next(&lookups).unwrap().uid, "uid-a");
    assert!(next(&lookups).is_none());
    lookups.ask(&other, Some(resolve()), at(1));
    let wanted = next(&lookups).unwrap();
    assert_eq!(wanted.uid, "uid-b");
    lookups.ask(&one, None, at(2));
    lookups.forget(&other);
    assert!(lock(&lookups.known).is_empty());
    lookups.store(&wanted, Ok(heads("c1")), at(3));
    assert!(lock(&lookups.known).is_empty());
    lookups.ask(&other, Some(resolve()), at(4));
    lookups.forget(&other);
    assert!(next(&lookups).is_none(), "nobody waits for it");
}

/// The queue of each namespace is bounded by itself: the runs of one do not take the room of another.
#[test]
fn a_full_namespace_leaves_room_for_another() {
    let lookups = lookups(1);
    let mut other = run("c", "https://git.example.com/c");
    other.metadata.namespace = Some("other".to_owned());
    for name in ["a", "b"] {
        let run = run(name, "https://git.example.com/a");
        lookups.ask(&run, Some(resolve()), at(0));
    }
    lookups.ask(&other, Some(resolve()), at(0));
    let one = run("a", "https://git.example.com/a");
    let waiting = |run: &DocsRun| lookups.load(run).waiting_here;
    assert_eq!((waiting(&one), waiting(&other)), (1, 1));
    let started: Vec<String> = std::iter::from_fn(|| next(&lookups))
        .map(|wanted| wanted.uid)
        .collect();
    assert_eq!(started, ["uid-a", "uid-c"]);
}

#[test]
fn a_query_is_in_flight_from_its_start_to_its_response() {
    let lookups = lookups(8);
    let run = run("a", "https://git.example.com/a");
    let is_in_flight = || lookups.load(&run).is_own_in_flight;
    assert!(!is_in_flight(), "not queried");
    lookups.ask(&run, Some(resolve()), at(0));
    assert!(!is_in_flight(), "it waits");
    let (place, wanted) = lookups.start_next().unwrap();
    assert!(is_in_flight());
    lock(&lookups.queue).finish(&place);
    lookups.store(&wanted, refused(), at(1));
    assert!(!is_in_flight(), "it has a response");
}

#[test]
fn a_secret_without_a_key_that_counts_is_named() {
    let data = |key: &str| SecretData::from([(key.to_owned(), b"x".to_vec())]);
    let refused = credentials(Scheme::Https, &data("user")).unwrap_err();
    assert_eq!(refused.0, Reason::CredentialsInvalid);
    assert!(refused.1.contains("'username'"), "{}", refused.1);
    let half = credentials(Scheme::Https, &data("username")).unwrap_err();
    assert!(half.1.contains("password"), "{}", half.1);
    // Without a Secret, the repository is public.
    assert!(credentials(Scheme::Https, &SecretData::new()).is_ok());
    let ssh = credentials(Scheme::Ssh, &SecretData::new()).unwrap_err();
    assert_eq!(ssh.0, Reason::CredentialsInvalid);
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
