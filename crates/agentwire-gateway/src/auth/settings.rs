//! Settings of authentication: plain values with defaults.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, time::Duration};

use super::{scope::Scope, secret::Secret};

/// Settings of authentication.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Auth {
    /// Policy for requests without a credential.
    pub mode: AuthMode,
    /// Issuers of signed tokens.
    pub jwt: Vec<JwtIssuer>,
    /// API keys; `None` accepts none.
    pub keys: Option<KeySettings>,
    /// A proxy that authenticates users; `None` trusts none.
    pub proxy: Option<ProxySettings>,
    /// An external handler for credentials that nothing else knows.
    pub ask: Option<AskSettings>,
    /// Services that authenticate by a client certificate.
    pub mtls: Vec<MtlsEntry>,
    /// The scopes of each role.
    pub roles: BTreeMap<String, Vec<Scope>>,
}

/// Policy for requests without a credential.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthMode {
    /// Accepted, with every permission; credentials are not looked at. For loopback.
    #[default]
    Anonymous,
    /// Refused.
    Required,
}

impl Auth {
    /// True if every request needs a credential.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.mode == AuthMode::Required
    }
}

/// An issuer of signed tokens (JWT).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JwtIssuer {
    /// The name of the entry, the first part of its users' names: `NAME|sub`.
    pub name: String,
    /// The `iss` of its tokens.
    pub issuer: String,
    /// Accepted values of `aud`; a token must have one of them.
    pub audience: Vec<String>,
    /// The keys of the signatures.
    pub keys: JwtKeys,
    /// Accepted algorithms.
    pub algorithms: Vec<JwtAlgorithm>,
    /// Tolerance for clocks that differ.
    pub leeway: Duration,
    /// Positions of names in a token.
    pub claims: JwtClaims,
    /// A cookie that carries a token; none by default.
    pub cookie: Option<String>,
    /// True if users are named `sub` only. At most one issuer may.
    pub is_unprefixed: bool,
}

impl JwtIssuer {
    /// An issuer with default claims, RS256, ES256 and EdDSA (or HS256 for a secret), and half a minute of leeway.
    #[must_use]
    pub fn new(name: &str, issuer: &str, audience: &str, keys: JwtKeys) -> Self {
        let algorithms = match &keys {
            JwtKeys::Secret(_) => vec![JwtAlgorithm::HS256],
            JwtKeys::Url { .. } | JwtKeys::File { .. } => JwtAlgorithm::DEFAULT.to_vec(),
        };
        Self {
            name: name.into(),
            issuer: issuer.into(),
            audience: vec![audience.into()],
            keys,
            algorithms,
            leeway: Duration::from_secs(30),
            claims: JwtClaims::default(),
            cookie: None,
            is_unprefixed: false,
        }
    }
}

/// The keys of an issuer's signatures.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum JwtKeys {
    /// A key set (JWKS) on a server.
    Url {
        /// Its address: https, or http on this machine.
        url: String,
        /// Interval at which it is fetched.
        refresh: Duration,
        /// Time for which keys are used after the last successful fetch.
        max_stale: Duration,
    },
    /// A key set in a file.
    File {
        /// Its path.
        path: PathBuf,
        /// Interval at which it is read.
        refresh: Duration,
        /// Time for which keys are used after the last successful read.
        max_stale: Duration,
    },
    /// A secret that the issuer shares with the gateway; for `HS256`, `HS384`, `HS512`.
    Secret(Secret),
}

/// A signature algorithm of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names of RFC 7518 and RFC 8037")]
#[non_exhaustive]
pub enum JwtAlgorithm {
    HS256,
    HS384,
    HS512,
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    EdDSA,
}

impl JwtAlgorithm {
    /// Every algorithm under its name.
    pub const NAMES: &[(&str, Self)] = &[
        ("HS256", Self::HS256),
        ("HS384", Self::HS384),
        ("HS512", Self::HS512),
        ("RS256", Self::RS256),
        ("RS384", Self::RS384),
        ("RS512", Self::RS512),
        ("PS256", Self::PS256),
        ("PS384", Self::PS384),
        ("PS512", Self::PS512),
        ("ES256", Self::ES256),
        ("ES384", Self::ES384),
        ("EdDSA", Self::EdDSA),
    ];

    /// The algorithms of a key set unless others are configured.
    pub const DEFAULT: [Self; 3] = [Self::RS256, Self::ES256, Self::EdDSA];

    /// The algorithm of a name.
    pub(super) fn find(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, algorithm)| *algorithm)
    }

    /// Its name.
    pub(super) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, algorithm)| *algorithm == self).map_or("", |(name, _)| name)
    }

    /// True if signer and verifier share one secret.
    #[must_use]
    pub fn is_symmetric(self) -> bool {
        matches!(self, Self::HS256 | Self::HS384 | Self::HS512)
    }
}

/// Positions of names in a token, as JSON pointers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JwtClaims {
    /// The user.
    pub user: String,
    /// The tenant; `None` for the tenant `default`.
    pub tenant: Option<String>,
    /// The roles: a list, or text with spaces.
    pub roles: Option<String>,
    /// The scopes: a list, or text with spaces.
    pub scopes: String,
}

impl Default for JwtClaims {
    fn default() -> Self {
        Self { user: "/sub".into(), tenant: None, roles: None, scopes: "/scope".into() }
    }
}

/// Settings of API keys.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KeySettings {
    /// The key of the hashes in the store. Whoever has the store, and not this, cannot make keys.
    pub pepper: Secret,
}

impl KeySettings {
    /// Keys whose hashes depend on this secret.
    #[must_use]
    pub fn new(pepper: Secret) -> Self {
        Self { pepper }
    }
}

/// A proxy that authenticates users and names them in headers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProxySettings {
    /// The networks from which it connects.
    pub peers: Vec<Network>,
    /// The header with the secret that it shares with the gateway, in lower case.
    pub secret_header: String,
    /// That secret.
    pub secret: Secret,
    /// The header with the user, in lower case.
    pub user: String,
    /// The header with the tenant; `None` for the tenant `default`.
    pub tenant: Option<String>,
    /// The header with the roles, a comma list.
    pub roles: Option<String>,
}

impl ProxySettings {
    /// A proxy that sends the user in a header.
    #[must_use]
    pub fn new(peers: Vec<Network>, secret_header: &str, secret: Secret, user: &str) -> Self {
        let (secret_header, user) = (secret_header.to_ascii_lowercase(), user.to_ascii_lowercase());
        Self { peers, secret_header, secret, user, tenant: None, roles: None }
    }
}

/// A network in CIDR notation.
pub type Network = ipnet::IpNet;

/// True if an address is in one of the networks.
pub(crate) fn is_in(address: IpAddr, networks: &[Network]) -> bool {
    let address = address.to_canonical();
    networks.iter().any(|network| network.contains(&address))
}

/// An external handler that authenticates requests.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AskSettings {
    /// Its address.
    pub url: String,
    /// Time for its reply; without one the request is refused.
    pub timeout: Duration,
    /// Time for which a reply is used again.
    pub cache: Duration,
    /// The headers of a request that it receives, in lower case. At least one of them must be there.
    pub headers: Vec<String>,
}

impl AskSettings {
    /// A handler that receives `Authorization`.
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self {
            url: url.into(),
            timeout: Duration::from_secs(2),
            cache: Duration::from_secs(30),
            headers: vec!["authorization".into()],
        }
    }
}

/// Services whose certificates have a name in common.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MtlsEntry {
    /// A SAN URI or DNS name; `*` stands for any text.
    pub san: String,
    /// The tenant; `None` for the tenant `default`.
    pub tenant: Option<String>,
    /// Roles, by name.
    pub roles: Vec<String>,
    /// Scopes.
    pub scopes: Vec<Scope>,
}

impl MtlsEntry {
    /// Services without permissions.
    #[must_use]
    pub fn new(san: &str) -> Self {
        Self { san: san.into(), tenant: None, roles: Vec::new(), scopes: Vec::new() }
    }
}
