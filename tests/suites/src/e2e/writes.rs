//! What an operator writes while nothing happens, by the audit log.

use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::{audit::Mark, operator::Operator, suite::Env};

/// Writes of an operator.
pub(super) struct Writes {
    /// Those of its Lease.
    pub(super) renewals: usize,
    pub(super) others: usize,
    /// All requests of everybody, for messages.
    pub(super) requests: String,
}

/// Its writes since a mark.
pub(super) async fn since(env: &Env, mark: Mark, operator: &Operator) -> Result<Writes> {
    let audit = env.testbed("the audit log")?.audit();
    let counts = audit.counts(&env.client, mark).await?;
    let of = |leases: bool| {
        counts.of(|request| {
            request.user == operator.user
                && request.is_write()
                && request.resource.starts_with("leases") == leases
        })
    };
    Ok(Writes {
        renewals: of(true),
        others: of(false),
        requests: counts.to_string(),
    })
}

/// For this time it writes nothing but its Lease, at least so often: that shows that it is there. Returns how
/// often.
pub(super) async fn quiet(
    env: &Env,
    operator: &Operator,
    time: Duration,
    least: usize,
) -> Result<usize> {
    let audit = env.testbed("the audit log")?.audit();
    let mark = audit.mark(&env.client).await?;
    tokio::time::sleep(time).await;
    let Writes {
        renewals,
        others,
        requests,
    } = since(env, mark, operator).await?;
    ensure!(
        others == 0,
        "{others} writes in {} s:\n{requests}",
        time.as_secs()
    );
    ensure!(
        renewals >= least,
        "the operator was not there: {renewals} renewals"
    );
    Ok(renewals)
}
