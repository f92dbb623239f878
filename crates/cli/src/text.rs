//! Text, tables and colors. All functions are pure.

use api::{Timestamp, status::bounded};

/// Minimum width of a table's last column, in characters. If the last column has this width, it is
/// wrapped beside the others. Otherwise it is printed below them.
const LEAST_ROOM: usize = 40;

/// Indentation of the last column when it is printed below the others.
const BELOW: usize = 4;

/// The meaning of a text, which determines its color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Bad,
    Busy,
    Waiting,
    Dim,
    Head,
}

/// Applies colors, if they are switched on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Paint {
    pub(crate) is_on: bool,
}

impl Paint {
    pub(crate) fn apply(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Busy => "36",
            Tone::Waiting => "33",
            Tone::Dim => "2",
            Tone::Head => "1",
        };
        if self.is_on && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

/// A cell of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) tone: Tone,
}

/// Creates a plain cell without control characters, because others wrote the text.
pub(crate) fn cell(text: impl AsRef<str>) -> Cell {
    toned(text, Tone::Plain)
}

pub(crate) fn toned(text: impl AsRef<str>, tone: Tone) -> Cell {
    Cell {
        text: clean(text.as_ref()),
        tone,
    }
}

/// Removes control characters. A name or message must not move the cursor.
pub(crate) fn clean(text: &str) -> String {
    bounded(text.trim(), usize::MAX)
}

/// A table in kubectl's format, with three spaces between columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Vec<Cell>>,
    widths: Vec<usize>,
}

impl Table {
    pub(crate) fn new(head: Vec<impl Into<String>>) -> Self {
        let head: Vec<String> = head.into_iter().map(Into::into).collect();
        let widths = head.iter().map(|name| name.chars().count()).collect();
        Self {
            head,
            rows: Vec::new(),
            widths,
        }
    }

    pub(crate) fn push(&mut self, row: Vec<Cell>) {
        self.widen(&row);
        self.rows.push(row);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Widens the columns for a row. Columns never shrink, because later rows are printed below
    /// earlier ones.
    pub(crate) fn widen(&mut self, row: &[Cell]) {
        for (width, cell) in self.widths.iter_mut().zip(row) {
            *width = (*width).max(cell.text.chars().count());
        }
    }

    /// Renders the whole table. `room` is the terminal's width, if there is a terminal.
    pub(crate) fn render(&self, paint: Paint, room: Option<usize>) -> String {
        let mut out = self.render_head(paint, room);
        for row in &self.rows {
            out.push_str(&self.render_row(row, paint, room));
        }
        out
    }

    /// Renders the header. The last name is left out if its column does not fit, because its cells
    /// are printed below.
    fn render_head(&self, paint: Paint, room: Option<usize>) -> String {
        let mut line: Vec<String> = Vec::new();
        let mut used = 0;
        for (name, width) in self.head.iter().zip(&self.widths) {
            if room.is_some_and(|room| used + name.len() > room) {
                break;
            }
            let padding = " ".repeat(width.saturating_sub(name.len()));
            line.push(format!("{}{padding}", paint.apply(Tone::Head, name)));
            used += width + 3;
        }
        format!("{}\n", line.join("   ").trim_end())
    }

    /// Renders one row. On a terminal the last cell is wrapped and never cut, because it is the
    /// message.
    pub(crate) fn render_row(&self, row: &[Cell], paint: Paint, room: Option<usize>) -> String {
        let Some((last, others)) = row.split_last() else {
            return String::new();
        };
        let mut line = String::new();
        let mut used = 0;
        for (cell, width) in others.iter().zip(&self.widths) {
            let padding = width.saturating_sub(cell.text.chars().count()) + 3;
            line.push_str(&paint.apply(cell.tone, &cell.text));
            line.push_str(&" ".repeat(padding));
            used += width + 3;
        }
        let fits = room.is_none_or(|room| used + last.text.chars().count() <= room);
        if fits {
            line.push_str(&paint.apply(last.tone, &last.text));
            return format!("{}\n", line.trim_end());
        }
        let room = room.unwrap_or_default();
        let beside = room.saturating_sub(used);
        let (indent, mut is_begun) = if beside >= LEAST_ROOM {
            (used, true)
        } else {
            (BELOW, false)
        };
        let mut out = String::new();
        if !is_begun {
            out.push_str(&format!("{}\n", line.trim_end()));
        }
        for text in wrap(&last.text, room.saturating_sub(indent).max(1)) {
            if is_begun {
                out.push_str(&line);
                is_begun = false;
            } else {
                out.push_str(&" ".repeat(indent));
            }
            out.push_str(&format!("{}\n", paint.apply(last.tone, &text)));
        }
        out
    }
}

/// Wraps `text` into lines of at most `width` characters. Lines break at spaces if possible.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in clean(text).split_whitespace() {
        let mut word = word;
        let length = line.chars().count();
        if length > 0 && length + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        while line.is_empty() && word.chars().count() > width {
            let end = word
                .char_indices()
                .nth(width)
                .map_or(word.len(), |(at, _)| at);
            let (head, rest) = word.split_at(end);
            lines.push(head.to_owned());
            word = rest;
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// Formats a duration in one or two units, like kubectl.
pub(crate) fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: i64, unit: &str, small: i64, part: &str| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit}{small}{part}")
        }
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

/// Formats the age of a time, which may be missing.
pub(crate) fn age(then: Option<Timestamp>, now: Timestamp) -> String {
    then.map_or_else(|| "<unknown>".to_owned(), |then| span(between(then, now)))
}

/// Returns the whole seconds from one time to another.
pub(crate) fn between(from: Timestamp, to: Timestamp) -> i64 {
    to.as_second().saturating_sub(from.as_second())
}

/// Formats date and time, to the second.
pub(crate) fn moment(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Formats the time of day.
pub(crate) fn hour(time: Timestamp) -> String {
    time.strftime("%H:%M:%SZ").to_string()
}

/// Formats a time within the last 24 hours as the time of day, and an earlier one with its date.
pub(crate) fn stamp(time: Timestamp, now: Timestamp) -> String {
    if between(time, now) < 86_400 {
        hour(time)
    } else {
        moment(time)
    }
}

/// Formats a number with its unit: `1 file`, `2 files`.
pub(crate) fn count(number: usize, one: &str) -> String {
    if number == 1 {
        format!("1 {one}")
    } else {
        format!("{number} {one}s")
    }
}

/// Formats a size in bytes or KiB.
pub(crate) fn bytes(size: usize) -> String {
    if size < 1024 {
        count(size, "byte")
    } else {
        format!("{} KiB", size.div_ceil(1024))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Paint = Paint { is_on: false };

    #[test]
    fn spans_have_one_or_two_units() {
        let cases = [
            (-5, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_100, "3h5m"),
            (28_800, "8h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
        ];
        for (seconds, wanted) in cases {
            assert_eq!(span(seconds), wanted);
        }
    }

    #[test]
    fn a_table_is_aligned_and_its_messages_are_wrapped_never_cut() {
        let mut table = Table::new(vec!["NAME", "PHASE", "MESSAGE"]);
        table.push(vec![
            cell("shop-7"),
            toned("Running", Tone::Busy),
            cell("the agent's container runs on node 'worker-1' since a while"),
        ]);
        table.push(vec![cell("a"), toned("Pending", Tone::Waiting), cell("")]);
        assert_eq!(
            table.render(PLAIN, None),
            "NAME     PHASE     MESSAGE\n\
             shop-7   Running   the agent's container runs on node 'worker-1' since a while\n\
             a        Pending\n"
        );
        assert_eq!(
            table.render(PLAIN, Some(60)),
            "NAME     PHASE     MESSAGE\n\
             shop-7   Running   the agent's container runs on node\n\
             \x20                  'worker-1' since a while\n\
             a        Pending\n"
        );
        assert_eq!(
            table.render(PLAIN, Some(50)),
            "NAME     PHASE     MESSAGE\n\
             shop-7   Running\n\
             \x20   the agent's container runs on node 'worker-1'\n\
             \x20   since a while\n\
             a        Pending\n"
        );
        let painted = table.render(Paint { is_on: true }, Some(60));
        assert!(
            painted.contains("\u{1b}[36mRunning\u{1b}[0m   the agent's container runs on node\n")
        );
    }

    #[test]
    fn what_others_wrote_cannot_move_the_cursor() {
        assert_eq!(cell("a\u{1b}[2Jb\nc").text, "a [2Jb c");
    }

    #[test]
    fn lines_are_broken_between_words() {
        let cases: [(&str, usize, &[&str]); 5] = [
            ("", 10, &[]),
            ("one two three", 7, &["one two", "three"]),
            ("one two three", 80, &["one two three"]),
            ("abcdefghij k", 4, &["abcd", "efgh", "ij k"]),
            ("ä ö ü", 3, &["ä ö", "ü"]),
        ];
        for (text, width, wanted) in cases {
            assert_eq!(wrap(text, width), wanted, "{text}");
        }
    }
}
