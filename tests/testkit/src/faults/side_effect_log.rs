//! What agents did, told by themselves, outside the cluster; and gates that they wait at.
//!
//! An agent's container says `wget -q -O - http://ADDRESS/did/NAMESPACE/RUN-UID/WHAT` when it has
//! done something, and waits with `wget -q -O - http://ADDRESS/gate/NAMESPACE/NAME`.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

/// More at a time are not answered: each is a container, and a suite does not start so many.
const CONNECTIONS: usize = 512;
/// The longest head of a request, in bytes: a path and a few headers.
const HEAD: usize = 4096;
/// The most effects that are kept, and the most gates.
const RECORDS: usize = 100_000;
/// A head or an answer that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// After a failed accept (no descriptor left, say) the next one would fail, too.
const PAUSE: Duration = Duration::from_millis(100);

/// Something that an agent did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// When it was told.
    pub at: Instant,
    /// The run's UID, as its container knows it.
    pub uid: String,
    /// What.
    pub what: String,
}

/// A tiny server. Dropping it ends it.
///
/// # Guarantees
/// An effect is recorded before its teller is answered. What could not be recorded, because a bound
/// was reached, makes [`SideEffectLog::check`] fail for ever.
pub struct SideEffectLog {
    address: SocketAddr,
    records: Arc<Mutex<Records>>,
    _server: JoinSet<()>,
}

#[derive(Default)]
struct Records {
    effects: BTreeMap<String, Vec<Effect>>,
    gates: BTreeMap<(String, String), Gate>,
    count: usize,
    broken: Option<String>,
}

struct Gate {
    is_open: watch::Sender<bool>,
    arrivals: usize,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            is_open: watch::Sender::new(false),
            arrivals: 0,
        }
    }
}

impl SideEffectLog {
    /// Serves on `listener`, which may be in another network than this process.
    ///
    /// # Errors
    /// When the listener cannot be used.
    ///
    /// # Panics
    /// Outside a runtime, as all of tokio's sockets do.
    pub fn start(listener: std::net::TcpListener) -> Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener =
            TcpListener::from_std(listener).context("cannot serve the side-effect log")?;
        let records = Arc::default();
        let mut server = JoinSet::new();
        server.spawn(serve(listener, Arc::clone(&records)));
        Ok(Self {
            address,
            records,
            _server: server,
        })
    }

    /// `ADDRESS` in the agents' scripts.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What was done in a namespace, in the order in which it was told.
    #[must_use]
    pub fn effects(&self, namespace: &str) -> Vec<Effect> {
        let records = locked(&self.records);
        records.effects.get(namespace).cloned().unwrap_or_default()
    }

    /// How many came to a gate so far, whether they still wait or not.
    #[must_use]
    pub fn waiting(&self, namespace: &str, name: &str) -> usize {
        let gate = (namespace.to_owned(), name.to_owned());
        let records = locked(&self.records);
        records.gates.get(&gate).map_or(0, |gate| gate.arrivals)
    }

    /// Opens a gate for all who wait and all who will come.
    pub fn open(&self, namespace: &str, name: &str) {
        if let Some(gate) = locked(&self.records).gate(namespace, name) {
            gate.is_open.send_replace(true);
        }
    }

    /// Whether everything that was told is recorded.
    ///
    /// # Errors
    /// When a bound was reached.
    pub fn check(&self) -> Result<()> {
        match &locked(&self.records).broken {
            Some(why) => bail!("the side-effect log is not complete: {why}"),
            None => Ok(()),
        }
    }
}

impl Records {
    fn breaks(&mut self, why: impl Into<String>) {
        self.broken.get_or_insert(why.into());
    }

    /// `None` if there is no room for another record.
    fn room(&mut self) -> Option<()> {
        if self.count >= RECORDS {
            self.breaks(format!("more than {RECORDS} records"));
            return None;
        }
        self.count += 1;
        Some(())
    }

    fn record(&mut self, namespace: String, effect: Effect) -> Option<()> {
        self.room()?;
        self.effects.entry(namespace).or_default().push(effect);
        Some(())
    }

    fn gate(&mut self, namespace: &str, name: &str) -> Option<&mut Gate> {
        let key = (namespace.to_owned(), name.to_owned());
        if !self.gates.contains_key(&key) {
            self.room()?;
        }
        Some(self.gates.entry(key).or_default())
    }
}

fn locked(records: &Mutex<Records>) -> MutexGuard<'_, Records> {
    records.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(listener: TcpListener, records: Arc<Mutex<Records>>) {
    let mut guests = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if guests.len() < CONNECTIONS => {
                    guests.spawn(answer(stream, Arc::clone(&records)));
                }
                Ok(_) => locked(&records).breaks(format!("more than {CONNECTIONS} connections")),
                Err(error) => {
                    locked(&records).breaks(format!("a connection could not be accepted: {error}"));
                    sleep(PAUSE).await;
                }
            },
            Some(Err(error)) = guests.join_next() => {
                locked(&records).breaks(format!("an answer was not given: {error}"));
            }
        }
    }
}

async fn answer(mut stream: TcpStream, records: Arc<Mutex<Records>>) {
    let Some(head) = read_head(&mut stream).await else {
        return;
    };
    let said = match asked(&head) {
        Some(Asked::Did {
            namespace,
            uid,
            what,
        }) => {
            let at = Instant::now();
            locked(&records).record(namespace, Effect { at, uid, what })
        }
        Some(Asked::Gate { namespace, name }) => {
            let is_open = locked(&records).gate(&namespace, &name).map(|gate| {
                gate.arrivals += 1;
                gate.is_open.subscribe()
            });
            match is_open {
                Some(mut is_open) => tokio::select! {
                    opened = is_open.wait_for(|is_open| *is_open) => opened.is_ok().then_some(()),
                    () = gone(&mut stream) => return,
                },
                None => None,
            }
        }
        None => None,
    };
    let answer: &[u8] = match said {
        Some(()) => b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
        None => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    };
    let told = async {
        stream.write_all(answer).await?;
        stream.shutdown().await
    };
    // Whoever went away before his answer did what he told all the same.
    match timeout(PATIENCE, told).await {
        Ok(Ok(()) | Err(_)) | Err(_) => {}
    }
}

/// Everything up to the empty line; `None` if that does not come.
async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let whole = async {
        let mut part = [0_u8; 512];
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read(&mut part).await {
                Ok(length) if length > 0 && head.len() + length <= HEAD => {
                    head.extend_from_slice(part.get(..length)?);
                }
                Ok(_) | Err(_) => return None,
            }
        }
        Some(())
    };
    match timeout(PATIENCE, whole).await {
        Ok(whole) => whole?,
        Err(_elapsed) => return None,
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// Ends when the other side has: its container was stopped.
async fn gone(stream: &mut TcpStream) {
    let mut more = [0_u8; 64];
    while matches!(stream.read(&mut more).await, Ok(length) if length > 0) {}
}

#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Did {
        namespace: String,
        uid: String,
        what: String,
    },
    Gate {
        namespace: String,
        name: String,
    },
}

fn asked(head: &str) -> Option<Asked> {
    let path = head.strip_prefix("GET /")?.split(' ').next()?;
    let parts: Vec<&str> = path.split('/').collect();
    let is_plain = |part: &&str| {
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
        !part.is_empty() && part.chars().all(is_name)
    };
    if !parts.iter().all(is_plain) {
        return None;
    }
    match parts.as_slice() {
        ["did", namespace, uid, what] => Some(Asked::Did {
            namespace: (*namespace).to_owned(),
            uid: (*uid).to_owned(),
            what: (*what).to_owned(),
        }),
        ["gate", namespace, name] => Some(Asked::Gate {
            namespace: (*namespace).to_owned(),
            name: (*name).to_owned(),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::{met, until};

    fn log() -> SideEffectLog {
        SideEffectLog::start(std::net::TcpListener::bind("127.0.0.1:0").unwrap()).unwrap()
    }

    /// The status line and the body.
    async fn get(log: &SideEffectLog, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(log.address()).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    #[test]
    fn only_plain_paths_are_understood() {
        let did = Asked::Did {
            namespace: "n".into(),
            uid: "u-1".into(),
            what: "done".into(),
        };
        let gate = Asked::Gate {
            namespace: "n".into(),
            name: "go".into(),
        };
        for (head, wanted) in [
            ("GET /did/n/u-1/done HTTP/1.1\r\n\r\n", Some(did)),
            ("GET /gate/n/go HTTP/1.0\r\n\r\n", Some(gate)),
            ("GET /did/n/u-1 HTTP/1.1\r\n\r\n", None),
            ("GET /did/n//done HTTP/1.1\r\n\r\n", None),
            ("GET /did/n/u/do%20ne HTTP/1.1\r\n\r\n", None),
            ("GET /gate/n/go/on HTTP/1.1\r\n\r\n", None),
            ("POST /did/n/u/done HTTP/1.1\r\n\r\n", None),
            ("", None),
        ] {
            assert_eq!(asked(head), wanted, "{head}");
        }
    }

    #[tokio::test]
    async fn effects_are_kept_in_order_and_by_namespace() {
        let log = log();
        for path in ["/did/a/u1/begun", "/did/b/u2/done", "/did/a/u1/done"] {
            let (status, body) = get(&log, path).await;
            assert_eq!(
                (status.as_str(), body.as_str()),
                ("HTTP/1.1 200 OK", "ok"),
                "{path}"
            );
        }
        let (status, _) = get(&log, "/did/a/u1").await;
        assert!(status.contains("404"), "{status}");
        let seen: Vec<(String, String)> = log
            .effects("a")
            .into_iter()
            .map(|effect| (effect.uid, effect.what))
            .collect();
        let wanted = [("u1", "begun"), ("u1", "done")].map(|(a, b)| (a.into(), b.into()));
        assert_eq!(seen, wanted);
        assert_eq!(log.effects("b").len(), 1);
        assert!(log.effects("c").is_empty());
        log.check().unwrap();
    }

    #[tokio::test]
    async fn a_gate_keeps_all_until_it_is_open_and_stays_open() {
        let log = Arc::new(log());
        let mut guests = JoinSet::new();
        for _ in 0..3 {
            let log = Arc::clone(&log);
            guests.spawn(async move { get(&log, "/gate/n/go").await });
        }
        let here = async |count: usize| {
            until("guests", Duration::from_secs(5), async || {
                let waiting = log.waiting("n", "go");
                Ok(met(waiting == count, || waiting.to_string()))
            })
            .await
            .unwrap();
        };
        here(3).await;
        // Another gate is another one, and so is one of another namespace.
        log.open("n", "other");
        log.open("m", "go");
        sleep(Duration::from_millis(50)).await;
        assert!(guests.try_join_next().is_none());
        log.open("n", "go");
        while let Some(answered) = guests.join_next().await {
            assert_eq!(answered.unwrap().1, "ok");
        }
        assert_eq!(get(&log, "/gate/n/go").await.1, "ok");
        here(4).await;
        log.check().unwrap();
    }

    #[tokio::test]
    async fn whoever_leaves_a_gate_frees_his_place() {
        let log = log();
        for count in 1..=CONNECTIONS + 10 {
            let mut stream = TcpStream::connect(log.address()).await.unwrap();
            stream
                .write_all(b"GET /gate/n/go HTTP/1.1\r\n\r\n")
                .await
                .unwrap();
            let here = async {
                while log.waiting("n", "go") < count {
                    sleep(Duration::from_millis(1)).await;
                }
            };
            timeout(PATIENCE, here).await.unwrap();
        }
        log.check().unwrap();
    }

    #[tokio::test]
    async fn what_is_too_much_is_said() {
        let log = log();
        let long = format!("/did/n/u/{}", "x".repeat(HEAD));
        let mut stream = TcpStream::connect(log.address()).await.unwrap();
        let request = format!("GET {long} HTTP/1.1\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // Cut off, with or without a reset.
        match stream.read_to_end(&mut answer).await {
            Ok(_) | Err(_) => assert!(answer.is_empty()),
        }
        log.check().unwrap();

        locked(&log.records).count = RECORDS - 1;
        assert!(get(&log, "/did/n/u/last").await.0.contains("200"));
        log.check().unwrap();
        assert!(get(&log, "/did/n/u/more").await.0.contains("404"));
        assert_eq!(log.effects("n").len(), 1);
        let error = log.check().unwrap_err().to_string();
        assert!(error.contains("100000 records"), "{error}");
    }
}
