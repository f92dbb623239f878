use super::*;

#[test]
fn text_is_wrapped_between_words_and_indented() {
    assert_eq!(
        wrap("one two three a-very-long-word-of-all end", "- ", "  ", 12),
        ["- one two", "  three", "  a-very-long-word-of-all", "  end"]
    );
    assert_eq!(wrap("", "- ", "  ", 12), ["- "]);
}

#[test]
fn a_time_is_not_broken() {
    for (text, lines) in [
        (
            "seen 10:02:11Z (5m 10s ago) once",
            ["seen", "10:02:11Z (5m 10s ago)", "once"],
        ),
        (
            "next 10:05:53Z (in 42s), or so",
            ["next", "10:05:53Z (in 42s),", "or so"],
        ),
        (
            "after it ran 2m 1s and a bit",
            ["after it", "ran 2m 1s", "and a bit"],
        ),
    ] {
        assert_eq!(wrap(text, "", "", 10), lines, "{text}");
    }
}

#[test]
fn words_that_stand_above_are_known_again() {
    let above =
        "the Pod cannot be created: it is forbidden: exceeded quota: compute, requested: pods=1";
    for (words, expected) in [
        (above, true),
        (
            "Error creating: pods \"a-b\" is forbidden: exceeded quota: compute, requested: pods=1",
            true,
        ),
        (
            "Error creating: pods \"a-b\" is forbidden: exceeded quota: other, requested: pods=1",
            false,
        ),
        ("pods=1", false),
    ] {
        assert_eq!(repeats(above, words), expected, "{words}");
    }
}
