//! Renders an explanation as text for a terminal.
//!
//! # Guarantees
//! - Every symbol is followed by text, so nothing is lost without color.
//! - Text is wrapped with hanging indents. Commands are not wrapped and can be copied.
//! - Control characters in text from the cluster never reach the terminal.

use api::{Timestamp, status::bounded};

use crate::{
    explanation::{Evidence, Explanation, Health, Link, NoteKind, State},
    times,
};

/// Minimum width for wrapped text, in columns. A smaller width is raised to this value.
const NARROW: usize = 40;
/// Maximum length of the text of one field, in characters.
const LONG: usize = 2048;

/// Source of the evidence with a planned time. All other evidence is of the past.
pub(crate) const DEADLINE: &str = "status.deadlineAt";

/// A color of the terminal, as an escape code; empty for none.
type Ink = &'static str;

const PLAIN: Ink = "";
const BOLD: Ink = "1";
const DIM: Ink = "2";
const RED: Ink = "1;31";
const YELLOW: Ink = "33";
const GREEN: Ink = "32";
const CYAN: Ink = "36";

/// Renders the explanation in lines of at most `width` characters, except for commands.
#[must_use]
pub fn render(explanation: &Explanation, width: usize, color: bool) -> String {
    let mut page = Page {
        text: String::new(),
        width: width.max(NARROW),
        color,
        now: explanation.at.0,
    };
    page.head(explanation);
    page.gap();
    let last = explanation.chain.len().saturating_sub(1);
    for (depth, link) in explanation.chain.iter().enumerate() {
        let mark = if depth == last {
            mark(explanation, link)
        } else {
            ""
        };
        page.link(explanation, link, depth, mark);
    }
    if !explanation.notes.is_empty() {
        page.gap();
    }
    for note in &explanation.notes {
        let (sign, ink) = match note.kind {
            NoteKind::Disagreement => ("! status and cluster disagree: ", YELLOW),
            NoteKind::Unreadable => ("? ", YELLOW),
            NoteKind::Hint => ("i note: ", PLAIN),
        };
        page.wrapped(ink, "  ", "    ", &format!("{sign}{}", note.text));
    }
    if !explanation.advice.is_empty() {
        page.gap();
        let advice = format!("To do: {}", explanation.advice);
        page.wrapped(BOLD, "", "       ", &advice);
    }
    page.gap();
    page.wrapped(BOLD, "", "", "Next:");
    for command in &explanation.next_steps {
        page.wrapped(DIM, "  # ", "  # ", &command.description);
        page.line(CYAN, &format!("  {}", clean(&command.command)));
    }
    page.text
}

/// Returns the mark of the deepest object.
fn mark(explanation: &Explanation, deepest: &Link) -> &'static str {
    let is_alone = explanation.chain.len() == 1;
    match (&explanation.blocker, explanation.state) {
        (Some(_), State::Failed) => " ◀\u{a0}cause",
        (Some(_), State::Suspended) if is_alone => " ◀\u{a0}suspended\u{a0}here",
        (Some(_), State::Suspended) => " ◀\u{a0}waited\u{a0}for",
        (Some(_), _) => " ◀\u{a0}blocker",
        // The object is in progress and has no problem.
        (None, State::Waiting | State::Deleting | State::NotProven)
            if deepest.health == Health::Waiting && !is_alone =>
        {
            " ◀\u{a0}waited\u{a0}for"
        }
        (None, _) => "",
    }
}

struct Page {
    text: String,
    width: usize,
    color: bool,
    now: Timestamp,
}

impl Page {
    fn line(&mut self, ink: Ink, text: &str) {
        let line = match self.color && !ink.is_empty() {
            true => format!("\u{1b}[{ink}m{text}\u{1b}[0m\n"),
            false => format!("{text}\n"),
        };
        self.text.push_str(&line);
    }

    fn gap(&mut self) {
        self.text.push('\n');
    }

    /// Prints `text` after `first`, and its further lines after `rest`.
    fn wrapped(&mut self, ink: Ink, first: &str, rest: &str, text: &str) {
        for line in wrap(&clean(text), first, rest, self.width) {
            self.line(ink, &line);
        }
    }

    fn head(&mut self, explanation: &Explanation) {
        let (sign, word, ink) = match explanation.state {
            State::Succeeded => ("✓", "SUCCEEDED", GREEN),
            State::Failed => ("✗", "FAILED", RED),
            State::Running => ("▶", "RUNNING", GREEN),
            State::Waiting => ("○", "WAITING", YELLOW),
            State::Blocked => ("✗", "BLOCKED", RED),
            State::Suspended => ("‖", "SUSPENDED", YELLOW),
            State::Deleting => ("⊘", "DELETING", YELLOW),
            State::Ready => ("✓", "READY", GREEN),
            State::NotIsolated => ("✗", "READY, NOT ISOLATED", RED),
            State::NotProven => ("○", "READY, NOT PROVEN", YELLOW),
            State::Unmanaged => ("?", "UNMANAGED", PLAIN),
        };
        let subject = &explanation.subject;
        let place = subject.namespace.as_ref();
        let place = place.map_or_else(String::new, |namespace| format!("{namespace}/"));
        let is_over = matches!(explanation.state, State::Succeeded | State::Failed);
        let verb = if is_over { "ended" } else { "since" };
        let since = explanation.since.as_ref();
        let since = since.map_or_else(String::new, |since| {
            format!(" · {verb} {}", times::past(self.now, since.0))
        });
        let text = format!(
            "{sign} {word} · {} {place}{} · {}{since}",
            subject.kind, subject.name, explanation.reason
        );
        self.wrapped(ink, "", "  ", &text);
        self.wrapped(BOLD, "  ", "  ", &explanation.summary);
        if let Some(status) = &explanation.outdated {
            let age = status.at.as_ref().map_or_else(String::new, |at| {
                let seconds = self.now.as_second().saturating_sub(at.0.as_second());
                format!(" ({} old)", times::span(seconds))
            });
            let text = format!("status still says{age}: {}", status.message);
            self.wrapped(DIM, "  ", "    ", &text);
        }
    }

    fn link(&mut self, explanation: &Explanation, link: &Link, depth: usize, mark: &str) {
        let (sign, ink) = match link.health {
            Health::Ok => ("✓", GREEN),
            Health::Waiting => ("○", YELLOW),
            Health::Error => ("✗", RED),
        };
        let indent = "   ".repeat(depth.saturating_sub(1));
        let (first, rest) = match depth {
            0 => ("  ".to_owned(), "    ".to_owned()),
            _ => (format!("  {indent}└─ "), format!("  {indent}     ")),
        };
        let place = match &link.object.namespace {
            // The namespace of the subject is already in the header.
            Some(namespace) if Some(namespace) != explanation.subject.namespace.as_ref() => {
                format!("{namespace}/")
            }
            Some(_) | None => String::new(),
        };
        let asked = match link.is_target && depth > 0 {
            true => " ◀\u{a0}asked\u{a0}about",
            false => "",
        };
        let text = format!(
            "{sign} {} {place}{} [{}]: {}{mark}{asked}",
            link.object.kind, link.object.name, link.reason, link.message
        );
        self.wrapped(ink, &first, &rest, &text);
        for evidence in &link.evidence {
            let text = self.evidence(explanation, link, evidence);
            self.wrapped(DIM, &format!("{rest}  "), &format!("{rest}    "), &text);
        }
    }

    fn evidence(&self, explanation: &Explanation, link: &Link, evidence: &Evidence) -> String {
        let outdated = explanation.outdated.as_ref();
        let is_said = repeats(&explanation.summary, &evidence.text)
            || repeats(&link.message, &evidence.text)
            || outdated.is_some_and(|status| repeats(&status.message, &evidence.text));
        let text = if evidence.text.is_empty() || is_said {
            String::new()
        } else {
            format!(": {}", evidence.text)
        };
        let time = match evidence.source.as_str() {
            DEADLINE => times::at,
            _ => times::past,
        };
        let at = evidence
            .at
            .as_ref()
            .map_or_else(String::new, |at| format!(" · {}", time(self.now, at.0)));
        format!("{}{text}{at}", evidence.source)
    }
}

/// Minimum length of a text that counts as a repetition, in bytes. A shorter text is easier to read
/// again than to find.
const SHORT: usize = 30;

/// Returns whether the text above already contains this text, perhaps after another prefix.
fn repeats(above: &str, words: &str) -> bool {
    let rest = [": forbidden: ", "is forbidden: ", "Error creating: "]
        .iter()
        .find_map(|start| words.split_once(start))
        .map_or(words, |(_, rest)| rest);
    above == words || (rest.len() > SHORT && above.contains(rest))
}

fn clean(text: &str) -> String {
    bounded(text, LONG)
}

/// Inserts no-break spaces within a time and its age: `10:02:11Z (5m 10s ago)`.
fn glued(text: &str) -> String {
    let is_amount = |word: &str| {
        let word = word
            .trim_start_matches('(')
            .trim_end_matches([')', ',', '.', ';', ':']);
        let digits = word.trim_end_matches(['s', 'm', 'h', 'd']);
        !digits.is_empty()
            && digits.len() + 1 == word.len()
            && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_clock = |word: &str| word.len() >= 9 && word.ends_with('Z') && word.contains(':');
    let mut out = String::new();
    let mut last = "";
    for word in text.split(' ') {
        let rest = word.trim_start_matches('(');
        let ends_age = ["ago", "old", "left", "over"]
            .iter()
            .any(|end| rest.starts_with(end));
        let is_one = (is_amount(last) && (is_amount(word) || ends_age))
            || (last == "(in" && is_amount(word))
            || (is_clock(last) && (word == "(in" || word.starts_with("(now") || is_amount(word)));
        if !out.is_empty() {
            out.push(if is_one { '\u{a0}' } else { ' ' });
        }
        out.push_str(word);
        last = word;
    }
    out
}

/// Wraps text at spaces only, so that names and addresses stay whole.
fn wrap(text: &str, first: &str, rest: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = first.to_owned();
    let mut is_empty = true;
    let text = glued(text);
    // The text does not break at a no-break space.
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let length = line.chars().count() + usize::from(!is_empty) + word.chars().count();
        if length > width && !is_empty {
            lines.push(std::mem::replace(&mut line, rest.to_owned()));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(&word.replace('\u{a0}', " "));
        is_empty = false;
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests;
