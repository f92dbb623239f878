//! Which part of a cluster one play is: its names in words that are the same each time, and what its
//! operators see of kinds that belong to no namespace.

use http::Uri;

use super::super::classify::Asked;

/// The label of a play's cluster-scoped objects; its value is the play's own namespace.
pub const PLAY: &str = "orchestrator-test/play";

/// What stands for a play's own namespace in the names of its objects.
const WORD: &str = "play";

/// The digits of a name's last part, if that is a hash of ours.
const HASH: usize = 10;

/// A play among others in one cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// The play's own namespace: a part of the names of all that is its.
    pub home: String,
    /// Plurals of cluster-scoped kinds of which its operators see only what carries its label.
    pub selected: &'static [&'static str],
}

impl Part {
    /// An object's name without what differs from play to play.
    pub(super) fn plain(&self, asked: &mut Asked) {
        if !self.home.is_empty() && asked.name.contains(&self.home) {
            asked.name = asked.name.replace(&self.home, WORD);
        }
        let is_pod = asked.route.resource == "pods";
        if let Some((head, tail)) = asked.name.rsplit_once('-')
            && is_pod
            && tail.len() == HASH
            && tail.chars().all(|one| one.is_ascii_hexdigit())
        {
            asked.name = [head, "-hash"].concat();
        }
    }

    /// Returns whether a line of a watch is about an object of the play. Operators also see objects of other plays.
    pub(super) fn is_own(&self, line: &[u8]) -> bool {
        let home = self.home.as_bytes();
        home.is_empty() || line.windows(home.len()).any(|part| part == home)
    }

    /// The address of a list or watch that shows the play's own; nothing where all is shown.
    pub(super) fn selection(&self, asked: &Asked, uri: &Uri) -> Option<Uri> {
        let is_many = matches!(asked.route.verb.as_str(), "list" | "watch");
        if !is_many || !self.selected.contains(&asked.route.resource.as_str()) {
            return None;
        }
        let label = format!("{}%3D{}", PLAY.replace('/', "%2F"), self.home);
        let mut has_selector = false;
        let mut pairs: Vec<String> = uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| match pair.strip_prefix("labelSelector=") {
                Some(known) if !known.is_empty() => {
                    has_selector = true;
                    format!("labelSelector={known}%2C{label}")
                }
                Some(_) | None => pair.to_owned(),
            })
            .collect();
        if !has_selector {
            pairs.push(format!("labelSelector={label}"));
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a label of letters and hyphens makes no address wrong that was right"
        )]
        let selected = format!("{}?{}", uri.path(), pairs.join("&")).parse().ok();
        selected
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::{super::super::classify::classify, *};

    fn part() -> Part {
        Part {
            home: "f-bare-x7k2q".to_owned(),
            selected: &["tenants"],
        }
    }

    #[test]
    fn names_are_the_same_in_every_play() {
        let named = |path: &str| {
            let uri = path.parse().unwrap();
            let mut asked = classify(&Method::GET, &uri, b"");
            part().plain(&mut asked);
            asked.name
        };
        assert_eq!(
            named("/api/v1/namespaces/tenant-f-bare-x7k2q-a"),
            "tenant-play-a"
        );
        assert_eq!(
            named("/api/v1/namespaces/n/pods/probe-f-bare-x7k2q-a-inside-0123456789"),
            "probe-play-a-inside-hash"
        );
        assert_eq!(
            named("/api/v1/namespaces/n/configmaps/a-0123456789"),
            "a-0123456789"
        );
    }

    #[test]
    fn lines_about_the_play_name_its_namespace() {
        let line = br#"{"type":"ADDED","object":{"metadata":{"name":"tenant-f-bare-x7k2q-a"}}}"#;
        assert!(part().is_own(line));
        assert!(!part().is_own(br#"{"object":{"metadata":{"name":"tenant-f-bare-y-a"}}}"#));
        assert!(!part().is_own(b""));
        assert!(Part::default().is_own(b""));
    }

    #[test]
    fn a_play_sees_its_own() {
        let label = "orchestrator-test%2Fplay%3Df-bare-x7k2q";
        for (path, wanted) in [
            (
                "/apis/orchestrator.io/v1alpha1/tenants",
                Some(format!(
                    "/apis/orchestrator.io/v1alpha1/tenants?labelSelector={label}"
                )),
            ),
            (
                "/apis/orchestrator.io/v1alpha1/tenants?watch=true&labelSelector=a%3Db&limit=5",
                Some(format!(
                    "/apis/orchestrator.io/v1alpha1/tenants?watch=true&labelSelector=a%3Db%2C{label}&limit=5"
                )),
            ),
            ("/apis/orchestrator.io/v1alpha1/tenants/a", None),
            ("/api/v1/namespaces", None),
        ] {
            let uri: Uri = path.parse().unwrap();
            let asked = classify(&Method::GET, &uri, b"");
            let found = part().selection(&asked, &uri);
            assert_eq!(found.map(|uri| uri.to_string()), wanted, "{path}");
        }
    }
}
