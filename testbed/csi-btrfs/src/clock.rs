//! The one place that reads the wall clock.

use std::time::SystemTime;

#[expect(
    clippy::disallowed_methods,
    reason = "the clock of this crate: a snapshot carries its time of creation"
)]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}
