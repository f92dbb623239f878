//! The cluster's own network. Every cluster uses the same addresses (RFC 2544's range for tests):
//! each has a network namespace without any way out, so they cannot meet.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, bail};

/// Address of the only node, on a bridge: a loopback address is refused by the kubelet.
pub(super) const NODE_ADDRESS: &str = "198.18.0.1";
/// Where the API server listens.
pub const API_SERVER: &str = "198.18.0.1:6443";
/// All Pods; the node gets the first /24 of it.
pub(super) const POD_RANGE: &str = "198.18.64.0/18";
/// Pods of the node.
pub(super) const NODE_POD_RANGE: &str = "198.18.64.0/22";
/// Services.
pub(super) const SERVICE_RANGE: &str = "198.18.128.0/20";
/// The Service `default/kubernetes`.
pub(super) const API_SERVICE: &str = "198.18.128.1";
/// The Service of the cluster's DNS.
pub(super) const DNS_SERVICE: &str = "198.18.128.10";

/// Gives a fresh network namespace a loopback, the node's bridge and forwarding.
pub(super) fn set_up() -> Result<()> {
    for arguments in [
        "link set lo up".to_owned(),
        "link add node0 type bridge".to_owned(),
        format!("address add {NODE_ADDRESS}/24 dev node0"),
        "link set node0 up".to_owned(),
        // Addresses of Services need a route to reach the rules that rewrite them.
        format!("route add {SERVICE_RANGE} dev node0"),
    ] {
        ip(&arguments)?;
    }
    for (key, value) in [
        ("/proc/sys/net/ipv4/ip_forward", "1"),
        // Policies and Services must also see traffic between Pods on one bridge.
        ("/proc/sys/net/bridge/bridge-nf-call-iptables", "1"),
    ] {
        if Path::new(key).exists() {
            fs::write(key, value).with_context(|| format!("cannot set {key}"))?;
        }
    }
    Ok(())
}

fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .context("cannot run 'ip' (package iproute2)")?;
    if !output.status.success() {
        bail!(
            "'ip {arguments}' failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}
