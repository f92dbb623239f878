//! Names and labels of everything we create: one function each, used by builders and selectors
//! alike, so that what was created is what is looked for.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

/// The longest label value, and the longest name of a Job (its Pods carry it in a label).
pub const LABEL_LIMIT: usize = 63;

/// Label: the kind of the object that a child belongs to.
pub const KIND: &str = "orchestrator.io/kind";
/// Label: the name of the object that a child belongs to (sanitised: show it, do not select by it).
pub const NAME: &str = "orchestrator.io/name";
/// Label: the UID of the object that a child belongs to. This is what we select by.
pub const UID: &str = "orchestrator.io/uid";
/// Label of tasks: the task's number.
pub const TASK_ID: &str = "task-id";
/// Label of tasks: the service's name, sanitised.
pub const SERVICE_NAME: &str = "service-name";
/// Label of tasks: the version of the context that a child belongs to.
pub const CONTEXT_VERSION: &str = "context-version";

/// Annotation: a hash of what we wanted when we created an object.
pub const INTENT: &str = "orchestrator.io/intent";
/// Annotation of a Job's Pods: what their attempt is judged by, as it was when the Job was created.
pub const TERMS: &str = "orchestrator.io/terms";
/// Annotation of a Job that we suspended ourselves: what others suspend, others resume.
pub const SUSPENDED: &str = "orchestrator.io/suspended";
/// Annotation of a Job that we suspended: the UIDs of the Pods that it had then. They are not looked at
/// again, however old the view of them is.
pub const STOPPED_PODS: &str = "orchestrator.io/stopped-pods";
/// Annotation: how a run ended; survives a restore without status.
pub const OUTCOME: &str = "orchestrator.io/outcome";
/// Annotation: never clean up the children of this object.
pub const PRESERVE: &str = "orchestrator.io/preserve";
/// Annotation: let the object go without waiting for its children.
pub const FORCE_DELETE: &str = "orchestrator.io/force-delete";
/// Annotation: any change of its value makes us look at the object at once.
pub const RECONCILE_AT: &str = "orchestrator.io/reconcile-at";
/// Annotation: by which Tenant something was left, and may be taken back.
pub const RETAINED_FROM: &str = "orchestrator.io/retained-from";
/// Annotation of a namespace that exists: which Tenant may take it.
pub const ADOPT: &str = "orchestrator.io/adopt";

/// A name of a child: `raw` as a DNS label, then `suffix`, at most 63 characters together.
///
/// # Guarantees
/// - The result is a valid DNS label (`[a-z0-9]([-a-z0-9]*[a-z0-9])?`) if `suffix` is made of
///   `[a-z0-9-]` and ends with a letter or digit; it ends with `suffix`.
/// - If `raw` had to be changed or cut in any way, a hash of the whole `raw` is put before the
///   suffix, so that different inputs have different names.
///
/// # Caveats
/// A suffix of more than 40 characters is not made for this: it is cut, too.
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

/// A valid label value that stands for `raw`: `raw` itself where it is one, otherwise sanitised,
/// cut, and with a hash of the whole appended.
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

/// The labels of every child of an object.
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

/// A short hash of `text`, in hexadecimal.
#[must_use]
pub fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest
        .iter()
        .take(5)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// `text`, at most `limit` bytes long, cut between characters.
#[must_use]
pub fn cut(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// `raw` with each run of characters that `allowed` refuses replaced by one dash.
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

/// `clean` without edges that `edge` refuses, in `room` characters; with the hash of `raw` if
/// anything was changed.
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
    use proptest::prelude::*;

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
