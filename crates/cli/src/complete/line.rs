//! The typed line: which candidates fit at its end. All functions are pure.

use std::path::PathBuf;

use api::kinds::KindRow;
use clap::{Arg, Command, CommandFactory, Parser, error::ErrorKind};

use super::Candidate;
use crate::{
    arguments::{Arguments, Cluster},
    target,
};

/// The candidates for the end of a line.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) wanted: Wanted,
    /// Beginning of the word that is being typed.
    pub(super) prefix: String,
    /// Text before the word, which the shell replaces as well: `--agent=`.
    pub(super) before: String,
    /// Cluster flags on the line.
    pub(super) cluster: Cluster,
}

/// The origin of the candidates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wanted {
    Nothing,
    /// Files, which the shell knows.
    Files,
    Candidates(Vec<Candidate>),
    Names(Source),
}

/// The origin of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// The contexts of the kubeconfig.
    Contexts,
    /// The namespaces of the cluster.
    Namespaces,
    /// The objects of these kinds, each with this text before its name, and these candidates.
    Objects(Vec<(&'static KindRow, String)>, Vec<Candidate>),
}

/// The part of the line before the last word.
struct Before {
    /// The command, its subcommands, and so on.
    path: Vec<String>,
    command: Command,
    positionals: Vec<String>,
    /// The flag whose value is typed now.
    flag: Option<Arg>,
    /// Whether `--` ended the flags.
    is_positional: bool,
    cluster: Cluster,
}

/// Returns the question of a line. The arguments do not include the program's name; the last one
/// is being typed.
pub(super) fn question(words: Vec<String>) -> Question {
    let mut words = joined(words);
    let last = words.pop().unwrap_or_default();
    let mut before = Before::new();
    for word in words {
        before.push(word);
    }
    let (start, prefix) = match last.split_once('=') {
        Some((flag, value)) if before.flag.is_none() && flag.starts_with("--") => {
            before.push(flag.to_owned());
            (format!("{flag}="), value.to_owned())
        }
        Some(_) | None => (String::new(), last),
    };
    Question {
        wanted: before.wanted(&prefix),
        prefix,
        before: start,
        cluster: before.cluster,
    }
}

/// Joins the parts of `--flag = value`. bash splits a word at `=`, and completes only the last part.
fn joined(words: Vec<String>) -> Vec<String> {
    let ends_with_sign = words.last().is_some_and(|word| word == "=");
    let mut all: Vec<String> = Vec::new();
    for word in words {
        let is_value = word == "=" && all.last().is_some_and(|flag| flag.starts_with("--"));
        if !is_value {
            all.push(word);
        }
    }
    if ends_with_sign {
        all.push(String::new());
    }
    all
}

impl Before {
    fn new() -> Self {
        let mut command = Arguments::command();
        // Copies the global flags into the subcommands.
        command.build();
        Self {
            path: vec!["orc".to_owned()],
            command,
            positionals: Vec::new(),
            flag: None,
            is_positional: false,
            cluster: Cluster::default(),
        }
    }

    fn push(&mut self, word: String) {
        if let Some(flag) = self.flag.take() {
            self.remember(&flag, word);
        } else if self.is_positional || !word.starts_with('-') || word == "-" {
            let below = self.command.find_subcommand(&word).cloned();
            match below.filter(|_| self.positionals.is_empty() && !self.is_positional) {
                Some(below) => {
                    self.command = below;
                    self.path.push(word);
                }
                None => self.positionals.push(word),
            }
        } else if word == "--" {
            self.is_positional = true;
        } else if let Some(long) = word.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (long, None),
            };
            let flag = self.find(|flag| flag.get_long() == Some(name));
            self.take(flag, value);
        } else {
            let mut letters = word.chars().skip(1);
            while let Some(letter) = letters.next() {
                let flag = self.find(|flag| flag.get_short() == Some(letter));
                if flag.as_ref().is_some_and(takes_a_value) {
                    let value: String = letters.by_ref().collect();
                    let value = value.strip_prefix('=').unwrap_or(&value).to_owned();
                    self.take(flag, (!value.is_empty()).then_some(value));
                }
            }
        }
    }

    fn find(&self, is_it: impl Fn(&Arg) -> bool) -> Option<Arg> {
        self.command
            .get_arguments()
            .find(|flag| is_it(flag))
            .cloned()
    }

    /// Records a flag with its value, or waits for the value in the next word.
    fn take(&mut self, flag: Option<Arg>, value: Option<String>) {
        match (flag.filter(takes_a_value), value) {
            (Some(flag), Some(value)) => self.remember(&flag, value),
            (Some(flag), None) => self.flag = Some(flag),
            (None, _) => {}
        }
    }

    fn remember(&mut self, flag: &Arg, value: String) {
        match flag.get_id().as_str() {
            "namespace" => self.cluster.namespace = Some(value),
            "context" => self.cluster.context = Some(value),
            "kubeconfig" => self.cluster.kubeconfig = Some(PathBuf::from(value)),
            _ => {}
        }
    }

    fn wanted(&self, prefix: &str) -> Wanted {
        if let Some(flag) = &self.flag {
            return self.value(flag);
        }
        if prefix.starts_with('-') && !self.is_positional {
            return Wanted::Candidates(self.flags());
        }
        let below: Vec<Candidate> = self.subcommands();
        if self.positionals.is_empty() && !below.is_empty() && !self.is_positional {
            // `submit` takes files or a subcommand.
            let typed = below.iter().any(|word| word.text.starts_with(prefix));
            if typed || self.command.get_positionals().next().is_none() {
                return Wanted::Candidates(below);
            }
        }
        let positionals: Vec<&Arg> = self.command.get_positionals().collect();
        let last = positionals.last().filter(|last| {
            let number = last.get_num_args();
            number.is_some_and(|number| number.max_values() > 1)
        });
        match positionals.get(self.positionals.len()).or(last) {
            Some(argument) => self.value(argument),
            None => Wanted::Nothing,
        }
    }

    fn flags(&self) -> Vec<Candidate> {
        let flags = self
            .command
            .get_arguments()
            .filter(|flag| !flag.is_hide_set());
        let named = flags.filter_map(|flag| {
            let about = flag.get_help().map(ToString::to_string);
            Some(Candidate::described(
                format!("--{}", flag.get_long()?),
                about.unwrap_or_default(),
            ))
        });
        named.collect()
    }

    fn subcommands(&self) -> Vec<Candidate> {
        let below = self.command.get_subcommands();
        let below = below.filter(|command| !command.is_hide_set() && command.get_name() != "help");
        let named = below.map(|command| {
            let about = command.get_about().map(ToString::to_string);
            Candidate::described(command.get_name(), about.unwrap_or_default())
        });
        named.collect()
    }

    /// Returns the candidates for the value of a flag or argument.
    fn value(&self, argument: &Arg) -> Wanted {
        let possible = argument.get_possible_values();
        if !possible.is_empty() {
            let words = possible.iter().map(|value| {
                let about = value.get_help().map(ToString::to_string);
                Candidate::described(value.get_name(), about.unwrap_or_default())
            });
            return Wanted::Candidates(words.collect());
        }
        let names = argument.get_value_names().unwrap_or_default();
        let name = names.first().map_or("", |name| name.as_str());
        match (argument.get_id().as_str(), name) {
            (_, "NAMESPACE") => Wanted::Names(Source::Namespaces),
            (_, "CONTEXT") => Wanted::Names(Source::Contexts),
            ("agent", _) => {
                let agents = vec![(&api::tasks::AGENT, String::new())];
                Wanted::Names(Source::Objects(agents, Vec::new()))
            }
            (_, "PATH" | "FILE" | "FOLDER") => Wanted::Files,
            (_, "RUN" | "TARGET" | "KIND NAME") => self.objects(name),
            _ => Wanted::Nothing,
        }
    }

    /// Returns the names of objects, as the command accepts them.
    fn objects(&self, value_name: &str) -> Wanted {
        let has_kind = value_name != "RUN";
        if has_kind && let [kind, ..] = self.positionals.as_slice() {
            // The second word is a name of the kind in the first.
            return match target::kind(kind) {
                Some(kind) if self.positionals.len() == 1 => {
                    Wanted::Names(Source::Objects(vec![(kind, String::new())], Vec::new()))
                }
                Some(_) | None => Wanted::Nothing,
            };
        }
        let kinds = api::kinds::all().filter(|kind| self.accepts(kind.singular));
        let kinds = kinds.map(|kind| (kind, argument_before(kind))).collect();
        let words = match value_name {
            "KIND NAME" => target::words_to_list().map(Candidate::new).collect(),
            "TARGET" => api::kinds::all()
                .map(|kind| Candidate::new(kind.singular))
                .collect(),
            _ => Vec::new(),
        };
        Wanted::Names(Source::Objects(kinds, words))
    }

    /// Returns whether the command takes an object of this kind. The parser of the command decides.
    fn accepts(&self, kind: &str) -> bool {
        let object = format!("{kind}/x");
        let line = self.path.iter().chain([&object]);
        match Arguments::try_parse_from(line) {
            Ok(_) => true,
            Err(error) => error.kind() != ErrorKind::ValueValidation,
        }
    }
}

fn takes_a_value(flag: &Arg) -> bool {
    flag.get_action().takes_values()
}

/// Returns the text before the name of an object on the command line: `docsrun/`.
fn argument_before(kind: &'static KindRow) -> String {
    actions::ObjectName::new(kind, "").argument()
}

#[cfg(test)]
mod tests {
    use api::{
        tasks::{AGENT, DOCS_RUN, TASK_RUN},
        tenants::TENANT,
    };

    use super::*;

    /// The arguments are separated by single spaces, so a space at the end begins a new word.
    fn asked(line: &str) -> Question {
        question(line.split(' ').map(str::to_owned).collect())
    }

    fn words(line: &str) -> Vec<String> {
        let Wanted::Candidates(words) = asked(line).wanted else {
            panic!("{line}: {:?}", asked(line));
        };
        words.into_iter().map(|word| word.text).collect()
    }

    fn kinds(line: &str) -> Vec<(&'static KindRow, String)> {
        let Wanted::Names(Source::Objects(kinds, _)) = asked(line).wanted else {
            panic!("{line}: {:?}", asked(line));
        };
        kinds
    }

    #[test]
    fn commands_flags_and_their_values_come_from_the_definition() {
        for wanted in ["get", "why", "completion"] {
            assert!(words("").contains(&wanted.to_owned()), "{wanted}");
            assert!(words("-n team ").contains(&wanted.to_owned()), "{wanted}");
        }
        assert_eq!(words("context "), ["add"]);
        assert!(words("get --").contains(&"--failed".to_owned()));
        assert!(words("why --n").contains(&"--namespace".to_owned()));
        assert_eq!(words("get -o "), ["wide", "json", "yaml", "name"]);
        assert_eq!(words("get -w --output "), ["wide", "json", "yaml", "name"]);
        assert_eq!(words("why --output="), ["json", "yaml"]);
        assert_eq!(words("logs x -c "), ["clone", "agent", "publish"]);
        assert_eq!(words("completion "), ["bash", "zsh", "fish"]);
        assert_eq!(words("submit d"), ["docs"]);
    }

    #[test]
    fn files_are_files() {
        for line in [
            "submit task",
            "--kubeconfig ",
            "context add shop-7 ",
            "submit a.md --kubeconfig=",
        ] {
            assert_eq!(asked(line).wanted, Wanted::Files, "{line}");
        }
        for line in [
            "version x",
            "submit --service ",
            "get run x ",
            "events -- -",
        ] {
            let wanted = asked(line).wanted;
            assert!(
                !matches!(wanted, Wanted::Files | Wanted::Candidates(_)),
                "{line}: {wanted:?}"
            );
        }
    }

    #[test]
    fn names_are_of_the_kinds_that_the_command_takes() {
        let prefixed = |kind: &'static KindRow, text: &str| (kind, text.to_owned());
        let runs = [prefixed(&TASK_RUN, ""), prefixed(&DOCS_RUN, "docsrun/")];
        for line in [
            "cancel ",
            "logs -f ",
            "-n team retry --wait ",
            "context add ",
        ] {
            assert!(runs.iter().all(|run| kinds(line).contains(run)), "{line}");
            assert!(!kinds(line).contains(&prefixed(&AGENT, "agent/")), "{line}");
        }
        for line in ["wait ", "wait a b ", "suspend ", "describe ", "why "] {
            assert!(
                kinds(line).contains(&prefixed(&TENANT, "tenant/")),
                "{line}"
            );
        }
        assert!(kinds("why ").contains(&prefixed(&AGENT, "agent/")));
        assert_eq!(kinds("get docs "), [prefixed(&DOCS_RUN, "")]);
        assert_eq!(kinds("describe oag "), [prefixed(&AGENT, "")]);
        assert_eq!(kinds("get --agent "), [prefixed(&AGENT, "")]);
        assert_eq!(kinds("submit a.md --agent="), [prefixed(&AGENT, "")]);
        let Wanted::Names(Source::Objects(_, words)) = asked("get ").wanted else {
            panic!();
        };
        assert!(
            words.contains(&Candidate::new("runs")) && words.contains(&Candidate::new("tenants"))
        );
    }

    #[test]
    fn the_flags_of_the_line_choose_the_cluster() {
        let question = asked("-nteam get --context=c --kubeconfig /k --agent wr");
        let Cluster {
            namespace,
            context,
            kubeconfig,
            no_color: _,
        } = question.cluster;
        assert_eq!(namespace.as_deref(), Some("team"));
        assert_eq!(context.as_deref(), Some("c"));
        assert_eq!(kubeconfig, Some(PathBuf::from("/k")));
        assert_eq!(
            (question.prefix.as_str(), question.before.as_str()),
            ("wr", "")
        );
        assert_eq!(asked("get -n ").wanted, Wanted::Names(Source::Namespaces));
        assert_eq!(asked("--context ").wanted, Wanted::Names(Source::Contexts));
    }

    #[test]
    fn a_value_behind_an_equals_sign_is_whole_or_split_by_bash() {
        let whole = asked("get --namespace=te");
        assert_eq!(
            (whole.prefix.as_str(), whole.before.as_str()),
            ("te", "--namespace=")
        );
        for (line, prefix) in [("get --namespace = te", "te"), ("get --namespace =", "")] {
            let split = asked(line);
            assert_eq!(split.wanted, Wanted::Names(Source::Namespaces), "{line}");
            assert_eq!((split.prefix.as_str(), split.before.as_str()), (prefix, ""));
        }
        let earlier = asked("get --namespace = team --agent ");
        assert_eq!(earlier.cluster.namespace.as_deref(), Some("team"));
    }
}
