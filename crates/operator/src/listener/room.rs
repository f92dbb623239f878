//! Chooses the connection that a full listener closes for a new one.

use std::time::Duration;

/// Minimum age of a connection that is closed before its request header is complete.
///
/// A client sends its request immediately after it connected. Without this delay, a fast flood would close
/// the connection of the kubelet before the kubelet writes to it.
pub(super) const HEADER_GRACE: Duration = Duration::from_millis(20);

/// Minimum age of a connection that is closed before its response is written. A client that does not read
/// must not occupy a slot for long.
pub(super) const RESPONSE_GRACE: Duration = Duration::from_millis(100);

/// Delay until a connection with unread bytes is examined again.
const UNREAD_DELAY: Duration = Duration::from_millis(1);

/// Progress of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The request header is not complete.
    AwaitingHeader,
    /// The request header is complete, and the response is not written yet.
    Responding,
}

/// An open connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Open {
    /// Time since it was accepted.
    pub(super) age: Duration,
    /// Its progress.
    pub(super) stage: Stage,
}

/// The next step of a listener before it accepts another connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// Accept a connection: the limit is not exceeded.
    Available,
    /// Close the connection at this index.
    Close(usize),
    /// Check again after this time: every connection may still complete.
    Wait(Duration),
}

/// Decides whether a listener with these connections, oldest first, may accept another one.
///
/// The oldest connection without a complete header is closed first, then the oldest one with a client that
/// does not read its response. `has_unread` returns whether bytes of the connection at an index wait in its
/// socket. Such a connection is not silent. We have not read from it yet, because the process had no
/// processor time, and its header may be complete.
pub(super) fn make_room(limit: usize, open: &[Open], has_unread: impl Fn(usize) -> bool) -> Room {
    if open.len() <= limit {
        return Room::Available;
    }
    let mut wait = RESPONSE_GRACE;
    for (index, connection) in open.iter().enumerate() {
        match connection.stage {
            Stage::Responding => {}
            Stage::AwaitingHeader if connection.age < HEADER_GRACE => {
                wait = wait.min(HEADER_GRACE - connection.age);
                // All others are younger.
                break;
            }
            Stage::AwaitingHeader if has_unread(index) => wait = UNREAD_DELAY,
            Stage::AwaitingHeader => return Room::Close(index),
        }
    }
    let responding = open
        .iter()
        .position(|connection| connection.stage == Stage::Responding);
    match responding.and_then(|index| Some((index, open.get(index)?.age))) {
        Some((index, age)) if age >= RESPONSE_GRACE => Room::Close(index),
        Some((_, age)) => Room::Wait(wait.min(RESPONSE_GRACE - age)),
        None => Room::Wait(wait),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn waiting(millis: u64) -> Open {
        Open {
            age: Duration::from_millis(millis),
            stage: Stage::AwaitingHeader,
        }
    }

    const fn responding(millis: u64) -> Open {
        Open {
            age: Duration::from_millis(millis),
            stage: Stage::Responding,
        }
    }

    #[test]
    fn a_full_listener_closes_the_oldest_without_a_header() {
        let wait = |millis| Room::Wait(Duration::from_millis(millis));
        let none: &[usize] = &[];
        // The limit is 2. The indexes are those of connections with unread bytes.
        let cases = [
            ("empty", vec![], none, Room::Available),
            (
                "at the limit",
                vec![waiting(900), waiting(1)],
                none,
                Room::Available,
            ),
            (
                "the oldest silent one",
                vec![waiting(900), waiting(800), waiting(0)],
                none,
                Room::Close(0),
            ),
            (
                "not the one that is answered, although it is older",
                vec![responding(900), waiting(800), waiting(0)],
                none,
                Room::Close(1),
            ),
            (
                "not the one whose bytes are unread",
                vec![waiting(900), waiting(800), waiting(0)],
                &[0],
                Room::Close(1),
            ),
            (
                "unread bytes are read soon",
                vec![waiting(900), waiting(800), waiting(700)],
                &[0, 1, 2],
                wait(1),
            ),
            (
                "each has its time",
                vec![waiting(15), waiting(10), waiting(0)],
                none,
                wait(5),
            ),
            (
                "exactly this time",
                vec![waiting(20), waiting(10), waiting(0)],
                none,
                Room::Close(0),
            ),
            (
                "a client that does not read",
                vec![responding(100), responding(50), responding(40)],
                none,
                Room::Close(0),
            ),
            (
                "a client that does not read, before young ones",
                vec![responding(100), waiting(10), waiting(0)],
                none,
                Room::Close(0),
            ),
            (
                "responses have their time",
                vec![responding(90), responding(50), responding(40)],
                none,
                wait(10),
            ),
            (
                "the shorter of both times",
                vec![responding(90), waiting(15), waiting(0)],
                none,
                wait(5),
            ),
        ];
        for (name, open, unread, wanted) in cases {
            let room = make_room(2, &open, |index| unread.contains(&index));
            assert_eq!(room, wanted, "{name}");
        }
    }

    #[test]
    fn a_newcomer_always_gets_a_slot_in_time() {
        // Whatever the other clients do, one connection can be closed after the longest grace time.
        for first in [waiting(100), responding(100)] {
            for second in [waiting(0), responding(0)] {
                let room = make_room(1, &[first, second], |_| false);
                assert_eq!(room, Room::Close(0), "{first:?} {second:?}");
            }
        }
    }
}
