//! Restarts, and several stores on the same data.

use std::time::Duration;

use agentwire_store::*;

use super::{ALL, TTL, World, created, new_run, read_all, threads::run_concurrently};

pub(crate) async fn p2_all_data_survives_a_restart(world: World) {
    world.ended("t", "ended", &["a", "b"]).await;
    world.ended("t", "compacted", &["a", "b"]).await;
    world.store.compact(&world.ada, &"compacted".into(), vec!["ab".into()]).await.unwrap();
    let run = world.start("t", "live").await;
    let mut append = world.append(&run, 0, &["x"]);
    append.change = Change {
        status: None,
        state: Some(StateChange { expected: 0, body: "{\"n\":1}".into() }),
        messages: Some("[1]".into()),
        replies: Vec::new(),
        pending: vec![NewPending { id: "p".into(), kind: "k".into(), body: "{}".into(), ttl: Some(TTL) }],
    };
    world.store.append(append).await.unwrap();
    let feedback = NewFeedback { thread: "t".into(), run: None, body: "1".into() };
    world.store.add_feedback(&world.ada, feedback).await.unwrap();

    let dump = async |world: &World| {
        let (store, ada, thread) = (&world.store, &world.ada, &"t".into());
        let mut seen = vec![
            format!("{:?}", store.thread(ada, thread).await),
            format!("{:?}", store.runs(ada, thread, None, 9).await),
            format!("{:?}", store.state(ada, thread).await),
            format!("{:?}", store.messages(ada, thread).await),
            format!("{:?}", store.lease(ada, thread).await),
            format!("{:?}", store.pending(ada, thread, PendingFilter::All).await),
            format!("{:?}", store.feedback(ada, thread, None, 9).await),
        ];
        for run in ["ended", "compacted", "live"] {
            seen.push(format!("{:?}", store.read(ada, &run.into(), None, ALL).await));
            seen.push(format!("{:?}", store.input(ada, &run.into()).await));
        }
        seen
    };
    let before = dump(&world).await;
    let world = world.reopen().await;
    assert_eq!(dump(&world).await, before);
}

pub(crate) async fn a_log_continues_after_a_restart(world: World) {
    let run = world.start("t", "r").await;
    world.store.append(world.append(&run, 0, &["a"])).await.unwrap();
    let world = world.reopen().await;
    assert!(world.store.append(world.append(&run, 0, &["a"])).await.unwrap().repeated);
    world.store.append(world.append(&run, 1, &["b"])).await.unwrap();
    assert_eq!(world.events(&run.run, ALL).await, ["a", "b"]);
    let next = world.start("u", "s").await;
    assert!(next.fence > run.fence);
}

pub(crate) async fn two_stores_share_one_file(world: World) {
    let other = world.another().await;
    let run = world.start("t", "r").await;
    let exists = other.start(&world.ada, new_run("t", "r")).await.unwrap();
    assert!(matches!(exists, Start::Exists(_)));
    assert!(matches!(other.start(&world.ada, new_run("t", "s")).await.unwrap(), Start::Held(_)));
    world.store.append(world.append(&run, 0, &["a"])).await.unwrap();
    other.append(world.append(&run, 1, &["b"])).await.unwrap();
    let stale = world.store.append(world.append(&run, 1, &["c"])).await;
    assert!(matches!(stale, Err(StoreError::OutOfOrder { expected: Seq(2) })));
    assert_eq!(world.events(&run.run, ALL).await, ["a", "b"]);
    assert_eq!(read_all(&*other, &world.ada, &run.run, ALL).await, ["a", "b"]);
}

pub(crate) async fn one_of_two_stores_gets_the_thread(world: World) {
    let other = world.another().await;
    for round in 0..20 {
        let thread = format!("t{round}");
        let starts = run_concurrently(8, |number| {
            let store = if number % 2 == 0 { world.store.clone() } else { other.clone() };
            let (ada, new) = (world.ada.clone(), new_run(&thread, &format!("{round}.{number}")));
            async move { store.start(&ada, new).await.unwrap() }
        })
        .await;
        let won = starts.iter().filter(|start| matches!(start, Start::Created(_))).count();
        assert_eq!(won, 1, "{starts:?}");
    }
}

pub(crate) async fn p4_a_takeover_by_another_store_rejects_the_old_writer(world: World) {
    let other = world.another().await;
    let run = world.start("t", "r").await;
    world.store.append(world.append(&run, 0, &["a"])).await.unwrap();
    // The first process hangs for a minute; the second takes its run over.
    world.clock.advance(Duration::from_secs(60));
    let (key, seen) = other.orphans(9).await.unwrap().remove(0);
    other.renew(&"gateway-2".into(), TTL).await.unwrap();
    let taken = other.take_over(&key, seen.fence, &"gateway-2".into()).await.unwrap();
    let mut end = world.append(&taken, 1, &["error"]);
    end.change.status = Some(StatusChange::to(RunStatus::Failed));
    other.append(end).await.unwrap();
    // The first one continues.
    let late = world.store.append(world.append(&run, 1, &["b"])).await;
    assert!(matches!(late, Err(StoreError::Fenced)), "{late:?}");
    assert!(!world.lease("gateway-1").await, "its lease had expired");
    let late = world.store.append(world.append(&run, 1, &["b"])).await;
    assert!(matches!(late, Err(StoreError::Fenced)), "{late:?}");
    assert_eq!(world.events(&run.run, ALL).await, ["a", "error"]);
    created(other.start(&world.ada, new_run("t", "next")).await.unwrap());
}

pub(crate) async fn commands_and_wake_ups_cross_stores(world: World) {
    let other = world.another().await;
    let run = world.start("t", "r").await;
    let key = world.key("r");
    let waits = tokio::spawn({
        let (other, key) = (other.clone(), key.clone());
        async move { other.changed(&key, Seq(0)).await.unwrap() }
    });
    world.store.append(world.append(&run, 0, &["a"])).await.unwrap();
    waits.await.unwrap();
    let sends = tokio::spawn({
        let (other, key) = (other.clone(), key.clone());
        async move { other.send(&key, "stop".into(), Duration::from_secs(999)).await.unwrap() }
    });
    let taken = world.store.inbox(&"gateway-1".into()).await.unwrap();
    assert_eq!((taken.len(), &taken[0].run, &*taken[0].body), (1, &key, "stop"));
    world.store.reply(taken[0].id, taken[0].fence, "done".into()).await.unwrap();
    assert_eq!(sends.await.unwrap(), Delivery::Replied("done".into()));
}
