//! Tables of inventories and releases.

use proptest::prelude::*;

use super::*;
use crate::flux::ReleaseEntry;

fn id(kind: ObjectKind, name: &str) -> ObjectId {
    ObjectId::new(kind, "shop", name)
}

fn kustomization(objects: &[ObjectId]) -> KustomizationView {
    let mut view = KustomizationView {
        inventory: Some(objects.iter().cloned().collect()),
        ..KustomizationView::default()
    };
    view.flux.name = NamespacedName::new("flux", "shop");
    view
}

fn helm(inventory: Option<&[ObjectId]>) -> HelmReleaseView {
    let mut view = HelmReleaseView {
        newest: Some(ReleaseEntry {
            name: "shop".to_owned(),
            namespace: "shop".to_owned(),
            version: 3,
            ..ReleaseEntry::default()
        }),
        inventory: inventory.map(|all| all.iter().cloned().collect()),
        ..HelmReleaseView::default()
    };
    view.flux.name = NamespacedName::new("shop", "shop");
    view.storage_namespace = Some("shop".to_owned());
    view
}

fn read(objects: &[ObjectId]) -> ReleaseRead {
    ReleaseRead::Objects(Arc::new(objects.iter().cloned().collect()))
}

fn reference(name: &str, namespace: Option<&str>) -> FluxRef {
    FluxRef {
        name: name.to_owned(),
        namespace: namespace.map(str::to_owned),
    }
}

/// The table of references: the inventory, the reference, and the name or the reason.
#[test]
fn the_helm_release_is_the_referenced_one_or_the_only_one() {
    let release = |name: &str| id(ObjectKind::HelmRelease, name);
    let web = id(ObjectKind::Deployment, "web");
    let one = kustomization(&[web.clone(), release("a")]);
    let two = kustomization(&[release("a"), release("b")]);
    let none = kustomization(&[web]);
    let name = |name: &str| Ok(Some(NamespacedName::new("shop", name)));
    for (kustomization, reference, expected) in [
        (&none, None, Ok(None)),
        (&one, None, name("a")),
        (&two, None, Err(Reason::HelmReleaseAmbiguous)),
        (&two, Some(reference("b", Some("shop"))), name("b")),
        // Without a namespace, it is in that of the ManagedApp.
        (&two, Some(reference("b", None)), name("b")),
        (
            &two,
            Some(reference("b", Some("other"))),
            Err(Reason::NotInInventory),
        ),
        (
            &none,
            Some(reference("a", None)),
            Err(Reason::NotInInventory),
        ),
    ] {
        let found = helm_release(reference.as_ref(), "shop", kustomization);
        assert_eq!(
            found.map_err(|problem| problem.reason),
            expected,
            "{reference:?}"
        );
    }
    let several = helm_release(None, "shop", &two).unwrap_err();
    assert!(
        several
            .message
            .contains("'flux/shop' has 2 HelmReleases: 'shop/a', 'shop/b'"),
        "{}",
        several.message
    );
}

/// The table of HelmReleases in the inventory: the namespace, the labels, the reference, and whether it may be shown.
#[test]
fn a_helm_release_of_another_namespace_needs_the_label_of_its_kustomization() {
    let kustomization = kustomization(&[id(ObjectKind::HelmRelease, "shop")]);
    let by = |name: &str| ObjectId::new(ObjectKind::Kustomization, "flux", name);
    let named = reference("shop", Some("shop"));
    for (namespace, applier, reference, is_shown) in [
        ("flux", None, None, true),
        ("shop", None, None, false),
        ("shop", Some(by("shop")), None, true),
        ("shop", Some(by("other")), None, false),
        // Its author needs permission to patch it.
        ("shop", None, Some(&named), true),
    ] {
        let mut helm = helm(None);
        helm.flux.name = NamespacedName::new(namespace, "shop");
        helm.flux.appliers.extend(applier.clone());
        let found = check_origin(reference, &kustomization, &helm);
        assert_eq!(found.is_ok(), is_shown, "{namespace}, {applier:?}");
        if let Err(problem) = found {
            assert_eq!(problem.reason, Reason::DiscoveryMismatch);
            assert!(
                problem.message.starts_with(
                    "HelmRelease 'shop/shop' belongs to Kustomization 'flux/shop' by its inventory, but not by"
                ),
                "{}",
                problem.message
            );
        }
    }
}

#[test]
fn s1_2_the_objects_are_those_of_the_inventory() {
    let objects_of = [
        id(ObjectKind::Deployment, "web"),
        id(ObjectKind::StatefulSet, "db"),
        id(ObjectKind::Claim, "files"),
        id(ObjectKind::CronJob, "backup"),
    ];
    let mut all = objects_of.to_vec();
    // A nested Kustomization is another application.
    all.push(id(ObjectKind::Kustomization, "nested"));
    let found = objects(&kustomization(&all), None).unwrap();
    assert_eq!(found, objects_of.into());
    let unapplied = KustomizationView::default();
    assert_eq!(objects(&unapplied, None), Ok(BTreeSet::new()));
}

/// The table of sources: the inventory of the HelmRelease, the release, and the names of the objects or the reason.
#[test]
fn s1_1_the_release_and_the_inventory_agree() {
    let web = id(ObjectKind::Deployment, "web");
    let db = id(ObjectKind::StatefulSet, "db");
    let files = id(ObjectKind::Claim, "files");
    let (web, db, files) = (&web, &db, &files);
    let both = [web.clone(), db.clone()];
    let with_claim = [web.clone(), db.clone(), files.clone()];
    let only_web = [web.clone()];
    type Row<'a> = (
        Option<&'a [ObjectId]>,
        ReleaseRead,
        Result<Vec<&'a ObjectId>, Reason>,
    );
    let rows: [Row<'_>; 10] = [
        (None, read(&both), Ok(vec![web, db])),
        (Some(&both), read(&both), Ok(vec![web, db])),
        (Some(&both), ReleaseRead::Disabled, Ok(vec![web, db])),
        (None, ReleaseRead::Disabled, Err(Reason::ReleaseUnreadable)),
        (
            Some(&both),
            ReleaseRead::Unreadable("forbidden".to_owned()),
            Err(Reason::ReleaseUnreadable),
        ),
        (
            Some(&both),
            ReleaseRead::Newer(4),
            Err(Reason::ReleaseChangedOutsideFlux),
        ),
        (Some(&only_web), read(&both), Err(Reason::DiscoveryMismatch)),
        (Some(&both), read(&only_web), Err(Reason::DiscoveryMismatch)),
        // A claim may be in one of the two only.
        (Some(&both), read(&with_claim), Ok(vec![web, db, files])),
        (Some(&with_claim), read(&both), Ok(vec![web, db, files])),
    ];
    for (inventory, read, expected) in rows {
        let helm = helm(inventory);
        let kustomization = kustomization(&[id(ObjectKind::HelmRelease, "shop")]);
        let found = objects(&kustomization, Some((&helm, &read)));
        let expected: Result<BTreeSet<ObjectId>, Reason> =
            expected.map(|all| all.into_iter().cloned().collect());
        assert_eq!(
            found.map_err(|problem| problem.reason),
            expected,
            "{inventory:?}, {read:?}"
        );
    }
}

#[test]
fn a_problem_names_the_object_and_the_next_step() {
    let (web, db) = (
        id(ObjectKind::Deployment, "web"),
        id(ObjectKind::StatefulSet, "db"),
    );
    let helm = helm(Some(std::slice::from_ref(&web)));
    let kustomization = kustomization(&[]);
    let problem = |read: ReleaseRead| {
        let found = objects(&kustomization, Some((&helm, &read)));
        found.unwrap_err().message
    };
    let differs = problem(read(&[web, db]));
    assert!(
        differs.starts_with("StatefulSet 'shop/db' is in the release of HelmRelease 'shop/shop', but not in the inventory. Let Flux"),
        "{differs}"
    );
    let mut elsewhere = helm.clone();
    elsewhere.storage_namespace = Some("theirs".to_owned());
    let theirs = read(&[id(ObjectKind::StatefulSet, "secret-project")]);
    let hidden = objects(&kustomization, Some((&elsewhere, &theirs)));
    let hidden = hidden.unwrap_err().message;
    assert!(hidden.starts_with("a workload is in"), "{hidden}");
    let name = id(ObjectKind::StatefulSet, "secret-project");
    let hidden = foreign(&name, &kustomization, Some(&elsewhere)).message;
    assert!(hidden.starts_with("an object of the release"), "{hidden}");
    let newer = problem(ReleaseRead::Newer(4));
    assert!(
        newer.contains("version 4") && newer.contains("version 3 only"),
        "{newer}"
    );
    let mut never = helm.clone();
    never.newest = None;
    let never = objects(&kustomization, Some((&never, &ReleaseRead::Disabled)));
    assert_eq!(never.unwrap_err().reason, Reason::ReleaseUnreadable);
}

proptest! {
    /// Without an error, no workload of either source is lost.
    #[test]
    fn no_workload_is_lost(
        of_flux in proptest::collection::btree_set(0_u8..6, 0..5),
        of_release in proptest::collection::btree_set(0_u8..6, 0..5),
        listed in proptest::option::of(proptest::collection::btree_set(0_u8..6, 0..5)),
    ) {
        let ids = |numbers: &BTreeSet<u8>| -> Vec<ObjectId> {
            numbers.iter().map(|number| id(ObjectKind::Deployment, &number.to_string())).collect()
        };
        let listed = listed.map(|numbers| ids(&numbers));
        let helm = helm(listed.as_deref());
        let kustomization = kustomization(&ids(&of_flux));
        match objects(&kustomization, Some((&helm, &read(&ids(&of_release))))) {
            Ok(found) => {
                let mut expected: BTreeSet<ObjectId> = ids(&of_flux).into_iter().collect();
                expected.extend(ids(&of_release));
                prop_assert_eq!(found, expected);
            }
            Err(problem) => {
                prop_assert_eq!(problem.reason, Reason::DiscoveryMismatch);
                prop_assert!(listed.is_some_and(|listed| listed != ids(&of_release)));
            }
        }
    }
}
