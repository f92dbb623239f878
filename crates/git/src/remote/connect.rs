//! Connects to a URL's server after checking its addresses.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};

use crate::{Reason, RemoteError};

use super::Asking;

/// Maximum number of addresses of a name. No server has more.
const ADDRESSES: usize = 64;

/// Maximum number of addresses to try, each with an equal share of the timeout.
const TRIES: u32 = 3;

impl Asking<'_> {
    /// Returns the server's addresses. All are checked, because one forbidden address among allowed ones is
    /// a trap.
    pub(super) async fn addresses(&self) -> Result<Vec<SocketAddr>, RemoteError> {
        let (url, networks) = (&self.question.url, &self.question.networks);
        let refused = |why: crate::Refused| self.error(Reason::AddressNotAllowed, &why.to_string());
        networks.permits_name(url.host()).map_err(refused)?;
        let addresses: Vec<SocketAddr> = match lookup_host((url.host(), url.port())).await {
            Ok(addresses) => addresses.take(ADDRESSES + 1).collect(),
            Err(error) => {
                let why = self.words(&error.to_string());
                return Err(
                    self.unreachable(&format!("the name '{}' has no address: {why}", url.host()))
                );
            }
        };
        if addresses.is_empty() || addresses.len() > ADDRESSES {
            return Err(self.unreachable(&format!(
                "the name '{}' has none or too many addresses",
                url.host()
            )));
        }
        for address in &addresses {
            networks.permits(address.ip()).map_err(refused)?;
        }
        Ok(addresses)
    }

    /// Connects to the first address that responds.
    pub(super) async fn connect(&self, addresses: &[SocketAddr]) -> Result<TcpStream, RemoteError> {
        let share: Duration = self.question.timeout / (TRIES + 1);
        let mut failures = Vec::new();
        for address in addresses.iter().take(TRIES as usize) {
            match tokio::time::timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => failures.push(format!("{address}: {error}")),
                Err(_) => failures.push(format!(
                    "{address}: no answer within {} s",
                    share.as_secs_f64()
                )),
            }
        }
        Err(self.unreachable(&format!(
            "no connection ({}); check that the server is up, and that the network lets the operator reach it",
            failures.join(", ")
        )))
    }
}
