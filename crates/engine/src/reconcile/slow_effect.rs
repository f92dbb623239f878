//! Reports a write on the object while the write hangs.

use std::{pin::pin, time::Duration};

use api::{
    CommonStatus, Reason, Status,
    decide::{Decision, Effect, ErrorClass, ReconcileError},
    messages,
    webhook::is_failed_webhook,
};
use kube::Resource;

use super::{Abort, Reconciler, is_too_late};
use crate::{
    apply::ResourcePath,
    fault::Request,
    key::Key,
    kind::Kind,
    status_update::{self, Observed},
};

/// Time without a response after which a write is reported. The API server waits up to 30 s for a webhook, and until
/// then nothing but the clock shows that the write hangs.
pub(crate) const REPORT_WRITE_AFTER: Duration = Duration::from_secs(8);

/// Timeout of the report. A webhook for everything delays the report, too.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

impl<K: Kind> Reconciler<K> {
    /// Carries out an effect, and reports it on the object if there is no response in time.
    ///
    /// The report changes the object, so the status of this decision would be rejected. After a report, the
    /// reconciliation therefore ends: after a success with [`Abort::OutOfTime`], so the next one begins at once, and after
    /// an error with [`Abort::Reported`]. An effect that nothing else needs, and the last try of an effect, are not
    /// reported: the same reconciliation must be able to write its status.
    pub(super) async fn apply_or_report(
        &self,
        object: &K::Object,
        version: &str,
        decision: &Decision<K::Status>,
        effect: &Effect,
    ) -> Result<(), Abort> {
        let is_last = is_too_late(decision, self.clock.now());
        if effect.is_optional() || is_last {
            return self.apply_effect(object, effect).await;
        }
        let mut applying = pin!(self.apply_effect(object, effect));
        tokio::select! {
            biased;
            applied = &mut applying => return applied,
            () = tokio::time::sleep(REPORT_WRITE_AFTER) => {}
        }
        let report = self.report_slow(object, version, decision, effect);
        let (applied, ()) = tokio::join!(applying, report);
        match applied {
            Ok(()) => Err(Abort::OutOfTime),
            Err(Abort::Error(fault)) => Err(Abort::Reported(fault)),
            Err(stop) => Err(stop),
        }
    }

    async fn report_slow(
        &self,
        object: &K::Object,
        version: &str,
        decision: &Decision<K::Status>,
        effect: &Effect,
    ) {
        let (kind, key) = (K::RESOURCE.kind, Key::of(object.meta()));
        let fault = slow(effect);
        self.metrics.error(kind, fault.class.name());
        tracing::warn!(kind, object = %key, "{fault}");
        let now = self.clock.now();
        let stored = K::status(object).cloned().unwrap_or_default();
        let observed = Observed::of(decision);
        let generation = object.meta().generation.unwrap_or(0);
        let request = request_of(effect, |request| request.to_string());
        let fault = known_cause(stored.progress(), generation, &request).unwrap_or(fault);
        // A finished object does not change any more.
        let Some(status) = status_update::status_after_error(
            &stored,
            &fault,
            Some(&observed),
            None,
            generation,
            now,
        ) else {
            return;
        };
        let verdict = status_update::verdict_of(&fault);
        let written = self.update_status(object, version, &stored, &status, &verdict, now);
        let why = match tokio::time::timeout(REPORT_TIMEOUT, written).await {
            Ok(Ok(_) | Err(Abort::LeadershipLost | Abort::OutOfTime)) => return,
            Ok(Err(
                Abort::Error(why)
                | Abort::Reported(why)
                | Abort::NonFatal(why)
                | Abort::Refused(why),
            )) => why.to_string(),
            Err(_elapsed) => format!("no response within {} s", REPORT_TIMEOUT.as_secs()),
        };
        self.metrics.error(kind, ErrorClass::Transient.name());
        tracing::warn!(kind, object = %key, "the status update failed: {why}");
    }
}

/// Returns the stored error if it already names a webhook that rejects this request, for this generation of the spec.
/// The webhook is then the likely cause again, and the report only removes the time of the next try, which has passed.
///
/// An older error is no cause of this write: one of another request, of another spec, or the rejection of a Pod by a
/// policy. Users would look for the wrong thing.
fn known_cause(stored: &CommonStatus, generation: i64, request: &str) -> Option<ReconcileError> {
    let reason = Reason::AdmissionDenied;
    let is_current = stored.observed_generation == generation;
    let is_known = is_current && stored.reason.as_deref() == Some(reason.name());
    let message = stored.message.clone().filter(|_| is_known)?;
    let is_same = is_failed_webhook(&message) && message.contains(request);
    is_same.then(|| ReconcileError::new(ErrorClass::Transient, reason, message))
}

/// Passes the request of an effect to `use_request`.
fn request_of<T>(effect: &Effect, use_request: impl FnOnce(Request<'_>) -> T) -> T {
    let (verb, path) = match effect {
        Effect::Ensure(manifest) => ("create", ResourcePath::from(&**manifest)),
        Effect::Apply(manifest) => ("patch", ResourcePath::from(&**manifest)),
        Effect::Delete(target) => ("delete", ResourcePath::from(target)),
        Effect::Patch {
            target,
            subresource,
            ..
        } => (
            "patch",
            ResourcePath {
                subresource: *subresource,
                ..ResourcePath::from(target)
            },
        ),
    };
    let resource = path.resource_path();
    use_request(Request {
        verb,
        resource: &resource,
        name: path.name,
    })
}

/// Returns the error for a write that has had no response yet.
fn slow(effect: &Effect) -> ReconcileError {
    let message = request_of(effect, |request| {
        messages::hangs(request, REPORT_WRITE_AFTER.as_secs())
    });
    ReconcileError::new(ErrorClass::Transient, Reason::ApiUnavailable, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A webhook that hangs at each try stays the reason, and the time of the try that has begun is removed.
    #[test]
    fn a_webhook_that_is_known_stays_the_cause_of_a_write_that_hangs() {
        const MESSAGE: &str = "the admission webhook 'checks.example' did not answer in time, so 'create jobs' of 'a' is refused: x";
        const CREATE: &str = "'create jobs' of 'a'";
        let stored = |reason: &str, message: &str| CommonStatus {
            observed_generation: 2,
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            ..CommonStatus::default()
        };
        let fault = known_cause(&stored("AdmissionDenied", MESSAGE), 2, CREATE).unwrap();
        assert_eq!(
            (fault.reason, &*fault.message),
            (Reason::AdmissionDenied, MESSAGE)
        );
        for reason in ["Progressing", "ApiUnavailable", "Denied"] {
            assert!(
                known_cause(&stored(reason, MESSAGE), 2, CREATE).is_none(),
                "{reason}"
            );
        }
        let denied = |message: &str| stored("AdmissionDenied", message);
        let older = [
            ("another spec", denied(MESSAGE), 3, CREATE),
            (
                "another request",
                denied(MESSAGE),
                2,
                "'delete jobs' of 'a'",
            ),
            ("another object", denied(MESSAGE), 2, "'create jobs' of 'b'"),
            (
                "a policy that rejected it",
                denied(
                    "'create jobs' of 'a' is refused: ValidatingAdmissionPolicy 'p' denied request: no",
                ),
                2,
                CREATE,
            ),
            (
                "the end of an earlier attempt",
                denied("attempt 1 of 3 failed: the Pod cannot be created: it is forbidden"),
                2,
                CREATE,
            ),
        ];
        for (name, stored, generation, request) in older {
            assert!(
                known_cause(&stored, generation, request).is_none(),
                "{name}"
            );
        }
        assert!(known_cause(&CommonStatus::default(), 0, CREATE).is_none());
    }
}
