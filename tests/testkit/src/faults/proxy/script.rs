//! What has been asked, and what the script does about it. Pure: no sockets, no clock.

use std::{collections::HashMap, time::Instant};

use super::super::{
    classify::{Asked, Start},
    point::{Fault, Injection, Point, Route, WatchFault},
};

/// One request that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traced {
    /// When it was read whole.
    pub at: Instant,
    /// What it asked for, counted by its route and name.
    pub point: Point,
    /// Of the object; empty for cluster-scoped ones and lists over all namespaces.
    pub namespace: String,
    /// The server's; none if it was not forwarded or no answer came.
    pub code: Option<u16>,
    /// What was done to it.
    pub fault: Option<Fault>,
}

/// Requests of one play; the longest has some thousands. More than this is a loop without a pause.
const TRACE: usize = 200_000;

/// How far a watch fault that waits for events has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Seen(u32),
    /// The next watch that resumes is answered with 410.
    Gone,
    /// Nothing is delivered until then.
    Silent(Instant),
    Over,
}

/// What is to be done with a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Its place in the trace.
    pub(super) number: usize,
    /// With the injection that does it.
    pub(super) fault: Option<(usize, Fault)>,
    /// A watch to be answered with 410.
    pub(super) is_gone: bool,
}

/// What is to be done with an event whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Pass,
    /// The stream ends after it.
    Last,
    /// The stream ends before it.
    End,
}

#[derive(Debug)]
pub(super) struct ScriptState {
    script: Vec<Injection>,
    hits: Vec<bool>,
    progress: Vec<Progress>,
    by_name: HashMap<(Route, String), u32>,
    by_route: HashMap<Route, u32>,
    trace: Vec<Traced>,
    is_calm: bool,
}

impl ScriptState {
    pub(super) fn new(script: Vec<Injection>) -> Self {
        Self {
            hits: vec![false; script.len()],
            progress: vec![Progress::Seen(0); script.len()],
            script,
            by_name: HashMap::new(),
            by_route: HashMap::new(),
            trace: Vec::new(),
            is_calm: false,
        }
    }

    /// Notes a request; none if there were too many already. `start` is that of a watch.
    pub(super) fn arrive(
        &mut self,
        at: Instant,
        asked: &Asked,
        start: Option<Start>,
    ) -> Option<Arrival> {
        if self.trace.len() >= TRACE {
            return None;
        }
        let Asked {
            route,
            group: _,
            namespace,
            name,
        } = asked;
        let of_name = add(&mut self.by_name, (route.clone(), name.clone()));
        let of_route = add(&mut self.by_route, route.clone());
        let fault = self.fault(route, name, of_name, of_route);
        let is_gone = fault.is_none()
            && start == Some(Start::Resumed)
            && self.take_gone(route.resource.as_str());
        self.trace.push(Traced {
            at,
            point: Point {
                route: route.clone(),
                name: name.clone(),
                nth: of_name,
            },
            namespace: namespace.clone(),
            code: None,
            fault: fault.map(|(_, fault)| fault),
        });
        Some(Arrival {
            number: self.trace.len() - 1,
            fault,
            is_gone,
        })
    }

    fn fault(
        &self,
        route: &Route,
        name: &str,
        of_name: u32,
        of_route: u32,
    ) -> Option<(usize, Fault)> {
        if self.is_calm {
            return None;
        }
        let hits = |injection: &Injection| match injection {
            Injection::Request {
                point,
                fault,
                times,
            } => {
                let count = if point.name.is_empty() {
                    of_route
                } else {
                    of_name
                };
                let is_meant =
                    point.route == *route && (point.name.is_empty() || point.name == name);
                let is_its_turn = (point.nth..point.nth.saturating_add(*times)).contains(&count);
                (is_meant && is_its_turn).then_some(*fault)
            }
            Injection::Watch { .. } => None,
        };
        self.script
            .iter()
            .enumerate()
            .find_map(|(index, injection)| Some((index, hits(injection)?)))
    }

    fn take_gone(&mut self, plural: &str) -> bool {
        let waiting = self
            .watch_faults(plural)
            .find(|(index, _)| self.progress.get(*index) == Some(&Progress::Gone));
        match waiting {
            Some((index, _)) if !self.is_calm => {
                self.set(index, Progress::Over);
                self.hit(index);
                true
            }
            Some(_) | None => false,
        }
    }

    /// The server's answer to a request.
    pub(super) fn answered(&mut self, number: usize, code: u16) {
        if let Some(traced) = self.trace.get_mut(number) {
            traced.code = Some(code);
        }
    }

    /// This injection was carried out.
    pub(super) fn hit(&mut self, injection: usize) {
        if let Some(hit) = self.hits.get_mut(injection) {
            *hit = true;
        }
    }

    /// Whether the lines of this resource's watches matter.
    pub(super) fn has_watch_fault(&self, plural: &str) -> bool {
        self.watch_faults(plural).next().is_some()
    }

    /// An event came from the server: how it is to be held back, if at all.
    pub(super) fn hold(&mut self, plural: &str) -> Option<WatchFault> {
        if self.is_calm {
            return None;
        }
        let (index, fault) = self.watch_faults(plural).find(|(_, fault)| match fault {
            WatchFault::Stale(_) | WatchFault::Collapsed(_) => true,
            WatchFault::Cut(_)
            | WatchFault::Gone(_)
            | WatchFault::MissedDeletion
            | WatchFault::Silent(_) => false,
        })?;
        self.hit(index);
        Some(fault)
    }

    /// Returns until when the watches of this resource deliver nothing. An event about an object of the play
    /// begins the silence, once.
    pub(super) fn silence(
        &mut self,
        plural: &str,
        is_own_event: bool,
        now: Instant,
    ) -> Option<Instant> {
        if self.is_calm {
            return None;
        }
        let (index, fault) = self
            .watch_faults(plural)
            .find(|(_, fault)| matches!(fault, WatchFault::Silent(_)))?;
        match self.progress.get(index)? {
            Progress::Seen(_) if is_own_event => {
                let until = now + fault.silence();
                self.set(index, Progress::Silent(until));
                self.hit(index);
                Some(until)
            }
            Progress::Silent(until) if now < *until => Some(*until),
            Progress::Seen(_) | Progress::Silent(_) | Progress::Gone | Progress::Over => None,
        }
    }

    /// The turn of an event has come to be delivered. `is_own_deletion` is whether it deletes an object of the play.
    pub(super) fn event(&mut self, plural: &str, is_own_deletion: bool) -> Turn {
        if self.is_calm {
            return Turn::Pass;
        }
        let waiting: Vec<(usize, u32, u32, bool)> = self
            .watch_faults(plural)
            .filter_map(|(index, fault)| {
                let (limit, is_gone) = match fault {
                    WatchFault::Cut(limit) => (limit, false),
                    WatchFault::Gone(limit) => (limit, true),
                    WatchFault::MissedDeletion if is_own_deletion => (0, true),
                    WatchFault::MissedDeletion
                    | WatchFault::Stale(_)
                    | WatchFault::Collapsed(_)
                    | WatchFault::Silent(_) => return None,
                };
                match self.progress.get(index) {
                    Some(Progress::Seen(seen)) => Some((index, *seen, limit, is_gone)),
                    Some(Progress::Gone | Progress::Silent(_) | Progress::Over) | None => None,
                }
            })
            .collect();
        let mut turn = Turn::Pass;
        for (index, seen, limit, is_gone) in waiting {
            let after = seen + 1;
            if after < limit {
                self.set(index, Progress::Seen(after));
                continue;
            }
            if turn != Turn::End {
                turn = if limit == 0 { Turn::End } else { Turn::Last };
            }
            if is_gone {
                self.set(index, Progress::Gone);
            } else {
                self.set(index, Progress::Over);
                self.hit(index);
            }
        }
        turn
    }

    pub(super) fn calm(&mut self) {
        self.is_calm = true;
    }

    pub(super) fn trace(&self) -> Vec<Traced> {
        self.trace.clone()
    }

    pub(super) fn hits(&self) -> Vec<bool> {
        self.hits.clone()
    }

    fn watch_faults(&self, plural: &str) -> impl Iterator<Item = (usize, WatchFault)> {
        self.script
            .iter()
            .enumerate()
            .filter_map(move |(index, injection)| match injection {
                Injection::Watch { resource, fault } => {
                    (resource == plural).then_some((index, *fault))
                }
                Injection::Request { .. } => None,
            })
    }

    fn set(&mut self, index: usize, progress: Progress) {
        if let Some(slot) = self.progress.get_mut(index) {
            *slot = progress;
        }
    }
}

fn add<K: Eq + std::hash::Hash>(counts: &mut HashMap<K, u32>, key: K) -> u32 {
    let count = counts.entry(key).or_insert(0);
    *count += 1;
    *count
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn asked(verb: &str, resource: &str, name: &str) -> Asked {
        Asked {
            route: Route::new(verb, resource),
            group: String::new(),
            namespace: "n".to_owned(),
            name: name.to_owned(),
        }
    }

    fn request(verb: &str, resource: &str, name: &str, nth: u32, times: u32) -> Injection {
        Injection::Request {
            point: Point {
                route: Route::new(verb, resource),
                name: name.to_owned(),
                nth,
            },
            fault: Fault::Reset,
            times,
        }
    }

    fn watch(fault: WatchFault) -> Injection {
        Injection::Watch {
            resource: "jobs".to_owned(),
            fault,
        }
    }

    #[test]
    fn the_nth_is_hit_by_name_or_by_route() {
        let sequence = ["a", "b", "a", "b", "a"];
        let cases: [(Injection, &[usize]); 8] = [
            (request("create", "jobs", "a", 1, 1), &[0]),
            (request("create", "jobs", "a", 2, 1), &[2]),
            (request("create", "jobs", "a", 2, 9), &[2, 4]),
            (request("create", "jobs", "b", 1, 1), &[1]),
            (request("create", "jobs", "", 2, 3), &[1, 2, 3]),
            (request("create", "jobs", "a", 1, 0), &[]),
            (request("create", "jobs/status", "a", 1, 1), &[]),
            (request("patch", "jobs", "a", 1, 1), &[]),
        ];
        for (injection, wanted) in cases {
            let said = injection.to_string();
            let mut state = ScriptState::new(vec![injection]);
            let hit: Vec<usize> = sequence
                .iter()
                .filter_map(|name| {
                    let asked = asked("create", "jobs", name);
                    let arrival = state.arrive(Instant::now(), &asked, None)?;
                    arrival.fault.map(|_| arrival.number)
                })
                .collect();
            assert_eq!(hit, wanted, "{said}");
            let nth: Vec<u32> = state
                .trace()
                .iter()
                .map(|traced| traced.point.nth)
                .collect();
            assert_eq!(nth, [1, 1, 2, 2, 3], "{said}");
        }
    }

    #[test]
    fn streams_end_once_after_so_many_events() {
        use Turn::{End, Last, Pass};
        let cases: [(WatchFault, [Turn; 4]); 5] = [
            (WatchFault::Cut(0), [End, Pass, Pass, Pass]),
            (WatchFault::Cut(1), [Last, Pass, Pass, Pass]),
            (WatchFault::Cut(3), [Pass, Pass, Last, Pass]),
            (WatchFault::Gone(2), [Pass, Last, Pass, Pass]),
            (WatchFault::Stale(5), [Pass; 4]),
        ];
        for (fault, wanted) in cases {
            let mut state = ScriptState::new(vec![watch(fault)]);
            assert_eq!(state.event("pods", false), Pass);
            let turns = [(); 4].map(|()| state.event("jobs", false));
            assert_eq!(turns, wanted, "{fault}");
        }
    }

    #[test]
    fn a_stream_ends_in_place_of_the_first_deletion() {
        let mut state = ScriptState::new(vec![watch(WatchFault::MissedDeletion)]);
        assert_eq!(state.event("jobs", false), Turn::Pass);
        assert_eq!(state.event("pods", true), Turn::Pass);
        assert_eq!(state.event("jobs", true), Turn::End);
        assert_eq!(state.event("jobs", true), Turn::Pass);
        let asked = asked("watch", "jobs", "");
        let arrival = state.arrive(Instant::now(), &asked, Some(Start::Resumed));
        assert!(arrival.unwrap().is_gone);
    }

    #[test]
    fn gone_is_told_once_to_a_watch_that_resumes() {
        let mut state = ScriptState::new(vec![watch(WatchFault::Gone(1))]);
        let is_gone = |state: &mut ScriptState, resource: &str, start| {
            let asked = asked("watch", resource, "");
            let arrival = state.arrive(Instant::now(), &asked, Some(start));
            arrival.unwrap().is_gone
        };
        assert!(!is_gone(&mut state, "jobs", Start::Resumed));
        assert_eq!(state.event("jobs", false), Turn::Last);
        assert_eq!(state.hits(), [false], "nobody was told yet");
        assert!(!is_gone(&mut state, "pods", Start::Resumed));
        assert!(!is_gone(&mut state, "jobs", Start::Listing));
        assert!(!is_gone(&mut state, "jobs", Start::Anywhere));
        assert!(is_gone(&mut state, "jobs", Start::Resumed));
        assert!(!is_gone(&mut state, "jobs", Start::Resumed));
        assert_eq!(state.hits(), [true]);
    }

    #[test]
    fn a_silence_begins_with_an_event_of_the_play_and_comes_once() {
        let begin = Instant::now();
        let at = |second: u64| begin + Duration::from_secs(second);
        let mut state = ScriptState::new(vec![watch(WatchFault::Silent(15_000))]);
        for (resource, is_own_event, second, wanted) in [
            ("jobs", false, 1, None),
            ("pods", true, 2, None),
            ("jobs", true, 3, Some(18)),
            ("pods", true, 4, None),
            ("jobs", false, 17, Some(18)),
            ("jobs", true, 17, Some(18)),
            ("jobs", true, 18, None),
            ("jobs", true, 40, None),
        ] {
            let until = state.silence(resource, is_own_event, at(second));
            assert_eq!(until, wanted.map(at), "{resource} at {second} s");
        }
        assert_eq!(state.hits(), [true]);
        assert_eq!(state.hold("jobs"), None);
        assert_eq!(state.event("jobs", false), Turn::Pass);
    }

    #[test]
    fn when_calm_nothing_is_done() {
        let script = vec![
            request("create", "jobs", "", 1, 9),
            watch(WatchFault::Stale(5)),
            watch(WatchFault::Cut(1)),
            watch(WatchFault::Silent(5)),
        ];
        let mut state = ScriptState::new(script);
        state.calm();
        let arrival = state.arrive(Instant::now(), &asked("create", "jobs", "a"), None);
        assert_eq!(arrival.unwrap().fault, None);
        assert_eq!(state.hold("jobs"), None);
        assert_eq!(state.silence("jobs", true, Instant::now()), None);
        assert_eq!(state.event("jobs", false), Turn::Pass);
        assert_eq!(state.hits(), [false; 4]);
    }
}
