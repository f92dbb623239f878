//! What must hold of upgrades and rollbacks at every instant: pure functions of what was seen.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use api::{Timestamp, names};
use serde_json::{Map, Value};
use testkit::{
    audit::Entry,
    faults::{
        object_history::{Change, Seen},
        oracles::{Evidence, Oracle, Violation},
    },
};

use super::{ROLLBACKS, UPGRADES};

/// A word about something that was so until a moment ago is no lie.
const LATE: Duration = Duration::from_secs(3);

/// OA1: the longest time for which a lock may outlive its request.
const LOCKED: Duration = Duration::from_secs(60);

/// Annotation with the token of a requested reconciliation of Flux.
const REQUESTED_AT: &str = "reconcile.fluxcd.io/requestedAt";

/// Of one oracle no more is said.
const MOST: usize = 10;

/// What only the scenario knows of a play.
pub(super) struct Play {
    /// The UIDs in the trailers of the commits on the branch, or why the branch cannot be read.
    pub(super) commits: Result<Vec<String>, String>,
    /// The versions that used the volume; `None` if the play did not come to its end.
    pub(super) data: Option<Vec<String>>,
    /// The versions that may have used it.
    pub(super) allowed: &'static [&'static [&'static str]],
    pub(super) is_dry_run: bool,
}

/// All promises of the apps operator that were not kept.
pub(super) fn judge(evidence: &Evidence<'_>, play: &Play) -> Vec<Violation> {
    let view = View::new(evidence.seen, evidence.silence);
    let said = [
        (Oracle::NoFalseGreen, view.false_successes()),
        (Oracle::NoFalseGreen, view.false_health()),
        (Oracle::NothingLeft, view.locked()),
        (Oracle::OneEffect, commits(&view, play)),
        (Oracle::OneEffect, deleted_claims(&view, evidence.audit)),
        (Oracle::OneEffect, data(play)),
        (Oracle::NothingLeft, view.at_zero()),
        (Oracle::TrueAtEveryInstant, view.other_fields()),
        (Oracle::OneEffect, dry_run(play, evidence.audit)),
        (Oracle::TrueAtEveryInstant, view.unconfirmed()),
        (Oracle::TrueAtEveryInstant, view.resumed_early()),
        (Oracle::TrueAtEveryInstant, view.written_snapshots()),
        (Oracle::OneEffect, view.unintended_commits()),
    ];
    let violations = said.into_iter().flat_map(|(oracle, words)| {
        let few = words.into_iter().take(MOST);
        few.map(move |words| Violation { oracle, words })
    });
    violations.collect()
}

/// The life of a request.
struct Life<'a> {
    resource: &'a str,
    name: &'a str,
    uid: &'a str,
    /// The first version that has ended, or the deletion.
    ended: Option<Instant>,
    has_succeeded: bool,
    is_dry_run: bool,
}

/// Everything that was seen of a play, in order.
struct View<'a> {
    seen: Vec<&'a Seen>,
    late: Duration,
    lives: Vec<Life<'a>>,
    end: Option<Instant>,
}

impl<'a> View<'a> {
    fn new(seen: &'a [Seen], silence: Duration) -> Self {
        let mut seen: Vec<&Seen> = seen.iter().collect();
        seen.sort_by_key(|one| one.version);
        let mut lives: BTreeMap<&str, Life<'a>> = BTreeMap::new();
        for one in seen.iter().filter(|one| is_request(one)) {
            let life = lives.entry(&one.uid).or_insert_with(|| Life {
                resource: &one.resource,
                name: &one.name,
                uid: &one.uid,
                ended: None,
                has_succeeded: false,
                is_dry_run: one.object["spec"]["dryRun"] == true,
            });
            if one.is_true("Finished") || one.change == Change::Deleted {
                life.ended.get_or_insert(one.at);
            }
            life.has_succeeded |= one.is_true("Succeeded");
        }
        Self {
            end: seen.iter().map(|one| one.at).max(),
            late: LATE + silence,
            lives: lives.into_values().collect(),
            seen,
        }
    }

    fn of(&self, resource: &'a str) -> impl Iterator<Item = &'a Seen> + '_ {
        let all = self.seen.iter().copied();
        all.filter(move |one| one.resource == resource)
    }

    /// The last version of each object of a resource that was written before another version.
    fn before(&self, resource: &'a str, version: u64) -> Vec<&'a Seen> {
        let mut last: BTreeMap<&str, &Seen> = BTreeMap::new();
        for one in self.of(resource).filter(|one| one.version < version) {
            last.insert(&one.uid, one);
        }
        let present = last.into_values();
        present
            .filter(|one| one.change != Change::Deleted)
            .collect()
    }

    /// The versions of each object of a resource.
    fn objects(&self, resource: &'a str) -> Vec<Vec<&'a Seen>> {
        let mut objects: BTreeMap<&str, Vec<&Seen>> = BTreeMap::new();
        for one in self.of(resource) {
            objects.entry(&one.uid).or_default().push(one);
        }
        objects.into_values().collect()
    }

    fn flux(&self) -> Vec<Vec<&'a Seen>> {
        let mut all = self.objects("kustomizations");
        all.extend(self.objects("helmreleases"));
        all
    }

    /// O0: a request has succeeded, and Flux, the workload and the locks do not show it.
    fn false_successes(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut judged = BTreeSet::new();
        for one in self.seen.iter().filter(|one| is_request(one)) {
            let is_dry_run = one.object["spec"]["dryRun"] == true;
            if is_dry_run || !one.is_true("Succeeded") || !judged.insert(&one.uid) {
                continue;
            }
            let wanted = match one.resource.as_str() {
                UPGRADES => &one.object["spec"]["targetVersion"]["chart"],
                _ => &one.object["status"]["plan"]["change"]["chart"]["to"],
            };
            let name = format!("{}/{} says Succeeded=True, but", one.resource, one.name);
            for helm in self.before("helmreleases", one.version) {
                let version = &helm.object["spec"]["chart"]["spec"]["version"];
                if version != wanted {
                    words.push(format!("{name} the HelmRelease requests {version}"));
                }
                let newest = &helm.object["status"]["history"][0];
                if newest["status"] != "deployed" || newest["chartVersion"] != *wanted {
                    words.push(format!("{name} the newest release is {newest}"));
                }
            }
            let flux = ["kustomizations", "helmreleases"].into_iter();
            for held in flux.flat_map(|kind| self.before(kind, one.version)) {
                if lock(held).is_some() || held.object["spec"]["suspend"] == true {
                    words.push(format!("{name} {}/{} is held", held.resource, held.name));
                }
            }
            for set in self.before("statefulsets", one.version) {
                if !is_healthy(set) {
                    words.push(format!("{name} StatefulSet '{}' is not ready", set.name));
                }
            }
            if let Some(short) = too_short(&one.object["status"]) {
                words.push(format!("{name} {short}"));
            }
        }
        words
    }

    /// O0: a ManagedApp is Ready, and its workload was not for a while.
    fn false_health(&self) -> Vec<String> {
        let mut words = Vec::new();
        for app in self.of("managedapps").filter(|one| one.is_true("Ready")) {
            for versions in self.objects("statefulsets") {
                let early = app.at.checked_sub(self.late);
                let is_known = |one: &&&Seen| early.is_none_or(|early| one.at <= early);
                let last = versions.iter().rev().find(is_known);
                let recent = versions
                    .iter()
                    .filter(|one| !is_known(one) && one.at <= app.at);
                let mut states = last.into_iter().chain(recent).peekable();
                if states.peek().is_some() && !states.any(|one| is_healthy(one)) {
                    let version = app.version;
                    words.push(format!(
                        "ManagedApp '{}' says Ready=True at version {version}, but its StatefulSet is not ready",
                        app.name
                    ));
                }
            }
        }
        words
    }

    /// OA1: no object of Flux is locked without an active request for more than a minute, or at the end.
    fn locked(&self) -> Vec<String> {
        let mut words = Vec::new();
        for versions in self.flux() {
            let ends = versions.iter().skip(1).map(|next| Some(next.at));
            for (one, until) in versions.iter().zip(ends.chain([None])) {
                let Some(holder) = lock(one).filter(|_| one.change != Change::Deleted) else {
                    continue;
                };
                let life = self.lives.iter().find(|life| life.uid == holder);
                let released = match life {
                    Some(life) => life.ended,
                    None => Some(one.at),
                };
                let Some(released) = released else { continue };
                let is_last = until.is_none();
                let until = until.or(self.end).unwrap_or(one.at);
                let from = released.max(one.at);
                let without = until.saturating_duration_since(from);
                if without > LOCKED || (is_last && without > self.late) {
                    words.push(format!(
                        "OA1: {}/{} has the lock of '{holder}' for {without:?} after its end",
                        one.resource, one.name
                    ));
                }
            }
        }
        words
    }

    /// False success "Suspend": a workload is stopped before the controllers of Flux have handled the suspension.
    fn unconfirmed(&self) -> Vec<String> {
        let mut words = Vec::new();
        for versions in self.objects("statefulsets") {
            let replicas = |one: &&Seen| one.object["spec"]["replicas"].as_i64();
            let pairs = versions.windows(2);
            let stopped = pairs.filter_map(|pair| match pair {
                [before, after] if replicas(before) > Some(0) && replicas(after) == Some(0) => {
                    Some(after)
                }
                _ => None,
            });
            for set in stopped {
                let kinds = ["kustomizations", "helmreleases"].into_iter();
                for flux in kinds.flat_map(|kind| self.before(kind, set.version)) {
                    let requested = &flux.object["metadata"]["annotations"][REQUESTED_AT];
                    let handled = &flux.object["status"]["lastHandledReconcileAt"];
                    let is_suspended = flux.object["spec"]["suspend"] == true;
                    if lock(flux).is_none() || !is_suspended || requested != handled {
                        words.push(format!(
                            "'{}' was stopped at version {}, and {}/{} had not confirmed its suspension",
                            set.name, set.version, flux.resource, flux.name
                        ));
                    }
                }
            }
        }
        words
    }

    /// Pitfall 4: after the commit, the HelmRelease is resumed with the version of the request only.
    fn resumed_early(&self) -> Vec<String> {
        let mut words = Vec::new();
        for versions in self.objects("helmreleases") {
            for pair in versions.windows(2) {
                let [before, after] = pair else { continue };
                let Some(holder) = lock(before).filter(|_| lock(after).is_none()) else {
                    continue;
                };
                let requests = [UPGRADES, ROLLBACKS].into_iter();
                let mut requests = requests.flat_map(|kind| self.before(kind, after.version));
                let Some(request) = requests.find(|one| one.uid == holder) else {
                    continue;
                };
                let wanted = match request.resource.as_str() {
                    UPGRADES => &request.object["spec"]["targetVersion"]["chart"],
                    _ => &request.object["status"]["plan"]["change"]["chart"]["to"],
                };
                let version = &after.object["spec"]["chart"]["spec"]["version"];
                if request.object["status"]["phase"] == "Reconcile" && version != wanted {
                    words.push(format!(
                        "HelmRelease '{}' was resumed with version {version}, wanted {wanted}",
                        after.name
                    ));
                }
            }
        }
        words
    }

    /// False success "Snapshot": a snapshot is created while a Pod mounts the claim.
    fn written_snapshots(&self) -> Vec<String> {
        let mut words = Vec::new();
        for versions in self.objects("volumesnapshots") {
            let Some(first) = versions.first().filter(|one| one.change == Change::Added) else {
                continue;
            };
            let claim = &first.object["spec"]["source"]["persistentVolumeClaimName"];
            for pod in self.before("pods", first.version) {
                let volumes = pod.object["spec"]["volumes"].as_array();
                let mounts = volumes.is_some_and(|all| {
                    all.iter()
                        .any(|one| one["persistentVolumeClaim"]["claimName"] == *claim)
                });
                let phase = pod.object["status"]["phase"].as_str().unwrap_or_default();
                if mounts && !["Succeeded", "Failed"].contains(&phase) {
                    words.push(format!(
                        "VolumeSnapshot '{}' was created while Pod '{}' mounts its claim",
                        first.name, pod.name
                    ));
                }
            }
        }
        words
    }

    /// The Job that pushes is created after the intent is stored.
    fn unintended_commits(&self) -> Vec<String> {
        let mut words = Vec::new();
        for versions in self.objects("jobs") {
            let first = versions.first().filter(|one| one.change == Change::Added);
            let Some(job) = first.filter(|one| one.name.contains("-commit")) else {
                continue;
            };
            let requests = [UPGRADES, ROLLBACKS].into_iter();
            let mut requests = requests.flat_map(|kind| self.before(kind, job.version));
            let owner = requests.find(|one| job.label(names::UID) == Some(&one.uid));
            let is_stored = owner.is_none_or(|one| one.object["status"]["intent"].is_string());
            if !is_stored {
                words.push(format!("Job '{}' has no stored intent", job.name));
            }
        }
        words
    }

    /// OA5: no workload is at zero after a request has ended, unless another one is active.
    fn at_zero(&self) -> Vec<String> {
        let mut words = Vec::new();
        for versions in self.objects("statefulsets") {
            let Some(last) = versions.last().filter(|one| one.change != Change::Deleted) else {
                continue;
            };
            let is_stopped = last.object["spec"]["replicas"] == 0;
            let is_active = self
                .lives
                .iter()
                .any(|life| life.ended.is_none() && !life.is_dry_run);
            let ended = self.lives.iter().filter_map(|life| life.ended).max();
            let since = self.end.zip(ended);
            let is_over =
                since.is_some_and(|(end, ended)| end.saturating_duration_since(ended) > self.late);
            if is_stopped && !is_active && is_over {
                words.push(format!("OA5: StatefulSet '{}' is at zero", last.name));
            }
        }
        words
    }

    /// OA6: of an object of Flux, nothing changes but the suspension, the lock, the token and the version.
    fn other_fields(&self) -> Vec<String> {
        let mut words = Vec::new();
        for versions in self.flux() {
            let Some(first) = versions.first() else {
                continue;
            };
            for one in versions.iter().skip(1) {
                if fixed(&one.object) != fixed(&first.object) {
                    words.push(format!(
                        "OA6: {}/{} has another spec or other annotations: {}",
                        one.resource,
                        one.name,
                        fixed(&one.object)
                    ));
                    break;
                }
            }
        }
        words
    }
}

/// Returns why a success came too early: the application was not healthy for the time of the plan.
fn too_short(status: &Value) -> Option<String> {
    let timeouts = [
        "/plan/timeouts/stableFor",
        "/plan/change/timeouts/stableFor",
    ];
    let wanted = timeouts
        .iter()
        .find_map(|path| status.pointer(path)?.as_str())?;
    let since = status["evidence"]["healthySince"].as_str()?;
    let conditions = status["conditions"].as_array()?;
    let succeeded = conditions.iter().find(|one| one["type"] == "Succeeded")?;
    let until = succeeded["lastTransitionTime"].as_str()?;
    let times = (since.parse::<Timestamp>(), until.parse::<Timestamp>());
    let (Ok(since), Ok(until)) = times else {
        return Some(format!("its times cannot be read: {since}, {until}"));
    };
    let Ok(wanted) = wanted.parse::<api::Duration>() else {
        return Some(format!("its plan has the time '{wanted}'"));
    };
    let healthy = until.as_second() - since.as_second();
    let wanted = Duration::from(wanted).as_secs();
    let is_short = u64::try_from(healthy).is_ok_and(|healthy| healthy < wanted);
    is_short.then(|| format!("was healthy for {healthy} s, wanted {wanted} s"))
}

fn is_request(seen: &Seen) -> bool {
    [UPGRADES, ROLLBACKS].contains(&seen.resource.as_str())
}

/// The UID of the request that has locked an object.
fn lock(seen: &Seen) -> Option<String> {
    let text = seen.object["metadata"]["annotations"][names::LOCK].as_str()?;
    let Ok(holder) = serde_json::from_str::<Value>(text) else {
        return Some("nobody".to_owned());
    };
    holder["uid"].as_str().map(str::to_owned)
}

fn is_healthy(set: &Seen) -> bool {
    let (spec, status) = (&set.object["spec"], &set.object["status"]);
    let wanted = spec["replicas"].as_i64().unwrap_or(1);
    wanted > 0
        && status["readyReplicas"].as_i64() == Some(wanted)
        && status["observedGeneration"] == set.object["metadata"]["generation"]
}

/// The parts of an object of Flux that nobody changes during a play, except Flux the version.
fn fixed(object: &Value) -> Value {
    let mut spec = object["spec"].clone();
    if let Value::Object(fields) = &mut spec {
        fields.remove("suspend");
    }
    if let Some(version) = spec.pointer_mut("/chart/spec/version") {
        *version = Value::Null;
    }
    let annotations = object["metadata"]["annotations"].as_object().cloned();
    let mut annotations: Map<String, Value> = annotations.unwrap_or_default();
    annotations.retain(|name, _| name != names::LOCK && name != REQUESTED_AT);
    serde_json::json!({ "spec": spec, "annotations": annotations })
}

/// OA2: each request has at most one commit, and one that has succeeded has one.
fn commits(view: &View<'_>, play: &Play) -> Vec<String> {
    let commits = match &play.commits {
        Ok(commits) => commits,
        Err(why) => return vec![format!("OA2: the branch cannot be read: {why}")],
    };
    let mut words = Vec::new();
    for life in &view.lives {
        let count = commits.iter().filter(|uid| *uid == life.uid).count();
        let is_wanted = life.has_succeeded && !life.is_dry_run;
        if count > 1 || (is_wanted && count != 1) || (life.is_dry_run && count > 0) {
            words.push(format!(
                "OA2: {}/{} has {count} commits",
                life.resource, life.name
            ));
        }
    }
    words
}

/// OA3: before the operator deletes a claim of the application, it has patched the claim's volume. Temporary claims belong to
/// a request.
fn deleted_claims(view: &View<'_>, audit: &[Entry]) -> Vec<String> {
    let mut words = Vec::new();
    let mut patched: BTreeSet<&str> = BTreeSet::new();
    for entry in audit
        .iter()
        .filter(|entry| (200..300).contains(&entry.code))
    {
        let (verb, resource) = (entry.request.verb.as_str(), entry.request.resource.as_str());
        match (verb, resource) {
            ("patch", "persistentvolumes") => {
                patched.insert(&entry.name);
            }
            ("delete", "persistentvolumeclaims") => {
                let mut claims = view.of("persistentvolumeclaims");
                let claim = claims.find(|one| one.name == entry.name);
                let is_own = claim.is_none_or(|one| one.label(names::UID).is_some());
                let volume = claim.and_then(|_| {
                    let mut all = view.of("persistentvolumeclaims");
                    all.find_map(|one| {
                        let is_it = one.name == entry.name;
                        one.object["spec"]["volumeName"].as_str().filter(|_| is_it)
                    })
                });
                let is_retained = volume.is_some_and(|volume| patched.contains(volume));
                if !is_own && !is_retained {
                    words.push(format!(
                        "OA3: claim '{}' was deleted, and its volume {volume:?} was not retained before",
                        entry.name
                    ));
                }
            }
            _ => {}
        }
    }
    words
}

/// OA4: at the end, the data is that of before or that of the finished upgrade.
fn data(play: &Play) -> Vec<String> {
    let Some(found) = &play.data else {
        // A play without an end is a violation already.
        return Vec::new();
    };
    let is_allowed = play.allowed.iter().any(|allowed| found == allowed);
    match is_allowed {
        true => Vec::new(),
        false => vec![format!(
            "OA4: versions {found:?} used the volume, wanted one of {:?}",
            play.allowed
        )],
    }
}

/// S1.9: a dry run writes nothing but its Job, reports and Events.
fn dry_run(play: &Play, audit: &[Entry]) -> Vec<String> {
    if !play.is_dry_run {
        return Vec::new();
    }
    let is_allowed = |entry: &&Entry| {
        let resource = entry.request.resource.as_str();
        let is_report = resource.ends_with("/status");
        is_report
            || [
                "jobs.batch",
                "events.events.k8s.io",
                "leases.coordination.k8s.io",
            ]
            .contains(&resource)
    };
    let writes = audit.iter().filter(|entry| entry.request.is_write());
    writes
        .filter(|entry| !is_allowed(entry))
        .map(|entry| {
            format!(
                "a dry run wrote: {} {} '{}'",
                entry.request.verb, entry.request.resource, entry.name
            )
        })
        .collect()
}
