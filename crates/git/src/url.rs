//! The URL of a repository, checked once when it is parsed.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Maximum length of a URL, in bytes.
const LIMIT: usize = 1024;

/// The protocol of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Without encryption. Requires permission in the configuration.
    Http,
    /// With TLS.
    Https,
    /// With SSH.
    Ssh,
}

impl Scheme {
    /// Returns the scheme as written in a URL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Ssh => "ssh",
        }
    }

    const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
            Self::Ssh => 22,
        }
    }
}

/// The URL of a repository.
///
/// Guarantees: it contains no secret. It is printable ASCII without spaces. Neither the URL nor its host,
/// user or path can be mistaken for an option. The displayed URL parses to the same URL.
///
/// Caveat: [`Networks`](crate::Networks) decides whether the host is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Url {
    scheme: Scheme,
    user: Option<String>,
    host: String,
    port: u16,
    path: String,
}

/// The reason why a text is not the URL of a repository. No variant repeats text that could contain a
/// password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The URL is too long.
    #[error("the URL is longer than {LIMIT} bytes")]
    TooLong,
    /// A part that a program would mistake for an option.
    #[error("the {0} begins with '-', which a program could take for an option")]
    OptionLike(&'static str),
    /// An unsupported scheme.
    #[error("the URL begins with '{0}': https://host/path or ssh://user@host/path is needed")]
    Scheme(String),
    /// A missing scheme.
    #[error("the URL has no scheme: https://host/path or ssh://user@host/path is needed")]
    NoScheme,
    /// The short form of an SSH URL.
    #[error("'user@host:path' is not a URL: write ssh://user@host/path")]
    ShortForm,
    /// Plain http, which is not allowed.
    #[error("http:// is refused: use https, or let the operator's configuration allow plain http")]
    PlainHttp,
    /// A character that a URL must not contain.
    #[error(
        "the URL holds {0} at byte {1}; only printable ASCII is allowed, without spaces and '\\'"
    )]
    Character(&'static str, usize),
    /// A query.
    #[error("the URL holds '?': the URL of a repository has no query")]
    Query,
    /// A fragment.
    #[error(
        "the URL holds '#': the URL of a repository has no fragment; a branch has its own field"
    )]
    Fragment,
    /// User or password in http(s).
    #[error("the URL holds a user or a password before '@': credentials belong in a Secret")]
    Credentials,
    /// A password in ssh.
    #[error("the URL holds a password: an SSH identity belongs in a Secret")]
    Password,
    /// An invalid user.
    #[error("the user before '@' may hold letters, digits, '.', '_', '+' and '-' only, at most 64")]
    User,
    /// An invalid host.
    #[error("'{0}' is not a host: {1}")]
    Host(String, &'static str),
    /// An invalid port.
    #[error("after the host and ':' comes a port from 1 to 65535")]
    Port,
    /// A missing path.
    #[error("the URL has no path: the repository is missing after the host")]
    NoPath,
    /// An invalid path.
    #[error("the path of the URL {0}")]
    Path(&'static str),
}

impl Url {
    /// Parses a URL. `plain_http` also allows `http://`.
    ///
    /// # Errors
    /// Describes the first error, with the correct form.
    pub fn parse(text: &str, plain_http: bool) -> Result<Self, UrlError> {
        if text.len() > LIMIT {
            return Err(UrlError::TooLong);
        }
        if text.starts_with('-') {
            return Err(UrlError::OptionLike("URL"));
        }
        let (scheme, rest) = split_scheme(text, plain_http)?;
        check_characters(text)?;
        let (authority, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => return Err(UrlError::NoPath),
        };
        let (user, host_and_port) = split_user(scheme, authority)?;
        let (host, port) = split_port(host_and_port)?;
        let host = checked_host(host)?;
        check_path(path)?;
        Ok(Self {
            scheme,
            user,
            host,
            port: port.unwrap_or(scheme.default_port()),
            path: path.to_owned(),
        })
    }

    /// Returns the scheme.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns the name or address in lower case, IPv6 without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port, or the scheme's default port if none was given.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the beginning of the lines of `known_hosts` about this server: the host, or `[host]:port`
    /// for another port than SSH's default.
    #[must_use]
    pub fn known_host(&self) -> String {
        match (self.scheme, self.port) {
            (Scheme::Ssh, 22) => self.host.clone(),
            (Scheme::Ssh | Scheme::Http | Scheme::Https, port) => {
                format!("[{}]:{port}", self.host)
            }
        }
    }

    /// Returns the user of SSH, `git` if none was given. Returns `None` for http(s).
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns the path, with its leading `/`, percent-encoded as it was written.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the path as git sends it to an ssh server.
    #[cfg(feature = "remote")]
    pub(crate) fn decoded_path(&self) -> Vec<u8> {
        // The parser has already decoded it successfully.
        decoded(&self.path).unwrap_or_default()
    }
}

impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://", self.scheme.as_str())?;
        if let Some(user) = &self.user {
            write!(formatter, "{user}@")?;
        }
        if self.host.contains(':') {
            write!(formatter, "[{}]", self.host)?;
        } else {
            formatter.write_str(&self.host)?;
        }
        if self.port != self.scheme.default_port() {
            write!(formatter, ":{}", self.port)?;
        }
        formatter.write_str(&self.path)
    }
}

fn split_scheme(text: &str, plain_http: bool) -> Result<(Scheme, &str), UrlError> {
    let Some((before, after)) = text.split_once(':') else {
        return Err(UrlError::NoScheme);
    };
    let Some(rest) = after.strip_prefix("//") else {
        // 'ext::command' and 'file:path' are git's forms. 'host:path' and 'user@host:path' are scp's forms.
        let is_word = before.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let is_other =
            after.starts_with(':') || matches!(before, "file" | "http" | "https" | "ssh" | "git");
        return Err(match (before, is_word) {
            (_, true) if is_other => UrlError::Scheme(format!("{before}:")),
            (before, _) if before.contains('/') => UrlError::NoScheme,
            _ => UrlError::ShortForm,
        });
    };
    match before.to_ascii_lowercase().as_str() {
        "https" => Ok((Scheme::Https, rest)),
        "ssh" => Ok((Scheme::Ssh, rest)),
        "http" if plain_http => Ok((Scheme::Http, rest)),
        "http" => Err(UrlError::PlainHttp),
        other if other.len() <= 16 && other.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Err(UrlError::Scheme(format!("{other}://")))
        }
        _ => Err(UrlError::NoScheme),
    }
}

fn check_characters(text: &str) -> Result<(), UrlError> {
    for (position, character) in text.char_indices() {
        let what = match character {
            '?' => return Err(UrlError::Query),
            '#' => return Err(UrlError::Fragment),
            '\\' => "'\\'",
            _ if character.is_whitespace() => "a space",
            _ if character.is_control() => "a control character",
            _ if !character.is_ascii() => "a character outside ASCII",
            _ => continue,
        };
        return Err(UrlError::Character(what, position));
    }
    Ok(())
}

fn split_user(scheme: Scheme, authority: &str) -> Result<(Option<String>, &str), UrlError> {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    match (scheme, user) {
        (Scheme::Http | Scheme::Https, None) => Ok((None, host)),
        (Scheme::Http | Scheme::Https, Some(_)) => Err(UrlError::Credentials),
        (Scheme::Ssh, None) => Ok((Some("git".to_owned()), host)),
        (Scheme::Ssh, Some(user)) if user.contains(':') => Err(UrlError::Password),
        (Scheme::Ssh, Some(user)) if user.starts_with('-') => Err(UrlError::OptionLike("user")),
        (Scheme::Ssh, Some(user)) => {
            let is_user = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
            if user.is_empty() || user.len() > 64 || !user.bytes().all(is_user) {
                return Err(UrlError::User);
            }
            Ok((Some(user.to_owned()), host))
        }
    }
}

fn split_port(text: &str) -> Result<(&str, Option<u16>), UrlError> {
    let end_of_host = if text.starts_with('[') {
        text.find(']').map_or(text.len(), |bracket| bracket + 1)
    } else {
        text.find(':').unwrap_or(text.len())
    };
    let (host, after) = text.split_at(end_of_host);
    if after.is_empty() {
        return Ok((host, None));
    }
    let digits = after.strip_prefix(':').ok_or(UrlError::Port)?;
    if digits.len() > 5 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(UrlError::Port);
    }
    match digits.parse::<u16>() {
        Ok(port) if port > 0 => Ok((host, Some(port))),
        Ok(_) | Err(_) => Err(UrlError::Port),
    }
}

fn checked_host(host: &str) -> Result<String, UrlError> {
    let wrong = |why| Err(UrlError::Host(host.to_owned(), why));
    if host.is_empty() {
        return wrong("it is empty");
    }
    if let Some(inner) = host.strip_prefix('[') {
        return match inner.strip_suffix(']').map(str::parse::<Ipv6Addr>) {
            Some(Ok(address)) => Ok(address.to_string()),
            Some(Err(_)) | None => wrong("in brackets comes an IPv6 address without a zone"),
        };
    }
    if host.starts_with('-') {
        return Err(UrlError::OptionLike("host"));
    }
    if host.len() > 253 {
        return wrong("it is longer than 253 bytes");
    }
    if !host
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
    {
        return wrong("only letters, digits, '.', '-' and '_' are allowed");
    }
    let labels: Vec<&str> = host.split('.').collect();
    if labels
        .iter()
        .any(|label| label.is_empty() || label.len() > 63 || label.starts_with('-'))
    {
        return wrong("each part between dots has 1 to 63 characters and does not begin with '-'");
    }
    // The C library reads 127.1, 0x7f.0.0.1 and 2130706433 as addresses. A check of names would not.
    let is_number = labels.last().is_some_and(|label| {
        let digits = label
            .strip_prefix("0x")
            .or_else(|| label.strip_prefix("0X"));
        digits.map_or_else(
            || label.bytes().all(|byte| byte.is_ascii_digit()),
            |hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()),
        )
    });
    if is_number && host.parse::<Ipv4Addr>().is_err() {
        return wrong("write an IPv4 address as four decimal numbers without leading zeros");
    }
    Ok(host.to_ascii_lowercase())
}

/// Checks the decoded path, because git decodes the path of an ssh URL, and a server the path of an http
/// URL.
fn check_path(path: &str) -> Result<(), UrlError> {
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    let is_nothing = segments.iter().all(|segment| segment.is_empty());
    if is_nothing {
        return Err(UrlError::NoPath);
    }
    for (index, segment) in segments.iter().enumerate() {
        let decoded = decoded(segment)?;
        if decoded.is_empty() && index + 1 < segments.len() {
            return Err(UrlError::Path("holds '//'"));
        }
        if matches!(decoded.as_slice(), b"." | b"..") {
            return Err(UrlError::Path("holds a part that is '.' or '..'"));
        }
        if index == 0 && decoded.starts_with(b"-") {
            return Err(UrlError::OptionLike("path"));
        }
        if decoded
            .iter()
            .any(|byte| byte.is_ascii_control() || b"/\\".contains(byte))
        {
            return Err(UrlError::Path(
                "hides a control character, '/' or '\\' behind '%'",
            ));
        }
    }
    Ok(())
}

fn decoded(segment: &str) -> Result<Vec<u8>, UrlError> {
    const WRONG: UrlError = UrlError::Path("holds a '%' without two hexadecimal digits after it");
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (Some(high), Some(low)) = (rest.next().and_then(hex), rest.next().and_then(hex)) else {
            return Err(WRONG);
        };
        bytes.push(high << 4 | low);
    }
    Ok(bytes)
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
