use std::collections::BTreeMap;

use super::*;

fn walk(schema: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
    visit(path, schema);
    let fields = schema.get("properties").and_then(Value::as_object);
    for (name, field) in fields.into_iter().flat_map(Map::iter) {
        walk(field, &format!("{path}.{name}"), visit);
    }
    for (key, name) in [("items", "0"), ("additionalProperties", "key")] {
        if let Some(inner) = schema.get(key) {
            walk(inner, &format!("{path}.{name}"), visit);
        }
    }
}

#[test]
fn each_pattern_has_samples() {
    let mut seen = 0;
    for catalogue in tasks().unwrap() {
        walk(&catalogue.schema, &catalogue.kind, &mut |path, schema| {
            if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
                seen += 1;
                let known = samples::of_pattern(pattern);
                let (good, bad) = known.unwrap_or_else(|| panic!("{path}: no sample of {pattern}"));
                assert!(!good.is_empty() && !bad.is_empty(), "{path}");
            }
        });
    }
    assert!(seen > 20, "only {seen} patterns");
}

#[test]
fn each_field_is_changed_in_several_ways() {
    for catalogue in tasks().unwrap() {
        let mut ways: BTreeMap<String, usize> = BTreeMap::new();
        for change in &catalogue.changes {
            *ways.entry(change.path.join(".")).or_default() += 1;
        }
        walk(&catalogue.schema, "", &mut |path, _| {
            let path = path.trim_start_matches('.');
            let count = ways.get(path).copied().unwrap_or_default();
            assert!(
                path.is_empty() || count >= 5,
                "{}: {path} {count}",
                catalogue.kind
            );
        });
    }
}

#[test]
fn a_name_is_one_change_and_finds_it() {
    let catalogues = tasks().unwrap();
    let mut names = BTreeSet::new();
    for one in choose(&catalogues, 6000, 1) {
        assert!(names.insert(one.name.clone()), "twice: {}", one.name);
        assert!(!one.name.contains(char::is_whitespace), "{}", one.name);
        assert_eq!(find(&catalogues, &one.name).as_ref(), Some(&one));
    }
    assert_eq!(names.len(), 6000);
    assert_eq!(find(&catalogues, "Agent/bare:image=nothing"), None);
}

#[test]
fn the_seed_chooses() {
    let catalogues = tasks().unwrap();
    let chosen = |seed| choose(&catalogues, 300, seed);
    assert_eq!(chosen(1), chosen(1));
    assert_ne!(chosen(1), chosen(2));
    assert_eq!(chosen(1).len(), 300);
    let kinds: BTreeSet<String> = chosen(1).into_iter().map(|one| one.kind).collect();
    assert_eq!(kinds.len(), 3, "{kinds:?}");
    let pairs = chosen(1)
        .iter()
        .filter(|one| one.name.contains('+'))
        .count();
    assert_eq!(pairs, 75);
}

#[test]
fn a_change_is_made_where_its_name_says() {
    let catalogues = tasks().unwrap();
    let cases = [
        ("Agent/bare:image=absent", "/image", None, Expect::Refused),
        (
            "Agent/bare:image=longest",
            "/image",
            Some(json!("a".repeat(512))),
            Expect::Taken,
        ),
        (
            "Agent/bare:image=too-long",
            "/image",
            Some(json!("a".repeat(513))),
            Expect::Refused,
        ),
        (
            "Agent/full:env.0.name=number",
            "/env/0/name",
            Some(json!(7)),
            Expect::Refused,
        ),
        (
            "Agent/bare:env.0.name=fits-A",
            "/env/0/name",
            Some(json!("A")),
            Expect::Maybe,
        ),
        (
            "Agent/bare:runAsUser=least",
            "/runAsUser",
            Some(json!(1)),
            Expect::Taken,
        ),
        (
            "Agent/bare:runAsUser=below-least",
            "/runAsUser",
            Some(json!(0)),
            Expect::Refused,
        ),
        (
            "Agent/bare:results=twice-the-same",
            "/results/1/name",
            Some(json!("a")),
            Expect::Refused,
        ),
        (
            "Agent/bare:tolerations.0.effect=NoExecute",
            "/tolerations/0/effect",
            Some(json!("NoExecute")),
            Expect::Maybe,
        ),
        (
            "TaskRun/waits:childTTL.failed=sample-1s",
            "/childTTL/failed",
            Some(json!("1s")),
            Expect::Maybe,
        ),
        (
            "DocsRun/held:output.branch=number+suspend=false",
            "/suspend",
            Some(json!(false)),
            Expect::Refused,
        ),
        (
            "DocsRun/held:suspend=null",
            "/suspend",
            Some(Value::Null),
            Expect::Maybe,
        ),
    ];
    for (name, path, value, expect) in cases {
        let one = find(&catalogues, name).unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(one.spec.pointer(path), value.as_ref(), "{name}");
        assert_eq!(one.expect, expect, "{name}");
        assert_ne!(one.spec, one.base, "{name}");
    }
}

#[test]
fn a_patch_makes_one_spec_from_another() {
    let cases = [
        (json!({"a": 1}), json!({"a": 1}), json!({})),
        (json!({"a": 1}), json!({"a": 2}), json!({"a": 2})),
        (json!({"a": 1, "b": 2}), json!({"b": 2}), json!({"a": null})),
        (
            json!({"a": {"b": 1, "c": 2}}),
            json!({"a": {"c": 3}}),
            json!({"a": {"b": null, "c": 3}}),
        ),
        (json!({"a": {"b": 1}}), json!({"a": "x"}), json!({"a": "x"})),
        (json!({"a": [1, 2]}), json!({"a": [2]}), json!({"a": [2]})),
        (json!({}), json!({"a": {"b": 1}}), json!({"a": {"b": 1}})),
    ];
    for (from, to, patch) in cases {
        assert_eq!(merge_patch(&from, &to), patch, "{from} to {to}");
    }
}
