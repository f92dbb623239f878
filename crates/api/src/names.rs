//! Names and labels of every object that we create. Builders and selectors use the same function
//! for each name and label, so selectors find every object that the builders create.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

/// The maximum length of a label value. It also limits the name of a Job, because the Job's Pods
/// have that name in a label.
pub const LABEL_LIMIT: usize = 63;

/// Label: the kind of the child's owner.
pub const KIND: &str = "orchestrator.io/kind";
/// Label: the name of the child's owner. It is sanitized: display it, but do not select by it.
pub const NAME: &str = "orchestrator.io/name";
/// Label: the UID of the child's owner. Our selectors use this label.
pub const UID: &str = "orchestrator.io/uid";
/// Label of a run: the name of its Agent, sanitized.
pub const AGENT: &str = "orchestrator.io/agent";
/// Label of tasks: the number of the task.
pub const TASK_ID: &str = "task-id";
/// Label of tasks: the name of the service, sanitized.
pub const SERVICE_NAME: &str = "service-name";
/// Label of tasks: the version of the context that a child belongs to.
pub const CONTEXT_VERSION: &str = "context-version";

/// Annotation: a hash of our intent when we created the object.
pub const SPEC_HASH: &str = "orchestrator.io/spec-hash";
/// Annotation of a Job's Pods: the criteria for the result of their attempt, as they were when the
/// Job was created.
pub const ATTEMPT_SPEC: &str = "orchestrator.io/attempt-spec";
/// Annotation of a Job that we suspended ourselves. We do not resume a Job that others suspended.
pub const SUSPENDED: &str = "orchestrator.io/suspended";
/// Annotation of a Job that we suspended: the UIDs of the Pods that it had at that time. We ignore
/// these Pods from then on, even if the cache still shows them as running.
pub const STOPPED_PODS: &str = "orchestrator.io/stopped-pods";
/// Annotation: the result of a run. It survives a restore without the status.
pub const OUTCOME: &str = "orchestrator.io/outcome";
/// Annotation: never clean up the children of this object.
pub const PRESERVE: &str = "orchestrator.io/preserve";
/// Annotation: remove the finalizer without waiting for the children.
pub const FORCE_DELETE: &str = "orchestrator.io/force-delete";
/// Annotation: any change of its value triggers an immediate reconciliation.
pub const RECONCILE_AT: &str = "orchestrator.io/reconcile-at";
/// Annotation of an object that several of ours change: the one that may change it now. See
/// [`crate::claim`].
pub const LOCK: &str = "orchestrator.io/lock";
/// Annotation: the Tenant that retained this object, and may adopt it again.
pub const RETAINED_FROM: &str = "orchestrator.io/retained-from";
/// Annotation of an existing namespace: the Tenant that may adopt it.
pub const ADOPT: &str = "orchestrator.io/adopt";
/// Annotation of a run: the name of the user that submitted it, as the API server authenticates
/// users. An admission policy admits no other name, and no later change.
pub const SUBMITTED_BY: &str = "orchestrator.io/submitted-by";
/// Annotation of a run: hashes of the idempotency key and of the content that it was submitted with.
pub const IDEMPOTENCY: &str = "orchestrator.io/idempotency";
/// Annotation of an operator's Lease: the version of the process that leads.
pub const VERSION: &str = "orchestrator.io/version";

/// Returns the name of a child: `raw` as a DNS label, then `suffix`, with at most 63 characters in
/// total.
///
/// # Guarantees
/// - The result is a valid DNS label (`[a-z0-9]([-a-z0-9]*[a-z0-9])?`) that ends with `suffix`.
///   This requires that `suffix` consists of `[a-z0-9-]` and ends with a letter or digit.
/// - If `raw` had to be changed or cut, a hash of the whole `raw` precedes the suffix. So different
///   inputs have different names.
///
/// # Caveats
/// The function is not made for a suffix of more than 40 characters: it cuts such a suffix, too.
#[must_use]
pub fn child(raw: &str, suffix: &str) -> String {
    let suffix = cut(suffix, 40);
    let room = LABEL_LIMIT - suffix.len();
    let clean = clean(raw, |letter| {
        letter.is_ascii_lowercase() || letter.is_ascii_digit()
    });
    let base = fit(raw, &clean, room, |letter| letter.is_ascii_alphanumeric());
    format!("{base}{suffix}")
}

/// Returns a valid label value for `raw`: `raw` itself if it is valid. Otherwise `raw` is sanitized
/// and cut, and a hash of the whole `raw` is appended.
#[must_use]
pub fn label_value(raw: &str) -> String {
    if raw.is_empty() {
        return String::new();
    }
    let clean = clean(raw, |letter| {
        letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_')
    });
    fit(raw, &clean, LABEL_LIMIT, |letter| {
        letter.is_ascii_alphanumeric()
    })
}

/// Returns the labels of every child of an object.
#[must_use]
pub fn child_labels(kind: &str, name: &str, uid: &str) -> BTreeMap<String, String> {
    [
        ("app.kubernetes.io/managed-by", label_value(super::MANAGER)),
        (KIND, label_value(kind)),
        (NAME, label_value(name)),
        (UID, label_value(uid)),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

/// Returns a short hash of `text`, in hexadecimal.
#[must_use]
pub fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest
        .iter()
        .take(5)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Returns `text` cut between two characters, so that it has at most `limit` bytes.
#[must_use]
pub fn cut(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// Returns `raw` with a dash in place of characters that `allowed` rejects.
fn clean(raw: &str, allowed: impl Fn(char) -> bool) -> String {
    let mut clean = String::with_capacity(raw.len().min(300));
    for letter in raw.chars().take(300) {
        let letter = if letter == '-' || allowed(letter) {
            letter
        } else if allowed(letter.to_ascii_lowercase()) {
            letter.to_ascii_lowercase()
        } else {
            '-'
        };
        clean.push(letter);
    }
    clean
}

/// Returns `clean` without leading and trailing characters that `edge` rejects, in at most `room`
/// characters. If the result differs from `raw`, it ends with the hash of `raw`.
fn fit(raw: &str, clean: &str, room: usize, edge: impl Fn(char) -> bool) -> String {
    let trimmed = clean.trim_matches(|letter| !edge(letter));
    if !raw.is_empty() && trimmed == raw && trimmed.len() <= room {
        return trimmed.to_owned();
    }
    let hash = hash(raw);
    let head =
        cut(trimmed, room.saturating_sub(hash.len() + 1)).trim_end_matches(|letter| !edge(letter));
    if head.is_empty() {
        hash
    } else {
        format!("{head}-{hash}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, test_runner::RngSeed};
    use testkit::seed::seed;

    use super::*;

    fn is_dns_label(name: &str) -> bool {
        let inner = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
        !name.is_empty()
            && name.len() <= 63
            && name.chars().all(|letter| inner(letter) || letter == '-')
            && name.starts_with(inner)
            && name.ends_with(inner)
    }

    fn is_label_value(value: &str) -> bool {
        value.is_empty()
            || value.len() <= 63
                && value.chars().all(|letter| {
                    letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.')
                })
                && value.starts_with(|letter: char| letter.is_ascii_alphanumeric())
                && value.ends_with(|letter: char| letter.is_ascii_alphanumeric())
    }

    #[test]
    fn plain_names_stay_as_they_are() {
        assert_eq!(child("shop-7", "-v3"), "shop-7-v3");
        assert_eq!(label_value("shop.Web_1"), "shop.Web_1");
    }

    #[test]
    fn what_was_changed_carries_a_hash_of_the_whole() {
        assert_eq!(
            child("Shop_7", "-v3"),
            format!("shop-7-{}-v3", hash("Shop_7"))
        );
        assert_ne!(child("shop.7", "-v3"), child("shop_7", "-v3"));
        let long = "a".repeat(80);
        assert_ne!(child(&long, "-v1"), child(&format!("{long}b"), "-v1"));
        assert_eq!(child(&long, "-v1").len(), 63);
    }

    #[test]
    fn nothing_usable_still_has_a_name() {
        assert_eq!(child("", "-v1"), format!("{}-v1", hash("")));
        assert_eq!(child("///", "-v1"), format!("{}-v1", hash("///")));
        assert_eq!(child("日本", "-v1"), format!("{}-v1", hash("日本")));
        assert_eq!(label_value("---"), hash("---"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(seed().unwrap()), ..ProptestConfig::default() })]
        #[test]
        fn r04_names_and_labels_are_valid_whatever_the_input(raw in ".{0,300}", version in 1_u32..) {
            let name = child(&raw, &format!("-v{version}-files"));
            prop_assert!(is_dns_label(&name), "{name}");
            prop_assert!(is_label_value(&label_value(&raw)));
        }

        #[test]
        fn different_inputs_have_different_names(left in "[a-zA-Z_./-]{1,80}", right in "[a-zA-Z_./-]{1,80}") {
            prop_assume!(left != right);
            prop_assert_ne!(child(&left, "-v1"), child(&right, "-v1"));
            prop_assert_ne!(label_value(&left), label_value(&right));
        }
    }
}
