//! Tests of explanations: for each world the deepest blocker, and the text that a reader sees.
//!
//! `UPDATE_GOLDEN=1 cargo test -p why` rewrites the texts and the schema. Read the differences.

#[cfg(test)]
mod app_build;
#[cfg(test)]
mod apps;
#[cfg(test)]
mod build;
#[cfg(test)]
mod crds;
#[cfg(test)]
mod docs;
#[cfg(test)]
mod docs_ends;
#[cfg(test)]
mod ends;
#[cfg(test)]
mod files;
#[cfg(test)]
mod goes;
#[cfg(test)]
mod leader;
#[cfg(test)]
mod notebooks;
#[cfg(test)]
mod promises;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod stopped;
#[cfg(test)]
mod tenant_build;
#[cfg(test)]
mod tenant_parts;
#[cfg(test)]
mod tenant_places;
#[cfg(test)]
mod tenants;
#[cfg(test)]
mod waits;
#[cfg(test)]
mod wrong_answers;

use why::{World, explain, explanation::State};

/// A world and the expected explanation.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) world: World,
    pub(crate) state: State,
    /// Kind, name and reason of the deepest blocker.
    pub(crate) blocker: Option<(&'static str, &'static str, &'static str)>,
}

pub(crate) fn case(
    name: &'static str,
    scene: build::Scene,
    state: State,
    blocker: Option<(&'static str, &'static str, &'static str)>,
) -> Case {
    Case {
        name,
        world: scene.0,
        state,
        blocker,
    }
}

pub(crate) fn all() -> Vec<Case> {
    let mut all = waits::cases();
    all.extend(goes::cases());
    all.extend(ends::cases());
    all.extend(docs::cases());
    all.extend(tenants::cases());
    all.extend(wrong_answers::cases());
    all.extend(apps::cases());
    all.extend(notebooks::cases());
    all.extend(crds::cases());
    all
}

#[test]
fn each_world_has_its_deepest_blocker() {
    for case in all() {
        let found = explain(&case.world);
        let blocker = found.blocker.as_ref();
        let blocker = blocker.map(|known| {
            (
                known.object.kind.as_str(),
                known.object.name.as_str(),
                known.reason.as_str(),
            )
        });
        assert_eq!(
            (found.state, blocker),
            (case.state, case.blocker),
            "{}: {found:#?}",
            case.name
        );
    }
}
