//! Versions of an application, as the live objects of Flux show them.

use std::collections::BTreeMap;

use api::apps::{AppliedRevision, DeployedRelease};

use crate::flux::{DEPLOYED, HelmReleaseView, KustomizationView};

/// Key of the chart in [`AppliedRevision::versions`].
const CHART: &str = "chart";

/// Returns the revision that was applied last, and the versions that the applied objects request.
#[must_use]
pub fn applied(
    kustomization: &KustomizationView,
    release: Option<&HelmReleaseView>,
) -> Option<AppliedRevision> {
    let requested = release.and_then(|release| release.requested.clone());
    Some(AppliedRevision {
        revision: kustomization.revision.clone()?,
        versions: requested
            .map(|version| (CHART.to_owned(), version))
            .into_iter()
            .collect::<BTreeMap<_, _>>(),
    })
}

/// Returns the newest release, also if it failed: its status shows whether it is in use.
#[must_use]
pub fn deployed(release: &HelmReleaseView) -> Option<DeployedRelease> {
    let newest = release.newest.as_ref()?;
    Some(DeployedRelease {
        name: newest.name.clone(),
        version: newest.version,
        status: Some(newest.status.clone()),
        chart_version: newest.chart_version.clone(),
        app_version: newest.app_version.clone(),
        config_digest: newest.config_digest.clone(),
    })
}

/// Returns whether the requested version of the chart is deployed, or `None` for a range. A release that failed is not
/// deployed, whatever its version is.
#[must_use]
pub fn is_deployed(release: &HelmReleaseView) -> Option<bool> {
    let requested = exact(release.requested.as_deref()?)?;
    let deployed = release.newest.as_ref();
    let deployed = deployed.filter(|newest| newest.status == DEPLOYED);
    let deployed = deployed.and_then(|newest| exact(&newest.chart_version));
    Some(deployed == Some(requested))
}

/// Returns a version without its prefix `v` and its build metadata, or `None` for a range. For a chart from an OCI
/// registry, Flux appends a digest as build metadata.
pub(crate) fn exact(version: &str) -> Option<&str> {
    let version = version.trim();
    let version = version.strip_prefix('v').unwrap_or(version);
    let version = version.split('+').next().unwrap_or(version);
    let core = version.split('-').next().unwrap_or(version);
    let numbers: Vec<&str> = core.split('.').collect();
    let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|one| one.is_ascii_digit());
    let is_plain = |text: &str| {
        let mut bytes = text.bytes();
        bytes.all(|one| one.is_ascii_alphanumeric() || matches!(one, b'.' | b'-'))
    };
    (numbers.len() == 3 && numbers.iter().all(is_number) && is_plain(version)).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flux::ReleaseEntry;

    fn release(requested: Option<&str>, deployed: Option<&str>) -> HelmReleaseView {
        HelmReleaseView {
            requested: requested.map(str::to_owned),
            newest: deployed.map(|version| ReleaseEntry {
                status: DEPLOYED.to_owned(),
                chart_version: version.to_owned(),
                ..ReleaseEntry::default()
            }),
            ..HelmReleaseView::default()
        }
    }

    #[test]
    fn versions_match_if_the_requested_one_is_deployed() {
        for (requested, deployed, expected) in [
            (Some("1.2.3"), Some("1.2.3"), Some(true)),
            (Some("v1.2.3"), Some("1.2.3"), Some(true)),
            (Some("1.2.3"), Some("1.2.3+a1b2c3"), Some(true)),
            (Some("1.2.3-rc.1"), Some("1.2.3-rc.1"), Some(true)),
            (Some("1.2.3-rc.1"), Some("1.2.3"), Some(false)),
            (Some("2.0.0"), Some("1.2.3"), Some(false)),
            (Some("2.0.0"), None, Some(false)),
            // A range is satisfied by many versions.
            (Some("1.x"), Some("1.2.3"), None),
            (Some("*"), Some("1.2.3"), None),
            (Some("^1.2.3"), Some("1.2.3"), None),
            (Some(">=1.2.3 <2.0.0"), Some("1.2.3"), None),
            (Some("1.2.3 - 2.0.0"), Some("1.2.3"), None),
            (Some("1.2"), Some("1.2.0"), None),
            (None, Some("1.2.3"), None),
        ] {
            let found = is_deployed(&release(requested, deployed));
            assert_eq!(found, expected, "{requested:?}, {deployed:?}");
        }
    }

    /// Helm stores a release that failed with the version of the new chart, which does not run.
    #[test]
    fn a_release_that_is_not_deployed_does_not_match() {
        for (status, expected) in [
            ("deployed", true),
            ("failed", false),
            ("pending-upgrade", false),
            ("superseded", false),
            ("", false),
        ] {
            let mut found = release(Some("2.0.0"), Some("2.0.0"));
            if let Some(newest) = &mut found.newest {
                newest.status = status.to_owned();
            }
            assert_eq!(is_deployed(&found), Some(expected), "{status}");
            let reported = deployed(&found).unwrap();
            assert_eq!(reported.status.as_deref(), Some(status));
        }
    }

    /// R31: the version is known before the first upgrade, from Git and from the live release.
    #[test]
    fn r31_the_versions_are_those_of_the_live_objects() {
        let mut kustomization = KustomizationView::default();
        let helm = release(Some("2.0.0"), Some("1.0.0"));
        assert_eq!(applied(&kustomization, Some(&helm)), None);
        kustomization.revision = Some("main@sha1:0123".to_owned());
        let found = applied(&kustomization, Some(&helm)).unwrap();
        assert_eq!(found.revision, "main@sha1:0123");
        assert_eq!(found.versions[CHART], "2.0.0");
        assert_eq!(applied(&kustomization, None).unwrap().versions.len(), 0);
        assert_eq!(deployed(&helm).unwrap().chart_version, "1.0.0");
        assert_eq!(deployed(&release(Some("2.0.0"), None)), None);
    }
}
