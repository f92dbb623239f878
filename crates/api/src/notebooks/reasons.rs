//! The reasons of NotebookValidationJobs, beside those of runs and the shared ones of [`crate::reason`].

use crate::reason::reasons;

reasons! {
    // Normal progress.
    #[normal] Fetching: "The container `fetch` checks out the commit and copies the notebooks.",
        "Wait.";
    #[normal] SourcesFound: "The commits of the notebook and of the golden notebook are known.",
        "Nothing.";
    #[normal] Matched: "The outputs of the notebook match those of the golden notebook.",
        "Nothing.";
    #[normal] NoGolden: "There is no golden notebook, so nothing was compared.",
        "Nothing. To compare the outputs, set `goldenNotebook` of another NotebookValidationJob.";

    // Sources.
    RefNotFound: "The repository has no branch and no tag of the name in `ref`.",
        "Check the name, and submit another NotebookValidationJob.";
    RefAmbiguous: "The repository has a branch and a tag of the name in `ref`, so the commit is not clear.",
        "Submit another NotebookValidationJob with `refs/heads/NAME` or `refs/tags/NAME`.";
    NotebookNotFound: "The commit has no regular file at `notebook.path`.",
        "Check the path. A symbolic link is rejected. Submit another NotebookValidationJob.";
    NotebookInvalid: "The notebook or the golden notebook is not a notebook that can be read.",
        "The message names the file. A pointer of Git LFS is not fetched.";
    GoldenNotFound: "The commit has no regular file at `goldenNotebook.path`, or the file is another one than the one of the commit.",
        "Check the path, and submit another NotebookValidationJob.";
    GoldenEmpty: "The golden notebook has no outputs, so no comparison is possible.",
        "Execute the golden notebook, commit it, and submit another NotebookValidationJob.";

    // Builds.
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

    // Execution.
    KernelNotFound: "The image has no kernel of the name that the notebook requests.",
        "The message names the kernels that exist. Set `notebook.kernel`, or install the kernel in the image.";
    KernelDied: "The kernel ended although nobody asked it to.",
        "The message names the cell. Look for an exit, a crash or a signal in the notebook.";
    CellFailed: "A cell raised an error.",
        "The message names the cell and the error. Correct the notebook.";
    CellTimeout: "A cell ran longer than `notebook.cellTimeout`.",
        "The message names the cell. Raise the limit, or let the cell do less.";
    NothingValidated: "No cell was executed, so the notebook proves nothing.",
        "Check the tags of the cells.";

    // Comparison and checks.
    NothingCompared: "The golden notebook has outputs, but none of them was compared with an output of the run.",
        "Check the tags of the cells, `comparison.ignore` and `comparison.ignoreOutputTypes`.";
    Mismatch: "An output differs from the golden notebook.",
        "The status has the first differences with their classes. Correct the notebook, or commit another golden notebook.";
    PatternInvalid: "A pattern of `comparison.customPatterns` is not valid, or needs too much time.",
        "The message names the pattern. Write a simpler one.";
    ExpectationFailed: "A result is not as `validation.expectedOutputs` requires.",
        "The message names the cell and the value.";
    OutputOnStderr: "A cell wrote to stderr, which `validation.failOnStderr` forbids.",
        "The message names the cell. Correct the notebook, or change the level.";
    WarningsFound: "A cell printed a warning, which `validation.failOnWarnings` forbids.",
        "The message names the cell. Correct the notebook, or change the level.";
    CellsSkipped: "A tag skips a cell, which `validation.allowSkipped` forbids.",
        "The message names the cell. Remove the tag, or change the level.";
}
