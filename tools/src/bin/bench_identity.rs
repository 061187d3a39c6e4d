//! The cost of authentication: CPU time of a request with each kind of credential, of a refused one, and of an event. The
//! gateway is in this process and without sockets, so that nothing else is measured. Used by `bench/identity`.
//!
//! ```text
//! bench_identity requests COUNT ROUNDS    each row: µs of CPU per request, and the share of authentication
//! bench_identity events COUNT ROUNDS      µs of CPU per event, without and with a credential that ends
//! bench_identity accept KIND COUNT        COUNT requests of one kind, to count instructions:
//!                                         open | key | jwt | forged | scope
//! ```

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use agentwire_core::event::{Body as EventBody, Event};
use agentwire_gateway::{
    AgentConfig, Gateway, UpstreamError,
    agent::{Agent, BoxFuture, EventSink, Request as AgentRequest},
    auth::{KeyPermissions, NewApiKey, Secret, make_api_key},
    settings::{Auth, AuthMode, JwtIssuer, JwtKeys, KeySettings, Settings},
};
use agentwire_store::{Options, Store};
use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode, header::AUTHORIZATION},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use futures_util::StreamExt;
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair},
};
use serde_json::json;
use tower::ServiceExt;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ISSUER: &str = "https://id.example/";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| {
        arguments.get(index).and_then(|text| text.parse::<u64>().ok()).unwrap_or(default)
    };
    // One thread: its CPU time is that of the requests.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let bench = Bench::new().await?;
        match arguments.first().map(String::as_str) {
            Some("requests") => bench.requests(number(1, 5000), number(2, 7)).await,
            Some("events") => bench.events(number(1, 20_000), number(2, 7)).await,
            Some("accept") => {
                let kind = arguments.get(1).map(String::as_str).unwrap_or_default();
                bench.accept(kind, number(2, 1000)).await
            }
            _ => Err("usage: bench_identity requests COUNT ROUNDS | events COUNT ROUNDS | accept KIND COUNT"
                .into()),
        }
    })
}

/// CPU time of this thread.
fn cpu() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = text.split(' ').next().ok_or("no CPU time")?;
    Ok(Duration::from_nanos(nanos.parse()?))
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Says a number of words.
struct Talker;

impl Agent for Talker {
    fn run(
        &self,
        request: AgentRequest,
        sink: EventSink,
    ) -> BoxFuture<'static, std::result::Result<(), UpstreamError>> {
        Box::pin(async move {
            let text = request.input.messages.last().map(|message| format!("{:?}", message.body));
            let digits = |text: String| text.chars().filter(char::is_ascii_digit).collect::<String>();
            let count: u64 = text.map(digits).and_then(|text| text.parse().ok()).unwrap_or(1);
            let message = "m1";
            sink.send(Event::new(EventBody::TextStart { message: message.into(), role: None, name: None }))
                .await?;
            for _ in 0..count {
                let delta = EventBody::TextDelta {
                    message: message.into(),
                    delta: "some words of an answer ".into(),
                };
                sink.send(Event::new(delta)).await?;
            }
            Ok(())
        })
    }
}

struct Signer(EcdsaKeyPair);

impl Signer {
    fn new() -> Result<Self> {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let pair = EcdsaKeyPair::generate_pkcs8(algorithm, &random)
            .ok()
            .and_then(|key| EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).ok());
        Ok(Self(pair.ok_or("no key could be made")?))
    }

    fn jwk(&self) -> serde_json::Value {
        let point = self.0.public_key().as_ref();
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..65]));
        json!({"kty": "EC", "crv": "P-256", "kid": "k1", "use": "sig", "x": x, "y": y})
    }

    fn token(&self, kid: &str, user: &str, scope: &str, ends: u64) -> Result<String> {
        let header = json!({"alg": "ES256", "typ": "JWT", "kid": kid});
        let claims = json!({"iss": ISSUER, "aud": "agentwire", "sub": user, "exp": ends, "scope": scope});
        let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes()).map_err(|_| "no signature")?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

struct Bench {
    /// Without authentication.
    open: Router,
    /// With tokens and keys.
    closed: Router,
    signer: Signer,
    key: String,
    token: String,
    _folder: tempfile::TempDir,
}

async fn router(store: Arc<dyn Store>, change: impl FnOnce(&mut Settings)) -> Router {
    let mut settings = Settings::default();
    // All requests have one address.
    settings.limits.peer.failures = None;
    change(&mut settings);
    Gateway::builder(store, settings).agent("demo", AgentConfig::new(Talker)).build().router()
}

impl Bench {
    async fn new() -> Result<Self> {
        let (folder, signer) = (tempfile::tempdir()?, Signer::new()?);
        let path = folder.path().join("jwks.json");
        std::fs::write(&path, json!({"keys": [signer.jwk()]}).to_string())?;
        let hour = Duration::from_secs(3600);
        let keys = JwtKeys::File { path, refresh: hour, max_stale: hour };
        let pepper = Secret::Value(b"the pepper of the bench, long enough".to_vec());
        let mut auth = Auth::default();
        auth.mode = AuthMode::Required;
        auth.jwt = vec![JwtIssuer::new("corp", ISSUER, "agentwire", keys)];
        auth.keys = Some(KeySettings::new(pepper.clone()));
        let store = agentwire_store::open("memory:", Options::default()).await?;
        let permissions = KeyPermissions { roles: Vec::new(), scopes: vec!["*".into()] };
        let new = NewApiKey { tenant: "acme", user: "ada", permissions, expires: None };
        let (key, record) = make_api_key(new, &pepper, store.now())?;
        store.add_key(record).await?;
        let token = signer.token("k1", "ada", "*", seconds() + 3600)?;
        let open = router(agentwire_store::open("memory:", Options::default()).await?, |_| {}).await;
        let closed = router(store, |settings| settings.auth = auth).await;
        Ok(Self { open, closed, signer, key, token, _folder: folder })
    }

    /// Sends requests that differ in their credential, and returns the µs of CPU of one.
    async fn ask(
        &self,
        router: &Router,
        credentials: &[Option<String>],
        expected: StatusCode,
    ) -> Result<f64> {
        let mut requests = Vec::with_capacity(credentials.len());
        for credential in credentials {
            let mut request = Request::get("/thread/list");
            if let Some(credential) = credential {
                request = request.header(AUTHORIZATION, format!("Bearer {credential}"));
            }
            requests.push(request.body(Body::empty())?);
        }
        let count = requests.len();
        let before = cpu()?;
        for request in requests {
            let response = router.clone().oneshot(request).await?;
            if response.status() != expected {
                return Err(format!("{} instead of {expected}", response.status()).into());
            }
            axum::body::to_bytes(response.into_body(), usize::MAX).await?;
        }
        Ok((cpu()? - before).as_secs_f64() * 1e6 / count as f64)
    }

    async fn requests(&self, count: u64, rounds: u64) -> Result<()> {
        let count = usize::try_from(count)?;
        let same = |credential: Option<String>| vec![credential; count];
        let tokens = |kid: &str, signer: &Signer, scope: &str, ends: u64| -> Result<Vec<Option<String>>> {
            (0..count)
                .map(|number| Ok(Some(signer.token(kid, &format!("u{number}"), scope, ends)?)))
                .collect()
        };
        let (other, later) = (Signer::new()?, seconds() + 3600);
        let wrong_key = format!("{}{}", &self.key[..self.key.len() - 43], "x".repeat(43));
        let one_forged = other.token("k1", "eve", "*", later)?;
        let (ok, refused, forbidden) = (StatusCode::OK, StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN);
        let rows: Vec<(&str, &Router, StatusCode, Vec<Option<String>>)> = vec![
            ("no authentication", &self.open, ok, same(None)),
            ("API key", &self.closed, ok, same(Some(self.key.clone()))),
            ("token (ES256), seen before", &self.closed, ok, same(Some(self.token.clone()))),
            ("token (ES256), new each time", &self.closed, ok, Vec::new()),
            ("refused: no credential", &self.closed, refused, same(None)),
            ("refused: no token at all", &self.closed, refused, same(Some("nonsense".into()))),
            (
                "refused: unknown key",
                &self.closed,
                refused,
                same(Some(format!("aw_{}_{}", "0".repeat(12), "0".repeat(43)))),
            ),
            ("refused: wrong secret of a key", &self.closed, refused, same(Some(wrong_key))),
            ("refused: forged token, again and again", &self.closed, refused, same(Some(one_forged))),
            ("refused: forged tokens, new each time", &self.closed, refused, Vec::new()),
            ("refused: expired tokens, new each time", &self.closed, refused, Vec::new()),
            (
                "refused: scope is missing",
                &self.closed,
                forbidden,
                same(Some(self.signer.token("k1", "ada", "audit", later)?)),
            ),
        ];
        let mut best = vec![f64::INFINITY; rows.len()];
        for round in 0..rounds {
            for (at, (name, router, expected, credentials)) in rows.iter().enumerate() {
                let fresh = match *name {
                    "token (ES256), new each time" => Some(tokens("k1", &self.signer, "*", later + round)?),
                    "refused: forged tokens, new each time" => {
                        Some(tokens("k1", &other, "*", later + round)?)
                    }
                    "refused: expired tokens, new each time" => {
                        Some(tokens("k1", &self.signer, "*", seconds() - 3600 - round)?)
                    }
                    _ => None,
                };
                let spent = self.ask(router, fresh.as_deref().unwrap_or(credentials), *expected).await?;
                best[at] = best[at].min(spent);
            }
        }
        println!(
            "{:42} {:>9}  {:>15}  {:>22}",
            "GET /thread/list", "µs CPU", "authentication", "× of an accepted token"
        );
        for ((name, ..), spent) in rows.iter().zip(&best) {
            let share = spent - best[0];
            let relative = spent / best[2];
            println!("{name:42} {spent:9.1}  {share:12.1} µs  {relative:22.2}");
        }
        Ok(())
    }

    async fn run(&self, router: &Router, credential: Option<&str>, id: &str, count: u64) -> Result<f64> {
        let body = json!({"threadId": id, "runId": id, "tools": [], "context": [], "state": {}, "forwardedProps": {},
            "messages": [{"id": id, "role": "user", "content": count.to_string()}]});
        let mut request = Request::post("/").header("content-type", "application/json");
        if let Some(credential) = credential {
            request = request.header(AUTHORIZATION, format!("Bearer {credential}"));
        }
        let request = request.body(Body::from(body.to_string()))?;
        let before = cpu()?;
        let response = router.clone().oneshot(request).await?;
        if response.status() != StatusCode::OK {
            return Err(format!("the run was refused: {}", response.status()).into());
        }
        let mut body = response.into_body().into_data_stream();
        let mut events = 0;
        while let Some(chunk) = body.next().await {
            events += chunk?.windows(6).filter(|window| window == b"data: ").count();
        }
        if (events as u64) < count {
            return Err(format!("{events} events instead of {count}").into());
        }
        Ok((cpu()? - before).as_secs_f64() * 1e6 / events as f64)
    }

    async fn events(&self, count: u64, rounds: u64) -> Result<()> {
        let rows = [
            ("no authentication", &self.open, None),
            ("API key", &self.closed, Some(&self.key)),
            ("token with an end", &self.closed, Some(&self.token)),
        ];
        let mut best = [f64::INFINITY; 3];
        for round in 0..rounds {
            for (at, (_, router, credential)) in rows.iter().enumerate() {
                let spent = self
                    .run(router, credential.map(String::as_str), &format!("r{at}-{round}"), count)
                    .await?;
                best[at] = best[at].min(spent);
            }
        }
        for ((name, ..), spent) in rows.iter().zip(best) {
            println!(
                "{name:42} {spent:9.2} µs CPU per event  {:5.2} × without authentication",
                spent / best[0]
            );
        }
        Ok(())
    }

    async fn accept(&self, kind: &str, count: u64) -> Result<()> {
        let count = usize::try_from(count)?;
        let later = seconds() + 3600;
        let (router, credential, expected) = match kind {
            "open" => (&self.open, None, StatusCode::OK),
            "key" => (&self.closed, Some(self.key.clone()), StatusCode::OK),
            "jwt" => (&self.closed, Some(self.token.clone()), StatusCode::OK),
            "forged" => {
                let forged = Signer::new()?.token("k1", "eve", "*", later)?;
                (&self.closed, Some(forged), StatusCode::UNAUTHORIZED)
            }
            "scope" => {
                let token = self.signer.token("k1", "ada", "audit", later)?;
                (&self.closed, Some(token), StatusCode::FORBIDDEN)
            }
            _ => return Err("KIND is open, key, jwt, forged or scope".into()),
        };
        self.ask(router, &vec![credential; count], expected).await?;
        Ok(())
    }
}
