//! `wait`, and the waiting of other verbs.

use std::{io, time::Duration};

use actions::{Outcome, Request, Run, RunKind};
use api::{
    Timestamp,
    tasks::{DocsRun, TaskRun},
};
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use kube::{
    Api,
    runtime::{WatchStreamExt, watcher},
};

use crate::{
    Exit,
    arguments::{Wait, Waiting},
    failure::Failure,
    run::AnyRun,
    session::{Server, Session},
    target::{Kind, RunName},
    text::{Tone, between, moment, span},
    verbs::timeline::{self, Line},
    watching::{Trouble, trouble},
};

/// How often a live timeline is drawn anew.
const TICK: Duration = Duration::from_secs(1);

pub(crate) async fn perform(verb: Wait, session: &mut Session<'_>) -> Result<Exit, Failure> {
    let server = session.server().await?;
    let mut runs: Vec<RunName> = Vec::new();
    for run in verb.runs {
        if !runs.contains(&run) {
            runs.push(run);
        }
    }
    until_finished(session, &server, &runs, verb.timeout).await
}

/// After something was started: waits for it, or says how to.
pub(crate) async fn afterwards(
    session: &mut Session<'_>,
    server: &Server,
    run: RunName,
    waiting: &Waiting,
) -> Result<Exit, Failure> {
    if waiting.wait {
        return until_finished(session, server, &[run], waiting.timeout).await;
    }
    let next = session.command(&format!("wait {}", run.argument()));
    session.line(&format!("  to follow it: {next}"))?;
    Ok(Exit::Ok)
}

/// How the waiting for one run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Finished(Outcome),
    NotFound,
    Deleted,
}

/// One run that is waited for.
#[derive(Debug, Clone)]
struct Awaited {
    name: RunName,
    run: Option<AnyRun>,
    is_listed: bool,
    end: Option<End>,
    said: String,
}

impl Awaited {
    fn new(name: &RunName) -> Self {
        Self {
            name: name.clone(),
            run: None,
            is_listed: false,
            end: None,
            said: String::new(),
        }
    }

    /// What ended stays ended.
    fn observe(&mut self, event: watcher::Event<AnyRun>) {
        if self.end.is_some() {
            return;
        }
        match event {
            watcher::Event::Init => self.is_listed = false,
            watcher::Event::InitApply(run) | watcher::Event::Apply(run) => {
                self.is_listed = true;
                let known = self.run.as_ref().map(|known| &known.meta().uid);
                if known.is_some_and(|uid| *uid != run.meta().uid) {
                    // Another one of the same name: ours is gone.
                    self.end = Some(End::Deleted);
                    return;
                }
                self.end = run.outcome().map(End::Finished);
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
        match &self.end {
            Some(End::Finished(outcome)) => Exit::of_outcome(outcome),
            Some(End::NotFound | End::Deleted) => Exit::NotFound,
            None => Exit::Timeout,
        }
    }

    fn sentence(&self) -> Option<String> {
        match (&self.end, &self.run) {
            (Some(End::NotFound), _) => Some(format!("{} ✗ not found", self.name.name)),
            (Some(End::Deleted), _) => Some(format!(
                "{} ✗ deleted while it was waited for",
                self.name.name
            )),
            (Some(End::Finished(_)) | None, Some(run)) => Some(timeline::sentence(run)),
            (Some(End::Finished(_)) | None, None) => None,
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

/// Waits until all runs have finished, were deleted, or time is up; exits by how they ended.
pub(crate) async fn until_finished(
    session: &mut Session<'_>,
    server: &Server,
    runs: &[RunName],
    limit: Option<Duration>,
) -> Result<Exit, Failure> {
    let mut awaited: Vec<Awaited> = runs.iter().map(Awaited::new).collect();
    let mut events = stream::select_all(runs.iter().enumerate().map(|(index, run)| {
        let events = match run.kind {
            RunKind::Task => watch::<TaskRun>(server, &run.name),
            RunKind::Docs => watch::<DocsRun>(server, &run.name),
        };
        events.map(move |event| (index, event)).boxed()
    }));
    let mut view = View::new(session);
    let mut tick = tokio::time::interval(TICK);
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
            // Time that is up must not lose against a busy stream.
            biased;
            () = &mut time_up => {
                view.show(session, &mut awaited, Moment::Last)?;
                return timed_out(session, &awaited, limit, view.trouble);
            }
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                view.show(session, &mut awaited, Moment::Last)?;
                return left(session, &awaited);
            }
            Some((index, event)) = events.next() => match (event, awaited.get_mut(index)) {
                (Ok(event), Some(one)) => {
                    // Only `Init` comes without an answer of the server.
                    if !matches!(event, watcher::Event::Init) {
                        view.trouble = None;
                    }
                    one.observe(event);
                }
                (Ok(_), None) => {}
                (Err(error), one) => {
                    if let Some(RunName { kind, name }) = one.map(|one| &one.name) {
                        let request = Request::of_kind(*kind, "watch", &server.namespace, name);
                        match trouble(error, request) {
                            Trouble::Fatal(failure) => return Err(failure),
                            Trouble::Passing(words) => remark = Some(words),
                        }
                    }
                }
            },
            _ = tick.tick(), if view.is_live => {}
        }
        view.remark(session, remark)?;
        let is_over = awaited.iter().all(|one| one.end.is_some());
        let at = if is_over { Moment::Last } else { Moment::Going };
        view.show(session, &mut awaited, at)?;
        if is_over {
            return ended(session, &awaited);
        }
    }
}

type Seen = Result<watcher::Event<AnyRun>, watcher::Error>;

/// What happens to one run.
fn watch<R>(server: &Server, name: &str) -> BoxStream<'static, Seen>
where
    R: Run + Send + Sync + 'static,
    AnyRun: From<R>,
{
    let runs: Api<R> = Api::namespaced(server.client.clone(), &server.namespace);
    let which = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let events = watcher(runs, which).default_backoff();
    events.map(|event| event.map(of_any)).boxed()
}

fn of_any<R>(event: watcher::Event<R>) -> watcher::Event<AnyRun>
where
    AnyRun: From<R>,
{
    match event {
        watcher::Event::Apply(run) => watcher::Event::Apply(run.into()),
        watcher::Event::Delete(run) => watcher::Event::Delete(run.into()),
        watcher::Event::Init => watcher::Event::Init,
        watcher::Event::InitApply(run) => watcher::Event::InitApply(run.into()),
        watcher::Event::InitDone => watcher::Event::InitDone,
    }
}

fn timed_out(
    session: &mut Session<'_>,
    awaited: &[Awaited],
    limit: Option<Duration>,
    trouble: Option<String>,
) -> Result<Exit, Failure> {
    let seconds = limit.map_or(0, |limit| {
        i64::try_from(limit.as_secs()).unwrap_or(i64::MAX)
    });
    if let Some(trouble) = trouble {
        // Unknown is not "still running".
        return Err(Failure::client(format!(
            "time is up after {}, and how it stands is not known: {trouble}",
            span(seconds)
        )));
    }
    let going = awaited.iter().filter(|one| one.end.is_none());
    for run in going.map(|one| one.name.clone()) {
        let why = session.command(&format!("why {}", run.argument()));
        session.remark(&format!(
            "time is up after {}: {run} goes on\n  to see what it waits for: {why}",
            span(seconds)
        ))?;
    }
    Ok(Exit::gravest(awaited.iter().map(Awaited::exit)))
}

/// Ctrl-C ends the waiting only.
fn left(session: &mut Session<'_>, awaited: &[Awaited]) -> Result<Exit, Failure> {
    let going = awaited.iter().filter(|one| one.end.is_none());
    for run in going.map(|one| one.name.clone()) {
        let (wait, cancel) = (
            session.command(&format!("wait {}", run.argument())),
            session.command(&format!("cancel {}", run.argument())),
        );
        session.remark(&format!(
            "no longer waiting: {run} goes on\n  to wait again: {wait}\n  to stop it for good: {cancel}"
        ))?;
    }
    Ok(Exit::gravest(awaited.iter().map(Awaited::exit)))
}

fn ended(session: &mut Session<'_>, awaited: &[Awaited]) -> Result<Exit, Failure> {
    for one in awaited {
        match one.exit() {
            Exit::Failed => {
                let why = session.command(&format!("why {}", one.name.argument()));
                session.remark(&format!("  to see why '{}' failed: {why}", one.name.name))?;
            }
            Exit::NotFound => {
                let get = session.command(&format!("get {}", Kind::Run(one.name.kind).listed()));
                session.remark(&format!("  to see which runs there are: {get}"))?;
            }
            Exit::Ok | Exit::Client | Exit::Timeout | Exit::Denied => {}
        }
    }
    Ok(Exit::gravest(awaited.iter().map(Awaited::exit)))
}

/// Whether more will be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Going,
    Last,
}

/// What is shown: a block that is drawn over on a terminal, otherwise a line per change.
struct View {
    is_live: bool,
    started: Timestamp,
    /// Lines on the screen that the next drawing replaces.
    height: usize,
    /// What keeps us from seeing how the runs stand.
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

    /// The same trouble is said once.
    fn remark(&mut self, session: &mut Session<'_>, words: Option<String>) -> io::Result<()> {
        if words.is_some() && words != self.trouble {
            let said = words.as_deref().unwrap_or_default();
            session.remark(&format!("{said}; trying again"))?;
            self.trouble = words;
            // What is above belongs to the remark now.
            self.height = 0;
        }
        Ok(())
    }

    fn show(
        &mut self,
        session: &mut Session<'_>,
        awaited: &mut [Awaited],
        at: Moment,
    ) -> io::Result<()> {
        let now = session.now();
        if self.is_live {
            let (width, height) = session.screen();
            let mut lines: Vec<Line> = Vec::new();
            for one in awaited.iter() {
                lines.extend(one.lines(now, width, awaited.len() == 1));
            }
            // What leaves the screen cannot be drawn over.
            lines.truncate(height.saturating_sub(2).max(1));
            if at == Moment::Going {
                let waited = span(between(self.started, now));
                let words = format!("waited {waited}; Ctrl-C ends the waiting, not the run");
                lines.push((Tone::Dim, words));
            }
            let back = match self.height {
                0 => String::new(),
                // Whoever typed something moved the cursor.
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
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use crate::run::tests::{a_run, condition};

    fn run(uid: &str, reason: Option<&str>) -> AnyRun {
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
        let AnyRun::Task(mut run) = a_run(&json!({}), &status) else {
            panic!("no TaskRun");
        };
        run.metadata.uid = Some(uid.to_owned());
        AnyRun::Task(run)
    }

    #[test]
    fn the_end_of_the_waiting_is_the_exit_code() {
        let going = || run("a", None);
        let done = |reason| run("a", Some(reason));
        let cases: Vec<(Vec<Event<AnyRun>>, u8)> = vec![
            (vec![Event::Init], 3),
            (vec![Event::Init, Event::InitDone], 5),
            (
                vec![Event::Init, Event::InitApply(going()), Event::InitDone],
                3,
            ),
            (vec![Event::InitApply(done("Succeeded"))], 0),
            (
                vec![Event::InitApply(going()), Event::Apply(done("StepOOM"))],
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
            // What ended stays ended.
            (
                vec![Event::Apply(done("Succeeded")), Event::Delete(going())],
                0,
            ),
        ];
        for (number, (events, wanted)) in cases.into_iter().enumerate() {
            let mut one = Awaited::new(&"shop-7".parse().unwrap());
            for event in events {
                one.observe(event);
            }
            assert_eq!(one.exit().code(), wanted, "case {number}");
        }
    }
}
