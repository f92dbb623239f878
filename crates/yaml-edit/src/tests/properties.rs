//! Random files: the edit changes the bytes of the scalar, and no other bytes.

use proptest::{prelude::*, test_runner::RngSeed};
use testkit::seed::seed;

use super::*;

/// Returns lines that may be anywhere between two top-level fields of a document.
fn filler() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just(String::new()),
        Just("   ".to_owned()),
        "# [ -~ü😀]{0,20}",
        "x[a-z]{8}: [a-z0-9.]{1,8} +# [a-z]{1,5}",
        "x[a-z]{8}: \"[a-z: #{}]{0,8}\"",
        "x[a-z]{8}: '[a-z: #\"]{0,8}'",
        "x[a-z]{8}: \\[[a-z]{1,3}, \\{[a-z]: [0-9]\\}\\]",
        "x[a-z]{8}: \\|\n  version: 1\\.2\\.3\n  [a-z: ]{1,9}",
    ];
    prop::collection::vec(line, 0..4).prop_map(|lines| {
        let lines: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
        lines.concat()
    })
}

/// Returns a document with `@` in place of the version.
fn document() -> impl Strategy<Value = String> {
    (filler(), filler(), filler(), " {1,3}", " *( #[a-z ]{0,5})?").prop_map(
        |(before, between, after, space, end)| {
            format!(
                "{before}kind: HelmRelease\n{between}metadata:\n  name: shop\nspec:\n  chart:\n    spec:\n      version:{space}@{end}\n{after}"
            )
        },
    )
}

/// Returns other documents.
fn others() -> impl Strategy<Value = String> {
    let other = filler()
        .prop_map(|text| format!("kind: HelmRelease\nmetadata: {{name: other}}\n{text}---\n"));
    prop::collection::vec(other, 0..3).prop_map(|texts| texts.concat())
}

fn cases() -> ProptestConfig {
    ProptestConfig {
        cases: 128,
        rng_seed: RngSeed::Fixed(seed().unwrap()),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn all_other_bytes_stay(
        (before, wanted) in (others(), document()),
        from in "[a-z][a-z0-9.]{0,8}|[0-9]\\.[0-9]\\.[0-9]",
        to in "[a-z]{2,5}[0-9]\\.[0-9]|[0-9]\\.[0-9]\\.[0-9]{1,9}",
        quote in "|'|\"",
        has_crlf: bool,
        has_mark: bool,
    ) {
        prop_assume!(from != to && !matches!(from.as_str(), "null"));
        let mut file = format!("{}{before}{wanted}", if has_mark { "\u{feff}" } else { "" });
        if has_crlf {
            file = file.replace('\n', "\r\n");
        }
        // Comments may contain the mark, too.
        const KEY: &str = "      version:";
        let (start, end) = file.split_once(KEY).unwrap();
        let with = |value: &str| {
            let end = end.replacen(MARK, &format!("{quote}{value}{quote}"), 1);
            format!("{start}{KEY}{end}")
        };
        let edited = edit(&with(&from), &helm_release(), "spec.chart.spec.version", &to);
        prop_assert_eq!(edited, Ok(with(&to)));
    }

    #[test]
    fn a_written_value_is_read_again(
        to in "[ -z|}~ü]{1,12}|[0-9._:eExXoO+-]{1,8}|(?i:true|no|on|null|nan)",
        quote in "|'|\"",
    ) {
        prop_assume!(to != "1.2.3" && !to.contains("{{"));
        let source = release(&format!("  chart: {{spec: {{version: {quote}1.2.3{quote}}}}}"));
        let at = "spec.chart.spec.version";
        let edited = edit(&source, &helm_release(), at, &to).unwrap();
        let found = read(edited.as_bytes(), &helm_release(), &path(at)).unwrap();
        prop_assert_eq!(found.value, to);
    }

    #[test]
    fn any_text_is_edited_or_rejected(
        text in "([a-z:\\-\\[\\]{},&*!|>'\"#%@` \n\r\t<?~0-9.]|kind: HelmRelease\n|---\n|\u{feff}|😀){0,80}",
        at in "[a-z]|[a-z]\\[0\\]|[a-z]\\[name=a\\]\\.b",
    ) {
        match edit(&text, &Document::default(), &at, "2.0.0") {
            Ok(edited) => {
                let found = read(edited.as_bytes(), &Document::default(), &path(&at)).unwrap();
                prop_assert_eq!(found.value, "2.0.0");
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn any_bytes_are_rejected_without_a_panic(bytes: Vec<u8>, at in "\\PC{0,30}") {
        prop_assert!(contains(&bytes, &helm_release()).is_ok_and(|found| !found)
            || contains(&bytes, &helm_release()).is_err());
        if let Ok(parsed) = FieldPath::parse(&at) {
            prop_assert_eq!(parsed.to_string(), at);
        }
    }
}
