//! Proof for an agent's server of who asks: a signed token in a header of every request to it.
//!
//! The token is a compact JWS, signed with HS256, or with EdDSA if the key is a private key in PEM.

use std::{fmt, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{hmac, signature::Ed25519KeyPair};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
use serde_json::json;

use super::secret::{CurrentSecret, Secret, SecretError};

/// The header that carries the token. A client's own is never passed on.
pub const IDENTITY_HEADER: &str = "agentwire-identity";

/// The start of a private key in PEM.
const PEM: &[u8] = b"-----BEGIN";

/// The signature of identities on requests to an agent's server. Cheap to clone.
#[derive(Clone)]
pub struct UpstreamIdentity(Arc<Inner>);

struct Inner {
    source: Secret,
    secret: CurrentSecret,
    ttl: Duration,
}

impl fmt::Debug for UpstreamIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamIdentity").field("sign", &self.0.source).field("ttl", &self.0.ttl).finish()
    }
}

/// A key that cannot sign.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityKeyError {
    /// The key is not there.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// It was there when the gateway started, and cannot be read now.
    #[error("the key that signs identities cannot be read")]
    Gone,
    /// A key in PEM that is no Ed25519 key in PKCS #8.
    #[error("the key that signs identities is no Ed25519 private key in PKCS #8")]
    NotEd25519,
}

/// The names that an identity states.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdentityClaims<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) user: &'a str,
    pub(crate) agent: &'a str,
    /// The thread's id as the agent's server gets it.
    pub(crate) thread: &'a str,
    /// The run's id as the agent's server gets it; `None` for a request about the thread as a whole.
    pub(crate) run: Option<&'a str>,
}

impl UpstreamIdentity {
    /// Tokens signed with `secret` that are valid for `ttl`.
    #[must_use]
    pub fn new(secret: Secret, ttl: Duration) -> Self {
        let source = secret.clone();
        Self(Arc::new(Inner { source, secret: CurrentSecret::new(secret), ttl }))
    }

    /// The source of the key.
    #[must_use]
    pub fn source(&self) -> &Secret {
        &self.0.source
    }

    /// Checks that the key can sign.
    ///
    /// # Errors
    /// When it is absent, or no Ed25519 key in PEM.
    pub fn check(&self) -> Result<(), IdentityKeyError> {
        let key = self.0.source.read()?;
        if key.starts_with(PEM) { ed25519(&key).map(|_| ()) } else { Ok(()) }
    }

    /// A token of these names, valid from `now`, in seconds.
    pub(crate) fn sign(&self, claims: IdentityClaims<'_>, now: u64) -> Result<String, IdentityKeyError> {
        let key = self.0.secret.get().ok_or(IdentityKeyError::Gone)?;
        let ed25519 = if key.starts_with(PEM) { Some(ed25519(&key)?) } else { None };
        let algorithm = if ed25519.is_some() { "EdDSA" } else { "HS256" };
        let IdentityClaims { tenant, user, agent, thread, run } = claims;
        let expires = now.saturating_add(self.0.ttl.as_secs().max(1));
        let mut payload = json!({
            "tenant": tenant, "user": user, "agent": agent, "thread": thread, "iat": now, "exp": expires,
        });
        if let Some(run) = run {
            payload["run"] = run.into();
        }
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let header = json!({"alg": algorithm, "typ": "JWT"}).to_string();
        let signed = format!("{}.{}", encode(header.as_bytes()), encode(payload.to_string().as_bytes()));
        let signature = match ed25519 {
            Some(pair) => encode(pair.sign(signed.as_bytes()).as_ref()),
            None => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
                encode(hmac::sign(&key, signed.as_bytes()).as_ref())
            }
        };
        Ok(format!("{signed}.{signature}"))
    }
}

fn ed25519(pem: &[u8]) -> Result<Ed25519KeyPair, IdentityKeyError> {
    let der = PrivatePkcs8KeyDer::from_pem_slice(pem).map_err(|_| IdentityKeyError::NotEd25519)?;
    Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der())
        .map_err(|_| IdentityKeyError::NotEd25519)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_pem_must_be_of_ed25519() {
        let of = |text: &str| UpstreamIdentity::new(Secret::Value(text.into()), Duration::from_secs(60));
        assert_eq!(of("a shared key").check(), Ok(()));
        let not_a_key = of("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
        assert_eq!(not_a_key.check(), Err(IdentityKeyError::NotEd25519));
        assert!(matches!(of("").check(), Err(IdentityKeyError::Secret(_))));
        let shown = format!("{:?}", of("canary"));
        assert!(!shown.contains("canary"), "{shown}");
    }
}
