//! Accepted and rejected configurations, and their error messages.

use super::{read::size, *};

#[test]
fn an_empty_file_is_the_defaults() {
    for text in ["", "# nothing\n", "{}"] {
        assert_eq!(Config::parse(text).unwrap(), Config::default(), "{text}");
    }
    let Config {
        watch_namespaces,
        concurrency,
        log,
        tasks,
        tenants,
        apps,
        notebooks,
        gateway,
        leader_election,
    } = Config::default();
    assert!(watch_namespaces.is_empty());
    assert_eq!(concurrency, 32);
    assert_eq!(log.filter, logging::DEFAULT);
    assert_eq!(gateway.pm.namespace, "orchestrator");
    assert_eq!((gateway.streams_per_caller, gateway.hosts.len()), (8, 0));
    assert_eq!(gateway.proxy_header, None);
    assert_eq!(leader_election.durations, LeaseTimings::default());
    assert_eq!(
        tasks::run::Cleanup::from(tasks.cleanup),
        tasks::run::Cleanup::default()
    );
    assert_eq!(tasks.delete_finished_runs_after, None);
    assert_eq!(Settings::from(tasks.docs), Settings::default());
    let Resources { requests, limits } = tasks.default_resources;
    assert_eq!(requests["cpu"].0, "100m");
    assert_eq!(
        (requests["memory"].0.as_str(), limits["memory"].0.as_str()),
        ("128Mi", "512Mi")
    );
    assert_eq!((requests.len(), limits.len()), (2, 1));
    assert_eq!(
        tenants.default_resources,
        Tasks::default().default_resources
    );
    assert!(apps.settings().read_release_secrets);
    assert_eq!(apps.settings().steps, Settings::default());
    let of_notebooks = notebooks.settings();
    assert_eq!(of_notebooks.step, Settings::default());
    assert_eq!(of_notebooks.cleanup, tasks::run::Cleanup::default());
    assert_eq!(of_notebooks.max_result_bytes, 64 * 1024);
    assert!(!of_notebooks.accept_changed_pods);
    assert_eq!(tenants.dns_namespace, "kube-system");
    assert_eq!(tenants.probe_image, Settings::default().toolbox_image);
}

/// The operator's settings must match the objects that the chart installs.
#[test]
fn tenants_are_made_with_the_names_that_the_chart_has() {
    let settings = Tenants::default().settings("home");
    assert_eq!(settings.probe_namespace, "home");
    assert_eq!(settings.probe_image, Settings::default().toolbox_image);
    let role = api::policy::tenant_owner_role().metadata.name;
    assert_eq!(Some(&settings.owner_role), role.as_ref());
    let class = api::policy::tenant_probe_class().metadata.name;
    assert_eq!(Some(&settings.probe_priority_class), class.as_ref());
    let defaults = tenants::build::Settings::default();
    assert_eq!(settings.owner_role, defaults.owner_role);
    assert_eq!(settings.probe_priority_class, defaults.probe_priority_class);
}

/// The policy that restricts the operator's Pods identifies the probe Pods by their label.
#[test]
fn pods_that_try_connections_are_those_that_the_policy_lets_through() {
    let mut policies = api::policy::tenant_operator().into_iter();
    let pods = policies.find(|one| one.metadata.name.as_deref() == Some("own-pods"));
    let text = serde_json::to_string(&pods).unwrap();
    let (label, value) = (tenants::build::COMPONENT, tenants::build::probe::PROBE);
    assert!(
        text.contains(&format!("['{label}'] == '{value}'")),
        "{text}"
    );
}

#[test]
fn tenants_are_not_kept_to_some_namespaces() {
    let some = Config::parse("watchNamespaces: [team-a]\n").unwrap();
    let why = some.clone().suits(&api::tenants::OPERATOR).unwrap_err();
    assert!(why.contains("watchNamespaces: must be empty"), "{why}");
    assert_eq!(some.clone().suits(&api::tasks::OPERATOR).unwrap(), some);
    assert!(Config::default().suits(&api::tenants::OPERATOR).is_ok());
    assert_eq!(some.clone().suits(Component::Gateway).unwrap(), some);
}

#[test]
fn defaults_would_be_accepted_if_they_were_written() {
    let written = Config::defaults();
    assert_eq!(
        Config::parse(&written.to_string()).unwrap(),
        Config::default(),
        "{written}"
    );
}

/// Returns the paths of all leaves without a default.
fn leaves_without_default(path: &str, schema: &serde_json::Value) -> Vec<String> {
    if !schema["default"].is_null() {
        return Vec::new();
    }
    let Some(fields) = schema["properties"].as_object() else {
        return vec![path.trim_start_matches('.').to_owned()];
    };
    let fields = fields.iter();
    fields
        .flat_map(|(name, field)| leaves_without_default(&format!("{path}.{name}"), field))
        .collect()
}

/// A field whose default is missing in the schema is missing in the reference, too.
#[test]
fn only_fields_that_may_be_unset_have_no_default() {
    let leaves = leaves_without_default("", &Config::schema());
    assert_eq!(
        leaves,
        ["gateway.proxyHeader", "tasks.deleteFinishedRunsAfter"]
    );
}

#[test]
fn every_field_is_read() {
    let config = Config::parse(
        "
watchNamespaces: [team-a, team-b]
concurrency: 8
log: {filter: debug}
tasks:
  defaultResources:
    requests: {cpu: 2, example.com/gpu: 1}
  cleanup: {enabled: false, completedJobDelayMinutes: 0, failedJobDelayMinutes: 7, deleteConfigMap: false}
  deleteFinishedRunsAfter: 36h30m
  docs: {toolboxImage: toolbox:2, allowedNetworks: [10.1.0.0/16, 'fd00::/8'], plainHttp: true, repositoryLimitMiB: 7}
tenants:
  defaultResources: {limits: {cpu: 1}}
  objectLimits: {pods: 9, count/secrets: 2000}
  clusterNetworks: [198.51.100.0/24, '2001:db8::/48']
  dnsNamespace: dns
  probeImage: toolbox:3
apps:
  git: {toolboxImage: 'toolbox:4', allowedNetworks: [10.2.0.0/16], plainHttp: true, repositoryLimitMiB: 9}
  helm: {readReleaseSecrets: false}
notebooks:
  toolboxImage: toolbox:5
  runnerImage: runner:2
  allowedNetworks: [10.3.0.0/16]
  plainHttp: true
  repositoryLimitMiB: 11
  acceptChangedPods: true
  results: {maxBytes: 8192}
  cleanup: {enabled: false, completedJobDelayMinutes: 1, failedJobDelayMinutes: 2}
gateway: {pm: {namespace: pm}, hosts: [orc.example], proxyHeader: X-Auth-Token, streamsPerCaller: 10}
leaderElection: {leaseDurationSeconds: 60, renewSeconds: 10}
",
    )
    .unwrap();
    assert_eq!(config.watch_namespaces, ["team-a", "team-b"]);
    assert_eq!(
        (config.concurrency, config.log.filter.as_str()),
        (8, "debug")
    );
    let settings = Settings {
        toolbox_image: "toolbox:2".to_owned(),
        allowed_networks: vec!["10.1.0.0/16".to_owned(), "fd00::/8".to_owned()],
        plain_http: true,
        repository_limit_mib: 7,
    };
    assert_eq!(Settings::from(config.tasks.docs), settings);
    let of_tenants = config.tenants.settings("home");
    let limits = serde_json::json!({ "limits": { "cpu": "1" } });
    assert_eq!(of_tenants.default_resources, limits);
    assert_eq!(of_tenants.object_limits["count/secrets"], 2000);
    assert_eq!(of_tenants.object_limits["pods"], 9);
    let networks = ["198.51.100.0/24", "2001:db8::/48"];
    assert_eq!(of_tenants.cluster_networks, networks);
    assert_eq!(
        (of_tenants.dns_namespace, of_tenants.probe_image),
        ("dns".to_owned(), "toolbox:3".to_owned())
    );
    let of_apps = config.apps.settings();
    assert!(!of_apps.read_release_secrets);
    let steps = Settings {
        toolbox_image: "toolbox:4".to_owned(),
        allowed_networks: vec!["10.2.0.0/16".to_owned()],
        plain_http: true,
        repository_limit_mib: 9,
    };
    assert_eq!(of_apps.steps, steps);
    let of_notebooks = config.notebooks.settings();
    let steps = Settings {
        toolbox_image: "toolbox:5".to_owned(),
        allowed_networks: vec!["10.3.0.0/16".to_owned()],
        plain_http: true,
        repository_limit_mib: 11,
    };
    assert_eq!(of_notebooks.step, steps);
    assert_eq!(of_notebooks.runner_image, "runner:2");
    assert_eq!(of_notebooks.max_result_bytes, 8192);
    assert!(of_notebooks.accept_changed_pods && !of_notebooks.cleanup.enabled);
    assert_eq!(of_notebooks.cleanup.after_success, Duration::from_mins(1));
    assert_eq!(of_notebooks.cleanup.after_failure, Duration::from_mins(2));
    assert_eq!(config.gateway.pm.namespace, "pm");
    assert_eq!(config.gateway.hosts, ["orc.example"]);
    let header = config.gateway.proxy_header.map(|header| header.0);
    assert_eq!(header.unwrap(), "x-auth-token");
    assert_eq!(config.gateway.streams_per_caller, 10);
    let resources = config.tasks.default_resources;
    assert_eq!(resources.requests["cpu"].0, "2");
    assert!(
        resources.limits.is_empty(),
        "what is given replaces the default as a whole"
    );
    let cleanup = tasks::run::Cleanup::from(config.tasks.cleanup);
    let wanted = tasks::run::Cleanup {
        enabled: false,
        after_success: Duration::ZERO,
        after_failure: Duration::from_mins(7),
        delete_config_map: false,
    };
    assert_eq!(cleanup, wanted);
    assert_eq!(
        config.tasks.delete_finished_runs_after,
        Some(Duration::from_mins(36 * 60 + 30))
    );
    let wanted = LeaseTimings::new(Duration::from_mins(1), Duration::from_secs(10)).unwrap();
    assert_eq!(config.leader_election.durations, wanted);
}

#[test]
fn r16_what_is_wrong_is_refused_with_key_and_line() {
    let table = [
        ("concurency: 3\n", "line 1", "`concurency`"),
        (
            "concurrency: 3\n\ntasks:\n  defaultResource: {}\n",
            "line 4",
            "`defaultResource`",
        ),
        ("concurrency: many\n", "line 1", "u32"),
        (
            "log: {}\nconcurrency: 0\n",
            "line 2",
            "from 1 to 1024, found 0",
        ),
        ("concurrency: 1025", "line 1", "concurrency"),
        ("concurrency: 1\nconcurrency: 2\n", "line 2", "concurrency"),
        ("\nwatchNamespaces: team-a\n", "line 2", "sequence"),
        ("watchNamespaces: [Team]\n", "line 1", "'Team'"),
        ("watchNamespaces: [a, b, a]\n", "line 1", "'a' occurs twice"),
        ("watchNamespaces: ['']\n", "line 1", "''"),
        ("log:\n  filter: engine=debug\n", "line 2", "log.filter"),
        ("log:\n  filter: loud\n", "line 2", "log.filter"),
        (
            "tasks:\n  defaultResources:\n    requests: {cpu: -1}\n",
            "line 3",
            "defaultResources.requests.cpu: '-1'",
        ),
        (
            "tasks:\n  defaultResources:\n    requests: {memory: 2Gi}\n    limits: {memory: 1G}\n",
            "line 3",
            "the request of memory, 2Gi, is more than its limit, 1G",
        ),
        (
            "tasks:\n  defaultResources:\n    claims: []\n",
            "line 3",
            "`claims`",
        ),
        (
            "tasks:\n  cleanup: {completedJobDelayMinutes: -1}\n",
            "line 2",
            "u32",
        ),
        (
            "tasks:\n  cleanup:\n    failedJobDelayMinutes: 600000\n",
            "line 3",
            "from 0 to 527040 minutes, found 600000",
        ),
        (
            "tasks:\n  deleteFinishedRunsAfter: 30s\n",
            "line 2",
            "found '30s'",
        ),
        (
            "tasks:\n  deleteFinishedRunsAfter: -72h\n",
            "line 2",
            "found '-72h'",
        ),
        (
            "tasks:\n  deleteFinishedRunsAfter: soon\n",
            "line 2",
            "found 'soon'",
        ),
        (
            "tasks:\n  docs:\n    allowedNetworks: [10.0.0.0/33]\n",
            "line 3",
            "docs.allowedNetworks",
        ),
        (
            "tasks:\n  docs:\n    toolboxImage: ''\n",
            "line 3",
            "docs.toolboxImage",
        ),
        (
            "tasks:\n  docs: {repositoryLimitMiB: 0}\n",
            "line 2",
            "from 1 to 1048576, found 0",
        ),
        (
            "tasks:\n  docs: {allowHttp: true}\n",
            "line 2",
            "`allowHttp`",
        ),
        (
            "gateway:\n  pm:\n    namespace: Team\n",
            "line 3",
            "gateway.pm.namespace: 'Team'",
        ),
        (
            "gateway:\n  streamsPerCaller: 0\n",
            "line 2",
            "gateway.streamsPerCaller: must be from 1 to 100",
        ),
        (
            "gateway:\n  proxyHeader: a b\n",
            "line 2",
            "gateway.proxyHeader: 'a b'",
        ),
        (
            "tenants:\n  dnsNamespace: Kube\n",
            "line 2",
            "tenants.dnsNamespace: 'Kube'",
        ),
        (
            "tenants:\n  objectLimits: {count/secret: 5}\n",
            "line 2",
            "tenants.objectLimits: 'count/secret' is not one of pods, count/pods, ",
        ),
        (
            "tenants:\n  objectLimits: {count/secrets: 0}\n",
            "line 2",
            "tenants.objectLimits.count/secrets: must be from 1 to 100000, found 0",
        ),
        (
            "tenants:\n  clusterNetworks: [10.0.0.1]\n",
            "line 2",
            "tenants.clusterNetworks: ",
        ),
        (
            "tenants:\n  clusterNetworks: ['::/0']\n",
            "line 2",
            "tenants.clusterNetworks: '::/0' is everything",
        ),
        (
            "tenants:\n  probeImage: '-v'\n",
            "line 2",
            "tenants.probeImage: must be the name of an image",
        ),
        ("tenants: {ownerRole: admin}\n", "line 1", "`ownerRole`"),
        (
            "apps:\n  helm: {readReleaseSecrets: maybe}\n",
            "line 2",
            "boolean",
        ),
        ("apps: {git: {mode: PullRequest}}\n", "line 1", "`mode`"),
        (
            "apps:\n  git: {allowedNetworks: [everywhere]}\n",
            "line 2",
            "everywhere",
        ),
        ("notebooks: {build: {enabled: true}}\n", "line 1", "`build`"),
        (
            "notebooks:\n  runnerImage: ''\n",
            "line 2",
            "notebooks.runnerImage: must be the name of an image",
        ),
        (
            "notebooks:\n  results: {maxBytes: 1}\n",
            "line 2",
            "notebooks.results.maxBytes: must be from 4096 to 524288, found 1",
        ),
        (
            "leaderElection: {renewSeconds: 6}\n",
            "line 1",
            "leaderElection",
        ),
        (
            "leaderElection:\n  leaseDuration: 6\n",
            "line 2",
            "`leaseDuration`",
        ),
        ("[1, 2]", "line 1", "mapping"),
        ("concurrency: [\n", "line", ""),
        ("a: 1\n---\nb: 2\n", "line", ""),
    ];
    for (text, line, wanted) in table {
        let why = Config::parse(text).unwrap_err();
        assert!(why.contains(line) && why.contains(wanted), "{text}: {why}");
        assert!(!why.contains('\n'), "one line: {why}");
    }
}

#[test]
fn quantities_are_those_of_the_schema() {
    for (text, wanted) in [
        ("2", Some(2.0)),
        ("1.5", Some(1.5)),
        ("500m", Some(0.5)),
        ("1Ki", Some(1024.0)),
        ("1k", Some(1000.0)),
        ("", None),
        ("Gi", None),
        ("1gi", None),
        ("1.2.3", None),
        ("1.", None),
        (".5", None),
        ("1e3", None),
        ("-1", None),
        ("1 Gi", None),
        ("1234567890123456789", None),
    ] {
        assert_eq!(size(text), wanted, "{text}");
    }
}

#[test]
fn r16_a_missing_file_is_named() {
    let path = Path::new("/no/such/config.yaml");
    let why = Config::load(path, &api::tasks::OPERATOR)
        .unwrap_err()
        .to_string();
    assert!(
        why.contains("/no/such/config.yaml") && why.contains("cannot read"),
        "{why}"
    );
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(
        Config::load(folder.path(), &api::tasks::OPERATOR),
        Err(ConfigError::Unreadable(..))
    ));
    let file = folder.path().join("config.yaml");
    fs::write(&file, [0xff, 0xfe]).unwrap();
    assert!(matches!(
        Config::load(&file, &api::tasks::OPERATOR),
        Err(ConfigError::Unreadable(..))
    ));
}
