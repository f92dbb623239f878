//! The step's settings: environment variables, checked once.

mod fetch;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use git::{Commit, Networks, Reason, Url, edits::Request, refs};

use crate::failure::{Failure, Step};

pub(crate) use fetch::{FetchSettings, Golden};

/// The variables of this process.
pub(crate) type Environment = BTreeMap<OsString, OsString>;

/// Path of the report. It is read before the other variables, because their errors are written to the
/// report.
pub(crate) const REPORT: &str = "STEP_REPORT";

/// Maximum timeout of a step, in seconds. None of our Jobs runs longer.
const LONGEST: u64 = 24 * 3600;
/// Maximum configurable disk limit, 1 TiB.
const LARGEST_MIB: u64 = 1 << 20;

/// The settings that all steps with a Git server have.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) step: Step,
    pub(crate) url: Url,
    pub(crate) run_uid: String,
    pub(crate) run_name: String,
    /// Seconds since 1970.
    pub(crate) commit_time: u64,
    pub(crate) credentials: Option<PathBuf>,
    pub(crate) networks: Networks,
    pub(crate) disk_mib: u64,
    pub(crate) timeout: Duration,
    pub(crate) deadline: Instant,
    pub(crate) scratch: PathBuf,
}

impl Common {
    fn read(read: &Reader<'_>, start: Instant) -> Result<Common, Failure> {
        Self::of_server(read, start, "STEP_URL", "STEP_CREDENTIALS")
    }

    /// Reads the settings of a step with the server in the variables `url` and `credentials`.
    fn of_server(
        read: &Reader<'_>,
        start: Instant,
        url: &str,
        credentials: &str,
    ) -> Result<Common, Failure> {
        let url = read.url(url)?;
        let networks = read.networks()?;
        networks
            .permits_name(url.host())
            .map_err(|refused| Failure::new(Reason::AddressNotAllowed, refused.to_string()))?;
        let timeout = Duration::from_secs(read.number("STEP_TIMEOUT_SECONDS", 1, LONGEST)?);
        Ok(Common {
            step: read.step,
            url,
            networks,
            timeout,
            deadline: start + timeout,
            run_uid: read.checked("STEP_RUN_UID", check_uid)?,
            run_name: read.checked("STEP_RUN_NAME", check_name)?,
            commit_time: read.number("STEP_COMMIT_TIME", 0, u64::from(u32::MAX))?,
            credentials: match read.text(credentials)? {
                "" => None,
                _ => Some(read.folder(credentials)?),
            },
            disk_mib: read.number("STEP_LIMIT_MIB", 1, LARGEST_MIB)?,
            scratch: read.folder("STEP_SCRATCH")?,
        })
    }
}

/// The settings of `step clone` and `step publish`. Paths in the repository have no `/` at the end. The root
/// is an empty path.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) common: Common,
    pub(crate) source_branch: String,
    pub(crate) base: Commit,
    pub(crate) output_branch: String,
    /// The commit of the output branch when the operator resolved it.
    pub(crate) output_head: Option<Commit>,
    pub(crate) working_directory: String,
    pub(crate) include_codebase: bool,
    pub(crate) output_path: String,
    pub(crate) commit_message: String,
    pub(crate) source: PathBuf,
}

impl Settings {
    /// Reads and checks all variables. `start` is the time at which the step started.
    ///
    /// # Errors
    /// Names the first variable that is missing or invalid.
    pub(crate) fn read(
        step: Step,
        environment: &Environment,
        start: Instant,
    ) -> Result<Settings, Failure> {
        let read = Reader { step, environment };
        Ok(Settings {
            common: Common::read(&read, start)?,
            source_branch: read.branch("STEP_SOURCE_BRANCH")?,
            base: read.commit("STEP_BASE_COMMIT", read.text("STEP_BASE_COMMIT")?)?,
            output_branch: read.branch("STEP_OUTPUT_BRANCH")?,
            output_head: match read.text("STEP_OUTPUT_HEAD")? {
                "" => None,
                text => Some(read.commit("STEP_OUTPUT_HEAD", text)?),
            },
            working_directory: read.path("STEP_WORKING_DIRECTORY")?,
            include_codebase: read.truth("STEP_INCLUDE_CODEBASE")?,
            output_path: read.path("STEP_OUTPUT_PATH")?,
            commit_message: read.message("STEP_COMMIT_MESSAGE")?,
            source: read.folder("STEP_SOURCE")?,
        })
    }

    /// Returns the parent of our commit.
    pub(crate) fn parent(&self) -> &Commit {
        self.output_head.as_ref().unwrap_or(&self.base)
    }
}

/// The settings of `step commit`.
#[derive(Debug)]
pub(crate) struct CommitSettings {
    pub(crate) common: Common,
    pub(crate) request: Request,
}

impl CommitSettings {
    /// Reads and checks all variables.
    ///
    /// # Errors
    /// Names the first variable that is missing or invalid.
    pub(crate) fn read(
        environment: &Environment,
        start: Instant,
    ) -> Result<CommitSettings, Failure> {
        const REQUEST: &str = "STEP_REQUEST";
        let step = Step::Commit;
        let read = Reader { step, environment };
        Ok(CommitSettings {
            common: Common::read(&read, start)?,
            request: Request::read(read.text(REQUEST)?).map_err(|why| read.wrong(REQUEST, &why))?,
        })
    }
}

/// Returns whether `path` is at or below `folder`, both as in [`Settings`].
pub(crate) fn is_below(path: &[u8], folder: &str) -> bool {
    match path.strip_prefix(folder.as_bytes()) {
        Some(rest) => folder.is_empty() || rest.is_empty() || rest.starts_with(b"/"),
        None => false,
    }
}

struct Reader<'a> {
    step: Step,
    environment: &'a Environment,
}

impl Reader<'_> {
    fn text(&self, name: &str) -> Result<&str, Failure> {
        match self.environment.get(&OsString::from(name)) {
            None => Err(self.step.failed(format!("the variable {name} is not set"))),
            Some(value) => value
                .to_str()
                .ok_or_else(|| self.wrong(name, "it is not UTF-8")),
        }
    }

    fn wrong(&self, name: &str, why: &str) -> Failure {
        self.step
            .failed(format!("the variable {name} cannot be used: {why}"))
    }

    fn checked(
        &self,
        name: &str,
        check: impl Fn(&str) -> Result<(), String>,
    ) -> Result<String, Failure> {
        let text = self.text(name)?;
        check(text).map_err(|why| self.wrong(name, &why))?;
        Ok(text.to_owned())
    }

    fn url(&self, name: &str) -> Result<Url, Failure> {
        let plain_http = self.truth("STEP_PLAIN_HTTP")?;
        Url::parse(self.text(name)?, plain_http)
            .map_err(|error| self.wrong(name, &error.to_string()))
    }

    fn networks(&self) -> Result<Networks, Failure> {
        const NAME: &str = "STEP_ALLOWED_NETWORKS";
        let list = self.text(NAME)?.split(',').filter(|text| !text.is_empty());
        Networks::parse(list).map_err(|error| self.wrong(NAME, &error.to_string()))
    }

    fn branch(&self, name: &str) -> Result<String, Failure> {
        self.checked(name, refs::check_branch)
    }

    /// Reads a commit message. An empty value selects the default.
    fn message(&self, name: &str) -> Result<String, Failure> {
        match self.text(name)? {
            "" => Ok(String::new()),
            _ => self.checked(name, refs::check_message),
        }
    }

    fn commit(&self, name: &str, text: &str) -> Result<Commit, Failure> {
        Commit::parse(text).map_err(|error| self.wrong(name, &error.to_string()))
    }

    fn path(&self, name: &str) -> Result<String, Failure> {
        match self.text(name)? {
            "" | "." | "./" => Ok(String::new()),
            text => {
                refs::check_path(text).map_err(|why| self.wrong(name, &why))?;
                Ok(text.trim_end_matches('/').to_owned())
            }
        }
    }

    fn truth(&self, name: &str) -> Result<bool, Failure> {
        match self.text(name)? {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(self.wrong(name, "it is neither 'true' nor 'false'")),
        }
    }

    fn number(&self, name: &str, least: u64, most: u64) -> Result<u64, Failure> {
        match self.text(name)?.parse::<u64>() {
            Ok(number) if (least..=most).contains(&number) => Ok(number),
            Ok(_) | Err(_) => {
                Err(self.wrong(name, &format!("it is no number from {least} to {most}")))
            }
        }
    }

    /// Reads an absolute path. It becomes part of ssh options, in which spaces and `%` have a meaning.
    fn folder(&self, name: &str) -> Result<PathBuf, Failure> {
        let text = self.text(name)?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
        if !text.starts_with('/') || !text.bytes().all(plain) {
            let why = "it is no absolute path of letters, digits, '.', '_' and '-'";
            return Err(self.wrong(name, why));
        }
        Ok(Path::new(text).to_owned())
    }
}

fn check_uid(text: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if text.is_empty() || text.len() > 64 || !text.bytes().all(plain) {
        return Err("it is no UID".to_owned());
    }
    Ok(())
}

fn check_name(text: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-./".contains(&byte);
    if text.is_empty() || text.len() > 320 || !text.bytes().all(plain) {
        return Err("it is no 'namespace/name'".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Vec<(&'static str, String)> {
        [
            ("STEP_URL", "https://git.example.org/a/b"),
            ("STEP_SOURCE_BRANCH", "main"),
            (
                "STEP_BASE_COMMIT",
                "0123456789012345678901234567890123456789",
            ),
            ("STEP_OUTPUT_BRANCH", "docs/a"),
            ("STEP_OUTPUT_HEAD", ""),
            ("STEP_WORKING_DIRECTORY", "."),
            ("STEP_INCLUDE_CODEBASE", "false"),
            ("STEP_OUTPUT_PATH", "docs/api/"),
            ("STEP_COMMIT_MESSAGE", ""),
            ("STEP_RUN_UID", "6a4a1f2c-0000-4000-8000-000000000000"),
            ("STEP_RUN_NAME", "team/docs"),
            ("STEP_COMMIT_TIME", "1700000000"),
            ("STEP_CREDENTIALS", ""),
            ("STEP_ALLOWED_NETWORKS", ""),
            ("STEP_PLAIN_HTTP", "false"),
            ("STEP_LIMIT_MIB", "100"),
            ("STEP_TIMEOUT_SECONDS", "60"),
            ("STEP_SOURCE", "/workspace/source"),
            ("STEP_SCRATCH", "/scratch"),
        ]
        .map(|(name, value)| (name, value.to_owned()))
        .to_vec()
    }

    fn read(changes: &[(&'static str, &str)]) -> Result<Settings, Failure> {
        let mut environment: Environment = good()
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        for (name, value) in changes {
            environment.insert(name.into(), value.into());
        }
        Settings::read(Step::Clone, &environment, Instant::now())
    }

    #[test]
    fn good_ones_are_read() {
        let settings = read(&[("STEP_ALLOWED_NETWORKS", "10.0.0.0/8,fd00::/8")]).unwrap();
        assert_eq!(settings.output_path, "docs/api");
        assert_eq!(settings.working_directory, "");
        assert_eq!(settings.parent(), &settings.base);
        assert!(
            settings
                .common
                .networks
                .permits("10.1.2.3".parse().unwrap())
                .is_ok()
        );
        assert!(
            settings
                .common
                .networks
                .permits("fd00::1".parse().unwrap())
                .is_ok()
        );
    }

    #[test]
    fn each_one_is_needed_and_named() {
        for (missing, _) in good() {
            let environment: Environment = good()
                .into_iter()
                .filter(|(name, _)| *name != missing)
                .map(|(name, value)| (name.into(), value.into()))
                .collect();
            let failure = Settings::read(Step::Publish, &environment, Instant::now()).unwrap_err();
            assert_eq!(failure.reason, Reason::PublishFailed);
            assert_eq!(
                failure.message,
                format!("the variable {missing} is not set")
            );
        }
    }

    #[test]
    fn wrong_ones_are_named() {
        for (name, value) in [
            ("STEP_URL", "--upload-pack=x"),
            ("STEP_URL", "http://git.example.org/a"),
            ("STEP_SOURCE_BRANCH", "-x"),
            ("STEP_OUTPUT_BRANCH", "a..b"),
            ("STEP_BASE_COMMIT", "main"),
            ("STEP_BASE_COMMIT", ""),
            ("STEP_OUTPUT_HEAD", "HEAD"),
            ("STEP_WORKING_DIRECTORY", "../x"),
            ("STEP_OUTPUT_PATH", "/etc"),
            ("STEP_OUTPUT_PATH", ".git/hooks"),
            ("STEP_INCLUDE_CODEBASE", "yes"),
            ("STEP_COMMIT_MESSAGE", "a\nOrchestrator-Run: b"),
            ("STEP_RUN_UID", "a b"),
            ("STEP_RUN_NAME", "a\nb"),
            ("STEP_COMMIT_TIME", "-1"),
            ("STEP_LIMIT_MIB", "0"),
            ("STEP_TIMEOUT_SECONDS", "86401"),
            ("STEP_SOURCE", "workspace"),
            ("STEP_SCRATCH", "/a b"),
            ("STEP_CREDENTIALS", "/%d"),
            ("STEP_ALLOWED_NETWORKS", "10.0.0.0"),
            ("STEP_PLAIN_HTTP", "1"),
        ] {
            let failure = read(&[(name, value)]).unwrap_err();
            assert_eq!(failure.reason, Reason::CloneFailed, "{name}={value}");
            assert!(failure.message.contains(name), "{}", failure.message);
        }
    }

    #[test]
    fn refused_names_have_their_own_reason() {
        for url in [
            "https://localhost/a",
            "https://git.team.svc/a",
            "https://127.0.0.1/a",
        ] {
            let failure = read(&[("STEP_URL", url)]).unwrap_err();
            assert_eq!(failure.reason, Reason::AddressNotAllowed, "{url}");
        }
    }

    #[test]
    fn below() {
        for (path, folder, wanted) in [
            ("docs/a", "docs", true),
            ("docs", "docs", true),
            ("docs2/a", "docs", false),
            ("a", "", true),
            ("a", "a/b", false),
        ] {
            assert_eq!(is_below(path.as_bytes(), folder), wanted, "{path} {folder}");
        }
    }
}
