//! Releases as Helm stores them, and hostile content.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Text in the values of a release that must appear nowhere.
const CANARY: &str = "c4n4ry";

const MANIFEST: &str = r#"---
# Source: shop/templates/secret.yaml
apiVersion: v1
kind: Secret
metadata:
  name: shop
stringData:
  password: c4n4ry
---
# Source: shop/templates/deployment.yaml
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {app: shop}
spec:
  template:
    spec:
      containers:
        - name: web
          image: shop:1
          env: [{name: TEXT, value: "---"}]
---
# Source: shop/templates/db.yaml
"apiVersion": "apps/v1"
"kind": "StatefulSet"
"metadata": {"name": "db", "namespace": "data"}
---
# Source: shop/templates/pvc.yaml
kind: PersistentVolumeClaim
apiVersion: v1
metadata: {name: files}
---
{"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "backup"}}
---
# Source: shop/templates/other.yaml
apiVersion: example.com/v1
kind: Deployment
metadata: {name: not-ours}
---
# Source: shop/templates/config.yaml
apiVersion: v1
kind: ConfigMap
metadata: {name: text}
data:
  example.yaml: |
    ---
    kind: Deployment
---
# Source: shop/templates/empty.yaml
"#;

fn entry() -> ReleaseEntry {
    ReleaseEntry {
        name: "shop".to_owned(),
        namespace: "shop".to_owned(),
        version: 3,
        ..ReleaseEntry::default()
    }
}

fn release(manifest: &str) -> Value {
    json!({
        "name": "shop", "version": 3, "namespace": "shop", "manifest": manifest,
        "info": { "status": "deployed" }, "chart": { "metadata": { "name": "shop" } },
        "config": { "password": CANARY },
        "hooks": [{ "name": "migrate", "kind": "Job", "events": ["pre-upgrade"] }],
    })
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Encodes a release as Helm does: JSON, gzip, and base64 once.
fn stored(release: &Value) -> Vec<u8> {
    STANDARD
        .encode(gzip(release.to_string().as_bytes()))
        .into_bytes()
}

fn expected() -> BTreeSet<ObjectId> {
    [
        ObjectId::new(ObjectKind::Deployment, "shop", "web"),
        ObjectId::new(ObjectKind::StatefulSet, "data", "db"),
        ObjectId::new(ObjectKind::Claim, "shop", "files"),
        ObjectId::new(ObjectKind::CronJob, "shop", "backup"),
    ]
    .into()
}

#[test]
fn the_name_of_the_secret_has_the_release_and_its_version() {
    assert_eq!(secret_name("shop", 12), "sh.helm.release.v1.shop.v12");
}

/// R38: the content is encoded once after the client has decoded the Secret.
#[test]
fn r38_a_release_is_decoded_once() {
    let once = stored(&release(MANIFEST));
    assert_eq!(objects(&once, &entry()), Ok(expected()));
    let twice = STANDARD.encode(&once).into_bytes();
    let error = objects(&twice, &entry()).unwrap_err();
    assert!(error.contains("not a release of Helm"), "{error}");
}

#[test]
fn a_release_without_compression_is_plain_json() {
    let plain = STANDARD.encode(release(MANIFEST).to_string()).into_bytes();
    assert_eq!(objects(&plain, &entry()), Ok(expected()));
}

#[test]
fn a_hook_before_an_upgrade_is_found() {
    for (hooks, expected) in [
        (json!(null), false),
        (json!([]), false),
        (json!([{ "name": "a", "events": null }]), false),
        (json!([{ "events": ["post-upgrade", "test"] }]), false),
        (json!([{ "events": ["pre-install", "pre-upgrade"] }]), true),
        (
            json!([{ "events": ["test"] }, { "events": ["pre-upgrade"] }]),
            true,
        ),
    ] {
        let mut one = release(MANIFEST);
        one["hooks"] = hooks.clone();
        let found = content(&stored(&one), &entry()).unwrap();
        assert_eq!(found.has_upgrade_hooks, expected, "{hooks}");
        assert_eq!(found.objects, self::expected(), "{hooks}");
    }
}

#[test]
fn a_manifest_without_objects_is_empty() {
    for manifest in ["", "---\n", "---\n# Source: nothing\n---\n"] {
        let found = objects(&stored(&release(manifest)), &entry());
        assert_eq!(found, Ok(BTreeSet::new()), "{manifest}");
    }
}

#[test]
fn content_that_is_no_release_is_an_error_without_a_value() {
    let mut other = release(MANIFEST);
    other["version"] = json!(4);
    let mut nameless = release(MANIFEST);
    nameless["name"] = json!("other");
    let mut elsewhere = release(MANIFEST);
    elsewhere["namespace"] = json!("other");
    let broken = format!("kind: Deployment\nmetadata: {{name: {CANARY}");
    let text = |content: &str| STANDARD.encode(content).into_bytes();
    for (content, named) in [
        (b"not base64!".to_vec(), "not base64"),
        (text(CANARY), "not a release of Helm"),
        (
            text(&json!({ "name": CANARY, "version": CANARY }).to_string()),
            "not a release of Helm",
        ),
        (
            STANDARD.encode([0x1f, 0x8b, 0x08, 1, 2]).into_bytes(),
            "cannot be decompressed",
        ),
        (stored(&other), "another release"),
        (stored(&nameless), "another release"),
        (stored(&elsewhere), "another release"),
        (stored(&release(&broken)), "not YAML"),
        (vec![b'a'; MAX_STORED + 1], "more than 1 MiB"),
    ] {
        let error = objects(&content, &entry()).unwrap_err();
        assert!(error.contains(named), "{named}: {error}");
        assert!(!error.contains(CANARY), "{error}");
    }
}

/// The table of forms in which YAML can write the kind of a Deployment.
#[test]
fn no_form_of_a_document_hides_a_workload() {
    let web = ObjectId::new(ObjectKind::Deployment, "shop", "web");
    let tail = "apiVersion: apps/v1\nmetadata: {name: web}\n";
    let item = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}}";
    for document in [
        format!("kind: Deployment\n{tail}"),
        format!("kind: Deployment # the shop\n{tail}"),
        format!("kind: 'Deployment'\n{tail}"),
        format!("'kind': Deployment\n{tail}"),
        format!("kind:   \"Deployment\"\n{tail}"),
        format!("kind: \"Deploy\\x6dent\"\n{tail}"),
        format!("kind: >-\n  Deployment\n{tail}"),
        format!("kind: |-\n  Deployment\n{tail}"),
        format!("kind:\n  Deployment\n{tail}"),
        format!("kind: !!str Deployment\n{tail}"),
        format!("anchor: &kind Deployment\nkind: *kind\n{tail}"),
        "  kind: Deployment\n  apiVersion: apps/v1\n  metadata: {name: web}\n".to_owned(),
        format!("# a comment\n{item}\n"),
        format!("kind: List\napiVersion: v1\nitems:\n- {item}\n"),
        format!("kind: DeploymentList\napiVersion: apps/v1\nitems: [{item}]\n"),
    ] {
        let found = objects(&stored(&release(&document)), &entry());
        assert_eq!(found, Ok([web.clone()].into()), "{document}");
    }
    // A document that the parser does not split is an error.
    let hidden = format!("kind: Secret\n--- {item}\n");
    assert!(objects(&stored(&release(&hidden)), &entry()).is_err());
    // A large document of another kind is not parsed.
    let text = format!("kind: ConfigMap\ndata: {{ text: [ {item}\n");
    assert_eq!(objects(&stored(&release(&text)), &entry()), Ok([].into()));
}

#[test]
fn a_manifest_has_a_limited_number_of_objects() {
    let manifest = |count: usize| {
        let one = |number: usize| {
            format!(
                "---\nkind: PersistentVolumeClaim\napiVersion: v1\nmetadata: {{name: p{number}}}\n"
            )
        };
        (0..count).map(one).collect::<String>()
    };
    let found = |count: usize| objects(&stored(&release(&manifest(count))), &entry());
    assert_eq!(found(MAX_OBJECTS).map(|all| all.len()), Ok(MAX_OBJECTS));
    assert!(found(MAX_OBJECTS + 1).unwrap_err().contains("more than"));
}

/// The table of locations: the namespace, the name and the version of a release, and whether they are valid.
#[test]
fn a_location_is_no_path_of_another_request() {
    let long = "a".repeat(64);
    for (namespace, name, version, is_valid) in [
        ("shop", "shop", 1, true),
        ("shop", "shop-2.db", 12, true),
        ("shop", "../../../kube-system/secrets/x", 1, false),
        ("shop", "shop/../x", 1, false),
        ("shop", "shop?watch=true", 1, false),
        ("shop", "", 1, false),
        ("shop", long.as_str(), 1, false),
        ("shop", "shop", 0, false),
        ("shop", "shop", -1, false),
        ("../shop", "shop", 1, false),
        ("a/secrets/b", "shop", 1, false),
        ("", "shop", 1, false),
        (long.as_str(), "shop", 1, false),
    ] {
        let found = check_location(namespace, name, version);
        assert_eq!(found.is_ok(), is_valid, "{namespace}, {name}, {version}");
    }
}

/// A release that decompresses to 1 GB must not fill the memory of the operator.
#[test]
fn a_release_that_is_too_large_is_an_error() {
    let zeros = vec![b' '; usize::try_from(MAX_DECODED).unwrap() + 1];
    let bomb = STANDARD.encode(gzip(&zeros)).into_bytes();
    assert!(bomb.len() < MAX_STORED, "{}", bomb.len());
    let error = objects(&bomb, &entry()).unwrap_err();
    assert!(error.contains("more than 32 MiB"), "{error}");
}

/// Aliases that double at each level are limited by the parser.
#[test]
fn a_manifest_of_nested_aliases_is_an_error() {
    let mut manifest = "kind: Deployment\nmetadata: {name: web}\na0: &a0 [x, x]\n".to_owned();
    for level in 1..40 {
        let below = level - 1;
        manifest.push_str(&format!("a{level}: &a{level} [*a{below}, *a{below}]\n"));
    }
    let error = objects(&stored(&release(&manifest)), &entry()).unwrap_err();
    assert!(error.contains("not YAML"), "{error}");
}

proptest! {
    #[test]
    fn no_content_panics(content in proptest::collection::vec(any::<u8>(), 0..200)) {
        drop(objects(&content, &entry()));
        drop(objects(STANDARD.encode(&content).as_bytes(), &entry()));
        drop(objects(STANDARD.encode(gzip(&content)).as_bytes(), &entry()));
    }

    #[test]
    fn no_manifest_panics(manifest in "(---\n|kind: Deployment\n|metadata: |[ -~\n]){0,40}") {
        drop(objects(&stored(&release(&manifest)), &entry()));
    }

    /// A document is either before a separator or after it.
    #[test]
    fn documents_lose_nothing(parts in proptest::collection::vec("[a-z: \n]{0,20}", 1..5)) {
        let parts: Vec<String> = parts.into_iter().map(|part| part + "\n").collect();
        let manifest = parts.join("---\n");
        let found: Vec<&str> = documents(&manifest).collect();
        prop_assert_eq!(found, parts);
    }
}
