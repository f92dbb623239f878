//! Files that are edited.

use super::*;

/// A file of which `@` is replaced by `before`, and must be replaced by `after`.
struct Edit {
    name: &'static str,
    file: &'static str,
    path: &'static str,
    before: &'static str,
    to: &'static str,
    after: &'static str,
}

const VERSION: Edit = Edit {
    name: "",
    file: "",
    path: "spec.chart.spec.version",
    before: "1.2.3",
    to: "1.3.0",
    after: "1.3.0",
};

const PLAIN: &str =
    "kind: HelmRelease\nmetadata:\n  name: shop\nspec:\n  chart:\n    spec:\n      version: @\n";

#[test]
fn edits() {
    let cases = [
        Edit {
            name: "plain",
            file: PLAIN,
            ..VERSION
        },
        Edit {
            name: "single quotes",
            file: PLAIN,
            before: "'1.2.3'",
            after: "'1.3.0'",
            ..VERSION
        },
        Edit {
            name: "double quotes",
            file: PLAIN,
            before: "\"1.2.3\"",
            after: "\"1.3.0\"",
            ..VERSION
        },
        Edit {
            name: "escapes in double quotes",
            file: PLAIN,
            before: "\"\\x31.2\\u002e3\"",
            after: "\"1.3.0\"",
            ..VERSION
        },
        Edit {
            name: "number",
            file: PLAIN,
            to: "1.20",
            after: "\"1.20\"",
            ..VERSION
        },
        Edit {
            name: "boolean",
            file: PLAIN,
            to: "on",
            after: "\"on\"",
            ..VERSION
        },
        Edit {
            name: "null",
            file: PLAIN,
            to: "null",
            after: "\"null\"",
            ..VERSION
        },
        Edit {
            name: "date",
            file: PLAIN,
            to: "2024-01-15",
            after: "\"2024-01-15\"",
            ..VERSION
        },
        Edit {
            name: "range",
            file: PLAIN,
            to: ">=1.2 <2",
            after: "\">=1.2 <2\"",
            ..VERSION
        },
        Edit {
            name: "number in single quotes",
            file: PLAIN,
            before: "'1.1'",
            to: "1.20",
            after: "'1.20'",
            ..VERSION
        },
        Edit {
            name: "number before",
            file: PLAIN,
            before: "1.1",
            ..VERSION
        },
        Edit {
            name: "quote in single quotes",
            file: PLAIN,
            before: "'it''s'",
            to: "it's 2",
            after: "'it''s 2'",
            ..VERSION
        },
        Edit {
            name: "comments stay",
            file: "# 1.2.3\nkind: HelmRelease # 1.2.3\nmetadata:\n  # shop\n  name: shop\nspec:\n  chart:\n    spec:\n      # version: 1.2.3\n      version: @ # {\"$imagepolicy\": \"a:b\"}\n      # end\n",
            ..VERSION
        },
        Edit {
            name: "comment without space stays in the value",
            file: PLAIN,
            before: "1.2.3#x",
            ..VERSION
        },
        Edit {
            name: "spaces and tabs stay",
            file: "kind:   HelmRelease  \nmetadata:\n    name:   shop\nspec:\n    chart:\n          spec:\n            version:   @  \t\n\n\n",
            ..VERSION
        },
        Edit {
            name: "CRLF",
            file: "kind: HelmRelease\r\nmetadata:\r\n  name: shop\r\nspec:\r\n  chart:\r\n    spec:\r\n      version: @\r\n",
            ..VERSION
        },
        Edit {
            name: "mixed line endings",
            file: "kind: HelmRelease\r\nmetadata:\n  name: shop\rspec:\n  chart:\r\n    spec:\n      version: @\r",
            ..VERSION
        },
        Edit {
            name: "byte order mark",
            file: "\u{feff}kind: HelmRelease\nmetadata:\n  name: shop\nspec:\n  chart:\n    spec:\n      version: @\n",
            ..VERSION
        },
        Edit {
            name: "no newline at the end",
            file: "kind: HelmRelease\nmetadata:\n  name: shop\nspec:\n  chart:\n    spec:\n      version: @",
            ..VERSION
        },
        Edit {
            name: "letters of several bytes before the scalar",
            file: "# Ünïcödé 😀\nkind: HelmRelease\nmetadata:\n  name: shop\n  labels: {ö: \"ü😀\"}\nspec:\n  chart:\n    spec:\n      version: @\n",
            ..VERSION
        },
        Edit {
            name: "flow style",
            file: "{kind: HelmRelease, metadata: {name: shop}, spec: {chart: {spec: {version: @, x: 1}}}}\n",
            ..VERSION
        },
        Edit {
            name: "JSON",
            file: "{\"kind\":\"HelmRelease\",\"metadata\":{\"name\":\"shop\"},\"spec\":{\"chart\":{\"spec\":{\"version\":@}}}}",
            before: "\"1.2.3\"",
            after: "\"1.3.0\"",
            ..VERSION
        },
        Edit {
            name: "quoted keys",
            file: "\"kind\": 'HelmRelease'\n'metadata':\n  \"name\": \"shop\"\nspec:\n  'chart':\n    spec:\n      \"version\": @\n",
            ..VERSION
        },
        Edit {
            name: "the second of several documents",
            file: "---\nkind: HelmRelease\nmetadata:\n  name: other\nspec: {chart: {spec: {version: 1.2.3}}}\n---\nkind: HelmRelease\nmetadata:\n  name: shop\nspec: {chart: {spec: {version: @}}}\n---\nkind: ConfigMap\nmetadata:\n  name: shop\n...\n",
            ..VERSION
        },
        Edit {
            name: "empty documents",
            file: "---\n---\n# nothing\n---\nkind: HelmRelease\nmetadata: {name: shop}\nspec: {chart: {spec: {version: @}}}\n---\n",
            ..VERSION
        },
        Edit {
            name: "anchor elsewhere",
            file: "kind: HelmRelease\nmetadata: {name: shop}\nspec:\n  values: &v {a: 1}\n  more: *v\n  chart:\n    spec:\n      version: @\n",
            ..VERSION
        },
        Edit {
            name: "tag elsewhere",
            file: "kind: HelmRelease\nmetadata: {name: shop}\nspec:\n  values: !!str 1\n  chart:\n    spec:\n      version: @\n",
            ..VERSION
        },
        Edit {
            name: "merge key elsewhere",
            file: "kind: HelmRelease\nmetadata: {name: shop}\nspec:\n  a: &a {b: 1}\n  values: {<<: *a}\n  chart:\n    spec:\n      version: @\n",
            ..VERSION
        },
        Edit {
            name: "block scalars with similar text",
            file: "kind: HelmRelease\nmetadata: {name: shop}\nspec:\n  values:\n    text: |\n      spec:\n        chart: {spec: {version: 1.2.3}}\n      {{ .Values.x }}\n    folded: >-\n      version: 1.2.3\n  chart:\n    spec:\n      version: @\n",
            ..VERSION
        },
        Edit {
            name: "template in quotes elsewhere",
            file: "kind: HelmRelease\nmetadata: {name: shop}\nspec:\n  values: {expr: \"{{ $labels.pod }}\"}\n  chart:\n    spec:\n      version: @\n",
            ..VERSION
        },
        Edit {
            name: "list by number",
            file: "kind: HelmRelease\nmetadata: {name: shop}\nspec:\n  list:\n  - 1.2.3\n  - @\n  - 1.2.3\n",
            path: "spec.list[1]",
            ..VERSION
        },
        Edit {
            name: "item by name",
            file: "kind: HelmRelease\nmetadata: {name: shop}\nimages:\n- name: a\n  newTag: 1.2.3\n- newTag: @\n  name: ghcr.io/x/b\n",
            path: "images[name=ghcr.io/x/b].newTag",
            ..VERSION
        },
        Edit {
            name: "container image",
            file: "kind: HelmRelease\nmetadata: {name: shop}\nspec:\n  template:\n    spec:\n      containers:\n        - name: side\n          image: side:1\n        - name: app\n          image: @\n",
            path: "spec.template.spec.containers[name=app].image",
            before: "nginx:1.25",
            to: "nginx:1.26@sha256:00ff",
            after: "nginx:1.26@sha256:00ff",
        },
        Edit {
            name: "key with dots",
            file: "kind: HelmRelease\nmetadata:\n  name: shop\n  annotations:\n    a.b/c: @\n",
            path: "metadata.annotations['a.b/c']",
            ..VERSION
        },
        Edit {
            name: "longer value",
            file: PLAIN,
            to: "1.3.0-rc.1.20260101.deadbeef",
            after: "1.3.0-rc.1.20260101.deadbeef",
            ..VERSION
        },
        Edit {
            name: "scalar on the next line",
            file: "kind: HelmRelease\nmetadata: {name: shop}\nspec:\n  chart:\n    spec:\n      version:\n        @\n",
            ..VERSION
        },
        Edit {
            name: "explicit key",
            file: "kind: HelmRelease\nmetadata: {name: shop}\nspec:\n  chart:\n    spec:\n      ? version\n      : @\n",
            ..VERSION
        },
    ];
    for case in cases {
        let before = case.file.replace(MARK, case.before);
        let after = case.file.replace(MARK, case.after);
        let edited = edit(&before, &helm_release(), case.path, case.to);
        assert_eq!(edited, Ok(after), "{}", case.name);
    }
}
