//! To which play something belongs.

use kube::core::DynamicObject;

/// Whether a namespace, or an object of none, is a play's: its name has the play's in it, as a word.
pub(super) fn is_of(place: &str, play: &str) -> bool {
    let mut ends = place.match_indices(play).map(|(from, _)| {
        let (before, after) = place.split_at(from);
        let after = after.get(play.len()..).unwrap_or_default();
        (before, after)
    });
    ends.any(|(before, after)| {
        let is_begun = before.is_empty() || before.ends_with('-');
        is_begun && (after.is_empty() || after.starts_with('-'))
    })
}

/// Where an object is kept: by its namespace, by its name if it has none, and a word about an object
/// of no namespace where that is.
pub(super) fn place(object: &DynamicObject) -> String {
    let metadata = &object.metadata;
    let about = &object.data["regarding"];
    let is_about_cluster = about["name"].is_string() && about["namespace"].is_null();
    let name = match (&metadata.namespace, about["name"].as_str()) {
        (Some(_), Some(about)) if is_about_cluster => Some(about),
        (Some(namespace), _) => Some(namespace.as_str()),
        (None, _) => metadata.name.as_deref(),
    };
    name.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_play_has_all_whose_name_has_its_own() {
        for (place, is_its) in [
            ("f-bare-x", true),
            ("f-bare-x-a", true),
            ("tenant-f-bare-x-a", true),
            ("f-bare-xy", false),
            ("of-bare-x", false),
            ("f-bare", false),
            ("", false),
        ] {
            assert_eq!(is_of(place, "f-bare-x"), is_its, "{place}");
        }
    }
}
