//! An issuer of ID tokens in the cluster's network, and tokens as anybody can write them.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair},
};
use serde_json::{Value, json};
use testkit::{git::Network, suite::Env};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring::default_provider,
        pki_types::{PrivatePkcs8KeyDer, pem::PemObject},
    },
};

use crate::e2e::why;

/// The audience of the issuer's tokens: the client that users sign in to.
pub(super) const AUDIENCE: &str = "orchestrator";

/// The name of the issuer's key.
const KEY: &str = "k1";

/// Longest head of a request for the keys.
const HEAD: usize = 16 * 1024;

/// The claims of a token.
#[derive(Debug, Clone)]
pub(super) struct Claims(Value);

impl Claims {
    /// Reads the claims of a token, without a look at its signature.
    pub(super) fn of_token(token: &str) -> Result<Self> {
        let claims = token.split('.').nth(1).context("a token without claims")?;
        let bytes = URL_SAFE_NO_PAD.decode(claims)?;
        Ok(Self(serde_json::from_slice(&bytes)?))
    }

    pub(super) fn set(&mut self, name: &str, value: Value) {
        self.0[name] = value;
    }

    pub(super) fn get(&self, name: &str) -> Value {
        self.0[name].clone()
    }

    pub(super) fn number(&self, name: &str) -> i64 {
        self.0[name].as_i64().unwrap_or_default()
    }

    /// Returns the claims as a part of a token.
    pub(super) fn text(&self) -> String {
        Self::encode(&self.0)
    }

    /// Returns JSON as a part of a token.
    pub(super) fn encode(value: &Value) -> String {
        URL_SAFE_NO_PAD.encode(value.to_string())
    }
}

/// A key that signs tokens with ES256.
pub(super) struct Key {
    pair: EcdsaKeyPair,
    /// Name of the key; empty for none.
    id: String,
}

impl Key {
    pub(super) fn generate(id: &str) -> Result<Self> {
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let made = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new())
            .map_err(|error| anyhow!("cannot make a key: {error}"))?;
        Self::of_pkcs8(made.as_ref(), id)
    }

    /// Reads a private key.
    pub(super) fn of_pem(pem: &str, id: &str) -> Result<Self> {
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes())?;
        Self::of_pkcs8(key.secret_pkcs8_der(), id)
    }

    fn of_pkcs8(bytes: &[u8], id: &str) -> Result<Self> {
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, bytes, &SystemRandom::new())
            .map_err(|error| anyhow!("cannot use a key: {error}"))?;
        Ok(Self {
            pair,
            id: id.to_owned(),
        })
    }

    /// Returns a token with these claims.
    pub(super) fn sign(&self, claims: &Claims) -> Result<String> {
        let mut head = json!({ "alg": "ES256", "typ": "JWT" });
        if !self.id.is_empty() {
            head["kid"] = json!(self.id);
        }
        let signed = format!("{}.{}", Claims::encode(&head), claims.text());
        let signature = self
            .pair
            .sign(&SystemRandom::new(), signed.as_bytes())
            .map_err(|error| anyhow!("cannot sign: {error}"))?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// Returns the public key as a JSON Web Key.
    fn public(&self) -> Result<Value> {
        // One byte for the format, and two numbers.
        let bytes = self.pair.public_key().as_ref();
        let point = bytes.get(1..).context("no public key")?;
        let (x, y) = point.split_at_checked(32).context("half of a public key")?;
        let text = |number: &[u8]| URL_SAFE_NO_PAD.encode(number);
        Ok(json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.id,
            "x": text(x), "y": text(y),
        }))
    }
}

/// A running issuer. Dropping it stops its server.
pub(super) struct Issuer {
    pub(super) key: Key,
    url: String,
    _serving: JoinSet<()>,
}

impl Issuer {
    /// Starts an issuer, and tells the API server to trust it.
    pub(super) async fn start(env: &Env) -> Result<Self> {
        let cluster = env.testbed("an issuer in the cluster's network")?;
        let network = Network::of(cluster)?;
        let address = network.address();
        let listener = network.run(move || std::net::TcpListener::bind((address, 0)))??;
        let url = format!("https://{}", listener.local_addr()?);
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;

        let made = rcgen::generate_simple_self_signed([address.to_string()])?;
        let private = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], private.into())?;
        let key = Key::generate(KEY)?;
        let pages = Arc::new(Pages {
            configuration: json!({
                "issuer": url, "jwks_uri": format!("{url}/keys"),
                "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256"],
            }),
            keys: json!({ "keys": [key.public()?] }),
        });
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, TlsAcceptor::from(Arc::new(config)), pages));
        cluster.trust_issuers(&[json!({
            "issuer": {
                "url": url, "audiences": [AUDIENCE], "certificateAuthority": made.cert.pem(),
            },
            "claimMappings": { "username": { "claim": "sub", "prefix": "id:" } },
        })])?;
        Ok(Self {
            key,
            url,
            _serving: serving,
        })
    }

    /// Returns the claims of a user's token, which is valid for an hour.
    pub(super) fn claims(&self, user: &str) -> Claims {
        let now = why::now().as_second();
        Claims(json!({
            "iss": self.url, "aud": AUDIENCE, "sub": user, "iat": now, "exp": now + 3600,
        }))
    }

    /// Tells the API server to trust the issuer no longer.
    pub(super) fn stop(self, env: &Env) -> Result<()> {
        env.testbed("an issuer in the cluster's network")?
            .trust_issuers(&[])
    }
}

struct Pages {
    configuration: Value,
    keys: Value,
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, pages: Arc<Pages>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            // A broken connection is an error of its client, which connects again.
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(respond(stream, acceptor.clone(), Arc::clone(&pages)));
                }
                Err(_closed) => return,
            },
        }
    }
}

async fn respond(stream: TcpStream, acceptor: TlsAcceptor, pages: Arc<Pages>) -> Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let mut read = Vec::new();
    while !read.windows(4).any(|four| four == b"\r\n\r\n") && read.len() < HEAD {
        if stream.read_buf(&mut read).await? == 0 {
            return Ok(());
        }
    }
    let head = String::from_utf8_lossy(&read);
    let (status, body) = match head.split(' ').nth(1) {
        Some("/.well-known/openid-configuration") => ("200 OK", pages.configuration.to_string()),
        Some("/keys") => ("200 OK", pages.keys.to_string()),
        Some(_) | None => ("404 Not Found", "{}".to_owned()),
    };
    let length = body.len();
    let response = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    use super::*;

    #[test]
    fn a_token_has_its_claims_and_a_signature_of_its_key() {
        let key = Key::generate("k1").unwrap();
        let token = key
            .sign(&Claims(json!({ "sub": "ann", "exp": 7 })))
            .unwrap();
        let claims = Claims::of_token(&token).unwrap();
        assert_eq!((claims.number("exp"), claims.get("sub")), (7, json!("ann")));
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        let public = key.pair.public_key().as_ref().to_vec();
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, public);
        public.verify(signed.as_bytes(), &signature).unwrap();
        let shown = key.public().unwrap();
        assert_eq!(shown["x"].as_str().map(str::len), Some(43));
        assert_eq!(shown["kid"], "k1");
    }

    #[test]
    fn a_key_of_the_cluster_signs_as_well() {
        let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
        let key = Key::of_pem(&pem, "").unwrap();
        let token = key.sign(&Claims(json!({}))).unwrap();
        let head = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap());
        assert!(!String::from_utf8(head.unwrap()).unwrap().contains("kid"));
    }
}
