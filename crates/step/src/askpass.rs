//! Gives git the password. git calls this program, which responds only for the URL's own server. The
//! password is in no argument, no variable, no configuration and no URL.

use git::{Credentials, Url};

/// The variable that makes this program answer git's prompt. Its value is the directory of the Secret.
pub(crate) const FOLDER: &str = "STEP_ASKPASS";
/// The variable with the URL that may be answered for.
pub(crate) const URL: &str = "STEP_ASKPASS_URL";

/// Returns the response to git's prompt if it is about this URL.
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

/// Returns whether `https://[user@]host[:port]` is the URL's server.
fn same_server(asked: &str, url: &Url) -> bool {
    let Some((scheme, rest)) = asked.split_once("://") else {
        return false;
    };
    let server = rest.rsplit_once('@').map_or(rest, |(_, server)| server);
    // Parsing normalizes both URLs.
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
