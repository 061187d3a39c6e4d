//! P1, order: every reader of a run receives the same events in the same order, with ascending ids.

use agentwire_gateway::agent::Demo;

use crate::support::{Backend, Frame, Puppet, assert_valid, ids, plan, talk, types, with_timeout};
use std::sync::Arc;

/// The sequence numbers of the last frames of all events, whose ids must have the form `run:number`.
fn numbers(run: &str, frames: &[Frame]) -> Vec<u64> {
    let number = |id: &String| id.strip_prefix(&format!("{run}:")).expect(id).parse().expect(id);
    ids(frames).iter().filter(|id| !id.contains('/')).map(number).collect()
}

#[tokio::test]
async fn p1_readers_of_all_formats_receive_the_same_order() {
    for backend in Backend::each().await {
        let puppet = Puppet::new(|input| talk(input, 30));
        let server = plan(puppet.clone()).on(&backend.store).await;
        let mut first = server.run("t", "r", "hello").await;
        let mut seen = first.take(1).await;

        let paths = [
            "/runs/r/stream",
            "/runs/r/stream?format=ag-ui@1",
            "/runs/r/stream?format=hai",
            "/runs/r/stream?format=hai",
            "/runs/r/stream?format=ai-sdk@5",
            "/runs/r/stream?format=ai-sdk@6",
            "/runs/r/stream?format=ai-sdk@6",
        ];
        let mut early = Vec::new();
        for path in paths {
            early.push(server.follow(path).await);
        }
        puppet.allow(10);
        seen.extend(first.take(10).await);
        let mut middle = Vec::new();
        for path in paths {
            middle.push(server.follow(path).await);
        }
        puppet.allow(100);
        seen.extend(first.rest().await);
        assert_valid(&seen);
        assert_eq!(numbers("r", &seen), (0..seen.len() as u64).collect::<Vec<_>>());

        let mut late = Vec::new();
        for path in paths {
            late.push(server.follow(path).await);
        }
        for (index, path) in paths.iter().enumerate() {
            let early = early[index].rest().await;
            let middle = middle[index].rest().await;
            let late = late[index].rest().await;
            assert_eq!(early, middle, "{path}");
            assert_eq!(early, late, "{path}");
            if !path.contains("hai") && !path.contains("ai-sdk") {
                assert_eq!(early, seen, "{path}");
            }
            let numbers = numbers("r", &early);
            assert!(numbers.is_sorted_by(|one, two| one < two), "{path}: {numbers:?}");
        }
    }
}

#[tokio::test]
async fn p1_readers_at_every_cursor_receive_the_live_rest_of_the_run() {
    for backend in Backend::each().await {
        let puppet = Puppet::new(|input| talk(input, 20));
        let server = plan(puppet.clone()).on(&backend.store).await;
        let mut first = server.run("t", "r", "hello").await;
        puppet.allow(10);
        let mut seen = first.take(11).await;
        let mut readers = Vec::new();
        for cursor in 0..seen.len() {
            readers.push(server.follow(&format!("/runs/r/stream?after=r:{cursor}")).await);
        }
        puppet.allow(100);
        seen.extend(first.rest().await);
        for (cursor, mut reader) in readers.into_iter().enumerate() {
            assert_eq!(reader.verdict(), "whole");
            assert_eq!(reader.rest().await, seen[cursor + 1..], "after {cursor}");
        }
    }
}

/// A very small ring buffer makes readers switch between memory and store; the streams must not differ.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_order_is_kept_when_readers_switch_between_memory_and_store() {
    for backend in Backend::each().await {
        let server = plan(Arc::new(Demo::without_pauses()))
            .set(|settings| {
                settings.limits.ring = 300;
                settings.limits.reader_lag = usize::MAX / 2;
            })
            .on(&backend.store)
            .await;
        let first = server.run("t", "r", "long 3000").await;
        let mut readers = vec![first];
        for _ in 0..8 {
            readers.push(server.follow("/runs/r/stream").await);
        }
        let mut tasks = tokio::task::JoinSet::new();
        for mut reader in readers {
            tasks.spawn(async move { reader.rest().await });
        }
        let seen = with_timeout("all readers", tasks.join_all()).await;
        assert_valid(&seen[0]);
        assert_eq!(numbers("r", &seen[0]), (0..seen[0].len() as u64).collect::<Vec<_>>());
        assert!(seen[0].len() > 3000);
        for other in &seen {
            assert!(*other == seen[0], "{} and {} frames", other.len(), seen[0].len());
        }
    }
}

#[tokio::test]
async fn p1_every_event_has_a_timestamp_and_client_ids_are_kept() {
    let server = plan(Puppet::eager(|input| talk(input, 2))).on_memory().await;
    let frames = server.run_to_end("thread one", "run:1", "hello").await;
    assert_eq!(frames[0].json()["threadId"], "thread one");
    assert_eq!(frames[0].json()["runId"], "run:1");
    assert_eq!(types(&frames).last().map(String::as_str), Some("RUN_FINISHED"));
    assert!(frames.iter().all(|frame| frame.json()["timestamp"].is_u64()));
    assert_eq!(numbers("run:1", &frames).len(), frames.len());
    let repeated = server.run_to_end("thread one", "run:1", "hello").await;
    assert_eq!(repeated, frames, "a repeated run id returns the same run");
    let followed = server.follow("/runs/run%3A1/stream?after=run%3A1:2").await.rest().await;
    assert_eq!(followed, frames[3..]);
}
