//! Outcomes of a push that began.

use std::{fs, os::unix::fs::PermissionsExt};

use git::Reason;

use crate::fixture::{BRANCH, Done, Run, Scheme};

/// Kills the server's side of the push. The hook first prints a message that has another meaning elsewhere.
pub(crate) const CUT: &str = "echo 'Authentication failed: access denied' >&2\nkill -9 $PPID\n";

fn ready(scheme: Scheme) -> Run {
    let run = Run::cloned(scheme);
    run.write("docs/new.md", "new");
    run
}

pub(crate) fn set_hook(run: &Run, name: &str, script: &str) {
    let path = run.repository.folder.join("hooks").join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Sets a hook that runs after the branch moved, before the server reports it.
fn set_hook_of_the_moved_branch(run: &Run, script: &str) {
    let script = format!("[ \"$1\" = committed ] || exit 0\n{script}");
    set_hook(run, "reference-transaction", &script);
}

/// Returns the commit that the report names as possibly pushed.
fn uncertain(done: &Done) -> String {
    done.failed(Reason::PublishFailed, "may have been pushed");
    let said = done.message();
    let id = said.strip_prefix("commit ").unwrap();
    id.split(' ').next().unwrap().to_owned()
}

#[test]
fn accepted_push_is_told_whatever_is_on_top_of_it() {
    for scheme in [Scheme::Https, Scheme::Ssh] {
        let run = ready(scheme);
        set_hook(
            &run,
            "post-receive",
            "read -r old new ref\nbot=$(git -c user.name=b -c user.email=b commit-tree -p $new -m bot $new^{tree})\ngit update-ref $ref $bot\n",
        );
        let (commit, ..) = run.step("publish").pushed();
        let log = run.repository.log(BRANCH).unwrap();
        assert_eq!((log.len(), &*log[0].message), (3, "bot"));
        assert_eq!(log[1].id, commit);
    }
}

#[test]
fn accepted_push_is_told_by_a_server_that_is_gone() {
    let run = ready(Scheme::Https);
    set_hook(&run, "post-receive", "echo 'status 403' > behaviour\n");
    let (commit, ..) = run.step("publish").pushed();
    assert_eq!(run.repository.head(BRANCH).unwrap().unwrap(), commit);
}

#[test]
fn push_without_an_answer_is_judged_by_the_branch() {
    for scheme in [Scheme::Https, Scheme::Ssh] {
        let run = ready(scheme);
        set_hook_of_the_moved_branch(&run, CUT);
        let (commit, ..) = run.step("publish").pushed();
        assert_eq!(run.repository.head(BRANCH).unwrap().unwrap(), commit);
    }
}

#[test]
fn push_whose_branch_cannot_be_read_is_uncertain() {
    let run = ready(Scheme::Https);
    let script = format!("echo 'status 403' > behaviour\n{CUT}");
    set_hook_of_the_moved_branch(&run, &script);
    let done = run.step("publish");
    let commit = run.repository.head(BRANCH).unwrap().unwrap();
    assert_eq!(uncertain(&done), commit);
    assert!(done.message().contains("403"), "{done:?}");
}

#[test]
fn push_below_that_of_a_bot_is_uncertain() {
    let run = ready(Scheme::Https);
    // Its own update of the branch runs the hook again.
    let script = format!(
        "read -r old new ref\ncase $ref in */{BRANCH}) ;; *) exit 0 ;; esac\nrm hooks/reference-transaction\nbot=$(git -c user.name=b -c user.email=b commit-tree -p $new -m bot $new^{{tree}})\ngit update-ref $ref $bot\n{CUT}"
    );
    set_hook_of_the_moved_branch(&run, &script);
    let done = run.step("publish");
    let log = run.repository.log(BRANCH).unwrap();
    assert_eq!((log.len(), &*log[0].message), (3, "bot"));
    assert_eq!(uncertain(&done), log[1].id);
    assert!(done.message().contains(&log[0].id), "{done:?}");
}

#[test]
fn push_that_is_cut_twice_is_uncertain() {
    // Over https, git itself waits indefinitely for the rest of a response that began.
    let run = ready(Scheme::Ssh);
    set_hook(&run, "pre-receive", &format!("echo x >> tries\n{CUT}"));
    let done = run.step("publish");
    uncertain(&done);
    assert!(done.message().contains("is not there"), "{done:?}");
    assert!(!done.message().contains("Secret"), "{done:?}");
    let tries = fs::read_to_string(run.repository.folder.join("tries")).unwrap();
    assert_eq!(tries, "x\nx\n");
    assert_eq!(run.repository.head(BRANCH).unwrap(), None);
}

/// The outcome of the first push is unknown. The rejection of the second push does not change that.
#[test]
fn refusal_after_a_push_that_was_cut_is_uncertain() {
    let run = ready(Scheme::Ssh);
    let script = format!("[ -e cut ] && echo no >&2 && exit 1\ntouch cut\n{CUT}");
    set_hook(&run, "pre-receive", &script);
    let done = run.step("publish");
    uncertain(&done);
    assert!(
        done.message().contains("pre-receive hook declined"),
        "{done:?}"
    );
}

#[test]
fn push_that_does_not_end_is_uncertain() {
    let mut run = ready(Scheme::Https);
    run.set("STEP_TIMEOUT_SECONDS", "4");
    set_hook(&run, "pre-receive", "sleep 20\n");
    let done = run.step("publish");
    uncertain(&done);
    assert!(
        done.message().ends_with("within the 4 s that the step has"),
        "{done:?}"
    );
}

#[test]
fn branch_that_keeps_ours_away_is_named() {
    for (scheme, other) in [
        (Scheme::Https, "docs"),
        (Scheme::Ssh, "docs"),
        (Scheme::Https, "docs/run/a/b"),
    ] {
        let run = ready(scheme);
        run.repository.set_branch(other, run.base()).unwrap();
        // These branches do not conflict.
        for beside in ["docs2", "other/docs", "docs/run2"] {
            let beside = if other == "docs" && beside.starts_with("docs/") {
                "run"
            } else {
                beside
            };
            run.repository.set_branch(beside, run.base()).unwrap();
        }
        run.step("publish").failed(
            Reason::PushRejected,
            &format!(
                "a branch named '{other}' keeps 'docs/run' away; set output.branch to another name"
            ),
        );
    }
}

#[test]
fn lock_on_the_server_is_worth_another_try() {
    for scheme in [Scheme::Https, Scheme::Ssh] {
        let run = ready(scheme);
        let folder = run.repository.folder.join("refs/heads/docs");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("run.lock"), "").unwrap();
        let done = run.step("publish");
        done.failed(Reason::PublishFailed, "nothing was pushed");
        assert!(done.message().contains("run.lock"), "{done:?}");
    }
}
