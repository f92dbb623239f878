//! Tests of whole files.

mod edits;
mod properties;
mod rejected;

use crate::*;

/// Marks the scalar in the files of the tables.
const MARK: char = '@';

const HEAD: &str = "kind: HelmRelease\nmetadata: {name: shop}\n";

fn helm_release() -> Document {
    Document {
        api_version: None,
        kind: Some("HelmRelease".to_owned()),
        name: Some("shop".to_owned()),
        namespace: None,
    }
}

fn path(text: &str) -> FieldPath {
    FieldPath::parse(text).unwrap()
}

fn edit(source: &str, document: &Document, at: &str, to: &str) -> Result<String, Rejection> {
    let from = read(source.as_bytes(), document, &path(at))?.value;
    let edited = replace(source.as_bytes(), document, &path(at), &from, to)?;
    Ok(String::from_utf8(edited.bytes).unwrap())
}

/// Returns a HelmRelease with this text below `spec`.
fn release(spec: &str) -> String {
    format!("{HEAD}spec:\n{spec}\n")
}

#[test]
fn documents_are_selected_by_all_given_fields() {
    let file = "apiVersion: v1\nkind: A\nmetadata: {name: x, namespace: n1}\nv: one\n---\napiVersion: v2\nkind: A\nmetadata: {name: x, namespace: n1}\nv: two\n---\napiVersion: v1\nkind: A\nmetadata: {name: x, namespace: n2}\nv: three\n---\nv: four\n";
    let some = |text: &str| Some(text.to_owned());
    let document = |version: Option<&str>, kind: Option<&str>, namespace: Option<&str>| Document {
        api_version: version.and_then(some),
        kind: kind.and_then(some),
        name: None,
        namespace: namespace.and_then(some),
    };
    for (wanted, expected) in [
        (document(Some("v2"), None, None), Ok("two")),
        (document(Some("v1"), Some("A"), Some("n1")), Ok("one")),
        (document(None, None, Some("n2")), Ok("three")),
        (
            document(Some("v1"), None, None),
            Err(Rejection::SeveralDocuments { count: 2 }),
        ),
        (
            document(None, None, None),
            Err(Rejection::SeveralDocuments { count: 4 }),
        ),
        (
            document(None, Some("B"), None),
            Err(Rejection::DocumentNotFound),
        ),
    ] {
        let found = read(file.as_bytes(), &wanted, &path("v")).map(|scalar| scalar.value);
        assert_eq!(found, expected.map(str::to_owned), "{wanted:?}");
    }
    // A kustomization.yaml has no name, and often no kind.
    let single = "images:\n- {name: a, newTag: v1}\n";
    let found = read(
        single.as_bytes(),
        &Document::default(),
        &path("images[name=a].newTag"),
    );
    let expected = Scalar {
        value: "v1".to_owned(),
        line: 2,
        text: "- {name: a, newTag: v1}".to_owned(),
        is_in_flow: true,
    };
    assert_eq!(found, Ok(expected));
}

#[test]
fn lines_before_and_after() {
    let source = release("  chart:\r\n    spec: {version: 1.2.3} # end\r\n  x: 1.2.3");
    let at = path("spec.chart.spec.version");
    let edited = replace(source.as_bytes(), &helm_release(), &at, "1.2.3", "1.20").unwrap();
    let scalar = |value: &str, text: &str| Scalar {
        value: value.to_owned(),
        line: 5,
        text: text.to_owned(),
        is_in_flow: true,
    };
    let before = scalar("1.2.3", "    spec: {version: 1.2.3} # end");
    assert_eq!(edited.before, before);
    let after = scalar("1.20", "    spec: {version: \"1.20\"} # end");
    assert_eq!(edited.after, after);
}

#[test]
fn another_value_is_not_replaced() {
    let source = release("  chart: {spec: {version: 1.2.3}}");
    let at = path("spec.chart.spec.version");
    let run = |from: &str, to: &str| replace(source.as_bytes(), &helm_release(), &at, from, to);
    let found = "1.2.3".to_owned();
    assert_eq!(run("1.2", "1.3.0"), Err(Rejection::ValueChanged { found }));
    assert_eq!(run("1.2.3", "1.2.3"), Err(Rejection::SameValue));
    for to in ["", "a\nb", "{{ x }}"] {
        assert!(
            matches!(run("1.2.3", to), Err(Rejection::NewValue(_))),
            "{to}"
        );
    }
    let long = "1".repeat(MAX_VALUE_BYTES + 1);
    assert!(matches!(run("1.2.3", &long), Err(Rejection::NewValue(_))));
}

#[test]
fn a_file_does_not_grow_beyond_the_limit() {
    let source = release("  chart: {spec: {version: 1.2.3}}");
    let filler = "x".repeat(MAX_FILE_BYTES - source.len() - 1);
    let full = format!("{source}#{filler}");
    assert_eq!(full.len(), MAX_FILE_BYTES);
    let at = "spec.chart.spec.version";
    assert!(edit(&full, &helm_release(), at, "1.2.4").is_ok());
    let edited = edit(&full, &helm_release(), at, "1.2.34");
    assert!(matches!(edited, Err(Rejection::TooLarge { .. })));
}

#[test]
fn a_difference_elsewhere_is_found() {
    let node = |text: &str| tree::parse(text).map(|tree| tree.nodes.len());
    assert_eq!(node("a: [b, c]"), Ok(5));
    let prove = |old, new, index, to| prove(&tree::parse(old)?, &tree::parse(new)?, index, to);
    for (old, new, is_proven) in [
        ("a: b\nc: d", "a: x\nc: d", true),
        ("a: b\nc: d", "a: \"x\"\nc: d", true),
        ("a: 'b'\nc: d", "a: \"x\"\nc: d", false),
        ("a: b\nc: d", "a: y\nc: d", false),
        ("a: b\nc: d", "a: x\nc: e", false),
        ("a: b\nc: d", "a: x\nc: 'd'", false),
        ("a: b\nc: d", "a: x\nc: !t d", false),
        ("a: b\nc: d", "a: x\nc: &t d", false),
        ("a: b\nc: d", "a: x\nc: d\n---\n", false),
        ("a: b\nc: d", "a: x\nc: [d]", false),
        ("a: b\nc: [d]", "a: x\nc: {d: }", false),
        ("a: b\nc: d", "a: x # c: d", false),
    ] {
        assert_eq!(prove(old, new, 2, "x").is_ok(), is_proven, "{new}");
    }
}
