//! Servers on loopback that are no git servers.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::mpsc,
    thread,
    time::Duration,
};

/// A server that handles every connection in the same way.
pub(crate) struct Hostile {
    address: SocketAddr,
    left: mpsc::Receiver<()>,
    connected: mpsc::Receiver<()>,
}

impl Hostile {
    /// Accepts connections and reads, but sends nothing.
    pub(crate) fn silent() -> Self {
        Self::start(|_| {})
    }

    /// Sends these bytes, then closes its side of the connection.
    pub(crate) fn answering(answer: impl AsRef<[u8]>) -> Self {
        let answer = answer.as_ref().to_vec();
        Self::start(move |stream| {
            // Every client sends first. A client that gets a response before that may close the connection.
            let mut bytes = [0; 4096];
            assert!(stream.read(&mut bytes).unwrap() > 0);
            // The client may close the connection before all bytes are sent.
            let sent = stream.write_all(&answer);
            if sent.is_ok() {
                stream.shutdown(std::net::Shutdown::Write).unwrap();
            }
        })
    }

    /// Greets as an ssh server and then keeps the client busy indefinitely.
    pub(crate) fn trickling() -> Self {
        Self::start(|stream| {
            // Not encrypted: length, length of padding, "ignore this", padding.
            let ignore = b"\0\0\0\x0c\x06\x02\0\0\0\0\0\0\0\0\0\0";
            let mut sent = stream.write_all(b"SSH-2.0-x\r\n");
            while sent.is_ok() {
                thread::sleep(Duration::from_millis(20));
                sent = stream.write_all(ignore);
            }
        })
    }

    fn start(act: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (connects, connected) = mpsc::channel();
        let (leaves, left) = mpsc::channel();
        let act = std::sync::Arc::new(act);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if connects.send(()).is_err() {
                    return;
                }
                let (leaves, act) = (leaves.clone(), act.clone());
                thread::spawn(move || {
                    act(&mut stream);
                    let mut bytes = [0; 4096];
                    while stream.read(&mut bytes).is_ok_and(|count| count > 0) {}
                    // The test may have ended.
                    match leaves.send(()) {
                        Ok(()) | Err(mpsc::SendError(())) => {}
                    }
                });
            }
        });
        Self {
            address,
            left,
            connected,
        }
    }

    pub(crate) fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}/docs.git", self.address)
    }

    /// Waits until all clients have closed their connections.
    pub(crate) fn wait_until_left(&self) {
        let count = self.connected.try_iter().count();
        assert!(count > 0, "nobody came");
        for _ in 0..count {
            self.left
                .recv_timeout(Duration::from_secs(5))
                .expect("a connection is left");
        }
    }
}
