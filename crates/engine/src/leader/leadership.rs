//! Permission of this process to write now.

use tokio::{
    sync::watch::{Receiver, error::RecvError},
    time::{Instant, sleep_until},
};

/// The Lease while this process holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldLease {
    /// Time until which this process may write.
    pub until: Instant,
    /// The resourceVersion of the write that acquired the Lease. Earlier leaders wrote before it.
    pub acquired_version: u64,
}

/// Leadership of this process, with notifications of its changes.
///
/// # Guarantees
/// - Each check reads the clock and not the state of the election's task. So a process that was frozen
///   past its time begins nothing after it was resumed, however late that task runs.
///
/// # Caveats
/// - The clock is Linux's `CLOCK_MONOTONIC`. It continues while a process is stopped, but not while
///   the whole machine is suspended. After such a suspension the clocks of other machines are ahead. A
///   write that begins before the next renewal fails is then harmless only because it can be repeated.
/// - Time passes between the check and the arrival of the write. [`Leadership::lost`] drops a request
///   that still waits for a connection. For a request on the wire, no clock on this side can help.
#[derive(Debug, Clone)]
pub struct Leadership(pub(super) Receiver<Option<HeldLease>>);

impl Leadership {
    /// Returns the leadership while the Lease is held. With `None` this process does not lead.
    #[must_use]
    pub fn new(lease: Receiver<Option<HeldLease>>) -> Self {
        Self(lease)
    }

    /// Returns whether this process may begin a write now.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.term().is_some()
    }

    /// Returns the version at which this process acquired the Lease that it holds now. Two terms of this
    /// process differ, however briefly another process led between them.
    pub(crate) fn term(&self) -> Option<u64> {
        let lease = *self.0.borrow();
        lease
            .filter(|lease| Instant::now() < lease.until)
            .map(|lease| lease.acquired_version)
    }

    /// Returns whether an earlier leader may have written an object after this version of it.
    ///
    /// # Caveats
    /// Compares versions of two resources. That is right if both are in the same etcd, which is
    /// the default of the API server.
    pub(crate) fn may_be_outdated(&self, version: u64) -> bool {
        self.0
            .borrow()
            .is_none_or(|lease| version < lease.acquired_version)
    }

    /// Waits until the leadership is won or lost. A renewal does not notify.
    ///
    /// # Errors
    /// If the candidate was dropped.
    pub async fn changed(&mut self) -> Result<(), RecvError> {
        self.0.changed().await
    }

    /// Waits until this process may not write any more. Returns at once if it may not write now.
    pub async fn lost(&self) {
        let mut lease_changes = self.0.clone();
        loop {
            // A renewal does not notify, so the time is read again when it is over.
            let lease = *lease_changes.borrow_and_update();
            let Some(lease) = lease.filter(|lease| Instant::now() < lease.until) else {
                return;
            };
            tokio::select! {
                () = sleep_until(lease.until) => {}
                changed = lease_changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{sync::watch, time::timeout};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn held_for(time: Duration) -> Option<HeldLease> {
        Some(HeldLease {
            until: Instant::now() + time,
            acquired_version: 7,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn only_versions_from_before_the_lease_may_be_outdated() {
        let (sender, receiver) = watch::channel(held_for(SECOND));
        let leading = Leadership::new(receiver);
        for (version, expected) in [(0, true), (6, true), (7, false), (8, false)] {
            assert_eq!(leading.may_be_outdated(version), expected, "{version}");
        }
        sender.send_replace(None);
        assert!(
            leading.may_be_outdated(8),
            "nothing is known without the Lease"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_comes_at_its_time_and_a_renewal_puts_it_off() {
        let (sender, receiver) = watch::channel(held_for(10 * SECOND));
        let leading = Leadership::new(receiver);
        assert!(timeout(9 * SECOND, leading.lost()).await.is_err());
        // Like a renewal: no receiver is woken.
        sender.send_if_modified(|lease| {
            *lease = held_for(10 * SECOND);
            false
        });
        assert!(timeout(9 * SECOND, leading.lost()).await.is_err());
        assert!(timeout(2 * SECOND, leading.lost()).await.is_ok());
        assert!(timeout(Duration::ZERO, leading.lost()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_loss_ends_it_at_once() {
        let (sender, receiver) = watch::channel(held_for(10 * SECOND));
        let leading = Leadership::new(receiver);
        let lose = async {
            tokio::time::sleep(SECOND).await;
            sender.send_replace(None);
        };
        let (ended, ()) = tokio::join!(timeout(2 * SECOND, leading.lost()), lose);
        assert!(ended.is_ok());
    }
}
