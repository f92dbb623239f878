//! Helpers of the tests.

use std::{collections::BTreeMap, path::Path, process::Command, time::Duration};

use git::remote::{Question, heads};
use git::{Credentials, Networks, Reason, RemoteError, Url};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) type Data = BTreeMap<String, Vec<u8>>;

pub(crate) fn question(url: &str, data: &Data) -> Question {
    let url = Url::parse(url, true).unwrap();
    Question {
        credentials: Credentials::from_data(url.scheme(), data).unwrap(),
        url,
        networks: Networks::parse(["127.0.0.0/8"]).unwrap(),
        branches: vec!["main".to_owned(), "docs/none".to_owned()],
        tags: Vec::new(),
        timeout: TIMEOUT,
    }
}

pub(crate) async fn error(question: &Question) -> RemoteError {
    let error = heads(question).await.unwrap_err();
    assert!(error.message.contains(&question.url.to_string()), "{error}");
    assert!(!error.message.contains(char::is_control), "{error:?}");
    assert!(error.message.chars().count() < 700, "{error}");
    error
}

pub(crate) async fn expect(question: &Question, reason: Reason, words: &str) {
    let found = error(question).await;
    assert_eq!(found.reason, reason, "{found}");
    assert!(
        found.message.contains(words),
        "'{words}' is not in: {found}"
    );
}

pub(crate) fn with(data: &Data, key: &str, value: impl Into<Vec<u8>>) -> Data {
    let mut data = data.clone();
    data.insert(key.to_owned(), value.into());
    data
}

pub(crate) fn text(data: &Data, key: &str) -> String {
    String::from_utf8(data[key].clone()).unwrap()
}

/// Creates a key pair without a passphrase. Returns the private key, and the type and text of the public
/// key.
pub(crate) fn key_pair(kind: &str) -> (String, String) {
    key_pair_as(kind, "RFC4716")
}

pub(crate) fn key_pair_as(kind: &str, form: &str) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-N", "", "-t", kind, "-m", form, "-f"])
        .arg(&path)
        .status();
    assert!(made.unwrap().success());
    let public = std::fs::read_to_string(path.with_extension("pub")).unwrap();
    let public: Vec<&str> = public.split_whitespace().take(2).collect();
    (std::fs::read_to_string(&path).unwrap(), public.join(" "))
}

pub(crate) fn git(folder: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(["-c", "safe.directory=*"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    output.stdout
}
