//! Fields and files that are rejected.

use super::*;

/// Returns whether a rejection is the expected one.
type Check = fn(&Rejection) -> bool;

#[test]
fn rejected_fields() {
    let at = || "spec.chart.spec.version".to_owned();
    let text = str::to_owned;
    for (name, spec, expected) in [
        (
            "anchor at the scalar",
            "  chart: {spec: {version: &v 1.2.3}}\n  x: *v",
            Rejection::Anchor { at: at() },
        ),
        (
            "anchor above the scalar",
            "  chart: &c\n    spec: {version: 1.2.3}\n  x: *c",
            Rejection::Anchor {
                at: text("spec.chart"),
            },
        ),
        (
            "alias at the scalar",
            "  x: &v 1.2.3\n  chart: {spec: {version: *v}}",
            Rejection::Alias { at: at() },
        ),
        (
            "alias above the scalar",
            "  x: &c {spec: {version: 1.2.3}}\n  chart: *c",
            Rejection::Alias {
                at: text("spec.chart"),
            },
        ),
        (
            "merge key beside the scalar",
            "  x: &m {version: 1.2.3}\n  chart:\n    spec:\n      <<: *m\n      version: 1.2.3",
            Rejection::MergeKey {
                at: text("spec.chart.spec"),
            },
        ),
        (
            "tag at the scalar",
            "  chart: {spec: {version: !!str 1.2}}",
            Rejection::Tag { at: at() },
        ),
        (
            "tag above the scalar",
            "  chart: !custom {spec: {version: 1.2}}",
            Rejection::Tag {
                at: text("spec.chart"),
            },
        ),
        (
            "duplicate key",
            "  chart: {spec: {version: 1.2.3, \"version\": 1.2.4}}",
            Rejection::DuplicateKey {
                at: text("spec.chart.spec"),
                key: text("version"),
            },
        ),
        (
            "another duplicate key",
            "  chart:\n    spec: {version: 1.2.3}\n    a: 1\n    a: 2",
            Rejection::DuplicateKey {
                at: text("spec.chart"),
                key: text("a"),
            },
        ),
        (
            "key that is a list",
            "  chart:\n    spec:\n      version: 1.2.3\n      ? [a]\n      : b",
            Rejection::ComplexKey {
                at: text("spec.chart.spec"),
            },
        ),
        (
            "literal scalar",
            "  chart:\n    spec:\n      version: |-\n        1.2.3",
            Rejection::MultiLine { at: at() },
        ),
        (
            "folded scalar",
            "  chart:\n    spec:\n      version: >-\n        1.2.3",
            Rejection::MultiLine { at: at() },
        ),
        (
            "plain scalar on two lines",
            "  chart:\n    spec:\n      version: 1.2\n        3",
            Rejection::MultiLine { at: at() },
        ),
        (
            "quoted scalar on two lines",
            "  chart:\n    spec:\n      version: \"1.2\n        3\"",
            Rejection::MultiLine { at: at() },
        ),
        (
            "no value",
            "  chart:\n    spec:\n      version: # 1.2",
            Rejection::Empty { at: at() },
        ),
        (
            "null",
            "  chart: {spec: {version: null}}",
            Rejection::Empty { at: at() },
        ),
        (
            "tilde",
            "  chart: {spec: {version: ~}}",
            Rejection::Empty { at: at() },
        ),
        (
            "mapping",
            "  chart: {spec: {version: {a: 1}}}",
            Rejection::NotAScalar { at: at() },
        ),
        (
            "list",
            "  chart: {spec: {version: [1]}}",
            Rejection::NotAScalar { at: at() },
        ),
        (
            "missing",
            "  chart: {spec: {x: 1}}",
            Rejection::FieldNotFound { at: at() },
        ),
        (
            "missing parent",
            "  chart: {x: 1}",
            Rejection::FieldNotFound {
                at: text("spec.chart.spec"),
            },
        ),
        (
            "scalar above",
            "  chart: {spec: 1}",
            Rejection::FieldNotFound { at: at() },
        ),
        (
            "template in quotes",
            "  chart:\n    spec:\n      version: \"{{ .Values.version }}\"",
            Rejection::Template { line: 6 },
        ),
        (
            "template without quotes",
            "  chart:\n    spec:\n      version: {{ .Values.version }}",
            Rejection::Template { line: 6 },
        ),
    ] {
        let source = release(spec);
        let edited = edit(&source, &helm_release(), "spec.chart.spec.version", "2.0.0");
        assert_eq!(edited, Err(expected), "{name}");
    }
}

#[test]
fn rejected_lists() {
    let text = str::to_owned;
    for (name, spec, at, expected) in [
        (
            "two items of one name",
            "  images: [{name: a, t: 1.1.1}, {name: a, t: 2.2.2}]",
            "spec.images[name=a].t",
            Rejection::SeveralItems {
                at: text("spec.images[name=a]"),
            },
        ),
        (
            "no item of the name",
            "  images: [{name: b, t: 1.1.1}, c, [d]]",
            "spec.images[name=a].t",
            Rejection::FieldNotFound {
                at: text("spec.images[name=a]"),
            },
        ),
        (
            "item that is an alias",
            "  x: &i {name: a, t: 1.1.1}\n  images: [*i]",
            "spec.images[name=a].t",
            Rejection::Alias {
                at: text("spec.images[name=a]"),
            },
        ),
        (
            "item with an anchor",
            "  images: [&i {name: a, t: 1.1.1}]",
            "spec.images[name=a].t",
            Rejection::Anchor {
                at: text("spec.images[name=a]"),
            },
        ),
        (
            "name that a merge key may give",
            "  x: &i {name: a}\n  images: [{<<: *i, t: 1.1.1}]",
            "spec.images[name=a].t",
            Rejection::MergeKey { at: text(".") },
        ),
        (
            "number that is too large",
            "  images: [a]",
            "spec.images[1]",
            Rejection::FieldNotFound {
                at: text("spec.images[1]"),
            },
        ),
        (
            "mapping instead of a list",
            "  images: {a: b}",
            "spec.images[0]",
            Rejection::FieldNotFound {
                at: text("spec.images[0]"),
            },
        ),
    ] {
        let edited = edit(&release(spec), &helm_release(), at, "2.0.0");
        assert_eq!(edited, Err(expected), "{name}");
    }
}

#[test]
fn rejected_files() {
    let at = "spec.chart.spec.version";
    let good = release("  chart: {spec: {version: 1.2.3}}");
    assert!(edit(&good, &helm_release(), at, "2.0.0").is_ok());
    let deep = format!("{}{}", "[".repeat(MAX_DEPTH + 1), "]".repeat(MAX_DEPTH + 1));
    let blocks: String = (0..=MAX_DEPTH)
        .map(|depth| format!("{}a:\n", " ".repeat(depth)))
        .collect();
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let alias = format!("*a{}, ", level - 1).repeat(10);
        bomb.push_str(&format!("a{level}: &a{level} [{alias}]\n"));
    }
    let cases: [(&str, String, Check); 22] = [
        (
            "too large",
            format!("{good}# {}", "x".repeat(MAX_FILE_BYTES)),
            |error| matches!(error, Rejection::TooLarge { .. }),
        ),
        ("control character", format!("{good}# \u{7}"), |error| {
            *error == Rejection::Character { line: 5, code: 7 }
        }),
        (
            "line break of YAML 1.1",
            format!("# a\u{2028}b\n{good}"),
            |error| {
                *error
                    == Rejection::Character {
                        line: 1,
                        code: 0x2028,
                    }
            },
        ),
        (
            "second byte order mark",
            format!("{good}# \u{feff}"),
            |error| {
                *error
                    == Rejection::Character {
                        line: 5,
                        code: 0xfeff,
                    }
            },
        ),
        (
            "end of the file for the parser",
            format!("{good}\0"),
            |error| *error == Rejection::Character { line: 5, code: 0 },
        ),
        ("syntax", format!("{good}  - a\n b: ]"), |error| {
            matches!(error, Rejection::Syntax { .. })
        }),
        (
            "directive of a template",
            format!("{good}{{{{- if .Values.x }}}}\na: b\n"),
            |error| matches!(error, Rejection::Template { .. }),
        ),
        (
            "too many documents",
            format!("{good}{}", "---\n".repeat(MAX_DOCUMENTS)),
            |error| *error == Rejection::TooManyDocuments,
        ),
        (
            "too many values",
            format!("{good}a: [{}]", "1,".repeat(MAX_NODES)),
            |error| *error == Rejection::TooManyNodes,
        ),
        ("nested brackets", format!("{good}a: {deep}"), |error| {
            matches!(error, Rejection::TooDeep { .. })
        }),
        ("nested blocks", format!("{good}---\n{blocks}"), |error| {
            matches!(error, Rejection::TooDeep { .. })
        }),
        (
            "aliases of aliases",
            format!("{good}---\n{bomb}"),
            |error| matches!(error, Rejection::Expansion { .. }),
        ),
        (
            "alias in itself",
            format!("{good}---\na: &a [*a]"),
            |error| matches!(error, Rejection::Expansion { .. }),
        ),
        ("unknown alias", format!("{good}---\na: *b"), |error| {
            matches!(error, Rejection::Syntax { .. })
        }),
        ("no document", good.replace("shop", "other"), |error| {
            *error == Rejection::DocumentNotFound
        }),
        (
            "another kind",
            good.replace("HelmRelease", "Other"),
            |error| *error == Rejection::DocumentNotFound,
        ),
        ("list of values", "- a\n".to_owned(), |error| {
            *error == Rejection::DocumentNotFound
        }),
        ("nothing", String::new(), |error| {
            *error == Rejection::DocumentNotFound
        }),
        ("two documents", format!("{good}---\n{good}"), |error| {
            *error == Rejection::SeveralDocuments { count: 2 }
        }),
        (
            "name that is an alias",
            good.replace("shop}", "*n}")
                .replace("kind", "x: &n shop\nkind"),
            |error| matches!(error, Rejection::Alias { .. }),
        ),
        ("two kinds", format!("kind: HelmRelease\n{good}"), |error| {
            matches!(error, Rejection::DuplicateKey { .. })
        }),
        (
            "metadata of a merge key",
            format!("kind: HelmRelease\n<<: {{}}\nspec: 1\n---\n{good}"),
            |error| matches!(error, Rejection::MergeKey { .. }),
        ),
    ];
    for (name, source, is_expected) in cases {
        let error = edit(&source, &helm_release(), at, "2.0.0").unwrap_err();
        assert!(is_expected(&error), "{name}: {error:?}");
    }
    let latin = read(b"kind: caf\xe9", &helm_release(), &path(at));
    assert_eq!(latin, Err(Rejection::NotUtf8 { offset: 9 }));
    let utf16 = read(b"\xff\xfek\0i\0", &helm_release(), &path(at));
    assert_eq!(utf16, Err(Rejection::NotUtf8 { offset: 0 }));
}
