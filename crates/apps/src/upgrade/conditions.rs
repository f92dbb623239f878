//! The conditions of Flux objects, as evidence and for messages.

use crate::flux::{FluxCondition, FluxObject, HelmReleaseView};

/// Returns why an object of Flux is not reconciled at its current generation, or `None` if it is.
pub(super) fn settled(flux: &FluxObject) -> Option<&'static str> {
    if flux.is_suspended {
        Some("is suspended")
    } else if flux.observed_generation != flux.generation {
        Some("has not reconciled its latest spec")
    } else if !flux.ready.as_ref().is_some_and(|one| is_true(flux, one)) {
        Some("is not ready")
    } else {
        None
    }
}

pub(super) fn describe(name: &str, flux: &FluxObject) -> String {
    let state = settled(flux).unwrap_or("is ready");
    format!("{name} {state}{}", activity(Some(flux)))
}

pub(super) fn is_true(flux: &FluxObject, condition: &FluxCondition) -> bool {
    condition.value == Some(true) && is_current(flux, condition)
}

/// Returns whether a condition is about the current spec.
pub(super) fn is_current(flux: &FluxObject, condition: &FluxCondition) -> bool {
    condition.generation.unwrap_or(flux.generation) == flux.generation
}

/// Returns the failed action of Helm, and why Flux does not try again. The condition `Stalled` alone has only the number of
/// attempts: the cause is in `Released`.
pub(super) fn helm_error(helm: &HelmReleaseView) -> Option<String> {
    let flux = &helm.flux;
    let released = helm.outcome.released.as_ref();
    let released = released.filter(|one| one.value == Some(false) && is_current(flux, one));
    let stalled = flux.stalled.as_ref();
    let stalled = stalled.filter(|one| one.value == Some(true) && is_current(flux, one));
    let text = |one: &FluxCondition| format!("{}: {}", one.reason, one.message);
    match (released, stalled) {
        (Some(released), Some(stalled)) => Some(format!("{} ({})", text(released), text(stalled))),
        (Some(one), None) | (None, Some(one)) => Some(text(one)),
        (None, None) => None,
    }
}

/// Formats the message of the condition `Ready`.
pub(super) fn activity(flux: Option<&FluxObject>) -> String {
    let ready = flux.and_then(|flux| flux.ready.as_ref());
    quoted(ready.map(|ready| ready.message.as_str()))
}

pub(super) fn quoted(message: Option<&str>) -> String {
    let message = message.filter(|message| !message.is_empty());
    message.map_or_else(String::new, |message| format!(" ({message})"))
}
