//! Finds the kernel in the user's image: `kernel.json` in Jupyter's directories, else Python's own kernel.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fmt,
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    child::{self, Bounds},
    settings::Environment,
};

/// The kernel that an empty name means.
pub(super) const DEFAULT: &str = "python3";
/// Names of kernels that Python itself can be, if it has the package `ipykernel`.
const PYTHON: [&str; 2] = ["python3", "python"];
const FILE: &str = "kernel.json";
/// Maximum size of a `kernel.json`.
const FILE_BYTES: u64 = 1 << 20;
/// Time limit for the question whether Python has a kernel. A throttled CPU needs seconds to start Python.
const PYTHON_LIMIT: Duration = Duration::from_secs(60);
/// Maximum size of its output, which is not read.
const OUTPUT_BYTES: usize = 1 << 16;
/// Maximum number of kernels that a message names.
const NAMED: usize = 20;

/// The directories of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Search {
    /// Jupyter's directories with kernels.
    kernels: Vec<PathBuf>,
    /// The directories of `PATH`.
    programs: Vec<PathBuf>,
}

/// The command of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KernelSpec {
    /// The program, then its arguments.
    argv: Vec<String>,
    /// Variables of the kernel, in addition to those of the container.
    pub(super) environment: BTreeMap<String, String>,
    /// The directory of its `kernel.json`.
    resources: PathBuf,
}

/// The reason why there is no kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FindError {
    NotFound {
        searched: Vec<String>,
        found: Vec<String>,
    },
    /// A `kernel.json` that cannot be used.
    Invalid(String),
}

impl fmt::Display for FindError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { searched, found } => write!(
                formatter,
                "not found; searched {}; found {}",
                searched.join(", "),
                found.join(", ")
            ),
            Self::Invalid(message) => formatter.write_str(message),
        }
    }
}

impl KernelSpec {
    /// Returns the program.
    pub(super) fn program(&self) -> &str {
        self.argv.first().map_or("", String::as_str)
    }

    /// Returns the arguments with their placeholders replaced.
    pub(super) fn arguments(&self, connection: &Path) -> Vec<String> {
        let connection = connection.to_string_lossy();
        let resources = self.resources.to_string_lossy();
        // `PREFIX/share/jupyter/kernels/NAME`
        let prefix = self.resources.ancestors().nth(4).unwrap_or(Path::new("/"));
        let prefix = prefix.to_string_lossy();
        let replaced = self.argv.iter().skip(1).map(|argument| {
            argument
                .replace("{connection_file}", &connection)
                .replace("{resource_dir}", &resources)
                .replace("{prefix}", &prefix)
        });
        replaced.collect()
    }
}

impl Search {
    /// Returns the directories in which Jupyter searches, in the same order. An image keeps its kernels beside its
    /// programs, so each directory of `PATH` has one of them.
    pub(super) fn new(environment: &Environment) -> Search {
        let list = |name: &str| {
            let paths = environment.get(&OsString::from(name));
            paths.map_or_else(Vec::new, |paths| std::env::split_paths(paths).collect())
        };
        let programs: Vec<PathBuf> = list("PATH");
        let mut data: Vec<PathBuf> = list("JUPYTER_PATH");
        match environment.get(&OsString::from("JUPYTER_DATA_DIR")) {
            Some(own) => data.push(PathBuf::from(own)),
            None => data.extend(
                list("HOME")
                    .into_iter()
                    .map(|home| home.join(".local/share/jupyter")),
            ),
        }
        let beside = programs.iter().filter_map(|folder| {
            let prefix = folder.parent().filter(|_| folder.ends_with("bin"))?;
            Some(prefix.join("share/jupyter"))
        });
        data.extend(beside);
        data.extend(["/usr/local/share/jupyter", "/usr/share/jupyter"].map(PathBuf::from));
        let mut seen = BTreeSet::new();
        let kernels = data
            .into_iter()
            .filter(|folder| folder.is_absolute() && seen.insert(folder.clone()))
            .map(|folder| folder.join("kernels"));
        Search {
            kernels: kernels.collect(),
            programs,
        }
    }

    /// Returns the directories of all kernels by name. The first directory of a name counts.
    fn installed(&self) -> BTreeMap<String, PathBuf> {
        let mut found = BTreeMap::new();
        for folder in &self.kernels {
            // A directory that does not exist, or that this user cannot read, has no kernels for it.
            let Ok(entries) = fs::read_dir(folder) else {
                continue;
            };
            let paths = entries.filter_map(|entry| match entry {
                Ok(entry) => Some(entry.path()),
                Err(_) => None,
            });
            for path in paths.filter(|path| path.join(FILE).is_file()) {
                if let Some(name) = path.file_name() {
                    let name = name.to_string_lossy().to_ascii_lowercase();
                    found.entry(name).or_insert(path);
                }
            }
        }
        found
    }

    /// Returns the path of the first program of one of these names.
    fn program(&self, names: &[&str]) -> Option<PathBuf> {
        let is_program = |path: &PathBuf| match fs::metadata(path) {
            Ok(metadata) => metadata.is_file() && metadata.permissions().mode() & 0o111 != 0,
            Err(_) => false,
        };
        let mut paths = names
            .iter()
            .flat_map(|name| self.programs.iter().map(move |folder| folder.join(name)));
        paths.find(is_program)
    }
}

/// Finds the kernel of this name.
///
/// # Errors
/// With the directories and the kernels in them, if there is no such kernel.
pub(super) fn find(name: &str, search: &Search) -> Result<KernelSpec, FindError> {
    let name = name.to_ascii_lowercase();
    let installed = search.installed();
    if let Some(folder) = installed.get(&name) {
        let value = read(&folder.join(FILE)).map_err(|error| {
            FindError::Invalid(format!("cannot read '{}': {error}", folder.display()))
        })?;
        let spec = parse(&value, folder).ok_or_else(|| {
            let message = format!("'{}' has no command of a kernel", folder.display());
            FindError::Invalid(message)
        })?;
        return Ok(with_program(spec, search));
    }
    let python = search.program(&PYTHON);
    let python = python.filter(|path| PYTHON.contains(&&*name) && has_kernel(path));
    python
        .map(|path| of_python(&path))
        .ok_or_else(|| FindError::NotFound {
            searched: shown(
                search
                    .kernels
                    .iter()
                    .map(|folder| folder.display().to_string()),
            ),
            found: shown(installed.into_keys()),
        })
}

fn shown(names: impl Iterator<Item = String>) -> Vec<String> {
    names.take(NAMED).collect()
}

fn read(path: &Path) -> io::Result<Value> {
    let mut text = String::new();
    File::open(path)?
        .take(FILE_BYTES)
        .read_to_string(&mut text)?;
    serde_json::from_str(&text).map_err(io::Error::other)
}

/// Reads the parts of a `kernel.json` that start a kernel.
fn parse(value: &Value, folder: &Path) -> Option<KernelSpec> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let argv: Option<Vec<String>> = value.get("argv")?.as_array()?.iter().map(text).collect();
    let argv = argv.filter(|argv| argv.first().is_some_and(|program| !program.is_empty()))?;
    let environment = match value.get("env").and_then(Value::as_object) {
        None => BTreeMap::new(),
        Some(all) => {
            let pairs = all
                .iter()
                .map(|(name, value)| Some((name.clone(), text(value)?)));
            pairs.collect::<Option<_>>()?
        }
    };
    Some(KernelSpec {
        argv,
        environment,
        resources: folder.to_owned(),
    })
}

/// Replaces a plain `python` that the image has under another name. Jupyter replaces it with its own Python.
fn with_program(mut spec: KernelSpec, search: &Search) -> KernelSpec {
    let program = spec.program().to_owned();
    if PYTHON.contains(&&*program)
        && search.program(&[program.as_str()]).is_none()
        && let Some(path) = search.program(&PYTHON)
        && let Some(first) = spec.argv.first_mut()
    {
        *first = path.to_string_lossy().into_owned();
    }
    spec
}

fn of_python(path: &Path) -> KernelSpec {
    let program = path.to_string_lossy();
    let argv = [
        &*program,
        "-m",
        "ipykernel_launcher",
        "-f",
        "{connection_file}",
    ];
    KernelSpec {
        argv: argv.map(str::to_owned).into(),
        environment: BTreeMap::new(),
        resources: PathBuf::from("/"),
    }
}

/// Returns whether this Python has a kernel.
fn has_kernel(python: &Path) -> bool {
    const QUESTION: &str = "import importlib.util, sys; sys.exit(importlib.util.find_spec('ipykernel_launcher') is None)";
    let mut command = Command::new(python);
    command.args(["-c", QUESTION]);
    let bounds = Bounds {
        deadline: Instant::now() + PYTHON_LIMIT,
        folders: Vec::new(),
        disk_bytes: 0,
    };
    match child::run(&mut command, None, OUTPUT_BYTES, &bounds) {
        Ok(ended) => ended.status.success(),
        // A Python that cannot answer cannot be a kernel.
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    /// An image with these kernels, and these programs that do nothing.
    fn image(kernels: &[(&str, &Value)], programs: &[&str]) -> (TempDir, Search) {
        let folder = tempfile::tempdir().unwrap();
        for (name, spec) in kernels {
            let path = folder.path().join("share/jupyter/kernels").join(name);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join(FILE), spec.to_string()).unwrap();
        }
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        for name in programs {
            // A script that this test writes could still be open for writing in the child of another test.
            symlink("/bin/true", bin.join(name)).unwrap();
        }
        let search = Search {
            kernels: vec![folder.path().join("share/jupyter/kernels")],
            programs: vec![bin],
        };
        (folder, search)
    }

    fn search(variables: &[(&str, &str)]) -> Vec<String> {
        let environment: Environment = variables
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)))
            .collect();
        let found = Search::new(&environment).kernels;
        found
            .iter()
            .map(|folder| folder.display().to_string())
            .collect()
    }

    #[test]
    fn kernels_are_searched_where_jupyter_searches() {
        let common = [
            "/usr/local/share/jupyter/kernels",
            "/usr/share/jupyter/kernels",
        ];
        assert_eq!(search(&[]), common);
        let conda = search(&[
            ("PATH", "/opt/conda/bin:/usr/bin:relative/bin:/opt/tools"),
            ("HOME", "/home/agent"),
        ]);
        let expected = [
            "/home/agent/.local/share/jupyter/kernels",
            "/opt/conda/share/jupyter/kernels",
            "/usr/share/jupyter/kernels",
            "/usr/local/share/jupyter/kernels",
        ];
        assert_eq!(conda, expected);
        let own = search(&[("JUPYTER_PATH", "/a:/b"), ("JUPYTER_DATA_DIR", "/c")]);
        assert_eq!(own[..3], ["/a/kernels", "/b/kernels", "/c/kernels"]);
    }

    #[test]
    fn a_kernel_has_its_command_and_its_variables() {
        let spec = json!({
            "argv": ["/opt/r", "--file={connection_file}", "{resource_dir}/x", "{prefix}"],
            "env": { "A": "b" }, "display_name": "R",
        });
        let (folder, search) = image(&[("IR", &spec)], &[]);
        let found = find("ir", &search).unwrap();
        assert_eq!(found.program(), "/opt/r");
        assert_eq!(found.environment["A"], "b");
        let resources = folder.path().join("share/jupyter/kernels/IR");
        let expected = [
            "--file=/c.json".to_owned(),
            format!("{}/x", resources.display()),
            folder.path().display().to_string(),
        ];
        assert_eq!(found.arguments(Path::new("/c.json")), expected);
    }

    #[test]
    fn a_plain_python_is_found_under_its_other_name() {
        let spec = json!({ "argv": ["python", "-m", "x"] });
        let (folder, search) = image(&[("python3", &spec)], &["python3"]);
        let found = find(DEFAULT, &search).unwrap();
        // The image has no program 'python'.
        let python = folder.path().join("bin/python3").display().to_string();
        assert_eq!(found.program(), python);
        assert_eq!(found.arguments(Path::new("/c")), ["-m", "x"]);
    }

    #[test]
    fn python_is_a_kernel_without_a_file() {
        let (folder, search) = image(&[], &["python3"]);
        let found = find("python3", &search).unwrap();
        let python = folder.path().join("bin/python3").display().to_string();
        assert_eq!(found.program(), python);
        assert_eq!(
            found.arguments(Path::new("/c")),
            ["-m", "ipykernel_launcher", "-f", "/c"]
        );
        let python = folder.path().join("bin/python3");
        fs::remove_file(&python).unwrap();
        symlink("/bin/false", python).unwrap();
        assert!(matches!(
            find("python3", &search),
            Err(FindError::NotFound { .. })
        ));
    }

    #[test]
    fn a_missing_kernel_names_those_that_exist() {
        let spec = json!({ "argv": ["x"] });
        let (_folder, search) = image(&[("ir", &spec), ("julia", &spec)], &["python3"]);
        for name in ["rust", "../kernels/ir", "ir/", ".", "/etc"] {
            let Err(FindError::NotFound { searched, found }) = find(name, &search) else {
                panic!("{name}")
            };
            assert_eq!(found, ["ir", "julia"]);
            assert_eq!(searched.len(), 1);
        }
    }

    #[test]
    fn a_file_without_a_command_is_named() {
        for spec in [
            json!({}),
            json!({ "argv": [] }),
            json!({ "argv": [""] }),
            json!({ "argv": ["x", 1] }),
            json!({ "argv": "x" }),
            json!({ "argv": ["x"], "env": { "A": 1 } }),
        ] {
            let (_folder, search) = image(&[("ir", &spec)], &[]);
            let found = find("ir", &search);
            assert!(matches!(found, Err(FindError::Invalid(_))), "{spec}");
        }
    }
}
