//! The settings that administrators add to the Pods of each operator, and the ServiceMonitor.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{Rendered, component, of_kind};

/// Each setting of an operator, as the Pods must have it.
macro_rules! settings {
    () => {
        r#"{"enabled": true,
            "nodeSelector": {"pool": "system"},
            "tolerations": [{"key": "pool", "operator": "Exists", "effect": "NoSchedule"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]}}},
            "priorityClassName": "system-cluster-critical",
            "podLabels": {"team": "platform"},
            "podAnnotations": {"example.com/inject": "false"},
            "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.com:3128"}],
            "serviceAccountAnnotations": {"example.com/role": "reader"}}"#
    };
}

/// Values that give each setting to both operators.
pub(super) const VALUES: &str = concat!(
    "--set-json 'operators.tasks=",
    settings!(),
    "' --set-json 'operators.tenants=",
    settings!(),
    "'"
);

/// Settings that become a field of the Pod's spec under the same name.
const OF_SPEC: &[&str] = &[
    "nodeSelector",
    "tolerations",
    "affinity",
    "priorityClassName",
];

/// Checks that each Deployment has all settings, in addition to those of the chart, and only if they are
/// given. Checks the same for the ServiceMonitor.
pub(super) fn check(rendered: &[Rendered]) -> Result<String> {
    let given: Value = serde_json::from_str(settings!())?;
    let (mut with, mut monitors) = (0, 0);
    for Rendered { values, objects } in rendered {
        let wanted = match *values == VALUES {
            true => given.clone(),
            false => json!({}),
        };
        for deployment in of_kind(objects, "Deployment") {
            let mut accounts = of_kind(objects, "ServiceAccount");
            let account = accounts.find(|account| component(account) == component(deployment));
            let account = account.context("an operator without a ServiceAccount")?;
            differences(deployment, account, &wanted).with_context(|| {
                format!("with '{values}': operator '{}'", component(deployment))
            })?;
            with += usize::from(*values == VALUES);
        }
        let found = of_kind(objects, "ServiceMonitor").count();
        let is_on = values.contains("serviceMonitor.enabled=true");
        ensure!(
            found == usize::from(is_on),
            "with '{values}': {found} ServiceMonitors"
        );
        for monitor in of_kind(objects, "ServiceMonitor") {
            let endpoints = json!([{ "port": "metrics", "interval": "15s" }]);
            ensure!(
                monitor["metadata"]["labels"]["release"] == "prometheus"
                    && monitor["spec"]["endpoints"] == endpoints,
                "with '{values}': {monitor}"
            );
            monitors += 1;
        }
    }
    ensure!(
        with == 2 && monitors == 1,
        "{with} Deployments with settings, {monitors} ServiceMonitors: this case shows nothing"
    );
    Ok(format!(
        "{with} Deployments have all settings, the others none; {monitors} ServiceMonitor"
    ))
}

/// Compares a Deployment and its ServiceAccount with the wanted settings.
fn differences(deployment: &Value, account: &Value, wanted: &Value) -> Result<()> {
    let template = &deployment["spec"]["template"];
    for field in OF_SPEC {
        ensure!(
            template["spec"][field] == wanted[field],
            "{field}: {} instead of {}",
            template["spec"][field],
            wanted[field]
        );
    }
    let env = &template["spec"]["containers"][0]["env"];
    ensure!(*env == wanted["extraEnv"], "env: {env}");
    let annotations = &account["metadata"]["annotations"];
    ensure!(
        *annotations == wanted["serviceAccountAnnotations"],
        "annotations of the ServiceAccount: {annotations}"
    );
    let mut labels = deployment["spec"]["selector"]["matchLabels"].clone();
    let checksum = template["metadata"]["annotations"]["checksum/config"].clone();
    let mut annotations = json!({ "checksum/config": checksum });
    for (own, added) in [
        (&mut labels, &wanted["podLabels"]),
        (&mut annotations, &wanted["podAnnotations"]),
    ] {
        let added = added.as_object().into_iter();
        for (key, value) in added.flat_map(|map| map.iter()) {
            own[key] = value.clone();
        }
    }
    let metadata = json!({ "labels": labels, "annotations": annotations });
    ensure!(
        template["metadata"] == metadata,
        "metadata of the Pods: {} instead of {metadata}",
        template["metadata"]
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a Deployment and a ServiceAccount that have every setting.
    fn complete() -> (Value, Value) {
        let given: Value = serde_json::from_str(settings!()).unwrap();
        let mut spec = json!({ "containers": [{ "env": given["extraEnv"] }] });
        for field in OF_SPEC {
            spec[field] = given[field].clone();
        }
        let deployment = json!({ "spec": {
            "selector": { "matchLabels": { "app": "o" } },
            "template": {
                "metadata": {
                    "labels": { "app": "o", "team": "platform" },
                    "annotations": { "checksum/config": "1", "example.com/inject": "false" },
                },
                "spec": spec,
            },
        } });
        let annotations = &given["serviceAccountAnnotations"];
        (
            deployment,
            json!({ "metadata": { "annotations": annotations } }),
        )
    }

    #[test]
    fn a_missing_or_changed_setting_is_found() {
        let given: Value = serde_json::from_str(settings!()).unwrap();
        let (deployment, account) = complete();
        differences(&deployment, &account, &given).unwrap();
        assert!(differences(&deployment, &account, &json!({})).is_err());
        for path in [
            "/spec/template/spec/nodeSelector",
            "/spec/template/spec/tolerations",
            "/spec/template/spec/affinity",
            "/spec/template/spec/priorityClassName",
            "/spec/template/spec/containers/0/env",
            "/spec/template/metadata/labels/team",
            "/spec/template/metadata/labels/app",
            "/spec/template/metadata/annotations/example.com~1inject",
        ] {
            let mut wrong = deployment.clone();
            *wrong.pointer_mut(path).unwrap() = json!("other");
            assert!(differences(&wrong, &account, &given).is_err(), "{path}");
        }
        assert!(differences(&deployment, &json!({}), &given).is_err());
    }
}
