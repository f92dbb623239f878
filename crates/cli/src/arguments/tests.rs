//! Tests of the arguments.

use super::*;

#[test]
fn the_definition_is_sound() {
    Arguments::command().debug_assert();
}

#[test]
fn what_is_not_known_or_does_nothing_is_refused() {
    let refused = [
        "orc",
        "orc approve x",
        "orc get -o xml",
        "orc get --sort color",
        "orc get --sort age -w",
        "orc -o xml get",
        "orc get -o",
        "orc describe",
        "orc describe a b c",
        "orc tree agent/x",
        "orc check x",
        "orc cancel tenant/x",
        "orc suspend agent/x",
        "orc why",
        "orc why a b c",
        "orc why x -o wide",
        "orc logs x --attempt 0",
        "orc submit a.md --service s --task-id 0 --agent a",
        "orc submit a.md --service s --task-id 1",
        "orc submit a.md --service s --task-id 1 --agent a --timeout 5m",
        "orc submit",
        "orc submit docs",
        "orc submit docs x --repository u --branch b",
        "orc submit docs x --repository u --agent a",
        "orc submit docs x --branch b --agent a",
        "orc submit docs --repository u --branch b --agent a",
        "orc submit docs x --repository u --branch b --agent a --service s",
        "orc submit docs x --repository u --branch b --agent a --timeout 5m",
        "orc submit docs x --repository u --branch b --agent a --agent-timeout soon",
        "orc submit a.md docs x --repository u --branch b --agent a",
        "orc logs x -c other",
        "orc logs x -c clone --all",
        "orc tree job/x",
        "orc submit a.md --service s --task-id 1 --agent a --dry-run=maybe",
        "orc submit a.md --service s --task-id 1 --agent a --dry-run=server --wait",
        "orc context",
        "orc context add x",
        "orc wait",
        "orc wait x --timeout 0s",
        "orc wait x --timeout -5s",
        "orc wait x --timeout 5",
        "orc wait x --timeout soon",
        "orc cancel x --wait",
        "orc submit a.md --service s --task-id 1 --agent a --log --dry-run=server",
        "orc submit a.md --service s --task-id 1 --agent a --log -o name",
        "orc delete",
        "orc delete agent/x",
        "orc delete x --timeout 5m",
        "orc result",
        "orc result agent/x",
        "orc result a b c",
        "orc result a -o name",
        "orc completion tcsh",
    ];
    for line in refused {
        let result = Arguments::try_parse_from(line.split(' '));
        assert_eq!(result.unwrap_err().exit_code(), 2, "{line}");
    }
}

#[test]
fn what_is_documented_is_taken() {
    let taken = [
        "orc get",
        "orc get runs -A -l a=b,c -o wide -w",
        "orc get --failed --agent a --service s --sort age",
        "orc -n team get",
        "orc -n team --context=c --kubeconfig f --no-color get docs -o json",
        "orc submit docs x -n team --repository u --branch b --agent a",
        "orc -n team submit docs x --repository u --branch b --agent a",
        "orc version -n team",
        "orc get agents writer -o yaml",
        "orc get shop-7 shop-8 docs guide",
        "orc describe agent/writer -n team --context c --kubeconfig f --no-color",
        "orc why pod/x -o json",
        "orc why tenant acme",
        "orc why oten/acme",
        "orc describe tenant/acme",
        "orc get tenants -o wide",
        "orc wait tenant/acme docs/b --timeout 5m",
        "orc suspend tenant/acme",
        "orc resume docs/x",
        "orc logs x -f --attempt 2",
        "orc submit a.md b --service s --task-id 1 --agent a --wait --timeout 1h30m",
        "orc submit --service s --task-id 1 --agent a",
        "orc submit --service s --task-id 1 --agent a docs",
        "orc submit a.md docs --service s --task-id 1 --agent a",
        "orc submit docs x --repository u --branch b --agent a",
        "orc submit docs x --repository u --branch b --agent a --working-directory d --instructions a.md b --model m --include-codebase --secret s --output-branch o --output-path p --allow-no-changes --commit-message t --agent-timeout 30m --wait --timeout 1h",
        "orc submit docs x --repository u --branch b --agent a --dry-run=client -o name",
        "orc logs docs/x -c publish -f",
        "orc logs docs/x --all",
        "orc get docs -A",
        "orc describe odr/x",
        "orc why docsruns/x",
        "orc cancel docsrun/x",
        "orc retry docs/x --wait",
        "orc wait a docs/b",
        "orc context add x - a.md --dry-run=server",
        "orc wait a b taskrun.orchestrator.io/c --timeout 30s",
        "orc retry x --wait",
        "orc submit - a.md --service s --task-id 1 --agent a --log --wait --timeout 1h",
        "orc submit docs x --repository u --branch b --agent a --log",
        "orc delete a docs/b --wait --timeout 1m",
        "orc result x",
        "orc result docs/x key -o json",
        "orc tree tenant/x",
        "orc events tenant/x -w",
        "orc logs tenant/x -f",
        "orc check -n team",
        "orc uninstall --check",
    ];
    for line in taken {
        let result = Arguments::try_parse_from(line.split(' '));
        assert!(result.is_ok(), "{line}: {result:?}");
    }
}

#[test]
fn a_folder_named_docs_is_still_a_folder() {
    let words = |line: &str| {
        let words = line.split(' ').map(OsString::from).collect();
        let words = with_folder_docs(words).join(&OsString::from(" "));
        words.into_string().unwrap()
    };
    let task = "submit docs --service s --task-id=1 --agent a";
    assert_eq!(words(task), task.replace(" docs", " ./docs"));
    for line in [
        "submit docs x --repository u --branch b --agent a",
        "submit a.md docs --service s --task-id 1 --agent a",
        "get docs --service",
        "-n submit docs --service",
        "submit docs",
        "submit",
    ] {
        assert_eq!(words(line), line);
    }
    let line = format!("-n team --context=c --no-color {task}");
    assert_eq!(words(&line), line.replace(" docs", " ./docs"));
    let line = words(task).replace("submit", "orc submit");
    let parsed = Arguments::try_parse_from(line.split(' ')).unwrap();
    let Verb::Submit(Submit {
        task: Some(task), ..
    }) = parsed.verb
    else {
        panic!("{parsed:?}");
    };
    assert_eq!(task.paths, [PathBuf::from("./docs")]);
}

#[test]
fn each_verb_explains_itself_and_each_of_its_flags() {
    fn check(command: &clap::Command) {
        let path = command.get_name();
        assert!(command.get_about().is_some(), "{path}");
        for argument in command.get_arguments() {
            let help = argument.get_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            assert!(!help.is_empty(), "{path} {argument}");
            assert!(!help.ends_with('.'), "{path} {argument}: {help}");
        }
        command.get_subcommands().for_each(check);
    }
    check(&Arguments::command());
}

/// The list of commands has one line for each: what the command does, in the imperative.
#[test]
fn each_verb_has_one_sentence_in_the_imperative() {
    let imperatives = [
        "Add", "Cancel", "Change", "Check", "Create", "Delete", "Describe", "Explain", "List",
        "Print", "Resume", "Run", "Show", "Suspend", "Wait",
    ];
    for verb in Arguments::command().get_subcommands() {
        let about = verb.get_about().unwrap().to_string();
        let first = about.split(' ').next().unwrap();
        assert!(imperatives.contains(&first), "{}: {about}", verb.get_name());
        let is_one = !about.ends_with('.') && !about.contains(". ") && !about.contains('\n');
        assert!(is_one, "{}: {about}", verb.get_name());
    }
}

#[test]
fn durations() {
    assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
    assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
    for wrong in ["5", "abc", "0s", "-5s", ""] {
        let said = duration(wrong).unwrap_err();
        let wanted = format!("'{wrong}' is not a duration; write a number");
        assert!(said.starts_with(&wanted), "{said}");
        assert!(said.contains("30s") && !said.contains("float"), "{said}");
    }
}
