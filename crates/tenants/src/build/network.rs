//! Each NetworkPolicy of a Tenant's namespace. Traffic is blocked unless a policy allows it.

use api::{
    decide::Manifest,
    names,
    tenants::{EgressRule, IngressRule, NetworkPolicy, Peer, Port, Protocol, TenantSpec},
};
use serde_json::{Value, json};

use super::{BuildContext, COMPONENT, SERVER, types};

/// The label that every namespace has, with its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// The policy that blocks all traffic. The other policies allow parts of it.
pub(crate) const DENY: &str = "default-deny";

/// Returns the policies, one for each allowed connection, so that a removed rule removes its policy.
///
/// Each policy lists ingress and egress in full, even if empty. Otherwise someone else could add a missing
/// field unnoticed.
pub(super) fn all(context: BuildContext<'_>) -> Vec<Manifest> {
    let NetworkPolicy {
        enabled,
        allowed_namespaces,
        ingress_rules,
        egress_rules,
    } = &context.spec.network_policy;
    if !enabled {
        return Vec::new();
    }
    let everything = json!({});
    let mut all = vec![
        policy(context, DENY, &everything, Some(json!([])), Some(json!([]))),
        policy(context, "allow-dns", &everything, None, Some(dns(context))),
        policy(
            context,
            "allow-inside",
            &everything,
            Some(json!([{ "from": [{ "podSelector": {} }] }])),
            Some(json!([{ "to": [{ "podSelector": {} }] }])),
        ),
    ];
    // An empty `allowedNamespaces` allows nobody. An ingress rule with an empty `from` would allow
    // everybody, so we create no policy.
    if let Some(server) = context
        .spec
        .server
        .as_ref()
        .filter(|_| !allowed_namespaces.is_empty())
    {
        let from: Vec<Value> = allowed_namespaces
            .iter()
            .map(|name| namespace_peer(name))
            .collect();
        let ports = json!([{ "protocol": "TCP", "port": server.port }]);
        let pods = json!({ "matchLabels": { COMPONENT: SERVER } });
        let rule = json!([{ "from": from, "ports": ports }]);
        all.push(policy(context, "allow-namespaces", &pods, Some(rule), None));
    }
    for (number, IngressRule { from, ports }) in ingress_rules.iter().enumerate() {
        let rule = json!([{ "from": peers(context, from), "ports": numbers(ports) }]);
        let name = format!("ingress-{number}");
        all.push(policy(context, &name, &everything, Some(rule), None));
    }
    for (number, EgressRule { to, ports }) in egress_rules.iter().enumerate() {
        let rule = json!([{ "to": peers(context, to), "ports": numbers(ports) }]);
        let name = format!("egress-{number}");
        all.push(policy(context, &name, &everything, None, Some(rule)));
    }
    all
}

fn policy(
    context: BuildContext<'_>,
    name: &str,
    pods: &Value,
    ingress: Option<Value>,
    egress: Option<Value>,
) -> Manifest {
    let mut types_of = Vec::new();
    if ingress.is_some() {
        types_of.push("Ingress");
    }
    if egress.is_some() {
        types_of.push("Egress");
    }
    let body = json!({
        "spec": {
            "podSelector": pods,
            "policyTypes": types_of,
            "ingress": ingress.unwrap_or_else(|| json!([])),
            "egress": egress.unwrap_or_else(|| json!([])),
        },
    });
    context.manifest(types::NETWORK_POLICY, name, "", body)
}

fn dns(context: BuildContext<'_>) -> Value {
    json!([{
        "to": [namespace_peer(&context.settings.dns_namespace)],
        "ports": [
            { "protocol": "UDP", "port": 53 },
            { "protocol": "TCP", "port": 53 },
        ],
    }])
}

fn namespace_peer(name: &str) -> Value {
    json!({ "namespaceSelector": { "matchLabels": { NAMESPACE_NAME: name } } })
}

fn peers(context: BuildContext<'_>, peers: &[Peer]) -> Vec<Value> {
    let one = |peer: &Peer| {
        let Peer {
            namespace,
            network,
            internet,
        } = peer;
        match (namespace, network) {
            (Some(namespace), _) => vec![namespace_peer(namespace)],
            (None, Some(network)) => vec![json!({ "ipBlock": { "cidr": network } })],
            (None, None) if *internet == Some(true) => self::internet(context),
            (None, None) => Vec::new(),
        }
    };
    peers.iter().flat_map(one).collect()
}

/// IPv4 networks that are not the internet. Pods, Services and nodes usually have addresses there. So do
/// the metadata services of clouds, which expose the credentials of the node.
const NOT_PUBLIC_4: &[&str] = &[
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
];

/// IPv6 networks that are not the internet. The networks in `64:ff9b` lead to IPv4 networks through NAT64.
const NOT_PUBLIC_6: &[&str] = &[
    "::/96",
    "64:ff9b::a00:0/104",
    "64:ff9b::6440:0/106",
    "64:ff9b::a9fe:0/112",
    "64:ff9b::ac10:0/108",
    "64:ff9b::c0a8:0/112",
    "64:ff9b:1::/48",
    "fc00::/7",
    "fe80::/10",
    "ff00::/8",
];

/// Returns the public addresses: all addresses, except private networks and networks of the cluster.
fn internet(context: BuildContext<'_>) -> Vec<Value> {
    let own = context.settings.cluster_networks.iter().map(String::as_str);
    let (own_6, own_4): (Vec<&str>, Vec<&str>) = own.partition(|network| network.contains(':'));
    let block = |all: &str, private: &[&str], own: Vec<&str>| {
        let except: Vec<&str> = private.iter().copied().chain(own).collect();
        json!({ "ipBlock": { "cidr": all, "except": except } })
    };
    vec![
        block("0.0.0.0/0", NOT_PUBLIC_4, own_4),
        block("::/0", NOT_PUBLIC_6, own_6),
    ]
}

fn numbers(ports: &[Port]) -> Vec<Value> {
    let one = |Port { protocol, port }: &Port| {
        let protocol = match protocol {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
        };
        json!({ "protocol": protocol, "port": port })
    };
    ports.iter().map(one).collect()
}

/// Returns whether a Pod in another namespace can reach a port of a Tenant according to the rules.
///
/// `Some(true)` means that the connection must succeed, `Some(false)` that it must be blocked. `None` means
/// that policies are disabled, or that a rule allows a network that may contain the Pod.
#[must_use]
pub fn may_enter(spec: &TenantSpec, from: &str, component: &str, port: u16) -> Option<bool> {
    let policy = &spec.network_policy;
    if !policy.enabled {
        return None;
    }
    let has_port = |rule: &&IngressRule| {
        let is_it = |one: &Port| one.port == port && one.protocol == Protocol::Tcp;
        rule.ports.iter().any(is_it)
    };
    let rules: Vec<&IngressRule> = policy.ingress_rules.iter().filter(has_port).collect();
    let peers = || rules.iter().flat_map(|rule| &rule.from);
    let is_named = component == SERVER && policy.allowed_namespaces.iter().any(|one| one == from);
    if is_named || peers().any(|peer| peer.namespace.as_deref() == Some(from)) {
        return Some(true);
    }
    if peers().any(|peer| peer.network.is_some()) {
        return None;
    }
    Some(false)
}

/// Returns whether the rules may allow traffic from a Tenant to this namespace. A peer `internet` does not
/// include it.
#[must_use]
pub fn may_leave(spec: &TenantSpec, to: &str) -> bool {
    let policy = &spec.network_policy;
    let peers = policy.egress_rules.iter().flat_map(|rule| &rule.to);
    let is_it = |peer: &Peer| peer.network.is_some() || peer.namespace.as_deref() == Some(to);
    !policy.enabled || peers.into_iter().any(is_it)
}

/// Returns a hash of the policies. If it changes, the isolation is checked again.
///
/// `live` are the existing policies, by name, UID and generation. So a policy that was changed and repaired
/// counts as changed.
#[must_use]
pub fn fingerprint(context: BuildContext<'_>, live: &[(&str, &str, i64)]) -> String {
    let all: Vec<Value> = all(context).into_iter().map(|policy| policy.body).collect();
    // A new Redis or server must be checked, too.
    let server = context.spec.server.as_ref().map(|server| server.port);
    names::hash(&json!([all, live, context.spec.redis.is_some(), server]).to_string())
}
