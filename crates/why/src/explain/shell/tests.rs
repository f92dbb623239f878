use super::*;

#[test]
fn a_word_stays_one_word() {
    for (text, wanted) in [
        ("https://git.example/a/b.git", "https://git.example/a/b.git"),
        ("refs/heads/docs/x", "refs/heads/docs/x"),
        ("refs/heads/a#1", "'refs/heads/a#1'"),
        ("https://a/$(reboot)", "'https://a/$(reboot)'"),
        ("https://a/';reboot", "'https://a/'\\'';reboot'"),
        ("-o", "'-o'"),
        ("", "''"),
    ] {
        assert_eq!(word(text), wanted);
    }
}

#[test]
fn the_server_of_an_ssh_address() {
    for (url, wanted) in [
        ("ssh://git@git.example/a/b", Some(("git.example", "22"))),
        ("ssh://git.example:2222/a", Some(("git.example", "2222"))),
        ("ssh://git@[fd00::1]:2222/a", Some(("fd00::1", "2222"))),
        ("ssh://git@[fd00::1]/a", Some(("fd00::1", "22"))),
        ("https://git.example/a", None),
        ("ssh:///a", None),
    ] {
        assert_eq!(server(url), wanted, "{url}");
    }
}
