//! The bearer token of a caller.

use std::fmt;

use http::{HeaderMap, HeaderValue, header::AUTHORIZATION};
use sha2::{Digest as _, Sha256};

use crate::problem::{Problem, Reason};

/// Maximum length of a token, in bytes. ID tokens with many groups have a few thousand.
const LIMIT: usize = 16 * 1024;

/// Hash of a token. Only the hash is kept after the request.
pub(crate) type Digest = [u8; 32];

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
    /// Reads the token from the header of a request.
    ///
    /// # Errors
    /// There is no token, or something else than one token.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let refused = |detail: &str| Problem::new(Reason::Unauthenticated, detail);
        let mut all = headers.get_all(AUTHORIZATION).iter();
        let value = all.next().ok_or_else(|| {
            refused("the header 'Authorization: Bearer TOKEN' is missing; 'kubectl create token' creates a token")
        })?;
        if all.next().is_some() {
            return Err(refused("the header 'Authorization' occurs twice"));
        }
        let (scheme, token) = value
            .as_bytes()
            .split_at_checked("Bearer ".len())
            .unwrap_or_default();
        let is_token = scheme.eq_ignore_ascii_case(b"Bearer ")
            && (1..=LIMIT).contains(&token.len())
            && token
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte));
        if !is_token {
            return Err(refused("the header 'Authorization' must be 'Bearer TOKEN'"));
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
}
