//! What was done to a repository, from the lines that the server's scripts write.

use std::collections::BTreeSet;

/// Counts since the repository was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Activity {
    /// Somebody asked for the branches, to look at them or to fetch (`ls-remote`, `fetch`, `clone`).
    pub read_visits: usize,
    /// Somebody asked for the branches, to push.
    pub write_visits: usize,
    /// Objects were sent.
    pub fetches: usize,
    /// Objects were received and the hooks asked.
    pub pushes: usize,
    /// Branches were changed by a push.
    pub accepted: usize,
    /// Versions of the protocol that readers spoke, such as `version=2`.
    pub versions: BTreeSet<String>,
}

impl Activity {
    /// Of one repository.
    pub(super) fn of(repository: &str, log: &str) -> Self {
        let mut activity = Self::default();
        for line in log.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                [what, name, ..] if name != repository || what.is_empty() => {}
                ["visit", _, "upload-pack", version] => {
                    activity.read_visits += 1;
                    activity.versions.insert(version.to_owned());
                }
                ["visit", _, "receive-pack", _] => activity.write_visits += 1,
                ["fetch", _] => activity.fetches += 1,
                ["push", _] => activity.pushes += 1,
                ["accepted", _] => activity.accepted += 1,
                _ => {}
            }
        }
        activity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_others_do_not_count() {
        let log = "visit docs upload-pack version=2\nvisit docs upload-pack version=0\nfetch docs\n\
                   visit docs receive-pack version=1\npush docs\npush other\naccepted other\n\n";
        let wanted = Activity {
            read_visits: 2,
            write_visits: 1,
            fetches: 1,
            pushes: 1,
            accepted: 0,
            versions: ["version=0", "version=2"].map(str::to_owned).into(),
        };
        assert_eq!(Activity::of("docs", log), wanted);
        assert_eq!(Activity::of("other", log).accepted, 1);
    }
}
