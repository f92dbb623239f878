//! Resumes Flux in the right order after the commit, and waits until Flux has applied the new version.
//!
//! First the source, then the Kustomizations, then the HelmRelease as soon as its live spec has the new version, and last the
//! replica counts of workloads that are still at zero. In another order, the old version would run on data that the
//! snapshots do not have.
//!
//! A workload whose template has the new version starts before the release is deployed: Helm may wait for its Pods, or run a
//! hook that needs them.

use api::{
    Reason, Verdict,
    apps::{
        FluxKind, PlannedFluxObject, PlannedWorkload, PushedCommit, ReconciledVersion,
        UpgradePhase, UpgradePlan, UpgradeRequestStatus, VersionsBefore, upgrade_condition,
    },
    claim::Claim,
    decide::{ConditionUpdate, Decision, Effect},
    time,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::{
    MAX_AGE, Request, UpgradeDecision,
    conditions::{activity, describe, helm_error, is_current, is_true, quoted, settled},
    deletion,
    flux_target::REQUESTED_AT,
    git_commit, images,
    scale_target::ScaleTarget,
    undo::{self, Resume},
};
use crate::{
    discover::Problem,
    flux::{
        Attempt, DEPLOYED, FluxCondition, HelmReleaseView, KustomizationView, ReleaseEntry,
        SourceView, commit_of,
    },
    versions::exact,
    world::Discovery,
};

/// Decides about a request in `Reconcile`, in deletion or not.
pub(super) fn decide(request: &Request<'_>) -> UpgradeDecision {
    let Some(view) = View::of(request) else {
        return undo::without_plan(request);
    };
    if let Some(fault) = request.fault.filter(|_| !request.refused) {
        return request.fail(&Problem::new(fault.reason, fault.message.clone()));
    }
    if let Some(problem) = view.failure() {
        return view.fail(&problem);
    }
    let mut status = request.stored.clone();
    let step = view.step();
    if matches!(step, Step::Finish(_)) {
        let now = Time(time::whole(request.now));
        status.replicas_restored_at.get_or_insert(now);
    }
    let (claims, effects, message) = match step {
        Step::Finish(None) => return view.finished(status),
        // Everything that the request had changed is restored.
        Step::Finish(Some(_)) if request.is_deleting() => {
            return request.fail(&deletion::deleting());
        }
        Step::Finish(Some(message)) | Step::Wait(message) => (Vec::new(), Vec::new(), message),
        Step::Act {
            claims,
            effects,
            message,
        } => (claims, effects, message),
    };
    if request.overdue {
        return view.fail(&view.too_late(&message));
    }
    let verdict = Verdict::working(Reason::Applying, message);
    let decision = Decision::status_only(status, UpgradePhase::Reconcile, verdict)
        .requeue_at(time::after(request.now, MAX_AGE));
    let decision = git_commit::job_deletions(request).fold(decision, Decision::with);
    let decision = effects.into_iter().fold(decision, Decision::with);
    claims.into_iter().fold(decision, Decision::claim)
}

/// The next step.
enum Step {
    /// Something has to be changed.
    Act {
        claims: Vec<Claim>,
        effects: Vec<Effect>,
        message: String,
    },
    /// Flux works.
    Wait(String),
    /// Everything is resumed and restored. The text is the first row of evidence that is missing.
    Finish(Option<String>),
}

/// The observed state of the upgraded application.
pub(super) struct View<'a> {
    request: &'a Request<'a>,
    plan: &'a UpgradePlan,
    commit: &'a PushedCommit,
    before: &'a VersionsBefore,
    source: Option<&'a SourceView>,
    kustomization: Option<&'a KustomizationView>,
    helm: Option<&'a HelmReleaseView>,
    discovery: Option<&'a Discovery>,
}

impl<'a> View<'a> {
    /// Returns the observed state, or `None` without a plan and a commit.
    pub(super) fn of(request: &'a Request<'a>) -> Option<Self> {
        let (plan, commit) = (request.plan()?, request.stored.commit.as_ref()?);
        let before = request.stored.before_commit.as_ref()?;
        let live = request.world.live.as_ref();
        let source = request.world.source.present();
        Some(Self {
            request,
            plan,
            commit,
            before,
            source: source.filter(|source| source.uid == plan.commit.source.uid),
            kustomization: live.and_then(|live| live.kustomization.present()),
            helm: live.and_then(|live| live.release()),
            discovery: live.map(|live| &live.discovery),
        })
    }

    pub(super) fn helm(&self) -> Option<&'a HelmReleaseView> {
        self.helm
    }

    pub(super) fn kustomization(&self) -> Option<&'a KustomizationView> {
        self.kustomization
    }

    pub(super) fn commit(&self) -> &'a PushedCommit {
        self.commit
    }

    /// Ends the request with a failure, after the objects were read from the API server.
    pub(super) fn fail(&self, problem: &Problem) -> UpgradeDecision {
        if self.request.confirmed {
            self.request.fail(problem)
        } else {
            self.request.confirm(self.request.reads_of_plan())
        }
    }

    fn planned(&self, kind: FluxKind) -> impl Iterator<Item = &'a PlannedFluxObject> + use<'a> {
        let all = self.plan.flux_objects.iter();
        all.filter(move |one| one.kind == kind)
    }

    fn has_new_source(&self) -> bool {
        let revision = self.source.and_then(|source| source.revision.as_ref());
        revision.is_some() && revision != self.before.source.as_ref()
    }

    fn token(&self) -> String {
        format!("orchestrator-commit/{}", self.request.uid())
    }

    /// Returns whether the source has the commit. A later revision has it if the source was fetched after the push: others
    /// may have pushed on top. Another revision may be a commit of others from before the push.
    fn has_fetched(&self) -> bool {
        let revision = self.source.and_then(|source| source.revision.as_deref());
        let is_ours = revision.and_then(commit_of) == Some(self.commit.id.as_str());
        let handled = self.source.and_then(|source| source.handled.as_ref());
        is_ours || (self.has_new_source() && handled == Some(&self.token()))
    }

    /// Returns whether Flux has applied the new version to its own objects. No object of Flux shows an image, so then the
    /// revision counts.
    fn requests_new_version(&self) -> bool {
        if !self.plan.changes_chart() {
            return self.has_applied();
        }
        let requested = self.helm.and_then(|helm| helm.requested.as_ref());
        requested == Some(&self.plan.chart.to)
    }

    /// Returns whether the Kustomization has applied the commit of the request itself.
    fn has_applied_commit(&self) -> bool {
        let revision = self.kustomization.and_then(|one| one.revision.as_deref());
        revision.and_then(commit_of) == Some(self.commit.id.as_str())
    }

    /// Returns whether the Kustomization has applied a revision with the commit: its own one, or the one that the source
    /// fetched after the push. Once it has, later revisions have the commit, too.
    fn has_applied(&self) -> bool {
        let applied = self.kustomization.and_then(|one| one.revision.as_ref());
        let fetched = self.source.and_then(|source| source.revision.as_ref());
        let is_latest = self.has_fetched() && applied.is_some() && applied == fetched;
        self.request.stored.reconciled.is_some() || self.has_applied_commit() || is_latest
    }

    /// Returns whether a release with the new version is deployed. It is newer than the one before the upgrade.
    fn is_deployed(&self) -> bool {
        if self.plan.changes_chart() {
            return self.newest_chart_is(&self.plan.chart.to);
        }
        if !self.plan.has_release() {
            let flux = self.kustomization.map(|one| &one.flux);
            return flux.is_some_and(|flux| flux.attempt == Attempt::Applied);
        }
        let before = self.before.release_version.unwrap_or(0);
        let newest = self.helm.and_then(|helm| helm.newest.as_ref());
        newest.is_some_and(|newest| {
            newest.status == DEPLOYED && newest.version > before && self.has_other_values(newest)
        })
    }

    /// Returns whether a release has other values than that of the plan. For a rollback, Helm may have deployed the release
    /// of the plan already.
    fn has_other_values(&self, newest: &ReleaseEntry) -> bool {
        let before = self.plan.release.as_ref();
        before.is_none_or(|before| {
            before.version == newest.version || before.config_digest != newest.config_digest
        })
    }

    /// Returns the first new image that no Pod template has.
    fn missing_image(&self) -> Option<String> {
        let discovery = self.discovery?;
        images::missing(self.plan, discovery).map(str::to_owned)
    }

    /// Returns whether Helm has nothing to deploy although the Kustomization has applied the commit: the release has the
    /// same values.
    fn has_same_values(&self) -> bool {
        let newest = self.helm.and_then(|helm| helm.newest.as_ref());
        let version = newest.map(|newest| newest.version);
        !self.plan.changes_chart()
            && self.has_applied()
            && version.is_some()
            && version == self.before.release_version
            && self.helm.is_some_and(|helm| {
                settled(&helm.flux).is_none() && helm.flux.attempt == Attempt::Applied
            })
    }

    fn newest_chart_is(&self, version: &str) -> bool {
        let before = self.before.release_version.unwrap_or(0);
        let newest = self.helm.and_then(|helm| helm.newest.as_ref());
        newest.is_some_and(|newest| {
            newest.status == DEPLOYED
                && newest.version > before
                && exact(&newest.chart_version) == exact(version)
        })
    }

    fn step(&self) -> Step {
        let request = self.request;
        if !self.requests_new_version() && !self.has_fetched() {
            return self.fetch();
        }
        // What applies another object comes first: a dependency waits for the revision of the object that applies it.
        let kustomizations = self.planned(FluxKind::Kustomization);
        let resumed = kustomizations.filter_map(|planned| undo::resume_one(request, planned));
        if let Some(step) = resume(resumed, "resumes the Kustomization") {
            return step;
        }
        if !self.requests_new_version() {
            let state = self.kustomization.map(|one| &one.flux);
            return Step::Wait(format!(
                "waits until the Kustomization applies {}{}",
                self.plan.target(),
                activity(state)
            ));
        }
        let releases = self.planned(FluxKind::HelmRelease);
        let resumed = releases.filter_map(|planned| undo::resume_one(request, planned));
        if let Some(step) = resume(resumed, "resumes the HelmRelease") {
            return step;
        }
        if !self.is_deployed() {
            let restores = self.restores(ScaleTarget::has_other_template);
            if !restores.is_empty() {
                let message = "restores the replica counts of workloads with the new version";
                return restore(restores, message);
            }
            let state = match self.helm {
                Some(helm) => Some(&helm.flux),
                None => self.kustomization.map(|one| &one.flux),
            };
            return Step::Wait(format!(
                "waits until {} is deployed{}",
                self.plan.target(),
                activity(state)
            ));
        }
        let restores = self.restores(|_, _| true);
        if !restores.is_empty() {
            let message = "restores the replica counts that Flux has left at zero";
            return restore(restores, message);
        }
        Step::Finish(self.missing())
    }

    /// Requests the commit from the source.
    fn fetch(&self) -> Step {
        let branch = &self.plan.commit.branch;
        let Some(source) = self.source else {
            return Step::Wait("the GitRepository of the plan does not exist any more".to_owned());
        };
        let message = format!(
            "waits until GitRepository '{}' fetches branch '{branch}'{}",
            source.name,
            quoted(source.activity.as_deref())
        );
        let token = self.token();
        if source.requested.as_ref() == Some(&token) {
            return Step::Wait(message);
        }
        Step::Act {
            claims: Vec::new(),
            effects: vec![Effect::Patch {
                target: source.target(),
                subresource: None,
                patch: json!({ "metadata": { "annotations": { REQUESTED_AT: token } } }),
            }],
            message,
        }
    }

    /// Returns the effects that restore the scale of these workloads if they are still at zero, once.
    fn restores(&self, is_chosen: impl Fn(&ScaleTarget, &PlannedWorkload) -> bool) -> Vec<Effect> {
        if self.request.stored.replicas_restored_at.is_some() {
            return Vec::new();
        }
        let workloads = self.plan.workloads.iter();
        workloads
            .filter_map(|planned| {
                let live = self.request.world.workload(planned)?;
                let is_needed = live.needs_restore(planned) && is_chosen(live, planned);
                is_needed.then(|| live.restore(planned))
            })
            .collect()
    }

    /// Returns why the new version will not be applied, or `None` while it may be.
    pub(super) fn failure(&self) -> Option<Problem> {
        let is_missing = |planned: &&PlannedFluxObject| self.request.world.flux(planned).is_none();
        if let Some(planned) = self.plan.flux_objects.iter().find(is_missing) {
            return Some(Problem::new(
                Reason::PlanOutdated,
                format!(
                    "{} was deleted or recreated during the request",
                    planned.id()
                ),
            ));
        }
        if !self.requests_new_version() {
            return self.no_effect();
        }
        let helm = self.helm.filter(|helm| !helm.flux.is_suspended)?;
        let current = |condition: &&FluxCondition| is_current(&helm.flux, condition);
        let name = &helm.flux.name;
        let remediated = helm.outcome.remediated.as_ref().filter(current);
        if let Some(found) = remediated.filter(|found| found.value.is_some()) {
            return Some(Problem::new(
                Reason::HelmRemediated,
                format!("HelmRelease '{name}': {}: {}", found.reason, found.message),
            ));
        }
        if self.has_same_values() {
            return Some(self.without_effect(&format!("HelmRelease '{name}' has the same values")));
        }
        if self.plan.changes_chart() && self.newest_chart_is(&self.plan.chart.from) {
            return Some(Problem::new(
                Reason::HelmRemediated,
                format!(
                    "HelmRelease '{name}': Helm deployed chart version {} again",
                    self.plan.chart.from
                ),
            ));
        }
        let stalled = helm.flux.stalled.as_ref().filter(current);
        let stalled = stalled.filter(|found| found.value == Some(true))?;
        let error = helm_error(helm).unwrap_or_else(|| stalled.message.clone());
        Some(Problem::new(
            Reason::HelmUpgradeFailed,
            format!("HelmRelease '{name}': {error}"),
        ))
    }

    /// Returns the failure of a commit that Flux applied without a change of the version.
    fn no_effect(&self) -> Option<Problem> {
        let kustomization = self.kustomization.filter(|one| !one.flux.is_suspended)?;
        let requested = self.helm.and_then(|helm| helm.requested.as_deref())?;
        let is_applied = kustomization.flux.attempt == Attempt::Applied;
        (is_applied && self.has_applied_commit()).then(|| {
            let state = format!("the HelmRelease still requests version '{requested}'");
            self.without_effect(&state)
        })
    }

    fn without_effect(&self, state: &str) -> Problem {
        let kustomization = self.kustomization.map(|one| one.flux.name.to_string());
        let message = format!(
            "Kustomization '{}' applied commit {}, but {state}",
            kustomization.unwrap_or_default(),
            self.commit.id
        );
        Problem::new(Reason::CommitHadNoEffect, message)
    }

    /// Returns the first row of evidence that is missing, or `None` if Flux has applied the new version (R33). The
    /// condition `Ready` alone shows an earlier version.
    pub(super) fn missing(&self) -> Option<String> {
        let Some(kustomization) = self.kustomization else {
            return Some("the objects of Flux are not known".to_owned());
        };
        let revision = kustomization.revision.as_ref();
        let is_new = revision.is_some() && revision != self.before.applied.as_ref();
        let is_ours = self.has_applied_commit() || self.requests_new_version();
        let before = "the revision before the upgrade";
        // Columns: whether the row holds, and its text.
        let rows = [
            (
                self.has_new_source(),
                "the source has the artifact from before".to_owned(),
            ),
            (
                settled(&kustomization.flux).is_none(),
                describe("the Kustomization", &kustomization.flux),
            ),
            (is_new, format!("the Kustomization has applied {before}")),
            (
                is_ours,
                "the Kustomization has not applied the commit".to_owned(),
            ),
        ];
        let mut missing = rows.into_iter().filter(|(holds, _)| !holds);
        let missing = missing.next().map(|(_, text)| text);
        missing.or_else(|| self.missing_release()).or_else(|| {
            Some(format!(
                "no Pod template has image '{}'",
                self.missing_image()?
            ))
        })
    }

    /// Returns the first row of evidence about the HelmRelease that is missing.
    fn missing_release(&self) -> Option<String> {
        if !self.plan.has_release() {
            let is_missing = !self.is_deployed();
            return is_missing.then(|| "the Kustomization has not applied its spec".to_owned());
        }
        let Some(helm) = self.helm else {
            return Some("the HelmRelease is not known".to_owned());
        };
        let released = helm.outcome.released.as_ref();
        let is_released = released.is_some_and(|one| is_true(&helm.flux, one));
        let tested = helm.outcome.tested.as_ref();
        let is_tested = tested.is_some_and(|one| is_true(&helm.flux, one));
        // Columns: whether the row holds, and its text.
        let rows = [
            (
                settled(&helm.flux).is_none(),
                describe("the HelmRelease", &helm.flux),
            ),
            (
                helm.flux.attempt == Attempt::Applied,
                "the HelmRelease has not deployed its latest spec".to_owned(),
            ),
            (is_released, "the HelmRelease is not released".to_owned()),
            (
                is_tested || !helm.outcome.has_tests,
                "the tests of the chart have not succeeded".to_owned(),
            ),
            (
                self.is_deployed(),
                if self.plan.changes_chart() {
                    "the new chart version is not deployed".to_owned()
                } else {
                    "no release with the new images is deployed".to_owned()
                },
            ),
        ];
        let mut missing = rows.into_iter().filter(|(holds, _)| !holds);
        missing.next().map(|(_, text)| text)
    }

    /// Returns the reason for the end of the phase at its deadline.
    fn too_late(&self, message: &str) -> Problem {
        let problem = |reason| Problem::new(reason, message);
        if !self.requests_new_version() {
            if !self.has_fetched() {
                return problem(Reason::SourceNotUpdated);
            }
            let is_applied = self.kustomization.is_some_and(|one| {
                let is_new = one.revision != self.before.applied && one.revision.is_some();
                is_new && one.flux.attempt == Attempt::Applied
            });
            return problem(if is_applied && self.plan.changes_chart() {
                Reason::CommitHadNoEffect
            } else {
                Reason::ReconcileTimeout
            });
        }
        let failed = self.helm.filter(|helm| {
            let released = helm.outcome.released.as_ref();
            let is_current = released.filter(|one| is_current(&helm.flux, one));
            is_current.is_some_and(|one| one.value == Some(false))
                || matches!(helm.flux.attempt, Attempt::Failed(_))
        });
        let Some(helm) = failed else {
            // Without a HelmRelease, the Pod templates show the effect of the commit.
            let applied = !self.plan.has_release() && self.is_deployed();
            let image = self.missing_image().filter(|_| applied);
            return match image {
                Some(image) => self.without_effect(&format!("no Pod template has image '{image}'")),
                None => problem(Reason::ReconcileTimeout),
            };
        };
        match helm_error(helm) {
            Some(error) => Problem::new(
                Reason::HelmUpgradeFailed,
                format!("HelmRelease '{}': {error}", helm.flux.name),
            ),
            None => problem(Reason::HelmUpgradeFailed),
        }
    }

    fn finished(&self, mut status: UpgradeRequestStatus) -> UpgradeDecision {
        let request = self.request;
        if request.is_deleting() {
            return request.fail(&deletion::deleting());
        }
        let revision = self.kustomization.and_then(|one| one.revision.clone());
        let revision = revision.unwrap_or_default();
        let newest = self.helm.and_then(|helm| helm.newest.as_ref());
        status.reconciled = Some(ReconciledVersion {
            revision: revision.clone(),
            release_version: newest.map(|newest| newest.version),
            at: Time(time::whole(request.now)),
        });
        let message = format!(
            "Flux has applied revision '{revision}' with {}",
            self.plan.target()
        );
        let mut decision = request.advance(
            status,
            UpgradePhase::HealthCheck,
            Reason::CheckingHealth,
            message.clone(),
        );
        decision.conditions.push(ConditionUpdate {
            kind: upgrade_condition::RECONCILED,
            value: Some(true),
            reason: Reason::VersionApplied,
            message,
        });
        git_commit::job_deletions(request).fold(decision, Decision::with)
    }
}

fn restore(effects: Vec<Effect>, message: &str) -> Step {
    Step::Act {
        claims: Vec::new(),
        effects,
        message: message.to_owned(),
    }
}

/// Returns the step that resumes these objects, or `None` if there are none.
fn resume(all: impl Iterator<Item = Resume>, message: &str) -> Option<Step> {
    let (mut claims, mut effects) = (Vec::new(), Vec::new());
    for one in all {
        match one {
            Resume::Claim(claim) => claims.push(claim),
            Resume::Patch(effect) => effects.push(effect),
        }
    }
    let is_needed = !claims.is_empty() || !effects.is_empty();
    is_needed.then(|| Step::Act {
        claims,
        effects,
        message: message.to_owned(),
    })
}
