//! `cargo xtask image`: the operator as an image archive, without Docker and without a registry.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use testkit::{
    images::{self, DECLARATION, Image},
    layout,
    lock::Lock,
    process,
};

/// Of the chart too: its `appVersion` is the tag that it looks for.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The chart's default: a name under which nothing can be pulled from anywhere. An image that was
/// not loaded does not start, instead of being somebody else's.
const REGISTRY: &str = "localhost";
/// Where people and the README find the newest one, from the repository.
const ARCHIVE: &str = "target/image/orchestrator.tar";

/// From nothing it is six minutes of a core's time; seen on two busy cores: twelve minutes.
const BUILD_LIMIT: Duration = Duration::from_secs(30 * 60);

/// An image that was built.
pub(crate) struct Built {
    /// The archive.
    pub(crate) archive: PathBuf,
    /// The name that a node has it under.
    pub(crate) reference: String,
}

/// Builds and says where it is.
pub(crate) fn run() -> Result<()> {
    let start = Instant::now();
    let Built { archive, reference } = build()?;
    let megabytes = fs::metadata(archive)?.len() as f64 / 1e6;
    println!(
        "image {reference}: {megabytes:.1} MB in '{ARCHIVE}', {:.0} s",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Builds the operator's image, as much of it as changed.
pub(crate) fn build() -> Result<Built> {
    let archive = layout::repository().join(ARCHIVE);
    let folder = archive
        .parent()
        .with_context(|| format!("'{ARCHIVE}' has no folder"))?;
    fs::create_dir_all(folder)?;
    let _lock = Lock::take(&folder.join("lock"), BUILD_LIMIT, &mut |holder| {
        eprintln!("waiting: {holder} is building the image")
    })?;
    let program = compile(folder)?;
    let image = declare(&folder.join("declaration/orchestrator"))?;
    let built = images::build(
        &image,
        &folder.join("archives"),
        &|_source| Ok(program.clone()),
        &|_step| (),
    )?;
    // Aside first: a reader of the archive sees the whole old one or the whole new one.
    let aside = archive.with_extension("new");
    fs::copy(&built, &aside)
        .and_then(|_| fs::rename(&aside, &archive))
        .with_context(|| format!("cannot write '{}'", archive.display()))?;
    Ok(Built {
        archive,
        reference: image.reference(),
    })
}

/// One static program and `/etc/passwd`; the tag is the version, hence no file in the repository.
fn declare(folder: &Path) -> Result<Image> {
    let declaration = format!(
        r#"tag = "{VERSION}"
files = [{{ from = "cargo:orchestrator", to = "/orchestrator" }}]
entrypoint = ["/orchestrator"]
user = 65532
"#
    );
    fs::create_dir_all(folder)?;
    fs::write(folder.join(DECLARATION), declaration)?;
    Ok(Image::load(folder)?.in_registry(REGISTRY))
}

/// The operator as a program that needs no library of the image.
///
/// In a target folder of its own: other flags in the ordinary one would throw away what is there.
/// The target is named, though it is this machine's, because flags then do not reach build scripts
/// and macros, which cannot be static.
fn compile(folder: &Path) -> Result<PathBuf> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let build = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(shared) => PathBuf::from(shared).join("image"),
        None => folder.join("build"),
    };
    let mut command = Command::new(env!("CARGO"));
    command
        .args([
            "build",
            "--locked",
            "--package=operator",
            "--bin=orchestrator",
        ])
        .args(["--profile=image", "--target", &target, "--target-dir"])
        .arg(&build)
        .env("CARGO_ENCODED_RUSTFLAGS", flags()?.join("\u{1f}"))
        .current_dir(layout::repository());
    let log = folder.join("build.log");
    fs::write(&log, "")?;
    process::run(&command, &log, BUILD_LIMIT, &mut |elapsed| {
        if elapsed.as_secs() % 30 == 0 {
            eprintln!("image: compiling for {} s", elapsed.as_secs());
        }
    })?;
    let program = build.join(target).join("image/orchestrator");
    ensure!(
        program.is_file(),
        "cargo built no '{}'; see '{}'",
        program.display(),
        log.display()
    );
    Ok(program)
}

/// The same sources give the same program wherever they lie, and it names no folder of who built it.
fn flags() -> Result<Vec<String>> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")))
        .context("no folder of Cargo: set CARGO_HOME or HOME")?;
    let repository = layout::repository().canonicalize()?;
    Ok(vec![
        "-Ctarget-feature=+crt-static".to_owned(),
        format!("--remap-path-prefix={}=/cargo", home.display()),
        format!("--remap-path-prefix={}=/orchestrator", repository.display()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> String {
        fs::read_to_string(layout::repository().join(path)).unwrap()
    }

    /// The chart looks for the image under the name that it is built with.
    #[test]
    fn the_chart_names_this_image() {
        let folder = tempfile::tempdir().unwrap();
        let image = declare(&folder.path().join("orchestrator")).unwrap();
        assert_eq!(
            image.reference(),
            format!("localhost/orchestrator:{VERSION}")
        );
        let values = read("charts/orchestrator/values.yaml");
        assert!(
            values.contains("\n  repository: localhost/orchestrator\n"),
            "{values}"
        );
        let chart = read("charts/orchestrator/Chart.yaml");
        let wanted = format!("\nappVersion: \"{VERSION}\"\n");
        assert!(chart.contains(&wanted), "{chart}");
    }

    /// The other way to build it uses the compiler that the project asks for.
    #[test]
    fn the_containerfile_has_the_rust_of_the_workspace() {
        let wanted = format!(
            "FROM docker.io/library/rust:{}.",
            env!("CARGO_PKG_RUST_VERSION")
        );
        let text = read("Containerfile");
        assert!(text.contains(&wanted), "no '{wanted}' in {text}");
        assert!(text.contains(&format!("localhost/orchestrator:{VERSION}")));
    }
}
