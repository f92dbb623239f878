//! Git's smart protocol over http and https.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, LOCATION, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, crypto::ring};

use super::answer::{Answer, Progress, Wrong, request};
use super::{Asking, References};
use crate::credentials::Login;
use crate::{Reason, RemoteError, Scheme};

/// Maximum size of the headers of a response, in bytes. Git servers send a tenth of it.
const HEADERS_LIMIT: usize = 64 * 1024;

/// User agent. Servers distinguish git from browsers by it.
const AGENT: &str = concat!("git/2.0 (orchestrator ", env!("CARGO_PKG_VERSION"), ")");

pub(super) async fn ask(
    asking: Asking<'_>,
    login: Option<&Login>,
    authorities: Option<&str>,
) -> Result<References, RemoteError> {
    let tls = match asking.question.url.scheme() {
        Scheme::Https => Some(asking.tls(authorities)?),
        Scheme::Http | Scheme::Ssh => None,
    };
    let addresses = asking.addresses().await?;
    let server = Server {
        asking,
        login,
        tls,
        addresses,
    };
    let question = asking.question;

    let mut greeting = Answer::new(question);
    match server.greeting(&mut greeting).await? {
        Progress::Listed => Ok(greeting.into_references()),
        Progress::Greeted(format) => {
            let mut list = Answer::to_request(question);
            match server
                .list(request(question, format.as_deref()), &mut list)
                .await?
            {
                Progress::Listed => Ok(list.into_references()),
                Progress::Greeted(_) | Progress::More => Err(asking.cut()),
            }
        }
        Progress::More => Err(asking.cut()),
    }
}

struct Server<'a> {
    asking: Asking<'a>,
    login: Option<&'a Login>,
    tls: Option<Arc<ClientConfig>>,
    addresses: Vec<SocketAddr>,
}

impl Server<'_> {
    async fn greeting(&self, answer: &mut Answer) -> Result<Progress, RemoteError> {
        let request = self.request(Method::GET, "/info/refs?service=git-upload-pack", "*/*", "")?;
        self.exchange(
            request,
            "application/x-git-upload-pack-advertisement",
            answer,
        )
        .await
    }

    async fn list(&self, body: String, answer: &mut Answer) -> Result<Progress, RemoteError> {
        let result = "application/x-git-upload-pack-result";
        let mut request = self.request(Method::POST, "/git-upload-pack", result, &body)?;
        let kind = HeaderValue::from_static("application/x-git-upload-pack-request");
        request.headers_mut().insert(CONTENT_TYPE, kind);
        self.exchange(request, result, answer).await
    }

    fn request(
        &self,
        method: Method,
        end: &str,
        accept: &str,
        body: &str,
    ) -> Result<Request<Full<Bytes>>, RemoteError> {
        let url = &self.asking.question.url;
        let host = url.to_string();
        let host = host.split('/').nth(2).unwrap_or_default();
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{end}", url.path().trim_end_matches('/')))
            .header(HOST, host)
            .header(USER_AGENT, AGENT)
            .header(ACCEPT, accept)
            .header("Git-Protocol", "version=2");
        if let Some(Login { username, password }) = self.login {
            request = request.header(AUTHORIZATION, basic(username, password));
        }
        let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
        request.body(body).map_err(|error| {
            self.asking
                .unreachable(&self.asking.words(&error.to_string()))
        })
    }

    /// Sends one request on a new connection. So the keep-alive of the server does not matter.
    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        kind: &str,
        answer: &mut Answer,
    ) -> Result<Progress, RemoteError> {
        let stream = self.asking.connect(&self.addresses).await?;
        let Some(tls) = &self.tls else {
            return self.over(stream, request, kind, answer).await;
        };
        let name = ServerName::try_from(self.asking.question.url.host().to_owned())
            .map_err(|error| self.asking.unreachable(&error.to_string()))?;
        match TlsConnector::from(Arc::clone(tls))
            .connect(name, stream)
            .await
        {
            Ok(stream) => self.over(stream, request, kind, answer).await,
            Err(error) => Err(self.asking.tls_error(&error)),
        }
    }

    async fn over<Stream: AsyncRead + AsyncWrite + Unpin + Send>(
        &self,
        stream: Stream,
        request: Request<Full<Bytes>>,
        kind: &str,
        answer: &mut Answer,
    ) -> Result<Progress, RemoteError> {
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(HEADERS_LIMIT)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.asking.broken(&error))?;
        let exchange = async {
            let response = sender
                .send_request(request)
                .await
                .map_err(|error| self.asking.broken(&error))?;
            self.check(&response, kind)?;
            self.read(response.into_body(), answer).await
        };
        tokio::pin!(exchange, connection);
        tokio::select! {
            progress = &mut exchange => progress,
            // The connection ended. The exchange still returns the data that was read, or the error.
            Ok(()) | Err(_) = &mut connection => exchange.await,
        }
    }

    fn check(&self, response: &Response<Incoming>, kind: &str) -> Result<(), RemoteError> {
        let asking = self.asking;
        let status = response.status();
        let header = |name| {
            let value: Option<&HeaderValue> = response.headers().get(name);
            value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        match status {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let found = match self.login {
                    Some(_) => {
                        "does not accept the username and password; check them, and what they may read"
                    }
                    None => {
                        "wants a username and a password, and none were given; name a Secret with both"
                    }
                };
                return Err(asking.error(
                    Reason::AuthenticationFailed,
                    &format!("the server answered {status}: it {found}"),
                ));
            }
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                let found = format!(
                    "the server answered {status}: there is no such repository, or it is not shown to these credentials; check the URL"
                );
                return Err(asking.error(Reason::RepositoryNotFound, &found));
            }
            _ if status.is_redirection() => {
                let target = header(LOCATION)
                    .map_or_else(|| "nowhere".to_owned(), |text| asking.words(host_of(&text)));
                let found = format!(
                    "the server redirects to '{target}', and redirects are not followed; write the URL that it redirects to"
                );
                return Err(asking.unreachable(&found));
            }
            _ => return Err(asking.unreachable(&format!("the server answered {status}"))),
        }
        match header(CONTENT_TYPE) {
            Some(found)
                if found
                    .split(';')
                    .next()
                    .is_some_and(|found| found.trim().eq_ignore_ascii_case(kind)) =>
            {
                Ok(())
            }
            Some(found) => Err(asking.unreachable(&format!(
                "the server answered with '{}' and not as a git server; check the URL",
                asking.words(&found)
            ))),
            None => Err(asking.unreachable("the server's answer is not git's; check the URL")),
        }
    }

    async fn read(&self, mut body: Incoming, answer: &mut Answer) -> Result<Progress, RemoteError> {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| self.asking.broken(&error))?;
            if let Some(data) = frame.data_ref() {
                match answer.put(data).map_err(|wrong| self.asking.wrong(wrong))? {
                    Progress::More => {}
                    progress @ (Progress::Greeted(_) | Progress::Listed) => return Ok(progress),
                }
            }
        }
        Ok(Progress::More)
    }
}

impl Asking<'_> {
    /// Trusts only the authorities of the Secret, or those of the system if the Secret has none.
    fn tls(&self, authorities: Option<&str>) -> Result<Arc<ClientConfig>, RemoteError> {
        let roots = match authorities {
            Some(pem) => Arc::new(self.given_roots(pem)?),
            None => self.system_roots()?,
        };
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| self.unreachable(&error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    fn given_roots(&self, pem: &str) -> Result<RootCertStore, RemoteError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let added = match certificate {
                Ok(certificate) => roots.add(certificate).map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            added.map_err(|why| {
                let found = format!(
                    "the Secret's key 'ca.crt' cannot be used: {}",
                    self.words(&why)
                );
                self.error(Reason::CredentialsInvalid, &found)
            })?;
        }
        Ok(roots)
    }

    fn system_roots(&self) -> Result<Arc<RootCertStore>, RemoteError> {
        // Reading a hundred certificates takes longer than the rest of a request.
        static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
        if let Some(roots) = ROOTS.get() {
            return Ok(Arc::clone(roots));
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            let found = "the system of the operator has no certificate authorities; give the server's as 'ca.crt' in the Secret";
            return Err(self.error(Reason::CertificateNotTrusted, found));
        }
        Ok(Arc::clone(ROOTS.get_or_init(|| Arc::new(roots))))
    }

    fn tls_error(&self, error: &std::io::Error) -> RemoteError {
        let inner = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let why = self.words(&error.to_string());
        if let Some(rustls::Error::InvalidCertificate(_)) = inner {
            let found = format!(
                "the server's certificate is not trusted ({why}); if it is right, give the authority that issued it as 'ca.crt' in the Secret"
            );
            return self.error(Reason::CertificateNotTrusted, &found);
        }
        self.unreachable(&format!("TLS failed: {why}"))
    }

    fn broken(&self, error: &hyper::Error) -> RemoteError {
        let cause = std::error::Error::source(error)
            .map(|cause| format!(": {cause}"))
            .unwrap_or_default();
        let why = self.words(&format!("{error}{cause}"));
        self.unreachable(&format!(
            "the connection failed, or the answer is not http ({why})"
        ))
    }

    pub(super) fn cut(&self) -> RemoteError {
        self.unreachable("the server's answer ended too early")
    }

    pub(super) fn wrong(&self, wrong: Wrong) -> RemoteError {
        match wrong {
            Wrong::NotGit(found) => self.unreachable(&format!("{found}; check the URL")),
            Wrong::TooMuch => {
                let found = "the server lists more than 4 MiB of references or 100000 of them; a server with git's protocol version 2 lists only those asked for";
                self.error(Reason::RepositoryTooLarge, found)
            }
            Wrong::Refused(words) => self.refusal(&words),
        }
    }

    /// Creates the error for a rejection. Its reason must be guessed from the server's text.
    pub(super) fn refusal(&self, words: &str) -> RemoteError {
        let words = self.words(words);
        self.error(reason_in(&words), &format!("the server says '{words}'"))
    }
}

/// Guesses the reason from the texts of servers for `git-upload-pack`: git, GitHub, GitLab, Gitea,
/// Bitbucket, Gerrit.
fn reason_in(words: &str) -> Reason {
    let words = words.to_ascii_lowercase();
    let says = |parts: &[&str]| parts.iter().any(|part| words.contains(part));
    // The text of a shell: git is missing, not the repository.
    if says(&[
        "command not found",
        "git-upload-pack: not found",
        "git: not found",
    ]) {
        Reason::RepositoryUnreachable
    } else if says(&[
        "not found",
        "does not exist",
        "not appear to be a git repository",
        "could not be found",
    ]) {
        Reason::RepositoryNotFound
    } else if says(&[
        "permission denied",
        "access denied",
        "not authorized",
        "unauthorized",
        "forbidden",
    ]) {
        Reason::AuthenticationFailed
    } else {
        Reason::RepositoryUnreachable
    }
}

/// Returns the host of a `Location`. A message must not contain the rest, which may be secret.
fn host_of(location: &str) -> &str {
    match location.split_once("//") {
        Some((_, rest)) => {
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            authority.rsplit('@').next().unwrap_or_default()
        }
        None => "another path of the same server",
    }
}

fn basic(username: &str, password: &str) -> String {
    format!(
        "Basic {}",
        STANDARD.encode(format!("{username}:{password}"))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_locations() {
        for (location, host) in [
            ("https://a.example/x?token=hush", "a.example"),
            ("https://me:hush@a.example:8443/x", "a.example:8443"),
            ("//a.example", "a.example"),
            ("/login", "another path of the same server"),
            ("", "another path of the same server"),
        ] {
            assert_eq!(host_of(location), host, "{location}");
        }
    }

    #[test]
    fn reasons_in_words() {
        for (words, reason) in [
            (
                "fatal: '/x' does not appear to be a git repository",
                Reason::RepositoryNotFound,
            ),
            ("ERROR: Repository not found.", Reason::RepositoryNotFound),
            (
                "The project you were looking for could not be found",
                Reason::RepositoryNotFound,
            ),
            (
                "bash: line 1: git-upload-pack: command not found",
                Reason::RepositoryUnreachable,
            ),
            (
                "zsh:1: command not found: git-upload-pack",
                Reason::RepositoryUnreachable,
            ),
            (
                "sh: 1: git-upload-pack: not found",
                Reason::RepositoryUnreachable,
            ),
            ("Permission denied", Reason::AuthenticationFailed),
            (
                "access denied or repository not exported",
                Reason::AuthenticationFailed,
            ),
            ("fatal: out of memory", Reason::RepositoryUnreachable),
            ("", Reason::RepositoryUnreachable),
        ] {
            assert_eq!(reason_in(words), reason, "{words}");
        }
    }
}
