//! Mistakes in a DocsRun. Its fields become arguments of git and ssh, names of branches and paths.

use serde_json::{Value, json};

use super::{DURATION, FILE, NAME, Wrong, YEAR, changed, files, gone};
use crate::support::Kind;

const URL: &str = "must be like 'https://git.example.com/team/repository' or 'ssh://git@git.example.com/team/repository'";
const BRANCH: &str = "must be the name of a branch, such as 'main' or 'docs/api'";
const FOLDER: &str = "must be a folder of the repository, such as 'docs/' or 'services/api'";
const MESSAGE: &str =
    "must have words, no control characters but line breaks, and no line 'Orchestrator-Run:'";
const LINE: &str = "must have no control characters, such as line breaks";
const SAME: &str = "cannot be changed; submit another DocsRun";

/// Addresses that must be rejected.
const ADDRESSES: &[&str] = &[
    "--upload-pack=x",
    "-x",
    "ssh://-oProxyCommand=x/",
    "ssh://-oProxyCommand=x/y",
    "ssh://git@-oProxyCommand=x/y",
    "ssh://-l@git.example.com/x",
    "https://-x/y",
    "https://git.example.com/-x",
    "https://git.example.com/team/-x",
    "https://git.example.com/team/--upload-pack=x",
    "file:///etc/passwd",
    "file://git.example.com/x",
    "/etc/passwd",
    "./x",
    "x",
    "ext::sh -c id",
    "ext::sh",
    "fd::17/x",
    "git://git.example.com/x",
    "ftp://git.example.com/x",
    "git+ssh://git.example.com/x",
    "HTTPS://git.example.com/x",
    "https::git.example.com/x",
    "git@git.example.com:team/x",
    "git.example.com:team/x",
    "git.example.com/team/x",
    "https:/git.example.com/x",
    "https:///x",
    "https://git.example.com",
    "https://git.example.com/",
    "https://git.example.com//",
    "https://git.example.com//x",
    "https://git.example.com/a//b",
    "https://user:password@git.example.com/x",
    "https://token@git.example.com/x",
    "https://@git.example.com/x",
    "http://user:password@git.example.com/x",
    "ssh://git:password@git.example.com/x",
    "ssh://a@b@git.example.com/x",
    "ssh://@git.example.com/x",
    "https://git.example.com/x?service=y",
    "https://git.example.com/x#main",
    "https://git.example.com/../x",
    "https://git.example.com/a/../b",
    "https://git.example.com/a/..",
    "https://git.example.com/a/../",
    "https://git.example.com/./a",
    "https://git.example.com/a/.",
    "https://git.example.com/.",
    "https://git.example.com/%2e%2e/x",
    "https://git.example.com/a/%2E./b",
    "https://git.example.com/%2dx",
    "https://git.example.com/a%2fb",
    "https://git.example.com/a%5Cb",
    "https://git.example.com/%252e%252e/x",
    "ssh://git@git.example.com/a%00b",
    "ssh://git@git.example.com/a%0ab",
    "ssh://git@git.example.com/a%7f",
    "ssh://git%40x@git.example.com/a",
    "ssh://git.example.com%2f/a",
    "https://git.example.com/a%",
    "https://git.example.com/a%2",
    "https://git.example.com/a%zz",
    "https://git.example.com/a b",
    " https://git.example.com/a",
    "https://git.example.com/a ",
    "https://git.example.com/a\n",
    "\nhttps://git.example.com/a",
    "https://git.example.com/a\nb",
    "https://git.example.com\n/a",
    "https://git.example.com/a\r",
    "https://git.example.com/a\tb",
    "https://git.example.com/a\u{0}",
    "https://git.example.com/a\u{1b}[31m",
    "https://git.example.com/a\u{7f}",
    "https://git.example.com/a\\b",
    "https://git.example.com/a'b",
    "https://git.example.com/a\"b",
    "https://git.example.com/$(id)",
    "https://git.example.com/`id`",
    "https://git.example.com/a;id",
    "https://git.example.com/a|id",
    "https://git.example.com/a&b",
    "https://git.example.com/ä",
    "https://gi\u{0442}.example.com/a",
    "https://git..example.com/a",
    "https://.example.com/a",
    "https://git.example.com./a",
    "https://git.-example.com/a",
    "https://git_1.example.com/a",
    "https://git.example.com:/a",
    "https://git.example.com:0/a",
    "https://git.example.com:065/a",
    "https://git.example.com:65536/a",
    "https://git.example.com:99999/a",
    "https://git.example.com:443x/a",
    "https://git.example.com:443:443/a",
    "https://[]/a",
    "https://[::1/a",
    "https://::1/a",
    "https://[....]/a",
    "https://[:::]/a",
    "https://[1.2.3.4]/a",
    "https://[fe80::1%25eth0]/a",
    "https://[git]/a",
];

/// Branches that must be rejected.
const BRANCHES: &[&str] = &[
    "-b",
    "--all",
    "--upload-pack=x",
    "a..b",
    "..",
    "refs/heads/x",
    "refs/x",
    "x.lock",
    "x.lock/y",
    "a/x.lock",
    "HEAD",
    "@",
    "@{",
    "@{-1}",
    "a@{1}",
    "a b",
    " a",
    "a ",
    "a~1",
    "a^",
    "a^{tree}",
    "a:b",
    ":a",
    "+a",
    "a?",
    "a*",
    "a[b",
    "a\\b",
    "a.",
    ".a",
    "a/.b",
    "a./b",
    "a/",
    "/a",
    "/",
    "a//b",
    "a/-b",
    "a\n",
    "\na",
    "a\nb",
    "a\r",
    "a\tb",
    "a\u{0}",
    "a\u{1b}[31m",
    "a\u{7f}",
    "ä",
    "$(id)",
    "`id`",
    "a;id",
    "a'b",
    "a\"b",
    "a%2e",
];

/// Directories that must be rejected. Names that begin with '.git' belong to git, or configure its
/// server.
const FOLDERS: &[&str] = &[
    "/abs",
    "/",
    "//",
    "..",
    "../x",
    "a/..",
    "a/../b",
    "./a",
    "a/.",
    "a/./b",
    "./",
    "a//b",
    "a//",
    ".git",
    ".git/",
    ".git/hooks",
    ".GIT",
    "docs/.GIT/hooks",
    "docs/.Git",
    ".github",
    ".github/workflows",
    ".gitmodules",
    ".git ",
    ".git.",
    "git~1/x",
    "-x",
    "--",
    "a/-x",
    ":(exclude)a",
    ":/",
    "a*",
    "a?",
    "[a]",
    "~",
    "~root",
    "a\\b",
    "a:b",
    "a\n",
    "\na",
    "a\nb",
    "a\r",
    "a\tb",
    "a\u{0}b",
    "a\u{1b}[31m",
    "a\u{7f}",
    "ä",
    ".g\u{200c}it",
    "$(id)",
    "`id`",
    "a;id",
    "a'b",
    "%2e%2e",
];

/// Commit messages that must be rejected.
const MESSAGES: &[&str] = &[
    "Orchestrator-Run: 9c5b94b1",
    "Words\n\nOrchestrator-Run: 9c5b94b1",
    "Words\n\norchestrator-run:9c5b94b1",
    "Words\n\nORCHESTRATOR-RUN: 9c5b94b1\n",
    "Words\n\nOrchestrator-run : 9c5b94b1",
    "Words\n\nOrchestrator-Run\u{a0}: 9c5b94b1",
    "Words Orchestrator-Run: 9c5b94b1",
    "\n",
    " \n ",
    "\u{a0}\u{2003}\u{2028}\u{3000}",
    "Words\u{0}",
    "Words\r\nmore",
    "Words\tmore",
    "\u{1b}[31mWords",
    "Words\u{7f}",
    "Words\u{80}",
    "Words\u{85}more",
    "Words\u{9f}",
];

/// Returns the same change of one field with each of these values.
fn each(
    field: &'static str,
    says: &'static str,
    values: &[&'static str],
    change: impl Fn(&str) -> (&'static str, Value),
) -> Vec<Wrong> {
    values
        .iter()
        .map(|value| Wrong {
            what: value,
            spec: changed(Kind::DocsRun.least(), &[change(value)]),
            field,
            says,
        })
        .collect()
}

/// Returns runs that must be rejected.
pub(crate) fn runs() -> Vec<Wrong> {
    let numbered: Vec<String> = (0..129).map(|number| format!("{number}.md")).collect();
    let numbered: Vec<&str> = numbered.iter().map(String::as_str).collect();
    let output = |field: &'static str| move |value: &str| ("output", json!({ field: value }));
    let mut all = each("spec.repositoryUrl", URL, ADDRESSES, |value| {
        ("repositoryUrl", json!(value))
    });
    all.extend(each("spec.sourceBranch", BRANCH, BRANCHES, |value| {
        ("sourceBranch", json!(value))
    }));
    all.extend(each(
        "spec.output.branch",
        BRANCH,
        BRANCHES,
        output("branch"),
    ));
    all.extend(each("spec.workingDirectory", FOLDER, FOLDERS, |value| {
        ("workingDirectory", json!(value))
    }));
    all.extend(each("spec.output.path", FOLDER, FOLDERS, output("path")));
    all.extend(each(
        "spec.output.commitMessage",
        MESSAGE,
        MESSAGES,
        output("commitMessage"),
    ));
    all.extend(wrong! { Kind::DocsRun.least();
        "no repository": repositoryUrl = (gone()) => "spec.repositoryUrl", "Required value";
        "no branch": sourceBranch = (gone()) => "spec.sourceBranch", "Required value";
        "no agent": agentName = (gone()) => "spec.agentName", "Required value";
        "empty repository": repositoryUrl = "" => "spec.repositoryUrl", "at least 1 chars";
        "empty branch": sourceBranch = "" => "spec.sourceBranch", "at least 1 chars";
        "empty folder": workingDirectory = "" => "spec.workingDirectory", "at least 1 chars";
        "empty agent": agentName = "" => "spec.agentName", "at least 1 chars";
        "empty model": model = "" => "spec.model", "at least 1 chars";
        "empty output branch": output = { "branch": "" } => "spec.output.branch", "at least 1 chars";
        "empty output path": output = { "path": "" } => "spec.output.path", "at least 1 chars";
        "empty message": output = { "commitMessage": "" } => "spec.output.commitMessage", "at least 1 chars";

        "long repository": repositoryUrl = (format!("https://git.example.com/{}", "a".repeat(477)))
            => "spec.repositoryUrl", "may not be more than 500";
        "long part of a host": repositoryUrl = (format!("https://{}.example.com/a", "a".repeat(64))) => "spec.repositoryUrl", URL;
        "long user": repositoryUrl = (format!("ssh://{}@git.example.com/a", "a".repeat(65))) => "spec.repositoryUrl", URL;
        "long branch": sourceBranch = ("b".repeat(201)) => "spec.sourceBranch", "may not be more than 200";
        "long folder": workingDirectory = ("f".repeat(201)) => "spec.workingDirectory", "may not be more than 200";
        "long agent": agentName = ("a".repeat(254)) => "spec.agentName", "may not be more than 253";
        "long model": model = ("m".repeat(254)) => "spec.model", "may not be more than 253";
        "long output branch": output = { "branch": ("b".repeat(201)) } => "spec.output.branch", "may not be more than 200";
        "long output path": output = { "path": ("p".repeat(201)) } => "spec.output.path", "may not be more than 200";
        "long message": output = { "commitMessage": ("w".repeat(2001)) } => "spec.output.commitMessage", "may not be more than 2000";
        "long Secret": credentialsSecretRef = { "name": ("s".repeat(254)) } => "spec.credentialsSecretRef.name", "may not be more than 253";

        "agent in upper case": agentName = "Writer" => "spec.agentName", NAME;
        "agent of another namespace": agentName = "other/writer" => "spec.agentName", NAME;
        "model of two lines": model = "small\nlarge" => "spec.model", LINE;
        "model with a NUL": model = "small\u{0}" => "spec.model", LINE;
        "Secret without a name": credentialsSecretRef = {} => "spec.credentialsSecretRef.name", "Required value";
        "Secret with an empty name": credentialsSecretRef = { "name": "" } => "spec.credentialsSecretRef.name", "at least 1 chars";
        "Secret as text": credentialsSecretRef = "git" => "spec.credentialsSecretRef", "must be of type object";
        "Secret of another namespace": credentialsSecretRef = { "name": "other/git" } => "spec.credentialsSecretRef.name", NAME;
        "codebase as text": includeCodebase = "yes" => "spec.includeCodebase", "must be of type boolean";
        "changes as text": output = { "requireChanges": "yes" } => "spec.output.requireChanges", "must be of type boolean";

        "129 files": instructions = (files(&numbered)) => "spec.instructions", "must have at most 128 items";
        "file twice": instructions = (files(&["a", "b", "a"])) => "spec.instructions[2]", "Duplicate value";
        "file without content": instructions = [{ "filename": "a" }] => "spec.instructions[0].content", "Required value";
        "file without a name": instructions = [{ "content": "a" }] => "spec.instructions[0].filename", "Required value";
        "file in a folder": instructions = (files(&["docs/a.md"])) => "spec.instructions[0].filename", FILE;
        "file upwards": instructions = (files(&[".."])) => "spec.instructions[0].filename", FILE;
        "file like an option": instructions = (files(&["-rf"])) => "spec.instructions[0].filename", FILE;
        "hidden file": instructions = (files(&[".env"])) => "spec.instructions[0].filename", FILE;
        "file with a line break": instructions = (files(&["a\n"])) => "spec.instructions[0].filename", FILE;
        "empty name": instructions = (files(&[""])) => "spec.instructions[0].filename", "at least 1 chars";
        "long name": instructions = (files(&[&"a".repeat(254)])) => "spec.instructions[0].filename", "may not be more than 253";

        "no unit": timeout = "5" => "spec.timeout", DURATION;
        "no time": timeout = "0s" => "spec.timeout", DURATION;
        "too long": timeout = "169h" => "spec.timeout", DURATION;
        "suspend as text": suspend = "yes" => "spec.suspend", "must be of type boolean";
        "cancel as a number": cancel = 1 => "spec.cancel", "must be of type boolean";
        "children kept for nothing": childTTL = {} => "spec.childTTL", "must name 'succeeded', 'failed' or both";
        "children kept for days": childTTL = { "failed": "7d" } => "spec.childTTL.failed", YEAR;
    });
    all
}

/// Returns names of runs that form no valid branch, for runs without a branch.
pub(crate) fn names() -> Vec<String> {
    let long = [
        "a".repeat(60),
        "b".repeat(60),
        "c".repeat(60),
        "d".repeat(13),
    ]
    .join(".");
    vec!["shop.lock".to_owned(), "a.b.lock".to_owned(), long]
}

/// Returns the expected rejection of [`names`].
pub(crate) fn unnamed() -> Wrong {
    Wrong {
        what: "a name that is no branch",
        spec: Kind::DocsRun.least(),
        field: "spec.output.branch",
        says: "must be given: git takes no branch 'docs/' with the name of this run",
    }
}

/// Returns a run to change, with every optional field.
pub(crate) fn whole() -> Value {
    changed(
        Kind::DocsRun.least(),
        &[
            ("model", json!("small")),
            ("instructions", files(&["a.md", "b.md"])),
            ("credentialsSecretRef", json!({ "name": "git" })),
            (
                "output",
                json!({ "branch": "docs/a", "path": "docs/", "requireChanges": true, "commitMessage": "Words" }),
            ),
            ("timeout", json!("1h")),
        ],
    )
}

/// Returns changes of [`whole`] that must be rejected.
pub(crate) fn changes() -> Vec<Wrong> {
    let other_text = json!([{ "filename": "a.md", "content": "other" }, { "filename": "b.md", "content": "b.md" }]);
    let output = |field: &str, value: Value| changed(whole()["output"].clone(), &[(field, value)]);
    wrong! { whole();
        "another repository": repositoryUrl = "https://evil.example.com/team/shop" => "spec.repositoryUrl", SAME;
        "the same repository, written otherwise": repositoryUrl = "https://git.example.com/team/shop/" => "spec.repositoryUrl", SAME;
        "another branch": sourceBranch = "next" => "spec.sourceBranch", SAME;
        "another folder": workingDirectory = "services" => "spec.workingDirectory", SAME;
        "another agent": agentName = "reader" => "spec.agentName", SAME;
        "more to see": includeCodebase = true => "spec.includeCodebase", SAME;
        "another model": model = "large" => "spec.model", "'model' cannot be changed; submit another DocsRun";
        "no model": model = (gone()) => "spec.model", "'model' cannot be changed";
        "model null": model = null => "spec.model", "'model' cannot be changed";
        "other text": instructions = other_text => "spec.instructions", "'instructions' cannot be changed; submit another DocsRun";
        "a file more": instructions = (files(&["a.md", "b.md", "c.md"])) => "spec.instructions", "'instructions' cannot be changed";
        "a file less": instructions = (files(&["a.md"])) => "spec.instructions", "'instructions' cannot be changed";
        "no files": instructions = [] => "spec.instructions", "'instructions' cannot be changed";
        "files gone": instructions = (gone()) => "spec.instructions", "'instructions' cannot be changed";
        "another Secret": credentialsSecretRef = { "name": "vault" } => "spec.credentialsSecretRef", "'credentialsSecretRef' cannot be changed; submit another DocsRun";
        "no Secret": credentialsSecretRef = (gone()) => "spec.credentialsSecretRef", "'credentialsSecretRef' cannot be changed";
        "another output branch": output = (output("branch", json!("main"))) => "spec.output", SAME;
        "no output branch": output = (output("branch", gone())) => "spec.output", SAME;
        "another output path": output = (output("path", json!("."))) => "spec.output", SAME;
        "default output path": output = (output("path", json!("docs"))) => "spec.output", SAME;
        "changes not required": output = (output("requireChanges", json!(false))) => "spec.output", SAME;
        "another message": output = (output("commitMessage", json!("Others"))) => "spec.output", SAME;
        "no message": output = (output("commitMessage", gone())) => "spec.output", SAME;
        "no output": output = (gone()) => "spec.output", SAME;
    }
}

/// Returns changes of the minimal run that must be rejected.
pub(crate) fn additions() -> Vec<Wrong> {
    wrong! { Kind::DocsRun.least();
        "a model": model = "large" => "spec.model", "'model' cannot be changed";
        "files": instructions = (files(&["a.md"])) => "spec.instructions", "'instructions' cannot be changed";
        "a Secret": credentialsSecretRef = { "name": "vault" } => "spec.credentialsSecretRef", "'credentialsSecretRef' cannot be changed";
        "an output branch": output = { "branch": "main" } => "spec.output", SAME;
        "the output branch that it has": output = { "branch": "docs/least" } => "spec.output", SAME;
        "a message": output = { "commitMessage": "Words" } => "spec.output", SAME;
        "a folder": workingDirectory = "docs" => "spec.workingDirectory", SAME;
    }
}

/// Returns a cancelled run.
pub(crate) fn cancelled() -> Value {
    changed(whole(), &[("cancel", json!(true))])
}

/// Returns changes of [`cancelled`] that must be rejected.
pub(crate) fn changes_of_cancelled() -> Vec<Wrong> {
    wrong! { cancelled();
        "uncancelled": cancel = false => "spec.cancel", "cannot be taken back; submit another DocsRun";
        "uncancelled by leaving it out": cancel = (gone()) => "spec.cancel", "cannot be taken back; submit another DocsRun";
    }
}
