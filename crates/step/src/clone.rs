//! `step clone`: writes the files of the base commit for the agent.

use std::{collections::BTreeSet, fs, io, path::Path};

use git::{Reason, Report};
use rustix::{
    fs::{CWD, Mode, OFlags, mkdirat, openat},
    io::Errno,
};

use crate::{
    command::{Git, SHORT},
    failure::{Failure, Step},
    progress::ProgressLog,
    repository::Place,
    settings::Settings,
};

/// Fetches the commit and writes its files.
pub(crate) fn run(
    settings: &Settings,
    git: &Git,
    progress: &mut ProgressLog<'_>,
) -> Result<Report, Failure> {
    let Settings {
        base,
        source,
        output_path,
        working_directory,
        ..
    } = settings;
    let place = place(settings);
    git.init(place, &settings.source_branch, base)?;
    progress.line(&format!("fetching commit {base} from {}", git.url));
    git.fetch(&BTreeSet::from([base.as_str()]), 1)?;
    check_paths(settings, git)?;
    let shown = match (settings.include_codebase, working_directory.as_str()) {
        (true, _) | (false, "") => "",
        (false, path) => path,
    };
    git.check_size(base, shown)?;
    progress.line(&match shown {
        "" => "writing all files for the agent".to_owned(),
        path => format!("writing the files below '{path}' for the agent"),
    });
    match place {
        Place::With(_) => {
            let branch = format!("refs/heads/{}", settings.source_branch);
            git.local(&["update-ref", &branch, base.as_str()], None, SHORT)?;
            git.checkout(source, &["reset", "--quiet", "--hard"])?;
        }
        Place::Bare => {
            let path = if shown.is_empty() { "." } else { shown };
            let arguments = ["checkout", "--quiet", "--force", base.as_str(), "--", path];
            git.checkout(source, &arguments)?;
        }
    }
    make_folder(source, output_path).map_err(|errno| {
        let path = source.join(output_path);
        settings.common.step.failed(format!(
            "cannot make the folder '{}': {errno}",
            path.display()
        ))
    })?;
    Ok(Report::Cloned {
        commit: base.clone(),
    })
}

/// Returns the location of the repository. With the code base, the agent gets the repository, too.
pub(crate) fn place(settings: &Settings) -> Place<'_> {
    if settings.include_codebase {
        Place::With(&settings.source)
    } else {
        Place::Bare
    }
}

/// Checks that the directory for the agent, or for the kernel, is new or empty. Files of an earlier attempt may come from
/// the agent.
///
/// # Errors
/// When the directory is not empty, or cannot be created or read.
pub(crate) fn check_empty(source: &Path, step: Step) -> Result<(), Failure> {
    let path = source.display();
    let failed = |what: String| step.failed(what);
    match fs::create_dir(source) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(format!("cannot make the folder '{path}': {error}"))),
    }
    let mut entries = fs::read_dir(source)
        .map_err(|error| failed(format!("cannot read the folder '{path}': {error}")))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(failed(format!(
            "the folder '{path}' is not empty: an earlier try left files there"
        ))),
    }
}

fn check_paths(settings: &Settings, git: &Git) -> Result<(), Failure> {
    let base = &settings.base;
    if !git.is_folder(base, &settings.working_directory)? {
        return Err(Failure::new(
            Reason::PathNotFound,
            format!(
                "commit {base} of branch '{}' has no folder '{}'; correct workingDirectory",
                settings.source_branch, settings.working_directory
            ),
        ));
    }
    if let Some((path, _)) = git.blocking(base, &settings.output_path)? {
        return Err(Failure::new(
            Reason::PathNotFound,
            format!(
                "output.path '{}' cannot be used: '{}' is no folder in commit {base}",
                settings.output_path,
                String::from_utf8_lossy(&path)
            ),
        ));
    }
    Ok(())
}

/// Creates a directory and its parents, without following symbolic links.
fn make_folder(source: &Path, path: &str) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut folder = openat(CWD, source, flags, Mode::empty())?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        match mkdirat(&folder, name, Mode::from_raw_mode(0o775)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        folder = openat(&folder, name, flags, Mode::empty())?;
    }
    Ok(())
}
