//! Compaction, retention and statistics.

use std::time::Duration;

use agentwire_store::*;
use bytes::Bytes;

use super::{ALL, World};

const DAY: Duration = Duration::from_secs(86_400);

async fn read(world: &World, run: &str, after: Option<u64>) -> Log {
    world.store.read(&world.ada, &run.into(), after.map(Seq), ALL).await.unwrap()
}

pub(crate) async fn a_compacted_log_is_reported_as_such(world: World) {
    world.ended("t", "r", &["a", "b", "c", "d"]).await;
    let short: Vec<Bytes> = vec!["ab".into(), "cd".into()];
    for _ in 0..2 {
        world.store.compact(&world.ada, &"r".into(), short.clone()).await.unwrap();
        let run = world.store.run(&world.ada, &"r".into()).await.unwrap();
        assert_eq!((run.compacted, run.first_retained, run.next_seq), (true, Seq(4), Seq(4)));
        let status = RunStatus::Finished;
        let whole = Log::Compacted { events: short.clone(), next_seq: Seq(4), status };
        assert_eq!(read(&world, "r", None).await, whole);
        for after in 0..3 {
            let gone = Log::NotRetained { first_retained: Seq(4), next_seq: Seq(4), status };
            assert_eq!(read(&world, "r", Some(after)).await, gone, "after {after}");
        }
        let end = LogSlice { first_seq: Seq(4), events: Vec::new(), next_seq: Seq(4), status, epoch: 0 };
        assert_eq!(read(&world, "r", Some(3)).await, Log::Exact(end), "the last event was seen");
        assert_eq!(read(&world, "r", Some(4)).await, Log::Ahead { next_seq: Seq(4), status });
    }
}

pub(crate) async fn only_ended_runs_can_be_compacted(world: World) {
    let run = world.start("t", "r").await;
    world.store.append(world.append(&run, 0, &["a"])).await.unwrap();
    let refused = world.store.compact(&world.ada, &run.run, vec!["a".into()]).await;
    assert!(matches!(refused, Err(StoreError::Live(RunStatus::Running))));
    assert_eq!(world.events(&run.run, ALL).await, ["a"]);
}

pub(crate) async fn lists_old_logs_for_compaction(world: World) {
    world.ended("t", "old", &["a"]).await;
    world.ended("t", "empty", &[]).await;
    world.ended("t", "compacted", &["a"]).await;
    world.store.compact(&world.ada, &"compacted".into(), vec!["a".into()]).await.unwrap();
    world.clock.advance(DAY);
    world.ended("t", "young", &["a"]).await;
    let live = world.start("u", "live").await;
    world.store.append(world.append(&live, 0, &["a"])).await.unwrap();
    let due = async |age, limit| -> Vec<String> {
        let due = world.store.compactable(age, limit).await.unwrap();
        assert!(due.iter().all(|key| key.owner == world.ada));
        due.iter().map(|key| key.run.to_string()).collect()
    };
    assert_eq!(due(DAY, 9).await, ["old"]);
    assert_eq!(due(Duration::ZERO, 9).await, ["old", "young"]);
    assert_eq!(due(Duration::ZERO, 1).await, ["old"]);
    assert!(due(DAY * 2, 9).await.is_empty());
}

pub(crate) async fn retention_drops_old_logs_and_reports_it(world: World) {
    world.ended("t", "old", &["a", "b"]).await;
    world.ended("t", "compacted", &["a", "b"]).await;
    world.store.compact(&world.ada, &"compacted".into(), vec!["ab".into()]).await.unwrap();
    world.clock.advance(DAY);
    world.ended("t", "young", &["a"]).await;
    let retention = Retention { log_age: Some(DAY), ..Default::default() };
    assert_eq!(world.store.retain(retention.clone()).await.unwrap().logs, 2);
    for run in ["old", "compacted"] {
        let gone = Log::NotRetained { first_retained: Seq(2), next_seq: Seq(2), status: RunStatus::Finished };
        assert_eq!(read(&world, run, None).await, gone);
        assert_eq!(read(&world, run, Some(0)).await, gone);
        assert!(matches!(read(&world, run, Some(1)).await, Log::Exact(slice) if slice.events.is_empty()));
        assert_eq!(world.store.input(&world.ada, &run.into()).await.unwrap(), None);
        // The id stays reserved.
        let again = world.store.start(&world.ada, super::new_run("t", run)).await.unwrap();
        assert!(matches!(again, Start::Exists(_)));
    }
    assert_eq!(world.events(&"young".into(), ALL).await, ["a"]);
    assert_eq!(world.store.retain(retention).await.unwrap(), RetentionReport::default());
}

pub(crate) async fn retention_keeps_the_newest_logs(world: World) {
    for run in ["1", "2", "3"] {
        world.ended("t", run, &["e"]).await;
    }
    world.ended("u", "other", &["e"]).await;
    let retention = Retention { logs_per_thread: Some(2), ..Default::default() };
    assert_eq!(world.store.retain(retention).await.unwrap().logs, 1);
    assert!(matches!(read(&world, "1", None).await, Log::NotRetained { .. }));
    for run in ["2", "3", "other"] {
        assert_eq!(world.events(&run.into(), ALL).await, ["e"]);
    }
}

pub(crate) async fn retention_deletes_old_threads(world: World) {
    world.ended("old", "r", &["e"]).await;
    world.ended("touched", "s", &["e"]).await;
    world.clock.advance(DAY);
    world.ended("touched", "later", &["e"]).await;
    let retention = Retention { thread_age: Some(DAY), ..Default::default() };
    assert_eq!(world.store.retain(retention).await.unwrap().threads, 1);
    assert!(world.store.thread(&world.ada, &"old".into()).await.is_err());
    assert!(world.store.run(&world.ada, &"r".into()).await.is_err());
    assert_eq!(world.events(&"s".into(), ALL).await, ["e"]);
}

pub(crate) async fn retention_keeps_the_newest_threads(world: World) {
    let eve = Owner::new("acme", "eve", "demo");
    let new = |thread: &str| NewThread { thread: thread.into(), thread_ids: None, metadata: None };
    for number in 0..100 {
        world.store.create_thread(&world.ada, new(&format!("t{number}"))).await.unwrap();
    }
    world.store.create_thread(&eve, new("t")).await.unwrap();
    let retention = Retention { threads_per_owner: Some(2), ..Default::default() };
    assert_eq!(world.store.retain(retention).await.unwrap().threads, 98);
    let left = world.store.threads(&world.ada, ThreadQuery::default(), 9).await.unwrap().items;
    let names: Vec<&str> = left.iter().map(|thread| thread.thread.as_str()).collect();
    assert_eq!(names, ["t99", "t98"]);
    assert!(world.store.thread(&eve, &"t".into()).await.is_ok(), "counted per owner");
}

pub(crate) async fn retention_keeps_live_runs(world: World) {
    let run = world.start("t", "live").await;
    world.store.append(world.append(&run, 0, &["a"])).await.unwrap();
    world.clock.advance(DAY * 100);
    let none = Retention {
        log_age: Some(Duration::ZERO),
        logs_per_thread: Some(0),
        thread_age: Some(Duration::ZERO),
        threads_per_owner: Some(0),
    };
    assert_eq!(world.store.retain(none.clone()).await.unwrap(), RetentionReport::default());
    world.lease("gateway-1").await;
    let mut end = world.append(&run, 1, &["b"]);
    end.change.status = Some(StatusChange::to(RunStatus::Finished));
    world.store.append(end).await.unwrap();
    assert_eq!(world.events(&run.run, ALL).await, ["a", "b"]);
    assert_eq!(world.store.retain(none).await.unwrap().threads, 1);
}

pub(crate) async fn retention_finishes_runs_with_only_expired_items(world: World) {
    let run = world.start("t", "r").await;
    let mut end = world.append(&run, 0, &["end"]);
    end.change.status = Some(StatusChange::to(RunStatus::Waiting));
    let pending = NewPending {
        id: "p".into(),
        kind: "k".into(),
        body: "{}".into(),
        ttl: Some(Duration::from_secs(60)),
    };
    end.change.pending = vec![pending];
    world.store.append(end).await.unwrap();
    assert_eq!(world.store.retain(Retention::default()).await.unwrap().expired, 0);
    world.clock.advance(Duration::from_secs(60));
    assert_eq!(world.status("r").await, RunStatus::Waiting);
    assert_eq!(world.store.retain(Retention::default()).await.unwrap().expired, 1);
    assert_eq!(world.status("r").await, RunStatus::Finished);
    assert_eq!(world.store.retain(Retention::default()).await.unwrap().expired, 0);
}

pub(crate) async fn stats_count_all_records(world: World) {
    let empty = world.store.stats().await.unwrap();
    assert_eq!((empty.threads, empty.runs, empty.events, empty.log_bytes), (0, 0, 0, 0));
    world.ended("t", "ended", &["abc", "de"]).await;
    let run = world.start("t", "live").await;
    let mut append = world.append(&run, 0, &["x"]);
    append.change.pending =
        vec![NewPending { id: "p".into(), kind: "k".into(), body: "{}".into(), ttl: None }];
    world.store.append(append).await.unwrap();
    let stats = world.store.stats().await.unwrap();
    assert_eq!((stats.threads, stats.runs, stats.live_runs), (1, 2, 1));
    assert_eq!((stats.events, stats.log_bytes, stats.open_pending), (3, 6, 1));
    assert!(stats.bytes > 0);
    world.store.vacuum().await.unwrap();
    world.store.verify().await.unwrap();
}
