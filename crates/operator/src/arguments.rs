//! Command-line arguments.

use std::{net::SocketAddr, path::PathBuf};

use clap::{
    Parser,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};

use crate::{component::Component, logging::Format};

/// Runs the controllers of one operator, or the REST API.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "orchestrator", version)]
pub struct Arguments {
    /// The configuration; a missing or invalid file is an error
    #[arg(long, value_name = "PATH", default_value = "/config/config.yaml")]
    pub config: PathBuf,
    /// Operator whose controllers run here, or the gateway, which serves the REST API
    #[arg(long, value_parser = operator(), default_value = api::tasks::OPERATOR.name)]
    pub operator: Component,
    /// How to reach the API server; without it, as the Pod's own ServiceAccount
    #[arg(long, value_name = "PATH")]
    pub kubeconfig: Option<PathBuf>,
    /// Where the Lease is, and Pods that try connections; without it, the Pod's own namespace, or that of the kubeconfig's context
    #[arg(long)]
    pub namespace: Option<String>,
    /// Address of /livez and /readyz
    #[arg(long, value_name = "HOST:PORT", default_value = "0.0.0.0:8081")]
    pub probe_address: SocketAddr,
    /// Address of /metrics
    #[arg(long, value_name = "HOST:PORT", default_value = "0.0.0.0:8080")]
    pub metrics_address: SocketAddr,
    /// Address of the REST API, for the gateway
    #[arg(long, value_name = "HOST:PORT", default_value = "0.0.0.0:8443")]
    pub gateway_address: SocketAddr,
    /// Directory with tls.crt and tls.key of the REST API; without it, a certificate is generated
    #[arg(long, value_name = "PATH")]
    pub tls_directory: Option<PathBuf>,
    /// Directory with the keys of sessions, 'current' and 'previous'; without it, browsers cannot sign in
    #[arg(long, value_name = "PATH")]
    pub session_directory: Option<PathBuf>,
    /// How logs are written; without it, for people on a terminal, otherwise as JSON
    #[arg(long, value_enum)]
    pub log_format: Option<Format>,
    /// Only read the configuration and say what is wrong with it
    #[arg(long)]
    pub check_config: bool,
}

/// Parses the name of an operator, or of the gateway.
fn operator() -> impl TypedValueParser<Value = Component> {
    let known =
        |component: Component| PossibleValue::new(component.name()).help(component.summary());
    PossibleValuesParser::new(Component::all().map(known))
        .try_map(|name| Component::named(&name).ok_or_else(|| format!("no operator '{name}'")))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn defaults_are_those_of_a_pod() {
        let found = Arguments::try_parse_from(["orchestrator"]).unwrap();
        let wanted = Arguments {
            config: "/config/config.yaml".into(),
            operator: Component::Operator(&api::tasks::OPERATOR),
            kubeconfig: None,
            namespace: None,
            probe_address: "0.0.0.0:8081".parse().unwrap(),
            metrics_address: "0.0.0.0:8080".parse().unwrap(),
            gateway_address: "0.0.0.0:8443".parse().unwrap(),
            tls_directory: None,
            session_directory: None,
            log_format: None,
            check_config: false,
        };
        assert_eq!(found, wanted);
    }

    #[test]
    fn each_operator_has_a_lease_of_its_own_and_the_gateway_has_none() {
        let lease = |word: &str| {
            let argument = ["--operator=", word].concat();
            let found = Arguments::try_parse_from(["orchestrator", &argument]).unwrap();
            match found.operator {
                Component::Operator(operator) => Some(operator.lease),
                Component::Gateway => None,
            }
        };
        assert_eq!(lease("tasks"), Some("orchestrator-tasks"));
        assert_eq!(lease("tenants"), Some("orchestrator-tenants"));
        assert_eq!(lease("apps"), Some("orchestrator-apps"));
        assert_eq!(lease("notebooks"), Some("orchestrator-notebooks"));
        assert_eq!(lease("gateway"), None);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for wrong in [
            "--operator=none",
            "--operator=tenant",
            "--probe-address=here",
            "--metrics-address=8080",
            "--log-format=xml",
            "--verbose",
            "run",
        ] {
            let refused = Arguments::try_parse_from(["orchestrator", wrong]);
            assert!(refused.is_err(), "{wrong}");
        }
    }
}
