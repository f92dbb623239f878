//! `get --watch`

use std::collections::{BTreeMap, BTreeSet};

use actions::Object;
use api::{Timestamp, kinds::KindRow};
use futures::{StreamExt, TryStreamExt, stream::select_all};
use kube::{
    core::DynamicObject,
    runtime::{WatchStreamExt, watcher},
};

use super::Question;
use crate::{
    arguments::Format,
    failure::Failure,
    session::{Server, Session},
    text::{Cell, Table, Tone, toned},
    watching::{Trouble, trouble},
};

/// The lines that were printed.
struct Shown<'a> {
    question: &'a Question,
    format: Option<Format>,
    table: Table,
    /// Kinds whose first list is not complete. The table is printed when there are none.
    listing: BTreeSet<&'static str>,
    /// The rows of the first table, by UID.
    first: Vec<(String, Vec<Cell>)>,
    /// The latest row of each object, without its age.
    latest: BTreeMap<String, Vec<Cell>>,
}

pub(super) async fn run(
    question: &Question,
    format: Option<Format>,
    server: &Server,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    let mut which = watcher::Config::default();
    if let Some(selector) = &question.selector {
        which = which.labels(selector);
    }
    if let Some(name) = &question.name {
        which = which.fields(&format!("metadata.name={name}"));
    }
    let mut events = select_all(question.kinds.iter().copied().map(|kind| {
        watcher(question.api(kind, server), which.clone())
            .default_backoff()
            .map_ok(move |event| (kind, event))
            .map_err(move |error| (kind, error))
            .boxed()
    }));
    let mut shown = Shown {
        question,
        format,
        table: question.table(),
        listing: question.kinds.iter().map(|kind| kind.name()).collect(),
        first: Vec::new(),
        latest: BTreeMap::new(),
    };
    loop {
        let event = tokio::select! {
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                return Ok(());
            }
            event = events.try_next() => event,
        };
        match event {
            Ok(Some((kind, watcher::Event::Apply(object) | watcher::Event::InitApply(object)))) => {
                shown.object(kind, object, false, session)?;
            }
            Ok(Some((kind, watcher::Event::Delete(object)))) => {
                shown.object(kind, object, true, session)?;
            }
            Ok(Some((_, watcher::Event::Init))) => {}
            Ok(Some((kind, watcher::Event::InitDone))) => shown.listed(kind, session)?,
            Ok(None) => return Ok(()),
            Err((kind, error)) => match trouble(error, question.request("watch", kind, server)) {
                Trouble::Fatal(failure) => return Err(failure),
                Trouble::Passing(words) => session.remark(&format!("{words}; trying again"))?,
            },
        }
    }
}

impl Shown<'_> {
    /// Prints the table when the first list of the last kind is complete.
    fn listed(&mut self, kind: &KindRow, session: &mut Session<'_>) -> Result<(), Failure> {
        let was_last = self.listing.remove(kind.name()) && self.listing.is_empty();
        if was_last && self.format != Some(Format::Name) {
            for (_, row) in self.first.drain(..) {
                self.table.push(row);
            }
            session.print(&self.table.render(session.paint, session.room()))?;
        }
        Ok(())
    }

    /// Prints the row of an object if more than its age has changed. After a lost connection, the
    /// watch delivers all objects again.
    fn object(
        &mut self,
        kind: &'static KindRow,
        object: DynamicObject,
        is_gone: bool,
        session: &mut Session<'_>,
    ) -> Result<(), Failure> {
        let object = Object::new(kind, object);
        let uid = object.metadata.uid.clone().unwrap_or_default();
        if !self.question.filter.admits(&object) {
            self.latest.remove(&uid);
            return Ok(());
        }
        let row = |now| {
            let mut row = self.question.row(&object, now);
            let phase = usize::from(self.question.has_namespace()) + 1;
            if is_gone && let Some(phase) = row.get_mut(phase) {
                *phase = toned("Deleted", Tone::Dim);
            }
            row
        };
        let news = row(Timestamp::UNIX_EPOCH);
        if self.latest.get(&uid) == Some(&news) {
            return Ok(());
        }
        let row = row(session.now());
        let name = Question::line_name(&object);
        if is_gone {
            self.latest.remove(&uid);
        } else {
            self.latest.insert(uid.clone(), news);
        }
        if self.format == Some(Format::Name) {
            session.print(&name)?;
        } else if self.listing.is_empty() {
            self.table.widen(&row);
            session.print(&self.table.render_row(&row, session.paint, session.room()))?;
        } else {
            // Another kind is still listed, and this object may have changed meanwhile.
            self.first.retain(|(known, _)| *known != uid);
            self.first.extend((!is_gone).then_some((uid, row)));
        }
        Ok(())
    }
}
