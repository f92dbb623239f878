//! The result of one topic, and its form in source: a table of rows.
//!
//! ```text
//! finding! {
//!     Blocked "the advice, with {names} and {}", arguments;
//!     Error pod.object(), Reason::ImagePullFailed, "the sentence about the Pod";
//!     since pod.meta.created.as_ref();
//!     seen "the source" => (&event.message), event.last.as_ref();
//!     then pod.object().describe("the purpose"), run.retry();
//!     shell "kubectl get nodes" => "the purpose";
//! }
//! ```
//! A finding starts with its state, a link with the health of its object. The rows `since` and
//! `seen` belong to the link above them. A text is a format string, or an expression in parentheses.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    explanation::{Command, Evidence, Link, Note, NoteKind, State},
    world::ObjectRef,
};

/// Formats a text of a row.
macro_rules! text {
    (($text:expr)) => {
        $crate::explain::finding::owned($text)
    };
    ($text:literal $(, $arg:expr)*) => {
        format!($text $(, $arg)*)
    };
}

/// Builds a link from rows.
macro_rules! link {
    (($health:expr) $object:expr, $reason:expr, $text:tt $(, $arg:expr)*; $($row:tt)*) => {
        rows!($crate::explanation::Link::new($object, $health, $reason, text!($text $(, $arg)*)); $($row)*)
    };
    ($health:ident $object:expr, $reason:expr, $text:tt $(, $arg:expr)*; $($row:tt)*) => {
        link!(($crate::explanation::Health::$health) $object, $reason, $text $(, $arg)*; $($row)*)
    };
}

/// Builds a finding from rows.
macro_rules! finding {
    (($state:expr) $advice:tt $(, $arg:expr)*; $($row:tt)*) => {
        rows!($crate::explain::Finding::new($state, text!($advice $(, $arg)*)); $($row)*)
    };
    ($state:ident $advice:tt $(, $arg:expr)*; $($row:tt)*) => {
        finding!(($crate::explanation::State::$state) $advice $(, $arg)*; $($row)*)
    };
}

/// Adds rows to a finding or a link, one after the other.
macro_rules! rows {
    ($to:expr;) => { $to };
    ($to:expr; since $at:expr; $($rest:tt)*) => { rows!($to.since($at); $($rest)*) };
    ($to:expr; seen $source:tt => $text:tt, $at:expr; $($rest:tt)*) => {
        rows!($to.seen(text!($source), text!($text), $at); $($rest)*)
    };
    ($to:expr; seen $evidence:expr; $($rest:tt)*) => { rows!($to.evidence($evidence); $($rest)*) };
    ($to:expr; link $link:expr; $($rest:tt)*) => { rows!($to.link($link); $($rest)*) };
    ($to:expr; newer; $($rest:tt)*) => { rows!($to.newer(); $($rest)*) };
    ($to:expr; newer if $is:expr; $($rest:tt)*) => { rows!($to.newer_if($is); $($rest)*) };
    ($to:expr; note $text:tt $(, $arg:expr)*; $($rest:tt)*) => {
        rows!($to.note(text!($text $(, $arg)*)); $($rest)*)
    };
    ($to:expr; then $($command:expr),+; $($rest:tt)*) => {
        rows!($to $(.then($command))+; $($rest)*)
    };
    ($to:expr; shell $line:tt $(, $arg:expr)* => $purpose:tt $(, $more:expr)*; $($rest:tt)*) => {
        rows!($to.then(shell!($line $(, $arg)* => $purpose $(, $more)*)); $($rest)*)
    };
    ($to:expr; ($health:expr) $object:expr, $reason:expr, $text:tt $(, $arg:expr)*; $($rest:tt)*) => {
        rows!($to.link(link!(($health) $object, $reason, $text $(, $arg)*;)); $($rest)*)
    };
    ($to:expr; $health:ident $object:expr, $reason:expr, $text:tt $(, $arg:expr)*; $($rest:tt)*) => {
        rows!($to.link(link!($health $object, $reason, $text $(, $arg)*;)); $($rest)*)
    };
}

/// Builds a command with its purpose.
macro_rules! shell {
    ($line:tt $(, $arg:expr)* => $purpose:tt $(, $more:expr)*) => {
        $crate::explanation::Command::new(text!($line $(, $arg)*), text!($purpose $(, $more)*))
    };
}

/// Returns the text of the first row that matches.
macro_rules! one_of {
    ($on:expr; $($pattern:pat $(if $guard:expr)? => $text:tt $(, $arg:expr)*;)+) => {
        match $on { $($pattern $(if $guard)? => text!($text $(, $arg)*),)+ }
    };
}

/// Returns the value of the row with this reason, if there is one.
macro_rules! of_reason {
    ($reason:expr; $($known:ident => $value:expr,)+) => {
        $(if $reason == api::Reason::$known { Some($value) } else)+ { None }
    };
}

pub(super) fn owned(text: impl Into<String>) -> String {
    text.into()
}

/// Rows about one object. They belong to a link, or to the deepest link of a finding.
pub(super) trait Rows: Sized {
    /// Returns the link that the rows belong to.
    fn deepest(&mut self) -> Option<&mut Link>;

    /// Sets the time since when the object has its state.
    #[must_use]
    fn since(mut self, at: Option<&Time>) -> Self {
        if let Some(link) = self.deepest() {
            link.since = at.cloned();
        }
        self
    }

    /// Adds evidence, if there is any.
    #[must_use]
    fn evidence(mut self, evidence: impl Into<Option<Evidence>>) -> Self {
        let evidence: Option<Evidence> = evidence.into();
        if let Some(link) = self.deepest() {
            link.evidence.extend(evidence);
        }
        self
    }

    #[must_use]
    fn seen(self, source: impl Into<String>, text: impl Into<String>, at: Option<&Time>) -> Self {
        self.evidence(Evidence::new(source, text, at))
    }
}

impl Rows for Link {
    fn deepest(&mut self) -> Option<&mut Link> {
        Some(self)
    }
}

impl Rows for Finding {
    fn deepest(&mut self) -> Option<&mut Link> {
        self.links.last_mut()
    }
}

/// The result of one topic.
#[derive(Debug, Clone)]
pub(super) struct Finding {
    pub(super) state: State,
    /// The links below the subject, the deepest one last.
    pub(super) links: Vec<Link>,
    pub(super) notes: Vec<Note>,
    pub(super) advice: String,
    pub(super) next: Vec<Command>,
    /// Whether the cluster contradicts the status. Then the deepest link determines the summary.
    pub(super) is_newer: bool,
    /// The link of an operator that does not run. It determines the summary, whatever the state is.
    pub(super) headline: Option<Link>,
}

impl Finding {
    pub(super) fn new(state: State, advice: impl Into<String>) -> Self {
        Self {
            state,
            links: Vec::new(),
            notes: Vec::new(),
            advice: advice.into(),
            next: Vec::new(),
            is_newer: false,
            headline: None,
        }
    }

    /// Marks the finding as a contradiction of the status.
    #[must_use]
    pub(super) fn newer(self) -> Self {
        self.newer_if(true)
    }

    #[must_use]
    pub(super) fn newer_if(mut self, is_newer: bool) -> Self {
        self.is_newer = is_newer;
        self
    }

    #[must_use]
    pub(super) fn link(mut self, link: impl Into<Option<Link>>) -> Self {
        let link: Option<Link> = link.into();
        self.links.extend(link);
        self
    }

    #[must_use]
    pub(super) fn then(mut self, command: impl Into<Option<Command>>) -> Self {
        let command: Option<Command> = command.into();
        self.next.extend(command);
        self
    }

    /// Adds a hint.
    #[must_use]
    pub(super) fn note(mut self, text: String) -> Self {
        let kind = NoteKind::Hint;
        self.notes.push(Note { kind, text });
        self
    }

    /// Puts these links in front of the others.
    #[must_use]
    pub(super) fn below(mut self, above: impl IntoIterator<Item = Link>) -> Self {
        let mut links: Vec<Link> = above.into_iter().collect();
        links.append(&mut self.links);
        self.links = links;
        self
    }

    /// Returns whether the first link is about this object.
    pub(super) fn starts_with(&self, object: &ObjectRef) -> bool {
        self.links
            .first()
            .is_some_and(|link| link.object == *object)
    }

    /// Returns the deepest link, without the link of an operator that does not run.
    pub(super) fn cause(&self) -> Option<&Link> {
        let mut links = self.links.iter().rev();
        links.find(|link| link.reason != "OperatorDown")
    }
}
