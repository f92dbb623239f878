//! Git's pkt-lines: four hexadecimal digits with the length, then the line.

/// Maximum length of a pkt-line, including the length digits.
const LONGEST: usize = 65_520;

/// One pkt-line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pkt {
    /// `0000`: the end of a list.
    Flush,
    /// `0001` or `0002`: the end of a part.
    Mark,
    /// A line, without its newline.
    Line(Vec<u8>),
}

/// The bytes are not pkt-lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotPkt;

/// Splits a stream of bytes into pkt-lines. Buffers at most one line and the last input.
#[derive(Debug, Default)]
pub(super) struct Pkts {
    bytes: Vec<u8>,
    read: usize,
}

impl Pkts {
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.read);
        self.read = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next line, or `None` if it is not complete.
    pub(super) fn take(&mut self) -> Result<Option<Pkt>, NotPkt> {
        let rest = self.bytes.get(self.read..).unwrap_or_default();
        let Some((digits, rest)) = rest.split_first_chunk::<4>() else {
            // Reject bytes that cannot become a length before waiting for more.
            return if rest.iter().all(u8::is_ascii_hexdigit) {
                Ok(None)
            } else {
                Err(NotPkt)
            };
        };
        let length = length(digits)?;
        let pkt = match length {
            0 => Pkt::Flush,
            1 | 2 => Pkt::Mark,
            3 => return Err(NotPkt),
            _ => match rest.get(..length - 4) {
                Some(line) => Pkt::Line(line.strip_suffix(b"\n").unwrap_or(line).to_vec()),
                None => return Ok(None),
            },
        };
        self.read += length.max(4);
        Ok(Some(pkt))
    }
}

fn length(digits: &[u8; 4]) -> Result<usize, NotPkt> {
    let mut length = 0;
    for digit in digits {
        match char::from(*digit).to_digit(16) {
            Some(value) => length = length * 16 + value as usize,
            None => return Err(NotPkt),
        }
    }
    if length > LONGEST {
        Err(NotPkt)
    } else {
        Ok(length)
    }
}

/// Formats a line as a pkt-line. Our own lines are short.
pub(super) fn line(text: &str) -> String {
    format!("{:04x}{text}\n", text.len() + 5)
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, test_runner::RngSeed};
    use testkit::seed::seed;

    use super::*;

    fn all(pkts: &mut Pkts) -> Result<Vec<Pkt>, NotPkt> {
        let mut taken = Vec::new();
        while let Some(pkt) = pkts.take()? {
            taken.push(pkt);
        }
        Ok(taken)
    }

    #[test]
    fn lines_come_out_however_they_come_in() {
        let text = format!("{}0001{}0000", line("command=ls-refs"), "0006ab");
        let wanted = [
            Pkt::Line(b"command=ls-refs".to_vec()),
            Pkt::Mark,
            Pkt::Line(b"ab".to_vec()),
            Pkt::Flush,
        ];
        for size in 1..text.len() {
            let mut pkts = Pkts::default();
            let mut taken = Vec::new();
            for part in text.as_bytes().chunks(size) {
                pkts.put(part);
                taken.extend(all(&mut pkts).unwrap());
            }
            assert_eq!(taken, wanted);
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        for (text, is_pkt) in [
            ("0004", true),
            ("fff0", true),
            ("FFF0", true),
            ("fff1", false),
            ("ffff", false),
            ("0003", false),
            ("<htm", false),
            ("<", false),
            ("00-1", false),
            ("+004", false),
            ("", true),
        ] {
            let mut pkts = Pkts::default();
            pkts.put(text.as_bytes());
            assert_eq!(pkts.take().is_ok(), is_pkt, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(seed().unwrap()), ..ProptestConfig::default() })]
        #[test]
        fn nothing_panics(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8)) {
            let mut pkts = Pkts::default();
            for part in &parts {
                pkts.put(part);
                if all(&mut pkts).is_err() {
                    break;
                }
            }
        }
    }
}
