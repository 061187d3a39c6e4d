//! Deletion of threads.

use agentwire_store::*;

use super::{ALL, World, new_run};

async fn create_data(world: &World) -> Run {
    world.ended("t", "ended", &["a", "b"]).await;
    world.store.compact(&world.ada, &"ended".into(), vec!["ab".into()]).await.unwrap();
    let run = world.start("t", "live").await;
    let mut append = world.append(&run, 0, &["x"]);
    append.change.state = Some(StateChange { expected: 0, body: "{}".into() });
    append.change.messages = Some("[]".into());
    append.change.pending =
        vec![NewPending { id: "p".into(), kind: "k".into(), body: "{}".into(), ttl: None }];
    world.store.append(append).await.unwrap();
    let feedback = NewFeedback { thread: "t".into(), run: None, body: "1".into() };
    world.store.add_feedback(&world.ada, feedback).await.unwrap();
    run
}

pub(crate) async fn deleting_a_thread_deletes_all_its_data(world: World) {
    create_data(&world).await;
    world.start("kept", "kept").await;
    world.store.delete_thread(&world.ada, &"t".into()).await.unwrap();
    let thread = &"t".into();
    assert!(matches!(world.store.thread(&world.ada, thread).await, Err(StoreError::NotFound(_))));
    assert!(matches!(world.store.state(&world.ada, thread).await, Err(StoreError::NotFound(_))));
    for run in ["ended", "live"] {
        assert!(matches!(world.store.run(&world.ada, &run.into()).await, Err(StoreError::NotFound(_))));
        let log = world.store.read(&world.ada, &run.into(), None, ALL).await;
        assert!(matches!(log, Err(StoreError::NotFound(Missing::Run))));
    }
    let again = world.store.delete_thread(&world.ada, thread).await;
    assert!(matches!(again, Err(StoreError::NotFound(Missing::Thread))));
    let stats = world.store.stats().await.unwrap();
    assert_eq!((stats.threads, stats.runs, stats.events), (1, 1, 0));
    assert_eq!((stats.open_pending, stats.feedback, stats.log_bytes), (0, 0, 0));
    assert_eq!(world.store.threads(&world.ada, ThreadQuery::default(), 9).await.unwrap().items.len(), 1);
}

pub(crate) async fn a_deleted_thread_can_be_created_again(world: World) {
    create_data(&world).await;
    world.store.delete_thread(&world.ada, &"t".into()).await.unwrap();
    let run = world.start("t", "live").await;
    assert_eq!((run.next_seq, run.status), (Seq(0), RunStatus::Running));
    let thread = &"t".into();
    assert_eq!(world.store.state(&world.ada, thread).await.unwrap(), State { seq: 0, body: None });
    assert_eq!(world.store.messages(&world.ada, thread).await.unwrap(), None);
    assert!(world.store.pending(&world.ada, thread, PendingFilter::All).await.unwrap().is_empty());
    assert!(world.store.feedback(&world.ada, thread, None, 9).await.unwrap().items.is_empty());
    assert!(world.events(&run.run, ALL).await.is_empty());
    assert_eq!(world.store.runs(&world.ada, thread, None, 9).await.unwrap().items.len(), 1);
}

pub(crate) async fn rejects_writes_to_a_deleted_run(world: World) {
    let old = create_data(&world).await;
    world.store.delete_thread(&world.ada, &"t".into()).await.unwrap();
    let late = world.store.append(world.append(&old, 1, &["late"])).await;
    assert!(matches!(late, Err(StoreError::NotFound(Missing::Run))), "{late:?}");
    // A new run with the same id rejects the old writer too.
    let start = world.store.start(&world.ada, new_run("t", "live")).await.unwrap();
    assert!(matches!(start, Start::Created(_)));
    for seq in [0, 1] {
        let late = world.store.append(world.append(&old, seq, &["late"])).await;
        assert!(matches!(late, Err(StoreError::Fenced)), "{late:?}");
    }
}
