//! What the API server answered the operator, whatever it asked for.

use api::{Reason, status::Progress};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Finding, commands, operator};
use crate::{
    explanation::{Command, Health, Link, State},
    said,
    world::{ObjectRef, World},
};

/// For which reason, whether it applies, and who tells of it.
pub(super) type Teller<S> = (Reason, bool, fn(S) -> Finding);

/// What the first says that knows the reason.
pub(super) fn tell<S: Copy>(of: S, reason: Reason, tellers: &[Teller<S>]) -> Option<Finding> {
    let mut tellers = tellers.iter();
    let (_, _, tell) = tellers.find(|(known, applies, _)| *known == reason && *applies)?;
    Some(tell(of))
}

/// Someone for whom the operator asks.
pub(super) struct Asker<'a> {
    pub(super) world: &'a World,
    pub(super) object: ObjectRef,
    /// What people call it.
    pub(super) word: &'static str,
    /// Where its children are.
    pub(super) namespace: &'a str,
    pub(super) progress: &'a Progress,
}

impl Asker<'_> {
    fn message(&self) -> &str {
        self.progress.message.as_deref().unwrap_or_default()
    }

    fn written(&self) -> Option<&Time> {
        self.progress.last_updated.as_ref()
    }

    /// `the next try, at 10:05:53Z (in 42s),`.
    pub(super) fn next_try(&self) -> String {
        let retry = self.progress.retry.as_ref();
        retry.map_or_else(
            || "the next try".to_owned(),
            |retry| format!("the next try, at {},", self.world.when(&retry.next_at)),
        )
    }

    /// ` at 10:05:53Z (in 42s)`, or nothing.
    pub(super) fn tried_at(&self) -> String {
        let retry = self.progress.retry.as_ref();
        self.world.ago(retry.map(|retry| &retry.next_at))
    }
}

/// The operator may not do it. `place`: ` in namespace 'x'`, where that matters; `advice`: what helps
/// beside the chart.
pub(super) fn denied(asker: &Asker<'_>, place: &str, advice: &str) -> Finding {
    let message = asker.message();
    let what = said::request(message).map_or("do it", |request| request.what);
    let user = message
        .split_once("User \"")
        .and_then(|(_, rest)| rest.split('"').next());
    let account = user.and_then(|user| user.strip_prefix("system:serviceaccount:"));
    let object = match account.and_then(|account| account.split_once(':')) {
        Some((namespace, name)) => ObjectRef::namespaced("ServiceAccount", namespace, name),
        None => ObjectRef::cluster("User", user.unwrap_or("(the operator)")),
    };
    let words = format!("the operator's account may not '{what}'{place}");
    let link = Link::new(object, Health::Wrong, Reason::Denied, words).seen(
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

/// The API server did not answer, or not well.
pub(super) fn unavailable(asker: &Asker<'_>) -> Finding {
    let link = Link::new(
        ObjectRef::cluster("APIServer", "kubernetes"),
        Health::Wrong,
        Reason::ApiUnavailable,
        format!(
            "{}{}; it answers me now",
            said::answer(asker.message()).map_or_else(
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

/// A fault of ours.
pub(super) fn internal(asker: &Asker<'_>) -> Finding {
    let word = asker.word;
    let link = Link::new(
        ObjectRef::cluster("Operator", "orchestrator"),
        Health::Wrong,
        Reason::InternalError,
        format!("has a fault of its own with this {word}"),
    )
    .seen("status.message", asker.message(), asker.written());
    Finding::new(
        State::Blocked,
        format!(
            "This is a fault in Orchestrator: report it with this output and the operator's log. It is tried again by itself{}.",
            asker.tried_at()
        ),
    )
    .link(link)
    .maybe(operator::log(asker.world))
    .then(commands::yaml(&asker.object, &format!("the {word}, for the report")))
}
