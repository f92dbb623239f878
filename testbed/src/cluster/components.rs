//! Command lines and configuration of every part of a cluster. Nothing here does anything.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use super::{
    Folders,
    control::Process,
    network::{DNS_SERVICE, NODE_ADDRESS, NODE_POD_RANGE, POD_RANGE, SERVICE_RANGE},
    pki::Pki,
};
use crate::{images::REGISTRY, machine::SYSTEM_PATH, parts};

/// The only real node.
pub const NODE: &str = "node-0";
/// Name of the volume driver, and of its StorageClass.
pub const CSI_DRIVER: &str = "btrfs.csi.testbed.local";
pub(super) const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
/// Where the volume driver listens, inside the cluster.
///
/// The kubelet sends a socket's path, percent-encoded, as HTTP/2's authority. Rust's `http` refuses
/// a percent sign in a host but takes it before an `@`, as in `user@host`: hence the names.
pub const CSI_SOCKET: &str = "/var/lib/kubelet/plugins/btrfs/driver@csi.sock";
const CSI_REGISTRATION: &str = "/var/lib/kubelet/plugins_registry/btrfs@reg.sock";
/// Where the volumes' filesystem is mounted inside the cluster.
pub(super) const VOLUMES: &str = "/var/lib/volumes";

pub(super) fn etcd(folders: &Folders, pki: &Pki) -> Result<Process> {
    let client = "https://127.0.0.1:2379";
    let peer = "http://127.0.0.1:2380";
    let arguments = [
        "--name=testbed".to_owned(),
        format!("--data-dir={}", folders.run.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=testbed={peer}"),
        format!("--cert-file={}", pki.file("etcd.crt")),
        format!("--key-file={}", pki.file("etcd.key")),
        "--client-cert-auth".to_owned(),
        format!("--trusted-ca-file={}", pki.file("ca.crt")),
        // Thrown away with the cluster: durability against a power cut buys nothing.
        "--unsafe-no-fsync".to_owned(),
        // `bench memory` stores several versions of a gigabyte; the default is 2 GiB.
        "--quota-backend-bytes=8589934592".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    Ok(Process::new(
        "etcd",
        parts::binary("etcd", "etcd")?,
        arguments,
    ))
}

pub(super) fn audit_policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "nonResourceURLs": ["/livez*", "/readyz*", "/healthz*", "/version*", "/openapi/*"]},
            {"level": "Metadata"},
        ],
    })
}

/// The file with the issuers of ID tokens that the API server trusts.
pub(super) fn authentication_file(folders: &Folders) -> PathBuf {
    folders.run.join("authentication.json")
}

/// The content of that file. The API server reads it again when it changes.
pub(super) fn authentication_config(issuers: &[Value]) -> Value {
    json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AuthenticationConfiguration",
        "jwt": issuers,
    })
}

pub(super) fn apiserver(folders: &Folders, pki: &Pki) -> Result<Process> {
    let arguments = [
        "--etcd-servers=https://127.0.0.1:2379".to_owned(),
        format!("--etcd-cafile={}", pki.file("ca.crt")),
        format!("--etcd-certfile={}", pki.file("etcd-client.crt")),
        format!("--etcd-keyfile={}", pki.file("etcd-client.key")),
        format!("--bind-address={NODE_ADDRESS}"),
        format!("--advertise-address={NODE_ADDRESS}"),
        "--secure-port=6443".to_owned(),
        format!("--tls-cert-file={}", pki.file("apiserver.crt")),
        format!("--tls-private-key-file={}", pki.file("apiserver.key")),
        format!("--client-ca-file={}", pki.file("ca.crt")),
        format!(
            "--authentication-config={}",
            authentication_file(folders).display()
        ),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--allow-privileged=true".to_owned(),
        format!(
            "--audit-policy-file={}",
            folders.run.join("audit-policy.json").display()
        ),
        format!("--audit-log-path={}", folders.audit_log().display()),
        // Never rotated: the reader counts on one file. It ends with the cluster's logs.
        "--audit-log-maxsize=1000000".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        format!(
            "--service-account-key-file={}",
            pki.file("service-account.pub")
        ),
        format!(
            "--service-account-signing-key-file={}",
            pki.file("service-account.key")
        ),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        format!("--kubelet-certificate-authority={}", pki.file("ca.crt")),
        format!(
            "--kubelet-client-certificate={}",
            pki.file("apiserver-kubelet.crt")
        ),
        format!("--kubelet-client-key={}", pki.file("apiserver-kubelet.key")),
        format!(
            "--requestheader-client-ca-file={}",
            pki.file("front-proxy-ca.crt")
        ),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        format!("--proxy-client-cert-file={}", pki.file("front-proxy.crt")),
        format!("--proxy-client-key-file={}", pki.file("front-proxy.key")),
        "--shutdown-delay-duration=0s".to_owned(),
    ];
    Ok(Process::new(
        "kube-apiserver",
        parts::binary("kubernetes", "kube-apiserver")?,
        arguments,
    ))
}

pub(super) fn controller_manager(pki: &Pki) -> Result<Process> {
    let arguments = [
        format!(
            "--service-account-private-key-file={}",
            pki.file("service-account.key")
        ),
        format!("--root-ca-file={}", pki.file("ca.crt")),
        format!("--cluster-signing-cert-file={}", pki.file("ca.crt")),
        format!("--cluster-signing-key-file={}", pki.file("ca.key")),
        "--use-service-account-credentials".to_owned(),
        "--allocate-node-cidrs".to_owned(),
        format!("--cluster-cidr={POD_RANGE}"),
        "--node-cidr-mask-size=22".to_owned(),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        "--concurrent-job-syncs=20".to_owned(),
        // A lost node shows in seconds; the kubelet renews every 3 s.
        "--node-monitor-period=1s".to_owned(),
        "--node-monitor-grace-period=15s".to_owned(),
    ];
    controller("kube-controller-manager", pki, arguments)
}

pub(super) fn scheduler(pki: &Pki) -> Result<Process> {
    controller("kube-scheduler", pki, [])
}

/// What the controller manager and the scheduler have in common.
fn controller<const N: usize>(name: &str, pki: &Pki, more: [String; N]) -> Result<Process> {
    let config = pki.file(&format!("{name}.kubeconfig"));
    let mut process = Process::new(name, parts::binary("kubernetes", name)?, more);
    process.arguments.extend([
        format!("--kubeconfig={config}"),
        format!("--authentication-kubeconfig={config}"),
        format!("--authorization-kubeconfig={config}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--leader-elect=false".to_owned(),
        // Its own throttle would be what a bench measures.
        "--kube-api-qps=500".to_owned(),
        "--kube-api-burst=1000".to_owned(),
    ]);
    Ok(process)
}

pub(super) fn containerd_config(folders: &Folders) -> Result<String> {
    let quoted = |path: &Path| format!("{:?}", path.display().to_string());
    Ok(format!(
        r#"version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{REGISTRY}/pause:1"
[plugins."io.containerd.cri.v1.images".registry]
config_path = {registries}
[plugins."io.containerd.cri.v1.runtime"]
# Without CAP_SYS_RESOURCE a container's score cannot go below its parent's.
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = {cni}
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = {runc}
[plugins."io.containerd.grpc.v1.cri"]
stream_server_address = "127.0.0.1"
"#,
        registries = quoted(&folders.run.join("registries")),
        cni = quoted(&folders.run.join("cni")),
        runc = quoted(&parts::binary("runc", "runc")?),
    ))
}

pub(super) fn cni_config() -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "testbed",
        "plugins": [
            {
                "type": "bridge", "bridge": "pods0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
                "ipam": {
                    "type": "host-local", "dataDir": "/run/cni-addresses",
                    "ranges": [[{"subnet": NODE_POD_RANGE}]], "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

pub(super) fn containerd(folders: &Folders) -> Result<Process> {
    let program = parts::binary("containerd", "containerd")?;
    let folder = program
        .parent()
        .unwrap_or(Path::new("/"))
        .display()
        .to_string();
    let config = format!("--config={}", folders.run.join("containerd.toml").display());
    // The shim is found by name.
    Ok(Process::new("containerd", program, [config])
        .with("PATH", &format!("{folder}:{SYSTEM_PATH}")))
}

pub(super) fn import_image(archive: &Path) -> Result<Process> {
    let archive = archive.display().to_string();
    images(&["import", "--local", &archive])
}

pub(super) fn tag_image(from: &str, to: &str) -> Result<Process> {
    images(&["tag", "--force", from, to])
}

/// A command on the images that the kubelet sees.
fn images(command: &[&str]) -> Result<Process> {
    let begin = [
        "--address",
        CONTAINERD_SOCKET,
        "--namespace",
        "k8s.io",
        "images",
    ];
    let arguments = begin.iter().chain(command).copied();
    let ctr = parts::binary("containerd", "ctr")?;
    Ok(Process::new("images", ctr, arguments))
}

pub(super) fn kubelet_config(folders: &Folders, pki: &Pki) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_ADDRESS,
        "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": true}, "x509": {"clientCAFile": pki.file("ca.crt")}},
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": pki.file("kubelet-server.crt"),
        "tlsPrivateKeyFile": pki.file("kubelet-server.key"),
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": folders.cgroup().path(),
        "failCgroupV1": false,
        "failSwapOn": false,
        "enforceNodeAllocatable": [],
        "oomScoreAdj": 0,
        "clusterDNS": [DNS_SERVICE],
        "clusterDomain": "cluster.local",
        // Empty on purpose: Pods must not ask the machine's resolver.
        "resolvConf": folders.run.join("resolv.conf"),
        "evictionHard": {"memory.available": "200Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "serializeImagePulls": false,
        "maxPods": 500,
        "nodeStatusUpdateFrequency": "5s",
        "nodeLeaseDurationSeconds": 12,
        "syncFrequency": "10s",
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
        "volumePluginDir": "/var/lib/kubelet/volumeplugins",
    })
}

pub(super) fn kubelet(folders: &Folders, pki: &Pki) -> Result<Process> {
    let arguments = [
        format!("--config={}", folders.run.join("kubelet.json").display()),
        format!("--kubeconfig={}", pki.file("kubelet.kubeconfig")),
        format!("--node-ip={NODE_ADDRESS}"),
        format!("--hostname-override={NODE}"),
    ];
    Ok(Process::new(
        "kubelet",
        parts::binary("kubernetes", "kubelet")?,
        arguments,
    ))
}

pub(super) fn proxy_config(pki: &Pki) -> Value {
    json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": pki.file("kube-proxy.kubeconfig")},
        "mode": "iptables",
        // Also the time until a failed synchronization is repeated.
        "iptables": {"syncPeriod": "5s"},
        "clusterCIDR": POD_RANGE,
        "hostnameOverride": NODE,
        "bindAddress": NODE_ADDRESS,
        "metricsBindAddress": "127.0.0.1:10249",
        "healthzBindAddress": "127.0.0.1:10256",
        "nodePortAddresses": ["198.18.0.0/24"],
        // The table's size is the machine's, not ours to change.
        "conntrack": {"maxPerCore": 0},
    })
}

pub(super) fn proxy(folders: &Folders) -> Result<Process> {
    let config = format!("--config={}", folders.run.join("kube-proxy.json").display());
    Ok(Process::new(
        "kube-proxy",
        parts::binary("kubernetes", "kube-proxy")?,
        [config],
    ))
}

pub(super) fn router(pki: &Pki) -> Result<Process> {
    let arguments = [
        format!("--kubeconfig={}", pki.file("kube-router.kubeconfig")),
        format!("--hostname-override={NODE}"),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        "--run-router=false".to_owned(),
        "--run-service-proxy=false".to_owned(),
        "--run-firewall=true".to_owned(),
        "--enable-cni=false".to_owned(),
        "--health-port=0".to_owned(),
        "--metrics-port=0".to_owned(),
    ];
    Ok(Process::new(
        "kube-router",
        parts::binary("kube-router", "kube-router")?,
        arguments,
    ))
}

pub(super) fn csi_driver(program: &Path) -> Process {
    let arguments = [
        format!("--name={CSI_DRIVER}"),
        format!("--root={VOLUMES}"),
        format!("--node={NODE}"),
        format!("--endpoint={CSI_SOCKET}"),
        format!("--registration={CSI_REGISTRATION}"),
    ];
    Process::new("csi-btrfs", program, arguments)
}

pub(super) fn csi_provisioner(pki: &Pki) -> Result<Process> {
    let arguments = [
        format!("--kubeconfig={}", pki.file("csi-provisioner.kubeconfig")),
        format!("--csi-address={CSI_SOCKET}"),
        "--feature-gates=Topology=true".to_owned(),
        "--extra-create-metadata".to_owned(),
        "--kube-api-qps=100".to_owned(),
        "--kube-api-burst=200".to_owned(),
    ];
    Ok(Process::new(
        "csi-provisioner",
        parts::binary("csi-provisioner", "csi-provisioner")?,
        arguments,
    )
    .with("NODE_NAME", NODE))
}

pub(super) fn snapshot_controller(pki: &Pki) -> Result<Process> {
    snapshotter("snapshot-controller", pki, [])
}

pub(super) fn csi_snapshotter(pki: &Pki) -> Result<Process> {
    let more = [
        format!("--csi-address={CSI_SOCKET}"),
        "--extra-create-metadata".to_owned(),
    ];
    snapshotter("csi-snapshotter", pki, more)
}

/// The common arguments of both programs for snapshots.
fn snapshotter<const N: usize>(name: &str, pki: &Pki, more: [String; N]) -> Result<Process> {
    let program = parts::binary("external-snapshotter", name)?;
    let mut process = Process::new(name, program, more);
    process.arguments.extend([
        format!("--kubeconfig={}", pki.file(&format!("{name}.kubeconfig"))),
        "--kube-api-qps=100".to_owned(),
        "--kube-api-burst=200".to_owned(),
        // It also asks the driver this often whether a snapshot is ready. The default is 5 minutes.
        "--retry-interval-max=2s".to_owned(),
    ]);
    Ok(process)
}

pub(super) fn kwok(folders: &Folders, pki: &Pki) -> Result<Process> {
    let arguments = [
        format!("--kubeconfig={}", pki.file("kwok.kubeconfig")),
        format!("--config={}", folders.run.join("kwok.yaml").display()),
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake".to_owned(),
        "--node-lease-duration-seconds=40".to_owned(),
        "--cidr=198.19.0.1/16".to_owned(),
        format!("--node-ip={NODE_ADDRESS}"),
    ];
    Ok(Process::new(
        "kwok",
        parts::binary("kwok", "kwok")?,
        arguments,
    ))
}
