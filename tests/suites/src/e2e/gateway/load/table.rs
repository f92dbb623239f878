//! The table of measurements: both sides, their relation, and the target.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
};

use anyhow::{Result, ensure};

/// A measurement.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    pub(super) measurement: &'static str,
    /// The side without the gateway, or without the load.
    pub(super) reference: String,
    pub(super) gateway: String,
    pub(super) value: f64,
    pub(super) target: Target,
}

/// The values that are good enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Target {
    AtLeast(f64),
    AtMost(f64),
    Exactly(f64),
}

impl Target {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
            Self::Exactly(wanted) => (value - wanted).abs() < f64::EPSILON,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(out, "≥ {bound}"),
            Self::AtMost(bound) => write!(out, "≤ {bound}"),
            Self::Exactly(wanted) => write!(out, "{wanted}"),
        }
    }
}

/// Lines by measurement. The second try of a case replaces the first.
static LINES: Mutex<BTreeMap<&'static str, Line>> = Mutex::new(BTreeMap::new());

/// Adds lines to the table. Returns their text.
///
/// # Errors
/// A target is missed. All lines are in the table nevertheless.
pub(super) fn add(lines: &[Line]) -> Result<String> {
    let mut known = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    for line in lines {
        known.insert(line.measurement, line.clone());
    }
    drop(known);
    let text: Vec<String> = lines.iter().map(Line::text).collect();
    let text = text.join("; ");
    let is_met = lines.iter().all(|line| line.target.is_met(line.value));
    ensure!(is_met, "a target is missed: {text}");
    Ok(text)
}

impl Line {
    fn text(&self) -> String {
        let Self {
            measurement,
            value,
            target,
            ..
        } = self;
        format!("{measurement}: {value:.2} (target {target})")
    }
}

/// The lines of this process.
pub(super) struct Table(Vec<Line>);

impl Table {
    pub(super) fn now() -> Self {
        let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        Self(lines.values().cloned().collect())
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "| measurement | reference | gateway | value | target | met |\n|---|---|---|---|---|---|"
        )?;
        for line in &self.0 {
            let Line {
                measurement,
                reference,
                gateway,
                value,
                target,
            } = line;
            let is_met = match target.is_met(*value) {
                true => "yes",
                false => "no",
            };
            write!(
                out,
                "\n| {measurement} | {reference} | {gateway} | {value:.2} | {target} | {is_met} |"
            )?;
        }
        Ok(())
    }
}

/// Returns the value below which this share of the values is. The share is from 0 to 1.
pub(super) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let index = (last as f64 * share).ceil() as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

/// Returns the middle value.
pub(super) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// Returns the middle value of the relations of two sides, measured one after the other in each round.
pub(super) fn median_ratio(rounds: &[(f64, f64)]) -> f64 {
    let ratios: Vec<f64> = rounds
        .iter()
        .map(|(reference, gateway)| gateway / reference)
        .collect();
    median(&ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(measurement: &'static str, value: f64, target: Target) -> Line {
        Line {
            measurement,
            reference: "400/s".to_owned(),
            gateway: "380/s".to_owned(),
            value,
            target,
        }
    }

    #[test]
    fn a_missed_target_is_an_error_and_in_the_table() {
        assert!(add(&[line("a", 0.95, Target::AtLeast(0.9))]).is_ok());
        let lines = [
            line("b", 20.0, Target::Exactly(20.0)),
            line("c", 1.6, Target::AtMost(1.5)),
        ];
        let error = add(&lines).unwrap_err().to_string();
        assert!(error.contains("c: 1.60 (target ≤ 1.5)"), "{error}");
        let text = Table::now().to_string();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| a | 400/s | 380/s | 0.95 | ≥ 0.9 | yes |",
                "| b | 400/s | 380/s | 20.00 | 20 | yes |",
                "| c | 400/s | 380/s | 1.60 | ≤ 1.5 | no |",
            ]
        );
        // No measurement is no success.
        for target in [
            Target::AtLeast(0.0),
            Target::AtMost(1.0),
            Target::Exactly(0.0),
        ] {
            assert!(!target.is_met(f64::NAN), "{target}");
        }
    }

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        for (share, wanted) in [(0.0, 1.0), (0.5, 51.0), (0.99, 100.0), (1.0, 100.0)] {
            assert!(
                (quantile(&values, share) - wanted).abs() < f64::EPSILON,
                "{share}"
            );
        }
        assert!(quantile(&[], 0.5).is_nan());
        let rounds = [(100.0, 90.0), (50.0, 50.0), (10.0, 1.0)];
        assert!((median_ratio(&rounds) - 0.9).abs() < f64::EPSILON);
    }
}
