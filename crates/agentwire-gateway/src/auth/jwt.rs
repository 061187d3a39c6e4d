//! Signed tokens (JWT): parsing, verification, and the principal that the claims name.
//!
//! The token's unverified `iss` selects the entry, `kid` the key within it. The entry decides which algorithms count; the
//! token's own `jku`, `x5u` and `jwk` are never looked at.

use agentwire_store::Time;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

use super::{
    Refusal,
    jwks::{KeySource, Refetched},
    jws,
    names::{self, DEFAULT_TENANT, Issuers},
    principal::{AuthMethod, Principal},
    scope::{RoleTable, Scope},
    secret::CurrentSecret,
    settings::{JwtAlgorithm, JwtIssuer, JwtKeys},
    strict_json,
};

/// Longest token.
const MAX_TOKEN: usize = 8 << 10;

/// Most roles and scopes of a token.
const MAX_ENTRIES: usize = 1000;

/// A token whose parts could be read; nothing of it is verified.
pub(super) struct Token<'t> {
    signed: &'t str,
    signature: Vec<u8>,
    header: Map<String, Value>,
    claims: Map<String, Value>,
}

impl<'t> Token<'t> {
    /// Reads the parts of a token; `None` if the text is no JWT.
    pub(super) fn parse(text: &'t str) -> Option<Self> {
        if text.len() > MAX_TOKEN {
            return None;
        }
        let (signed, signature) = text.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        if claims.contains('.') || signature.is_empty() {
            return None;
        }
        let object = |part: &str| strict_json::parse_object(&URL_SAFE_NO_PAD.decode(part).ok()?);
        Some(Self { signed, signature, header: object(header)?, claims: object(claims)? })
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.header.get(name)?.as_str()
    }

    /// The issuer that the token names.
    pub(super) fn issuer(&self) -> Option<&str> {
        self.claims.get("iss")?.as_str()
    }
}

/// An issuer with its keys.
pub(super) struct Issuer {
    pub(super) settings: JwtIssuer,
    keys: Keys,
}

enum Keys {
    Set(std::sync::Arc<KeySource>),
    Secret(CurrentSecret),
}

impl Issuer {
    pub(super) fn new(settings: JwtIssuer) -> Self {
        let keys = match &settings.keys {
            JwtKeys::Secret(secret) => Keys::Secret(CurrentSecret::new(secret.clone())),
            keys => Keys::Set(KeySource::new(keys.clone())),
        };
        Self { settings, keys }
    }

    /// A number that changes with the keys; a token that was verified under another one is verified again.
    ///
    /// # Errors
    /// If there are no keys that may be used.
    pub(super) async fn key_generation(&self) -> Result<u64, Refusal> {
        match &self.keys {
            Keys::Set(source) => Ok(source.current().await.ok_or(Refusal::Unavailable)?.generation),
            Keys::Secret(secret) => {
                let secret = secret.get().ok_or(Refusal::Unavailable)?;
                Ok(u64::from_le_bytes(
                    ring::digest::digest(&ring::digest::SHA256, &secret).as_ref()[..8]
                        .try_into()
                        .unwrap_or_default(),
                ))
            }
        }
    }

    /// Verifies a token of this issuer and makes a principal of its claims.
    pub(super) async fn verify(
        &self,
        token: &Token<'_>,
        names: &Issuers,
        roles: &RoleTable,
        now: Time,
    ) -> Result<Principal, Refusal> {
        // A token must not be used by a reader that ignores an extension that it calls critical; no extension is known.
        // And the payload of a token is always encoded (RFC 7797, section 7).
        if token.header.contains_key("crit") || token.header.contains_key("b64") {
            return Err(Refusal::Invalid);
        }
        let algorithm = token.header("alg").and_then(JwtAlgorithm::find).ok_or(Refusal::Invalid)?;
        if !self.settings.algorithms.contains(&algorithm) {
            return Err(Refusal::Invalid);
        }
        let kid = match token.header.get("kid") {
            None => None,
            Some(Value::String(kid)) => Some(kid.as_str()),
            Some(_) => return Err(Refusal::Invalid),
        };
        // The cheap checks come first: a signature costs more than all of them.
        self.check_audience(&token.claims)?;
        let expires = self.check_times(&token.claims, now)?;
        let mut principal = self.principal(&token.claims, names, roles).ok_or(Refusal::Invalid)?;
        self.check_signature(token, algorithm, kid).await?;
        // Only now: "expired" tells nobody anything about a forged token.
        if expires <= now {
            return Err(Refusal::Expired);
        }
        principal.expires = Some(expires);
        Ok(principal)
    }

    async fn check_signature(
        &self,
        token: &Token<'_>,
        algorithm: JwtAlgorithm,
        kid: Option<&str>,
    ) -> Result<(), Refusal> {
        let (message, signature) = (token.signed.as_bytes(), token.signature.as_slice());
        let source = match &self.keys {
            Keys::Secret(secret) => {
                let secret = secret.get().ok_or(Refusal::Unavailable)?;
                let is_valid = jws::is_signed_with(&secret, algorithm, message, signature);
                return if is_valid { Ok(()) } else { Err(Refusal::Forged) };
            }
            Keys::Set(source) => source,
        };
        if algorithm.is_symmetric() {
            return Err(Refusal::Invalid);
        }
        let mut keys = source.current().await.ok_or(Refusal::Unavailable)?;
        if let Some(kid) = kid
            && !keys.has(kid)
        {
            keys = match source.fetched_again(&keys, kid).await {
                Refetched::Keys(keys) => keys,
                Refetched::Unavailable => return Err(Refusal::Unavailable),
            };
        }
        if keys.candidates(kid, algorithm).any(|key| key.verifies(algorithm, message, signature)) {
            return Ok(());
        }
        // A key of an unknown id may be in the next set.
        let is_final = kid.is_none_or(|kid| keys.has(kid));
        Err(if is_final { Refusal::Forged } else { Refusal::Invalid })
    }

    /// Checks that `exp`, `nbf` and `iat` are times, and that `nbf` and `iat` are past; returns when the token ends, with
    /// leeway, which may be past too.
    fn check_times(&self, claims: &Map<String, Value>, now: Time) -> Result<Time, Refusal> {
        let number = |name: &str| match claims.get(name) {
            None => Ok(None),
            Some(value) => value.as_f64().filter(|time| time.is_finite()).map(Some).ok_or(Refusal::Invalid),
        };
        #[allow(clippy::cast_precision_loss, reason = "milliseconds since the epoch fit")]
        let now = now.0 as f64 / 1000.0;
        let leeway = self.settings.leeway.as_secs_f64();
        let expires = number("exp")?.ok_or(Refusal::Invalid)?;
        for begins in ["nbf", "iat"] {
            if number(begins)?.is_some_and(|begins| begins > now + leeway) {
                return Err(Refusal::Invalid);
            }
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it saturates at both ends"
        )]
        let ends = ((expires + leeway) * 1000.0) as u64;
        Ok(Time(ends.min(i64::MAX as u64)))
    }

    fn check_audience(&self, claims: &Map<String, Value>) -> Result<(), Refusal> {
        let is_accepted = |value: &Value| {
            value
                .as_str()
                .is_some_and(|value| self.settings.audience.iter().any(|accepted| accepted == value))
        };
        let is_accepted = match claims.get("aud") {
            Some(Value::Array(values)) => {
                values.iter().all(Value::is_string) && values.iter().any(is_accepted)
            }
            Some(value) => is_accepted(value),
            None => false,
        };
        if is_accepted { Ok(()) } else { Err(Refusal::Invalid) }
    }

    /// The principal that the claims name; `None` if a name is missing or cannot be taken.
    fn principal(
        &self,
        claims: &Map<String, Value>,
        names: &Issuers,
        roles: &RoleTable,
    ) -> Option<Principal> {
        let settings = &self.settings;
        let user = at(claims, &settings.claims.user)?.as_str()?;
        let user = match settings.is_unprefixed {
            true => names.unprefixed(user)?.to_owned(),
            false => Issuers::prefixed(&settings.name, user)?,
        };
        let tenant = match &settings.claims.tenant {
            Some(pointer) => at(claims, pointer)?.as_str().filter(|tenant| names::is_valid(tenant))?,
            None => DEFAULT_TENANT,
        };
        let given_roles = match &settings.claims.roles {
            Some(pointer) => texts(at(claims, pointer))?,
            None => Vec::new(),
        };
        let scopes = texts(at(claims, &settings.claims.scopes))?;
        // Tokens have scopes of other servers too, such as `openid`.
        let scopes = scopes.iter().filter_map(|scope| scope.parse::<Scope>().ok());
        let method = AuthMethod::Jwt;
        let principal = Principal::new(method, tenant, &user, "");
        Some(principal.with_permissions(given_roles.into_iter().map(Into::into).collect(), scopes, roles))
    }
}

/// The value at a JSON pointer; `null` counts as absent.
fn at<'c>(claims: &'c Map<String, Value>, pointer: &str) -> Option<&'c Value> {
    let (first, rest) = match pointer.strip_prefix('/')?.split_once('/') {
        Some((first, rest)) => (first, format!("/{rest}")),
        None => (&pointer[1..], String::new()),
    };
    let value = claims.get(&first.replace("~1", "/").replace("~0", "~"))?;
    value.pointer(&rest).filter(|value| !value.is_null())
}

/// A list of texts, or a text with spaces; empty if absent, `None` if it is something else.
fn texts(value: Option<&Value>) -> Option<Vec<String>> {
    let texts: Vec<String> = match value {
        None => Vec::new(),
        Some(Value::String(text)) => text.split_ascii_whitespace().map(str::to_owned).collect(),
        Some(Value::Array(values)) => {
            values.iter().map(|value| value.as_str().map(str::to_owned)).collect::<Option<_>>()?
        }
        Some(_) => return None,
    };
    (texts.len() <= MAX_ENTRIES).then_some(texts)
}
