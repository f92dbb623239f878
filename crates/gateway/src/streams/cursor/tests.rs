//! Streams against a model of their clients.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::*;
use crate::{streams::state::CHANGES, table::tests::row};

fn shared(number: u32, phase: &str, revision: u64) -> Arc<Row> {
    Arc::new(row(number, phase, revision))
}

fn all(_: &Row) -> bool {
    true
}

/// A client, with everything that it was told.
#[derive(Default)]
struct Client {
    /// Phases of runs, by name.
    known: BTreeMap<String, String>,
    /// All states, by name and phase. Each test uses a phase of a run once.
    seen: BTreeSet<(String, String)>,
    id: u64,
}

impl Client {
    fn put(&mut self, run: &Value) {
        let text = |field: &str| run[field].as_str().unwrap().to_owned();
        let (name, phase) = (text("name"), text("phase"));
        assert!(
            self.seen.insert((name.clone(), phase.clone())),
            "twice: {name} {phase}"
        );
        self.known.insert(name, phase);
    }

    /// Takes events until nothing is new, at most so many steps.
    fn read(&mut self, cursor: &mut Cursor, state: &State, steps: usize) -> bool {
        for _ in 0..steps {
            match cursor.step(state, all) {
                Step::Idle => return true,
                Step::Lost => panic!("lost"),
                Step::Live(position) => self.id = position,
                Step::Events(events) => events.iter().for_each(|event| self.take(event)),
            }
        }
        false
    }

    fn take(&mut self, event: &Event) {
        let data: Value = serde_json::from_str(&event.data).unwrap();
        match event.name {
            "snapshot" => data
                .as_array()
                .unwrap()
                .iter()
                .for_each(|run| self.put(run)),
            "put" => self.put(&data),
            "delete" => {
                self.known.remove(data["name"].as_str().unwrap());
            }
            other => panic!("{other}"),
        }
        if let Id::At(id) = event.id {
            assert!(id > self.id);
            self.id = id;
        }
    }
}

#[test]
fn no_change_during_a_snapshot_is_missed_or_delivered_twice() {
    let rows = (10..99).map(|number| shared(number, "Pending", u64::from(number)));
    let mut state = State::new(rows.collect(), 100, 100);
    let mut cursor = Cursor::snapshot(&state);
    let mut client = Client::default();
    // After each step, a run in each part of the snapshot changes, one comes, and one goes.
    for step in 0..9_u32 {
        assert!(!client.read(&mut cursor, &state, 1));
        let at = u64::from(101 + 10 * step);
        state.put(shared(10 + step, "Running", at));
        state.put(shared(90 + step, "Running", at + 1));
        state.put(shared(10 + step, "Succeeded", at + 2));
        state.delete(shared(50 + step, "Pending", at + 3));
        state.put(shared(100 + step, "Pending", at + 4));
    }
    assert!(client.read(&mut cursor, &state, 100));
    assert_eq!(client.known.len(), 89);
    assert_eq!(client.known["shop-10"], "Succeeded");
    assert_eq!(client.known["shop-95"], "Running");
    assert!(!client.known.contains_key("shop-55"));
    assert_eq!(client.id, 185);
}

#[test]
fn a_client_resumes_after_each_event() {
    for cut in 0..12 {
        let mut state = State::new(vec![shared(1, "Pending", 5)], 10, 10);
        let mut client = Client::default();
        let mut cursor = Cursor::snapshot(&state);
        assert!(client.read(&mut cursor, &state, 9));
        for number in 0..12_u32 {
            state.put(shared(2 + number, "Running", 11 + u64::from(number)));
            if number == cut {
                // Afterwards the connection is cut, and changes go on.
                client.read(&mut cursor, &state, 9);
            }
        }
        let mut cursor = Cursor::resume(&state, client.id).unwrap();
        assert!(client.read(&mut cursor, &state, 9));
        assert_eq!((client.known.len(), client.id), (13, 22));
        assert_eq!(cursor.position(&state), Some(22));
    }
}

#[test]
fn a_new_process_replays_what_a_client_lacks() {
    // The client knows everything up to 20. The list is of 30, and the watch begins at 12.
    let listed = vec![shared(1, "Succeeded", 28), shared(2, "Pending", 15)];
    let mut state = State::new(listed, 30, 12);
    let mut client = Client {
        id: 20,
        ..Client::default()
    };
    let mut old = Cursor::resume(&state, 20).unwrap();
    let mut fresh = Cursor::snapshot(&state);
    assert!(Cursor::resume(&state, 11).is_none());
    for (phase, revision) in [("Pending", 14), ("Running", 22), ("Succeeded", 28)] {
        state.put(shared(1, phase, revision));
    }
    state.delete(shared(3, "Running", 29));
    state.put(shared(2, "Running", 31));
    assert!(client.read(&mut old, &state, 9));
    let wanted = [
        ("shop-1", "Running"),
        ("shop-1", "Succeeded"),
        ("shop-2", "Running"),
    ];
    let wanted = wanted.map(|(name, phase)| (name.to_owned(), phase.to_owned()));
    assert_eq!(client.seen, BTreeSet::from(wanted));
    assert_eq!(client.id, 31);
    // A new client is not told what the list already has.
    let mut new = Client::default();
    assert!(new.read(&mut fresh, &state, 9));
    assert_eq!(new.seen.len(), 2, "{:?}", new.seen);
    assert_eq!((new.known.len(), new.id), (2, 31));
}

#[test]
fn without_history_a_client_loads_everything_again() {
    let mut state = State::new(vec![shared(1, "Running", 28)], 30, 12);
    let mut cursor = Cursor::resume(&state, 20).unwrap();
    state.start_later(30);
    assert_eq!(cursor.step(&state, all), Step::Lost);
    assert!(Cursor::resume(&state, 20).is_none());
    assert!(Cursor::resume(&state, 30).is_some());
}

#[test]
fn a_relist_is_a_series_of_changes() {
    let listed = vec![
        shared(1, "Pending", 5),
        shared(2, "Pending", 6),
        shared(3, "Pending", 7),
    ];
    let mut state = State::new(listed, 10, 10);
    let (mut cursor, mut client) = (Cursor::snapshot(&state), Client::default());
    assert!(client.read(&mut cursor, &state, 9));
    let mut again = row(3, "Running", 25);
    again.uid = "another".to_owned();
    let unchanged = shared(1, "Pending", 5);
    state.relist(
        vec![unchanged, Arc::new(again), shared(4, "Pending", 24)],
        30,
    );
    assert!(client.read(&mut cursor, &state, 9));
    let known: Vec<&str> = client.known.keys().map(String::as_str).collect();
    assert_eq!(known, ["shop-1", "shop-3", "shop-4"]);
    assert_eq!((client.id, state.revision()), (30, 30));
}

#[test]
fn a_slow_stream_is_lost_and_others_are_not() {
    let mut state = State::new(Vec::new(), 10, 10);
    let (mut slow, mut fast) = (Cursor::snapshot(&state), Cursor::snapshot(&state));
    let mut client = Client::default();
    for number in 0..u32::try_from(CHANGES).unwrap() + 1 {
        state.put(shared(number, "Pending", 11 + u64::from(number)));
        assert!(client.read(&mut fast, &state, 9));
    }
    // Its next change is not kept any more.
    slow.stage = Stage::Live { next: 0 };
    assert_eq!(slow.step(&state, all), Step::Lost);
    assert!(!state.can_resume(10) && state.can_resume(11));
}

/// A watch that begins earlier than its client needs repeats many changes at once.
#[test]
fn a_client_that_knows_the_lost_changes_is_not_slow() {
    let changes = u32::try_from(CHANGES).unwrap();
    let listed = u64::from(changes) + 50;
    let mut state = State::new(Vec::new(), listed, 1);
    let mut client = Client {
        id: listed,
        ..Client::default()
    };
    let mut cursor = Cursor::resume(&state, listed).unwrap();
    for number in 0..changes + 20 {
        state.put(shared(number, "Pending", 2 + u64::from(number)));
    }
    state.put(shared(7, "Running", listed + 1));
    assert!(client.read(&mut cursor, &state, 99));
    assert_eq!((client.seen.len(), client.id), (1, listed + 1));
}

#[test]
fn a_filter_tells_when_a_run_no_longer_matches() {
    let mut state = State::new(vec![shared(1, "Running", 5)], 10, 10);
    let running = |row: &Row| row.phase == "Running";
    let mut cursor = Cursor::resume(&state, 10).unwrap();
    state.put(shared(1, "Succeeded", 11));
    state.put(shared(1, "Failed", 12));
    state.put(shared(2, "Pending", 13));
    state.put(shared(2, "Running", 14));
    state.delete(shared(2, "Running", 15));
    let Step::Events(events) = cursor.step(&state, running) else {
        panic!();
    };
    let found: Vec<(&str, Id)> = events.iter().map(|event| (event.name, event.id)).collect();
    assert_eq!(
        found,
        [
            ("delete", Id::At(11)),
            ("put", Id::At(14)),
            ("delete", Id::At(15))
        ]
    );
    assert_eq!(cursor.position(&state), Some(15));
}
