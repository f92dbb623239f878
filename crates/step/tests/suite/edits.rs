//! `step commit`: plans, and commits of versions.

use std::{fs, os::unix::fs::PermissionsExt};

use git::{
    Reason,
    edits::{
        Author, Change, CommitReason, CommitReport, DocumentRef, Edit, EditReason, Mode, Plan,
        Request, sha256,
    },
};
use testkit::git::{Entry, Hook};

use crate::{
    fixture::{Committed, Run, Scheme, UID},
    pushing::{CUT, set_hook},
};

const FILE: &str = "apps/shop/release.yaml";
const BEFORE: &str = "# The shop.\napiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata:\n  name: shop # ours\nspec:\n  chart:\n    spec:\n      chart: shop\n      version: 1.2.0 # {\"$imagepolicy\": \"flux:shop\"}\n  values:\n    token: hunter2\n";

fn after() -> String {
    BEFORE.replace("1.2.0", "1.3.0")
}

fn version(to: &str) -> Change {
    Change::Version { to: to.to_owned() }
}

fn exact(from: &str, to: &str) -> Change {
    Change::Exact {
        from: from.to_owned(),
        to: to.to_owned(),
    }
}

fn request(mode: Mode, change: Change) -> Request {
    Request {
        mode,
        branch: "main".to_owned(),
        directory: "apps".to_owned(),
        applied: None,
        author: Author {
            name: "Shop Bot".to_owned(),
            email: "bot@shop.example".to_owned(),
        },
        summary: "Upgrade shop to 1.3.0".to_owned(),
        edits: vec![Edit {
            file: Some(FILE.to_owned()),
            document: DocumentRef {
                kind: Some("HelmRelease".to_owned()),
                name: Some("shop".to_owned()),
                ..DocumentRef::default()
            },
            field_path: "spec.chart.spec.version".to_owned(),
            change,
        }],
    }
}

fn commit_request() -> Request {
    request(Mode::Commit, exact("1.2.0", "1.3.0"))
}

fn set(run: &mut Run, request: &Request) {
    run.set("STEP_REQUEST", &request.write());
}

/// Returns a run with the release in its repository and a request to commit.
fn ready(scheme: Scheme) -> Run {
    let mut run = Run::new(scheme);
    run.commit("main", FILE, BEFORE);
    set(&mut run, &commit_request());
    run
}

fn content(run: &Run, path: &str) -> String {
    let content = run.repository.read("main", path).unwrap().unwrap();
    String::from_utf8(content).unwrap()
}

/// Runs the step with a `git` that first moves the branch when the step pushes.
fn commit_while_the_branch_moves(run: &Run, is_once: bool) -> Committed {
    fs::create_dir(run.path("bin")).unwrap();
    let git = run.path("bin/git");
    let only = if is_once {
        format!("[ -e {0} ] || {{ touch {0};", run.marker().display())
    } else {
        "{".to_owned()
    };
    let script = format!(
        "#!/bin/sh\nother() {{ /usr/bin/git --git-dir={repository} -c user.name=b -c user.email=b \"$@\"; }}\ncase \" $* \" in *' push '*) {only} other update-ref refs/heads/main \"$(other commit-tree -p refs/heads/main -m other 'refs/heads/main^{{tree}}')\"; }} ;; esac\nexec /usr/bin/git \"$@\"\n",
        repository = run.repository.folder.display(),
    );
    fs::write(&git, script).unwrap();
    fs::set_permissions(&git, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", run.path("bin").display());
    let output = run.command("commit").env("PATH", path).output();
    run.committed(&output.unwrap())
}

#[test]
fn a_plan_becomes_one_commit() {
    for scheme in [Scheme::Https, Scheme::Ssh] {
        let mut run = ready(scheme);
        let base = run.repository.head("main").unwrap().unwrap();
        let mut plan = request(Mode::Plan, version("1.3.0"));
        plan.edits[0].file = None;
        plan.applied = Some(git::Commit::parse(run.base()).unwrap());
        set(&mut run, &plan);
        let planned = run.commit_step();
        let CommitReport::Planned { digest, edits, .. } = &planned.report else {
            panic!("{planned:?}");
        };
        assert_eq!(*edits, 1);
        let plan = Plan::find(&planned.output, digest).unwrap();
        assert_eq!(run.repository.head("main").unwrap().unwrap(), base);
        assert_eq!(run.repository.branches().unwrap().len(), 1);
        assert_eq!(plan.base.as_str(), base);
        assert_eq!(plan.unapplied_commits, Some(1));
        assert_eq!(plan.files[0].sha256, sha256(BEFORE.as_bytes()));
        let edit = &plan.edits[0];
        assert_eq!(
            (&*edit.file, &*edit.from, &*edit.to),
            (FILE, "1.2.0", "1.3.0")
        );
        assert!(edit.has_automation_marker && edit.line == 10, "{edit:?}");
        assert!(
            plan.diff.contains("\n-      version: 1.2.0 #"),
            "{}",
            plan.diff
        );
        assert!(
            plan.diff.contains("\n+      version: 1.3.0 #"),
            "{}",
            plan.diff
        );
        assert!(!planned.output.contains("hunter2"), "lines around the edit");

        let mut commit = commit_request();
        commit.edits = plan.edits_to_commit();
        set(&mut run, &commit);
        let id = run.commit_step().pushed();
        let log = run.repository.log("main").unwrap();
        assert_eq!((log.len(), &log[0].id), (3, &id));
        assert_eq!(log[0].parents, [base]);
        assert_eq!(log[0].author, "Shop Bot <bot@shop.example>");
        assert!(log[0].message.starts_with("Upgrade shop to 1.3.0\n\n"));
        let trailer = ("Orchestrator-Run".to_owned(), UID.to_owned());
        assert!(log[0].trailers.contains(&trailer), "{:?}", log[0]);
        assert_eq!(content(&run, FILE), after());
        assert_eq!(content(&run, "README.md"), "read me\n");
    }
}

#[test]
fn bytes_and_mode_of_the_file_stay() {
    let run = ready(Scheme::Https);
    let before = format!("\u{feff}{}", BEFORE.replace('\n', "\r\n"));
    let entries = [(FILE, Entry::Program(before.as_bytes()))];
    run.repository.commit("main", "Other", &entries).unwrap();
    run.commit_step().pushed();
    assert_eq!(content(&run, FILE), before.replace("1.2.0", "1.3.0"));
    assert_eq!(run.repository.files("main").unwrap()[FILE], "100755");
}

#[test]
fn own_commit_is_found_below_those_of_others() {
    let run = ready(Scheme::Https);
    let id = run.commit_step().pushed();
    assert_eq!(run.commit_step().found(), id);
    run.commit("main", "other.md", "x");
    // Also if somebody changed the value back.
    run.commit("main", FILE, BEFORE);
    let head = run.repository.head("main").unwrap();
    assert_eq!(run.commit_step().found(), id);
    assert_eq!(run.repository.head("main").unwrap(), head);
}

#[test]
fn a_plan_does_not_search_for_the_own_commit() {
    let mut run = ready(Scheme::Https);
    run.commit_step().pushed();
    set(&mut run, &request(Mode::Plan, version("1.4.0")));
    let planned = run.commit_step();
    assert!(
        matches!(planned.report, CommitReport::Planned { .. }),
        "{planned:?}"
    );
}

#[test]
fn commits_of_others_are_not_ours() {
    // The trailer of another request.
    let mut run = ready(Scheme::Https);
    let other = run.commit_step().pushed();
    run.commit("main", FILE, BEFORE);
    run.set("STEP_RUN_UID", "99999999-2222-4333-8444-555555555555");
    assert_ne!(run.commit_step().pushed(), other);

    // Our trailer on a commit without the edit.
    let run = ready(Scheme::Https);
    let message = format!("Forged\n\nOrchestrator-Run: {UID}");
    let entries = [("other.md", Entry::File(b"x"))];
    let forged = run.repository.commit("main", &message, &entries).unwrap();
    let id = run.commit_step().pushed();
    assert_eq!(run.repository.log("main").unwrap()[0].parents, [forged]);
    assert_eq!(run.repository.head("main").unwrap().unwrap(), id);
    assert_eq!(content(&run, FILE), after());
}

#[test]
fn a_branch_that_moves_is_edited_again() {
    let run = ready(Scheme::Https);
    let id = commit_while_the_branch_moves(&run, true).pushed();
    let log = run.repository.log("main").unwrap();
    assert_eq!(
        (log[0].id.as_str(), log[1].message.as_str()),
        (id.as_str(), "other")
    );
    assert_eq!(log.len(), 4, "one commit is ours");
    assert_eq!(content(&run, FILE), after());
}

#[test]
fn a_branch_that_moves_in_the_push_is_edited_again() {
    for scheme in [Scheme::Https, Scheme::Ssh] {
        let run = ready(scheme);
        set_hook(
            &run,
            "update",
            "[ -e moved ] && exit 0\ntouch moved\nother=$(git -c user.name=b -c user.email=b commit-tree -p $2 -m other $2^{tree})\ngit update-ref $1 $other\n",
        );
        let id = run.commit_step().pushed();
        let log = run.repository.log("main").unwrap();
        assert_eq!(
            (log[0].id.as_str(), log[1].message.as_str()),
            (id.as_str(), "other")
        );
        assert_eq!(log.len(), 4, "one commit is ours");
    }
}

#[test]
fn a_branch_that_always_moves_is_given_up() {
    let run = ready(Scheme::Https);
    let done = commit_while_the_branch_moves(&run, false);
    done.failed(CommitReason::Git(Reason::BranchMoved), "5 attempts");
    assert_eq!(content(&run, FILE), BEFORE);
}

#[test]
fn another_value_is_not_overwritten() {
    let changed = CommitReason::Edit(EditReason::VersionChangedInGit);
    let run = ready(Scheme::Https);
    let theirs = BEFORE.replace("1.2.0", "1.2.9");
    run.commit("main", FILE, &theirs);
    run.commit_step().failed(changed, "'1.2.9'");
    assert_eq!(content(&run, FILE), theirs);
    // Also if it is the new value: the commit of somebody else is not ours.
    run.commit("main", FILE, &after());
    run.commit_step().failed(changed, "'1.3.0'");
    // Changes elsewhere in the file stay.
    let both = format!("{BEFORE}# end\n");
    run.commit("main", FILE, &both);
    run.commit_step().pushed();
    assert_eq!(content(&run, FILE), format!("{}# end\n", after()));
}

#[test]
fn a_protected_branch_is_a_rejection() {
    let run = ready(Scheme::Https);
    let hook = Hook::Refuse("main is protected".to_owned());
    run.repository.set_hook(&hook).unwrap();
    let rejected = CommitReason::Git(Reason::PushRejected);
    run.commit_step().failed(rejected, "main is protected");
    assert_eq!(content(&run, FILE), BEFORE);
}

#[test]
fn credentials_that_may_only_read_fail_in_the_plan() {
    let mut run = ready(Scheme::Https);
    run.repository
        .set_config("http.receivepack", "false")
        .unwrap();
    set(&mut run, &request(Mode::Plan, version("1.3.0")));
    let rejected = CommitReason::Git(Reason::AuthenticationFailed);
    run.commit_step().failed(rejected, "403");
}

#[test]
fn a_lost_response_is_uncertain_and_the_next_attempt_is_not() {
    let run = ready(Scheme::Ssh);
    // The second push of the first attempt is cut, too.
    let script = format!("echo x >> tries\n[ $(wc -l < tries) -gt 2 ] && exit 0\n{CUT}");
    set_hook(&run, "pre-receive", &script);
    let done = run.commit_step();
    let CommitReport::Uncertain { commit, message } = &done.report else {
        panic!("{done:?}");
    };
    assert!(message.contains("is at commit"), "{message}");
    assert_eq!(content(&run, FILE), BEFORE);
    // The same content on the same parent is the same commit.
    assert_eq!(run.commit_step().pushed(), commit.to_string());
    assert_eq!(run.repository.log("main").unwrap().len(), 3);
}

#[test]
fn wrong_requests_and_branches() {
    let failed = CommitReason::Edit(EditReason::CommitFailed);
    let mut run = ready(Scheme::Https);
    run.set("STEP_REQUEST", "{}");
    run.commit_step().failed(failed, "STEP_REQUEST");
    let mut other = commit_request();
    other.branch = "other".to_owned();
    set(&mut run, &other);
    let missing = CommitReason::Git(Reason::BranchNotFound);
    run.commit_step().failed(missing, "has no branch 'other'");
    set(&mut run, &commit_request());
    run.set("STEP_URL", "https://localhost/a");
    run.set("STEP_ALLOWED_NETWORKS", "");
    let blocked = CommitReason::Git(Reason::AddressNotAllowed);
    run.commit_step().failed(blocked, "localhost");
}

#[test]
fn files_that_are_not_edited() {
    let large = format!("{BEFORE}# {}", "x".repeat(1 << 20));
    let encrypted = format!("{BEFORE}sops:\n  mac: ENC[AES256_GCM,data:x]\n");
    let range = BEFORE.replace("1.2.0", "1.x");
    let variable = BEFORE.replace("1.2.0", "${shop_version}");
    let template = BEFORE.replace("1.2.0", "\"{{ .Values.version }}\"");
    let anchor = BEFORE.replace("version: 1.2.0", "version: &v 1.2.0");
    let twice = format!("{BEFORE}---\n{BEFORE}");
    let no_field = BEFORE.replace("version:", "other:");
    let other = BEFORE.replace("shop", "cart");
    let current = after();
    let cases: [(&str, Entry<'_>, EditReason); 14] = [
        (
            "large",
            Entry::File(large.as_bytes()),
            EditReason::FileNotEditable,
        ),
        (
            "encrypted",
            Entry::File(encrypted.as_bytes()),
            EditReason::FileEncrypted,
        ),
        (
            "range",
            Entry::File(range.as_bytes()),
            EditReason::VersionIsRange,
        ),
        (
            "variable",
            Entry::File(variable.as_bytes()),
            EditReason::VersionIsVariable,
        ),
        (
            "template",
            Entry::File(template.as_bytes()),
            EditReason::FileNotEditable,
        ),
        (
            "anchor",
            Entry::File(anchor.as_bytes()),
            EditReason::FieldNotEditable,
        ),
        (
            "twice",
            Entry::File(twice.as_bytes()),
            EditReason::FileAmbiguous,
        ),
        (
            "no field",
            Entry::File(no_field.as_bytes()),
            EditReason::FieldNotFound,
        ),
        (
            "other",
            Entry::File(other.as_bytes()),
            EditReason::FileNotFound,
        ),
        (
            "current",
            Entry::File(current.as_bytes()),
            EditReason::NothingToChange,
        ),
        ("syntax", Entry::File(b"a: ]"), EditReason::FileNotEditable),
        (
            "not UTF-8",
            Entry::File(b"kind: \xff"),
            EditReason::FileNotEditable,
        ),
        (
            "link",
            Entry::Link("../../README.md"),
            EditReason::FileNotEditable,
        ),
        ("removed", Entry::Removed, EditReason::FileNotFound),
    ];
    let mut run = ready(Scheme::Https);
    set(&mut run, &request(Mode::Plan, version("1.3.0")));
    for (name, entry, reason) in cases {
        let entries = [(FILE, entry)];
        let head = run.repository.commit("main", name, &entries).unwrap();
        let done = run.commit_step();
        let words = match reason {
            EditReason::NothingToChange => "already the new ones",
            EditReason::FileNotFound
            | EditReason::FileAmbiguous
            | EditReason::FileEncrypted
            | EditReason::FileNotEditable
            | EditReason::FieldNotFound
            | EditReason::FieldNotEditable
            | EditReason::VersionIsRange
            | EditReason::VersionIsVariable
            | EditReason::VersionChangedInGit
            | EditReason::CommitFailed => FILE,
        };
        done.failed(CommitReason::Edit(reason), words);
        assert_eq!(
            run.repository.head("main").unwrap().unwrap(),
            head,
            "{name}"
        );
    }
}

#[test]
fn links_above_the_file_are_not_followed() {
    let mut run = Run::new(Scheme::Https);
    let entries = [
        ("real/release.yaml", Entry::File(BEFORE.as_bytes())),
        ("apps/shop", Entry::Link("../real")),
    ];
    run.repository.commit("main", "Other", &entries).unwrap();
    set(&mut run, &commit_request());
    let rejected = CommitReason::Edit(EditReason::FileNotEditable);
    run.commit_step()
        .failed(rejected, "'apps/shop' is no directory");
    assert_eq!(content(&run, "real/release.yaml"), BEFORE);
}

#[test]
fn the_file_of_a_document_is_searched_for() {
    let mut run = ready(Scheme::Https);
    let mut search = request(Mode::Plan, version("1.3.0"));
    search.edits[0].file = None;
    set(&mut run, &search);
    // None of these files contains the document in a form that Flux applies.
    let beside = [
        ("outside/release.yaml", Entry::File(BEFORE.as_bytes())),
        ("apps/notes.md", Entry::File(BEFORE.as_bytes())),
        ("apps/link.yaml", Entry::Link("shop/release.yaml")),
        (
            "apps/broken.yaml",
            Entry::File(b"kind: HelmRelease\nname: shop\n]"),
        ),
        (
            "apps/cart.yaml",
            Entry::File(b"kind: HelmRelease\nmetadata: {name: shop-2}\n"),
        ),
    ];
    run.repository.commit("main", "Other", &beside).unwrap();
    let planned = run.commit_step();
    let CommitReport::Planned { digest, .. } = &planned.report else {
        panic!("{planned:?}");
    };
    let plan = Plan::find(&planned.output, digest).unwrap();
    assert_eq!(plan.edits[0].file, FILE);

    run.commit("main", "apps/copy.yml", BEFORE);
    let ambiguous = CommitReason::Edit(EditReason::FileAmbiguous);
    run.commit_step()
        .failed(ambiguous, "'apps/copy.yml' and 'apps/shop/release.yaml'");

    search.directory = "other".to_owned();
    set(&mut run, &search);
    let missing = CommitReason::Edit(EditReason::FileNotFound);
    run.commit_step().failed(missing, "below 'other'");
}

#[test]
fn several_edits_are_one_commit() {
    const IMAGES: &str = "apps/kustomization.yaml";
    let mut run = ready(Scheme::Https);
    let images = "images:\n- name: ghcr.io/shop/web\n  newTag: \"1.10\"\n";
    run.commit("main", IMAGES, images);
    let mut plan = request(Mode::Plan, version("1.3.0"));
    plan.edits.push(Edit {
        file: Some(IMAGES.to_owned()),
        document: DocumentRef::default(),
        field_path: "images[name=ghcr.io/shop/web].newTag".to_owned(),
        change: Change::Image {
            image: "ghcr.io/shop/web".to_owned(),
            tag: "1.20".to_owned(),
        },
    });
    set(&mut run, &plan);
    let planned = run.commit_step();
    let CommitReport::Planned {
        digest, edits: 2, ..
    } = &planned.report
    else {
        panic!("{planned:?}");
    };
    let plan = Plan::find(&planned.output, digest).unwrap();
    let mut commit = commit_request();
    commit.edits = plan.edits_to_commit();
    set(&mut run, &commit);
    run.commit_step().pushed();
    assert_eq!(run.repository.log("main").unwrap().len(), 4);
    assert_eq!(content(&run, FILE), after());
    assert_eq!(content(&run, IMAGES), images.replace("1.10", "1.20"));
}
