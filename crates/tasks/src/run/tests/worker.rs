//! A Job of the simulated cluster, with its controller, its Pods and their kubelet. It follows a
//! script, second by second.

use super::*;

/// Fate of a Job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Script {
    /// The container ends with this code.
    Ends { code: i32 },
    /// It ends with exit code 0, without the required result.
    Forgets,
    /// It is killed for its memory.
    Oom,
    /// It never starts, because of the image.
    NoImage,
    /// There is never a Pod, because of the quota.
    NoPod,
    /// It runs until it is stopped.
    Hangs,
    /// Its Pods are evicted and replaced, this number of times. Then one succeeds. On a node that
    /// was lost for a while, they take long to stop.
    Evicted { times: u32, stops: i64 },
    /// Another actor deletes its Pod. The Pod is asked to stop, ends with this code, and its Job
    /// ends. The Pod may be deleted by then.
    PodDeleted { code: i32, is_gone: bool },
    /// Its Pod is deleted before it is read, and its Job is complete.
    PodLost,
    /// Another actor deletes the Job. Its Pod outlives it.
    JobDeleted,
    /// Its node is lost: it can never be stopped, even if it is asked to.
    NodeLost { is_told: bool },
    /// It ends, and its Job never reports it.
    Silent,
}

/// Time until the Job controller reports the end of a Pod, in seconds.
const SETTLES: i64 = 2;
/// Time that a Pod takes to stop, in seconds.
const STOPS: i64 = 20;

/// One Pod, with its events and their times.
#[derive(Debug, Clone)]
struct Life {
    number: usize,
    created: i64,
    started: Option<i64>,
    asked: Option<i64>,
    /// Time since which the Pod's own limit is reached.
    limited: Option<i64>,
    is_evicted: bool,
    /// Stopped because its Job was suspended. The Job does not count it.
    is_held: bool,
    ended: Option<(i64, i32)>,
    gone: Option<i64>,
}

/// A Job, its script, and its history.
#[derive(Debug, Clone)]
pub(super) struct Worker {
    pub(super) view: JobView,
    pub(super) script: Script,
    /// Seconds from a Pod's creation to its container's start.
    pub(super) starts: i64,
    /// Seconds from there to the event of the script.
    pub(super) takes: i64,
    evictions: u32,
    pods: Vec<Life>,
    second: i64,
    gone: Option<i64>,
}

impl Worker {
    pub(super) fn new(view: JobView, script: Script, starts: i64, takes: i64) -> Self {
        let evictions = if let Script::Evicted { times, .. } = script {
            times
        } else {
            0
        };
        let second = view.created.unwrap().as_second();
        Self {
            view,
            script,
            starts,
            takes,
            evictions,
            pods: Vec::new(),
            second,
            gone: None,
        }
    }

    pub(super) fn age(&self) -> i64 {
        self.second - self.view.created.unwrap().as_second()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.is_some()
    }

    /// Returns whether a program of the Job may run at this moment, regardless of the views.
    pub(super) fn may_run(&self) -> bool {
        self.pods.iter().any(|pod| pod.ended.is_none())
    }

    /// Deletes the Job as another actor does: it disappears at once, and its Pods are asked to stop
    /// after it. Skipped while a Pod is so new that no cache has it: without the Job, nobody could
    /// know of that Pod.
    pub(super) fn vanish(&mut self) {
        let second = self.second;
        if self.pods.iter().all(|pod| pod.created < second - 3) {
            self.gone.get_or_insert(second);
        }
    }

    /// Sets the limit of a Pod, as the API server does.
    pub(super) fn limit_pod(&mut self, uid: &str) {
        let (second, job) = (self.second, self.view.uid.clone());
        let is_it = |pod: &&mut Life| format!("{job}-pod-{}", pod.number) == uid;
        if let Some(pod) = self.pods.iter_mut().find(is_it) {
            assert!(pod.limited.is_none(), "asked twice");
            pod.limited = Some(second);
        }
    }

    /// Simulates until this second. Returns whether anything visible changed.
    pub(super) fn live_until(&mut self, second: i64) -> bool {
        let mut has_changed = false;
        while self.second < second {
            let is_over = self.gone.is_some() || self.view.end.is_some();
            if is_over && self.view.deleting.is_none() && !self.may_run() {
                self.second = second;
                break;
            }
            if self.gone.is_some() && !self.may_run() {
                self.second = second;
                break;
            }
            self.second += 1;
            has_changed |= self.kubelet();
            has_changed |= self.controller();
        }
        has_changed
    }

    fn kubelet(&mut self) -> bool {
        let now = self.second;
        let (script, starts, takes) = (self.script, self.starts, self.takes);
        let Some(pod) = self.pods.iter_mut().find(|pod| pod.ended.is_none()) else {
            return false;
        };
        let is_lost = matches!(script, Script::NodeLost { .. });
        if let Some(limited) = pod.limited.filter(|_| pod.asked.is_none() && !is_lost) {
            let is_time = now >= limited + STOPS;
            pod.ended = is_time.then_some((now, 143));
            return is_time;
        }
        if pod.started.is_none() && pod.asked.is_none() && script != Script::NoImage {
            let is_time = now >= pod.created + starts;
            pod.started = is_time.then_some(now);
            return is_time;
        }
        if let Some(asked) = pod.asked {
            let (stops, code) = match script {
                Script::NodeLost { .. } => return false,
                Script::Evicted { stops, .. } => (stops, 143),
                Script::PodDeleted { code, .. } => (STOPS, code),
                Script::Ends { .. }
                | Script::Forgets
                | Script::Oom
                | Script::NoImage
                | Script::NoPod
                | Script::Hangs
                | Script::PodLost
                | Script::JobDeleted
                | Script::Silent => (STOPS, 143),
            };
            let is_time = now >= asked + stops;
            if is_time {
                pod.ended = Some((now, code));
                // Nothing keeps a Pod that its Job does not count.
                pod.gone = (pod.is_held && starts % 2 == 0).then_some(now);
            }
            return is_time;
        }
        let Some(started) = pod.started else {
            return false;
        };
        if now < started + takes {
            return false;
        }
        match script {
            Script::Hangs | Script::NodeLost { is_told: false } => return false,
            Script::NoImage | Script::NoPod => return false,
            Script::Ends { code } => pod.ended = Some((now, code)),
            Script::Oom => pod.ended = Some((now, 137)),
            Script::Forgets | Script::Silent => pod.ended = Some((now, 0)),
            Script::Evicted { .. } if self.evictions > 0 => {
                self.evictions -= 1;
                pod.asked = Some(now);
                pod.is_evicted = true;
            }
            Script::Evicted { .. } => pod.ended = Some((now, 0)),
            Script::PodDeleted { .. } | Script::NodeLost { is_told: true } => pod.asked = Some(now),
            Script::PodLost => {
                pod.ended = Some((now, 0));
                pod.gone = Some(now);
            }
            Script::JobDeleted => self.gone = self.gone.or(Some(now)),
        }
        true
    }

    fn controller(&mut self) -> bool {
        let now = self.second;
        if self.gone.is_some_and(|gone| now > gone) {
            return self.stop_pods(false);
        }
        if self.gone.is_some() {
            return false;
        }
        if let Some(deleting) = self.view.deleting {
            let has_changed = self.stop_pods(false);
            // Our own deletes are in the foreground: Pods are deleted first.
            if !self.may_run() && now > deleting.as_second() {
                self.gone = Some(now);
                return true;
            }
            return has_changed;
        }
        if self.view.end.is_some() {
            return false;
        }
        // The Job's own limit is reached: it ends when its Pods have.
        if self.view.limit_seconds == Some(1) && !self.view.suspended {
            let has_changed = self.stop_pods(false);
            if !self.may_run() {
                self.conclude(now, 143);
                return true;
            }
            return has_changed;
        }
        let last = self.pods.last();
        if let Some((ended, code)) = last.and_then(|pod| pod.ended)
            && last.is_some_and(|pod| !pod.is_held && !pod.is_evicted)
        {
            let is_silent = self.script == Script::Silent;
            // Recorded before the Pod can disappear, as a real controller does.
            let is_news = !self.view.counted && !is_silent;
            self.view.counted |= is_news;
            let is_time = now >= ended + SETTLES && !is_silent;
            if is_time {
                self.conclude(now, code);
            }
            return is_time || is_news;
        }
        self.suspend_or_start(now)
    }

    fn suspend_or_start(&mut self, now: i64) -> bool {
        let is_known = self.view.resumed == Some(Timestamp::MAX);
        if self.view.suspended {
            self.view.resumed = Some(Timestamp::MAX);
            return self.stop_pods(true) || !is_known;
        }
        if is_known {
            // The Pod exists before the condition that reports the resumption.
            self.view.resumed = Some(Timestamp::from_second(now + 1).unwrap());
        }
        let is_ready = self
            .pods
            .last()
            .is_none_or(|pod| pod.ended.is_some_and(|(ended, _)| now >= ended + 3));
        if is_ready && self.script != Script::NoPod {
            self.pods.push(Life {
                number: self.pods.len(),
                created: now,
                started: None,
                asked: None,
                limited: None,
                is_evicted: false,
                is_held: false,
                ended: None,
                gone: None,
            });
            return true;
        }
        is_known
    }

    fn stop_pods(&mut self, is_held: bool) -> bool {
        let now = self.second;
        let mut has_changed = false;
        for pod in &mut self.pods {
            if pod.ended.is_none() && pod.asked.is_none() {
                pod.asked = Some(now);
                has_changed = true;
            }
            pod.is_held |= is_held && pod.ended.is_none();
        }
        has_changed
    }

    fn conclude(&mut self, now: i64, code: i32) {
        let at = Some(Timestamp::from_second(now).unwrap());
        self.view.end = Some(if code == 0 {
            JobEnd::Complete { at }
        } else {
            JobEnd::Failed {
                at,
                reason: "BackoffLimitExceeded".to_owned(),
                message: "limit".to_owned(),
            }
        });
        let goes = matches!(self.script, Script::PodDeleted { is_gone: true, .. });
        if let Some(pod) = self.pods.last_mut().filter(|_| goes) {
            pod.gone = Some(now);
        }
    }

    /// Returns the Job's Pods as they were at this second.
    pub(super) fn pods(&self, second: i64) -> Vec<PodView> {
        let is_past = |time: Option<i64>| time.is_some_and(|time| time <= second);
        // The Pods that have ended are deleted with the Job.
        let is_swept = |pod: &Life| {
            let ended = pod.ended.map(|(ended, _)| ended);
            is_past(self.gone) && is_past(ended)
        };
        self.pods
            .iter()
            .filter(|pod| pod.created <= second && !is_past(pod.gone) && !is_swept(pod))
            .map(|pod| self.pod(pod, second))
            .collect()
    }

    fn pod(&self, pod: &Life, second: i64) -> PodView {
        let past = |time: Option<i64>| time.filter(|time| *time <= second);
        let stamp = |time: i64| Timestamp::from_second(time).unwrap();
        let asked = past(pod.asked);
        let ended = pod.ended.filter(|(ended, _)| *ended <= second);
        let container = match (past(pod.started), ended) {
            (Some(started), Some((ended, code))) => self.exit(code, stamp(started), stamp(ended)),
            (Some(started), None) => ContainerState::Running {
                since: Some(stamp(started)),
            },
            (None, _) => self.waits(second),
        };
        let phase = match (&container, ended) {
            (ContainerState::Ended(exit), _) if exit.code == 0 => PodPhase::Succeeded,
            (_, Some(_)) => PodPhase::Failed,
            (ContainerState::Running { .. }, None) => PodPhase::Running,
            (_, None) => PodPhase::Pending,
        };
        PodView {
            step: crate::view::Step::Main,
            main_exit: None,
            beside: None,
            doubt: None,
            stuck: None,
            pod: pods::PodView {
                name: format!("{}-pod-{}", self.view.name, pod.number),
                uid: format!("{}-pod-{}", self.view.uid, pod.number),
                created: Some(stamp(pod.created)),
                node: (second > pod.created).then(|| "node-1".to_owned()),
                stop_asked: asked.map(stamp),
                stop_by: asked.map(|asked| stamp(asked + 30)),
                disruption: asked.filter(|_| pod.is_evicted).map(|_| Reported {
                    reason: "EvictionByEvictionAPI".to_owned(),
                    message: String::new(),
                }),
                phase,
                // The cache has the response to our own write.
                limit_seconds: pod.limited.map(|_| 1),
                ..pods::PodView::default()
            },
            job_uid: Some(self.view.uid.clone()),
            container,
            image_id: Some("id".to_owned()),
            content: None,
            foreign: false,
        }
    }

    fn waits(&self, second: i64) -> ContainerState {
        if self.script != Script::NoImage {
            waiting("ContainerCreating", "")
        } else if second % 2 == 0 {
            waiting("ErrImagePull", "not found")
        } else {
            waiting(
                "ImagePullBackOff",
                "Back-off pulling image \"a:1\": ErrImagePull: not found",
            )
        }
    }

    fn exit(&self, code: i32, started: Timestamp, finished: Timestamp) -> ContainerState {
        let is_oom = self.script == Script::Oom && code == 137;
        ContainerState::Ended(Exit {
            code,
            signal: None,
            reason: match code {
                _ if is_oom => "OOMKilled",
                0 => "Completed",
                _ => "Error",
            }
            .to_owned(),
            message: if self.script == Script::Forgets {
                String::new()
            } else {
                r#"{"answer": "42"}"#.to_owned()
            },
            started: Some(started),
            finished: Some(finished),
            restarts: 0,
        })
    }
}
