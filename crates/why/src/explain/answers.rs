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
pub(super) type Teller<S> = (Reason, bool, fn(S) -> Finding);

/// Returns the finding of the first rule that applies to the reason.
pub(super) fn tell<S: Copy>(of: S, reason: Reason, tellers: &[Teller<S>]) -> Option<Finding> {
    let mut tellers = tellers.iter();
    let (_, _, tell) = tellers.find(|(known, applies, _)| *known == reason && *applies)?;
    Some(tell(of))
}

/// The object for which the operator sent the request.
pub(super) struct Asker<'a> {
    pub(super) world: &'a World,
    pub(super) object: ObjectRef,
    /// The noun for the object in messages.
    pub(super) word: &'static str,
    /// The namespace of its children.
    pub(super) namespace: &'a str,
    pub(super) progress: &'a CommonStatus,
}

impl Asker<'_> {
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
pub(super) fn denied(asker: &Asker<'_>, place: &str, advice: &str) -> Finding {
    let message = asker.message();
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
        asker.written(),
    );
    let mut finding = Finding::new(
        State::Blocked,
        format!(
            "The operator's rights are not those of its chart. Upgrade or reinstall the chart{advice}. After that, {} succeeds by itself.",
            asker.next_try()
        ),
    )
    .link(link);
    finding.next.extend(user.map(|user| {
        let namespace = asker.namespace;
        let line = format!("kubectl auth can-i {what} --as={user} -n {namespace}");
        Command::new(line, "may it by now?")
    }));
    finding.maybe(operator::log(asker.world))
}

/// Explains that the API server did not respond, or responded with an error.
pub(super) fn unavailable(asker: &Asker<'_>) -> Finding {
    let link = Link::new(
        ObjectRef::cluster("APIServer", "kubernetes"),
        Health::Error,
        Reason::ApiUnavailable,
        format!(
            "{}{}; it answers me now",
            messages::answered_code(asker.message()).map_or_else(
                || "did not answer the operator in time".to_owned(),
                |code| format!("answered the operator with {code}")
            ),
            asker.world.ago(asker.written())
        ),
    )
    .since(asker.written())
    .seen("status.message", asker.message(), asker.written());
    Finding::new(
        State::Waiting,
        format!(
            "Wait: the operator tries again by itself{}. If that fails, too, check the control plane.",
            asker.tried_at()
        ),
    )
    .link(link)
    .then(Command::new(
        "kubectl get --raw '/readyz?verbose'",
        "the API server's state",
    ))
    .maybe(operator::log(asker.world))
}

/// Explains an internal error of the operator.
pub(super) fn internal(asker: &Asker<'_>) -> Finding {
    let word = asker.word;
    let link = Link::new(
        ObjectRef::cluster("Operator", "orchestrator"),
        Health::Error,
        Reason::InternalError,
        format!("has an internal error with this {word}"),
    )
    .seen("status.message", asker.message(), asker.written());
    Finding::new(
        State::Blocked,
        format!(
            "This is a bug in Orchestrator: report it with this output and the operator's log. It is tried again by itself{}.",
            asker.tried_at()
        ),
    )
    .link(link)
    .maybe(operator::log(asker.world))
    .then(commands::yaml(&asker.object, &format!("the {word}, for the report")))
}
