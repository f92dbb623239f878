//! A client for both sides: connections with HTTP/2, to the gateway and to the API server. Its own cost is the same.

use std::{
    fs,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Bytes,
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::Config;
use tokio::{net::TcpStream, task::JoinSet, time::timeout};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};

use crate::e2e::gateway::{
    client::HOST,
    fixture::{Caller, Stage},
};

/// Maximum time for a response.
const LIMIT: Duration = Duration::from_secs(60);

/// Connections to one server. Each has at most 32 requests at once at the gateway.
const CONNECTIONS: usize = 4;

/// Connections to one server, used in turn.
pub(super) struct Connections {
    senders: Vec<SendRequest<Full<Bytes>>>,
    next: AtomicUsize,
    /// What the addresses of requests begin with.
    origin: String,
    _driving: JoinSet<hyper::Result<()>>,
}

impl Connections {
    /// Connects to the gateway.
    pub(super) async fn to_gateway(stage: &Stage) -> Result<Self> {
        let root = CertificateDer::from_pem_slice(stage.certificate.as_bytes())?;
        Self::open(stage.gateway.https.address, HOST, &[root]).await
    }

    /// Connects to the API server.
    pub(super) async fn to_api_server(stage: &Stage) -> Result<Self> {
        let config = &stage.env.config;
        let host = config.cluster_url.host().context("no API server")?;
        let port = config.cluster_url.port_u16().unwrap_or(443);
        let address = SocketAddr::new(host.parse()?, port);
        let name = config.tls_server_name.as_deref().unwrap_or(host);
        Self::open(address, name, &authorities(config)?).await
    }

    async fn open(
        address: SocketAddr,
        name: &str,
        roots: &[CertificateDer<'static>],
    ) -> Result<Self> {
        let mut store = RootCertStore::empty();
        for root in roots {
            store.add(root.clone())?;
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(store)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let connector = TlsConnector::from(Arc::new(config));
        let (mut senders, mut driving) = (Vec::new(), JoinSet::new());
        for _ in 0..CONNECTIONS {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let server = ServerName::try_from(name.to_owned())?;
            let stream = connector.connect(server, stream).await?;
            ensure!(
                stream.get_ref().1.alpn_protocol() == Some(&b"h2"[..]),
                "the server does not speak HTTP/2"
            );
            let io = TokioIo::new(stream);
            let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
            driving.spawn(connection);
            senders.push(sender);
        }
        Ok(Self {
            senders,
            next: AtomicUsize::new(0),
            origin: format!("https://{name}"),
            _driving: driving,
        })
    }

    /// Sends a request, and returns the body of its response, which must have this status.
    pub(super) async fn send(&self, call: &Call<'_>, status: u16) -> Result<Bytes> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.senders.len();
        let mut sender = self.senders.get(turn).context("no connection")?.clone();
        let request = Request::builder()
            .method(call.method)
            .uri(format!("{}{}", self.origin, call.path))
            .header(
                header::AUTHORIZATION,
                format!("Bearer {}", call.caller.token),
            )
            .header(header::ACCEPT, call.accept);
        let request = match call.body.is_empty() {
            true => request,
            false => request.header(header::CONTENT_TYPE, "application/json"),
        };
        let request = request.body(Full::new(call.body.clone()))?;
        let exchange = async {
            let response = sender.send_request(request).await?;
            let found = response.status().as_u16();
            let body = response.into_body().collect().await?.to_bytes();
            ensure!(
                found == status,
                "{found} instead of {status}: {}",
                String::from_utf8_lossy(&body)
            );
            anyhow::Ok(body)
        };
        timeout(LIMIT, exchange).await.context("no response")?
    }
}

/// Returns the authorities of the API server's certificate.
fn authorities(config: &Config) -> Result<Vec<CertificateDer<'static>>> {
    let known = config.root_cert.iter().flat_map(|all| all.iter());
    let mut all: Vec<CertificateDer<'static>> =
        known.map(|der| CertificateDer::from(der.clone())).collect();
    if let Some(path) = &config.root_cert_file {
        all.push(CertificateDer::from_pem_slice(&fs::read(path)?)?);
    }
    ensure!(!all.is_empty(), "the cluster's authorities are not known");
    Ok(all)
}

/// A request.
pub(super) struct Call<'a> {
    pub(super) method: &'static str,
    pub(super) path: &'a str,
    pub(super) accept: &'static str,
    pub(super) caller: &'a Caller,
    pub(super) body: Bytes,
}
