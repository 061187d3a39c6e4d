//! Size limit and eviction of the memory store.

use std::{sync::Arc, time::Duration};

use agentwire_store::*;

const LIMIT: usize = 200_000;

fn ada() -> Owner {
    Owner::new("acme", "ada", "demo")
}

fn store() -> MemoryStore {
    MemoryStore::new(MemoryLimits { bytes: LIMIT }, Arc::new(SystemClock::default()))
}

async fn start(store: &MemoryStore, thread: &str, run: &str) -> Result<Append, StoreError> {
    store.renew(&"g".into(), Duration::from_secs(3600)).await?;
    match store.start(&ada(), NewRun::new(thread, run, "demo", "g")).await? {
        Start::Created(run) => {
            let mut append = Append::new(ada(), run.run, run.fence, Seq(0));
            append.events = vec![vec![b'x'; 10_000].into()];
            Ok(append)
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn p6_evicts_ended_logs_for_new_ones() {
    let store = store();
    for number in 0..100 {
        let mut append = start(&store, "t", &number.to_string()).await.unwrap();
        append.change.status = Some(StatusChange::to(RunStatus::Finished));
        store.append(append).await.unwrap();
        assert!(store.stats().await.unwrap().bytes <= LIMIT as u64);
    }
    let read = async |run: &str| store.read(&ada(), &run.into(), None, usize::MAX).await.unwrap();
    assert!(matches!(read("0").await, Log::NotRetained { .. }), "evicted, and reported as such");
    assert!(matches!(read("99").await, Log::Exact(log) if log.events.len() == 1));
    assert_eq!(store.stats().await.unwrap().runs, 100, "the records of the runs are kept");
}

#[tokio::test]
async fn p6_evicts_idle_threads_for_new_ones() {
    let store = store();
    for number in 0..1000 {
        let new = NewThread { thread: number.to_string().into(), thread_ids: None, metadata: None };
        store.create_thread(&ada(), new).await.unwrap();
        assert!(store.stats().await.unwrap().bytes <= LIMIT as u64);
    }
    assert!(store.thread(&ada(), &"0".into()).await.is_err());
    assert!(store.thread(&ada(), &"999".into()).await.is_ok());
}

#[tokio::test]
async fn live_runs_are_not_evicted() {
    let store = store();
    let mut live = Vec::new();
    let full = loop {
        match start(&store, &live.len().to_string(), &live.len().to_string()).await {
            Ok(append) => match store.append(append.clone()).await {
                Ok(_) => live.push(append),
                Err(full) => break full,
            },
            Err(full) => break full,
        }
        assert!(live.len() < 1000, "the limit is enforced");
    };
    assert!(matches!(full, StoreError::Full), "{full:?}");
    assert!(live.len() > 10);
    for append in &live {
        let log = store.read(&ada(), &append.run, None, usize::MAX).await.unwrap();
        assert!(matches!(log, Log::Exact(log) if log.events.len() == 1));
    }
    // An ended run can be evicted.
    let mut end = Append { first_seq: Seq(1), events: vec!["end".into()], ..live[0].clone() };
    end.change.status = Some(StatusChange::to(RunStatus::Finished));
    store.append(end).await.unwrap();
    let next = Append { first_seq: Seq(1), ..live[1].clone() };
    store.append(next).await.unwrap();
}

#[tokio::test]
async fn rejects_a_write_larger_than_the_limit() {
    let store = store();
    let mut append = start(&store, "t", "r").await.unwrap();
    append.events = vec![vec![b'x'; LIMIT + 1].into()];
    assert!(matches!(store.append(append).await, Err(StoreError::TooLarge { .. })));
}

#[tokio::test]
async fn deleting_a_thread_releases_its_size() {
    let store = store();
    let empty = store.stats().await.unwrap().bytes;
    for round in 0..3 {
        let mut append = start(&store, "t", "r").await.unwrap();
        append.change.state = Some(StateChange { expected: 0, body: "x".repeat(500).into() });
        append.change.messages = Some("y".repeat(500).into());
        append.change.pending =
            vec![NewPending { id: "p".into(), kind: "k".into(), body: "z".repeat(500).into(), ttl: None }];
        append.change.status = Some(StatusChange::to(RunStatus::Waiting));
        store.append(append).await.unwrap();
        let answer = Answer { id: "p".into(), body: "a".repeat(500).into() };
        let answers = AnswerSet { answers: vec![answer], by: "ada".into() };
        store.answer(&ada(), &"t".into(), answers, &"next".into()).await.unwrap();
        store.compact(&ada(), &"r".into(), vec!["short".into()]).await.unwrap();
        let feedback = NewFeedback { thread: "t".into(), run: None, body: "f".repeat(500).into() };
        store.add_feedback(&ada(), feedback).await.unwrap();
        assert!(store.stats().await.unwrap().bytes > empty + 2500);
        store.delete_thread(&ada(), &"t".into()).await.unwrap();
        assert_eq!(store.stats().await.unwrap().bytes, empty, "round {round}");
    }
}

#[tokio::test]
async fn backup_is_unsupported() {
    let backup = store().backup(std::path::Path::new("x")).await;
    assert!(matches!(backup, Err(StoreError::Unsupported { .. })));
}
