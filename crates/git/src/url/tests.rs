use proptest::{prelude::*, test_runner::RngSeed};
use testkit::seed::seed;

use super::*;

#[test]
fn names_in_known_hosts() {
    for (text, name) in [
        ("ssh://git@H.org/a", "h.org"),
        ("ssh://git@h.org:22/a", "h.org"),
        ("ssh://git@h.org:2222/a", "[h.org]:2222"),
        ("ssh://git@[2001:db8::1]/a", "2001:db8::1"),
        ("ssh://git@[2001:db8::1]:2222/a", "[2001:db8::1]:2222"),
    ] {
        assert_eq!(Url::parse(text, false).unwrap().known_host(), name);
    }
}

#[test]
fn parts_of_urls() {
    use Scheme::{Http, Https, Ssh};
    for (text, scheme, user, host, port, path, shown) in [
        (
            "https://git.example.org/a/b.git",
            Https,
            None,
            "git.example.org",
            443,
            "/a/b.git",
            "",
        ),
        (
            "https://git.example.org:8443/a/",
            Https,
            None,
            "git.example.org",
            8443,
            "/a/",
            "",
        ),
        (
            "HTTPS://GIT.Example.org:443/A",
            Https,
            None,
            "git.example.org",
            443,
            "/A",
            "https://git.example.org/A",
        ),
        (
            "https://dev.example.org/o/My%20P/_git/r",
            Https,
            None,
            "dev.example.org",
            443,
            "/o/My%20P/_git/r",
            "",
        ),
        (
            "https://[2001:DB8::1]:8443/a",
            Https,
            None,
            "2001:db8::1",
            8443,
            "/a",
            "https://[2001:db8::1]:8443/a",
        ),
        ("https://[::1]/a", Https, None, "::1", 443, "/a", ""),
        ("https://1.2.3.4/a", Https, None, "1.2.3.4", 443, "/a", ""),
        ("https://h/a:b@c", Https, None, "h", 443, "/a:b@c", ""),
        (
            "https://h/group/-/x",
            Https,
            None,
            "h",
            443,
            "/group/-/x",
            "",
        ),
        (
            "https://0x7f.example/a",
            Https,
            None,
            "0x7f.example",
            443,
            "/a",
            "",
        ),
        ("http://h:3000/a", Http, None, "h", 3000, "/a", ""),
        (
            "ssh://h/a",
            Ssh,
            Some("git"),
            "h",
            22,
            "/a",
            "ssh://git@h/a",
        ),
        (
            "ssh://me@h:2222/~me/a",
            Ssh,
            Some("me"),
            "h",
            2222,
            "/~me/a",
            "",
        ),
        (
            "ssh://git@[fd00::1]:22/a",
            Ssh,
            Some("git"),
            "fd00::1",
            22,
            "/a",
            "ssh://git@[fd00::1]/a",
        ),
        ("https://h:65535/a", Https, None, "h", 65535, "/a", ""),
    ] {
        let url = Url::parse(text, true).unwrap();
        assert_eq!(
            (url.scheme(), url.user(), url.host(), url.port(), url.path()),
            (scheme, user, host, port, path)
        );
        assert_eq!(url.to_string(), if shown.is_empty() { text } else { shown });
        assert_eq!(Url::parse(&url.to_string(), true), Ok(url));
    }
}

#[test]
fn what_is_refused_and_how_it_is_said() {
    let too_long = format!("https://h/{}", "a".repeat(LIMIT));
    let long_host = format!("https://{}/a", "a.".repeat(127));
    let long_label = format!("https://{}.org/a", "a".repeat(64));
    for (text, words) in [
        ("", "no scheme"),
        ("repository", "no scheme"),
        ("/srv/git/a", "no scheme"),
        ("./a:b", "no scheme"),
        (too_long.as_str(), "longer than"),
        ("--upload-pack=x", "begins with '-'"),
        ("-oProxyCommand=x:y", "begins with '-'"),
        ("http://h/a", "configuration"),
        ("git@h:a/b", "ssh://user@host/path"),
        ("h:a/b", "ssh://user@host/path"),
        ("file:///srv/git", "'file://'"),
        ("file:/srv/git", "'file:'"),
        ("git://h/a", "'git://'"),
        ("ftp://h/a", "'ftp://'"),
        ("git+ssh://h/a", "'git+ssh://'"),
        ("ext::sh -c x", "'ext:'"),
        ("ext::sh", "'ext:'"),
        ("https:/h/a", "'https:'"),
        ("https://me:secret@h/a", "belong in a Secret"),
        ("https://token@h/a", "belong in a Secret"),
        ("https://@h/a", "belong in a Secret"),
        ("https://h@evil/a", "belong in a Secret"),
        ("ssh://me:secret@h/a", "a password"),
        ("ssh://-oProxyCommand=x@h/a", "the user begins with '-'"),
        ("ssh://@h/a", "the user"),
        ("ssh://a%20b@h/a", "the user"),
        ("ssh://a@b@h/a", "the user"),
        ("ssh://-oProxyCommand=x/a", "the host begins with '-'"),
        ("https://-h/a", "the host begins with '-'"),
        ("https://h/-a", "the path begins with '-'"),
        ("https://h/%2da", "the path begins with '-'"),
        ("https://h/a?b", "no query"),
        ("https://h/a#b", "no fragment"),
        ("https://h/a b", "a space at byte 11"),
        ("https://h/a\u{a0}b", "a space"),
        ("https://h/a\tb", "a space"),
        ("https://h/a\0b", "a control character"),
        ("https://h/a\u{7f}b", "a control character"),
        ("https://h/a\u{1b}[1m", "a control character"),
        ("https://h\\a/b", "'\\'"),
        ("https://hé/b", "outside ASCII"),
        ("https://h", "no path"),
        ("https://h/", "no path"),
        ("https://h//", "no path"),
        ("https:///a", "it is empty"),
        ("https://:443/a", "it is empty"),
        ("https://h//a", "'//'"),
        ("https://h/../a", "'..'"),
        ("https://h/a/..", "'..'"),
        ("https://h/a/%2e%2E/b", "'..'"),
        ("https://h/a/.%2e/b", "'..'"),
        ("https://h/./a", "'.'"),
        ("https://h/a%2fb", "hides"),
        ("https://h/a%5cb", "hides"),
        ("https://h/a%0ab", "hides"),
        ("https://h/a%00b", "hides"),
        ("https://h/a%7fb", "hides"),
        ("https://h/a%", "'%'"),
        ("https://h/a%2", "'%'"),
        ("https://h/a%zz", "'%'"),
        ("https://h/a%+1", "'%'"),
        ("https://h%2fb/a", "only letters"),
        ("https://h%00/a", "only letters"),
        ("https://h!/a", "only letters"),
        ("https://h*/a", "only letters"),
        ("https://h./a", "each part"),
        ("https://a..b/a", "each part"),
        ("https://a.-b/a", "each part"),
        (long_host.as_str(), "253"),
        (long_label.as_str(), "each part"),
        ("https://127.1/a", "four decimal numbers"),
        ("https://0177.0.0.1/a", "four decimal numbers"),
        ("https://2130706433/a", "four decimal numbers"),
        ("https://0x7f000001/a", "four decimal numbers"),
        ("https://127.0.0.0x1/a", "four decimal numbers"),
        ("https://1.2.3.256/a", "four decimal numbers"),
        ("https://a.0x/a", "four decimal numbers"),
        ("https://::1/a", "a port"),
        ("https://[::1/a", "is not a host"),
        ("https://[::1]a/b", "a port"),
        ("https://[fe80::1%25eth0]/a", "without a zone"),
        ("https://[1.2.3.4]/a", "IPv6"),
        ("https://h:0/a", "a port"),
        ("https://h:/a", "a port"),
        ("https://h:65536/a", "a port"),
        ("https://h:+80/a", "a port"),
        ("https://h:8o/a", "a port"),
    ] {
        match Url::parse(text, false) {
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains(words), "{text}: {error}");
                assert!(
                    !error.contains("secret") && !error.contains("token"),
                    "{error}"
                );
                assert!(!error.contains(char::is_control), "{error:?}");
            }
            Ok(url) => panic!("{text} was taken for {url:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(seed().unwrap()), ..ProptestConfig::default() })]
    #[test]
    fn what_passes_comes_back_the_same(
        text in "(https|http|ssh)://([a-z@:.%-]{0,6}@)?[a-zA-Z0-9.:\\[\\]-]{0,12}(:[0-9]{0,6})?(/[ -~]{0,8}){0,3}",
    ) {
        if let Ok(url) = Url::parse(&text, true) {
            prop_assert_eq!(Url::parse(&url.to_string(), true), Ok(url));
        }
    }

    #[test]
    fn nothing_panics(text in "\\PC{0,60}|.{0,60}") {
        if let Ok(url) = Url::parse(&text, true) {
            prop_assert!(!url.host().starts_with('-'));
        }
    }
}
