//! T4: the life of an API key.

use std::{sync::Arc, time::Duration};

use agentwire_gateway::{
    agent::Demo,
    auth::{KeyPermissions, NewApiKey, Secret, make_api_key},
    settings::{Auth, AuthMode, KeySettings},
};
use agentwire_store::{KeyChange, Store};
use reqwest::Method;

use super::{INVALID, refusal, status};
use crate::support::*;

pub(super) fn pepper() -> Secret {
    Secret::Value(b"the pepper of the tests, long enough".to_vec())
}

pub(super) fn with_keys() -> Auth {
    let mut auth = Auth::default();
    auth.mode = AuthMode::Required;
    auth.keys = Some(KeySettings::new(pepper()));
    auth
}

/// A key in the store: its text and its id.
pub(super) async fn key(
    store: &Arc<dyn Store>,
    user: &str,
    scopes: &[&str],
    roles: &[&str],
) -> (String, String) {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let permissions = KeyPermissions { scopes: texts(scopes), roles: texts(roles) };
    let new = NewApiKey { tenant: "acme", user, permissions, expires: None };
    let (text, record) = make_api_key(new, &pepper(), store.now()).expect("a key");
    let id = record.id.to_string();
    store.add_key(record).await.expect("a new id");
    (text, id)
}

#[tokio::test]
async fn t4_a_key_lives_until_it_is_revoked_on_every_gateway_of_the_store() {
    let backend = Backend::sqlite().await;
    let other_store = backend.reopened().await;
    let puppet = Puppet::new(|input| talk(input, 3));
    let servers = [
        plan(puppet.clone()).set(|settings| settings.auth = with_keys()).on(&backend.store).await,
        plan(puppet.clone()).set(|settings| settings.auth = with_keys()).on(&other_store).await,
    ];
    let list = |server: &Server, key: &str| server.ask(Method::GET, "/thread/list").bearer_auth(key);
    let (ada, id) = key(&backend.store, "ada", &["*"], &[]).await;
    for server in &servers {
        wait_until("the new key", async || status(list(server, &ada)).await == 200).await;
    }
    let (head, secret) = ada.rsplit_once('_').expect("its form");
    let changed: String = secret.chars().rev().collect();
    let unknown = format!("aw_{}_{secret}", "0".repeat(12));
    for wrong in
        [format!("{head}_{changed}"), unknown, format!("{head}_"), ada.to_lowercase(), format!("{ada}0")]
    {
        let refused = refusal(list(&servers[0], &wrong)).await;
        assert_eq!(refused, (401, "UNAUTHENTICATED".into(), INVALID.into()), "{wrong}");
    }

    // Its readers end with it, the run goes on.
    let mut stream = Stream::of(servers[0].post("/", &Server::input("t", "r", "hi")).bearer_auth(&ada)).await;
    stream.take(1).await;
    backend.store.change_key(&id, KeyChange::Revoke).await.expect("it is there");
    for server in &servers {
        wait_until("the revocation", async || status(list(server, &ada)).await == 401).await;
        assert_eq!(refusal(list(server, &ada)).await.1, "UNAUTHENTICATED");
    }
    stream.rest().await;
    assert!(stream.broken, "no regular end");
    assert!(stream.asides.iter().any(|line| line.starts_with("retry:")), "{:?}", stream.asides);
    puppet.allow(100);
    let (eve, _) = key(&backend.store, "ada", &["*"], &[]).await;
    wait_until("the end of the run", async || {
        let run = servers[0].ask(Method::GET, "/runs/r").bearer_auth(&eve);
        answer(run).await.1["status"] == "finished"
    })
    .await;

    // To the minute, and the store has no key.
    wait_until("the last use", async || {
        let keys = backend.store.key_changes(0).await.expect("keys").keys;
        keys.iter().all(|key| key.last_used.is_some_and(|used| used.0 % 60_000 == 0))
    })
    .await;
    if is_on_postgres() {
        return;
    }
    let folder =
        std::path::Path::new(backend.address.trim_start_matches("sqlite:")).parent().expect("a folder");
    for file in std::fs::read_dir(folder).expect("a folder") {
        let bytes = std::fs::read(file.expect("a file").path()).expect("a file");
        for secret in [&ada, &eve] {
            let secret = secret.rsplit_once('_').expect("its form").1.as_bytes();
            assert!(memchr::memmem::find(&bytes, secret).is_none());
        }
    }
}

#[tokio::test]
async fn t4_a_key_ends_and_its_last_hour_can_be_set() {
    let backend = Backend::sqlite().await;
    let server = plan(Arc::new(Demo::without_pauses()))
        .set(|settings| settings.auth = with_keys())
        .on(&backend.store)
        .await;
    let (text, id) = key(&backend.store, "ada", &["agents:*:read"], &[]).await;
    let list = || server.ask(Method::GET, "/thread/list").bearer_auth(&text);
    wait_until("the new key", async || status(list()).await == 200).await;
    let refused = refusal(server.post("/", &Server::input("t", "r", "hi")).bearer_auth(&text)).await;
    let challenge = r#"Bearer error="insufficient_scope", scope="agents:demo:run""#;
    assert_eq!(refused, (403, "FORBIDDEN".into(), challenge.into()));
    let soon = backend.store.now().after(Duration::from_millis(1));
    let changed = backend.store.change_key(&id, KeyChange::ExpireAt(soon)).await.expect("it is there");
    assert_eq!(changed.expires, Some(soon));
    let later = backend.store.now().after(Duration::from_secs(3600));
    let changed = backend.store.change_key(&id, KeyChange::ExpireAt(later)).await.expect("it is there");
    assert_eq!(changed.expires, Some(soon), "a change never prolongs a key");
    wait_until("its end", async || refusal(list()).await.1 == "TOKEN_EXPIRED").await;
}

#[tokio::test]
async fn t4_a_store_that_fails_lets_no_key_in() {
    let backend = Backend::sqlite().await;
    let faulty = FaultyStore::new(backend.store.clone());
    let (text, _) = key(&backend.store, "ada", &["*"], &[]).await;
    let store: Arc<dyn Store> = faulty.clone();
    let server =
        plan(Arc::new(Demo::without_pauses())).set(|settings| settings.auth = with_keys()).on(&store).await;
    let list = || server.ask(Method::GET, "/agents").bearer_auth(&text);
    assert_eq!(status(list()).await, 200);
    faulty.all_fails.store(true, std::sync::atomic::Ordering::SeqCst);
    wait_until("an old table", async || refusal(list()).await.1 == "AUTH_UNAVAILABLE").await;
    faulty.all_fails.store(false, std::sync::atomic::Ordering::SeqCst);
    wait_until("a new table", async || status(list()).await == 200).await;
}

#[tokio::test]
async fn t4_the_file_of_a_store_has_no_text_of_a_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let address = format!("sqlite:{}", folder.path().join("keys.db").display());
    let store =
        agentwire_store::open(&address, agentwire_store::Options::default()).await.expect("a new file");
    let (text, id) = key(&store, "ada", &["*"], &[]).await;
    let secret = text.rsplit_once('_').expect("its form").1;
    drop(store);
    let mut bytes = Vec::new();
    for entry in std::fs::read_dir(folder.path()).expect("the folder") {
        bytes.extend(std::fs::read(entry.expect("a file").path()).expect("a file"));
    }
    let has = |text: &str| memchr::memmem::find(&bytes, text.as_bytes()).is_some();
    assert!(has(&id), "the key is in the file");
    assert!(!has(secret) && !has(&text), "its secret is not");
    assert!(!has("the pepper of the tests"));
}
