//! Messages that the operators write and `orc why` reads.
//!
//! Some facts exist only in `status.message`. Each such message is formatted and parsed here, so its text
//! can change in one place.
//!
//! # Caveats
//! An object may have a message of another release. A parser then returns `None`, and the explanation
//! becomes shorter, but not wrong.

use std::fmt;

use crate::Reason;

/// Note about a container that has started and whose log no longer exists. Notes about it begin with this.
pub const LOG_LOST: &str = "; its log is lost";

const EXISTS: &str = " exists already";
const HAS_TASK: &str = "' has task ";
const OF_EARLIER: &str = " belongs to an earlier ";
const NOT_STARTED: &str = "the container did not start within ";
const NEVER_STARTED: &str = "not started: ";
const NOT_ASKED: &str = " was not asked for its branches in time: ";
const JOB_CREATED: &str = " was created; waiting for its Pod";
const RUNS: &str = " runs; it has until ";
const PUBLISH: &str = "the container 'publish'";
const NOT_ENDED: &str = " did not end within ";
const RESTORED: &str = "restored: ";
const ANSWERED: &str = "the API server answered ";
const HANGS: &str = ", probably because of an admission webhook";
const IN_NAMESPACE: &str = "' in namespace '";
const NOT_INSTALLED: &str = "' is not installed, so the API server does not serve its objects";
const LACKS: &str = "' lacks ";
const OF_OLDER_APP: &str = " also belongs to the older ManagedApp '";

/// A request to the API server: `'create jobs' of 'shop-7-v1'`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// Verb and resource, such as `create jobs`.
    pub action: &'a str,
    /// Name of the object.
    pub name: &'a str,
}

impl fmt::Display for Request<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "'{}' of '{}'", self.action, self.name)
    }
}

impl<'a> Request<'a> {
    /// Finds the first request in a message.
    #[must_use]
    pub fn find(message: &'a str) -> Option<Self> {
        let (before, rest) = message.split_once("' of '")?;
        let (_, action) = before.rsplit_once('\'')?;
        let (name, _) = rest.split_once('\'')?;
        action.contains(' ').then_some(Self { action, name })
    }
}

/// Returns whether a message reports that a container had started and that its log is lost.
#[must_use]
pub fn is_log_lost(message: &str) -> bool {
    message.contains(LOG_LOST)
}

/// Formats that an unmanaged object has the name of a child. `object` is its kind and name.
#[must_use]
pub fn name_taken(object: &str) -> String {
    format!(
        "{object}{EXISTS} and belongs to someone else; it was not touched. Delete it, if nobody needs it"
    )
}

/// Formats that a child of another object has the name of a child. `owner` is its kind and name, by its labels.
#[must_use]
pub fn name_taken_by(object: &str, owner: &str) -> String {
    format!("{object}{EXISTS} and belongs to {owner}; it was not touched. Use another name")
}

/// Formats that another TaskRun has the task of a run. `is_over`: it ended, and its children are kept.
#[must_use]
pub fn task_taken(holder: &str, task: i64, service: &str, is_over: bool) -> String {
    let rest = if is_over {
        "and ended; its Job and ConfigMap are kept. Raise its 'contextVersion' to run the task again, delete it, or submit another 'taskId'"
    } else {
        "already; two runs of a task cannot run side by side. Wait for its end, delete one of the two, or submit another 'taskId'"
    };
    format!("TaskRun '{holder}{HAS_TASK}{task} of service '{service}' {rest}")
}

/// Returns the name of the other TaskRun in a message of [`task_taken`].
#[must_use]
pub fn task_holder(message: &str) -> Option<&str> {
    let (before, _) = message.split_once(HAS_TASK)?;
    let (_, name) = before.rsplit_once("TaskRun '")?;
    Some(name)
}

/// Formats that an older ManagedApp has an object of an application. `object` is its kind and name, `older` the
/// namespace and name of the other ManagedApp.
#[must_use]
pub fn overlap(object: &str, older: &str) -> String {
    format!(
        "{object}{OF_OLDER_APP}{older}', and only that one is reported. Delete one of the two, or separate the applications"
    )
}

/// Returns the namespace and name of the other ManagedApp in a message of [`overlap`].
#[must_use]
pub fn older_app(message: &str) -> Option<(&str, &str)> {
    let (_, rest) = message.split_once(OF_OLDER_APP)?;
    let (name, _) = rest.split_once('\'')?;
    name.split_once('/')
}

/// Formats that a child of a deleted owner has the name of a child. `is_collected`: the garbage collector
/// deletes it.
#[must_use]
pub fn left_over(object: &str, owner: &str, is_collected: bool) -> String {
    let rest = if is_collected {
        "; waiting until it is removed, too"
    } else {
        ", and nothing removes it; it was not touched. Delete it"
    };
    format!("{object}{OF_EARLIER}{owner} that was deleted{rest}")
}

/// Returns kind and name of the object in the messages of [`name_taken`] and [`left_over`].
#[must_use]
pub fn object_with_name(message: &str) -> Option<(&str, &str)> {
    let (object, _) = message
        .split_once(EXISTS)
        .or_else(|| message.split_once(OF_EARLIER))?;
    let (kind, name) = object.split_once(" '")?;
    let kind = kind.rsplit(' ').next().unwrap_or(kind);
    Some((kind, name.strip_suffix('\'')?))
}

/// Returns whether a message is one of [`left_over`].
#[must_use]
pub fn is_left_over(message: &str) -> bool {
    message.contains(OF_EARLIER)
}

/// Formats that a container did not start within its timeout.
#[must_use]
pub fn start_timeout(timeout: &str, cause: &str) -> String {
    format!("{NOT_STARTED}{timeout}: {cause}")
}

/// Returns the cause in a message of [`start_timeout`], if it is a reason with a message.
#[must_use]
pub fn start_timeout_cause(message: &str) -> Option<(Reason, &str)> {
    let (_, rest) = message.split_once(NOT_STARTED)?;
    let (_, cause) = rest.split_once(": ")?;
    let (name, text) = cause.split_once(": ")?;
    let text = match text.rsplit_once(" (after ") {
        Some((text, end)) if end.ends_with(" attempts)") => text,
        Some(_) | None => text,
    };
    Some((Reason::from_name(name)?, text))
}

/// Formats that a run has ended before its first attempt, or between two. `next` is the next step.
#[must_use]
pub fn never_started(message: &str, next: &str) -> String {
    format!("{NEVER_STARTED}{message}. {next}")
}

/// Returns whether a message is one of [`never_started`].
#[must_use]
pub fn is_never_started(message: &str) -> bool {
    message.starts_with(NEVER_STARTED)
}

/// Formats that a repository was not asked for its branches. `blocker` is the reason.
#[must_use]
pub fn not_asked(url: &str, blocker: &str) -> String {
    format!("{url}{NOT_ASKED}{blocker}")
}

/// Returns whether a message contains one of [`not_asked`].
#[must_use]
pub fn is_not_asked(message: &str) -> bool {
    message.contains(NOT_ASKED)
}

/// Formats that a Job was created.
#[must_use]
pub fn job_created(job: &str) -> String {
    format!("Job '{job}'{JOB_CREATED}")
}

/// Formats that the container of a Pod runs.
#[must_use]
pub fn runs_until(pod: &str, deadline: jiff::Timestamp) -> String {
    format!("{pod}{RUNS}{deadline}")
}

/// Returns whether a message is one of [`job_created`] or [`runs_until`], which name no problem.
#[must_use]
pub fn is_progress(message: &str) -> bool {
    message.ends_with(JOB_CREATED) || message.contains(RUNS)
}

/// Formats that a container exceeded its timeout, such as `the agent` or `the container 'publish'`.
#[must_use]
pub fn not_ended(pod: &str, container: &str, timeout: &str) -> String {
    format!("{pod}: {container}{NOT_ENDED}{timeout}")
}

/// Returns whether a message reports that `publish` exceeded its timeout ([`not_ended`]).
#[must_use]
pub fn is_late_publish(message: &str) -> bool {
    message
        .split_once(PUBLISH)
        .is_some_and(|(_, rest)| rest.starts_with(NOT_ENDED))
}

/// Formats that a run was restored without its status.
#[must_use]
pub fn restored(text: &str) -> String {
    [RESTORED, text].concat()
}

/// Returns whether a message is one of [`restored`].
#[must_use]
pub fn is_restored(message: &str) -> bool {
    message.starts_with(RESTORED)
}

/// Formats a response of the API server that only a retry can change.
#[must_use]
pub fn answered(code: u16, request: impl fmt::Display, message: &str) -> String {
    format!("{ANSWERED}{code} to {request}: {message}")
}

/// Returns the status code in a message of [`answered`].
#[must_use]
pub fn answered_code(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once(ANSWERED)?;
    rest.split(' ').next()
}

/// Formats that the API server has not responded to a request for `seconds`.
#[must_use]
pub fn hangs(request: impl fmt::Display, seconds: u64) -> String {
    format!(
        "{request} has had no response for {seconds} s{HANGS} that does not answer; the API server waits for it up to 30 s"
    )
}

/// Returns whether a message is one of [`hangs`].
#[must_use]
pub fn is_hanging(message: &str) -> bool {
    message.contains(HANGS)
}

/// Formats that a CRD of ours is not installed.
#[must_use]
pub fn crd_missing(crd: &str) -> String {
    format!("CRD '{crd}{NOT_INSTALLED}")
}

/// Returns the name of the CRD in a message of [`crd_missing`].
#[must_use]
pub fn missing_crd(message: &str) -> Option<&str> {
    let (before, _) = message.split_once(NOT_INSTALLED)?;
    let (_, name) = before.rsplit_once("CRD '")?;
    Some(name)
}

/// Formats that the API server rejects a request, because a CRD of ours is older than the operator. `lacks` are the
/// missing parts of its schema.
#[must_use]
pub fn crd_outdated(crd: &str, lacks: &str, request: impl fmt::Display) -> String {
    format!(
        "CRD '{crd}{LACKS}{lacks}, so the API server rejects {request}: {}",
        crate::crd::INSTALL
    )
}

/// Returns the name of the CRD and the missing parts of its schema in a message of [`crd_outdated`].
#[must_use]
pub fn outdated_crd(message: &str) -> Option<(&str, &str)> {
    let (before, rest) = message.split_once(LACKS)?;
    let (_, name) = before.rsplit_once("CRD '")?;
    let (lacks, _) = rest.split_once(", so the API server rejects ")?;
    Some((name, lacks))
}

/// Formats NetworkPolicies of a namespace.
#[must_use]
pub fn network_policies(names: &[String], namespace: &str) -> String {
    format!(
        "NetworkPolicy '{}{IN_NAMESPACE}{namespace}'",
        names.join("', '")
    )
}

/// Returns the first name and the namespace in the text of [`network_policies`].
#[must_use]
pub fn network_policy(message: &str) -> Option<(&str, &str)> {
    let (_, rest) = message.split_once("NetworkPolicy '")?;
    let (names, rest) = rest.split_once(IN_NAMESPACE)?;
    Some((names.split('\'').next()?, rest.split('\'').next()?))
}

/// Formats a text about a Pod.
#[must_use]
pub fn about_pod(pod: &str, text: &str) -> String {
    format!("Pod '{pod}': {text}")
}

/// Returns the name of the Pod and the text of [`about_pod`].
#[must_use]
pub fn pod(message: &str) -> Option<(&str, &str)> {
    let (_, rest) = message.split_once("Pod '")?;
    rest.split_once("': ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_app_is_found_in_its_message() {
        let message = overlap("Deployment 'shop/web'", "team/older");
        assert_eq!(older_app(&message), Some(("team", "older")));
        assert!(
            message.starts_with("Deployment 'shop/web' also belongs"),
            "{message}"
        );
        assert_eq!(older_app("Deployment 'shop/web' crashes"), None);
    }

    #[test]
    fn a_request_is_found_in_each_message() {
        let request = Request {
            action: "create jobs",
            name: "shop-7-v1",
        };
        for message in [
            request.to_string(),
            format!("the operator lacks the permission for {request}: no"),
            format!("{request} is refused: it's"),
            answered(503, request, "no"),
        ] {
            assert_eq!(Request::find(&message), Some(request), "{message}");
        }
        let literal = "'create configmaps' of 'a' is refused: it's";
        let expected = Request {
            action: "create configmaps",
            name: "a",
        };
        assert_eq!(Request::find(literal), Some(expected));
        assert_eq!(Request::find("the Pod cannot be created"), None);
        assert_eq!(
            answered_code("the API server answered 503 to 'create jobs'"),
            Some("503")
        );
        assert_eq!(answered_code(&answered(503, request, "no")), Some("503"));
        assert_eq!(answered_code("a timeout"), None);
    }

    #[test]
    fn the_object_that_has_the_name_is_found() {
        let taken = name_taken("Job 'x'");
        assert_eq!(object_with_name(&taken), Some(("Job", "x")));
        assert!(!is_left_over(&taken));
        let taken = name_taken_by("Job 'x'", "TaskRun 'y'");
        assert_eq!(object_with_name(&taken), Some(("Job", "x")));
        assert!(!taken.contains("Delete") && !is_left_over(&taken));
        for is_collected in [true, false] {
            let message = left_over("ConfigMap 'y'", "TaskRun 'z'", is_collected);
            assert_eq!(object_with_name(&message), Some(("ConfigMap", "y")));
            assert!(is_left_over(&message));
        }
        for (literal, expected) in [
            (
                "Job 'x' exists already and belongs to someone else; it was not touched",
                Some(("Job", "x")),
            ),
            ("ConfigMap 'y' exists already", Some(("ConfigMap", "y"))),
            ("something else", None),
        ] {
            assert_eq!(object_with_name(literal), expected, "{literal}");
        }
    }

    #[test]
    fn the_cause_of_a_start_timeout_is_found() {
        for (cause, expected) in [
            (
                "QuotaExceeded: no: room",
                Some((Reason::QuotaExceeded, "no: room")),
            ),
            (
                "QuotaExceeded: no (after 3 attempts)",
                Some((Reason::QuotaExceeded, "no")),
            ),
            ("Pod 'x' does not say why", None),
            ("Job 'x' has no Pod, and nothing says why", None),
        ] {
            let literal = format!("the container did not start within 5m: {cause}");
            assert_eq!(start_timeout("5m", cause), literal);
            assert_eq!(start_timeout_cause(&literal), expected, "{cause}");
        }
        let other = "another message: QuotaExceeded: no";
        assert_eq!(start_timeout_cause(other), None);
    }

    #[test]
    fn a_repository_that_was_not_asked_is_recognized() {
        let literal = "https://git.example/a was not asked for its branches in time: 8 wait";
        assert_eq!(not_asked("https://git.example/a", "8 wait"), literal);
        assert!(is_not_asked(&format!("not started: {literal}")));
        assert!(!is_not_asked("not started: no response"));
    }

    #[test]
    fn progress_names_no_problem() {
        let pod = "Pod 'x' on node 'n'";
        let deadline = jiff::Timestamp::UNIX_EPOCH;
        assert!(is_progress(&job_created("x")));
        assert!(is_progress(&runs_until(pod, deadline)));
        for (literal, expected) in [
            ("Job 'x' was created; waiting for its Pod", true),
            (
                "Pod 'x' on node 'n' runs; it has until 2026-03-02T11:00:09Z",
                true,
            ),
            (
                "Pod 'x': the container exited with code 1, but Job 'x' does not say so; is the Job controller running?",
                false,
            ),
            ("the Pod cannot be created: no", false),
        ] {
            assert_eq!(is_progress(literal), expected, "{literal}");
        }
        let agent = not_ended(pod, "the agent", "5m");
        assert!(!is_progress(&agent));
        assert!(is_late_publish(&not_ended(pod, PUBLISH, "5m")));
        assert!(!is_late_publish(&agent));
        assert!(is_restored(&restored("version 1 ended")));
        assert!(!is_restored(&job_created("x")));
    }

    #[test]
    fn the_holder_of_a_task_is_found() {
        for is_over in [false, true] {
            let text = task_taken("dup-a", 7, "shop", is_over);
            assert!(text.starts_with("TaskRun 'dup-a' has task 7 of service 'shop' "));
            assert_eq!(task_holder(&text), Some("dup-a"));
            assert_eq!(task_holder(&format!("not started: {text}")), Some("dup-a"));
            assert!(text.len() < 200, "{text}");
        }
        assert_eq!(task_holder("Agent 'a' does not exist"), None);
        let text = name_taken_by("ConfigMap 'shop-7-v1-files'", "TaskRun 'dup-a'");
        let object = Some(("ConfigMap", "shop-7-v1-files"));
        assert_eq!(object_with_name(&text), object);
    }

    #[test]
    fn a_write_that_hangs_is_recognized() {
        let request = Request {
            action: "create jobs",
            name: "shop-7-v1",
        };
        assert!(is_never_started(&never_started("no", "Submit another")));
        assert!(!is_never_started("the container did not start"));
        let message = hangs(request, 8);
        assert!(is_hanging(&message), "{message}");
        assert_eq!(Request::find(&message), Some(request), "{message}");
        assert!(!is_hanging(&answered(503, request, "no")));
    }

    #[test]
    fn a_crd_that_does_not_fit_is_found() {
        let name = "docsruns.orchestrator.io";
        let missing = format!("the watch of docsruns: {}", crd_missing(name));
        assert_eq!(missing_crd(&missing), Some(name));
        assert_eq!(outdated_crd(&missing), None);
        let request = Request {
            action: "patch docsruns/status",
            name: "guide",
        };
        let lacks = "'status.deadlineAt' and 'status.pod'";
        let outdated = crd_outdated(name, lacks, request);
        assert_eq!(outdated_crd(&outdated), Some((name, lacks)), "{outdated}");
        assert_eq!(missing_crd(&outdated), None);
        assert_eq!(Request::find(&outdated), Some(request), "{outdated}");
        for other in ["Secret 'a' lacks the key 'b'", "it is not installed"] {
            assert_eq!((missing_crd(other), outdated_crd(other)), (None, None));
        }
    }

    #[test]
    fn policies_and_pods_are_found() {
        let text = network_policies(&["by-hand".to_owned(), "other".to_owned()], "tenant-acme");
        assert_eq!(network_policy(&text), Some(("by-hand", "tenant-acme")));
        assert_eq!(network_policy("NetworkPolicy 'a' is being set"), None);
        let text = about_pod("probe-1", "it has no node: none");
        assert_eq!(pod(&text), Some(("probe-1", "it has no node: none")));
        assert_eq!(text, "Pod 'probe-1': it has no node: none");
        assert_eq!(pod("nothing was told"), None);
    }
}
