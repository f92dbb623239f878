//! Attempts to access objects through an Agent, a TaskRun or a DocsRun without permission for them.
//!
//! Each attempt is a row with a name, a user, a request and the message of the rejection. If only a
//! policy stops an attempt, the attempt also runs without the policies and must succeed there.
//! Otherwise it would prove nothing.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::{cluster::Tier, suite};

use crate::{
    arena::{Act, Arena, Who, with},
    fixtures::agent_spec,
    support::{Answer, Kind},
};

/// The mechanism that stops an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guard {
    /// One of our policies, by the permissions of the author.
    Policy,
    /// RBAC alone, by the permissions of the role.
    Rights,
    /// The schema and its rules.
    Schema,
}

impl Guard {
    fn code(self) -> u16 {
        match self {
            Self::Policy | Self::Rights => 403,
            Self::Schema => 422,
        }
    }
}

struct Attack {
    what: &'static str,
    who: Who,
    act: Act,
    guard: Guard,
    says: &'static str,
}

/// Rows of `what: who, act => guard, words;`.
macro_rules! attacks {
    ($($what:literal: $who:ident, $act:expr => $guard:ident, $says:expr;)+) => {
        vec![$(Attack {
            what: $what,
            who: Who::$who,
            act: $act,
            guard: Guard::$guard,
            says: $says,
        }),+]
    };
}

mod docs;

/// Returns the minimal Agent with these fields.
fn agent(fields: Value) -> Value {
    with(Kind::Agent.least(), &fields)
}

/// Returns the minimal run with these fields.
fn run(fields: Value) -> Value {
    with(Kind::TaskRun.least(), &fields)
}

fn new_agent(fields: Value) -> Act {
    Act::Create(Kind::Agent, agent(fields))
}

fn new_run(fields: Value) -> Act {
    Act::Create(Kind::TaskRun, run(fields))
}

fn secret_in_env() -> Value {
    json!([{ "name": "A" }, { "name": "KEY", "valueFrom": { "secretKeyRef": { "name": "vault", "key": "k" } } }])
}

/// Returns the annotation that the operator sets at the end of a run.
fn forged() -> Value {
    let said = json!({ "version": 1, "outcome": "Succeeded", "reason": "Succeeded", "uid": "u" });
    json!({ "annotations": { api::names::OUTCOME: said.to_string() } })
}

/// Returns the annotation with the author of a run.
fn submitted_by(user: &str) -> Value {
    json!({ "annotations": { api::names::SUBMITTED_BY: user } })
}

const SECRETS: &str = "must be allowed to 'create pods' or to 'get secrets' in the namespace";
const CONFIG_MAPS: &str =
    "must be allowed to 'create pods' or to 'get configmaps' in the namespace";
const ACCOUNT: &str =
    "must be allowed to 'create pods' or to 'impersonate' that ServiceAccount in the namespace";
const OUTCOME: &str = "must be allowed to 'patch taskruns/status' in the namespace";

/// Returns the attacks that the permissions of the user stop.
#[rustfmt::skip]
fn by_rights() -> Vec<Attack> {
    let (agent_kind, run_kind) = (Kind::Agent, Kind::TaskRun);
    attacks! {
        "Secret by env": Author, new_agent(json!({ "env": secret_in_env() }))
            => Policy, "spec.env 'KEY' names the Secret 'vault': 'author' must be allowed to 'create pods' or to 'get secrets' in the namespace 't-attacks-";
        "optional Secret by env": Author, new_agent(json!({ "env": [{ "name": "K", "valueFrom": { "secretKeyRef": { "name": "vault", "key": "k", "optional": true } } }] }))
            => Policy, SECRETS;
        "Secret beside a null": Author, new_agent(json!({ "env": [{ "name": "K", "valueFrom": { "configMapKeyRef": null, "secretKeyRef": { "name": "vault", "key": "k" } } }] }))
            => Policy, SECRETS;
        "Secret by envFrom": Author, new_agent(json!({ "envFrom": [{ "secretRef": { "name": "vault" } }] }))
            => Policy, "spec.envFrom names the Secret 'vault': 'author' must be allowed";
        "ServiceAccount beside readable Secrets": Reader, new_agent(json!({ "serviceAccountName": "robot", "envFrom": [{ "configMapRef": { "name": "settings" } }, { "secretRef": { "name": "vault" } }] }))
            => Policy, ACCOUNT;
        "pull Secret": Author, new_agent(json!({ "imagePullSecrets": [{ "name": "vault" }] }))
            => Policy, "spec.imagePullSecrets names the Secret 'vault': 'author' must be allowed";
        "Secret that does not exist yet": Author, new_agent(json!({ "envFrom": [{ "secretRef": { "name": "later" } }] }))
            => Policy, "'later'";
        "token of a ServiceAccount as a Secret": Author, new_agent(json!({ "envFrom": [{ "secretRef": { "name": "robot-token" } }] }))
            => Policy, SECRETS;
        "ConfigMap by env": Author, new_agent(json!({ "env": [{ "name": "K", "valueFrom": { "configMapKeyRef": { "name": "settings", "key": "k" } } }] }))
            => Policy, "spec.env 'K' names the ConfigMap 'settings': 'author' must be allowed to 'create pods' or to 'get configmaps'";
        "ConfigMap by envFrom": Author, new_agent(json!({ "envFrom": [{ "configMapRef": { "name": "settings" } }] }))
            => Policy, CONFIG_MAPS;
        "Secret by a volume": Author, new_agent(json!({ "volumes": [{ "name": "v", "mountPath": "/v", "secretRef": { "name": "vault" } }] }))
            => Policy, "spec.volumes names the Secret 'vault': 'author' must be allowed to 'create pods' or to 'get secrets'";
        "ConfigMap by a volume": Author, new_agent(json!({ "volumes": [{ "name": "v", "mountPath": "/v", "configMapRef": { "name": "settings" } }] }))
            => Policy, "spec.volumes names the ConfigMap 'settings': 'author' must be allowed to 'create pods' or to 'get configmaps'";
        "a claim by who may get Secrets": Reader, new_agent(json!({ "volumes": [{ "name": "v", "mountPath": "/v", "persistentVolumeClaimRef": { "name": "data" } }] }))
            => Policy, "spec.volumes names the PersistentVolumeClaim 'data': 'reader' must be allowed to 'create pods' in the namespace";
        "a backend of a Service by a label": Author, new_agent(json!({ "podLabels": { "app": "shop" } }))
            => Policy, "spec.podLabels: 'author' must be allowed to 'create pods' in the namespace";
        "an injector's credentials by an annotation": Author, new_agent(json!({ "podAnnotations": { "vault.example.com/inject": "true" } }))
            => Policy, "spec.podAnnotations: 'author' must be allowed to 'create pods' in the namespace";
        "another ServiceAccount": Author, new_agent(json!({ "serviceAccountName": "robot" }))
            => Policy, "spec.serviceAccountName names the ServiceAccount 'robot': 'author' must be allowed to 'create pods' or to 'impersonate'";
        "another ServiceAccount without its token": Author, new_agent(json!({ "serviceAccountName": "robot", "automountToken": false }))
            => Policy, ACCOUNT;
        "the default ServiceAccount's token": Author, new_agent(json!({ "automountToken": true }))
            => Policy, "spec.automountToken mounts the token of the ServiceAccount 'default': 'author' must be";
        "ServiceAccount by who may get Secrets": Reader, new_agent(json!({ "serviceAccountName": "robot" }))
            => Policy, ACCOUNT;
        "Secret by who may impersonate": Borrower, new_agent(json!({ "serviceAccountName": "robot", "env": secret_in_env() }))
            => Policy, SECRETS;
        "another ServiceAccount than the one lent": Borrower, new_agent(json!({ "serviceAccountName": "other" }))
            => Policy, "'other'";

        "an Agent gets a Secret by patch": Author, Act::Merge(agent_kind, "plain", json!({ "spec": { "env": secret_in_env() } }))
            => Policy, SECRETS;
        "an Agent gets a Secret by apply": Author, Act::Apply(agent_kind, "plain", agent(json!({ "env": secret_in_env() })))
            => Policy, SECRETS;
        "an Agent gets a Secret by replace": Author, Act::Replace(agent_kind, "plain", json!({ "imagePullSecrets": [{ "name": "vault" }] }))
            => Policy, SECRETS;
        "an Agent made by apply": Author, Act::Apply(agent_kind, "made-by-apply", agent(json!({ "serviceAccountName": "robot" })))
            => Policy, ACCOUNT;
        "another program for an Agent that holds a Secret": Author, Act::Merge(agent_kind, "holder", json!({ "spec": { "command": ["/bin/leak"] } }))
            => Policy, "'robot'";
        "the same by who may impersonate": Borrower, Act::Merge(agent_kind, "holder", json!({ "spec": { "image": "evil:1" } }))
            => Policy, "spec.envFrom names the Secret 'vault': 'borrower' must be allowed";
        "the token, by one changed word": Author, Act::Merge(agent_kind, "plain", json!({ "spec": { "automountToken": true } }))
            => Policy, "spec.automountToken";
        "a Secret hidden by labels and a finalizer": Author, Act::Merge(agent_kind, "plain", json!({ "metadata": { "labels": { "a": "b" }, "finalizers": ["example.com/x"] }, "spec": { "env": secret_in_env() } }))
            => Policy, SECRETS;

        "a run of an Agent without 'use'": Author, new_run(json!({ "agentName": "holder" }))
            => Policy, "spec.agentName: 'author' must be allowed to 'use' the Agent 'holder' in the namespace";
        "a run of an Agent that is not there yet": Author, new_run(json!({ "agentName": "soon" }))
            => Policy, "'use' the Agent 'soon'";
        "an Agent whose name begins like an allowed one": Author, new_run(json!({ "agentName": "free.er" }))
            => Policy, "'use' the Agent 'free.er'";
        "a suspended run, to be resumed later": Author, new_run(json!({ "agentName": "holder", "suspend": true }))
            => Policy, "'use' the Agent 'holder'";
        "a run by apply": Author, Act::Apply(run_kind, "made-by-apply", run(json!({ "agentName": "holder" })))
            => Policy, "'use' the Agent 'holder'";
        "a higher version of another's run": Author, Act::Merge(run_kind, "on-holder", json!({ "spec": { "contextVersion": 2 } }))
            => Policy, "'use' the Agent 'holder'";
        "own words for another's run": Author, Act::Replace(run_kind, "on-holder", json!({ "contextVersion": 2, "markdownFiles": [{ "filename": "task.md", "content": "Print all variables." }] }))
            => Policy, "'use' the Agent 'holder'";
        "more attempts for another's run": Author, Act::Merge(run_kind, "on-holder", json!({ "spec": { "retry": { "maxAttempts": 10 } } }))
            => Policy, "'use' the Agent 'holder'";
        "more time for another's run": Author, Act::Merge(run_kind, "on-holder", json!({ "spec": { "timeout": "168h" } }))
            => Policy, "'use' the Agent 'holder'";
        "another's run resumed": Author, Act::Merge(run_kind, "held", json!({ "spec": { "suspend": false } }))
            => Policy, "'use' the Agent 'holder'";
        "a run by who may use Agents next door": Neighbour, new_run(json!({ "agentName": "free" }))
            => Policy, "'neighbour' must be allowed to 'use' the Agent 'free'";

        "a run that says it has succeeded": Author, Act::CreateWith(run_kind, run(json!({ "agentName": "free" })), forged())
            => Policy, "metadata.annotations 'orchestrator.io/outcome' says how a run ended; leave it out. To set it, 'author' must be";
        "the same said later": Author, Act::Merge(run_kind, "on-free", json!({ "metadata": forged() }))
            => Policy, OUTCOME;
        "a failure turned into a success": Author, Act::Merge(run_kind, "ended", json!({ "metadata": forged() }))
            => Policy, OUTCOME;
        "the same by who may use all Agents": Deployer, Act::CreateWith(run_kind, run(json!({ "agentName": "free" })), forged())
            => Policy, "'deployer'";

        "a run in the name of another user": Author, Act::CreateWith(run_kind, run(json!({ "agentName": "free" })), submitted_by("viewer"))
            => Policy, "metadata.annotations 'orchestrator.io/submitted-by' has the name of the author, and does not change. To set it, 'author' must be";
        "an author added later": Author, Act::Merge(run_kind, "on-free", json!({ "metadata": submitted_by("author") }))
            => Policy, OUTCOME;
        "another author later": Author, Act::Merge(run_kind, "on-free", json!({ "metadata": submitted_by("viewer") }))
            => Policy, OUTCOME;

        "a run's status": Author, Act::MergeStatus(run_kind, "on-free", json!({ "status": { "phase": "Succeeded" } }))
            => Rights, "cannot patch resource \"taskruns/status\"";
        "an Agent's status": Author, Act::MergeStatus(agent_kind, "plain", json!({ "status": { "phase": "Ready" } }))
            => Rights, "cannot patch resource \"agents/status\"";
        "an Agent by a viewer": Viewer, new_agent(json!({}))
            => Rights, "cannot create resource \"agents\"";
        "a run by a viewer": Viewer, new_run(json!({ "agentName": "free" }))
            => Rights, "cannot create resource \"taskruns\"";
        "a run cancelled by a viewer": Viewer, Act::Merge(run_kind, "on-free", json!({ "spec": { "cancel": true } }))
            => Rights, "cannot patch resource \"taskruns\"";
        "an Agent in another's namespace": Neighbour, new_agent(json!({}))
            => Rights, "cannot create resource \"agents\"";
        "an Agent changed by the operator": Operator, Act::Merge(agent_kind, "plain", json!({ "spec": { "image": "evil:1" } }))
            => Rights, "cannot patch resource \"agents\"";
        "a run made by the operator": Operator, new_run(json!({ "agentName": "free" }))
            => Rights, "cannot create resource \"taskruns\"";
        "a version raised by the operator": Operator, Act::Merge(run_kind, "on-free", json!({ "spec": { "contextVersion": 2 } }))
            => Policy, "'operator' must be allowed to 'use' the Agent 'free'";
    }
}

fn file(name: &str) -> Value {
    json!([{ "filename": name, "content": "x" }])
}

const FILE: &str = "should match '^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$'";
const NAME: &str = "should match '^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$'";
const PATH: &str = "must be an absolute path";
const FOLDER: &str = "must not be, be in or hold '/proc'";
const OURS: &str = "must not be 'HOME' nor begin with 'ORCHESTRATOR_'";

/// Returns the attacks that are stopped for every user.
#[rustfmt::skip]
fn by_schema() -> Vec<Attack> {
    attacks! {
        "root": Deployer, new_agent(json!({ "runAsUser": 0 })) => Schema, "spec.runAsUser";
        "root from below": Deployer, new_agent(json!({ "runAsUser": -1 })) => Schema, "spec.runAsUser";
        "root by overflow of 32 bits": Deployer, new_agent(json!({ "runAsUser": 4_294_967_296_i64 })) => Schema, "spec.runAsUser";
        "root as text": Deployer, new_agent(json!({ "runAsUser": "0" })) => Schema, "spec.runAsUser";

        "file upwards": Author, new_run(json!({ "markdownFiles": file("..") })) => Schema, FILE;
        "file in a folder": Author, new_run(json!({ "markdownFiles": file("a/b") })) => Schema, FILE;
        "file far upwards": Author, new_run(json!({ "markdownFiles": file("a/../../etc/passwd") })) => Schema, FILE;
        "absolute file": Author, new_run(json!({ "markdownFiles": file("/etc/passwd") })) => Schema, FILE;
        "file like an option": Author, new_run(json!({ "markdownFiles": file("-rf") })) => Schema, FILE;
        "file with a NUL": Author, new_run(json!({ "markdownFiles": file("a\u{0}.md") })) => Schema, FILE;
        "file with a line break": Author, new_run(json!({ "markdownFiles": file("a\nb") })) => Schema, FILE;
        "file with a line break at its end": Author, new_run(json!({ "markdownFiles": file("a\n") })) => Schema, FILE;
        "file of letters that look like ASCII": Author, new_run(json!({ "markdownFiles": file("\u{0430}.md") })) => Schema, FILE;
        "file name of 254 letters": Author, new_run(json!({ "markdownFiles": file(&"a".repeat(254)) })) => Schema, "spec.markdownFiles[0].filename";
        "instruction upwards": Author, new_agent(json!({ "instructions": file("..") })) => Schema, FILE;

        "context over everything": Author, new_agent(json!({ "contextPath": "/" })) => Schema, PATH;
        "context over /etc": Author, new_agent(json!({ "contextPath": "/etc" })) => Schema, FOLDER;
        "context over /proc": Author, new_agent(json!({ "contextPath": "/proc/1" })) => Schema, FOLDER;
        "context over the token": Author, new_agent(json!({ "contextPath": "/var/run/secrets/kubernetes.io/serviceaccount" })) => Schema, FOLDER;
        "context over the results": Author, new_agent(json!({ "contextPath": "/dev/termination-log" })) => Schema, FOLDER;
        "context upwards": Author, new_agent(json!({ "contextPath": "/workspace/../etc" })) => Schema, PATH;
        "context by two slashes": Author, new_agent(json!({ "contextPath": "//etc" })) => Schema, PATH;
        "context by a dot": Author, new_agent(json!({ "contextPath": "/./etc" })) => Schema, PATH;
        "context with a colon": Author, new_agent(json!({ "contextPath": "/a:/etc" })) => Schema, PATH;
        "context with a NUL": Author, new_agent(json!({ "contextPath": "/a\u{0}" })) => Schema, PATH;

        "image like an option": Author, new_agent(json!({ "image": "--privileged" })) => Schema, "spec.image";
        "image with a line break": Author, new_agent(json!({ "image": "a\nb" })) => Schema, "spec.image";
        "our variable": Author, new_agent(json!({ "env": [{ "name": "ORCHESTRATOR_UID", "value": "x" }] })) => Schema, OURS;
        "our home": Author, new_agent(json!({ "env": [{ "name": "HOME", "value": "/etc" }] })) => Schema, OURS;
        "our variables by a prefix": Author, new_agent(json!({ "envFrom": [{ "prefix": "ORCHESTRATOR_", "configMapRef": { "name": "settings" } }] })) => Schema, "'prefix' must not begin with";
        "a variable with a sign": Author, new_agent(json!({ "env": [{ "name": "A=B" }] })) => Schema, "spec.env[0].name";
        "a ServiceAccount elsewhere": Deployer, new_agent(json!({ "serviceAccountName": "kube-system/admin" })) => Schema, NAME;
        "a Secret elsewhere": Deployer, new_agent(json!({ "envFrom": [{ "secretRef": { "name": "../kube-system/secrets/a" } }] })) => Schema, NAME;
        "a pull Secret elsewhere": Deployer, new_agent(json!({ "imagePullSecrets": [{ "name": "kube-system/a" }] })) => Schema, NAME;
        "an Agent elsewhere": Deployer, new_run(json!({ "agentName": "kube-system/agent" })) => Schema, NAME;
        "an Agent by a path": Deployer, new_run(json!({ "agentName": "..%2fagent" })) => Schema, NAME;

        "a task's number by overflow": Author, new_run(json!({ "taskId": 9_223_372_036_854_775_807_i64 })) => Schema, "spec.taskId";
        "a version by overflow": Author, new_run(json!({ "contextVersion": 2_147_483_648_i64 })) => Schema, "spec.contextVersion";
        "a service's name of 254 letters": Author, new_run(json!({ "serviceName": "s".repeat(254) })) => Schema, "spec.serviceName";
        "a file beyond its bound": Author, new_run(json!({ "markdownFiles": [{ "filename": "a", "content": "x".repeat(921_601) }] })) => Schema, "spec.markdownFiles[0].content";
        "a run that is another task": Author, Act::Merge(Kind::TaskRun, "on-free", json!({ "spec": { "agentName": "holder" } })) => Schema, "spec.agentName";
        "an earlier version": Author, Act::Merge(Kind::TaskRun, "on-free", json!({ "spec": { "contextVersion": 0 } })) => Schema, "spec.contextVersion";
    }
}

/// Checks the response. Returns it as an error if it is not the expected rejection.
fn judge(attack: &Attack, answer: &Answer) -> Result<String, String> {
    let refusal = match answer {
        Ok(_) => return Err("accepted".to_owned()),
        Err(refusal) => refusal,
    };
    let by_policy = refusal.message.contains("ValidatingAdmissionPolicy");
    let is_right = refusal.code == attack.guard.code()
        && refusal.message.contains(attack.says)
        && by_policy == (attack.guard == Guard::Policy);
    let said = format!("{}: {}", refusal.code, refusal.message);
    if is_right { Ok(said) } else { Err(said) }
}

/// Returns one rejected attack for each policy.
fn probes() -> Vec<(Who, Act)> {
    let forged = Act::CreateWith(Kind::TaskRun, run(json!({ "agentName": "free" })), forged());
    let in_the_name_of_others = Act::CreateWith(
        Kind::TaskRun,
        run(json!({ "agentName": "free" })),
        submitted_by("viewer"),
    );
    let mut all = vec![
        (Who::Author, new_agent(json!({ "automountToken": true }))),
        (Who::Author, new_run(json!({ "agentName": "holder" }))),
        (Who::Author, forged),
        (Who::Author, in_the_name_of_others),
    ];
    all.extend(docs::probes());
    all
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn attacks_are_refused_and_said_why() -> Result<()> {
    suite::test(Tier::Api, "attacks", async |env| {
        let arena = Arena::with_policies(&env).await?;
        arena.until_refused(&probes()).await?;
        let warnings = arena.warnings().await?;
        ensure!(warnings.is_empty(), "{}", warnings.join("\n"));

        let mut failures = Vec::new();
        let mut attacks = by_rights();
        attacks.extend(by_schema());
        attacks.extend(docs::by_rights());
        attacks.extend(docs::by_schema());
        for attack in &attacks {
            let answer = arena.ask(attack.who, &attack.act).await?;
            let (what, who) = (attack.what, attack.who);
            match judge(attack, &answer) {
                Ok(said) => {
                    let said: String = said.chars().take(240).collect();
                    println!("refused  {:?}  {who:?}: {what}: {said}", attack.guard);
                }
                Err(said) => failures.push(format!("{who:?}: {what}: {said}")),
            }
        }
        println!("{} attacks refused", attacks.len() - failures.len());
        ensure!(failures.is_empty(), "{}", failures.join("\n"));
        arena.leave().await
    })
    .await
}

/// The same attacks, without our policies.
#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn without_policies_the_attacks_succeed() -> Result<()> {
    suite::test(Tier::Api, "open", async |env| {
        let arena = Arena::without_policies(&env).await?;
        let mut tried = 0;
        for attack in by_rights().into_iter().chain(docs::by_rights()) {
            if attack.guard == Guard::Policy {
                tried += 1;
                let answer = arena.ask(attack.who, &attack.act).await?;
                if let Err(refusal) = answer {
                    panic!("{}: shows nothing: {}", attack.what, refusal.message);
                }
            }
        }
        ensure!(tried >= 65, "only {tried} attacks");
        println!("{tried} attacks succeed without the policies");
        arena.leave().await
    })
    .await
}

/// Returns requests that the policies must allow: of users with permission, and of the operator.
#[rustfmt::skip]
fn accepted() -> Vec<(&'static str, Who, Act)> {
    let (agent_kind, run_kind) = (Kind::Agent, Kind::TaskRun);
    let finalizer = json!({ "metadata": { "finalizers": ["taskruns.orchestrator.io/finalizer"] } });
    let configs = json!([{ "configMapRef": { "name": "settings" } }]);
    vec![
        ("an Agent that names nothing", Who::Author, new_agent(json!({}))),
        ("an Agent with a variable of its own", Who::Author, new_agent(json!({ "env": [{ "name": "A", "value": "$(B)" }] }))),
        ("a run of the Agent that may be used", Who::Author, new_run(json!({ "agentName": "free" }))),
        ("a higher version of it", Who::Author, Act::Merge(run_kind, "on-free", json!({ "spec": { "contextVersion": 2 } }))),
        ("a label on a run of another Agent", Who::Author, Act::Merge(run_kind, "on-holder", json!({ "metadata": { "labels": { "a": "b" } } }))),
        ("to cancel it", Who::Author, Act::Merge(run_kind, "on-holder", json!({ "spec": { "cancel": true } }))),
        ("to suspend it", Who::Author, Act::Merge(run_kind, "on-holder", json!({ "spec": { "suspend": true } }))),
        ("a label on an Agent that holds a Secret", Who::Author, Act::Merge(agent_kind, "holder", json!({ "metadata": { "labels": { "a": "b" } } }))),
        ("an unchanged Agent that holds a Secret", Who::Author, Act::Replace(agent_kind, "holder", json!({}))),
        ("a change that lets go of all", Who::Author, Act::Merge(agent_kind, "holder", json!({ "spec": { "serviceAccountName": "default", "envFrom": null } }))),
        ("a run that ended, unchanged", Who::Author, Act::Replace(run_kind, "ended", json!({}))),
        ("Secrets by who may get them", Who::Reader, new_agent(json!({ "env": secret_in_env(), "imagePullSecrets": [{ "name": "vault" }] }))),
        ("ConfigMaps by who may get them", Who::Reader, new_agent(json!({ "envFrom": configs }))),
        ("a ServiceAccount by who may impersonate it", Who::Borrower, new_agent(json!({ "serviceAccountName": "robot", "automountToken": true }))),
        ("an Agent that names everything, by who may create Pods", Who::Deployer, Act::Create(agent_kind, json!(agent_spec()))),
        ("the same by apply", Who::Deployer, Act::Apply(agent_kind, "plain", json!(agent_spec()))),
        ("a run of any Agent", Who::Deployer, new_run(json!({ "agentName": "holder" }))),
        ("to resume one", Who::Deployer, Act::Merge(run_kind, "held", json!({ "spec": { "suspend": false } }))),
        ("a restored run", Who::Restorer, Act::CreateWith(run_kind, run(json!({ "agentName": "holder" })), forged())),
        ("the operator takes hold of a run", Who::Operator, Act::Merge(run_kind, "on-holder", finalizer)),
        ("the operator says how a run stands", Who::Operator, Act::MergeStatus(run_kind, "on-holder", json!({ "status": { "message": "it runs" } }))),
        ("the operator says how an Agent stands", Who::Operator, Act::MergeStatus(agent_kind, "holder", json!({ "status": { "message": "it is ready" } }))),
        ("the operator lets go of a run that ended", Who::Operator, Act::Merge(run_kind, "on-holder", json!({ "metadata": { "finalizers": null, "annotations": forged()["annotations"] } }))),
    ]
}

#[tokio::test]
#[ignore = "cluster: run by 'cargo xtask test'"]
async fn who_has_the_right_is_let_through() -> Result<()> {
    suite::test(Tier::Api, "allowed", async |env| {
        let arena = Arena::with_policies(&env).await?;
        arena.until_refused(&probes()).await?;
        let mut failures = Vec::new();
        for (what, who, act) in accepted().into_iter().chain(docs::accepted()) {
            match arena.ask(who, &act).await? {
                Ok(_) => println!("accepted  {who:?}: {what}"),
                Err(refusal) => failures.push(format!("{who:?}: {what}: {}", refusal.message)),
            }
        }
        ensure!(failures.is_empty(), "{}", failures.join("\n"));
        arena.leave().await
    })
    .await
}
