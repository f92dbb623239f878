//! `history`

use actions::{Object, ObjectName, Request};
use api::{
    Timestamp,
    apps::{MANAGED_APP, ManagedAppStatus, ROLLBACK_REQUEST, RestorePoint, UPGRADE_REQUEST},
    kinds::KindRow,
    status::condition::SUCCEEDED,
};
use kube::api::ListParams;

use crate::{
    Exit,
    arguments::History,
    failure::Failure,
    session::{Server, Session, ask},
    state,
    text::{Cell, Table, age, cell, clean, moment, toned},
};

/// Maximum number of requests of one kind in a namespace. The oldest ones are left out.
const MOST: u32 = 500;

pub(crate) async fn run(verb: History, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let server = session.server().await?;
    let app = server
        .get(&ObjectName::new(&MANAGED_APP, &verb.app))
        .await?;
    let upgrades = list(&server, &UPGRADE_REQUEST).await?;
    let rollbacks = list(&server, &ROLLBACK_REQUEST).await?;
    let requests = of_app(&verb.app, upgrades, rollbacks);
    if requests.is_empty() {
        session.line(&format!("{} has no upgrades and no rollbacks", app.name))?;
        return Ok(Exit::Ok);
    }
    let table = table(&requests, session.now());
    let text = table.render(session.paint, session.room());
    session.print(&text)?;
    let status: ManagedAppStatus = app.part("status").unwrap_or_default();
    for line in points(&status.restore_points) {
        session.line(&line)?;
    }
    Ok(Exit::Ok)
}

async fn list(server: &Server, kind: &'static KindRow) -> Result<Vec<Object>, Failure> {
    let request = Request {
        verb: "list",
        kind: kind.name(),
        resource: kind.crd_name,
        name: None,
        namespace: Some(server.namespace.clone()),
    };
    let api = actions::objects(&server.client, kind, Some(&server.namespace));
    let found = ask(request, api.list(&ListParams::default().limit(MOST))).await?;
    let found = found.items.into_iter();
    Ok(found.map(|one| Object::new(kind, one)).collect())
}

/// Returns the requests of an application, the newest first.
fn of_app(app: &str, upgrades: Vec<Object>, rollbacks: Vec<Object>) -> Vec<Object> {
    let mut all: Vec<Object> = upgrades
        .into_iter()
        .filter(|one| one.text("spec.managedAppRef.name") == app)
        .collect();
    let names: Vec<String> = all.iter().map(|one| one.name.name.clone()).collect();
    let is_of_app = |one: &Object| match one.text("status.plan.app") {
        // Before its plan, a rollback names its upgrade only.
        "" => {
            let upgrade = one.text("spec.upgradeRequestRef.name");
            names.iter().any(|name| name == upgrade)
        }
        planned => planned == app,
    };
    all.extend(rollbacks.into_iter().filter(is_of_app));
    all.sort_by_key(|one| {
        let created = created(one);
        (std::cmp::Reverse(created), one.name.name.clone())
    });
    all
}

fn created(object: &Object) -> Option<Timestamp> {
    let created = object.metadata.creation_timestamp.as_ref();
    created.map(|created| created.0)
}

fn table(requests: &[Object], now: Timestamp) -> Table {
    let mut table = Table::new(vec!["REQUEST", "PHASE", "REASON", "FROM", "TO", "AGE"]);
    for one in requests {
        table.push(row(one, now));
    }
    table
}

fn row(request: &Object, now: Timestamp) -> Vec<Cell> {
    let is_rollback = *request.name.kind == ROLLBACK_REQUEST;
    let plan = if is_rollback {
        "status.plan.change"
    } else {
        "status.plan"
    };
    let (from, to) = (version(request, plan, "from"), version(request, plan, "to"));
    // A request that was rejected has no plan.
    let to = match to.is_empty() {
        true => request.text("spec.targetVersion.chart").to_owned(),
        false => to,
    };
    let progress = request.progress.as_ref();
    let main = progress.and_then(|progress| progress.condition(SUCCEEDED));
    let reason = main.map_or("", |main| main.reason.as_str());
    let dry_run = match request.is_set("spec.dryRun") {
        true => " (dry run)",
        false => "",
    };
    let tone = state::standing(request).tone;
    vec![
        cell(format!("{}{dry_run}", request.name.argument())),
        toned(request.phase(), tone),
        cell(reason),
        cell(from),
        cell(to),
        cell(age(created(request), now)),
    ]
}

/// Returns a version of a plan: that of the chart if it changes, otherwise the images.
fn version(request: &Object, plan: &str, side: &str) -> String {
    let chart = |side: &str| request.text(&format!("{plan}.chart.{side}"));
    if chart("from") != chart("to") {
        return chart(side).to_owned();
    }
    let images = request.at(&format!("{plan}.images")).as_array();
    let images = images.into_iter().flat_map(|all| all.iter());
    let images = images.filter_map(|image| image[side].as_str());
    images.collect::<Vec<_>>().join(", ")
}

/// Returns the lines about restore points.
fn points(points: &[RestorePoint]) -> Vec<String> {
    let line = |point: &RestorePoint| {
        let (upgrade, from, to) = (clean(&point.upgrade), clean(&point.from), clean(&point.to));
        let reason = point.reason.as_deref().map(clean).unwrap_or_default();
        match (point.available, &point.taken_at) {
            (true, Some(taken)) => format!(
                "upgrade '{upgrade}' can be rolled back from {to} to {from}; it loses the data written after {}",
                moment(taken.0)
            ),
            (true, None) => {
                format!("upgrade '{upgrade}' can be rolled back from {to} to {from}, in Git only")
            }
            (false, _) => format!("upgrade '{upgrade}' cannot be rolled back: {reason}"),
        }
    };
    points.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};

    use super::*;
    use crate::text::Paint;

    fn object(kind: &'static KindRow, name: &str, minute: u8, more: &Value) -> Object {
        let object = json!({
            "metadata": { "name": name, "creationTimestamp": format!("2030-01-01T00:{minute:02}:00Z") },
            "spec": more["spec"], "status": more["status"],
        });
        Object::new(kind, serde_json::from_value(object).unwrap())
    }

    fn upgrade(name: &str, minute: u8, app: &str) -> Object {
        let more = json!({
            "spec": { "managedAppRef": { "name": app }, "targetVersion": { "chart": "2.0.0" } },
            "status": { "phase": "Succeeded", "plan": { "chart": { "from": "1.0.0", "to": "2.0.0" } } },
        });
        object(&UPGRADE_REQUEST, name, minute, &more)
    }

    #[test]
    fn the_requests_of_an_app_are_listed_with_the_newest_first() {
        let back = |name: &str, minute: u8, upgrade: &str, app: Option<&str>| {
            let more = json!({
                "spec": { "upgradeRequestRef": { "name": upgrade } },
                "status": { "plan": app.map(|app| json!({ "app": app })) },
            });
            object(&ROLLBACK_REQUEST, name, minute, &more)
        };
        let upgrades = vec![
            upgrade("a", 1, "shop"),
            upgrade("b", 5, "shop"),
            upgrade("c", 6, "web"),
        ];
        let rollbacks = vec![
            back("of-a", 3, "a", None),
            back("of-c", 4, "c", None),
            // Its upgrade was deleted.
            back("planned", 2, "gone", Some("shop")),
        ];
        let found = of_app("shop", upgrades, rollbacks);
        let names: Vec<&str> = found.iter().map(|one| &*one.name.name).collect();
        assert_eq!(names, ["b", "of-a", "planned", "a"]);
    }

    #[test]
    fn a_row_has_the_versions_of_the_request() {
        let now = "2030-01-01T00:06:00Z".parse().unwrap();
        let text = table(&[upgrade("a", 1, "shop")], now).render(Paint { is_on: false }, None);
        let last = text.lines().last().unwrap();
        let words: Vec<&str> = last.split_whitespace().collect();
        assert_eq!(words[0], "upgraderequest/a");
        assert!(
            words.contains(&"1.0.0") && words.contains(&"2.0.0"),
            "{last}"
        );
    }

    #[test]
    fn a_row_has_the_images_if_the_chart_stays_the_same() {
        let images = json!([
            { "name": "web", "from": "web:1", "to": "web:2" },
            { "name": "db", "from": "db:5", "to": "db:6" },
        ]);
        let chart = |from: &str, to: &str| json!({ "from": from, "to": to });
        // Columns: chart of the plan, version before.
        for (chart, expected) in [
            (Value::Null, "web:1, db:5"),
            (chart("1.0.0", "1.0.0"), "web:1, db:5"),
            (chart("1.0.0", "2.0.0"), "1.0.0"),
        ] {
            let plan = json!({ "chart": chart, "images": images });
            let request = object(
                &UPGRADE_REQUEST,
                "a",
                1,
                &json!({ "status": { "plan": plan } }),
            );
            assert_eq!(version(&request, "status.plan", "from"), expected);
        }
    }

    #[test]
    fn a_restore_point_reports_the_loss() {
        let point = |available: bool, taken: bool, reason: Option<&str>| RestorePoint {
            upgrade: "up".to_owned(),
            uid: "uid".to_owned(),
            taken_at: taken.then(|| Time("2030-01-01T00:01:00Z".parse().unwrap())),
            available,
            reason: reason.map(str::to_owned),
            from: "1.0.0".to_owned(),
            to: "2.0.0".to_owned(),
        };
        for (one, expected) in [
            (point(true, true, None), "loses the data written after"),
            (point(true, false, Some("GitOnly")), "in Git only"),
            (
                point(false, true, Some("VersionChangedInGit")),
                "cannot be rolled back: VersionChangedInGit",
            ),
        ] {
            let lines = points(&[one]);
            assert!(lines[0].contains(expected), "{lines:?}");
        }
    }
}
