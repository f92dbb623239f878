//! Parses the `known_hosts` of a Secret as ssh parses its file.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use crate::Url;

/// Result of checking a server's key against `known_hosts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The key is listed for the server.
    Known,
    /// The host has other keys of this type.
    Other,
    /// The host has no key of this type.
    Unknown,
    /// The key was revoked.
    Revoked,
}

/// The lines about one host.
#[derive(Debug)]
pub(super) struct KnownHost {
    keys: Vec<Key>,
    revoked: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Key {
    kind: String,
    bytes: Vec<u8>,
}

impl KnownHost {
    /// Finds the lines about the URL's host. Unreadable lines and lines of authorities are ignored, as ssh
    /// does without a certificate.
    ///
    /// Caveat: by default, ssh uses a line with only the host name for any port. The ssh of the steps does
    /// not, because `HostKeyAlias` gives it the name. So this function must not do it either.
    pub(super) fn find(text: &str, url: &Url) -> Self {
        let name = &url.known_host();
        let mut found = Self {
            keys: Vec::new(),
            revoked: Vec::new(),
        };
        for line in text.lines() {
            let mut fields = line.split_ascii_whitespace().peekable();
            let marker = fields.next_if(|field| field.starts_with('@'));
            let (Some(hosts), Some(kind), Some(key)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            if hosts.starts_with('#') || !matches_any(hosts, name) {
                continue;
            }
            let Ok(bytes) = STANDARD.decode(key) else {
                continue;
            };
            match marker {
                None => found.keys.push(Key {
                    kind: kind.to_owned(),
                    bytes,
                }),
                Some("@revoked") => found.revoked.push(bytes),
                Some(_) => {}
            }
        }
        found
    }

    /// Returns whether a key of this type, such as `ssh-rsa`, is listed.
    pub(super) fn has(&self, kind: &str) -> bool {
        self.keys.iter().any(|key| key.kind == kind)
    }

    pub(super) fn judge(&self, kind: &str, bytes: &[u8]) -> Verdict {
        if self.revoked.iter().any(|revoked| revoked == bytes) {
            Verdict::Revoked
        } else if self.keys.iter().any(|key| key.bytes == bytes) {
            Verdict::Known
        } else if self.has(kind) {
            Verdict::Other
        } else {
            Verdict::Unknown
        }
    }
}

/// Matches a comma-separated list of patterns. A matching pattern with '!' excludes the host.
fn matches_any(patterns: &str, name: &str) -> bool {
    let mut matches = false;
    for pattern in patterns.split(',') {
        match pattern.strip_prefix('!') {
            Some(negated) if matches_one(negated, name) => return false,
            Some(_) => {}
            None => matches |= matches_one(pattern, name),
        }
    }
    matches
}

fn matches_one(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix("|1|") {
        Some(hashed) => matches_hash(hashed, name),
        None => matches_glob(pattern.to_ascii_lowercase().as_bytes(), name.as_bytes()),
    }
}

/// Matches `SALT|HASH`: HMAC-SHA1 of the name. It only hides names in a file, so its strength does not
/// matter.
fn matches_hash(hashed: &str, name: &str) -> bool {
    let Some((salt, hash)) = hashed.split_once('|') else {
        return false;
    };
    let (Ok(salt), Ok(hash)) = (STANDARD.decode(salt), STANDARD.decode(hash)) else {
        return false;
    };
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &salt);
    hmac::sign(&key, name.as_bytes()).as_ref() == hash
}

/// Matches `*` with any characters and `?` with one. The number of steps is bounded by the product of the
/// lengths.
fn matches_glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut position) = (0, 0);
    let mut star = None;
    while let Some(character) = name.get(position) {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, position));
                at += 1;
            }
            Some(wanted) if *wanted == b'?' || wanted == character => {
                at += 1;
                position += 1;
            }
            Some(_) | None => match star {
                Some((star_at, taken)) => {
                    star = Some((star_at, taken + 1));
                    at = star_at + 1;
                    position = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(at).all(|rest| *rest == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "QUFBQQ==";
    const B: &str = "QkJCQg==";

    /// Output of `ssh-keygen -H` for `git.example.org` and for `[git.example.org]:2222`.
    const HASHED: &str = "|1|HUOBAnWvenZgV06AFkMQAK11pNg=|wkNNf06B7fVRT2bHIugOIlUeAQw=";
    const HASHED_WITH_PORT: &str = "|1|//vnUx1nomI5NlKxy5HKdQONlyo=|jhNXLluAVVQ2nGZvVpXWs3wtVGE=";

    #[test]
    fn verdicts() {
        use Verdict::{Known, Other, Revoked, Unknown};
        for (lines, port, verdict) in [
            (format!("git.example.org ssh-ed25519 {A}"), 22, Known),
            (
                format!("  GIT.example.org\tssh-ed25519   {A} comment"),
                22,
                Known,
            ),
            (format!("other,git.example.org ssh-ed25519 {A}"), 22, Known),
            (
                format!("git.example.org ssh-ed25519 {B}\ngit.example.org ssh-ed25519 {A}"),
                22,
                Known,
            ),
            (format!("git.example.org ssh-ed25519 {B}"), 22, Other),
            (format!("git.example.org ssh-rsa {B}"), 22, Unknown),
            (format!("# git.example.org ssh-ed25519 {A}"), 22, Unknown),
            (format!("#git.example.org ssh-ed25519 {A}"), 22, Unknown),
            (format!("git.example.org.evil ssh-ed25519 {A}"), 22, Unknown),
            ("git.example.org ssh-ed25519".to_owned(), 22, Unknown),
            ("git.example.org ssh-ed25519 !!!".to_owned(), 22, Unknown),
            (String::new(), 22, Unknown),
            (format!("{HASHED} ssh-ed25519 {A}"), 22, Known),
            (format!("{HASHED} ssh-ed25519 {B}"), 22, Other),
            (format!("{HASHED_WITH_PORT} ssh-ed25519 {A}"), 2222, Known),
            (format!("{HASHED_WITH_PORT} ssh-ed25519 {A}"), 22, Unknown),
            (format!("|1|x|y ssh-ed25519 {A}"), 22, Unknown),
            (format!("|1|x ssh-ed25519 {A}"), 22, Unknown),
            (
                format!("[git.example.org]:2222 ssh-ed25519 {A}"),
                2222,
                Known,
            ),
            (
                format!("[git.example.org]:2222 ssh-ed25519 {A}"),
                22,
                Unknown,
            ),
            (
                format!("[git.example.org]:2222 ssh-ed25519 {A}"),
                2223,
                Unknown,
            ),
            (format!("git.example.org ssh-ed25519 {A}"), 2222, Unknown),
            (
                format!("[git.example.org]:2222 ssh-ed25519 {B}\ngit.example.org ssh-ed25519 {A}"),
                2222,
                Other,
            ),
            (format!("*.example.org ssh-ed25519 {A}"), 22, Known),
            (format!("* ssh-ed25519 {A}"), 22, Known),
            (format!("g?t.example.org ssh-ed25519 {A}"), 22, Known),
            (
                format!("*.example.org,!git.example.org ssh-ed25519 {A}"),
                22,
                Unknown,
            ),
            (
                format!("!git.example.org,*.example.org ssh-ed25519 {A}"),
                22,
                Unknown,
            ),
            (
                format!("!other.example.org,*.example.org ssh-ed25519 {A}"),
                22,
                Known,
            ),
            (format!("!other.example.org ssh-ed25519 {A}"), 22, Unknown),
            (
                format!("@revoked * ssh-ed25519 {A}\ngit.example.org ssh-ed25519 {A}"),
                22,
                Revoked,
            ),
            (
                format!(
                    "git.example.org ssh-ed25519 {A}\n@revoked git.example.org ssh-ed25519 {A}"
                ),
                22,
                Revoked,
            ),
            (
                format!(
                    "@revoked git.example.org ssh-ed25519 {A}\n[git.example.org]:2222 ssh-ed25519 {A}"
                ),
                2222,
                Known,
            ),
            (
                format!("@revoked * ssh-ed25519 {A}\n[git.example.org]:2222 ssh-ed25519 {A}"),
                2222,
                Revoked,
            ),
            (
                format!("@revoked * ssh-ed25519 {B}\ngit.example.org ssh-ed25519 {A}"),
                22,
                Known,
            ),
            (
                format!("@cert-authority git.example.org ssh-ed25519 {A}"),
                22,
                Unknown,
            ),
        ] {
            let url = format!("ssh://Git.example.org:{port}/a");
            let known = KnownHost::find(&lines, &Url::parse(&url, false).unwrap());
            assert_eq!(
                known.judge("ssh-ed25519", b"AAAA"),
                verdict,
                "{port}: {lines}"
            );
        }
    }

    #[test]
    fn globs() {
        for (pattern, name, matches) in [
            ("", "", true),
            ("*", "", true),
            ("", "a", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("*a", "aaab", false),
            ("?", "", false),
            ("??", "ab", true),
            ("a**", "a", true),
        ] {
            assert_eq!(
                matches_glob(pattern.as_bytes(), name.as_bytes()),
                matches,
                "{pattern} {name}"
            );
        }
        let stars = "*a".repeat(1000);
        assert!(!matches_glob(stars.as_bytes(), "a".repeat(999).as_bytes()));
    }
}
