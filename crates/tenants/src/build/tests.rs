use std::{collections::BTreeMap, net::IpAddr};

use api::tenants::TenantSpec;
use serde_json::{Value, json};

use super::{BuildContext, OBJECT_LIMITS, Settings, children, may_leave};

/// Returns the spec of a Tenant with only these fields.
fn spec(fields: Value) -> TenantSpec {
    let mut spec = json!({ "deletion": { "policy": "Delete" } });
    for (name, value) in fields.as_object().unwrap() {
        spec[name] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

/// Returns the body of a child, by kind and name.
fn child(spec: &TenantSpec, settings: &Settings, kind: &str, name: &str) -> Value {
    let context = BuildContext {
        name: "shop",
        uid: "uid",
        spec,
        settings,
    };
    let mut all = children(context, None).into_iter();
    all.find(|one| one.resource.kind == kind && one.name == name)
        .unwrap()
        .body
}

/// A6.3: without `resources`, an owner could create any number of objects.
#[test]
fn the_objects_of_each_tenant_are_bounded() {
    let settings = Settings::default();
    let generous = Settings {
        object_limits: BTreeMap::from([("pods".to_owned(), 7), ("count/secrets".to_owned(), 3000)]),
        ..Settings::default()
    };
    let few = json!({ "resources": { "pods": { "limit": 5 } } });
    let many = json!({ "resources": { "pods": { "limit": 9000 } } });
    for (what, fields, settings, pods, all_pods, secrets) in [
        ("the default", json!({}), &settings, "250", "1000", "100"),
        ("few Pods", few.clone(), &settings, "5", "1000", "100"),
        ("many Pods", many, &settings, "9000", "18000", "100"),
        ("configured", json!({}), &generous, "7", "1000", "3000"),
        (
            "the spec before the configuration",
            few,
            &generous,
            "5",
            "1000",
            "3000",
        ),
    ] {
        let spec = spec(fields);
        let quota = child(&spec, settings, "ResourceQuota", "tenant");
        assert_eq!(quota["spec"]["hard"]["pods"], pods, "{what}");
        let quota = child(&spec, settings, "ResourceQuota", "tenant-objects");
        let hard = &quota["spec"]["hard"];
        assert_eq!(hard["count/pods"], all_pods, "{what}");
        assert_eq!(hard["count/secrets"], secrets, "{what}");
        assert_eq!(hard["services.nodeports"], "0", "{what}");
        for (name, _) in OBJECT_LIMITS.iter().filter(|(name, _)| *name != "pods") {
            assert!(hard[*name].is_string(), "{what}: {name}");
        }
    }
}

/// Each kind of object that an owner may create has a limit.
#[test]
fn an_owner_creates_nothing_without_a_limit() {
    for rule in api::policy::tenant_owner_role().rules.unwrap() {
        let group = rule.api_groups.unwrap().remove(0);
        if !rule.verbs.iter().any(|verb| verb == "create") {
            continue;
        }
        for resource in rule.resources.unwrap() {
            if resource.contains('/') {
                continue;
            }
            let name = if group.is_empty() {
                format!("count/{resource}")
            } else {
                format!("count/{resource}.{group}")
            };
            let is_it = |(known, _): &(&str, u32)| *known == name;
            assert!(OBJECT_LIMITS.iter().any(is_it), "{name}");
        }
    }
}

/// Returns whether an address is in a network.
fn contains(network: &str, address: &str) -> bool {
    let (base, prefix) = network.split_once('/').unwrap();
    let bits = |text: &str| match text.parse().unwrap() {
        IpAddr::V4(one) => (32, u128::from(u32::from(one))),
        IpAddr::V6(one) => (128, u128::from(one)),
    };
    let ((size, base), (other, address)) = (bits(base), bits(address));
    let rest: u32 = size - prefix.parse::<u32>().unwrap();
    let cut = |bits: u128| bits.checked_shr(rest).unwrap_or(0);
    size == other && cut(base) == cut(address)
}

/// A6.4: the only notation for the internet was `0.0.0.0/0`, which includes metadata services and nodes.
#[test]
fn the_internet_is_neither_the_cluster_nor_a_metadata_service() {
    let settings = Settings {
        cluster_networks: vec!["203.0.113.0/24".to_owned(), "2001:db8:7::/48".to_owned()],
        ..Settings::default()
    };
    let to = json!([{ "internet": true }]);
    let rules = json!([{ "to": to, "ports": [{ "port": 443 }] }]);
    let spec = spec(json!({ "networkPolicy": { "egressRules": rules } }));
    let policy = child(&spec, &settings, "NetworkPolicy", "egress-0");
    let blocks = policy["spec"]["egress"][0]["to"].as_array().unwrap();
    assert_eq!(blocks.len(), 2);
    let is_open = |address: &str| {
        blocks.iter().any(|block| {
            let block = &block["ipBlock"];
            let except = block["except"].as_array().unwrap();
            let is_in = |network: &Value| contains(network.as_str().unwrap(), address);
            is_in(&block["cidr"]) && !except.iter().any(is_in)
        })
    };
    for (address, wanted) in [
        ("93.184.215.14", true),
        ("2606:2800:21f:cb07::1", true),
        ("64:ff9b::5db8:d70e", true),
        ("10.0.0.1", false),
        ("172.16.0.1", false),
        ("172.31.255.255", false),
        ("192.168.1.1", false),
        ("100.64.0.1", false),
        ("100.100.100.200", false),
        ("169.254.169.254", false),
        ("192.0.0.192", false),
        ("127.0.0.1", false),
        ("240.0.0.1", false),
        ("203.0.113.9", false),
        ("::1", false),
        ("fd00:ec2::254", false),
        ("fe80::1", false),
        ("64:ff9b::a9fe:a9fe", false),
        ("64:ff9b::a00:1", false),
        ("2001:db8:7::1", false),
    ] {
        assert_eq!(is_open(address), wanted, "{address}");
    }
    // Connections to other Tenants are still expected to be blocked, and checked.
    assert!(!may_leave(&spec, "tenant-other"));
}
