//! The object that causes a DocsRun's reason: its Secret, its repository, the operator's
//! configuration, or the Agent. Each cause comes with advice.

use super::shell::{server, word};
use super::*;

pub(super) fn repository(docs: &DocsView) -> ObjectRef {
    ObjectRef::cluster("Repository", &docs.repository)
}

/// Returns a reference to the operator's configuration. Users cannot read an object under this
/// name.
pub(super) fn setting(name: &str) -> ObjectRef {
    ObjectRef::cluster("Configuration", name)
}

/// Returns the cause of a reason, below the Pod, or `None` if the Pod itself is the deepest object. The
/// advice is a sentence without its end, which depends on whether the run has finished. The flag is
/// whether this run can no longer succeed, so that a new run is necessary.
pub(super) fn root_cause(run: Run<'_>, docs: &DocsView, reason: Reason) -> Option<(Finding, bool)> {
    let of_others = || of_agent(run, docs, reason).or_else(|| of_repository(run, docs, reason));
    let url = &docs.repository;
    if reason == Reason::AddressNotAllowed {
        let finding = finding! {
            Blocked "Submit another DocsRun with an address that everyone can reach, or ask an administrator of the operator to add the network of '{url}' to 'tasks.docs.allowedNetworks'";
            Error setting("tasks.docs.allowedNetworks"), reason, "does not allow the address of '{url}'";
            then operator::config(run.world, "what the operator's configuration allows");
        };
        return Some((finding, false));
    }
    of_secret(run, docs, reason).or_else(|| Some((of_others()?, false)))
}

fn of_secret(run: Run<'_>, docs: &DocsView, reason: Reason) -> Option<(Finding, bool)> {
    let (sentence, to_do) = of_reason! { reason;
        AuthenticationFailed => ("the Git server refuses what is in it", "correct the values"),
        CredentialsInvalid => ("lacks a key, or a key's content cannot be used",
            "correct the key that the first lines name ('username' and 'password' for https, 'identity' and 'known_hosts' for ssh)"),
        CertificateNotTrusted => ("has no 'ca.crt' that vouches for the Git server's certificate",
            "put the certificate of the server's authority into it as 'ca.crt'"),
        HostKeyUnknown => ("its 'known_hosts' does not have the Git server's host key",
            "compare the fingerprints with whoever runs the server; if they are right, put the key into 'known_hosts'"),
        SecretNotFound => ("does not exist, and the DocsRun's 'credentialsSecretRef' names it", "create it"),
    }?;
    let is_absent = reason == Reason::SecretNotFound;
    let host = server(&docs.repository).filter(|_| reason == Reason::HostKeyUnknown);
    let keys = host.map(|(host, port)| {
        shell! {
            "ssh-keyscan -p {port} {} | ssh-keygen -lf -", word(host) => "the fingerprints that the server shows: compare before you trust them"
        }
    });
    let Some(name) = docs.secret.as_ref() else {
        let finding = finding! {
            Blocked "Cancel it and submit another DocsRun with a Secret (orc submit docs --secret): 'credentialsSecretRef' cannot be changed. Its keys: {KEYS}";
            Error repository(docs), reason, "asks for more than the run has: it names no Secret";
            then keys, ls_remote(docs, &docs.source_branch);
        };
        return (!is_absent).then_some((finding, true));
    };
    let (object, within) = (run.here("Secret", name), run.namespace);
    if is_absent && run.exists("Secret", name) == Some(true) {
        let finding = finding! { Waiting "Wait: Secret '{name}' exists by now";
            Waiting object, "ExistsNow", "exists by now; it was missing when the operator looked";
        };
        return Some((finding, false));
    }
    let look = object.describe("which keys it has; no values are shown");
    let finding = finding! { Blocked "Secret '{name}' in namespace '{within}': {to_do}";
        Error object, reason, (sentence);
    };
    let finding = match is_absent {
        true => finding.then(create_secret(within, name)),
        false => rows! { finding; then keys.unwrap_or(look), replace_secret(within, name); },
    };
    Some((finding, false))
}

const KEYS: &str = "'username' and 'password' (https), or 'identity' and 'known_hosts' (ssh), 'ca.crt' (a private authority)";

/// Returns the command that creates the Secret. Values come from files, because a command line is
/// stored and visible to others.
pub(super) fn create_secret(within: &str, name: &str) -> Command {
    shell! {
        "kubectl create secret generic {name} -n {within} --from-file=<FOLDER>"
            => "create it from a folder with one file for each key: {KEYS}"
    }
}

fn replace_secret(within: &str, name: &str) -> Command {
    shell! {
        "kubectl create secret generic {name} -n {within} --from-file=<FOLDER> --dry-run=client -o yaml | kubectl replace -f -"
            => "put all keys again, from a directory with one file for each: {KEYS}"
    }
}

fn of_agent(run: Run<'_>, docs: &DocsView, reason: Reason) -> Option<Finding> {
    let path = &docs.output_path;
    let (sentence, advice) = of_reason! { reason;
        NoChanges => (format!("wrote nothing new below '{path}'"),
            format!("If nothing had to change, submit another DocsRun with '--allow-no-changes'; otherwise read the agent's log, and let it write below '{path}'")),
        OutputTooLarge => (format!("wrote more below '{path}' than is taken over"),
            format!("Let the agent write less below '{path}' (the first lines name the limit)")),
    }?;
    Some(finding! { Blocked (advice);
        Error run.agent(), reason, (sentence);
        then run.orc("logs", "", "what the agent wrote to its log"), run.edit_agent("change what it does");
    })
}

fn of_repository(run: Run<'_>, docs: &DocsView, reason: Reason) -> Option<Finding> {
    let (source, output) = (&docs.source_branch, &docs.output_branch);
    let (base, pushed) = (or(&docs.base_commit, "?"), or(&docs.commit, "?"));
    let (folder, head) = (
        &docs.working_directory,
        or(&docs.branch_head, "it did not exist"),
    );
    let (branch, sentence, advice) = of_reason! { reason;
        RepositoryUnreachable => (source, "does not answer".to_owned(),
            "Check the address, the server, and the NetworkPolicies of the operator and of the namespace".to_owned()),
        RepositoryNotFound => (source, "is not there, says its server (some say so where the credentials are not enough)".to_owned(),
            "If the address is wrong, submit another DocsRun (it cannot be changed); otherwise check the rights of the credentials".to_owned()),
        BranchNotFound => (source, format!("has no branch '{source}'"),
            format!("If the name is wrong, submit another DocsRun ('sourceBranch' cannot be changed); otherwise make branch '{source}'")),
        RepositoryTooLarge => (source, "needs more space than the operator's configuration allows ('tasks.docs.repositoryLimitMiB')".to_owned(),
            "Use a smaller repository, or ask an administrator of the operator for more space".to_owned()),
        PathNotFound => (source, format!("has no folder '{folder}' in commit {base}"),
            "If the name is wrong, submit another DocsRun ('workingDirectory' cannot be changed); otherwise make the folder".to_owned()),
        PushRejected => (output, format!("refused the push to branch '{output}'"),
            "The words are the server's: a hook, a protected branch, or missing rights. Submit another DocsRun with another '--output-branch', or have the rule or the rights changed".to_owned()),
        BranchMoved => (output, format!("branch '{output}' is not where it was when the run began ({head}): someone else changed it"),
            "Look who else pushes to that branch (nothing of theirs was touched)".to_owned()),
        NotVerified => (output, format!("does not have branch '{output}' at commit {pushed}, which was reported as pushed"),
            "Look at the branch, and find out whether someone pushed right after it, took it away, or the server lost it".to_owned()),
    }?;
    let purpose = "what may keep its Pods from it";
    let policies = (reason == Reason::RepositoryUnreachable)
        .then(|| commands::list("NetworkPolicy", run.namespace, purpose));
    Some(finding! { Blocked (advice);
        Error repository(docs), reason, (sentence);
        then ls_remote(docs, branch), policies;
    })
}

fn or<'a>(known: &'a Option<String>, otherwise: &'a str) -> &'a str {
    known.as_deref().unwrap_or(otherwise)
}

/// Returns the command that reads the branch, with the credentials of the user who runs it.
pub(super) fn ls_remote(docs: &DocsView, branch: &str) -> Command {
    let (url, head) = (
        word(&docs.repository),
        word(&format!("refs/heads/{branch}")),
    );
    shell!("git ls-remote {url} {head}" => "what the server says to you about branch '{branch}'")
}
