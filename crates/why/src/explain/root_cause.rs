//! The object that causes a DocsRun's reason: its Secret, its repository, the operator's
//! configuration, or the Agent. Each cause comes with advice.

use api::Reason;

use super::{
    commands, operator,
    run_context::RunContext,
    shell::{server, word},
};
use crate::{
    explanation::{Command, Health, Link},
    world::{DocsView, ObjectRef},
};

pub(super) fn repository(docs: &DocsView) -> ObjectRef {
    ObjectRef::cluster("Repository", &docs.repository)
}

/// Returns a reference to the operator's configuration. Users cannot read an object under this
/// name.
pub(super) fn setting(name: &str) -> ObjectRef {
    ObjectRef::cluster("Configuration", name)
}

/// A cause, with advice as text and as commands.
pub(super) struct RootCause {
    pub(super) link: Link,
    /// A sentence without its end. The end depends on whether the run has finished.
    pub(super) advice: String,
    pub(super) next: Vec<Command>,
    /// Whether this run can no longer succeed, so that a new run is necessary.
    pub(super) is_final: bool,
}

/// Returns the cause of a reason, below the Pod, or `None` if the Pod itself is the deepest object.
pub(super) fn root_cause(
    context: RunContext<'_>,
    docs: &DocsView,
    reason: Reason,
) -> Option<RootCause> {
    if let Some(cause) = of_secret(context, docs, reason) {
        return Some(cause);
    }
    if reason == Reason::AddressNotAllowed {
        let link = Link::new(
            setting("tasks.docs.allowedNetworks"),
            Health::Error,
            reason,
            format!("does not allow the address of '{}'", docs.repository),
        );
        let look = operator::config(context.world, "what the operator's configuration allows");
        return Some(RootCause {
            link,
            advice: format!(
                "Submit another DocsRun with an address that everyone can reach, or ask whoever runs the operator to add the network of '{}' to 'tasks.docs.allowedNetworks'",
                docs.repository
            ),
            next: look.into_iter().collect(),
            is_final: false,
        });
    }
    of_agent(context, docs, reason).or_else(|| of_repository(context, docs, reason))
}

fn of_secret(context: RunContext<'_>, docs: &DocsView, reason: Reason) -> Option<RootCause> {
    let all = [
        (
            Reason::AuthenticationFailed,
            "the Git server refuses what is in it",
            "correct the values",
        ),
        (
            Reason::CredentialsInvalid,
            "lacks a key, or a key's content cannot be used",
            "correct the key that the first lines name ('username' and 'password' for https, 'identity' and 'known_hosts' for ssh)",
        ),
        (
            Reason::CertificateNotTrusted,
            "has no 'ca.crt' that vouches for the Git server's certificate",
            "put the certificate of the server's authority into it as 'ca.crt'",
        ),
        (
            Reason::HostKeyUnknown,
            "its 'known_hosts' does not have the Git server's host key",
            "compare the fingerprints with whoever runs the server; if they are right, put the key into 'known_hosts'",
        ),
        (
            Reason::SecretNotFound,
            "does not exist, and the DocsRun's 'credentialsSecretRef' names it",
            "create it",
        ),
    ];
    let (_, sentence, to_do) = all.into_iter().find(|(known, ..)| *known == reason)?;
    let keys = (reason == Reason::HostKeyUnknown)
        .then(|| server(&docs.repository))
        .flatten()
        .map(|(host, port)| {
            Command::new(
                format!("ssh-keyscan -p {port} {} | ssh-keygen -lf -", word(host)),
                "the fingerprints that the server shows: compare before you trust them",
            )
        });
    let Some(name) = &docs.secret else {
        if reason == Reason::SecretNotFound {
            return None;
        }
        let link = Link::new(
            repository(docs),
            Health::Error,
            reason,
            "asks for more than the run has: it names no Secret",
        );
        return Some(RootCause {
            link,
            advice: format!(
                "Cancel it and submit another DocsRun with a Secret (orc submit docs --secret): 'credentialsSecretRef' cannot be changed. Its keys: {KEYS}"
            ),
            next: keys
                .into_iter()
                .chain([ls_remote(docs, &docs.source_branch)])
                .collect(),
            is_final: true,
        });
    };
    let is_there_now =
        reason == Reason::SecretNotFound && context.exists("Secret", name) == Some(true);
    let (health, word_of_it, sentence) = if is_there_now {
        (
            Health::Waiting,
            "ExistsNow",
            "exists by now; it was missing when the operator looked",
        )
    } else {
        (Health::Error, reason.name(), sentence)
    };
    let object = context.here("Secret", name);
    let link = Link::new(object.clone(), health, word_of_it, sentence);
    let mut next = Vec::new();
    if reason == Reason::SecretNotFound {
        if !is_there_now {
            next.push(create_secret(context, name));
        }
    } else {
        let look = commands::describe(&object, "which keys it has; no values are shown");
        next.push(keys.unwrap_or(look));
        next.push(replace_secret(context, name));
    }
    let advice = if is_there_now {
        format!("Nothing: Secret '{name}' exists by now")
    } else {
        format!(
            "Secret '{name}' in namespace '{}': {to_do}",
            context.namespace()
        )
    };
    Some(RootCause {
        link,
        advice,
        next,
        is_final: false,
    })
}

const KEYS: &str = "'username' and 'password' (https), or 'identity' and 'known_hosts' (ssh), 'ca.crt' (a private authority)";

/// Returns the command that creates the Secret. Values come from files, because a command line is
/// stored and visible to others.
pub(super) fn create_secret(context: RunContext<'_>, name: &str) -> Command {
    Command::new(
        format!(
            "kubectl create secret generic {name} -n {} --from-file=<FOLDER>",
            context.namespace()
        ),
        format!("create it from a folder with one file for each key: {KEYS}"),
    )
}

fn replace_secret(context: RunContext<'_>, name: &str) -> Command {
    Command::new(
        format!(
            "kubectl create secret generic {name} -n {} --from-file=<FOLDER> --dry-run=client -o yaml | kubectl replace -f -",
            context.namespace()
        ),
        format!("put all keys again, from a directory with one file for each: {KEYS}"),
    )
}

fn of_agent(context: RunContext<'_>, docs: &DocsView, reason: Reason) -> Option<RootCause> {
    let path = &docs.output_path;
    let all = [
        (
            Reason::NoChanges,
            format!("wrote nothing new below '{path}'"),
            format!(
                "If nothing had to change, submit another DocsRun with '--allow-no-changes'; otherwise read the agent's log, and let it write below '{path}'"
            ),
        ),
        (
            Reason::OutputTooLarge,
            format!("wrote more below '{path}' than is taken over"),
            format!("Let the agent write less below '{path}' (the first lines name the limit)"),
        ),
    ];
    let (_, sentence, advice) = all.into_iter().find(|(known, ..)| *known == reason)?;
    let link = Link::new(
        context.here("Agent", &context.run.agent_name),
        Health::Error,
        reason,
        sentence,
    );
    let next = vec![
        commands::orc(context, "logs", "", "what the agent wrote to its log"),
        commands::edit_agent(context, "change what it does"),
    ];
    Some(RootCause {
        link,
        advice,
        next,
        is_final: false,
    })
}

fn of_repository(context: RunContext<'_>, docs: &DocsView, reason: Reason) -> Option<RootCause> {
    let (source, output) = (&docs.source_branch, &docs.output_branch);
    let commit = |commit: &Option<String>| commit.clone().unwrap_or_else(|| "?".to_owned());
    let all = [
        (
            Reason::RepositoryUnreachable,
            source,
            "does not answer".to_owned(),
            "Check the address, the server, and the NetworkPolicies of the operator and of the namespace".to_owned(),
        ),
        (
            Reason::RepositoryNotFound,
            source,
            "is not there, says its server (some say so where the credentials are not enough)".to_owned(),
            "If the address is wrong, submit another DocsRun (it cannot be changed); otherwise check the rights of the credentials".to_owned(),
        ),
        (
            Reason::BranchNotFound,
            source,
            format!("has no branch '{source}'"),
            format!("If the name is wrong, submit another DocsRun ('sourceBranch' cannot be changed); otherwise make branch '{source}'"),
        ),
        (
            Reason::RepositoryTooLarge,
            source,
            "needs more space than the operator's configuration allows ('tasks.docs.repositoryLimitMiB')".to_owned(),
            "Use a smaller repository, or ask whoever runs the operator for more space".to_owned(),
        ),
        (
            Reason::PathNotFound,
            source,
            format!("has no folder '{}' in commit {}", docs.working_directory, commit(&docs.base_commit)),
            "If the name is wrong, submit another DocsRun ('workingDirectory' cannot be changed); otherwise make the folder".to_owned(),
        ),
        (
            Reason::PushRejected,
            output,
            format!("refused the push to branch '{output}'"),
            "The words are the server's: a hook, a protected branch, or missing rights. Submit another DocsRun with another '--output-branch', or have the rule or the rights changed".to_owned(),
        ),
        (
            Reason::BranchMoved,
            output,
            format!(
                "branch '{output}' is not where it was when the run began ({}): someone else changed it",
                docs.branch_head.clone().unwrap_or_else(|| "it did not exist".to_owned())
            ),
            "Look who else pushes to that branch (nothing of theirs was touched)".to_owned(),
        ),
        (
            Reason::NotVerified,
            output,
            format!("does not have branch '{output}' at commit {}, which was reported as pushed", commit(&docs.commit)),
            "Look at the branch, and find out whether someone pushed right after it, took it away, or the server lost it".to_owned(),
        ),
    ];
    let (_, branch, sentence, advice) = all.into_iter().find(|(known, ..)| *known == reason)?;
    let link = Link::new(repository(docs), Health::Error, reason, sentence);
    let mut next = vec![ls_remote(docs, branch)];
    if reason == Reason::RepositoryUnreachable {
        next.push(commands::list(
            "NetworkPolicy",
            context.namespace(),
            "what may keep its Pods from it",
        ));
    }
    Some(RootCause {
        link,
        advice,
        next,
        is_final: false,
    })
}

/// Returns the command that reads the branch, with the credentials of the user who runs it.
pub(super) fn ls_remote(docs: &DocsView, branch: &str) -> Command {
    Command::new(
        format!(
            "git ls-remote {} {}",
            word(&docs.repository),
            word(&format!("refs/heads/{branch}"))
        ),
        format!("what the server says to you about branch '{branch}'"),
    )
}
