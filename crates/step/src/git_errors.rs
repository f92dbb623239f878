//! Interprets the output of git and of the server.

use git::{Credentials, Reason, credentials::mask};

/// Maximum number of characters to quote from a server's message.
const QUOTED: usize = 200;

/// Texts of git, curl, ssh and servers, in order of precedence. In lower case.
const MEANINGS: &[(&str, Reason)] = &[
    ("no space left on device", Reason::RepositoryTooLarge),
    ("disk quota exceeded", Reason::RepositoryTooLarge),
    (
        "remote host identification has changed",
        Reason::HostKeyUnknown,
    ),
    ("host key is known for", Reason::HostKeyUnknown),
    ("host key verification failed", Reason::HostKeyUnknown),
    (
        "server certificate verification failed",
        Reason::CertificateNotTrusted,
    ),
    ("ssl certificate problem", Reason::CertificateNotTrusted),
    ("certificate subject name", Reason::CertificateNotTrusted),
    (
        "certificate verification failed",
        Reason::CertificateNotTrusted,
    ),
    ("error setting certificate", Reason::CredentialsInvalid),
    ("error reading ca cert", Reason::CredentialsInvalid),
    ("load key \"", Reason::CredentialsInvalid),
    ("authentication failed", Reason::AuthenticationFailed),
    ("could not read username", Reason::AuthenticationFailed),
    ("could not read password", Reason::AuthenticationFailed),
    ("permission denied (", Reason::AuthenticationFailed),
    ("access denied", Reason::AuthenticationFailed),
    (
        "too many authentication failures",
        Reason::AuthenticationFailed,
    ),
    ("returned error: 401", Reason::AuthenticationFailed),
    ("returned error: 403", Reason::AuthenticationFailed),
    ("returned error: 404", Reason::RepositoryNotFound),
    ("returned error: 410", Reason::RepositoryNotFound),
    ("repository not found", Reason::RepositoryNotFound),
    (
        "not appear to be a git repository",
        Reason::RepositoryNotFound,
    ),
    ("not a git repository", Reason::RepositoryNotFound),
    (
        "could not be found or you don't have permission",
        Reason::RepositoryNotFound,
    ),
    ("couldn't find remote ref", Reason::BranchNotFound),
    ("could not resolve host", Reason::RepositoryUnreachable),
    ("failed to connect", Reason::RepositoryUnreachable),
    ("connection refused", Reason::RepositoryUnreachable),
    ("connection reset", Reason::RepositoryUnreachable),
    ("connection closed", Reason::RepositoryUnreachable),
    ("timed out", Reason::RepositoryUnreachable),
    ("operation too slow", Reason::RepositoryUnreachable),
    ("no route to host", Reason::RepositoryUnreachable),
    ("network is unreachable", Reason::RepositoryUnreachable),
    ("returned error: 3", Reason::RepositoryUnreachable),
    ("returned error: 5", Reason::RepositoryUnreachable),
    ("returned error: 429", Reason::RepositoryUnreachable),
    ("kex_exchange_identification", Reason::RepositoryUnreachable),
    ("not responding", Reason::RepositoryUnreachable),
    ("handshake", Reason::RepositoryUnreachable),
    ("tls packet", Reason::RepositoryUnreachable),
    ("empty reply from server", Reason::RepositoryUnreachable),
    (
        "not valid: is this a git repository",
        Reason::RepositoryNotFound,
    ),
];

/// Texts that only report the end of a connection. All other known texts have precedence.
const BROKEN: &[&str] = &[
    "the remote end hung up unexpectedly",
    "remote end hung up",
    "early eof",
    "rpc failed",
    "unexpected disconnect",
    "could not read from remote repository",
    "unable to access",
];

/// Returns the reason for git's errors if they are known.
pub(crate) fn reason(stderr: &str) -> Option<Reason> {
    let text = stderr.to_lowercase();
    let known = MEANINGS.iter().find(|(words, _)| text.contains(words));
    if let Some((_, reason)) = known {
        return Some(*reason);
    }
    // git's "fatal: repository 'URL' not found" has the URL in the middle.
    if text
        .lines()
        .any(|line| line.starts_with("fatal: repository '") && line.ends_with("' not found"))
    {
        return Some(Reason::RepositoryNotFound);
    }
    BROKEN
        .iter()
        .any(|words| text.contains(words))
        .then_some(Reason::RepositoryUnreachable)
}

/// Returns advice for the user.
pub(crate) fn advice(reason: Reason) -> &'static str {
    match reason {
        Reason::AuthenticationFailed => "; check the Secret's content and what it may do there",
        Reason::RepositoryNotFound => "; check the URL, and that the credentials may see it",
        Reason::CertificateNotTrusted => {
            "; put the authority's certificate into the Secret as 'ca.crt'"
        }
        Reason::HostKeyUnknown => "; put the server's key into the Secret's 'known_hosts'",
        Reason::RepositoryTooLarge => "; the limit is in the operator's configuration",
        Reason::RepositoryUnreachable
        | Reason::CredentialsInvalid
        | Reason::AddressNotAllowed
        | Reason::BranchNotFound
        | Reason::PathNotFound
        | Reason::CloneFailed
        | Reason::OutputTooLarge
        | Reason::PushRejected
        | Reason::BranchMoved
        | Reason::PublishFailed => "",
    }
}

/// Returns the error messages of git and of the server.
///
/// Guarantees: at most 200 characters of each, none of them control characters, no secret.
pub(crate) fn quote(stderr: &str, credentials: &Credentials) -> String {
    let own = shown(&own_words(stderr), credentials);
    match server_message(stderr, credentials) {
        Some(server) => format!("{own} (the server said: {server})"),
        None => own,
    }
}

/// Returns the server's message to the user, if any. It is as bounded and clean as [`quote`].
pub(crate) fn server_message(stderr: &str, credentials: &Credentials) -> Option<String> {
    let words: Vec<&str> = lines(stderr)
        .filter_map(|line| line.strip_prefix("remote:"))
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    (!words.is_empty()).then(|| shown(&words.join(" "), credentials))
}

/// Cleans a server's text for a message. It is as bounded and clean as [`quote`].
pub(crate) fn shown(words: &str, credentials: &Credentials) -> String {
    clean(&mask(words, credentials))
}

/// Returns the line with the cause. ssh reports the cause before git reports that it could not read.
fn own_words(stderr: &str) -> String {
    let own = || lines(stderr).filter(|line| !line.is_empty() && !line.starts_with("remote:"));
    let known = MEANINGS
        .iter()
        .find_map(|(words, _)| own().find(|line| line.to_lowercase().contains(words)));
    // After this line, git only reports the end of the connection.
    let failed_call = || own().find(|line| line.contains("RPC failed"));
    let fatal = || own().rfind(|line| line.starts_with("fatal:") || line.starts_with("error:"));
    let line = known
        .or_else(failed_call)
        .or_else(fatal)
        .or_else(|| own().next_back())
        .unwrap_or("nothing was said");
    // ssh prints a long warning. The fingerprint is the only line that a user can compare.
    if line.contains("REMOTE HOST IDENTIFICATION HAS CHANGED")
        && let Some(fingerprint) = own().find(|line| line.starts_with("SHA256:"))
    {
        let fingerprint = fingerprint.trim_end_matches('.');
        return format!("the server's host key has changed, it is {fingerprint}");
    }
    if line.contains("terminal prompts disabled") {
        return "the server wants a username and a password, and the run has none".to_owned();
    }
    let line = line
        .trim_start_matches("fatal: ")
        .trim_start_matches("error: ");
    // Our own message contains the URL, and our private paths are of no use.
    let line = match line
        .strip_prefix("unable to access '")
        .and_then(|rest| rest.split_once("': "))
    {
        Some((_, rest)) => rest,
        None => line,
    };
    let line = line.split(" CAfile:").next().unwrap_or(line);
    line.trim_matches(['@', ' '])
        .trim_end_matches('.')
        .to_owned()
}

/// Splits text into lines. If a line was overwritten, as in progress output, only the last text counts.
fn lines(text: &str) -> impl DoubleEndedIterator<Item = &str> {
    text.lines()
        .map(|line| line.rsplit('\r').next().unwrap_or(line).trim())
}

fn clean(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The response about one branch in a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// No reliable response.
    None,
    /// The branch was changed, or was already up to date.
    Accepted,
    /// The server rejected the push, with this message.
    Refused(String),
    /// git did not send the update, because the branch is not at the expected commit.
    Stale,
    /// The server could not update the branch, with this message. The branch may not be at the expected
    /// commit.
    NotUpdated(String),
}

/// Texts of servers that accepted a push but could not update the branch. In lower case.
const NOT_UPDATED: &[&str] = &[
    "incorrect old value",
    "failed to update ref",
    "cannot lock ref",
    "failed to lock",
    "reference already exists",
    "reference does not exist",
    "conflict",
];

/// Texts of servers about a lock: another process changes the same branch, or left its lock behind.
const LOCKED: &[&str] = &[
    "cannot lock ref",
    "failed to lock",
    "unable to lock",
    ".lock'",
];

/// Parses the output of `git push --porcelain` for the branch with this full name.
pub(crate) fn answer(stdout: &str, name: &str) -> Answer {
    let line = stdout.lines().find_map(|line| {
        let (flag, rest) = line.split_once('\t')?;
        let (refs, summary) = rest.split_once('\t')?;
        let (_, to) = refs.split_once(':')?;
        (to == name).then_some((flag, summary))
    });
    let Some((flag, summary)) = line else {
        return Answer::None;
    };
    if flag != "!" {
        return if matches!(flag, " " | "+" | "*" | "=") {
            Answer::Accepted
        } else {
            Answer::None
        };
    }
    if let Some(rest) = summary.strip_prefix("[remote rejected]") {
        let rest = rest.trim();
        let inner = rest
            .strip_prefix('(')
            .and_then(|rest| rest.strip_suffix(')'));
        let words = inner.unwrap_or(rest).to_owned();
        return if has(&words, NOT_UPDATED) {
            Answer::NotUpdated(words)
        } else {
            Answer::Refused(words)
        };
    }
    if summary.starts_with("[rejected]") {
        return Answer::Stale;
    }
    Answer::None
}

/// Returns whether a server reports a lock that it could not take.
///
/// Servers report the same if a branch with the name of a parent directory exists. That branch stays, so it
/// is no lock.
pub(crate) fn is_lock(words: &str) -> bool {
    has(words, LOCKED) && !words.contains("; cannot create")
}

fn has(text: &str, words: &[&str]) -> bool {
    let text = text.to_lowercase();
    words.iter().any(|words| text.contains(words))
}

#[cfg(test)]
mod tests {
    use git::credentials::Login;

    use super::*;

    fn credentials() -> Credentials {
        Credentials::Http {
            login: Some(Login {
                username: "me".to_owned(),
                password: "hush-hush".to_owned(),
            }),
            authorities: None,
        }
    }

    /// Messages of git, curl and ssh of Debian 12 and of some hosts, with their meanings.
    #[test]
    fn real_messages() {
        use Reason::{
            AuthenticationFailed, BranchNotFound, CertificateNotTrusted, CredentialsInvalid,
            HostKeyUnknown, RepositoryNotFound, RepositoryTooLarge, RepositoryUnreachable,
        };
        let changed = "@@@@@@@@@@@\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n@@@@@@@@@@@\nIT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!\nHost key verification failed.\nfatal: Could not read from remote repository.\n";
        let cases = [
            (
                "fatal: Authentication failed for 'https://h/p.git/'",
                Some(AuthenticationFailed),
                "Authentication failed for 'https://h/p.git/'",
            ),
            (
                "fatal: could not read Username for 'https://h': terminal prompts disabled",
                Some(AuthenticationFailed),
                "the server wants a username and a password, and the run has none",
            ),
            (
                "remote: HTTP Basic: Access denied\nfatal: Authentication failed for 'https://h/p.git/'",
                Some(AuthenticationFailed),
                "Authentication failed for 'https://h/p.git/' (the server said: HTTP Basic: Access denied)",
            ),
            (
                "fatal: unable to access 'https://h/p.git/': The requested URL returned error: 403",
                Some(AuthenticationFailed),
                "The requested URL returned error: 403",
            ),
            (
                "fatal: unable to access 'https://h/p.git/': The requested URL returned error: 503",
                Some(RepositoryUnreachable),
                "The requested URL returned error: 503",
            ),
            (
                "fatal: unable to access 'https://h/p.git/': The requested URL returned error: 302",
                Some(RepositoryUnreachable),
                "The requested URL returned error: 302",
            ),
            (
                "remote: Repository not found.\nfatal: repository 'https://h/p.git/' not found",
                Some(RepositoryNotFound),
                "repository 'https://h/p.git/' not found (the server said: Repository not found.)",
            ),
            (
                "fatal: unable to access 'https://h/p.git/': server certificate verification failed. CAfile: /x/ca.crt CRLfile: none",
                Some(CertificateNotTrusted),
                "server certificate verification failed",
            ),
            (
                "fatal: unable to access 'https://h/p.git/': SSL: certificate subject name (a) does not match target host name 'h'",
                Some(CertificateNotTrusted),
                "SSL: certificate subject name (a) does not match target host name 'h'",
            ),
            (
                "fatal: unable to access 'https://h/p.git/': error reading ca cert file /x (Error while reading file.)",
                Some(CredentialsInvalid),
                "error reading ca cert file /x (Error while reading file.)",
            ),
            (
                "fatal: unable to access 'https://h/p.git/': Could not resolve host: h",
                Some(RepositoryUnreachable),
                "Could not resolve host: h",
            ),
            (
                "fatal: unable to access 'https://h/p.git/': Failed to connect to h port 443 after 0 ms: Couldn't connect to server",
                Some(RepositoryUnreachable),
                "Failed to connect to h port 443 after 0 ms: Couldn't connect to server",
            ),
            (
                "fatal: unable to access 'https://h/p.git/': Operation too slow. Less than 1000 bytes/sec transferred the last 60 seconds",
                Some(RepositoryUnreachable),
                "Operation too slow. Less than 1000 bytes/sec transferred the last 60 seconds",
            ),
            (
                "error: RPC failed; curl 56 Recv failure: Connection reset by peer\nfatal: the remote end hung up unexpectedly",
                Some(RepositoryUnreachable),
                "RPC failed; curl 56 Recv failure: Connection reset by peer",
            ),
            (
                "error: RPC failed; HTTP 411 curl 22 The requested URL returned error: 411\nsend-pack: unexpected disconnect while reading sideband packet\nfatal: the remote end hung up unexpectedly",
                Some(RepositoryUnreachable),
                "RPC failed; HTTP 411 curl 22 The requested URL returned error: 411",
            ),
            (
                "fatal: the remote end hung up unexpectedly",
                Some(RepositoryUnreachable),
                "the remote end hung up unexpectedly",
            ),
            (
                "git@h: Permission denied (publickey).\r\nfatal: Could not read from remote repository.",
                Some(AuthenticationFailed),
                "git@h: Permission denied (publickey)",
            ),
            (
                "Load key \"/x/identity\": error in libcrypto\r\ngit@h: Permission denied (publickey).\r\n",
                Some(CredentialsInvalid),
                "Load key \"/x/identity\": error in libcrypto",
            ),
            (
                "No ED25519 host key is known for [h]:22 and you have requested strict checking.\r\nHost key verification failed.\r\nfatal: Could not read from remote repository.",
                Some(HostKeyUnknown),
                "No ED25519 host key is known for [h]:22 and you have requested strict checking",
            ),
            (
                changed,
                Some(HostKeyUnknown),
                "WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!",
            ),
            (
                "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\nThe fingerprint for the ED25519 key sent by the remote host is\nSHA256:Xy0/+a.\r\nHost key verification failed.\r\n",
                Some(HostKeyUnknown),
                "the server's host key has changed, it is SHA256:Xy0/+a",
            ),
            (
                "ssh: connect to host h port 22: Connection timed out\r\nfatal: Could not read from remote repository.",
                Some(RepositoryUnreachable),
                "ssh: connect to host h port 22: Connection timed out",
            ),
            (
                "kex_exchange_identification: Connection closed by remote host",
                Some(RepositoryUnreachable),
                "kex_exchange_identification: Connection closed by remote host",
            ),
            (
                "fatal: 'p.git' does not appear to be a git repository\nfatal: Could not read from remote repository.",
                Some(RepositoryNotFound),
                "'p.git' does not appear to be a git repository",
            ),
            (
                "ERROR: Repository not found.\nfatal: Could not read from remote repository.",
                Some(RepositoryNotFound),
                "ERROR: Repository not found",
            ),
            (
                "remote: ERROR: The project you were looking for could not be found or you don't have permission to view it.\nfatal: Could not read from remote repository.",
                Some(RepositoryNotFound),
                "Could not read from remote repository (the server said: ERROR: The project you were looking for could not be found or you don't have permission to view it.)",
            ),
            (
                "fatal: couldn't find remote ref refs/heads/x",
                Some(BranchNotFound),
                "couldn't find remote ref refs/heads/x",
            ),
            (
                "error: file write error: No space left on device\nfatal: unable to write loose object file",
                Some(RepositoryTooLarge),
                "file write error: No space left on device",
            ),
            (
                "fatal: remote error: upload-pack: not our ref 0123",
                None,
                "remote error: upload-pack: not our ref 0123",
            ),
            ("error: unknown", None, "unknown"),
            ("", None, "nothing was said"),
        ];
        for (stderr, wanted, words) in cases {
            assert_eq!(reason(stderr), wanted, "{stderr}");
            assert_eq!(quote(stderr, &credentials()), words, "{stderr}");
        }
    }

    #[test]
    fn quotes_are_clean_bounded_and_masked() {
        let stderr = format!(
            "remote: a\u{1b}[31m hush-hush {}\nfatal: hush-hush",
            "x".repeat(500)
        );
        let quoted = quote(&stderr, &credentials());
        assert!(
            quoted.starts_with("*** (the server said: a[31m *** xx"),
            "{quoted}"
        );
        assert!(quoted.chars().count() < 240, "{quoted}");
        assert!(!quoted.contains('\u{1b}') && !quoted.contains("hush"));
    }

    #[test]
    fn answers_to_a_push() {
        use Answer::{Accepted, None, Stale};
        let refused = |words: &str| Answer::Refused(words.to_owned());
        let not_updated = |words: &str| Answer::NotUpdated(words.to_owned());
        for (line, wanted) in [
            ("*\tc:refs/heads/x\t[new branch]", Accepted),
            (" \tc:refs/heads/x\t1..2", Accepted),
            ("+\tc:refs/heads/x\t1...2 (forced update)", Accepted),
            ("=\tc:refs/heads/x\t[up to date]", Accepted),
            ("*\tc:refs/heads/y\t[new branch]", None),
            ("!\tc:refs/heads/y\t[remote rejected] (no)", None),
            (
                "!\tc:refs/heads/x\t[remote failure] (remote failed to report status)",
                None,
            ),
            ("!\tc:refs/heads/x\t[no match]", None),
            (
                "!\tc:refs/heads/x\t[remote rejected] (pre-receive hook declined)",
                refused("pre-receive hook declined"),
            ),
            (
                "!\tc:refs/heads/x\t[remote rejected] (protected branch hook declined)",
                refused("protected branch hook declined"),
            ),
            (
                "!\tc:refs/heads/x\t[remote rejected] (shallow update not allowed)",
                refused("shallow update not allowed"),
            ),
            (
                "!\tc:refs/heads/x\t[remote rejected] (failed to update ref)",
                not_updated("failed to update ref"),
            ),
            (
                "!\tc:refs/heads/x\t[remote rejected] (cannot lock ref 'refs/heads/x': is at 1 but expected 2)",
                not_updated("cannot lock ref 'refs/heads/x': is at 1 but expected 2"),
            ),
            (
                "!\tc:refs/heads/x\t[remote rejected] (refname conflict)",
                not_updated("refname conflict"),
            ),
            ("!\tc:refs/heads/x\t[rejected] (stale info)", Stale),
            ("!\tc:refs/heads/x\t[rejected] (fetch first)", Stale),
            ("!\tc:refs/heads/x\t[rejected] (non-fast-forward)", Stale),
            ("", None),
        ] {
            assert_eq!(
                answer(&format!("To https://h/p\n{line}\nDone"), "refs/heads/x"),
                wanted,
                "{line}"
            );
        }
    }

    #[test]
    fn locks_and_branches_in_the_way() {
        for (words, wanted) in [
            (
                "error: cannot lock ref 'refs/heads/x': Unable to create '/p/x.lock': File exists.",
                true,
            ),
            ("failed to lock", true),
            (
                "error: cannot lock ref 'refs/heads/a/b': 'refs/heads/a' exists; cannot create 'refs/heads/a/b'",
                false,
            ),
            ("failed to update ref", false),
        ] {
            assert_eq!(is_lock(words), wanted, "{words}");
        }
    }
}
