//! A proxy, a client through it, and one beside it.

use std::{error::Error, io, time::Duration};

use anyhow::{Context, Result, bail};
use futures::{Stream, TryStreamExt};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::{ConfigMap, ServiceAccount},
    rbac::v1::RoleBinding,
};
use kube::{
    Api, Client, Config,
    api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    config::AuthInfo,
};
use testkit::{
    faults::{
        point::{Fault, Injection, Point, Route},
        proxy::{Endpoint, KillTarget, Proxy, Traced},
    },
    suite::Env,
};
use tokio::time::{Instant, timeout};
use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};

use crate::map;

pub(super) const SOON: Duration = Duration::from_secs(20);

/// A proxy with one client that has all rights in the case's namespace.
pub(super) struct Fixture {
    pub(super) proxy: Proxy,
    pub(super) target: KillTarget,
    pub(super) token: String,
    pub(super) namespace: String,
    /// Through the proxy.
    pub(super) maps: Api<ConfigMap>,
    /// Beside it.
    pub(super) stored: Api<ConfigMap>,
}

impl Fixture {
    pub(super) async fn new(env: &Env, script: Vec<Injection>) -> Result<Self> {
        let token = token(env).await?;
        let target = KillTarget::default();
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let proxy = Proxy::start(listener, &env.config, target.clone(), script).await?;
        let client = client(proxy.endpoint(), Some(&token))?;
        Ok(Self {
            maps: Api::namespaced(client, &env.namespace),
            stored: env.api(),
            namespace: env.namespace.clone(),
            proxy,
            target,
            token,
        })
    }

    pub(super) fn client(&self) -> Result<Client> {
        client(self.proxy.endpoint(), Some(&self.token))
    }

    pub(super) async fn create(&self, name: &str) -> kube::Result<ConfigMap> {
        self.maps.create(&PostParams::default(), &map(name)).await
    }

    pub(super) async fn is_stored(&self, name: &str) -> Result<bool> {
        Ok(self.stored.get_opt(name).await?.is_some())
    }

    pub(super) async fn store(&self, name: &str) -> Result<Instant> {
        self.stored
            .create(&PostParams::default(), &map(name))
            .await?;
        Ok(Instant::now())
    }

    pub(super) fn traced(&self, verb: &str) -> Vec<Traced> {
        let mut trace = self.proxy.trace();
        trace.retain(|traced| traced.point.route == Route::new(verb, "configmaps"));
        trace
    }

    /// A watch of what comes after now.
    pub(super) async fn watch(
        &self,
    ) -> Result<impl Stream<Item = kube::Result<WatchEvent<ConfigMap>>>> {
        let list = self.maps.list(&ListParams::default()).await?;
        let version = list.metadata.resource_version.context("no version")?;
        let parameters = WatchParams::default().disable_bookmarks();
        Ok(self.maps.watch(&parameters, &version).await?)
    }
}

pub(super) fn client(endpoint: &Endpoint, token: Option<&str>) -> Result<Client> {
    let mut config = Config::new(endpoint.server.parse()?);
    let authority = CertificateDer::from_pem_slice(endpoint.authority.as_bytes())?;
    config.root_cert = Some(vec![authority.to_vec()]);
    config.default_retry = false;
    config.proxy_url = None;
    config.auth_info = AuthInfo {
        token: token.map(|token| token.to_owned().into()),
        ..AuthInfo::default()
    };
    Ok(Client::try_from(config)?)
}

pub(super) async fn token(env: &Env) -> Result<String> {
    let binding = serde_json::json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "all"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": env.namespace}],
    });
    let bindings: Api<RoleBinding> = env.api();
    let ours = PatchParams::apply("proxy-test");
    bindings.patch("all", &ours, &Patch::Apply(binding)).await?;
    let accounts: Api<ServiceAccount> = env.api();
    let wanted = TokenRequest {
        spec: TokenRequestSpec {
            expiration_seconds: Some(3600),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let made = accounts
        .create_token_request("default", &PostParams::default(), &wanted)
        .await?;
    Ok(made.status.context("no token")?.token)
}

pub(super) fn at(verb: &str, name: &str, nth: u32, fault: Fault) -> Injection {
    Injection::Request {
        point: Point {
            route: Route::new(verb, "configmaps"),
            name: name.to_owned(),
            nth,
        },
        fault,
        times: 1,
    }
}

pub(super) fn is_reset(error: &kube::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.kind() == io::ErrorKind::ConnectionReset;
        }
        cause = error.source();
    }
    false
}

pub(super) fn status(error: &kube::Error) -> Option<(u16, &str)> {
    let kube::Error::Api(status) = error else {
        return None;
    };
    Some((status.code, status.reason.as_str()))
}

/// The name of the next event's object, and when it came.
pub(super) async fn seen(
    events: &mut (impl Stream<Item = kube::Result<WatchEvent<ConfigMap>>> + Unpin),
) -> Result<(String, Instant)> {
    let event = timeout(SOON, events.try_next()).await??;
    let event = event.context("the stream ended")?;
    let WatchEvent::Added(map) = event else {
        bail!("{event:?}");
    };
    Ok((map.metadata.name.unwrap_or_default(), Instant::now()))
}
