//! Builds the Jobs that run `step commit`: one makes the plan, another one pushes the commit.
//!
//! # Guarantees
//! - A Job depends only on the request, the plan and the configuration, so a create that is repeated finds the first one.
//! - The Pod fits the Pod Security level `restricted`. Only it mounts the credentials; the operator never reads them.

use std::time::Duration;

use api::{
    apps::{PlannedCommit, UPGRADE_REQUEST, UpgradeRequest, upgrade_intent},
    decide::{Manifest, ResourceType},
    names,
};
use attempts::{
    job_spec,
    restricted::pod_security_context,
    step::{self, StepContainer, StepSettings},
};
use git::edits::{Author, Change, DocumentRef, Edit, Mode, Request};
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobSpec},
        core::v1::{PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};

use super::commit_step::CONTAINER;

/// Time between SIGTERM and SIGKILL, in seconds.
const GRACE_SECONDS: i64 = 30;

/// Time after which the cluster deletes a Job that ended, in seconds. The operator deletes it before, unless the request
/// was deleted by force.
const TTL_SECONDS: i32 = 3600;

/// Time that the Job of a plan may take, from its creation. The phase ends earlier.
pub(super) const PLAN_STEP_TIME: Duration = Duration::from_secs(90);

/// Returns the name of the Job that makes the plan.
pub(super) fn plan_name(request: &str) -> String {
    names::child(request, "-plan")
}

/// Returns the name of the Job of an attempt to push the commit.
pub(super) fn commit_name(request: &str, number: u32) -> String {
    match number {
        0 | 1 => names::child(request, "-commit"),
        _ => names::child(request, &format!("-commit-a{number}")),
    }
}

/// The parts of a Job that differ between the plan and the commit.
pub(super) struct Work<'a> {
    /// Name of the Job.
    pub(super) name: String,
    /// URL of the repository.
    pub(super) url: &'a str,
    /// Secret with the credentials.
    pub(super) secret: &'a str,
    /// The request to the step.
    pub(super) step: &'a Request,
    /// Time of the step.
    pub(super) timeout: Duration,
    /// Time until the Pod has started.
    pub(super) start: Duration,
}

/// Builds the Job that makes the plan. The request owns it, so it is deleted with the request.
///
/// # Errors
/// If the Job cannot be written as JSON.
pub(super) fn plan_job(
    request: &UpgradeRequest,
    settings: &StepSettings,
    work: &Work<'_>,
) -> Result<Manifest, serde_json::Error> {
    let meta = &request.metadata;
    let owner = OwnerReference {
        api_version: UPGRADE_REQUEST.resource.api_version(),
        kind: UPGRADE_REQUEST.name().to_owned(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    let job = manifest(request, settings, work, Some(vec![owner]))?;
    Ok(job.optional())
}

/// Builds the Job that pushes the commit. It has no owner reference: the outcome of a push has to be known also while the
/// request is deleted.
///
/// # Errors
/// If the Job cannot be written as JSON.
pub(super) fn commit_job(
    request: &UpgradeRequest,
    settings: &StepSettings,
    work: &Work<'_>,
    base: &str,
) -> Result<Manifest, serde_json::Error> {
    let uid = request.metadata.uid.as_deref().unwrap_or_default();
    let job = manifest(request, settings, work, None)?;
    let intent = upgrade_intent::push(base, uid);
    Ok(job.requires_intent(intent).undoing().optional())
}

/// Returns the request in mode Commit for the edits of a plan.
pub(super) fn commit_request(commit: &PlannedCommit, summary: String) -> Request {
    let edits = commit.edits.iter().map(|edit| Edit {
        file: Some(edit.file.clone()),
        document: DocumentRef {
            api_version: edit.document.api_version.clone(),
            kind: edit.document.kind.clone(),
            name: edit.document.name.clone(),
            namespace: edit.document.namespace.clone(),
        },
        field_path: edit.field_path.clone(),
        change: Change::Exact {
            from: edit.from.clone(),
            to: edit.to.clone(),
        },
    });
    Request {
        mode: Mode::Commit,
        branch: commit.branch.clone(),
        directory: String::new(),
        applied: None,
        author: Author {
            name: commit.author.name.clone(),
            email: commit.author.email.clone(),
        },
        summary,
        edits: edits.collect(),
    }
}

fn manifest(
    request: &UpgradeRequest,
    settings: &StepSettings,
    work: &Work<'_>,
    owners: Option<Vec<OwnerReference>>,
) -> Result<Manifest, serde_json::Error> {
    let meta = &request.metadata;
    let uid = meta.uid.as_deref().unwrap_or_default();
    let name = meta.name.as_deref().unwrap_or_default();
    let labels = names::child_labels(UPGRADE_REQUEST.name(), name, uid);
    let mut environment = vec![
        ("STEP_URL", work.url.to_owned()),
        ("STEP_REQUEST", work.step.write()),
    ];
    environment.extend(step::environment(meta, settings, true, work.timeout));
    environment.extend(step::paths());
    let container = step::container(StepContainer {
        name: CONTAINER,
        image: &settings.toolbox_image,
        mounts: Vec::new(),
        has_credentials: true,
        environment,
    });
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels.clone()),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            containers: vec![container],
            volumes: Some(step::volumes(settings, Some(work.secret))),
            restart_policy: Some("Never".to_owned()),
            termination_grace_period_seconds: Some(GRACE_SECONDS),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            security_context: Some(pod_security_context(step::USER)),
            ..PodSpec::default()
        }),
    };
    let job = Job {
        metadata: ObjectMeta {
            owner_references: owners,
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            ttl_seconds_after_finished: Some(TTL_SECONDS),
            ..job_spec(template, work.start.saturating_add(work.timeout))
        }),
        status: None,
    };
    Ok(Manifest::new(
        ResourceType::JOB,
        meta.namespace.as_deref(),
        &work.name,
        uid,
        labels,
        serde_json::to_value(&job)?,
    ))
}

#[cfg(test)]
mod tests {
    use api::apps::{CommitAuthor, PlannedDocument, PlannedEdit};

    use super::*;
    use crate::upgrade::tests::fixtures::request;

    fn planned() -> PlannedCommit {
        PlannedCommit {
            url: "https://git.example.org/shop".to_owned(),
            branch: "main".to_owned(),
            credentials_secret: "git".to_owned(),
            author: CommitAuthor {
                name: "Orchestrator".to_owned(),
                email: "orchestrator@shop.invalid".to_owned(),
            },
            base: "ab".repeat(20),
            edits: vec![PlannedEdit {
                file: "apps/shop/release.yaml".to_owned(),
                document: PlannedDocument {
                    kind: Some("HelmRelease".to_owned()),
                    name: Some("shop".to_owned()),
                    ..PlannedDocument::default()
                },
                field_path: "spec.chart.spec.version".to_owned(),
                from: "1.0.0".to_owned(),
                to: "2.0.0".to_owned(),
            }],
            ..PlannedCommit::default()
        }
    }

    fn commit(number: u32) -> Manifest {
        let planned = planned();
        let step = commit_request(&planned, "Upgrade shop to 2.0.0".to_owned());
        let work = Work {
            name: commit_name("up", number),
            url: &planned.url,
            secret: &planned.credentials_secret,
            step: &step,
            timeout: Duration::from_secs(120),
            start: Duration::from_secs(120),
        };
        commit_job(&request(), &StepSettings::default(), &work, &planned.base).unwrap()
    }

    #[test]
    fn the_request_of_a_commit_is_accepted_by_the_step() {
        let step = commit_request(&planned(), "Upgrade shop to 2.0.0".to_owned());
        assert_eq!(Request::read(&step.write()), Ok(step));
    }

    /// R39: the name depends on the request and the attempt only, and the Job requires the stored intent.
    #[test]
    fn r39_the_job_of_a_commit_has_a_fixed_name_and_an_intent() {
        let job = commit(1);
        assert_eq!(
            (&*job.name, &*commit(2).name),
            ("up-commit", "up-commit-a2")
        );
        let uid = request().metadata.uid.unwrap();
        let intent = upgrade_intent::push(&planned().base, &uid);
        assert_eq!(job.requires_intent, Some(intent));
        assert_eq!(job, commit(1), "the same decision gives the same Job");
        // It is created also during a deletion, so the garbage collector must not delete it.
        assert!(job.undoing);
        assert_eq!(job.body.pointer("/metadata/ownerReferences"), None);
    }

    #[test]
    fn the_pod_is_restricted_and_its_only_secret_is_that_of_the_plan() {
        let job = commit(1);
        let pod = job.body.pointer("/spec/template/spec").unwrap();
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(
            pod["securityContext"]["seccompProfile"]["type"],
            "RuntimeDefault"
        );
        let container = &pod["containers"][0];
        assert_eq!(container["command"][1], "commit");
        assert_eq!(
            container["securityContext"]["allowPrivilegeEscalation"],
            false
        );
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        let secrets: Vec<_> = pod["volumes"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|volume| volume.pointer("/secret/secretName"))
            .collect();
        assert_eq!(secrets, ["git"]);
        assert_eq!(job.body["spec"]["backoffLimit"], 0);
        assert_eq!(job.body["spec"]["ttlSecondsAfterFinished"], 3600);
        let variables = container["env"].as_array().unwrap();
        let value = |name: &str| {
            let mut found = variables.iter().filter(|one| one["name"] == name);
            found.next().unwrap()["value"].clone()
        };
        assert_eq!(value("STEP_TIMEOUT_SECONDS"), "120");
        assert_eq!(value("STEP_RUN_NAME"), "shop/up");
        assert_eq!(value("STEP_CREDENTIALS"), "/credentials");
    }

    #[test]
    fn the_job_of_a_plan_belongs_to_the_request() {
        let planned = planned();
        let mut step = commit_request(&planned, "Upgrade shop to 2.0.0".to_owned());
        step.mode = Mode::Plan;
        let work = Work {
            name: plan_name("up"),
            url: &planned.url,
            secret: "git",
            step: &step,
            timeout: PLAN_STEP_TIME,
            start: PLAN_STEP_TIME,
        };
        let job = plan_job(&request(), &StepSettings::default(), &work).unwrap();
        assert_eq!(job.name, "up-plan");
        assert_eq!(job.requires_intent, None);
        let owner = job.body.pointer("/metadata/ownerReferences/0").unwrap();
        assert_eq!(owner["kind"], "UpgradeRequest");
        assert_eq!(owner["controller"], true);
    }
}
