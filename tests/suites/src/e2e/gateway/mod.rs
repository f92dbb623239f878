//! `cargo xtask e2e gateway`: the REST API on the real cluster, each case with a gateway process of its own, which has
//! the chart's configuration and a certificate.
//!
//! Every response must be as `docs/reference/openapi.json` says. The cases of attacks list what they try by name.

mod attack_table;
mod authority;
mod client;
mod control;
mod document;
mod fixture;
mod floods;
mod hostile;
pub(super) mod installed;
mod issuer;
mod lifecycle;
pub(crate) mod load;
mod races;
mod reads;
mod scene;
mod schema;
mod seed;
mod server;
mod sessions;
mod sse;
mod streams;
mod tokens;
mod wire;

pub(crate) use attack_table::Table;
use testkit::suite::Case;

use crate::cases::{alone, case, last};

/// Cases at once: they wait more than they work.
pub(super) const PARALLEL: usize = 8;

/// The cases that CI runs in a minute: the endpoints of the seed, races, and attacks on the authority of callers. None of them
/// starts an operator or waits for a limit of time.
const SHARE: &[&str] = &[
    "keys-lost-200",
    "stream-restart",
    "stream-cut",
    "session",
    "control",
    "authors",
    "audit",
    "elsewhere-reads",
    "elsewhere-actions",
    "impersonation",
    "viewer",
    "token-account",
    "token-forged",
    "browsers",
    "filenames",
    "paths",
    "dry-run",
    "key-content",
    "submit-50",
    "context-20",
    "pm-200-submit",
    "pm-200-context",
    "pm-400",
    "pm-401",
    "pm-403",
    "pm-404",
    "pm-409-exists",
    "pm-409-version",
    "pm-422",
];

/// A case that gets a gateway, which must end well.
macro_rules! on_stage {
    ($name:literal, $shows:literal, $run:path) => {
        case!(@ $name, $shows, |env| {
            futures::FutureExt::boxed(async move {
                let stage = fixture::Stage::new(env).await?;
                let said = $run(&stage).await?;
                stage.done().await?;
                anyhow::Ok(said)
            })
        })
    };
}

/// The same with an operator, which runs what is submitted.
macro_rules! on_scene {
    ($name:literal, $shows:literal, $run:path) => {
        case!(@ $name, $shows, |env| {
            futures::FutureExt::boxed(async move {
                let scene = scene::Scene::new(env).await?;
                let said = $run(&scene).await?;
                scene.done().await?;
                anyhow::Ok(said)
            })
        })
    };
}

/// The cases that CI runs.
pub(super) fn share() -> Vec<Case> {
    let mut all = cases();
    all.retain(|case| SHARE.contains(&case.name));
    all
}

/// All cases, the slow ones first: the others fill the gaps.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = stream_cases();
    cases.extend(server_cases());
    cases.extend(session_cases());
    cases.extend(run_cases());
    cases.extend(race_cases());
    cases.extend(read_cases());
    cases.extend(token_cases());
    cases.extend(authority_cases());
    cases.extend(attack_cases());
    cases.extend(seed_cases());
    cases
}

/// Streams and lists of runs.
fn stream_cases() -> Vec<Case> {
    vec![
        case!(
            "stream-ends",
            "a removed permission, and SIGTERM",
            streams::ended
        ),
        case!(
            "stream-restart",
            "resumed after a restart, and at a replica",
            streams::restarted
        ),
        case!(
            "stream-gone",
            "a watch that ends, and one that gets 410",
            streams::gone
        ),
        case!(
            "stream-limits",
            "a ninth stream, and a shared watch",
            streams::limits
        ),
        on_stage!(
            "stream-runs",
            "runs are created, changed and deleted",
            streams::runs
        ),
        on_stage!(
            "stream-cut",
            "a stream is resumed after a cut",
            streams::cut
        ),
        on_stage!(
            "stream-positions",
            "positions that are not valid",
            streams::wrong_positions
        ),
        on_scene!("stream-run", "one run until its end", streams::one_run),
        on_scene!("stream-log", "a log is followed and resumed", streams::log),
        on_scene!(
            "runs",
            "a list with filters, and differences of files",
            streams::list
        ),
    ]
}

/// Browsers and proxies.
fn session_cases() -> Vec<Case> {
    vec![
        case!(
            "session",
            "a browser signs in, writes and signs out",
            sessions::signed_in
        ),
        case!(
            "session-attacks",
            "forged cookies and sign-ins",
            sessions::attacks
        ),
        on_stage!(
            "session-disabled",
            "a sign-in without a key",
            sessions::disabled
        ),
        case!(
            "hosts",
            "DNS rebinding: other names of the server",
            sessions::hosts
        ),
        case!(
            "proxy",
            "the token of an authenticating proxy",
            sessions::proxy
        ),
    ]
}

/// The server itself.
fn server_cases() -> Vec<Case> {
    vec![
        on_stage!(
            "rotation",
            "a broken key, then a new certificate",
            server::rotation
        ),
        case!(
            "sigterm",
            "SIGTERM with a request in flight",
            server::sigterm
        ),
        on_stage!(
            "http-2",
            "requests of one connection at once",
            server::http_2
        ),
        on_stage!(
            "http-2-floods",
            "resets, settings, large headers",
            server::http_2_floods
        ),
        case!(
            "chart",
            "the chart with the gateway enabled and disabled",
            server::chart
        ),
        alone!(
            "silent-2000",
            "2,000 connections that say nothing",
            server::silent
        ),
    ]
}

/// Requests that nobody should send.
fn attack_cases() -> Vec<Case> {
    vec![
        on_stage!("slow-heads", "heads that do not end", wire::slow_heads),
        on_stage!(
            "slow-bodies",
            "bodies that do not arrive",
            wire::slow_bodies
        ),
        on_stage!("smuggling", "requests hidden in a body", wire::smuggling),
        on_stage!(
            "heads",
            "heads that are too large, or no HTTP/1.1",
            wire::heads
        ),
        on_stage!("bodies", "deep, huge and compressed bodies", wire::bodies),
        on_stage!(
            "bodies-unknown",
            "bodies of callers that the API server does not know",
            floods::unknown_bodies
        ),
        on_stage!(
            "bodies-many",
            "bodies that keep the memory of a caller",
            floods::many_bodies
        ),
        on_stage!("browsers", "CSRF, DNS rebinding, framing", wire::browsers),
        on_stage!("filenames", "hostile names of files", hostile::filenames),
        on_stage!("keys", "hostile idempotency keys", hostile::keys),
        on_stage!(
            "paths",
            "addresses that leave the namespace or the API",
            hostile::paths
        ),
        on_stage!(
            "values",
            "values that only the API server can reject",
            hostile::values
        ),
    ]
}

/// Runs to their end.
fn run_cases() -> Vec<Case> {
    vec![
        on_scene!(
            "log-states",
            "a log in each state of its container",
            reads::logs
        ),
        on_scene!(
            "log-large",
            "a log above 8 MiB, and hostile lines",
            reads::large_log
        ),
        on_scene!("delete", "a running run is deleted", lifecycle::deleted),
        on_scene!("retry", "a finished run is run again", lifecycle::retried),
        on_scene!("cancel", "a running run is cancelled", lifecycle::cancelled),
        on_scene!(
            "suspend",
            "a run is suspended and resumed",
            lifecycle::suspended
        ),
        on_scene!(
            "submit",
            "a run from its submission to its end",
            lifecycle::submitted
        ),
        on_scene!(
            "log-parameters",
            "parameters of a log",
            reads::log_parameters
        ),
        on_scene!(
            "why",
            "explanations have the schema of 'orc why'",
            reads::why
        ),
        on_scene!("events", "Events of a run and of its Pods", reads::events),
    ]
}

/// Reads, and actions that need no operator.
fn read_cases() -> Vec<Case> {
    vec![
        on_stage!("dry-run", "requests that only validate", lifecycle::dry_run),
        on_stage!(
            "identity",
            "another UID or version than the run's",
            lifecycle::identity
        ),
        on_stage!(
            "context",
            "R15: context at the native endpoint",
            lifecycle::context_added
        ),
        on_stage!("docs-run", "a DocsRun", lifecycle::docs_run),
        on_stage!("files", "files of a run", reads::files),
        on_stage!(
            "pages",
            "pages of a list, and wrong positions",
            reads::pages
        ),
        case!(
            "cursor-expired",
            "a position that expired",
            reads::expired_cursor
        ),
        on_stage!(
            "documented",
            "each documented operation is served",
            reads::documented
        ),
        alone!(
            "cluster-objects",
            "namespaces, and Tenants before and after their CRD exists",
            reads::cluster_objects
        ),
    ]
}

/// Whose permissions count.
fn authority_cases() -> Vec<Case> {
    vec![
        case!(
            "audit",
            "the audit log has callers only",
            authority::audited
        ),
        on_stage!(
            "impersonation",
            "headers that name another user",
            authority::impersonation
        ),
        on_stage!(
            "elsewhere-reads",
            "reads across namespaces",
            authority::reads_elsewhere
        ),
        on_stage!(
            "elsewhere-actions",
            "actions across namespaces",
            authority::actions_elsewhere
        ),
        on_stage!(
            "viewer",
            "a caller that may only read",
            authority::viewer_writes
        ),
        on_stage!(
            "events-permission",
            "Events and logs need a permission of their own",
            authority::events_need_permission
        ),
        on_stage!(
            "authors",
            "'submitted-by' of another user",
            authority::authors
        ),
        on_stage!(
            "use-agent",
            "an Agent that the caller may not use",
            authority::use_of_agents
        ),
        on_stage!(
            "control",
            "without the admission policies, the attacks on them succeed",
            control::through_gateway
        ),
        last!(
            "attacks",
            "attacks of each kind were rejected, and their controls succeeded",
            attack_table::judged
        ),
        last!(
            "responses",
            "each reason was returned, and each operation succeeded",
            reads::all_responses
        ),
        last!(
            "no-own-requests",
            "no request of any gateway is its own",
            authority::no_own_requests
        ),
    ]
}

/// Requests at the same time, and requests that are repeated.
fn race_cases() -> Vec<Case> {
    vec![
        case!(
            "keys-lost-200",
            "200 submissions with a key, whose responses are lost",
            races::lost_submits
        ),
        case!(
            "faults",
            "responses of the API server that are no success",
            races::faults
        ),
        on_stage!(
            "submit-50",
            "R21: 50 submissions of one task at once",
            races::submits
        ),
        on_stage!(
            "context-20",
            "R15: 20 additions of one version at once",
            races::contexts
        ),
        on_stage!(
            "context-free",
            "R15: 20 additions at once without an expected version",
            races::free_contexts
        ),
        on_stage!(
            "key-content",
            "a key with the same and with other content",
            races::key_content
        ),
        on_stage!("key-user", "the key of another user", races::key_of_another),
        case!(
            "key-restart",
            "a key after a restart of the gateway",
            races::key_after_restart
        ),
        on_stage!(
            "key-replica",
            "a key at two replicas at once",
            races::key_at_replicas
        ),
        on_stage!(
            "key-docs",
            "a key of a DocsRun, until its deletion",
            races::key_of_docs
        ),
    ]
}

/// Tokens that the API server accepts, and tokens that it does not.
fn token_cases() -> Vec<Case> {
    vec![
        on_stage!(
            "token-account",
            "a token of a ServiceAccount",
            tokens::service_account
        ),
        on_stage!(
            "token-missing",
            "no token, or something else",
            tokens::missing
        ),
        on_stage!(
            "token-forged",
            "tokens with a wrong signature",
            tokens::forged
        ),
        case!(
            "token-expired",
            "claims that are not valid",
            tokens::expired
        ),
        on_stage!(
            "token-audience",
            "tokens for other services",
            tokens::wrong_audience
        ),
        on_stage!(
            "token-revoked",
            "a token that was accepted before",
            tokens::revoked
        ),
        on_stage!(
            "token-guesses",
            "ten guesses block an address",
            tokens::blocked
        ),
        alone!(
            "token-id",
            "ID tokens of an issuer that the API server trusts",
            tokens::id_token
        ),
    ]
}

/// Both endpoints of the founding request, with every status code.
fn seed_cases() -> Vec<Case> {
    vec![
        on_stage!(
            "pm-200-submit",
            "S3.11: a task is submitted",
            seed::submitted
        ),
        on_stage!(
            "pm-200-context",
            "S3.12: context is added, and no file is lost",
            seed::extended
        ),
        on_stage!("pm-400", "bodies that are not valid", seed::invalid),
        on_stage!("pm-401", "no token", seed::unauthenticated),
        on_stage!("pm-403", "a caller that may only read", seed::denied),
        case!("pm-404", "no namespace, no task", seed::not_found),
        on_stage!("pm-405", "other methods", seed::methods),
        on_stage!("pm-409-exists", "R21: the task exists", seed::exists),
        on_stage!(
            "pm-409-version",
            "R15: the version is not the next one",
            seed::wrong_version
        ),
        on_stage!("pm-413", "bodies above 3 MiB", seed::too_large),
        on_stage!("pm-415", "other content types", seed::media_type),
        on_stage!("pm-422", "values that the CRD rejects", seed::refused),
        on_stage!("pm-429", "more than a caller may send", seed::limited),
        case!("pm-502", "lost responses", seed::unanswered),
        on_stage!("pm-slash", "a slash at the end", seed::slashes),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use testkit::suite::When;

    use super::*;

    #[test]
    fn each_case_has_a_name_of_its_own_that_fits_into_a_namespace() {
        let cases = cases();
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), cases.len());
        assert!(names.len() >= 60, "{}", names.len());
        // `t-`, the name, `-`, and five letters.
        assert!(names.iter().all(|name| name.len() <= 40), "{names:?}");
    }

    #[test]
    fn the_share_of_ci_has_cases_that_need_no_others() {
        let share = share();
        assert_eq!(share.len(), SHARE.len());
        // A last case judges all others.
        assert!(share.iter().all(|case| case.when == When::Together));
    }
}
