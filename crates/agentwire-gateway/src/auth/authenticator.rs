//! The authenticator: finds the credential in the head of a request and makes a principal of it.
//!
//! A request has one credential; two are refused, because one of them may come from somebody else.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use agentwire_store::{Store, Time};
use axum::http::{HeaderMap, header};

use super::{
    Refusal,
    api_keys::{self, ApiKeys},
    ask::{Ask, hex, sha256},
    jwt::{Issuer, Token},
    mtls::{self, ClientCertificate},
    names::Issuers,
    principal::{AuthMethod, Principal},
    proxy::Proxy,
    scope::RoleTable,
    secret::{CurrentSecret, Secret},
    settings::{Auth, MtlsEntry},
    ticket::Tickets,
    upstream_identity::IDENTITY_HEADER,
};
use crate::error::ApiError;

/// The parts of a request that authentication looks at.
pub(crate) struct RequestHead<'a> {
    pub(crate) headers: &'a HeaderMap,
    pub(crate) method: &'a str,
    /// The route's template.
    pub(crate) route: &'a str,
    /// The agent of the route; empty for routes of the server.
    pub(crate) agent: &'a str,
    /// The address of the connection.
    pub(crate) connection: Option<IpAddr>,
    /// The client behind proxies.
    pub(crate) peer: Option<IpAddr>,
    /// The client's certificate.
    pub(crate) certificate: Option<&'a ClientCertificate>,
    /// The ticket and the run of a stream that takes tickets.
    pub(crate) ticket: Option<(String, String)>,
    pub(crate) now: Time,
}

/// Tokens that are remembered as accepted, and as refused.
const MAX_REMEMBERED: usize = 10_000;

/// Authenticates requests.
pub(crate) struct Authenticator {
    is_required: bool,
    issuers: Vec<Issuer>,
    issuer_names: Issuers,
    keys: Option<Arc<ApiKeys>>,
    proxy: Option<Proxy>,
    ask: Option<Ask>,
    mtls: Vec<MtlsEntry>,
    tickets: Tickets,
    roles: RoleTable,
    /// A signature is checked once.
    checked: Mutex<CheckedTokens>,
}

/// Tokens whose signature was checked, by their hash. Those that are refused are apart: nobody can make the gateway forget
/// the others.
#[derive(Default)]
struct CheckedTokens {
    accepted: HashMap<[u8; 32], Checked>,
    refused: HashMap<[u8; 32], Checked>,
}

/// A token whose signature was checked.
#[derive(Clone)]
struct Checked {
    /// The refusal of a token that is forged, or that had expired when it was checked.
    result: Result<Arc<Principal>, Refusal>,
    issuer: usize,
    /// The keys that it was checked with; it is checked again with others.
    key_generation: u64,
}

impl CheckedTokens {
    fn get(&self, hash: &[u8; 32]) -> Option<Checked> {
        self.accepted.get(hash).or_else(|| self.refused.get(hash)).cloned()
    }
}

/// A credential of a request.
enum Credential<'h> {
    Bearer(&'h str),
    /// An `Authorization` of another scheme.
    Other,
    /// A token in the cookie of an issuer.
    Cookie(usize, &'h str),
    Proxy,
    Certificate(Arc<Principal>),
    Ticket(&'h str, &'h str),
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("is_required", &self.is_required).finish_non_exhaustive()
    }
}

impl Authenticator {
    /// `shared` is a secret of all gateways of the store.
    pub(crate) fn new(settings: Auth, shared: Option<Secret>, store: &Arc<dyn Store>) -> Self {
        let is_required = settings.is_required();
        let Auth { jwt, keys, proxy, ask, mtls, roles, .. } = settings;
        let roles = RoleTable::new(roles);
        let pepper = keys.map(|keys| Arc::new(CurrentSecret::new(keys.pepper)));
        Self {
            is_required,
            issuer_names: Issuers(jwt.iter().map(|issuer| issuer.name.clone()).collect()),
            issuers: jwt.into_iter().map(Issuer::new).collect(),
            keys: pepper.clone().map(|pepper| ApiKeys::new(store.clone(), pepper, roles.clone())),
            proxy: proxy.map(Proxy::new),
            ask: ask.map(Ask::new),
            mtls,
            tickets: Tickets::new(pepper.or_else(|| shared.map(|key| Arc::new(CurrentSecret::new(key))))),
            roles,
            checked: Mutex::default(),
        }
    }

    /// The principal of a request.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`, `TOKEN_EXPIRED`, `FORBIDDEN` (by the external handler), `AUTH_UNAVAILABLE`.
    pub(crate) async fn authenticate(&self, head: &RequestHead<'_>) -> Result<Arc<Principal>, ApiError> {
        match &head.ticket {
            None if !self.is_required => Ok(Principal::anonymous()),
            Some((text, run)) if !self.is_required => Ok(self.check_ticket(text, run, head).await?),
            _ => Ok(self.find_principal(head).await?),
        }
    }

    async fn find_principal(&self, head: &RequestHead<'_>) -> Result<Arc<Principal>, Refusal> {
        let mut credentials = self.credentials(head)?;
        let Some(credential) = credentials.pop() else {
            // A session of the operator's own, for example in a cookie.
            return match self.ask.as_ref().filter(|ask| ask.is_claimed(head.headers)) {
                Some(ask) => ask.check(head, &self.issuer_names, &self.roles).await,
                None => Err(Refusal::Missing),
            };
        };
        if !credentials.is_empty() {
            return Err(Refusal::Invalid);
        }
        match credential {
            Credential::Bearer(text) => self.check_bearer(text, head).await,
            Credential::Other => self.ask_about(head).await,
            Credential::Cookie(issuer, text) => {
                let principal = self.check_token(text, Some(issuer), head.now).await?;
                let principal = principal.ok_or(Refusal::Invalid)?;
                Ok(Arc::new(Principal { method: AuthMethod::Cookie, ..(*principal).clone() }))
            }
            Credential::Proxy => {
                let proxy = self.proxy.as_ref().ok_or(Refusal::Invalid)?;
                let principal =
                    proxy.check(head.headers, head.connection, &self.issuer_names, &self.roles)?;
                Ok(Arc::new(principal))
            }
            Credential::Certificate(principal) => {
                match principal.expires.is_some_and(|expires| expires <= head.now) {
                    true => Err(Refusal::Expired),
                    false => Ok(principal),
                }
            }
            Credential::Ticket(text, run) => self.check_ticket(text, run, head).await,
        }
    }

    /// The first credential of a request that was refused, for the audit log: its kind, and its id or a hash.
    pub(crate) fn shown(&self, head: &RequestHead<'_>) -> Option<(AuthMethod, String)> {
        let hashed = |kind: &str, text: &str| format!("{kind}:{}", hex(&sha256(text.as_bytes())[..8]));
        Some(match self.credentials(head).ok()?.into_iter().next()? {
            Credential::Bearer(text) => match api_keys::split(text) {
                Some((id, _)) => (AuthMethod::Key, format!("key:{id}")),
                None => (AuthMethod::Jwt, hashed("jwt", text)),
            },
            Credential::Other => (AuthMethod::Ask, String::new()),
            Credential::Cookie(_, text) => (AuthMethod::Cookie, hashed("jwt", text)),
            Credential::Proxy => (AuthMethod::Proxy, String::new()),
            Credential::Certificate(principal) => (AuthMethod::Mtls, principal.credential.to_string()),
            Credential::Ticket(text, _) => (AuthMethod::Ticket, hashed("ticket", text)),
        })
    }

    /// All credentials of a request.
    fn credentials<'h>(&'h self, head: &'h RequestHead<'_>) -> Result<Vec<Credential<'h>>, Refusal> {
        let mut found = Vec::new();
        for value in head.headers.get_all(header::AUTHORIZATION) {
            let value = value.to_str().map_err(|_| Refusal::Invalid)?;
            let (scheme, rest) = value.split_once(' ').unwrap_or((value, ""));
            found.push(match scheme.eq_ignore_ascii_case("bearer") {
                true => Credential::Bearer(rest.trim_matches(' ')),
                false => Credential::Other,
            });
        }
        for (at, issuer) in self.issuers.iter().enumerate() {
            if let Some(name) = &issuer.settings.cookie {
                found.extend(cookies(head.headers, name).map(|token| Credential::Cookie(at, token)));
            }
        }
        if self.proxy.as_ref().is_some_and(|proxy| proxy.settings().is_claimed(head.headers)) {
            found.push(Credential::Proxy);
        }
        let certificate = head.certificate.and_then(|shown| mtls::principal(shown, &self.mtls, &self.roles));
        found.extend(certificate.map(Credential::Certificate));
        found.extend(head.ticket.as_ref().map(|(text, run)| Credential::Ticket(text, run)));
        Ok(found)
    }

    async fn check_bearer(&self, text: &str, head: &RequestHead<'_>) -> Result<Arc<Principal>, Refusal> {
        if let Some(keys) = &self.keys
            && let Some((id, secret)) = api_keys::split(text)
        {
            return keys.check(id, secret, head.now).await;
        }
        match self.check_token(text, None, head.now).await? {
            Some(principal) => Ok(principal),
            None => self.ask_about(head).await,
        }
    }

    /// Asks the external handler about a credential that nothing here knows.
    async fn ask_about(&self, head: &RequestHead<'_>) -> Result<Arc<Principal>, Refusal> {
        match self.ask.as_ref().filter(|ask| ask.is_claimed(head.headers)) {
            Some(ask) => ask.check(head, &self.issuer_names, &self.roles).await,
            None => Err(Refusal::Invalid),
        }
    }

    /// The principal of a token; `None` if it is no token of an issuer here, or not of `only`.
    async fn check_token(
        &self,
        text: &str,
        only: Option<usize>,
        now: Time,
    ) -> Result<Option<Arc<Principal>>, Refusal> {
        if self.issuers.is_empty() {
            return Ok(None);
        }
        let hash = sha256(text.as_bytes());
        let known = self.checked().get(&hash);
        if let Some(known) = known.filter(|known| only.is_none_or(|only| only == known.issuer))
            && known.key_generation == self.issuers[known.issuer].key_generation().await?
        {
            let principal = known.result?;
            return match principal.expires.is_some_and(|expires| expires <= now) {
                true => Err(Refusal::Expired),
                false => Ok(Some(principal)),
            };
        }
        let Some(token) = Token::parse(text) else { return Ok(None) };
        let named = token.issuer();
        let at = self.issuers.iter().position(|issuer| Some(&*issuer.settings.issuer) == named);
        let Some(at) = at.filter(|at| only.is_none_or(|only| only == *at)) else { return Ok(None) };
        let issuer = &self.issuers[at];
        let key_generation = issuer.key_generation().await?;
        let verified = issuer.verify(&token, &self.issuer_names, &self.roles, now).await;
        let remember = |result| self.remember(hash, result, at, key_generation, now);
        match verified {
            Ok(mut principal) => {
                principal.credential = format!("jwt:{}", hex(&hash[..8])).into();
                let principal = Arc::new(principal);
                remember(Ok(principal.clone()));
                Ok(Some(principal))
            }
            Err(refusal) => {
                // The others cost no signature, or may be accepted later.
                if matches!(refusal, Refusal::Forged | Refusal::Expired) {
                    remember(Err(refusal));
                }
                Err(refusal)
            }
        }
    }

    /// Remembers the result of a check. If the keys have changed meanwhile, the token is checked again.
    fn remember(
        &self,
        hash: [u8; 32],
        result: Result<Arc<Principal>, Refusal>,
        issuer: usize,
        key_generation: u64,
        now: Time,
    ) {
        let mut checked = self.checked();
        let CheckedTokens { accepted, refused } = &mut *checked;
        let known = if result.is_ok() { accepted } else { refused };
        if known.len() >= MAX_REMEMBERED {
            let is_live = |principal: &Arc<Principal>| principal.expires.is_none_or(|expires| expires > now);
            known.retain(|_, known| known.result.as_ref().is_ok_and(is_live));
            if known.len() >= MAX_REMEMBERED {
                known.clear();
            }
        }
        known.insert(hash, Checked { result, issuer, key_generation });
    }

    fn checked(&self) -> MutexGuard<'_, CheckedTokens> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn check_ticket(
        &self,
        text: &str,
        run: &str,
        head: &RequestHead<'_>,
    ) -> Result<Arc<Principal>, Refusal> {
        let ticket = self.tickets.check(text, head.agent, run, head.now)?;
        let mut key = None;
        if let (Some(keys), Some(id)) = (&self.keys, ticket.credential.strip_prefix("key:")) {
            key = Some(keys.valid(id, head.now).await?);
        }
        let mut principal = ticket.principal();
        if let Some(key) = key {
            principal.revoked = key.revoked.clone();
            principal.key = Some(key);
        }
        Ok(Arc::new(principal))
    }

    /// The value of a client's header without credentials for this gateway, which an agent's server never gets. `None` if
    /// nothing is left of it.
    pub(crate) fn without_credentials<'v>(&self, name: &str, value: &'v str) -> Option<Cow<'v, str>> {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        if is(IDENTITY_HEADER) {
            return None;
        }
        if !self.is_required {
            return Some(value.into());
        }
        let is_credential = is("authorization")
            || self.proxy.as_ref().is_some_and(|proxy| is(&proxy.settings().secret_header))
            || self.ask.as_ref().is_some_and(|ask| ask.headers().iter().any(|header| is(header)));
        if is_credential {
            return None;
        }
        let names: Vec<&str> =
            self.issuers.iter().filter_map(|issuer| issuer.settings.cookie.as_deref()).collect();
        if !is("cookie") || names.is_empty() {
            return Some(value.into());
        }
        let is_kept = |pair: &&str| {
            let name = pair.split_once('=').map_or(*pair, |(name, _)| name);
            !names.contains(&name.trim())
        };
        let kept: Vec<&str> = value.split(';').map(str::trim).filter(is_kept).collect();
        (!kept.is_empty()).then(|| kept.join("; ").into())
    }

    /// A ticket for the stream of a run of `agent`.
    ///
    /// # Errors
    /// `AUTH_UNAVAILABLE`.
    pub(crate) fn make_ticket(
        &self,
        principal: &Principal,
        names: (&str, &str),
        agent: &str,
        run: &str,
        now: Time,
    ) -> Result<String, ApiError> {
        Ok(self.tickets.make(principal, names, agent, run, now)?)
    }
}

/// The values of a cookie.
fn cookies<'h>(headers: &'h HeaderMap, name: &'h str) -> impl Iterator<Item = &'h str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(';')).filter_map(move |pair| {
        let (key, value) = pair.trim().split_once('=')?;
        (key == name).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use ring::hmac;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        auth::Secret,
        settings::{JwtIssuer, JwtKeys},
    };

    const SECRET: &[u8] = b"a secret of at least thirty-two bytes";

    fn token(secret: &[u8], claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&json!({"alg": "HS256"})), part(claims));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag.as_ref()))
    }

    /// The signature of a token that is refused by its claims is not looked at; that of another one is, once.
    #[tokio::test]
    async fn a_refused_token_costs_one_signature_at_most() {
        let keys = JwtKeys::Secret(Secret::Value(SECRET.to_vec()));
        let issuer = JwtIssuer::new("corp", "https://id.example/", "agentwire", keys);
        let settings = Auth { jwt: vec![issuer], ..Auth::default() };
        let store =
            agentwire_store::open("memory:", agentwire_store::Options::default()).await.expect("a store");
        let authenticator = Authenticator::new(settings, None, &store);
        let now = Time(1_000_000_000);
        let claims =
            json!({"iss": "https://id.example/", "aud": "agentwire", "sub": "ada", "exp": 2_000_000});
        let with = |name: &str, value: Value| {
            let mut claims = claims.clone();
            claims[name] = value;
            claims
        };
        let check = async |text: &str, now| authenticator.check_token(text, None, now).await.err();
        let refused = || authenticator.checked().refused.len();
        for (name, value) in [
            ("aud", json!("other")),
            ("nbf", json!(2_000_000)),
            ("sub", json!("svc:x")),
            ("exp", Value::Null),
        ] {
            let text = token(SECRET, &with(name, value));
            assert_eq!(check(&text, now).await, Some(Refusal::Invalid), "{name}");
            assert_eq!(refused(), 0, "{name}");
        }
        let expired = token(SECRET, &with("exp", json!(900_000)));
        let forged = token(b"another secret of thirty-two bytes", &with("exp", json!(900_000)));
        for _ in 0..2 {
            assert_eq!(check(&expired, now).await, Some(Refusal::Expired));
            assert_eq!(check(&forged, now).await, Some(Refusal::Forged), "forged, and expired too");
            assert_eq!(refused(), 2);
        }
        let good = token(SECRET, &claims);
        assert_eq!(check(&good, now).await, None);
        assert_eq!(check(&good, Time(3_000_000_000)).await, Some(Refusal::Expired));
        // A token that becomes valid later is not remembered as refused.
        let later = token(SECRET, &with("nbf", json!(1_500_000)));
        assert_eq!(check(&later, now).await, Some(Refusal::Invalid));
        assert_eq!(check(&later, Time(1_600_000_000)).await, None);
    }
}
