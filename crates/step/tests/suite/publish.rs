//! Files that reach the server, and files that do not.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use git::{Reason, Report};
use nix::unistd::Uid;
use testkit::git::{Entry, Hook};

use crate::fixture::{BRANCH, HANG, Run, Scheme, UID, noise};

#[test]
fn files_are_pushed_over_https_and_ssh() {
    for scheme in [Scheme::Https, Scheme::Ssh] {
        let run = Run::cloned(scheme);
        run.write("docs/new/ő \"q\".md", "new\n");
        run.write("docs/tool", "#!/bin/sh\n");
        let program = fs::Permissions::from_mode(0o775);
        fs::set_permissions(run.source("docs/tool"), program).unwrap();
        run.write("outside.md", "not below the output path");
        let (commit, changed, skipped) = run.step("publish").pushed();
        assert_eq!(run.repository.head(BRANCH).unwrap().unwrap(), commit);
        assert_eq!(changed.first, ["docs/new/ő \\\"q\\\".md", "docs/tool"]);
        assert_eq!((changed.count, skipped.count), (2, 0));
        let files = run.repository.files(BRANCH).unwrap();
        assert_eq!(files.len(), 6, "{files:?}");
        assert_eq!(files["docs/tool"], "100755");
        assert_eq!(files["docs/new/ő \"q\".md"], "100644");
        assert_eq!(run.published_file("docs/new/ő \"q\".md"), "new\n");

        let log = run.repository.log(BRANCH).unwrap();
        assert_eq!(log.len(), 2);
        assert_eq!(log[0].parents, [run.base()]);
        assert_eq!(log[0].author, "Orchestrator <orchestrator@localhost>");
        assert!(log[0].message.starts_with("Documentation by team/run\n\n"));
        let last = log[0].trailers.last().unwrap();
        assert_eq!(last, &("Orchestrator-Run".to_owned(), UID.to_owned()));
        assert_eq!(run.repository.branches().unwrap().len(), 2);
        run.assert_nothing_leaked();
    }
}

#[test]
fn message_of_the_user_is_kept() {
    let mut run = Run::cloned(Scheme::Https);
    run.set(
        "STEP_COMMIT_MESSAGE",
        "Docs: \"$(id)\"\n\nfrom deadbeef\nM 100644 inline x\n",
    );
    run.write("docs/new.md", "new");
    run.step("publish").pushed();
    let log = run.repository.log(BRANCH).unwrap();
    let wanted =
        "Docs: \"$(id)\"\n\nfrom deadbeef\nM 100644 inline x\n\nOrchestrator-Name: team/run\n";
    assert!(log[0].message.starts_with(wanted), "{}", log[0].message);
    assert!(!run.published().contains(&"x".to_owned()));
}

/// The longest message that a DocsRun allows, with the largest characters.
#[test]
fn longest_message_is_kept() {
    let mut run = Run::cloned(Scheme::Https);
    let longest = "\u{1f600}".repeat(2000);
    run.set("STEP_COMMIT_MESSAGE", &longest);
    run.write("docs/new.md", "new");
    run.step("publish").pushed();
    let log = run.repository.log(BRANCH).unwrap();
    assert!(log[0].message.starts_with(&format!("{longest}\n\n")));
}

#[test]
fn nothing_changed_is_no_push() {
    for include in ["true", "false"] {
        let mut run = Run::new(Scheme::Https);
        run.set("STEP_INCLUDE_CODEBASE", include);
        run.step("clone");
        let done = run.step("publish");
        assert!(matches!(done.report, Report::NoChanges { .. }), "{done:?}");
        assert_eq!(run.repository.head(BRANCH).unwrap(), None);
        assert_eq!(run.repository.activity().unwrap().write_visits, 0);
    }
}

#[test]
fn second_run_goes_on_top_of_the_branch() {
    let mut run = Run::new(Scheme::Https);
    run.repository.set_branch(BRANCH, run.base()).unwrap();
    let head = run.commit(BRANCH, "docs/earlier.md", "earlier");
    run.set("STEP_OUTPUT_HEAD", &head);
    run.step("clone");
    run.write("docs/new.md", "new");
    fs::remove_file(run.source("docs/old.md")).unwrap();
    let (_, changed, _) = run.step("publish").pushed();
    assert_eq!(changed.first, ["docs/new.md", "docs/old.md"]);
    assert_eq!(run.repository.log(BRANCH).unwrap()[0].parents, [head]);
    assert_eq!(
        run.published(),
        [
            "README.md",
            "docs/earlier.md",
            "docs/new.md",
            "src/deep/lib.rs",
            "src/main.rs"
        ]
    );
}

#[test]
fn source_branch_may_move_on() {
    for scheme in [Scheme::Https, Scheme::Ssh] {
        let run = Run::cloned(scheme);
        run.commit("main", "later.md", "later");
        run.write("docs/new.md", "new");
        run.step("publish").pushed();
        assert_eq!(run.repository.log(BRANCH).unwrap()[0].parents, [run.base()]);
        assert_eq!(
            run.repository.log(BRANCH).unwrap().len(),
            2,
            "history is whole"
        );
    }
}

#[test]
fn same_files_make_the_same_commit() {
    let run = Run::cloned(Scheme::Https);
    run.write("docs/new.md", "new");
    let (first, ..) = run.step("publish").pushed();
    run.repository.delete_branch(BRANCH).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    let (second, ..) = run.step("publish").pushed();
    assert_eq!(first, second);
}

#[test]
fn own_commit_is_found_after_a_lost_answer() {
    let run = Run::cloned(Scheme::Https);
    run.write("docs/new.md", "new");
    let (commit, changed, _) = run.step("publish").pushed();
    // The current content of the source has no effect.
    run.write("docs/new.md", "newer");
    let done = run.step("publish");
    let Report::Found {
        commit: found,
        changed: again,
        ..
    } = &done.report
    else {
        panic!("{done:?}");
    };
    assert_eq!((found.to_string(), again), (commit, &changed));
    assert_eq!(run.repository.log(BRANCH).unwrap().len(), 2);
    assert_eq!(run.published_file("docs/new.md"), "new");
}

#[test]
fn own_commit_is_found_after_the_step_was_killed_in_its_push() {
    let run = Run::cloned(Scheme::Https);
    run.write("docs/new.md", "new");
    run.repository.set_hook(&Hook::SlowAfter(2 * HANG)).unwrap();
    let mut child = run
        .command("publish")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while run.repository.head(BRANCH).unwrap().is_none() {
        assert!(start.elapsed() < HANG);
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    run.repository.set_hook(&Hook::Accept).unwrap();
    let done = run.step("publish");
    assert!(matches!(done.report, Report::Found { .. }), "{done:?}");
    assert_eq!(run.repository.log(BRANCH).unwrap().len(), 2);
}

#[test]
fn connection_that_breaks_in_the_push_is_judged_by_the_branch() {
    let mut run = Run::cloned(Scheme::Https);
    run.write("docs/new.md", "new");
    run.repository.set_hook(&Hook::SlowAfter(2 * HANG)).unwrap();
    let child = run
        .command("publish")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while run.repository.head(BRANCH).unwrap().is_none() {
        assert!(start.elapsed() < HANG);
        std::thread::sleep(Duration::from_millis(20));
    }
    run.server.stop().unwrap();
    run.server.resume().unwrap();
    let done = run.done(child.wait_with_output().unwrap());
    // The server may be back before or after the step reads the branch.
    let seen = matches!(done.report, Report::Pushed { .. });
    if !seen {
        done.failed(Reason::PublishFailed, "may have been pushed");
    }
    run.repository.set_hook(&Hook::Accept).unwrap();
    let again = run.step("publish");
    assert!(matches!(again.report, Report::Found { .. }), "{again:?}");
    assert_eq!(run.repository.log(BRANCH).unwrap().len(), 2);
}

#[test]
fn moved_branch_is_left_alone() {
    // Somebody else created, moved or removed the branch before publish.
    let run = Run::cloned(Scheme::Https);
    run.write("docs/new.md", "new");
    let other = run.commit(BRANCH, "theirs", "x");
    run.step("publish").failed(
        Reason::BranchMoved,
        &format!("not there and is at commit {other}"),
    );
    assert_eq!(run.repository.head(BRANCH).unwrap().unwrap(), other);

    let mut run = Run::cloned(Scheme::Https);
    run.write("docs/new.md", "new");
    let gone = run.base().to_owned();
    run.set("STEP_OUTPUT_HEAD", &gone);
    run.step("publish")
        .failed(Reason::BranchMoved, "and is not there");
    assert_eq!(run.repository.head(BRANCH).unwrap(), None);
}

#[test]
fn commit_of_another_run_is_not_ours() {
    let mut run = Run::cloned(Scheme::Https);
    run.write("docs/new.md", "new");
    run.step("publish").pushed();
    run.set("STEP_RUN_UID", "99999999-2222-4333-8444-555555555555");
    run.step("publish")
        .failed(Reason::BranchMoved, "somebody else");
}

#[test]
fn branch_that_moves_during_the_push_is_left_alone() {
    let run = Run::cloned(Scheme::Https);
    run.write("docs/new.md", "new");
    run.repository
        .set_hook(&Hook::SlowBefore(Duration::from_secs(8)))
        .unwrap();
    let child = run
        .command("publish")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while run.repository.activity().unwrap().pushes == 0 {
        assert!(start.elapsed() < HANG);
        std::thread::sleep(Duration::from_millis(20));
    }
    let other = run.commit(BRANCH, "theirs", "x");
    let done = run.done(child.wait_with_output().unwrap());
    done.failed(Reason::BranchMoved, &other);
    assert_eq!(run.repository.head(BRANCH).unwrap().unwrap(), other);
}

/// Somebody creates the branch after we read it and before we push, at a commit on which ours would fit.
#[test]
fn branch_that_appears_before_the_push_is_left_alone() {
    let run = Run::cloned(Scheme::Https);
    run.write("docs/new.md", "new");
    fs::create_dir(run.path("bin")).unwrap();
    let git = run.path("bin/git");
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *' push '*) /usr/bin/git --git-dir={} update-ref refs/heads/{BRANCH} {};; esac\nexec /usr/bin/git \"$@\"\n",
        run.repository.folder.display(),
        run.base()
    );
    fs::write(&git, script).unwrap();
    fs::set_permissions(&git, fs::Permissions::from_mode(0o755)).unwrap();
    let output = run
        .command("publish")
        .env(
            "PATH",
            format!("{}:/usr/bin:/bin", run.path("bin").display()),
        )
        .output()
        .unwrap();
    run.done(output).failed(Reason::BranchMoved, run.base());
    assert_eq!(run.repository.head(BRANCH).unwrap().unwrap(), run.base());
}

#[test]
fn refusing_hook_is_quoted() {
    for scheme in [Scheme::Https, Scheme::Ssh] {
        let run = Run::cloned(scheme);
        run.write("docs/new.md", "new");
        run.repository
            .set_hook(&Hook::Refuse("only on Fridays".to_owned()))
            .unwrap();
        let done = run.step("publish");
        done.failed(Reason::PushRejected, "only on Fridays");
        assert_eq!(run.repository.head(BRANCH).unwrap(), None);
        assert_eq!(
            run.repository.activity().unwrap().pushes,
            1,
            "no second try"
        );
    }
}

#[test]
fn secret_in_the_servers_words_is_masked() {
    let run = Run::cloned(Scheme::Https);
    run.write("docs/new.md", "new");
    let password = run.server.credentials_https()["password"].clone();
    let words = format!("you said {}", String::from_utf8(password).unwrap());
    run.repository.set_hook(&Hook::Refuse(words)).unwrap();
    run.step("publish")
        .failed(Reason::PushRejected, "you said ***");
}

#[test]
fn credentials_that_may_only_read() {
    let run = Run::cloned(Scheme::Https);
    run.write("docs/new.md", "new");
    run.repository
        .set_config("http.receivepack", "false")
        .unwrap();
    run.step("publish")
        .failed(Reason::AuthenticationFailed, "403");
}

#[test]
fn deletions_follow_what_the_agent_saw() {
    for (include, directory, output, deleted) in [
        ("true", "src", "docs", true),
        ("false", ".", "docs", true),
        ("false", "docs", "docs", true),
        ("false", "src", "docs", false),
        ("false", "docs/api", "docs", false),
        ("true", ".", ".", true),
    ] {
        let mut run = Run::new(Scheme::Https);
        let entries = [("docs/api/a.md", Entry::File(b"a"))];
        let base = run.repository.commit("main", "Api", &entries).unwrap();
        run.set("STEP_BASE_COMMIT", &base);
        run.set("STEP_INCLUDE_CODEBASE", include);
        run.set("STEP_WORKING_DIRECTORY", directory);
        run.set("STEP_OUTPUT_PATH", output);
        run.step("clone");
        if deleted {
            fs::remove_file(run.source("docs/old.md")).unwrap();
        } else {
            assert!(!run.source("docs/old.md").exists());
        }
        run.write("docs/new.md", "new");
        run.step("publish").pushed();
        let still_there = run.published().contains(&"docs/old.md".to_owned());
        assert_eq!(still_there, !deleted, "{include} {directory} {output}");
        assert!(run.published().contains(&"src/main.rs".to_owned()));
        assert!(run.published().contains(&"docs/api/a.md".to_owned()));
    }
}

#[test]
fn folder_that_the_agent_removed_is_removed() {
    let run = Run::cloned(Scheme::Https);
    fs::remove_dir_all(run.source("docs")).unwrap();
    let (_, changed, _) = run.step("publish").pushed();
    assert_eq!(changed.first, ["docs/old.md"]);
}

#[test]
fn links_and_submodules_of_the_branch_stay() {
    let mut run = Run::new(Scheme::Https);
    let entries = [
        ("docs/link", Entry::Link("/etc")),
        (
            "docs/sub",
            Entry::Submodule("0123456789012345678901234567890123456789"),
        ),
    ];
    run.repository.set_branch(BRANCH, run.base()).unwrap();
    let head = run.repository.commit(BRANCH, "Links", &entries).unwrap();
    run.set("STEP_OUTPUT_HEAD", &head);
    run.step("clone");
    run.write("docs/link/a.md", "a");
    run.write("docs/sub", "b");
    run.write("docs/new.md", "new");
    let (_, changed, skipped) = run.step("publish").pushed();
    assert_eq!(changed.first, ["docs/new.md"]);
    assert_eq!(skipped.first, ["docs/link/a.md", "docs/sub"]);
    let files = run.repository.files(BRANCH).unwrap();
    assert_eq!(
        (&*files["docs/link"], &*files["docs/sub"]),
        ("120000", "160000")
    );
}

#[test]
fn largest_output_is_pushed() {
    let mut run = Run::cloned(Scheme::Https);
    run.set("STEP_LIMIT_MIB", "1");
    fs::remove_file(run.source("docs/old.md")).unwrap();
    let noise = noise(50 << 20);
    for (number, content) in noise.chunks(5 << 20).enumerate() {
        fs::write(run.source(&format!("docs/{number}")), content).unwrap();
    }
    let (_, changed, _) = run.step("publish").pushed();
    assert_eq!(changed.count, 11);
    let last = run.repository.read(BRANCH, "docs/9").unwrap().unwrap();
    assert!(last == noise[45 << 20..]);
}

#[test]
fn private_remains_of_a_killed_try_do_not_matter() {
    let run = Run::cloned(Scheme::Https);
    run.write("docs/new.md", "new");
    fs::create_dir_all(run.path("scratch/step/repository.git/objects/info")).unwrap();
    fs::write(run.path("scratch/step/repository.git/HEAD"), "nonsense").unwrap();
    run.step("publish").pushed();
}

#[test]
fn unreadable_file_is_told() {
    let mut run = Run::cloned(Scheme::Https);
    run.write("docs/new.md", "new");
    fs::set_permissions(run.source("docs/new.md"), fs::Permissions::from_mode(0o000)).unwrap();
    if !Uid::effective().is_root() {
        run.step("publish")
            .failed(Reason::PublishFailed, "docs/new.md");
        return;
    }
    for name in ["credentials", "scratch", "report"] {
        let path = run.path(name);
        Command::new("chown")
            .arg("-R")
            .arg("65532")
            .arg(&path)
            .status()
            .unwrap();
    }
    fs::set_permissions(run.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // Root can read every file, so another user publishes, as in a Pod.
    let program = run.path("step");
    // Copy the program in another process. A file that this process writes is busy while one of its threads
    // starts a child.
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_step"))
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    let output = Command::new("setpriv")
        .args(["--reuid=65532", "--regid=65532", "--clear-groups", "--"])
        .arg(&program)
        .arg("publish")
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .envs(std::mem::take(&mut run.variables))
        .output()
        .unwrap();
    let done = run.done(output);
    done.failed(Reason::PublishFailed, "docs/new.md");
}
