//! An issuer of tokens: keys, a server with the key set, and tokens of any form.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use agentwire_gateway::settings::{JwtIssuer, JwtKeys};
use axum::{Router, extract::State, http::StatusCode, routing::get};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    hmac,
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
        RSA_PSS_SHA256, RsaKeyPair,
    },
};
use serde_json::{Value, json};

/// A signing key.
pub(crate) enum Signer {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Secret(Vec<u8>),
}

pub(crate) fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Modulus and exponent of an RSA public key in DER.
fn rsa_parts(der: &[u8]) -> (Vec<u8>, Vec<u8>) {
    fn element(bytes: &[u8]) -> (&[u8], &[u8]) {
        let (length, from) = match bytes[1] {
            short if short < 0x80 => (usize::from(short), 2),
            0x81 => (usize::from(bytes[2]), 3),
            _ => (usize::from(bytes[2]) << 8 | usize::from(bytes[3]), 4),
        };
        (&bytes[from..from + length], &bytes[from + length..])
    }
    let (numbers, _) = element(der);
    let (modulus, rest) = element(numbers);
    let (exponent, _) = element(rest);
    let unsigned = |number: &[u8]| number.iter().copied().skip_while(|byte| *byte == 0).collect();
    (unsigned(modulus), unsigned(exponent))
}

impl Signer {
    /// ring makes no RSA keys, so this one is in a file (`openssl genpkey`).
    pub(crate) fn rsa() -> Self {
        Self::Rsa(RsaKeyPair::from_pkcs8(include_bytes!("rsa-2048.pk8")).expect("a key"))
    }

    pub(crate) fn ec() -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        Self::Ec(EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).expect("a key"))
    }

    pub(crate) fn ed() -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        Self::Ed(Ed25519KeyPair::from_pkcs8(key.as_ref()).expect("a key"))
    }

    /// The public key as a member of a key set.
    pub(crate) fn jwk(&self, kid: &str) -> Value {
        let mut jwk = match self {
            Self::Rsa(key) => {
                let (modulus, exponent) = rsa_parts(key.public_key().as_ref());
                json!({"kty": "RSA", "n": base64(modulus), "e": base64(exponent)})
            }
            Self::Ec(key) => {
                let point = key.public_key().as_ref();
                json!({"kty": "EC", "crv": "P-256", "x": base64(&point[1..33]), "y": base64(&point[33..65])})
            }
            Self::Ed(key) => json!({"kty": "OKP", "crv": "Ed25519", "x": base64(key.public_key())}),
            Self::Secret(secret) => json!({"kty": "oct", "k": base64(secret)}),
        };
        jwk["kid"] = kid.into();
        jwk["use"] = "sig".into();
        jwk
    }

    /// The public key as bytes that a confused verifier may take for a secret.
    pub(crate) fn public_bytes(&self) -> Vec<u8> {
        match self {
            Self::Rsa(key) => key.public_key().as_ref().to_vec(),
            Self::Ec(key) => key.public_key().as_ref().to_vec(),
            Self::Ed(key) => key.public_key().as_ref().to_vec(),
            Self::Secret(secret) => secret.clone(),
        }
    }

    fn sign(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                if algorithm == "PS256" {
                    key.sign(&RSA_PSS_SHA256, &random, message, &mut signature).expect("a signature");
                } else {
                    key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).expect("a signature");
                }
                signature
            }
            Self::Ec(key) => key.sign(&random, message).expect("a signature").as_ref().to_vec(),
            Self::Ed(key) => key.sign(message).as_ref().to_vec(),
            Self::Secret(secret) => {
                hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message).as_ref().to_vec()
            }
        }
    }

    /// A token of any header and claims, given as texts so that they can be malformed.
    pub(crate) fn token_of_texts(&self, header: &str, claims: &str) -> String {
        let algorithm = serde_json::from_str::<Value>(header).unwrap_or_default()["alg"].to_string();
        let signed = format!("{}.{}", base64(header), base64(claims));
        let signature = self.sign(algorithm.trim_matches('"'), signed.as_bytes());
        format!("{signed}.{}", base64(signature))
    }

    pub(crate) fn token(&self, header: &Value, claims: &Value) -> String {
        self.token_of_texts(&header.to_string(), &claims.to_string())
    }
}

/// Seconds since the epoch.
pub(crate) fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs()
}

/// The server of a key set.
pub(crate) struct KeyServer {
    pub(crate) url: String,
    pub(crate) keys: Arc<Mutex<Vec<Value>>>,
    pub(crate) fetches: Arc<AtomicUsize>,
    pub(crate) is_down: Arc<AtomicBool>,
}

type KeyServerState = (Arc<Mutex<Vec<Value>>>, Arc<AtomicUsize>, Arc<AtomicBool>);

impl KeyServer {
    pub(crate) async fn new(keys: Vec<Value>) -> Self {
        let state: KeyServerState = (Arc::new(Mutex::new(keys)), Arc::default(), Arc::default());
        let (keys, fetches, is_down) = state.clone();
        let app = Router::new()
            .route(
                "/jwks",
                get(|State((keys, fetches, is_down)): State<KeyServerState>| async move {
                    fetches.fetch_add(1, Ordering::SeqCst);
                    if is_down.load(Ordering::SeqCst) {
                        return (StatusCode::SERVICE_UNAVAILABLE, String::new());
                    }
                    (StatusCode::OK, json!({"keys": *keys.lock().expect("no panic")}).to_string())
                }),
            )
            .with_state(state);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/jwks", listener.local_addr().expect("it is bound"));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, keys, fetches, is_down }
    }

    pub(crate) fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }
}

pub(crate) const ISSUER: &str = "https://id.example/";

/// An issuer with one RSA key in a file, the fastest way to real tokens.
pub(crate) struct Issuer {
    pub(crate) signer: Signer,
    _folder: tempfile::TempDir,
    pub(crate) settings: JwtIssuer,
}

impl Issuer {
    pub(crate) fn new() -> Self {
        Self::with(Signer::ec())
    }

    pub(crate) fn with(signer: Signer) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("jwks.json");
        std::fs::write(&path, json!({"keys": [signer.jwk("k1")]}).to_string()).expect("a file");
        let minute = std::time::Duration::from_secs(60);
        let keys = JwtKeys::File { path, refresh: minute, max_stale: minute };
        let mut settings = JwtIssuer::new("corp", ISSUER, "agentwire", keys);
        settings.claims.tenant = Some("/org".into());
        settings.claims.roles = Some("/realm/roles".into());
        Self { signer, _folder: folder, settings }
    }

    pub(crate) fn algorithm(&self) -> &'static str {
        match self.signer {
            Signer::Rsa(_) => "RS256",
            Signer::Ec(_) => "ES256",
            Signer::Ed(_) => "EdDSA",
            Signer::Secret(_) => "HS256",
        }
    }

    pub(crate) fn header(&self) -> Value {
        json!({"alg": self.algorithm(), "typ": "JWT", "kid": "k1"})
    }

    pub(crate) fn claims(user: &str, scope: &str) -> Value {
        json!({"iss": ISSUER, "aud": "agentwire", "sub": user, "org": "acme", "exp": now() + 600, "iat": now(), "scope": scope})
    }

    /// A valid token.
    pub(crate) fn token(&self, user: &str, scope: &str) -> String {
        self.signer.token(&self.header(), &Self::claims(user, scope))
    }

    /// A valid token with other or more claims.
    pub(crate) fn token_with(&self, user: &str, scope: &str, more: &[(&str, Value)]) -> String {
        let mut claims = Self::claims(user, scope);
        for (name, value) in more {
            claims[*name] = value.clone();
        }
        self.signer.token(&self.header(), &claims)
    }
}
