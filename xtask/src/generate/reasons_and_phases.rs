//! The reference of reasons, and of phases and conditions.

use api::{
    CommonStatus, Lifecycle, Reason, State, Timestamp, Verdict,
    kinds::{self, KindRow},
    phase::PhaseText,
};

use super::{
    Output,
    markdown::{cell, page, table},
};

pub(super) fn outputs() -> Vec<Output> {
    vec![
        Output::reference("reasons", reasons()),
        Output::reference("states", states()),
    ]
}

fn reasons() -> String {
    let mut text = page("Reasons");
    text.push_str(
        "\nThe `reason` of a condition, an Event or a result is one of these words. \
         The `message` beside it names the case at hand.\n",
    );
    for reason in Reason::all() {
        text.push_str(&format!(
            "\n## {reason}\n{}\n\n**What to do:** {}\n",
            reason.meaning(),
            reason.advice()
        ));
    }
    text
}

fn states() -> String {
    let mut text = page("Phases and conditions");
    text.push_str(
        "\n`status.phase` is for people. Programs read the conditions: \
         `kubectl wait --for=condition=Finished` returns at any end of a run.\n\n\
         An arrow with `deadline` also applies when the deadline of the phase passes; \
         `status.deadlineAt` has its time. An arrow with `undo` leads to the phase that undoes \
         the one before.\n",
    );
    text.extend(kinds::all().map(kind));
    text
}

/// A kind's phases as a diagram and a table, and the conditions of its states.
fn kind(row: &KindRow) -> String {
    let phases = (row.phases)();
    let mut text = format!(
        "\n## {}\n```mermaid\n{}```\n\nThe same as text:\n\n```text\n{}```\n\n",
        row.name(),
        diagram(&phases, row.epoch),
        arrows(&phases, row.epoch)
    );
    let rows: Vec<_> = phases
        .iter()
        .map(|phase| {
            [
                format!("`{}`", phase.name),
                cell(phase.meaning),
                cell(&phase.deadline),
                phase.expiry(),
                cell(&phase.undo),
            ]
        })
        .collect();
    text.push_str(&table(
        ["phase", "meaning", "deadline", "at the deadline", "undo"],
        &rows,
    ));
    text.push_str("\nThe conditions when it is\n\n");
    let ends: &[State] = match row.lifecycle {
        Lifecycle::LongLived => &[State::Ready],
        Lifecycle::RunToCompletion => &[State::Succeeded, State::Failed],
    };
    let rows: Vec<_> = [State::Working, State::Stalled]
        .iter()
        .chain(ends)
        .map(|state| [format!("{state:?}"), conditions(row.lifecycle, *state)])
        .collect();
    text.push_str(&table(["state", "conditions"], &rows));
    if !row.conditions.is_empty() {
        text.push_str("\nand beside them\n\n");
        let rows: Vec<_> = row
            .conditions
            .iter()
            .map(|(name, meaning)| [format!("`{name}`"), cell(meaning)])
            .collect();
        text.push_str(&table(["condition", "meaning"], &rows));
    }
    text
}

/// `epoch` is the field of the spec that starts a finished object again.
fn diagram(phases: &[PhaseText], epoch: Option<&str>) -> String {
    let mut text = String::from("stateDiagram-v2\n");
    let mut line = |from: &str, to: &str| text.push_str(&format!("    {from} --> {to}\n"));
    let first = phases.first().map(|phase| phase.name);
    if let Some(first) = first {
        line("[*]", first);
    }
    for phase in phases {
        for next in phase.next.iter().filter(|next| **next != phase.name) {
            line(phase.name, &labeled(phase, next, ": ", ""));
        }
        if phase.leads_to_itself() {
            line(phase.name, "[*]");
        }
        if phase.next.is_empty() {
            line(phase.name, "[*]");
            if let (Some(first), Some(field)) = (first, epoch) {
                line(phase.name, &format!("{first}: higher {field}"));
            }
        }
    }
    text
}

fn arrows(phases: &[PhaseText], epoch: Option<&str>) -> String {
    let first = phases.first().map_or("", |phase| phase.name);
    let lengths = phases.iter().map(|phase| phase.name.len());
    let width = lengths.max().unwrap_or_default();
    let mut text = format!("{:width$} -> {first}\n", "");
    for phase in phases {
        let next = phase.next.iter();
        let next: Vec<String> = next.map(|next| labeled(phase, next, " (", ")")).collect();
        let next = match (next.is_empty(), epoch) {
            (false, _) if phase.leads_to_itself() => "until it is gone".to_owned(),
            (false, _) => next.join(" | "),
            (true, Some(field)) => format!("the end; {first} when {field} grows"),
            (true, None) => "the end".to_owned(),
        };
        text.push_str(&format!("{:width$} -> {next}\n", phase.name));
    }
    text
}

/// What [`CommonStatus::apply_verdict`] makes of a state; asked, not repeated.
fn conditions(shape: Lifecycle, state: State) -> String {
    let verdict = Verdict {
        state,
        reason: Reason::Progressing,
        message: String::new(),
    };
    let mut progress = CommonStatus::default();
    progress.apply_verdict(shape, &verdict, 1, Timestamp::UNIX_EPOCH);
    let said: Vec<String> = progress
        .conditions
        .iter()
        .map(|condition| format!("`{}={}`", condition.type_, condition.status))
        .collect();
    said.join(", ")
}

/// Returns the name of the next phase, marked if the deadline or the undo leads there.
fn labeled(phase: &PhaseText, next: &str, open: &str, close: &str) -> String {
    let label = phase.transition_label(next);
    let label = label.map(|label| [open, label, close].concat());
    next.to_owned() + &label.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use api::{tasks::TASK_RUN, tenants::TENANT};

    use super::*;

    fn drawn_and_told(kind: &KindRow) -> (String, String) {
        let phases = (kind.phases)();
        (diagram(&phases, kind.epoch), arrows(&phases, kind.epoch))
    }

    #[test]
    fn the_diagram_has_each_arrow_of_the_table() {
        let (drawn, told) = drawn_and_told(&TASK_RUN);
        for phase in (TASK_RUN.phases)() {
            for next in phase.next {
                let arrow = format!("    {} --> {next}", phase.name);
                assert!(drawn.contains(&arrow), "{arrow}{drawn}");
            }
        }
        assert!(drawn.contains("    Running --> Succeeded\n"), "{drawn}");
        assert!(drawn.contains("    Running --> Failed: deadline\n"));
        assert!(drawn.contains("Failed --> Pending: higher spec.contextVersion"));
        assert!(told.contains("Pending   -> Running | Succeeded | Failed (deadline)"));
        assert!(told.contains("Failed    -> the end; Pending when spec.contextVersion grows"));
    }

    #[test]
    fn a_phase_that_leads_to_itself_ends_with_the_object() {
        let (drawn, told) = drawn_and_told(&TENANT);
        assert!(drawn.contains("    Terminating --> [*]\n"), "{drawn}");
        assert!(!drawn.contains("Terminating --> Terminating"), "{drawn}");
        assert!(told.contains("Terminating  -> until it is gone"), "{told}");
    }

    #[test]
    fn a_failed_run_is_finished_and_stalled() {
        assert_eq!(
            conditions(Lifecycle::RunToCompletion, State::Failed),
            "`Succeeded=False`, `Stalled=True`, `Finished=True`"
        );
    }
}
