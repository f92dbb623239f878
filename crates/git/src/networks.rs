//! Checks which addresses are allowed: the public internet, and the networks in the configuration.
//!
//! A URL comes from an author with less network access than the operator. So addresses of Pods, Services,
//! nodes and metadata servers are rejected, unless an administrator lists them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Networks that are allowed although their addresses are not global. The default allows none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks(Vec<Network>);

/// One network, such as `10.1.0.0/16` or `fd00::/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    prefix: u8,
}

/// The text is not a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a network: {why}")]
pub struct NetworkError {
    /// The text.
    pub text: String,
    /// The error, with the correct form.
    pub why: String,
}

/// A name or an address that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is refused: {why}; the operator's configuration can allow its network")]
pub struct Refused {
    /// The name or the address.
    pub what: String,
    /// The category of the name or address.
    pub why: &'static str,
}

impl Networks {
    /// Parses a list of networks in CIDR notation.
    ///
    /// # Errors
    /// Names the first text that is not a network, with the correct form.
    pub fn parse<Text: AsRef<str>>(
        texts: impl IntoIterator<Item = Text>,
    ) -> Result<Self, NetworkError> {
        texts
            .into_iter()
            .map(|text| {
                text.as_ref().parse().map_err(|why| NetworkError {
                    text: text.as_ref().to_owned(),
                    why,
                })
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Checks whether this host name is allowed. An IP address is checked as in [`permits`].
    ///
    /// Names of the machine and of the cluster are allowed if any network is allowed. Their addresses are
    /// checked afterwards, and none of them is global.
    ///
    /// Caveat: an allowed name does not allow its addresses. Each address must pass [`permits`].
    ///
    /// # Errors
    /// Gives the reason for the rejection.
    ///
    /// [`permits`]: Self::permits
    pub fn permits_name(&self, host: &str) -> Result<(), Refused> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.permits(address);
        }
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        let why = if name == "localhost" || name.ends_with(".localhost") {
            "it is a name of the machine itself"
        } else if name.ends_with(".svc")
            || name.contains(".svc.")
            || name.ends_with(".cluster.local")
        {
            "it is a name of the cluster"
        } else {
            return Ok(());
        };
        if self.0.is_empty() {
            Err(Refused {
                what: format!("'{host}'"),
                why,
            })
        } else {
            Ok(())
        }
    }

    /// Checks whether this address is allowed: a global unicast address, or one in a listed network.
    ///
    /// # Errors
    /// Gives the reason for the rejection.
    pub fn permits(&self, address: IpAddr) -> Result<(), Refused> {
        let canonical = address.to_canonical();
        if self.0.iter().any(|network| network.contains(canonical)) {
            return Ok(());
        }
        let why = match canonical {
            IpAddr::V4(address) => special_v4(address),
            IpAddr::V6(address) => match embedded_v4(address) {
                Some(embedded) => {
                    return self
                        .permits(IpAddr::V4(embedded))
                        .map_err(|refused| Refused {
                            what: format!("address {address}, which leads to {embedded},"),
                            why: refused.why,
                        });
                }
                None => special_v6(address),
            },
        };
        match why {
            Some(why) => Err(Refused {
                what: format!("address {address}"),
                why,
            }),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Networks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Network { address, prefix }) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(formatter, "{separator}{address}/{prefix}")?;
        }
        Ok(())
    }
}

impl Network {
    const fn v4(a: u8, b: u8, c: u8, prefix: u8) -> Self {
        Self {
            address: IpAddr::V4(Ipv4Addr::new(a, b, c, 0)),
            prefix,
        }
    }

    const fn v6(first: u16, second: u16, prefix: u8) -> Self {
        Self {
            address: IpAddr::V6(Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0)),
            prefix,
        }
    }

    fn contains(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let differs = network.to_bits() ^ address.to_bits();
                differs.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let differs = network.to_bits() ^ address.to_bits();
                differs.leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }

    /// Returns the lowest address.
    fn base(self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX
                    .checked_shl(32 - u32::from(self.prefix))
                    .unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.prefix))
                    .unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((address, prefix)) = text.split_once('/') else {
            return Err("write it with its prefix, such as 10.1.0.0/16 or 10.1.2.3/32".to_owned());
        };
        let Ok(address) = address.parse::<IpAddr>() else {
            return Err("there is no IP address before the '/'".to_owned());
        };
        // A mapped network would never match, because mapped addresses are checked as IPv4 addresses.
        if address.to_canonical() != address {
            return Err("write the IPv4 network that it stands for".to_owned());
        }
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix.parse::<u8>() {
            Ok(number) if number <= longest && prefix == number.to_string() => number,
            Ok(_) | Err(_) => {
                return Err(format!("after the '/' comes a number from 0 to {longest}"));
            }
        };
        let network = Self { address, prefix };
        let base = network.base();
        if base != address {
            return Err(format!("the network of this address is {base}/{prefix}"));
        }
        Ok(network)
    }
}

/// IPv4 networks that are not global unicast: the special-purpose registry of IANA, multicast and reserved.
const SPECIAL_V4: [(Network, &str); 15] = [
    (Network::v4(0, 0, 0, 8), "it means this host (0.0.0.0/8)"),
    (Network::v4(10, 0, 0, 8), "it is private (10.0.0.0/8)"),
    (
        Network::v4(100, 64, 0, 10),
        "it is shared inside a provider's network (100.64.0.0/10)",
    ),
    (Network::v4(127, 0, 0, 8), "it is loopback (127.0.0.0/8)"),
    (
        Network::v4(169, 254, 0, 16),
        "it is link-local (169.254.0.0/16)",
    ),
    (Network::v4(172, 16, 0, 12), "it is private (172.16.0.0/12)"),
    (
        Network::v4(192, 0, 0, 24),
        "it is reserved for protocols (192.0.0.0/24)",
    ),
    (
        Network::v4(192, 0, 2, 24),
        "it is for documentation (192.0.2.0/24)",
    ),
    (
        Network::v4(192, 88, 99, 24),
        "it is a relay's address (192.88.99.0/24)",
    ),
    (
        Network::v4(192, 168, 0, 16),
        "it is private (192.168.0.0/16)",
    ),
    (
        Network::v4(198, 18, 0, 15),
        "it is for benchmarks (198.18.0.0/15)",
    ),
    (
        Network::v4(198, 51, 100, 24),
        "it is for documentation (198.51.100.0/24)",
    ),
    (
        Network::v4(203, 0, 113, 24),
        "it is for documentation (203.0.113.0/24)",
    ),
    (Network::v4(224, 0, 0, 4), "it is multicast (224.0.0.0/4)"),
    (Network::v4(240, 0, 0, 4), "it is reserved (240.0.0.0/4)"),
];

/// IPv6 networks that are not global unicast. An unlisted address is global only within 2000::/3.
const SPECIAL_V6: [(Network, &str); 6] = [
    (Network::v6(0xfc00, 0, 7), "it is private (fc00::/7)"),
    (Network::v6(0xfe80, 0, 10), "it is link-local (fe80::/10)"),
    (Network::v6(0xff00, 0, 8), "it is multicast (ff00::/8)"),
    (
        Network::v6(0x2001, 0, 23),
        "it is reserved for protocols (2001::/23)",
    ),
    (
        Network::v6(0x2001, 0xdb8, 32),
        "it is for documentation (2001:db8::/32)",
    ),
    (
        Network::v6(0x3fff, 0, 20),
        "it is for documentation (3fff::/20)",
    ),
];

fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    find(&SPECIAL_V4, IpAddr::V4(address))
}

fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    if address.is_loopback() {
        return Some("it is loopback (::1)");
    }
    find(&SPECIAL_V6, IpAddr::V6(address)).or_else(|| {
        let is_global = Network::v6(0x2000, 0, 3).contains(IpAddr::V6(address));
        (!is_global).then_some("it is not a global unicast address")
    })
}

fn find(table: &[(Network, &'static str)], address: IpAddr) -> Option<&'static str> {
    table
        .iter()
        .find(|(network, _)| network.contains(address))
        .map(|(_, why)| *why)
}

/// Returns the IPv4 address that an IPv6 address is translated to: NAT64 (64:ff9b::/96), 6to4 (2002::/16).
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => {
            let [.., a, b, c, d] = address.octets();
            Some(Ipv4Addr::new(a, b, c, d))
        }
        [0x2002, ..] => {
            let [_, _, a, b, c, d, ..] = address.octets();
            Some(Ipv4Addr::new(a, b, c, d))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED_V4: [&str; 33] = [
        "0.0.0.0",
        "0.255.255.255",
        "10.0.0.0",
        "10.96.0.1",
        "10.255.255.255",
        "100.64.0.0",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.255",
        "169.254.0.1",
        "169.254.169.254",
        "172.16.0.0",
        "172.31.255.255",
        "192.0.0.0",
        "192.0.0.9",
        "192.0.0.170",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.0",
        "192.168.255.255",
        "198.18.0.0",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.0",
        "203.0.113.255",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.0",
        "255.255.255.254",
        "255.255.255.255",
        "10.0.0.1",
        "172.20.0.1",
        "192.168.1.1",
    ];
    const GLOBAL_V4: [&str; 20] = [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "140.82.121.4",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.0.3.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
    ];

    fn permitted(networks: &Networks, address: &str) -> bool {
        networks.permits(address.parse().unwrap()).is_ok()
    }

    #[test]
    fn only_global_ipv4_passes_in_every_form() {
        let none = Networks::default();
        for (addresses, passes) in [(&REFUSED_V4[..], false), (&GLOBAL_V4[..], true)] {
            for address in addresses {
                let [a, b, c, d] = address.parse::<Ipv4Addr>().unwrap().octets();
                let hex = format!("{a:02x}{b:02x}:{c:02x}{d:02x}");
                for form in [
                    (*address).to_owned(),
                    format!("::ffff:{address}"),
                    format!("64:ff9b::{address}"),
                    format!("2002:{hex}::1"),
                    format!("2002:{hex}:1:2:3:4:5"),
                ] {
                    assert_eq!(permitted(&none, &form), passes, "{form}");
                }
                // Deprecated and local-use forms never lead to public addresses, whatever they contain.
                for form in [
                    format!("::{address}"),
                    format!("64:ff9b:1::{address}"),
                    format!("fe80::5efe:{address}"),
                ] {
                    assert!(!permitted(&none, &form), "{form}");
                }
            }
        }
    }

    #[test]
    fn only_global_ipv6_passes() {
        for (address, passes) in [
            ("::", false),
            ("::1", false),
            ("::2", false),
            ("100::1", false),
            ("2001::1", false),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", false),
            ("2001:2::1", false),
            ("2001:10::1", false),
            ("2001:20::1", false),
            ("2001:db8::1", false),
            ("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", false),
            ("3fff::1", false),
            ("3fff:fff:ffff::1", false),
            ("4000::1", false),
            ("5f00::1", false),
            ("fc00::1", false),
            ("fd12:3456::1", false),
            ("fdff:ffff::1", false),
            ("fe00::1", false),
            ("fe80::1", false),
            ("febf::1", false),
            ("fec0::1", false),
            ("ff02::1", false),
            ("ffff::1", false),
            ("2001:200::1", true),
            ("2001:db7:ffff::1", true),
            ("2001:db9::1", true),
            ("2606:50c0:8000::153", true),
            ("2a00:1450:4001::1", true),
            ("3fff:1000::1", true),
            ("3fff:ffff::1", true),
        ] {
            assert_eq!(
                permitted(&Networks::default(), address),
                passes,
                "{address}"
            );
        }
    }

    #[test]
    fn listed_networks_pass_and_nothing_beside_them() {
        let networks = Networks::parse([
            "10.1.0.0/16",
            "127.0.0.1/32",
            "fd00:1::/32",
            "169.254.0.0/30",
        ])
        .unwrap();
        for (address, passes) in [
            ("10.1.0.0", true),
            ("10.1.255.255", true),
            ("::ffff:10.1.2.3", true),
            ("64:ff9b::10.1.2.3", true),
            ("10.0.255.255", false),
            ("10.2.0.0", false),
            ("127.0.0.1", true),
            ("127.0.0.2", false),
            ("::1", false),
            ("fd00:1:ffff::1", true),
            ("fd00:2::1", false),
            ("169.254.0.3", true),
            ("169.254.0.4", false),
            ("8.8.8.8", true),
        ] {
            assert_eq!(permitted(&networks, address), passes, "{address}");
        }
        let all = Networks::parse(["0.0.0.0/0", "::/0"]).unwrap();
        assert!(permitted(&all, "127.0.0.1") && permitted(&all, "fe80::1"));
    }

    #[test]
    fn names_of_machine_and_cluster_are_refused() {
        let none = Networks::default();
        let some = Networks::parse(["10.0.0.0/8"]).unwrap();
        for (name, passes, with_a_list) in [
            ("localhost", false, true),
            ("LocalHost", false, true),
            ("localhost.", false, true),
            ("a.localhost", false, true),
            ("git.tools.svc", false, true),
            ("git.tools.SVC.", false, true),
            ("git.tools.svc.cluster.local", false, true),
            ("git.tools.svc.example.org", false, true),
            ("pod.cluster.local", false, true),
            ("127.0.0.1", false, false),
            ("10.1.2.3", false, true),
            ("::1", false, false),
            ("169.254.169.254", false, false),
            ("1.1.1.1", true, true),
            ("github.com", true, true),
            ("notlocalhost", true, true),
            ("svc.example.org", true, true),
            ("mysvc", true, true),
            ("cluster.local.example.org", true, true),
        ] {
            assert_eq!(none.permits_name(name).is_ok(), passes, "{name}");
            assert_eq!(some.permits_name(name).is_ok(), with_a_list, "{name}");
        }
    }

    #[test]
    fn networks_are_read_strictly() {
        for (text, words) in [
            ("10.0.0.0", "with its prefix"),
            ("10.0.0.0/33", "from 0 to 32"),
            ("10.0.0.0/+8", "from 0 to 32"),
            ("10.0.0.0/08", "from 0 to 32"),
            ("10.0.0.0/", "from 0 to 32"),
            ("fd00::/129", "from 0 to 128"),
            ("10.0.0/8", "no IP address"),
            ("git.example.org/8", "no IP address"),
            ("010.0.0.0/8", "no IP address"),
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("1.0.0.0/0", "0.0.0.0/0"),
            ("fd00::1/8", "fd00::/8"),
            ("::ffff:10.0.0.0/104", "IPv4 network"),
        ] {
            let error = Networks::parse([text]).unwrap_err().to_string();
            assert!(
                error.contains(words) && error.contains(text),
                "{text}: {error}"
            );
        }
        let texts = "0.0.0.0/0,10.0.0.0/8,192.168.7.1/32,::/0,fd00::/8";
        let networks = Networks::parse(texts.split(',')).unwrap();
        assert_eq!(networks.to_string(), texts);
    }

    #[test]
    fn a_refusal_says_why() {
        let refused = |address: &str| {
            Networks::default()
                .permits(address.parse().unwrap())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            refused("10.1.2.3"),
            "address 10.1.2.3 is refused: it is private (10.0.0.0/8); the operator's configuration can allow its network"
        );
        assert!(
            refused("64:ff9b::7f00:1").contains("leads to 127.0.0.1, is refused: it is loopback")
        );
        assert!(
            refused("::ffff:127.0.0.1")
                .starts_with("address ::ffff:127.0.0.1 is refused: it is loopback")
        );
    }
}
