//! Tests of the listener on loopback, under floods.

use std::{sync::atomic::AtomicU64, thread};

use engine::supervise::Trigger;
use http::StatusCode;
use testkit::load::Ticks;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const LIMIT: usize = 256;

/// Maximum time for a response. With the chart's probes, the kubelet waits for 5 s. The listener must be
/// much faster.
const WITHIN: Duration = Duration::from_secs(1);

/// Maximum time for a response on a machine without free processor time. It is still below the kubelet's
/// timeout.
const FULL_MACHINE: Duration = Duration::from_secs(3);

struct Server {
    address: SocketAddr,
    stop: Trigger,
    task: JoinSet<Result<(), Infallible>>,
}

fn start(limit: usize, size: usize) -> Server {
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, shutdown) = Shutdown::pair();
    let page = Bytes::from(vec![b'x'; size]);
    let respond = move |_method: &Method, path: &str| {
        let mut response = Response::new(Full::new(page.clone()));
        if path != "/livez" {
            *response.status_mut() = StatusCode::NOT_FOUND;
        }
        response
    };
    let mut task = JoinSet::new();
    task.spawn(serve("test", listener, limit, respond, shutdown));
    Server {
        address,
        stop,
        task,
    }
}

/// Sends a request like the kubelet, on a new connection. Returns the response and its duration.
async fn ask(address: SocketAddr, head: &str) -> io::Result<(String, Duration)> {
    let begin = Instant::now();
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(format!("{head}\r\n\r\n").as_bytes())
        .await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    Ok((answer, begin.elapsed()))
}

const LIVEZ: &str = "GET /livez HTTP/1.1\r\nhost: x";

/// Opens connections from a thread with its own runtime, and reopens each connection that is closed.
struct Flood {
    opened: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Flood {
    fn start(address: SocketAddr, count: u32, first_bytes: &'static str) -> Self {
        let opened = Arc::<AtomicU64>::default();
        let is_over = Arc::<AtomicBool>::default();
        let (count_opened, stop) = (Arc::clone(&opened), Arc::clone(&is_over));
        let thread = thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(async move {
                let mut all = JoinSet::new();
                for _ in 0..count {
                    all.spawn(hold(address, first_bytes, Arc::clone(&count_opened)));
                }
                while !stop.load(Ordering::Relaxed) {
                    sleep(Duration::from_millis(10)).await;
                }
                all.shutdown().await;
            });
        });
        Self {
            opened,
            is_over,
            thread: Some(thread),
        }
    }

    fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Waits until all connections were opened once.
    async fn at_work(&self, count: u64) {
        while self.opened() < count {
            sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

async fn hold(address: SocketAddr, first_bytes: &'static str, opened: Arc<AtomicU64>) {
    loop {
        if let Ok(mut stream) = TcpStream::connect(address).await {
            opened.fetch_add(1, Ordering::Relaxed);
            // The listener may close the connection at any time. The flood waits for that.
            match stream.write_all(first_bytes.as_bytes()).await {
                Ok(()) => match stream.read(&mut [0; 64]).await {
                    Ok(_) | Err(_) => {}
                },
                Err(_closed) => {}
            }
        }
        sleep(Duration::from_millis(250)).await;
    }
}

/// Sends requests for some seconds while a flood keeps and reopens connections.
async fn survives(limit: usize, count: u32, first_bytes: &'static str) {
    let server = start(limit, 3);
    let flood = Flood::start(server.address, count, first_bytes);
    flood.at_work(u64::from(count)).await;
    let (begin, before) = (Instant::now(), flood.opened());
    let mut slowest = Duration::ZERO;
    while begin.elapsed() < Duration::from_secs(5) {
        let ticks = Ticks::now().unwrap();
        let answered = timeout(FULL_MACHINE, ask(server.address, LIVEZ)).await;
        let (answer, took) = answered.expect("no answer in time").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
        let load = Ticks::now().unwrap().load_since(ticks);
        let is_in_time = took < WITHIN || load.is_full();
        assert!(is_in_time, "{took:?}, processors busy {load}");
        slowest = slowest.max(took);
        sleep(Duration::from_millis(50)).await;
    }
    let reopened = flood.opened() - before;
    println!("{count} connections, {reopened} opened again; slowest answer {slowest:?}");
    assert!(reopened > u64::from(count), "this was no flood: {reopened}");
}

#[tokio::test]
async fn it_answers_while_two_thousand_silent_connections_are_held() {
    survives(LIMIT, 2_000, "").await;
}

#[tokio::test]
async fn it_answers_while_unfinished_headers_are_held() {
    survives(64, 500, "GET /livez HTTP/1.1\r\nhost: x\r\nx-").await;
}

#[tokio::test]
async fn clients_that_do_not_read_do_not_keep_others_waiting() {
    // More than the kernel buffers for a client that reads nothing.
    let server = start(4, 16 * 1024 * 1024);
    let mut deaf = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let request = b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n";
        stream.write_all(request).await.unwrap();
        deaf.push(stream);
    }
    let (answer, took) = timeout(FULL_MACHINE, ask(server.address, LIVEZ))
        .await
        .expect("no answer in time")
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{took:?}");
}

#[tokio::test]
async fn the_number_of_open_connections_is_bounded() {
    let server = start(20, 3);
    let mut silent = Vec::new();
    for _ in 0..25 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    for (index, stream) in silent.iter_mut().enumerate() {
        let read = timeout(Duration::from_millis(500), stream.read(&mut [0; 1])).await;
        // The oldest five are closed long before the header timeout.
        assert_eq!(read.is_ok(), index < 5, "connection {index}: {read:?}");
        if index == 5 {
            break;
        }
    }
}

#[tokio::test]
async fn a_slow_or_large_header_is_cut() {
    let server = start(LIMIT, 3);
    let begin = Instant::now();
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    let written = async {
        for byte in "GET /livez HTTP/1.1\r\nhost: x\r\nx: ".bytes().cycle() {
            if slow.write_all(&[byte]).await.is_err() {
                return;
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(10), written)
        .await
        .expect("a slow header is never cut");
    let took = begin.elapsed();
    assert!(took >= HEADER_TIMEOUT, "{took:?}");
    assert!(took < HEADER_TIMEOUT + WITHIN, "{took:?}");

    let large = format!("{LIVEZ}\r\nx: {}", "y".repeat(2 * HEADER_BYTES));
    // The connection may be closed before the rest of the header is sent.
    if let Ok((answer, _)) = ask(server.address, &large).await {
        assert!(!answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let nonsense = ask(server.address, "nonsense").await.unwrap();
    assert!(nonsense.0.starts_with("HTTP/1.1 400 "), "{nonsense:?}");
}

#[tokio::test]
async fn a_connection_is_one_request() {
    let server = start(LIMIT, 3);
    // The connection ends although the client would send more requests.
    let (answer, _) = ask(server.address, LIVEZ).await.unwrap();
    assert!(answer.ends_with("\r\n\r\nxxx"), "{answer}");
    let (answer, _) = ask(server.address, "HEAD /livez HTTP/1.1\r\nhost: x")
        .await
        .unwrap();
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn it_stops_at_once() {
    let mut server = start(LIMIT, 3);
    let _open = TcpStream::connect(server.address).await.unwrap();
    server.stop.pull();
    let stopped = timeout(WITHIN, server.task.join_next());
    stopped.await.unwrap().unwrap().unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}
