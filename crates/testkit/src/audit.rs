//! Reading the API server's audit log: which user did which verb on which resource, how often.

use std::{
    collections::BTreeMap,
    fmt, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use kube::Client;
use serde::Deserialize;

use crate::wait::until;

/// Paths that no API server knows, in the log only because [`AuditLog`] asks for them.
const MARKER: &str = "/testbed-marker/";

/// What a request was: the same for all requests that count together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// The user after impersonation, if there was one.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// `resource`, `resource.group`, each with `/subresource` if there is one; the path of a
    /// request that is not about a resource.
    pub resource: String,
    /// Empty for cluster-scoped resources and lists over all namespaces.
    pub namespace: String,
}

/// One line of the log.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What was asked.
    pub request: Request,
    /// Name of the object, if the request named one.
    pub name: String,
    /// Status of the answer.
    pub code: u16,
    /// What the client calls itself.
    pub agent: String,
}

impl Request {
    /// Changes something: neither a read nor a watch.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }
}

/// How often each request was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts(pub BTreeMap<Request, usize>);

impl Counts {
    /// Requests that `matches` accepts.
    pub fn of(&self, matches: impl Fn(&Request) -> bool) -> usize {
        self.0
            .iter()
            .filter(|(request, _)| matches(request))
            .map(|(_, count)| count)
            .sum()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (
            Request {
                user,
                verb,
                resource,
                namespace,
            },
            count,
        ) in &self.0
        {
            writeln!(out, "{count:>6}  {user}  {verb} {resource}  {namespace}")?;
        }
        Ok(())
    }
}

/// The log of one API server, with its rotated files.
#[derive(Debug, Clone)]
pub struct AuditLog {
    path: PathBuf,
}

/// A place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    entries: usize,
}

impl AuditLog {
    /// The log that the API server writes to `path`.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Every request after `since` that was answered before this call.
    ///
    /// The API server writes a request's line after its answer. So this sends a request that only
    /// this call makes, and reads the log once that one is in it.
    ///
    /// # Errors
    /// When the log is unreadable or the marker does not show up.
    pub async fn entries(&self, client: &Client, since: Mark) -> Result<Vec<Entry>> {
        let entries = self.settled(client).await?.into_iter().skip(since.entries);
        Ok(entries
            .filter(|entry| !entry.request.resource.starts_with(MARKER))
            .collect())
    }

    /// As [`AuditLog::entries`], counted.
    ///
    /// # Errors
    /// As [`AuditLog::entries`].
    pub async fn counts(&self, client: &Client, since: Mark) -> Result<Counts> {
        let mut counts = Counts::default();
        for entry in self.entries(client, since).await? {
            *counts.0.entry(entry.request).or_default() += 1;
        }
        Ok(counts)
    }

    /// Now, for a later question about what came after.
    ///
    /// # Errors
    /// As [`AuditLog::entries`].
    pub async fn mark(&self, client: &Client) -> Result<Mark> {
        Ok(Mark {
            entries: self.settled(client).await?.len(),
        })
    }

    async fn settled(&self, client: &Client) -> Result<Vec<Entry>> {
        let path = format!("{MARKER}{:016x}", marker());
        match client
            .request_text(http::Request::get(&path).body(Vec::new())?)
            .await
        {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error).context("cannot mark the audit log"),
            Ok(_) => bail!("the API server knows the path '{path}'"),
        }
        until(
            "the audit log to be written",
            Duration::from_secs(20),
            async || {
                let found = self
                    .read()?
                    .iter()
                    .any(|entry| entry.request.resource == path);
                Ok(if found {
                    Ok(())
                } else {
                    Err("the marker is not in it".to_owned())
                })
            },
        )
        .await?;
        // A request that was answered just before the marker may be written just after it.
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.read()
    }

    /// Everything in the log, oldest first.
    ///
    /// # Errors
    /// When a file is unreadable or a whole line is not an audit event.
    pub fn read(&self) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for file in self.files()? {
            read_file(&file, &mut entries)?;
        }
        Ok(entries)
    }

    /// `audit-TIME.log` are the rotated files, in the order of their names.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let folder = self.path.parent().context("the audit log has no folder")?;
        let stem = self
            .path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut files = Vec::new();
        for entry in
            fs::read_dir(folder).with_context(|| format!("cannot read '{}'", folder.display()))?
        {
            let path = entry?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if name.starts_with(&format!("{stem}-")) && name.ends_with(".log") {
                files.push(path);
            }
        }
        files.sort();
        files.push(self.path.clone());
        Ok(files)
    }
}

fn read_file(path: &Path, entries: &mut Vec<Entry>) -> Result<()> {
    let mut reader = BufReader::new(
        fs::File::open(path).with_context(|| format!("no audit log at '{}'", path.display()))?,
    );
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Ok(()); // a line without an end is still being written
        }
        let event: Event = serde_json::from_str(&line)
            .with_context(|| format!("'{}': not an audit event: {line}", path.display()))?;
        entries.extend(event.into_entry());
    }
}

/// Distinct over processes and calls; nothing else is asked of it.
fn marker() -> u64 {
    use std::{
        collections::hash_map::RandomState,
        hash::{BuildHasher, Hasher},
    };
    RandomState::new().build_hasher().finish()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    user: User,
    impersonated_user: Option<User>,
    object_ref: Option<ObjectReference>,
    response_status: Option<Status>,
    #[serde(default)]
    user_agent: String,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ObjectReference {
    resource: String,
    subresource: String,
    api_group: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

impl Event {
    /// A watch is logged when it starts and when it ends, all else when it ends: each counts once.
    fn into_entry(self) -> Option<Entry> {
        let stage = if self.verb == "watch" {
            "ResponseStarted"
        } else {
            "ResponseComplete"
        };
        if self.stage != stage && self.stage != "Panic" {
            return None;
        }
        let (resource, namespace, name) = match self.object_ref {
            Some(object) => (full_name(&object), object.namespace, object.name),
            None => (
                self.request_uri
                    .split('?')
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
                String::new(),
                String::new(),
            ),
        };
        let user = self.impersonated_user.unwrap_or(self.user).username;
        Some(Entry {
            request: Request {
                user,
                verb: self.verb,
                resource,
                namespace,
            },
            name,
            code: self.response_status.map_or(0, |status| status.code),
            agent: self.user_agent,
        })
    }
}

fn full_name(object: &ObjectReference) -> String {
    let mut name = object.resource.clone();
    if !object.api_group.is_empty() {
        name = format!("{name}.{}", object.api_group);
    }
    if !object.subresource.is_empty() {
        name = format!("{name}/{}", object.subresource);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(stage: &str, verb: &str, rest: &str) -> String {
        format!(
            r#"{{"kind":"Event","stage":"{stage}","verb":"{verb}","requestURI":"/x?y","user":{{"username":"a"}}{rest}}}"#
        )
    }

    fn read(lines: &[String], tail: &str) -> Vec<Entry> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        fs::write(&path, lines.join("\n") + "\n" + tail).unwrap();
        AuditLog::new(path).read().unwrap()
    }

    #[test]
    fn each_request_counts_once() {
        let lines = [
            event("ResponseStarted", "watch", ""),
            event("ResponseComplete", "watch", ""),
            event("ResponseComplete", "get", ""),
            event("ResponseStarted", "get", ""),
            event("Panic", "create", ""),
        ];
        let verbs: Vec<String> = read(&lines, "")
            .into_iter()
            .map(|entry| entry.request.verb)
            .collect();
        assert_eq!(verbs, ["watch", "get", "create"]);
    }

    #[test]
    fn impersonated_user_group_and_subresource_are_named() {
        let rest = r#","impersonatedUser":{"username":"b"},"objectRef":{"resource":"jobs","apiGroup":"batch","subresource":"status","namespace":"n","name":"j"},"responseStatus":{"code":409}"#;
        let entries = read(&[event("ResponseComplete", "patch", rest)], "");
        let entry = &entries[0];
        assert_eq!(
            (entry.request.user.as_str(), entry.request.resource.as_str()),
            ("b", "jobs.batch/status")
        );
        assert_eq!(
            (
                entry.request.namespace.as_str(),
                entry.name.as_str(),
                entry.code
            ),
            ("n", "j", 409)
        );
        assert!(entry.request.is_write());
    }

    #[test]
    fn a_line_that_is_being_written_is_left_for_later() {
        assert_eq!(
            read(&[event("ResponseComplete", "get", "")], r#"{"kind":"Ev"#).len(),
            1
        );
    }

    #[test]
    fn a_whole_line_that_is_no_event_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        fs::write(&path, "{\"kind\":\"Ev\n").unwrap();
        assert!(AuditLog::new(path).read().is_err());
    }

    #[test]
    fn rotated_files_come_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        fs::write(&path, event("ResponseComplete", "get", "") + "\n").unwrap();
        fs::write(
            folder.path().join("audit-2026-01-01T00-00-00.000.log"),
            event("ResponseComplete", "list", "") + "\n",
        )
        .unwrap();
        let verbs: Vec<String> = AuditLog::new(path)
            .read()
            .unwrap()
            .into_iter()
            .map(|entry| entry.request.verb)
            .collect();
        assert_eq!(verbs, ["list", "get"]);
    }
}
