//! The settings of `step fetch`.

use std::{path::PathBuf, time::Instant};

use git::{Commit, refs};

use super::{Common, Environment, Reader};
use crate::failure::{Failure, Step};

/// The settings of `step fetch`.
#[derive(Debug)]
pub(crate) struct FetchSettings {
    /// Those of the notebook's repository.
    pub(crate) common: Common,
    pub(crate) commit: Commit,
    /// Path of the notebook in its repository.
    pub(crate) notebook: String,
    pub(crate) golden: Option<Golden>,
    /// The directory for the files of the commit, which the kernel may change.
    pub(crate) source: PathBuf,
    /// The directory for the notebooks that the runner reads.
    pub(crate) inputs: PathBuf,
    /// The path for a copy of this program.
    pub(crate) program: PathBuf,
}

/// The golden notebook.
#[derive(Debug)]
pub(crate) struct Golden {
    pub(crate) commit: Commit,
    /// Path in its repository.
    pub(crate) path: String,
    /// The settings of its own repository. Without them, it is in the notebook's repository, at the same commit.
    pub(crate) server: Option<Common>,
}

impl FetchSettings {
    /// Reads and checks all variables. `start` is the time at which the step started.
    ///
    /// # Errors
    /// Names the first variable that is missing or invalid.
    pub(crate) fn read(
        environment: &Environment,
        start: Instant,
    ) -> Result<FetchSettings, Failure> {
        let read = Reader {
            step: Step::Fetch,
            environment,
        };
        let commit = read.commit("STEP_COMMIT", read.text("STEP_COMMIT")?)?;
        Ok(FetchSettings {
            common: Common::read(&read, start)?,
            notebook: read.checked("STEP_NOTEBOOK", refs::check_path)?,
            golden: golden(&read, start, &commit)?,
            commit,
            source: read.folder("STEP_SOURCE")?,
            inputs: read.folder("STEP_INPUTS")?,
            program: read.folder("STEP_PROGRAM")?,
        })
    }
}

/// Reads the variables of the golden notebook. Without one, all of them are empty.
fn golden(read: &Reader<'_>, start: Instant, notebook: &Commit) -> Result<Option<Golden>, Failure> {
    const COMMIT: &str = "STEP_GOLDEN_COMMIT";
    const PATH: &str = "STEP_GOLDEN_NOTEBOOK";
    const URL: &str = "STEP_GOLDEN_URL";
    const CREDENTIALS: &str = "STEP_GOLDEN_CREDENTIALS";
    let (text, path) = (read.text(COMMIT)?, read.text(PATH)?);
    let (url, credentials) = (read.text(URL)?, read.text(CREDENTIALS)?);
    if path.is_empty() {
        let rest = [(COMMIT, text), (URL, url), (CREDENTIALS, credentials)];
        return match rest.iter().find(|(_, value)| !value.is_empty()) {
            Some((name, _)) => Err(read.wrong(name, &format!("{PATH} is empty"))),
            None => Ok(None),
        };
    }
    let commit = read.commit(COMMIT, text)?;
    let server = match url {
        "" => None,
        _ => Some(Common::of_server(read, start, URL, CREDENTIALS)?),
    };
    // F3: the golden notebook of another commit has other outputs.
    if server.is_none() && commit != *notebook {
        let why = format!("without {URL}, it must be the commit of the notebook");
        return Err(read.wrong(COMMIT, &why));
    }
    Ok(Some(Golden {
        commit,
        path: read.checked(PATH, refs::check_path)?,
        server,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTEBOOK: &str = "0123456789012345678901234567890123456789";
    const OTHER: &str = "1123456789012345678901234567890123456789";

    fn good() -> Vec<(&'static str, &'static str)> {
        vec![
            ("STEP_URL", "https://git.example.org/a/b"),
            ("STEP_COMMIT", NOTEBOOK),
            ("STEP_NOTEBOOK", "reports/a.ipynb"),
            ("STEP_GOLDEN_COMMIT", ""),
            ("STEP_GOLDEN_NOTEBOOK", ""),
            ("STEP_GOLDEN_URL", ""),
            ("STEP_GOLDEN_CREDENTIALS", ""),
            ("STEP_RUN_UID", "6a4a1f2c-0000-4000-8000-000000000000"),
            ("STEP_RUN_NAME", "team/notebook"),
            ("STEP_COMMIT_TIME", "1700000000"),
            ("STEP_CREDENTIALS", ""),
            ("STEP_ALLOWED_NETWORKS", ""),
            ("STEP_PLAIN_HTTP", "false"),
            ("STEP_LIMIT_MIB", "100"),
            ("STEP_TIMEOUT_SECONDS", "60"),
            ("STEP_SOURCE", "/workspace/source"),
            ("STEP_INPUTS", "/inputs"),
            ("STEP_PROGRAM", "/orchestrator/step"),
            ("STEP_SCRATCH", "/scratch"),
        ]
    }

    fn read(changes: &[(&str, &str)]) -> Result<FetchSettings, Failure> {
        let all = good();
        let environment: Environment = all
            .iter()
            .chain(changes)
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect();
        FetchSettings::read(&environment, Instant::now())
    }

    #[test]
    fn the_golden_notebook_is_optional_and_may_have_its_own_repository() {
        assert!(read(&[]).unwrap().golden.is_none());
        let same = [
            ("STEP_GOLDEN_NOTEBOOK", "golden.ipynb"),
            ("STEP_GOLDEN_COMMIT", NOTEBOOK),
        ];
        let golden = read(&same).unwrap().golden.unwrap();
        assert!(golden.server.is_none());
        assert_eq!(golden.path, "golden.ipynb");
        let own = [
            ("STEP_GOLDEN_NOTEBOOK", "golden.ipynb"),
            ("STEP_GOLDEN_COMMIT", OTHER),
            ("STEP_GOLDEN_URL", "https://git.example.org/golden"),
            ("STEP_GOLDEN_CREDENTIALS", "/golden-credentials"),
        ];
        let golden = read(&own).unwrap().golden.unwrap();
        let server = golden.server.unwrap();
        assert_eq!(golden.commit.as_str(), OTHER);
        assert_eq!(
            server.credentials,
            Some(PathBuf::from("/golden-credentials"))
        );
        assert_eq!(server.url.to_string(), "https://git.example.org/golden");
    }

    #[test]
    fn each_variable_is_required_and_named() {
        for (missing, _) in good() {
            let environment: Environment = good()
                .into_iter()
                .filter(|(name, _)| *name != missing)
                .map(|(name, value)| (name.into(), value.into()))
                .collect();
            let failure = FetchSettings::read(&environment, Instant::now()).unwrap_err();
            assert_eq!(
                failure.message,
                format!("the variable {missing} is not set")
            );
        }
    }

    /// F3: a golden notebook of the same repository has the commit of the notebook.
    #[test]
    fn f03_invalid_variables_are_named() {
        const PATH: (&str, &str) = ("STEP_GOLDEN_NOTEBOOK", "golden.ipynb");
        let own = "https://git.example.org/golden";
        let cases: [(&[(&str, &str)], &str); 11] = [
            (&[("STEP_COMMIT", "main")], "STEP_COMMIT"),
            (&[("STEP_NOTEBOOK", "")], "STEP_NOTEBOOK"),
            (&[("STEP_NOTEBOOK", "../a.ipynb")], "STEP_NOTEBOOK"),
            (&[("STEP_NOTEBOOK", "-a.ipynb")], "STEP_NOTEBOOK"),
            (&[("STEP_INPUTS", "inputs")], "STEP_INPUTS"),
            (&[("STEP_PROGRAM", "/a b")], "STEP_PROGRAM"),
            (&[("STEP_GOLDEN_COMMIT", NOTEBOOK)], "STEP_GOLDEN_COMMIT"),
            (&[("STEP_GOLDEN_URL", own)], "STEP_GOLDEN_URL"),
            (&[PATH], "STEP_GOLDEN_COMMIT"),
            (&[PATH, ("STEP_GOLDEN_COMMIT", OTHER)], "STEP_GOLDEN_COMMIT"),
            (
                &[
                    PATH,
                    ("STEP_GOLDEN_COMMIT", OTHER),
                    ("STEP_GOLDEN_URL", "--upload-pack=x"),
                ],
                "STEP_GOLDEN_URL",
            ),
        ];
        for (changes, name) in cases {
            let failure = read(changes).unwrap_err();
            assert!(failure.message.contains(name), "{}", failure.message);
        }
    }
}
