use std::sync::atomic::AtomicUsize;

use super::*;
use crate::faults::{
    oracles::Oracle,
    point::{Fault, Injection, Point, Route},
};

fn played(violations: Vec<Violation>) -> ScenarioResult {
    ScenarioResult {
        learned: Learned::default(),
        outcome: Outcome::default(),
        violations,
        hits: Vec::new(),
        took: Duration::ZERO,
        kept: None,
    }
}

fn false_green() -> Violation {
    Violation {
        oracle: Oracle::NoFalseGreen,
        words: "says Succeeded=True, but it is not so".to_owned(),
    }
}

/// Learns a scenario whose play of this number, from 1, shows a false green; how often it was played.
async fn learned(wrong: usize) -> (Learning, usize) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let play = move |_: Option<Arc<Outcome>>, _: Duration| {
        let nth = counted.fetch_add(1, Ordering::Relaxed) + 1;
        let violations = if nth == wrong {
            vec![false_green()]
        } else {
            Vec::new()
        };
        async move { Ok(played(violations)) }.boxed()
    };
    let taught = twice(&play, QUIET).await;
    let mut learning = Learning::default();
    let id = "success/".to_owned();
    let knowledge = learning.add(id, Duration::from_secs(3), taught);
    assert_eq!(knowledge.is_some(), learning.is_clean());
    (learning, count.load(Ordering::Relaxed))
}

#[tokio::test]
async fn a_violation_without_faults_is_a_divergence_and_is_not_played_again() {
    for wrong in [1, 2] {
        let (learning, plays) = learned(wrong).await;
        assert_eq!(plays, wrong, "it was played again");
        let tally = Tally::of(&learning);
        assert!(!tally.is_clean());
        assert_eq!(tally.false_greens(), 1);
        assert_eq!(tally.divergences[0].0, "success/");
        let text = tally.to_string();
        assert!(
            text.contains("1 divergences, 0 not judged, 1 false greens"),
            "{text}"
        );
    }
    let (learning, plays) = learned(0).await;
    assert_eq!(plays, 2);
    assert!(Tally::of(&learning).is_clean());
}

#[test]
fn a_play_without_faults_that_cannot_be_judged_is_not_clean() {
    let mut learning = Learning::default();
    let knowledge = learning.add(
        "success/".to_owned(),
        Duration::ZERO,
        Err(anyhow!("no node")),
    );
    assert!(knowledge.is_none() && !learning.is_clean());
    assert!(!Tally::of(&learning).is_clean());
}

fn write(nth: u32, fault: Fault) -> Plan {
    Plan {
        scenario: "success",
        class: Class::Write,
        script: vec![Injection::Request {
            point: Point {
                route: Route::new("create", "events"),
                name: String::new(),
                nth,
            },
            fault,
            times: 1,
        }],
        seed: None,
    }
}

fn verdict(plan: &Plan, hit: usize) -> Result<Verdict> {
    Ok(Verdict {
        violations: Vec::new(),
        was_reached: hit > 0,
        faults: (hit, plan.script.len()),
        took: Duration::from_secs(hit as u64),
        plan: plan.clone(),
        kept: None,
    })
}

#[test]
fn points_that_no_fault_reached_are_named() {
    let mut tally = Tally::default();
    for (nth, hits) in [(1, [1, 1]), (2, [1, 0]), (3, [0, 0])] {
        for (hit, fault) in hits.into_iter().zip([Fault::KillAfter, Fault::Reset]) {
            let plan = write(nth, fault);
            tally.add(&plan, false, verdict(&plan, hit));
        }
    }
    let untouched: Vec<&str> = tally.untouched().collect();
    assert_eq!(untouched, ["success/create-events:#3"]);
    let text = tally.to_string();
    for wanted in [
        "write points: 2 of 3 hit by at least one fault, 1 by each of theirs",
        "single faults: 3 of 6 happened",
        "3 not reached (0 of them",
    ] {
        assert!(text.contains(wanted), "no '{wanted}' in {text}");
    }
    assert!(!tally.is_clean(), "half of all plans hit nothing");
}

#[test]
fn faults_of_compound_schedules_are_counted_for_themselves() {
    let mut tally = Tally::default();
    let several = |count: u32| Plan {
        class: Class::Compound,
        script: (1..=count)
            .flat_map(|nth| write(nth, Fault::Reset).script)
            .collect(),
        seed: Some(u64::from(count)),
        ..write(1, Fault::Reset)
    };
    for (count, hit) in [(3, 1), (2, 2)] {
        let plan = several(count);
        tally.add(&plan, false, verdict(&plan, hit));
    }
    let plan = write(1, Fault::Reset);
    tally.add(&plan, false, verdict(&plan, 1));
    let text = tally.to_string();
    for wanted in [
        "single faults: 1 of 1 happened",
        "faults of compound schedules: 3 of 5 happened; all of them in 1 of 2 schedules",
    ] {
        assert!(text.contains(wanted), "no '{wanted}' in {text}");
    }
    assert_eq!(tally.slowest(1)[0].0, "success/seed-2");
}

#[test]
fn what_not_every_play_asks_for_may_miss_and_is_said() {
    let mut tally = Tally::default();
    let plan = write(9, Fault::Reset);
    tally.add(&plan, true, verdict(&plan, 0));
    assert!(tally.is_clean());
    let text = tally.to_string();
    assert!(text.contains("1 not reached (1 of them"), "{text}");
}
