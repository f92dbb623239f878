//! The target of a command: names as users type them, and as `-o name` prints them.

use actions::ObjectName;
use api::{
    apps::{MANAGED_APP, ROLLBACK_REQUEST, UPGRADE_REQUEST},
    kinds::{self, KindRow},
    notebooks::NOTEBOOK_VALIDATION_JOB,
    tasks::TASK_RUN,
    tenants::TENANT,
};
use why::gather::TargetKind;

use crate::state;

/// Parses any of the names of a kind.
pub(crate) fn kind(word: &str) -> Option<&'static KindRow> {
    kinds::all().find(|row| row.has_name(word))
}

/// Argument of `get` that lists the runs of all kinds.
pub(crate) const RUNS: &str = "runs";

/// Names of kinds of Kubernetes that people type. No run is likely to have such a name.
const OF_KUBERNETES: &[&str] = &[
    "all",
    "cj",
    "cm",
    "configmap",
    "configmaps",
    "crd",
    "crds",
    "cronjob",
    "cronjobs",
    "deploy",
    "deployment",
    "deployments",
    "ds",
    "ep",
    "ev",
    "event",
    "events",
    "job",
    "jobs",
    "lease",
    "leases",
    "namespace",
    "namespaces",
    "netpol",
    "no",
    "node",
    "nodes",
    "ns",
    "pod",
    "pods",
    "po",
    "pvc",
    "quota",
    "sa",
    "secret",
    "secrets",
    "service",
    "services",
    "sts",
    "svc",
];

/// Returns the arguments of `get` that list objects.
pub(crate) fn words_to_list() -> impl Iterator<Item = &'static str> {
    let rows = runs_first().into_iter().map(|row| row.listed);
    [RUNS].into_iter().chain(rows)
}

/// Returns all kinds of runs.
pub(crate) fn kinds_of_runs() -> Vec<&'static KindRow> {
    let all = kinds::all();
    let mut runs: Vec<_> = all.filter(|row| row.is_run()).collect();
    // A name without a kind is a TaskRun's, so TaskRuns come first.
    runs.sort_by_key(|row| **row != TASK_RUN);
    runs
}

/// Returns whether a word is the name of a kind that is none of ours.
pub(crate) fn looks_like_a_kind(word: &str) -> bool {
    OF_KUBERNETES.contains(&word.to_ascii_lowercase().as_str())
}

/// Formats the arguments of `get` for an error about another word.
pub(crate) fn kinds_to_list(word: &str) -> String {
    let known = join(words_to_list().map(|word| format!("'{word}'")), "and");
    match looks_like_a_kind(word) {
        true => format!(
            "'{word}' is no kind of Orchestrator; there are {known}; others are listed by 'kubectl get {word}'"
        ),
        false => format!("'{word}' is no kind; there are {known}"),
    }
}

/// Returns all kinds, runs first.
fn runs_first() -> Vec<&'static KindRow> {
    let mut rows: Vec<_> = kinds::all().collect();
    rows.sort_by_key(|row| !row.is_run());
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
        let noun = match row.is_run() {
            true => "run",
            false => row.singular,
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
    let listed: Vec<&str> = words_to_list().collect();
    format!(
        "Kind ({}), kind and names, or names of runs [default: {RUNS}]",
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

/// Parses an object that can be suspended, with children that have logs.
pub(crate) fn run_or_tenant(text: &str) -> Result<ObjectName, String> {
    let found = object(text)?;
    match found.is_run() || [TENANT, NOTEBOOK_VALIDATION_JOB].contains(found.kind) {
        true => Ok(found),
        false => Err(format!(
            "'{text}' is neither a run nor a NotebookValidationJob nor a Tenant"
        )),
    }
}

/// Parses an object that can be cancelled.
pub(crate) fn cancellable(text: &str) -> Result<ObjectName, String> {
    let found = object(text)?;
    match found.is_run() || *found.kind == NOTEBOOK_VALIDATION_JOB {
        true => Ok(found),
        false => Err(format!(
            "'{text}' is neither a run nor a NotebookValidationJob"
        )),
    }
}

/// Parses a NotebookValidationJob, with or without its kind.
pub(crate) fn notebook(text: &str) -> Result<ObjectName, String> {
    let (word, name) = split(text)?;
    match word.map(kind) {
        None => Ok(ObjectName::new(&NOTEBOOK_VALIDATION_JOB, name)),
        Some(Some(kind)) if *kind == NOTEBOOK_VALIDATION_JOB => Ok(ObjectName::new(kind, name)),
        Some(_) => Err(format!("'{text}' is no NotebookValidationJob")),
    }
}

/// Parses an object that can be waited for.
pub(crate) fn awaited(text: &str) -> Result<ObjectName, String> {
    let found = object(text)?;
    match state::is_awaited(found.kind) {
        true => Ok(found),
        false => Err(format!(
            "'{text}' is neither a run nor a request nor a Tenant"
        )),
    }
}

/// Parses an object that has children or other objects that belong to it.
pub(crate) fn with_objects(text: &str) -> Result<ObjectName, String> {
    let found = object(text)?;
    let others = [TENANT, MANAGED_APP, UPGRADE_REQUEST, ROLLBACK_REQUEST];
    match found.is_run() || others.contains(found.kind) {
        true => Ok(found),
        false => Err(format!(
            "'{text}' is neither a run nor a Tenant nor a ManagedApp nor a request"
        )),
    }
}

/// Parses the name of a ManagedApp, with or without its kind.
pub(crate) fn app(text: &str) -> Result<String, String> {
    of_kind(text, &MANAGED_APP)
}

/// Parses the name of an UpgradeRequest, with or without its kind.
pub(crate) fn upgrade(text: &str) -> Result<String, String> {
    of_kind(text, &UPGRADE_REQUEST)
}

fn of_kind(text: &str, row: &KindRow) -> Result<String, String> {
    let (word, name) = split(text)?;
    match word.is_none_or(|word| row.has_name(word)) {
        true => Ok(name.to_owned()),
        false => Err(format!("'{text}' is no {}", row.name())),
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

/// One object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// An object of this kind.
    Object(ObjectName),
    /// A run of any kind with this name.
    Run(String),
}

/// The objects that `get` prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Listed {
    /// All objects of these kinds.
    Kinds(Vec<&'static KindRow>),
    /// One object.
    One(Target),
    /// Several objects, by their names.
    Several(Vec<Target>),
}

/// Parses the arguments of `get`: a kind and perhaps names, or names of objects.
///
/// # Errors
/// The arguments contain an unknown kind or an invalid name.
pub(crate) fn of_words(words: &[String]) -> Result<Listed, String> {
    match words {
        [] => Ok(Listed::Kinds(kinds_of_runs())),
        [word] if word.eq_ignore_ascii_case(RUNS) || word.eq_ignore_ascii_case("run") => {
            Ok(Listed::Kinds(kinds_of_runs()))
        }
        [word] => match kind(word) {
            Some(kind) => Ok(Listed::Kinds(vec![kind])),
            None => any_kind(word).map(Listed::One),
        },
        [word, names @ ..] => match kind(word) {
            Some(kind) => {
                let objects = names.iter().map(|name| ObjectName::new(kind, name));
                let mut targets: Vec<Target> = objects.map(Target::Object).collect();
                match (names.len(), targets.pop()) {
                    (1, Some(only)) => Ok(Listed::One(only)),
                    (_, last) => {
                        targets.extend(last);
                        Ok(Listed::Several(targets))
                    }
                }
            }
            None if looks_like_a_kind(word) => Err(kinds_to_list(word)),
            None => {
                let targets = words.iter().map(|word| any_kind(word));
                Ok(Listed::Several(targets.collect::<Result<_, _>>()?))
            }
        },
    }
}

/// Parses one object: `KIND/NAME`, or the name of a run of any kind.
pub(crate) fn any_kind(text: &str) -> Result<Target, String> {
    let object = object(text)?;
    Ok(match text.contains('/') {
        true => Target::Object(object),
        false => Target::Run(object.name),
    })
}

#[cfg(test)]
mod tests {
    use api::tasks::{AGENT, DOCS_RUN};

    use super::*;

    #[test]
    fn words_of_get() {
        let runs = || Listed::Kinds(vec![&TASK_RUN, &DOCS_RUN]);
        let all = |kind| Listed::Kinds(vec![kind]);
        let one = |kind, name| Listed::One(Target::Object(ObjectName::new(kind, name)));
        let run = |name: &str| Listed::One(Target::Run(name.to_owned()));
        let several = Listed::Several;
        let object = |kind, name| Target::Object(ObjectName::new(kind, name));
        let cases: [(&[&str], Result<Listed, &str>); 23] = [
            (&[], Ok(runs())),
            (&["runs"], Ok(runs())),
            (&["run"], Ok(runs())),
            (&["taskruns"], Ok(all(&TASK_RUN))),
            (&["taskrun"], Ok(all(&TASK_RUN))),
            (&["tr"], Ok(all(&TASK_RUN))),
            (&["OTR"], Ok(all(&TASK_RUN))),
            (&["oag"], Ok(all(&AGENT))),
            (&["shop-7"], Ok(run("shop-7"))),
            (&["jobs"], Ok(run("jobs"))),
            (&["run", "agents"], Ok(one(&TASK_RUN, "agents"))),
            (&["agent/writer"], Ok(one(&AGENT, "writer"))),
            (&["taskrun.orchestrator.io/x"], Ok(one(&TASK_RUN, "x"))),
            (&["docs"], Ok(all(&DOCS_RUN))),
            (&["odr", "guide"], Ok(one(&DOCS_RUN, "guide"))),
            (
                &["docsrun.orchestrator.io/docs"],
                Ok(one(&DOCS_RUN, "docs")),
            ),
            (&["oten", "acme"], Ok(one(&TENANT, "acme"))),
            (&["pods", "x"], Err("'kubectl get pods'")),
            (
                &["shop-7", "x"],
                Ok(several(vec![
                    Target::Run("shop-7".to_owned()),
                    Target::Run("x".to_owned()),
                ])),
            ),
            (
                &["shop-7", "agent/writer"],
                Ok(several(vec![
                    Target::Run("shop-7".to_owned()),
                    object(&AGENT, "writer"),
                ])),
            ),
            (
                &["oag", "a", "b"],
                Ok(several(vec![object(&AGENT, "a"), object(&AGENT, "b")])),
            ),
            (&["shop-7", "a/b/c"], Err("'a/b/c' is neither")),
            (&["a/b/c"], Err("'a/b/c' is neither")),
        ];
        for (words, wanted) in cases {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            match (of_words(&words), wanted) {
                (Ok(found), Ok(wanted)) => assert_eq!(found, wanted, "{words:?}"),
                (Err(said), Err(wanted)) => assert!(said.contains(wanted), "{said}"),
                (found, wanted) => panic!("{words:?}: {found:?}, not {wanted:?}"),
            }
        }
    }

    #[test]
    fn a_word_for_a_kind_of_kubernetes_is_none_of_ours() {
        for word in OF_KUBERNETES {
            assert_eq!(kind(word), None, "{word}");
            assert!(looks_like_a_kind(word));
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
        assert_eq!(kind("managedapp/shop"), Ok(TargetKind::ManagedApp));
        assert_eq!(kind("notebook/report"), Ok(TargetKind::Notebook));
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
        assert_eq!(
            parsed("nb/report"),
            Ok("notebookvalidationjob/report".to_owned())
        );
        assert!(parsed("agent/writer").is_err());
        assert!(cancellable("onb/report").is_ok() && cancellable("tenant/acme").is_err());
        assert!(run("tenant/acme").is_err() && run("nb/report").is_err());
        assert!(run("upgrade/shop-2").is_err() && parsed("upgrade/shop-2").is_err());
    }

    #[test]
    fn a_notebook_needs_no_kind() {
        let parsed = |text: &str| notebook(text).map(|found| found.argument());
        let expected = Ok("notebookvalidationjob/report".to_owned());
        for text in ["report", "notebook/report", "onb/report"] {
            assert_eq!(parsed(text), expected, "{text}");
        }
        assert!(parsed("taskrun/report").is_err() && parsed("things/report").is_err());
    }

    /// A request cannot be suspended or cancelled, but it has an end.
    #[test]
    fn a_request_can_be_waited_for_and_is_no_run() {
        let parsed = |text: &str| awaited(text).map(|found| found.argument());
        assert_eq!(parsed("shop-7"), Ok("shop-7".to_owned()));
        assert_eq!(parsed("oup/shop-2"), Ok("upgraderequest/shop-2".to_owned()));
        assert_eq!(
            parsed("rollback/shop-2"),
            Ok("rollbackrequest/shop-2".to_owned())
        );
        assert_eq!(parsed("tenant/acme"), Ok("tenant/acme".to_owned()));
        assert!(parsed("app/shop").is_err() && parsed("agent/writer").is_err());
    }

    #[test]
    fn a_tree_is_of_a_run_a_tenant_or_an_app() {
        let parsed = |text: &str| with_objects(text).map(|found| found.argument());
        assert_eq!(parsed("shop-7"), Ok("shop-7".to_owned()));
        assert_eq!(parsed("oten/acme"), Ok("tenant/acme".to_owned()));
        assert_eq!(parsed("app/shop"), Ok("managedapp/shop".to_owned()));
        assert_eq!(parsed("oapp/shop"), Ok("managedapp/shop".to_owned()));
        assert!(parsed("agent/writer").is_err());
        assert!(run_or_tenant("app/shop").is_err());
    }
}
