//! The bearer token of a caller.

use std::fmt;

use api::Timestamp;
use http::{HeaderMap, HeaderName, HeaderValue, header::AUTHORIZATION};
use sha2::{Digest as _, Sha256};

use crate::{
    problem::{Problem, Reason},
    session::Sessions,
};

/// Maximum length of a token, in bytes. ID tokens with many groups have a few thousand.
const LIMIT: usize = 16 * 1024;

/// Hash of a token. Only the hash is kept after the request.
pub(crate) type Digest = [u8; 32];

/// Who sends the token with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The client itself: it knows the token.
    Client,
    /// A browser or a proxy, with each request to this server, whoever caused it.
    Browser,
}

/// A bearer token. Nothing prints it.
#[derive(Clone)]
pub(crate) struct Token {
    /// The header of requests to the API server.
    pub(crate) header: HeaderValue,
    /// Hash of the token.
    pub(crate) digest: Digest,
}

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Token(…)")
    }
}

impl Token {
    /// Finds the token of a request: in the header `Authorization`, in the header of an authenticating
    /// proxy, or in the cookies of a session.
    ///
    /// # Errors
    /// There is no token, or something else than one token.
    pub(crate) fn find(
        headers: &HeaderMap,
        proxy: Option<&HeaderName>,
        sessions: Option<&Sessions>,
        now: Timestamp,
    ) -> Result<(Self, Origin), Problem> {
        if headers.contains_key(AUTHORIZATION) {
            return Ok((Self::of(headers)?, Origin::Client));
        }
        if let Some(name) = proxy
            && let Some(value) = one(headers, name)?
        {
            return Ok((
                Self::parse(value.as_bytes(), name.as_str())?,
                Origin::Browser,
            ));
        }
        let session = sessions.and_then(|sessions| sessions.token(headers, now));
        match session {
            Some(token) => Ok((Self::parse(token.as_bytes(), "cookie")?, Origin::Browser)),
            None => Ok((Self::of(headers)?, Origin::Client)),
        }
    }

    /// Reads the token from the header `Authorization`.
    fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let value = one(headers, &AUTHORIZATION)?.ok_or_else(|| {
            refused("the header 'Authorization: Bearer TOKEN' is missing; 'kubectl create token' creates a token")
        })?;
        let (scheme, token) = value
            .as_bytes()
            .split_at_checked("Bearer ".len())
            .unwrap_or_default();
        if !scheme.eq_ignore_ascii_case(b"Bearer ") {
            return Err(refused("the header 'Authorization' must be 'Bearer TOKEN'"));
        }
        Self::parse(token, "authorization")
    }

    /// Checks the text of a token. `place` is where it comes from.
    pub(crate) fn parse(token: &[u8], place: &str) -> Result<Self, Problem> {
        let is_token = (1..=LIMIT).contains(&token.len())
            && token
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte));
        if !is_token {
            return Err(refused(&format!("'{place}' has no token")));
        }
        let mut header = HeaderValue::from_bytes(&[&b"Bearer "[..], token].concat())
            .map_err(|error| refused(&error.to_string()))?;
        header.set_sensitive(true);
        Ok(Self {
            header,
            digest: Sha256::digest(token).into(),
        })
    }
}

/// Returns the only value of a header.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, Problem> {
    let mut all = headers.get_all(name).iter();
    let value = all.next();
    match all.next() {
        Some(_) => Err(refused(&format!("the header '{name}' occurs twice"))),
        None => Ok(value),
    }
}

fn refused(detail: &str) -> Problem {
    Problem::new(Reason::Unauthenticated, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(all: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for value in all {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        let token = Token::of(&headers);
        let token = token.inspect_err(|problem| assert_eq!(problem.reason.status(), 401));
        match token {
            Ok(token) => Some(token.header.to_str().unwrap().to_owned()),
            Err(_) => None,
        }
    }

    #[test]
    fn one_bearer_token_is_forwarded() {
        let long = format!("Bearer {}", "x".repeat(LIMIT));
        let longer = format!("{long}x");
        let cases: [(&[&str], Option<&str>); 11] = [
            (&["Bearer abc.d-e_f~+/="], Some("Bearer abc.d-e_f~+/=")),
            (&["bearer abc"], Some("Bearer abc")),
            (&[&long], Some(&long)),
            (&[&longer], None),
            (&[], None),
            (&[""], None),
            (&["Bearer "], None),
            (&["Bearer a b"], None),
            (&["Bearer a, Bearer b"], None),
            (&["Basic YTpi"], None),
            (&["Bearer a", "Bearer b"], None),
        ];
        for (all, wanted) in cases {
            assert_eq!(read(all).as_deref(), wanted, "{all:?}");
        }
    }

    #[test]
    fn a_token_is_never_printed() {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer canary"));
        let token = Token::of(&headers).unwrap();
        let printed = format!("{token:?} {:?}", token.header);
        assert!(!printed.contains("canary"), "{printed}");
    }

    #[test]
    fn a_token_of_the_client_counts_before_others() {
        let proxy = HeaderName::from_static("x-auth-token");
        let now = Timestamp::UNIX_EPOCH;
        let find = |all: &[(&str, &str)], proxy: Option<&HeaderName>| {
            let mut headers = HeaderMap::new();
            for (name, value) in all {
                let name: HeaderName = name.parse().unwrap();
                headers.append(name, HeaderValue::from_str(value).unwrap());
            }
            let found = Token::find(&headers, proxy, None, now);
            let found = found.map(|(token, origin)| {
                let header = token.header.to_str().unwrap().to_owned();
                (header, origin)
            });
            found.map_err(|problem| problem.reason.status())
        };
        let of_proxy = ("x-auth-token", "abc");
        let bearer = ("authorization", "Bearer own");
        let browser = Ok(("Bearer abc".to_owned(), Origin::Browser));
        let client = Ok(("Bearer own".to_owned(), Origin::Client));
        assert_eq!(find(&[of_proxy], Some(&proxy)), browser);
        assert_eq!(find(&[of_proxy, bearer], Some(&proxy)), client);
        // Without a proxy in the configuration, its header means nothing.
        assert_eq!(find(&[of_proxy], None), Err(401));
        assert_eq!(find(&[of_proxy, of_proxy], Some(&proxy)), Err(401));
        assert_eq!(find(&[("x-auth-token", "a b")], Some(&proxy)), Err(401));
        assert_eq!(
            find(&[of_proxy, ("authorization", "Basic x")], Some(&proxy)),
            Err(401)
        );
    }
}
