//! Addresses on which the operators of a test process listen.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicU32, Ordering},
};

/// Below those of NodePorts and of connections.
const PORTS: u16 = 20_000;

/// Two addresses that nobody else uses. The host belongs to this process, and the ports are none that the
/// kernel gives to connections and to listeners on all addresses: those took them between a look for a
/// free one and the operator's start.
pub(super) fn own() -> (SocketAddr, SocketAddr) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    addresses_of(process, count)
}

fn addresses_of(process: u32, count: u32) -> (SocketAddr, SocketAddr) {
    let byte = |number: u32| u8::try_from(number % 256).unwrap_or_default();
    let host = Ipv4Addr::new(
        127,
        byte(1 + (process >> 8) % 254),
        byte(process),
        byte(1 + count % 254),
    );
    let port = PORTS + 2 * u16::try_from(count / 254 % 5_000).unwrap_or_default();
    ((host, port).into(), (host, port + 1).into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_operator_has_an_address_of_its_own() {
        let starts = (0..2_000_u32).map(|count| addresses_of(4_242, count));
        let others = (0..2_000_u32).map(|count| addresses_of(4_243, count));
        let all: BTreeSet<SocketAddr> = starts
            .chain(others)
            .flat_map(|(probes, metrics)| [probes, metrics])
            .collect();
        assert_eq!(all.len(), 8_000);
        for address in all {
            assert!(address.ip().is_loopback(), "{address}");
            assert!((PORTS..30_000).contains(&address.port()), "{address}");
        }
    }
}
