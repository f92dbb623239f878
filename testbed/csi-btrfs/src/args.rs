//! The command line, checked while it is parsed.

use std::path::PathBuf;

use clap::Parser;

/// A single-node CSI driver on btrfs subvolumes, for the test cluster.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    /// The driver's name, as the CSIDriver object and the storage classes give it
    #[arg(long, value_parser = driver_name)]
    pub(crate) name: String,
    /// An existing directory on a mounted btrfs: all of the driver's data and records live below it
    #[arg(long, value_parser = absolute)]
    pub(crate) root: PathBuf,
    /// The name of the Kubernetes node that this driver runs on
    #[arg(long, value_parser = node_name)]
    pub(crate) node: String,
    /// The unix socket to serve CSI on
    #[arg(long, value_parser = absolute)]
    pub(crate) endpoint: PathBuf,
    /// The unix socket, in the kubelet's plugins_registry, to announce the driver on
    #[arg(long, value_parser = absolute)]
    pub(crate) registration: Option<PathBuf>,
}

/// The rule of CSI for plugin names, which is also what a topology key's prefix may hold.
fn driver_name(text: &str) -> Result<String, String> {
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let outer = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    if text.len() <= 63
        && text.chars().all(inner)
        && outer(text.chars().next())
        && outer(text.chars().last())
    {
        Ok(text.to_owned())
    } else {
        Err(
            "wanted at most 63 letters, digits, '-' and '.', with a letter or digit first and last"
                .to_owned(),
        )
    }
}

/// The node's name is also a topology value, hence a label value.
fn node_name(text: &str) -> Result<String, String> {
    driver_name(text)
}

fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err("wanted an absolute path".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let long = "a".repeat(64);
        for (text, good) in [
            ("btrfs.tb", true),
            ("a", true),
            ("", false),
            ("-a", false),
            ("a.", false),
            ("a/b", false),
            ("..", false),
            (long.as_str(), false),
        ] {
            assert_eq!(driver_name(text).is_ok(), good, "{text:?}");
        }
    }

    #[test]
    fn arguments() {
        let parse = |root: &str| {
            Args::try_parse_from([
                "csi-btrfs",
                "--name=btrfs.tb",
                "--node=n",
                "--endpoint=/e.sock",
                &format!("--root={root}"),
            ])
        };
        assert!(parse("/data").is_ok_and(|args| args.registration.is_none()));
        assert!(parse("data").is_err());
    }
}
