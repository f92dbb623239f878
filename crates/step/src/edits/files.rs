//! Finds the files of the edits in a commit, and edits them in memory.

use std::collections::BTreeMap;

use git::{
    Commit, Reason,
    edits::{Change, DocumentRef, Edit, EditError, EditReason, PlannedEdit, Request, new_value},
    refs,
};
use yaml_edit::{Document, FieldPath, MAX_FILE_BYTES, Rejection};

use super::Stop;
use crate::{command::Git, failure::Failure, names, repository::Blob};

/// Maximum number of YAML files that are searched for a document.
const SEARCHED_FILES: usize = 5000;
/// Maximum total size of these files, in bytes.
const SEARCHED_BYTES: u64 = 32 << 20;

/// Marker of Flux's image automation, in a comment behind a value.
const AUTOMATION_MARKER: &str = "\"$imagepolicy\"";

/// The edited files, by path, and the edits by file and line.
#[derive(Debug)]
pub(super) struct Edited {
    pub(super) files: BTreeMap<String, EditedFile>,
    pub(super) edits: Vec<PlannedLine>,
}

#[derive(Debug)]
pub(super) struct EditedFile {
    pub(super) is_executable: bool,
    pub(super) before: Vec<u8>,
    pub(super) after: Vec<u8>,
}

/// An edit with its line before and afterwards.
#[derive(Debug, Clone)]
pub(super) struct PlannedLine {
    pub(super) planned: PlannedEdit,
    pub(super) is_in_flow: bool,
    pub(super) before: String,
    pub(super) after: String,
}

/// Edits the files of a commit.
///
/// # Errors
/// When a file or field is missing or cannot be edited, or a value is not the expected one.
pub(super) fn edit(git: &Git, commit: &Commit, request: &Request) -> Result<Edited, Stop> {
    let mut files: BTreeMap<String, EditedFile> = BTreeMap::new();
    let mut edits: Vec<PlannedLine> = Vec::new();
    for edit in &request.edits {
        let path = match &edit.file {
            Some(path) => path.clone(),
            None => search(git, commit, &request.directory, &edit.document)?,
        };
        let file = match files.remove(&path) {
            Some(file) => file,
            None => load(git, commit, &path)?,
        };
        let (file, planned) = apply(edit, &path, file)?;
        files.insert(path, file);
        edits.extend(planned);
    }
    if edits.is_empty() {
        let message = "all values are already the new ones";
        return Err(EditError::new(EditReason::NothingToChange, message).into());
    }
    files.retain(|_, file| file.before != file.after);
    edits.sort_by_cached_key(|edit| (edit.planned.file.clone(), edit.planned.line));
    Ok(Edited { files, edits })
}

/// Returns whether all files of a commit have the new values of a request in mode Commit.
///
/// # Errors
/// When git fails.
pub(super) fn has_new_values(
    git: &Git,
    commit: &Commit,
    request: &Request,
) -> Result<bool, Failure> {
    for edit in &request.edits {
        let (Some(path), Change::Exact { to, .. }) = (&edit.file, &edit.change) else {
            return Ok(false);
        };
        let file = match load(git, commit, path) {
            Ok(file) => file,
            Err(Stop::Git(failure)) => return Err(failure),
            Err(Stop::Edit(_) | Stop::Uncertain { .. }) => return Ok(false),
        };
        let value = FieldPath::parse(&edit.field_path)
            .map(|field| yaml_edit::read(&file.after, &document(&edit.document), &field));
        if !matches!(value, Ok(Ok(scalar)) if scalar.value == *to) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Applies an edit to a file. Returns no edit if the field already has its new value.
fn apply(
    edit: &Edit,
    path: &str,
    mut file: EditedFile,
) -> Result<(EditedFile, Option<PlannedLine>), EditError> {
    let field = FieldPath::parse(&edit.field_path)
        .map_err(|error| EditError::new(EditReason::FieldNotFound, error.to_string()))?;
    let document = document(&edit.document);
    let rejected = |rejection: Rejection| rejection_of(&rejection, path);
    let scalar = yaml_edit::read(&file.after, &document, &field).map_err(rejected)?;
    if is_encrypted(&file.after, &document) || scalar.value.starts_with("ENC[") {
        return Err(EditError::new(
            EditReason::FileEncrypted,
            format!("the file '{path}' is encrypted with SOPS"),
        ));
    }
    let value = new_value(&edit.change, field.last_key(), &scalar.value).map_err(|error| {
        let message = format!("field '{field}' in '{path}': {}", error.message);
        EditError::new(error.reason, message)
    })?;
    let Some(to) = value else {
        return Ok((file, None));
    };
    let edited =
        yaml_edit::replace(&file.after, &document, &field, &scalar.value, &to).map_err(rejected)?;
    file.after = edited.bytes;
    let line = PlannedLine {
        planned: PlannedEdit {
            file: path.to_owned(),
            document: edit.document.clone(),
            field_path: edit.field_path.clone(),
            from: scalar.value,
            to,
            line: u32::try_from(scalar.line).unwrap_or(u32::MAX),
            has_automation_marker: scalar.text.contains(AUTOMATION_MARKER),
        },
        is_in_flow: scalar.is_in_flow,
        before: edited.before.text,
        after: edited.after.text,
    };
    Ok((file, Some(line)))
}

/// Returns whether SOPS encrypted a document: it stores a code for the whole document there.
fn is_encrypted(source: &[u8], document: &Document) -> bool {
    ["sops.mac", "sops.lastmodified", "sops.version"]
        .into_iter()
        .any(|field| match FieldPath::parse(field) {
            Ok(field) => yaml_edit::read(source, document, &field).is_ok(),
            Err(_) => false,
        })
}

fn document(wanted: &DocumentRef) -> Document {
    Document {
        api_version: wanted.api_version.clone(),
        kind: wanted.kind.clone(),
        name: wanted.name.clone(),
        namespace: wanted.namespace.clone(),
    }
}

/// Converts a rejected edit.
fn rejection_of(rejection: &Rejection, path: &str) -> EditError {
    let reason = match rejection {
        Rejection::DocumentNotFound => EditReason::FileNotFound,
        Rejection::SeveralDocuments { .. } => EditReason::FileAmbiguous,
        Rejection::FieldNotFound { .. } | Rejection::Empty { .. } => EditReason::FieldNotFound,
        Rejection::ValueChanged { .. } => EditReason::VersionChangedInGit,
        Rejection::SameValue => EditReason::NothingToChange,
        Rejection::SeveralItems { .. }
        | Rejection::NotAScalar { .. }
        | Rejection::Anchor { .. }
        | Rejection::Alias { .. }
        | Rejection::MergeKey { .. }
        | Rejection::Tag { .. }
        | Rejection::DuplicateKey { .. }
        | Rejection::ComplexKey { .. }
        | Rejection::MultiLine { .. }
        | Rejection::NewValue(_)
        | Rejection::Unproven(_) => EditReason::FieldNotEditable,
        Rejection::TooLarge { .. }
        | Rejection::NotUtf8 { .. }
        | Rejection::Character { .. }
        | Rejection::Syntax { .. }
        | Rejection::Template { .. }
        | Rejection::TooManyDocuments
        | Rejection::TooManyNodes
        | Rejection::TooDeep { .. }
        | Rejection::Expansion { .. } => EditReason::FileNotEditable,
    };
    EditError::new(reason, format!("cannot edit '{path}': {rejection}"))
}

/// Reads a file of a commit. Links are not followed.
fn load(git: &Git, commit: &Commit, path: &str) -> Result<EditedFile, Stop> {
    let rejected = |reason, why: &str| {
        let message = format!("cannot edit '{path}' of commit {commit}: {why}");
        Stop::from(EditError::new(reason, message))
    };
    if refs::check_path(path).is_err() || names::path_refused(path.as_bytes()) {
        return Err(rejected(EditReason::FileNotEditable, "it is no plain path"));
    }
    let Some(blob) = git.blob(commit, path)? else {
        // A link or a submodule has no files below it.
        let why = match git.blocking(commit, path)? {
            None => return Err(rejected(EditReason::FileNotFound, "it does not exist")),
            Some((part, _)) => format!("'{}' is no directory", names::shown(&part)),
        };
        return Err(rejected(EditReason::FileNotEditable, &why));
    };
    if blob.is_link {
        return Err(rejected(
            EditReason::FileNotEditable,
            "it is a symbolic link",
        ));
    }
    if blob.size > MAX_FILE_BYTES as u64 {
        let why = format!("it has {} bytes", blob.size);
        return Err(rejected(EditReason::FileNotEditable, &why));
    }
    let before = git.content(&blob, MAX_FILE_BYTES)?;
    Ok(EditedFile {
        is_executable: blob.is_executable,
        after: before.clone(),
        before,
    })
}

/// Returns the only YAML file below a directory that contains a document.
///
/// # Errors
/// When no file or several files contain it, or there are too many files.
fn search(
    git: &Git,
    commit: &Commit,
    directory: &str,
    wanted: &DocumentRef,
) -> Result<String, Stop> {
    let directory = directory.trim_end_matches('/');
    let place = if directory.is_empty() { "/" } else { directory };
    let is_yaml = |blob: &Blob| {
        let path = blob.path.as_slice();
        (path.ends_with(b".yaml") || path.ends_with(b".yml")) && !blob.is_link
    };
    let blobs: Vec<Blob> = git
        .blobs(commit, directory)?
        .into_iter()
        .filter(is_yaml)
        .collect();
    let bytes = blobs.iter().map(|blob| blob.size).sum::<u64>();
    if blobs.len() > SEARCHED_FILES || bytes > SEARCHED_BYTES {
        let message = format!(
            "'{place}' has {} YAML files with {bytes} bytes, too many to search; set 'file'",
            blobs.len()
        );
        return Err(Failure::new(Reason::RepositoryTooLarge, message).into());
    }
    let document = document(wanted);
    let mut found = Vec::new();
    let mut unreadable = None;
    for (blob, content) in blobs.iter().zip(git.contents(&blobs)?) {
        // Most files have other objects. Parsing all of them would take long.
        let has_name = |part: &Option<String>| {
            part.as_ref()
                .is_none_or(|part| contains(&content, part.as_bytes()))
        };
        if !has_name(&wanted.kind) || !has_name(&wanted.name) {
            continue;
        }
        let path = names::shown(&blob.path);
        match yaml_edit::contains(&content, &document) {
            Ok(true) => found.push(path),
            Ok(false) => {}
            Err(rejection @ Rejection::SeveralDocuments { .. }) => {
                return Err(rejection_of(&rejection, &path).into());
            }
            // A template or a broken file. Flux does not apply it either.
            Err(rejection) => unreadable = Some(rejection_of(&rejection, &path)),
        }
    }
    match (found.as_slice(), unreadable) {
        ([path], _) => Ok(path.clone()),
        ([], Some(error)) => Err(error.into()),
        ([], None) => {
            let message = format!(
                "no YAML file below '{place}' of commit {commit} contains the document; set 'file'"
            );
            Err(EditError::new(EditReason::FileNotFound, message).into())
        }
        ([first, second, ..], _) => {
            let message = format!(
                "{} files contain the document, among them '{first}' and '{second}'; set 'file'",
                found.len()
            );
            Err(EditError::new(EditReason::FileAmbiguous, message).into())
        }
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || text.windows(part.len()).any(|window| window == part)
}
