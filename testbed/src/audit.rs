//! Reading the API server's audit log: which user did which verb on which resource, how often.

use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    io::{BufRead, BufReader, Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use kube::Client;
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::wait::until;

/// Paths that no API server knows, in the log only because [`AuditLog`] asks for them.
const MARKER: &str = "/testbed-marker/";
/// The API server writes a small answer's line before it sends the answer. A large answer is on
/// its way before its line is written: that may come just after a marker's.
const AFTER_MARKER: Duration = Duration::from_millis(200);
/// How much is read at a time in search of the last line's start; a line has one to two thousand.
const CHUNK: u64 = 64 * 1024;

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

/// The log of one API server.
///
/// Caveat: one file that only grows. The API server must be told not to rotate it.
#[derive(Debug, Clone)]
pub struct AuditLog {
    path: PathBuf,
}

/// A place in the log, between two lines. The default is its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    offset: u64,
    /// Of the log's file, to notice another one in its place.
    inode: Option<u64>,
}

impl AuditLog {
    /// The log that the API server writes to `path`.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Every request after `since` that was answered before this call.
    ///
    /// The API server may write a request's line after its answer. So this sends a request that
    /// only this call makes, and waits until that one is in the log.
    ///
    /// # Errors
    /// When the log is unreadable, or another file than at `since`, or the marker does not show up.
    pub async fn entries(&self, client: &Client, since: Mark) -> Result<Vec<Entry>> {
        let mut entries = self.settled(client, since).await?.entries;
        entries.retain(|entry| !entry.request.resource.starts_with(MARKER));
        Ok(entries)
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
        Ok(self.settled(client, self.end()?).await?.mark)
    }

    async fn settled(&self, client: &Client, since: Mark) -> Result<Reading> {
        let path = format!("{MARKER}{:016x}", marker());
        match client
            .request_text(http::Request::get(&path).body(Vec::new())?)
            .await
        {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error).context("cannot mark the audit log"),
            Ok(_) => bail!("the API server knows the path '{path}'"),
        }
        let reading = Mutex::new(Reading::at(since));
        until(
            "the audit log to be written",
            Duration::from_secs(20),
            async || {
                let mut reading = reading.lock().await;
                let known = reading.entries.len();
                self.read_on(&mut reading)?;
                let mut new = reading.entries[known..].iter();
                Ok(if new.any(|entry| entry.request.resource == path) {
                    Ok(())
                } else {
                    Err("the marker is not in it".to_owned())
                })
            },
        )
        .await?;
        tokio::time::sleep(AFTER_MARKER).await;
        let mut reading = reading.into_inner();
        self.read_on(&mut reading)?;
        Ok(reading)
    }

    /// Everything in the log, oldest first.
    ///
    /// # Errors
    /// When the log is unreadable or a whole line is not an audit event.
    pub fn read(&self) -> Result<Vec<Entry>> {
        let mut reading = Reading::at(Mark::default());
        self.read_on(&mut reading)?;
        Ok(reading.entries)
    }

    /// Adds the lines that are new since the last time.
    fn read_on(&self, reading: &mut Reading) -> Result<()> {
        let (mut file, end) = self.open()?;
        let Mark { offset, inode } = reading.mark;
        ensure!(
            end.offset >= offset && (inode.is_none() || inode == end.inode),
            "the audit log '{}' was replaced: it is not the file that was marked",
            self.path.display()
        );
        file.seek(SeekFrom::Start(offset))?;
        let mut file = BufReader::new(file);
        reading.mark.inode = end.inode;
        let mut line = Vec::new();
        loop {
            line.clear();
            let length = file.read_until(b'\n', &mut line)?;
            if !line.ends_with(b"\n") {
                return Ok(()); // the end, or a line that is still being written
            }
            let event: Event = serde_json::from_slice(&line).with_context(|| {
                let line = String::from_utf8_lossy(&line);
                format!("'{}': not an audit event: {line}", self.path.display())
            })?;
            reading.mark.offset += u64::try_from(length)?;
            reading.entries.extend(event.into_entry());
        }
    }

    /// After the last whole line.
    fn end(&self) -> Result<Mark> {
        let (mut file, Mark { mut offset, inode }) = self.open()?;
        let mut chunk = Vec::new();
        while offset > 0 {
            let start = offset.saturating_sub(CHUNK);
            file.seek(SeekFrom::Start(start))?;
            chunk.clear();
            file.by_ref().take(offset - start).read_to_end(&mut chunk)?;
            if let Some(index) = chunk.iter().rposition(|byte| *byte == b'\n') {
                offset = start + u64::try_from(index)? + 1;
                break;
            }
            offset = start;
        }
        Ok(Mark { offset, inode })
    }

    /// The log and its present end, which may be inside a line.
    fn open(&self) -> Result<(File, Mark)> {
        let file = File::open(&self.path)
            .with_context(|| format!("no audit log at '{}'", self.path.display()))?;
        let data = file.metadata()?;
        let end = Mark {
            offset: data.len(),
            inode: Some(data.ino()),
        };
        Ok((file, end))
    }
}

/// Entries from a mark on, and how far that is.
struct Reading {
    entries: Vec<Entry>,
    mark: Mark,
}

impl Reading {
    fn at(mark: Mark) -> Self {
        Self {
            entries: Vec::new(),
            mark,
        }
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
    /// Each request counts once, though some have two lines.
    ///
    /// Caveat: a watch that panics before its start is not counted.
    fn into_entry(self) -> Option<Entry> {
        let code = self.response_status.map_or(0, |status| status.code);
        // Has no other line. Whoever is authenticated has a name, also when what the API server
        // asks on his behalf says 401: that has a line at its end.
        let failed_authentication = code == 401 && self.user.username.is_empty();
        let is_watch = self.verb == "watch";
        let counts = match self.stage.as_str() {
            // Of what takes long: a watch, which may not end before the test does, or a shell.
            "ResponseStarted" => is_watch || failed_authentication,
            "ResponseComplete" | "Panic" => !is_watch,
            _ => false,
        };
        if !counts {
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
            code,
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
    use std::{fs, io::Write};

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
            event("Panic", "watch", ""), // after its start
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
    fn failed_authentication_counts_once() {
        let failed = |stage: &str, verb: &str, user: &str| {
            let status = r#","responseStatus":{"code":401}"#;
            event(stage, verb, status).replace(r#"{"username":"a"}"#, user)
        };
        let lines = [
            failed("ResponseStarted", "get", "{}"),
            failed("ResponseStarted", "watch", "{}"),
            // Somebody whose shell a node refused.
            failed("ResponseStarted", "create", r#"{"username":"a"}"#),
            failed("ResponseComplete", "create", r#"{"username":"a"}"#),
        ];
        let entries = read(&lines, "");
        let seen: Vec<_> = entries
            .iter()
            .map(|Entry { request, code, .. }| (request.verb.as_str(), *code))
            .collect();
        assert_eq!(seen, [("get", 401), ("watch", 401), ("create", 401)]);
    }

    fn append(path: &PathBuf, text: &str) {
        let mut file = File::options().append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn only_what_is_new_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        // The beginning would not be readable once more.
        fs::write(&path, "no event\n").unwrap();
        let log = AuditLog::new(path.clone());
        let mut reading = Reading::at(log.end().unwrap());
        let (head, tail) = (event("ResponseComplete", "get", ""), "\n");
        for (text, wanted) in [("", 0), (&head[..20], 0), (&head[20..], 0), (tail, 1)] {
            append(&path, text);
            log.read_on(&mut reading).unwrap();
            assert_eq!(reading.entries.len(), wanted);
        }
        assert_eq!(reading.mark, log.end().unwrap());
    }

    #[test]
    fn end_is_after_the_last_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let log = AuditLog::new(path.clone());
        let long = "x".repeat(usize::try_from(CHUNK).unwrap() * 2 + 7);
        for (text, wanted) in [
            (String::new(), 0),
            ("half".to_owned(), 0),
            ("a\nb\n".to_owned(), 4),
            ("a\nb\nhalf".to_owned(), 4),
            (format!("a\n{long}"), 2),
            (format!("a\n{long}\n"), 3 + long.len()),
            (long, 0),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(log.end().unwrap().offset, u64::try_from(wanted).unwrap());
        }
    }

    #[test]
    fn another_file_in_its_place_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let line = event("ResponseComplete", "get", "") + "\n";
        fs::write(&path, &line).unwrap();
        let log = AuditLog::new(path.clone());
        let mark = log.end().unwrap();
        let error = || {
            let result = log.read_on(&mut Reading::at(mark));
            result.unwrap_err().to_string()
        };
        fs::write(&path, "").unwrap();
        assert!(error().contains("was replaced"), "{}", error());
        let other = folder.path().join("other");
        fs::write(&other, line.repeat(2)).unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(error().contains("was replaced"), "{}", error());
    }
}
