//! Cases of the end-to-end suites and the frozen leader, with another operator.

use std::{
    path::Path,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use ::mutant::About;
use anyhow::{Result, ensure};
use testkit::{junit, layout, operator};
use tokio::{sync::Semaphore, task::JoinSet};

use super::{SWITCH, Sighting, detector::Detector};

/// Cases at a time: each has a cluster of its own.
const CASES: usize = 2;

/// Runs cases with the mutants that no play saw; first all of them without one, because a case
/// that fails anyway sees nothing. Returns the time of each case, and the sighting if it failed.
pub(super) async fn run(
    chosen: &[(About, Vec<Detector>)],
    left: Vec<(usize, Detector)>,
    binary: &Path,
) -> Result<Vec<(usize, Duration, Option<Sighting>)>> {
    let mut suites: Vec<String> = Vec::new();
    for (_, detector) in &left {
        if let Detector::Case(suite, _) = detector
            && !suites.contains(suite)
        {
            suites.push(suite.clone());
        }
    }
    for suite in suites {
        let mut names: Vec<&str> = Vec::new();
        for (_, detector) in &left {
            if let Detector::Case(of, name) = detector
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
    for (place, detector) in left {
        let Some((about, _)) = chosen.get(place) else {
            continue;
        };
        let (id, gate, binary) = (about.id, Arc::clone(&gate), binary.to_owned());
        hunts.spawn(async move {
            let _permit = gate.acquire().await;
            let begin = Instant::now();
            let failure = match &detector {
                Detector::Case(suite, name) => case(&binary, Some(id), suite, &[name]).await?,
                Detector::Freeze => freeze(&binary, id).await?,
                Detector::ScenarioRun(..) => None,
            };
            anyhow::Ok((place, id, detector, begin.elapsed(), failure))
        });
    }
    let mut all = Vec::new();
    while let Some(ended) = hunts.join_next().await {
        let (place, id, detector, took, failure) = ended??;
        match &failure {
            Some(words) => println!("killed    {id:<26} {detector}: {words}"),
            None => println!("not seen  {id:<26} {detector}"),
        }
        let sighting = failure.map(|words| Sighting {
            detector: detector.to_string(),
            oracles: vec!["the case".to_owned()],
            words,
        });
        all.push((place, took, sighting));
    }
    Ok(all)
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
    // A freeze that meets no write on its way sees nothing.
    let times = ["--kills", "0", "--terms", "0", "--freezes", "8"];
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

/// What a task of this program says with another operator.
async fn told(binary: &Path, mutant: Option<&str>, arguments: &[&str]) -> Result<String> {
    let mut command = tokio::process::Command::new(testkit::process::this_program()?);
    command
        .args(arguments)
        .env(operator::BINARY_VARIABLE, binary)
        // A case that fails because of a mutant is no failure of its suite.
        .env_remove(junit::DIRECTORY_VARIABLE)
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
