//! The view of a NotebookValidationJob.

use api::notebooks::{NotebookValidationJobSpec, NotebookValidationJobStatus};
use serde_json::Value;

use super::{
    annotation,
    ours::{changed, parts},
    text,
};
use crate::world::{Meta, NotebookView, SourceView};

impl NotebookView {
    /// Reads a `NotebookValidationJob`. The lists of cells and differences are cut to the first difference.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let (meta, mut status, spec, undecodable) =
            parts::<NotebookValidationJobStatus, NotebookValidationJobSpec>(object);
        status.results = Vec::new();
        if let Some(comparison) = &mut status.comparison_result {
            comparison.diffs.truncate(1);
        }
        let view = Self {
            meta: Meta::from(&meta),
            changed: changed(&meta),
            undecodable,
            force_delete: annotation(&meta, api::names::FORCE_DELETE) == Some("true"),
            status,
            ..Self::default()
        };
        let Some(spec) = spec else { return view };
        let source = |git: &api::notebooks::GitSource| SourceView {
            url: text(&git.url),
            reference: text(&git.reference),
            secret: git
                .credentials_secret_ref
                .as_ref()
                .map(|secret| text(&secret.name)),
        };
        let golden = spec.golden_notebook.as_ref();
        let limits = &spec.pod_config.resources.limits;
        Self {
            path: text(&spec.notebook.path),
            source: source(&spec.notebook.git),
            golden_path: golden.map(|golden| text(&golden.path)),
            golden_source: golden.and_then(|golden| golden.git.as_ref()).map(source),
            image: text(&spec.pod_config.container_image),
            memory: limits.get("memory").map(|amount| text(&amount.0)),
            suspend: spec.suspend,
            cancel: spec.cancel,
            ..view
        }
    }
}
