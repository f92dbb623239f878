//! Completion of command lines: the candidates that the shells and kubectl request at each press of Tab.
//!
//! The definition of the command line decides which candidates fit (`line`). Names come from the cluster
//! and from the kubeconfig (`names`).
//!
//! # Guarantees
//! - The answer comes within [`LIMIT`], with at most [`MOST`] candidates. A cluster that does not answer
//!   must not block a prompt, and neither must a login program of the kubeconfig.
//! - Nothing is written to the standard error, which would destroy the line that is being typed.

mod line;
mod names;

use std::{ffi::OsString, io::Write, time::Duration};

use crate::{Exit, environment::Environment};

/// Hidden command that prints the candidates, one per line, and then `:0` if files fit as well, or
/// `:4` if not. kubectl expects this form from a plugin's completion.
pub(crate) const COMMAND: &str = "__complete";

/// File name of a link to this program by which kubectl completes `kubectl orc`.
pub(crate) const PLUGIN: &str = "kubectl_complete-orc";

/// Maximum time for reading names. A longer wait would be taken for a shell that hangs.
const LIMIT: Duration = Duration::from_secs(2);

/// Maximum number of candidates. Nobody picks from a longer list.
const MOST: usize = 500;

/// A candidate for the last argument, and its description.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    pub(crate) text: String,
    pub(crate) about: String,
}

impl Candidate {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self::described(text, "")
    }

    pub(crate) fn described(text: impl Into<String>, about: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            about: about.into(),
        }
    }
}

/// Prints the candidates. The last argument is the word that is being typed; it may be empty.
pub(crate) async fn run(
    arguments: Vec<OsString>,
    environment: &Environment,
    out: &mut dyn Write,
) -> Exit {
    let typed = arguments
        .iter()
        .map(|word| word.to_string_lossy().into_owned());
    let question = line::question(typed.collect());
    let words = match &question.wanted {
        line::Wanted::Candidates(words) => words.clone(),
        line::Wanted::Files | line::Wanted::Nothing => Vec::new(),
        line::Wanted::Names(source) => {
            names::read(
                source.clone(),
                question.cluster.clone(),
                environment.clone(),
            )
            .await
        }
    };
    let text = answer(&question, words);
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Exit::Ok,
        Err(_unwritable) => Exit::Client,
    }
}

/// Formats the candidates that begin with the typed one.
fn answer(question: &line::Question, mut words: Vec<Candidate>) -> String {
    words.retain(|word| word.text.starts_with(&question.prefix));
    words.sort();
    words.dedup();
    words.truncate(MOST);
    let mut text = String::new();
    for Candidate { text: word, about } in words {
        let before = &question.before;
        match about.is_empty() {
            true => text.push_str(&format!("{before}{word}\n")),
            false => text.push_str(&format!("{before}{word}\t{about}\n")),
        }
    }
    let has_files = question.wanted == line::Wanted::Files;
    text.push_str(if has_files { ":0\n" } else { ":4\n" });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_bounded_and_begins_as_typed() {
        let question = line::question(vec!["get".to_owned(), "--agent=wr".to_owned()]);
        let words = ["writer", "reader", "writer"].map(Candidate::new).to_vec();
        assert_eq!(answer(&question, words), "--agent=writer\n:4\n");
        let question = line::question(vec!["describe".to_owned(), String::new()]);
        let many = (0..2 * MOST).map(|number| Candidate::new(format!("run-{number}")));
        assert_eq!(answer(&question, many.collect()).lines().count(), MOST + 1);
    }

    #[test]
    fn a_description_is_behind_a_tab_and_files_are_the_shells() {
        let question = line::question(vec!["can".to_owned()]);
        let line::Wanted::Candidates(words) = question.wanted.clone() else {
            panic!("{question:?}");
        };
        let text = answer(&question, words);
        assert_eq!(text, "cancel\tCancel a run; this cannot be undone\n:4\n");
        let question = line::question(vec![
            "submit".to_owned(),
            "--kubeconfig".to_owned(),
            "/".to_owned(),
        ]);
        assert_eq!(answer(&question, Vec::new()), ":0\n");
    }
}
