//! Mistakes in a Tenant. Its fields become names, quotas, policies and the configuration of a
//! Redis.

use serde_json::{Value, json};

use super::{KEY, OURS, QUANTITY, Wrong, changed, gone};
use crate::support::Kind;

const ZERO: &str = "must be more than zero, such as '500Mi' or '1Gi'";
const LINE: &str = "must have no control characters, such as line breaks";
const DEADLINE: &str = "must be a duration from '10s' to '24h', such as";
const CLUSTERS: &str = "must not be 'default' nor begin with 'kube-': those are the cluster's own";
const LABEL: &str = "should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'";
const SOMEONE: &str = "must be someone: this name stands for everybody";
const ACCOUNT: &str = "'namespace' must be given for a ServiceAccount, and only there";
const ACCOUNT_NAME: &str = "'name' must be that of a ServiceAccount, such as 'deployer'";
const PEER: &str = "takes exactly one of 'namespace', 'network' and 'internet'";
const NETWORK: &str =
    "must be a network, such as '192.0.2.0/24', with no bit set beyond its prefix";
const REDIS: &str =
    "'REDIS_URL' and 'REDIS_PASSWORD' are set by Orchestrator, to this Tenant's Redis";
const DIRECTIVE: &str = "what would open the Redis, run programs or move its data is not taken";
const STORAGE: &str = "'storage' cannot be changed: the data is on this volume";
const SAME: &str = "'namespace' cannot be changed; submit another Tenant";
const NAMELESS: &str = "must be given: 'tenant-' with the name of this Tenant is no namespace";

/// Returns a server with these fields.
fn server(fields: Value) -> Value {
    with(json!({ "image": "registry.example/server:1" }), fields)
}

/// Returns a Redis with these fields.
fn redis(fields: Value) -> Value {
    let least = json!({ "image": "registry.example/redis:7", "storage": { "size": "1Gi" } });
    with(least, fields)
}

fn with(mut value: Value, fields: Value) -> Value {
    if let (Value::Object(into), Value::Object(more)) = (&mut value, fields) {
        into.extend(more);
    }
    value
}

/// Returns rules for connections, with this peer and this port.
fn rules(side: &str, peer: Value, port: Value) -> Value {
    json!([{ side: [peer], "ports": [port] }])
}

/// Returns a Tenant to change.
pub(crate) fn whole() -> Value {
    let changes = [
        ("namespace", json!("shop")),
        ("redis", redis(json!({}))),
        ("server", server(json!({}))),
    ];
    changed(Kind::Tenant.least(), &changes)
}

/// Returns Tenants that must be rejected.
pub(crate) fn tenants() -> Vec<Wrong> {
    let mut all = about_the_place();
    all.extend(quantities());
    all.extend(about_programs());
    all.extend(connections());
    all
}

#[rustfmt::skip]
fn about_the_place() -> Vec<Wrong> {
    let owner = |kind: &str, name: &str| json!([{ "kind": kind, "name": name }]);
    let account = |name: &str, namespace: &str| {
        json!([{ "kind": "ServiceAccount", "name": name, "namespace": namespace }])
    };
    wrong! { Kind::Tenant.least();
        "nothing about the data": deletion = (gone()) => "spec.deletion", "Required value";
        "no policy about the data": deletion = { "deadline": "1m" } => "spec.deletion.policy", "Required value";
        "another policy": deletion = { "policy": "Keep" } => "spec.deletion.policy", "supported values: \"Retain\", \"Delete\"";
        "no time to delete": deletion = { "policy": "Delete", "deadline": "9s" } => "spec.deletion.deadline", DEADLINE;
        "days to delete": deletion = { "policy": "Delete", "deadline": "25h" } => "spec.deletion.deadline", DEADLINE;
        "deadline without a unit": deletion = { "policy": "Delete", "deadline": "600" } => "spec.deletion.deadline", DEADLINE;

        "a name of two lines": displayName = "Shop\nlabels: {admin: true}" => "spec.displayName", LINE;
        "a long name": displayName = ("s".repeat(129)) => "spec.displayName", "may not be more than 128";
        "a long description": description = ("s".repeat(1025)) => "spec.description", "may not be more than 1024";

        "the default namespace": namespace = "default" => "spec.namespace", CLUSTERS;
        "a namespace of the cluster": namespace = "kube-system" => "spec.namespace", CLUSTERS;
        "namespace in upper case": namespace = "Shop" => "spec.namespace", LABEL;
        "namespace with a dot": namespace = "shop.web" => "spec.namespace", LABEL;
        "namespace by a path": namespace = "../kube-system" => "spec.namespace", LABEL;
        "a long namespace": namespace = ("s".repeat(64)) => "spec.namespace", "may not be more than 63";
        "empty namespace": namespace = "" => "spec.namespace", "at least 1 chars";

        "everybody": owners = (owner("Group", "system:authenticated")) => "spec.owners[0].name", SOMEONE;
        "everybody else": owners = (owner("Group", "system:unauthenticated")) => "spec.owners[0].name", SOMEONE;
        "nobody knows who": owners = (owner("User", "system:anonymous")) => "spec.owners[0].name", SOMEONE;
        "every program": owners = (owner("Group", "system:serviceaccounts")) => "spec.owners[0].name", SOMEONE;
        "who may do all": owners = (owner("Group", "system:masters")) => "spec.owners[0].name", SOMEONE;
        "an account of nowhere": owners = (owner("ServiceAccount", "deployer")) => "spec.owners[0]", ACCOUNT;
        "someone in a namespace": owners = [{ "kind": "User", "name": "anna", "namespace": "ci" }] => "spec.owners[0]", ACCOUNT;
        "an account in upper case": owners = (account("Deployer", "ci")) => "spec.owners[0].name", ACCOUNT_NAME;
        "an account as a user": owners = (account("system:serviceaccount:ci:deployer", "ci")) => "spec.owners[0].name", ACCOUNT_NAME;
        "an account's namespace": owners = (account("deployer", "CI")) => "spec.owners[0].namespace", LABEL;
        "an owner of another kind": owners = (owner("Robot", "anna")) => "spec.owners[0].kind", "supported values: \"User\", \"Group\", \"ServiceAccount\"";
        "an owner of two lines": owners = (owner("User", "anna\n")) => "spec.owners[0].name", LINE;
        "an owner without a name": owners = (owner("User", "")) => "spec.owners[0].name", "at least 1 chars";
        "33 owners": owners = (vec![json!({ "kind": "User", "name": "anna" }); 33]) => "spec.owners", "must have at most 32 items";
        "suspend as text": suspend = "yes" => "spec.suspend", "must be of type boolean";
        "probe as text": isolation = { "probe": "no" } => "spec.isolation.probe", "must be of type boolean";
    }
}

/// R51: a value that is not a quantity never reaches code that parses it.
#[rustfmt::skip]
pub(crate) fn quantities() -> Vec<Wrong> {
    let size = |size: Value| redis(json!({ "storage": { "size": size } }));
    wrong! { Kind::Tenant.least();
        "much": resources = { "cpu": { "request": "much" } } => "spec.resources.cpu.request", QUANTITY;
        "a unit that is none": resources = { "memory": { "limit": "1GB" } } => "spec.resources.memory.limit", QUANTITY;
        "a negative amount": resources = { "cpu": { "limit": "-1" } } => "spec.resources.cpu.limit", QUANTITY;
        "a negative number": resources = { "cpu": { "limit": (-1) } } => "spec.resources.cpu.limit", QUANTITY;
        "an exponent": resources = { "memory": { "request": "1e3" } } => "spec.resources.memory.request", QUANTITY;
        "two points": resources = { "storage": { "total": "1.2.3" } } => "spec.resources.storage.total", QUANTITY;
        "an empty amount": resources = { "storage": { "perVolume": "" } } => "spec.resources.storage.perVolume", QUANTITY;
        "a blank": resources = { "memory": { "limit": "1 Gi" } } => "spec.resources.memory.limit", QUANTITY;
        "digits of another script": resources = { "cpu": { "request": "١" } } => "spec.resources.cpu.request", QUANTITY;
        "infinite": resources = { "cpu": { "request": "Inf" } } => "spec.resources.cpu.request", QUANTITY;
        "an amount that is no number": resources = { "cpu": { "request": "NaN" } } => "spec.resources.cpu.request", QUANTITY;
        "a huge amount": resources = { "cpu": { "request": "9999999999999999999" } } => "spec.resources.cpu.request", QUANTITY;
        "a long amount": resources = { "cpu": { "request": ("1".repeat(33)) } } => "spec.resources.cpu.request", "may not be more than 32";
        "a list of amounts": resources = { "cpu": { "request": [1] } } => "spec.resources.cpu.request", "must be of type integer,string";
        "nothing at all": resources = { "memory": { "limit": "0" } } => "spec.resources.memory.limit", ZERO;
        "nothing with a unit": resources = { "storage": { "total": "0Gi" } } => "spec.resources.storage.total", ZERO;
        "no Pods": resources = { "pods": { "limit": 0 } } => "spec.resources.pods.limit", "greater than or equal to 1";
        "Pods as a quantity": resources = { "pods": { "limit": "10" } } => "spec.resources.pods.limit", "must be of type integer";
        "any number of Pods": resources = { "pods": {} } => "spec.resources.pods.limit", "Required value";

        "a volume of garbage": redis = (size(json!("big"))) => "spec.redis.storage.size", QUANTITY;
        "a volume of nothing": redis = (size(json!(0))) => "spec.redis.storage.size", ZERO;
        "a volume without a size": redis = (redis(json!({ "storage": {} }))) => "spec.redis.storage.size", "Required value";
        "garbage for a server": server = (server(json!({ "resources": { "limits": { "cpu": "1x" } } })))
            => "spec.server.resources.limits[cpu]", QUANTITY;
        "more asked for than may be used": server = (server(json!({ "resources": { "requests": { "cpu": 2 }, "limits": { "cpu": "500m" } } })))
            => "spec.server.resources", "'requests' must not be more than 'limits'";
        "the same for a Redis": redis = (redis(json!({ "resources": { "requests": { "memory": "1Gi" }, "limits": { "memory": "1M" } } })))
            => "spec.redis.resources", "'requests' must not be more than 'limits'";
    }
}

#[rustfmt::skip]
fn about_programs() -> Vec<Wrong> {
    let env = |name: &str| server(json!({ "env": [{ "name": name, "value": "x" }] }));
    let probes = |path: &str| server(json!({ "probes": { "readiness": { "path": path } } }));
    let config = |key: &str, value: &str| redis(json!({ "config": { key: value } }));
    wrong! { Kind::Tenant.least();
        "a server of nothing": server = {} => "spec.server.image", "Required value";
        "an image like an option": server = (server(json!({ "image": "-v" }))) => "spec.server.image", "should match '^[A-Za-z0-9]";
        "no replica": server = (server(json!({ "replicas": 0 }))) => "spec.server.replicas", "greater than or equal to 1";
        "101 replicas": server = (server(json!({ "replicas": 101 }))) => "spec.server.replicas", "less than or equal to 100";
        "a port of root's": server = (server(json!({ "port": 80 }))) => "spec.server.port", "greater than or equal to 1024";
        "a port that is none": server = (server(json!({ "port": 65536 }))) => "spec.server.port", "less than or equal to 65535";
        "our port": server = (env("PORT")) => "spec.server.env", "'PORT' is set by Orchestrator, from 'port'";
        "our home": server = (env("HOME")) => "spec.server.env[0].name", OURS;
        "our variables": server = (env("ORCHESTRATOR_UID")) => "spec.server.env[0].name", OURS;
        "a variable with a sign": server = (env("A=B")) => "spec.server.env[0].name", "should match '^[A-Za-z_]";
        "a variable twice": server = (server(json!({ "env": [{ "name": "A" }, { "name": "A" }] }))) => "spec.server.env[1]", "Duplicate value";
        "a value and a source": server = (server(json!({ "env": [{ "name": "A", "value": "x", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }] })))
            => "spec.server.env[0]", "takes either 'value' or 'valueFrom', not both";
        "a source of nothing": server = (server(json!({ "env": [{ "name": "A", "valueFrom": {} }] }))) => "spec.server.env[0].valueFrom", KEY;
        "a Secret elsewhere": server = (server(json!({ "env": [{ "name": "A", "valueFrom": { "secretKeyRef": { "name": "kube-system/s", "key": "k" } } }] })))
            => "spec.server.env[0].valueFrom.secretKeyRef.name", "should match '^[a-z0-9]";
        "another address of the Redis": redis = (redis(json!({}))), server = (env("REDIS_URL")) => "spec.server.env", REDIS;
        "another password of the Redis": redis = (redis(json!({}))), server = (env("REDIS_PASSWORD")) => "spec.server.env", REDIS;
        "a probe elsewhere": server = (probes("http://example.com/")) => "spec.server.probes.readiness.path", "should match '^/";
        "a probe of two lines": server = (probes("/\n")) => "spec.server.probes.readiness.path", "should match '^/";
        "liveness alone": server = (server(json!({ "probes": { "liveness": { "path": "/" } } }))) => "spec.server.probes.readiness", "Required value";

        "a Redis without a volume": redis = { "image": "redis:7" } => "spec.redis.storage", "Required value";
        "a Redis of nothing": redis = { "storage": { "size": 1 } } => "spec.redis.image", "Required value";
        "no password": redis = (config("requirepass", "x")) => "spec.redis.config", DIRECTIVE;
        "no protection": redis = (config("protected-mode", "no")) => "spec.redis.config", DIRECTIVE;
        "a program": redis = (config("loadmodule", "x.so")) => "spec.redis.config", DIRECTIVE;
        "another file": redis = (config("include", "x")) => "spec.redis.config", DIRECTIVE;
        "another folder": redis = (config("dir", "x")) => "spec.redis.config", DIRECTIVE;
        "a directive in upper case": redis = (config("REQUIREPASS", "x")) => "spec.redis.config", DIRECTIVE;
        "a directive after a line break": redis = (config("save", "900 1\nrequirepass x")) => "spec.redis.config.save", "should match '^[A-Za-z0-9._ -]+$'";
        "a quoted value": redis = (config("save", "\"\"")) => "spec.redis.config.save", "should match '^[A-Za-z0-9._ -]+$'";
        "an empty value": redis = (config("save", "")) => "spec.redis.config.save", "at least 1 chars";
        "a class in upper case": redis = (redis(json!({ "storage": { "size": 1, "storageClassName": "Fast" } })))
            => "spec.redis.storage.storageClassName", "should match '^[a-z0-9]";
    }
}

/// R54: an omitted field never allows everybody.
#[rustfmt::skip]
pub(crate) fn connections() -> Vec<Wrong> {
    let ingress = |peer: Value, port: Value| json!({ "ingressRules": rules("from", peer, port) });
    let egress = |peer: Value, port: Value| json!({ "egressRules": rules("to", peer, port) });
    let network = |network: &str| egress(json!({ "network": network }), json!({ "port": 443 }));
    let namespace = || json!({ "namespace": "shop" });
    let http = || json!({ "port": 80 });
    let mut all = wrong! { Kind::Tenant.least();
        "policies as text": networkPolicy = { "enabled": "no" } => "spec.networkPolicy.enabled", "must be of type boolean";
        "65 namespaces": networkPolicy = { "allowedNamespaces": (vec!["a"; 65]) } => "spec.networkPolicy.allowedNamespaces", "must have at most 64 items";
        "let in to nothing": networkPolicy = { "allowedNamespaces": ["ingress"] } => "spec.networkPolicy.allowedNamespaces", "'allowedNamespaces' may reach 'server', and there is none";
        "from everybody": networkPolicy = { "ingressRules": [{ "from": [], "ports": [{ "port": 80 }] }] } => "spec.networkPolicy.ingressRules[0].from", "at least 1 items";
        "from whomever": networkPolicy = { "ingressRules": [{ "ports": [{ "port": 80 }] }] } => "spec.networkPolicy.ingressRules[0].from", "Required value";
        "on every port": networkPolicy = { "ingressRules": [{ "from": [{ "namespace": "a" }], "ports": [] }] } => "spec.networkPolicy.ingressRules[0].ports", "at least 1 items";
        "on whichever port": networkPolicy = { "egressRules": [{ "to": [{ "namespace": "a" }] }] } => "spec.networkPolicy.egressRules[0].ports", "Required value";
        "to everywhere": networkPolicy = { "egressRules": [{ "to": [], "ports": [{ "port": 80 }] }] } => "spec.networkPolicy.egressRules[0].to", "at least 1 items";
        "from nobody in particular": networkPolicy = (ingress(json!({}), http())) => "spec.networkPolicy.ingressRules[0].from[0]", PEER;
        "from two at once": networkPolicy = (ingress(json!({ "namespace": "a", "network": "192.0.2.0/24" }), http())) => "spec.networkPolicy.ingressRules[0].from[0]", PEER;
        "from nulls": networkPolicy = (ingress(json!({ "namespace": null }), http())) => "spec.networkPolicy.ingressRules[0].from[0]", PEER;
        "from the internet": networkPolicy = (ingress(json!({ "internet": true }), http())) => "spec.networkPolicy.ingressRules[0].from", "'internet' is for 'egressRules'";
        "to the internet or not": networkPolicy = (egress(json!({ "internet": false }), http())) => "spec.networkPolicy.egressRules[0].to[0].internet", "must be true";
        "to the internet and a namespace": networkPolicy = (egress(json!({ "internet": true, "namespace": "a" }), http())) => "spec.networkPolicy.egressRules[0].to[0]", PEER;
        "to an address": networkPolicy = (network("192.0.2.1")) => "spec.networkPolicy.egressRules[0].to[0].network", NETWORK;
        "to an address in a network": networkPolicy = (network("192.0.2.1/24")) => "spec.networkPolicy.egressRules[0].to[0].network", NETWORK;
        "to a host": networkPolicy = (network("example.com")) => "spec.networkPolicy.egressRules[0].to[0].network", NETWORK;
        "to a prefix that is none": networkPolicy = (network("192.0.2.0/33")) => "spec.networkPolicy.egressRules[0].to[0].network", NETWORK;
        "to no network": networkPolicy = (network("")) => "spec.networkPolicy.egressRules[0].to[0].network", "at least 1 chars";
        "port zero": networkPolicy = (egress(namespace(), json!({ "port": 0 }))) => "spec.networkPolicy.egressRules[0].ports[0].port", "greater than or equal to 1";
        "a port by its name": networkPolicy = (egress(namespace(), json!({ "port": "http" }))) => "spec.networkPolicy.egressRules[0].ports[0].port", "must be of type integer";
        "a protocol without ports": networkPolicy = (egress(namespace(), json!({ "port": 1, "protocol": "ICMP" }))) => "spec.networkPolicy.egressRules[0].ports[0].protocol", "supported values: \"TCP\", \"UDP\"";
    };
    // A Tenant with allowed namespaces needs a server that they can reach.
    all.extend(wrong! { with(Kind::Tenant.least(), json!({ "server": server(json!({})) }));
        "every namespace": networkPolicy = { "allowedNamespaces": ["*"] } => "spec.networkPolicy.allowedNamespaces[0]", LABEL;
        "a namespace of no name": networkPolicy = { "allowedNamespaces": [""] } => "spec.networkPolicy.allowedNamespaces[0]", "at least 1 chars";
    });
    all
}

/// Returns names with which a Tenant must set its namespace.
pub(crate) fn names() -> [String; 3] {
    [
        "shop.web".to_owned(),
        "s".repeat(57),
        format!("{}.shop", "s".repeat(60)),
    ]
}

/// Returns the expected rejection of a Tenant with one of [`names`].
pub(crate) fn unnamed() -> Wrong {
    Wrong {
        what: "a name that is no namespace",
        spec: Kind::Tenant.least(),
        field: "spec.namespace",
        says: NAMELESS,
    }
}

/// Returns changes of [`whole`] that must be rejected.
pub(crate) fn changes() -> Vec<Wrong> {
    let class = json!({ "storage": { "size": "1Gi", "storageClassName": "fast" } });
    wrong! { whole();
        "another namespace": namespace = "web" => "spec.namespace", SAME;
        "no namespace": namespace = (gone()) => "spec.namespace", SAME;
        "a larger volume": redis = (redis(json!({ "storage": { "size": "2Gi" } }))) => "spec.redis.storage", STORAGE;
        "a smaller volume": redis = (redis(json!({ "storage": { "size": "1Mi" } }))) => "spec.redis.storage", STORAGE;
        "another class": redis = (redis(class)) => "spec.redis.storage", STORAGE;
        "nothing about the data": deletion = (gone()) => "spec.deletion", "Required value";
    }
}

/// Returns changes of the minimal Tenant that must be rejected.
pub(crate) fn additions() -> Vec<Wrong> {
    wrong! { Kind::Tenant.least();
        "a namespace": namespace = "web" => "spec.namespace", SAME;
    }
}

/// Returns changes of [`whole`] that must be accepted.
pub(crate) fn accepted_changes() -> Vec<Value> {
    let other = redis(json!({ "image": "registry.example/redis:8", "config": { "hz": "20" } }));
    [
        vec![],
        vec![("redis", gone())],
        vec![("redis", other)],
        vec![("server", gone())],
        vec![("server", server(json!({ "replicas": 2, "port": 8080 })))],
        vec![("suspend", json!(true))],
        vec![("deletion", json!({ "policy": "Delete" }))],
        vec![("networkPolicy", json!({ "enabled": false }))],
        vec![("owners", json!([{ "kind": "User", "name": "anna" }]))],
        vec![("resources", json!({ "pods": { "limit": 3 } }))],
    ]
    .into_iter()
    .map(|changes| changed(whole(), &changes))
    .collect()
}

/// Returns Tenants that must be accepted.
pub(crate) fn accepted() -> Vec<Value> {
    let account = json!([{ "kind": "ServiceAccount", "name": "a.b-1", "namespace": "ci" }]);
    let all = json!([{ "to": [{ "network": "0.0.0.0/0" }, { "network": "::/0" }], "ports": [{ "port": 443 }] }]);
    let free = server(json!({ "env": [{ "name": "REDIS_PASSWORD", "value": "of another" }] }));
    [
        ("namespace", json!("kubernetes")),
        ("namespace", json!("0")),
        ("namespace", json!(null)),
        ("owners", account),
        (
            "owners",
            json!([{ "kind": "User", "name": "anna@example.com" }]),
        ),
        (
            "owners",
            json!([{ "kind": "Group", "name": "system:serviceaccounts:ci" }]),
        ),
        ("owners", json!([])),
        ("resources", json!({})),
        (
            "resources",
            json!({ "cpu": { "request": 2, "limit": "2500m" } }),
        ),
        ("resources", json!({ "memory": { "limit": 1_073_741_824 } })),
        ("resources", json!({ "storage": { "total": "1.5Gi" } })),
        ("resources", json!({ "pods": { "limit": 100_000 } })),
        // Without a Redis, the name is not reserved.
        ("server", free),
        (
            "redis",
            redis(json!({ "storage": { "size": 1_073_741_824 } })),
        ),
        (
            "redis",
            redis(json!({ "config": { "save": "900 1 300 10" } })),
        ),
        ("networkPolicy", json!({ "egressRules": all })),
        ("networkPolicy", json!({ "enabled": false })),
        ("deletion", json!({ "policy": "Delete", "deadline": "24h" })),
        ("deletion", json!({ "policy": "Delete", "deadline": "10s" })),
        ("description", json!("two\nlines")),
        ("suspend", json!(true)),
    ]
    .into_iter()
    .map(|change| changed(Kind::Tenant.least(), &[change]))
    .collect()
}
