//! Arguments of the commands about applications.

use api::apps::ImageTag;
use clap::Args;

use super::WaitOptions;
use crate::target;

/// Parses an image with its new tag.
fn image(text: &str) -> Result<ImageTag, String> {
    let (name, tag) = text
        .split_once('=')
        .filter(|(name, tag)| !name.is_empty() && !tag.is_empty())
        .ok_or_else(|| format!("'{text}' is not of the form IMAGE=TAG"))?;
    Ok(ImageTag {
        name: name.to_owned(),
        tag: tag.to_owned(),
    })
}

/// `upgrade`
#[derive(Debug, Args)]
#[command(
    after_help = "Creates an UpgradeRequest. The operator suspends Flux, stops the workloads, takes snapshots of the volumes, pushes one commit, and waits until the application is healthy. If it fails before the commit, everything is as before. 'orc rollback' returns to the state before."
)]
pub(crate) struct UpgradeApp {
    /// Name of the ManagedApp
    #[arg(value_name = "APP", value_parser = target::app)]
    pub(crate) app: String,
    /// Version of the chart to upgrade to
    #[arg(long, value_name = "VERSION", required_unless_present = "images")]
    pub(crate) chart: Option<String>,
    /// Image to upgrade, with its new tag. Can be repeated
    #[arg(long = "image", value_name = "IMAGE=TAG", value_parser = image)]
    pub(crate) images: Vec<ImageTag>,
    /// Name of the UpgradeRequest [default: APP-VERSION and a random ending]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Make and report the plan only, without any change
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Take no snapshots: nothing is stopped, and a rollback returns only Git
    #[arg(long)]
    pub(crate) skip_snapshot: bool,
    /// Upgrade an application that is not healthy
    #[arg(long)]
    pub(crate) allow_unhealthy: bool,
    #[command(flatten)]
    pub(crate) wait_options: WaitOptions,
}

/// `rollback`
#[derive(Debug, Args)]
#[command(
    after_help = "Creates a RollbackRequest. It returns Git, the release and the volumes to the state before the upgrade. Data that was written after its snapshots is lost for the application; the replaced volumes are retained."
)]
pub(crate) struct RollBack {
    /// Name of the UpgradeRequest to roll back
    #[arg(value_name = "UPGRADE", value_parser = target::upgrade)]
    pub(crate) upgrade: String,
    /// Name of the RollbackRequest [default: UPGRADE-rollback and a random ending]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Make and report the plan only, without any change
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) wait_options: WaitOptions,
}

/// `approve` and `deny`
#[derive(Debug, Args)]
#[command(
    after_help = "The decision is stored in your name, and cannot be changed. You need the verb 'approve' on the ManagedApp. 'orc describe' shows the plan."
)]
pub(crate) struct Decide {
    /// Name of the UpgradeRequest that waits in phase Approval
    #[arg(value_name = "UPGRADE", value_parser = target::upgrade)]
    pub(crate) upgrade: String,
}

/// `history`
#[derive(Debug, Args)]
pub(crate) struct History {
    /// Name of the ManagedApp
    #[arg(value_name = "APP", value_parser = target::app)]
    pub(crate) app: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_a_name_and_a_tag() {
        let found = image("example.com:5000/shop=2.0@sha256:ab").unwrap();
        assert_eq!(
            (&*found.name, &*found.tag),
            ("example.com:5000/shop", "2.0@sha256:ab")
        );
        for wrong in ["shop", "shop:2.0", "=2.0", "shop=", ""] {
            assert!(image(wrong).unwrap_err().contains("IMAGE=TAG"), "{wrong}");
        }
    }
}
