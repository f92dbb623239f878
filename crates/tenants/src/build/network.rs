//! Who may reach the namespace, and what it may reach: everything is refused that no policy allows.

use api::{
    decide::Manifest,
    names,
    tenants::{EgressRule, IngressRule, NetworkPolicy, Peer, Port, Protocol, TenantSpec},
};
use mutant::Mutant;
use serde_json::{Value, json};

use super::{COMPONENT, For, SERVER, types};

/// The label that every namespace has: its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// The policy that closes; the others open something of what it closed.
pub(crate) const DENY: &str = "default-deny";

/// The policies, one for each thing that is allowed, so that a removed rule removes its policy.
///
/// Each names both of its sides in full, also empty ones: what is left out could be added by someone
/// else without being seen.
pub(super) fn all(of: For<'_>) -> Vec<Manifest> {
    let NetworkPolicy {
        enabled,
        allowed_namespaces,
        ingress_rules,
        egress_rules,
    } = &of.spec.network_policy;
    if !enabled {
        return Vec::new();
    }
    let everything = json!({});
    let mut all = vec![
        policy(of, DENY, &everything, Some(json!([])), Some(json!([]))),
        policy(of, "allow-dns", &everything, None, Some(dns(of))),
        policy(
            of,
            "allow-inside",
            &everything,
            Some(json!([{ "from": [{ "podSelector": {} }] }])),
            Some(json!([{ "to": [{ "podSelector": {} }] }])),
        ),
    ];
    // None means nobody: a rule without anyone in it would mean everybody.
    if let Some(server) = of
        .spec
        .server
        .as_ref()
        .filter(|_| !allowed_namespaces.is_empty() || mutant::on(Mutant::NobodyIsEverybody))
    {
        let from: Vec<Value> = allowed_namespaces
            .iter()
            .map(|name| namespace_peer(name))
            .collect();
        let ports = json!([{ "protocol": "TCP", "port": server.port }]);
        let pods = json!({ "matchLabels": { COMPONENT: SERVER } });
        let rule = json!([{ "from": from, "ports": ports }]);
        all.push(policy(of, "allow-namespaces", &pods, Some(rule), None));
    }
    for (number, IngressRule { from, ports }) in ingress_rules.iter().enumerate() {
        let rule = json!([{ "from": peers(from), "ports": numbers(ports) }]);
        let name = format!("ingress-{number}");
        all.push(policy(of, &name, &everything, Some(rule), None));
    }
    for (number, EgressRule { to, ports }) in egress_rules.iter().enumerate() {
        let rule = json!([{ "to": peers(to), "ports": numbers(ports) }]);
        let name = format!("egress-{number}");
        all.push(policy(of, &name, &everything, None, Some(rule)));
    }
    all
}

fn policy(
    of: For<'_>,
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
    of.manifest(types::NETWORK_POLICY, name, "", body)
}

fn dns(of: For<'_>) -> Value {
    json!([{
        "to": [namespace_peer(&of.settings.dns_namespace)],
        "ports": [
            { "protocol": "UDP", "port": 53 },
            { "protocol": "TCP", "port": 53 },
        ],
    }])
}

fn namespace_peer(name: &str) -> Value {
    json!({ "namespaceSelector": { "matchLabels": { NAMESPACE_NAME: name } } })
}

fn peers(peers: &[Peer]) -> Vec<Value> {
    let one = |Peer { namespace, network }: &Peer| match (namespace, network) {
        (Some(namespace), _) => namespace_peer(namespace),
        (None, network) => json!({ "ipBlock": { "cidr": network } }),
    };
    peers.iter().map(one).collect()
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

/// What the rules say of one who wants to reach a port of a Tenant from another namespace: `true` if he
/// must reach it, `false` if he must not, nothing if a rule names a network that he may be in.
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

/// Whether the rules may let someone of a Tenant out, to this namespace.
#[must_use]
pub fn may_leave(spec: &TenantSpec, to: &str) -> bool {
    let policy = &spec.network_policy;
    let peers = policy.egress_rules.iter().flat_map(|rule| &rule.to);
    let is_it = |peer: &Peer| peer.network.is_some() || peer.namespace.as_deref() == Some(to);
    !policy.enabled || peers.into_iter().any(is_it)
}

/// A short word for what the policies are: another one, another proof. `live` are those that are there,
/// by name, UID and generation: what was changed and repaired was changed.
#[must_use]
pub fn fingerprint(of: For<'_>, live: &[(&str, &str, i64)]) -> String {
    let all: Vec<Value> = all(of).into_iter().map(|policy| policy.body).collect();
    // What is new must be tried, too.
    let server = of.spec.server.as_ref().map(|server| server.port);
    names::hash(&json!([all, live, of.spec.redis.is_some(), server]).to_string())
}
