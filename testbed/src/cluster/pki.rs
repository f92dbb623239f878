//! Certificates and kubeconfigs of one cluster, created for each and never reused.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;

use super::network;

/// Who connects to the API server by certificate: file name, user, group.
const CLIENTS: &[(&str, &str, Option<&str>)] = &[
    ("admin", "admin", Some("system:masters")),
    (
        "kube-controller-manager",
        "system:kube-controller-manager",
        None,
    ),
    ("kube-scheduler", "system:kube-scheduler", None),
    ("kubelet", "system:node:node-0", Some("system:nodes")),
    ("kube-proxy", "system:kube-proxy", None),
    ("kube-router", "kube-router", None),
    ("kwok", "kwok", Some("system:masters")),
    // Host processes under the rights of the ServiceAccounts that the modules' RBAC binds.
    (
        "csi-provisioner",
        "system:serviceaccount:default:csi-provisioner",
        Some("system:serviceaccounts"),
    ),
    (
        "snapshot-controller",
        "system:serviceaccount:kube-system:snapshot-controller",
        Some("system:serviceaccounts"),
    ),
    (
        "csi-snapshotter",
        "system:serviceaccount:default:csi-snapshotter",
        Some("system:serviceaccounts"),
    ),
];

/// The folder of certificates and the kubeconfigs in it.
#[derive(Debug, Clone)]
pub(super) struct Pki {
    folder: PathBuf,
}

impl Pki {
    /// Makes everything. `port` is where the machine's loopback leads to the API server.
    pub(super) fn create(folder: &Path, port: u16) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let pki = Self {
            folder: folder.to_owned(),
        };
        let ca = pki.authority("ca")?;
        let front = pki.authority("front-proxy-ca")?;
        let account = KeyPair::generate()?;
        pki.write("service-account.key", &account.serialize_pem())?;
        pki.write("service-account.pub", &account.public_key_pem())?;
        let server_names = [
            "127.0.0.1",
            network::NODE_ADDRESS,
            network::API_SERVICE,
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        pki.certificate("apiserver", ("kube-apiserver", None), &server_names, &ca)?;
        pki.certificate("etcd", ("etcd", None), &["127.0.0.1"], &ca)?;
        pki.certificate("etcd-client", ("apiserver-etcd-client", None), &[], &ca)?;
        pki.certificate(
            "apiserver-kubelet",
            ("kube-apiserver-kubelet-client", Some("system:masters")),
            &[],
            &ca,
        )?;
        pki.certificate("front-proxy", ("front-proxy-client", None), &[], &front)?;
        pki.certificate(
            "kubelet-server",
            ("system:node:node-0", Some("system:nodes")),
            &[network::NODE_ADDRESS, "127.0.0.1"],
            &ca,
        )?;
        let inside = format!("https://{}", network::API_SERVER);
        for (file, user, group) in CLIENTS {
            pki.certificate(file, (user, *group), &[], &ca)?;
            pki.kubeconfig(&pki.path(&format!("{file}.kubeconfig")), file, &inside)?;
        }
        pki.kubeconfig(
            &pki.path("outside.kubeconfig"),
            "admin",
            &format!("https://127.0.0.1:{port}"),
        )?;
        Ok(pki)
    }

    /// That of a cluster that runs.
    pub(super) fn open(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// A file of this folder, as an argument.
    pub(super) fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn authority(&self, name: &str) -> Result<Issuer<'static, KeyPair>> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let key = KeyPair::generate()?;
        self.write(&format!("{name}.crt"), &parameters.self_signed(&key)?.pem())?;
        self.write(&format!("{name}.key"), &key.serialize_pem())?;
        Ok(Issuer::new(parameters, key))
    }

    fn certificate(
        &self,
        file: &str,
        (user, group): (&str, Option<&str>),
        names: &[&str],
        issuer: &Issuer<'_, KeyPair>,
    ) -> Result<()> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut parameters = CertificateParams::new(names)?;
        parameters.distinguished_name.push(DnType::CommonName, user);
        if let Some(group) = group {
            parameters
                .distinguished_name
                .push(DnType::OrganizationName, group);
        }
        parameters.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        parameters.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate()?;
        self.write(
            &format!("{file}.crt"),
            &parameters.signed_by(&key, issuer)?.pem(),
        )?;
        self.write(&format!("{file}.key"), &key.serialize_pem())
    }

    /// By file name, not by content: a kubeconfig is JSON, which is YAML.
    fn kubeconfig(&self, path: &Path, client: &str, server: &str) -> Result<()> {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "testbed", "cluster": {"server": server, "certificate-authority": self.file("ca.crt")}}],
            "users": [{"name": client, "user": {
                "client-certificate": self.file(&format!("{client}.crt")),
                "client-key": self.file(&format!("{client}.key")),
            }}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": client}}],
            "current-context": "testbed",
        });
        write(path, &serde_json::to_string_pretty(&config)?)
    }

    fn write(&self, name: &str, content: &str) -> Result<()> {
        write(&self.path(name), content)
    }
}

fn write(path: &Path, content: &str) -> Result<()> {
    OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(content.as_bytes()))
        .with_context(|| format!("cannot write '{}'", path.display()))
}
