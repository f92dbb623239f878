//! The filters and the order of a list. They work on the objects as they are, so they need no labels.

use std::cmp::{Ordering, Reverse};

use actions::Object;
use api::{Timestamp, kinds::KindRow, status::condition::FINISHED};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, from_value};

use super::condition;
use crate::arguments::{Get, Sort};

/// Field of a run's spec with the name of its Agent.
const AGENT_NAME: &str = "agentName";

/// Field of a run's spec with the name of its service.
const SERVICE_NAME: &str = "serviceName";

/// The filters of a list, beside the label selector.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Filter {
    is_failed: bool,
    agent: Option<String>,
    service: Option<String>,
}

impl Filter {
    pub(super) fn new(verb: &Get) -> Self {
        Self {
            is_failed: verb.failed,
            agent: verb.agent.clone(),
            service: verb.service.clone(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the kinds that have what the filters ask for. Without this check, a list of another
    /// kind would be empty, as if no object matched.
    ///
    /// # Errors
    /// None of the kinds has it.
    pub(super) fn kinds(
        &self,
        kinds: Vec<&'static KindRow>,
    ) -> Result<Vec<&'static KindRow>, String> {
        if self.is_empty() {
            return Ok(kinds);
        }
        let listed: Vec<&str> = kinds.iter().map(|kind| kind.listed).collect();
        let fitting: Vec<_> = kinds.into_iter().filter(|kind| self.fits(kind)).collect();
        if fitting.is_empty() {
            let listed = listed.join(", ");
            return Err(format!(
                "'--failed', '--agent' and '--service' are for runs, and '--service' for those with a service; not for {listed}"
            ));
        }
        Ok(fitting)
    }

    fn fits(&self, kind: &KindRow) -> bool {
        kind.is_run()
            && (self.agent.is_none() || has_field(kind, AGENT_NAME))
            && (self.service.is_none() || has_field(kind, SERVICE_NAME))
    }

    pub(super) fn admits(&self, object: &Object) -> bool {
        let has = |name: &str, wanted: &Option<String>| {
            let found = object.at("spec")[name].as_str();
            wanted.is_none() || found == wanted.as_deref()
        };
        // The phase as the table shows it.
        let is_failed = object.text("status.phase") == "Failed";
        (is_failed || !self.is_failed)
            && has(AGENT_NAME, &self.agent)
            && has(SERVICE_NAME, &self.service)
    }

    /// Formats the filtered objects: `failed runs of agent 'writer'`.
    pub(super) fn describe(&self, noun: &str) -> String {
        let mut text = match self.is_failed {
            true => format!("failed {noun}"),
            false => noun.to_owned(),
        };
        for (what, name) in [("agent", &self.agent), ("service", &self.service)] {
            if let Some(name) = name {
                text.push_str(&format!(" of {what} '{name}'"));
            }
        }
        text
    }
}

/// Returns whether the spec of a kind has this field.
fn has_field(kind: &KindRow, name: &str) -> bool {
    let crd = (kind.derived_crd)();
    let versions = crd.spec.versions.iter();
    let schemas =
        versions.filter_map(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    let specs = schemas.filter_map(|schema| schema.properties.as_ref()?.get("spec"));
    let mut fields = specs.filter_map(|spec| spec.properties.as_ref());
    fields.any(|fields| fields.contains_key(name))
}

/// The values that an object is sorted by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SortKey {
    name: (String, String),
    created: Option<Timestamp>,
    finished: Option<Timestamp>,
    phase: String,
}

impl SortKey {
    pub(super) fn of(object: &Object) -> Self {
        let meta = &object.metadata;
        let namespace = meta.namespace.clone().unwrap_or_default();
        let finished = condition(object, FINISHED);
        let finished = match finished["status"].as_str() {
            Some("True") => time(&finished["lastTransitionTime"]),
            Some(_) | None => None,
        };
        Self {
            name: (namespace, object.name.name.clone()),
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            finished,
            phase: object.text("status.phase").to_owned(),
        }
    }

    fn compare(&self, other: &Self, sort: Sort) -> Ordering {
        match sort {
            Sort::Name => self.name.cmp(&other.name),
            Sort::Age => Reverse(self.created).cmp(&Reverse(other.created)),
            // `None` is the smallest value, so unfinished runs are last.
            Sort::Finished => Reverse(self.finished).cmp(&Reverse(other.finished)),
            Sort::Phase => self.phase.cmp(&other.phase),
        }
    }
}

/// Decodes a time. A value that is no time counts as none.
fn time(value: &Value) -> Option<Timestamp> {
    let time: Option<Time> = from_value(value.clone()).unwrap_or_default();
    time.map(|time| time.0)
}

/// Sorts the items. Without an order, they stay as the server sent them. Equal ones do as well.
pub(super) fn sort<T>(items: &mut [(SortKey, T)], by: Option<Sort>) {
    if let Some(by) = by {
        items.sort_by(|(one, _), (other, _)| one.compare(other, by));
    }
}

#[cfg(test)]
mod tests {
    use api::tasks::{AGENT, DOCS_RUN, TASK_RUN};
    use serde_json::json;

    use super::*;

    fn filter(is_failed: bool, agent: Option<&str>, service: Option<&str>) -> Filter {
        Filter {
            is_failed,
            agent: agent.map(str::to_owned),
            service: service.map(str::to_owned),
        }
    }

    fn a_run(kind: &'static KindRow, name: &str, phase: &str, times: (i64, Option<i64>)) -> Object {
        let at = |hour: i64| format!("2026-01-01T{hour:02}:00:00Z");
        let finished = times.1.map(|hour| {
            json!([{ "type": "Finished", "status": "True",
            "reason": "Failed", "message": "", "lastTransitionTime": at(hour) }])
        });
        let mut spec = json!({ "agentName": "writer" });
        if *kind == TASK_RUN {
            spec["serviceName"] = json!("shop");
        }
        let run = json!({ "metadata": { "name": name, "namespace": "team",
            "creationTimestamp": at(times.0) }, "spec": spec,
            "status": { "phase": phase, "conditions": finished.unwrap_or(json!([])) } });
        Object::new(kind, serde_json::from_value(run).unwrap())
    }

    #[test]
    fn filters_admit_by_phase_agent_and_service() {
        let failed = a_run(&TASK_RUN, "a", "Failed", (1, Some(2)));
        let running = a_run(&TASK_RUN, "b", "Running", (1, None));
        let docs = a_run(&DOCS_RUN, "c", "Failed", (1, Some(2)));
        let cases = [
            (filter(false, None, None), [true, true, true]),
            (filter(true, None, None), [true, false, true]),
            (filter(false, Some("writer"), None), [true, true, true]),
            (filter(false, Some("other"), None), [false, false, false]),
            (filter(false, None, Some("shop")), [true, true, false]),
            (
                filter(true, Some("writer"), Some("shop")),
                [true, false, false],
            ),
        ];
        for (filter, wanted) in cases {
            let found = [&failed, &running, &docs].map(|run| filter.admits(run));
            assert_eq!(found, wanted, "{filter:?}");
        }
    }

    #[test]
    fn a_filter_is_only_for_kinds_that_have_its_field() {
        let runs = || vec![&TASK_RUN, &DOCS_RUN];
        let kinds = |filter: &Filter, kinds| filter.kinds(kinds);
        let none = filter(false, None, None);
        assert_eq!(kinds(&none, vec![&AGENT]), Ok(vec![&AGENT]));
        assert_eq!(kinds(&filter(true, Some("a"), None), runs()), Ok(runs()));
        let service = filter(false, None, Some("shop"));
        assert_eq!(kinds(&service, runs()), Ok(vec![&TASK_RUN]));
        let said = kinds(&service, vec![&DOCS_RUN]).unwrap_err();
        assert!(said.contains("not for docs"), "{said}");
        let said = kinds(&filter(true, None, None), vec![&AGENT]).unwrap_err();
        assert!(
            said.contains("are for runs") && said.contains("agents"),
            "{said}"
        );
    }

    #[test]
    fn the_order_is_as_documented() {
        let sorted = |by| {
            let runs = [
                a_run(&TASK_RUN, "b-old", "Succeeded", (1, Some(9))),
                a_run(&TASK_RUN, "c-new", "Running", (5, None)),
                a_run(&DOCS_RUN, "a-mid", "Failed", (3, Some(4))),
            ];
            let mut rows: Vec<_> = runs.map(|run| (SortKey::of(&run), run.name.name)).into();
            sort(&mut rows, by);
            rows.into_iter().map(|(_, name)| name).collect::<Vec<_>>()
        };
        assert_eq!(sorted(None), ["b-old", "c-new", "a-mid"]);
        assert_eq!(sorted(Some(Sort::Name)), ["a-mid", "b-old", "c-new"]);
        assert_eq!(sorted(Some(Sort::Age)), ["c-new", "a-mid", "b-old"]);
        assert_eq!(sorted(Some(Sort::Finished)), ["b-old", "a-mid", "c-new"]);
        assert_eq!(sorted(Some(Sort::Phase)), ["a-mid", "c-new", "b-old"]);
    }

    #[test]
    fn an_empty_list_says_what_was_asked_for() {
        assert_eq!(filter(false, None, None).describe("runs"), "runs");
        assert_eq!(
            filter(true, Some("writer"), Some("shop")).describe("runs"),
            "failed runs of agent 'writer' of service 'shop'"
        );
    }
}
