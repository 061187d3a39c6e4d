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
    mtls::{self, CertificateNames},
    names::Issuers,
    principal::{AuthMethod, Principal},
    proxy::Proxy,
    scope::RoleTable,
    secret::CurrentSecret,
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
    /// The names in the client's certificate.
    pub(crate) certificate: Option<&'a CertificateNames>,
    /// The ticket and the run of a stream that takes tickets.
    pub(crate) ticket: Option<(String, String)>,
    pub(crate) now: Time,
}

/// Tokens that are remembered as verified.
const MAX_VERIFIED: usize = 10_000;

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
    /// Verified tokens by their hash: a signature is checked once.
    verified: Mutex<HashMap<[u8; 32], Verified>>,
}

#[derive(Clone)]
struct Verified {
    principal: Arc<Principal>,
    issuer: usize,
    key_generation: u64,
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
    pub(crate) fn new(settings: Auth, store: &Arc<dyn Store>) -> Self {
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
            tickets: Tickets::new(pepper),
            roles,
            verified: Mutex::default(),
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
                let token = Token::parse(text).ok_or(Refusal::Invalid)?;
                if token.issuer() != Some(&self.issuers[issuer].settings.issuer) {
                    return Err(Refusal::Invalid);
                }
                let principal = self.check_token(text, &token, issuer, head.now).await?;
                Ok(Arc::new(Principal { method: AuthMethod::Cookie, ..(*principal).clone() }))
            }
            Credential::Proxy => {
                let proxy = self.proxy.as_ref().ok_or(Refusal::Invalid)?;
                let principal =
                    proxy.check(head.headers, head.connection, &self.issuer_names, &self.roles)?;
                Ok(Arc::new(principal))
            }
            Credential::Certificate(principal) => Ok(principal),
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
        if self.proxy.as_ref().is_some_and(|proxy| proxy.is_claimed(head.headers)) {
            found.push(Credential::Proxy);
        }
        let certificate = head.certificate.and_then(|names| mtls::principal(names, &self.mtls, &self.roles));
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
        if let Some(token) = Token::parse(text)
            && let Some(named) = token.issuer()
            && let Some(issuer) = self.issuers.iter().position(|issuer| issuer.settings.issuer == named)
        {
            return self.check_token(text, &token, issuer, head.now).await;
        }
        self.ask_about(head).await
    }

    /// Asks the external handler about a credential that nothing here knows.
    async fn ask_about(&self, head: &RequestHead<'_>) -> Result<Arc<Principal>, Refusal> {
        match self.ask.as_ref().filter(|ask| ask.is_claimed(head.headers)) {
            Some(ask) => ask.check(head, &self.issuer_names, &self.roles).await,
            None => Err(Refusal::Invalid),
        }
    }

    async fn check_token(
        &self,
        text: &str,
        token: &Token<'_>,
        at: usize,
        now: Time,
    ) -> Result<Arc<Principal>, Refusal> {
        let issuer = &self.issuers[at];
        let hash = sha256(text.as_bytes());
        let key_generation = issuer.key_generation().await?;
        let known = self.verified().get(&hash).cloned();
        if let Some(Verified { principal, .. }) =
            known.filter(|known| known.issuer == at && known.key_generation == key_generation)
        {
            return match principal.expires.is_some_and(|expires| expires <= now) {
                true => Err(Refusal::Expired),
                false => Ok(principal),
            };
        }
        let mut principal = issuer.verify(token, &self.issuer_names, &self.roles, now).await?;
        principal.credential = format!("jwt:{}", hex(&hash[..8])).into();
        let principal = Arc::new(principal);
        // The signature may have been checked with newer keys.
        let key_generation = issuer.key_generation().await?;
        let mut verified = self.verified();
        if verified.len() >= MAX_VERIFIED {
            verified.retain(|_, known| known.principal.expires.is_none_or(|expires| expires > now));
            if verified.len() >= MAX_VERIFIED {
                verified.clear();
            }
        }
        verified.insert(hash, Verified { principal: principal.clone(), issuer: at, key_generation });
        Ok(principal)
    }

    fn verified(&self) -> MutexGuard<'_, HashMap<[u8; 32], Verified>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
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
            || self.proxy.as_ref().is_some_and(|proxy| is(proxy.secret_header()))
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
