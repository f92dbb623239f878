//! The images of an upgrade: their fields in Git, and their tags in the live Pod templates.

use std::collections::BTreeSet;

use api::{
    Reason,
    apps::{AppGit, ImageChange, ImageField, ImageTag, UpgradePlan},
};
use git::edits::{DocumentRef, PlannedEdit};

use crate::{discover::Problem, world::Discovery};

/// Returns the changes of images. The tags before follow from the plan of the commit.
///
/// # Errors
/// If the ManagedApp has no field for one of them (R40).
pub(super) fn requested(
    app: &str,
    git: Option<&AppGit>,
    images: &[ImageTag],
) -> Result<Vec<ImageChange>, Problem> {
    let change = |image: &ImageTag| {
        let mut fields = git.into_iter().flat_map(|git| git.images.iter());
        if !fields.any(|field| field.image == image.name) {
            let message = format!(
                "ManagedApp '{app}' has no item in 'spec.git.images' for image '{}'",
                image.name
            );
            return Err(Problem::new(Reason::NoVersionPath, message));
        }
        Ok(ImageChange {
            name: image.name.clone(),
            from: String::new(),
            to: format!("{}:{}", image.name, image.tag),
        })
    };
    images.iter().map(change).collect()
}

/// Returns the image with its tag. The value of a field is the tag alone, or has the image.
pub(super) fn reference(image: &str, value: &str) -> String {
    let rest = value.strip_prefix(image);
    if rest.is_some_and(|rest| rest.starts_with([':', '@'])) {
        value.to_owned()
    } else {
        format!("{image}:{value}")
    }
}

/// Returns the document of a field, for `step commit`.
pub(super) fn document(field: &ImageField) -> DocumentRef {
    DocumentRef {
        kind: Some(field.document.kind.clone()),
        name: field.document.name.clone(),
        ..DocumentRef::default()
    }
}

/// Returns the image that an edit changes, or `None` if it changes the version of the chart. `step commit` repeats path and
/// document of a field.
pub(super) fn of_edit<'a>(git: &'a AppGit, edit: &PlannedEdit) -> Option<&'a str> {
    let is_field = |field: &&ImageField| {
        let file = field.file.as_ref();
        field.field_path == edit.field_path
            && document(field) == edit.document
            && file.is_none_or(|file| *file == edit.file)
    };
    let found = git.images.iter().find(is_field)?;
    Some(&found.image)
}

/// Returns the images in the live Pod templates of the application. Those of CronJobs are no evidence: no Pod runs them.
pub(crate) fn live(discovery: &Discovery) -> BTreeSet<&str> {
    let Discovery::Found(objects) = discovery else {
        return BTreeSet::new();
    };
    let members = objects.members.iter();
    let members = members.filter(|member| member.id.kind.has_replicas());
    let templates = members.filter_map(|member| member.live.as_deref());
    let images = templates.flat_map(|live| live.images.iter());
    images.map(String::as_str).collect()
}

/// Returns the first image of the plan that no live Pod template has.
pub(crate) fn missing<'a>(plan: &'a UpgradePlan, discovery: &Discovery) -> Option<&'a str> {
    let live = live(discovery);
    let mut wanted = plan.images.iter().map(|image| &*image.to);
    wanted.find(|image| !live.contains(*image))
}

#[cfg(test)]
mod tests {
    use api::{apps::DocumentName, pod::NamedRef};

    use super::*;

    fn field(image: &str, file: Option<&str>, path: &str) -> ImageField {
        ImageField {
            image: image.to_owned(),
            file: file.map(str::to_owned),
            document: DocumentName {
                kind: "Kustomization".to_owned(),
                name: None,
            },
            field_path: path.to_owned(),
        }
    }

    fn git() -> AppGit {
        AppGit {
            url: None,
            branch: None,
            credentials_secret_ref: NamedRef {
                name: "git".to_owned(),
            },
            author: None,
            chart: api::apps::ChartField::default(),
            images: vec![
                field(
                    "server",
                    Some("shop/kustomization.yaml"),
                    "images[0].newTag",
                ),
                field("worker", None, "images[1].newTag"),
            ],
        }
    }

    #[test]
    fn a_value_is_a_tag_or_has_the_image() {
        // Columns: value of the field, image with its tag.
        for (value, expected) in [
            ("1.0", "example.com:5000/shop:1.0"),
            ("1.0@sha256:ab", "example.com:5000/shop:1.0@sha256:ab"),
            ("example.com:5000/shop:1.0", "example.com:5000/shop:1.0"),
            (
                "example.com:5000/shop@sha256:ab",
                "example.com:5000/shop@sha256:ab",
            ),
        ] {
            assert_eq!(reference("example.com:5000/shop", value), expected);
        }
    }

    #[test]
    fn r40_each_image_needs_a_field() {
        let tag = |name: &str| ImageTag {
            name: name.to_owned(),
            tag: "2.0".to_owned(),
        };
        let git = git();
        let found = requested("shop", Some(&git), &[tag("server"), tag("worker")]).unwrap();
        let found: Vec<&str> = found.iter().map(|image| &*image.to).collect();
        assert_eq!(found, ["server:2.0", "worker:2.0"]);
        for (git, name) in [
            (Some(&git), "other"),
            (Some(&git), "serve"),
            (None, "server"),
        ] {
            let problem = requested("shop", git, &[tag("worker"), tag(name)]).unwrap_err();
            assert_eq!(problem.reason, Reason::NoVersionPath, "{name}");
        }
        assert_eq!(requested("shop", None, &[]).unwrap(), []);
    }

    #[test]
    fn an_edit_is_of_an_image_or_of_the_chart() {
        let git = git();
        let kustomization = || document(&git.images[0]);
        let chart = || DocumentRef {
            kind: Some("HelmRelease".to_owned()),
            name: Some("shop".to_owned()),
            ..DocumentRef::default()
        };
        // Columns: file, document, path, image.
        for (file, document, field_path, expected) in [
            (
                "shop/kustomization.yaml",
                kustomization(),
                "images[0].newTag",
                Some("server"),
            ),
            // Another file.
            (
                "kustomization.yaml",
                kustomization(),
                "images[0].newTag",
                None,
            ),
            // The file was searched.
            (
                "any/kustomization.yaml",
                kustomization(),
                "images[1].newTag",
                Some("worker"),
            ),
            ("shop/kustomization.yaml", chart(), "images[0].newTag", None),
            (
                "shop/release.yaml",
                chart(),
                "spec.chart.spec.version",
                None,
            ),
        ] {
            let edit = PlannedEdit {
                file: file.to_owned(),
                document,
                field_path: field_path.to_owned(),
                from: "1.0".to_owned(),
                to: "2.0".to_owned(),
                line: 1,
                has_automation_marker: false,
            };
            assert_eq!(of_edit(&git, &edit), expected, "{file} {field_path}");
        }
    }
}
