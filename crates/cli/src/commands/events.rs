//! `events`

use std::{collections::BTreeSet, time::Duration};

use actions::ObjectName;
use k8s_openapi::api::core::v1::Event;

use crate::{
    Exit,
    arguments::Events,
    failure::Failure,
    related::{self, tenant},
    session::{Server, Session},
    text::{Cell, Table, Tone, age, cell, clean, toned},
    view,
};

/// Interval between reads for new Events. A watch would be needed for each child, and the children
/// change.
const PERIOD: Duration = Duration::from_secs(2);

pub(crate) async fn run(verb: Events, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let server = session.server().await?;
    let run = verb.of.target;
    let (events, unread) = read(&server, &run).await?;
    for why in &unread {
        session.remark(&format!("not shown: {}", clean(why)))?;
    }
    let mut table = table();
    for event in &events {
        table.push(row(event, session.now()));
    }
    if table.is_empty() && unread.is_empty() {
        session.remark(&format!(
            "no Events of {run} or its children; the server keeps them for about an hour"
        ))?;
    } else if !table.is_empty() {
        session.print(&table.render(session.paint, session.room()))?;
    }
    if !verb.watch {
        return Ok(Exit::Ok);
    }
    let mut seen: BTreeSet<(String, String)> = events.iter().map(identity).collect();
    loop {
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                return Ok(Exit::Ok);
            }
            () = tokio::time::sleep(PERIOD) => {}
        }
        // The reasons for missing Events were printed above.
        let (events, _unread) = read(&server, &run).await?;
        for event in events {
            if seen.insert(identity(&event)) {
                let row = row(&event, session.now());
                table.widen(&row);
                session.print(&table.render_row(&row, session.paint, session.room()))?;
            }
        }
    }
}

/// Reads the Events of a run or a Tenant, and why a part of them could not be read.
async fn read(server: &Server, name: &ObjectName) -> Result<(Vec<Event>, Vec<String>), Failure> {
    let object = server.get(name).await?;
    if tenant::is_tenant(&object) {
        return Ok(tenant::events(server, &object).await);
    }
    let children = related::children(server, &object).await?;
    let events = related::events(server, &object, &children).await?;
    Ok((events, Vec::new()))
}

/// Returns the key of an Event. A repeated Event is the same object with a new `resourceVersion`,
/// and it gets a new line.
fn identity(event: &Event) -> (String, String) {
    let meta = &event.metadata;
    (
        meta.uid.clone().unwrap_or_default(),
        meta.resource_version.clone().unwrap_or_default(),
    )
}

pub(crate) fn table() -> Table {
    Table::new(vec!["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"])
}

pub(crate) fn row(event: &Event, now: api::Timestamp) -> Vec<Cell> {
    let kind = event.type_.as_deref().unwrap_or_default();
    let tone = if kind == "Warning" {
        Tone::Waiting
    } else {
        Tone::Plain
    };
    vec![
        cell(age(view::event_time(event), now)),
        toned(kind, tone),
        cell(event.reason.as_deref().unwrap_or_default()),
        cell(view::event_object(event)),
        cell(view::event_message(event)),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::text::Paint;

    #[test]
    fn repeated_events_say_how_often() {
        let event: Event = serde_json::from_value(json!({
            "metadata": { "name": "e" }, "type": "Warning", "reason": "BackOff", "count": 3,
            "message": "Back-off pulling\nimage", "lastTimestamp": "2026-01-01T00:00:00Z",
            "involvedObject": { "kind": "Pod", "name": "shop-7-v1-x" },
        }))
        .unwrap();
        let mut table = table();
        table.push(row(&event, "2026-01-01T00:05:00Z".parse().unwrap()));
        assert_eq!(
            table.render(Paint { is_on: false }, None),
            "LAST SEEN   TYPE      REASON    OBJECT            MESSAGE\n\
             5m          Warning   BackOff   Pod/shop-7-v1-x   Back-off pulling image (3 times)\n"
        );
    }
}
