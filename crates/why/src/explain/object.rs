//! Objects of kinds without rules of their own. Their conditions, their message and the state of their
//! operator explain them.

use api::status::condition::{FINISHED, READY, STALLED, SUCCEEDED};

use super::*;

impl<'a> Explain<'a> for Object<'a> {
    fn find(self) -> Finding {
        faults::undecodable(*self)
            .or_else(|| operator::not_seen(*self))
            .unwrap_or_else(|| self.reported())
    }

    fn own(self, _finding: &Finding) -> (Health, String) {
        let (_, health) = self.stand();
        let sentence = match self.message() {
            "" => "has no message yet",
            message => message,
        };
        (health, sentence.to_owned())
    }

    fn more(self) -> Option<Evidence> {
        self.main().map(Evidence::of)
    }
}

impl Object<'_> {
    /// Explains the object by its conditions.
    fn reported(self) -> Finding {
        let (state, _) = self.stand();
        let unknown = || "Read the message above, then the operator's log.".to_owned();
        let advice = match state {
            State::Succeeded | State::Ready => String::new(),
            State::Failed
            | State::Running
            | State::Waiting
            | State::Blocked
            | State::Suspended
            | State::Deleting
            | State::NotIsolated
            | State::NotProven
            | State::Unmanaged => self.reason().map_or_else(unknown, plain_advice),
        };
        finding! { (state) (advice);
            then self.object().describe("its status and its Events"), operator::log(self.world);
        }
    }

    /// Returns the state of the object, and its health.
    fn stand(self) -> (State, Health) {
        let is = |kind: &str| self.progress.is_true(kind);
        if self.meta.deleting.is_some() {
            (State::Deleting, Health::Waiting)
        } else if is(SUCCEEDED) {
            (State::Succeeded, Health::Ok)
        } else if is(READY) {
            (State::Ready, Health::Ok)
        } else if is(FINISHED) {
            (State::Failed, Health::Error)
        } else if self.reason() == Some(Reason::Suspended) {
            (State::Suspended, Health::Waiting)
        } else if is(STALLED) {
            (State::Blocked, Health::Error)
        } else {
            (State::Waiting, Health::Waiting)
        }
    }
}

#[cfg(test)]
mod tests;
