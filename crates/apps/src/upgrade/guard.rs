//! Checks that the locks of a request still hold while its workloads are stopped.

use api::{Reason, apps::PlannedFluxObject};

use super::Request;
use crate::discover::Problem;

/// Returns why Flux may apply the application again, or `None` if each object is suspended and locked by the request.
pub(super) fn broken(request: &Request<'_>) -> Option<Problem> {
    let plan = request.plan()?;
    let is_suspending = !plan.is_without_snapshots;
    plan.flux_objects
        .iter()
        .find_map(|planned| broken_lock(request, planned, is_suspending))
}

fn broken_lock(
    request: &Request<'_>,
    planned: &PlannedFluxObject,
    is_suspending: bool,
) -> Option<Problem> {
    let id = planned.id();
    let Some(live) = request.world.flux(planned) else {
        return Some(Problem::new(
            Reason::PlanOutdated,
            format!("{id} was deleted or recreated during the request"),
        ));
    };
    let problem = |what: String| {
        let message = format!("{id} {what}");
        Some(Problem::new(Reason::SuspendReverted, message))
    };
    if !live.lock.is_held_by(request.uid()) {
        return problem("lost the lock of the request".to_owned());
    }
    if is_suspending && !live.is_suspended() {
        let by = match live.suspend_managers.as_slice() {
            [] => String::new(),
            managers => format!(" by '{}'", managers.join("', '")),
        };
        return problem(format!("was resumed during the request{by}"));
    }
    None
}
