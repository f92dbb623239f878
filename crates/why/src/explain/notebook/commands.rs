//! Suggested commands about a NotebookValidationJob.

use super::super::shell::word;
use super::*;

impl Notebook<'_> {
    /// Returns an `orc` command for the job.
    pub(super) fn orc(self, verb: &str, purpose: impl Into<String>) -> Command {
        let kind = match verb {
            // These commands are about jobs of this kind only.
            "diff" | "golden" => "",
            _ => "notebookvalidationjob/",
        };
        shell!("orc {verb} {kind}{} -n {}", self.name(), self.namespace => (purpose))
    }

    /// Returns the command that prints the log of a container.
    pub(super) fn logs(self, container: &str, purpose: &str) -> Command {
        let (name, within) = (self.name(), self.namespace);
        shell!("orc logs notebookvalidationjob/{name} -n {within} -c {container}" => (purpose))
    }

    /// Returns the command that submits the job once more.
    pub(super) fn again(self) -> Command {
        let (name, within) = (self.name(), self.namespace);
        shell! {
            "kubectl get onb {name} -n {within} -o yaml > {name}.yaml" => "take it into a file; change what is wrong and the name, and create it with 'kubectl create -f'"
        }
    }
}

impl SourceView {
    /// Returns the repository as an object of the chain.
    pub(super) fn repository(&self) -> ObjectRef {
        ObjectRef::cluster("Repository", &self.url)
    }

    /// Returns the command that asks the Git server for the reference.
    pub(super) fn ls_remote(&self) -> Command {
        let (url, reference) = (word(&self.url), word(&self.reference));
        shell!("git ls-remote {url} {reference}" => "what the server says, with your own credentials")
    }
}
