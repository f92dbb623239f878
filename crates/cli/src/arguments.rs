//! Arguments of the command line.

use std::{ffi::OsString, path::PathBuf, str::FromStr, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::target::{RunName, RunOrTenant};

/// Runs of agents, and Tenants: submit runs, follow them, ask why something does not move
#[derive(Debug, Parser)]
#[command(name = "orc", version, disable_help_subcommand = true)]
#[command(
    after_help = "Exit codes: 0 done · 1 the run failed · 2 usage or client error · 3 timeout, it goes on · 4 cancelled or denied · 5 not found"
)]
pub struct Arguments {
    /// What to do
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List runs, agents or tenants, or one of them
    Get(Get),
    /// Show all about one run, agent or tenant: spec, status, timeline, conditions, children, events
    Describe(Describe),
    /// Show a run with its ConfigMap, Jobs and Pods
    Tree(OfRun),
    /// Say why something does not move: the deepest blocker, the evidence, the next command
    Why(Why),
    /// Print the agent's log, or that of another container, as long as its Pod exists
    Logs(Logs),
    /// List the Events of a run and its children, oldest first
    Events(Events),
    /// Submit a task: create a run from files and folders; 'submit docs' for documentation
    Submit(Submit),
    /// Change the context of a run
    #[command(subcommand)]
    Context(Context),
    /// Wait until runs have finished and tenants are ready, and exit by their outcome
    Wait(Wait),
    /// End a run for good, whatever it does; it cannot be taken back
    Cancel(OfRun),
    /// Run a run again: a task's next version, or another DocsRun on the same branch
    Retry(Retry),
    /// Hold a run: its container is stopped, no time counts; or a tenant: it is scaled to zero
    Suspend(Hold),
    /// Let a suspended run or tenant go on
    Resume(Hold),
    /// Print the version of this program and of the server
    Version(Version),
    /// Print the completions for a shell
    Completion(Completion),
}

/// Which cluster, and how it looks.
#[derive(Debug, Clone, Default, Args)]
pub struct Cluster {
    /// The namespace; without it, that of the kubeconfig's context
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// The context of the kubeconfig; without it, the current one
    #[arg(long, value_name = "CONTEXT")]
    pub context: Option<String>,
    /// The kubeconfig; without it, KUBECONFIG, then ~/.kube/config
    #[arg(long, value_name = "PATH")]
    pub kubeconfig: Option<PathBuf>,
    /// No colors, also on a terminal; as the variable NO_COLOR
    #[arg(long)]
    pub no_color: bool,
}

/// `get`
#[derive(Debug, Args)]
pub struct Get {
    /// Nothing (runs), a kind (runs, docs, agents, tenants), a kind and a name, or a run's name
    #[arg(value_name = "KIND NAME", num_args = 0..=2)]
    pub what: Vec<String>,
    /// Of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Only those with these labels
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
    /// How to print; without it, a table
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub output: Option<Format>,
    /// Stay, and print what changes
    #[arg(short, long)]
    pub watch: bool,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its docs are the flags'")]
    pub cluster: Cluster,
}

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The table with messages
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// KIND/NAME, for other commands
    Name,
}

/// How to print an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ObjectFormat {
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// KIND/NAME, for other commands
    Name,
}

/// How to print an explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DataFormat {
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// `describe`
#[derive(Debug, Args)]
pub struct Describe {
    /// A run's NAME, taskrun/NAME, docsrun/NAME, agent/NAME or tenant/NAME; or KIND NAME
    #[arg(value_name = "TARGET", required = true, num_args = 1..=2)]
    pub target: Vec<String>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its docs are the flags'")]
    pub cluster: Cluster,
}

/// A verb about one run.
#[derive(Debug, Args)]
pub struct OfRun {
    /// The run's name; docsrun/NAME for a DocsRun
    #[arg(value_name = "RUN")]
    pub run: RunName,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its docs are the flags'")]
    pub cluster: Cluster,
}

/// A verb that holds a run or a Tenant, or lets it go on.
#[derive(Debug, Args)]
pub struct Hold {
    /// The run's name; docsrun/NAME for a DocsRun, tenant/NAME for a Tenant
    #[arg(value_name = "RUN")]
    pub target: RunOrTenant,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its docs are the flags'")]
    pub cluster: Cluster,
}

/// `why`
#[derive(Debug, Args)]
pub struct Why {
    /// A run's NAME, taskrun/NAME, docsrun/NAME, agent/NAME, tenant/NAME, job/NAME or pod/NAME; or
    /// KIND NAME
    #[arg(value_name = "TARGET", required = true, num_args = 1..=2)]
    pub target: Vec<String>,
    /// How to print; without it, for people
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub output: Option<DataFormat>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its docs are the flags'")]
    pub cluster: Cluster,
}

/// `logs`
#[derive(Debug, Args)]
pub struct Logs {
    /// The run's name; docsrun/NAME for a DocsRun
    #[arg(value_name = "RUN")]
    pub run: RunName,
    /// Stay until the container ends; wait for its start
    #[arg(short, long)]
    pub follow: bool,
    /// Of this attempt; without it, of the last one
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub attempt: Option<u32>,
    /// Of this container; without it, the agent's. A DocsRun has all three
    #[arg(short, long, value_enum, value_name = "NAME")]
    pub container: Option<Step>,
    /// Of all containers, one after the other; each line begins with its container's name
    #[arg(long, conflicts_with = "container")]
    pub all: bool,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its docs are the flags'")]
    pub cluster: Cluster,
}

/// A container of a run's Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Step {
    /// Clones the repository, before the agent
    Clone,
    /// The agent
    Agent,
    /// Commits and pushes, after the agent
    Publish,
}

/// `events`
#[derive(Debug, Args)]
pub struct Events {
    /// The run's name; docsrun/NAME for a DocsRun
    #[arg(value_name = "RUN")]
    pub run: RunName,
    /// Stay, and print new ones
    #[arg(short, long)]
    pub watch: bool,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its docs are the flags'")]
    pub cluster: Cluster,
}

/// Whether and how long to wait for the run's end.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Waiting {
    /// Wait until the run has finished, and exit by its outcome
    #[arg(long)]
    pub wait: bool,
    /// How long to wait, such as 30s, 10m, 1h30m; without it, for ever
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = duration)]
    pub timeout: Option<Duration>,
}

/// Whether a write is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// Print what would be sent
    Client,
    /// Let the server check it; nothing is stored
    Server,
}

/// `submit`
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Each file becomes a file of the run, under its own name. Folders are walked with all below them; a file in a folder of a folder gets the folders' names before its own ('notes/a.md' becomes 'notes-a.md'). Hidden files, links, files that are not UTF-8 text and names that occur twice are refused, never left out."
)]
pub struct Submit {
    /// Something else than a task
    #[command(subcommand)]
    pub other: Option<SubmitOther>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its docs are the flags'")]
    pub task: Option<SubmitTask>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its docs are the flags'")]
    pub sending: Sending,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its docs are the flags'")]
    pub waiting: Waiting,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its docs are the flags'")]
    pub cluster: Cluster,
}

impl Submit {
    /// Which cluster.
    #[must_use]
    pub fn cluster(&self) -> Cluster {
        match &self.other {
            Some(SubmitOther::Docs(docs)) => docs.cluster.clone(),
            None => self.cluster.clone(),
        }
    }
}

/// What else can be submitted.
#[derive(Debug, Subcommand)]
pub enum SubmitOther {
    /// Submit documentation for a repository: an agent writes it, it is pushed to a branch
    Docs(Box<SubmitDocs>),
}

/// `submit`, of a task. No arguments of others in it: only then clap knows whether any was given.
#[derive(Debug, Args)]
pub struct SubmitTask {
    /// Files and folders
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// The service that the task is about
    #[arg(long, value_name = "NAME")]
    pub service: String,
    /// The task's number
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i64).range(1..=2_147_483_647))]
    pub task_id: i64,
    /// The Agent that runs it
    #[arg(long, value_name = "NAME")]
    pub agent: String,
    /// The run's name; without it, SERVICE-NUMBER
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

/// Whether a run is stored, and how it is printed.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Sending {
    /// Store nothing
    #[arg(long, value_enum, value_name = "BY", conflicts_with = "wait")]
    pub dry_run: Option<DryRun>,
    /// How to print the run; without it, a sentence
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        conflicts_with = "wait"
    )]
    pub output: Option<ObjectFormat>,
}

/// `submit docs`
#[derive(Debug, Args)]
#[command(
    after_help = "User, password and keys are in the Secret, never in the address: 'username' and 'password' for https, 'identity' and 'known_hosts' for ssh, 'ca.crt' for a private authority. The agent sees none of them. What the agent writes below the output path is committed and pushed; nothing beside it is."
)]
pub struct SubmitDocs {
    /// The run's name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The repository: https://HOST/PATH or ssh://USER@HOST/PATH
    #[arg(long, value_name = "URL")]
    pub repository: String,
    /// The branch that the agent reads; its head when the run starts counts
    #[arg(long, value_name = "BRANCH")]
    pub branch: String,
    /// The Agent that writes
    #[arg(long, value_name = "NAME")]
    pub agent: String,
    /// The folder that the agent works in; without it, the repository's root
    #[arg(long, value_name = "FOLDER")]
    pub working_directory: Option<String>,
    /// Files and folders for the agent: what to write, and for whom
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub instructions: Vec<PathBuf>,
    /// The model that the agent should ask
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Let the agent see the whole checkout, not only its folder
    #[arg(long)]
    pub include_codebase: bool,
    /// The Secret with what the Git server asks for
    #[arg(long, value_name = "NAME")]
    pub secret: Option<String>,
    /// The branch that is pushed; without it, docs/NAME
    #[arg(long, value_name = "BRANCH")]
    pub output_branch: Option<String>,
    /// The folder that is taken over from the agent; without it, docs/
    #[arg(long, value_name = "FOLDER")]
    pub output_path: Option<String>,
    /// Let a run that changes nothing succeed
    #[arg(long)]
    pub allow_no_changes: bool,
    /// The commit's message; a line that names the run is added
    #[arg(long, value_name = "TEXT")]
    pub commit_message: Option<String>,
    /// How long the agent may write, such as 30m; without it, as the Agent says
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub agent_timeout: Option<Duration>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its docs are the flags'")]
    pub sending: Sending,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its docs are the flags'")]
    pub waiting: Waiting,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its docs are the flags'")]
    pub cluster: Cluster,
}

/// Distinguishes the verb `docs` from a task with a directory named `docs`, by arguments that only a task has.
pub(crate) fn with_folder_docs(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let is_of_task = |argument: &OsString| {
        let text = argument.to_string_lossy();
        let flag = text.split('=').next().unwrap_or_default();
        matches!(flag, "--service" | "--task-id")
    };
    if let [verb, folder, rest @ ..] = arguments.as_mut_slice()
        && verb == "submit"
        && folder == "docs"
        && rest.iter().any(is_of_task)
    {
        *folder = OsString::from("./docs");
    }
    arguments
}

/// `context`
#[derive(Debug, Subcommand)]
pub enum Context {
    /// Add files to a run: the next version of its context, which starts the run again
    Add(ContextAdd),
}

/// `context add`
#[derive(Debug, Args)]
#[command(
    after_help = "Earlier files stay as they are. If someone else makes the same version meanwhile, nothing is added, and the command says so."
)]
pub struct ContextAdd {
    /// The run's name
    #[arg(value_name = "RUN")]
    pub run: RunName,
    /// Files and folders; '-' is the standard input, as 'context-v{N}.md' of the new version N
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Store nothing
    #[arg(long, value_enum, value_name = "BY", conflicts_with = "wait")]
    pub dry_run: Option<DryRun>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its docs are the flags'")]
    pub waiting: Waiting,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its docs are the flags'")]
    pub cluster: Cluster,
}

/// `wait`
#[derive(Debug, Args)]
#[command(
    after_help = "A run is waited for until it has finished, a Tenant until it is ready as its newest spec asks; a Tenant whose spec cannot be carried out has failed. Exit code: 0 all succeeded · 1 one failed · 3 time is up · 4 one was cancelled · 5 one was not found or was deleted. The most severe code wins: 5, 3, 1, 4, 0. Ctrl-C ends the waiting, not the run."
)]
pub struct Wait {
    /// The runs' names; docsrun/NAME for a DocsRun, tenant/NAME for a Tenant
    #[arg(value_name = "RUN", required = true, num_args = 1..=50)]
    pub runs: Vec<RunOrTenant>,
    /// How long to wait, such as 30s, 10m, 1h30m; without it, for ever
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its docs are the flags'")]
    pub cluster: Cluster,
}

/// `retry`
#[derive(Debug, Args)]
#[command(
    after_help = "A TaskRun that has finished, or that something blocks before its start, gets its next version. Of a DocsRun that has ended, another one is made: NAME-r2, of that NAME-r3, and so on, with the same spec. It pushes to the branch of the first one, so that what was pushed before gets one commit more; only 'suspend' and 'cancel' are not taken over."
)]
pub struct Retry {
    /// The run's name; docsrun/NAME for a DocsRun
    #[arg(value_name = "RUN")]
    pub run: RunName,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its docs are the flags'")]
    pub waiting: Waiting,
    #[command(flatten)]
    #[expect(missing_docs, reason = "its docs are the flags'")]
    pub cluster: Cluster,
}

/// `version`
#[derive(Debug, Args)]
pub struct Version {
    /// The context of the kubeconfig; without it, the current one
    #[arg(long, value_name = "CONTEXT")]
    pub context: Option<String>,
    /// The kubeconfig; without it, KUBECONFIG, then ~/.kube/config
    #[arg(long, value_name = "PATH")]
    pub kubeconfig: Option<PathBuf>,
}

/// `completion`
#[derive(Debug, Args)]
pub struct Completion {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: KnownShell,
}

/// A shell with tested completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KnownShell {
    /// source <(orc completion bash)
    Bash,
    /// orc completion zsh > a folder of $fpath, as _orc
    Zsh,
    /// orc completion fish | source
    Fish,
}

impl From<KnownShell> for Shell {
    fn from(shell: KnownShell) -> Self {
        match shell {
            KnownShell::Bash => Self::Bash,
            KnownShell::Zsh => Self::Zsh,
            KnownShell::Fish => Self::Fish,
        }
    }
}

/// A duration as Kubernetes writes it. Zero would be a wait that never happens.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is no duration such as 30s, 10m or 1h30m");
    let parsed =
        kube::core::Duration::from_str(text).map_err(|error| format!("{}: {error}", wrong()))?;
    let duration = Duration::from(parsed);
    if parsed.is_negative() || duration.is_zero() {
        return Err(wrong());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_is_not_known_or_does_nothing_is_refused() {
        let refused = [
            "orc",
            "orc approve x",
            "orc get -n a -A",
            "orc get -o xml",
            "orc get a b c",
            "orc get -o",
            "orc describe",
            "orc describe a b c",
            "orc tree agent/x",
            "orc tree tenant/x",
            "orc logs tenant/x",
            "orc cancel tenant/x",
            "orc suspend agent/x",
            "orc why",
            "orc why a b c",
            "orc why x -o wide",
            "orc logs x --attempt 0",
            "orc submit a.md --service s --task-id 0 --agent a",
            "orc submit a.md --service s --task-id 1",
            "orc submit a.md --service s --task-id 1 --agent a --timeout 5m",
            "orc submit",
            "orc submit docs",
            "orc submit docs x --repository u --branch b",
            "orc submit docs x --repository u --agent a",
            "orc submit docs x --branch b --agent a",
            "orc submit docs --repository u --branch b --agent a",
            "orc submit docs x --repository u --branch b --agent a --service s",
            "orc submit docs x --repository u --branch b --agent a --timeout 5m",
            "orc submit docs x --repository u --branch b --agent a --agent-timeout soon",
            "orc submit a.md docs x --repository u --branch b --agent a",
            "orc logs x -c other",
            "orc logs x -c clone --all",
            "orc tree job/x",
            "orc submit a.md --service s --task-id 1 --agent a --dry-run=maybe",
            "orc submit a.md --service s --task-id 1 --agent a --dry-run=server --wait",
            "orc context",
            "orc context add x",
            "orc wait",
            "orc wait x --timeout 0s",
            "orc wait x --timeout -5s",
            "orc wait x --timeout 5",
            "orc wait x --timeout soon",
            "orc cancel x --wait",
            "orc completion tcsh",
            "orc version --no-color",
        ];
        for line in refused {
            let result = Arguments::try_parse_from(line.split(' '));
            assert_eq!(result.unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn what_is_documented_is_taken() {
        let taken = [
            "orc get",
            "orc get runs -A -l a=b,c -o wide -w",
            "orc get agents writer -o yaml",
            "orc describe agent/writer -n team --context c --kubeconfig f --no-color",
            "orc why pod/x -o json",
            "orc why tenant acme",
            "orc why oten/acme",
            "orc describe tenant/acme",
            "orc get tenants -o wide",
            "orc wait tenant/acme docs/b --timeout 5m",
            "orc suspend tenant/acme",
            "orc resume docs/x",
            "orc logs x -f --attempt 2",
            "orc submit a.md b --service s --task-id 1 --agent a --wait --timeout 1h30m",
            "orc submit --service s --task-id 1 --agent a",
            "orc submit --service s --task-id 1 --agent a docs",
            "orc submit a.md docs --service s --task-id 1 --agent a",
            "orc submit docs x --repository u --branch b --agent a",
            "orc submit docs x --repository u --branch b --agent a --working-directory d --instructions a.md b --model m --include-codebase --secret s --output-branch o --output-path p --allow-no-changes --commit-message t --agent-timeout 30m --wait --timeout 1h",
            "orc submit docs x --repository u --branch b --agent a --dry-run=client -o name",
            "orc logs docs/x -c publish -f",
            "orc logs docs/x --all",
            "orc get docs -A",
            "orc describe odr/x",
            "orc why docsruns/x",
            "orc cancel docsrun/x",
            "orc retry docs/x --wait",
            "orc wait a docs/b",
            "orc context add x - a.md --dry-run=server",
            "orc wait a b taskrun.orchestrator.io/c --timeout 30s",
            "orc retry x --wait",
        ];
        for line in taken {
            let result = Arguments::try_parse_from(line.split(' '));
            assert!(result.is_ok(), "{line}: {result:?}");
        }
    }

    #[test]
    fn a_folder_named_docs_is_still_a_folder() {
        let words = |line: &str| {
            let words = line.split(' ').map(OsString::from).collect();
            let words = with_folder_docs(words).join(&OsString::from(" "));
            words.into_string().unwrap()
        };
        let task = "submit docs --service s --task-id=1 --agent a";
        assert_eq!(words(task), task.replace(" docs", " ./docs"));
        for line in [
            "submit docs x --repository u --branch b --agent a",
            "submit a.md docs --service s --task-id 1 --agent a",
            "get docs --service",
            "submit docs",
            "submit",
        ] {
            assert_eq!(words(line), line);
        }
        let line = words(task).replace("submit", "orc submit");
        let parsed = Arguments::try_parse_from(line.split(' ')).unwrap();
        let Verb::Submit(Submit {
            task: Some(task), ..
        }) = parsed.verb
        else {
            panic!("{parsed:?}");
        };
        assert_eq!(task.paths, [PathBuf::from("./docs")]);
    }

    #[test]
    fn each_verb_explains_itself_and_each_of_its_flags() {
        fn check(command: &clap::Command) {
            let path = command.get_name();
            assert!(command.get_about().is_some(), "{path}");
            for argument in command.get_arguments() {
                let help = argument.get_help().map(ToString::to_string);
                let help = help.unwrap_or_default();
                assert!(!help.is_empty(), "{path} {argument}");
                assert!(!help.ends_with('.'), "{path} {argument}: {help}");
            }
            command.get_subcommands().for_each(check);
        }
        check(&Arguments::command());
    }

    #[test]
    fn durations() {
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert!(duration("5").unwrap_err().contains("'5' is no duration"));
    }
}
