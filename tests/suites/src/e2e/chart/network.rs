//! Ports and the NetworkPolicy of the chart: only the kubelet and chosen scrapers reach the operators.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Rendered, list, of_kind, text};

/// Checks that probes and metrics have separate ports, and that the policy opens only the metrics, and
/// only to chosen peers.
pub(super) fn check(rendered: &[Rendered]) -> Result<String> {
    let (mut closed, mut opened) = (0, 0);
    for Rendered { values, objects } in rendered {
        let mut ports = None;
        for deployment in of_kind(objects, "Deployment") {
            let found = ports_of(deployment).with_context(|| format!("with '{values}'"))?;
            ports = Some(found);
        }
        let (probes, metrics) = ports.with_context(|| format!("with '{values}': no operator"))?;
        for service in of_kind(objects, "Service") {
            for port in list(service, "/spec/ports") {
                ensure!(
                    port["targetPort"] == "metrics" && port["port"] == metrics,
                    "with '{values}': a Service leads to {port}"
                );
            }
        }
        let policies: Vec<&Value> = of_kind(objects, "NetworkPolicy").collect();
        let wanted = usize::from(!values.contains("networkPolicy.enabled=false"));
        ensure!(
            policies.len() == wanted,
            "with '{values}': {} NetworkPolicies instead of {wanted}",
            policies.len()
        );
        for policy in policies {
            let allowed =
                allowed(policy, probes, metrics).with_context(|| format!("with '{values}'"))?;
            let wanted = values.contains("metrics.from");
            ensure!(
                allowed == wanted,
                "with '{values}': metrics are allowed: {allowed}"
            );
            closed += usize::from(!allowed);
            opened += usize::from(allowed);
        }
    }
    ensure!(
        closed > 0 && opened > 0,
        "{closed} closed and {opened} opened renderings: this case shows nothing"
    );
    Ok(format!(
        "probes have a port of their own; {closed} renderings are closed, {opened} open to scrapers"
    ))
}

/// The ports of probes and metrics.
fn ports_of(deployment: &Value) -> Result<(u64, u64)> {
    let containers = list(deployment, "/spec/template/spec/containers");
    let [container] = containers else {
        anyhow::bail!("{} containers", containers.len());
    };
    let number = |name: &str| {
        let mut ports = list(container, "/ports").iter();
        let port = ports.find(|port| port["name"] == name);
        port.and_then(|port| port["containerPort"].as_u64())
            .with_context(|| format!("no port '{name}'"))
    };
    let (probes, metrics) = (number("probes")?, number("metrics")?);
    ensure!(probes != metrics, "probes and metrics share a port");
    for (probe, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
        let request = &container[probe]["httpGet"];
        ensure!(
            request["port"] == "probes" && request["path"] == path,
            "{probe} asks {request}"
        );
    }
    Ok((probes, metrics))
}

/// Whether a policy allows anyone to connect, beyond the Pod's own node.
fn allowed(policy: &Value, probes: u64, metrics: u64) -> Result<bool> {
    // An egress policy that matches the Pods that check Tenants would make their checks fail.
    ensure!(
        policy["spec"]["policyTypes"] == serde_json::json!(["Ingress"]),
        "the policy is of types {}",
        policy["spec"]["policyTypes"]
    );
    let name = text(
        policy,
        "/spec/podSelector/matchLabels/app.kubernetes.io~1name",
    );
    ensure!(!name.is_empty(), "the policy selects no operator by name");
    let rules = list(policy, "/spec/ingress");
    for rule in rules {
        // Without peers or ports, a rule means everybody or every port.
        ensure!(!list(rule, "/from").is_empty(), "everybody is allowed");
        let ports = list(rule, "/ports");
        ensure!(!ports.is_empty(), "every port is open");
        for port in ports {
            ensure!(
                port["port"] == metrics && port["port"] != probes,
                "port {} is open",
                port["port"]
            );
        }
    }
    Ok(!rules.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(ports: Value, live: &str) -> Value {
        json!({ "kind": "Deployment", "spec": { "template": { "spec": { "containers": [{
            "ports": ports,
            "livenessProbe": { "httpGet": { "path": "/livez", "port": live } },
            "readinessProbe": { "httpGet": { "path": "/readyz", "port": "probes" } },
        }] } } } })
    }

    #[test]
    fn a_shared_or_wrong_port_is_found() {
        let port = |name: &str, number: u64| json!({ "name": name, "containerPort": number });
        let both = json!([port("probes", 2), port("metrics", 1)]);
        let found = |ports: &Value, live: &str| {
            ports_of(&deployment(ports.clone(), live)).map_err(|error| error.to_string())
        };
        assert_eq!(found(&both, "probes"), Ok((2, 1)));
        for (ports, live, why) in [
            (json!([port("metrics", 1)]), "probes", "no port 'probes'"),
            (
                json!([port("probes", 1), port("metrics", 1)]),
                "probes",
                "share a port",
            ),
            (both, "metrics", "livenessProbe asks"),
        ] {
            let error = found(&ports, live).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_policy_that_opens_too_much_is_found() {
        let policy = |types: Value, ingress: Value| {
            json!({ "spec": {
                "podSelector": { "matchLabels": { "app.kubernetes.io/name": "orchestrator" } },
                "policyTypes": types, "ingress": ingress,
            } })
        };
        let peer = json!([{ "podSelector": {} }]);
        let ingress = json!(["Ingress"]);
        let rule = |from: &Value, ports: Value| json!([{ "from": from, "ports": ports }]);
        let (metrics, probes) = (json!([{ "port": 1 }]), json!([{ "port": 2 }]));
        for (types, rules, wanted) in [
            (&ingress, json!([]), Ok(false)),
            (&ingress, rule(&peer, metrics.clone()), Ok(true)),
            (&ingress, rule(&json!([]), metrics), Err("everybody")),
            (&ingress, rule(&peer, json!([])), Err("every port")),
            (&ingress, rule(&peer, probes), Err("port 2 is open")),
            (
                &json!(["Ingress", "Egress"]),
                json!([]),
                Err("the policy is of types"),
            ),
        ] {
            let found = allowed(&policy(types.clone(), rules), 2, 1);
            match (found, wanted) {
                (Ok(found), Ok(wanted)) => assert_eq!(found, wanted),
                (Err(error), Err(why)) => assert!(error.to_string().contains(why), "{error}"),
                (found, wanted) => panic!("{found:?} instead of {wanted:?}"),
            }
        }
    }
}
