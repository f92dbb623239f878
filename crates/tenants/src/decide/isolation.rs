//! Checks the network isolation of a Tenant with real connections.

use std::time::Duration;

use api::{
    Reason, Timestamp,
    decide::{ConditionUpdate, Effect, ReconcileError, ResourceType, Target},
    messages, names,
    status::{MAX_MESSAGE_CHARS, bounded},
    tenants::{
        CheckedConnection, ExpectedResult, Isolated, ObservedResult, TenantStatus, condition,
        namespace_of,
    },
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    TenantState,
    children::{self, Desired},
};
use crate::{
    build::{self, Connection, Side, probe, types},
    view::{ChildView, PodView},
    world::{Address, Neighbour},
};

/// Interval of isolation checks. An offset per Tenant is added, so that not all checks run at once.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Maximum offset between the checks of Tenants, in seconds.
const SPREAD: u64 = 3600;
/// Maximum number of Tenants that are checked at the same time.
pub const MAX_CONCURRENT_CHECKS: usize = 5;
/// Delay before a check that did not complete is repeated.
const RETRY_AFTER_ERROR: Duration = Duration::from_secs(60);
/// Delay before a check is repeated that found a violation, or nothing to probe.
const RETRY_AFTER_VIOLATION: Duration = Duration::from_secs(600);
/// Tolerated difference between clocks.
const SKEW: Duration = Duration::from_secs(60);
/// Minimum delay before the next attempt to get a slot. The maximum is twice that.
const SLOT_RETRY: Duration = Duration::from_secs(10);
/// Time after which an unfinished probe Pod counts as failed, whatever it waits for.
const LIMIT: Duration = Duration::from_secs(120);

/// A destination that every Pod must reach. Our policies alone cannot block it.
const DNS: &str = "the cluster's DNS";
/// Sources of connections.
const INSIDE: &str = "a Pod of the Tenant";
const OUTSIDE: &str = "a Pod outside";
/// Maximum length of the detail about a connection, in bytes.
const DETAIL: usize = 200;

/// Returns the condition of the policies: whether those of the spec exist, and no others.
pub(super) fn policies_condition(
    state: TenantState<'_>,
    wanted: &[Desired<'_>],
) -> ConditionUpdate {
    let update = |value: bool, reason: Reason, message: String| ConditionUpdate {
        kind: condition::NETWORK_POLICIES_READY,
        value: Some(value),
        reason,
        message,
    };
    if !state.context.spec.network_policy.enabled {
        let message =
            "there are none: 'networkPolicy.enabled' is false, and everybody may reach everything";
        return update(false, Reason::PoliciesDisabled, message.to_owned());
    }
    let is_policy = |one: &&Desired<'_>| one.manifest.resource == types::NETWORK_POLICY;
    let mut policies = wanted.iter().filter(is_policy);
    let count = policies.clone().count();
    if let Some(one) = policies.find(|one| !one.is_intact) {
        let message = format!("NetworkPolicy '{}' is being set", one.manifest.name);
        return update(false, Reason::Progressing, message);
    }
    if !state.world.foreign_policies.is_empty() {
        return update(false, Reason::UnmanagedPolicy, foreign(state));
    }
    let unwanted = children::to_prune(state, wanted);
    let unwanted = unwanted.filter(|(resource, _)| *resource == types::NETWORK_POLICY);
    let mut going = unwanted
        .map(|(_, child)| child)
        .chain(children::retained_policies(state, wanted));
    if let Some(other) = going.next() {
        return update(false, Reason::Progressing, leaving(other));
    }
    let message = format!("{count} policies exist, and no others");
    update(true, Reason::Created, message)
}

fn leaving(policy: &ChildView) -> String {
    format!(
        "NetworkPolicy '{}' is no longer needed but still exists",
        policy.name
    )
}

fn foreign(state: TenantState<'_>) -> String {
    let policies =
        messages::network_policies(&state.world.foreign_policies, &state.context.namespace());
    format!(
        "{policies} is not this Tenant's, and may open it; delete it, or say what it is for in 'networkPolicy'"
    )
}

/// Effects, result and condition of an isolation check.
pub(super) struct IsolationCheck {
    pub(super) effects: Vec<Effect>,
    pub(super) isolation: Option<Isolated>,
    pub(super) condition: ConditionUpdate,
    pub(super) requeue_at: Option<Timestamp>,
}

fn known(value: Option<bool>, reason: Reason, message: impl Into<String>) -> ConditionUpdate {
    ConditionUpdate {
        kind: condition::NETWORK_ISOLATED,
        value,
        reason,
        message: message.into(),
    }
}

/// Returns whether the last result is invalid or old. Only then another Tenant to probe is needed.
#[must_use]
pub(super) fn is_due(state: TenantState<'_>) -> bool {
    let spec = state.context.spec;
    let status = state.tenant.status.as_ref();
    let stored = status.and_then(|status| status.isolation.as_ref());
    spec.network_policy.enabled
        && spec.isolation.probe
        && !(is_current(state, stored) && state.now < next(state, stored))
}

/// Returns whether the stored result belongs to the existing policies.
fn is_current(state: TenantState<'_>, stored: Option<&Isolated>) -> bool {
    stored.is_some_and(|known| known.policies.as_ref() == Some(&fingerprint(state)))
}

fn fingerprint(state: TenantState<'_>) -> String {
    let is_policy = |(resource, _): &&(_, _)| *resource == types::NETWORK_POLICY;
    let mut live: Vec<(&str, &str, i64)> = state
        .world
        .children
        .iter()
        .filter(is_policy)
        .map(|(_, child)| (child.name.as_str(), child.uid.as_str(), child.generation))
        .collect();
    live.sort_unstable();
    build::fingerprint(state.context, &live)
}

/// Decides about the isolation check. `is_set` means that all objects of the spec exist and are ready.
pub(super) fn check_isolation(
    state: TenantState<'_>,
    wanted: &[Desired<'_>],
    status: &TenantStatus,
    is_set: bool,
    fault: Option<&ReconcileError>,
) -> IsolationCheck {
    let spec = state.context.spec;
    let stored = status.isolation.clone();
    let rest = |condition: ConditionUpdate, requeue_at: Option<Timestamp>| IsolationCheck {
        effects: all_leftovers(state),
        isolation: stored.clone(),
        condition,
        requeue_at,
    };
    if !spec.network_policy.enabled {
        let message = "there are no policies: 'networkPolicy.enabled' is false";
        return rest(known(Some(false), Reason::PoliciesDisabled, message), None);
    }
    // A result from before the namespace was open is invalid afterwards.
    let without_result = |check: IsolationCheck| IsolationCheck {
        isolation: check.isolation.map(|known| Isolated {
            policies: None,
            ..known
        }),
        ..check
    };
    if !state.world.foreign_policies.is_empty() {
        let update = known(Some(false), Reason::UnmanagedPolicy, foreign(state));
        return without_result(rest(update, None));
    }
    if let Some(left) = children::retained_policies(state, wanted).next() {
        return without_result(rest(
            known(None, Reason::IsolationCheckPending, leaving(left)),
            None,
        ));
    }
    if !spec.isolation.probe {
        let message = "nobody tries: 'isolation.probe' is false";
        return rest(known(None, Reason::ProbesDisabled, message), None);
    }
    let is_current = is_current(state, stored.as_ref());
    let due = next(state, stored.as_ref());
    // A change of the policies invalidates the last result. Age alone does not.
    let meanwhile = match &stored {
        Some(known) if is_current && state.now < expiry(known) && !is_ahead(state, known) => {
            condition_from(known)
        }
        Some(_) | None => known(
            None,
            Reason::IsolationCheckPending,
            "not known yet: the connections are tried once everything is ready",
        ),
    };
    if is_current && state.now < due {
        return rest(meanwhile, Some(due));
    }
    if !is_set {
        // A result that cannot be renewed expires.
        let end = stored.as_ref().filter(|_| is_current).map(expiry);
        let end = end.filter(|at| *at > state.now && *at < Timestamp::MAX);
        return rest(meanwhile, end);
    }
    let plans = probe_plans(state);
    let is_refused = |one: &Connection| !one.wanted;
    if !plans.iter().any(|(_, plan)| plan.iter().any(is_refused)) {
        let message = "there is nothing that could be tried: neither this Tenant nor one of the next hundred has a server or a Redis that must not be reached";
        let update = known(None, Reason::NothingToProbe, message);
        return rest(update, Some(after(state, RETRY_AFTER_VIOLATION)));
    }
    if !state.world.outside_policies.is_empty() {
        let policies = messages::network_policies(
            &state.world.outside_policies,
            &state.context.settings.probe_namespace,
        );
        let message = format!(
            "{policies} bounds the Pods that try from there: that they are refused would prove nothing"
        );
        return check_not_possible(state, stored, message);
    }
    if let Some(fault) = fault {
        let message = format!(
            "the Pods that try the connections cannot be made: {}",
            fault.message
        );
        return check_not_possible(state, stored, message);
    }
    run_probes(state, &plans, stored, meanwhile)
}

/// Reports that the check is not possible now, and schedules a retry.
fn check_not_possible(
    state: TenantState<'_>,
    stored: Option<Isolated>,
    why: String,
) -> IsolationCheck {
    let at = after(state, RETRY_AFTER_ERROR);
    let isolation = Isolated {
        last_proved_at: stored.and_then(|known| known.last_proved_at),
        retry_at: Some(Time(at)),
        result: Reason::IsolationCheckFailed.name().to_owned(),
        policies: Some(fingerprint(state)),
        connections: Vec::new(),
        message: Some(bounded(&why, MAX_MESSAGE_CHARS)),
    };
    IsolationCheck {
        effects: all_leftovers(state),
        condition: condition_from(&isolation),
        isolation: Some(isolation),
        requeue_at: Some(at),
    }
}

/// Returns when a result expires that cannot be renewed.
fn expiry(known: &Isolated) -> Timestamp {
    let last = known.last_proved_at.as_ref();
    let last = last.map_or(Timestamp::MAX, |time| time.0);
    last.saturating_add(DAY.saturating_mul(2))
        .unwrap_or(Timestamp::MAX)
}

/// Returns whether the last check is in the future by our clock. Then its age is unknown.
fn is_ahead(state: TenantState<'_>, known: &Isolated) -> bool {
    let last = known.last_proved_at.as_ref();
    last.is_some_and(|time| time.0 > after(state, SKEW))
}

/// Returns the time of the next check.
fn next(state: TenantState<'_>, stored: Option<&Isolated>) -> Timestamp {
    let Some(stored) = stored else {
        return Timestamp::MIN;
    };
    // A time too far in the future comes from a wrong clock.
    if let Some(retry) = &stored.retry_at {
        return Some(retry.0)
            .filter(|at| *at <= after(state, RETRY_AFTER_ERROR + SKEW))
            .unwrap_or(Timestamp::MIN);
    }
    let Some(last) = stored
        .last_proved_at
        .as_ref()
        .filter(|_| !is_ahead(state, stored))
    else {
        return Timestamp::MIN;
    };
    let spread = number(state) % SPREAD;
    let wait = match Reason::from_name(&stored.result) {
        Some(Reason::Isolated) => DAY.saturating_add(Duration::from_secs(spread)),
        Some(Reason::IsolationCheckFailed) | None => RETRY_AFTER_ERROR,
        Some(_) => RETRY_AFTER_VIOLATION,
    };
    last.0.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

fn after(state: TenantState<'_>, time: Duration) -> Timestamp {
    state.now.saturating_add(time).unwrap_or(Timestamp::MAX)
}

/// Returns a number derived from the Tenant's UID, to spread periodic work.
fn number(state: TenantState<'_>) -> u64 {
    u64::from_str_radix(&names::hash(state.context.uid), 16).unwrap_or(0)
}

/// Returns the condition from the last check.
pub(super) fn condition_from(isolation: &Isolated) -> ConditionUpdate {
    let reason = Reason::from_name(&isolation.result).unwrap_or(Reason::IsolationCheckFailed);
    let find =
        |is_it: fn(&CheckedConnection) -> bool| isolation.connections.iter().find(|one| is_it(one));
    let describe =
        |one: &CheckedConnection| format!("from {} to {}: {}", one.from, one.to, one.detail);
    let is_right = find(|one| !one.is_as_expected()).is_none();
    if reason == Reason::Isolated && is_right {
        let is_refused = |one: &&CheckedConnection| one.expected == ExpectedResult::Blocked;
        let refused = isolation.connections.iter().filter(is_refused).count();
        let passed = isolation.connections.len().saturating_sub(refused);
        let connections = if refused == 1 {
            "connection was"
        } else {
            "connections were"
        };
        let mut message =
            format!("{refused} {connections} refused that must be, {passed} passed that must");
        // A check of one side only verifies less. The message reports that.
        for (from, untried) in [
            (
                OUTSIDE,
                "nothing of this Tenant could be tried from outside",
            ),
            (INSIDE, "no other Tenant had anything to be tried"),
        ] {
            let mut blocked = isolation.connections.iter().filter(is_refused);
            if !blocked.any(|one| one.from == from) {
                message.push_str("; ");
                message.push_str(untried);
            }
        }
        return known(Some(true), reason, message);
    }
    if reason == Reason::PolicyNotEnforced {
        let (what, one) = match find(is_open) {
            Some(one) => ("passed that the policies refuse", Some(one)),
            None => ("was refused that the policies allow", find(is_blocked)),
        };
        let detail = one.map_or_else(String::new, describe);
        let message = format!(
            "a connection {what}: {detail}; does the cluster's network enforce NetworkPolicies, and as they are now?"
        );
        return known(Some(false), reason, message);
    }
    if reason == Reason::DNSUnreachable {
        let detail = find(is_blocked).map_or_else(String::new, describe);
        return known(
            Some(false),
            reason,
            format!("names are not resolved: {detail}"),
        );
    }
    let unknown = find(|one| one.observed == ObservedResult::Unknown);
    let detail = unknown.map(describe).or_else(|| isolation.message.clone());
    let detail = detail.unwrap_or_else(|| "nothing was told".to_owned());
    let message = format!("it could not be tried: {detail}; it is tried again in a minute");
    known(None, Reason::IsolationCheckFailed, message)
}

/// Returns the connections of both sides.
fn probe_plans(state: TenantState<'_>) -> Vec<(Side, Vec<Connection>)> {
    let connection = |to: String, how: String, wanted: bool| Connection { to, how, wanted };
    let dns = connection(
        DNS.to_owned(),
        "dns kubernetes.default.svc".to_owned(),
        true,
    );
    let (spec, own) = (state.context.spec, state.context.namespace());
    let from = &state.context.settings.probe_namespace;
    let mut inside = vec![dns.clone()];
    let mut outside = vec![dns];
    for address in Address::all(spec, state.world.pods.iter()) {
        let to = format!("its {}", address.component);
        inside.push(connection(to.clone(), address.how(), true));
        let wanted = build::may_enter(spec, from, address.component, address.port);
        outside.extend(wanted.map(|wanted| connection(to, address.how(), wanted)));
    }
    if let Some(Neighbour {
        name,
        spec: other,
        addresses,
    }) = &state.world.neighbour
    {
        let is_let_out = build::may_leave(spec, &namespace_of(name, other));
        for address in addresses {
            let entered = build::may_enter(other, &own, address.component, address.port);
            // It suffices that one of the two Tenants blocks the connection.
            if is_let_out && entered != Some(false) {
                continue;
            }
            let to = format!("{} of Tenant '{name}'", address.component);
            inside.push(connection(to, address.how(), false));
        }
    }
    vec![(Side::Inside, inside), (Side::Outside, outside)]
}

/// Returns the effects that delete probe Pods: outside, and in the Tenant's namespace.
pub(super) fn leftovers(state: TenantState<'_>) -> (Vec<Effect>, Vec<Effect>) {
    let outside = probe::place(state.context, Side::Outside);
    let all = state
        .world
        .probes
        .iter()
        .filter(|(_, pod)| !pod.is_deleting());
    let (outside, inside): (Vec<_>, Vec<_>) = all.partition(|(namespace, _)| *namespace == outside);
    let effects = |pods: Vec<&(String, PodView)>| {
        let pods = pods.into_iter();
        pods.map(|(namespace, pod)| gone(namespace, pod)).collect()
    };
    (effects(outside), effects(inside))
}

fn all_leftovers(state: TenantState<'_>) -> Vec<Effect> {
    let (mut outside, inside) = leftovers(state);
    outside.extend(inside);
    outside
}

fn gone(namespace: &str, pod: &PodView) -> Effect {
    Effect::Delete(Target {
        resource: ResourceType::POD,
        namespace: Some(namespace.to_owned()),
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        version: None,
        requires_intent: None,
        optional: false,
    })
}

/// Returns when an unfinished probe Pod counts as failed.
fn limit(pod: &PodView) -> Timestamp {
    let created = pod.created.unwrap_or(Timestamp::MIN);
    created.saturating_add(LIMIT).unwrap_or(Timestamp::MAX)
}

/// Creates the probe Pods, waits for them and reads their results. They are deleted only after that.
fn run_probes(
    state: TenantState<'_>,
    plans: &[(Side, Vec<Connection>)],
    stored: Option<Isolated>,
    meanwhile: ConditionUpdate,
) -> IsolationCheck {
    let last = stored.clone();
    let format_time =
        |time: Option<&Time>| time.map_or_else(String::new, |time| time.0.to_string());
    let (proved, retried) = last.map_or((None, None), |last| (last.last_proved_at, last.retry_at));
    let fingerprint = fingerprint(state);
    let round = [
        &fingerprint,
        "/",
        &format_time(proved.as_ref()),
        "/",
        &format_time(retried.as_ref()),
    ]
    .concat();
    let names: Vec<String> = plans
        .iter()
        .map(|(side, _)| probe::name(state.context, *side, &round))
        .collect();
    let mut check = IsolationCheck {
        effects: Vec::new(),
        isolation: stored,
        condition: meanwhile,
        requeue_at: None,
    };
    // A Pod of another round, or with an outdated plan, verifies nothing.
    let is_of_use =
        |plan: &[Connection], pod: &PodView| pod.plan.as_ref() == Some(&probe::written(plan));
    // A Pod counts only in the namespace of its side. An owner can create Pods of any name in the Tenant's
    // namespace.
    let found: Vec<Option<&PodView>> = names
        .iter()
        .zip(plans)
        .map(|(name, (side, _))| {
            let namespace = probe::place(state.context, *side);
            let mut probes = state.world.probes.iter();
            let found = probes.find(|(within, pod)| *within == namespace && pod.name == *name);
            found.map(|(_, pod)| pod)
        })
        .collect();
    for (namespace, pod) in &state.world.probes {
        let mut sides = plans.iter().zip(&found);
        let is_kept = sides.any(|((_, plan), found)| {
            found.is_some_and(|found| found.uid == pod.uid) && is_of_use(plan, pod)
        });
        if !is_kept && !pod.is_deleting() {
            check.effects.push(gone(namespace, pod));
        }
    }
    if found.iter().all(Option::is_none) && state.world.probing >= MAX_CONCURRENT_CHECKS {
        let spread = Duration::from_secs(number(state) % SLOT_RETRY.as_secs());
        check.requeue_at = Some(after(state, SLOT_RETRY + spread));
        if check.condition.reason == Reason::IsolationCheckPending {
            check.condition.message = format!(
                "not known yet: it waits for its turn, the connections of {} other Tenants are being tried",
                state.world.probing
            );
        }
        return check;
    }
    let mut tried = Vec::new();
    let mut is_over = true;
    for ((side, plan), pod) in plans.iter().zip(found) {
        let Some(pod) = pod else {
            let pod = probe::pod(state.context, *side, &round, plan).optional();
            check.effects.push(Effect::Ensure(Box::new(pod)));
            is_over = false;
            continue;
        };
        let is_done = pod.has_ended();
        if pod.is_deleting() || !is_of_use(plan, pod) {
            is_over = false;
        } else if !is_done && state.now < limit(pod) {
            is_over = false;
            let earlier = check
                .requeue_at
                .map_or(limit(pod), |known| known.min(limit(pod)));
            check.requeue_at = Some(earlier);
        } else {
            tried.extend(results(*side, plan, pod));
        }
    }
    if !is_over {
        if check.condition.reason == Reason::IsolationCheckPending {
            check.condition.message = format!(
                "not known yet: Pods '{}' in namespace '{}' and '{}' in '{}' are trying the connections",
                names.first().map_or("", String::as_str),
                probe::place(state.context, Side::Inside),
                names.last().map_or("", String::as_str),
                probe::place(state.context, Side::Outside),
            );
        }
        return check;
    }
    let result = overall_result(&tried);
    let is_conclusive = result != Reason::IsolationCheckFailed;
    let isolation = Isolated {
        last_proved_at: if is_conclusive {
            Some(Time(state.now))
        } else {
            proved
        },
        retry_at: (!is_conclusive).then(|| Time(after(state, RETRY_AFTER_ERROR))),
        message: None,
        result: result.name().to_owned(),
        policies: Some(fingerprint),
        connections: tried,
    };
    // The result is recorded first. The next reconciliation deletes the Pods.
    check.condition = condition_from(&isolation);
    check.isolation = Some(isolation);
    check.requeue_at = Some(state.now);
    check
}

/// Returns the result of each connection in the plan of a Pod. Connections without a reported result are
/// unknown.
fn results(side: Side, plan: &[Connection], pod: &PodView) -> Vec<CheckedConnection> {
    let exit = pod.container.last_exit().filter(|_| pod.has_succeeded());
    let text = exit.map_or("", |exit| exit.message.as_str());
    let mut lines = text.lines();
    let from = match side {
        Side::Inside => INSIDE,
        Side::Outside => OUTSIDE,
    };
    let one = |one: &Connection| {
        let line = lines.next().and_then(|line| line.split_once(' '));
        let (observed, detail) = match line {
            Some(("1", rest)) => (ObservedResult::Allowed, rest.to_owned()),
            Some(("0", rest)) => (ObservedResult::Blocked, rest.to_owned()),
            Some(_) | None => (ObservedResult::Unknown, no_result(pod)),
        };
        CheckedConnection {
            from: from.to_owned(),
            to: one.to.clone(),
            expected: if one.wanted {
                ExpectedResult::Allowed
            } else {
                ExpectedResult::Blocked
            },
            observed,
            detail: bounded(&detail, DETAIL),
        }
    };
    plan.iter().map(one).collect()
}

/// Returns the reason why a Pod reported no result.
fn no_result(pod: &PodView) -> String {
    let container = &pod.container;
    let why = match (
        container.state.waiting(),
        &pod.unschedulable,
        container.last_exit(),
    ) {
        (Some(reported), _, _) => format!("{} {}", reported.reason, reported.message),
        (None, Some(message), _) => format!("it has no node: {message}"),
        (None, None, Some(exit)) => {
            format!("it exited with code {} ({})", exit.code, exit.reason)
        }
        (None, None, None) => "it did not come to its end in time".to_owned(),
    };
    messages::about_pod(&pod.name, &why)
}

fn is_open(one: &CheckedConnection) -> bool {
    one.expected == ExpectedResult::Blocked && one.observed == ObservedResult::Allowed
}

fn is_blocked(one: &CheckedConnection) -> bool {
    one.expected == ExpectedResult::Allowed && one.observed == ObservedResult::Blocked
}

fn overall_result(tried: &[CheckedConnection]) -> Reason {
    if tried.iter().any(is_open) {
        Reason::PolicyNotEnforced
    } else if tried
        .iter()
        .any(|one| one.observed == ObservedResult::Unknown)
    {
        Reason::IsolationCheckFailed
    } else if tried.iter().any(|one| is_blocked(one) && one.to != DNS) {
        Reason::PolicyNotEnforced
    } else if tried.iter().any(is_blocked) {
        Reason::DNSUnreachable
    } else {
        Reason::Isolated
    }
}
