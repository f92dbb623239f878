//! Converts responses of the API server to a [`ReconcileError`]: class, reason and message.

use std::fmt;

use api::{
    Reason,
    crd::first_parts,
    decide::{ErrorClass, ReconcileError},
    error::chain,
    kinds, messages,
    webhook::FailedWebhook,
};
use kube::{Error, core::Status};

/// A request, for the message of an error.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The verb, as in RBAC.
    pub verb: &'a str,
    /// The plural name of the resource, with its subresource.
    pub resource: &'a str,
    /// The object's name.
    pub name: &'a str,
}

impl fmt::Display for Request<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = [self.verb, " ", self.resource].concat();
        let name = self.name;
        messages::Request {
            action: &action,
            name,
        }
        .fmt(out)
    }
}

/// Converts an error of the client to a [`ReconcileError`].
///
/// # Guarantees
/// - The message quotes only the API server's message about this request, and no body that we sent.
/// - A missing response is `Transient`. The caller must assume that the request may have
///   been carried out.
#[must_use]
pub fn from_kube(request: Request<'_>, error: &Error) -> ReconcileError {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "of a foreign enum: whatever else kept an answer from us"
    )]
    match error {
        Error::Api(status) => from_status(request, status),
        // The response is incomplete, so the request may have been carried out.
        Error::SerdeError(error) => ReconcileError::new(
            ErrorClass::Transient,
            Reason::ApiUnavailable,
            format!("the answer to {request} cannot be read: {error}"),
        ),
        Error::BuildRequest(error) => {
            ReconcileError::bug(format!("cannot build {request}: {error}"))
        }
        other => ReconcileError::new(
            ErrorClass::Transient,
            Reason::ApiUnavailable,
            format!("no answer to {request}: {}", chain(other)),
        ),
    }
}

fn from_status(request: Request<'_>, status: &Status) -> ReconcileError {
    // A rejection may print the whole object that was sent, with secrets of its environment.
    let message = status
        .message
        .split('{')
        .next()
        .unwrap_or_default()
        .trim_end();
    let what = request.to_string();
    let fault = |class, reason, text: String| ReconcileError::new(class, reason, text);
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let terminating = causes
        .clone()
        .any(|cause| cause.reason == "NamespaceTerminating");
    if let Some(webhook) = FailedWebhook::find(message) {
        return fault(
            class_of(&webhook),
            Reason::AdmissionDenied,
            format!("{webhook}, so {what} is refused: {message}"),
        );
    }
    if matches!(status.code, 400 | 422)
        && let Some((crd, lacks)) = outdated_crd(request.resource, &status.message)
    {
        return fault(
            ErrorClass::Invalid,
            Reason::InvalidChild,
            messages::crd_outdated(crd, &lacks, request),
        );
    }
    match status.code {
        403 if terminating || message.contains("because it is being terminated") => fault(
            ErrorClass::Transient,
            Reason::NamespaceTerminating,
            format!("the namespace is being deleted, so {what} is refused"),
        ),
        403 if message.contains("exceeded quota") || message.contains("usage per") => fault(
            ErrorClass::Denied,
            Reason::QuotaExceeded,
            format!("{what} is refused: {message}"),
        ),
        403 if message.contains("cannot ") && message.contains(" resource ") => fault(
            ErrorClass::Denied,
            Reason::Denied,
            format!("the operator lacks the permission for {what}: {message}"),
        ),
        // A rule of the cluster: a policy, a webhook or Pod Security.
        400 if message.contains("denied the request") || message.contains("admission webhook") => {
            fault(
                ErrorClass::Denied,
                Reason::AdmissionDenied,
                format!("{what} is refused: {message}"),
            )
        }
        422 if message.contains("denied request")
            || message.contains("ValidatingAdmissionPolicy") =>
        {
            fault(
                ErrorClass::Denied,
                Reason::AdmissionDenied,
                format!("{what} is refused: {message}"),
            )
        }
        401 => fault(
            ErrorClass::Denied,
            Reason::Denied,
            format!(
                "the API server does not accept the operator's credentials for {what}: {message}"
            ),
        ),
        403 => fault(
            ErrorClass::Denied,
            Reason::AdmissionDenied,
            format!("{what} is refused: {message}"),
        ),
        // Another object has the name by now. This is handled like a failed precondition.
        422 if message.contains("metadata.uid") => fault(
            ErrorClass::Conflict,
            Reason::Progressing,
            format!("{what} came too late: {message}"),
        ),
        400 | 422 => fault(
            ErrorClass::Invalid,
            Reason::InvalidChild,
            format!("the API server does not accept {what}: {message}"),
        ),
        409 => fault(
            ErrorClass::Conflict,
            Reason::Progressing,
            format!("{what} came too late: {message}"),
        ),
        // The router of the API server, and not the handler of a type. A retry at once would not help.
        404 if message == "404 page not found"
            || message.contains("could not find the requested resource") =>
        {
            fault(
                ErrorClass::Transient,
                Reason::DependencyNotReady,
                format!(
                    "{what}: the API server does not serve this type; install its CRD in the version that is used here"
                ),
            )
        }
        404 => fault(
            ErrorClass::Conflict,
            Reason::Progressing,
            format!("{what}: it is not there (any more): {message}"),
        ),
        code => fault(
            ErrorClass::Transient,
            Reason::ApiUnavailable,
            messages::answered(code, &what, message),
        ),
    }
}

/// Returns the CRD of ours that rejects our own object, and the fields or the value that its schema lacks. The API server
/// writes the whole object in front of the fields.
fn outdated_crd(resource: &str, message: &str) -> Option<(&'static str, String)> {
    let plural = resource.split('/').next().unwrap_or_default();
    let crd = kinds::with_plural(plural)?.crd_name;
    let fields = message.split(UNKNOWN_FIELD).skip(1);
    let mut lacks: Vec<String> = fields
        .filter_map(|rest| rest.split_once('"'))
        .map(|(field, _)| format!("'{field}'"))
        .collect();
    lacks.dedup();
    // Users write the other parts of an object, so only the status shows an old CRD.
    if lacks.is_empty() && resource.ends_with("/status") {
        let (path, value) = message.split_once(UNSUPPORTED_VALUE)?;
        let path = path.rsplit([' ', '[']).next().unwrap_or_default();
        let (value, _) = value.split_once('"')?;
        lacks.push(format!("the value \"{value}\" of '{path}'"));
    }
    (!lacks.is_empty()).then(|| (crd, first_parts(&lacks)))
}

/// The API server's words before the name of a field that a schema lacks.
const UNKNOWN_FIELD: &str = "unknown field \"";

/// The API server's words between the path of a field and a value that its schema lacks.
const UNSUPPORTED_VALUE: &str = ": Unsupported value: \"";

/// Returns the class of an error. A webhook that restarts is back in seconds, so the request is retried soon. A webhook
/// that hangs would keep a worker busy with its retries, so those have longer delays.
fn class_of(webhook: &FailedWebhook<'_>) -> ErrorClass {
    if webhook.is_timeout {
        ErrorClass::Denied
    } else {
        ErrorClass::Transient
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(code: u16, message: &str) -> ReconcileError {
        let status = Status {
            code,
            message: message.to_owned(),
            ..Status::default()
        };
        let request = Request {
            verb: "create",
            resource: "jobs",
            name: "shop-7-v1",
        };
        from_kube(request, &Error::Api(Box::new(status)))
    }

    #[test]
    fn answers_have_their_class_and_reason() {
        let cases = [
            (
                403,
                "jobs.batch is forbidden: User \"x\" cannot create resource \"jobs\" in API group \"batch\"",
                ErrorClass::Denied,
                Reason::Denied,
            ),
            (
                403,
                "pods \"x\" is forbidden: exceeded quota: q, requested: pods=1",
                ErrorClass::Denied,
                Reason::QuotaExceeded,
            ),
            (
                403,
                "unable to create new content in namespace a because it is being terminated",
                ErrorClass::Transient,
                Reason::NamespaceTerminating,
            ),
            (
                403,
                "pods \"x\" is forbidden: violates PodSecurity",
                ErrorClass::Denied,
                Reason::AdmissionDenied,
            ),
            (
                400,
                "admission webhook \"w\" denied the request: no",
                ErrorClass::Denied,
                Reason::AdmissionDenied,
            ),
            (
                422,
                "jobs.batch \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
                ErrorClass::Denied,
                Reason::AdmissionDenied,
            ),
            (
                422,
                "Job.batch \"x\" is invalid: spec.template: Required value",
                ErrorClass::Invalid,
                Reason::InvalidChild,
            ),
            (401, "Unauthorized", ErrorClass::Denied, Reason::Denied),
            (404, "not found", ErrorClass::Conflict, Reason::Progressing),
            (
                404,
                "404 page not found",
                ErrorClass::Transient,
                Reason::DependencyNotReady,
            ),
            (
                404,
                "the server could not find the requested resource",
                ErrorClass::Transient,
                Reason::DependencyNotReady,
            ),
            (
                409,
                "the object has been modified",
                ErrorClass::Conflict,
                Reason::Progressing,
            ),
            (
                429,
                "too many requests",
                ErrorClass::Transient,
                Reason::ApiUnavailable,
            ),
            (
                500,
                "etcdserver: leader changed",
                ErrorClass::Transient,
                Reason::ApiUnavailable,
            ),
            (
                503,
                "unavailable",
                ErrorClass::Transient,
                Reason::ApiUnavailable,
            ),
            (
                504,
                "timeout",
                ErrorClass::Transient,
                Reason::ApiUnavailable,
            ),
        ];
        for (code, message, class, reason) in cases {
            let fault = fault(code, message);
            assert_eq!(
                (fault.class, fault.reason),
                (class, reason),
                "{code} {message}"
            );
            assert!(fault.message.contains("create jobs"), "{}", fault.message);
            assert!(fault.message.contains("shop-7-v1"), "{}", fault.message);
        }
    }

    /// `kubectl get` shows the start of a message, and the API server writes the whole object in front of the field.
    #[test]
    fn an_outdated_crd_is_named_first() {
        let object = r#"Invalid value: "{\"status\":{\"deadlineAt\":\"2030-01-01T00:00:00Z\"}}""#;
        let patch = format!("TaskRun.orchestrator.io \"a\" is invalid: patch: {object}");
        for (resource, code, message, expected) in [
            (
                "taskruns/status",
                422,
                format!("{patch}: strict decoding error: unknown field \"status.deadlineAt\""),
                Some("CRD 'taskruns.orchestrator.io' lacks 'status.deadlineAt', so the API server rejects 'patch taskruns/status' of 'a': install the CRDs of this release (helm upgrade)"),
            ),
            (
                "docsruns/status",
                400,
                "strict decoding error: unknown field \"status.a\", unknown field \"status.b\"".to_owned(),
                Some("CRD 'docsruns.orchestrator.io' lacks 'status.a', 'status.b', so"),
            ),
            (
                "taskruns/status",
                422,
                "TaskRun.orchestrator.io \"a\" is invalid: [status.phase: Unsupported value: \"Verifying\": supported values: \"Pending\"".to_owned(),
                Some("CRD 'taskruns.orchestrator.io' lacks the value \"Verifying\" of 'status.phase', so"),
            ),
            // A Job has no CRD of ours, and the author of a run may have written another value.
            (
                "jobs",
                422,
                "strict decoding error: unknown field \"spec.a\"".to_owned(),
                None,
            ),
            (
                "taskruns",
                422,
                "spec.a: Unsupported value: \"b\"".to_owned(),
                None,
            ),
            ("taskruns/status", 422, patch.clone(), None),
            (
                "taskruns/status",
                500,
                "unknown field \"status.a\"".to_owned(),
                None,
            ),
        ] {
            let status = Status {
                code,
                message,
                ..Status::default()
            };
            let request = Request {
                verb: "patch",
                resource,
                name: "a",
            };
            let found = from_kube(request, &Error::Api(Box::new(status)));
            let outdated = messages::outdated_crd(&found.message);
            assert_eq!(outdated.is_some(), expected.is_some(), "{found:?}");
            if let Some(expected) = expected {
                assert!(found.message.starts_with(expected), "{}", found.message);
                assert_eq!(found.reason, Reason::InvalidChild);
                assert_eq!(found.class, ErrorClass::Invalid);
            }
            assert!(!found.message.contains("2030"), "{}", found.message);
        }
    }

    /// The words are those of Kubernetes 1.36.
    #[test]
    fn a_failing_webhook_is_named_for_each_kind_of_child() {
        let causes = [
            (
                "dial tcp 10.0.3.4:443: connect: connection refused",
                ErrorClass::Transient,
                "cannot be called",
            ),
            (
                "no endpoints available for service \"policy\"",
                ErrorClass::Transient,
                "cannot be called",
            ),
            (
                "service \"policy\" not found",
                ErrorClass::Transient,
                "cannot be called",
            ),
            (
                "tls: failed to verify certificate: x509: certificate signed by unknown authority",
                ErrorClass::Transient,
                "cannot be called",
            ),
            (
                "context deadline exceeded",
                ErrorClass::Denied,
                "did not answer in time",
            ),
            (
                "dial tcp 10.0.3.4:443: i/o timeout",
                ErrorClass::Denied,
                "did not answer in time",
            ),
            (
                "net/http: request canceled (Client.Timeout exceeded while awaiting headers)",
                ErrorClass::Denied,
                "did not answer in time",
            ),
        ];
        let kinds = [
            "jobs",
            "configmaps",
            "secrets",
            "persistentvolumeclaims",
            "networkpolicies",
            "namespaces",
            "statefulsets",
            "pods",
        ];
        for ((cause, class, says), plural) in causes
            .into_iter()
            .flat_map(|cause| kinds.map(|plural| (cause, plural)))
        {
            let message = format!(
                "Internal error occurred: failed calling webhook \"images.example\": failed to call webhook: Post \"https://policy.checks.svc:443/v?timeout=10s\": {cause}"
            );
            let status = Status {
                code: 500,
                message,
                ..Status::default()
            };
            for verb in ["create", "patch", "delete"] {
                let request = Request {
                    verb,
                    resource: plural,
                    name: "shop-7-v1",
                };
                let fault = from_kube(request, &Error::Api(Box::new(status.clone())));
                assert_eq!(fault.class, class, "{cause}");
                assert_eq!(fault.reason, Reason::AdmissionDenied, "{cause}");
                let expected = format!(
                    "the admission webhook 'images.example' (Service 'policy' in namespace 'checks') {says}, so '{verb} {plural}' of 'shop-7-v1' is refused"
                );
                assert!(fault.message.starts_with(&expected), "{}", fault.message);
                assert!(fault.message.ends_with(cause), "{}", fault.message);
            }
        }
    }

    #[test]
    fn a_webhook_outside_the_cluster_has_no_service() {
        for address in [
            "https://hooks.example.org/v?timeout=10s",
            "https://10.0.0.1:8443/v?timeout=10s",
        ] {
            let message = format!(
                "Internal error occurred: failed calling webhook \"w\": failed to call webhook: Post \"{address}\": EOF"
            );
            let fault = fault(500, &message);
            assert!(
                fault
                    .message
                    .starts_with("the admission webhook 'w' cannot be called"),
                "{}",
                fault.message
            );
        }
    }
}
