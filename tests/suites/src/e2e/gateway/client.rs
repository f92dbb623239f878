//! A client of the gateway that writes HTTP/1.1 itself: attacks send bytes that no library sends.
//!
//! Every response is checked against the OpenAPI document, and for the headers that each one has.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};

use super::document;

/// The gateway itself gives a request 30 s after its header.
const LIMIT: Duration = Duration::from_secs(60);

/// Name in the gateway's certificate.
pub(super) const HOST: &str = "localhost";

/// Headers of every response.
const HEADERS: [(&str, &str); 4] = [
    ("cache-control", "no-store"),
    ("content-security-policy", "frame-ancestors 'none'"),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
];

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) method: Method,
    /// Path and query, as they are sent.
    pub(super) target: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
}

/// Returns a request without a body.
pub(super) fn get(target: impl Into<String>) -> Call {
    Call::new(Method::GET, target)
}

/// Returns a request that deletes an object.
pub(super) fn delete(target: impl Into<String>) -> Call {
    Call::new(Method::DELETE, target)
}

/// Returns a request with a JSON body.
pub(super) fn post(target: impl Into<String>, body: &Value) -> Call {
    Call {
        body: body.to_string().into_bytes(),
        ..action(target)
    }
}

/// Returns a request of an action without parameters.
pub(super) fn action(target: impl Into<String>) -> Call {
    Call::new(Method::POST, target).with("content-type", "application/json")
}

impl Call {
    pub(super) fn new(method: Method, target: impl Into<String>) -> Self {
        Self {
            method,
            target: target.into(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Adds a header.
    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// Removes a header.
    pub(super) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self
    }

    /// Adds the token of the caller.
    pub(super) fn by(self, token: &str) -> Self {
        self.with("authorization", format!("Bearer {token}"))
    }

    /// Replaces the body.
    pub(super) fn body(self, body: impl Into<Vec<u8>>) -> Self {
        Self {
            body: body.into(),
            ..self
        }
    }

    /// Returns the head with the length of the body, and with these last lines.
    pub(super) fn head(&self, last: &[&str]) -> String {
        let Self { method, target, .. } = self;
        let mut head = format!("{method} {target} HTTP/1.1\r\n");
        if self.headers.iter().all(|(name, _)| *name != "host") {
            head.push_str(&format!("host: {HOST}\r\n"));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        for line in last {
            head.push_str(&format!("{line}\r\n"));
        }
        head.push_str("\r\n");
        head
    }

    /// Returns the whole request. The server closes the connection after its response.
    fn bytes(&self) -> Vec<u8> {
        let length = format!("content-length: {}", self.body.len());
        // A read with a length would be a read with a body.
        let head = match self.body.is_empty() && self.method != Method::POST {
            true => self.head(&["connection: close"]),
            false => self.head(&["connection: close", &length]),
        };
        [head.as_bytes(), &self.body].concat()
    }
}

/// A response.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// Reads a response whose connection has ended.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        let (head, body) = split(bytes).with_context(|| {
            let text = String::from_utf8_lossy(bytes);
            format!("no response, but '{text}'")
        })?;
        let answer = Self {
            body: body.to_vec(),
            ..Self::of_head(head)?
        };
        let length = answer.header("content-length").parse::<usize>()?;
        ensure!(
            length == answer.body.len(),
            "{length} bytes were announced, {} came",
            answer.body.len()
        );
        Ok(answer)
    }

    /// Reads the head of a response.
    pub(super) fn of_head(head: &[u8]) -> Result<Self> {
        let mut lines = std::str::from_utf8(head)?.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let status = status.context("no status")?.parse()?;
        let mut headers = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(": ").context("a header without a value")?;
            headers.append(
                HeaderName::from_bytes(name.as_bytes())?,
                HeaderValue::from_str(value)?,
            );
        }
        Ok(Self {
            status,
            headers,
            body: Vec::new(),
        })
    }

    /// Returns a header, or an empty text.
    pub(super) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).map(HeaderValue::to_str);
        match value {
            Some(Ok(value)) => value,
            Some(Err(_)) | None => "",
        }
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body of a response with this status. A text has no JSON, and is `null`.
    pub(super) fn is(&self, status: u16) -> Result<Value> {
        let text = self.text();
        ensure!(
            self.status == status,
            "{} instead of {status}: {text}",
            self.status
        );
        if self.header("content-type").starts_with("text/") {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&self.body).with_context(|| format!("no JSON: {text}"))
    }

    /// Returns the problem of a native endpoint with this status and reason.
    pub(super) fn fails(&self, status: u16, reason: &str) -> Result<Value> {
        let body = self.is(status)?;
        ensure!(
            self.header("content-type") == "application/problem+json"
                && body["reason"] == reason
                && body["status"] == status,
            "not {reason}: {body}"
        );
        Ok(body)
    }

    /// Returns the envelope of a failure with this status and these words.
    pub(super) fn refuses(&self, status: u16, words: &str) -> Result<Value> {
        let body = self.is(status)?;
        let message = body["message"].as_str().unwrap_or_default();
        ensure!(
            body["success"] == false && message.contains(words),
            "'{words}' is not in {body}"
        );
        Ok(body)
    }

    /// Checks the headers that protect a browser.
    pub(super) fn has_headers(&self) -> Result<()> {
        for (name, wanted) in HEADERS {
            let found = self.header(name);
            ensure!(
                found.contains(wanted),
                "the header '{name}' is '{found}', without '{wanted}'"
            );
        }
        Ok(())
    }
}

/// Returns the head and the body of a response, if the head is complete.
pub(super) fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some((bytes.get(..end)?, bytes.get(end + 4..)?))
}

/// A connection to a gateway.
pub(super) type Connection = TlsStream<TcpStream>;

/// The address of a gateway, and the certificate that its clients trust.
#[derive(Clone)]
pub(super) struct Https {
    pub(super) address: SocketAddr,
    http_1: TlsConnector,
    http_2: TlsConnector,
}

impl Https {
    pub(super) fn new(address: SocketAddr, certificate: &str) -> Result<Self> {
        Ok(Self {
            address,
            http_1: connector(certificate, b"http/1.1")?,
            http_2: connector(certificate, b"h2")?,
        })
    }

    /// Returns the same address with another trusted certificate.
    pub(super) fn trusting(&self, certificate: &str) -> Result<Self> {
        Self::new(self.address, certificate)
    }

    /// Opens a connection from this address of the machine.
    pub(super) async fn open_from(&self, from: Ipv4Addr) -> Result<Connection> {
        let stream = self.connect(from).await?;
        Ok(self.http_1.connect(name(HOST)?, stream).await?)
    }

    pub(super) async fn open(&self) -> Result<Connection> {
        self.open_from(Ipv4Addr::LOCALHOST).await
    }

    /// Opens a connection to a server that must have a certificate for this name.
    pub(super) async fn open_as(&self, host: &str) -> Result<Connection> {
        let stream = self.connect(Ipv4Addr::LOCALHOST).await?;
        Ok(self.http_1.connect(name(host)?, stream).await?)
    }

    /// Opens a connection for HTTP/2.
    pub(super) async fn open_http_2(&self) -> Result<Connection> {
        let stream = self.connect(Ipv4Addr::LOCALHOST).await?;
        let stream = self.http_2.connect(name(HOST)?, stream).await?;
        let agreed = stream.get_ref().1.alpn_protocol();
        ensure!(
            agreed == Some(&b"h2"[..]),
            "the server does not speak HTTP/2"
        );
        Ok(stream)
    }

    async fn connect(&self, from: Ipv4Addr) -> Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((from, 0)))?;
        let stream = socket.connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Sends a request, and returns its response, which must be as the OpenAPI document says.
    pub(super) async fn send(&self, call: Call) -> Result<Answer> {
        self.send_from(Ipv4Addr::LOCALHOST, call).await
    }

    pub(super) async fn send_from(&self, from: Ipv4Addr, call: Call) -> Result<Answer> {
        let what = format!("{} {}", call.method, call.target);
        let bytes = self.raw_from(from, &call.bytes()).await;
        let answer = bytes.and_then(|bytes| Answer::parse(&bytes));
        let answer = answer.with_context(|| what.clone())?;
        answer.has_headers().with_context(|| what.clone())?;
        document::check(call.method.as_str(), &call.target, &answer).context(what)?;
        Ok(answer)
    }

    /// Sends bytes, and returns all bytes until the server closes the connection.
    pub(super) async fn raw(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        self.raw_from(Ipv4Addr::LOCALHOST, bytes).await
    }

    async fn raw_from(&self, from: Ipv4Addr, bytes: &[u8]) -> Result<Vec<u8>> {
        let exchange = async {
            let mut stream = self.open_from(from).await?;
            // A server that rejects a large body closes the connection before it has read all of it.
            let _rejected = stream.write_all(bytes).await.is_err();
            anyhow::Ok(rest(&mut stream).await)
        };
        timeout(LIMIT, exchange)
            .await
            .with_context(|| format!("the connection was not closed within {LIMIT:?}"))?
    }
}

/// Returns all bytes until the server closes the connection, which may come without the end of TLS.
pub(super) async fn rest(stream: &mut Connection) -> Vec<u8> {
    let mut read = Vec::new();
    let _is_clean = stream.read_to_end(&mut read).await.is_ok();
    read
}

fn name(host: &str) -> Result<ServerName<'static>> {
    Ok(ServerName::try_from(host.to_owned())?)
}

fn connector(certificate: &str, protocol: &[u8]) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate.as_bytes())?)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_length_only_with_a_body() {
        let text = |call: Call| String::from_utf8(call.bytes()).unwrap();
        let read = text(get("/x?y=1").by("t"));
        assert_eq!(
            read,
            "GET /x?y=1 HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer t\r\nconnection: close\r\n\r\n"
        );
        let write = text(post("/x", &serde_json::json!({})));
        assert!(
            write.ends_with("connection: close\r\ncontent-length: 2\r\n\r\n{}"),
            "{write}"
        );
        assert!(text(action("/x")).contains("content-length: 0\r\n"));
    }

    #[test]
    fn a_response_is_read_whole_or_not_at_all() {
        let bytes = b"HTTP/1.1 409 Conflict\r\nallow: GET\r\ncontent-length: 2\r\n\r\n{}";
        let answer = Answer::parse(bytes).unwrap();
        assert_eq!((answer.status, answer.header("Allow")), (409, "GET"));
        assert_eq!(answer.is(409).unwrap(), serde_json::json!({}));
        assert!(answer.is(200).is_err());
        for wrong in [
            &b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}"[..],
            b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n",
            b"",
        ] {
            assert!(Answer::parse(wrong).is_err());
        }
    }
}
