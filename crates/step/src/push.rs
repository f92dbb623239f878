//! Pushing a commit, and what is known of it afterwards.
//!
//! Once a push was begun, only the server's answer about our branch makes certain that nothing was
//! pushed: [`Reason::PushRefused`] and [`Reason::BranchMoved`] mean that. What is not certain is
//! [`Reason::PublishFailed`]; no other reason leaves this module after that point.

use git::{Commit, Files, Reason, Report};

use crate::{
    child::Ended,
    command::Git,
    failure::Failure,
    publish,
    said::{self, Answer},
    settings::Settings,
};

/// Pushes of the same commit: the second is for a connection that broke.
const PUSHES: usize = 2;

/// One commit for one branch.
#[derive(Debug)]
pub(crate) struct Push<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) git: &'a Git,
    pub(crate) commit: &'a Commit,
    pub(crate) changed: Files,
    pub(crate) skipped: Files,
}

/// What is known after one push.
enum Outcome {
    /// The branch was, or is, at our commit.
    Pushed,
    /// The branch is at a commit of this run that another try made.
    Found(Report),
    /// This push did nothing.
    Not(Failure),
    /// The branch is where it was, but the push may still be on its way.
    Unchanged(String),
    /// It cannot be told.
    Unknown(String),
}

impl Push<'_> {
    /// Pushes.
    pub(crate) fn run(self) -> Result<Report, Failure> {
        self.check_access()?;
        let mut seen = String::new();
        for attempt in 1..=PUSHES {
            match self.once() {
                Outcome::Pushed => {
                    return Ok(Report::Pushed {
                        commit: self.commit.clone(),
                        changed: self.changed,
                        skipped: self.skipped,
                    });
                }
                Outcome::Found(report) => return Ok(report),
                Outcome::Not(failure) if attempt == 1 => return Err(failure),
                // What it says of this push does not tell what became of the one before.
                Outcome::Not(failure) => return Err(self.uncertain(&failure.message)),
                Outcome::Unknown(seen) => return Err(self.uncertain(&seen)),
                Outcome::Unchanged(what) => seen = what,
            }
        }
        Err(self.uncertain(&seen))
    }

    /// Asks whether we may write at all. Nothing is sent yet, so a refusal is certain, and its
    /// words are not those of a hook.
    fn check_access(&self) -> Result<(), Failure> {
        let ended = self.call(&["--dry-run"])?;
        match said::answer(&String::from_utf8_lossy(&ended.stdout), &self.name()) {
            Answer::None if !ended.status.success() => Err(self.git.refused(&ended, "push to")),
            // The push itself says more.
            Answer::None
            | Answer::Accepted
            | Answer::Refused(_)
            | Answer::Stale
            | Answer::NotUpdated(_) => Ok(()),
        }
    }

    fn once(&self) -> Outcome {
        let ended = match self.call(&[]) {
            Ok(ended) => ended,
            Err(failure) => return self.judge_by_branch(failure.message),
        };
        match said::answer(&String::from_utf8_lossy(&ended.stdout), &self.name()) {
            // Somebody may have moved the branch on since: that is for the operator to see.
            Answer::Accepted if ended.status.success() => Outcome::Pushed,
            Answer::Refused(words) => Outcome::Not(self.refused(&ended, &words, "")),
            answer @ (Answer::Stale | Answer::NotUpdated(_)) => self.not_updated(&ended, answer),
            Answer::Accepted | Answer::None => {
                let said = said::quote(&ended.stderr, &self.git.credentials);
                self.judge_by_branch(format!("cannot push to {}: {said}", self.git.url))
            }
        }
    }

    fn call(&self, options: &[&str]) -> Result<Ended, Failure> {
        let name = self.name();
        let head = self.settings.output_head.as_ref();
        let lease = format!(
            "--force-with-lease={name}:{}",
            head.map_or("", Commit::as_str)
        );
        let refspec = format!("{}:{name}", self.commit);
        let url = self.git.url.to_string();
        // One ref is atomic by itself, and not all servers know --atomic.
        let mut arguments = vec!["push", "--porcelain", "--no-verify", &lease];
        arguments.extend(options);
        arguments.extend(["--", &url, &refspec]);
        self.git.remote(&arguments)
    }

    fn name(&self) -> String {
        format!("refs/heads/{}", self.settings.output_branch)
    }

    /// Without an answer, only the branch can tell what happened, and only the good.
    fn judge_by_branch(&self, seen: String) -> Outcome {
        let branch = &self.settings.output_branch;
        let head = match self.git.head(branch) {
            Ok(head) => head,
            // As when the time is over.
            Err(failure) if failure.message == seen => return Outcome::Unknown(seen),
            Err(failure) => return Outcome::Unknown(format!("{seen}; then {}", failure.message)),
        };
        let place = publish::place(head.as_ref());
        let seen = format!("{seen}; then branch '{branch}' is {place}");
        if head.as_ref() == Some(self.commit) {
            Outcome::Pushed
        } else if head == self.settings.output_head {
            Outcome::Unchanged(seen)
        } else {
            Outcome::Unknown(seen)
        }
    }

    /// The branch was not changed: because it is not where it was, or because it cannot be.
    fn not_updated(&self, ended: &Ended, answer: Answer) -> Outcome {
        let (settings, git) = (self.settings, self.git);
        let branch = &settings.output_branch;
        let head = match git.head(branch) {
            Ok(head) => head,
            Err(failure) => {
                return Outcome::Unknown(format!(
                    "the push to '{branch}' was rejected; then {}",
                    failure.message
                ));
            }
        };
        if head.as_ref() == Some(self.commit) {
            return Outcome::Pushed;
        }
        if head != settings.output_head {
            return match publish::found(settings, git, head, self.skipped.clone()) {
                Ok(report) => Outcome::Found(report),
                Err(failure) if failure.reason == Reason::BranchMoved => Outcome::Not(failure),
                Err(failure) => Outcome::Unknown(failure.message),
            };
        }
        Outcome::Not(match answer {
            Answer::NotUpdated(words) => self.unmoved(ended, &words),
            Answer::Stale | Answer::Refused(_) | Answer::Accepted | Answer::None => {
                self.again(&format!(
                    "branch '{branch}' moved during the push, and is {} again",
                    publish::place(head.as_ref())
                ))
            }
        })
    }

    /// Nobody moved the branch, and still the server did not change it.
    fn unmoved(&self, ended: &Ended, words: &str) -> Failure {
        let branch = &self.settings.output_branch;
        // Without an answer the refusal is as certain; only the advice is missing.
        if let Ok(Some(other)) = self.git.excluding(branch) {
            let advice = format!(
                "; a branch named '{other}' keeps '{branch}' away; set output.branch to another name"
            );
            return self.refused(ended, words, &advice);
        }
        let refused = self.refused(ended, words, "");
        if said::is_lock(words) || said::is_lock(&ended.stderr) {
            return self.again(&refused.message);
        }
        refused
    }

    fn refused(&self, ended: &Ended, words: &str, advice: &str) -> Failure {
        let said = said::server_words(&ended.stderr, &self.git.credentials)
            .map_or_else(String::new, |said| format!(": {said}"));
        let words = said::shown(words, &self.git.credentials);
        let branch = &self.settings.output_branch;
        Failure::new(
            Reason::PushRefused,
            format!("the server refused the push to '{branch}' ({words}){said}{advice}"),
        )
    }

    /// What may be otherwise the next time.
    fn again(&self, what: &str) -> Failure {
        let step = self.settings.step;
        step.failed(format!("{what}; nothing was pushed, run again"))
    }

    /// The commit comes first: a message is cut at its end.
    fn uncertain(&self, seen: &str) -> Failure {
        let step = self.settings.step;
        step.failed(format!(
            "commit {} may have been pushed: {seen}",
            self.commit
        ))
    }
}
