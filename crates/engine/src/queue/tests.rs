//! Tests of the queue.

use super::*;

fn key(name: &str) -> Key {
    Key::new("n", name)
}

const SECOND: Duration = Duration::from_secs(1);

/// Returns a moment whose time of day does not matter.
fn at(instant: Instant) -> Moment {
    Moment {
        instant,
        time: Timestamp::UNIX_EPOCH,
    }
}

#[test]
fn a_key_is_handed_out_once_and_once_more_if_something_happened() {
    let now = Instant::now();
    let mut queue = Queue::default();
    queue.enqueue(&key("a"), now);
    queue.enqueue(&key("a"), now);
    assert_eq!(queue.pop(at(now)), Some(key("a")));
    assert_eq!(queue.pop(at(now)), None);
    queue.enqueue(&key("a"), now);
    queue.enqueue(&key("a"), now);
    assert_eq!(queue.pop(at(now)), None, "never twice at once");
    queue.done(&key("a"), Requeue::AwaitChange, at(now));
    assert_eq!(queue.pop(at(now)), Some(key("a")));
    queue.done(&key("a"), Requeue::AwaitChange, at(now));
    assert_eq!(queue.pop(at(now)), None);
    assert!(queue.keys.is_empty(), "nothing is kept of an idle key");
}

#[test]
fn a_burst_of_events_neither_shortens_nor_lengthens_a_backoff() {
    let now = Instant::now();
    let mut queue = Queue::default();
    queue.enqueue(&key("a"), now);
    queue.pop(at(now));
    queue.enqueue(&key("a"), now);
    queue.done(
        &key("a"),
        Requeue::Backoff(Backoff::deaf(now + 10 * SECOND)),
        at(now),
    );
    for step in 0..100 {
        queue.enqueue(&key("a"), now + SECOND / 10 * step);
        queue.schedule_at(&key("a"), now + SECOND);
        assert_eq!(queue.next_due(), Some(now + 10 * SECOND));
    }
    assert_eq!(queue.pop(at(now + 9 * SECOND)), None);
    assert_eq!(queue.pop(at(now + 10 * SECOND)), Some(key("a")));
}

#[test]
fn an_event_brings_a_backoff_forward_that_listens() {
    let now = Instant::now();
    let listening = Backoff {
        until: now + 300 * SECOND,
        deaf_until: now + 5 * SECOND,
    };
    let in_backoff = || {
        let mut queue = Queue::default();
        queue.enqueue(&key("a"), now);
        queue.pop(at(now));
        queue.done(&key("a"), Requeue::Backoff(listening), at(now));
        queue
    };
    let due_after = |happens: fn(&mut Queue, &Key, Instant), at: Duration| {
        let mut queue = in_backoff();
        happens(&mut queue, &key("a"), now + at);
        queue.next_due().map(|due| due - now)
    };
    assert_eq!(due_after(Queue::enqueue, SECOND), Some(5 * SECOND));
    assert_eq!(due_after(Queue::enqueue, 7 * SECOND), Some(7 * SECOND));
    assert_eq!(due_after(Queue::enqueue, 400 * SECOND), Some(300 * SECOND));
    assert_eq!(
        due_after(Queue::enqueue_own, 7 * SECOND),
        Some(300 * SECOND)
    );
    assert_eq!(due_after(Queue::enqueue_now, SECOND), Some(SECOND));

    let mut queue = Queue::default();
    queue.enqueue(&key("a"), now);
    queue.pop(at(now));
    queue.enqueue_own(&key("a"), now);
    queue.done(&key("a"), Requeue::Backoff(listening), at(now));
    assert_eq!(
        queue.next_due(),
        Some(now + 300 * SECOND),
        "a write of ours"
    );
    queue.enqueue_now(&key("a"), now);
    queue.pop(at(now));
    queue.enqueue(&key("a"), now);
    queue.done(&key("a"), Requeue::Backoff(listening), at(now));
    assert_eq!(queue.next_due(), Some(now + 5 * SECOND), "during the look");
}

#[test]
fn a_new_generation_ends_a_backoff_also_when_it_comes_during_the_pass() {
    let now = Instant::now();
    let mut queue = Queue::default();
    queue.enqueue(&key("a"), now);
    queue.pop(at(now));
    queue.done(
        &key("a"),
        Requeue::Backoff(Backoff::deaf(now + 10 * SECOND)),
        at(now),
    );
    queue.enqueue_now(&key("a"), now + SECOND);
    assert_eq!(queue.pop(at(now + SECOND)), Some(key("a")));
    queue.enqueue_now(&key("a"), now + SECOND);
    queue.done(
        &key("a"),
        Requeue::Backoff(Backoff::deaf(now + 20 * SECOND)),
        at(now + SECOND),
    );
    assert_eq!(queue.pop(at(now + SECOND)), Some(key("a")));
}

#[test]
fn all_backoffs_can_be_ended_and_no_other_wait() {
    let now = Instant::now();
    let mut queue = Queue::default();
    for (name, next) in [
        ("a", Requeue::Backoff(Backoff::deaf(now + 300 * SECOND))),
        ("b", Requeue::At(now + 60 * SECOND)),
    ] {
        queue.enqueue(&key(name), now);
        queue.pop(at(now));
        queue.done(&key(name), next, at(now));
    }
    queue.end_backoffs(now + SECOND);
    assert_eq!(queue.pop(at(now + SECOND)), Some(key("a")));
    assert_eq!(queue.pop(at(now + SECOND)), None);
    assert_eq!(queue.next_due(), Some(now + 60 * SECOND));
}

#[test]
fn an_event_comes_before_a_wake_up() {
    let now = Instant::now();
    let mut queue = Queue::default();
    queue.enqueue(&key("a"), now);
    queue.pop(at(now));
    queue.done(&key("a"), Requeue::At(now + 60 * SECOND), at(now));
    assert_eq!(queue.pop(at(now)), None);
    queue.enqueue(&key("a"), now + SECOND);
    assert_eq!(queue.pop(at(now + SECOND)), Some(key("a")));
}

/// Someone may set the clock, and a suspended machine does not count its timers.
#[test]
fn a_time_of_day_is_compared_with_the_clock_every_five_minutes() {
    let (now, midnight) = (Instant::now(), Timestamp::UNIX_EPOCH);
    let moment = |after: Duration, stepped: Duration| Moment {
        instant: now + after,
        time: midnight.checked_add(after + stepped).unwrap(),
    };
    let wait_for = |seconds: u32| {
        let mut queue = Queue::default();
        queue.enqueue(&key("a"), now);
        queue.pop(moment(Duration::ZERO, Duration::ZERO));
        let time = midnight.checked_add(seconds * SECOND).unwrap();
        let next = Requeue::AtTimeOfDay(time);
        queue.done(&key("a"), next, moment(Duration::ZERO, Duration::ZERO));
        queue
    };
    for (seconds, due) in [
        (0, MIN_REQUEUE_DELAY),
        (10, 10 * SECOND),
        (300, 300 * SECOND),
        (3600, MAX_TIMER),
    ] {
        assert_eq!(wait_for(seconds).next_due(), Some(now + due), "{seconds} s");
    }

    let mut queue = wait_for(3600);
    for check in 1..12_u32 {
        assert_eq!(queue.pop(moment(check * MAX_TIMER, Duration::ZERO)), None);
    }
    assert_eq!(queue.next_due(), Some(now + 3600 * SECOND));
    let end = moment(3600 * SECOND, Duration::ZERO);
    assert_eq!(queue.pop(end), Some(key("a")));

    let mut queue = wait_for(3600);
    let stepped = moment(MAX_TIMER, 3600 * SECOND);
    assert_eq!(queue.pop(stepped), Some(key("a")), "set forward");

    let mut queue = wait_for(10);
    let behind = Moment {
        time: midnight,
        ..moment(10 * SECOND, Duration::ZERO)
    };
    assert_eq!(queue.pop(behind), None, "set back");
    assert_eq!(queue.next_due(), Some(now + 20 * SECOND));

    let mut queue = wait_for(3600);
    queue.enqueue(&key("a"), now + MAX_TIMER);
    let check = moment(MAX_TIMER, Duration::ZERO);
    assert_eq!(queue.pop(check), Some(key("a")), "an event with a check");
}

#[test]
fn keys_that_nobody_needs_can_be_dropped_but_not_one_that_is_worked_on() {
    let now = Instant::now();
    let mut queue = Queue::default();
    for name in ["a", "b", "c"] {
        queue.enqueue(&key(name), now);
    }
    assert_eq!(queue.pop(at(now)), Some(key("a")));
    queue.retain(|key| key.name == "b");
    assert_eq!(queue.pop(at(now)), Some(key("b")));
    assert_eq!(queue.pop(at(now)), None);
    queue.done(&key("a"), Requeue::AwaitChange, at(now));
    queue.done(&key("b"), Requeue::AwaitChange, at(now));
    assert!(queue.keys.is_empty() && queue.waiting.is_empty() && queue.due.is_empty());
}

#[test]
fn the_oldest_key_goes_first_and_the_age_is_its_own() {
    let now = Instant::now();
    let mut queue = Queue::default();
    queue.enqueue(&key("b"), now);
    queue.enqueue(&key("a"), now + SECOND);
    queue.enqueue(&key("b"), now + SECOND);
    let depth = queue.depth(at(now + 3 * SECOND));
    assert_eq!((depth.due, depth.age), (2, 3 * SECOND));
    assert_eq!(queue.pop(at(now + 3 * SECOND)), Some(key("b")));
    assert_eq!(queue.pop(at(now + 3 * SECOND)), Some(key("a")));
}

#[test]
fn ten_thousand_keys_of_one_namespace_delay_another_by_one_key() {
    let now = Instant::now();
    let mut queue = Queue::default();
    for number in 0..10_000 {
        queue.enqueue(&Key::new("busy", &format!("{number:05}")), now);
    }
    assert_eq!(queue.pop(at(now)), Some(Key::new("busy", "00000")));
    queue.enqueue(&Key::new("calm", "b"), now + 2 * SECOND);
    queue.enqueue(&Key::new("calm", "a"), now + SECOND);
    queue.enqueue(&Key::new("third", "a"), now + 3 * SECOND);
    let later = at(now + 3 * SECOND);
    let handed_out: Vec<String> = (0..6)
        .map(|_| queue.pop(later).unwrap().to_string())
        .collect();
    let wanted = [
        "busy/00001",
        "calm/a",
        "third/a",
        "busy/00002",
        "calm/b",
        "busy/00003",
    ];
    assert_eq!(handed_out, wanted);
    let depth = queue.depth(later);
    assert_eq!((depth.due, depth.age), (9996, 3 * SECOND));
}

#[test]
fn cluster_scoped_keys_are_handed_out_by_time() {
    let now = Instant::now();
    let tenant = |name: &str| Key {
        namespace: None,
        name: name.to_owned(),
    };
    let mut queue = Queue::default();
    for (name, after) in [("c", 0), ("a", 1), ("b", 2)] {
        queue.enqueue(&tenant(name), now + after * SECOND);
    }
    for name in ["c", "a", "b"] {
        assert_eq!(queue.pop(at(now + 2 * SECOND)), Some(tenant(name)));
    }
}

#[test]
fn a_key_can_be_dropped_while_it_waits_for_its_turn() {
    let now = Instant::now();
    let mut queue = Queue::default();
    for namespace in ["a", "b", "c"] {
        queue.enqueue(&Key::new(namespace, "one"), now);
    }
    assert_eq!(queue.pop(at(now)), Some(Key::new("a", "one")));
    queue.retain(|key| key.namespace.as_deref() != Some("b"));
    queue.enqueue(&Key::new("b", "two"), now);
    assert_eq!(queue.depth(at(now)).due, 2);
    assert_eq!(queue.pop(at(now)), Some(Key::new("b", "two")));
    assert_eq!(queue.pop(at(now)), Some(Key::new("c", "one")));
    assert_eq!(queue.pop(at(now)), None);
    assert!(queue.waiting.is_empty() && queue.due.is_empty());
}

#[test]
fn a_blocked_scope_waits_and_the_others_do_not() {
    let now = Instant::now();
    let scope = |name: &str| BTreeSet::from([Some(name.to_owned())]);
    let everything = BTreeSet::from([None]);
    let mut queue = Queue::default();
    for name in ["one", "two"] {
        queue.enqueue(&Key::new("a", name), now);
        queue.enqueue(&Key::new("b", name), now);
    }
    queue.block(scope("a"));
    assert_eq!(queue.pop(at(now)), Some(Key::new("b", "one")));
    let depth = queue.depth(at(now));
    assert_eq!((depth.due, depth.open), (3, 1));
    queue.block(everything);
    assert_eq!(queue.pop(at(now)), None);
    assert_eq!(queue.depth(at(now)).open, 0);

    assert_eq!(queue.pop_blocked(|_| false), None);
    let is_b = |namespace: Option<&str>| namespace == Some("b");
    assert_eq!(queue.pop_blocked(is_b), Some(Key::new("b", "two")));
    assert_eq!(queue.pop_blocked(is_b), None);
    queue.done(&Key::new("b", "two"), Requeue::At(now), at(now));

    queue.block(BTreeSet::new());
    let mut handed_out: Vec<String> = Vec::new();
    while let Some(key) = queue.pop(at(now)) {
        handed_out.push(key.to_string());
    }
    assert_eq!(handed_out, ["a/one", "b/two", "a/two"]);
    assert!(queue.due.is_empty());
}

/// Without it, `orchestrator_queue_oldest_seconds` would not show objects that wait for a watch.
#[test]
fn the_age_of_a_blocked_key_counts_until_it_is_reconciled_or_leaves() {
    let now = Instant::now();
    let mut queue = Queue::default();
    queue.enqueue(&key("a"), now);
    queue.enqueue(&key("b"), now + SECOND);
    queue.block(BTreeSet::from([None]));
    for seconds in 2..10 {
        let later = at(now + seconds * SECOND);
        assert_eq!(queue.pop(later), None);
        let reported = queue.pop_blocked(|_| true).unwrap();
        queue.done(&reported, Requeue::At(later.instant), later);
        assert_eq!(queue.depth(later).age, seconds * SECOND);
    }
    let later = at(now + 10 * SECOND);
    queue.block(BTreeSet::new());
    assert_eq!(queue.pop(later), Some(key("a")));
    assert_eq!(queue.depth(later).age, 9 * SECOND, "that of the other key");
    queue.retain(|key| key.name != "b");
    assert_eq!(queue.depth(later).age, Duration::ZERO);
    queue.done(&key("a"), Requeue::AwaitChange, later);
    assert!(queue.keys.is_empty() && queue.blocked_since.is_empty());
}
