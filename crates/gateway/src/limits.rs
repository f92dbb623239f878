//! Limits of requests: for each caller, and for each address that sends wrong tokens. Pure: the
//! time is an argument.
//!
//! Behind an Ingress, all callers have the same address. So wrong tokens of an address block only
//! callers that the API server has not accepted before.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use crate::token::Digest;

/// Requests per second of one caller.
const RATE: f64 = 20.0;

/// Requests of one caller at once.
const BURST: f64 = 60.0;

/// Responses with code 401 to one address in [`WINDOW`].
const FAILURES: u32 = 10;

/// The time in which failures are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// Maximum number of callers and of addresses that are remembered. An entry has about 64 bytes.
const ENTRIES: usize = 10_000;

/// Which limit is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exceeded {
    /// That of the caller.
    Requests,
    /// That of the address.
    Failures,
    /// That of all callers: too many are remembered.
    Callers,
}

impl Exceeded {
    /// Returns a description for the caller.
    pub(crate) fn detail(self) -> &'static str {
        match self {
            Self::Requests => "more than 20 requests per second, after 60 at once",
            Self::Failures => "more than 10 requests in a minute with tokens that are not accepted",
            Self::Callers => "too many callers at the same time",
        }
    }
}

/// The requests of a caller.
#[derive(Debug)]
struct Bucket {
    /// Requests that are allowed at once.
    left: f64,
    at: Instant,
    /// Whether the API server has accepted the token.
    is_accepted: bool,
}

impl Bucket {
    fn new(now: Instant) -> Self {
        Self {
            left: BURST,
            at: now,
            is_accepted: false,
        }
    }

    fn refill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.at);
        self.left = (self.left + elapsed.as_secs_f64() * RATE).min(BURST);
        self.at = now;
    }
}

/// The wrong tokens of an address.
#[derive(Debug)]
struct Failures {
    count: u32,
    since: Instant,
}

/// The limits of a process.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    callers: HashMap<Digest, Bucket>,
    addresses: HashMap<IpAddr, Failures>,
}

impl Limits {
    /// Counts a request, and returns the limit that it exceeds.
    pub(crate) fn admit(
        &mut self,
        caller: Digest,
        from: IpAddr,
        now: Instant,
    ) -> Result<(), Exceeded> {
        if !self.is_accepted(caller) {
            self.check_address(from, now)?;
        }
        if self.callers.len() >= ENTRIES && !self.callers.contains_key(&caller) {
            self.callers.retain(|_, bucket| {
                bucket.refill(now);
                bucket.left < BURST
            });
            if self.callers.len() >= ENTRIES {
                return Err(Exceeded::Callers);
            }
        }
        let bucket = self
            .callers
            .entry(caller)
            .or_insert_with(|| Bucket::new(now));
        bucket.refill(now);
        if bucket.left < 1.0 {
            return Err(Exceeded::Requests);
        }
        bucket.left -= 1.0;
        Ok(())
    }

    /// Returns whether the API server has accepted this token before.
    pub(crate) fn is_accepted(&self, caller: Digest) -> bool {
        let bucket = self.callers.get(&caller);
        bucket.is_some_and(|bucket| bucket.is_accepted)
    }

    /// Checks the address of a request without a known token.
    pub(crate) fn check_address(&self, from: IpAddr, now: Instant) -> Result<(), Exceeded> {
        match self.addresses.get(&from) {
            Some(failures)
                if failures.count >= FAILURES
                    && now.saturating_duration_since(failures.since) < WINDOW =>
            {
                Err(Exceeded::Failures)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Records that the API server has accepted a token.
    pub(crate) fn accepted(&mut self, caller: Digest) {
        if let Some(bucket) = self.callers.get_mut(&caller) {
            bucket.is_accepted = true;
        }
    }

    /// Records a request without an accepted token. A token can expire.
    pub(crate) fn failed(&mut self, caller: Option<Digest>, from: IpAddr, now: Instant) {
        if let Some(bucket) = caller.and_then(|caller| self.callers.get_mut(&caller)) {
            bucket.is_accepted = false;
        }
        if self.addresses.len() >= ENTRIES && !self.addresses.contains_key(&from) {
            let is_recent = |since| now.saturating_duration_since(since) < WINDOW;
            self.addresses
                .retain(|_, failures| is_recent(failures.since));
            if self.addresses.len() >= ENTRIES {
                return;
            }
        }
        let failures = self.addresses.entry(from).or_insert(Failures {
            count: 0,
            since: now,
        });
        if now.saturating_duration_since(failures.since) >= WINDOW {
            *failures = Failures {
                count: 0,
                since: now,
            };
        }
        failures.count = failures.count.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: Digest = [1; 32];
    const BOB: Digest = [2; 32];

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn admitted(limits: &mut Limits, caller: Digest, count: usize, now: Instant) -> usize {
        let all = (0..count).filter(|_| limits.admit(caller, address(1), now).is_ok());
        all.count()
    }

    #[test]
    fn a_caller_has_a_burst_and_a_rate() {
        let start = Instant::now();
        let mut limits = Limits::default();
        let at = |seconds| start + Duration::from_secs(seconds);
        for (caller, seconds, wanted) in [
            (ANN, 0, 60),
            (ANN, 0, 0),
            (BOB, 0, 60),
            (ANN, 1, 20),
            (ANN, 2, 20),
            (ANN, 60, 60),
        ] {
            let found = admitted(&mut limits, caller, 100, at(seconds));
            assert_eq!(found, wanted, "{caller:?} {seconds}");
        }
        let refused = limits.admit(ANN, address(1), at(60));
        assert_eq!(refused, Err(Exceeded::Requests));
    }

    #[test]
    fn wrong_tokens_block_an_address_for_a_minute_but_no_known_caller() {
        let start = Instant::now();
        let mut limits = Limits::default();
        limits.admit(ANN, address(1), start).unwrap();
        limits.accepted(ANN);
        for _ in 0..10 {
            assert_eq!(limits.check_address(address(1), start), Ok(()));
            limits.failed(None, address(1), start);
        }
        let later = start + Duration::from_secs(59);
        assert_eq!(
            limits.admit(BOB, address(1), later),
            Err(Exceeded::Failures)
        );
        assert_eq!(limits.admit(BOB, address(2), later), Ok(()));
        assert_eq!(limits.admit(ANN, address(1), later), Ok(()), "accepted");
        // A token that expired is not known any more.
        limits.failed(Some(ANN), address(1), later);
        assert_eq!(
            limits.admit(ANN, address(1), later),
            Err(Exceeded::Failures)
        );
        let end = start + Duration::from_secs(60);
        assert_eq!(limits.admit(BOB, address(1), end), Ok(()));
        limits.failed(None, address(1), end);
        assert_eq!(limits.admit(BOB, address(1), end), Ok(()), "a new minute");
    }

    #[test]
    fn the_memory_is_bounded() {
        let start = Instant::now();
        let mut limits = Limits::default();
        let caller = |number: usize| {
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&number.to_le_bytes());
            digest
        };
        for number in 0..ENTRIES {
            limits.admit(caller(number), address(1), start).unwrap();
        }
        let next = limits.admit(caller(ENTRIES), address(1), start);
        assert_eq!(next, Err(Exceeded::Callers));
        let later = start + Duration::from_secs(1);
        assert_eq!(limits.admit(caller(ENTRIES), address(1), later), Ok(()));
        assert_eq!(limits.callers.len(), 1, "those without recent requests");
    }
}
