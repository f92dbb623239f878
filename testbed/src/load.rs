//! How busy the machine's processors were.

use std::{fmt, fs};

use anyhow::{Context, Result};

/// Processor time since boot, in ticks: all of it, the busy part, and the part of it that the host gave to
/// other machines.
#[derive(Debug, Clone, Copy)]
pub struct Ticks {
    all: u64,
    busy: u64,
    stolen: u64,
}

/// Shares of the processor time of a stage, in percent. Stolen time is busy time: the same stage takes
/// longer on a host with busy neighbors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// All time that was not idle, stolen time included.
    pub busy: u64,
    /// The host gave it to other machines.
    pub stolen: u64,
}

/// From this busy share on, in percent, programs wait for a processor.
const FULL: u64 = 90;

/// From this stolen share on, in percent, time limits measure the host more than the program.
const STOLEN: u64 = 20;

impl Load {
    /// Returns whether programs had to wait for a processor.
    pub fn is_full(self) -> bool {
        self.busy >= FULL || self.is_stolen()
    }

    /// Returns whether the host gave so much time to other machines that a failure is worth a second try.
    pub fn is_stolen(self) -> bool {
        self.stolen >= STOLEN
    }
}

impl fmt::Display for Load {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} %, {} % stolen", self.busy, self.stolen)
    }
}

impl Ticks {
    /// Reads the kernel's counters.
    ///
    /// # Errors
    /// If `/proc/stat` cannot be read or has another form.
    pub fn now() -> Result<Self> {
        Self::parse(&fs::read_to_string("/proc/stat")?)
    }

    fn parse(stat: &str) -> Result<Self> {
        let line = stat.lines().next().context("'/proc/stat' is empty")?;
        let fields = line.strip_prefix("cpu ").context("no line 'cpu'")?;
        let ticks: Vec<u64> = fields
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()
            .context("the line 'cpu'")?;
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are in user and nice.
        let all: u64 = ticks.iter().take(8).sum();
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        Ok(Self {
            all,
            busy: all - idle,
            stolen: ticks.get(7).copied().unwrap_or_default(),
        })
    }

    /// Returns the load since `earlier`, or none if the counters were unreadable. So a failure on
    /// such a machine stands.
    pub fn load_between(earlier: Result<Self>, later: Result<Self>) -> Load {
        match (earlier, later) {
            (Ok(earlier), Ok(later)) => later.load_since(earlier),
            (Err(_), _) | (_, Err(_)) => Load::default(),
        }
    }

    /// Returns the load since `earlier`.
    pub fn load_since(self, earlier: Self) -> Load {
        let all = self.all.saturating_sub(earlier.all).max(1);
        let share = |now: u64, then: u64| now.saturating_sub(then) * 100 / all;
        Load {
            busy: share(self.busy, earlier.busy),
            stolen: share(self.stolen, earlier.stolen),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busy_share_leaves_out_idle_and_waiting() {
        let earlier = Ticks::parse("cpu  100 0 0 100 0 0 0 5 7 7\ncpu0 1\n").unwrap();
        let later = Ticks::parse("cpu  140 10 10 120 10 0 0 15 9 9\n").unwrap();
        let load = later.load_since(earlier);
        assert_eq!(load.to_string(), "70 %, 10 % stolen");
        assert!(!load.is_full());
        let busy = Ticks::parse("cpu  190 0 0 105 0 0 0 10\n").unwrap();
        assert!(busy.load_since(earlier).is_full());
        assert!(!busy.load_since(earlier).is_stolen());
        let stolen = Ticks::parse("cpu  100 0 0 180 0 0 0 25\n").unwrap();
        assert!(stolen.load_since(earlier).is_stolen());
        assert!(stolen.load_since(earlier).is_full());
        assert_eq!(earlier.load_since(earlier), Load::default());
    }

    #[test]
    fn other_text_is_an_error() {
        for text in ["", "intr 1 2", "cpu  a b"] {
            assert!(Ticks::parse(text).is_err(), "{text}");
        }
    }
}
