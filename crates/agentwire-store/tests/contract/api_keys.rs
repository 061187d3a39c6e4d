//! API keys.

use std::time::Duration;

use agentwire_store::*;

use super::World;

fn key(id: &str, now: Time) -> ApiKey {
    ApiKey {
        id: id.into(),
        hash: vec![7; 32],
        tenant: "acme".into(),
        user: "ada".into(),
        permissions: r#"{"scopes":["*"]}"#.into(),
        created: now,
        expires: Some(now.after(Duration::from_secs(60))),
        revoked: None,
        last_used: None,
    }
}

pub(crate) async fn keys_are_added_and_their_changes_found(world: World) {
    let now = world.store.now();
    assert_eq!(world.store.key_changes(0).await.unwrap(), KeyChanges::default());
    for id in ["one", "two"] {
        world.store.add_key(key(id, now)).await.unwrap();
    }
    let again = world.store.add_key(key("one", now)).await;
    assert!(matches!(again, Err(StoreError::Conflict(Conflict::Key))), "{again:?}");
    let all = world.store.key_changes(0).await.unwrap();
    assert_eq!(all.keys, [key("one", now), key("two", now)]);
    assert_eq!(
        world.store.key_changes(all.version).await.unwrap(),
        KeyChanges { keys: vec![], version: all.version }
    );

    let revoked = world.store.change_key("one", KeyChange::Revoke).await.unwrap();
    assert_eq!(revoked.revoked, Some(now));
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(
        world.store.change_key("one", KeyChange::Revoke).await.unwrap(),
        revoked,
        "the first time counts"
    );
    let soon = now.after(Duration::from_secs(5));
    let shortened = world.store.change_key("two", KeyChange::ExpireAt(soon)).await.unwrap();
    assert_eq!(shortened.expires, Some(soon));
    let longer = world
        .store
        .change_key("two", KeyChange::ExpireAt(now.after(Duration::from_secs(500))))
        .await
        .unwrap();
    assert_eq!(longer.expires, Some(soon));
    let unknown = world.store.change_key("three", KeyChange::Revoke).await;
    assert!(matches!(unknown, Err(StoreError::NotFound(Missing::Key))), "{unknown:?}");
    let changed = world.store.key_changes(all.version).await.unwrap();
    assert_eq!(changed.keys, [revoked, longer.clone()]);

    // A use is no change.
    world.store.touch_keys(vec![("two".into(), Time(120_000)), ("two".into(), Time(60_000))]).await.unwrap();
    assert_eq!(world.store.key_changes(changed.version).await.unwrap().keys, []);
    let used = world.store.key_changes(0).await.unwrap().keys;
    assert_eq!(used[1], ApiKey { last_used: Some(Time(120_000)), ..longer });
}

pub(crate) async fn keys_survive_a_restart(world: World) {
    let now = world.store.now();
    world.store.add_key(key("one", now)).await.unwrap();
    world.store.change_key("one", KeyChange::Revoke).await.unwrap();
    world.store.touch_keys(vec![("one".into(), Time(60_000))]).await.unwrap();
    let before = world.store.key_changes(0).await.unwrap();
    let world = world.reopen().await;
    assert_eq!(world.store.key_changes(0).await.unwrap(), before);
    assert_eq!(before.keys[0].revoked, Some(now));
}

/// A version that is seen includes all before it, whoever wrote them.
pub(crate) async fn changes_of_keys_are_seen_in_order(world: World) {
    let now = world.store.now();
    let stores = [world.store.clone(), world.another().await];
    let reader = world.another().await;
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_done = done.clone();
    let reading = tokio::spawn(async move {
        let (mut version, mut seen) = (0, Vec::new());
        loop {
            let last = is_done.load(std::sync::atomic::Ordering::SeqCst);
            let changes = reader.key_changes(version).await.unwrap();
            version = changes.version;
            seen.extend(changes.keys.into_iter().map(|key| key.id.to_string()));
            if last {
                return seen;
            }
        }
    });
    let adding = (0..30).map(|number: usize| {
        let (store, key) = (stores[number % 2].clone(), key(&format!("k{number:02}"), now));
        tokio::spawn(async move { store.add_key(key).await.unwrap() })
    });
    for added in adding.collect::<Vec<_>>() {
        added.await.unwrap();
    }
    done.store(true, std::sync::atomic::Ordering::SeqCst);
    let mut seen = reading.await.unwrap();
    seen.sort();
    let all: Vec<String> = (0..30).map(|number| format!("k{number:02}")).collect();
    assert_eq!(seen, all, "each once");
}
