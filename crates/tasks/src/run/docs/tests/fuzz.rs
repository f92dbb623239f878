//! As for every run: each DocsRun that the types can parse is decided, and each object that is
//! built is valid.

use super::{generator::about, properties::check, *};
use crate::run::tests::{
    fuzz::{Tally, any_agent, any_object, cases, has_time, odd},
    generator::{Rng, text},
    properties::in_parallel,
};

/// Simulates a DocsRun from its first query to its end, in a world with nothing else in it.
fn live(mut scene: Scene, is_lawful: bool, rng: &mut Rng, tally: &Tally) {
    let pass = |scene: &mut Scene| {
        let decision = scene.decide();
        if is_lawful {
            check(scene, &decision);
        }
        tally.check_built(&decision.effects);
        scene.pass();
    };
    let heads = [
        scene.run.spec.source_branch.clone(),
        scene.run.output_branch(),
    ];
    for branch in heads {
        scene.server.heads.insert(branch, BASE.to_owned());
    }
    pass(&mut scene);
    for second in [2, 3, 11, 30, 60] {
        scene.at(second);
        if scene.worker.is_some() {
            scene.reply();
        }
        if !scene.around.world.children.jobs.is_empty() {
            match rng.below(4) {
                0 => {
                    scene.clone_container(running(10));
                }
                1 => {
                    scene.agent_container(running(10));
                }
                2 => {
                    let report = pushed().write();
                    scene.publish_container(ended(0, second - 1, &report), &text(rng));
                    scene.job_ends(0);
                }
                _ => {
                    scene.agent_container(ended(1, second - 1, &text(rng)));
                    scene.job_ends(1);
                }
            }
        }
        pass(&mut scene);
    }
}

#[test]
fn whatever_a_docs_run_asks_for_is_decided() {
    let tally = Tally::default();
    in_parallel(cases(35), |seed| {
        let mut rng = Rng::new(seed ^ 0xf0_d0);
        let rng = &mut rng;
        let Some(mut run) = any_object(&docs_run(json!({})), "DocsRun", rng, &tally) else {
            return;
        };
        let agent = any_agent(rng);
        // The addresses of the samples are rejected before anything is built.
        if !rng.one_in(4) {
            run.spec.repository_url = URL.to_owned();
        }
        // Only lengths that the CRD allows: messages contain these texts.
        let is_short = run.spec.repository_url.chars().count() <= 500
            && run.spec.source_branch.chars().count() <= 200
            && run.output_branch().chars().count() <= 200;
        let is_lawful = is_short && has_time(&agent, run.spec.timeout, None);
        if rng.one_in(2) {
            return live(Scene::new(run, Some(agent)), is_lawful, rng, &tally);
        }
        let spec = run.spec.clone();
        let (mut scene, fault) = about(seed, rng, run);
        if rng.one_in(2) {
            scene.run.spec = spec;
        }
        scene.around.world.agent = rng.maybe(|_| std::sync::Arc::new(agent));
        let is_odd = rng.one_in(2);
        if is_odd {
            scene.run.status = scene.run.status.map(|status| odd(&status, rng));
        }
        let decision = scene.decide_with(fault.as_ref());
        // The rules apply to statuses that we write.
        if is_lawful && !is_odd {
            check(&scene, &decision);
        }
        tally.check_built(&decision.effects);
        assert_eq!(scene.decide_with(fault.as_ref()), decision);
        let stored = scene.run.status.clone().unwrap_or_default();
        let status = decision.next_status(&stored, &phase_input(), 2, scene.now());
        assert_eq!(status.progress.observed_generation, 2);
    });
    tally.print("DocsRun", cases(35), true);
}
