//! Takes and releases the locks of other objects.

use api::{
    Status,
    claim::{Claim, ClaimAction, Holder},
    decide::{Decision, ErrorClass, FinalizerAction, LiveRead, ReconcileError},
};
use kube::Resource;
use tokio::time::Instant;

use super::{Abort, Reconciler, effects::log};
use crate::{
    apply::{EffectOutcome, ResourcePath},
    kind::Kind,
};

impl<K: Kind> Reconciler<K> {
    /// Takes the locks of a decision, carries out its effects, and releases locks. So no effect begins without the locks
    /// that it needs, and no lock is free before the effects are done. `version` is the current one of the object.
    pub(super) async fn carry_out(
        &self,
        object: &K::Object,
        version: &str,
        decision: &Decision<K::Status>,
        yield_at: Instant,
    ) -> Result<(), Abort> {
        let (taken, released): (Vec<&Claim>, Vec<&Claim>) =
            decision.claims.iter().partition(|claim| claim.is_taken());
        for claim in taken {
            self.apply_claim(object, claim).await?;
        }
        self.apply_effects(object, version, decision, yield_at)
            .await?;
        for claim in released {
            self.apply_claim(object, claim).await?;
        }
        Ok(())
    }

    /// Changes a lock by compare-and-swap. After a conflict, the cache has the target as it is, so the next decision sees
    /// the holder. If the response of an earlier claim was lost, that holder is the object itself.
    async fn apply_claim(&self, object: &K::Object, claim: &Claim) -> Result<(), Abort> {
        self.ensure_leading()?;
        let meta = object.meta();
        let claimant = Holder {
            kind: K::RESOURCE.kind.to_owned(),
            namespace: meta.namespace.clone(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        };
        let target = claim.target();
        let patch = claim.merge_patch(&claimant);
        let patched = self.applier.patch_target(target, None, patch);
        match self.while_leading(patched).await {
            Ok(()) => {
                let outcome = if claim.is_taken() {
                    EffectOutcome::Locked
                } else {
                    EffectOutcome::Unlocked
                };
                log::<K>(object, ResourcePath::from(target), outcome);
                Ok(())
            }
            Err(Abort::Error(fault)) if fault.class == ErrorClass::Conflict => {
                Err(Abort::Refused(fault))
            }
            Err(stop) => Err(stop),
        }
    }
}

/// Rejects claims that break a rule of the engine. `confirmed` are the live reads of this reconciliation.
pub(super) fn check_claims<S: Status>(
    stored: &S,
    decision: &Decision<S>,
    is_deleting: bool,
    confirmed: &[LiveRead],
) -> Result<(), ReconcileError> {
    for claim in &decision.claims {
        let target = claim.target();
        let intent = target.requires_intent.as_deref();
        let is_unannounced = intent.is_some_and(|intent| !stored.has_intent(intent));
        let why = match claim.action() {
            ClaimAction::Take | ClaimAction::TakeOver(_) | ClaimAction::Release
                if is_unannounced =>
            {
                "the stored status does not carry its intent"
            }
            ClaimAction::Release => continue,
            ClaimAction::Take | ClaimAction::TakeOver(_) if is_deleting => {
                "the object that needs it is being deleted"
            }
            ClaimAction::Take | ClaimAction::TakeOver(_)
                if decision.finalizer != FinalizerAction::Keep =>
            {
                "nobody would release it, because the decision removes the finalizer"
            }
            ClaimAction::TakeOver(holder)
                if !confirmed.iter().any(|one| holder.is_read_by(one)) =>
            {
                "its holder was not read from the API server"
            }
            ClaimAction::Take | ClaimAction::TakeOver(_) => continue,
        };
        return Err(ReconcileError::bug(format!(
            "a change of the lock of {} '{}' was refused: {why}",
            target.resource.kind, target.name
        )));
    }
    Ok(())
}
