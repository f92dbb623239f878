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
    inventory::MAX_OBJECTS,
    object::{ObjectId, ObjectKind},
};

/// Key of the release in the data of the Secret.
pub const DATA_KEY: &str = "release";

/// Maximum size of the stored release, in bytes. A Secret has at most 1 MiB.
const MAX_STORED: usize = 1024 * 1024;

/// Maximum size of the decompressed release, in bytes.
const MAX_DECODED: u64 = 32 * 1024 * 1024;

/// Maximum length of the name of a namespace.
const MAX_NAMESPACE: usize = 63;

/// Maximum length of the name of a release.
const MAX_NAME: usize = 53;

/// Event of a hook that Helm runs before it changes the objects of a release.
const UPGRADE_HOOK: &str = "pre-upgrade";

/// First bytes of gzip.
const GZIP: [u8; 3] = [0x1f, 0x8b, 0x08];

/// Returns the name of the Secret of a release.
#[must_use]
pub fn secret_name(release: &str, version: i64) -> String {
    format!("sh.helm.release.v1.{release}.v{version}")
}

/// Checks the namespace, the name and the version of a release, before they are part of a request. With a slash, the
/// path would be that of another object.
///
/// # Errors
/// If one of them is not valid.
pub fn check_location(namespace: &str, release: &str, version: i64) -> Result<(), String> {
    let is_plain = |text: &str, limit: usize, others: &[u8]| {
        let is_one =
            |one: u8| one.is_ascii_lowercase() || one.is_ascii_digit() || others.contains(&one);
        !text.is_empty() && text.len() <= limit && text.bytes().all(is_one)
    };
    if !is_plain(namespace, MAX_NAMESPACE, b"-") {
        return Err("its status has no valid 'storageNamespace'".to_owned());
    }
    if !is_plain(release, MAX_NAME, b"-.") || version < 1 {
        return Err("its history has no valid name or version of the release".to_owned());
    }
    Ok(())
}

#[derive(Deserialize)]
struct Stored {
    name: String,
    version: i64,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    manifest: String,
    #[serde(default)]
    hooks: Option<Vec<Hook>>,
}

/// A hook of a chart. Its manifest is not kept.
#[derive(Deserialize)]
struct Hook {
    #[serde(default)]
    events: Option<Vec<String>>,
}

/// The facts about a release that leave this module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// Objects in the manifest.
    pub objects: BTreeSet<ObjectId>,
    /// Whether the chart has a hook that Helm runs before an upgrade.
    pub has_upgrade_hooks: bool,
}

/// Returns the objects in the manifest of a stored release. `stored` is the value of [`DATA_KEY`], after the client
/// has decoded the Secret.
///
/// # Errors
/// If the content is no release, is too large, or is another release than `entry`.
pub fn objects(stored: &[u8], entry: &ReleaseEntry) -> Result<BTreeSet<ObjectId>, String> {
    content(stored, entry).map(|content| content.objects)
}

/// Returns the objects in the manifest of a stored release, and whether its chart has hooks. See [`objects`].
///
/// # Errors
/// As for [`objects`].
pub fn content(stored: &[u8], entry: &ReleaseEntry) -> Result<Content, String> {
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
    let is_there = release.namespace.is_empty() || release.namespace == entry.namespace;
    let is_same = (release.name.as_str(), release.version) == (entry.name.as_str(), entry.version);
    if !is_same || !is_there {
        return Err("its content is another release".to_owned());
    }
    let hooks = release.hooks.iter().flat_map(|all| all.iter());
    let mut events = hooks.flat_map(|hook| hook.events.iter().flat_map(|all| all.iter()));
    let has_upgrade_hooks = events.any(|event| event == UPGRADE_HOOK);
    Ok(Content {
        objects: manifest_objects(&release.manifest, &entry.namespace)?,
        has_upgrade_hooks,
    })
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

/// A list in a manifest, which Helm applies item by item.
#[derive(Deserialize, Default)]
#[serde(default)]
struct List {
    items: Vec<Document>,
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
        let parsed: Option<Document> = serde_saphyr::from_str(document).map_err(not_yaml)?;
        let parsed = parsed.unwrap_or_default();
        if is_list(&parsed.kind) {
            let list: List = serde_saphyr::from_str(document).map_err(not_yaml)?;
            objects.extend(list.items.into_iter().flat_map(|one| one.id(namespace)));
        } else {
            objects.extend(parsed.id(namespace));
        }
        if objects.len() > MAX_OBJECTS {
            return Err(format!(
                "its manifest has more than {MAX_OBJECTS} workloads and claims"
            ));
        }
    }
    Ok(objects)
}

/// Returns the text of an error of the parser, which itself could quote a value.
fn not_yaml(_error: serde_saphyr::Error) -> String {
    "its manifest has a document that is not YAML".to_owned()
}

/// Returns whether a kind is a list of objects that may be of a kind that the operator reads.
fn is_list(kind: &str) -> bool {
    let item = kind.strip_suffix("List");
    item.is_some_and(|item| item.is_empty() || is_read(item))
}

/// Returns whether this is the name of a kind that the operator reads, in any API group.
fn is_read(kind: &str) -> bool {
    ObjectKind::ALL.iter().any(|known| known.name() == kind)
}

impl Document {
    /// Returns the id of an object of a kind that the operator reads.
    fn id(self, namespace: &str) -> Option<ObjectId> {
        let Self {
            api_version,
            kind,
            metadata,
        } = self;
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let kind = ObjectKind::of(group, &kind)?;
        let own = metadata.namespace.filter(|name| !name.is_empty());
        let namespace = own.as_deref().unwrap_or(namespace);
        Some(ObjectId::new(kind, namespace, &metadata.name))
    }
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

/// Returns whether a document may be an object of a kind that the operator reads. A document is skipped only if each
/// line that sets the kind at its top level, which is not indented, is a plain word that is not such a kind. In all
/// other forms, such as JSON, an alias or an escaped text, the parser decides.
fn names_a_kind(document: &str) -> bool {
    let lines = document.lines().filter(|line| !line.trim().is_empty());
    let mut lines = lines.filter(|line| !line.starts_with('#')).peekable();
    if lines.peek().is_none() {
        return false;
    }
    // A separator with content behind it is not split. The parser rejects it.
    if document.lines().any(|line| line.starts_with("---")) {
        return true;
    }
    let mut kinds = lines.filter_map(kind_in).peekable();
    if kinds.peek().is_none() {
        return true;
    }
    kinds.any(|kind| {
        let is_plain = !kind.is_empty() && kind.bytes().all(|one| one.is_ascii_alphanumeric());
        !is_plain || is_list(kind) || is_read(kind)
    })
}

/// Returns the value of the key `kind` in a line that is not indented. It has no quotes and no comment.
fn kind_in(line: &str) -> Option<&str> {
    let rest = line
        .strip_prefix("kind")
        .or_else(|| line.strip_prefix("\"kind\""))
        .or_else(|| line.strip_prefix("'kind'"))?;
    let value = rest.trim_start().strip_prefix(':')?;
    let value = value.split_once(" #").map_or(value, |(value, _)| value);
    let value = value.trim();
    let quoted = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    Some(quoted('"').or_else(|| quoted('\'')).unwrap_or(value))
}

#[cfg(test)]
mod tests;
