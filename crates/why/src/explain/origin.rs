//! The object that a user edits to change a Pod or another child: the Agent of a run, or the Tenant.

use super::container::{AFTER_EDIT, THEN_AGAIN};
use super::*;

#[derive(Clone, Copy)]
pub(super) enum Origin<'a> {
    Agent(Run<'a>),
    /// The Tenant, and the component that the child belongs to.
    Tenant(Tenant<'a>, Option<&'a str>),
}

impl<'a> Origin<'a> {
    pub(super) fn subject(self) -> Subject<'a> {
        match self {
            Self::Agent(run) => *run,
            Self::Tenant(tenant, _) => *tenant,
        }
    }

    pub(super) fn object(self) -> ObjectRef {
        match self {
            Self::Agent(run) => run.agent(),
            Self::Tenant(tenant, _) => tenant.object(),
        }
    }

    pub(super) fn whose(self) -> &'static str {
        match self {
            Self::Agent(_) => "the Agent",
            Self::Tenant(..) => "the Tenant",
        }
    }

    pub(super) fn edit(self, purpose: impl Into<String>) -> Command {
        self.object().edit(purpose)
    }

    /// Returns the last command after an edit that is necessary.
    pub(super) fn again(self) -> Command {
        match self {
            Self::Agent(run) => run.retry(),
            Self::Tenant(tenant, _) => tenant.look_again(),
        }
    }

    /// Returns the last command after an edit that is one of several ways.
    pub(super) fn retry_after_edit(self) -> Option<Command> {
        match self {
            Self::Agent(run) => Some(run.retry_after_edit()),
            Self::Tenant(..) => None,
        }
    }

    /// Returns the sentence about the effect of an edit on a child of this kind. `is_needed`: nothing
    /// else helps.
    pub(super) fn after(self, child: &str, is_needed: bool) -> &'static str {
        match (self, child == "Pod", is_needed) {
            (Self::Tenant(..), _, _) => tenant::AFTER_EDIT,
            (Self::Agent(_), true, false) => AFTER_EDIT,
            (Self::Agent(_), true, true) => THEN_AGAIN,
            (Self::Agent(_), false, false) => {
                "A changed Agent counts at the next try; otherwise it goes on by itself."
            }
            (Self::Agent(_), false, true) => "The next try counts by itself.",
        }
    }
}
