//! Kinds that depend on a type that may not be installed, and kinds that do not.

use super::*;
use crate::watch::{OptionalCache, OptionalType};

/// Number of the watch of gadgets. The watches of toys and of the live reads come before it.
const GADGETS: usize = 3;

/// Adds a watch of a type that may not be installed.
pub(super) fn watch(watches: &mut WatchManager) -> OptionalCache<()> {
    watches.optional(OptionalType {
        resource: ResourceType::new("test", "v1", "Gadget", "gadgets"),
        is_namespaced: true,
        decode: |_| Ok(()),
        index: |()| Vec::new(),
    })
}

#[tokio::test(start_paused = true)]
async fn only_kinds_that_depend_on_a_type_wait_for_its_watch() {
    for depends in [false, true] {
        let room = room_on(Scope::All, &["play"], |_| {}, depends);
        assert_eq!(room.gadgets.numbers().collect::<Vec<_>>(), [GADGETS]);
        pass(SECOND).await;
        assert_eq!(room.looks("play").len(), 1);
        let gadgets = room.health.watch_health();
        gadgets.interrupted(GADGETS, "forbidden");
        pass(4 * SECOND).await;
        room.handle.enqueue(&Room::key("play"));
        pass(SECOND).await;
        let looks = room.looks("play").len();
        assert_eq!(looks, if depends { 1 } else { 2 }, "depends: {depends}");

        gadgets.not_installed(GADGETS);
        pass(SECOND).await;
        let looks = room.looks("play").len();
        assert_eq!(looks, 2, "a type that is not installed blocks nobody");

        room.gadgets.report_installation_change();
        pass(SECOND).await;
        let looks = room.looks("play").len();
        assert_eq!(looks, if depends { 3 } else { 2 }, "depends: {depends}");
        room.end().await;
    }
}
