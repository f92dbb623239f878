//! `cargo xtask image`: the operator as an image archive, without Docker and without a registry; and
//! the image that clones and pushes for it, for tests.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line talks by printing"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use crate::{
    build::cargo,
    cluster::Cluster,
    images::{self, DECLARATION, Image},
    layout,
    lock::Lock,
    process, runner_image,
};

/// Of the chart too: its `appVersion` is the tag that it looks for.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The chart's default: a name under which nothing can be pulled from anywhere. An image that was
/// not loaded does not start, instead of being somebody else's.
pub(crate) const REGISTRY: &str = "localhost";
/// Where people and the README find the newest one, from the repository.
const ARCHIVE: &str = "target/image/orchestrator.tar";
const TOOLBOX_ARCHIVE: &str = "target/image/orchestrator-toolbox.tar";

/// From an empty cache, an image compiles for six minutes on one core. CI compiles it at idle priority. Beside the build
/// of the test cluster, it took more than 30 minutes.
const BUILD_LIMIT: Duration = Duration::from_secs(60 * 60);

/// Names Cargo's profile for images: `image`, as users have it, if it is not set. CI sets `image-test`,
/// which compiles in a third of the time.
pub const PROFILE_VARIABLE: &str = "ORCHESTRATOR_IMAGE_PROFILE";
/// The profile that CI chooses.
pub const TEST_PROFILE: &str = "image-test";

fn profile() -> String {
    std::env::var(PROFILE_VARIABLE).unwrap_or_else(|_unset| "image".to_owned())
}

/// Returns whether images are compiled as users have them. Images of [`TEST_PROFILE`] have other sizes.
pub fn is_users_profile() -> bool {
    profile() != TEST_PROFILE
}

/// An image that was built.
pub struct Built {
    /// The archive.
    pub archive: PathBuf,
    /// The name that a node has it under.
    pub reference: String,
}

/// An image of the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Product {
    /// The operator.
    Operator,
    /// The steps in Pods.
    Toolbox,
    /// The notebook runner.
    Runner,
}

/// Builds an image of the product, and prints its location.
///
/// # Errors
/// When it cannot be built.
pub fn run(product: Product) -> Result<()> {
    let start = Instant::now();
    let (Built { archive, reference }, place) = match product {
        Product::Operator => (build()?, ARCHIVE),
        Product::Toolbox => (build_toolbox()?, TOOLBOX_ARCHIVE),
        Product::Runner => (runner_image::build()?, runner_image::ARCHIVE),
    };
    let megabytes = fs::metadata(archive)?.len() as f64 / 1e6;
    println!(
        "image {reference}: {megabytes:.1} MB in '{place}', {:.0} s",
        start.elapsed().as_secs_f64()
    );
    if !is_users_profile() {
        eprintln!("compiled with the profile '{TEST_PROFILE}': for tests, not for users");
    }
    Ok(())
}

/// Builds the toolbox and loads it on a cluster's node; the name that Pods use it under.
///
/// # Errors
/// When it cannot be built or loaded.
pub async fn load_toolbox(cluster: &Cluster) -> Result<String> {
    let Built { archive, reference } = tokio::task::spawn_blocking(build_toolbox).await??;
    cluster.load_image(&archive).await?;
    Ok(reference)
}

/// Builds the notebook runner and loads it on a cluster's node. Returns the name that Pods use it under.
///
/// # Errors
/// When it cannot be built or loaded.
pub async fn load_runner(cluster: &Cluster) -> Result<String> {
    let Built { archive, reference } = tokio::task::spawn_blocking(runner_image::build).await??;
    cluster.load_image(&archive).await?;
    Ok(reference)
}

/// Builds the image of the steps around a DocsRun's agent, as much of it as changed: the testbed's
/// toolbox with the program `step`. Not one of the testbed's own images: those are loaded at each
/// start of a cluster, and this one must be compiled first.
///
/// Caveats: needs root and the network, 25 s whenever the program changed. Its packages are those
/// of a test: it is not to be published.
///
/// # Errors
/// When it cannot be built.
pub fn build_toolbox() -> Result<Built> {
    let (folder, _lock) = work_folder()?;
    let program = compile(&folder, "step", "step")?;
    let image = declare_toolbox(&folder.join("declaration/orchestrator-toolbox"))?;
    let archive = images::build(
        &image,
        &folder.join("archives"),
        &|_source| Ok(program.clone()),
        &|step| eprintln!("{step}"),
    )?;
    Ok(Built {
        archive: placed(&archive, TOOLBOX_ARCHIVE)?,
        reference: image.reference(),
    })
}

/// Copies an archive to where it is told to be. Aside first: a reader sees the whole old one or the
/// whole new one.
pub(crate) fn placed(built: &Path, place: &str) -> Result<PathBuf> {
    let archive = layout::repository().join(place);
    let aside = archive.with_extension("new");
    fs::copy(built, &aside)
        .and_then(|_| fs::rename(&aside, &archive))
        .with_context(|| format!("cannot write '{}'", archive.display()))?;
    Ok(archive)
}

/// Where images are built, by one at a time.
pub(crate) fn work_folder() -> Result<(PathBuf, Lock)> {
    let archive = layout::repository().join(ARCHIVE);
    let folder = archive
        .parent()
        .with_context(|| format!("'{ARCHIVE}' has no folder"))?;
    fs::create_dir_all(folder)?;
    let lock = Lock::take(&folder.join("lock"), BUILD_LIMIT, &mut |holder| {
        eprintln!("waiting: {holder} is building the image")
    })?;
    Ok((folder.to_owned(), lock))
}

/// Compiles the operator as the image has it.
///
/// # Errors
/// When it does not compile.
pub fn operator() -> Result<PathBuf> {
    let (folder, _lock) = work_folder()?;
    compile(&folder, "operator", "orchestrator")
}

/// Builds the operator's image, as much of it as changed.
///
/// # Errors
/// When it cannot be built.
pub fn build() -> Result<Built> {
    let (folder, _lock) = work_folder()?;
    let program = compile(&folder, "operator", "orchestrator")?;
    let image = declare(&folder.join("declaration/orchestrator"))?;
    let built = images::build(
        &image,
        &folder.join("archives"),
        &|_source| Ok(program.clone()),
        &|_step| (),
    )?;
    Ok(Built {
        archive: placed(&built, ARCHIVE)?,
        reference: image.reference(),
    })
}

/// One static program, `/etc/passwd`, and the authorities that it trusts for public Git servers; the
/// tag is the version, hence no file in the repository.
fn declare(folder: &Path) -> Result<Image> {
    let declaration = format!(
        r#"tag = "{VERSION}"
files = [
  {{ from = "cargo:orchestrator", to = "/orchestrator" }},
  {{ from = "./authorities.crt", to = "/etc/ssl/certs/ca-certificates.crt" }},
]
entrypoint = ["/orchestrator"]
user = 65532
"#
    );
    fs::create_dir_all(folder)?;
    fs::write(folder.join("authorities.crt"), authorities()?)?;
    fs::write(folder.join(DECLARATION), declaration)?;
    Ok(Image::load(folder)?.in_registry(REGISTRY))
}

/// Debian's list as its package has it: not this machine's, which may trust more.
fn authorities() -> Result<Vec<u8>> {
    let folder = Path::new("/usr/share/ca-certificates/mozilla");
    let read = || -> std::io::Result<Vec<u8>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(folder)? {
            files.push(entry?.path());
        }
        files.sort();
        let mut bundle = Vec::new();
        for file in files {
            bundle.extend(fs::read(file)?);
        }
        Ok(bundle)
    };
    let bundle = read().with_context(|| {
        format!(
            "cannot read '{}' (package ca-certificates)",
            folder.display()
        )
    })?;
    ensure!(!bundle.is_empty(), "'{}' is empty", folder.display());
    Ok(bundle)
}

/// The testbed's toolbox under the tag of this version, and one file more.
fn declare_toolbox(folder: &Path) -> Result<Image> {
    let toolbox = layout::testbed().join("images/toolbox");
    fs::create_dir_all(folder)?;
    for entry in fs::read_dir(&toolbox)? {
        let entry = entry?;
        fs::copy(entry.path(), folder.join(entry.file_name()))?;
    }
    let declaration = fs::read_to_string(toolbox.join(DECLARATION))?;
    let (tag, file) = (
        "tag = \"1\"\n",
        r#"files = [{ from = "cargo:step", to = "/usr/local/bin/step" }]"#,
    );
    ensure!(declaration.contains(tag), "the toolbox has another tag");
    let declaration = declaration.replace(tag, &format!("tag = \"{VERSION}\"\n"));
    fs::write(folder.join(DECLARATION), format!("{declaration}{file}\n"))?;
    Ok(Image::load(folder)?.in_registry(REGISTRY))
}

/// A binary of the workspace as a program that needs no library of the image.
///
/// In a target folder of its own: other flags in the ordinary one would throw away what is there.
/// The target is named, though it is this machine's, because flags then do not reach build scripts
/// and macros, which cannot be static.
fn compile(folder: &Path, package: &str, binary: &str) -> Result<PathBuf> {
    let (target, profile) = (
        format!("{}-unknown-linux-gnu", std::env::consts::ARCH),
        profile(),
    );
    let build = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(shared) => PathBuf::from(shared).join("image"),
        None => folder.join("build"),
    };
    let mut command = cargo(&["build", "--locked", "--package", package, "--bin", binary]);
    command
        .args(["--profile", &profile, "--target", &target, "--target-dir"])
        .arg(&build)
        .env("CARGO_ENCODED_RUSTFLAGS", flags()?.join("\u{1f}"));
    let log = folder.join("build.log");
    fs::write(&log, "")?;
    process::run(&command, &log, BUILD_LIMIT, &mut |elapsed| {
        if elapsed.as_secs() % 30 == 0 {
            eprintln!("image: compiling for {} s", elapsed.as_secs());
        }
    })?;
    let program = build.join(target).join(&profile).join(binary);
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

    #[test]
    fn the_toolbox_of_this_version_has_the_step_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let image = declare_toolbox(&folder.path().join("orchestrator-toolbox")).unwrap();
        let wanted = format!("localhost/orchestrator-toolbox:{VERSION}");
        assert_eq!(image.reference(), wanted);
        assert_eq!(image.sources().collect::<Vec<_>>(), ["cargo:step"]);
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
