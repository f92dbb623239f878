use super::*;

#[test]
fn built_in_kinds_have_the_names_of_their_types() {
    for (name, erase, _) in BUILT_IN {
        assert_eq!(erase(&()).kind, *name);
    }
}

#[test]
fn a_kind_of_ours_has_the_resource_of_its_type() {
    let resource = resource(&api::tenants::TENANT);
    assert_eq!(resource, ApiResource::erase::<api::tenants::Tenant>(&()));
}
