//! Carries out the effects of a decision, and logs each one.

use api::{
    Reason,
    decide::{Decision, Effect, ErrorClass, Manifest, ReconcileError},
};
use kube::Resource;
use tokio::time::Instant;

use super::{Abort, Reconciler};
use crate::{
    apply::{EffectOutcome, ResourcePath},
    key::Key,
    kind::Kind,
};

impl<K: Kind> Reconciler<K> {
    /// Carries out effects in order. The first failure ends the reconciliation, with one exception:
    /// after an independent object was rejected, deletions and other independent objects follow.
    ///
    /// Ends after `yield_at` if effects are left. The caches have the results of the others, so the next decision
    /// has only the rest. Without this, the timeout would report much work as an internal error. A rejection is
    /// reported also then: the next reconciliation would meet it again, and run out of time again.
    pub(super) async fn apply_effects(
        &self,
        object: &K::Object,
        version: &str,
        decision: &Decision<K::Status>,
        yield_at: Instant,
    ) -> Result<(), Abort> {
        let mut refused: Option<ReconcileError> = None;
        let mut has_progress = false;
        for effect in &decision.effects {
            if refused.is_some() && !is_independent(effect) {
                continue;
            }
            if Instant::now() >= yield_at {
                if let Some(fault) = refused {
                    return Err(fault.into());
                }
                // Without progress, the next reconciliation would end in the same place.
                if has_progress {
                    return Err(Abort::OutOfTime);
                }
            }
            self.ensure_leading()?;
            let applied = self.apply_or_report(object, version, decision, effect);
            match applied.await {
                Ok(()) => has_progress |= is_cached(effect),
                Err(Abort::Error(fault)) if is_independent_apply(effect) && is_refusal(&fault) => {
                    refused.get_or_insert(fault);
                }
                Err(Abort::LeadershipLost) => return Err(Abort::LeadershipLost),
                // Report the rejection, because someone has to fix it. The rest is retried with it.
                Err(stop) => return Err(refused.map_or(stop, Abort::from)),
            }
        }
        refused.map_or(Ok(()), |fault| Err(fault.into()))
    }

    pub(super) async fn apply_effect(
        &self,
        object: &K::Object,
        effect: &Effect,
    ) -> Result<(), Abort> {
        match effect {
            Effect::Ensure(manifest) => {
                let created = self.while_leading(self.applier.ensure(manifest)).await;
                let outcome = created.map_err(|stop| non_fatal(effect, stop))?;
                log::<K>(object, ResourcePath::from(&**manifest), outcome);
            }
            Effect::Apply(manifest) => {
                self.while_leading(self.applier.apply(manifest)).await?;
                log::<K>(
                    object,
                    ResourcePath::from(&**manifest),
                    EffectOutcome::Applied,
                );
            }
            Effect::Delete(target) => {
                let deleted = self.while_leading(self.applier.delete(target)).await;
                let outcome = deleted.map_err(|stop| non_fatal(effect, stop))?;
                log::<K>(object, ResourcePath::from(target), outcome);
            }
            Effect::Patch {
                target,
                subresource,
                patch,
            } => {
                let patched = self
                    .applier
                    .patch_target(target, *subresource, patch.clone());
                let patched = self.while_leading(patched).await;
                patched.map_err(|stop| non_fatal(effect, stop))?;
                log::<K>(object, ResourcePath::from(target), EffectOutcome::Patched);
            }
        }
        Ok(())
    }
}

/// Returns the object that an effect may create.
pub(super) fn creation(effect: &Effect) -> Option<&Manifest> {
    match effect {
        Effect::Ensure(manifest) if !manifest.existing => Some(manifest),
        // The API server rejects an apply with a UID if no object has the UID.
        Effect::Apply(manifest) if manifest.expected_uid.is_none() => Some(manifest),
        Effect::Ensure(_) | Effect::Apply(_) | Effect::Delete(_) | Effect::Patch { .. } => None,
    }
}

/// Returns whether the caches show the result of an effect, so that the next decision does not repeat it.
fn is_cached(effect: &Effect) -> bool {
    match effect {
        Effect::Ensure(_) | Effect::Apply(_) | Effect::Delete(_) => true,
        // The response for another subresource, such as `scale`, is not the object.
        Effect::Patch { subresource, .. } => subresource.is_none_or(|name| name == "status"),
    }
}

fn is_independent_apply(effect: &Effect) -> bool {
    matches!(effect, Effect::Apply(manifest) if manifest.independent)
}

fn is_independent(effect: &Effect) -> bool {
    match effect {
        Effect::Apply(manifest) => manifest.independent,
        Effect::Delete(_) => true,
        Effect::Ensure(_) | Effect::Patch { .. } => false,
    }
}

/// Returns whether the API server understood a write and rejected it.
fn is_refusal(fault: &ReconcileError) -> bool {
    matches!(fault.class, ErrorClass::Denied | ErrorClass::Invalid)
}

/// Logs an effect with its object and the owner that was reconciled.
///
/// It logs names only, because a body may contain secrets.
pub(super) fn log<K: Kind>(owner: &K::Object, path: ResourcePath<'_>, outcome: EffectOutcome) {
    let (kind, object) = (K::RESOURCE.kind, Key::of(owner.meta()));
    let (target_kind, target_object) = (path.resource.kind, path.key());
    let effect = outcome.name();
    tracing::info!(
        kind,
        %object,
        effect,
        target_kind,
        %target_object,
        "{effect} {target_kind} '{}'",
        path.name
    );
}

/// Returns whether the error of an optional effect is passed to the decision. Other errors are tried again soon. Of the
/// errors that may pass, two kinds count: the error of a deletion, because nothing waits for it and it must not keep the
/// status from being written, and a webhook that cannot be called, because it may be down for hours.
fn is_for_decision(effect: &Effect, fault: &ReconcileError) -> bool {
    match fault.class {
        ErrorClass::Denied | ErrorClass::Invalid | ErrorClass::Failed => true,
        ErrorClass::Transient => {
            matches!(effect, Effect::Delete(_)) || fault.reason == Reason::AdmissionDenied
        }
        ErrorClass::Conflict | ErrorClass::Bug => false,
    }
}

/// Converts the error of an effect that nothing else needs to `Abort::NonFatal`: no reason to stop.
fn non_fatal(effect: &Effect, stop: Abort) -> Abort {
    match stop {
        Abort::Error(fault) if effect.is_optional() && is_for_decision(effect, &fault) => {
            Abort::NonFatal(fault)
        }
        other @ (Abort::Error(_)
        | Abort::Reported(_)
        | Abort::NonFatal(_)
        | Abort::LeadershipLost
        | Abort::OutOfTime
        | Abort::Refused(_)) => other,
    }
}

#[cfg(test)]
mod tests {
    use api::decide::{ResourceType, Target};
    use serde_json::json;

    use super::*;

    #[test]
    fn only_results_that_the_caches_receive_are_progress() {
        let target = || Target {
            resource: ResourceType::CONFIG_MAP,
            namespace: Some("n".to_owned()),
            name: "a".to_owned(),
            uid: "uid".to_owned(),
            version: None,
            requires_intent: None,
            optional: false,
        };
        let patch = |subresource: Option<&'static str>| Effect::Patch {
            target: target(),
            subresource,
            patch: json!({}),
        };
        let table = [
            (Effect::Delete(target()), true),
            (patch(None), true),
            (patch(Some("status")), true),
            (patch(Some("scale")), false),
        ];
        for (effect, wanted) in table {
            assert_eq!(is_cached(&effect), wanted, "{effect:?}");
        }
    }
}
