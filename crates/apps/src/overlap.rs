//! ManagedApps that share an object. The older one is valid.

use std::collections::{BTreeMap, BTreeSet};

use api::{Timestamp, apps::NamespacedName};

use crate::object::ObjectId;

/// The objects of a ManagedApp.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claimed {
    /// Creation time of the ManagedApp.
    pub created: Option<Timestamp>,
    /// UID of the ManagedApp.
    pub uid: String,
    /// Objects of Flux, workloads and PersistentVolumeClaims of the application.
    pub objects: BTreeSet<ObjectId>,
}

impl Claimed {
    /// Returns the rank: a lower one is older. The UID decides between objects of one second.
    fn rank(&self) -> (Option<Timestamp>, &str) {
        (self.created, &self.uid)
    }
}

/// An object that an older ManagedApp has, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    /// The shared object.
    pub object: ObjectId,
    /// The older ManagedApp.
    pub older: NamespacedName,
}

/// The objects of all ManagedApps, by ManagedApp and by object.
#[derive(Debug, Default)]
pub struct Registry {
    apps: BTreeMap<NamespacedName, Claimed>,
    holders: BTreeMap<ObjectId, BTreeSet<NamespacedName>>,
}

impl Registry {
    /// Sets the objects of a ManagedApp. Returns the other ManagedApps with a possible change of their overlap.
    pub fn set(&mut self, app: &NamespacedName, claimed: Claimed) -> BTreeSet<NamespacedName> {
        if self.apps.get(app) == Some(&claimed) {
            return BTreeSet::new();
        }
        let mut affected = self.remove(app);
        for object in &claimed.objects {
            let holders = self.holders.entry(object.clone()).or_default();
            affected.extend(holders.iter().cloned());
            holders.insert(app.clone());
        }
        self.apps.insert(app.clone(), claimed);
        affected.remove(app);
        affected
    }

    /// Removes a ManagedApp. Returns the ManagedApps that shared an object with it.
    pub fn remove(&mut self, app: &NamespacedName) -> BTreeSet<NamespacedName> {
        let mut affected = BTreeSet::new();
        let Some(claimed) = self.apps.remove(app) else {
            return affected;
        };
        for object in claimed.objects {
            let Some(holders) = self.holders.get_mut(&object) else {
                continue;
            };
            holders.remove(app);
            affected.extend(holders.iter().cloned());
            if holders.is_empty() {
                self.holders.remove(&object);
            }
        }
        affected
    }

    /// Returns whether the objects of a ManagedApp are known.
    #[must_use]
    pub fn has(&self, app: &NamespacedName) -> bool {
        self.apps.contains_key(app)
    }

    /// Returns the number of ManagedApps with known objects.
    #[must_use]
    pub fn count(&self) -> usize {
        self.apps.len()
    }

    /// Returns the objects of a ManagedApp, as they were set last.
    #[must_use]
    pub fn objects(&self, app: &NamespacedName) -> BTreeSet<ObjectId> {
        let claimed = self.apps.get(app);
        claimed
            .map(|claimed| claimed.objects.clone())
            .unwrap_or_default()
    }

    /// Returns the ManagedApps with this object.
    #[must_use]
    pub fn holders(&self, object: &ObjectId) -> Vec<NamespacedName> {
        let holders = self.holders.get(object);
        holders
            .into_iter()
            .flat_map(|all| all.iter())
            .cloned()
            .collect()
    }

    /// Returns the first object that an older ManagedApp has, too. The result depends only on the registered objects.
    #[must_use]
    pub fn overlap(&self, app: &NamespacedName) -> Option<Overlap> {
        let own = self.apps.get(app)?;
        own.objects.iter().find_map(|object| {
            let others = self.holders.get(object)?.iter();
            let older = others.filter_map(|name| Some((self.apps.get(name)?.rank(), name)));
            let (_, older) = older.filter(|(rank, _)| *rank < own.rank()).min()?;
            Some(Overlap {
                object: object.clone(),
                older: older.clone(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::object::ObjectKind;

    fn name(name: &str) -> NamespacedName {
        NamespacedName::new("shop", name)
    }

    fn claim(object: &str) -> ObjectId {
        ObjectId::new(ObjectKind::Claim, "shop", object)
    }

    fn claimed(second: i64, uid: &str, objects: &[&str]) -> Claimed {
        Claimed {
            created: Some(Timestamp::from_second(second).unwrap()),
            uid: uid.to_owned(),
            objects: objects.iter().map(|object| claim(object)).collect(),
        }
    }

    #[test]
    fn the_older_app_is_valid() {
        let mut all = Registry::default();
        assert_eq!(
            all.set(&name("new"), claimed(20, "a", &["x", "y"])),
            [].into()
        );
        assert_eq!(all.overlap(&name("new")), None);
        // The other one must learn of it.
        let affected = all.set(&name("old"), claimed(10, "b", &["y", "z"]));
        assert_eq!(affected, [name("new")].into());
        let expected = Overlap {
            object: claim("y"),
            older: name("old"),
        };
        assert_eq!(all.overlap(&name("new")), Some(expected));
        assert_eq!(all.overlap(&name("old")), None);
        assert_eq!(all.holders(&claim("y")), [name("new"), name("old")]);
        assert_eq!(all.objects(&name("old")), [claim("y"), claim("z")].into());
        // Nothing changed, so nobody is affected.
        assert_eq!(
            all.set(&name("old"), claimed(10, "b", &["y", "z"])),
            [].into()
        );
        // The overlap ends when the older one has other objects, or is deleted.
        assert_eq!(
            all.set(&name("old"), claimed(10, "b", &["z"])),
            [name("new")].into()
        );
        assert_eq!(all.overlap(&name("new")), None);
        drop(all.set(&name("old"), claimed(10, "b", &["x"])));
        assert_eq!(all.remove(&name("old")), [name("new")].into());
        assert_eq!(all.overlap(&name("new")), None);
        assert_eq!(all.count(), 1);
        assert!(!all.has(&name("old")) && all.holders(&claim("z")).is_empty());
    }

    #[test]
    fn the_uid_decides_between_apps_of_one_second() {
        let mut all = Registry::default();
        drop(all.set(&name("a"), claimed(10, "2", &["x"])));
        drop(all.set(&name("b"), claimed(10, "1", &["x"])));
        assert!(all.overlap(&name("a")).is_some() && all.overlap(&name("b")).is_none());
    }

    proptest! {
        /// The result does not depend on the order in which the apps are reconciled, and one app is always valid.
        #[test]
        fn the_order_of_reconciliations_does_not_matter(
            apps in proptest::collection::vec((0_i64..3, proptest::collection::vec(0_u8..4, 0..4)), 1..6),
        ) {
            let entries: Vec<(NamespacedName, Claimed)> = apps.iter().enumerate().map(|(index, (second, objects))| {
                let objects: Vec<String> = objects.iter().map(u8::to_string).collect();
                let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
                (name(&index.to_string()), claimed(*second, &index.to_string(), &objects))
            }).collect();
            let (mut forward, mut backward) = (Registry::default(), Registry::default());
            for (app, claimed) in &entries {
                drop(forward.set(app, claimed.clone()));
            }
            for (app, claimed) in entries.iter().rev() {
                drop(backward.set(app, claimed.clone()));
            }
            for (app, _) in &entries {
                prop_assert_eq!(forward.overlap(app), backward.overlap(app));
            }
            prop_assert!(entries.iter().any(|(app, _)| forward.overlap(app).is_none()));
            for (app, _) in &entries {
                drop(forward.remove(app));
            }
            prop_assert!(forward.apps.is_empty() && forward.holders.is_empty());
        }
    }
}
