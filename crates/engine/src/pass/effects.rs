//! Carries out the effects of a decision, and logs each one.

use api::decide::{Class, Effect, Fault, Manifest};
use kube::Resource;

use super::{Eyes, Stop};
use crate::{
    act::{Outcome, Place},
    key::Key,
    kind::Kind,
};

impl<K: Kind> Eyes<K> {
    /// Carries out effects in order. The first failure ends the reconciliation, with one exception:
    /// after an independent object was rejected, deletions and other independent objects follow.
    pub(super) async fn act(
        &self,
        object: &K::Object,
        effects: &[Effect<K::External>],
    ) -> Result<(), Stop> {
        let mut refused: Option<Fault> = None;
        for effect in effects {
            if refused.is_some() && !is_independent(effect) {
                continue;
            }
            self.must_lead()?;
            match self.carry_out(object, effect).await {
                Ok(()) => {}
                Err(Stop::Fault(fault)) if is_independent_apply(effect) && is_refusal(&fault) => {
                    refused.get_or_insert(fault);
                }
                Err(Stop::NotLeading) => return Err(Stop::NotLeading),
                // Report the rejection, because someone has to fix it. The rest is retried with it.
                Err(stop) => return Err(refused.map_or(stop, Stop::from)),
            }
        }
        refused.map_or(Ok(()), |fault| Err(fault.into()))
    }

    async fn carry_out(
        &self,
        object: &K::Object,
        effect: &Effect<K::External>,
    ) -> Result<(), Stop> {
        match effect {
            Effect::Ensure(manifest) => {
                let created = self.led(self.hands.ensure(manifest)).await;
                let outcome = created.map_err(|stop| aside(manifest, stop))?;
                log::<K>(object, Place::from(&**manifest), outcome);
            }
            Effect::Apply(manifest) => {
                self.led(self.hands.apply(manifest)).await?;
                log::<K>(object, Place::from(&**manifest), Outcome::Applied);
            }
            Effect::Delete(target) => {
                let outcome = self.led(self.hands.delete(target)).await?;
                log::<K>(object, Place::from(target), outcome);
            }
            Effect::Patch {
                target,
                subresource,
                patch,
            } => {
                let place = Place {
                    subresource: *subresource,
                    ..Place::from(target)
                };
                let version = target.version.as_deref();
                let patch = patch.clone();
                self.led(self.hands.patch(place, &target.uid, version, patch))
                    .await?;
                log::<K>(object, place, Outcome::Patched);
            }
            Effect::External {
                effect,
                irreversible: _,
            } => {
                self.kind.perform(object, effect).await?;
                let (kind, object) = (K::RESOURCE.kind, Key::of(object.meta()));
                tracing::info!(kind, %object, effect = "performed", "performed an external effect");
            }
        }
        Ok(())
    }
}

fn is_independent_apply<X>(effect: &Effect<X>) -> bool {
    matches!(effect, Effect::Apply(manifest) if manifest.independent)
}

fn is_independent<X>(effect: &Effect<X>) -> bool {
    match effect {
        Effect::Apply(manifest) => manifest.independent,
        Effect::Delete(_) => true,
        Effect::Ensure(_) | Effect::Patch { .. } | Effect::External { .. } => false,
    }
}

/// Returns whether the API server understood a write and rejected it.
fn is_refusal(fault: &Fault) -> bool {
    matches!(fault.class, Class::Denied | Class::Invalid)
}

/// Logs an effect with its object and the owner that was reconciled.
///
/// It logs names only, because a body may contain secrets.
fn log<K: Kind>(owner: &K::Object, place: Place<'_>, outcome: Outcome) {
    let (kind, object) = (K::RESOURCE.kind, Key::of(owner.meta()));
    let (target_kind, target_object) = (place.resource.kind, place.key());
    let effect = outcome.name();
    tracing::info!(
        kind,
        %object,
        effect,
        target_kind,
        %target_object,
        "{effect} {target_kind} '{}'",
        place.name
    );
}

/// Converts the rejection of an object that nothing else needs to `Stop::Aside`: no reason to stop.
fn aside(manifest: &Manifest, stop: Stop) -> Stop {
    match stop {
        Stop::Fault(fault) if manifest.aside && is_refusal(&fault) => Stop::Aside(fault),
        other @ (Stop::Fault(_) | Stop::Aside(_) | Stop::NotLeading) => other,
    }
}
