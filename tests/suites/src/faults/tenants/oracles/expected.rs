//! The children that a Tenant's spec asks for, and how each must be: read from the spec's JSON, not by
//! the product's builders.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::amount::{billionths, is_amount};

/// Whether an object is as it must be.
type Check = Box<dyn Fn(&Value) -> bool>;

/// Something that a Tenant must have before it is ready.
pub(super) struct Wanted {
    pub(super) resource: &'static str,
    pub(super) name: String,
    pub(super) check: Check,
}

pub(super) fn wanted(
    resource: &'static str,
    name: &str,
    check: impl Fn(&Value) -> bool + 'static,
) -> Wanted {
    Wanted {
        resource,
        name: name.to_owned(),
        check: Box::new(check),
    }
}

/// What the spec asks for, beside the namespace.
pub(super) fn expected(spec: &Value) -> Vec<Wanted> {
    let mut all = quotas(spec);
    all.extend(limits(spec));
    if let Some(owners) = spec["owners"].as_array().filter(|all| !all.is_empty()) {
        let who = |one: &Value| (one["kind"].clone(), one["name"].clone());
        let people: Vec<_> = owners.iter().map(who).collect();
        all.push(wanted("rolebindings", "tenant-owner", move |one| {
            list(&one["subjects"]).map(who).collect::<Vec<_>>() == people
        }));
    }
    all.extend(policies(spec));
    all.extend(redis(spec));
    all.extend(server(spec));
    all
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    let all = value.as_array();
    all.into_iter().flat_map(|all| all.iter())
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_none_or(Vec::is_empty)
}

/// Whether these are the same amounts under the same names.
fn are_amounts(found: &Value, asked: &Value) -> bool {
    let names = |value: &Value| -> BTreeSet<String> {
        let fields = value.as_object();
        fields
            .into_iter()
            .flat_map(|all| all.keys().cloned())
            .collect()
    };
    let wanted = names(asked);
    names(found) == wanted
        && wanted
            .iter()
            .all(|name| is_amount(&found[name], &asked[name]))
}

fn quotas(spec: &Value) -> Vec<Wanted> {
    let mut hard: Vec<(String, Value)> = Vec::new();
    for name in ["cpu", "memory"] {
        for (field, word) in [("request", "requests"), ("limit", "limits")] {
            let amount = &spec["resources"][name][field];
            if !amount.is_null() {
                hard.push((format!("{word}.{name}"), amount.clone()));
            }
        }
    }
    let asked = &spec["resources"]["pods"]["limit"];
    let pods = if asked.is_null() {
        json!(250)
    } else {
        asked.clone()
    };
    hard.push(("pods".to_owned(), pods));
    let is_bounded = |one: &Value| {
        let names = ["pods", "limits.cpu", "limits.memory"];
        let hard = &one["spec"]["hard"];
        names.iter().all(|name| billionths(&hard[*name]).is_some())
    };
    let mut all = vec![wanted("resourcequotas", "tenant-probes", is_bounded)];
    all.push(wanted("resourcequotas", "tenant", move |one| {
        let (asked, counted) = (&one["spec"]["hard"], &one["status"]["hard"]);
        hard.iter().all(|(name, amount)| {
            is_amount(&asked[name], amount) && is_amount(&counted[name], amount)
        })
    }));
    let storage = spec["resources"]["storage"]["total"].clone();
    all.push(wanted("resourcequotas", "tenant-objects", move |one| {
        let hard = &one["spec"]["hard"];
        let none = json!("0");
        let counted = [
            "pods",
            "configmaps",
            "secrets",
            "services",
            "persistentvolumeclaims",
            "deployments.apps",
            "statefulsets.apps",
            "jobs.batch",
            "cronjobs.batch",
        ];
        let is_counted = |name: &&str| billionths(&hard[format!("count/{name}")]).is_some();
        counted.iter().all(is_counted)
            && is_amount(&hard["services.nodeports"], &none)
            && is_amount(&hard["services.loadbalancers"], &none)
            && (storage.is_null() || is_amount(&hard["requests.storage"], &storage))
    }));
    all
}

/// A container that says nothing gets something, and no more than the Tenant has; a volume is no larger
/// than it may be.
fn limits(spec: &Value) -> Option<Wanted> {
    let mut most: Vec<(&str, &str, Value)> = Vec::new();
    for name in ["cpu", "memory"] {
        let bound = &spec["resources"][name];
        let (request, limit) = (&bound["request"], &bound["limit"]);
        if !limit.is_null() {
            most.push(("default", name, limit.clone()));
        }
        let asked = if request.is_null() { limit } else { request };
        if !asked.is_null() {
            most.push(("defaultRequest", name, asked.clone()));
        }
    }
    let largest = spec["resources"]["storage"]["perVolume"].clone();
    if most.is_empty() && largest.is_null() {
        return None;
    }
    let is_within = |found: &Value, most: &Value| match (billionths(found), billionths(most)) {
        (Some(found), Some(most)) => 0 < found && found <= most,
        _ => false,
    };
    Some(wanted("limitranges", "tenant", move |one| {
        let of = |kind: &str| {
            let mut items = list(&one["spec"]["limits"]);
            items.find(|item| item["type"] == kind).cloned()
        };
        let container = of("Container").unwrap_or_default();
        let volume = of("PersistentVolumeClaim").unwrap_or_default();
        most.iter()
            .all(|(field, name, bound)| is_within(&container[*field][*name], bound))
            && (largest.is_null() || is_amount(&volume["max"]["storage"], &largest))
    }))
}

/// A side of a rule as it must be in a policy.
fn peers(rule: &Value, side: &str) -> Vec<Value> {
    let one = |peer: &Value| match peer["namespace"].as_str() {
        Some(name) => of_namespace(name),
        None => json!({ "ipBlock": { "cidr": peer["network"] } }),
    };
    list(&rule[side]).map(one).collect()
}

fn of_namespace(name: &str) -> Value {
    json!({ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": name } } })
}

/// Protocol and number of each port.
fn ports(rule: &Value) -> Vec<(String, Value)> {
    let protocol = |one: &Value| one["protocol"].as_str().unwrap_or("TCP").to_owned();
    list(&rule["ports"])
        .map(|one| (protocol(one), one["port"].clone()))
        .collect()
}

fn policies(spec: &Value) -> Vec<Wanted> {
    let policy = &spec["networkPolicy"];
    if policy["enabled"] == false {
        return Vec::new();
    }
    let is_for_all = |spec: &Value| {
        let selector = spec["podSelector"].as_object();
        selector.is_none_or(serde_json::Map::is_empty)
    };
    let mut all = vec![
        wanted("networkpolicies", "default-deny", move |one| {
            let spec = &one["spec"];
            let both = spec["policyTypes"]
                .as_array()
                .is_some_and(|all| all.len() == 2);
            both && is_for_all(spec) && is_empty(&spec["ingress"]) && is_empty(&spec["egress"])
        }),
        wanted("networkpolicies", "allow-dns", move |one| {
            let spec = &one["spec"];
            let mut asked = list(&spec["egress"]).flat_map(ports);
            is_empty(&spec["ingress"]) && is_for_all(spec) && asked.all(|(_, port)| port == 53)
        }),
        wanted("networkpolicies", "allow-inside", move |one| {
            let spec = &one["spec"];
            let inside = json!([{ "podSelector": {} }]);
            let is_inside = |rules: &Value, side: &str| list(rules).all(|one| one[side] == inside);
            is_for_all(spec)
                && is_inside(&spec["ingress"], "from")
                && is_inside(&spec["egress"], "to")
        }),
    ];
    for (field, side, who) in [
        ("ingressRules", "ingress", "from"),
        ("egressRules", "egress", "to"),
    ] {
        for (number, rule) in list(&policy[field]).enumerate() {
            let (asked, named) = (ports(rule), peers(rule, who));
            let name = format!("{side}-{number}");
            all.push(wanted("networkpolicies", &name, move |one| {
                let found = &one["spec"][side];
                let first = &found[0];
                found.as_array().is_some_and(|rules| rules.len() == 1)
                    && ports(first) == asked
                    && list(&first[who]).eq(named.iter())
            }));
        }
    }
    let allowed: Vec<Value> = list(&policy["allowedNamespaces"])
        .filter_map(Value::as_str)
        .map(of_namespace)
        .collect();
    if !allowed.is_empty() && !spec["server"].is_null() {
        all.push(wanted("networkpolicies", "allow-namespaces", move |one| {
            list(&one["spec"]["ingress"][0]["from"]).eq(allowed.iter())
        }));
    }
    all
}

/// Whether a Service has an endpoint that is ready.
fn leads(one: &Value) -> bool {
    list(&one["endpoints"]).any(|one| one["conditions"]["ready"] == true)
}

/// A Service with this port, to the Pods of this component.
fn service(name: &'static str, port: Value) -> Wanted {
    wanted("services", name, move |one| {
        let spec = &one["spec"];
        let ports = spec["ports"].as_array().map_or(&[][..], Vec::as_slice);
        let is_port = |one: &Value| one["port"] == port && one["targetPort"] == port;
        spec["selector"]["orchestrator.io/component"] == name
            && ports.len() == 1
            && ports.iter().all(is_port)
            // Nothing of it is reachable from outside of the cluster.
            && (spec["type"].is_null() || spec["type"] == "ClusterIP")
    })
}

/// How many there must be.
fn replicas(spec: &Value, asked: u64) -> Value {
    json!(if spec["suspend"] == true { 0 } else { asked })
}

/// The container of this name in a workload.
fn container<'a>(workload: &'a Value, name: &str) -> Option<&'a Value> {
    list(&workload["spec"]["template"]["spec"]["containers"]).find(|one| one["name"] == name)
}

/// Image and, where the spec says them, resources.
fn is_as_asked(container: &Value, asked: &Value) -> bool {
    let resources =
        |field: &str| are_amounts(&container["resources"][field], &asked["resources"][field]);
    container["image"] == asked["image"]
        && (asked["resources"].is_null() || (resources("requests") && resources("limits")))
}

fn redis(spec: &Value) -> Vec<Wanted> {
    let asked = spec["redis"].clone();
    if asked.is_null() {
        return Vec::new();
    }
    let config = asked["config"].clone();
    let replicas = replicas(spec, 1);
    vec![
        wanted("secrets", "tenant-redis", |one| {
            let has = |key: &str| {
                one["data"][key]
                    .as_str()
                    .is_some_and(|text| !text.is_empty())
            };
            has("password") && has("auth.conf")
        }),
        wanted("configmaps", "redis", move |one| {
            let text = one["data"]["redis.conf"].as_str().unwrap_or_default();
            let mut asked = config.as_object().into_iter().flat_map(|all| all.iter());
            asked.all(|(name, value)| {
                let line = format!("{name} {}", value.as_str().unwrap_or_default());
                text.lines().any(|one| one == line)
            })
        }),
        service("redis", json!(6379)),
        wanted("statefulsets", "redis", move |one| {
            let status = &one["status"];
            let claim = &one["spec"]["volumeClaimTemplates"][0]["spec"];
            let class = &asked["storage"]["storageClassName"];
            let is_stored = is_amount(
                &claim["resources"]["requests"]["storage"],
                &asked["storage"]["size"],
            ) && (class.is_null() || claim["storageClassName"] == *class);
            let fits = container(one, "redis").is_some_and(|container| {
                let secret = |one: &Value| one["valueFrom"]["secretKeyRef"]["name"].clone();
                is_as_asked(container, &asked)
                    && !container["readinessProbe"].is_null()
                    && list(&container["env"]).any(|one| secret(one) == "tenant-redis")
            });
            fits && is_stored
                && one["spec"]["replicas"] == replicas
                && is_rolled_out(one)
                && status["readyReplicas"] == 1
                && status["updateRevision"] == status["currentRevision"]
        }),
        wanted("endpointslices", "redis", leads),
    ]
}

fn server(spec: &Value) -> Vec<Wanted> {
    let asked = spec["server"].clone();
    if asked.is_null() {
        return Vec::new();
    }
    let port = json!(asked["port"].as_u64().unwrap_or(3030));
    let count = asked["replicas"].as_u64().unwrap_or(1);
    let (replicas, ready) = (replicas(spec, count), json!(count));
    let has_redis = !spec["redis"].is_null();
    vec![
        service("server", port.clone()),
        wanted("deployments", "server", move |one| {
            let status = &one["status"];
            let counts = ["replicas", "readyReplicas", "updatedReplicas"];
            let fits = container(one, "server").is_some_and(|container| {
                is_as_asked(container, &asked)
                    && has_variables(&container["env"], &asked["env"], &port, has_redis)
                    && is_probed(container, &asked["probes"], &port)
            });
            fits && one["spec"]["replicas"] == replicas
                && is_rolled_out(one)
                && counts.iter().all(|name| status[*name] == ready)
        }),
        wanted("endpointslices", "server", leads),
    ]
}

/// The variables of the spec, each as it is there; ours; and no others.
fn has_variables(found: &Value, asked: &Value, port: &Value, has_redis: bool) -> bool {
    let by_name = |all: &Value| -> BTreeMap<String, Value> {
        let named = |one: &Value| Some((one["name"].as_str()?.to_owned(), one.clone()));
        list(all).filter_map(named).collect()
    };
    let (found, asked) = (by_name(found), by_name(asked));
    let mut names: BTreeSet<&str> = asked.keys().map(String::as_str).collect();
    names.extend(["PORT", "HOME"]);
    if has_redis {
        names.extend(["REDIS_PASSWORD", "REDIS_URL"]);
    }
    let is_same = |(name, asked): (&String, &Value)| {
        let found = found.get(name).unwrap_or(&Value::Null);
        // A variable without a value is stored without one.
        let text = |one: &Value| one["value"].as_str().unwrap_or_default().to_owned();
        text(found) == text(asked) && holds(&found["valueFrom"], &asked["valueFrom"])
    };
    let own = found.get("PORT").unwrap_or(&Value::Null);
    found.keys().map(String::as_str).collect::<BTreeSet<_>>() == names
        && own["value"].as_str() == Some(port.to_string().as_str())
        && asked.iter().all(is_same)
}

/// Whether everything of `asked` is in `found`: the API server adds its defaults.
fn holds(found: &Value, asked: &Value) -> bool {
    match asked.as_object() {
        Some(fields) => fields
            .iter()
            .all(|(name, value)| *value == false || holds(&found[name], value)),
        None => found == asked,
    }
}

/// The questions of the spec, or whether the port accepts connections.
fn is_probed(container: &Value, asked: &Value, port: &Value) -> bool {
    let (ready, live) = (&container["readinessProbe"], &container["livenessProbe"]);
    let is_same = |found: &Value, asked: &Value| {
        let number = |field: &str, default: u64| asked[field].as_u64().unwrap_or(default);
        found["httpGet"]["path"] == asked["path"]
            && found["httpGet"]["port"] == *port
            && found["periodSeconds"] == number("periodSeconds", 10)
            && found["failureThreshold"] == number("failureThreshold", 3)
    };
    let is_ready = match asked["readiness"].is_null() {
        true => ready["tcpSocket"]["port"] == *port,
        false => is_same(ready, &asked["readiness"]),
    };
    let is_live = match asked["liveness"].is_null() {
        true => live.is_null(),
        false => is_same(live, &asked["liveness"]),
    };
    is_ready && is_live
}

fn is_rolled_out(one: &Value) -> bool {
    let observed = one["status"]["observedGeneration"].as_i64().unwrap_or(-1);
    observed >= one["metadata"]["generation"].as_i64().unwrap_or(0)
}
