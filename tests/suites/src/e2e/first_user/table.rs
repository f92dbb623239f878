//! The table that the suite prints at its end: situation, reason, seconds, why.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
};

use anyhow::Result;

use super::fixture::{Seen, flat};

/// Width of a cell with words of a message, in characters.
const WIDTH: usize = 100;

/// Rows by number and letter. A second try replaces the first.
static ROWS: Mutex<BTreeMap<(u32, String), Row>> = Mutex::new(BTreeMap::new());

/// One situation and how it was named.
#[derive(Debug, Clone)]
struct Row {
    situation: &'static str,
    /// The cells after the situation; the error of a row that failed.
    seen: Result<[String; 3], String>,
}

/// Adds a row. Returns its line for the report of the cases.
pub(super) fn add(
    name: &'static str,
    situation: &'static str,
    seen: Result<Seen>,
) -> Result<String> {
    let cells = match &seen {
        Ok(Seen {
            reason,
            seconds,
            why,
        }) => {
            let seconds = seconds.map_or_else(|| "–".to_owned(), |time| format!("{time:.1}"));
            Ok([reason.clone(), seconds, why.clone()])
        }
        Err(error) => Err(format!("{error:#}")),
    };
    let row = Row {
        situation,
        seen: cells,
    };
    let mut rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    rows.insert(key(name), row);
    let Seen {
        reason,
        seconds,
        why,
    } = seen?;
    Ok(match seconds {
        Some(seconds) => format!("{reason} after {seconds:.1} s; why: {why}"),
        None => format!("{reason}; why: {why}"),
    })
}

/// Number and letter of a row, so that 7b comes after 7 and before 10.
fn key(name: &str) -> (u32, String) {
    let end = name
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(name.len());
    let (number, letter) = name.split_at(end);
    // A name without a number comes last.
    let number = number.parse().unwrap_or(u32::MAX);
    (number, letter.to_owned())
}

/// All rows of this process.
pub(crate) struct Table(BTreeMap<(u32, String), Row>);

impl Table {
    /// The rows until now; `None` if there are none.
    pub(crate) fn now() -> Option<Self> {
        let rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
        (!rows.is_empty()).then(|| Self(rows.clone()))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "| # | situation | reason | seconds | why |\n|---|---|---|---|---|"
        )?;
        for ((number, letter), row) in &self.0 {
            let cells = match &row.seen {
                Ok(cells) => cells.each_ref().map(|cell| short(cell)),
                Err(error) => ["FAILED".to_owned(), "–".to_owned(), short(error)],
            };
            let [reason, seconds, why] = cells;
            let situation = row.situation;
            write!(
                out,
                "\n| {number}{letter} | {situation} | {reason} | {seconds} | {why} |"
            )?;
        }
        Ok(())
    }
}

/// Text that fits a cell.
fn short(text: &str) -> String {
    api::status::bounded(&flat(text).replace('|', "¦"), WIDTH)
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn rows_are_in_the_order_of_the_trial_and_a_second_try_counts() {
        let seen = |reason: &str| Seen {
            reason: reason.to_owned(),
            seconds: Some(1.25),
            why: "a | b\n  c".to_owned(),
        };
        assert!(add("10", "ten", Err(anyhow!("broken"))).is_err());
        assert!(add("7b", "seven b", Ok(seen("A"))).is_ok());
        let without = Seen {
            seconds: None,
            ..seen("B")
        };
        assert_eq!(
            add("7", "seven", Ok(without)).unwrap(),
            "B; why: a | b\n  c"
        );
        assert!(add("9", "nine", Err(anyhow!("once"))).is_err());
        assert!(add("9", "nine", Ok(seen("C"))).is_ok());
        let text = Table::now().unwrap().to_string();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| 7 | seven | B | – | a ¦ b c |",
                "| 7b | seven b | A | 1.2 | a ¦ b c |",
                "| 9 | nine | C | 1.2 | a ¦ b c |",
                "| 10 | ten | FAILED | – | broken |",
            ]
        );
    }
}
