//! The key set (JWKS) of an issuer: fetched, kept, fetched again.
//!
//! One fetch at a time. Keys are used until `max_stale` after the last successful fetch; an unknown key id causes another
//! fetch, at most three in a minute and one in five seconds, so that forged tokens cannot flood the issuer.

use std::{
    collections::VecDeque,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agentwire_client::transport;
use reqwest::Url;
use tokio::time::Instant;

use super::{
    jws::{Jwk, PublicKey},
    settings::{JwtAlgorithm, JwtKeys},
};

/// Largest key set.
const MAX_BYTES: usize = 1 << 20;

/// Time for one fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Shortest time between two tries.
const GAP: Duration = Duration::from_secs(5);

/// Fetches for unknown key ids in a minute.
const REFETCHES: usize = 3;

/// The keys of an issuer at one time.
#[derive(Default)]
pub(super) struct KeySet {
    keys: Vec<Jwk>,
    /// Differs from that of every earlier set.
    pub(super) generation: u64,
}

impl KeySet {
    /// Reads a key set. Keys of other kinds, for encryption, or too weak are left out.
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        #[derive(serde::Deserialize)]
        struct Set {
            keys: Vec<serde_json::Value>,
        }
        let set: Set = serde_json::from_slice(bytes).map_err(|error| format!("it is no key set: {error}"))?;
        let keys: Vec<_> = set.keys.into_iter().filter_map(Jwk::read).collect();
        if keys.is_empty() { Err("it has no usable key".into()) } else { Ok(Self { keys, generation: 0 }) }
    }

    /// True if a key has this id.
    pub(super) fn has(&self, kid: &str) -> bool {
        self.keys.iter().any(|key| key.id.as_deref() == Some(kid))
    }

    /// The keys that may have made a signature. Without an id only the one key of the set.
    pub(super) fn candidates<'k>(
        &'k self,
        kid: Option<&'k str>,
        algorithm: JwtAlgorithm,
    ) -> impl Iterator<Item = &'k PublicKey> {
        let is_only = self.keys.len() == 1;
        let is_meant = move |key: &&Jwk| match kid {
            Some(kid) => key.id.as_deref() == Some(kid),
            None => is_only,
        };
        let fits = move |key: &&Jwk| key.algorithm.as_deref().is_none_or(|only| only == algorithm.name());
        self.keys.iter().filter(is_meant).filter(fits).map(|key| &key.key)
    }
}

/// The source of an issuer's keys.
pub(super) struct KeySource {
    origin: Origin,
    refresh: Duration,
    max_stale: Duration,
    state: Mutex<State>,
    /// Held during a fetch.
    fetching: tokio::sync::Mutex<()>,
}

enum Origin {
    Url(Option<(reqwest::Client, Url)>),
    File(std::path::PathBuf),
}

#[derive(Default)]
struct State {
    keys: Arc<KeySet>,
    fetched: Option<Instant>,
    last_try: Option<Instant>,
    /// Number of tries that are over.
    tries: u64,
    /// Times of the fetches for unknown key ids.
    refetches: VecDeque<Instant>,
}

impl KeySource {
    pub(super) fn new(keys: JwtKeys) -> Arc<Self> {
        let (origin, refresh, max_stale) = match keys {
            JwtKeys::Url { url, refresh, max_stale } => {
                let client = Url::parse(&url).ok().and_then(|url| {
                    let client = transport::client_builder(&url).timeout(FETCH_TIMEOUT).build().ok()?;
                    Some((client, url))
                });
                (Origin::Url(client), refresh, max_stale)
            }
            JwtKeys::File { path, refresh, max_stale } => (Origin::File(path), refresh, max_stale),
            // The caller has secrets elsewhere.
            JwtKeys::Secret(_) => (Origin::Url(None), GAP, GAP),
        };
        let (state, fetching) = (Mutex::default(), tokio::sync::Mutex::default());
        Arc::new(Self { origin, refresh, max_stale, state, fetching })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keys that may be used now; `None` if there are none and none can be had.
    pub(super) async fn current(self: &Arc<Self>) -> Option<Arc<KeySet>> {
        let (keys, age, tries) = {
            let state = self.state();
            (state.keys.clone(), state.fetched.map(|fetched| fetched.elapsed()), state.tries)
        };
        match age {
            Some(age) if age < self.refresh => Some(keys),
            Some(age) if age < self.max_stale => {
                if self.may_try() {
                    let source = self.clone();
                    tokio::spawn(async move { source.fetch_once(tries).await });
                }
                Some(keys)
            }
            _ => {
                self.fetch_once(tries).await;
                let state = self.state();
                let is_fresh = state.fetched.is_some_and(|fetched| fetched.elapsed() < self.max_stale);
                is_fresh.then(|| state.keys.clone())
            }
        }
    }

    /// The keys after another fetch, for a token whose key is not in `seen`.
    pub(super) async fn fetched_again(self: &Arc<Self>, seen: &KeySet) -> Arc<KeySet> {
        let source = self.clone();
        let seen = seen.generation;
        // A task of its own: a client that leaves must not end a fetch that others wait for.
        let fetched = tokio::spawn(async move {
            let _one = source.fetching.lock().await;
            if source.state().keys.generation == seen && source.may_refetch() {
                source.fetch().await;
            }
        });
        let _ = fetched.await;
        self.state().keys.clone()
    }

    fn may_try(&self) -> bool {
        self.state().last_try.is_none_or(|tried| tried.elapsed() >= GAP.min(self.refresh))
    }

    /// Counts a fetch for an unknown key id, if another one is allowed.
    fn may_refetch(&self) -> bool {
        let mut state = self.state();
        while state.refetches.front().is_some_and(|tried| tried.elapsed() >= Duration::from_secs(60)) {
            state.refetches.pop_front();
        }
        let is_too_soon = state.refetches.back().is_some_and(|tried| tried.elapsed() < GAP);
        if is_too_soon || state.refetches.len() >= REFETCHES {
            return false;
        }
        state.refetches.push_back(Instant::now());
        true
    }

    /// Fetches the keys, unless a fetch has ended since `tries` or the last one was a moment ago.
    async fn fetch_once(self: &Arc<Self>, tries: u64) {
        let source = self.clone();
        let fetched = tokio::spawn(async move {
            let _one = source.fetching.lock().await;
            if source.state().tries == tries && source.may_try() {
                source.fetch().await;
            }
        });
        let _ = fetched.await;
    }

    async fn fetch(&self) {
        self.state().last_try = Some(Instant::now());
        let read = match &self.origin {
            Origin::Url(Some((client, url))) => get(client, url).await,
            Origin::Url(None) => Err("the address is no URL".into()),
            Origin::File(path) => read_file(path).await,
        };
        let read = read.and_then(|bytes| KeySet::parse(&bytes));
        let mut state = self.state();
        state.tries += 1;
        match read {
            Ok(mut keys) => {
                if keys.keys != state.keys.keys {
                    keys.generation = state.keys.generation + 1;
                    state.keys = Arc::new(keys);
                }
                state.fetched = Some(Instant::now());
            }
            Err(problem) => tracing::warn!(problem, "the key set of an issuer could not be read"),
        }
    }
}

async fn get(client: &reqwest::Client, url: &Url) -> Result<Vec<u8>, String> {
    // The address may have a secret in its query.
    let text = |error: reqwest::Error| error.without_url().to_string();
    let mut response = client.get(url.clone()).send().await.map_err(text)?;
    if response.status() != reqwest::StatusCode::OK {
        return Err(format!("the server answered {}", response.status()));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(text)? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_BYTES {
            return Err(format!("it has more than {MAX_BYTES} bytes"));
        }
    }
    Ok(body)
}

async fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || {
        let length = std::fs::metadata(&path)?.len();
        if length > MAX_BYTES as u64 {
            return Err(std::io::Error::other(format!("it has more than {MAX_BYTES} bytes")));
        }
        std::fs::read(&path)
    });
    read.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}
