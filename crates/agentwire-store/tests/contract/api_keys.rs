//! API keys of durable stores.

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

pub(crate) async fn keys_are_kept_and_their_changes_found(world: World) {
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
    let world = world.reopen().await;
    let kept = world.store.key_changes(0).await.unwrap().keys;
    assert_eq!(kept[1], ApiKey { last_used: Some(Time(120_000)), ..longer });
}
