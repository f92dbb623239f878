//! Responses of the API server to any request of the operator.

use api::{
    Reason,
    messages::{self, Request},
    status::CommonStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Finding, commands, operator};
use crate::{
    explanation::{Command, Health, Link, State},
    world::{ObjectRef, World},
};

/// A rule: the reason, whether the rule applies, and the function that explains it.
pub(super) type ReasonRule<S> = (Reason, bool, fn(S) -> Finding);

/// Returns the finding of the first rule that applies to the reason.
pub(super) fn apply_rule<S: Copy>(
    of: S,
    reason: Reason,
    rules: &[ReasonRule<S>],
) -> Option<Finding> {
    let mut rules = rules.iter();
    let (_, _, explain) = rules.find(|(known, applies, _)| *known == reason && *applies)?;
    Some(explain(of))
}

/// The object for which the operator sent the request.
pub(super) struct RequestContext<'a> {
    pub(super) world: &'a World,
    pub(super) object: ObjectRef,
    /// The noun for the object in messages.
    pub(super) word: &'static str,
    /// The namespace of its children.
    pub(super) namespace: &'a str,
    pub(super) progress: &'a CommonStatus,
}

impl RequestContext<'_> {
    fn message(&self) -> &str {
        self.progress.message.as_deref().unwrap_or_default()
    }

    fn written(&self) -> Option<&Time> {
        self.progress.last_updated.as_ref()
    }

    /// Formats the time of the next try: `the next try, at 10:05:53Z (in 42s),`.
    pub(super) fn next_try(&self) -> String {
        let retry = self.progress.retry.as_ref();
        let at = retry.and_then(|retry| retry.next_at.as_ref());
        at.map_or_else(
            || "the next try".to_owned(),
            |at| format!("the next try, at {},", self.world.when(at)),
        )
    }

    /// Formats the time of the next try as ` at 10:05:53Z (in 42s)`, or as an empty string if it is
    /// unknown.
    pub(super) fn tried_at(&self) -> String {
        let retry = self.progress.retry.as_ref();
        self.world
            .ago(retry.and_then(|retry| retry.next_at.as_ref()))
    }
}

/// Explains that the operator lacks a permission. `place` is ` in namespace 'x'` if the namespace
/// matters. `advice` is a remedy other than the chart.
pub(super) fn denied(request: &RequestContext<'_>, place: &str, advice: &str) -> Finding {
    let message = request.message();
    let what = Request::find(message).map_or("do it", |request| request.action);
    let user = message
        .split_once("User \"")
        .and_then(|(_, rest)| rest.split('"').next());
    let account = user.and_then(|user| user.strip_prefix("system:serviceaccount:"));
    let object = match account.and_then(|account| account.split_once(':')) {
        Some((namespace, name)) => ObjectRef::namespaced("ServiceAccount", namespace, name),
        None => ObjectRef::cluster("User", user.unwrap_or("(the operator)")),
    };
    let words = format!("the operator's account may not '{what}'{place}");
    let link = Link::new(object, Health::Error, Reason::Denied, words).seen(
        "status.message",
        message,
        request.written(),
    );
    let mut finding = Finding::new(
        State::Blocked,
        format!(
            "The operator's rights are not those of its chart. Upgrade or reinstall the chart{advice}. After that, {} succeeds by itself.",
            request.next_try()
        ),
    )
    .link(link);
    finding.next.extend(user.map(|user| {
        let namespace = request.namespace;
        let line = format!("kubectl auth can-i {what} --as={user} -n {namespace}");
        Command::new(line, "may it by now?")
    }));
    finding.maybe(operator::log(request.world))
}

/// Explains that the API server did not respond, or responded with an error.
pub(super) fn unavailable(request: &RequestContext<'_>) -> Finding {
    let link = Link::new(
        ObjectRef::cluster("APIServer", "kubernetes"),
        Health::Error,
        Reason::ApiUnavailable,
        format!(
            "{}{}; it answers me now",
            messages::answered_code(request.message()).map_or_else(
                || "did not answer the operator in time".to_owned(),
                |code| format!("answered the operator with {code}")
            ),
            request.world.ago(request.written())
        ),
    )
    .since(request.written())
    .seen("status.message", request.message(), request.written());
    Finding::new(
        State::Waiting,
        format!(
            "Wait: the operator tries again by itself{}. If that fails, too, check the control plane.",
            request.tried_at()
        ),
    )
    .link(link)
    .then(Command::new(
        "kubectl get --raw '/readyz?verbose'",
        "the API server's state",
    ))
    .maybe(operator::log(request.world))
}

/// Explains an internal error of the operator.
pub(super) fn internal(request: &RequestContext<'_>) -> Finding {
    let word = request.word;
    let link = Link::new(
        ObjectRef::cluster("Operator", "orchestrator"),
        Health::Error,
        Reason::InternalError,
        format!("has an internal error with this {word}"),
    )
    .seen("status.message", request.message(), request.written());
    Finding::new(
        State::Blocked,
        format!(
            "This is a bug in Orchestrator: report it with this output and the operator's log. It is tried again by itself{}.",
            request.tried_at()
        ),
    )
    .link(link)
    .maybe(operator::log(request.world))
    .then(commands::yaml(&request.object, &format!("the {word}, for the report")))
}
