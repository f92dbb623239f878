//! The reasons of builds. No field of the CRD starts a build yet, so these reasons are not in the table of kinds.

use crate::reason::reasons;

reasons! {
    #[normal] Building: "The image is being built.",
        "Wait. The message names the step.";
    BuildsDisabled: "The job asks for a build, and the installation does not allow builds.",
        "Use an image that exists in `podConfig.containerImage`, or ask the administrator to enable builds.";
    StrategyUnavailable: "The cluster does not have the API that the build strategy needs.",
        "Choose another `build.strategy`, or install the API that the message names.";
    BuildFailed: "A step of the build failed.",
        "The message names the step and its last output. Correct the Dockerfile or the requirements.";
    BuildTimeout: "The build did not end within `build.timeout`, counted from the start of the phase.",
        "Raise `build.timeout`, or let the build do less.";
    RequirementsNotFound: "The commit has no file with requirements to build an image from.",
        "Add `requirements.txt`, or set `build.requirementsFile` or `build.dockerfile`.";
    BaseImageFailed: "The base image cannot be read.",
        "Check `build.baseImage` and `build.pullSecretRef`.";
    PushFailed: "The built image cannot be pushed to its registry.",
        "Check `build.image` and `build.pushSecretRef`.";
    PipelineNotFound: "The Pipeline that `build.tekton.pipelineRef` names does not exist.",
        "Create it, or correct the name in another NotebookValidationJob.";
    ImageReferenceMissing: "The build ended without the digest of an image, so nothing shows which image it pushed.",
        "Let the build report a digest. A Pipeline needs the results that `build.tekton` names.";
    ImageMismatch: "The image is another one than the build pushed.",
        "Check `build.image`, and the image ID in the status of the Pod.";
}
