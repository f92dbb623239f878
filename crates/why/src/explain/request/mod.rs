//! An UpgradeRequest or a RollbackRequest: from the request to the object that blocks it.
//!
//! The message of the status names the object. For a problem of the application itself, the live objects count, as for a
//! ManagedApp.

mod named;
mod rules;

use api::status::condition::{FINISHED, STALLED, SUCCEEDED};

use self::rules::{Next, Rule};
pub(crate) use self::{
    named::objects,
    rules::{About, of as rule_of},
};
use super::*;
use super::{app, deletion::Deletion};

/// Time in seconds after which the operator reports the deletion of a request as blocked.
const DELETION_LIMIT: i64 = 600;

/// Kinds of requests. Another request that a message names is the deeper blocker.
const REQUESTS: [&str; 2] = ["UpgradeRequest", "RollbackRequest"];

impl<'a> Explain<'a> for Operation<'a> {
    fn find(self) -> Finding {
        faults::undecodable(*self)
            .or_else(|| self.deletion())
            .or_else(|| operator::not_seen(*self))
            .unwrap_or_else(|| self.reported())
    }

    fn own(self, finding: &Finding) -> (Health, String) {
        let (health, sentence) = match finding.state {
            State::Succeeded => (Health::Ok, "has succeeded"),
            State::Failed => (Health::Error, "has failed, because of:"),
            State::Deleting => (Health::Waiting, "is being deleted"),
            State::Running
            | State::Waiting
            | State::Blocked
            | State::Suspended
            | State::Ready
            | State::NotIsolated
            | State::NotProven
            | State::Unmanaged => (Health::Waiting, "waits for:"),
        };
        (health, sentence.to_owned())
    }

    fn more(self) -> Option<Evidence> {
        self.main().map(Evidence::of)
    }
}

impl Operation<'_> {
    fn deletion(self) -> Option<Finding> {
        let deletion = Deletion {
            finalizer: match self.kind {
                "RollbackRequest" => "rollbackrequests.orchestrator.io/finalizer",
                _ => "upgraderequests.orchestrator.io/finalizer",
            },
            limit: DELETION_LIMIT,
            is_forced: self.view.force_delete,
            risk: "Flux may stay suspended, and workloads may stay at zero",
            done: "",
        };
        deletion.explain(*self, || self.reported())
    }

    /// Explains the request by the rule about its reason.
    fn reported(self) -> Finding {
        let state = self.state();
        if state == State::Succeeded {
            return finding! { Succeeded "";
                then self.object().describe("its plan, its evidence and its Events");
            };
        }
        let Some((reason, rule)) = self
            .reason()
            .and_then(|reason| Some((reason, rule_of(reason)?)))
        else {
            let advice = "Read the message above, then the operator's log.";
            return finding! { (state) (advice);
                then self.object().describe("its status and its Events"), operator::log(self.world);
            };
        };
        let command = self.command(rule.next);
        if rule.about == About::Live
            && let Some(mut live) = self.live()
        {
            live.state = state;
            live.next.truncate(1);
            return live.then(command).then(self.look_again());
        }
        let links = self.links(rule);
        let deepest = links.last().map(|link| link.object.clone());
        let mut finding = finding! { (state) (plain_advice(reason)); };
        finding.links = links;
        let deepest = deepest.map(|object| object.describe("its state, and its Events"));
        finding.then(command).then(deepest).then(self.look_again())
    }

    /// Returns the state of the request by its conditions.
    fn state(self) -> State {
        let is = |kind: &str| self.progress.is_true(kind);
        if self.meta.deleting.is_some() {
            State::Deleting
        } else if is(SUCCEEDED) {
            State::Succeeded
        } else if is(FINISHED) {
            State::Failed
        } else if is(STALLED) || self.reason() == Some(Reason::AwaitingApproval) {
            State::Blocked
        } else {
            State::Waiting
        }
    }

    /// Returns the finding about the live application, if it shows a problem. While the request suspends Flux, a suspension
    /// is none.
    fn live(self) -> Option<Finding> {
        let view = self.world.app.as_ref()?;
        if self.world.flux.iter().any(|flux| flux.suspend) {
            return None;
        }
        let app = App::new(self.world, view);
        let found = app::problem(app)?;
        let own = link! { Waiting app.object(), found.links.first()?.reason.clone(), "is the application of the request"; };
        Some(found.below([own]))
    }

    /// Returns the links below the request. The first object that the message names blocks it. Another request that has
    /// locked this object is deeper.
    fn links(self, rule: &Rule) -> Vec<Link> {
        let named = objects(self.message(), self.namespace);
        let is_other = |object: &&ObjectRef| **object != self.object();
        let mut others = named.iter().filter(is_other);
        let first = others.next().cloned();
        let first = first.unwrap_or_else(|| self.fallback(rule.about));
        let holder = others.find(|one| REQUESTS.contains(&one.kind.as_str()));
        let mut links = vec![self.link(first, rule)];
        links.extend(holder.map(|holder| {
            link! { Error holder.clone(), Reason::OperationActive, "has the lock"; seen self.said(); }
        }));
        if rule.about == About::Step {
            links.extend(self.pod_of_step());
        }
        links
    }

    fn link(self, object: ObjectRef, rule: &Rule) -> Link {
        let health = match self.state() {
            State::Waiting | State::Deleting => Health::Waiting,
            State::Succeeded
            | State::Failed
            | State::Running
            | State::Blocked
            | State::Suspended
            | State::Ready
            | State::NotIsolated
            | State::NotProven
            | State::Unmanaged => Health::Error,
        };
        let mut known = self.world.known.iter();
        let is_missing = known.any(|known| known.object == object && !known.exists);
        let missing = is_missing.then(|| self.not_found());
        let mut flux = self.world.flux.iter().chain(&self.world.sources);
        let flux = flux.find(|flux| flux.meta.object(&flux.kind) == object);
        let ready = flux.and_then(|flux| flux.ready.as_ref());
        let mut pods = self.world.pods.iter();
        let pod = pods.find(|pod| pod.object() == object);
        let node = pod.and_then(|pod| pod.node.clone());
        let node = node.map(|node| self.seen("spec.nodeName", node));
        let held = pod.filter(|pod| !pod.meta.finalizers.is_empty());
        let held = held.map(|pod| self.seen("metadata.finalizers", pod.meta.finalizers.join(", ")));
        link! { (health) object, rule.reason, (rule.sentence);
            seen self.said(); seen ready.map(ConditionView::evidence); seen missing; seen node; seen held;
        }
    }

    /// Returns the object that a reason is about if the message names none.
    fn fallback(self, about: About) -> ObjectRef {
        let view = self.view;
        let app = || self.here("ManagedApp", &view.app);
        let of_kind = |kind: &str| {
            let mut flux = view.flux.iter().rev();
            let planned = flux.find(|one| one.kind == kind).cloned();
            planned.or_else(|| {
                let mut live = self.world.flux.iter();
                live.find(|one| one.kind == kind)
                    .map(|one| one.meta.object(kind))
            })
        };
        let found = match about {
            About::App => None,
            About::Upgrade => Some(self.here("UpgradeRequest", &view.upgrade)),
            About::Kustomization => of_kind("Kustomization"),
            About::Live | About::HelmRelease => {
                of_kind("HelmRelease").or_else(|| of_kind("Kustomization"))
            }
            About::Source => view.source.clone().or_else(|| of_kind("Kustomization")),
            About::Step => self.world.jobs.last().map(JobView::object),
            About::Claim => view.claims.first().cloned(),
            About::Snapshot => view.snapshots.first().or(view.claims.first()).cloned(),
            About::Workload => view.workloads.first().cloned(),
        };
        found.unwrap_or_else(app)
    }

    /// Returns the link of the newest Pod of the step, if it does not start or has failed.
    fn pod_of_step(self) -> Option<Link> {
        let pod = self
            .world
            .pods
            .iter()
            .max_by_key(|pod| pod.meta.created.clone())?;
        let problem = pod.containers.iter().find_map(|one| match &one.state {
            ContainerState::Waiting(said) => Some((said.reason.clone(), said.message.clone())),
            ContainerState::Ended(exit) if exit.code != 0 => {
                Some((exit.reason.clone(), format!("exit code {}", exit.code)))
            }
            ContainerState::Ended(_) | ContainerState::Running { .. } | ContainerState::Unknown => {
                None
            }
        });
        let unscheduled = pod.unscheduled();
        let unscheduled = unscheduled.map(|said| (said.reason.clone(), said.message.clone()));
        let (reason, text) = problem.or(unscheduled)?;
        Some(
            link! { Error pod.object(), reason, "does not do its work: {text}"; since pod.meta.created.as_ref(); },
        )
    }

    fn command(self, next: Next) -> Option<Command> {
        let RequestView {
            app,
            upgrade,
            to,
            url,
            branch,
            ..
        } = self.view;
        let (name, within) = (self.name(), self.namespace);
        let is_rollback = self.kind == "RollbackRequest";
        Some(match next {
            Next::Wait => return None,
            Next::Approve => shell! {
                "orc approve {name} -n {within}" => "continue with the plan; 'orc deny' ends the request"
            },
            Next::Again | Next::RollBack if is_rollback => shell! {
                "orc rollback {upgrade} -n {within}" => "submit another rollback, when that is fixed"
            },
            Next::Again => shell! {
                "orc upgrade {app} --chart {to} -n {within}" => "submit another upgrade, when that is fixed"
            },
            Next::RollBack => shell! {
                "orc rollback {name} -n {within}" => "return Git, the release and the volumes to the state before"
            },
            Next::Branch if url.is_empty() => return None,
            Next::Branch => shell! {
                "git ls-remote {url} refs/heads/{branch}" => "the commit at the end of the branch"
            },
            Next::Force => {
                let purpose =
                    "the last way out: let the request go; Flux and the workloads stay as they are";
                self.object().force_delete(purpose)
            }
        })
    }
}
