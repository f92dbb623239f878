use super::*;

fn cache() -> Cache<String> {
    Cache::new("things", |text| vec![text.clone()])
}

fn identity(name: &str, uid: &str, version: u64) -> Identity {
    Identity {
        key: Key::new("n", name),
        uid: uid.to_owned(),
        version,
    }
}

fn get(cache: &Cache<String>, name: &str) -> Option<String> {
    cache.get(&Key::new("n", name)).map(|text| (*text).clone())
}

#[test]
fn an_older_event_does_not_undo_an_own_write() {
    let cache = cache();
    cache.on_applied(identity("a", "1", 5), "five".into(), 1);
    cache.on_own_write(identity("a", "1", 8), "eight".into());
    cache.on_applied(identity("a", "1", 7), "seven".into(), 1);
    assert_eq!(get(&cache, "a").as_deref(), Some("eight"));
    assert!(cache.by_index("five").is_empty());
    assert_eq!(cache.by_index("eight").len(), 1);
}

/// `retained/watch-statefulsets=stale-2500`: a Tenant released an object, and its successor adopted it.
/// The object was missing for a moment, because the watch reported the lost label late.
#[test]
fn a_label_that_was_lost_before_our_write_gave_it_back_takes_nothing() {
    let cache = cache();
    cache.on_applied(identity("a", "1", 5), "ours".into(), 1);
    cache.on_own_write(identity("a", "1", 6), "left".into());
    cache.on_own_write(identity("a", "1", 8), "taken back".into());
    cache.on_deleted(&identity("a", "1", 6));
    assert_eq!(get(&cache, "a").as_deref(), Some("taken back"));
    cache.on_applied(identity("a", "1", 8), "taken back".into(), 1);
    cache.on_deleted(&identity("a", "1", 9));
    assert_eq!(get(&cache, "a"), None, "this one is later");
}

#[test]
fn a_label_that_our_last_write_took_away_takes_the_object() {
    let cache = cache();
    cache.on_applied(identity("a", "1", 5), "ours".into(), 1);
    cache.on_own_write(identity("a", "1", 6), "left".into());
    cache.on_deleted(&identity("a", "1", 6));
    assert_eq!(get(&cache, "a"), None);
}

#[test]
fn an_answer_that_comes_after_the_deletion_brings_nothing_back() {
    let cache = cache();
    cache.on_applied(identity("a", "1", 5), "five".into(), 1);
    cache.on_deleted(&identity("a", "1", 9));
    cache.on_own_write(identity("a", "1", 6), "six".into());
    assert_eq!(get(&cache, "a"), None);
}

#[test]
fn an_answer_that_comes_after_another_of_the_name_brings_nothing_back() {
    let cache = cache();
    cache.on_applied(identity("a", "1", 5), "one".into(), 1);
    cache.on_deleted(&identity("a", "1", 9));
    cache.on_applied(identity("a", "2", 12), "two".into(), 1);
    cache.on_own_write(identity("a", "1", 9), "one, let go".into());
    assert_eq!(get(&cache, "a").as_deref(), Some("two"));
    cache.on_own_write(identity("a", "3", 20), "three".into());
    assert_eq!(get(&cache, "a").as_deref(), Some("three"), "newer is newer");
}

/// The late event is about the object that we deleted before we created another one of its name.
#[test]
fn a_late_event_of_an_earlier_object_does_not_replace_the_one_that_we_created() {
    let cache = cache();
    cache.on_own_write(identity("a", "2", 40), "ours".into());
    cache.on_applied(identity("a", "1", 30), "earlier".into(), 1);
    assert_eq!(get(&cache, "a").as_deref(), Some("ours"));
    assert!(cache.by_index("earlier").is_empty());
    cache.on_deleted(&identity("a", "1", 35));
    assert_eq!(get(&cache, "a").as_deref(), Some("ours"));
    // Also after a list that began before our write.
    cache.finish_relist(None, 0, &HashSet::new());
    cache.on_applied(identity("a", "1", 31), "earlier".into(), 0);
    assert_eq!(get(&cache, "a").as_deref(), Some("ours"));
    cache.on_applied(identity("a", "3", 41), "newer".into(), 1);
    assert_eq!(get(&cache, "a").as_deref(), Some("newer"));
}

fn elsewhere(version: u64) -> Identity {
    Identity {
        key: Key::new("m", "x"),
        uid: "9".into(),
        version,
    }
}

/// One watch delivers the events of all namespaces in their order, so it delivered the creation and the deletion.
#[test]
fn an_answer_that_the_watch_of_all_namespaces_has_overtaken_brings_nothing_back() {
    let cache = cache();
    cache.begin_relist(None, 1);
    cache.on_applied(elsewhere(50), "x".into(), 1);
    cache.on_own_write(identity("a", "1", 40), "forty".into());
    assert_eq!(get(&cache, "a"), None);
    cache.on_own_write(identity("a", "2", 60), "sixty".into());
    assert_eq!(get(&cache, "a").as_deref(), Some("sixty"));
}

/// A number for each namespace that ever had an object would grow for as long as the process runs.
#[test]
fn the_newest_versions_need_room_for_each_watch_and_not_for_each_namespace() {
    let cache = cache();
    cache.begin_relist(None, 1);
    for number in 1..=100 {
        let one = Identity {
            key: Key::new(&format!("namespace-{number}"), "a"),
            uid: number.to_string(),
            version: number,
        };
        cache.on_applied(one.clone(), "a".into(), 1);
        cache.on_deleted(&one);
    }
    assert!(cache.is_empty());
    assert_eq!(lock(&cache.shared.state).latest.len(), 1);
}

#[test]
fn a_newer_event_of_the_watch_of_another_namespace_does_not_hide_our_write() {
    let cache = cache();
    for namespace in ["m", "n"] {
        cache.begin_relist(Some(namespace), 1);
    }
    cache.on_applied(elsewhere(50), "x".into(), 1);
    cache.on_own_write(identity("a", "1", 40), "forty".into());
    assert_eq!(get(&cache, "a").as_deref(), Some("forty"));
    cache.removed(&Key::new("n", "a"), "1");
    cache.finish_relist(Some("m"), 2, &HashSet::new());
    cache.on_applied(identity("a", "1", 41), "late".into(), 1);
    assert_eq!(
        get(&cache, "a"),
        None,
        "its deletion is not forgotten by another's listing"
    );
}

#[test]
fn a_name_that_is_used_again_is_another_object() {
    let cache = cache();
    cache.on_applied(identity("a", "1", 5), "one".into(), 1);
    cache.on_applied(identity("a", "2", 9), "two".into(), 1);
    cache.on_deleted(&identity("a", "1", 8));
    assert_eq!(
        get(&cache, "a").as_deref(),
        Some("two"),
        "the deletion was the old one's"
    );
}

#[test]
fn what_we_deleted_does_not_come_back_by_an_older_event() {
    let cache = cache();
    cache.on_applied(identity("a", "1", 5), "five".into(), 1);
    cache.removed(&Key::new("n", "a"), "1");
    cache.on_applied(identity("a", "1", 6), "six".into(), 1);
    assert_eq!(get(&cache, "a"), None);
    cache.on_deleted(&identity("a", "1", 7));
    cache.on_applied(identity("a", "2", 8), "new".into(), 1);
    assert_eq!(get(&cache, "a").as_deref(), Some("new"));
}

#[test]
fn a_listing_removes_what_it_did_not_see_but_not_what_was_written_meanwhile() {
    let cache = cache();
    cache.on_applied(identity("a", "1", 5), "a".into(), 1);
    cache.on_applied(identity("b", "2", 6), "b".into(), 1);
    cache.begin_relist(None, 2);
    cache.on_own_write(identity("c", "3", 20), "c".into());
    cache.on_applied(identity("a", "1", 5), "a".into(), 2);
    cache.finish_relist(Some("n"), 2, &HashSet::new());
    assert_eq!(get(&cache, "a").as_deref(), Some("a"));
    assert_eq!(get(&cache, "b"), None);
    assert_eq!(get(&cache, "c").as_deref(), Some("c"));
    cache.finish_relist(Some("other"), 3, &HashSet::new());
    assert_eq!(
        cache.len(),
        2,
        "another namespace's listing says nothing about this one"
    );
    cache.finish_relist(None, 4, &HashSet::new());
    assert!(cache.is_empty());
}

#[test]
fn what_we_wrote_is_no_ghost_after_it_was_listed_or_overtaken() {
    let cache = cache();
    cache.on_own_write(identity("c", "3", 20), "c".into());
    cache.on_applied(identity("c", "3", 20), "c".into(), 1);
    cache.on_applied(identity("d", "4", 30), "d".into(), 2);
    cache.finish_relist(None, 2, &HashSet::new());
    assert_eq!(get(&cache, "c"), None, "listed once, then missing");

    cache.begin_relist(None, 3);
    cache.on_own_write(identity("e", "5", 40), "e".into());
    cache.on_applied(identity("d", "4", 50), "d".into(), 3);
    cache.finish_relist(None, 3, &HashSet::new());
    assert_eq!(
        get(&cache, "e"),
        None,
        "a later event came, and it was not listed"
    );
}

/// `change/watch-networkpolicies=gone-1`: we created and deleted a policy while there was no watch. The
/// policy stayed in deletion indefinitely. Its deletion was the last write of its kind, so nothing in
/// the list was newer.
#[test]
fn what_we_wrote_before_a_listing_and_it_does_not_show_is_gone() {
    let cache = cache();
    cache.begin_relist(None, 1);
    cache.on_applied(identity("a", "1", 5), "a".into(), 1);
    cache.on_own_write(identity("c", "3", 20), "c".into());
    cache.on_own_write(identity("c", "3", 30), "c, in deletion".into());
    cache.begin_relist(None, 2);
    cache.on_applied(identity("a", "1", 5), "a".into(), 2);
    cache.finish_relist(None, 2, &HashSet::new());
    assert_eq!(get(&cache, "c"), None);
}

#[test]
fn what_we_made_again_during_a_listing_is_not_taken_for_the_old_one() {
    for is_seen in [true, false] {
        let cache = cache();
        cache.begin_relist(None, 1);
        cache.on_own_write(identity("c", "3", 20), "c".into());
        if is_seen {
            cache.on_applied(identity("c", "3", 20), "c".into(), 1);
        }
        cache.begin_relist(None, 2);
        cache.on_own_write(identity("c", "4", 40), "again".into());
        cache.finish_relist(None, 2, &HashSet::new());
        assert_eq!(get(&cache, "c").as_deref(), Some("again"), "{is_seen}");
    }
}

#[test]
fn listeners_hear_each_change_once() {
    let cache = cache();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&heard);
    cache.on_change(move |change| {
        lock(&sink).push((
            change.old.map(|text| (**text).clone()),
            change.new.map(|text| (**text).clone()),
        ));
    });
    cache.on_applied(identity("a", "1", 5), "five".into(), 1);
    cache.on_applied(identity("a", "1", 5), "five".into(), 2);
    cache.on_applied(identity("a", "1", 6), "six".into(), 2);
    cache.on_deleted(&identity("a", "1", 7));
    cache.on_deleted(&identity("a", "1", 7));
    let five = || Some("five".to_owned());
    let six = || Some("six".to_owned());
    assert_eq!(
        *lock(&heard),
        [(None, five()), (five(), six()), (six(), None)]
    );
}

#[test]
fn an_object_that_cannot_be_read_replaces_what_was_known() {
    let cache = cache();
    cache.on_applied(identity("a", "1", 5), "five".into(), 1);
    let invalid = InvalidObject {
        uid: "1".into(),
        version: "6".into(),
        generation: 2,
        error: "no".into(),
    };
    cache.on_invalid(&Key::new("n", "a"), invalid.clone());
    assert_eq!(get(&cache, "a"), None);
    assert_eq!(cache.invalid(&Key::new("n", "a")), Some(invalid));
    cache.on_applied(identity("a", "1", 7), "seven".into(), 1);
    assert_eq!(cache.invalid(&Key::new("n", "a")), None);
}

#[test]
fn an_object_at_rest_is_packed_and_read_back() {
    let cache = cache();
    cache.pack(Packing::of(|text: &String| text.starts_with("over")));
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&heard);
    cache.on_change(move |change| {
        lock(&sink).push((
            change.old.map(|text| (**text).clone()),
            change.new.map(|text| (**text).clone()),
        ));
    });
    cache.on_applied(identity("a", "1", 5), "works".into(), 1);
    cache.on_applied(identity("b", "2", 6), "works".into(), 1);
    cache.on_applied(identity("a", "1", 7), "over".into(), 1);
    assert_eq!(get(&cache, "a").as_deref(), Some("over"));
    assert_eq!(cache.by_index("over").len(), 1);
    assert_eq!(cache.keys_of("over"), [Key::new("n", "a")]);
    assert!(cache.active_keys_of("over").is_empty());
    assert_eq!(cache.active_keys_of("works"), [Key::new("n", "b")]);
    let packed = vec![(Key::new("n", "a"), "1".to_owned())];
    assert_eq!(cache.split_by_rest("over"), (vec![], packed));
    assert_eq!(cache.split_by_rest("works").0.len(), 1);
    assert_eq!(cache.fold_active(0, |count, _| count + 1), 1);
    assert_eq!(cache.len(), 2);
    // For the index, and for listeners of the next change, it is the same object.
    cache.on_applied(identity("a", "1", 9), "over, labelled".into(), 1);
    assert!(cache.keys_of("over").is_empty());
    cache.on_deleted(&identity("a", "1", 10));
    assert!(cache.keys_of("over, labelled").is_empty());
    let text = |text: &str| Some(text.to_owned());
    let expected = [
        (text("works"), text("over")),
        (text("over"), text("over, labelled")),
        (text("over, labelled"), None),
    ];
    assert_eq!(lock(&heard)[2..], expected);
}

#[test]
fn a_bounded_cache_keeps_the_newest_objects() {
    let cache = cache();
    cache.bound(Bounds {
        per_word: 3,
        total: 20,
    });
    for version in 1..=100 {
        let name = format!("one-{version}");
        cache.on_applied(identity(&name, &name, version), "same".into(), 1);
    }
    let kept: Vec<String> = cache
        .keys_of("same")
        .into_iter()
        .map(|key| key.name)
        .collect();
    assert_eq!(kept, ["one-100", "one-98", "one-99"]);
    for version in 101..=1000 {
        let name = format!("one-{version}");
        cache.on_applied(identity(&name, &name, version), name.clone(), 1);
        assert!(cache.len() <= 20);
    }
    assert!(cache.keys_of("same").is_empty(), "these were the oldest");
    assert!(get(&cache, "one-1000").is_some());
    assert_eq!(cache.len(), cache.keys().len());
}

/// A user with permission to create Events in one namespace could push out the warnings of all others.
#[test]
fn a_bounded_cache_drops_the_objects_of_the_largest_namespaces() {
    let cache = cache();
    cache.bound(Bounds {
        per_word: 3,
        total: 20,
    });
    let quiet = ["one", "two", "three", "four", "five"];
    for (version, name) in (1..).zip(quiet) {
        cache.on_applied(identity(name, name, version), name.into(), 1);
    }
    for version in 6..=1000 {
        let name = format!("noise-{version}");
        let noise = Identity {
            key: Key::new("noisy", &name),
            uid: name.clone(),
            version,
        };
        cache.on_applied(noise, name, 1);
        assert!(cache.len() <= 20);
    }
    for name in quiet {
        assert_eq!(get(&cache, name).as_deref(), Some(name));
    }
    let newest = Key::new("noisy", "noise-1000");
    assert!(cache.get(&newest).is_some());
}

/// An owner that waits for an undecodable object must be reconciled when the object is deleted.
#[test]
fn the_deletion_of_an_undecodable_object_is_notified() {
    for is_relisted in [false, true] {
        let cache = cache();
        let (names, key) = (Arc::<Mutex<Vec<String>>>::default(), Key::new("n", "a"));
        let seen = Arc::clone(&names);
        let invalid = InvalidObject {
            uid: "1".to_owned(),
            version: "5".to_owned(),
            generation: 1,
            error: "no number".to_owned(),
        };
        cache.on_invalid(&key, invalid);
        cache.on_change(move |change| {
            assert!(change.old.is_none() && change.new.is_none());
            seen.lock().unwrap().push(change.key.name.clone());
        });
        if is_relisted {
            cache.begin_relist(None, 2);
            cache.finish_relist(None, 2, &HashSet::new());
        } else {
            cache.on_deleted(&identity("a", "other", 6));
            assert!(names.lock().unwrap().is_empty(), "another object");
            cache.on_deleted(&identity("a", "1", 7));
        }
        assert_eq!(*names.lock().unwrap(), ["a"], "relisted: {is_relisted}");
        assert_eq!(cache.invalid(&key), None);
    }
}
