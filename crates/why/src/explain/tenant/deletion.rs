//! A Tenant that is being deleted, according to its deletion policy.

use api::{Reason, names};

use super::{
    super::{Finding, commands, operator},
    context::TenantContext,
    terminating,
};
use crate::{
    explanation::{Command, Health, Link, State},
    times,
};

/// The finalizer that keeps a Tenant until the deletion policy is applied.
const FINALIZER: &str = "tenants.orchestrator.io/finalizer";
/// Time in seconds that the operator's own remaining work may take. Normally it takes seconds.
const SOON: i64 = 60;

pub(super) fn find(context: TenantContext<'_>) -> Option<Finding> {
    let since = context.tenant.meta.deleting.as_ref()?;
    let held = &context.tenant.meta.finalizers;
    let foreign: Vec<&str> = held
        .iter()
        .map(String::as_str)
        .filter(|name| *name != FINALIZER)
        .collect();
    let is_ours = held.iter().any(|name| name == FINALIZER);
    let mut finding = if is_ours && operator::is_down(context.world) {
        operator::down(context.world)
    } else if is_ours {
        ours(context)
    } else if foreign.is_empty() {
        Finding::new(
            State::Deleting,
            "Nothing holds it: it is deleted in a moment.",
        )
    } else {
        others(context, &foreign)
    };
    finding.state = State::Deleting;
    let deadline = i64::try_from(context.tenant.deadline_seconds).unwrap_or(i64::MAX);
    let is_late = context.world.age(since) > deadline;
    if is_ours && is_late && !context.tenant.force_delete {
        finding.next.truncate(2);
        finding = finding.then(Command::new(
            format!(
                "kubectl annotate oten {} {}=true",
                context.name(),
                names::FORCE_DELETE
            ),
            "the last way out: let the Tenant go without waiting; what is left of its namespace is then nobody's",
        ));
    }
    if finding.next.is_empty() {
        finding = finding.then(commands::yaml(&context.object(), "its finalizers"));
    }
    Some(finding)
}

fn others(context: TenantContext<'_>, foreign: &[&str]) -> Finding {
    let names = foreign.join("', '");
    let since = context.tenant.meta.deleting.as_ref();
    let link = Link::new(
        context.object(),
        Health::Error,
        "Finalizer",
        format!("what its policy asks for is done; the finalizer '{names}', which is not Orchestrator's, holds it"),
    )
    .since(since)
    .seen(
        "metadata.finalizers",
        context.tenant.meta.finalizers.join(", "),
        since,
    );
    Finding::new(
        State::Deleting,
        format!("Find out what set '{names}' on Tenant '{}' and let it finish. Take it off by hand (delete its line under 'metadata.finalizers') only if that no longer exists.", context.name()),
    )
    .link(link)
    .newer()
    .then(commands::who(&context.object(), "'metadata.managedFields' names who set it"))
    .then(context.edit("only if that no longer exists: delete its line under 'metadata.finalizers'"))
}

/// Explains that our finalizer waits until the deletion policy is applied.
fn ours(context: TenantContext<'_>) -> Finding {
    let namespace = context
        .world
        .namespace
        .as_ref()
        .filter(|namespace| context.is_own(namespace));
    if let Some(namespace) = namespace.filter(|namespace| namespace.deleting.is_some()) {
        return terminating::find(
            context,
            namespace,
            Reason::Deleting,
            "with everything in it",
        );
    }
    if let Some(pod) = context.probes().next() {
        return Finding::new(
            State::Deleting,
            "Wait: the Pods that tried its connections are taken away first.",
        )
        .link(terminating::stopping(context, pod, Reason::Deleting))
        .then(context.look_again());
    }
    let is_known = context.world.namespace.is_some()
        || context.exists("Namespace", context.namespace()) == Some(false);
    let Some(_) = namespace else {
        let advice = if is_known {
            released(context)
        } else {
            "Wait, or ask whoever may see its namespace what is left there: the first lines say what the operator waits for.".to_owned()
        };
        return Finding::new(State::Deleting, advice)
            .then(context.look_again())
            .maybe(operator::log(context.world));
    };
    let is_kept = context.tenant.deletion == "Retain";
    let sentence = if is_kept {
        "stays with its quota and network policies; the RoleBinding of its owners is deleted"
    } else {
        "is about to be deleted with everything in it"
    };
    let link = Link::new(context.place(), Health::Waiting, Reason::Deleting, sentence).seen(
        "deletion asked for",
        if is_kept {
            "never: 'deletion.policy' is Retain"
        } else {
            "not yet"
        },
        Some(&context.world.now),
    );
    Finding::new(
        State::Deleting,
        format!(
            "{} If it stays so, read the operator's log.",
            late(context, "Wait: this takes seconds.")
        ),
    )
    .link(link)
    .then(context.look_again())
    .maybe(operator::log(context.world))
}

fn released(context: TenantContext<'_>) -> String {
    late(
        context,
        "Nothing is left of the Tenant: the operator lets it go within seconds.",
    )
}

/// Returns `words`, or another text if the deletion has taken longer than [`SOON`].
fn late(context: TenantContext<'_>, words: &str) -> String {
    let since = context.tenant.meta.deleting.as_ref();
    let age = since.map_or(0, |at| context.world.age(at));
    if age > SOON {
        format!(
            "What is left to be done is the operator's, and it has not been for {}: look into its log.",
            times::span(age)
        )
    } else {
        words.to_owned()
    }
}
