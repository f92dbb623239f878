//! The order of lists: one after the other.

use std::{
    pin::pin,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::MutexGuard,
    time::{Instant, sleep_until},
};

/// Time without progress after which a list hangs. The other lists do not wait for it any more.
const HANGS_AFTER: Duration = Duration::from_secs(5);

/// A queue of lists. A page of large objects needs up to five times its size while it is decoded, so the pages of two
/// lists at once could exceed the memory of the container.
#[derive(Debug)]
pub(super) struct ListQueue {
    running: tokio::sync::Mutex<()>,
    /// Time of the last progress of any list.
    progress: Mutex<Instant>,
}

impl Default for ListQueue {
    fn default() -> Self {
        Self {
            running: tokio::sync::Mutex::default(),
            progress: Mutex::new(Instant::now()),
        }
    }
}

impl ListQueue {
    /// Waits until no other list runs. Returns `None` if the list that runs hangs.
    pub(super) async fn wait(&self) -> Option<MutexGuard<'_, ()>> {
        let mut acquired = pin!(self.running.lock());
        loop {
            let hangs_at = self.hangs_at();
            tokio::select! {
                biased;
                turn = &mut acquired => {
                    self.on_progress();
                    return Some(turn);
                }
                () = sleep_until(hangs_at) => {
                    if self.hangs_at() <= Instant::now() {
                        return None;
                    }
                }
            }
        }
    }

    /// Records that a list delivered an object.
    pub(super) fn on_progress(&self) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn hangs_at(&self) -> Instant {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) + HANGS_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_slow_list_is_waited_for_and_one_that_hangs_is_not() {
        let queue = ListQueue::default();
        let first = queue.wait().await;
        assert!(first.is_some());
        let begin = Instant::now();
        let slow = async {
            for _ in 0..10 {
                tokio::time::sleep(3 * SECOND).await;
                queue.on_progress();
            }
            drop(first);
        };
        let (second, ()) = tokio::join!(queue.wait(), slow);
        assert!(second.is_some());
        assert_eq!(begin.elapsed(), 30 * SECOND);
        // Nothing comes of the second: the third does not wait for its end.
        assert!(queue.wait().await.is_none());
        assert_eq!(begin.elapsed(), 35 * SECOND);
    }
}
