//! The order of requests: fair per namespace, bounded per namespace and per host.
//!
//! It sends nothing and reads no clock.

use std::collections::{BTreeMap, HashMap, VecDeque};

use api::external::Load;

/// Maximum numbers of requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Requests in flight, in total.
    pub(super) in_flight: usize,
    /// Requests in flight to one host.
    pub(super) per_host: usize,
    /// Requests in flight of one namespace. Without it, the owner of a domain could evade the limit
    /// per host with many host names.
    pub(super) per_namespace: usize,
    /// Requests of one namespace that wait.
    pub(super) waiting: usize,
}

/// Namespace and host of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) namespace: String,
    pub(super) host: String,
}

/// Requests that wait, and the number of those in flight.
///
/// # Guarantees
/// The next request is one of the namespace with the fewest requests in flight. Of several such
/// namespaces, it is the one that has waited longest since its last start. So a namespace with
/// thousands of requests to slow servers does not delay the others.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    limits: Limits,
    /// Namespaces with requests that wait or are in flight.
    namespaces: BTreeMap<String, Namespace<T>>,
    /// Number of requests in flight, by host.
    hosts: HashMap<String, usize>,
    in_flight: usize,
    /// The last turn that was given to a namespace.
    turns: u64,
}

#[derive(Debug)]
struct Namespace<T> {
    /// Host and request, oldest first.
    waiting: VecDeque<(String, T)>,
    in_flight: usize,
    /// Turn of its last start, or of its first request.
    turn: u64,
}

impl<T> FairQueue<T> {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            namespaces: BTreeMap::new(),
            hosts: HashMap::new(),
            in_flight: 0,
            turns: 0,
        }
    }

    /// Adds a request. Returns whether its namespace has room for it.
    #[must_use]
    pub(super) fn push(&mut self, place: Place, request: T) -> bool {
        self.turns += 1;
        let turn = self.turns;
        let namespace = self
            .namespaces
            .entry(place.namespace)
            .or_insert_with(|| Namespace {
                waiting: VecDeque::new(),
                in_flight: 0,
                turn,
            });
        let has_room = namespace.waiting.len() < self.limits.waiting;
        if has_room {
            namespace.waiting.push_back((place.host, request));
        }
        has_room
    }

    /// Removes the next request that may start. It counts as in flight until [`FairQueue::finish`].
    pub(super) fn start_next(&mut self) -> Option<(Place, T)> {
        if self.in_flight >= self.limits.in_flight {
            return None;
        }
        let (limits, hosts) = (self.limits, &self.hosts);
        let is_free = |host: &str| {
            let count = hosts.get(host).copied().unwrap_or(0);
            count < limits.per_host
        };
        let (name, index) = self
            .namespaces
            .iter()
            .filter(|(_, known)| known.in_flight < limits.per_namespace)
            .filter_map(|(name, known)| {
                let index = known.waiting.iter().position(|(host, _)| is_free(host))?;
                Some(((known.in_flight, known.turn), name, index))
            })
            .min_by_key(|(rank, _, _)| *rank)
            .map(|(_, name, index)| (name.clone(), index))?;
        let known = self.namespaces.get_mut(&name)?;
        let (host, request) = known.waiting.remove(index)?;
        self.turns += 1;
        known.turn = self.turns;
        known.in_flight += 1;
        self.in_flight += 1;
        *self.hosts.entry(host.clone()).or_default() += 1;
        let place = Place {
            namespace: name,
            host,
        };
        Some((place, request))
    }

    /// Records the end of a request that was in flight.
    pub(super) fn finish(&mut self, place: &Place) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some(count) = self.hosts.get_mut(&place.host) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.hosts.remove(&place.host);
            }
        }
        if let Some(known) = self.namespaces.get_mut(&place.namespace) {
            known.in_flight = known.in_flight.saturating_sub(1);
        }
        self.drop_idle(&place.namespace);
    }

    /// Removes the requests of a namespace that wait and for which `is_dropped` returns true.
    pub(super) fn remove(&mut self, namespace: &str, is_dropped: impl Fn(&T) -> bool) {
        if let Some(known) = self.namespaces.get_mut(namespace) {
            known.waiting.retain(|(_, request)| !is_dropped(request));
        }
        self.drop_idle(namespace);
    }

    /// Removes all requests that wait. Those in flight still count.
    pub(super) fn clear_waiting(&mut self) {
        self.namespaces.retain(|_, known| {
            known.waiting.clear();
            known.in_flight > 0
        });
    }

    fn drop_idle(&mut self, namespace: &str) {
        let is_idle = |known: &Namespace<T>| known.in_flight == 0 && known.waiting.is_empty();
        if self.namespaces.get(namespace).is_some_and(is_idle) {
            self.namespaces.remove(namespace);
        }
    }

    /// Returns the numbers of requests, for a message about a request of this namespace. The queue does not know the
    /// objects of the requests.
    pub(super) fn load(&self, namespace: &str) -> Load {
        let known = self.namespaces.get(namespace);
        Load {
            in_flight: self.in_flight,
            in_flight_here: known.map_or(0, |known| known.in_flight),
            waiting_here: known.map_or(0, |known| known.waiting.len()),
            is_own_in_flight: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        in_flight: 32,
        per_host: 4,
        per_namespace: 8,
        waiting: 1000,
    };

    fn place(namespace: &str, host: &str) -> Place {
        Place {
            namespace: namespace.to_owned(),
            host: host.to_owned(),
        }
    }

    /// Starts all requests that may start.
    fn start(queue: &mut FairQueue<u32>) -> Vec<Place> {
        std::iter::from_fn(|| queue.start_next())
            .map(|(place, _)| place)
            .collect()
    }

    #[test]
    fn one_host_leaves_room_for_the_others() {
        let mut queue = FairQueue::new(LIMITS);
        for number in 0..900 {
            assert!(queue.push(place("a", "slow"), number));
        }
        assert!(queue.push(place("a", "quick"), 900));
        let started = start(&mut queue);
        assert_eq!(started.len(), LIMITS.per_host + 1);
        assert_eq!(started.last(), Some(&place("a", "quick")));
        // A namespace with many host names leaves room for other namespaces.
        for number in 0..50 {
            assert!(queue.push(place("a", &format!("host-{number}")), number));
        }
        assert!(queue.push(place("b", "quick"), 0));
        let started = start(&mut queue);
        assert_eq!(queue.in_flight, LIMITS.per_namespace + 1);
        assert!(started.contains(&place("b", "quick")));
        for number in 0..100 {
            let place = place(&format!("namespace-{number}"), &format!("host-{number}"));
            assert!(queue.push(place, number));
        }
        start(&mut queue);
        assert_eq!(queue.in_flight, LIMITS.in_flight);
    }

    /// Four namespaces with slow servers had all requests in flight, and thousands that waited. Each free
    /// place went to the oldest of these.
    #[test]
    fn a_namespace_with_thousands_of_requests_does_not_delay_another() {
        let mut queue = FairQueue::new(LIMITS);
        for namespace in ["a", "b", "c", "d"] {
            for number in 0..1000 {
                let host = format!("{namespace}-{number}");
                assert!(queue.push(place(namespace, &host), number));
            }
        }
        let slow = start(&mut queue);
        assert_eq!(slow.len(), LIMITS.in_flight);
        assert!(queue.push(place("victim", "quick"), 0));
        assert!(start(&mut queue).is_empty(), "all places are taken");
        queue.finish(&slow[0]);
        assert_eq!(start(&mut queue), [place("victim", "quick")]);
        // Also if the owner of the slow servers has many namespaces, which wait for a shorter time.
        assert!(queue.push(place("victim-2", "quick"), 0));
        for number in 0..500 {
            let name = format!("a-{number}");
            assert!(queue.push(place(&name, &name), number));
        }
        queue.finish(&slow[1]);
        assert_eq!(start(&mut queue), [place("victim-2", "quick")]);
    }

    #[test]
    fn namespaces_take_turns() {
        let limits = Limits {
            in_flight: 1,
            ..LIMITS
        };
        let mut queue = FairQueue::new(limits);
        for namespace in ["c", "a", "b"] {
            for number in 0..2 {
                assert!(queue.push(place(namespace, "host"), number));
            }
        }
        let mut order = Vec::new();
        while let Some((place, _)) = queue.start_next() {
            queue.finish(&place);
            order.push(place.namespace);
        }
        assert_eq!(order, ["c", "a", "b", "c", "a", "b"]);
        assert!(queue.namespaces.is_empty() && queue.hosts.is_empty());
        assert_eq!(queue.in_flight, 0);
    }

    #[test]
    fn the_requests_of_a_namespace_that_wait_are_bounded() {
        let limits = Limits {
            waiting: 3,
            ..LIMITS
        };
        let mut queue = FairQueue::new(limits);
        let fits = |queue: &mut FairQueue<u32>, namespace: &str, count: u32| {
            let pushed = (0..count).map(|number| queue.push(place(namespace, "host"), number));
            pushed.filter(|has_room| *has_room).count()
        };
        assert_eq!(fits(&mut queue, "a", 5), 3);
        assert_eq!(fits(&mut queue, "b", 2), 2, "another namespace has room");
        start(&mut queue);
        let load = Load {
            in_flight: 4,
            in_flight_here: 2,
            waiting_here: 1,
            is_own_in_flight: false,
        };
        assert_eq!(queue.load("a"), load);
        assert_eq!(fits(&mut queue, "a", 5), 2, "those in flight do not wait");
        assert_eq!(queue.load("other").waiting_here, 0);
    }

    #[test]
    fn removed_requests_leave_their_room_and_no_trace() {
        let limits = Limits {
            in_flight: 1,
            waiting: 2,
            ..LIMITS
        };
        let mut queue = FairQueue::new(limits);
        assert!(queue.push(place("a", "host"), 0));
        let first = start(&mut queue).remove(0);
        for number in [1, 2] {
            assert!(queue.push(place("a", "host"), number));
            assert!(queue.push(place("b", "host"), number));
        }
        assert!(!queue.push(place("a", "host"), 3), "full");
        queue.remove("a", |number| *number == 1);
        assert!(queue.push(place("a", "host"), 3), "one was removed");
        queue.remove("b", |_| true);
        assert!(!queue.namespaces.contains_key("b"));
        queue.remove("unknown", |_| true);

        queue.clear_waiting();
        let load = Load {
            in_flight: 1,
            in_flight_here: 1,
            waiting_here: 0,
            is_own_in_flight: false,
        };
        assert_eq!(queue.load("a"), load, "it is still in flight");
        queue.finish(&first);
        assert!(queue.namespaces.is_empty() && queue.hosts.is_empty());
    }
}
