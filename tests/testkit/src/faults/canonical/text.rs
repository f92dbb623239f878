//! Texts in words that are the same each time.

/// `text` with times, commits, UIDs and, if it has them, durations replaced.
pub(super) fn settled(text: &str, has_durations: bool) -> String {
    if text.len() == "1700000000".len() && digits_of(text) == text.len() {
        return "a second".to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let word = if before.is_ascii_alphanumeric() {
            None
        } else {
            let is_apart = !matches!(before, '-' | '.' | '_' | '/');
            time(rest)
                .map(|length| (length, "a time"))
                .or_else(|| uid(rest).map(|length| (length, "a uid")))
                .or_else(|| commit(rest).map(|length| (length, "a commit")))
                .or_else(|| {
                    let length = (has_durations && is_apart).then(|| duration(rest))?;
                    length.map(|length| (length, "#"))
                })
                .filter(|(length, _)| ends_at(rest, *length))
        };
        let length = match word {
            Some((length, word)) => {
                out.push_str(word);
                length
            }
            None => {
                out.push(first);
                first.len_utf8()
            }
        };
        before = rest
            .get(..length)
            .and_then(|part| part.chars().last())
            .unwrap_or(' ');
        rest = rest.get(length..).unwrap_or_default();
    }
    out
}

/// Whether the word that is so long is not the beginning of a longer one.
fn ends_at(text: &str, length: usize) -> bool {
    let next = text.get(length..).and_then(|rest| rest.chars().next());
    !next.is_some_and(|next| next.is_ascii_alphanumeric())
}

/// The length of what `text` begins with: `shape`, where `0` stands for a digit and `f` for a
/// hexadecimal one.
fn shaped(text: &str, shape: &str) -> Option<usize> {
    let head = text.get(..shape.len())?;
    let fits = |(letter, wanted): (char, char)| match wanted {
        '0' => letter.is_ascii_digit(),
        'f' => letter.is_ascii_digit() || ('a'..='f').contains(&letter),
        other => letter == other,
    };
    head.chars()
        .zip(shape.chars())
        .all(fits)
        .then_some(shape.len())
}

fn uid(text: &str) -> Option<usize> {
    shaped(text, "ffffffff-ffff-ffff-ffff-ffffffffffff")
}

fn commit(text: &str) -> Option<usize> {
    shaped(text, &"f".repeat(40))
}

fn time(text: &str) -> Option<usize> {
    let seconds = shaped(text, "0000-00-00T00:00:00")?;
    let rest = text.get(seconds..)?;
    let fraction = match rest.strip_prefix('.') {
        Some(digits) => 1 + digits_of(digits),
        None => 0,
    };
    let zone = rest.get(fraction..)?;
    let zone = match zone.strip_prefix('Z') {
        Some(_) => 1,
        None => shaped(zone, "+00:00")?,
    };
    Some(seconds + fraction + zone)
}

fn digits_of(text: &str) -> usize {
    text.chars().take_while(char::is_ascii_digit).count()
}

/// `1h30m`, `1.5s`, `10 s`.
fn duration(text: &str) -> Option<usize> {
    let mut length = 0;
    loop {
        let rest = text.get(length..)?;
        let whole = digits_of(rest);
        if whole == 0 {
            return (length > 0).then_some(length);
        }
        let fraction = match rest.get(whole..)?.strip_prefix('.') {
            Some(digits) => 1 + digits_of(digits),
            None => 0,
        };
        let number = whole + fraction;
        let after = rest.get(number..)?;
        let space = usize::from(length == 0 && after.starts_with(' '));
        let letters = after.get(space..)?.chars();
        let unit: String = letters.take_while(char::is_ascii_alphabetic).collect();
        if !["ms", "s", "m", "min", "h"].contains(&unit.as_str()) {
            return None;
        }
        length += number + space + unit.len();
        if space > 0 {
            return Some(length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
    const UID: &str = "6f9619ff-8b86-d011-b42d-00cf4fc964ff";

    #[test]
    fn what_differs_each_time_is_replaced_in_texts() {
        for (text, wanted) in [
            (
                "the agent exited with code 0",
                "the agent exited with code 0",
            ),
            (
                "starts at 2026-11-15T15:05:18Z; wait",
                "starts at a time; wait",
            ),
            ("2026-11-15T15:05:18.123456Z", "a time"),
            ("2026-11-15T15:05:18+01:00.", "a time."),
            ("2026-11-15", "2026-11-15"),
            ("1794757511", "a second"),
            ("179475751", "179475751"),
            (
                &format!("commit {COMMIT} is on 'docs/x'"),
                "commit a commit is on 'docs/x'",
            ),
            (&format!("docs/{COMMIT}"), "docs/a commit"),
            (
                &format!("sha256:{COMMIT}{COMMIT}"),
                &format!("sha256:{COMMIT}{COMMIT}"),
            ),
            (&format!("Pod {UID}"), "Pod a uid"),
            ("within 1h30m: x", "within #: x"),
            ("within 500ms", "within #"),
            ("took 1.5s, then 10 s", "took #, then #"),
            ("after 3 attempts", "after 3 attempts"),
            ("5 small ones", "5 small ones"),
            ("shop-5s-v1", "shop-5s-v1"),
            ("10 µs – 日本 7", "10 µs – 日本 7"),
        ] {
            assert_eq!(settled(text, true), wanted, "{text}");
        }
        assert_eq!(settled("30s", false), "30s");
    }
}
