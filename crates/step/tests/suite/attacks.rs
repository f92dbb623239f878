//! Attacks of a hostile agent. Each test plants one attack and runs publish. The planted command must not
//! run. The server must get the good file and nothing else, and no secret may leak.

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
        net::UnixListener,
    },
    path::Path,
    process::Command,
    time::Instant,
};

use git::{Files, Reason, Report};

use crate::fixture::{BRANCH, HANG, Run, Scheme};

const GOOD: &str = "docs/good.md";

/// Checks that only the good file is published, and that no planted command ran.
fn only_the_good_file(run: &Run) -> Files {
    run.write(GOOD, "good\n");
    let (commit, changed, skipped) = run.step("publish").pushed();
    assert_eq!(changed.first, [GOOD], "{skipped:?}");
    assert_eq!(run.repository.head(BRANCH).unwrap().unwrap(), commit);
    let mut wanted: Vec<String> = run.repository.files("main").unwrap().into_keys().collect();
    wanted.push(GOOD.to_owned());
    wanted.sort();
    assert_eq!(run.published(), wanted);
    assert_eq!(run.published_file(GOOD), "good\n");
    assert_eq!(run.repository.log(BRANCH).unwrap().len(), 2);
    assert_eq!(run.repository.branches().unwrap().len(), 2);
    nothing_happened(run);
    skipped
}

fn nothing_happened(run: &Run) {
    assert!(!run.marker().exists(), "a planted command ran");
    run.assert_nothing_leaked();
}

/// Plants a program that creates the marker and then exits successfully.
fn plant_program(run: &Run, path: &str) {
    let marker = run.marker().display().to_string();
    run.write(path, &format!("#!/bin/sh\ntouch {marker}\nexit 0\n"));
    fs::set_permissions(run.source(path), fs::Permissions::from_mode(0o777)).unwrap();
}

/// Adds to the configuration of the agent's repository, which the real git would read.
fn plant_config(run: &Run, text: &str) {
    let path = run.source(".git/config");
    let old = fs::read_to_string(&path).unwrap();
    let marker = run.marker().display().to_string();
    let text = text.replace("MARKER", &marker);
    fs::write(path, format!("{old}{text}\n")).unwrap();
}

/// Checks that the planted configuration works: git itself would run the command.
fn git_would_run_it(run: &Run, arguments: &[&str]) {
    Command::new("git")
        .args(arguments)
        .current_dir(run.path("source"))
        .env("GIT_TERMINAL_PROMPT", "0")
        .output()
        .unwrap();
    assert!(run.marker().exists(), "the attack is none");
    fs::remove_file(run.marker()).unwrap();
}

#[test]
fn attack_hooks() {
    let run = Run::cloned(Scheme::Https);
    for hook in [
        "pre-commit",
        "post-commit",
        "pre-push",
        "post-checkout",
        "reference-transaction",
        "fsmonitor-watchman",
        "post-index-change",
        "pre-auto-gc",
        "update",
        "pre-receive",
    ] {
        plant_program(&run, &format!(".git/hooks/{hook}"));
    }
    git_would_run_it(&run, &["checkout", "--quiet", "-b", "x"]);
    only_the_good_file(&run);
}

#[test]
fn attack_ssh_command() {
    let run = Run::cloned(Scheme::Ssh);
    plant_config(&run, "[core]\n\tsshCommand = \"touch MARKER; false\"");
    git_would_run_it(&run, &["ls-remote", &run.variables["STEP_URL"]]);
    only_the_good_file(&run);
}

#[test]
fn attack_credential_helper() {
    let run = Run::cloned(Scheme::Https);
    plant_config(
        &run,
        "[credential]\n\thelper = \"!touch MARKER;\"\n[http]\n\tsslVerify = false",
    );
    git_would_run_it(&run, &["ls-remote", &run.variables["STEP_URL"]]);
    only_the_good_file(&run);
}

#[test]
fn attack_url_instead_of() {
    let run = Run::cloned(Scheme::Https);
    let url = &run.variables["STEP_URL"];
    let text =
        format!("[protocol]\n\tallow = always\n[url \"ext::touch MARKER\"]\n\tinsteadOf = {url}");
    plant_config(&run, &text);
    git_would_run_it(&run, &["ls-remote", url]);
    only_the_good_file(&run);
}

#[test]
fn attack_proxy() {
    let run = Run::cloned(Scheme::Https);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    plant_config(
        &run,
        &format!("[http]\n\tproxy = {proxy}\n\tsslVerify = false"),
    );
    only_the_good_file(&run);
    assert!(listener.accept().is_err(), "the proxy was called");
}

#[test]
fn attack_filter() {
    let run = Run::cloned(Scheme::Https);
    plant_config(
        &run,
        "[filter \"x\"]\n\tclean = \"touch MARKER; cat\"\n\tsmudge = \"touch MARKER; cat\"\n\trequired = true\n[diff \"x\"]\n\ttextconv = touch MARKER;",
    );
    run.write("docs/.gitattributes", "* filter=x diff=x\n");
    run.write(".gitattributes", "* filter=x diff=x\n");
    run.write(".git/info/attributes", "* filter=x diff=x\n");
    run.write(GOOD, "good\n");
    git_would_run_it(&run, &["add", GOOD]);
    assert_eq!(only_the_good_file(&run).first, ["docs/.gitattributes"]);
}

#[test]
fn attack_fsmonitor() {
    let run = Run::cloned(Scheme::Https);
    plant_config(
        &run,
        "[core]\n\tfsmonitor = touch MARKER;\n\tpager = touch MARKER;\n\teditor = touch MARKER;",
    );
    git_would_run_it(&run, &["status"]);
    only_the_good_file(&run);
}

#[test]
fn attack_submodules() {
    let run = Run::cloned(Scheme::Https);
    let marker = run.marker().display().to_string();
    let modules = format!(
        "[submodule \"x\"]\n\tpath = docs/x\n\turl = ext::sh -c touch% {marker}\n\tupdate = !touch {marker}\n"
    );
    run.write(".gitmodules", &modules);
    run.write("docs/.gitmodules", &modules);
    run.write("docs/x/.git", "gitdir: ../../.git/modules/x\n");
    run.write(
        ".git/modules/x/config",
        &format!("[core]\n\tfsmonitor = touch {marker};\n"),
    );
    let skipped = only_the_good_file(&run);
    assert_eq!(skipped.first, ["docs/.gitmodules", "docs/x/.git"]);
}

#[test]
fn attack_alternates() {
    let run = Run::cloned(Scheme::Https);
    // Objects of the agent, where git would find a forged base commit.
    run.write(".git/objects/info/alternates", "/nowhere\n");
    run.write(".git/shallow", "nonsense\n");
    run.write(".git/HEAD", "ref: refs/heads/forged\n");
    fs::remove_dir_all(run.source(".git/refs")).unwrap();
    only_the_good_file(&run);
}

#[test]
fn attack_link_to_credentials() {
    let run = Run::cloned(Scheme::Https);
    run.link("docs/leak.md", &run.path("credentials/password"));
    run.link("docs/relative.md", Path::new("../../credentials/password"));
    run.link("docs/folder", &run.path("credentials"));
    let skipped = only_the_good_file(&run);
    assert_eq!(
        skipped.first,
        ["docs/folder", "docs/leak.md", "docs/relative.md"]
    );
}

#[test]
fn attack_output_folder_is_a_link() {
    let run = Run::cloned(Scheme::Https);
    fs::remove_dir_all(run.source("docs")).unwrap();
    run.link("docs", &run.path("credentials"));
    let done = run.step("publish");
    let Report::NoChanges { skipped } = &done.report else {
        panic!("{done:?}");
    };
    assert_eq!(skipped.first, ["docs"]);
    assert_eq!(run.repository.head(BRANCH).unwrap(), None);
    nothing_happened(&run);
}

#[test]
fn attack_component_is_a_link() {
    let mut run = Run::new(Scheme::Https);
    run.set("STEP_OUTPUT_PATH", "docs/credentials/api");
    run.step("clone");
    fs::create_dir(run.path("credentials/api")).unwrap();
    fs::copy(
        run.path("credentials/password"),
        run.path("credentials/api/leak.md"),
    )
    .unwrap();
    for (component, target) in [
        ("docs/credentials", run.path("credentials")),
        ("docs", run.folder.path().to_owned()),
    ] {
        fs::remove_dir_all(run.source(component)).unwrap();
        run.link(component, &target);
        assert!(
            run.source("docs/credentials/api/leak.md").is_file(),
            "the attack is none"
        );
        let done = run.step("publish");
        let Report::NoChanges { skipped } = &done.report else {
            panic!("{done:?}");
        };
        assert_eq!(skipped.first, [component]);
        fs::remove_file(run.source(component)).unwrap();
        fs::create_dir_all(run.source(component)).unwrap();
    }
    nothing_happened(&run);
}

#[test]
fn attack_source_folder_is_a_link() {
    let run = Run::cloned(Scheme::Https);
    fs::create_dir(run.path("credentials/docs")).unwrap();
    fs::copy(
        run.path("credentials/password"),
        run.path("credentials/docs/leak.md"),
    )
    .unwrap();
    fs::remove_dir_all(run.path("source")).unwrap();
    symlink(run.path("credentials"), run.path("source")).unwrap();
    assert!(run.source("docs/leak.md").is_file(), "the attack is none");
    run.step("publish").failed(Reason::PublishFailed, "source");
    assert_eq!(run.repository.head(BRANCH).unwrap(), None);
    nothing_happened(&run);
}

#[test]
fn attack_hard_links() {
    let run = Run::cloned(Scheme::Https);
    fs::hard_link(run.source(".git/HEAD"), run.source("docs/head")).unwrap();
    fs::hard_link(run.source("docs/head"), run.source("docs/again")).unwrap();
    let (_, changed, skipped) = run.step("publish").pushed();
    // The agent can copy any file that it can link. So both links are published as plain content.
    assert_eq!(changed.first, ["docs/again", "docs/head"]);
    assert_eq!(skipped.count, 0);
    assert_eq!(run.published_file("docs/head"), "ref: refs/heads/main\n");
    nothing_happened(&run);
}

/// Runs a program in the output directory, as the agent.
fn make(run: &Run, program: &str, arguments: &[&str]) {
    let status = Command::new(program)
        .args(arguments)
        .current_dir(run.source("docs"))
        .status()
        .unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

/// Publishes, and checks that these paths are skipped without waiting for their content.
fn skips_at_once(run: &Run, wanted: &[&str]) {
    let start = Instant::now();
    assert_eq!(only_the_good_file(run).first, wanted);
    assert!(start.elapsed() < HANG);
}

#[test]
fn attack_fifo_and_socket() {
    let run = Run::cloned(Scheme::Https);
    make(&run, "mkfifo", &["fifo"]);
    let _socket = UnixListener::bind(run.source("docs/socket")).unwrap();
    skips_at_once(&run, &["docs/fifo", "docs/socket"]);
}

#[test]
#[ignore = "root: run by 'cargo xtask test'"]
fn attack_device() {
    let run = Run::cloned(Scheme::Https);
    make(&run, "mknod", &["zero", "c", "1", "5"]);
    skips_at_once(&run, &["docs/zero"]);
}

fn too_large(run: &Run, words: &str) {
    let start = Instant::now();
    run.step("publish").failed(Reason::OutputTooLarge, words);
    assert!(start.elapsed() < HANG, "{:?}", start.elapsed());
    assert_eq!(run.repository.head(BRANCH).unwrap(), None);
    nothing_happened(run);
}

#[test]
fn attack_more_names_than_allowed() {
    let run = Run::cloned(Scheme::Https);
    for number in 0..10_001 {
        File::create(run.source(&format!("docs/{number}"))).unwrap();
    }
    too_large(&run, "more than 10000 names");
}

#[test]
fn attack_more_files_than_allowed() {
    let run = Run::cloned(Scheme::Https);
    for number in 0..2_000 {
        File::create(run.source(&format!("docs/{number}"))).unwrap();
    }
    too_large(&run, "more than 2000 files");
}

#[test]
fn attack_sparse_file() {
    let run = Run::cloned(Scheme::Https);
    File::create(run.source("docs/big"))
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    too_large(&run, "'docs/big' has 1073741824 bytes");
}

#[test]
fn attack_many_large_files() {
    let run = Run::cloned(Scheme::Https);
    for number in 0..11 {
        let file = File::create(run.source(&format!("docs/{number}"))).unwrap();
        file.set_len(5 << 20).unwrap();
    }
    too_large(&run, "52428800 bytes together");
}

#[test]
fn attack_deep_nesting() {
    let run = Run::cloned(Scheme::Https);
    let deep = format!("docs/{}x", "d/".repeat(1000));
    run.write(&deep, "x");
    too_large(&run, "more than 32 folders deep");
}

#[test]
fn attack_names_of_git() {
    let run = Run::cloned(Scheme::Https);
    let names = [
        ".GIT/hooks/post-checkout",
        ".gIt",
        "git~1/config",
        "GIT~2",
        ".git\u{200c}/config",
        ".g\u{200d}it",
        "sub/.git/config",
        "gi7eba~1",
        "a\\..\\b",
    ];
    for name in names {
        run.write(&format!("docs/{name}"), "x");
    }
    assert_eq!(only_the_good_file(&run).count, 9);
}

#[test]
fn attack_names_that_cannot_be_shown() {
    let run = Run::cloned(Scheme::Https);
    let injected = "a\nM 100644 inline README.md\ndata 3\nbad\n";
    for name in [injected.as_bytes(), b"caf\xe9", b"esc\x1b[31m", b"tab\t"] {
        fs::write(run.source("docs").join(OsStr::from_bytes(name)), "x").unwrap();
    }
    assert_eq!(only_the_good_file(&run).count, 4);
    assert_eq!(run.published_file("README.md"), "read me\n");
}

#[test]
fn attack_forged_report() {
    let run = Run::cloned(Scheme::Https);
    let forged = format!(
        r#"{{"outcome":"Pushed","commit":"{}","changed":{{"count":9,"first":[]}}}}"#,
        run.base()
    );
    for path in ["report", "termination-log", ".git/report"] {
        run.write(path, &forged);
    }
    fs::write(run.path("report"), forged.repeat(10)).unwrap();
    only_the_good_file(&run);
}

#[test]
fn attack_programs_on_the_path() {
    let run = Run::cloned(Scheme::Ssh);
    for name in [
        "git",
        "ssh",
        "git-fast-import",
        "git-remote-https",
        "sh",
        "bin/git",
        "bin/ssh",
    ] {
        plant_program(&run, name);
    }
    run.write(GOOD, "good\n");
    let path = std::env::var("PATH").unwrap();
    let source = run.path("source").display().to_string();
    let output = run
        .command("publish")
        .env("PATH", format!(":.:bin:{source}:{source}/bin:{path}"))
        .current_dir(run.path("source"))
        .output()
        .unwrap();
    let (_, changed, _) = run.done(output).pushed();
    assert_eq!(changed.first, [GOOD]);
    nothing_happened(&run);
}

#[test]
fn attack_repository_in_the_way_of_git() {
    // Bare repositories in the directories where git searches for one, including the output directory.
    let run = Run::cloned(Scheme::Https);
    let marker = run.marker().display().to_string();
    for folder in ["", "docs/"] {
        run.write(&format!("{folder}HEAD"), "ref: refs/heads/main\n");
        run.write(
            &format!("{folder}config"),
            &format!("[core]\n\tbare = true\n\tfsmonitor = touch {marker};\n"),
        );
        fs::create_dir_all(run.source(&format!("{folder}objects"))).unwrap();
        fs::create_dir_all(run.source(&format!("{folder}refs"))).unwrap();
    }
    run.write(GOOD, "good\n");
    let output = run
        .command("publish")
        .current_dir(run.source("docs"))
        .output()
        .unwrap();
    let (_, changed, _) = run.done(output).pushed();
    assert_eq!(changed.first, ["docs/HEAD", "docs/config", GOOD]);
    nothing_happened(&run);
}
