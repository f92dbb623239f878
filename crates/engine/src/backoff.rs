//! Retry backoff after an error: per key and class, with full jitter and a cap.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    time::Duration,
};

use api::decide::ErrorClass;

use crate::key::Key;

/// Shortest delay that is stored in `status.retry`. A shorter delay is only in memory.
pub const PERSIST_RETRY_FROM: Duration = Duration::from_secs(10);

/// Returns the longest delay before attempt `attempt` (from 1) of a class: it doubles up to a cap.
///
/// Every class has a longest delay, so one error strands no object (R12).
#[must_use]
pub fn ceiling(class: ErrorClass, attempt: u32) -> Duration {
    let (first, cap) = match class {
        // A control plane that is away for a minute must not delay its users for another minute.
        ErrorClass::Transient => (Duration::from_millis(500), Duration::from_secs(30)),
        // The cache is only a moment behind, so a long delay saves nothing.
        ErrorClass::Conflict => (Duration::from_millis(50), Duration::from_secs(5)),
        // Someone must act first: free quota, fix a role, or free a name.
        ErrorClass::Denied => (Duration::from_secs(5), Duration::from_secs(300)),
        ErrorClass::Invalid => (Duration::from_secs(15), Duration::from_secs(60)),
        // Only a new version of the operator fixes this, but a restart may have helped.
        ErrorClass::Failed | ErrorClass::Bug => (Duration::from_secs(10), Duration::from_secs(600)),
    };
    let doublings = attempt.saturating_sub(1).min(20);
    first.saturating_mul(1 << doublings).min(cap)
}

/// Returns the delay before attempt `attempt` (from 1): between zero and [`ceiling`].
///
/// Its position in this range depends only on `seed`, key and attempt. So two keys that failed
/// together do not return together, and a test can predict the delay.
#[must_use]
pub fn delay(seed: u64, key: &Key, class: ErrorClass, attempt: u32) -> Duration {
    ceiling(class, attempt).mul_f64(fraction(seed, key, attempt))
}

/// Returns the delay of this key within `window`, for the first reconciliation after a start.
#[must_use]
pub fn spread(seed: u64, key: &Key, window: Duration) -> Duration {
    window.mul_f64(fraction(seed, key, 0))
}

/// Returns a number in [0, 1) that depends only on the arguments.
fn fraction(seed: u64, key: &Key, attempt: u32) -> f64 {
    let mut hasher = DefaultHasher::new();
    (seed, key, attempt).hash(&mut hasher);
    // A float represents 53 bits exactly.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let fraction = (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64;
    fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(class: ErrorClass) -> Vec<f64> {
        (1..=10)
            .map(|attempt| ceiling(class, attempt).as_secs_f64())
            .collect()
    }

    #[test]
    fn r18_the_sequence_of_each_class_doubles_and_is_capped() {
        assert_eq!(
            seconds(ErrorClass::Transient),
            [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0]
        );
        assert_eq!(
            seconds(ErrorClass::Conflict),
            [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
        );
        assert_eq!(
            seconds(ErrorClass::Denied),
            [
                5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0, 300.0
            ]
        );
        assert_eq!(
            seconds(ErrorClass::Invalid),
            [15.0, 30.0, 60.0, 60.0, 60.0, 60.0, 60.0, 60.0, 60.0, 60.0]
        );
        assert_eq!(
            seconds(ErrorClass::Bug),
            [
                10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0, 600.0, 600.0
            ]
        );
    }

    #[test]
    fn r12_every_class_has_a_next_time() {
        for class in ErrorClass::ALL {
            assert!(ceiling(*class, 1) > Duration::ZERO, "{}", class.name());
            assert!(ceiling(*class, u32::MAX) <= Duration::from_secs(600));
        }
    }

    #[test]
    fn jitter_is_full_and_known() {
        let keys: Vec<Key> = (0..1000).map(|n| Key::new("a", &n.to_string())).collect();
        let delays: Vec<f64> = keys
            .iter()
            .map(|key| delay(7, key, ErrorClass::Denied, 3).as_secs_f64())
            .collect();
        assert!(delays.iter().all(|delay| (0.0..20.0).contains(delay)));
        let mean = delays.iter().sum::<f64>() / 1000.0;
        assert!((9.0..11.0).contains(&mean), "{mean}");
        assert_eq!(
            delay(7, &keys[0], ErrorClass::Denied, 3),
            delay(7, &keys[0], ErrorClass::Denied, 3)
        );
    }
}
