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

/// Requests of one address at once with tokens that the API server has not accepted yet. Failures are
/// counted only after the response, so without this limit, any number could be sent at once.
const UNVERIFIED: u32 = 64;

/// The time in which failures are counted.
const WINDOW: Duration = Duration::from_secs(60);

/// Maximum number of callers and of addresses that are remembered. An entry has about 64 bytes.
const ENTRIES: usize = 10_000;

/// Followed logs of one caller at the same time.
const LOGS: u32 = 4;

/// Streams of all callers at the same time, with followed logs.
const STREAMS: u32 = 2_000;

/// What a caller keeps open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// A stream of events.
    Stream,
    /// A log that is followed.
    Log,
}

/// Which limit is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exceeded {
    /// That of the caller.
    Requests,
    /// That of the address.
    Failures,
    /// That of all callers: too many are remembered.
    Callers,
    /// That of the streams of the caller.
    Streams,
    /// That of the followed logs of the caller.
    Logs,
    /// That of the streams of all callers.
    AllStreams,
    /// That of the bodies of the caller.
    Bodies,
    /// That of the bodies of all callers.
    AllBodies,
}

impl Exceeded {
    /// Returns a description for the caller.
    pub(crate) fn detail(self) -> &'static str {
        match self {
            Self::Requests => "more than 20 requests per second, after 60 at once",
            Self::Failures => "more than 10 requests in a minute with tokens that are not accepted",
            Self::Callers => "too many callers at the same time",
            Self::Streams => "too many streams of one caller at the same time",
            Self::Logs => "more than 4 followed logs of one caller at the same time",
            Self::AllStreams => "more than 2000 streams of all callers at the same time",
            Self::Bodies => "more than 16 MiB of bodies of one caller at the same time",
            Self::AllBodies => "more than 48 MiB of bodies of all callers at the same time",
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

/// The requests of an address with tokens that are not accepted.
#[derive(Debug)]
struct Address {
    /// Responses with code 401 in the window.
    failures: u32,
    since: Instant,
    /// Requests in flight with a token that the API server has not accepted yet.
    unverified: u32,
}

impl Address {
    fn new(now: Instant) -> Self {
        Self {
            failures: 0,
            since: now,
            unverified: 0,
        }
    }

    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < WINDOW
    }
}

/// How a request was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The API server has accepted the token before.
    Accepted,
    /// The token is not known. [`Limits::ended`] must follow.
    Unverified,
}

/// The limits of a process.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    callers: HashMap<Digest, Bucket>,
    addresses: HashMap<IpAddr, Address>,
    /// Open streams and followed logs, by caller.
    open: HashMap<Digest, [u32; 2]>,
    all_open: u32,
}

impl Limits {
    /// Counts a request with a token, or returns the limit that it exceeds.
    pub(crate) fn admit(
        &mut self,
        caller: Digest,
        from: IpAddr,
        now: Instant,
    ) -> Result<Admission, Exceeded> {
        let is_accepted = self.is_accepted(caller);
        if !is_accepted {
            let address = self.address(from, now)?;
            if address.failures >= FAILURES || address.unverified >= UNVERIFIED {
                return Err(Exceeded::Failures);
            }
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
        if is_accepted {
            return Ok(Admission::Accepted);
        }
        self.address(from, now)?.unverified += 1;
        Ok(Admission::Unverified)
    }

    /// Counts a request without a token, or returns the limit that it exceeds.
    pub(crate) fn refuse(&mut self, from: IpAddr, now: Instant) -> Result<(), Exceeded> {
        let address = self.address(from, now)?;
        if address.failures >= FAILURES {
            return Err(Exceeded::Failures);
        }
        address.failures += 1;
        Ok(())
    }

    /// Returns whether the API server has accepted this token before.
    pub(crate) fn is_accepted(&self, caller: Digest) -> bool {
        let bucket = self.callers.get(&caller);
        bucket.is_some_and(|bucket| bucket.is_accepted)
    }

    /// Records that the API server has accepted a token.
    pub(crate) fn accepted(&mut self, caller: Digest) {
        if let Some(bucket) = self.callers.get_mut(&caller) {
            bucket.is_accepted = true;
        }
    }

    /// Records that the API server does not accept a token. A token can expire.
    pub(crate) fn failed(&mut self, caller: Digest, from: IpAddr, now: Instant) {
        if let Some(bucket) = self.callers.get_mut(&caller) {
            bucket.is_accepted = false;
        }
        // Without room for the address, its requests are rejected anyway.
        if let Ok(address) = self.address(from, now) {
            address.failures = address.failures.saturating_add(1);
        }
    }

    /// Records the end of a request that was admitted as unverified.
    pub(crate) fn ended(&mut self, from: IpAddr) {
        if let Some(address) = self.addresses.get_mut(&from) {
            address.unverified = address.unverified.saturating_sub(1);
        }
    }

    /// Returns the number of open streams and followed logs.
    pub(crate) fn all_open(&self) -> u32 {
        self.all_open
    }

    /// Counts a stream, or returns the limit that it exceeds. [`Limits::close`] must follow.
    pub(crate) fn open(
        &mut self,
        caller: Digest,
        held: Held,
        streams_per_caller: u32,
    ) -> Result<(), Exceeded> {
        if self.all_open >= STREAMS {
            return Err(Exceeded::AllStreams);
        }
        let [streams, logs] = self.open.entry(caller).or_default();
        let (count, limit, exceeded) = match held {
            Held::Stream => (streams, streams_per_caller, Exceeded::Streams),
            Held::Log => (logs, LOGS, Exceeded::Logs),
        };
        if *count >= limit {
            return Err(exceeded);
        }
        *count += 1;
        self.all_open += 1;
        Ok(())
    }

    /// Records the end of a stream.
    pub(crate) fn close(&mut self, caller: Digest, held: Held) {
        if let Some([streams, logs]) = self.open.get_mut(&caller) {
            let count = match held {
                Held::Stream => streams,
                Held::Log => logs,
            };
            *count = count.saturating_sub(1);
        }
        self.all_open = self.all_open.saturating_sub(1);
        if self.open.get(&caller) == Some(&[0, 0]) {
            self.open.remove(&caller);
        }
    }

    /// Returns the entry of an address, in the current window.
    fn address(&mut self, from: IpAddr, now: Instant) -> Result<&mut Address, Exceeded> {
        if self.addresses.len() >= ENTRIES && !self.addresses.contains_key(&from) {
            self.addresses
                .retain(|_, address| address.is_recent(now) || address.unverified > 0);
            if self.addresses.len() >= ENTRIES {
                return Err(Exceeded::Callers);
            }
        }
        let address = self
            .addresses
            .entry(from)
            .or_insert_with(|| Address::new(now));
        if !address.is_recent(now) {
            address.failures = 0;
            address.since = now;
        }
        Ok(address)
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
        let is_admitted = |_: &usize| {
            let admitted = limits.admit(caller, address(1), now).is_ok();
            limits.ended(address(1));
            admitted
        };
        (0..count).filter(is_admitted).count()
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
        let admitted = limits.admit(ANN, address(1), start);
        assert_eq!(admitted, Ok(Admission::Unverified));
        limits.accepted(ANN);
        limits.ended(address(1));
        for _ in 0..10 {
            assert_eq!(limits.refuse(address(1), start), Ok(()));
        }
        let later = start + Duration::from_secs(59);
        let blocked = Err(Exceeded::Failures);
        assert_eq!(limits.refuse(address(1), later), Err(Exceeded::Failures));
        assert_eq!(limits.admit(BOB, address(1), later), blocked);
        let elsewhere = limits.admit(BOB, address(2), later);
        assert_eq!(elsewhere, Ok(Admission::Unverified));
        let known = limits.admit(ANN, address(1), later);
        assert_eq!(known, Ok(Admission::Accepted));
        // A token that expired is not known any more.
        limits.failed(ANN, address(1), later);
        assert_eq!(limits.admit(ANN, address(1), later), blocked);
        let end = start + Duration::from_secs(60);
        assert!(limits.admit(BOB, address(1), end).is_ok(), "a new minute");
    }

    #[test]
    fn unknown_tokens_of_an_address_are_limited_before_their_responses() {
        let start = Instant::now();
        let mut limits = Limits::default();
        let token = |number: u8| [number; 32];
        for number in 0..64 {
            assert!(limits.admit(token(number), address(1), start).is_ok());
        }
        let blocked = Err(Exceeded::Failures);
        assert_eq!(limits.admit(token(99), address(1), start), blocked);
        limits.ended(address(1));
        let next = limits.admit(token(99), address(1), start);
        assert_eq!(next, Ok(Admission::Unverified));
    }

    #[test]
    fn streams_and_logs_of_a_caller_are_limited() {
        let mut limits = Limits::default();
        for _ in 0..8 {
            assert_eq!(limits.open(ANN, Held::Stream, 8), Ok(()));
        }
        for _ in 0..4 {
            assert_eq!(limits.open(ANN, Held::Log, 8), Ok(()));
        }
        assert_eq!(limits.open(ANN, Held::Stream, 8), Err(Exceeded::Streams));
        assert_eq!(limits.open(ANN, Held::Log, 8), Err(Exceeded::Logs));
        assert_eq!(limits.open(BOB, Held::Stream, 8), Ok(()));
        limits.close(ANN, Held::Stream);
        assert_eq!(limits.open(ANN, Held::Stream, 8), Ok(()));
        limits.close(BOB, Held::Stream);
        assert_eq!(
            limits.open.len(),
            1,
            "nothing is kept of a caller without streams"
        );
        for number in 0..STREAMS - 12 {
            let mut digest = [9; 32];
            digest[..4].copy_from_slice(&number.to_le_bytes());
            assert_eq!(limits.open(digest, Held::Stream, 8), Ok(()));
        }
        assert_eq!(limits.open(BOB, Held::Stream, 8), Err(Exceeded::AllStreams));
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
            limits.ended(address(1));
        }
        let next = limits.admit(caller(ENTRIES), address(1), start);
        assert_eq!(next, Err(Exceeded::Callers));
        let later = start + Duration::from_secs(1);
        assert!(limits.admit(caller(ENTRIES), address(1), later).is_ok());
        assert_eq!(limits.callers.len(), 1, "those without recent requests");

        let many = |number: usize| {
            let [.., b, c, d] = number.to_be_bytes();
            IpAddr::from([10, b, c, d])
        };
        for number in 0..ENTRIES {
            limits.refuse(many(number), start).unwrap();
        }
        let next = limits.refuse(many(ENTRIES), start);
        assert_eq!(next, Err(Exceeded::Callers));
        let minute = start + Duration::from_secs(60);
        assert_eq!(limits.refuse(many(ENTRIES), minute), Ok(()));
    }
}
