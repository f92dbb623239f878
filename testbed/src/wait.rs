//! Waiting for a sight, bounded, with what was seen last.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep, timeout_at};

use crate::load::Ticks;

/// Short enough that waits do not add up, long enough not to load the API server.
const PAUSE: Duration = Duration::from_millis(100);

/// On a machine without processor time to spare a wait may take so many times its limit: what is late there
/// may be any program on the machine. A machine with time to spare holds the limit itself.
const FULL_MACHINE: u32 = 3;

/// Looks again and again until `look` says `Ok(Ok(value))`.
///
/// `look` is not an `AsyncFn`: the compiler cannot show that the future of one may move to another
/// thread, and the cases of a suite do.
///
/// # Errors
/// At once when `look` fails; after `limit` with the last `Ok(Err(why))`, or three times `limit` if the machine's
/// processors were busy all the time.
pub async fn until<T, F>(what: &str, limit: Duration, look: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<Result<T, String>>>,
{
    let begun = Instant::now();
    let ticks = Ticks::now()?;
    let mut last = "nothing seen yet".to_owned();
    loop {
        let patience = if begun.elapsed() < limit {
            limit
        } else {
            limit * FULL_MACHINE
        };
        match timeout_at(begun + patience, look()).await {
            Ok(seen) => match seen? {
                Ok(value) => return Ok(value),
                Err(why) => last = why,
            },
            Err(_elapsed) => last.push_str(" (and then no answer)"),
        }
        let waited = begun.elapsed() + PAUSE;
        let load = Ticks::now()?.load_since(ticks);
        if waited > limit * FULL_MACHINE || (waited > limit && !load.is_full()) {
            bail!(
                "waited {} s for {what}, processors busy {load}; last seen: {last}",
                waited.as_secs()
            );
        }
        sleep(PAUSE).await;
    }
}

/// The answer of a look at something that is either as wanted or, if not, `seen` instead.
///
/// # Errors
/// With `seen`, for [`until`] to look again.
pub fn met(is_met: bool, seen: impl FnOnce() -> String) -> Result<(), String> {
    if is_met { Ok(()) } else { Err(seen()) }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn returns_what_was_seen() {
        let looks = Cell::new(0);
        let seen = until("three", Duration::from_secs(5), async || {
            looks.set(looks.get() + 1);
            Ok(if looks.get() == 3 {
                Ok(looks.get())
            } else {
                Err("fewer".to_owned())
            })
        });
        assert_eq!(seen.await.unwrap(), 3);
    }

    #[tokio::test]
    async fn says_what_was_seen_last() {
        let never = until::<(), _>("rain", Duration::from_millis(250), async || {
            Ok(Err("only clouds".to_owned()))
        });
        let error = never.await.unwrap_err().to_string();
        assert!(
            error.contains("rain") && error.contains("only clouds"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_look_that_hangs_is_cut() {
        let hangs = until::<(), _>("an answer", Duration::from_millis(200), async || {
            sleep(Duration::from_secs(3600)).await;
            Ok(Ok(()))
        });
        assert!(hangs.await.unwrap_err().to_string().contains("no answer"));
    }
}
