//! Asks a server for the commits of branches and tags, without git.
//!
//! Data from the server is untrusted. Every length, list and text is bounded. The server's text reaches a
//! message only cleaned, cut and with the credentials masked.

mod answer;
mod connect;
mod http;
mod known_hosts;
mod pkt;
mod ssh;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::credentials::mask;
use crate::{Commit, Credentials, Networks, Reason, RemoteError, Scheme, Url, refs};

/// Maximum number of references of one request: branches and tags.
pub const REFERENCES: usize = 4;

/// Maximum length of a server's text in a message, in characters.
const WORDS_LIMIT: usize = 200;

/// The commits of branches: `None` if the repository does not have the branch.
pub type Heads = BTreeMap<String, Option<Commit>>;

/// The commits of the references of one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References {
    /// The commits of the branches.
    pub branches: Heads,
    /// The commits of the tags: of an annotated tag, the commit that it points to. `None` if the repository
    /// does not have the tag.
    ///
    /// # Caveats
    /// A tag can point to a file or a directory. The list does not show this; a fetch does.
    pub tags: Heads,
}

/// A request to a server.
#[derive(Debug, Clone)]
pub struct Question {
    /// The URL of the repository.
    pub url: Url,
    /// The credentials, for the URL's scheme.
    pub credentials: Credentials,
    /// Networks that are allowed besides public addresses.
    pub networks: Networks,
    /// Names of branches. With the tags, at most [`REFERENCES`].
    pub branches: Vec<String>,
    /// Names of tags.
    pub tags: Vec<String>,
    /// Timeout of the whole request: name resolution, connection, response.
    pub timeout: Duration,
}

/// Asks the server for the commits of the branches.
///
/// Guarantees: the name is resolved once, and every address is checked before a connection to one of them.
/// No proxies, no redirects, and no other credentials than the given ones are used. The request ends with
/// the timeout.
///
/// Caveat: a server with several machines may return an old state for a while after a push.
///
/// # Errors
/// Gives the reason for the failure, as `status.reason` needs it.
pub async fn heads(question: &Question) -> Result<Heads, RemoteError> {
    let References { branches, tags: _ } = references(question).await?;
    Ok(branches)
}

/// Asks the server for the commits of the branches and the tags, in one request. Guarantees and caveats are
/// those of [`heads`].
///
/// # Errors
/// As [`heads`].
pub async fn references(question: &Question) -> Result<References, RemoteError> {
    let asking = Asking { question };
    asking.check_names()?;
    match tokio::time::timeout(question.timeout, asking.ask()).await {
        Ok(references) => references,
        Err(_) => Err(asking.unreachable(&format!(
            "no complete answer within {} s; check that the server is up, and that the network lets the operator reach it",
            question.timeout.as_secs_f64()
        ))),
    }
}

/// One request in progress, with the data for the request and for its error messages.
#[derive(Clone, Copy)]
struct Asking<'a> {
    question: &'a Question,
}

impl Asking<'_> {
    fn check_names(&self) -> Result<(), RemoteError> {
        let Question { branches, tags, .. } = self.question;
        let count = branches.len().saturating_add(tags.len());
        if count == 0 || count > REFERENCES {
            let found = format!("{count} references were asked for, 1 to {REFERENCES} can be");
            return Err(self.error(Reason::BranchNotFound, &found));
        }
        for branch in branches {
            refs::check_branch(branch).map_err(|why| self.error(Reason::BranchNotFound, &why))?;
        }
        for tag in tags {
            refs::check_tag(tag).map_err(|why| self.error(Reason::BranchNotFound, &why))?;
        }
        Ok(())
    }

    async fn ask(self) -> Result<References, RemoteError> {
        let Question {
            url, credentials, ..
        } = self.question;
        match (url.scheme(), credentials) {
            (Scheme::Http | Scheme::Https, Credentials::Http { login, authorities }) => {
                http::ask(self, login.as_ref(), authorities.as_deref()).await
            }
            (
                Scheme::Ssh,
                Credentials::Ssh {
                    identity,
                    known_hosts,
                },
            ) => ssh::ask(self, identity, known_hosts).await,
            (Scheme::Http | Scheme::Https, Credentials::Ssh { .. })
            | (Scheme::Ssh, Credentials::Http { .. }) => Err(self.error(
                Reason::CredentialsInvalid,
                "the credentials are for another scheme",
            )),
        }
    }

    /// Creates an error about this repository.
    fn error(&self, reason: Reason, found: &str) -> RemoteError {
        RemoteError {
            reason,
            message: format!("cannot read branches of {}: {found}", self.question.url),
        }
    }

    fn unreachable(&self, found: &str) -> RemoteError {
        self.error(Reason::RepositoryUnreachable, found)
    }

    /// Cleans a text of the server, or of a library about it, for a message.
    fn words(&self, text: &str) -> String {
        cleaned(&mask(text, &self.question.credentials))
    }
}

/// Returns one bounded line without control characters.
fn cleaned(text: &str) -> String {
    let mut line = String::new();
    for word in text.split(|character: char| character.is_whitespace() || character.is_control()) {
        if !word.is_empty() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    match line.char_indices().nth(WORDS_LIMIT) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_one_bounded_line() {
        let long = "ä".repeat(300);
        for (text, line) in [
            ("fatal: no", "fatal: no".to_owned()),
            (" two\r\n\tlines\u{1b}[31m \0", "two lines [31m".to_owned()),
            (&long, format!("{}…", "ä".repeat(200))),
            ("", String::new()),
        ] {
            assert_eq!(cleaned(text), line);
        }
    }
}
