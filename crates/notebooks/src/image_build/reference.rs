//! References to images.

use std::fmt;

/// Prefix of a digest.
const SHA256: &str = "sha256:";
/// Maximum length of a repository, in bytes. A reference with a digest fits into the status.
const MAX_REPOSITORY: usize = 400;

/// Digest of an image's manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest(String);

impl Digest {
    /// Parses `sha256:` and 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(SHA256)?;
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (digits.len() == 64 && digits.bytes().all(is_hex)).then(|| Self(text.to_owned()))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `repository@sha256:…`: the only reference that names one image for all time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageReference {
    repository: String,
    digest: Digest,
}

impl ImageReference {
    /// Creates the reference of a digest in a repository. Returns `None` if the repository is not valid.
    #[must_use]
    pub fn new(repository: &str, digest: Digest) -> Option<Self> {
        check_repository(repository).is_ok().then(|| Self {
            repository: repository.to_owned(),
            digest,
        })
    }

    /// Parses a reference with a digest. A tag is rejected, also beside a digest: it would show another image.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (repository, digest) = text.split_once('@')?;
        Self::new(repository, Digest::parse(digest)?)
    }

    /// Returns the repository.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Returns whether a container runs this image. `image_id` is the ID in the status of its Pod. An ID without a digest
    /// of a manifest proves nothing (F11).
    #[must_use]
    pub fn is_used(&self, image_id: &str) -> bool {
        let digest = image_id.rsplit_once('@').map(|(_, digest)| digest);
        digest == Some(self.digest.as_str())
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}@{}", self.repository, self.digest.as_str())
    }
}

/// Checks a repository: a host and a path, without a tag and without a digest.
///
/// # Errors
/// Describes the first violation.
pub fn check_repository(text: &str) -> Result<(), String> {
    let wrong = |why: &str| Err(format!("'{text}' is no repository: {why}"));
    if text.len() > MAX_REPOSITORY {
        return wrong("it is too long");
    }
    let Some((host, path)) = text.split_once('/') else {
        return wrong("it needs the host of a registry and a path");
    };
    if text.contains('@') {
        return wrong("it has a digest");
    }
    if path.contains(':') {
        return wrong("it has a tag");
    }
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".:-[]".contains(&byte);
    let is_path =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-/".contains(&byte);
    if host.is_empty() || !host.bytes().all(is_host) {
        return wrong("its host has other characters than a host");
    }
    let has_parts = path.split('/').all(|part| {
        let ends = part.as_bytes().first().zip(part.as_bytes().last());
        ends.is_some_and(|(first, last)| {
            first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric()
        })
    });
    if !has_parts || !path.bytes().all(is_path) {
        return wrong("its path has other parts than lower-case words");
    }
    Ok(())
}

/// Returns the tag that an attempt pushes. It differs for each attempt, so no image of another attempt has it (F5).
#[must_use]
pub fn tag(uid: &str, attempt: u32) -> String {
    format!("nb-{uid}-a{attempt}")
}
