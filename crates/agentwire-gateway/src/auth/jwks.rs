//! The key set (JWKS) of an issuer: fetched, kept, fetched again.
//!
//! One fetch at a time. Keys are used until `max_stale` after the last successful fetch; an unknown key id causes another
//! fetch, at most three in a minute and one in five seconds, so that forged tokens cannot flood the issuer. Only requests
//! that the keys at hand cannot judge wait for a fetch, and none longer than the fetch may take.

use std::{
    collections::VecDeque,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agentwire_client::transport;
use reqwest::Url;
use tokio::{
    sync::{Semaphore, watch},
    time::Instant,
};

use super::{
    jws::{Jwk, PublicKey},
    settings::{JwtAlgorithm, JwtKeys},
};

/// Largest key set.
const MAX_BYTES: usize = 1 << 20;

/// Time for one fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(3);

/// Time for which a request waits for an issuer that did not answer the last time.
const RETRY_WAIT: Duration = Duration::from_secs(1);

/// Requests that wait for the key of an unknown id.
const MAX_WAITING: usize = 256;

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
    /// Places for requests that wait for the key of an unknown id. Anybody can send such a token.
    waiting: Semaphore,
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
    /// True if the last try failed.
    has_failed: bool,
    /// Closed at the end of the fetch.
    fetch: Option<watch::Receiver<()>>,
    /// Times of the fetches for unknown key ids.
    refetches: VecDeque<Instant>,
}

impl State {
    /// The fetch under way.
    fn running(&self) -> Option<watch::Receiver<()>> {
        self.fetch.clone().filter(|fetch| fetch.has_changed().is_ok())
    }

    fn has_keys(&self, max_stale: Duration) -> bool {
        self.fetched.is_some_and(|fetched| fetched.elapsed() < max_stale)
    }
}

/// The result of the search for the key of an unknown id.
pub(super) enum Refetched {
    /// The keys of today; the id may still be unknown.
    Keys(Arc<KeySet>),
    /// The issuer has not answered, and its keys are due.
    Unavailable,
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
        let (state, waiting) = (Mutex::default(), Semaphore::new(MAX_WAITING));
        Arc::new(Self { origin, refresh, max_stale, state, waiting })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keys that may be used now; `None` if there are none and none can be had.
    pub(super) async fn current(self: &Arc<Self>) -> Option<Arc<KeySet>> {
        let (fetch, wait) = {
            let mut state = self.state();
            let age = state.fetched.map(|fetched| fetched.elapsed());
            if let Some(age) = age
                && age < self.max_stale
            {
                if age >= self.refresh {
                    // The old keys serve meanwhile.
                    self.begin_if_due(&mut state);
                }
                return Some(state.keys.clone());
            }
            (self.begin_if_due(&mut state)?, patience(&state))
        };
        ended(fetch, wait).await;
        let state = self.state();
        state.has_keys(self.max_stale).then(|| state.keys.clone())
    }

    /// The keys after another fetch, for a token whose key is not in `seen`.
    pub(super) async fn fetched_again(self: &Arc<Self>, seen: &KeySet, kid: &str) -> Refetched {
        let deadline = Instant::now() + patience(&self.state());
        // A fetch that was under way may have begun before the key was published.
        for _ in 0..2 {
            let fetch = {
                let mut state = self.state();
                if state.keys.generation != seen.generation && state.keys.has(kid) {
                    return Refetched::Keys(state.keys.clone());
                }
                match state.running() {
                    Some(fetch) => fetch,
                    None if may_refetch(&mut state) => self.begin(&mut state),
                    None => break,
                }
            };
            let Ok(_place) = self.waiting.try_acquire() else { return Refetched::Unavailable };
            ended(fetch, deadline.saturating_duration_since(Instant::now())).await;
        }
        let state = self.state();
        let has_answered = !state.has_failed && state.running().is_none();
        match has_answered || state.has_keys(self.refresh) {
            true => Refetched::Keys(state.keys.clone()),
            false => Refetched::Unavailable,
        }
    }

    /// The fetch under way, or a new one unless the last one was a moment ago.
    fn begin_if_due(self: &Arc<Self>, state: &mut State) -> Option<watch::Receiver<()>> {
        let is_due = || state.last_try.is_none_or(|tried| tried.elapsed() >= GAP.min(self.refresh));
        match state.running() {
            Some(fetch) => Some(fetch),
            None if is_due() => Some(self.begin(state)),
            None => None,
        }
    }

    /// Begins a fetch, in a task of its own: a client that leaves must not end a fetch that others wait for.
    fn begin(self: &Arc<Self>, state: &mut State) -> watch::Receiver<()> {
        let (running, fetch) = watch::channel(());
        state.last_try = Some(Instant::now());
        state.fetch = Some(fetch.clone());
        let source = self.clone();
        tokio::spawn(async move {
            source.fetch().await;
            drop(running);
        });
        fetch
    }

    async fn fetch(&self) {
        let read = tokio::time::timeout(FETCH_TIMEOUT, async {
            match &self.origin {
                Origin::Url(Some((client, url))) => get(client, url).await,
                Origin::Url(None) => Err("the address is no URL".into()),
                Origin::File(path) => read_file(path).await,
            }
        });
        let read = read.await.unwrap_or_else(|_| Err("it took too long".into()));
        let read = read.and_then(|bytes| KeySet::parse(&bytes));
        let mut state = self.state();
        state.has_failed = read.is_err();
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

/// The time for which a request waits for a fetch: shorter once the issuer did not answer.
fn patience(state: &State) -> Duration {
    if state.has_failed { RETRY_WAIT } else { FETCH_TIMEOUT }
}

/// Waits for the end of a fetch.
async fn ended(mut fetch: watch::Receiver<()>, wait: Duration) {
    // Nothing is ever sent: the sender is dropped.
    let _ = tokio::time::timeout(wait, fetch.changed()).await;
}

/// Counts a fetch for an unknown key id, if another one is allowed.
fn may_refetch(state: &mut State) -> bool {
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
        let file = std::fs::metadata(&path)?;
        if !file.is_file() {
            // A pipe would block the thread.
            return Err(std::io::Error::other("it is no file"));
        }
        if file.len() > MAX_BYTES as u64 {
            return Err(std::io::Error::other(format!("it has more than {MAX_BYTES} bytes")));
        }
        std::fs::read(&path)
    });
    read.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source whose server accepts connections and never answers.
    fn hanging(refresh: Duration) -> (Arc<KeySource>, std::net::TcpListener) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/jwks", listener.local_addr().expect("it is bound"));
        (KeySource::new(JwtKeys::Url { url, refresh, max_stale: 10 * refresh }), listener)
    }

    const HOUR: Duration = Duration::from_secs(3600);
    /// Timers are coarse.
    const TICK: Duration = Duration::from_millis(10);

    #[tokio::test(start_paused = true)]
    async fn a_hanging_issuer_holds_the_first_requests_for_one_fetch() {
        let (source, _listener) = hanging(HOUR);
        let started = Instant::now();
        let first = (0..20).map(|_| source.current());
        assert!(futures_util::future::join_all(first).await.iter().all(Option::is_none));
        assert!(started.elapsed() <= FETCH_TIMEOUT + TICK, "{:?}", started.elapsed());

        let started = Instant::now();
        assert!(source.current().await.is_none());
        assert_eq!(started.elapsed(), Duration::ZERO, "the last try was a moment ago");

        tokio::time::sleep(GAP).await;
        let started = Instant::now();
        assert!(source.current().await.is_none());
        assert!(started.elapsed() <= RETRY_WAIT + TICK, "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_issuer_holds_unknown_key_ids_for_one_fetch_and_nobody_else() {
        let (source, _listener) = hanging(HOUR);
        let key = serde_json::json!({"kty": "OKP", "crv": "Ed25519", "x": "AAAA", "kid": "known"});
        let known = Arc::new(KeySet { keys: vec![Jwk::read(key).expect("a key")], generation: 1 });
        let keep = |age| {
            let mut state = source.state();
            (state.keys, state.fetched) = (known.clone(), Some(Instant::now() - age));
        };
        tokio::time::sleep(2 * HOUR).await;
        // The refresh is due: its fetch and that for the unknown id are one.
        keep(HOUR);
        let started = Instant::now();
        assert!(source.current().await.is_some_and(|keys| keys.has("known")));
        assert_eq!(started.elapsed(), Duration::ZERO);
        let unknown = (0..2 * MAX_WAITING).map(|_| source.fetched_again(&known, "unknown"));
        let unknown = futures_util::future::join_all(unknown).await;
        assert!(unknown.iter().all(|result| matches!(result, Refetched::Unavailable)));
        assert!(started.elapsed() <= FETCH_TIMEOUT + TICK, "{:?}", started.elapsed());

        // Fresh keys judge the id alone.
        keep(Duration::ZERO);
        let started = Instant::now();
        assert!(matches!(source.fetched_again(&known, "unknown").await, Refetched::Keys(_)));
        assert!(started.elapsed() <= RETRY_WAIT + TICK, "{:?}", started.elapsed());
    }
}
