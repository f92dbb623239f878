//! `step probe`: tries connections, and reports which of them succeed.
//!
//! `PROBE_PLAN` has a line for each connection: `+` or `-` (whether it must succeed), `tcp` or `dns`, and
//! an address with its port or a name. The report, in `PROBE_REPORT`, has a line for each connection in the
//! same order: `1` or `0` (whether it succeeded) and a short detail.
//!
//! The network of a new Pod may not be complete yet, and a new policy may not be enforced yet. So all
//! connections are tried again until all results are as expected for a while, or until the time is over.
//! The last results count.

use std::{
    fmt::Write as _,
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    time::{Duration, Instant},
};

use git::report::LIMIT;

/// Maximum time to wait for the expected results.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time for which the results must stay as expected.
const STEADY: Duration = Duration::from_secs(5);
/// Timeout of a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// Pause between two rounds.
const PAUSE: Duration = Duration::from_millis(500);
/// Maximum number of connections of a plan.
const MOST: usize = 16;

/// A connection to try.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Try {
    must_pass: bool,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Connect(SocketAddr),
    Resolve(String),
}

/// The result of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Outcome {
    passed: bool,
    words: String,
}

/// Executes a plan. Returns the report, or the error in the plan.
pub(crate) fn run(plan: &str) -> Result<String, String> {
    repeated(plan, PATIENCE, STEADY)
}

fn repeated(plan: &str, patience: Duration, steady: Duration) -> Result<String, String> {
    let tries: Result<Vec<Try>, String> = plan.lines().map(read).collect();
    let tries = tries?;
    if tries.is_empty() || tries.len() > MOST {
        return Err(format!(
            "a plan has 1 to {MOST} lines, this one {}",
            tries.len()
        ));
    }
    let end = Instant::now() + patience;
    let mut outcomes: Vec<Outcome> = Vec::new();
    let mut right_since: Option<Instant> = None;
    loop {
        outcomes.clear();
        outcomes.extend(tries.iter().map(attempt));
        let is_right = tries
            .iter()
            .zip(&outcomes)
            .all(|(one, outcome)| one.must_pass == outcome.passed);
        let now = Instant::now();
        right_since = right_since.or(Some(now)).filter(|_| is_right);
        let is_steady = right_since.is_some_and(|since| now.duration_since(since) >= steady);
        if is_steady || now >= end {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    Ok(report(&outcomes))
}

/// Returns the report, with at most [`LIMIT`] bytes: each line has the same share.
fn report(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    // A line also has a digit, a space and a line break.
    let share = (LIMIT / outcomes.len().max(1)).saturating_sub(3);
    for Outcome { passed, words } in outcomes {
        let digit = u8::from(*passed);
        let words: String = words
            .chars()
            .filter(|letter| letter.is_ascii() && !letter.is_control())
            .take(share.min(100))
            .collect();
        if writeln!(text, "{digit} {words}").is_err() {
            break;
        }
    }
    text
}

fn read(line: &str) -> Result<Try, String> {
    let wrong = || format!("'{line}' is none of '+|- tcp ADDRESS:PORT' and '+|- dns NAME'");
    let mut words = line.split(' ');
    let (Some(sign), Some(kind), Some(rest), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(wrong());
    };
    let must_pass = match sign {
        "+" => true,
        "-" => false,
        _ => return Err(wrong()),
    };
    let what = match kind {
        "tcp" => What::Connect(rest.parse().map_err(|_error| wrong())?),
        "dns" => What::Resolve(rest.to_owned()),
        _ => return Err(wrong()),
    };
    Ok(Try { must_pass, what })
}

fn attempt(one: &Try) -> Outcome {
    let begin = Instant::now();
    let result = match &one.what {
        What::Connect(address) => TcpStream::connect_timeout(address, CONNECT).map(|_stream| ()),
        What::Resolve(name) => (name.as_str(), 0_u16).to_socket_addrs().map(|_all| ()),
    };
    let took = begin.elapsed().as_millis();
    match result {
        Ok(()) => Outcome {
            passed: true,
            words: format!("passed in {took} ms"),
        },
        Err(error) => Outcome {
            passed: false,
            words: format!("{error} after {took} ms"),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_plan_is_carried_out_in_its_order() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let closed = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let plan = format!("+ tcp {open}\n- tcp {closed}\n+ dns localhost");
        let text = repeated(&plan, PATIENCE, Duration::ZERO).unwrap();
        let digits: Vec<&str> = text.lines().map(|line| &line[..1]).collect();
        assert_eq!(digits, ["1", "0", "1"], "{text}");
    }

    /// A report that the kubelet cuts has no result for the last connections, and the check never ends.
    #[test]
    fn the_report_of_a_full_plan_fits_beside_injected_containers() {
        let outcome = Outcome {
            passed: false,
            words: "é x".repeat(200),
        };
        for count in [1, 2, MOST] {
            let text = report(&vec![outcome.clone(); count]);
            assert!(text.len() <= LIMIT, "{}", text.len());
            assert_eq!(text.lines().count(), count);
            assert!(
                text.lines()
                    .all(|line| line.starts_with("0 ") && line.len() >= 50)
            );
        }
    }

    /// Expected results must last, because the network may change meanwhile.
    #[test]
    fn what_does_not_stay_right_is_not_right() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let closing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(700));
            drop(listener);
        });
        let (patience, steady) = (Duration::from_secs(2), Duration::from_secs(1));
        let text = repeated(&format!("+ tcp {address}"), patience, steady).unwrap();
        closing.join().unwrap();
        assert!(text.starts_with('0'), "{text}");
    }

    #[test]
    fn a_plan_that_cannot_be_read_is_refused() {
        for wrong in [
            "",
            "tcp 1.2.3.4:5",
            "+ tcp nowhere:1",
            "? dns a",
            "+ udp 1.2.3.4:5",
            "+ dns a b",
        ] {
            assert!(run(wrong).is_err(), "{wrong}");
        }
        let long = vec!["+ dns localhost"; 17].join("\n");
        assert!(run(&long).is_err());
    }
}
