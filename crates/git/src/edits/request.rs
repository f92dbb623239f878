//! The request: where and what to edit.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use yaml_edit::FieldPath;

use super::value::{is_tag, is_version};
use crate::{Commit, refs};

/// Maximum number of edits.
pub const MAX_EDITS: usize = 16;

/// Maximum length of a written request, in bytes. The kernel allows 128 KiB for a variable.
pub const REQUEST_LIMIT: usize = 64 << 10;

/// Maximum length of a value and of a part of a document's identity, in bytes.
const TEXT_LIMIT: usize = 512;

/// The edits of one commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Request {
    /// The operation.
    pub mode: Mode,
    /// The branch to read, and to push to.
    pub branch: String,
    /// The directory in which files are searched: a Kustomization's `path` without a leading `./`. Empty: the
    /// root.
    #[serde(default)]
    pub directory: String,
    /// The commit that Flux applied. The plan counts the commits since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<Commit>,
    /// Author of the commit.
    pub author: Author,
    /// First line of the commit message.
    pub summary: String,
    /// The edits, 1 to [`MAX_EDITS`].
    pub edits: Vec<Edit>,
}

/// The operation of the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Reads the branch and returns a plan. Pushes nothing.
    Plan,
    /// Pushes one commit. All edits have a file, and are [`Change::Exact`].
    Commit,
}

/// Author of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Author {
    /// Name.
    pub name: String,
    /// Email address.
    pub email: String,
}

/// One edit of one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Edit {
    /// The file. Without it, the only file in the directory that contains the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The document in the file.
    #[serde(default)]
    pub document: DocumentRef,
    /// Path of the field in the document.
    pub field_path: String,
    /// The change of its value.
    pub change: Change,
}

/// Identity of a document. Fields that are not set match any value.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DocumentRef {
    /// `apiVersion`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// `kind`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// `metadata.name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `metadata.namespace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// The change of a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Change {
    /// Any version of a chart becomes this one.
    Version {
        /// The new version.
        to: String,
    },
    /// Any tag of an image becomes this one. The field has the tag alone, or the image with its tag.
    Image {
        /// The image without a tag.
        image: String,
        /// The new tag, with its digest if it has one.
        tag: String,
    },
    /// This value becomes that one.
    Exact {
        /// The value before.
        from: String,
        /// The value afterwards.
        to: String,
    },
}

impl Request {
    /// Parses and checks a request.
    ///
    /// # Errors
    /// Describes the first error.
    pub fn read(text: &str) -> Result<Self, String> {
        if text.len() > REQUEST_LIMIT {
            return Err(format!("it is longer than {REQUEST_LIMIT} bytes"));
        }
        let request: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        request.check()?;
        Ok(request)
    }

    /// Returns the JSON.
    #[must_use]
    pub fn write(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// Checks all fields.
    ///
    /// # Errors
    /// Describes the first error.
    pub fn check(&self) -> Result<(), String> {
        refs::check_branch(&self.branch)?;
        if !self.directory.is_empty() {
            refs::check_path(&self.directory)?;
        }
        self.author.check()?;
        refs::check_message(&self.summary)?;
        if self.summary.contains('\n') || self.summary.len() > TEXT_LIMIT {
            return Err(format!(
                "the summary has several lines or more than {TEXT_LIMIT} bytes"
            ));
        }
        if !(1..=MAX_EDITS).contains(&self.edits.len()) {
            return Err(format!("a request has 1 to {MAX_EDITS} edits"));
        }
        let mut fields = BTreeSet::new();
        for edit in &self.edits {
            edit.check(self.mode)?;
            if !fields.insert((&edit.file, &edit.document, &edit.field_path)) {
                return Err(format!("the field '{}' has two edits", edit.field_path));
            }
        }
        Ok(())
    }
}

impl Author {
    fn check(&self) -> Result<(), String> {
        let is_wrong = |c: char| c.is_control() || matches!(c, '<' | '>');
        let name = self.name.trim();
        if name.is_empty() || name.len() > TEXT_LIMIT || name.contains(is_wrong) {
            return Err(
                "the name of the author is empty, too long, or contains '<' or '>'".to_owned(),
            );
        }
        let is_email = self.email.contains('@')
            && self.email.len() <= TEXT_LIMIT
            && self.email.bytes().all(|byte| byte.is_ascii_graphic())
            && !self.email.contains(is_wrong);
        if !is_email {
            return Err("the email address of the author is none".to_owned());
        }
        Ok(())
    }
}

impl Edit {
    fn check(&self, mode: Mode) -> Result<(), String> {
        if let Some(file) = &self.file {
            refs::check_path(file)?;
            if file.ends_with('/') {
                return Err(format!("the file '{file}' is a directory"));
            }
        }
        FieldPath::parse(&self.field_path).map_err(|error| error.to_string())?;
        self.document.check()?;
        self.change.check()?;
        match (mode, &self.file, &self.change) {
            (Mode::Plan, _, _) | (Mode::Commit, Some(_), Change::Exact { .. }) => Ok(()),
            (Mode::Commit, _, _) => Err(format!(
                "the edit of '{}' in mode Commit needs a file and both values",
                self.field_path
            )),
        }
    }
}

impl DocumentRef {
    fn check(&self) -> Result<(), String> {
        let parts = [&self.api_version, &self.kind, &self.name, &self.namespace];
        let is_wrong =
            |text: &String| text.is_empty() || text.len() > TEXT_LIMIT || !is_printable(text);
        if parts.into_iter().filter_map(Option::as_ref).any(is_wrong) {
            return Err(
                "a part of the document's identity is empty, too long, or not ASCII".to_owned(),
            );
        }
        Ok(())
    }
}

impl Change {
    fn check(&self) -> Result<(), String> {
        let is_value = |text: &String| (1..=TEXT_LIMIT).contains(&text.len()) && is_printable(text);
        match self {
            Self::Version { to } if !is_version(to) => {
                Err("the new version is not one version with three numbers".to_owned())
            }
            Self::Image { image, .. } if !is_value(image) || image.contains('@') => {
                Err("the image is empty, too long, not ASCII, or has a digest".to_owned())
            }
            Self::Image { tag, .. } if !is_tag(tag) => Err("the new tag is no tag".to_owned()),
            Self::Exact { from, to } if !is_value(from) || !is_value(to) => {
                Err("a value is empty, too long, or not ASCII without spaces".to_owned())
            }
            Self::Exact { from, to } if from == to => {
                Err("the values before and afterwards are the same".to_owned())
            }
            Self::Version { .. } | Self::Image { .. } | Self::Exact { .. } => Ok(()),
        }
    }
}

fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn request() -> Request {
        Request {
            mode: Mode::Commit,
            branch: "main".to_owned(),
            directory: "apps/shop".to_owned(),
            applied: None,
            author: Author {
                name: "Orchestrator".to_owned(),
                email: "orchestrator@team.invalid".to_owned(),
            },
            summary: "Upgrade shop to 1.3.0".to_owned(),
            edits: vec![Edit {
                file: Some("apps/shop/release.yaml".to_owned()),
                document: DocumentRef {
                    kind: Some("HelmRelease".to_owned()),
                    name: Some("shop".to_owned()),
                    ..DocumentRef::default()
                },
                field_path: "spec.chart.spec.version".to_owned(),
                change: Change::Exact {
                    from: "1.2.0".to_owned(),
                    to: "1.3.0".to_owned(),
                },
            }],
        }
    }

    #[test]
    fn a_written_request_is_read() {
        let mut plan = request();
        plan.mode = Mode::Plan;
        plan.applied = Commit::parse(&"ab".repeat(20)).map(Some).unwrap();
        plan.edits[0].file = None;
        plan.edits[0].change = Change::Image {
            image: "nginx".to_owned(),
            tag: "1.26".to_owned(),
        };
        for request in [request(), plan] {
            assert_eq!(Request::read(&request.write()), Ok(request));
        }
    }

    #[test]
    fn the_written_form_is_kept() {
        let expected = serde_json::json!({
            "mode": "Commit", "branch": "main", "directory": "apps/shop",
            "author": {"name": "Orchestrator", "email": "orchestrator@team.invalid"},
            "summary": "Upgrade shop to 1.3.0",
            "edits": [{
                "file": "apps/shop/release.yaml",
                "document": {"kind": "HelmRelease", "name": "shop"},
                "fieldPath": "spec.chart.spec.version",
                "change": {"exact": {"from": "1.2.0", "to": "1.3.0"}},
            }],
        });
        let written: serde_json::Value = serde_json::from_str(&request().write()).unwrap();
        assert_eq!(written, expected);
    }

    #[test]
    fn wrong_requests_are_rejected() {
        type Spoil = fn(&mut Request);
        let cases: [(&str, Spoil); 20] = [
            ("branch", |r| r.branch = "--upload-pack=x".to_owned()),
            ("part", |r| r.directory = "../other".to_owned()),
            ("name of the author", |r| r.author.name = " ".to_owned()),
            ("name of the author", |r| r.author.name = "a <b>".to_owned()),
            ("name of the author", |r| r.author.name = "a\nb".to_owned()),
            ("email", |r| r.author.email = "a b@c".to_owned()),
            ("email", |r| r.author.email = "a".to_owned()),
            ("lines", |r| r.summary = "a\nb".to_owned()),
            ("Orchestrator-Run", |r| {
                r.summary = "Orchestrator-Run: x".to_owned()
            }),
            ("1 to 16", |r| r.edits.clear()),
            ("1 to 16", |r| r.edits = vec![r.edits[0].clone(); 17]),
            ("two edits", |r| r.edits.push(r.edits[0].clone())),
            ("relative", |r| {
                r.edits[0].file = Some("/etc/passwd".to_owned())
            }),
            ("git's own", |r| {
                r.edits[0].file = Some(".git/config".to_owned())
            }),
            ("directory", |r| r.edits[0].file = Some("apps/".to_owned())),
            ("needs a file", |r| r.edits[0].file = None),
            ("field path", |r| r.edits[0].field_path = "a..b".to_owned()),
            ("identity", |r| {
                r.edits[0].document.name = Some(String::new())
            }),
            ("same", |r| {
                r.edits[0].change = Change::Exact {
                    from: "a".to_owned(),
                    to: "a".to_owned(),
                };
            }),
            ("not ASCII", |r| {
                r.edits[0].change = Change::Exact {
                    from: "a".to_owned(),
                    to: "a\nb".to_owned(),
                };
            }),
        ];
        for (expected, spoil) in cases {
            let mut request = request();
            spoil(&mut request);
            let error = Request::read(&request.write()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let mut plan = request();
        plan.mode = Mode::Plan;
        for change in [
            Change::Version {
                to: "1.x".to_owned(),
            },
            Change::Image {
                image: "a@b".to_owned(),
                tag: "1".to_owned(),
            },
            Change::Image {
                image: "a".to_owned(),
                tag: "1:2".to_owned(),
            },
        ] {
            plan.edits[0].change = change;
            assert!(plan.check().is_err(), "{plan:?}");
        }
    }

    #[test]
    fn unknown_fields_and_long_texts_are_rejected() {
        let text = request().write();
        let unknown = text.replacen('{', "{\"force\":true,", 1);
        assert!(Request::read(&unknown).unwrap_err().contains("force"));
        let long = format!("{text}{}", " ".repeat(REQUEST_LIMIT));
        assert!(Request::read(&long).unwrap_err().contains("longer"));
        assert!(Request::read("").is_err());
    }
}
