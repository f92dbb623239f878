//! The content of a Secret for a Git server. The keys are those of Flux.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::Scheme;

/// Maximum lengths of values in bytes, far above common sizes.
const LOGIN_LIMIT: usize = 16 * 1024;
const FILE_LIMIT: usize = 256 * 1024;

/// Minimum length of a username that is masked. Some users put tokens there, but a short name such as `git`
/// is no secret.
const TOKEN_LENGTH: usize = 20;

/// The replacement of a secret in [`mask`].
const MASK: &str = "***";

/// The content of a Secret for a Git server. `Debug` shows which parts exist, never their content.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// Credentials for http and https.
    Http {
        /// `username` and `password`.
        login: Option<Login>,
        /// `ca.crt`, PEM. If it exists, only certificates issued by these authorities are trusted.
        authorities: Option<String>,
    },
    /// Credentials for ssh.
    Ssh {
        /// `identity`: a private key without a passphrase, PEM.
        identity: String,
        /// `known_hosts`, in the format of ssh's file of this name.
        known_hosts: String,
    },
}

/// A username and a password. `Debug` shows neither.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The username, without `:`.
    pub username: String,
    /// The password or token.
    pub password: String,
}

/// The reason why a Secret's content cannot be used. No variant repeats content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// A key is missing.
    #[error("the Secret has no key '{0}', which {1}:// needs{2}")]
    Missing(&'static str, &'static str, &'static str),
    /// No key is for this scheme.
    #[error("the Secret has no key that {0}:// uses: {1}")]
    Unrelated(&'static str, &'static str),
    /// An unsupported key.
    #[error("the Secret's key '{0}' is not supported: {1}")]
    Unsupported(&'static str, &'static str),
    /// A value that cannot be used.
    #[error("the Secret's key '{0}' cannot be used: {1}")]
    Value(&'static str, &'static str),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { login, authorities } => formatter
                .debug_struct("Http")
                .field("login", &login.is_some())
                .field("authorities", &authorities.is_some())
                .finish(),
            Self::Ssh { .. } => formatter.write_str("Ssh"),
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Login")
    }
}

impl Credentials {
    /// Reads the data of a Secret for a URL of this scheme. Without a Secret, the data is empty. https
    /// works without credentials, ssh does not. Other keys are ignored.
    ///
    /// # Errors
    /// When a key is missing or cannot be used.
    pub fn from_data(
        scheme: Scheme,
        data: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Self, CredentialsError> {
        match scheme {
            Scheme::Http | Scheme::Https => http(scheme, data),
            Scheme::Ssh => ssh(data),
        }
    }
}

fn http(scheme: Scheme, data: &BTreeMap<String, Vec<u8>>) -> Result<Credentials, CredentialsError> {
    for (key, instead) in [
        (
            "bearerToken",
            "put the token under 'password', with any 'username'",
        ),
        ("tls.key", "client certificates are not used"),
    ] {
        if data.contains_key(key) {
            return Err(CredentialsError::Unsupported(key, instead));
        }
    }
    let both = " together with the other of 'username' and 'password'";
    let login = match (
        login_value(data, "username")?,
        login_value(data, "password")?,
    ) {
        (Some(username), Some(password)) => Some(Login { username, password }),
        (None, None) => None,
        (None, Some(_)) => {
            return Err(CredentialsError::Missing("username", scheme.as_str(), both));
        }
        (Some(_), None) => {
            return Err(CredentialsError::Missing("password", scheme.as_str(), both));
        }
    };
    if login
        .as_ref()
        .is_some_and(|login| login.username.contains(':'))
    {
        return Err(CredentialsError::Value("username", "it holds ':'"));
    }
    let authorities = file_value(data, "ca.crt")?;
    if let Some(pem) = &authorities {
        if scheme == Scheme::Http {
            return Err(CredentialsError::Unsupported(
                "ca.crt",
                "http:// has no certificates",
            ));
        }
        check_certificates(pem)?;
    }
    if login.is_none() && authorities.is_none() && !data.is_empty() {
        let keys = "'username' and 'password', or 'ca.crt', or all three";
        return Err(CredentialsError::Unrelated(scheme.as_str(), keys));
    }
    Ok(Credentials::Http { login, authorities })
}

fn ssh(data: &BTreeMap<String, Vec<u8>>) -> Result<Credentials, CredentialsError> {
    let missing = |key, words| CredentialsError::Missing(key, "ssh", words);
    let identity = file_value(data, "identity")?
        .ok_or_else(|| missing("identity", ": a private key without a passphrase"))?;
    let known_hosts = file_value(data, "known_hosts")?.ok_or_else(|| {
        missing(
            "known_hosts",
            ": the host keys, as 'ssh-keyscan' prints them",
        )
    })?;
    check_identity(&identity)?;
    // ssh does not read a key without the last newline, or with line endings of another system.
    let identity = format!("{}\n", identity.replace("\r\n", "\n").trim());
    Ok(Credentials::Ssh {
        identity,
        known_hosts,
    })
}

fn login_value(
    data: &BTreeMap<String, Vec<u8>>,
    key: &'static str,
) -> Result<Option<String>, CredentialsError> {
    let Some(text) = text_value(data, key, LOGIN_LIMIT)? else {
        return Ok(None);
    };
    if text.ends_with('\n') {
        let why = "it ends with a newline, which is hardly meant; make it with 'echo -n' or '--from-literal'";
        return Err(CredentialsError::Value(key, why));
    }
    if text.contains(char::is_control) {
        return Err(CredentialsError::Value(key, "it holds a control character"));
    }
    Ok(Some(text))
}

fn file_value(
    data: &BTreeMap<String, Vec<u8>>,
    key: &'static str,
) -> Result<Option<String>, CredentialsError> {
    text_value(data, key, FILE_LIMIT)
}

fn text_value(
    data: &BTreeMap<String, Vec<u8>>,
    key: &'static str,
    limit: usize,
) -> Result<Option<String>, CredentialsError> {
    let Some(bytes) = data.get(key) else {
        return Ok(None);
    };
    if bytes.len() > limit {
        return Err(CredentialsError::Value(key, "it is too long"));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if text.trim().is_empty() => Err(CredentialsError::Value(key, "it is empty")),
        Ok(text) => Ok(Some(text.to_owned())),
        Err(_) => Err(CredentialsError::Value(key, "it is not text")),
    }
}

fn check_certificates(pem: &str) -> Result<(), CredentialsError> {
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        if certificate.is_err() {
            return Err(CredentialsError::Value(
                "ca.crt",
                "a certificate in it is damaged",
            ));
        }
        count += 1;
    }
    if count == 0 {
        return Err(CredentialsError::Value(
            "ca.crt",
            "it holds no PEM certificate",
        ));
    }
    Ok(())
}

/// Checks the key without reading it: that it is a private key, and that it is not encrypted.
fn check_identity(pem: &str) -> Result<(), CredentialsError> {
    const ENCRYPTED: &str = "it is encrypted with a passphrase; a key without one is needed";
    let wrong = |why| Err(CredentialsError::Value("identity", why));
    let Some(begin) = pem
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with("-----BEGIN "))
    else {
        return wrong("it is not a private key in PEM form");
    };
    let is_private = begin.ends_with(" PRIVATE KEY-----") || begin == "-----BEGIN PRIVATE KEY-----";
    if !is_private {
        return wrong("it is not a private key; a public one or a certificate cannot log in");
    }
    if begin.contains("ENCRYPTED") || pem.contains("Proc-Type: 4,ENCRYPTED") {
        return wrong(ENCRYPTED);
    }
    if begin == "-----BEGIN OPENSSH PRIVATE KEY-----" {
        let Ok(bytes) = STANDARD.decode(body_lines(pem).collect::<String>()) else {
            return wrong("it is damaged");
        };
        // The format: a magic string, then the name of the cipher with its length.
        let Some(after) = bytes.strip_prefix(b"openssh-key-v1\0") else {
            return wrong("it is damaged");
        };
        if !after.starts_with(b"\0\0\0\x04none") {
            return wrong(ENCRYPTED);
        }
    }
    Ok(())
}

/// Returns the lines of PEM that contain the key itself.
fn body_lines(pem: &str) -> impl Iterator<Item = &str> {
    pem.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.contains([':', '-']))
}

/// Replaces each occurrence of the password and of any line of the identity with `***`. The password is
/// also found as it is transferred: percent-encoded, or in a Basic header.
#[must_use]
pub fn mask(text: &str, credentials: &Credentials) -> String {
    let mut secrets: Vec<String> = match credentials {
        Credentials::Http { login: None, .. } => Vec::new(),
        Credentials::Http {
            login: Some(login), ..
        } => {
            let Login { username, password } = login;
            let mut secrets = vec![
                STANDARD.encode(format!("{username}:{password}")),
                percent_encoded(password),
                password.clone(),
            ];
            if username.len() >= TOKEN_LENGTH {
                secrets.extend([username.clone(), percent_encoded(username)]);
            }
            secrets
        }
        Credentials::Ssh { identity, .. } => body_lines(identity)
            // The last line of a key may have only two characters, which reveal nothing.
            .filter(|line| line.len() >= 8)
            .map(str::to_owned)
            .collect(),
    };
    // A secret that contains another one must be replaced first.
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    let mut masked = text.to_owned();
    for secret in secrets
        .iter()
        .filter(|secret| !secret.is_empty() && !MASK.contains(secret.as_str()))
    {
        masked = masked.replace(secret.as_str(), MASK);
    }
    masked
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests;
