//! The target of a command: names as users type them, and as `-o name` prints them.

use actions::ObjectName;
use api::{
    Lifecycle,
    kinds::{self, KindRow},
    tasks::TASK_RUN,
};
use why::gather::TargetKind;

use crate::state;

/// Parses any of the names of a kind.
pub(crate) fn kind(word: &str) -> Option<&'static KindRow> {
    kinds::all().find(|row| row.has_name(word))
}

/// Returns all kinds, runs first.
fn runs_first() -> Vec<&'static KindRow> {
    let mut rows: Vec<_> = kinds::all().collect();
    rows.sort_by_key(|row| row.lifecycle == Lifecycle::LongLived);
    rows
}

/// Joins words to a list such as `a, b and c`.
fn join(words: impl IntoIterator<Item = String>, last: &str) -> String {
    let words: Vec<String> = words.into_iter().collect();
    match words.as_slice() {
        [others @ .., end] if !others.is_empty() => {
            format!("{} {last} {end}", others.join(", "))
        }
        few => few.concat(),
    }
}

/// Returns the singular names of all kinds, and `more`.
fn singulars<'a>(more: &[&'a str]) -> impl Iterator<Item = &'a str> {
    let rows = runs_first().into_iter();
    rows.map(|row| -> &'a str { row.singular })
        .chain(more.to_vec())
}

/// Returns the singular names of all kinds, and `more`, in quotes.
fn quoted(more: &[&str]) -> String {
    join(singulars(more).map(|word| format!("'{word}'")), "and")
}

/// Returns the names of all kinds for help texts: `run, agent or tenant`, with `ending` after each.
pub(crate) fn nouns(ending: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for row in runs_first() {
        let noun = match row.lifecycle {
            Lifecycle::RunToCompletion => "run",
            Lifecycle::LongLived => row.singular,
        };
        let word = format!("{noun}{ending}");
        if !words.contains(&word) {
            words.push(word);
        }
    }
    join(words, "or")
}

/// Returns the help for the argument of `get`.
pub(crate) fn help_of_get() -> String {
    let listed: Vec<&str> = runs_first().into_iter().map(|row| row.listed).collect();
    format!(
        "Kind ({}), kind and name, or the name of a run [default: runs]",
        listed.join(", ")
    )
}

/// Returns the help for a target: an object of any kind, or of one of `more` kinds.
pub(crate) fn help_of_target(more: &[&str]) -> String {
    let words = join(singulars(more).map(|word| format!("{word}/NAME")), "or");
    format!("A run's NAME, {words}; or KIND NAME")
}

/// Parses an object: `KIND/NAME`, or the name of a TaskRun.
pub(crate) fn object(text: &str) -> Result<ObjectName, String> {
    let (word, name) = split(text)?;
    let kind = match word {
        None => &TASK_RUN,
        Some(word) => {
            kind(word).ok_or_else(|| format!("'{word}' is no kind; there are {}", quoted(&[])))?
        }
    };
    Ok(ObjectName::new(kind, name))
}

/// Parses a run.
pub(crate) fn run(text: &str) -> Result<ObjectName, String> {
    let found = object(text)?;
    match found.is_run() {
        true => Ok(found),
        false => Err(format!("'{text}' is no run")),
    }
}

/// Parses an object that can be suspended and waited for.
pub(crate) fn run_or_tenant(text: &str) -> Result<ObjectName, String> {
    let found = object(text)?;
    match state::is_awaited(found.kind) {
        true => Ok(found),
        false => Err(format!("'{text}' is neither a run nor a Tenant")),
    }
}

/// Parses an object that `why` can explain.
pub(crate) fn explained(text: &str) -> Result<(TargetKind, String), String> {
    let (kind, name) = split(text)?;
    let kind = match kind {
        None => TargetKind::TaskRun,
        Some(word) => TargetKind::parse(word).ok_or_else(|| {
            let known = quoted(&["job", "pod"]);
            format!("'{word}' cannot be asked; {known} can")
        })?,
    };
    Ok((kind, name.to_owned()))
}

/// Splits `KIND/NAME` or `NAME`.
fn split(text: &str) -> Result<(Option<&str>, &str), String> {
    let (kind, name) = match text.split_once('/') {
        Some((kind, name)) => (Some(kind), name),
        None => (None, text),
    };
    if name.is_empty() || name.contains('/') {
        return Err(format!("'{text}' is neither NAME nor KIND/NAME"));
    }
    Ok((kind, name))
}

/// Joins `KIND/NAME`, `KIND NAME` or `NAME` into one argument.
pub(crate) fn one_word(words: &[String]) -> String {
    words.join("/")
}

/// Parses the arguments of `get`: a kind, and perhaps a name.
///
/// # Errors
/// The arguments contain an unknown kind or an invalid name.
pub(crate) fn of_words(words: &[String]) -> Result<(&'static KindRow, Option<String>), String> {
    match words {
        [] => Ok((&TASK_RUN, None)),
        [word] => match kind(word) {
            Some(kind) => Ok((kind, None)),
            None => object(word).map(|found| (found.kind, Some(found.name))),
        },
        [word, name, ..] => match kind(word) {
            Some(kind) => Ok((kind, Some(name.clone()))),
            None => {
                let rows = runs_first().into_iter();
                let known = join(rows.map(|row| format!("'{}'", row.listed)), "and");
                Err(format!("'{word}' is no kind; there are {known}"))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use api::{
        tasks::{AGENT, DOCS_RUN},
        tenants::TENANT,
    };

    use super::*;

    #[test]
    fn words_of_get() {
        type Found<'a> = Result<(&'a KindRow, Option<&'a str>), &'a str>;
        let cases: [(&[&str], Found<'_>); 15] = [
            (&[], Ok((&TASK_RUN, None))),
            (&["runs"], Ok((&TASK_RUN, None))),
            (&["oag"], Ok((&AGENT, None))),
            (&["shop-7"], Ok((&TASK_RUN, Some("shop-7")))),
            (&["run", "agents"], Ok((&TASK_RUN, Some("agents")))),
            (&["agent/writer"], Ok((&AGENT, Some("writer")))),
            (&["taskrun.orchestrator.io/x"], Ok((&TASK_RUN, Some("x")))),
            (&["docs"], Ok((&DOCS_RUN, None))),
            (&["odr", "guide"], Ok((&DOCS_RUN, Some("guide")))),
            (&["docs/guide"], Ok((&DOCS_RUN, Some("guide")))),
            (
                &["docsrun.orchestrator.io/docs"],
                Ok((&DOCS_RUN, Some("docs"))),
            ),
            (&["tenants"], Ok((&TENANT, None))),
            (&["oten", "acme"], Ok((&TENANT, Some("acme")))),
            (&["pods", "x"], Err("'pods' is no kind")),
            (&["a/b/c"], Err("'a/b/c' is neither")),
        ];
        for (words, wanted) in cases {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            match (of_words(&words), wanted) {
                (Ok((kind, name)), Ok(wanted)) => {
                    assert_eq!((kind, name.as_deref()), wanted, "{words:?}");
                }
                (Err(said), Err(wanted)) => assert!(said.contains(wanted), "{said}"),
                (found, wanted) => panic!("{words:?}: {found:?}, not {wanted:?}"),
            }
        }
    }

    #[test]
    fn each_kind_is_named_in_help_and_errors() {
        let unknown = object("node/x").unwrap_err();
        let listed = of_words(&["pods".to_owned(), "x".to_owned()]).unwrap_err();
        let asked = explained("node/x").unwrap_err();
        for row in kinds::all() {
            assert_eq!(kind(row.singular), Some(row));
            let quoted = format!("'{}'", row.singular);
            assert!(
                unknown.contains(&quoted) && asked.contains(&quoted),
                "{row:?}"
            );
            assert!(listed.contains(&format!("'{}'", row.listed)), "{row:?}");
            assert!(help_of_get().contains(row.listed), "{row:?}");
            let target = format!("{}/NAME", row.singular);
            assert!(help_of_target(&["job"]).contains(&target), "{row:?}");
        }
        assert!(asked.contains("'job' and 'pod' can"), "{asked}");
        assert!(nouns("s").starts_with("runs, agents"), "{}", nouns("s"));
    }

    #[test]
    fn targets_of_why() {
        let kind = |text: &str| explained(text).map(|(kind, _)| kind);
        assert_eq!(kind("shop-7"), Ok(TargetKind::TaskRun));
        assert_eq!(kind("docs/guide"), Ok(TargetKind::DocsRun));
        assert_eq!(kind("Agent/writer"), Ok(TargetKind::Agent));
        assert_eq!(kind("job.batch/x"), Ok(TargetKind::Job));
        assert_eq!(kind("po/x"), Ok(TargetKind::Pod));
        assert_eq!(kind("oten/acme"), Ok(TargetKind::Tenant));
        let two = ["tenant".to_owned(), "acme".to_owned()];
        assert_eq!(kind(&one_word(&two)), Ok(TargetKind::Tenant));
        assert!(kind("node/x").is_err() && kind("pod/").is_err() && kind("").is_err());
    }

    #[test]
    fn what_can_be_held_is_a_run_or_a_tenant() {
        let parsed = |text: &str| run_or_tenant(text).map(|found| found.argument());
        assert_eq!(parsed("shop-7"), Ok("shop-7".to_owned()));
        assert_eq!(parsed("docs/guide"), Ok("docsrun/guide".to_owned()));
        assert_eq!(parsed("tenants/acme"), Ok("tenant/acme".to_owned()));
        assert!(parsed("agent/writer").is_err());
        assert!(run("tenant/acme").is_err());
    }
}
