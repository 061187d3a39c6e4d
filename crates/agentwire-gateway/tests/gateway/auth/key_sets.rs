//! T3: rotation of keys, and an issuer that does not answer.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use agentwire_gateway::{
    agent::Demo,
    settings::{JwtIssuer, JwtKeys},
};
use reqwest::Method;
use serde_json::json;

use super::{refusal, required};
use crate::support::*;

async fn server(keys: &KeyServer, refresh: Duration, max_stale: Duration) -> Server {
    let source = JwtKeys::Url { url: keys.url.clone(), refresh, max_stale };
    let issuer = JwtIssuer::new("corp", ISSUER, "agentwire", source);
    plan(Arc::new(Demo::without_pauses()))
        .set(|settings| settings.auth = required(vec![issuer]))
        .on_memory()
        .await
}

async fn tried(server: &Server, token: &str) -> (u16, String) {
    let (status, code, _) = refusal(server.ask(Method::GET, "/thread/list").bearer_auth(token)).await;
    (status, code)
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn t3_a_new_key_is_fetched_once_and_forged_key_ids_do_not_flood_the_issuer() {
    let (old, new) = (Signer::ec(), Signer::ec());
    let keys = KeyServer::new(vec![old.jwk("old")]).await;
    let server = server(&keys, HOUR, HOUR).await;
    let token = |signer: &Signer, kid: &str| {
        signer.token(&json!({"alg": "ES256", "kid": kid}), &Issuer::claims("ada", "*"))
    };
    let many = async |token: String| {
        let tried: Vec<_> = (0..20).map(|_| tried(&server, &token)).collect();
        futures_util::future::join_all(tried).await
    };
    assert!(many(token(&old, "old")).await.iter().all(|(status, _)| *status == 200));
    assert_eq!(keys.fetches(), 1, "one fetch for many requests");

    // The old key goes, a new one comes.
    *keys.keys.lock().expect("no panic") = vec![new.jwk("new")];
    assert_eq!(tried(&server, &token(&old, "old")).await.0, 200, "nothing has told the gateway");
    assert!(many(token(&new, "new")).await.iter().all(|(status, _)| *status == 200));
    assert_eq!(keys.fetches(), 2);
    assert_eq!(
        tried(&server, &token(&old, "old")).await,
        (401, "UNAUTHENTICATED".into()),
        "it was verified before"
    );

    for at in 0..30 {
        assert_eq!(tried(&server, &token(&new, &format!("forged-{at}"))).await.0, 401);
    }
    assert!(keys.fetches() <= 2 + 3, "{}", keys.fetches());
    assert_eq!(tried(&server, &token(&new, "new")).await.0, 200);
}

#[tokio::test]
async fn t3_old_keys_serve_while_the_issuer_is_down_until_they_are_stale() {
    let signer = Signer::ed();
    let keys = KeyServer::new(vec![signer.jwk("k1")]).await;
    let (refresh, max_stale) = (Duration::from_millis(50), Duration::from_secs(2));
    let server = server(&keys, refresh, max_stale).await;
    let token = signer.token(&json!({"alg": "EdDSA", "kid": "k1"}), &Issuer::claims("ada", "*"));
    assert_eq!(tried(&server, &token).await.0, 200);
    keys.is_down.store(true, Ordering::SeqCst);
    let before = keys.fetches();
    // The refresh has failed, and the keys are still good.
    wait_until("a failed refresh", async || {
        let tried = tried(&server, &token).await;
        assert!(tried.0 == 200 || keys.fetches() > before, "{tried:?}");
        keys.fetches() > before
    })
    .await;
    wait_until("stale keys", async || tried(&server, &token).await == (503, "AUTH_UNAVAILABLE".into())).await;
    keys.is_down.store(false, Ordering::SeqCst);
    wait_until("keys again", async || tried(&server, &token).await.0 == 200).await;
}

#[tokio::test]
async fn t3_an_issuer_that_never_answered_is_no_reason_to_let_anybody_in() {
    let signer = Signer::ec();
    let keys = KeyServer::new(vec![signer.jwk("k1")]).await;
    keys.is_down.store(true, Ordering::SeqCst);
    let server = server(&keys, HOUR, HOUR).await;
    let token = signer.token(&json!({"alg": "ES256", "kid": "k1"}), &Issuer::claims("ada", "*"));
    let response =
        server.ask(Method::GET, "/thread/list").bearer_auth(&token).send().await.expect("a response");
    assert_eq!(response.status(), 503);
    assert!(response.headers().contains_key("retry-after"));
    // Other credentials are judged as always.
    assert_eq!(tried(&server, "nonsense").await, (401, "UNAUTHENTICATED".into()));
    assert!(keys.fetches() <= 2);
}
