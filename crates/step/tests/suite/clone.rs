//! Files that the agent receives.

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use git::{Reason, Report};
use testkit::git::Entry;

use crate::fixture::{Run, Scheme, noise};

fn below(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let name = path
                .strip_prefix(folder)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            if name == ".git" {
                continue;
            }
            if path.symlink_metadata().unwrap().is_dir() {
                folders.push(path);
            }
            found.insert(name);
        }
    }
    found
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn whole_code_base_has_a_repository_of_one_commit_without_a_way_back() {
    for scheme in [Scheme::Https, Scheme::Ssh] {
        let run = Run::new(scheme);
        run.commit("main", "later.md", "later");
        let done = run.step("clone");
        assert!(matches!(&done.report, Report::Cloned { commit } if commit.as_str() == run.base()));
        assert!(
            done.output.starts_with("team/run: fetching commit "),
            "{}",
            done.output
        );
        let wanted = set(&[
            "README.md",
            "docs",
            "docs/old.md",
            "src",
            "src/deep",
            "src/deep/lib.rs",
            "src/main.rs",
        ]);
        assert_eq!(below(&run.path("source")), wanted);
        let git = |arguments: &[&str]| {
            let output = Command::new("git")
                .args(arguments)
                .current_dir(run.path("source"))
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(git(&["status", "--porcelain"]), "");
        assert_eq!(git(&["log", "--format=%H"]).trim(), run.base());
        assert_eq!(git(&["branch", "--show-current"]).trim(), "main");
        assert_eq!(git(&["remote", "-v"]), "");
        let found = Command::new("grep")
            .args(["-rlF", "127.0.0.1", ".git"])
            .current_dir(run.path("source"))
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&found.stdout),
            "",
            "the server's address"
        );
    }
}

#[test]
fn without_code_base_only_the_working_directory_is_there() {
    for (directory, wanted) in [
        ("src/deep/", &["src", "src/deep", "src/deep/lib.rs"][..]),
        (
            "src",
            &["src", "src/deep", "src/deep/lib.rs", "src/main.rs"][..],
        ),
        (
            ".",
            &[
                "README.md",
                "docs/old.md",
                "src",
                "src/deep",
                "src/deep/lib.rs",
                "src/main.rs",
            ][..],
        ),
    ] {
        let mut run = Run::new(Scheme::Https);
        run.set("STEP_INCLUDE_CODEBASE", "false");
        run.set("STEP_WORKING_DIRECTORY", directory);
        let done = run.step("clone");
        assert!(matches!(done.report, Report::Cloned { .. }), "{done:?}");
        let mut wanted = set(wanted);
        wanted.insert("docs".to_owned());
        assert_eq!(below(&run.path("source")), wanted, "{directory}");
        assert!(!run.source(".git").exists());
    }
}

#[test]
fn files_are_for_the_group_too() {
    for include in ["true", "false"] {
        let mut run = Run::new(Scheme::Https);
        run.set("STEP_INCLUDE_CODEBASE", include);
        run.set("STEP_OUTPUT_PATH", "new/folder");
        fs::remove_dir(run.path("source")).unwrap();
        run.step("clone");
        for path in [
            "",
            "README.md",
            "src",
            "src/main.rs",
            "docs",
            "new",
            "new/folder",
        ] {
            let mode = run.source(path).metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o060, 0o060, "{path} {mode:o}");
        }
    }
}

#[test]
fn links_and_submodules_are_left_as_they_are() {
    let mut run = Run::new(Scheme::Https);
    let entries = [
        ("link", Entry::Link("/etc/passwd")),
        ("loop", Entry::Link("loop")),
        (
            "sub",
            Entry::Submodule("0123456789012345678901234567890123456789"),
        ),
        (
            ".gitmodules",
            Entry::File(b"[submodule \"sub\"]\n\tpath = sub\n\turl = ext::sh -c touch% /tmp/x\n"),
        ),
    ];
    let base = run.repository.commit("main", "Links", &entries).unwrap();
    run.set("STEP_BASE_COMMIT", &base);
    let done = run.step("clone");
    assert!(matches!(done.report, Report::Cloned { .. }), "{done:?}");
    assert_eq!(
        fs::read_link(run.source("link")).unwrap(),
        Path::new("/etc/passwd")
    );
    assert_eq!(fs::read_dir(run.source("sub")).unwrap().count(), 0);
}

#[test]
fn content_is_not_converted() {
    let mut run = Run::new(Scheme::Https);
    let attributes =
        b"*.txt text eol=crlf\n*.id ident\n*.u16 working-tree-encoding=UTF-16\n*.bin filter=lfs\n";
    let entries = [
        (".gitattributes", Entry::File(attributes)),
        ("docs/a.txt", Entry::File(b"one\ntwo\n")),
        ("docs/a.id", Entry::File(b"$Id$\n")),
        ("docs/a.u16", Entry::File(b"one\n")),
        (
            "docs/a.bin",
            Entry::File(b"version https://git-lfs.github.com/spec/v1\n"),
        ),
    ];
    let base = run
        .repository
        .commit("main", "Attributes", &entries)
        .unwrap();
    run.set("STEP_BASE_COMMIT", &base);
    for include in ["false", "true"] {
        run.set("STEP_INCLUDE_CODEBASE", include);
        fs::remove_dir_all(run.path("source")).unwrap();
        fs::create_dir(run.path("source")).unwrap();
        run.step("clone");
        for (path, entry) in &entries[1..] {
            let Entry::File(content) = entry else {
                panic!()
            };
            assert_eq!(fs::read(run.source(path)).unwrap(), *content, "{path}");
        }
        let done = run.step("publish");
        assert!(matches!(done.report, Report::NoChanges { .. }), "{done:?}");
    }
}

#[test]
fn missing_paths_are_told() {
    for (directory, output, words) in [
        ("nowhere", "docs", "no folder 'nowhere'"),
        ("src/main.rs", "docs", "no folder 'src/main.rs'"),
        ("link", "docs", "no folder 'link'"),
        (".", "link/below", "'link' is no folder"),
        (".", "src/main.rs/x", "'src/main.rs' is no folder"),
        ("*", "docs", "no folder '*'"),
    ] {
        let mut run = Run::new(Scheme::Https);
        let base = run
            .repository
            .commit("main", "Link", &[("link", Entry::Link("/tmp"))])
            .unwrap();
        run.set("STEP_BASE_COMMIT", &base);
        run.set("STEP_WORKING_DIRECTORY", directory);
        run.set("STEP_OUTPUT_PATH", output);
        run.step("clone").failed(Reason::PathNotFound, words);
    }
}

#[test]
fn remains_of_an_earlier_try_are_refused() {
    let run = Run::cloned(Scheme::Https);
    run.step("clone").failed(Reason::CloneFailed, "not empty");
}

#[test]
fn a_commit_that_is_gone_is_told() {
    let mut run = Run::new(Scheme::Https);
    run.set(
        "STEP_BASE_COMMIT",
        "0123456789012345678901234567890123456789",
    );
    run.step("clone")
        .failed(Reason::CloneFailed, "no longer on the server");
    let tree = Command::new("git")
        .args(["rev-parse", "main^{tree}"])
        .current_dir(&run.repository.folder)
        .output()
        .unwrap();
    let mut run = Run::new(Scheme::Https);
    run.set(
        "STEP_BASE_COMMIT",
        String::from_utf8(tree.stdout).unwrap().trim(),
    );
    run.step("clone").failed(Reason::CloneFailed, "");
}

#[test]
fn repository_beyond_the_limit_is_refused() {
    let zeros = vec![0; 20 << 20];
    for (content, words) in [
        (noise(3 << 20), "more than 2 MiB"),
        (zeros, "2 MiB are allowed"),
    ] {
        let mut run = Run::new(Scheme::Https);
        let base = run
            .repository
            .commit("main", "Big", &[("big", Entry::File(&content))])
            .unwrap();
        run.set("STEP_BASE_COMMIT", &base);
        run.set("STEP_LIMIT_MIB", "2");
        let done = run.step("clone");
        done.failed(Reason::RepositoryTooLarge, words);
        assert!(!run.source("big").exists());
    }
}

/// Ten directories in each of ten directories, nine times: a billion files in ten small objects.
#[test]
fn tree_that_unfolds_without_end_is_refused() {
    let mut run = Run::new(Scheme::Https);
    let git = |arguments: &[&str], input: &str| {
        let mut child = Command::new("git")
            .args(arguments)
            .current_dir(&run.repository.folder)
            .env("GIT_AUTHOR_NAME", "a")
            .env("GIT_AUTHOR_EMAIL", "a@b")
            .env("GIT_COMMITTER_NAME", "a")
            .env("GIT_COMMITTER_EMAIL", "a@b")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let mut entry = format!(
        "100644 blob {}",
        git(&["hash-object", "-w", "--stdin"], "x")
    );
    for _ in 0..9 {
        let names: String = (0..10).map(|name| format!("{entry}\t{name}\n")).collect();
        entry = format!("040000 tree {}", git(&["mktree"], &names));
    }
    let tree = entry.rsplit(' ').next().unwrap();
    let commit = git(&["commit-tree", "-m", "Bomb", tree], "");
    run.repository.set_branch("main", &commit).unwrap();
    run.set("STEP_BASE_COMMIT", &commit);
    for include in ["true", "false"] {
        run.set("STEP_INCLUDE_CODEBASE", include);
        run.step("clone")
            .failed(Reason::RepositoryTooLarge, "longer lists of files");
        fs::remove_dir_all(run.path("source")).unwrap();
        fs::create_dir(run.path("source")).unwrap();
    }
}
