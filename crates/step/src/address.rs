//! Resolves and checks the server's address. git connects to this address only.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use git::{Networks, Reason, Refused, Url};

use crate::failure::Failure;

/// Timeout of resolving a name.
const RESOLVE: Duration = Duration::from_secs(20);
/// Timeout of connecting to one address.
const CONNECT: Duration = Duration::from_secs(10);
/// Maximum number of addresses to try.
const TRIED: usize = 4;

/// Finds an address of the URL's host that is allowed and accepts connections.
///
/// # Errors
/// When the name has no address, any of its addresses is not allowed, or none accepts a connection.
pub(crate) fn find(url: &Url, networks: &Networks, deadline: Instant) -> Result<IpAddr, Failure> {
    let addresses = resolve(url, deadline)?;
    check(&addresses, networks).map_err(|refused| {
        Failure::new(
            Reason::AddressNotAllowed,
            format!("cannot use {url}: {refused}"),
        )
    })?;
    let mut last = None;
    for address in addresses.iter().take(TRIED) {
        let limit = CONNECT.min(deadline.saturating_duration_since(Instant::now()));
        // A timeout of zero is an error of the call.
        let limit = limit.max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&SocketAddr::new(*address, url.port()), limit) {
            Ok(_) => return Ok(*address),
            Err(error) => last = Some((address, error)),
        }
    }
    Err(Failure::new(
        Reason::RepositoryUnreachable,
        match last {
            None => format!("'{}' has no address", url.host()),
            Some((address, error)) => format!(
                "cannot connect to {url} at {address} port {}: {error}; check that the server runs and that network policies let this namespace reach it",
                url.port()
            ),
        },
    ))
}

/// Rejects all addresses if one is not allowed. A name with both kinds is made for an attack that repeats
/// the lookup until the result fits.
fn check(addresses: &[IpAddr], networks: &Networks) -> Result<(), Refused> {
    addresses
        .iter()
        .try_for_each(|address| networks.permits(*address))
}

fn resolve(url: &Url, deadline: Instant) -> Result<Vec<IpAddr>, Failure> {
    if let Ok(address) = url.host().parse() {
        return Ok(vec![address]);
    }
    let unreachable = |why: String| {
        Failure::new(
            Reason::RepositoryUnreachable,
            format!("the name '{}' cannot be resolved: {why}", url.host()),
        )
    };
    let (sender, receiver) = mpsc::channel();
    let (host, port) = (url.host().to_owned(), url.port());
    // The system's resolver has no deadline. This thread may outlive the wait, but not the process.
    thread::spawn(move || sender.send(lookup(&host, port)));
    let limit = RESOLVE.min(deadline.saturating_duration_since(Instant::now()));
    match receiver.recv_timeout(limit) {
        Ok(Ok(addresses)) => Ok(addresses),
        Ok(Err(error)) => Err(unreachable(error.to_string())),
        Err(error) => Err(unreachable(format!(
            "no answer within {} s ({error})",
            limit.as_secs()
        ))),
    }
}

fn lookup(host: &str, port: u16) -> io::Result<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    for address in (host, port).to_socket_addrs()? {
        if !addresses.contains(&address.ip()) {
            addresses.push(address.ip());
        }
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text, false).unwrap()
    }

    fn loopback() -> Networks {
        Networks::parse(["127.0.0.0/8", "::1/128"]).unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[test]
    fn one_refused_address_refuses_all() {
        let public: IpAddr = "8.8.8.8".parse().unwrap();
        let inside: IpAddr = "10.0.0.1".parse().unwrap();
        let networks = Networks::default();
        assert!(check(&[public], &networks).is_ok());
        assert!(check(&[public, inside], &networks).is_err());
    }

    #[test]
    fn an_address_that_answers_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "localhost"] {
            let url = url(&format!("https://{host}:{port}/a"));
            let found = find(&url, &loopback(), soon()).unwrap();
            assert_eq!(found, "127.0.0.1".parse::<IpAddr>().unwrap());
        }
    }

    #[test]
    fn failures_have_their_reasons() {
        let closed = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        for (text, networks, reason) in [
            (
                format!("https://127.0.0.1:{closed}/a"),
                loopback(),
                Reason::RepositoryUnreachable,
            ),
            (
                "https://no-such-name.invalid/a".to_owned(),
                loopback(),
                Reason::RepositoryUnreachable,
            ),
            (
                "https://localhost/a".to_owned(),
                Networks::default(),
                Reason::AddressNotAllowed,
            ),
        ] {
            let failure = find(&url(&text), &networks, soon()).unwrap_err();
            assert_eq!(failure.reason, reason, "{text}: {}", failure.message);
        }
    }
}
