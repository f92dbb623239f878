//! The object that causes a reason, with a sentence about it, advice and commands.

use super::*;

/// A cause.
pub(super) struct Cause {
    pub(super) object: ObjectRef,
    pub(super) sentence: String,
    pub(super) advice: String,
    pub(super) evidence: Vec<Evidence>,
    pub(super) commands: Vec<Command>,
}

impl Cause {
    fn new(object: ObjectRef, sentence: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            object,
            sentence: sentence.into(),
            advice: advice.into(),
            evidence: Vec::new(),
            commands: Vec::new(),
        }
    }

    fn then(mut self, commands: impl IntoIterator<Item = Command>) -> Self {
        self.commands.extend(commands);
        self
    }

    fn seen(mut self, evidence: impl IntoIterator<Item = Evidence>) -> Self {
        self.evidence.extend(evidence);
        self
    }
}

/// Returns the cause of a reason. Each reason has one, and the deepest object that is known.
pub(super) fn cause(job: Notebook<'_>, reason: Reason) -> Cause {
    of_source(job, reason)
        .or_else(|| of_notebook(job, reason))
        .or_else(|| of_kernel(job, reason))
        .or_else(|| of_comparison(job, reason))
        .or_else(|| of_pod(job, reason))
        .unwrap_or_else(|| of_job(job, reason))
}

impl<'a> Notebook<'a> {
    /// Returns the source that the message is about: the golden notebook's own repository, or that of the notebook.
    fn source(self) -> &'a SourceView {
        let golden = self.view.golden_source.as_ref();
        let is_golden = |golden: &&SourceView| {
            let message = self.message();
            let is_own = message.contains(&self.view.source.url);
            message.contains(&golden.url) && (!is_own || golden.url != self.view.source.url)
        };
        golden.filter(is_golden).unwrap_or(&self.view.source)
    }

    /// Returns the note about a result that was not stored.
    pub(super) fn not_stored(self) -> Option<String> {
        let condition = self.condition(api::notebooks::condition::RESULTS_STORED)?;
        (condition.status == "False").then(|| condition.message.clone())
    }
}

/// Returns the cause of a reason about a repository and its credentials.
fn of_source(job: Notebook<'_>, reason: Reason) -> Option<Cause> {
    let source = job.source();
    let reference = &source.reference;
    if reason == Reason::AddressNotAllowed {
        let config = operator::config(job.world, "what the operator's configuration allows");
        let advice = "Submit another NotebookValidationJob with an address that everyone can reach, or ask an administrator of the operator to add the network to 'notebooks.allowedNetworks'.";
        let object = ObjectRef::cluster("Configuration", "notebooks.allowedNetworks");
        let cause = Cause::new(
            object,
            text! { "does not allow the address of '{}'", source.url },
            advice,
        );
        return Some(cause.then(config));
    }
    let secret = of_reason! { reason;
        AuthenticationFailed => ("the Git server rejects its content", "Correct the values of the Secret, or name another one in another NotebookValidationJob."),
        CredentialsInvalid => ("lacks a key, or a key's content cannot be used", "Correct the key that the first lines name: 'username' and 'password' for https, 'identity' and 'known_hosts' for ssh."),
        CertificateNotTrusted => ("has no 'ca.crt' that verifies the Git server's certificate", "Put the certificate of the server's authority into the Secret as 'ca.crt'."),
        HostKeyUnknown => ("its 'known_hosts' does not have the Git server's host key", "Compare the fingerprints with the operator of the server; if they are right, put the key into 'known_hosts'."),
        SecretNotFound => ("does not exist, and the job references it", "Create the Secret. The operator continues by itself."),
    };
    if let Some((sentence, advice)) = secret {
        let commands = [source.ls_remote(), job.look_again()];
        let is_missing = reason == Reason::SecretNotFound;
        // The kernel's container may need another Secret that does not exist.
        let is_named = |name: &str| job.message().contains(&format!("'{name}'"));
        return Some(match &source.secret {
            Some(name) if !is_missing || is_named(name) => {
                Cause::new(job.here("Secret", name), sentence, advice).then(commands)
            }
            Some(_) | None if is_missing => return None,
            Some(_) | None => Cause::new(
                source.repository(),
                "requires credentials, and the job references no Secret",
                "Submit another NotebookValidationJob with 'credentialsSecretRef'.",
            )
            .then([source.ls_remote(), job.again()]),
        });
    }
    let (sentence, advice) = of_reason! { reason;
        RepositoryUnreachable => ("does not respond".to_owned(), "Check that the server works and that the cluster reaches it. The operator tries again by itself until the deadline."),
        RepositoryNotFound => ("is not found by its server".to_owned(), "Check the URL, and whether the credentials may read the repository; then submit another NotebookValidationJob."),
        RepositoryTooLarge => ("needs more disk space than the operator's configuration allows".to_owned(), "Use a smaller repository, or ask an administrator of the operator to raise 'notebooks.repositoryLimitMiB'."),
        CloneFailed => ("was not fetched".to_owned(), "The first lines have the message of Git or of the container 'fetch'. Correct what they name, and submit another NotebookValidationJob."),
        RefNotFound => (text! { "has no branch and no tag '{reference}'" }, "Push the branch or the tag, or correct 'ref' in another NotebookValidationJob."),
        RefAmbiguous => (text! { "has a branch and a tag '{reference}'" }, "Submit another NotebookValidationJob with 'refs/heads/NAME' or 'refs/tags/NAME'."),
        NotebookNotFound => (text! { "has no regular file '{}' at this commit", job.view.path }, "Correct 'notebook.path' in another NotebookValidationJob. A symbolic link is rejected."),
        GoldenNotFound => (text! { "has no regular file '{}' at this commit", job.golden() }, "Correct 'goldenNotebook.path' in another NotebookValidationJob, or commit the file."),
    }?;
    let cause = Cause::new(source.repository(), sentence, advice);
    Some(cause.then([source.ls_remote(), job.again()]))
}

impl<'a> Notebook<'a> {
    fn golden(self) -> &'a str {
        self.view.golden_path.as_deref().unwrap_or("?")
    }
}

/// Returns the cause of a reason about the content of a notebook.
fn of_notebook(job: Notebook<'_>, reason: Reason) -> Option<Cause> {
    let notebook = |path: &str| ObjectRef::cluster("Notebook", path);
    let path = job.view.path.as_str();
    // The runner begins its message with the name of the file.
    let is_golden = job.message().contains("golden notebook");
    let (object, sentence, advice) = of_reason! { reason;
        NotebookInvalid => (notebook(if is_golden { job.golden() } else { path }), "is not a notebook that can be read", "Open it in Jupyter and save it again. A pointer of Git LFS is not fetched."),
        GoldenEmpty => (notebook(job.golden()), "has no outputs, so nothing can be compared", "Execute the golden notebook, commit it, and submit another NotebookValidationJob."),
        NothingValidated => (notebook(path), "has no cell that was executed", "Check the tags of its cells."),
        NothingCompared => (notebook(path), "has no output that was compared", "Check the tags of the cells, 'comparison.ignore' and 'comparison.ignoreOutputTypes'."),
        PatternInvalid => (job.object(), "has a custom pattern that is not valid or too slow", "Write a simpler pattern in another NotebookValidationJob. The first lines name it."),
    }?;
    Some(Cause::new(object, sentence, advice).then([job.again()]))
}

/// Returns the cause of a reason about the kernel and its cells.
fn of_kernel(job: Notebook<'_>, reason: Reason) -> Option<Cause> {
    let cell = job.cell_object(job.current_cell());
    let image = ObjectRef::cluster("Image", &job.view.image);
    let limit = job.view.memory.as_deref().unwrap_or("that of its node");
    let (object, sentence, advice) = of_reason! { reason;
        KernelNotFound => (image, "has no kernel of the requested name".to_owned(), "Install a kernel in the image, or set 'notebook.kernel' to one that the first lines list."),
        KernelDied => (cell, "was running when the kernel ended by itself".to_owned(), "Look for an exit, a crash or a signal in this cell. A kernel that exceeds its memory limit is reported as OOMKilled."),
        CellFailed => (cell, "raised an error".to_owned(), "Correct the cell. The first lines have its error."),
        CellTimeout => (cell, "ran longer than 'notebook.cellTimeout'".to_owned(), "Raise 'notebook.cellTimeout' in another NotebookValidationJob, or let the cell do less."),
        OOMKilled => (cell, text! { "used more memory than {limit}" }, "Raise 'podConfig.resources.limits.memory' in another NotebookValidationJob, or let the cell use less memory."),
        OutputTooLarge => (cell, "wrote more output than a run may have".to_owned(), "Let the cell write less: at most 20 MiB for one cell, and 100 MiB for all."),
        DeadlineExceeded => (cell, "was running when 'timeout' was over".to_owned(), "Raise 'timeout', or let the notebook do less. 'notebook.cellTimeout' names the slow cell."),
    }?;
    let logs = job.logs("kernel", "what the kernel's container wrote");
    Some(Cause::new(object, sentence, advice).then([logs, job.again()]))
}

/// Returns the cause of a reason about the comparison and the checks.
fn of_comparison(job: Notebook<'_>, reason: Reason) -> Option<Cause> {
    let diff = job.orc("diff", "all differences, with their classes");
    if reason == Reason::Mismatch {
        let compared = job.view.status.comparison_result.as_ref();
        let first = compared.and_then(|compared| compared.diffs.first());
        let object = job.cell_object(first.map(|first| first.cell).or(job.current_cell()));
        let (sentence, advice) = first.map_or_else(
            || ("differs from the golden notebook".to_owned(), PLAIN_DIFFERENCE),
            |first| {
                let sentence = text! { "differs from the golden notebook: {}, class {}", first.diff_type, first.class };
                (sentence, advice_of_class(&first.class))
            },
        );
        let texts = first.into_iter().flat_map(|first| {
            [
                ("rule", &first.rule),
                ("expected", &first.expected),
                ("actual", &first.actual),
            ]
        });
        let at = job.written();
        let texts = texts.filter(|(_, text)| !text.is_empty());
        let evidence = texts.map(|(name, text)| Evidence::new(name, text, at));
        let golden = job.orc("golden", "the executed notebook, to take as the golden one");
        let cause = Cause::new(object, sentence, advice).seen(evidence);
        return Some(cause.then([diff, golden]));
    }
    let cell = job.cell_object(job.current_cell());
    let (sentence, advice) = of_reason! { reason;
        ExpectationFailed => ("has not the result that 'validation.expectedOutputs' requires", "Correct the cell, or change the expectation in another NotebookValidationJob."),
        OutputOnStderr => ("wrote to stderr, which the checks forbid", "Correct the cell, or set 'validation.failOnStderr' to false in another NotebookValidationJob."),
        WarningsFound => ("printed a warning, which the checks forbid", "Correct the cell, or set 'validation.failOnWarnings' to false in another NotebookValidationJob."),
        CellsSkipped => ("is skipped by a tag, which the checks forbid", "Remove the tag, or set 'validation.allowSkipped' to true in another NotebookValidationJob."),
    }?;
    Some(Cause::new(cell, sentence, advice).then([diff, job.again()]))
}

const PLAIN_DIFFERENCE: &str =
    "Correct the notebook, or commit the executed notebook as the golden one.";

/// Returns the advice for the class of a difference. A class never changes the verdict.
fn advice_of_class(class: &str) -> &'static str {
    match class {
        "Noise" => {
            "The output differs by noise only. Pin what makes it random, or select a normalizer or a tolerance in 'comparison'; the rule names it."
        }
        "VersionDrift" => {
            "Packages differ from those of the golden notebook. Pin them in the image, or commit the executed notebook as the golden one."
        }
        "Regression" => {
            "The packages are those of the golden notebook, so the notebook or its data changed. Correct it, or commit the executed notebook as the golden one."
        }
        _ => PLAIN_DIFFERENCE,
    }
}

/// Returns the cause of a reason about the Pod.
fn of_pod(job: Notebook<'_>, reason: Reason) -> Option<Cause> {
    let (sentence, advice) = of_reason! { reason;
        ImagePullFailed => ("cannot pull an image", "Check 'podConfig.containerImage' and 'podConfig.imagePullSecrets'. The operator's images must be on the nodes, too."),
        ImageNeedsRoot => ("has an image that runs as root", "Build the image so that it works with 'podConfig.runAsUser', which is never 0."),
        ContainerNotStartable => ("has a container that the kubelet cannot start", "The words are the kubelet's. Check the image, the Secrets and the ConfigMaps."),
        Unschedulable => ("fits on no node", "Check 'podConfig.resources', 'nodeSelector' and 'tolerations' against the nodes. The first lines name the resource."),
        VolumeNotReady => ("waits for a volume", "Check the claims, Secrets and ConfigMaps in 'podConfig.volumes'."),
        StartTimeout => ("did not start within 'startTimeout'", "Correct the cause in the first lines, and submit another NotebookValidationJob. A large image may need a longer 'startTimeout'."),
        SecretNotFound => ("needs a Secret or ConfigMap that does not exist", "Create what the first lines name."),
        Disrupted => ("was stopped by another actor", "Wait: another Pod takes its place, and no attempt is used."),
        TooManyDisruptions => ("was stopped by other actors too often", "Find out what stops Pods here: an eviction, a drain or a deletion. Then submit another NotebookValidationJob."),
        EvidenceLost => ("was deleted before its result was read", "Find out what deletes finished Pods here, then submit another NotebookValidationJob. Nothing shows whether the notebook passed."),
        ResultMissing => ("ended without a report of the container 'runner'", "Read the log of 'runner', then submit another NotebookValidationJob."),
        ResultInvalid => ("has a report that proves nothing", "Read the log of 'runner'. If nothing else wrote into the Pod, report this with the operator's log."),
        ResultTooLarge => ("has a report that may be cut", "Remove containers that other components inject into the Pod: they share the space of all reports."),
        ExitContradicted => ("ended with exit code 0, but something contradicts it", "Find out what changed or stopped the Pod. If webhooks change Pods here on purpose, set 'notebooks.acceptChangedPods'."),
        JobFailed => ("failed", "The first lines have the message of the Job or the kubelet."),
        NonZeroExit => ("ended with an exit code other than 0", "Read the log of its containers."),
        Fetching => ("fetches the notebooks", "Wait. The container 'fetch' has ten minutes."),
        ReadingResult => ("ended, and the operator stores its full result", "Wait: at most two minutes. The verdict is known."),
    }?;
    let object = job.pod_object();
    let warned = job.pod().and_then(|pod| {
        let warnings = job.world.warnings(&pod.meta.uid);
        warnings.first().map(|event| event.evidence())
    });
    let describe = object.describe("its containers and its Events");
    let logs = job.logs("runner", "what the container 'runner' wrote");
    Some(
        Cause::new(object, sentence, advice)
            .seen(warned)
            .then([describe, logs]),
    )
}

/// Returns the cause of any other reason: the Job, or the object itself.
fn of_job(job: Notebook<'_>, reason: Reason) -> Cause {
    let of_api = of_reason! { reason;
        AdmissionDenied => ("is rejected by an admission policy or a webhook", "Ask the owner of the policy that the first lines name. The Pod of a job satisfies the level 'restricted'."),
        QuotaExceeded => ("is rejected by a quota", "Free some of the quota, or ask an administrator to raise it. The operator tries again by itself."),
        InvalidChild => ("is rejected as invalid by the API server", "Correct the field that the first lines name in another NotebookValidationJob."),
        ChildNameTaken => ("exists and belongs to someone else", "Delete it if nobody needs it, or submit a NotebookValidationJob with another name."),
        JobLost => ("was deleted by another actor", "Find out what deletes Jobs here."),
        Denied => ("may not be written by the operator", "Compare the operator's permissions with those of its chart."),
    };
    if let Some((sentence, advice)) = of_api {
        let object = job.job_object();
        let warned = job.jobs().find_map(|known| {
            let warnings = job.world.warnings(&known.meta.uid);
            warnings.first().map(|event| event.evidence())
        });
        let describe = object.describe("its Events");
        let cause = Cause::new(object, sentence, advice).seen(warned);
        return cause.then([describe, job.look_again()]);
    }
    let (sentence, advice) = if reason == Reason::Cancelled {
        (
            "was ended by its 'spec.cancel', which someone set".to_owned(),
            "A cancelled job cannot be run again: submit another NotebookValidationJob.".to_owned(),
        )
    } else {
        (
            "has the problem in the first lines".to_owned(),
            plain_advice(reason),
        )
    };
    let who = job
        .object()
        .who("'metadata.managedFields' names who changed it");
    let cause = Cause::new(job.object(), sentence, advice);
    cause.then([who].into_iter().chain(operator::log(job.world)))
}
