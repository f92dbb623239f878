//! What can be hit, and with what.

use std::{fmt, str::FromStr, time::Duration};

use anyhow::{Context, Error, Result, bail};

/// A kind of request, in the words of RBAC.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Route {
    /// `create`, `patch`, `update`, `delete`, `get`, `list`, `watch` …
    pub verb: String,
    /// The plural; its subresource after a slash.
    pub resource: String,
}

impl Route {
    /// Of these two.
    pub fn new(verb: impl Into<String>, resource: impl Into<String>) -> Self {
        Self {
            verb: verb.into(),
            resource: resource.into(),
        }
    }

    /// Whether it changes what is stored.
    #[must_use]
    pub fn is_write(&self) -> bool {
        matches!(
            self.verb.as_str(),
            "create" | "patch" | "update" | "delete" | "deletecollection"
        )
    }
}

impl fmt::Display for Route {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.verb, self.resource.replace('/', "."))
    }
}

/// One request of a scenario.
///
/// The name is the object's, where it is the same each time the scenario is played; that of an
/// Event is not, and is left empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Point {
    /// What it asks for.
    pub route: Route,
    /// Whose; empty for any.
    pub name: String,
    /// The how manieth of its like, from 1, over all processes of one play.
    pub nth: u32,
}

impl fmt::Display for Point {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { route, name, nth } = self;
        write!(out, "{route}:{name}#{nth}")
    }
}

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// The operator is killed before the request is forwarded; it is not forwarded.
    KillBefore,
    /// Killed when the server has answered, before the answer is relayed.
    KillAfter,
    /// Killed when the answer is relayed.
    KillRelayed,
    /// Carried out; instead of the answer the connection is reset.
    LostByReset,
    /// Carried out; answered with 504.
    LostByTimeout,
    /// Not carried out; answered with this code (429 with `Retry-After: 1`).
    Refused(u16),
    /// Carried out; half of the answer comes, then the connection ends.
    Truncated,
    /// Not carried out; the connection is reset.
    Reset,
}

impl Fault {
    /// What a write is hit with at each of its points.
    pub const AT_WRITES: [Self; 5] = [
        Self::KillBefore,
        Self::KillAfter,
        Self::KillRelayed,
        Self::LostByReset,
        Self::LostByTimeout,
    ];

    /// What each route is hit with.
    pub const AT_ROUTES: [Self; 8] = [
        Self::Refused(403),
        Self::Refused(409),
        Self::Refused(429),
        Self::Refused(500),
        Self::Refused(503),
        Self::Refused(504),
        Self::Truncated,
        Self::Reset,
    ];

    /// Whether it ends the operator.
    #[must_use]
    pub fn kills(self) -> bool {
        matches!(self, Self::KillBefore | Self::KillAfter | Self::KillRelayed)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KillBefore => out.write_str("kill-before"),
            Self::KillAfter => out.write_str("kill-after"),
            Self::KillRelayed => out.write_str("kill-relayed"),
            Self::LostByReset => out.write_str("lost-reset"),
            Self::LostByTimeout => out.write_str("lost-504"),
            Self::Refused(code) => write!(out, "{code}"),
            Self::Truncated => out.write_str("truncated"),
            Self::Reset => out.write_str("reset"),
        }
    }
}

/// What happens to the watches of one resource. None of it loses a single event of a live stream,
/// and a LIST is always true: a real server cannot do otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WatchFault {
    /// Every event comes so many milliseconds late.
    Stale(u32),
    /// Events are kept and come together, so many milliseconds after the first of them.
    Collapsed(u32),
    /// The stream ends after so many events; what follows comes by a new one.
    Cut(u32),
    /// After so many events the stream ends, and the next watch is answered with 410.
    Gone(u32),
    /// The stream ends in place of the first deletion of an object of the play, and the next watch is answered with
    /// 410. So the deletion is learned only from a new listing.
    MissedDeletion,
    /// From the first event about an object of the play, watches stay open and deliver nothing for so many
    /// milliseconds: no event, no bookmark, no end. A watch that is opened meanwhile delivers its listing.
    Silent(u32),
}

impl WatchFault {
    /// Returns how long a watch is silent because of this fault.
    #[must_use]
    pub fn silence(self) -> Duration {
        match self {
            Self::Silent(time) => Duration::from_millis(u64::from(time)),
            Self::Stale(_)
            | Self::Collapsed(_)
            | Self::Cut(_)
            | Self::Gone(_)
            | Self::MissedDeletion => Duration::ZERO,
        }
    }
}

impl fmt::Display for WatchFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale(time) => write!(out, "stale-{time}"),
            Self::Collapsed(time) => write!(out, "collapsed-{time}"),
            Self::Cut(after) => write!(out, "cut-{after}"),
            Self::Gone(after) => write!(out, "gone-{after}"),
            Self::MissedDeletion => out.write_str("missed-deletion"),
            Self::Silent(time) => write!(out, "silent-{time}"),
        }
    }
}

/// One thing that a script does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Injection {
    /// Hits a request, and so many less one of its like that follow it.
    Request {
        /// The first one; an empty name means any.
        point: Point,
        /// With this.
        fault: Fault,
        /// How many requests are hit.
        times: u32,
    },
    /// Hits all watches of a resource (its plural).
    Watch {
        /// The plural.
        resource: String,
        /// With this.
        fault: WatchFault,
    },
}

impl fmt::Display for Injection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request {
                point,
                fault,
                times: 1,
            } => write!(out, "{point}={fault}"),
            Self::Request {
                point,
                fault,
                times,
            } => write!(out, "{point}={fault}x{times}"),
            Self::Watch { resource, fault } => write!(out, "watch-{resource}={fault}"),
        }
    }
}

/// As it is written: `watch-jobs=stale-2000`, `create-jobs:work-1#1=kill-after`, `create-jobs=403x9`. Without
/// a name any is meant, without a number the first.
impl FromStr for Injection {
    type Err = Error;

    fn from_str(words: &str) -> Result<Self> {
        let (what, how) = words.split_once('=').context("no '='")?;
        if let Some(resource) = what.strip_prefix("watch-")
            && let Some(fault) = watch_fault(how)?
        {
            let resource = resource.to_owned();
            return Ok(Self::Watch { resource, fault });
        }
        let (what, nth) = match what.split_once('#') {
            Some((what, nth)) => (what, nth.parse()?),
            None => (what, 1),
        };
        let (route, name) = what.split_once(':').unwrap_or((what, ""));
        let (verb, resource) = route.split_once('-').context("no resource")?;
        let (fault, times) = match how.split_once('x') {
            Some((fault, times)) => (fault, times.parse()?),
            None => (how, 1),
        };
        let mut known = Fault::AT_WRITES.into_iter().chain(Fault::AT_ROUTES);
        let fault = known
            .find(|one| one.to_string() == fault)
            .with_context(|| format!("no fault '{fault}'"))?;
        Ok(Self::Request {
            point: Point {
                route: Route::new(verb, resource.replace('.', "/")),
                name: name.to_owned(),
                nth,
            },
            fault,
            times,
        })
    }
}

/// A watch may also be hit as a request: then this is nothing.
fn watch_fault(how: &str) -> Result<Option<WatchFault>> {
    if how == "missed-deletion" {
        return Ok(Some(WatchFault::MissedDeletion));
    }
    let Some((name, number)) = how.split_once('-') else {
        return Ok(None);
    };
    let Ok(number) = number.parse() else {
        return Ok(None);
    };
    Ok(Some(match name {
        "stale" => WatchFault::Stale(number),
        "collapsed" => WatchFault::Collapsed(number),
        "cut" => WatchFault::Cut(number),
        "gone" => WatchFault::Gone(number),
        "silent" => WatchFault::Silent(number),
        "lost" => return Ok(None),
        other => bail!("no fault '{other}' of watches"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for words in [
            "watch-jobs=stale-2500",
            "watch-taskruns=gone-2",
            "watch-jobs=missed-deletion",
            "watch-pods=silent-15000",
            "watch-agents:#1=409x2",
            "watch-agents:#1=lost-504",
            "create-jobs:work-7-v1#1=kill-after",
            "create-events:#3=lost-reset",
            "patch-taskruns.status:work#2=504",
            "list-pods:#1=truncatedx2",
        ] {
            let read: Injection = words.parse().unwrap();
            assert_eq!(read.to_string(), words);
        }
        let short: Injection = "create-jobs=403x9".parse().unwrap();
        assert_eq!(short.to_string(), "create-jobs:#1=403x9");
        for wrong in [
            "create-jobs",
            "create-jobs=no",
            "jobs=500",
            "watch-jobs=late-3",
        ] {
            assert!(wrong.parse::<Injection>().is_err(), "{wrong}");
        }
    }
}
