//! How git gets the password: it calls this program, which answers only for the URL's own server.
//! The password is in no argument, no variable, no configuration and no URL.

use git::{Credentials, Url};

/// The variable that makes this program answer git; its value is the Secret's folder.
pub(crate) const FOLDER: &str = "STEP_ASKPASS";
/// The URL that may be answered for.
pub(crate) const URL: &str = "STEP_ASKPASS_URL";

/// The answer to git's question, if it is one about this URL.
pub(crate) fn answer(question: &str, url: &Url, credentials: &Credentials) -> Option<String> {
    let Credentials::Http {
        login: Some(login), ..
    } = credentials
    else {
        return None;
    };
    let (what, rest) = question.split_once(" for '")?;
    let asked = rest.strip_suffix("': ")?;
    if !same_server(asked, url) {
        return None;
    }
    match what {
        "Username" => Some(login.username.clone()),
        "Password" => Some(login.password.clone()),
        _ => None,
    }
}

/// Whether `https://[user@]host[:port]` is the URL's server.
fn same_server(asked: &str, url: &Url) -> bool {
    let Some((scheme, rest)) = asked.split_once("://") else {
        return false;
    };
    let server = rest.rsplit_once('@').map_or(rest, |(_, server)| server);
    // As a URL it is compared in one way of writing it.
    Url::parse(&format!("{scheme}://{server}/x"), true).is_ok_and(|asked| {
        (asked.scheme(), asked.host(), asked.port()) == (url.scheme(), url.host(), url.port())
    })
}

#[cfg(test)]
mod tests {
    use git::credentials::Login;

    use super::*;

    #[test]
    fn only_the_own_server_is_answered() {
        let credentials = Credentials::Http {
            login: Some(Login {
                username: "me".to_owned(),
                password: "hush".to_owned(),
            }),
            authorities: None,
        };
        let plain = "https://git.example.org/a";
        let port = "https://git.example.org:8443/a";
        for (url, question, wanted) in [
            (
                plain,
                "Username for 'https://git.example.org': ",
                Some("me"),
            ),
            (
                plain,
                "Password for 'https://me@git.example.org': ",
                Some("hush"),
            ),
            (
                plain,
                "Password for 'https://me@git.example.org:443': ",
                Some("hush"),
            ),
            (
                port,
                "Password for 'https://me@git.example.org:8443': ",
                Some("hush"),
            ),
            (
                port,
                "Password for 'https://a%40b@git.example.org:8443': ",
                Some("hush"),
            ),
            (port, "Password for 'https://me@git.example.org': ", None),
            (plain, "Password for 'http://me@git.example.org': ", None),
            (
                plain,
                "Password for 'https://me@git.example.org.evil.org': ",
                None,
            ),
            (
                plain,
                "Password for 'https://git.example.org@evil.org': ",
                None,
            ),
            (
                plain,
                "Password for 'https://evil.org/git.example.org': ",
                None,
            ),
            (plain, "Passphrase for 'https://git.example.org': ", None),
            (plain, "Enter passphrase for key: ", None),
            (plain, "", None),
        ] {
            let url = Url::parse(url, false).unwrap();
            let found = answer(question, &url, &credentials);
            assert_eq!(found.as_deref(), wanted, "{question}");
        }
    }
}
