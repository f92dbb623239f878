use super::*;

#[test]
fn what_is_missing_is_read_from_the_kubelets_words() {
    let thing =
        |kind, name: &str, key: Option<&str>| Some((kind, name.to_owned(), key.map(str::to_owned)));
    for (message, expected) in [
        ("secret \"token\" not found", thing("Secret", "token", None)),
        (
            "configmap \"c.d\" not found",
            thing("ConfigMap", "c.d", None),
        ),
        (
            "MountVolume.SetUp failed for volume \"a\" : secret \"s\" not found",
            thing("Secret", "s", None),
        ),
        (
            "couldn't find key k in Secret team/token",
            thing("Secret", "token", Some("k")),
        ),
        (
            "couldn't find key a.b in ConfigMap team/map",
            thing("ConfigMap", "map", Some("a.b")),
        ),
        ("something else", None),
    ] {
        assert_eq!(missing_thing(message), expected, "{message}");
    }
}
