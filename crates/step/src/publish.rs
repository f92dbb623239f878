//! `step publish`: pushes the agent's files as one commit to the output branch.

use std::collections::BTreeSet;

use git::{Commit, Files, Reason, Report};

use crate::{
    collect::{self, CollectError, LIMITS},
    command::{Git, SHORT},
    commit::{self, Draft},
    failure::{Failure, Step},
    names,
    plan::{self, Plan, Tree},
    progress::ProgressLog,
    push::{NotPushed, Push, Pushed, describe},
    repository::Place,
    settings::{Settings, is_below},
    stream,
};

/// Publishes, or detects that an earlier attempt has published.
pub(crate) fn run(
    settings: &Settings,
    git: &Git,
    progress: &mut ProgressLog<'_>,
) -> Result<Report, Failure> {
    git.init(Place::Bare, "publish", &settings.base)?;
    let branch = &settings.output_branch;
    progress.line(&format!("looking at branch '{branch}' of {}", git.url));
    let head = git.head(branch)?;
    if head != settings.output_head {
        return found(settings, git, head, Files::default());
    }
    let parent = settings.parent();
    progress.line(&format!("fetching commit {parent}"));
    git.fetch(
        &BTreeSet::from([parent.as_str(), settings.base.as_str()]),
        1,
    )?;

    let plan = changes(settings, git)?;
    let skipped = Files::new(plan.skipped.iter().map(|path| names::shown(path)));
    progress.line(&format!(
        "{} files below '/{}', {} to delete, {} skipped",
        plan.writes.len(),
        settings.output_path,
        plan.deletes.len(),
        skipped.count
    ));
    let commit = build(settings, git, plan)?;
    let changed = git.changed(parent, &commit)?;
    if changed.is_empty() {
        return Ok(Report::NoChanges { skipped });
    }
    let changed = Files::new(changed.iter().map(|path| names::shown(path)));
    progress.line(&format!(
        "pushing commit {commit} with {} changed files to '{branch}'",
        changed.count
    ));
    let push: Push<'_, Report> = Push {
        git,
        branch,
        head: settings.output_head.as_ref(),
        commit: &commit,
        find: &|head| found(settings, git, head, skipped.clone()),
    };
    match push.run() {
        Ok(Pushed::Now) => Ok(Report::Pushed {
            commit,
            changed,
            skipped,
        }),
        Ok(Pushed::Before(report)) => Ok(report),
        Err(NotPushed::Certain(failure)) => Err(failure),
        // The commit comes first, because long messages are cut at the end.
        Err(NotPushed::Unknown(seen)) => Err(settings
            .common
            .step
            .failed(format!("commit {commit} may have been pushed: {seen}"))),
    }
}

/// Determines the changes of the commit.
fn changes(settings: &Settings, git: &Git) -> Result<Plan, Failure> {
    let Settings {
        base, output_path, ..
    } = settings;
    let collected =
        collect::collect(&settings.source, output_path, &LIMITS).map_err(not_collected)?;
    let parent = git.tree(settings.parent(), output_path)?;
    let mut seen = if base == settings.parent() {
        parent.clone()
    } else {
        git.tree(base, output_path)?
    };
    keep_seen(
        &mut seen,
        settings.include_codebase,
        &settings.working_directory,
    );
    Ok(plan::plan(&parent, &seen, collected))
}

/// Keeps only the paths that the clone step gave to the agent.
fn keep_seen(base: &mut Tree, include_codebase: bool, working_directory: &str) {
    base.retain(|path, _| include_codebase || is_below(path, working_directory));
}

fn not_collected(error: CollectError) -> Failure {
    match error {
        CollectError::TooLarge(what) => Failure::new(
            Reason::OutputTooLarge,
            format!("the agent's output is too large: {what}"),
        ),
        CollectError::Unreadable { path, error } => Step::Publish.failed(format!(
            "cannot read the agent's '{path}': {error}; the agent must leave it readable for its group"
        )),
    }
}

/// Creates the commit.
fn build(settings: &Settings, git: &Git, plan: Plan) -> Result<Commit, Failure> {
    let draft = Draft {
        author: stream::AUTHOR.to_owned(),
        parent: settings.parent().clone(),
        seconds: settings.common.commit_time,
        message: commit::message(
            &settings.commit_message,
            &settings.common.run_name,
            &settings.common.run_uid,
        ),
        plan,
    };
    commit::create(git, draft)
}

/// Handles a branch that is not at the expected commit. Either our own push moved it and its response was
/// lost, or somebody else moved it.
fn found(
    settings: &Settings,
    git: &Git,
    head: Option<Commit>,
    skipped: Files,
) -> Result<Report, Failure> {
    let Some(commit) = head else {
        return Err(moved(settings, None));
    };
    git.fetch(&BTreeSet::from([commit.as_str()]), 2)?;
    let object = git.local(&["cat-file", "commit", commit.as_str()], None, SHORT)?;
    let parent = settings.parent();
    if !commit::Object::parse(&object).is_of(&settings.common.run_uid, parent.as_str()) {
        return Err(moved(settings, Some(&commit)));
    }
    let changed = git.changed(parent, &commit)?;
    Ok(Report::Found {
        changed: Files::new(changed.iter().map(|path| names::shown(path))),
        commit,
        skipped,
    })
}

fn moved(settings: &Settings, head: Option<&Commit>) -> Failure {
    Failure::new(
        Reason::BranchMoved,
        format!(
            "branch '{}' was expected to be {} and is {}: somebody else changed it; run again",
            settings.output_branch,
            describe(settings.output_head.as_ref()),
            describe(head),
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Kind;

    #[test]
    fn agent_saw_its_directory_or_everything() {
        for (include_codebase, directory, wanted) in [
            (true, "src", vec!["docs/a", "docs/api/b"]),
            (false, "", vec!["docs/a", "docs/api/b"]),
            (false, "docs", vec!["docs/a", "docs/api/b"]),
            (false, "docs/api", vec!["docs/api/b"]),
            (false, "src", vec![]),
            (false, "doc", vec![]),
        ] {
            let mut tree: Tree = ["docs/a", "docs/api/b"]
                .map(|path| (path.as_bytes().to_vec(), Kind::File))
                .into();
            keep_seen(&mut tree, include_codebase, directory);
            let paths: Vec<String> = tree.keys().map(|path| names::shown(path)).collect();
            assert_eq!(paths, wanted, "{include_codebase} {directory}");
        }
    }
}
