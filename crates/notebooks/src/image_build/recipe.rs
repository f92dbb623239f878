//! The Dockerfile of a build without a Dockerfile.

use serde_json::json;

use super::BuildSpec;

const FILE: &str = "requirements.txt";
/// Path of the file with requirements in the image, while it is built.
const INSTALLED: &str = "/tmp/requirements.txt";

/// Returns the files with requirements to try, in order: that of the spec alone, else that beside the notebook, then that
/// at the root of the repository.
#[must_use]
pub fn requirements_files(spec: &BuildSpec, notebook: &str) -> Vec<String> {
    if let Some(file) = &spec.requirements_file {
        return vec![file.clone()];
    }
    let beside = notebook
        .rsplit_once('/')
        .map(|(directory, _)| [directory, FILE].join("/"));
    beside.into_iter().chain([FILE.to_owned()]).collect()
}

/// Returns the Dockerfile that installs requirements. Both texts are checked by [`BuildSpec::check`]: a Dockerfile has
/// no quotes for them.
#[must_use]
pub fn dockerfile(base_image: &str, requirements: &str) -> String {
    let copy = json!([requirements, INSTALLED]);
    let install = json!([
        "python3",
        "-m",
        "pip",
        "install",
        "--no-cache-dir",
        "-r",
        INSTALLED
    ]);
    format!("FROM {base_image}\nCOPY {copy}\nRUN {install}\n")
}

/// Returns whether a Dockerfile reads this path as it is: without variables and patterns.
pub(super) fn is_plain_path(path: &str) -> bool {
    !path.contains(['$', '*', '?', '[', '\\'])
}
