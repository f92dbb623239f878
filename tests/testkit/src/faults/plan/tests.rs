//! Tables of plans.

use super::*;

fn point(verb: &str, resource: &str, name: &str, nth: u32) -> Point {
    Point {
        route: Route::new(verb, resource),
        name: name.to_owned(),
        nth,
    }
}

fn learned() -> Learned {
    Learned {
        writes: BTreeSet::from([
            point("create", "jobs", "work-1", 1),
            point("patch", "taskruns/status", "work", 1),
            point("patch", "taskruns/status", "work", 2),
        ]),
        routes: BTreeSet::from([
            Route::new("create", "jobs"),
            Route::new("patch", "taskruns/status"),
            Route::new("watch", "jobs"),
        ]),
        watched: BTreeSet::from(["jobs".to_owned(), "pods".to_owned()]),
        varying: BTreeSet::new(),
    }
}

#[test]
fn every_write_is_hit_in_five_ways() {
    let plans = of_writes("success", &learned());
    assert_eq!(plans.len(), 3 * 5);
    let ids: BTreeSet<String> = plans.iter().map(Plan::id).collect();
    assert_eq!(ids.len(), plans.len(), "ids are unique");
    assert!(
        ids.contains("success/create-jobs:work-1#1=kill-before"),
        "{ids:?}"
    );
    for lost in ["lost-reset", "lost-504"] {
        assert!(ids.iter().any(|id| id.ends_with(lost)), "{ids:?}");
    }
}

#[test]
fn every_route_is_hit_once_with_each_answer_in_the_first_scenario_that_has_it() {
    let mut second = learned();
    second.routes.insert(Route::new("delete", "jobs"));
    let plans = of_routes(&[("success", learned()), ("delete", second)]);
    assert_eq!(plans.len(), 4 * 8);
    let elsewhere = plans.iter().filter(|plan| plan.scenario == "delete");
    assert_eq!(elsewhere.count(), 8);
}

#[test]
fn a_watch_is_cut_in_half_where_it_has_something_to_tell() {
    let torn = |learned: &[(&'static str, Learned)]| {
        let all = of_routes(learned).into_iter();
        let torn = all.filter(|plan| plan.id().contains("watch-jobs:#1=truncated"));
        torn.map(|plan| plan.scenario).collect::<Vec<_>>()
    };
    let silent = Learned {
        watched: BTreeSet::new(),
        ..learned()
    };
    assert_eq!(
        torn(&[("silent", silent.clone()), ("busy", learned())]),
        ["busy"]
    );
    assert!(torn(&[("silent", silent)]).is_empty());
}

#[test]
fn a_beginning_is_hit_once_and_what_is_told_each_time() {
    let mut longer = learned();
    let last = point("delete", "jobs", "work-1", 1);
    longer.writes.insert(last.clone());
    let left = longer.clone().without_beginning(&learned()).writes;
    let told = |nth| point("patch", "taskruns/status", "work", nth);
    assert_eq!(left, BTreeSet::from([last.clone(), told(1), told(2)]));

    // Once, by a late watch, the beginning made this write: here it is another one.
    let mut beginning = learned();
    beginning.writes.insert(last.clone());
    beginning.varying.insert(last.clone());
    let left = longer.without_beginning(&beginning).writes;
    assert!(left.contains(&last));
}

#[test]
fn what_one_of_two_plays_did_is_hit_and_may_miss() {
    let seldom = point("patch", "taskruns/status", "work", 3);
    let mut once = learned();
    once.writes.insert(seldom.clone());
    let both = learned().and(once);
    assert_eq!(both.varying, BTreeSet::from([seldom.clone()]));
    let all = of_writes("success", &both);
    assert_eq!(all.len(), 4 * 5);
    let certain = point("patch", "taskruns/status", "work", 2);
    let known = [("success", both)];
    let may_miss: Vec<String> = all
        .iter()
        .filter(|plan| varies(&known, plan))
        .map(Plan::id)
        .collect();
    assert_eq!(may_miss.len(), 5, "{may_miss:?}");
    assert!(may_miss.iter().all(|id| id.contains("#3")), "{may_miss:?}");
    let mixed = Plan {
        script: vec![hit(seldom, Fault::Reset, 1), hit(certain, Fault::Reset, 1)],
        ..compound("success", &known[0].1, 1)
    };
    assert!(!varies(&known, &mixed));
    let nothing = Plan {
        script: Vec::new(),
        ..mixed
    };
    assert!(!varies(&known, &nothing));
}

#[test]
fn every_watched_resource_is_late_cut_and_too_old() {
    assert_eq!(of_watches("success", &learned()).len(), 2 * 4);
}

#[test]
fn an_id_is_enough_to_play_it_again() {
    for plan in of_writes("success", &learned()) {
        let id = plan.id();
        let (_, words) = id.split_once('/').unwrap();
        let again = of_words("success", words).unwrap();
        assert_eq!(again.script, plan.script, "{id}");
    }
    assert!(of_words("success", "create-jobs").is_err());
    let faultless = of_words("success", "").unwrap();
    assert!(faultless.script.is_empty());
    assert_eq!(faultless.id(), "success/");
}

#[test]
fn one_point_more_changes_few_schedules() {
    let mut more = learned();
    more.writes.insert(point("delete", "jobs", "work-1", 1));
    let changed = (0..100)
        .filter(|seed| {
            compound("success", &learned(), *seed).script
                != compound("success", &more, *seed).script
        })
        .count();
    assert!((1..60).contains(&changed), "{changed} of 100");
}

#[test]
fn a_seed_is_a_schedule() {
    let one = compound("success", &learned(), 7);
    assert_eq!(one, compound("success", &learned(), 7));
    assert_eq!(one.id(), "success/seed-7");
    let others: BTreeSet<String> = (0..50)
        .map(|seed| format!("{:?}", compound("success", &learned(), seed).script))
        .collect();
    assert!(others.len() > 45, "{} different ones", others.len());
    for seed in 0..200 {
        let count = compound("success", &learned(), seed).script.len();
        assert!((2..=4).contains(&count), "{count} faults");
    }
}

#[test]
fn a_share_is_fixed_and_leaves_no_group_out() {
    let mut all = of_writes("success", &learned());
    all.extend(of_watches("success", &learned()));
    all.push(compound("retry", &learned(), 1));
    let some = share(all.clone(), 6, 3);
    assert_eq!(some, share(all.clone(), 6, 3));
    assert_eq!(some.len(), 6);
    assert!(some.iter().any(|plan| plan.scenario == "retry"));
    for class in [Class::Write, Class::Watch, Class::Compound] {
        assert!(some.iter().any(|plan| plan.class == class), "{class:?}");
    }
    assert_eq!(share(all.clone(), 1000, 3).len(), all.len());
}

#[test]
fn over_all_seeds_every_plan_has_its_turn() {
    let mut all = of_writes("success", &learned());
    all.extend(of_watches("success", &learned()));
    all.extend((0..5).map(|seed| compound("retry", &learned(), seed)));
    let wanted: BTreeSet<String> = all.iter().map(Plan::id).collect();
    let mut played = BTreeSet::new();
    for seed in 0..300 {
        let some = share(all.clone(), 2, seed);
        played.extend(some.iter().map(Plan::id));
    }
    assert_eq!(played, wanted);
}

#[test]
fn only_the_first_renewals_of_a_lease_are_points() {
    let traced = |point: Point| Traced {
        at: std::time::Instant::now(),
        point,
        namespace: String::new(),
        code: Some(200),
        fault: None,
    };
    let mut trace: Vec<Traced> = (1..=9)
        .map(|nth| traced(point("update", "leases", "tasks", nth)))
        .collect();
    trace.push(traced(point("watch", "jobs", "", 1)));
    trace.push(traced(point("watch", "nodes", "", 1)));
    trace.push(traced(point("create", "jobs", "work-1", 1)));
    let learned = Learned::of(&trace, &BTreeSet::from(["jobs".to_owned()]));
    assert_eq!(learned.writes.len(), 3);
    assert_eq!(learned.watched, BTreeSet::from(["jobs".to_owned()]));
    assert_eq!(learned.routes.len(), 4);
    assert_eq!(learned.without_election().writes.len(), 1);
}
