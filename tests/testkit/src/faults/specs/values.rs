//! The values of a field, from its schema.

use serde_json::{Map, Value, json};

use super::{Change, Expect, samples};

/// More entries than this are tried only where a limit says how many there may be.
const MANY: usize = 200;
/// More letters than this are tried only where a limit says how many there may be.
const LONG: usize = 5000;

/// The schema of what is in a part: an object's field, a list's entries, a map's values.
pub(super) fn part<'a>(schema: &'a Value, key: &str) -> &'a Value {
    let field = schema.get("properties").and_then(|all| all.get(key));
    field
        .or_else(|| schema.get("items"))
        .or_else(|| schema.get("additionalProperties"))
        .unwrap_or(&Value::Null)
}

fn number(schema: &Value, key: &str) -> Option<f64> {
    schema.get(key)?.as_f64()
}

fn count(schema: &Value, key: &str) -> Option<usize> {
    let count = schema.get(key)?.as_u64()?;
    Some(usize::try_from(count).unwrap_or(usize::MAX))
}

fn text<'a>(schema: &'a Value, key: &str) -> Option<&'a str> {
    schema.get(key)?.as_str()
}

fn has_rule(schema: &Value) -> bool {
    schema.get("x-kubernetes-validations").is_some()
}

/// Whether a rule has a say about a value of this schema or about something in it.
fn has_rules(schema: &Value) -> bool {
    let fields = schema.get("properties").and_then(Value::as_object);
    let fields = fields.into_iter().flat_map(Map::values);
    has_rule(schema)
        || fields
            .chain(schema.get("items"))
            .chain(schema.get("additionalProperties"))
            .any(has_rules)
}

/// Whether a rule of this schema has a say about this field.
fn is_named_by_rule(schema: &Value, key: &str) -> bool {
    let rules = schema.get("x-kubernetes-validations");
    let rules = rules.and_then(Value::as_array).into_iter();
    let rules = rules.flat_map(|rules| rules.iter());
    let mut texts = rules.filter_map(|rule| text(rule, "rule"));
    texts.any(|rule| reads(rule, key))
}

/// Whether a rule reads this field of its object, or the object as a whole.
fn reads(rule: &str, key: &str) -> bool {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    // Both `self` and `oldSelf`.
    rule.match_indices("elf").any(|(index, found)| {
        let rest = &rule[index + found.len()..];
        match rest.strip_prefix(".?").or(rest.strip_prefix('.')) {
            Some(field) => field
                .strip_prefix(key)
                .is_some_and(|after| !after.starts_with(is_word)),
            None => true,
        }
    })
}

fn is_required(schema: &Value, key: &str) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|all| all.iter().any(|one| one == key))
}

/// The smallest value that the schema allows.
pub(super) fn smallest(schema: &Value, key: &str) -> Value {
    let first = schema.get("enum").and_then(|all| all.get(0));
    if let Some(first) = first {
        return first.clone();
    }
    match text(schema, "type") {
        Some("object") => {
            let required = schema.get("required").and_then(Value::as_array);
            let names = required.into_iter().flat_map(|all| all.iter());
            let fields = names.filter_map(Value::as_str).map(|name| {
                let value = smallest(part(schema, name), name);
                (name.to_owned(), value)
            });
            Value::Object(fields.collect())
        }
        Some("array") => json!([]),
        Some("integer" | "number") => json!(number(schema, "minimum").map_or(1, whole)),
        Some("boolean") => json!(false),
        Some(_) | None => json!(samples::fitting(key)),
    }
}

/// A bound of a schema as the whole number that it is.
#[expect(
    clippy::cast_possible_truncation,
    reason = "bounds of our schemas are whole and small; a cast saturates"
)]
fn whole(bound: f64) -> i64 {
    bound as i64
}

/// All changes of a spec with this schema.
pub(super) fn changes(schema: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    walk(schema, &mut Vec::new(), false, &mut changes);
    changes
}

fn walk(schema: &Value, path: &mut Vec<String>, is_ruled: bool, changes: &mut Vec<Change>) {
    let fields = schema.get("properties").and_then(Value::as_object);
    let mut parts: Vec<(String, &Value)> = fields
        .into_iter()
        .flat_map(Map::iter)
        .map(|(name, field)| (name.clone(), field))
        .collect();
    parts.extend(schema.get("items").map(|items| ("0".to_owned(), items)));
    let values = schema.get("additionalProperties");
    parts.extend(values.map(|values| ("key".to_owned(), values)));
    for (key, inner) in parts {
        let is_ruled = is_ruled || has_rule(inner) || is_named_by_rule(schema, &key);
        path.push(key.clone());
        let mut maker = Maker {
            schema: inner,
            fits: match is_ruled || has_rules(inner) {
                true => Expect::Maybe,
                false => Expect::Taken,
            },
            path,
            changes,
        };
        let is_entry = schema.get("items").is_some();
        let is_missed = is_required(schema, &key) && inner.get("default").is_none();
        if !is_entry {
            maker.add(
                "absent",
                None,
                if is_missed {
                    Expect::Refused
                } else {
                    maker.fits
                },
            );
        }
        maker.values(&key);
        walk(inner, path, is_ruled, changes);
        path.pop();
    }
}

/// Makes the values of one field.
struct Maker<'a> {
    schema: &'a Value,
    /// What becomes of a value that the schema allows.
    fits: Expect,
    path: &'a [String],
    changes: &'a mut Vec<Change>,
}

impl Maker<'_> {
    fn add(&mut self, what: &str, value: Option<Value>, expect: Expect) {
        self.changes
            .push(Change::new(self.path, what, value, expect));
    }

    fn fitting(&mut self, what: &str, value: Value) {
        self.add(what, Some(value), self.fits);
    }

    fn wrong(&mut self, what: &str, value: Value) {
        self.add(what, Some(value), Expect::Refused);
    }

    fn maybe(&mut self, what: &str, value: Value) {
        self.add(what, Some(value), Expect::Maybe);
    }

    fn values(&mut self, key: &str) {
        // The API server drops it, puts a default in its place, or refuses it.
        self.maybe("null", Value::Null);
        match text(self.schema, "type") {
            Some("string") => self.strings(key),
            Some("integer") => self.integers(),
            Some("boolean") => self.booleans(),
            Some("array") => self.lists(),
            Some("object") => self.objects(),
            Some(_) | None => self.quantities(),
        }
    }

    fn strings(&mut self, key: &str) {
        self.wrong("number", json!(7));
        self.wrong("boolean", json!(true));
        self.wrong("list", json!(["a"]));
        self.wrong("object", json!({"a": "b"}));
        if let Some(known) = self.schema.get("enum").and_then(Value::as_array) {
            for value in known {
                self.fitting(value.as_str().unwrap_or_default(), value.clone());
            }
            self.wrong("other", json!("NoSuchWord"));
            self.wrong("empty", json!(""));
            return;
        }
        let most = count(self.schema, "maxLength");
        let least = count(self.schema, "minLength").unwrap_or(0);
        let pattern = text(self.schema, "pattern");
        let odd = |letters: usize| match (letters < least, most.is_some_and(|most| letters > most))
        {
            (false, false) if pattern.is_none() => self.fits,
            (false, false) => Expect::Maybe,
            (true, _) | (_, true) => Expect::Refused,
        };
        let odds: Vec<(&str, &str, Expect)> = samples::ODD
            .iter()
            .map(|(what, value)| (*what, *value, odd(value.chars().count())))
            .collect();
        for (what, value, expect) in odds {
            self.add(what, Some(json!(value)), expect);
        }
        // One letter fits every pattern here; rules have their own say.
        let long = most.unwrap_or(LONG);
        self.fitting("longest", json!("a".repeat(long)));
        if long <= LONG {
            let expect = match pattern {
                Some(_) => Expect::Maybe,
                None => self.fits,
            };
            self.add("longest-unicode", Some(json!("ü".repeat(long))), expect);
        }
        if most.is_some() {
            self.wrong("too-long", json!("a".repeat(long + 1)));
        }
        if let Some((good, bad)) = pattern.and_then(samples::of_pattern) {
            for value in good {
                self.fitting(&named("fits", value), json!(value));
            }
            for value in bad {
                self.wrong(&named("breaks", value), json!(value));
            }
        }
        for value in samples::of_field(key) {
            self.maybe(&named("sample", value), json!(value));
        }
    }

    fn integers(&mut self) {
        self.wrong("text", json!("7"));
        self.wrong("boolean", json!(true));
        self.wrong("fraction", json!(1.5));
        self.wrong("list", json!([1]));
        let least = number(self.schema, "minimum").map(whole);
        let most = number(self.schema, "maximum").map(whole);
        if let Some(least) = least {
            self.fitting("least", json!(least));
            self.fitting("above-least", json!(least.saturating_add(1)));
            self.wrong("below-least", json!(least.saturating_sub(1)));
        }
        if let Some(most) = most {
            self.fitting("most", json!(most));
            self.wrong("above-most", json!(most.saturating_add(1)));
        }
        let fits = self.fits;
        let bounded = |value: i64| {
            let is_low = least.is_some_and(|least| value < least);
            let is_high = most.is_some_and(|most| value > most);
            match is_low || is_high {
                true => Expect::Refused,
                false => fits,
            }
        };
        for (what, value) in [("huge", i64::MAX), ("lowest", i64::MIN), ("seven", 7)] {
            let expect = bounded(value);
            self.add(what, Some(json!(value)), expect);
        }
        let beyond = match most {
            Some(_) => Expect::Refused,
            None => Expect::Maybe,
        };
        self.add("beyond-all", Some(json!(1e30)), beyond);
    }

    fn booleans(&mut self) {
        self.fitting("true", json!(true));
        self.fitting("false", json!(false));
        self.wrong("text", json!("true"));
        self.wrong("number", json!(1));
        self.wrong("object", json!({}));
    }

    fn lists(&mut self) {
        let items = part(self.schema, "0");
        let keys = self.schema.get("x-kubernetes-list-map-keys");
        let key = keys.and_then(|keys| keys.get(0)).and_then(Value::as_str);
        let entries = |count: usize| -> Value {
            let mut list = Vec::new();
            for index in 0..count {
                let mut entry = smallest(items, "0");
                let name = json!(format!("a{index}"));
                match (&mut entry, key) {
                    (Value::Object(fields), Some(key)) => {
                        fields.insert(key.to_owned(), name);
                    }
                    (Value::String(_), _) => entry = name,
                    (Value::Object(_), None) => {}
                    (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_), _) => {}
                }
                list.push(entry);
            }
            Value::Array(list)
        };
        let least = count(self.schema, "minItems").unwrap_or(0);
        let empty = if least > 0 {
            Expect::Refused
        } else {
            self.fits
        };
        self.add("empty", Some(json!([])), empty);
        self.fitting("one", entries(1));
        self.fitting("three", entries(3));
        let twice = json!([smallest(items, "0"), smallest(items, "0")]);
        match key {
            Some(_) => self.wrong("twice-the-same", twice),
            None => self.fitting("twice-the-same", twice),
        }
        match count(self.schema, "maxItems") {
            Some(most) => {
                self.fitting("most", entries(most));
                self.wrong("too-many", entries(most + 1));
                self.wrong("far-too-many", entries(most * 10));
            }
            None => self.fitting("many", entries(MANY)),
        }
        self.maybe("of-null", json!([null]));
        self.wrong("of-lists", json!([[]]));
        self.wrong("text", json!("a"));
        self.wrong("object", json!({"a": "b"}));
    }

    fn objects(&mut self) {
        let is_map = self.schema.get("properties").is_none();
        let required = self.schema.get("required").and_then(Value::as_array);
        let is_short = required.is_some_and(|all| !all.is_empty());
        let empty = if is_short { Expect::Refused } else { self.fits };
        self.add("empty", Some(json!({})), empty);
        self.wrong("text", json!("a"));
        self.wrong("list", json!([]));
        self.wrong("number", json!(1));
        if !is_map {
            let mut more = smallest(self.schema, "");
            if let Value::Object(fields) = &mut more {
                fields.insert("noSuchField".to_owned(), json!({"a": [1]}));
            }
            self.fitting("unknown-field", more);
            return;
        }
        let inner = part(self.schema, "key");
        let map = |keys: Vec<String>| -> Value {
            let value = smallest(inner, "amount");
            Value::Object(keys.into_iter().map(|key| (key, value.clone())).collect())
        };
        for (what, key) in samples::KEYS {
            self.maybe(&named("key", what), map(vec![(*key).to_owned()]));
        }
        self.maybe("key-long", map(vec!["a".repeat(400)]));
        let numbered = |count: usize| (0..count).map(|index| format!("a{index}")).collect();
        if let Some(most) = count(self.schema, "maxProperties") {
            self.fitting("most", map(numbered(most)));
            self.wrong("too-many", map(numbered(most + 1)));
        }
    }

    /// A number or a text, by a rule.
    fn quantities(&mut self) {
        for value in samples::QUANTITIES {
            self.maybe(&named("text", value), json!(value));
        }
        for value in [0, 1, -1, i64::MAX, i64::MIN] {
            self.maybe(&format!("number{value}"), json!(value));
        }
        self.maybe("longest", json!("1".repeat(32)));
        // The bound of its length is one of the schema; its type is "number or text".
        self.wrong("too-long", json!("1".repeat(33)));
        self.wrong("boolean", json!(true));
        self.wrong("list", json!([1]));
        self.wrong("object", json!({}));
    }
}

/// A name from a value: its letters, and a number where others are left out.
fn named(what: &str, value: &str) -> String {
    let mut name = what.to_owned();
    name.push('-');
    for letter in value.chars().take(40) {
        match letter {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' | '.' | '/' | ':' => name.push(letter),
            other => name.push_str(&format!("~{:x}", u32::from(other))),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_a_say_about_the_fields_that_it_reads() {
        for (rule, key, expected) in [
            (
                "!has(self.volumes) || self.volumes.size() < 9",
                "volumes",
                true,
            ),
            (
                "!has(self.volumes) || self.volumes.size() < 9",
                "volume",
                false,
            ),
            (
                "!has(self.volumes) || self.volumes.size() < 9",
                "image",
                false,
            ),
            ("self.?retry == oldSelf.?retry", "retry", true),
            ("!oldSelf.cancel || self.cancel", "cancel", true),
            ("oldSelf.cancel || self == oldSelf", "image", true),
        ] {
            assert_eq!(reads(rule, key), expected, "{rule}: {key}");
        }
    }
}
