//! `cargo xtask mutants`: puts one bug at a time into the operator, and looks whether the suites see it.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::Arc,
    time::Instant,
};

use ::mutant::{About, Mutant};
use anyhow::{Context, Result, ensure};
use testkit::{
    faults::{
        campaign::{self, Lesson, Manner},
        plan::{Class, Plan},
        play::{QUIET, Scenario},
        point::Injection,
    },
    layout, operator,
};
use tokio::{sync::Semaphore, task::JoinSet};

use super::{Family, Stand, tasks, tenants};
use crate::testbed::{build_driver, require_root, runtime};

/// Chooses the bug of a test build.
const SWITCH: &str = "ORCHESTRATOR_MUTANT";

/// Plays of mutants at a time: most of them wait for what never comes.
const PLAYS: usize = 12;

/// Cases at a time: each has a cluster of its own.
const CASES: usize = 2;

/// Something that may see a mutant.
#[derive(Debug, Clone, PartialEq)]
enum Sight {
    /// A scenario with these faults.
    Play(String, Vec<Injection>),
    /// A case of `cargo xtask e2e SUITE`.
    Case(String, String),
    /// The leader frozen past its Lease.
    Freeze,
}

impl fmt::Display for Sight {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Play(scenario, script) => {
                let script: Vec<String> = script.iter().map(ToString::to_string).collect();
                write!(out, "{scenario}/{}", script.join("+"))
            }
            Self::Case(suite, case) => write!(out, "e2e {suite} {case}"),
            Self::Freeze => out.write_str("faults replicas, the leader frozen"),
        }
    }
}

/// A mutant, and what saw it.
struct Found {
    about: About,
    /// What saw it, and what that said; nothing if nobody did.
    killer: Option<(String, String)>,
}

/// Tries all mutants, or those whose names are given; `report` writes the page of the docs.
pub(crate) fn run(only: &[String], report: bool) -> Result<ExitCode> {
    require_root()?;
    build_driver()?;
    let binary = build()?;
    let mut chosen = Vec::new();
    for mutant in Mutant::ALL {
        let about = mutant.about();
        if only.is_empty() || only.iter().any(|name| name == about.id) {
            chosen.push((about, sights(about.seen_by)?));
        }
    }
    ensure!(!chosen.is_empty(), "there is no such mutant");
    let begin = Instant::now();
    let found = runtime()?.block_on(hunt(chosen, &binary))?;
    let killed = found.iter().filter(|one| one.killer.is_some()).count();
    let sum = format!(
        "{} mutants, {killed} killed, {} survived, {:.0} s",
        found.len(),
        found.len() - killed,
        begin.elapsed().as_secs_f64()
    );
    println!("{sum}");
    if report {
        let path = layout::repository().join("docs/reference/mutants.md");
        std::fs::write(&path, page(&found, &sum))?;
    }
    Ok(if killed == found.len() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The operator with the switches, beside the one without, which is put back in its place.
fn build() -> Result<PathBuf> {
    let cargo = |features: &[&str]| -> Result<()> {
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "operator"])
            .args(features)
            .current_dir(layout::repository())
            .status()?;
        ensure!(status.success(), "the operator cannot be built");
        Ok(())
    };
    cargo(&["--features", "mutants"])?;
    let program = testkit::process::this_program()?;
    let folder = program.parent().context("this program is in no folder")?;
    let binary = folder.join("orchestrator-mutants");
    std::fs::copy(folder.join("orchestrator"), &binary)?;
    cargo(&[])?;
    Ok(binary)
}

async fn hunt(chosen: Vec<(About, Vec<Sight>)>, binary: &Path) -> Result<Vec<Found>> {
    let mut found: Vec<Found> = chosen
        .iter()
        .map(|(about, _)| Found {
            about: *about,
            killer: None,
        })
        .collect();
    for family in Family::ALL {
        // Those of this family that no play saw yet.
        let mut open = chosen.clone();
        for ((_, sights), known) in open.iter_mut().zip(&found) {
            sights.retain(|sight| known.killer.is_none() && family_of(sight) == Some(family));
        }
        if open.iter().all(|(_, sights)| sights.is_empty()) {
            continue;
        }
        let stand = Stand::of(family, binary.to_owned()).await?;
        let result = plays(&stand, &open).await;
        stand.down().await?;
        for (known, one) in found.iter_mut().zip(result?) {
            known.killer = known.killer.take().or(one.killer);
        }
    }
    let left: Vec<(usize, Sight)> = chosen
        .iter()
        .enumerate()
        .filter(|(place, _)| found.get(*place).is_some_and(|one| one.killer.is_none()))
        .flat_map(|(place, (_, sights))| sights.iter().map(move |sight| (place, sight.clone())))
        .filter(|(_, sight)| !matches!(sight, Sight::Play(..)))
        .collect();
    for (place, killer) in cases(&chosen, left, binary).await? {
        if let Some(one) = found.get_mut(place) {
            one.killer = one.killer.take().or(Some(killer));
        }
    }
    Ok(found)
}

/// The family whose scenario it is, if it is one.
fn family_of(sight: &Sight) -> Option<Family> {
    let Sight::Play(name, _) = sight else {
        return None;
    };
    let of_tenants = tenants::scenarios();
    let is_of_tenants = of_tenants.iter().any(|one| one.name() == name);
    Some(match is_of_tenants {
        true => Family::Tenants,
        false => Family::Tasks,
    })
}

/// Plays the scenarios that can see each mutant until one does.
async fn plays(stand: &Stand, chosen: &[(About, Vec<Sight>)]) -> Result<Vec<Found>> {
    let used = |scenario: &Arc<dyn Scenario>| {
        let mut sights = chosen.iter().flat_map(|(_, sights)| sights.iter());
        sights.any(|sight| matches!(sight, Sight::Play(name, _) if name == scenario.name()))
    };
    let mut scenarios = stand.scenarios.clone();
    if stand.family == Family::Tasks {
        scenarios.extend(tasks::slow());
    }
    scenarios.retain(used);
    // The control: the same build without a bug must be seen by nobody.
    let lessons = Arc::new(super::learned(stand, &scenarios, PLAYS, QUIET).await?);
    control(stand, &lessons, chosen).await?;
    let gate = Arc::new(Semaphore::new(PLAYS));
    let mut hunts = JoinSet::new();
    for (place, (about, sights)) in chosen.iter().cloned().enumerate() {
        let (theatre, gate) = (Arc::clone(&stand.theatre), Arc::clone(&gate));
        let lessons = Arc::clone(&lessons);
        hunts.spawn(async move {
            let _permit = gate.acquire().await;
            let mut killer = None;
            for sight in &sights {
                if killer.is_none()
                    && let Some(plan) = plan_of(sight, &lessons)
                {
                    killer = seen(&theatre, &lessons, plan?, about, sight).await?;
                }
            }
            anyhow::Ok((place, Found { about, killer }))
        });
    }
    let mut found = BTreeMap::new();
    while let Some(ended) = hunts.join_next().await {
        let (place, one) = ended??;
        if one.killer.is_some() {
            println!("{}", line(&one));
        }
        found.insert(place, one);
    }
    Ok(found.into_values().collect())
}

/// Plays each script once without a bug: what is red anyway sees nothing.
async fn control(stand: &Stand, lessons: &[Lesson], chosen: &[(About, Vec<Sight>)]) -> Result<()> {
    let mut plans: BTreeMap<String, Plan> = BTreeMap::new();
    for sight in chosen.iter().flat_map(|(_, sights)| sights.iter()) {
        if let Some(plan) = plan_of(sight, lessons) {
            let plan = plan?;
            if !plan.script.is_empty() {
                plans.insert(plan.id(), plan);
            }
        }
    }
    let manner = Manner {
        parallel: PLAYS,
        stops_at_first: false,
        environment: Vec::new(),
    };
    let plans = plans.into_values().collect();
    let tally = campaign::run(&stand.theatre, lessons, plans, &manner, |_, _| {}).await?;
    for (id, violations) in &tally.divergences {
        println!("without a mutant {id}: {}", campaign::words(violations));
    }
    for (id, why) in &tally.unjudged {
        println!("without a mutant {id}: {why}");
    }
    for id in &tally.unreached {
        println!("without a mutant {id} hits nothing");
    }
    ensure!(
        tally.divergences.is_empty() && tally.unjudged.is_empty() && tally.unreached.is_empty(),
        "the plays above say nothing of mutants"
    );
    Ok(())
}

async fn seen(
    theatre: &Arc<testkit::faults::play::Theatre>,
    lessons: &[Lesson],
    plan: Plan,
    about: About,
    sight: &Sight,
) -> Result<Option<(String, String)>> {
    let manner = Manner {
        parallel: 1,
        stops_at_first: true,
        environment: vec![(SWITCH.to_owned(), about.id.to_owned())],
    };
    let tally = campaign::run(theatre, lessons, vec![plan], &manner, |_, _| {}).await?;
    for (id, why) in &tally.unjudged {
        println!("not judged {} {id}: {why}", about.id);
    }
    let first = tally.divergences.first();
    Ok(first.and_then(|(_, violations)| {
        let violation = violations.first()?;
        Some((sight.to_string(), violation.to_string()))
    }))
}

fn plan_of(sight: &Sight, lessons: &[Lesson]) -> Option<Result<Plan>> {
    let Sight::Play(name, script) = sight else {
        return None;
    };
    let known = lessons.iter().find(|one| one.scenario.name() == name);
    Some(match known {
        None => Err(anyhow::anyhow!("no scenario '{name}'")),
        Some(lesson) => Ok(Plan {
            scenario: lesson.scenario.name(),
            class: Class::Compound,
            script: script.clone(),
            seed: None,
        }),
    })
}

/// Runs cases with the mutants that no play saw; first all of them without one, because a case
/// that fails anyway sees nothing.
async fn cases(
    chosen: &[(About, Vec<Sight>)],
    left: Vec<(usize, Sight)>,
    binary: &Path,
) -> Result<Vec<(usize, (String, String))>> {
    let mut suites: Vec<String> = Vec::new();
    for (_, sight) in &left {
        if let Sight::Case(suite, _) = sight
            && !suites.contains(suite)
        {
            suites.push(suite.clone());
        }
    }
    for suite in suites {
        let mut names: Vec<&str> = Vec::new();
        for (_, sight) in &left {
            if let Sight::Case(of, name) = sight
                && *of == suite
                && !names.contains(&name.as_str())
            {
                names.push(name);
            }
        }
        let control = case(binary, None, &suite, &names).await?;
        ensure!(
            control.is_none(),
            "without a mutant: {}",
            control.unwrap_or_default()
        );
    }
    let gate = Arc::new(Semaphore::new(CASES));
    let mut hunts = JoinSet::new();
    for (place, sight) in left {
        let Some((about, _)) = chosen.get(place) else {
            continue;
        };
        let (id, gate, binary) = (about.id, Arc::clone(&gate), binary.to_owned());
        hunts.spawn(async move {
            let _permit = gate.acquire().await;
            let failure = match &sight {
                Sight::Case(suite, name) => case(&binary, Some(id), suite, &[name]).await?,
                Sight::Freeze => freeze(&binary, id).await?,
                Sight::Play(..) => None,
            };
            anyhow::Ok((place, id, sight, failure))
        });
    }
    let mut killers = Vec::new();
    while let Some(ended) = hunts.join_next().await {
        let (place, id, sight, failure) = ended??;
        match failure {
            Some(words) => {
                println!("killed    {id:<26} {sight}: {words}");
                killers.push((place, (sight.to_string(), words)));
            }
            None => println!("not seen  {id:<26} {sight}"),
        }
    }
    Ok(killers)
}

/// The first case that failed, in its own words.
async fn case(
    binary: &Path,
    mutant: Option<&str>,
    suite: &str,
    names: &[&str],
) -> Result<Option<String>> {
    let mut arguments = vec!["e2e", suite];
    arguments.extend(names);
    let text = told(binary, mutant, &arguments).await?;
    let failed = text.lines().find(|line| line.starts_with("FAILED"));
    ensure!(
        failed.is_some() || text.contains("passed, 0 failed"),
        "'{}' ended without a result: {text}",
        arguments.join(" ")
    );
    Ok(failed.map(|line| line.trim_start_matches("FAILED").trim().to_owned()))
}

/// What the frozen leader did that it must not.
async fn freeze(binary: &Path, mutant: &str) -> Result<Option<String>> {
    let times = ["--kills", "0", "--terms", "0", "--freezes", "2"];
    let arguments = [&["faults", "replicas"], &times[..]].concat();
    let text = told(binary, Some(mutant), &arguments).await?;
    let failed = text.lines().find(|line| line.contains("MUST NOT BE"));
    ensure!(
        failed.is_some() || text.contains("no write begun without the Lease"),
        "'{}' ended without a result: {text}",
        arguments.join(" ")
    );
    Ok(failed.map(|line| line.trim().to_owned()))
}

/// What a chore of this program says with another operator.
async fn told(binary: &Path, mutant: Option<&str>, arguments: &[&str]) -> Result<String> {
    let mut command = tokio::process::Command::new(testkit::process::this_program()?);
    command
        .args(arguments)
        .env(operator::BINARY_VARIABLE, binary)
        .current_dir(layout::repository())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    if let Some(mutant) = mutant {
        command.env(SWITCH, mutant);
    }
    let output = command.output().await?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

fn line(found: &Found) -> String {
    let id = found.about.id;
    match &found.killer {
        Some((sight, words)) => format!("killed    {id:<26} {sight}: {words}"),
        None => format!("SURVIVED  {id}"),
    }
}

/// The page of the docs.
fn page(found: &[Found], sum: &str) -> String {
    let mut text = format!(
        "<!-- Written by `cargo xtask mutants --report` -->\n# Mutants\n\n\
         Bugs that were put into the operator on purpose, one at a time, to see whether the suites notice.\n\
         Each is a switch of a test build; no release has them.\n\n{sum}.\n\n\
         | mutant | class | what goes wrong | seen by | what it said |\n|---|---|---|---|---|\n"
    );
    for Found { about, killer } in found {
        let (sight, words) = match killer {
            Some((sight, words)) => (format!("`{sight}`"), words.replace('|', "/")),
            None => ("**nobody**".to_owned(), String::new()),
        };
        let words = api::status::bounded(&words.replace(['\n', '<', '>'], " "), 160);
        text.push_str(&format!(
            "| `{}` | {} | {} | {sight} | {words} |\n",
            about.id, about.class, about.words
        ));
    }
    text
}

/// From the words of the table: `; ` between plays; `SCENARIO`, `SCENARIO, FAULT with FAULT`,
/// `e2e SUITE: CASE`, or `freeze`.
fn sights(words: &str) -> Result<Vec<Sight>> {
    words
        .split("; ")
        .map(|one| sight(one).with_context(|| format!("cannot read '{one}'")))
        .collect()
}

fn sight(words: &str) -> Result<Sight> {
    if words == "freeze" {
        return Ok(Sight::Freeze);
    }
    if let Some(case) = words.strip_prefix("e2e ") {
        let (suite, case) = case.split_once(": ").context("no case")?;
        return Ok(Sight::Case(suite.to_owned(), case.to_owned()));
    }
    let (scenario, script) = match words.split_once(", ") {
        None => (words, Vec::new()),
        Some((scenario, faults)) => {
            let script: Result<_> = faults.split(" with ").map(str::parse).collect();
            (scenario, script?)
        }
    };
    Ok(Sight::Play(scenario.to_owned(), script))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_says_what_can_see_it() {
        for mutant in Mutant::ALL {
            let about = mutant.about();
            let found = sights(about.seen_by);
            assert!(found.is_ok(), "{}: {found:?}", about.id);
        }
    }

    #[test]
    fn words_of_the_table_become_plays() {
        let read = |words: &str| {
            let all = sights(words).unwrap();
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            all.join(" | ")
        };
        for (words, wanted) in [
            ("retry", "retry/"),
            (
                "success, create-jobs=lost-504 with watch-jobs=stale-2000",
                "success/create-jobs:#1=lost-504+watch-jobs=stale-2000",
            ),
            (
                "success, create-jobs=403x9; e2e tasks: quota",
                "success/create-jobs:#1=403x9 | e2e tasks quota",
            ),
            (
                "success, patch-taskruns.status#2=500",
                "success/patch-taskruns.status:#2=500",
            ),
            ("freeze", "faults replicas, the leader frozen"),
        ] {
            assert_eq!(read(words), wanted);
        }
        for wrong in [
            "success, create-jobs",
            "success, create-jobs=no",
            "e2e tasks",
        ] {
            assert!(sights(wrong).is_err(), "{wrong}");
        }
    }
}
