//! Pushes a commit, and determines the outcome.
//!
//! After a push began, only the server's response about our branch makes certain that nothing was pushed.
//! This is the meaning of [`NotPushed::Certain`].

use git::{Commit, Reason};

use crate::{
    child::Ended,
    command::Git,
    failure::Failure,
    git_errors::{self, Answer},
};

/// Maximum number of pushes of the same commit. The second is for a broken connection.
const PUSHES: usize = 2;

/// One commit for one branch.
pub(crate) struct Push<'a, Report> {
    pub(crate) git: &'a Git,
    pub(crate) branch: &'a str,
    /// The expected commit of the branch.
    pub(crate) head: Option<&'a Commit>,
    pub(crate) commit: &'a Commit,
    /// Recognizes a commit of this run that another attempt pushed. Fails with [`Reason::BranchMoved`] if
    /// somebody else moved the branch.
    pub(crate) find: &'a dyn Fn(Option<Commit>) -> Result<Report, Failure>,
}

/// A push that succeeded.
pub(crate) enum Pushed<Report> {
    /// The branch was, or is, at our commit.
    Now,
    /// The branch is at a commit of this run that another attempt pushed.
    Before(Report),
}

/// A push that may have failed.
#[derive(Debug)]
pub(crate) enum NotPushed {
    /// It is certain that nothing was pushed.
    Certain(Failure),
    /// The outcome is unknown. The message does not name the commit.
    Unknown(String),
}

/// Describes the commit of a branch, for a message.
pub(crate) fn describe(head: Option<&Commit>) -> String {
    match head {
        Some(commit) => format!("at commit {commit}"),
        None => "not there".to_owned(),
    }
}

/// The known outcome of one push.
enum Outcome<Report> {
    /// The push succeeded.
    Pushed(Pushed<Report>),
    /// This push changed nothing.
    Not(Failure),
    /// The branch did not move, but the push may still be in progress.
    Unchanged(String),
    /// The outcome is unknown.
    Unknown(String),
}

impl<Report> Push<'_, Report> {
    /// Pushes the commit.
    ///
    /// # Errors
    /// When nothing was pushed, or the outcome is unknown.
    pub(crate) fn run(&self) -> Result<Pushed<Report>, NotPushed> {
        self.check_access().map_err(NotPushed::Certain)?;
        let mut seen = String::new();
        for attempt in 1..=PUSHES {
            match self.once() {
                Outcome::Pushed(pushed) => return Ok(pushed),
                Outcome::Not(failure) if attempt == 1 => return Err(NotPushed::Certain(failure)),
                // This failure is about the second push. The outcome of the first push is still unknown.
                Outcome::Not(failure) => return Err(NotPushed::Unknown(failure.message)),
                Outcome::Unknown(seen) => return Err(NotPushed::Unknown(seen)),
                Outcome::Unchanged(what) => seen = what,
            }
        }
        Err(NotPushed::Unknown(seen))
    }

    /// Checks with a dry run whether we have write access. Nothing is sent yet, so a rejection is certain,
    /// and its message does not come from a hook.
    ///
    /// # Errors
    /// When the server does not permit a push.
    pub(crate) fn check_access(&self) -> Result<(), Failure> {
        let ended = self.call(&["--dry-run"])?;
        match git_errors::answer(&String::from_utf8_lossy(&ended.stdout), &self.name()) {
            Answer::None if !ended.status.success() => Err(self.git.refused(&ended, "push to")),
            // The push itself reports more.
            Answer::None
            | Answer::Accepted
            | Answer::Refused(_)
            | Answer::Stale
            | Answer::NotUpdated(_) => Ok(()),
        }
    }

    fn once(&self) -> Outcome<Report> {
        let ended = match self.call(&[]) {
            Ok(ended) => ended,
            Err(failure) => return self.judge_by_branch(failure.message),
        };
        match git_errors::answer(&String::from_utf8_lossy(&ended.stdout), &self.name()) {
            // Somebody may have moved the branch since then. The operator detects that.
            Answer::Accepted if ended.status.success() => Outcome::Pushed(Pushed::Now),
            Answer::Refused(words) => Outcome::Not(self.refused(&ended, &words, "")),
            answer @ (Answer::Stale | Answer::NotUpdated(_)) => self.not_updated(&ended, answer),
            Answer::Accepted | Answer::None => {
                let quote = git_errors::quote(&ended.stderr, &self.git.credentials);
                self.judge_by_branch(format!("cannot push to {}: {quote}", self.git.url))
            }
        }
    }

    fn call(&self, options: &[&str]) -> Result<Ended, Failure> {
        let name = self.name();
        let lease = format!(
            "--force-with-lease={name}:{}",
            self.head.map_or("", Commit::as_str)
        );
        let refspec = format!("{}:{name}", self.commit);
        let url = self.git.url.to_string();
        // The update of one ref is atomic anyway, and not all servers support --atomic.
        let mut arguments = vec!["push", "--porcelain", "--no-verify", &lease];
        arguments.extend(options);
        arguments.extend(["--", &url, &refspec]);
        self.git.remote(&arguments)
    }

    fn name(&self) -> String {
        format!("refs/heads/{}", self.branch)
    }

    /// Determines the outcome from the branch if the server did not respond. The branch can confirm a push,
    /// but cannot rule it out.
    fn judge_by_branch(&self, seen: String) -> Outcome<Report> {
        let branch = self.branch;
        let head = match self.git.head(branch) {
            Ok(head) => head,
            // The same failure again, as after the deadline.
            Err(failure) if failure.message == seen => return Outcome::Unknown(seen),
            Err(failure) => return Outcome::Unknown(format!("{seen}; then {}", failure.message)),
        };
        let place = describe(head.as_ref());
        let seen = format!("{seen}; then branch '{branch}' is {place}");
        if head.as_ref() == Some(self.commit) {
            Outcome::Pushed(Pushed::Now)
        } else if head.as_ref() == self.head {
            Outcome::Unchanged(seen)
        } else {
            Outcome::Unknown(seen)
        }
    }

    /// Determines why the server did not update the branch: because the branch moved, or because the update
    /// is not possible.
    fn not_updated(&self, ended: &Ended, answer: Answer) -> Outcome<Report> {
        let branch = self.branch;
        let head = match self.git.head(branch) {
            Ok(head) => head,
            Err(failure) => {
                return Outcome::Unknown(format!(
                    "the push to '{branch}' was rejected; then {}",
                    failure.message
                ));
            }
        };
        if head.as_ref() == Some(self.commit) {
            return Outcome::Pushed(Pushed::Now);
        }
        if head.as_ref() != self.head {
            return match (self.find)(head) {
                Ok(report) => Outcome::Pushed(Pushed::Before(report)),
                Err(failure) if failure.reason == Reason::BranchMoved => Outcome::Not(failure),
                Err(failure) => Outcome::Unknown(failure.message),
            };
        }
        Outcome::Not(match answer {
            Answer::NotUpdated(words) => self.unmoved(ended, &words),
            Answer::Stale | Answer::Refused(_) | Answer::Accepted | Answer::None => {
                self.again(&format!(
                    "branch '{branch}' moved during the push, and is {} again",
                    describe(head.as_ref())
                ))
            }
        })
    }

    /// Returns the failure if the server did not update a branch that nobody moved.
    fn unmoved(&self, ended: &Ended, words: &str) -> Failure {
        let branch = self.branch;
        // If this request fails, the rejection is still certain. Only the advice is missing.
        if let Ok(Some(other)) = self.git.excluding(branch) {
            let advice = format!(
                "; a branch named '{other}' keeps '{branch}' away; set output.branch to another name"
            );
            return self.refused(ended, words, &advice);
        }
        let refused = self.refused(ended, words, "");
        if git_errors::is_lock(words) || git_errors::is_lock(&ended.stderr) {
            return self.again(&refused.message);
        }
        refused
    }

    fn refused(&self, ended: &Ended, words: &str, advice: &str) -> Failure {
        let reply = git_errors::server_message(&ended.stderr, &self.git.credentials)
            .map_or_else(String::new, |message| format!(": {message}"));
        let words = git_errors::shown(words, &self.git.credentials);
        let branch = self.branch;
        Failure::new(
            Reason::PushRejected,
            format!("the server refused the push to '{branch}' ({words}){reply}{advice}"),
        )
    }

    /// Returns a failure that may not occur again.
    fn again(&self, what: &str) -> Failure {
        let step = self.git.step;
        step.failed(format!("{what}; nothing was pushed, run again"))
    }
}
