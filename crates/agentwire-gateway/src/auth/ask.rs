//! The external handler: a server of the operator that knows credentials which nothing else knows.
//!
//! It gets the head of a request, never its body, and replies with the principal or a refusal. Replies are kept for a
//! while under a hash of what was sent; without a reply the request is refused.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agentwire_client::transport;
use agentwire_store::Time;
use axum::http::HeaderMap;
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde_json::json;
use tokio::{sync::Semaphore, time::Instant};

use super::{
    Refusal, RequestHead,
    names::{self, DEFAULT_TENANT, Issuers},
    principal::{AuthMethod, Principal},
    scope::{RoleTable, Scope},
    settings::AskSettings,
};

/// Largest reply.
const MAX_REPLY: usize = 64 << 10;

/// Replies of each kind that are kept.
const MAX_CACHED: usize = 10_000;

/// Questions that the handler gets at a time: anybody can send a credential that nothing here knows.
const MAX_ASKED: usize = 64;

type Reply = Result<Arc<Principal>, Refusal>;

pub(super) struct Ask {
    settings: AskSettings,
    server: Option<(reqwest::Client, Url)>,
    cached: Mutex<Cached>,
    places: Semaphore,
}

/// Replies by the hash of their question, with the end of their validity. Refusals are apart: nobody can make the gateway
/// forget the others.
#[derive(Default)]
struct Cached {
    principals: HashMap<[u8; 32], (Instant, Reply)>,
    refusals: HashMap<[u8; 32], (Instant, Reply)>,
}

impl Cached {
    fn get(&self, key: &[u8; 32]) -> Option<Reply> {
        let (until, reply) = self.principals.get(key).or_else(|| self.refusals.get(key))?;
        (*until > Instant::now()).then(|| reply.clone())
    }

    fn insert(&mut self, key: [u8; 32], until: Instant, reply: Reply) {
        self.principals.remove(&key);
        self.refusals.remove(&key);
        let replies = if reply.is_ok() { &mut self.principals } else { &mut self.refusals };
        if replies.len() >= MAX_CACHED {
            let now = Instant::now();
            replies.retain(|_, (until, _)| *until > now);
            if replies.len() >= MAX_CACHED {
                replies.clear();
            }
        }
        replies.insert(key, (until, reply));
    }
}

/// The principal in a reply.
#[derive(Deserialize)]
struct Named {
    tenant: Option<String>,
    user: String,
    #[serde(default)]
    roles: Vec<String>,
    #[serde(default)]
    scopes: Vec<String>,
    /// Seconds for which the reply holds.
    ttl: Option<f64>,
}

impl Ask {
    /// The headers that the handler receives.
    pub(super) fn headers(&self) -> &[String] {
        &self.settings.headers
    }

    pub(super) fn new(settings: AskSettings) -> Self {
        let server = Url::parse(&settings.url).ok().and_then(|url| {
            let client = transport::client_builder(&url).timeout(settings.timeout).build().ok()?;
            Some((client, url))
        });
        Self { settings, server, cached: Mutex::default(), places: Semaphore::new(MAX_ASKED) }
    }

    /// True if a request carries a credential that the handler may know.
    pub(super) fn is_claimed(&self, headers: &HeaderMap) -> bool {
        self.settings.headers.iter().any(|name| headers.contains_key(name))
    }

    /// Asks the handler about a request.
    pub(super) async fn check(&self, head: &RequestHead<'_>, issuers: &Issuers, roles: &RoleTable) -> Reply {
        let question = self.question(head);
        let key = sha256(question.as_bytes());
        if let Some(reply) = self.known(&key, head.now) {
            return reply;
        }
        // No longer than for a reply: a handler that hangs must not hold those who wait for their turn.
        let place = tokio::time::timeout(self.settings.timeout, self.places.acquire()).await;
        let Ok(Ok(_place)) = place else { return Err(Refusal::Unavailable) };
        // Another request of the same client may have been faster.
        if let Some(reply) = self.known(&key, head.now) {
            return reply;
        }
        let (reply, lasts) = match self.ask(question).await {
            Ok(named) => self.principal(named, &key, head.now, issuers, roles),
            Err(refusal) => (Err(refusal), self.settings.cache),
        };
        if reply.as_ref().err() != Some(&Refusal::Unavailable) && !lasts.is_zero() {
            self.cached().insert(key, Instant::now() + lasts, reply.clone());
        }
        reply
    }

    /// The reply that is kept for a question.
    fn known(&self, key: &[u8; 32], now: Time) -> Option<Reply> {
        Some(match self.cached().get(key)? {
            Ok(principal) if principal.expires.is_some_and(|expires| expires <= now) => Err(Refusal::Invalid),
            reply => reply,
        })
    }

    /// The question, which is also the key of its reply: an answer for one route says nothing about another.
    fn question(&self, head: &RequestHead<'_>) -> String {
        let mut headers = serde_json::Map::new();
        for name in &self.settings.headers {
            let values: Vec<_> = head
                .headers
                .get_all(name)
                .iter()
                .map(|value| String::from_utf8_lossy(value.as_bytes()))
                .collect();
            if !values.is_empty() {
                headers.insert(name.clone(), values.join(", ").into());
            }
        }
        let peer = head.peer.map(|peer| peer.to_string());
        let agent = (!head.agent.is_empty()).then_some(head.agent);
        json!({"method": head.method, "route": head.route, "agent": agent, "headers": headers, "peer": peer})
            .to_string()
    }

    async fn ask(&self, question: String) -> Result<Named, Refusal> {
        let (client, url) = self.server.as_ref().ok_or(Refusal::Unavailable)?;
        let failed = |problem: String| {
            tracing::warn!(problem, "the authentication handler failed");
            Refusal::Unavailable
        };
        let text = |error: reqwest::Error| failed(error.without_url().to_string());
        let request = client.post(url.clone()).header("content-type", "application/json").body(question);
        let mut response = request.send().await.map_err(text)?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => return Err(Refusal::Invalid),
            StatusCode::FORBIDDEN => return Err(Refusal::Forbidden),
            status => return Err(failed(format!("it answered {status}"))),
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(text)? {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_REPLY {
                return Err(failed(format!("its reply has more than {MAX_REPLY} bytes")));
            }
        }
        serde_json::from_slice(&body).map_err(|error| failed(format!("its reply cannot be read: {error}")))
    }

    /// The principal of a reply, and how long the reply holds.
    fn principal(
        &self,
        named: Named,
        key: &[u8; 32],
        now: Time,
        issuers: &Issuers,
        roles: &RoleTable,
    ) -> (Reply, Duration) {
        let tenant = named.tenant.as_deref().unwrap_or(DEFAULT_TENANT);
        let Some(user) = issuers.unprefixed(&named.user).filter(|_| names::is_valid(tenant)) else {
            tracing::warn!("the authentication handler named a tenant or user that cannot be taken");
            return (Err(Refusal::Invalid), self.settings.cache);
        };
        let scopes = named.scopes.iter().filter_map(|scope| scope.parse::<Scope>().ok());
        let given = named.roles.iter().map(|role| role.as_str().into()).collect();
        let principal = Principal::new(AuthMethod::Ask, tenant, user, format!("ask:{}", hex(&key[..8])));
        let mut principal = principal.with_permissions(given, scopes, roles);
        let ttl = named.ttl.and_then(|ttl| Duration::try_from_secs_f64(ttl.max(0.0)).ok());
        // Streams end with the reply, so that the handler is asked again when the client comes back.
        principal.expires = ttl.map(|ttl| now.after(ttl));
        let lasts = ttl.map_or(self.settings.cache, |ttl| ttl.min(self.settings.cache));
        (Ok(Arc::new(principal)), lasts)
    }

    fn cached(&self) -> MutexGuard<'_, Cached> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().try_into().unwrap_or_default()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flood of unknown sessions at a handler that hangs: few reach it, and nobody waits for all others.
    #[tokio::test(start_paused = true)]
    async fn a_hanging_handler_gets_few_questions_and_holds_nobody_for_long() {
        const CLIENTS: usize = 300;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
        let ask = Ask::new(AskSettings { headers: vec!["x-session".into()], ..AskSettings::new(&url) });
        let (issuers, roles) = (Issuers(Vec::new()), RoleTable::new(Default::default()));
        let started = Instant::now();
        let clients = (0..CLIENTS).map(|client| {
            let (ask, issuers, roles) = (&ask, &issuers, &roles);
            async move {
                let headers = HeaderMap::from_iter([("x-session".parse().expect("a name"), client.into())]);
                let head = RequestHead {
                    headers: &headers,
                    method: "GET",
                    route: "/",
                    agent: "",
                    connection: None,
                    peer: None,
                    certificate: None,
                    ticket: None,
                    now: Time(0),
                };
                ask.check(&head, issuers, roles).await.err()
            }
        });
        let refusals = futures_util::future::join_all(clients).await;
        assert!(refusals.iter().all(|refusal| *refusal == Some(Refusal::Unavailable)));
        let longest = 2 * ask.settings.timeout + Duration::from_millis(50);
        assert!(started.elapsed() <= longest, "{:?}", started.elapsed());
        listener.set_nonblocking(true).expect("a socket");
        let asked = std::iter::from_fn(|| listener.accept().ok()).count();
        assert!(asked <= 2 * MAX_ASKED, "{asked}");
    }

    #[tokio::test]
    async fn refusals_do_not_push_principals_out() {
        let mut cached = Cached::default();
        let until = Instant::now() + Duration::from_secs(60);
        let known = Arc::new(Principal::new(AuthMethod::Ask, "t", "ada", "ask:1"));
        cached.insert([255; 32], until, Ok(known));
        for number in 0..3 * MAX_CACHED {
            cached.insert(sha256(&number.to_le_bytes()), until, Err(Refusal::Invalid));
        }
        assert!(cached.get(&[255; 32]).is_some_and(|reply| reply.is_ok()));
        assert!(cached.refusals.len() <= MAX_CACHED);
        cached.insert([255; 32], until, Err(Refusal::Invalid));
        assert_eq!(
            cached.get(&[255; 32]).and_then(Result::err),
            Some(Refusal::Invalid),
            "the last reply counts"
        );
    }
}
