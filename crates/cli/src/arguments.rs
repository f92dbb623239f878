//! Arguments of the command line.

use std::{ffi::OsString, path::PathBuf, str::FromStr, time::Duration};

use actions::ObjectName;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::target;

/// Submit, watch and diagnose runs of agents, and operate Tenants
#[derive(Debug, Parser)]
#[command(name = "orc", version, disable_help_subcommand = true)]
#[command(
    after_help = "Exit codes: 0 done · 1 the run failed · 2 usage or client error · 3 timed out, the run continues · 4 cancelled or denied · 5 not found"
)]
pub(crate) struct Arguments {
    /// Command
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List objects of a kind, or get one of them
    #[command(about = format!("List {}, or get one of them", target::nouns("s")))]
    Get(Get),
    /// Describe an object: spec, status, timeline, conditions, children, Events
    #[command(about = format!("Describe a {}: spec, status, timeline, conditions, children, Events", target::nouns("")))]
    Describe(Describe),
    /// Show a run and its ConfigMap, Jobs and Pods as a tree
    Tree(RunArgs),
    /// Explain why an object is not progressing: root cause, evidence, next command
    #[command(about = format!("Explain why a {} is not progressing: root cause, evidence, next command", target::nouns("")))]
    Why(Why),
    /// Print the logs of the agent or of another container, while its Pod exists
    Logs(Logs),
    /// List the Events of a run and its children, oldest first
    Events(Events),
    /// Create a TaskRun from files and folders, or a DocsRun with 'submit docs'
    Submit(Submit),
    /// Change the context of a run
    #[command(subcommand)]
    Context(Context),
    /// Wait until runs finish and tenants are ready; the exit code is their outcome
    Wait(Wait),
    /// Cancel a run; this cannot be undone
    Cancel(RunArgs),
    /// Retry a run: the next version of a TaskRun, or another DocsRun on the same branch
    Retry(Retry),
    /// Suspend a run (its container is stopped) or a tenant (it is scaled to zero)
    Suspend(SuspendArgs),
    /// Resume a suspended run or tenant
    Resume(SuspendArgs),
    /// Print the client and server versions
    Version(Version),
    /// Print shell completion
    Completion(Completion),
}

/// Cluster connection and colors.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Cluster {
    /// Namespace [default: the kubeconfig context's]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Kubeconfig context [default: the current context]
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) context: Option<String>,
    /// Kubeconfig file [default: $KUBECONFIG, then ~/.kube/config]
    #[arg(long, value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Disable colors, like the variable NO_COLOR
    #[arg(long)]
    pub(crate) no_color: bool,
}

/// `get`
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// Kind, kind and name, or the name of a run
    #[arg(value_name = "KIND NAME", num_args = 0..=2, help = target::help_of_get())]
    pub(crate) what: Vec<String>,
    /// List across all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// Label selector
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub(crate) selector: Option<String>,
    /// Output format [default: a table]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
    /// Watch for changes
    #[arg(short, long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) cluster: Cluster,
}

/// Output format of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Table with messages
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// KIND/NAME, for other commands
    Name,
}

/// Output format of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ObjectFormat {
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// KIND/NAME, for other commands
    Name,
}

/// Output format of an explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DataFormat {
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// `describe`
#[derive(Debug, Args)]
pub(crate) struct Describe {
    /// Kind and name, or the name of a run
    #[arg(value_name = "TARGET", required = true, num_args = 1..=2, help = target::help_of_target(&[]))]
    pub(crate) target: Vec<String>,
    #[command(flatten)]
    pub(crate) cluster: Cluster,
}

/// A command about one run.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Name of the run; docsrun/NAME for a DocsRun
    #[arg(value_name = "RUN", value_parser = target::run)]
    pub(crate) run: ObjectName,
    #[command(flatten)]
    pub(crate) cluster: Cluster,
}

/// A command that suspends or resumes a run or a Tenant.
#[derive(Debug, Args)]
pub(crate) struct SuspendArgs {
    /// Name of the run; docsrun/NAME for a DocsRun, tenant/NAME for a Tenant
    #[arg(value_name = "RUN", value_parser = target::run_or_tenant)]
    pub(crate) target: ObjectName,
    #[command(flatten)]
    pub(crate) cluster: Cluster,
}

/// `why`
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// Kind and name, or the name of a run
    #[arg(value_name = "TARGET", required = true, num_args = 1..=2, help = target::help_of_target(&["job", "pod"]))]
    pub(crate) target: Vec<String>,
    /// Output format [default: text]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub(crate) output: Option<DataFormat>,
    #[command(flatten)]
    pub(crate) cluster: Cluster,
}

/// `logs`
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Follow the logs from the start of the container to its end
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Attempt [default: the last one]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempt: Option<u32>,
    /// Container; only a DocsRun has all three [default: agent]
    #[arg(short, long, value_enum, value_name = "NAME")]
    pub(crate) container: Option<Step>,
    /// Print all containers one after the other, each line prefixed with the container's name
    #[arg(long, conflicts_with = "container")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) of: RunArgs,
}

/// A container of a run's Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Step {
    /// Clones the repository, before the agent
    Clone,
    /// Runs the agent
    Agent,
    /// Commits and pushes, after the agent
    Publish,
}

/// `events`
#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Watch for new Events
    #[arg(short, long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) of: RunArgs,
}

/// Options for waiting for the end of a run.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct WaitOptions {
    /// Wait until the run finishes; the exit code is its outcome
    #[arg(long)]
    pub(crate) wait: bool,
    /// Timeout, such as 30s, 10m or 1h30m [default: none]
    #[arg(long, value_name = "DURATION", requires = "wait", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

/// Dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    /// Print the object without sending it
    Client,
    /// Let the server validate the object without storing it
    Server,
}

/// `submit`
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Each file becomes a file of the run with the same name. Folders are read recursively; a file in a subfolder is prefixed with the names of the subfolders ('notes/a.md' becomes 'notes-a.md'). The command rejects hidden files, symbolic links, files that are not UTF-8 text, and names that occur twice."
)]
pub(crate) struct Submit {
    /// Another kind than a TaskRun
    #[command(subcommand)]
    pub(crate) other: Option<SubmitOther>,
    #[command(flatten)]
    pub(crate) task: Option<SubmitTask>,
    #[command(flatten)]
    pub(crate) submit_options: SubmitOptions,
    #[command(flatten)]
    pub(crate) wait_options: WaitOptions,
    #[command(flatten)]
    pub(crate) cluster: Cluster,
}

/// The other kinds that can be submitted.
#[derive(Debug, Subcommand)]
pub(crate) enum SubmitOther {
    /// Create a DocsRun: an agent writes documentation, which is pushed to a branch of a repository
    Docs(Box<SubmitDocs>),
}

/// `submit`, of a task. No arguments of others in it: only then clap knows whether any was given.
#[derive(Debug, Args)]
pub(crate) struct SubmitTask {
    /// Files and folders
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Name of the service
    #[arg(long, value_name = "NAME")]
    pub(crate) service: String,
    /// Number of the task
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(i64).range(1..=2_147_483_647))]
    pub(crate) task_id: i64,
    /// Agent that runs the task
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: String,
    /// Name of the run [default: SERVICE-NUMBER]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
}

/// Dry run and output of a submission.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct SubmitOptions {
    /// Do not persist changes
    #[arg(long, value_enum, value_name = "BY", conflicts_with = "wait")]
    pub(crate) dry_run: Option<DryRun>,
    /// Output format [default: one sentence]
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        conflicts_with = "wait"
    )]
    pub(crate) output: Option<ObjectFormat>,
}

/// `submit docs`
#[derive(Debug, Args)]
#[command(
    after_help = "Credentials are in the Secret, never in the URL: 'username' and 'password' for https, 'identity' and 'known_hosts' for ssh, 'ca.crt' for a private certificate authority. The agent cannot read them. Only files below the output path are committed and pushed."
)]
pub(crate) struct SubmitDocs {
    /// Name of the run
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// URL of the repository: https://HOST/PATH or ssh://USER@HOST/PATH
    #[arg(long, value_name = "URL")]
    pub(crate) repository: String,
    /// Branch that the agent reads, at its head when the run starts
    #[arg(long, value_name = "BRANCH")]
    pub(crate) branch: String,
    /// Agent that writes the documentation
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: String,
    /// Working directory of the agent [default: the root of the repository]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) working_directory: Option<String>,
    /// Files and folders with instructions for the agent
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub(crate) instructions: Vec<PathBuf>,
    /// Language model for the agent
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Give the agent the whole checkout instead of its working directory
    #[arg(long)]
    pub(crate) include_codebase: bool,
    /// Secret with the credentials for the Git server
    #[arg(long, value_name = "NAME")]
    pub(crate) secret: Option<String>,
    /// Branch to push to [default: docs/NAME]
    #[arg(long, value_name = "BRANCH")]
    pub(crate) output_branch: Option<String>,
    /// Directory to commit [default: docs/]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) output_path: Option<String>,
    /// Succeed without a commit if nothing changed
    #[arg(long)]
    pub(crate) allow_no_changes: bool,
    /// Commit message; a line with the name of the run is appended
    #[arg(long, value_name = "TEXT")]
    pub(crate) commit_message: Option<String>,
    /// Timeout of the agent, such as 30m [default: the Agent's]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) agent_timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) submit_options: SubmitOptions,
    #[command(flatten)]
    pub(crate) wait_options: WaitOptions,
    #[command(flatten)]
    pub(crate) cluster: Cluster,
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
pub(crate) enum Context {
    /// Add files to a TaskRun as the next version of its context, which starts it again
    Add(ContextAdd),
}

/// `context add`
#[derive(Debug, Args)]
#[command(
    after_help = "Earlier files do not change. If another user adds the same version first, the command fails and adds nothing."
)]
pub(crate) struct ContextAdd {
    /// Name of the run
    #[arg(value_name = "RUN", value_parser = target::run)]
    pub(crate) run: ObjectName,
    /// Files and folders; '-' is the standard input, as 'context-v{N}.md' of the new version N
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Do not persist changes
    #[arg(long, value_enum, value_name = "BY", conflicts_with = "wait")]
    pub(crate) dry_run: Option<DryRun>,
    #[command(flatten)]
    pub(crate) wait_options: WaitOptions,
    #[command(flatten)]
    pub(crate) cluster: Cluster,
}

/// `wait`
#[derive(Debug, Args)]
#[command(
    after_help = "The command waits until each run is finished and each Tenant is ready for its latest spec. A Tenant with a spec that cannot be applied has failed. Exit code: 0 all succeeded · 1 one failed · 3 timed out · 4 one was cancelled · 5 one was not found or was deleted. The most severe code wins: 5, 3, 1, 4, 0. Ctrl-C stops the waiting, not the run."
)]
pub(crate) struct Wait {
    /// Names of the runs; docsrun/NAME for a DocsRun, tenant/NAME for a Tenant
    #[arg(value_name = "RUN", required = true, num_args = 1..=50, value_parser = target::run_or_tenant)]
    pub(crate) runs: Vec<ObjectName>,
    /// Timeout, such as 30s, 10m or 1h30m [default: none]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) cluster: Cluster,
}

/// `retry`
#[derive(Debug, Args)]
#[command(
    after_help = "A TaskRun that is finished, or blocked before its start, gets its next version. A finished DocsRun is copied to a new DocsRun: NAME-r2, then NAME-r3, and so on, with the same spec except 'suspend' and 'cancel'. The copy pushes to the branch of the first one and adds a commit to it."
)]
pub(crate) struct Retry {
    #[command(flatten)]
    pub(crate) wait_options: WaitOptions,
    #[command(flatten)]
    pub(crate) of: RunArgs,
}

/// `version`
#[derive(Debug, Args)]
pub(crate) struct Version {
    /// Kubeconfig context [default: the current context]
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) context: Option<String>,
    /// Kubeconfig file [default: $KUBECONFIG, then ~/.kube/config]
    #[arg(long, value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// `completion`
#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// Shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: KnownShell,
}

/// A shell with tested completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KnownShell {
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
