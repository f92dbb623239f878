//! What each of several processes wrote, by the API server's audit log.
//!
//! All of them use one account. Each has a token of its own, and the log names a token's id.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use anyhow::{Context, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::Deserialize;

/// Where the log names a token.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Write {
    /// Whose token.
    pub(super) who: String,
    pub(super) verb: String,
    /// The plural; its subresource after a slash.
    pub(super) resource: String,
    pub(super) name: String,
    pub(super) code: u16,
    pub(super) received: MicroTime,
    pub(super) answered: MicroTime,
}

impl Write {
    pub(super) fn is_lease(&self) -> bool {
        self.resource == "leases"
    }

    fn is_done(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

impl fmt::Display for Write {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            verb,
            resource,
            name,
            code,
            ..
        } = self;
        write!(out, "{verb} {resource} {name}: {code}")
    }
}

/// A write that arrived when another process held the Lease.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Late {
    pub(super) write: Write,
    /// How long after the other one took it, in milliseconds.
    pub(super) after: i64,
    /// Not the first one about its run: what is about one run is sent one by one, so that this one
    /// cannot have been on its way when the Lease was lost.
    pub(super) was_begun: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    verb: String,
    user: User,
    object_ref: Option<Reference>,
    response_status: Option<Status>,
    request_received_timestamp: MicroTime,
    stage_timestamp: MicroTime,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Reference {
    resource: String,
    subresource: String,
    name: String,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

/// The writes of these tokens, in the log's order.
pub(super) fn writes(log: &str, tokens: &BTreeSet<String>) -> Result<Vec<Write>> {
    let mut writes = Vec::new();
    for text in log.lines() {
        let line: Line =
            serde_json::from_str(text).with_context(|| format!("not an audit event: {text}"))?;
        let who = line.user.extra.get(CREDENTIAL).and_then(|ids| ids.first());
        let Some(who) = who.filter(|who| tokens.contains(*who)) else {
            continue;
        };
        let is_read = matches!(line.verb.as_str(), "get" | "list" | "watch");
        if line.stage != "ResponseComplete" || is_read {
            continue;
        }
        let Reference {
            mut resource,
            subresource,
            name,
        } = line.object_ref.unwrap_or_default();
        if !subresource.is_empty() {
            resource = format!("{resource}/{subresource}");
        }
        writes.push(Write {
            who: who.clone(),
            verb: line.verb,
            resource,
            name,
            code: line.response_status.map_or(0, |status| status.code),
            received: line.request_received_timestamp,
            answered: line.stage_timestamp,
        });
    }
    Ok(writes)
}

/// Returns the writes that arrived while another process held the Lease. A process holds it from
/// the response to its write on, so writes that cross are not counted.
///
/// `run` returns the run that a name belongs to.
pub(super) fn late<'a>(writes: &'a [Write], run: impl Fn(&'a str) -> &'a str) -> Vec<Late> {
    let holders = holders(writes);
    let mut others: Vec<&Write> = writes.iter().filter(|write| !write.is_lease()).collect();
    others.sort_by_key(|write| write.received.0);
    let mut known: BTreeSet<(usize, &str, &str)> = BTreeSet::new();
    let mut late = Vec::new();
    for write in others {
        let term = holders.partition_point(|(since, _)| since.0 <= write.received.0);
        let holder = term.checked_sub(1).and_then(|index| holders.get(index));
        let after = match holder {
            Some((_, who)) if *who == write.who => continue,
            Some((since, _)) => write.received.0.duration_since(since.0).as_millis(),
            None => 0,
        };
        late.push(Late {
            write: write.clone(),
            after: i64::try_from(after).unwrap_or(i64::MAX),
            was_begun: !known.insert((term, &write.who, run(&write.name))),
        });
    }
    late
}

/// Returns each holder of the Lease, and when the response to its first write was sent.
///
/// The order is the order of arrival. A write of the Lease succeeds only if it carries the version of
/// the write before, so it arrives after that write was stored. The responses may be sent in another
/// order: the next holder learns of a release from its watch, often before the releaser has its
/// response.
fn holders(writes: &[Write]) -> Vec<(&MicroTime, &str)> {
    let mut leases: Vec<&Write> = writes
        .iter()
        .filter(|write| write.is_lease() && write.is_done())
        .collect();
    leases.sort_by_key(|write| write.received.0);
    let mut holders: Vec<(&MicroTime, &str)> = Vec::new();
    for write in leases {
        match holders.last() {
            Some((_, who)) if *who == write.who => {}
            // Sorted by time also then.
            Some((since, _)) if write.answered.0 < since.0 => holders.push((since, &write.who)),
            Some(_) | None => holders.push((&write.answered, &write.who)),
        }
    }
    holders
}

/// The children that were made more than once, with how often.
pub(super) fn made_twice(writes: &[Write]) -> BTreeMap<String, usize> {
    let mut made: BTreeMap<String, usize> = BTreeMap::new();
    for write in writes {
        let is_child = matches!(write.resource.as_str(), "jobs" | "configmaps");
        if is_child && write.verb == "create" && write.is_done() {
            let what = format!("{}/{}", write.resource, write.name);
            *made.entry(what).or_default() += 1;
        }
    }
    made.retain(|_, count| *count > 1);
    made
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Second, token, verb, resource, name, code; answered 100 ms later.
    fn log(lines: &[(u32, &str, &str, &str, &str, u16)]) -> Vec<Write> {
        let text: Vec<String> = lines
            .iter()
            .map(|(second, who, verb, resource, name, code)| {
                json!({
                    "stage": "ResponseComplete", "verb": verb,
                    "user": { "username": "operator", "extra": { CREDENTIAL: [who] } },
                    "objectRef": { "resource": resource, "name": name },
                    "responseStatus": { "code": code },
                    "requestReceivedTimestamp": format!("2030-01-01T00:00:{second:02}.000000Z"),
                    "stageTimestamp": format!("2030-01-01T00:00:{second:02}.100000Z"),
                })
                .to_string()
            })
            .collect();
        let tokens = ["a", "b"].map(str::to_owned).into();
        writes(&text.join("\n"), &tokens).unwrap()
    }

    #[test]
    fn a_write_without_the_lease_is_late() {
        let writes = log(&[
            (1, "a", "create", "leases", "tasks", 201),
            (2, "b", "update", "leases", "tasks", 409),
            (3, "a", "create", "jobs", "r1-1", 201),
            (4, "c", "create", "jobs", "r1-1", 201),
            (5, "b", "get", "jobs", "r1-1", 200),
            (9, "b", "update", "leases", "tasks", 200),
            (9, "a", "patch", "jobs", "r1-1", 200),
            (10, "b", "create", "jobs", "r2-1", 201),
            (11, "a", "create", "configmaps", "r2-1", 409),
            (11, "a", "create", "jobs", "r3-1", 201),
            (12, "a", "create", "jobs", "r2-1", 409),
            (13, "a", "update", "leases", "tasks", 200),
            (14, "a", "create", "jobs", "r4-1", 201),
        ]);
        let late: Vec<(String, i64, bool)> = late(&writes, |name| &name[..2])
            .into_iter()
            .map(|late| (late.write.to_string(), late.after, late.was_begun))
            .collect();
        let of = |text: &str, after, was_begun| (text.to_owned(), after, was_begun);
        assert_eq!(
            late,
            [
                of("create configmaps r2-1: 409", 1900, false),
                of("create jobs r3-1: 201", 1900, false),
                of("create jobs r2-1: 409", 2900, true),
            ],
            "what crossed the taking at second 9 is not"
        );
    }

    #[test]
    fn a_release_that_is_answered_after_the_next_holder_took_over_changes_nothing() {
        let mut writes = log(&[
            (1, "a", "create", "leases", "tasks", 201),
            (3, "a", "update", "leases", "tasks", 200),
            (4, "b", "update", "leases", "tasks", 200),
            (6, "b", "patch", "taskruns", "r1", 200),
            (7, "b", "create", "configmaps", "r1-1", 201),
            (8, "a", "create", "configmaps", "r2-1", 409),
        ]);
        writes[1].answered = writes[3].received.clone();
        let late = late(&writes, |name| &name[..2]);
        let names: Vec<&str> = late.iter().map(|late| late.write.name.as_str()).collect();
        assert_eq!(names, ["r2-1"]);
    }

    #[test]
    fn who_never_had_the_lease_is_late() {
        let writes = log(&[(1, "a", "create", "jobs", "r1-1", 201)]);
        assert_eq!(late(&writes, |name| name).len(), 1);
    }

    #[test]
    fn only_what_was_made_counts() {
        let writes = log(&[
            (1, "a", "create", "jobs", "r1-1", 201),
            (2, "b", "create", "jobs", "r1-1", 409),
            (3, "a", "create", "jobs", "r2-1", 201),
            (4, "b", "create", "jobs", "r2-1", 201),
            (5, "b", "delete", "jobs", "r2-1", 200),
        ]);
        assert_eq!(made_twice(&writes), [("jobs/r2-1".to_owned(), 2)].into());
    }
}
