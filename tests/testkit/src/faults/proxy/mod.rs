//! A proxy between one operator and the real API server, which does what a script says.

mod answers;
mod delayed;
mod part;
mod relay;
mod script;
mod stream;
mod wire;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{Client, Config};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, pki_types::PrivatePkcs8KeyDer},
};

use self::{
    script::ScriptState,
    wire::{Line, Wire},
};
use super::point::Injection;

pub use self::{
    part::{PLAY, Part},
    script::Traced,
};

/// An operator has one for each watch, and some more.
const CONNECTIONS: usize = 512;

/// To reach the API server, and for a client's side of TLS.
const CONNECT: Duration = Duration::from_secs(10);

/// The pause after a failed accept: the machine may be out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// A process that can be killed; the runner puts the operator's in each time it starts one.
///
/// Caveat: take it out before the process is waited for; afterwards its number may be another's.
#[derive(Debug, Clone, Default)]
pub struct KillTarget(Arc<Mutex<Option<i32>>>);

impl KillTarget {
    /// The process to kill from now on, if any.
    pub fn set(&self, pid: Option<i32>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = pid;
    }

    /// SIGKILL, now; whether there was a process. It is forgotten.
    #[must_use]
    pub fn kill(&self) -> bool {
        // Locked until the signal is sent: `set` returns only when it can hit nobody any more.
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.take() {
            // 0 and what is below are groups of processes; 1 is the machine's first.
            Some(pid) if pid > 1 => kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok(),
            Some(_) | None => false,
        }
    }
}

/// Where the proxy is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `https://address:port`.
    pub server: String,
    /// The certificate that a client has to trust, as PEM.
    pub authority: String,
}

/// What all connections share.
struct Shared {
    part: Part,
    script: Mutex<ScriptState>,
    upstream: Client,
    target: KillTarget,
    calm: watch::Sender<bool>,
}

impl Shared {
    fn script(&self) -> MutexGuard<'_, ScriptState> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kill(&self, injection: usize) {
        if self.target.kill() {
            self.script().hit(injection);
        }
    }
}

/// The proxy; dropping it ends it, with all its connections.
///
/// Guarantees: without a fault a request, its Authorization and its answer pass unchanged, a watch's
/// events as they come. No event is lost from a live stream, no event overtakes another, and a LIST is
/// the server's. When a client goes, what it asked for is dropped at the server, too.
///
/// Caveats: a client certificate does not pass, nor does an upgrade (`exec`).
pub struct Proxy {
    endpoint: Endpoint,
    shared: Arc<Shared>,
    _serving: JoinSet<()>,
}

impl Proxy {
    /// Begins to serve. Of `upstream` only the address and the authorities are used; a client shows
    /// its own token. The `listener` may be in another network than this process.
    ///
    /// # Errors
    /// When no certificate can be made, or `upstream` cannot be used.
    pub async fn start(
        listener: std::net::TcpListener,
        upstream: &Config,
        target: KillTarget,
        script: Vec<Injection>,
    ) -> Result<Self> {
        Self::of_part(listener, upstream, target, script, Part::default()).await
    }

    /// The same for one play of several in a cluster.
    ///
    /// # Errors
    /// As [`Proxy::start`].
    pub async fn of_part(
        listener: std::net::TcpListener,
        upstream: &Config,
        target: KillTarget,
        script: Vec<Injection>,
        part: Part,
    ) -> Result<Self> {
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let (acceptor, endpoint) = identity(address)?;
        let shared = Arc::new(Shared {
            part,
            script: Mutex::new(ScriptState::new(script)),
            upstream: Client::try_from(bare(upstream))?,
            target,
            calm: watch::Sender::new(false),
        });
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, acceptor, Arc::clone(&shared)));
        Ok(Self {
            endpoint,
            shared,
            _serving: serving,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Every request so far, in the order of arrival.
    #[must_use]
    pub fn trace(&self) -> Vec<Traced> {
        self.shared.script().trace()
    }

    /// Which injections have been carried out at least once, in the order of the script: a kill if
    /// there was a process, a watch fault if it changed how an event came, `Gone` if a watch was
    /// answered with 410.
    #[must_use]
    pub fn hits(&self) -> Vec<bool> {
        self.shared.script().hits()
    }

    /// From now on nothing is injected any more; events that are held back come at once.
    pub fn calm(&self) {
        self.shared.script().calm();
        self.shared.calm.send_replace(true);
    }
}

/// Nothing of the administrator's own.
fn bare(admin: &Config) -> Config {
    let mut config = Config::new(admin.cluster_url.clone());
    config.root_cert.clone_from(&admin.root_cert);
    config.root_cert_file.clone_from(&admin.root_cert_file);
    config.tls_server_name.clone_from(&admin.tls_server_name);
    config.accept_invalid_certs = admin.accept_invalid_certs;
    config.connect_timeout = Some(CONNECT);
    // Watches are silent for long.
    config.read_timeout = None;
    config.default_retry = false;
    config.disable_compression = true;
    config.proxy_url = None;
    config
}

fn identity(address: SocketAddr) -> Result<(TlsAcceptor, Endpoint)> {
    let host = match address.ip() {
        ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        ip => ip,
    };
    let made = rcgen::generate_simple_self_signed([host.to_string()])?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .context("cannot use the certificate just made")?;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let endpoint = Endpoint {
        server: format!("https://{}", SocketAddr::new(host, address.port())),
        authority: made.cert.pem(),
    };
    Ok((TlsAcceptor::from(Arc::new(tls)), endpoint))
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            // What fails on a connection is that connection's end; its client sees it.
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, _from)) => {
                    connections.spawn(connection(stream, acceptor.clone(), Arc::clone(&shared)));
                }
                Err(_out_of_descriptors) => sleep(PAUSE).await,
            },
        }
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let accepted = async {
        stream.set_nodelay(true)?;
        acceptor.accept(stream).await
    };
    let Ok(Ok(stream)) = timeout(CONNECT, accepted).await else {
        return;
    };
    let line = Arc::new(Line::default());
    let service =
        service_fn(|request| relay::answer(request, Arc::clone(&shared), Arc::clone(&line)));
    let io = TokioIo::new(Wire::new(stream, Arc::clone(&line)));
    match http1::Builder::new().serve_connection(io, service).await {
        // As above.
        Ok(()) | Err(_) => {}
    }
}
