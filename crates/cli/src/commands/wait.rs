//! `wait`, and the `--wait` flag of other commands.

use std::{io, time::Duration};

use actions::{Object, ObjectName};
use api::Timestamp;
use futures::{StreamExt, stream};
use kube::{
    core::DynamicObject,
    runtime::{WatchStreamExt, watcher},
};

use crate::{
    Exit,
    arguments::{Wait, WaitOptions},
    commands::{
        result,
        timeline::{self, Line},
    },
    failure::Failure,
    session::{Server, Session},
    state,
    text::{Tone, between, moment, span},
    watching::{Trouble, trouble},
};

mod down;

use down::{Down, described, leaders};

/// Interval between redraws of a live timeline.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) async fn run(verb: Wait, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let server = session.server().await?;
    let mut runs: Vec<ObjectName> = Vec::new();
    for run in verb.runs {
        if !runs.contains(&run) {
            runs.push(run);
        }
    }
    until_finished(session, &server, &runs, verb.timeout).await
}

/// Waits for a run that was just started, or prints the command to wait for it.
pub(crate) async fn afterwards(
    session: &mut Session<'_>,
    server: &Server,
    run: ObjectName,
    options: &WaitOptions,
) -> Result<Exit, Failure> {
    if options.wait {
        return until_finished(session, server, &[run], options.timeout).await;
    }
    let next = session.command(&format!("wait {}", run.argument()));
    session.line(&format!("  to follow it: {next}"))?;
    Ok(Exit::Ok)
}

/// The result of waiting for one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The run has finished, or the Tenant is ready or has failed.
    Reached(Exit),
    /// The object is suspended, so waiting for it would never end. It may be resumed while other
    /// objects are waited for.
    Suspended,
    NotFound,
    Deleted,
}

/// A run or Tenant that we wait for.
#[derive(Debug, Clone)]
struct Awaited {
    name: ObjectName,
    run: Option<Object>,
    is_listed: bool,
    end: Option<End>,
    said: String,
}

impl Awaited {
    fn new(name: &ObjectName) -> Self {
        Self {
            name: name.clone(),
            run: None,
            is_listed: false,
            end: None,
            said: String::new(),
        }
    }

    /// Handles a watch event. After the first result, later events are ignored.
    fn observe(&mut self, event: watcher::Event<DynamicObject>) {
        if self.end.is_some_and(|end| end != End::Suspended) {
            return;
        }
        match event {
            watcher::Event::Init => self.is_listed = false,
            watcher::Event::InitApply(seen) | watcher::Event::Apply(seen) => {
                self.is_listed = true;
                let run = Object::new(self.name.kind, seen);
                let known = self.run.as_ref().map(|known| &known.metadata.uid);
                if known.is_some_and(|uid| *uid != run.metadata.uid) {
                    // The object was deleted, and another one was created under the same name.
                    self.end = Some(End::Deleted);
                    return;
                }
                self.end = match state::end(&run) {
                    Some(exit) => Some(End::Reached(exit)),
                    None => state::is_suspended(&run).then_some(End::Suspended),
                };
                self.run = Some(run);
            }
            watcher::Event::InitDone if !self.is_listed => {
                self.end = Some(if self.run.is_some() {
                    End::Deleted
                } else {
                    End::NotFound
                });
            }
            watcher::Event::InitDone => {}
            watcher::Event::Delete(_) => self.end = Some(End::Deleted),
        }
    }

    fn exit(&self) -> Exit {
        match self.end {
            Some(End::Reached(exit)) => exit,
            Some(End::NotFound | End::Deleted) => Exit::NotFound,
            Some(End::Suspended) | None => Exit::Timeout,
        }
    }

    fn sentence(&self) -> Option<String> {
        let name = &self.name.name;
        match self.end {
            Some(End::NotFound) => Some(format!("{name} ✗ not found")),
            Some(End::Deleted) => Some(format!("{name} ✗ deleted while it was waited for")),
            Some(End::Reached(_) | End::Suspended) | None => {
                self.run.as_ref().map(timeline::sentence)
            }
        }
    }

    fn lines(&self, now: Timestamp, width: usize, is_alone: bool) -> Vec<Line> {
        let is_here = !matches!(self.end, Some(End::NotFound | End::Deleted));
        match &self.run {
            Some(run) if is_here && is_alone => timeline::block(run, now, width),
            Some(_) | None => {
                let words = self.sentence();
                let words = words.unwrap_or_else(|| format!("{} … looking", self.name.name));
                let tone = match self.exit() {
                    Exit::Ok => Tone::Good,
                    Exit::Timeout => Tone::Plain,
                    Exit::Failed | Exit::Client | Exit::Denied | Exit::NotFound => Tone::Bad,
                };
                vec![(tone, words)]
            }
        }
    }
}

/// Waits until all objects have a result or the time is up. The exit code follows from the results.
pub(crate) async fn until_finished(
    session: &mut Session<'_>,
    server: &Server,
    runs: &[ObjectName],
    limit: Option<Duration>,
) -> Result<Exit, Failure> {
    let mut awaited: Vec<Awaited> = runs.iter().map(Awaited::new).collect();
    let mut events = stream::select_all(runs.iter().enumerate().map(|(index, run)| {
        let objects = actions::objects(&server.client, run.kind, Some(&server.namespace));
        let which = watcher::Config::default().fields(&format!("metadata.name={}", run.name));
        let events = watcher(objects, which).default_backoff();
        events.map(move |event| (index, event)).boxed()
    }));
    let mut leaders = leaders(session, server, runs);
    let mut down = Down::default();
    let mut view = View::new(session);
    let mut tick = tokio::time::interval(REDRAW_INTERVAL);
    let time_up = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    let mut time_up = std::pin::pin!(time_up);
    loop {
        let mut remark = None;
        tokio::select! {
            // Without `biased`, a busy stream could delay the end of the time limit.
            biased;
            () = &mut time_up => {
                view.show(session, &mut awaited, true)?;
                timed_out(session, &awaited, limit, view.trouble, &down)?;
                break;
            }
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                view.show(session, &mut awaited, true)?;
                left(session, &awaited, &down)?;
                break;
            }
            Some((index, event)) = events.next() => match (event, awaited.get_mut(index)) {
                (Ok(event), Some(one)) => {
                    // Only `Init` arrives without a response of the server.
                    if !matches!(event, watcher::Event::Init) {
                        view.trouble = None;
                    }
                    one.observe(event);
                }
                (Ok(_), None) => {}
                (Err(error), one) => {
                    if let Some(one) = one {
                        match trouble(error, server.request("watch", &one.name)) {
                            Trouble::Fatal(failure) => return Err(failure),
                            Trouble::Passing(words) => remark = Some(words),
                        }
                    }
                }
            },
            Some((operator, found)) = leaders.next() => {
                if let Some(words) = down.observe(operator, found) {
                    session.remark(&words)?;
                    // The lines above were printed before the remark and must not be redrawn.
                    view.height = 0;
                }
            }
            _ = tick.tick(), if view.is_live => {}
        }
        view.remark(session, remark)?;
        let is_over = awaited.iter().all(|one| one.end.is_some());
        view.show(session, &mut awaited, is_over)?;
        if is_over {
            ended(session, &awaited)?;
            break;
        }
    }
    Ok(Exit::most_severe(awaited.iter().map(Awaited::exit)))
}

fn timed_out(
    session: &mut Session<'_>,
    awaited: &[Awaited],
    limit: Option<Duration>,
    trouble: Option<String>,
    down: &Down,
) -> Result<(), Failure> {
    let limit = limit.unwrap_or_default().as_secs();
    let waited = span(i64::try_from(limit).unwrap_or(i64::MAX));
    if let Some(trouble) = trouble {
        // The state is unknown, which is not the same as "still running".
        return Err(Failure::client(format!(
            "timed out after {waited}, and the state is not known: {trouble}"
        )));
    }
    for one in going(awaited) {
        unfinished(session, &format!("timed out after {waited}"), one, down)?;
    }
    ended(session, awaited)?;
    Ok(())
}

/// Handles Ctrl-C, which ends only the waiting.
fn left(session: &mut Session<'_>, awaited: &[Awaited], down: &Down) -> io::Result<()> {
    for one in going(awaited) {
        unfinished(session, "stopped waiting", one, down)?;
        session.hint("to wait again", "wait", &one.name)?;
        if one.name.is_run() {
            session.hint("to stop it for good", "cancel", &one.name)?;
        }
    }
    ended(session, awaited)
}

fn going(awaited: &[Awaited]) -> impl Iterator<Item = &Awaited> {
    awaited.iter().filter(|one| one.end.is_none())
}

/// Prints the state of an object when the waiting ends before the object does. `why` is the reason
/// for the end of the waiting.
fn unfinished(session: &mut Session<'_>, why: &str, one: &Awaited, down: &Down) -> io::Result<()> {
    match &one.run {
        Some(run) => stopped(session, why, run, down.of(run.name.kind)),
        None => session.remark(&format!("{why}: the state of {} is not known", one.name)),
    }
}

/// Prints the state of an object that has not ended, and the next command. `down` is the reason why its
/// operator does not lead, if that is known.
pub(crate) fn stopped(
    session: &mut Session<'_>,
    why: &str,
    object: &Object,
    down: Option<&str>,
) -> io::Result<()> {
    let name = &object.name;
    session.remark(&format!("{why}: {name} {}", described(object, down)))?;
    match state::is_suspended(object) {
        true => session.hint("to resume it", "resume", name),
        false => session.hint("to see what it waits for", "why", name),
    }
}

/// Prints the results of the objects that have ended, and the next commands.
fn ended(session: &mut Session<'_>, awaited: &[Awaited]) -> io::Result<()> {
    for one in awaited {
        match (one.end, &one.run) {
            (Some(End::Reached(exit)), run) => {
                if let Some(run) = run {
                    session.print(&result::block(run))?;
                }
                if exit == Exit::Failed {
                    let purpose = format!("to see why '{}' failed", one.name.name);
                    session.hint(&purpose, "why", &one.name)?;
                }
            }
            (Some(End::Suspended), Some(run)) => stopped(session, "not waiting", run, None)?,
            (Some(End::NotFound | End::Deleted), _) => {
                let what = match one.name.is_run() {
                    true => "runs".to_owned(),
                    false => format!("{}s", one.name.kind.name()),
                };
                let get = session.command(&format!("get {}", one.name.kind.listed));
                session.remark(&format!("  to see which {what} there are: {get}"))?;
            }
            (Some(End::Suspended) | None, _) => {}
        }
    }
    Ok(())
}

/// The output: a block that is redrawn on a terminal, otherwise one line per change.
struct View {
    is_live: bool,
    started: Timestamp,
    /// Number of lines on the screen that the next redraw replaces.
    height: usize,
    /// The error that prevents us from reading the state of the objects.
    trouble: Option<String>,
}

impl View {
    fn new(session: &Session<'_>) -> Self {
        Self {
            is_live: session.room().is_some(),
            started: session.now(),
            height: 0,
            trouble: None,
        }
    }

    /// Prints an error of the watch. The same error is printed only once.
    fn remark(&mut self, session: &mut Session<'_>, words: Option<String>) -> io::Result<()> {
        if words.is_some() && words != self.trouble {
            let said = words.as_deref().unwrap_or_default();
            session.remark(&format!("{said}; trying again"))?;
            self.trouble = words;
            // The lines above were printed before the remark and must not be redrawn.
            self.height = 0;
        }
        Ok(())
    }

    fn show(
        &mut self,
        session: &mut Session<'_>,
        awaited: &mut [Awaited],
        is_last: bool,
    ) -> io::Result<()> {
        let now = session.now();
        if self.is_live {
            let (width, height) = session.screen();
            let mut lines: Vec<Line> = Vec::new();
            for one in awaited.iter() {
                lines.extend(one.lines(now, width, awaited.len() == 1));
            }
            // Lines that leave the screen cannot be redrawn.
            lines.truncate(height.saturating_sub(2).max(1));
            if !is_last {
                let waited = span(between(self.started, now));
                let words = format!("waited {waited}; Ctrl-C ends the waiting, not the run");
                lines.push((Tone::Dim, words));
            }
            let back = match self.height {
                0 => String::new(),
                // The user may have typed something and moved the cursor.
                height => format!("\r\u{1b}[{height}A\u{1b}[J"),
            };
            self.height = lines.len();
            let drawn = timeline::drawn(&lines, width, session.paint);
            return session.print(&format!("{back}{drawn}"));
        }
        for one in awaited {
            if let Some(words) = one.sentence()
                && words != one.said
            {
                session.line(&format!("{} {words}", moment(now)))?;
                one.said = words;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use api::{tasks::TASK_RUN, tenants::TENANT};
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use crate::state::tests::{a_run, a_tenant, condition};

    fn seen(object: Object) -> DynamicObject {
        DynamicObject {
            types: None,
            metadata: object.metadata,
            data: object.data,
        }
    }

    fn run(uid: &str, reason: Option<&str>) -> DynamicObject {
        let value = if reason == Some("Succeeded") {
            "True"
        } else {
            "False"
        };
        let status = match reason {
            Some(reason) => json!({ "contextVersion": 1, "conditions": [
                condition("Finished", "True", reason), condition("Succeeded", value, reason)] }),
            None => json!({ "phase": "Pending" }),
        };
        let mut run = seen(a_run(&json!({}), &status));
        run.metadata.uid = Some(uid.to_owned());
        run
    }

    fn tenant(generation: i64, phase: &str, ready: &str) -> DynamicObject {
        let status = json!({ "phase": phase, "observedGeneration": 1,
            "conditions": [condition("Ready", ready, "X")] });
        seen(a_tenant(generation, &status))
    }

    /// The Tenant must be ready for its latest spec.
    #[test]
    fn a_tenant_is_waited_for_until_it_is_ready() {
        let cases: Vec<(Vec<Event<DynamicObject>>, u8)> = vec![
            (vec![Event::Init, Event::InitDone], 5),
            (vec![Event::Apply(tenant(1, "Provisioning", "False"))], 3),
            (vec![Event::Apply(tenant(1, "Degraded", "False"))], 3),
            (vec![Event::Apply(tenant(1, "Running", "True"))], 0),
            (vec![Event::Apply(tenant(2, "Running", "True"))], 3),
            (vec![Event::Apply(tenant(1, "Failed", "False"))], 1),
            (
                vec![
                    Event::Apply(tenant(1, "Degraded", "False")),
                    Event::Apply(tenant(1, "Running", "True")),
                ],
                0,
            ),
            (
                vec![
                    Event::Apply(tenant(1, "Degraded", "False")),
                    Event::Delete(tenant(1, "Degraded", "False")),
                ],
                5,
            ),
        ];
        for (number, (events, wanted)) in cases.into_iter().enumerate() {
            let mut one = Awaited::new(&ObjectName::new(&TENANT, "acme"));
            for event in events {
                one.observe(event);
            }
            assert_eq!(one.exit().code(), wanted, "case {number}");
        }
    }

    #[test]
    fn the_end_of_the_waiting_is_the_exit_code() {
        let going = || run("a", None);
        let done = |reason| run("a", Some(reason));
        let held = || {
            let mut held = going();
            held.data["spec"]["suspend"] = json!(true);
            held
        };
        let cases: Vec<(Vec<Event<DynamicObject>>, u8)> = vec![
            (vec![Event::Init], 3),
            (vec![Event::Init, Event::InitDone], 5),
            (
                vec![Event::Init, Event::InitApply(going()), Event::InitDone],
                3,
            ),
            (vec![Event::InitApply(done("Succeeded"))], 0),
            (
                vec![Event::InitApply(going()), Event::Apply(done("OOMKilled"))],
                1,
            ),
            (vec![Event::Apply(done("Cancelled"))], 4),
            (vec![Event::Apply(going()), Event::Delete(going())], 5),
            // The connection was lost meanwhile.
            (vec![Event::Apply(going()), Event::Init, Event::InitDone], 5),
            (
                vec![
                    Event::Apply(going()),
                    Event::Init,
                    Event::InitApply(going()),
                    Event::InitDone,
                ],
                3,
            ),
            (
                vec![
                    Event::Apply(going()),
                    Event::Init,
                    Event::InitApply(run("b", Some("Succeeded"))),
                ],
                5,
            ),
            // After the first result, later events are ignored.
            (
                vec![Event::Apply(done("Succeeded")), Event::Delete(going())],
                0,
            ),
            // A suspended run ends the waiting, unless it is resumed before the others have ended.
            (vec![Event::InitApply(held())], 3),
            (
                vec![Event::Apply(held()), Event::Apply(done("Succeeded"))],
                0,
            ),
        ];
        for (number, (events, wanted)) in cases.into_iter().enumerate() {
            let mut one = Awaited::new(&ObjectName::new(&TASK_RUN, "shop-7"));
            for event in events {
                one.observe(event);
            }
            assert_eq!(one.exit().code(), wanted, "case {number}");
        }
        let mut one = Awaited::new(&ObjectName::new(&TASK_RUN, "shop-7"));
        one.observe(Event::Apply(held()));
        assert_eq!(one.end, Some(End::Suspended));
        one.observe(Event::Apply(going()));
        assert_eq!(one.end, None, "resumed while others are waited for");
    }
}
