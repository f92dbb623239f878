//! Sign-in of browsers: the token of the caller, encrypted in cookies. The server keeps nothing.

use std::{fmt, fs, io, path::Path, sync::Arc};

use api::Timestamp;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, header::COOKIE};
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand::{SecureRandom, SystemRandom},
};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::problem::{Problem, Reason};

/// Name of the cookies, without their number. Browsers accept this prefix only from the host itself,
/// over TLS, and for all paths.
const NAME: &str = "__Host-orc-session-";

/// Names of the files with the keys: the current one, and the one before it, if there is one.
const FILES: [&str; 2] = ["current", "previous"];

/// Minimum length of a key in a file, in bytes.
const KEY_LENGTH: usize = 32;

/// Maximum age of a session, in seconds.
const LIFETIME: i64 = 8 * 3600;

/// Maximum length of the value of a cookie. Browsers limit a cookie to 4096 bytes.
const PART: usize = 3800;

/// Maximum number of cookies. A token of 16 KiB needs six.
const PARTS: usize = 6;

/// The reason why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// A file is missing or unreadable.
    #[error("cannot read '{0}': {1}")]
    Unreadable(String, #[source] io::Error),
    /// A key is too short.
    #[error("'{0}' must have at least {KEY_LENGTH} bytes of random data")]
    Short(String),
}

/// The keys of sessions.
#[derive(Clone)]
pub struct Sessions {
    /// The first one encrypts.
    keys: Arc<Vec<LessSafeKey>>,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Sessions(…)")
    }
}

impl Sessions {
    /// Reads the files `current` and, if it exists, `previous` in this directory. Sessions of the
    /// previous key stay valid until they expire.
    ///
    /// # Errors
    /// A file is unreadable, or its key is too short.
    pub fn from_directory(directory: &Path) -> Result<Self, SessionError> {
        let mut keys = Vec::new();
        for name in FILES {
            let path = directory.join(name);
            let shown = path.display().to_string();
            match fs::read(&path) {
                Ok(secret) if secret.len() < KEY_LENGTH => return Err(SessionError::Short(shown)),
                Ok(secret) => keys.extend(key(&secret)),
                Err(error) if error.kind() == io::ErrorKind::NotFound && !keys.is_empty() => {}
                Err(error) => return Err(SessionError::Unreadable(shown, error)),
            }
        }
        Ok(Self {
            keys: Arc::new(keys),
        })
    }

    /// Returns the cookies of a session with this token, and the time at which it ends.
    ///
    /// # Errors
    /// The token has expired, or is too long.
    pub(crate) fn cookies(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<(Vec<String>, Timestamp), Problem> {
        let now = now.as_second();
        let latest = now.saturating_add(LIFETIME);
        let ends = expiry(token).map_or(latest, |expiry| expiry.min(latest));
        let refused = |detail: &str| Problem::new(Reason::Unauthenticated, detail);
        if ends <= now {
            return Err(refused("the token has expired"));
        }
        let sealed = self
            .seal(&format!("{ends}:{token}"))
            .ok_or_else(|| refused("the token cannot be encrypted"))?;
        let parts: Vec<&str> = pieces(&sealed);
        if parts.len() > PARTS {
            return Err(refused("the token is too long for cookies"));
        }
        let mut cookies: Vec<String> = parts
            .iter()
            .enumerate()
            .map(|(index, part)| cookie(index, part, ends.saturating_sub(now)))
            .collect();
        // Cookies of an earlier, longer token must not be appended to this one.
        cookies.extend((parts.len()..PARTS).map(|index| cookie(index, "", 0)));
        Ok((cookies, Timestamp::from_second(ends).unwrap_or_default()))
    }

    /// Returns the cookies that end a session.
    pub(crate) fn no_cookies() -> Vec<String> {
        (0..PARTS).map(|index| cookie(index, "", 0)).collect()
    }

    /// Returns the token in the cookies of a request. `None` without a valid session.
    pub(crate) fn token(&self, headers: &HeaderMap, now: Timestamp) -> Option<String> {
        let sealed = joined(headers)?;
        let opened = self.open(&sealed)?;
        let (ends, token) = opened.split_once(':')?;
        let ends: i64 = ends.parse().unwrap_or_default();
        (now.as_second() < ends).then(|| token.to_owned())
    }

    fn seal(&self, text: &str) -> Option<String> {
        let mut nonce = [0; NONCE_LEN];
        let is_random = SystemRandom::new().fill(&mut nonce).is_ok();
        let key = self.keys.first().filter(|_| is_random)?;
        let mut sealed = text.as_bytes().to_vec();
        let of_key = Nonce::assume_unique_for_key(nonce);
        let is_sealed = key
            .seal_in_place_append_tag(of_key, Aad::from(NAME), &mut sealed)
            .is_ok();
        is_sealed.then(|| URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat()))
    }

    fn open(&self, text: &str) -> Option<String> {
        let Ok(sealed) = URL_SAFE_NO_PAD.decode(text) else {
            return None;
        };
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_LEN>()?;
        for key in self.keys.iter() {
            let mut sealed = sealed.to_vec();
            let nonce = Nonce::assume_unique_for_key(*nonce);
            if let Ok(opened) = key.open_in_place(nonce, Aad::from(NAME), &mut sealed) {
                return Some(String::from_utf8_lossy(opened).into_owned());
            }
        }
        None
    }
}

/// Returns the key that follows from a secret of any length.
fn key(secret: &[u8]) -> Option<LessSafeKey> {
    let digest = Sha256::digest(secret);
    match UnboundKey::new(&AES_256_GCM, &digest) {
        Ok(key) => Some(LessSafeKey::new(key)),
        // The digest has the length of the key.
        Err(ring::error::Unspecified) => None,
    }
}

fn cookie(index: usize, value: &str, seconds: i64) -> String {
    format!("{NAME}{index}={value}; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age={seconds}")
}

fn pieces(text: &str) -> Vec<&str> {
    let (mut rest, mut pieces) = (text, Vec::new());
    while let Some((piece, more)) = rest.split_at_checked(PART) {
        pieces.push(piece);
        rest = more;
    }
    if !rest.is_empty() {
        pieces.push(rest);
    }
    pieces
}

/// Joins the cookies of a session. A name that occurs twice makes all of them invalid.
fn joined(headers: &HeaderMap) -> Option<String> {
    let mut parts: [Option<&str>; PARTS] = [None; PARTS];
    for header in headers.get_all(COOKIE) {
        let Ok(header) = header.to_str() else {
            return None;
        };
        for cookie in header.split(';') {
            let Some((name, value)) = cookie.trim().split_once('=') else {
                continue;
            };
            let Some(number) = name.strip_prefix(NAME) else {
                continue;
            };
            let mut slots = parts.iter_mut().enumerate();
            let (_, slot) = slots.find(|(index, _)| *number == *index.to_string())?;
            if slot.replace(value).is_some() {
                return None;
            }
        }
    }
    let all: String = parts.iter().flat_map(|part| part.iter().copied()).collect();
    (!all.is_empty()).then_some(all)
}

/// Returns the time at which a JSON Web Token expires. Only the API server verifies it.
fn expiry(token: &str) -> Option<i64> {
    #[derive(Deserialize)]
    struct Claims {
        exp: f64,
    }
    let payload = token.split('.').nth(1)?;
    let Ok(payload) = URL_SAFE_NO_PAD.decode(payload) else {
        return None;
    };
    match serde_json::from_slice::<Claims>(&payload) {
        Ok(claims) => Some(claims.exp as i64),
        Err(_no_claims) => None,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn sessions(secrets: &[&[u8]]) -> Sessions {
        let keys = secrets.iter().filter_map(|secret| key(secret)).collect();
        Sessions {
            keys: Arc::new(keys),
        }
    }

    fn now() -> Timestamp {
        Timestamp::from_second(NOW).unwrap()
    }

    /// Returns the header that a browser sends after these cookies were set.
    fn sent(cookies: &[String]) -> HeaderMap {
        let values: Vec<&str> = cookies
            .iter()
            .filter(|cookie| !cookie.ends_with("Max-Age=0"))
            .map(|cookie| cookie.split(';').next().unwrap())
            .collect();
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, HeaderValue::from_str(&values.join("; ")).unwrap());
        headers
    }

    fn jwt(exp: i64) -> String {
        let payload = URL_SAFE_NO_PAD.encode(format!(r#"{{"exp":{exp},"iss":"x"}}"#));
        format!("e30.{payload}.sig")
    }

    #[test]
    fn a_token_comes_back_from_its_cookies() {
        let sessions = sessions(&[&[1; 32]]);
        for token in ["abc".to_owned(), "x".repeat(16 * 1024), jwt(NOW + 60)] {
            let (cookies, _) = sessions.cookies(&token, now()).unwrap();
            assert_eq!(cookies.len(), PARTS);
            for cookie in &cookies {
                assert!(
                    cookie.len() <= 4096 && cookie.starts_with("__Host-"),
                    "{cookie}"
                );
                for attribute in ["Path=/", "Secure", "HttpOnly", "SameSite=Strict"] {
                    assert!(cookie.contains(attribute), "{cookie}");
                }
                assert!(!cookie.contains("abc"));
            }
            assert_eq!(sessions.token(&sent(&cookies), now()), Some(token));
        }
        assert!(sessions.cookies(&"x".repeat(18 * 1024), now()).is_err());
    }

    #[test]
    fn a_session_ends_with_its_token_or_after_eight_hours() {
        let sessions = sessions(&[&[1; 32]]);
        let ends = |token: &str| {
            let ends = sessions
                .cookies(token, now())
                .map(|(_, ends)| ends.as_second() - NOW);
            ends.map_err(|problem| problem.reason.status())
        };
        assert_eq!(ends("opaque"), Ok(LIFETIME));
        assert_eq!(ends(&jwt(NOW + 60)), Ok(60));
        assert_eq!(ends(&jwt(NOW + 99_999)), Ok(LIFETIME));
        assert_eq!(ends(&jwt(NOW)), Err(401));
        let (cookies, _) = sessions.cookies(&jwt(NOW + 60), now()).unwrap();
        let later = Timestamp::from_second(NOW + 60).unwrap();
        assert_eq!(sessions.token(&sent(&cookies), later), None);
    }

    #[test]
    fn only_the_current_and_the_previous_key_open_a_session() {
        let (old, new, other): (&[u8], &[u8], &[u8]) = (&[1; 32], &[2; 32], &[3; 32]);
        let (cookies, _) = sessions(&[old]).cookies("abc", now()).unwrap();
        let headers = sent(&cookies);
        assert!(sessions(&[new, old]).token(&headers, now()).is_some());
        assert_eq!(sessions(&[other, new]).token(&headers, now()), None);
    }

    #[test]
    fn a_forged_cookie_is_no_session() {
        let sessions = sessions(&[&[1; 32]]);
        let (cookies, _) = sessions.cookies("abc", now()).unwrap();
        let valid = sent(&cookies)[COOKIE].to_str().unwrap().to_owned();
        let flipped = format!("{}A", &valid[..valid.len() - 1]);
        let name = format!("{NAME}0=");
        for value in [
            format!("{valid}; {valid}"),
            flipped,
            name.clone(),
            format!("{name}AAAA"),
            format!("{name}\u{7f}"),
            valid.replace(NAME, "orc-session-"),
            format!("{NAME}9=AAAA; {valid}"),
        ] {
            let mut headers = HeaderMap::new();
            let Ok(header) = HeaderValue::from_bytes(value.as_bytes()) else {
                continue;
            };
            headers.insert(COOKIE, header);
            let found = sessions.token(&headers, now());
            assert!(found.is_none() || value == valid, "{value}");
        }
    }

    #[test]
    fn keys_are_files_of_a_secret() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert!(Sessions::from_directory(path).is_err());
        fs::write(path.join("current"), [7; 31]).unwrap();
        assert!(matches!(
            Sessions::from_directory(path),
            Err(SessionError::Short(_))
        ));
        fs::write(path.join("current"), [7; 32]).unwrap();
        assert_eq!(Sessions::from_directory(path).unwrap().keys.len(), 1);
        fs::write(path.join("previous"), [8; 40]).unwrap();
        let sessions = Sessions::from_directory(path).unwrap();
        assert_eq!(sessions.keys.len(), 2);
        assert_eq!(format!("{sessions:?}"), "Sessions(…)");
    }
}
