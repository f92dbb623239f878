//! The labels and values that `describe` shows for a spec and its status. All functions are pure.

use api::{
    tasks::{Agent, ChangedFiles, DocsRun, File, TaskRun},
    tenants::{
        Component, ComponentPhase, DeletionPolicy, Owner, OwnerKind, Tenant, TenantStatus, Used,
        namespace_of,
    },
};

use crate::text::{bytes, count, span};

/// A label and a value. Fields with an empty value are left out.
pub(super) type Field = (&'static str, String);

pub(super) fn task(run: &TaskRun) -> Vec<Field> {
    let spec = &run.spec;
    vec![
        ("Task", spec.task_id.to_string()),
        ("Service", spec.service_name.clone()),
        ("Agent", spec.agent_name.clone()),
        ("Version", spec.context_version.to_string()),
        ("Files", file_words(&spec.markdown_files)),
        ("Timeout", spec.timeout.map_or_else(String::new, duration)),
        (
            "Attempts",
            spec.retry.as_ref().map_or_else(String::new, |retry| {
                format!("at most {}", retry.max_attempts)
            }),
        ),
        ("Suspended", yes(spec.suspend)),
        ("Cancelled", yes(spec.cancel)),
    ]
}

fn yes(is_so: bool) -> String {
    if is_so {
        "yes".to_owned()
    } else {
        String::new()
    }
}

fn file_words(files: &[File]) -> String {
    let size = files.iter().map(|file| file.content.len()).sum();
    let names: Vec<&str> = files.iter().map(|file| file.filename.as_str()).collect();
    format!("{}, {}: {}", files.len(), bytes(size), names.join(", "))
}

pub(super) fn documentation(run: &DocsRun) -> Vec<Field> {
    let spec = &run.spec;
    let files = &spec.instructions;
    let secret = spec.credentials_secret_ref.as_ref();
    vec![
        ("Repository", spec.repository_url.clone()),
        ("Reads branch", spec.source_branch.clone()),
        ("Works in", spec.working_directory.clone()),
        (
            "Agent sees",
            match spec.include_codebase {
                true => "the whole checkout".to_owned(),
                false => "that folder only".to_owned(),
            },
        ),
        ("Agent", spec.agent_name.clone()),
        ("Model", spec.model.clone().unwrap_or_default()),
        (
            "Instructions",
            match files.is_empty() {
                true => String::new(),
                false => file_words(files),
            },
        ),
        (
            "Secret",
            secret.map(|secret| secret.name.clone()).unwrap_or_default(),
        ),
        ("Pushes to", run.output_branch()),
        ("Takes over", spec.output.path.clone()),
        (
            "No changes",
            match spec.output.require_changes {
                true => String::new(),
                false => "allowed".to_owned(),
            },
        ),
        (
            "Message",
            spec.output.commit_message.clone().unwrap_or_default(),
        ),
        ("Timeout", spec.timeout.map_or_else(String::new, duration)),
        ("Suspended", yes(spec.suspend)),
        ("Cancelled", yes(spec.cancel)),
    ]
}

/// Returns the result in the repository: branch, commit, and changed files.
pub(super) fn pushed(run: &DocsRun) -> Vec<Field> {
    let Some(status) = &run.status else {
        return Vec::new();
    };
    let before = match (&status.branch, &status.branch_head) {
        (Some(_), Some(head)) => head.clone(),
        (Some(_), None) => "there was no such branch".to_owned(),
        (None, _) => String::new(),
    };
    let listed = |files: &Option<ChangedFiles>| {
        files.as_ref().map_or_else(String::new, |files| {
            let more = match usize::try_from(files.count) {
                Ok(count) if count > files.first.len() => ", …",
                Ok(_) | Err(_) => "",
            };
            format!("{}: {}{more}", files.count, files.first.join(", "))
        })
    };
    vec![
        (
            "Base commit",
            status.base_commit.clone().unwrap_or_default(),
        ),
        ("Branch", status.branch.clone().unwrap_or_default()),
        ("Before", before),
        ("Commit", status.commit.clone().unwrap_or_default()),
        ("Changed files", listed(&status.changed_files)),
        ("Left out", listed(&status.left_out)),
    ]
}

fn duration(duration: kube::core::Duration) -> String {
    span(i64::try_from(std::time::Duration::from(duration).as_secs()).unwrap_or(i64::MAX))
}

pub(super) fn result_fields(result: &api::tasks::Evidence) -> Vec<Field> {
    let number = |number: Option<i32>| number.map_or_else(String::new, |it| it.to_string());
    let results: Vec<String> = result
        .results
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    vec![
        ("Reason", result.reason.clone().unwrap_or_default()),
        ("Exit code", number(result.exit_code)),
        ("Signal", number(result.signal)),
        ("Message", result.message.clone().unwrap_or_default()),
        ("Results", results.join(", ")),
        ("Image", result.image_id.clone().unwrap_or_default()),
        ("Pod", result.pod_name.clone().unwrap_or_default()),
        ("Node", result.node.clone().unwrap_or_default()),
    ]
}

/// Returns the spec of an Agent.
pub(super) fn agent(agent: &Agent) -> Vec<Field> {
    let spec = &agent.spec;
    let results: Vec<String> = spec
        .results
        .iter()
        .map(|result| {
            let word = if result.required { " (required)" } else { "" };
            format!("{}{word}", result.name)
        })
        .collect();
    let instructions = spec.instructions.iter();
    let instructions: Vec<&str> = instructions.map(|file| file.filename.as_str()).collect();
    vec![
        ("Image", spec.image.clone()),
        ("Command", spec.command.join(" ")),
        ("Arguments", spec.args.join(" ")),
        ("Account", spec.service_account_name.clone()),
        ("User", spec.run_as_user.to_string()),
        ("Timeout", duration(spec.timeout)),
        ("To start", duration(spec.start_timeout)),
        ("Attempts", spec.retry.max_attempts.to_string()),
        ("Results", results.join(", ")),
        ("Instructions", instructions.join(", ")),
    ]
}

/// Returns the spec of a Tenant. Values of its environment variables and of its Redis configuration
/// are not shown.
pub(super) fn tenant(tenant: &Tenant) -> Vec<Field> {
    let spec = &tenant.spec;
    let name = tenant.metadata.name.as_deref().unwrap_or_default();
    let owners: Vec<String> = spec.owners.iter().map(owner).collect();
    let server = spec.server.as_ref().map(|server| {
        let replicas = usize::try_from(server.replicas).unwrap_or(usize::MAX);
        format!(
            "{}, {}, port {}",
            server.image,
            count(replicas, "replica"),
            server.port
        )
    });
    let redis = spec.redis.as_ref().map(|redis| {
        let class = redis.storage.storage_class_name.as_ref();
        let class = class.map_or_else(String::new, |class| format!(" of class '{class}'"));
        format!("{}, {}{class}", redis.image, redis.storage.size.0)
    });
    let policy = match spec.deletion.policy {
        DeletionPolicy::Retain => "Retain",
        DeletionPolicy::Delete => "Delete",
    };
    let policies = match (spec.network_policy.enabled, spec.isolation.probe) {
        (false, _) => "off",
        (true, true) => "on, proven by trying",
        (true, false) => "on, not proven",
    };
    vec![
        ("Customer", spec.display_name.clone().unwrap_or_default()),
        ("About", spec.description.clone().unwrap_or_default()),
        ("Namespace", namespace_of(name, spec)),
        ("Owners", owners.join(", ")),
        ("Server", server.unwrap_or_default()),
        ("Redis", redis.unwrap_or_default()),
        ("Policies", policies.to_owned()),
        ("Let in", spec.network_policy.allowed_namespaces.join(", ")),
        (
            "On deletion",
            format!(
                "{policy}, blocked after {}",
                duration(spec.deletion.deadline)
            ),
        ),
        ("Suspended", yes(spec.suspend)),
    ]
}

fn owner(owner: &Owner) -> String {
    let Owner {
        kind,
        name,
        namespace,
    } = owner;
    match (kind, namespace) {
        (OwnerKind::User, _) => format!("User '{name}'"),
        (OwnerKind::Group, _) => format!("Group '{name}'"),
        (OwnerKind::ServiceAccount, Some(namespace)) => {
            format!("ServiceAccount '{namespace}/{name}'")
        }
        (OwnerKind::ServiceAccount, None) => format!("ServiceAccount '{name}'"),
    }
}

/// Returns the state of the Tenant's components and its resource usage.
pub(super) fn standing(status: &TenantStatus) -> Vec<Field> {
    let part = |part: &Option<Component>| {
        part.as_ref().map_or_else(String::new, |part| {
            let phase = match part.phase {
                ComponentPhase::Provisioning => "Provisioning",
                ComponentPhase::Running => "Running",
                ComponentPhase::Degraded => "Degraded",
                ComponentPhase::Suspended => "Suspended",
            };
            format!("{phase}: {}", part.message)
        })
    };
    vec![
        ("Server", part(&status.server_status)),
        ("Redis", part(&status.redis_status)),
        ("Used", used(status)),
    ]
}

/// Formats the usage: `cpu 150m requested, 1500m limit; pods 3`.
fn used(status: &TenantStatus) -> String {
    let Some(usage) = &status.usage else {
        return String::new();
    };
    let parts = [
        ("cpu", &usage.cpu),
        ("memory", &usage.memory),
        ("storage", &usage.storage),
    ];
    let mut words: Vec<String> = parts
        .iter()
        .filter_map(|(name, used)| Some((*name, used.as_ref()?)))
        .map(|(name, Used { request, limit })| match (request, limit) {
            (Some(request), Some(limit)) => format!("{name} {request} requested, {limit} limit"),
            (Some(one), None) | (None, Some(one)) => format!("{name} {one}"),
            (None, None) => name.to_owned(),
        })
        .collect();
    words.extend(usage.pods.iter().map(|pods| format!("pods {}", pods.used)));
    words.join("; ")
}
