//! `check`: is the installation well?
//!
//! `gather` reads the state of the cluster, `judge` decides about it without a cluster, and this
//! file prints the findings.

mod gather;
mod judge;
mod view;
mod webhooks;

use crate::{
    Exit,
    arguments::Check,
    failure::Failure,
    session::Session,
    text::{Table, Tone, cell, toned},
};
use judge::{Finding, Verdict};

pub(crate) async fn run(_verb: Check, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let server = session.server().await?;
    let state = gather::state(&server, session.now()).await?;
    let findings = judge::findings(&state);
    let mut table = Table::new(vec!["CHECK", "RESULT", "DETAIL"]);
    for finding in &findings {
        let result = match finding.verdict {
            Verdict::Ok => toned("✓ ok", Tone::Good),
            Verdict::Warning => toned("! warning", Tone::Waiting),
            Verdict::Failed => toned("✗ failed", Tone::Bad),
        };
        table.push(vec![cell(&finding.check), result, cell(&finding.detail)]);
    }
    session.print(&table.render(session.paint, session.room()))?;
    Ok(exit(&findings))
}

/// Returns the exit code. A warning is no failure: a user may lack the permission to read a part of
/// the installation.
fn exit(findings: &[Finding]) -> Exit {
    let mut verdicts = findings.iter().map(|finding| finding.verdict);
    match verdicts.any(|verdict| verdict == Verdict::Failed) {
        true => Exit::Failed,
        false => Exit::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failure_is_an_exit_code() {
        let finding = |verdict| Finding {
            check: String::new(),
            verdict,
            detail: String::new(),
        };
        let all = [Verdict::Ok, Verdict::Warning].map(finding);
        assert_eq!(exit(&all), Exit::Ok);
        let all = [Verdict::Failed, Verdict::Ok].map(finding);
        assert_eq!(exit(&all), Exit::Failed);
    }
}
