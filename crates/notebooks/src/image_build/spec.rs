//! The build that a job asks for.

use git::refs;
use serde::{Deserialize, Serialize};

use super::{check_repository, recipe::is_plain_path};

/// How an image is built.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// A Job with buildah.
    #[default]
    Buildah,
    /// A Job with source-to-image, then buildah.
    S2i,
    /// A PipelineRun of Tekton.
    Tekton,
}

/// The build that a job asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BuildSpec {
    /// Strategy of the build.
    #[serde(default)]
    pub strategy: Strategy,
    /// Repository to push to, without a tag and without a digest.
    pub image: String,
    /// Image to start from. With `s2i`, it is the builder image.
    #[serde(default)]
    pub base_image: Option<String>,
    /// Path of a Dockerfile.
    #[serde(default)]
    pub dockerfile: Option<String>,
    /// Path of a file with requirements of pip.
    #[serde(default)]
    pub requirements_file: Option<String>,
    /// Directory whose files the build may read. Default: the root of the repository.
    #[serde(default)]
    pub context: Option<String>,
    /// Build arguments: names and values.
    #[serde(default)]
    pub args: Vec<(String, String)>,
    /// Repository of the layer cache.
    #[serde(default)]
    pub cache: Option<String>,
    /// Settings of the strategy `s2i`.
    #[serde(default)]
    pub s2i: Option<S2i>,
    /// Settings of the strategy `tekton`.
    #[serde(default)]
    pub tekton: Option<Tekton>,
}

/// Settings of the strategy `s2i`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct S2i {
    /// URL of the scripts, instead of those in the builder image.
    #[serde(default)]
    pub scripts_url: Option<String>,
}

/// Settings of the strategy `tekton`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tekton {
    /// Name of a Pipeline of the user, instead of the operator's own.
    #[serde(default)]
    pub pipeline: Option<String>,
    /// Name of the result with the digest.
    #[serde(default = "digest_result")]
    pub digest_result: String,
    /// Name of the result with the URL of the image.
    #[serde(default = "url_result")]
    pub url_result: String,
}

fn digest_result() -> String {
    "IMAGE_DIGEST".to_owned()
}
fn url_result() -> String {
    "IMAGE_URL".to_owned()
}

impl Default for Tekton {
    fn default() -> Self {
        Self {
            pipeline: None,
            digest_result: digest_result(),
            url_result: url_result(),
        }
    }
}

impl BuildSpec {
    /// Checks the combination of the fields: rules C3 and C4 of the specification.
    ///
    /// # Errors
    /// Describes the first violation.
    pub fn check(&self) -> Result<(), String> {
        check_repository(&self.image)?;
        if let Some(cache) = &self.cache {
            check_repository(cache)?;
        }
        self.check_blocks()?;
        for (field, path) in [
            ("dockerfile", &self.dockerfile),
            ("requirementsFile", &self.requirements_file),
            ("context", &self.context),
        ] {
            if let Some(path) = path.as_ref().filter(|path| *path != ".") {
                check_path(field, path)?;
            }
        }
        match &self.base_image {
            Some(image) if !is_image(image) => {
                Err(format!("baseImage '{}' is no image", image.escape_debug()))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn check_blocks(&self) -> Result<(), String> {
        let rejected = |fields: &[(&str, bool)], owner: &str| {
            let found = fields.iter().find(|(_, is_set)| *is_set);
            found.map_or(Ok(()), |(field, _)| {
                Err(format!("{field} is not possible with {owner}"))
            })
        };
        let dockerfile = ("dockerfile", self.dockerfile.is_some());
        let requirements = ("requirementsFile", self.requirements_file.is_some());
        let cache = ("cache", self.cache.is_some());
        let base_image = ("baseImage", self.base_image.is_some());
        let s2i = ("s2i", self.s2i.is_some());
        let tekton = ("tekton", self.tekton.is_some());
        match self.strategy {
            Strategy::Buildah => rejected(&[s2i, tekton], "the strategy 'buildah'")?,
            Strategy::S2i => {
                rejected(
                    &[tekton, dockerfile, requirements, cache],
                    "the strategy 's2i'",
                )?;
            }
            Strategy::Tekton => rejected(&[s2i], "the strategy 'tekton'")?,
        }
        if self
            .tekton
            .as_ref()
            .is_some_and(|tekton| tekton.pipeline.is_some())
        {
            let args = ("args", !self.args.is_empty());
            let context = ("context", self.context.is_some());
            let own = [base_image, dockerfile, requirements, args, cache, context];
            // The params of the user's Pipeline carry them.
            return rejected(&own, "a pipeline of your own");
        }
        match (self.dockerfile.is_some(), self.base_image.is_some()) {
            (true, _) if self.requirements_file.is_some() => {
                Err("dockerfile and requirementsFile exclude each other".to_owned())
            }
            (true, true) => Err("baseImage is not possible with a dockerfile".to_owned()),
            (false, false) => Err("baseImage is required without a dockerfile".to_owned()),
            (true, false) | (false, true) => Ok(()),
        }
    }
}

fn check_path(field: &str, path: &str) -> Result<(), String> {
    refs::check_path(path).map_err(|why| format!("{field}: {why}"))?;
    if is_plain_path(path) {
        Ok(())
    } else {
        Err(format!(
            "{field}: '{path}' has a character that a Dockerfile treats as a pattern"
        ))
    }
}

/// Returns whether a Dockerfile reads this text as one image, without variables.
fn is_image(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"./:@_-".contains(&byte);
    !text.is_empty() && text.len() <= 500 && !text.starts_with('-') && text.bytes().all(is_plain)
}
