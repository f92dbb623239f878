//! `cargo xtask e2e gateway`: the REST API on the real cluster, each case with a gateway process of its own, which has
//! the chart's configuration and a certificate.
//!
//! Every response must be as `docs/reference/openapi.json` says. The cases of attacks list what they try by name.

mod client;
mod document;
mod fixture;
mod schema;
mod seed;

use testkit::suite::Case;

use crate::cases::case;

/// Cases at once: they wait more than they work.
pub(super) const PARALLEL: usize = 8;

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

/// All cases, the slow ones first: the others fill the gaps.
pub(super) fn cases() -> Vec<Case> {
    seed_cases()
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
