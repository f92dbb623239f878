//! Components beyond a tier, for the tests that ask for them.

use std::{fmt, str::FromStr};

use anyhow::{Context, Result};

/// Components that start on a cluster of the tier `node` only if a test needs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Addition {
    /// snapshot-controller, csi-snapshotter, their CRDs, and a VolumeSnapshotClass of the volume driver.
    Snapshots,
    /// Flux's source-, kustomize- and helm-controller with their CRDs.
    Flux,
    /// The images of the chart `shop`: PostgreSQL, and the app in its three versions.
    Shop,
    /// The image `notebook-base`, with a Jupyter kernel.
    Notebooks,
}

impl Addition {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Snapshots, Self::Flux, Self::Shop, Self::Notebooks];

    /// Name on the command line and in declarations of images.
    pub fn name(self) -> &'static str {
        match self {
            Self::Snapshots => "snapshots",
            Self::Flux => "flux",
            Self::Shop => "shop",
            Self::Notebooks => "notebooks",
        }
    }
}

impl fmt::Display for Addition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for Addition {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|addition| addition.name() == text)
            .with_context(|| {
                format!(
                    "no addition '{text}': one of {}",
                    Self::ALL.map(Self::name).join(", ")
                )
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for addition in Addition::ALL {
            assert_eq!(addition.name().parse::<Addition>().unwrap(), addition);
        }
        let error = "fluxx".parse::<Addition>().unwrap_err().to_string();
        assert!(
            error.contains("snapshots, flux, shop, notebooks"),
            "{error}"
        );
    }
}
