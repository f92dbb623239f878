//! Whether this process may write now.

use tokio::{
    sync::watch::{Receiver, error::RecvError},
    time::{Instant, sleep_until},
};

/// Whether this process leads, and news of it.
///
/// # Guarantees
/// - It is asked of the clock each time, not of the election's task: a process that was frozen past
///   its time begins nothing after it was resumed, however late that task runs.
///
/// # Caveats
/// - The clock is Linux's `CLOCK_MONOTONIC`. It goes on while a process is stopped, but not while
///   the whole machine is suspended: after such a sleep the other machines' clocks are ahead, and
///   what is begun before the next renewal fails is harmless only because it can be repeated.
/// - Between the question and the write's arrival time passes. [`Leading::ended`] drops a request that
///   still waits for a connection; for what is on the wire no clock on this side can help.
#[derive(Debug, Clone)]
pub struct Leading(pub(super) Receiver<Option<Instant>>);

impl Leading {
    /// Until the time that is told there; not at all while there is none.
    #[must_use]
    pub fn new(until: Receiver<Option<Instant>>) -> Self {
        Self(until)
    }

    /// Whether this process may begin a write now.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Waits until the leadership was won or lost; a renewal is no news.
    ///
    /// # Errors
    /// When the candidate is gone.
    pub async fn changed(&mut self) -> Result<(), RecvError> {
        self.0.changed().await
    }

    /// Waits until this process may not write any more; at once if it may not now.
    pub async fn ended(&self) {
        let mut news = self.0.clone();
        loop {
            // A renewal is no news: the time is read again when it is over.
            let until = *news.borrow_and_update();
            let Some(until) = until.filter(|until| Instant::now() < *until) else {
                return;
            };
            tokio::select! {
                () = sleep_until(until) => {}
                changed = news.changed() => {
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

    #[tokio::test(start_paused = true)]
    async fn the_end_comes_at_its_time_and_a_renewal_puts_it_off() {
        let in_seconds = |count: u32| Some(Instant::now() + SECOND * count);
        let (sender, receiver) = watch::channel(in_seconds(10));
        let leading = Leading::new(receiver);
        assert!(timeout(9 * SECOND, leading.ended()).await.is_err());
        // As a renewal does it: nobody is woken.
        sender.send_if_modified(|until| {
            *until = in_seconds(10);
            false
        });
        assert!(timeout(9 * SECOND, leading.ended()).await.is_err());
        assert!(timeout(2 * SECOND, leading.ended()).await.is_ok());
        assert!(timeout(Duration::ZERO, leading.ended()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_loss_ends_it_at_once() {
        let (sender, receiver) = watch::channel(Some(Instant::now() + 10 * SECOND));
        let leading = Leading::new(receiver);
        let lose = async {
            tokio::time::sleep(SECOND).await;
            sender.send_replace(None);
        };
        let (ended, ()) = tokio::join!(timeout(2 * SECOND, leading.ended()), lose);
        assert!(ended.is_ok());
    }
}
