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
    #[normal] ReadingResult: "The run ended, and the operator reads the full result of the runner and stores it. The verdict is known and does not depend on it.",
        "Wait. The operator waits for at most two minutes.";
    #[normal] ResultStored: "The full result is in the ConfigMap that `status.report.configMapName` names.",
        "Nothing. `orc diff` prints it.";
    #[normal] NoGolden: "There is no golden notebook, so nothing was compared.",
        "Nothing. To compare the outputs, set `goldenNotebook` of another NotebookValidationJob.";

    ResultNotStored: "The full result was not stored. The verdict stands without it.",
        "The message has the cause. To get the full result, submit another NotebookValidationJob.";

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
