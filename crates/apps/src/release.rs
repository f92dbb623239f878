//! Releases of Helm: the Secret in which Helm stores a release, and the objects in its manifest.
//!
//! # Guarantees
//! A release contains the values of the application, which may be passwords. Only kinds and names of objects leave this
//! module. Errors quote nothing of the content.

use std::{collections::BTreeSet, io::Read};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use flate2::read::GzDecoder;
use serde::Deserialize;

use crate::{
    flux::ReleaseEntry,
    object::{ObjectId, ObjectKind},
};

/// Key of the release in the data of the Secret.
pub const DATA_KEY: &str = "release";

/// Maximum size of the stored release, in bytes. A Secret has at most 1 MiB.
const MAX_STORED: usize = 1024 * 1024;

/// Maximum size of the decompressed release, in bytes.
const MAX_DECODED: u64 = 32 * 1024 * 1024;

/// First bytes of gzip.
const GZIP: [u8; 3] = [0x1f, 0x8b, 0x08];

/// Returns the name of the Secret of a release.
#[must_use]
pub fn secret_name(release: &str, version: i64) -> String {
    format!("sh.helm.release.v1.{release}.v{version}")
}

#[derive(Deserialize)]
struct Stored {
    name: String,
    version: i64,
    #[serde(default)]
    manifest: String,
}

/// Returns the objects in the manifest of a stored release. `stored` is the value of [`DATA_KEY`], after the client
/// has decoded the Secret.
///
/// # Errors
/// If the content is no release, is too large, or is another release than `entry`.
pub fn objects(stored: &[u8], entry: &ReleaseEntry) -> Result<BTreeSet<ObjectId>, String> {
    if stored.len() > MAX_STORED {
        return Err(format!("it has {} bytes, more than 1 MiB", stored.len()));
    }
    // Helm encodes a release once. The client has already removed the encoding of the Secret.
    let packed = STANDARD
        .decode(stored.trim_ascii())
        .map_err(|error| format!("its content is not base64: {error}"))?;
    let json = if packed.starts_with(&GZIP) {
        unpacked(&packed)?
    } else {
        packed
    };
    // The error of the parser could quote a value.
    let release: Stored = serde_json::from_slice(&json).map_err(|error| {
        format!(
            "its content is not a release of Helm (line {}, column {})",
            error.line(),
            error.column()
        )
    })?;
    if (release.name.as_str(), release.version) != (entry.name.as_str(), entry.version) {
        return Err("its content is another release".to_owned());
    }
    manifest_objects(&release.manifest, &entry.namespace)
}

fn unpacked(packed: &[u8]) -> Result<Vec<u8>, String> {
    let mut json = Vec::new();
    // One byte more shows that the limit is exceeded.
    let mut reader = GzDecoder::new(packed).take(MAX_DECODED + 1);
    reader
        .read_to_end(&mut json)
        .map_err(|error| format!("its content cannot be decompressed: {error}"))?;
    if u64::try_from(json.len()).unwrap_or(u64::MAX) > MAX_DECODED {
        return Err("its content has more than 32 MiB".to_owned());
    }
    Ok(json)
}

/// The identity of an object in a manifest. Its content is not kept.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Document {
    api_version: String,
    kind: String,
    metadata: Metadata,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    name: String,
    namespace: Option<String>,
}

/// Returns the objects of the kinds that the operator reads. An object without a namespace is in that of the release.
fn manifest_objects(manifest: &str, namespace: &str) -> Result<BTreeSet<ObjectId>, String> {
    let mut objects = BTreeSet::new();
    for document in documents(manifest) {
        // A large document of another kind, such as a dashboard in a ConfigMap, is not parsed.
        if !names_a_kind(document) {
            continue;
        }
        let parsed: Option<Document> = serde_saphyr::from_str(document)
            .map_err(|_error| "its manifest has a document that is not YAML".to_owned())?;
        let Document {
            api_version,
            kind,
            metadata,
        } = parsed.unwrap_or_default();
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        if let Some(kind) = ObjectKind::of(group, &kind) {
            let own = metadata.namespace.filter(|name| !name.is_empty());
            let namespace = own.as_deref().unwrap_or(namespace);
            objects.insert(ObjectId::new(kind, namespace, &metadata.name));
        }
    }
    Ok(objects)
}

/// Splits a manifest at its document separators. Helm writes each at the start of a line.
fn documents(manifest: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(manifest);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let end = start + line.len();
            if line.trim_end() == "---" {
                let (document, after) = (text.get(..start)?, text.get(end..)?);
                rest = Some(after);
                return Some(document);
            }
            start = end;
        }
        rest = None;
        Some(text)
    })
}

/// Returns whether a document may be an object of a kind that the operator reads: a line at its top level, which is not
/// indented, has such a kind.
fn names_a_kind(document: &str) -> bool {
    // A document in JSON has no lines.
    if document.trim_start().starts_with('{') {
        return true;
    }
    document.lines().any(|line| {
        let value = line
            .strip_prefix("kind")
            .or_else(|| line.strip_prefix("\"kind\""));
        let value = value.and_then(|rest| rest.trim_start().strip_prefix(':'));
        value.is_some_and(|value| {
            let mut kinds = ObjectKind::ALL.iter();
            kinds.any(|kind| value.contains(kind.name()))
        })
    })
}

#[cfg(test)]
mod tests;
