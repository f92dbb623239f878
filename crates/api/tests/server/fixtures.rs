//! An object of each kind with every field set to a value other than its default.
//!
//! The literals have no `..`, so a new field does not compile until it is set here.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Result;
use api::{
    CommonStatus, Timestamp,
    status::{PhaseProgress, PhaseRecord, Retry as Waiting},
    tasks::{
        AgentPhase, AgentSpec, AgentStatus, Amount, AttemptStatus, Backoff, ChangedFiles, ChildTtl,
        DocsRunSpec, DocsRunStatus, EnvFrom, EnvSource, EnvVar, Evidence, File, KeyRef, NamedRef,
        Output, Resources, ResultSpec, Retry, RunPhase, RunPod, TaskRunSpec, TaskRunStatus,
        Version, Volume, Workspace,
    },
};

pub(crate) use apps::{app_spec, app_status};
pub(crate) use notebooks::{notebook_spec, notebook_status};
pub(crate) use tenants::{tenant_spec, tenant_status};

mod apps;
mod notebooks;
mod tenants;
use k8s_openapi::{
    api::core::v1::{
        Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
        PodAffinity, PodAffinityTerm, PodAntiAffinity, PreferredSchedulingTerm, Toleration,
        WeightedPodAffinityTerm,
    },
    apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, LabelSelectorRequirement, Time},
};

fn time(seconds: i64) -> Result<Time> {
    Ok(Time(Timestamp::from_second(1_700_000_000 + seconds)?))
}

fn map<T>(entries: impl IntoIterator<Item = (&'static str, T)>) -> BTreeMap<String, T> {
    entries
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

fn amount(text: &str) -> Amount {
    Amount(text.to_owned())
}

fn named(name: &str) -> NamedRef {
    NamedRef {
        name: name.to_owned(),
    }
}

fn file(name: &str) -> File {
    File {
        filename: name.to_owned(),
        content: format!("# {name}\n\tä `quoted` \"text\"\n"),
    }
}

fn key(name: &str) -> KeyRef {
    KeyRef {
        name: name.to_owned(),
        key: "token.txt".to_owned(),
        optional: true,
    }
}

fn retry() -> Retry {
    Retry {
        max_attempts: 3,
        backoff: Backoff {
            initial: Duration::from_secs(20).into(),
            max: Duration::from_millis(90_500).into(),
        },
    }
}

fn variables() -> Vec<EnvVar> {
    vec![
        EnvVar {
            name: "MODEL".to_owned(),
            value: Some("small".to_owned()),
            value_from: None,
        },
        EnvVar {
            name: "TOKEN".to_owned(),
            value: None,
            value_from: Some(EnvSource {
                secret_key_ref: Some(key("credentials")),
                config_map_key_ref: None,
            }),
        },
        EnvVar {
            name: "ADDRESS".to_owned(),
            value: None,
            value_from: Some(EnvSource {
                secret_key_ref: None,
                config_map_key_ref: Some(key("addresses")),
            }),
        },
    ]
}

fn resources() -> Resources {
    Resources {
        requests: map([("cpu", amount("250m")), ("memory", amount("64Mi"))]),
        limits: map([("cpu", amount("1.5")), ("memory", amount("1Gi"))]),
    }
}

pub(crate) fn agent_spec() -> AgentSpec {
    AgentSpec {
        image: "registry.example:5000/team/agent@sha256:0123".to_owned(),
        command: vec!["/bin/sh".to_owned(), "-c".to_owned()],
        args: vec!["echo $(MODEL)".to_owned()],
        env: variables(),
        env_from: vec![
            EnvFrom {
                prefix: Some("SECRET_".to_owned()),
                secret_ref: Some(named("all-secrets")),
                config_map_ref: None,
            },
            EnvFrom {
                prefix: Some("PLAIN_".to_owned()),
                secret_ref: None,
                config_map_ref: Some(named("all-plain")),
            },
        ],
        resources: Some(resources()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        image_pull_secrets: vec![named("registry")],
        run_as_user: 1000,
        service_account_name: "writer".to_owned(),
        automount_token: true,
        context_path: "/context/files".to_owned(),
        workspace: Workspace {
            size: amount("2Gi"),
            storage_class_name: Some("fast".to_owned()),
        },
        volumes: volumes(),
        instructions: vec![file("house-rules.md")],
        timeout: Duration::from_secs(5400).into(),
        start_timeout: Duration::from_secs(61).into(),
        retry: retry(),
        results: vec![ResultSpec {
            name: "commit".to_owned(),
            required: true,
        }],
        runtime_class_name: Some("gvisor".to_owned()),
        node_selector: map([("example.com/pool", "agents".to_owned())]),
        tolerations: vec![Toleration {
            key: Some("example.com/pool".to_owned()),
            operator: Some("Equal".to_owned()),
            value: Some("agents".to_owned()),
            effect: Some("NoExecute".to_owned()),
            toleration_seconds: Some(30),
        }],
        affinity: Some(affinity()),
        pod_labels: map([("example.com/team", "writers".to_owned())]),
        pod_annotations: map([("example.com/owner", "a person".to_owned())]),
        priority_class_name: Some("low".to_owned()),
    }
}

fn volumes() -> Vec<Volume> {
    let volume = |name: &str, path: &str, references: [Option<NamedRef>; 3], read_only| {
        let [secret_ref, config_map_ref, persistent_volume_claim_ref] = references;
        Volume {
            name: name.to_owned(),
            mount_path: path.to_owned(),
            secret_ref,
            config_map_ref,
            persistent_volume_claim_ref,
            read_only,
        }
    };
    vec![
        volume("keys", "/keys", [Some(named("keys")), None, None], true),
        volume(
            "rules",
            "/opt/rules",
            [None, Some(named("rules")), None],
            true,
        ),
        volume("cache", "/cache", [None, None, Some(named("cache"))], false),
    ]
}

fn affinity() -> Affinity {
    let requirement = |operator: &str, values: &[&str]| NodeSelectorRequirement {
        key: "example.com/zone".to_owned(),
        operator: operator.to_owned(),
        values: Some(values.iter().map(|value| (*value).to_owned()).collect()),
    };
    let term = |requirement| NodeSelectorTerm {
        match_expressions: Some(vec![requirement]),
        match_fields: None,
    };
    let pods = |app: &str| PodAffinityTerm {
        label_selector: Some(LabelSelector {
            match_labels: Some(map([("app", app.to_owned())])),
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: "tier".to_owned(),
                operator: "NotIn".to_owned(),
                values: Some(vec!["test".to_owned()]),
            }]),
        }),
        topology_key: "kubernetes.io/hostname".to_owned(),
        ..PodAffinityTerm::default()
    };
    let preferred = |app: &str| {
        Some(vec![WeightedPodAffinityTerm {
            weight: 5,
            pod_affinity_term: pods(app),
        }])
    };
    Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                node_selector_terms: vec![term(requirement("In", &["a", "b"]))],
            }),
            preferred_during_scheduling_ignored_during_execution: Some(vec![
                PreferredSchedulingTerm {
                    weight: 10,
                    preference: term(requirement("Gt", &["4"])),
                },
            ]),
        }),
        pod_affinity: Some(PodAffinity {
            required_during_scheduling_ignored_during_execution: Some(vec![pods("cache")]),
            preferred_during_scheduling_ignored_during_execution: preferred("store"),
        }),
        pod_anti_affinity: Some(PodAntiAffinity {
            required_during_scheduling_ignored_during_execution: Some(vec![pods("web")]),
            preferred_during_scheduling_ignored_during_execution: preferred("batch"),
        }),
    }
}

pub(crate) fn run_spec() -> TaskRunSpec {
    TaskRunSpec {
        task_id: 42,
        service_name: "Shop / Web".to_owned(),
        agent_name: "writer".to_owned(),
        context_version: 3,
        markdown_files: vec![file("task.md"), file("Design_2.md")],
        timeout: Some(Duration::from_secs(1800).into()),
        retry: Some(retry()),
        suspend: true,
        cancel: true,
        child_ttl: Some(ChildTtl {
            succeeded: Some(Duration::from_secs(60).into()),
            failed: Some(Duration::from_secs(90_000).into()),
        }),
    }
}

pub(crate) fn docs_spec() -> DocsRunSpec {
    DocsRunSpec {
        repository_url: "ssh://git@git.example.com:2222/~team/shop.git".to_owned(),
        source_branch: "release/1.x".to_owned(),
        working_directory: "services/api".to_owned(),
        agent_name: "writer".to_owned(),
        model: Some("Small / 2".to_owned()),
        instructions: vec![file("audience.md"), file("Style_2.md")],
        include_codebase: true,
        credentials_secret_ref: Some(named("git")),
        output: Output {
            branch: Some("docs/api".to_owned()),
            path: "site/docs/".to_owned(),
            require_changes: false,
            commit_message: Some("Describe the API\n\nä `quoted` \"text\"\n".to_owned()),
        },
        timeout: Some(Duration::from_secs(1800).into()),
        suspend: true,
        cancel: true,
        child_ttl: Some(ChildTtl {
            succeeded: Some(Duration::from_secs(60).into()),
            failed: Some(Duration::from_secs(90_000).into()),
        }),
    }
}

fn progress() -> Result<CommonStatus> {
    Ok(CommonStatus {
        observed_generation: 5,
        reason: Some("Progressing".to_owned()),
        message: Some("It waits for the ServiceAccount 'writer'.".to_owned()),
        last_updated: Some(time(9)?),
        conditions: vec![Condition {
            type_: "Reconciling".to_owned(),
            status: "True".to_owned(),
            reason: "Progressing".to_owned(),
            message: "It waits.".to_owned(),
            observed_generation: Some(5),
            last_transition_time: time(1)?,
        }],
        phase_history: vec![PhaseRecord {
            phase: "Pending".to_owned(),
            attempt: Some(2),
            started_at: time(1)?,
            finished_at: Some(time(2)?),
            outcome: "Completed".to_owned(),
            reason: "Progressing".to_owned(),
            message: "It waited.".to_owned(),
        }],
        retry: Some(Waiting {
            attempt: 4,
            class: "Transient".to_owned(),
            next_at: Some(time(30)?),
            every: Some(Duration::from_secs(300).into()),
        }),
        phase_started_at: Some(time(2)?),
        deadline_at: Some(time(60)?),
        phase_progress: Some(PhaseProgress {
            fingerprint: "0123456789".to_owned(),
            changed_at: time(7)?,
        }),
    })
}

pub(crate) fn agent_status() -> Result<AgentStatus> {
    Ok(AgentStatus {
        phase: Some(AgentPhase::Ready),
        progress: progress()?,
    })
}

fn evidence() -> Result<Evidence> {
    Ok(Evidence {
        exit_code: Some(137),
        signal: Some(9),
        reason: Some("OOMKilled".to_owned()),
        message: Some("It used more than 1Gi.".to_owned()),
        results: map([("commit", "0123abc".to_owned())]),
        image_id: Some("registry.example/agent@sha256:0123".to_owned()),
        node: Some("node-0".to_owned()),
        pod_name: Some("shop-42-v3-abcde".to_owned()),
        pod_uid: Some("9c5b94b1-35ad-49bb-b118-8e8fc24abf80".to_owned()),
        started_at: Some(time(3)?),
        finished_at: Some(time(8)?),
    })
}

fn run_pod() -> Result<RunPod> {
    Ok(RunPod {
        name: "shop-42-v3-abcde".to_owned(),
        uid: "9c5b94b1-35ad-49bb-b118-8e8fc24abf80".to_owned(),
        node: Some("node-0".to_owned()),
        disrupted_at: Some(time(4)?),
    })
}

pub(crate) fn run_status() -> Result<TaskRunStatus> {
    Ok(TaskRunStatus {
        phase: Some(RunPhase::Failed),
        context_version: Some(3),
        attempt: AttemptStatus {
            job_name: Some("shop-42-v3-a2".to_owned()),
            job_uid: Some("0a5b94b1-35ad-49bb-b118-8e8fc24abf80".to_owned()),
            config_map_name: Some("shop-42-v3-files".to_owned()),
            config_map_uid: Some("1b5b94b1-35ad-49bb-b118-8e8fc24abf80".to_owned()),
            attempts: 2,
            disruptions: 1,
            pod: Some(run_pod()?),
            next_attempt_at: Some(time(2)?),
            started_at: Some(time(3)?),
            finished_at: Some(time(8)?),
            result: Some(evidence()?),
        },
        history: vec![Version {
            context_version: 2,
            phase: "Succeeded".to_owned(),
            reason: "Succeeded".to_owned(),
            attempts: 1,
            disruptions: 2,
            finished_at: time(0)?,
            result: Some(evidence()?),
        }],
        progress: progress()?,
    })
}

pub(crate) fn docs_status() -> Result<DocsRunStatus> {
    Ok(DocsRunStatus {
        phase: Some(RunPhase::Succeeded),
        base_commit: Some("0123456789abcdef0123456789abcdef01234567".to_owned()),
        branch: Some("docs/api".to_owned()),
        branch_head: Some("89abcdef0123456789abcdef0123456789abcdef".to_owned()),
        commit: Some("fedcba9876543210fedcba9876543210fedcba98".to_owned()),
        changed_files: Some(ChangedFiles {
            count: 21,
            first: vec!["docs/README.md".to_owned(), "docs/ä b.md".to_owned()],
        }),
        left_out: Some(ChangedFiles {
            count: 1,
            first: vec!["docs/link".to_owned()],
        }),
        publisher: Some("89ab-uid".to_owned()),
        deadline_extensions: 1,
        attempt: AttemptStatus {
            job_name: Some("shop-docs-a2".to_owned()),
            job_uid: Some("0a5b94b1-35ad-49bb-b118-8e8fc24abf80".to_owned()),
            config_map_name: Some("shop-docs-files".to_owned()),
            config_map_uid: Some("1b5b94b1-35ad-49bb-b118-8e8fc24abf80".to_owned()),
            attempts: 2,
            disruptions: 1,
            pod: Some(run_pod()?),
            next_attempt_at: Some(time(2)?),
            started_at: Some(time(3)?),
            finished_at: Some(time(8)?),
            result: Some(evidence()?),
        },
        progress: progress()?,
    })
}
