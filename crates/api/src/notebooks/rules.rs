//! Validation rules of the schema that only NotebookValidationJobs have.

use kube::core::{Message, Rule};

/// Pattern of a duration. Equal to that of the shared rules.
const DURATION: &str = "^([0-9]{1,6}([.][0-9]{1,3})?(ms|s|m|h)){1,4}$";

/// Pattern of a decimal number.
const DECIMAL: &str = "^-?[0-9]{1,15}([.][0-9]{1,12})?$";

/// Names that the operator sets, or with which a user could change the kernel of the runner (R66), as a CEL condition on
/// `name`.
fn reserved(name: &str) -> String {
    format!(
        "({name} in ['HOME', 'IPYTHONDIR'] || {name}.startsWith('ORCHESTRATOR_') || {name}.startsWith('JPY_') || {name}.startsWith('JUPYTER_'))"
    )
}

/// Requires a full commit ID, `refs/heads/x`, `refs/tags/x` or the name of a branch or tag.
pub(super) fn git_ref() -> Rule {
    Rule::new(
        "self.matches('^[A-Za-z0-9_][A-Za-z0-9._/+#=-]*$') && !self.matches('[.][.]|//|/[.]|[.]/|[.]lock/|[.]lock$|[./]$|/-') && (!self.startsWith('refs/') || self.matches('^refs/(heads|tags)/.')) && !self.matches('^refs/(heads|tags)/(refs/|HEAD$)') && self != 'HEAD'",
    )
    .message("must be a full commit ID, 'refs/heads/NAME', 'refs/tags/NAME' or the name of a branch or tag: letters, digits and '._/+#=-', not beginning with '-' or '.', without '..' or '//', not ending with '/', '.' or '.lock'")
}

/// Requires the path of a notebook.
pub(super) fn notebook_file() -> Rule {
    Rule::new("self.endsWith('.ipynb')").message("must end with '.ipynb'")
}

/// Requires that the limit of a cell is not longer than that of an attempt.
pub(super) fn cell_timeout_within_timeout() -> Rule {
    Rule::new(format!(
        "!has(self.notebook.cellTimeout) || !self.notebook.cellTimeout.matches('{DURATION}') || !self.timeout.matches('{DURATION}') || duration(self.notebook.cellTimeout) <= duration(self.timeout)"
    ))
    .message("'notebook.cellTimeout' must not be longer than 'timeout'")
    .field_path(".timeout")
}

/// Requires a golden notebook, if the effective checks do.
pub(super) fn golden_if_required() -> Rule {
    Rule::new("has(self.goldenNotebook) || !(has(self.validation.requireGolden) ? self.validation.requireGolden : self.validation.level == 'production')")
        .message("must be given: 'validation' requires a golden notebook, as the level 'production' does")
        .field_path(".goldenNotebook")
}

/// Requires that an exact comparison has no settings of the normalized one.
pub(super) fn exact_without_settings() -> Rule {
    Rule::new("self.strategy != 'exact' || !(has(self.floatTolerance) || has(self.imageTolerance) || has(self.ignore) || has(self.ignoreOutputTypes) || has(self.customPatterns))")
        .message("the strategy 'exact' compares bytes, so it takes no tolerances, 'ignore', 'ignoreOutputTypes' or 'customPatterns'")
}

/// Requires that an expected output has a check.
pub(super) fn has_check() -> Rule {
    Rule::new("has(self.type) || has(self.shape) || has(self.minValue) || has(self.maxValue) || has(self.notEmpty)")
        .message("must have a check: 'type', 'shape', 'minValue', 'maxValue' or 'notEmpty'")
}

/// Requires that the smallest value is not above the largest one.
pub(super) fn min_within_max() -> Rule {
    Rule::new(format!(
        "!has(self.minValue) || !has(self.maxValue) || !self.minValue.matches('{DECIMAL}') || !self.maxValue.matches('{DECIMAL}') || double(self.minValue) <= double(self.maxValue)"
    ))
    .message("'minValue' must not be more than 'maxValue'")
}

/// Requires variables that the operator and Jupyter do not use.
pub(super) fn free_variables() -> Rule {
    let taken = reserved("one.name");
    Rule::new(format!("!has(self.env) || self.env.all(one, !{taken})"))
        .message(reserved_message("names of variables"))
        .field_path(".env")
}

/// Requires prefixes with which no variable gets a reserved name.
pub(super) fn free_prefixes() -> Rule {
    let taken = reserved("one.prefix");
    Rule::new(format!(
        "!has(self.envFrom) || self.envFrom.all(one, !has(one.prefix) || !{taken})"
    ))
    .message(reserved_message("prefixes of variables"))
    .field_path(".envFrom")
}

fn reserved_message(subject: &str) -> Message {
    Message::Message(format!(
        "{subject} must not be 'HOME' or 'IPYTHONDIR', nor begin with 'ORCHESTRATOR_', 'JPY_' or 'JUPYTER_': the runner depends on those"
    ))
}

/// Requires that each mount is of a volume of the Pod.
pub(super) fn mounts_of_volumes() -> Rule {
    Rule::new("!has(self.volumeMounts) || self.volumeMounts.all(mount, has(self.volumes) && self.volumes.exists(volume, volume.name == mount.name))")
        .message("'name' of a mount must be that of a volume in 'volumes'")
        .field_path(".volumeMounts")
}

/// Requires mount paths that do not overlap. Otherwise one volume would hide another one.
pub(super) fn mounts_apart() -> Rule {
    Rule::new("!has(self.volumeMounts) || self.volumeMounts.all(one, self.volumeMounts.filter(other, other.mountPath == one.mountPath || other.mountPath.startsWith(one.mountPath + '/')).size() == 1)")
        .message("'mountPath' of a mount must not be, or be in, that of another one")
        .field_path(".volumeMounts")
}

/// Requires a mount path that overlaps with none of the operator's directories and no system directory.
pub(super) fn free_mount_path() -> Rule {
    Rule::new("!['/proc', '/sys', '/dev', '/tmp', '/etc', '/home/agent', '/run/secrets', '/var/run/secrets'].exists(taken, self == taken || taken.startsWith(self + '/') || self.startsWith(taken + '/')) && !['/workspace', '/orchestrator', '/inputs', '/link'].exists(taken, self.startsWith(taken))")
        .message("must not be, be in or hold '/proc', '/sys', '/dev', '/tmp', '/etc', '/home/agent', '/run/secrets' or '/var/run/secrets', nor begin with '/workspace', '/orchestrator', '/inputs' or '/link'; choose another directory, such as '/data'")
}

/// Requires that a volume has one source.
pub(super) fn one_volume_source() -> Rule {
    Rule::new("[has(self.emptyDir), has(self.configMap), has(self.secret), has(self.persistentVolumeClaim)].filter(one, one).size() == 1")
        .message("takes exactly one of 'emptyDir', 'configMap', 'secret' and 'persistentVolumeClaim'")
}
