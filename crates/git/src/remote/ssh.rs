//! Git's protocol over ssh.

use std::net::Shutdown;
use std::sync::Arc;

use russh::client::{self, AuthResult, Handle, Handler};
use russh::keys::{
    Algorithm, HashAlg, PrivateKey, PrivateKeyWithHashAlg, PublicKeyOrCertificate,
    decode_secret_key,
};
use russh::{Channel, ChannelMsg, Preferred};
use tokio::net::TcpStream;

use super::answer::{Answer, Progress, request};
use super::known_hosts::{KnownHost, Verdict};
use super::{Asking, References};
use crate::{Reason, RemoteError};

/// Receive window of the SSH session, in bytes.
const WINDOW: u32 = 256 * 1024;

/// Maximum number of bytes to keep from the server's standard error.
const WORDS_BYTES: usize = 4096;

pub(super) async fn ask(
    asking: Asking<'_>,
    identity: &str,
    known_hosts: &str,
) -> Result<References, RemoteError> {
    let key = decode_secret_key(identity, None).map_err(|error| {
        let why = asking.words(&error.to_string());
        asking.error(
            Reason::CredentialsInvalid,
            &format!("the Secret's key 'identity' cannot be used: {why}"),
        )
    })?;
    let addresses = asking.addresses().await?;
    let stream = asking.connect(&addresses).await?;
    let (stream, _closing) =
        Closing::of(stream).map_err(|error| asking.unreachable(&error.to_string()))?;
    let mut session = asking.greet(stream, known_hosts).await?;
    asking.log_in(&mut session, key).await?;
    asking.list(&session).await
}

/// Closes the connection when the request ends. The library's own task outlives a dropped request, and a
/// server could keep it busy indefinitely.
struct Closing(std::net::TcpStream);

impl Closing {
    fn of(stream: TcpStream) -> std::io::Result<(TcpStream, Self)> {
        let stream = stream.into_std()?;
        let second = stream.try_clone()?;
        Ok((TcpStream::from_std(stream)?, Self(second)))
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        match self.0.shutdown(Shutdown::Both) {
            // It fails if the server closed the connection before, which has the same effect.
            Ok(()) | Err(_) => {}
        }
    }
}

/// Checks the host key. All other events of the library are ignored.
struct Judge {
    known: KnownHost,
}

/// The reason why there is no session.
#[derive(Debug)]
enum NoSession {
    HostKey {
        verdict: Verdict,
        kind: String,
        fingerprint: String,
    },
    Ssh(russh::Error),
}

impl From<russh::Error> for NoSession {
    fn from(error: russh::Error) -> Self {
        Self::Ssh(error)
    }
}

impl Handler for Judge {
    type Error = NoSession;

    async fn check_server_key(
        &mut self,
        offered: &PublicKeyOrCertificate,
    ) -> Result<bool, NoSession> {
        let key = match offered {
            PublicKeyOrCertificate::PublicKey { key, .. } => key,
            // We do not request certificates.
            PublicKeyOrCertificate::Certificate(_) => return Ok(false),
        };
        let kind = key.algorithm().as_str().to_owned();
        let bytes = key.to_bytes().map_err(russh::Error::from)?;
        match self.known.judge(&kind, &bytes) {
            Verdict::Known => Ok(true),
            verdict @ (Verdict::Other | Verdict::Unknown | Verdict::Revoked) => {
                let fingerprint = key.fingerprint(HashAlg::Sha256).to_string();
                Err(NoSession::HostKey {
                    verdict,
                    kind,
                    fingerprint,
                })
            }
        }
    }
}

/// Returns the key types, those in `known_hosts` first: a server has several keys, and presents one. RSA
/// with SHA-1 is excluded.
fn key_order(known: &KnownHost) -> Vec<Algorithm> {
    let kind = |algorithm: &Algorithm| {
        let is_rsa = matches!(algorithm, Algorithm::Rsa { .. });
        if is_rsa {
            "ssh-rsa".to_owned()
        } else {
            algorithm.as_str().to_owned()
        }
    };
    let mut order: Vec<Algorithm> = Preferred::DEFAULT
        .key
        .iter()
        .filter(|algorithm| !matches!(algorithm, Algorithm::Rsa { hash: None }))
        .cloned()
        .collect();
    order.sort_by_key(|algorithm| !known.has(&kind(algorithm)));
    order
}

impl Asking<'_> {
    async fn greet(
        &self,
        stream: TcpStream,
        known_hosts: &str,
    ) -> Result<Handle<Judge>, RemoteError> {
        let url = &self.question.url;
        let known = KnownHost::find(known_hosts, url);
        let config = client::Config {
            window_size: WINDOW,
            preferred: Preferred {
                key: key_order(&known).into(),
                ..Preferred::DEFAULT
            },
            inactivity_timeout: Some(self.question.timeout),
            ..client::Config::default()
        };
        client::connect_stream(Arc::new(config), stream, Judge { known }).await.map_err(|error| match error {
            NoSession::Ssh(error) => self.ssh_error(&error),
            NoSession::HostKey { verdict, kind, fingerprint } => {
                let (host, port, name) = (url.host(), url.port(), url.known_host());
                let found = match verdict {
                    Verdict::Revoked => "is revoked in 'known_hosts'",
                    Verdict::Other => "is not the one in 'known_hosts': either it was changed, or someone is in between",
                    Verdict::Known | Verdict::Unknown => "is not in 'known_hosts'",
                };
                let found = format!(
                    "the host key of {host} port {port} {found}; it offered {kind} {fingerprint}; if that is right, put it into the Secret's key 'known_hosts', in a line that begins with '{name}'"
                );
                self.error(Reason::HostKeyUnknown, &found)
            }
        })
    }

    async fn log_in(
        &self,
        session: &mut Handle<Judge>,
        key: PrivateKey,
    ) -> Result<(), RemoteError> {
        let hash = if matches!(key.algorithm(), Algorithm::Rsa { .. }) {
            let best = session
                .best_supported_rsa_hash()
                .await
                .map_err(|error| self.ssh_error(&error))?;
            best.flatten().or(Some(HashAlg::Sha512))
        } else {
            None
        };
        let fingerprint = key.public_key().fingerprint(HashAlg::Sha256);
        let user = self.question.url.user().unwrap_or("git");
        let key = PrivateKeyWithHashAlg::new(Arc::new(key), hash);
        match session.authenticate_publickey(user, key).await {
            Ok(AuthResult::Success) => Ok(()),
            Ok(AuthResult::Failure {
                remaining_methods, ..
            }) if remaining_methods.is_empty() && session.is_closed() => {
                Err(self.unreachable("the server ended the connection instead of a login"))
            }
            Ok(AuthResult::Failure { .. }) => Err(self.error(
                Reason::AuthenticationFailed,
                &format!("the server does not accept the identity {fingerprint} for user '{user}'; check the user in the URL, and that the server knows the public key"),
            )),
            Err(error) => Err(self.ssh_error(&error)),
        }
    }

    async fn list(&self, session: &Handle<Judge>) -> Result<References, RemoteError> {
        let question = self.question;
        let failed = |error: russh::Error| self.ssh_error(&error);
        let mut channel = session.channel_open_session().await.map_err(failed)?;
        // A server that rejects this variable responds in version 0.
        channel
            .set_env(false, "GIT_PROTOCOL", "version=2")
            .await
            .map_err(failed)?;
        channel
            .exec(true, command(&self.question.url.decoded_path()))
            .await
            .map_err(failed)?;

        let mut greeting = Answer::new(question);
        let format = match self.read(&mut channel, &mut greeting).await? {
            Progress::Greeted(format) => format,
            Progress::Listed => return Ok(greeting.into_references()),
            Progress::More => return Err(self.cut()),
        };
        channel
            .data_bytes(request(question, format.as_deref()))
            .await
            .map_err(failed)?;
        let mut list = Answer::to_request(question);
        match self.read(&mut channel, &mut list).await? {
            Progress::Listed => Ok(list.into_references()),
            Progress::Greeted(_) | Progress::More => Err(self.cut()),
        }
    }

    /// Reads until the response is complete.
    async fn read<Sent: From<(russh::ChannelId, ChannelMsg)> + Send + Sync + 'static>(
        &self,
        channel: &mut Channel<Sent>,
        answer: &mut Answer,
    ) -> Result<Progress, RemoteError> {
        let mut words = Vec::new();
        while let Some(message) = channel.wait().await {
            if let ChannelMsg::Data { data } = message {
                match answer.put(&data).map_err(|wrong| self.wrong(wrong))? {
                    Progress::More => {}
                    progress @ (Progress::Greeted(_) | Progress::Listed) => return Ok(progress),
                }
            } else if let ChannelMsg::ExtendedData { data, .. } = message {
                let room = WORDS_BYTES.saturating_sub(words.len());
                words.extend_from_slice(data.get(..room.min(data.len())).unwrap_or_default());
            } else if let ChannelMsg::Failure = message {
                let found =
                    "the server does not let this identity run git; check the user in the URL";
                return Err(self.unreachable(found));
            }
        }
        if words.is_empty() {
            return Err(self.cut());
        }
        Err(self.refusal(&String::from_utf8_lossy(&words)))
    }

    fn ssh_error(&self, error: &russh::Error) -> RemoteError {
        self.unreachable(&format!("ssh failed: {}", self.words(&error.to_string())))
    }
}

/// Returns the command that git runs on the server, quoted as git quotes it.
fn command(path: &[u8]) -> Vec<u8> {
    // Git also treats `/~name` as a path in the home directory of `name`.
    let path = if path.starts_with(b"/~") {
        path.get(1..).unwrap_or_default()
    } else {
        path
    };
    let mut command = b"git-upload-pack '".to_vec();
    for byte in path {
        match byte {
            b'\'' | b'!' => command.extend([b'\'', b'\\', *byte, b'\'']),
            _ => command.push(*byte),
        }
    }
    command.push(b'\'');
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Url;

    #[test]
    fn commands_are_quoted() {
        for (path, wanted) in [
            ("/a/b.git", "git-upload-pack '/a/b.git'"),
            ("/~me/b", "git-upload-pack '~me/b'"),
            (
                "/a'; rm -rf $HOME; '",
                r"git-upload-pack '/a'\''; rm -rf $HOME; '\'''",
            ),
            ("/a!b", r"git-upload-pack '/a'\!'b'"),
        ] {
            assert_eq!(String::from_utf8(command(path.as_bytes())).unwrap(), wanted);
        }
    }

    #[test]
    fn listed_types_come_first() {
        let url = Url::parse("ssh://h/a", false).unwrap();
        let first = |line: &str| {
            key_order(&KnownHost::find(line, &url))
                .first()
                .map(ToString::to_string)
        };
        assert_eq!(first("h ssh-rsa QUFB"), Some("rsa-sha2-512".to_owned()));
        assert_eq!(
            first("h ecdsa-sha2-nistp256 QUFB"),
            Some("ecdsa-sha2-nistp256".to_owned())
        );
        assert_eq!(first(""), Some("ssh-ed25519".to_owned()));
        assert!(
            !key_order(&KnownHost::find("h ssh-rsa QUFB", &url))
                .contains(&Algorithm::Rsa { hash: None })
        );
    }
}
