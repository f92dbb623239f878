//! Certificate, keys and password of one server, created for each.

use std::{
    fs::{self, File},
    io::Read,
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::write_private;

/// What clients need. The server's own keys are in files only.
#[derive(Debug)]
pub(super) struct Keys {
    /// The private authority's certificate.
    pub(super) authority: String,
    pub(super) password: String,
    /// The private key that sshd lets in.
    pub(super) identity: String,
    /// Public keys of the host, `TYPE BASE64`.
    host: Vec<String>,
}

impl Keys {
    /// Makes all, in files of `here`; the certificate is for `names`.
    pub(super) fn create(here: &Path, names: &[&str]) -> Result<Self> {
        let making = begin(here, HOST_KEYS.iter().chain(&[("identity", "ed25519")]))?;
        let authority = certificate(here, names)?;
        end(making)?;
        fs::copy(here.join("identity.pub"), here.join("authorized-keys"))?;
        Ok(Self {
            authority,
            password: password()?,
            identity: fs::read_to_string(here.join("identity"))?,
            host: host_keys(here)?,
        })
    }

    /// Makes other keys of the host.
    pub(super) fn renew_host(&mut self, here: &Path) -> Result<()> {
        for (file, _) in HOST_KEYS {
            fs::remove_file(here.join(file))?;
        }
        end(begin(here, HOST_KEYS)?)?;
        self.host = host_keys(here)?;
        Ok(())
    }

    /// Lines for each host and each key.
    pub(super) fn known_hosts(&self, hosts: &[String], port: u16) -> String {
        let mut text = String::new();
        for host in hosts {
            for key in &self.host {
                text.push_str(&format!("[{host}]:{port} {key}\n"));
            }
        }
        text
    }
}

/// Files and kinds.
const HOST_KEYS: &[(&str, &str)] = &[("host-ed25519", "ed25519"), ("host-rsa", "rsa")];

fn begin<'a>(
    here: &Path,
    keys: impl IntoIterator<Item = &'a (&'a str, &'a str)>,
) -> Result<Vec<Child>> {
    keys.into_iter()
        .map(|(file, kind)| ssh_key(here, file, kind))
        .collect()
}

fn end(making: Vec<Child>) -> Result<()> {
    for child in making {
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ssh-keygen failed: {said}");
    }
    Ok(())
}

fn host_keys(here: &Path) -> Result<Vec<String>> {
    let keys = HOST_KEYS.iter().map(|(file, _)| public_key(here, file));
    keys.collect()
}

fn ssh_key(here: &Path, file: &str, kind: &str) -> Result<Child> {
    let mut command = Command::new("ssh-keygen");
    command
        .args(["-q", "-N", "", "-C", "", "-t", kind])
        // 2048 bits: a longer key takes longer than all the rest of the start.
        .args((kind == "rsa").then_some("-b2048"))
        .arg("-f")
        .arg(here.join(file))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
        .spawn()
        .context("cannot run 'ssh-keygen' (package openssh-client)")
}

/// Without the comment.
fn public_key(here: &Path, file: &str) -> Result<String> {
    let text = fs::read_to_string(here.join(format!("{file}.pub")))?;
    Ok(text.split(' ').take(2).collect::<Vec<_>>().join(" "))
}

/// Writes `server.crt` and `server.key`; the authority's certificate.
fn certificate(here: &Path, names: &[&str]) -> Result<String> {
    let mut authority = CertificateParams::default();
    authority
        .distinguished_name
        .push(DnType::CommonName, "git-server-test-ca");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    let pem = authority.self_signed(&key)?.pem();
    let issuer = Issuer::new(authority, key);

    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut server = CertificateParams::new(names)?;
    server
        .distinguished_name
        .push(DnType::CommonName, "git-server");
    server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let signed = server.signed_by(&key, &issuer)?.pem();
    write_private(&here.join("server.crt"), &signed)?;
    write_private(&here.join("server.key"), &key.serialize_pem())?;
    Ok(pem)
}

/// A canary: random, so that a search for it finds nothing but leaks.
fn password() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("canary-{digits}"))
}
