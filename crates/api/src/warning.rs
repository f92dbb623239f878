//! Warning Events about objects that an operator created. For quota, admission and volumes, only
//! these Events report why a Pod does not start.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;

use crate::{
    Timestamp,
    status::{MAX_MESSAGE_CHARS, bounded},
};

/// Maximum time by which an Event may be ahead of our clock.
const SKEW: Duration = Duration::from_secs(60);

/// Maximum length of a UID, in characters. No UID of an API server is longer.
const UID: usize = 64;

/// An Event of type Warning.
///
/// Anyone with permission to create Events in a namespace can write anything into one, except its
/// namespace and its creation time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Warning {
    /// Namespace of the Event. If the object of the Event is in another namespace, it is not ours.
    pub namespace: String,
    /// UID of the object of the Event.
    pub object_uid: String,
    /// Reason of the Event.
    pub reason: String,
    /// Message of the Event.
    pub message: String,
    /// Time at which the API server stored the Event.
    pub created: Option<Timestamp>,
    /// Time of the last occurrence, as reported by the author of the Event.
    pub last_seen: Option<Timestamp>,
    /// Number of occurrences.
    pub times: i32,
}

impl Warning {
    /// Returns the time of the last occurrence. A reported time in the future would keep the Event
    /// the newest one indefinitely, so it is replaced by the creation time.
    #[must_use]
    pub fn seen(&self, now: Timestamp) -> Option<Timestamp> {
        let latest = now.checked_add(SKEW).unwrap_or(Timestamp::MAX);
        self.last_seen
            .filter(|seen| *seen <= latest)
            .or(self.created)
    }
}

impl From<&Event> for Warning {
    fn from(event: &Event) -> Self {
        let series = event.series.as_ref();
        let claimed = [
            series
                .and_then(|series| series.last_observed_time.as_ref())
                .map(|time| time.0),
            event.last_timestamp.as_ref().map(|time| time.0),
            event.event_time.as_ref().map(|time| time.0),
            event.first_timestamp.as_ref().map(|time| time.0),
        ];
        let short =
            |text: &Option<String>| bounded(text.as_deref().unwrap_or_default(), MAX_MESSAGE_CHARS);
        let metadata = &event.metadata;
        Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            object_uid: bounded(
                event.involved_object.uid.as_deref().unwrap_or_default(),
                UID,
            ),
            reason: short(&event.reason),
            message: short(&event.message),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            last_seen: claimed.iter().filter_map(|time| *time).max(),
            times: series
                .and_then(|series| series.count)
                .or(event.count)
                .unwrap_or(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(fields: &Value) -> Warning {
        let mut event =
            json!({ "metadata": { "namespace": "n" }, "involvedObject": { "uid": "u" } });
        for (name, value) in fields.as_object().into_iter().flat_map(|all| all.iter()) {
            event[name] = value.clone();
        }
        Warning::from(&serde_json::from_value::<Event>(event).unwrap_or_default())
    }

    #[test]
    fn it_was_seen_last_by_whichever_field_says_so() {
        let at = |second: u8| format!("2030-01-01T00:00:{second:02}.000000Z");
        let series = json!({ "count": 2, "lastObservedTime": at(9) });
        for (fields, second, times) in [
            (json!({}), None, 1),
            (
                json!({ "firstTimestamp": at(1), "lastTimestamp": at(5), "count": 4 }),
                Some(5),
                4,
            ),
            (json!({ "eventTime": at(3) }), Some(3), 1),
            (json!({ "eventTime": at(3), "series": series }), Some(9), 2),
        ] {
            let warning = read(&fields);
            let expected = second.map(|second| at(second).parse::<Timestamp>().unwrap());
            assert_eq!(warning.last_seen, expected, "{fields}");
            assert_eq!(warning.times, times, "{fields}");
            assert_eq!((&*warning.namespace, &*warning.object_uid), ("n", "u"));
        }
    }

    #[test]
    fn what_others_wrote_is_bounded() {
        let long = "x".repeat(100_000);
        let about = json!({ "uid": long });
        let warning = read(&json!({ "reason": long, "message": long, "involvedObject": about }));
        assert_eq!(warning.object_uid.chars().count(), UID);
        assert_eq!(warning.reason.chars().count(), MAX_MESSAGE_CHARS);
        assert_eq!(warning.message.chars().count(), MAX_MESSAGE_CHARS);
    }

    #[test]
    fn a_time_in_the_future_is_not_believed() {
        let at = |text: &str| -> Timestamp { text.parse().expect("a time of a test") };
        let now = at("2030-01-01T00:00:00Z");
        let warning = |last_seen: &str| Warning {
            created: Some(at("2029-12-31T23:00:00Z")),
            last_seen: Some(at(last_seen)),
            ..Warning::default()
        };
        for (last_seen, expected) in [
            ("2029-12-31T23:59:00Z", "2029-12-31T23:59:00Z"),
            ("2030-01-01T00:00:30Z", "2030-01-01T00:00:30Z"),
            ("2030-01-01T00:01:01Z", "2029-12-31T23:00:00Z"),
            ("2099-01-01T00:00:00Z", "2029-12-31T23:00:00Z"),
        ] {
            assert_eq!(
                warning(last_seen).seen(now),
                Some(at(expected)),
                "{last_seen}"
            );
        }
        assert_eq!(Warning::default().seen(now), None);
    }
}
