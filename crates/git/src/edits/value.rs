//! Decides the new value of a field.

use super::{Change, EditError, EditReason};

/// Returns the new value of a field, or `None` if it already has it. `last_key` is the last key of the
/// field's path.
///
/// # Errors
/// When the current value is not the expected one, or is not one version.
pub fn new_value(
    change: &Change,
    last_key: Option<&str>,
    current: &str,
) -> Result<Option<String>, EditError> {
    let to = match change {
        Change::Exact { from, to } if from == current => to.clone(),
        Change::Exact { from, .. } => {
            return Err(EditError::new(
                EditReason::VersionChangedInGit,
                format!("the value is {}, not '{from}'", shown(current)),
            ));
        }
        Change::Version { .. } | Change::Image { .. } if current.contains("${") => {
            return Err(EditError::new(
                EditReason::VersionIsVariable,
                "the value contains a variable of Flux; set 'fieldPath' to the field that defines it",
            ));
        }
        Change::Version { .. } if !is_version(current) => {
            return Err(EditError::new(
                EditReason::VersionIsRange,
                "the value is not one version with three numbers; set the version that runs",
            ));
        }
        Change::Version { to } => to.clone(),
        Change::Image { image, tag } => image_value(image, tag, last_key, current)?,
    };
    Ok((to != current).then_some(to))
}

/// Returns the new value of a field with a tag, or with an image and its tag.
fn image_value(
    image: &str,
    tag: &str,
    last_key: Option<&str>,
    current: &str,
) -> Result<String, EditError> {
    let rest = current.strip_prefix(image);
    if rest.is_some_and(|rest| rest.starts_with([':', '@'])) {
        return Ok(format!("{image}:{tag}"));
    }
    // The name of another image without a tag would pass as a tag.
    if last_key == Some("image") || current == image || !is_tag(current) {
        return Err(EditError::new(
            EditReason::FieldNotEditable,
            format!("the value is neither a tag nor the image '{image}' with a tag"),
        ));
    }
    Ok(tag.to_owned())
}

/// Formats a value for a message. The field may be a wrong one, so only versions are repeated.
fn shown(value: &str) -> String {
    let has_number = value.bytes().any(|byte| byte.is_ascii_digit());
    let last = value.rsplit([':', '/']).next().unwrap_or_default();
    let is_image = has_number && value.len() <= 128 && last != value && is_tag(last);
    if is_version(value) || is_image {
        format!("'{value}'")
    } else {
        "another one".to_owned()
    }
}

/// Returns whether a text is one version: three numbers, with a pre-release and build metadata.
pub(super) fn is_version(text: &str) -> bool {
    let text = text.strip_prefix('v').unwrap_or(text);
    let (text, build) = match text.split_once('+') {
        Some((text, build)) => (text, Some(build)),
        None => (text, None),
    };
    let (numbers, release) = match text.split_once('-') {
        Some((numbers, release)) => (numbers, Some(release)),
        None => (text, None),
    };
    let is_number = |text: &str| {
        (1..=10).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_suffix = |text: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
        (1..=128).contains(&text.len()) && text.bytes().all(is_plain)
    };
    numbers.split('.').count() == 3
        && numbers.split('.').all(is_number)
        && release.is_none_or(is_suffix)
        && build.is_none_or(is_suffix)
}

/// Returns whether a text is the tag of an image. A digest is a part of the tag.
pub(super) fn is_tag(text: &str) -> bool {
    let (tag, digest) = match text.split_once('@') {
        Some((tag, digest)) => (tag, Some(digest)),
        None => (text, None),
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let is_digest = |text: &str| {
        text.strip_prefix("sha256:").is_some_and(|digits| {
            digits.len() == 64
                && digits
                    .bytes()
                    .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        })
    };
    (1..=128).contains(&tag.len())
        && tag.bytes().all(is_plain)
        && !tag.starts_with(['.', '-'])
        && digest.is_none_or(is_digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(to: &str) -> Change {
        Change::Version { to: to.to_owned() }
    }

    fn image(image: &str, tag: &str) -> Change {
        Change::Image {
            image: image.to_owned(),
            tag: tag.to_owned(),
        }
    }

    fn exact(from: &str, to: &str) -> Change {
        Change::Exact {
            from: from.to_owned(),
            to: to.to_owned(),
        }
    }

    #[test]
    fn new_values() {
        use EditReason::{
            FieldNotEditable, VersionChangedInGit, VersionIsRange, VersionIsVariable,
        };
        let digest = format!("1.25@sha256:{}", "0f".repeat(32));
        let with_digest = format!("nginx:{digest}");
        for (change, key, current, expected) in [
            (version("1.3.0"), "version", "1.2.0", Ok(Some("1.3.0"))),
            (
                version("1.3.0"),
                "version",
                "v1.2.0-rc.1+x",
                Ok(Some("1.3.0")),
            ),
            (version("1.3.0"), "version", "1.3.0", Ok(None)),
            (version("1.3.0"), "version", "1.2", Err(VersionIsRange)),
            (version("1.3.0"), "version", "1.2.x", Err(VersionIsRange)),
            (
                version("1.3.0"),
                "version",
                ">=1.2.0 <2.0.0",
                Err(VersionIsRange),
            ),
            (version("1.3.0"), "version", "^1.2.0", Err(VersionIsRange)),
            (version("1.3.0"), "version", "*", Err(VersionIsRange)),
            (
                version("1.3.0"),
                "version",
                "${version}",
                Err(VersionIsVariable),
            ),
            (
                version("1.3.0"),
                "version",
                "1.${minor:=2}.0",
                Err(VersionIsVariable),
            ),
            (image("nginx", "1.26"), "newTag", "1.25", Ok(Some("1.26"))),
            (image("nginx", "1.26"), "newTag", "1.26", Ok(None)),
            (
                image("nginx", "1.26"),
                "newTag",
                digest.as_str(),
                Ok(Some("1.26")),
            ),
            (
                image("nginx", "1.26"),
                "image",
                "nginx:1.25",
                Ok(Some("nginx:1.26")),
            ),
            (
                image("nginx", "1.26"),
                "image",
                with_digest.as_str(),
                Ok(Some("nginx:1.26")),
            ),
            (
                image("nginx", "1.26"),
                "ref",
                "nginx:1.25",
                Ok(Some("nginx:1.26")),
            ),
            (image("r:5/a", "2"), "image", "r:5/a:1", Ok(Some("r:5/a:2"))),
            (
                image("nginx", "1.26"),
                "image",
                "nginx",
                Err(FieldNotEditable),
            ),
            (
                image("nginx", "1.26"),
                "ref",
                "nginx",
                Err(FieldNotEditable),
            ),
            (
                image("nginx", "1.26"),
                "image",
                "redis",
                Err(FieldNotEditable),
            ),
            (
                image("nginx", "1.26"),
                "image",
                "nginx-x:1",
                Err(FieldNotEditable),
            ),
            (
                image("nginx", "1.26"),
                "ref",
                "x/nginx:1",
                Err(FieldNotEditable),
            ),
            (
                image("nginx", "1.26"),
                "newTag",
                "a b",
                Err(FieldNotEditable),
            ),
            (
                image("nginx", "1.26"),
                "newTag",
                "${tag}",
                Err(VersionIsVariable),
            ),
            (
                exact("1.2.0", "1.3.0"),
                "version",
                "1.2.0",
                Ok(Some("1.3.0")),
            ),
            (
                exact("1.2.0", "1.3.0"),
                "version",
                "1.3.0",
                Err(VersionChangedInGit),
            ),
            (
                exact("1.2.0", "1.3.0"),
                "version",
                "1.2.1",
                Err(VersionChangedInGit),
            ),
        ] {
            let found = new_value(&change, Some(key), current);
            let found = found.map_err(|error| error.reason);
            let expected = expected.map(|value| value.map(str::to_owned));
            assert_eq!(found, expected, "{change:?} {current}");
        }
    }

    #[test]
    fn only_versions_are_repeated() {
        for (current, is_repeated) in [
            ("1.2.1", true),
            ("nginx:1.25", true),
            ("hunter2", false),
            ("correct horse", false),
            ("dG9rZW4=", false),
        ] {
            let error = new_value(&exact("1.2.0", "1.3.0"), None, current).unwrap_err();
            assert_eq!(error.message.contains(current), is_repeated, "{error}");
        }
    }
}
