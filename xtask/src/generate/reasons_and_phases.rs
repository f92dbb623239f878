//! The reference of reasons, and of phases and conditions.

use api::{
    CommonStatus, Lifecycle, Phase, PhaseRow, Reason, State, Status, Timestamp, Verdict,
    tasks::{AgentStatus, DocsRunStatus, TaskRunStatus},
    tenants::TenantStatus,
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
    for reason in Reason::ALL {
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
    let of_long_lived = [State::Working, State::Stalled, State::Ready];
    text.push_str(&kind::<AgentStatus>("Agent", &of_long_lived, &[]));
    let of_runs = [
        State::Working,
        State::Stalled,
        State::Succeeded,
        State::Failed,
    ];
    let own = api::tasks::condition::MEANINGS;
    text.push_str(&kind::<TaskRunStatus>("TaskRun", &of_runs, own));
    text.push_str(&kind::<DocsRunStatus>("DocsRun", &of_runs, own));
    let own = api::tenants::condition::MEANINGS;
    text.push_str(&kind::<TenantStatus>("Tenant", &of_long_lived, own));
    text
}

/// A kind's phases as a diagram and a table, and the conditions of its states.
fn kind<S: Status>(name: &str, states: &[State], own: &[(&str, &str)]) -> String {
    let phases = <S::Phase as Phase>::TABLE;
    let mut text = format!(
        "\n## {name}\n```mermaid\n{}```\n\nThe same as text:\n\n```text\n{}```\n\n",
        diagram::<S>(phases),
        arrows::<S>(phases)
    );
    let rows: Vec<_> = phases
        .iter()
        .map(|row| {
            [
                format!("`{}`", row.phase.name()),
                cell(row.meaning),
                cell(&row.describe_deadline()),
                row.describe_expiry(),
                cell(&row.describe_undo()),
            ]
        })
        .collect();
    text.push_str(&table(
        ["phase", "meaning", "deadline", "at the deadline", "undo"],
        &rows,
    ));
    text.push_str("\nThe conditions when it is\n\n");
    let rows: Vec<_> = states
        .iter()
        .map(|state| [format!("{state:?}"), conditions(S::LIFECYCLE, *state)])
        .collect();
    text.push_str(&table(["state", "conditions"], &rows));
    if !own.is_empty() {
        text.push_str("\nand beside them\n\n");
        let rows: Vec<_> = own
            .iter()
            .map(|(name, meaning)| [format!("`{name}`"), cell(meaning)])
            .collect();
        text.push_str(&table(["condition", "meaning"], &rows));
    }
    text
}

fn diagram<S: Status>(phases: &[PhaseRow<S::Phase>]) -> String {
    let mut text = String::from("stateDiagram-v2\n");
    let mut line = |from: &str, to: &str| text.push_str(&format!("    {from} --> {to}\n"));
    let first = phases.first().map(|row| row.phase.name());
    if let Some(first) = first {
        line("[*]", first);
    }
    for row in phases {
        for next in row.next.iter().filter(|next| **next != row.phase) {
            line(row.phase.name(), &labeled(row, *next, ": ", ""));
        }
        if row.leads_to_itself() {
            line(row.phase.name(), "[*]");
        }
        if row.next.is_empty() {
            line(row.phase.name(), "[*]");
            if let (Some(first), Some(field)) = (first, S::EPOCH) {
                line(row.phase.name(), &format!("{first}: higher {field}"));
            }
        }
    }
    text
}

fn arrows<S: Status>(phases: &[PhaseRow<S::Phase>]) -> String {
    let first = phases.first().map_or("", |row| row.phase.name());
    let width = phases
        .iter()
        .map(|row| row.phase.name().len())
        .max()
        .unwrap_or_default();
    let mut text = format!("{:width$} -> {first}\n", "");
    for row in phases {
        let next = row.next.iter().map(|next| labeled(row, *next, " (", ")"));
        let next: Vec<String> = next.collect();
        let next = match (next.is_empty(), S::EPOCH) {
            (false, _) if row.leads_to_itself() => "until it is gone".to_owned(),
            (false, _) => next.join(" | "),
            (true, Some(field)) => format!("the end; {first} when {field} grows"),
            (true, None) => "the end".to_owned(),
        };
        text.push_str(&format!("{:width$} -> {next}\n", row.phase.name()));
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
fn labeled<P: Phase>(row: &PhaseRow<P>, next: P, open: &str, close: &str) -> String {
    let label = row.transition_label(next);
    let label = label.map(|label| [open, label, close].concat());
    next.name().to_owned() + &label.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_diagram_has_each_arrow_of_the_table() {
        let phases = <<TaskRunStatus as Status>::Phase as Phase>::TABLE;
        let (drawn, told) = (
            diagram::<TaskRunStatus>(phases),
            arrows::<TaskRunStatus>(phases),
        );
        for row in phases {
            for next in row.next {
                let arrow = format!("    {} --> {}", row.phase.name(), next.name());
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
        let phases = <<TenantStatus as Status>::Phase as Phase>::TABLE;
        let (drawn, told) = (
            diagram::<TenantStatus>(phases),
            arrows::<TenantStatus>(phases),
        );
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
