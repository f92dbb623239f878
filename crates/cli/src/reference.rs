//! The reference page, generated from the definition of the command line.

use clap::CommandFactory;

use crate::{Exit, arguments::Arguments};

/// Returns the page `docs/reference/orc.md`.
#[must_use]
pub fn reference() -> String {
    let mut page = String::from(
        "<!-- Generated from `crates/cli`; a test there fails when it differs. Do not edit -->
# The command line `orc`

A link named `kubectl-orc` beside it makes it a plugin of kubectl: then it is called `kubectl orc`.

Cluster, context and namespace are found as kubectl finds them. Colors and lines that are drawn anew are for
terminals only; `NO_COLOR` and `--no-color` switch colors off. Times are UTC.

## Exit codes

| code | means |
|---|---|
",
    );
    for (exit, meaning) in Exit::ALL {
        page.push_str(&format!("| {} | {meaning} |\n", exit.code()));
    }
    let mut command = Arguments::command().bin_name("orc").term_width(100);
    command.build();
    section(&mut command, &mut page);
    page
}

fn section(command: &mut clap::Command, page: &mut String) {
    let name = command.get_bin_name().unwrap_or("orc").to_owned();
    let help = command.render_help().to_string();
    let text: Vec<&str> = help.lines().map(str::trim_end).collect();
    page.push_str(&format!(
        "\n## {name}\n\n```text\n{}\n```\n",
        text.join("\n")
    ));
    for below in command.get_subcommands_mut() {
        section(below, page);
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// Compares the page with the generated text. `ORC_WRITE_REFERENCE=1 cargo test -p cli
    /// reference` writes the page.
    #[test]
    fn the_reference_is_what_the_command_line_is() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/orc.md");
        if std::env::var_os("ORC_WRITE_REFERENCE").is_some() {
            fs::write(&path, reference()).unwrap();
        }
        assert!(
            fs::read_to_string(&path).unwrap_or_default() == reference(),
            "docs/reference/orc.md differs; 'ORC_WRITE_REFERENCE=1 cargo test -p cli reference' writes it"
        );
    }
}
