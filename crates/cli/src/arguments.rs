//! Arguments of the command line.

use std::{ffi::OsString, path::PathBuf, str::FromStr, time::Duration};

use actions::ObjectName;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::target;

mod apps;
mod operate;
pub(crate) use apps::{Decide, History, RollBack, UpgradeApp};
pub(crate) use operate::{Check, Delete, RunResult, Uninstall, Version};

/// Submit, watch and diagnose runs of agents, and operate Tenants
#[derive(Debug, Parser)]
#[command(name = "orc", version, disable_help_subcommand = true)]
#[command(
    after_help = "Exit codes: 0 done · 1 the run failed · 2 usage or client error · 3 timed out or suspended, the run has not finished · 4 cancelled or denied · 5 not found"
)]
pub(crate) struct Arguments {
    /// Command
    #[command(subcommand)]
    pub(crate) verb: Verb,
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// Output format of the commands that have one; see their help
    #[arg(short, long, value_enum, value_name = "FORMAT", hide_possible_values = true, help_heading = GLOBAL)]
    pub(crate) output: Option<Format>,
}

/// Heading of the flags that are allowed before and after the command.
const GLOBAL: &str = "Global options";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// List objects of a kind, or get one of them
    #[command(about = format!("List {}, or get one of them", target::nouns("s")))]
    Get(Get),
    /// Describe an object: spec, status, timeline, conditions, children, Events
    #[command(about = format!("Describe a {}: spec, status, timeline, conditions, children, Events", target::nouns("")))]
    Describe(Describe),
    /// Show a run or a tenant and its children, an app and its objects, or a request and its plan, as a tree
    Tree(TreeArgs),
    /// Explain why an object is not progressing: root cause, evidence, next command
    #[command(about = format!("Explain why a {} is not progressing: root cause, evidence, next command", target::nouns("")))]
    Why(Why),
    /// Print the logs of a run's agent, a notebook's kernel or another container, or of a tenant, while the Pod exists
    Logs(Logs),
    /// List the Events of a run or a tenant and its children, oldest first
    Events(Events),
    /// Create a TaskRun from files and directories, or a DocsRun with 'submit docs'
    Submit(Submit),
    /// Change the context of a run
    #[command(subcommand)]
    Context(Context),
    /// Wait until runs finish and tenants are ready; the exit code is their outcome
    #[command(
        after_help = "The results of each finished run are printed. A suspended run or tenant does not finish: the command does not wait for it and ends with exit code 3. If you may read the Lease of the operator, the command reports an operator that is down, and keeps waiting."
    )]
    Wait(Wait),
    /// Print the results of a finished run, or one of them
    Result(RunResult),
    /// Print the differences of a notebook from its golden notebook, with their classes
    Diff(Diff),
    /// Print the executed notebook, to commit it as the golden one
    Golden(Golden),
    /// Cancel a run or a NotebookValidationJob; this cannot be undone
    Cancel(CancelArgs),
    /// Delete runs with their Jobs, Pods, logs and ConfigMaps
    Delete(Delete),
    /// Run a finished run again: the next version of a TaskRun, or another DocsRun
    Retry(Retry),
    /// Suspend a run or a NotebookValidationJob (its container is stopped), or a tenant (it is scaled to zero)
    Suspend(TargetArgs),
    /// Resume a suspended run, NotebookValidationJob or tenant
    Resume(TargetArgs),
    /// Upgrade an app to another version, with snapshots of its volumes
    Upgrade(UpgradeApp),
    /// Return an app to the state before an upgrade: Git, release and volumes
    Rollback(RollBack),
    /// Approve the plan of an upgrade
    Approve(Decide),
    /// Deny the plan of an upgrade; nothing is changed
    Deny(Decide),
    /// List the upgrades and rollbacks of an app, and the upgrades that can be rolled back
    History(History),
    /// Check the installation: CRDs, operators, Leases, policies, webhooks, permissions, versions
    Check(Check),
    /// List the unfinished runs and finalizers that would block an uninstallation
    Uninstall(Uninstall),
    /// Print the versions of orc, Kubernetes and the operators
    Version(Version),
    /// Print the script for a shell's completion
    Completion(Completion),
}

/// Cluster connection and colors, before or after the command.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = GLOBAL)]
pub(crate) struct Cluster {
    /// Namespace [default: the kubeconfig context's]
    #[arg(short, long, global = true, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Kubeconfig context [default: the current context]
    #[arg(long, global = true, value_name = "CONTEXT")]
    pub(crate) context: Option<String>,
    /// Kubeconfig file [default: $KUBECONFIG, then ~/.kube/config]
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Disable colors, like the variable NO_COLOR
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
}

/// `get`
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// Kind, kind and names, or names of runs
    #[arg(value_name = "KIND NAME", num_args = 0..=51, help = target::help_of_get())]
    pub(crate) what: Vec<String>,
    /// List across all namespaces
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Label selector
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub(crate) selector: Option<String>,
    /// Only runs in phase Failed
    #[arg(long)]
    pub(crate) failed: bool,
    /// Only runs of this Agent
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Only runs of this service; DocsRuns have none
    #[arg(long, value_name = "NAME")]
    pub(crate) service: Option<String>,
    /// Order [default: by kind and name]
    #[arg(long, value_enum, value_name = "KEY", conflicts_with = "watch")]
    pub(crate) sort: Option<Sort>,
    /// Output format [default: table]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
    /// Watch for changes
    #[arg(short, long)]
    pub(crate) watch: bool,
}

/// Order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// By namespace and name, whatever the kind
    Name,
    /// Newest first
    Age,
    /// Finished last comes first, unfinished runs at the end
    Finished,
    /// By the name of the phase
    Phase,
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
}

/// A command about one run.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Name of the run; docsrun/NAME for a DocsRun
    #[arg(value_name = "RUN", value_parser = target::run)]
    pub(crate) run: ObjectName,
}

/// `cancel`
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// Name of the run; docsrun/NAME for a DocsRun, notebook/NAME for a NotebookValidationJob
    #[arg(value_name = "RUN", value_parser = target::cancellable)]
    pub(crate) target: ObjectName,
}

/// `diff`
#[derive(Debug, Args)]
#[command(
    after_help = "The stored result has all differences, until 'results.ttl' of the job. Without it, the first ten come from the status. The runner masks Secrets and shortens texts."
)]
pub(crate) struct Diff {
    /// Name of the NotebookValidationJob
    #[arg(value_name = "NOTEBOOK", value_parser = target::notebook)]
    pub(crate) job: ObjectName,
    /// Output format [default: text]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub(crate) output: Option<DataFormat>,
}

/// `golden`
#[derive(Debug, Args)]
#[command(after_help = "Only a job with 'results.store: Full' stores its executed notebook.")]
pub(crate) struct Golden {
    /// Name of the NotebookValidationJob
    #[arg(value_name = "NOTEBOOK", value_parser = target::notebook)]
    pub(crate) job: ObjectName,
}

/// A command about one run, NotebookValidationJob or Tenant.
#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// Name of the run; docsrun/NAME for a DocsRun, notebook/NAME for a NotebookValidationJob, tenant/NAME for a Tenant
    #[arg(value_name = "RUN", value_parser = target::run_or_tenant)]
    pub(crate) target: ObjectName,
}

/// `tree`
#[derive(Debug, Args)]
pub(crate) struct TreeArgs {
    /// Name of the run; docsrun/NAME for a DocsRun, tenant/NAME, managedapp/NAME, upgraderequest/NAME, rollbackrequest/NAME
    #[arg(value_name = "RUN", value_parser = target::with_objects)]
    pub(crate) target: ObjectName,
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
}

/// `logs`
#[derive(Debug, Args)]
#[command(
    after_help = "Without '-f', the command prints the log as it is now. Of a tenant, it prints the logs of all Pods that exist now, each line with the name of its Pod."
)]
pub(crate) struct Logs {
    /// Follow the logs from the start of the container to its end
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Attempt [default: the last one]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) attempt: Option<u32>,
    /// Container of a DocsRun or a NotebookValidationJob [default: agent, kernel]
    #[arg(short, long, value_enum, value_name = "NAME")]
    pub(crate) container: Option<Step>,
    /// Print all containers one after the other, each line prefixed with the container's name
    #[arg(long, conflicts_with = "container")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) of: TargetArgs,
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
    /// Fetches the notebooks, before the kernel
    Fetch,
    /// Runs the cells of a notebook
    Kernel,
    /// Drives the kernel and compares the outputs
    Runner,
}

impl Step {
    /// Returns the name of the container.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Clone => "clone",
            Self::Agent => "agent",
            Self::Publish => "publish",
            Self::Fetch => "fetch",
            Self::Kernel => "kernel",
            Self::Runner => "runner",
        }
    }
}

/// `events`
#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Watch for new Events
    #[arg(short, long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) of: TargetArgs,
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
    after_help = "Each file becomes a file of the run with the same name; the standard input becomes 'context-v1.md'. Folders are read recursively; a file in a subfolder is prefixed with the names of the subfolders ('notes/a.md' becomes 'notes-a.md'). The command rejects hidden files, symbolic links, files that are not UTF-8 text, and names that occur twice."
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
    /// Files and folders; '-' is the standard input
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
    /// Follow the log of the agent until the run finishes; the exit code is its outcome
    #[arg(long, conflicts_with_all = ["dry_run", "output"])]
    pub(crate) log: bool,
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
}

/// Distinguishes the verb `docs` from a task with a directory named `docs`, by arguments that only a task has.
pub(crate) fn with_folder_docs(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let is_of_task = |argument: &OsString| {
        let text = argument.to_string_lossy();
        let flag = text.split('=').next().unwrap_or_default();
        matches!(flag, "--service" | "--task-id")
    };
    let before = globals_before(&arguments);
    if let Some([verb, folder, rest @ ..]) = arguments.get_mut(before..)
        && verb == "submit"
        && folder == "docs"
        && rest.iter().any(is_of_task)
    {
        *folder = OsString::from("./docs");
    }
    arguments
}

/// Converts `help COMMAND` to `COMMAND --help`, and `help` alone to `--help`. The help of clap for such a
/// line would list each command a second time in every reference.
pub(crate) fn with_help_behind(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let before = globals_before(&arguments);
    if arguments.get(before).is_some_and(|word| word == "help") {
        arguments.remove(before);
        arguments.push(OsString::from("--help"));
    }
    arguments
}

/// Returns the number of arguments before the command: global flags and their values.
pub(crate) fn globals_before(arguments: &[OsString]) -> usize {
    let command = Arguments::command();
    let takes_the_next = |flag: &str| {
        command.get_arguments().any(|argument| {
            let long = argument
                .get_long()
                .is_some_and(|long| flag == format!("--{long}"));
            let short = argument
                .get_short()
                .is_some_and(|short| flag == format!("-{short}"));
            (long || short) && argument.get_action().takes_values()
        })
    };
    let mut words = arguments.iter().enumerate();
    while let Some((at, word)) = words.next() {
        let word = word.to_string_lossy();
        if !word.starts_with('-') {
            return at;
        }
        if takes_the_next(&word) {
            words.next();
        }
    }
    arguments.len()
}

/// Repeats the output format that was given before the command behind it, where the command checks
/// which formats it has.
pub(crate) fn with_format_behind(mut arguments: Vec<OsString>, format: Format) -> Vec<OsString> {
    let end = arguments.iter().position(|word| word == "--");
    let end = end.unwrap_or(arguments.len());
    let name = format.to_possible_value();
    let name = name.map_or_else(String::new, |value| value.get_name().to_owned());
    arguments.insert(end, OsString::from(format!("--output={name}")));
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
}

/// `wait`
#[derive(Debug, Args)]
#[command(
    after_help = "The command waits until each run is finished and each Tenant is ready for its latest spec. A Tenant with a spec that cannot be applied has failed. Exit code: 0 all succeeded · 1 one failed · 3 timed out · 4 one was cancelled · 5 one was not found or was deleted. The most severe code wins: 5, 3, 1, 4, 0. Ctrl-C stops the waiting, not the run."
)]
pub(crate) struct Wait {
    /// Names of the runs; docsrun/NAME for a DocsRun, tenant/NAME for a Tenant, upgraderequest/NAME, rollbackrequest/NAME
    #[arg(value_name = "RUN", required = true, num_args = 1..=50, value_parser = target::awaited)]
    pub(crate) runs: Vec<ObjectName>,
    /// Timeout, such as 30s, 10m or 1h30m [default: none]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

/// `retry`
#[derive(Debug, Args)]
#[command(
    after_help = "A TaskRun that is finished, or whose container cannot start, gets its next version. If the API server rejects the Job itself (QuotaExceeded, AdmissionDenied, ChildNameTaken), the operator tries again by itself, at the time in 'status.retry.nextAt', and the command is rejected; 'orc why' shows the blocker. A finished DocsRun is copied to a new DocsRun: NAME-r2, then NAME-r3, and so on, with the same spec except 'suspend' and 'cancel'. The copy pushes to the branch of the first one and adds a commit to it."
)]
pub(crate) struct Retry {
    #[command(flatten)]
    pub(crate) wait_options: WaitOptions,
    #[command(flatten)]
    pub(crate) of: RunArgs,
}

/// `completion`
#[derive(Debug, Args)]
#[command(
    after_help = "The script completes names of the cluster as well: runs, Agents, Tenants, namespaces and contexts. It waits 2 s for them at most. For 'kubectl orc', link the file of this program to the name 'kubectl_complete-orc' in a directory of $PATH; kubectl's own completion then uses it."
)]
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

/// A duration as Kubernetes writes it. Zero would be a wait that never happens.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || {
        format!(
            "'{text}' is not a duration; write a number above 0 with a unit (ms, s, m, h), such as 30s, 10m or 1h30m"
        )
    };
    // The error of the parser speaks of its own steps, such as floating-point numbers.
    let parsed = kube::core::Duration::from_str(text).map_err(|_unhelpful| wrong())?;
    let duration = Duration::from(parsed);
    if parsed.is_negative() || duration.is_zero() {
        return Err(wrong());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests;
