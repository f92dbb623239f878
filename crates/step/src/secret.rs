//! Reads and checks the mounted Secret, and writes the files that git and ssh need.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use git::{Credentials, Reason, Scheme};

use crate::failure::Failure;

/// The known keys, including those that are rejected with a message.
const KEYS: [&str; 7] = [
    "username",
    "password",
    "ca.crt",
    "identity",
    "known_hosts",
    "bearerToken",
    "tls.key",
];
/// Maximum number of bytes to read from any key. The check of each key is stricter.
const KEY_BYTES: u64 = 1 << 20;

/// Reads the directory of the Secret. Without a directory, the Secret counts as empty.
///
/// # Errors
/// When a key cannot be read or used.
pub(crate) fn read(scheme: Scheme, folder: Option<&Path>) -> Result<Credentials, Failure> {
    let invalid = |message: String| Failure::new(Reason::CredentialsInvalid, message);
    let mut data = BTreeMap::new();
    if let Some(folder) = folder {
        for key in KEYS {
            match value(&folder.join(key)) {
                Ok(value) => {
                    data.insert(key.to_owned(), value);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(invalid(format!(
                        "the Secret's key '{key}' is not readable: {error}"
                    )));
                }
            }
        }
        if data.is_empty() {
            let why = format!("the Secret has none of the keys {}", KEYS[..5].join(", "));
            return Err(invalid(why));
        }
    }
    Credentials::from_data(scheme, &data).map_err(|error| invalid(error.to_string()))
}

fn value(path: &Path) -> io::Result<Vec<u8>> {
    let mut value = Vec::new();
    File::open(path)?.take(KEY_BYTES).read_to_end(&mut value)?;
    Ok(value)
}

/// The private directory with the files that git and ssh read.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) folder: PathBuf,
    pub(crate) identity: PathBuf,
    pub(crate) known_hosts: PathBuf,
    pub(crate) authorities: PathBuf,
    /// An empty directory, as the second location of certificates.
    pub(crate) nothing: PathBuf,
}

impl Home {
    /// Creates the directory with copies of the files for ssh. ssh needs a newline at the end of a key, and
    /// rejects a key that others can read.
    ///
    /// # Errors
    /// When writing to the disk fails.
    pub(crate) fn make(folder: &Path, credentials: &Credentials) -> io::Result<Home> {
        let home = Home {
            folder: folder.to_owned(),
            identity: folder.join("identity"),
            known_hosts: folder.join("known_hosts"),
            authorities: folder.join("ca.crt"),
            nothing: folder.join("nothing"),
        };
        DirBuilder::new().mode(0o700).create(folder)?;
        fs::create_dir(&home.nothing)?;
        match credentials {
            Credentials::Http { authorities, .. } => {
                if let Some(authorities) = authorities {
                    write(&home.authorities, authorities)?;
                }
            }
            Credentials::Ssh {
                identity,
                known_hosts,
            } => {
                write(&home.identity, &identity.replace("\r\n", "\n"))?;
                write(&home.known_hosts, known_hosts)?;
            }
        }
        Ok(home)
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.trim_end().as_bytes())?;
    file.write_all(b"\n")
}
