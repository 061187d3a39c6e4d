//! Logs: order, gaps, fencing tokens, repetition.

use std::time::Duration;

use agentwire_store::*;
use bytes::Bytes;

use super::{ALL, TTL, World, created, queued_run, threads::run_concurrently};

pub(crate) async fn p1_a_log_keeps_its_order(world: World) {
    let run = world.start("t", "r").await;
    let mut expected = Vec::new();
    for number in 0..50_u64 {
        let events: Vec<String> = (0..=number % 4).map(|part| format!("{number}.{part}")).collect();
        let texts: Vec<&str> = events.iter().map(String::as_str).collect();
        let appended = world.store.append(world.append(&run, expected.len() as u64, &texts)).await.unwrap();
        expected.extend(events);
        assert_eq!(appended, Appended { next_seq: Seq(expected.len() as u64), repeated: false, epoch: 0 });
    }
    for limit in [0, 1, 7, 64, ALL] {
        assert_eq!(world.events(&run.run, limit).await, expected, "in pages of {limit} bytes");
    }
    let run = world.store.run(&world.ada, &run.run).await.unwrap();
    assert_eq!(run.last_seq(), Some(Seq(expected.len() as u64 - 1)));
}

pub(crate) async fn reads_a_log_from_any_cursor(world: World) {
    let run = world.start("t", "r").await;
    world.store.append(world.append(&run, 0, &["0", "1", "2"])).await.unwrap();
    world.store.append(world.append(&run, 3, &["3"])).await.unwrap();
    world.store.append(world.append(&run, 4, &["4", "5"])).await.unwrap();
    let read =
        async |after: Option<u64>| world.store.read(&world.ada, &run.run, after.map(Seq), ALL).await.unwrap();
    for after in 0..6 {
        let Log::Exact(slice) = read(Some(after)).await else { panic!("after {after}") };
        let expected: Vec<Bytes> = (after + 1..6).map(|number| number.to_string().into()).collect();
        assert_eq!((slice.first_seq, slice.events), (Seq(after + 1), expected));
        assert_eq!((slice.next_seq, slice.status), (Seq(6), RunStatus::Running));
    }
    for after in [6, 7, 1000, i64::MAX as u64, u64::MAX] {
        let ahead = Log::Ahead { next_seq: Seq(6), status: RunStatus::Running };
        assert_eq!(read(Some(after)).await, ahead, "after {after}");
    }
    let empty = world.start("u", "empty").await;
    let log = world.store.read(&world.ada, &empty.run, None, ALL).await.unwrap();
    let nothing = LogSlice {
        first_seq: Seq(0),
        events: Vec::new(),
        next_seq: Seq(0),
        status: RunStatus::Running,
        epoch: 0,
    };
    assert_eq!(log, Log::Exact(nothing));
    let log = world.store.read(&world.ada, &empty.run, Some(Seq(0)), ALL).await.unwrap();
    assert_eq!(log, Log::Ahead { next_seq: Seq(0), status: RunStatus::Running });
}

pub(crate) async fn a_read_returns_at_least_one_event(world: World) {
    let run = world.start("t", "r").await;
    let large = "x".repeat(100_000);
    world.store.append(world.append(&run, 0, &[&large, "small", "small", &large])).await.unwrap();
    let Log::Exact(slice) = world.store.read(&world.ada, &run.run, None, 10).await.unwrap() else { panic!() };
    assert_eq!(slice.events.len(), 1);
    let Log::Exact(slice) = world.store.read(&world.ada, &run.run, Some(Seq(0)), 10).await.unwrap() else {
        panic!()
    };
    assert_eq!((slice.events.len(), slice.first_seq), (2, Seq(1)), "as many as fit");
}

pub(crate) async fn rejects_an_append_that_leaves_a_gap(world: World) {
    let run = world.start("t", "r").await;
    world.store.append(world.append(&run, 0, &["a"])).await.unwrap();
    for first_seq in [2, 3, 99, u64::MAX] {
        let refused = world.store.append(world.append(&run, first_seq, &["x"])).await;
        assert!(matches!(refused, Err(StoreError::OutOfOrder { expected: Seq(1) })), "{first_seq}");
    }
    assert_eq!(world.events(&run.run, ALL).await, ["a"]);
}

pub(crate) async fn rejects_an_append_that_overlaps(world: World) {
    let run = world.start("t", "r").await;
    world.store.append(world.append(&run, 0, &["a", "b"])).await.unwrap();
    world.store.append(world.append(&run, 2, &["c"])).await.unwrap();
    let others: [(u64, &[&str]); 7] = [
        (0, &["x"]),
        (0, &["a"]),
        (0, &["a", "b", "c"]),
        (0, &["a", "x"]),
        (1, &["b"]),
        (1, &["b", "c", "d"]),
        (0, &[]),
    ];
    for (first_seq, events) in others {
        let refused = world.store.append(world.append(&run, first_seq, events)).await;
        assert!(
            matches!(refused, Err(StoreError::OutOfOrder { expected: Seq(3) })),
            "{first_seq} {events:?}: {refused:?}"
        );
    }
    assert_eq!(world.events(&run.run, ALL).await, ["a", "b", "c"]);
}

pub(crate) async fn p8_a_repeated_append_has_no_effect(world: World) {
    let run = world.start("t", "r").await;
    let mut first = world.append(&run, 0, &["a", "b"]);
    first.change.state = Some(StateChange { expected: 0, body: "{}".into() });
    let second = world.append(&run, 2, &["c"]);
    world.store.append(first.clone()).await.unwrap();
    world.store.append(second.clone()).await.unwrap();
    for _ in 0..3 {
        let again = world.store.append(first.clone()).await.unwrap();
        assert_eq!(again, Appended { next_seq: Seq(2), repeated: true, epoch: 0 });
        let again = world.store.append(second.clone()).await.unwrap();
        assert_eq!(again, Appended { next_seq: Seq(3), repeated: true, epoch: 0 });
    }
    assert_eq!(world.events(&run.run, ALL).await, ["a", "b", "c"]);
    assert_eq!(world.store.state(&world.ada, &"t".into()).await.unwrap().seq, 1);
}

pub(crate) async fn the_last_append_can_be_repeated_after_the_run_ended(world: World) {
    let run = world.start("t", "r").await;
    let mut end = world.append(&run, 0, &["end"]);
    end.change.status = Some(StatusChange::to(RunStatus::Finished));
    assert!(!world.store.append(end.clone()).await.unwrap().repeated);
    world.clock.advance(TTL * 2);
    world.start("t", "next").await;
    assert!(world.store.append(end.clone()).await.unwrap().repeated);
    // The same bytes under another fencing token come from another writer.
    end.fence = Fence(end.fence.0 + 1);
    assert!(matches!(world.store.append(end).await, Err(StoreError::Fenced)));
}

pub(crate) async fn p4_rejects_an_outdated_fencing_token(world: World) {
    let run = world.start("t", "r").await;
    world.store.append(world.append(&run, 0, &["a"])).await.unwrap();
    for fence in [0, run.fence.0 - 1, run.fence.0 + 1, u64::MAX] {
        let mut append = world.append(&run, 1, &["x"]);
        append.fence = Fence(fence);
        assert!(matches!(world.store.append(append).await, Err(StoreError::Fenced)), "{fence}");
    }
    assert_eq!(world.events(&run.run, ALL).await, ["a"]);
}

pub(crate) async fn rejects_an_append_under_an_expired_claim(world: World) {
    let run = world.start("t", "r").await;
    world.clock.advance(TTL - Duration::from_millis(1));
    world.store.append(world.append(&run, 0, &["in time"])).await.unwrap();
    world.clock.advance(Duration::from_millis(1));
    let late = world.store.append(world.append(&run, 1, &["late"])).await;
    assert!(matches!(late, Err(StoreError::Fenced)));
    let released = world.start("u", "s").await;
    world.store.release(&world.ada, &released.run, released.fence).await.unwrap();
    let gone = world.store.append(world.append(&released, 0, &["x"])).await;
    assert!(matches!(gone, Err(StoreError::Fenced)));
}

pub(crate) async fn rejects_appends_to_an_ended_run(world: World) {
    for status in [RunStatus::Finished, RunStatus::Failed, RunStatus::Stopped, RunStatus::Waiting] {
        let run = world.start("t", status.as_str()).await;
        let mut end = world.append(&run, 0, &["end"]);
        end.change.status = Some(StatusChange::to(status));
        world.store.append(end).await.unwrap();
        for events in [&["more"] as &[&str], &[]] {
            let mut more = world.append(&run, 1, events);
            more.change.status = Some(StatusChange::to(RunStatus::Failed));
            let refused = world.store.append(more).await;
            assert!(matches!(refused, Err(StoreError::Ended(ended)) if ended == status), "{refused:?}");
        }
        let acquired = world.store.acquire(&world.ada, &run.run, run.fence).await;
        assert!(matches!(acquired, Err(StoreError::Ended(_))));
        assert_eq!(world.events(&run.run, ALL).await, ["end"]);
    }
}

pub(crate) async fn changes_and_events_are_applied_atomically(world: World) {
    let run = world.start("t", "r").await;
    let everything = |expected| Change {
        status: Some(StatusChange::to(RunStatus::Waiting)),
        state: Some(StateChange { expected, body: "{\"n\":1}".into() }),
        messages: Some("[1]".into()),
        replies: Vec::new(),
        pending: vec![NewPending { id: "p".into(), kind: "k".into(), body: "{}".into(), ttl: None }],
    };
    let refused = world.store.append(Append { change: everything(5), ..world.append(&run, 0, &["x"]) }).await;
    assert!(matches!(refused, Err(StoreError::Conflict(Conflict::State { current: 0 }))));
    let out_of_order = Append { change: everything(0), ..world.append(&run, 1, &["x"]) };
    assert!(matches!(world.store.append(out_of_order).await, Err(StoreError::OutOfOrder { .. })));
    let thread = &"t".into();
    assert_eq!(world.status("r").await, RunStatus::Running);
    assert_eq!(world.store.state(&world.ada, thread).await.unwrap().seq, 0);
    assert_eq!(world.store.messages(&world.ada, thread).await.unwrap(), None);
    assert!(world.store.pending(&world.ada, thread, PendingFilter::All).await.unwrap().is_empty());
    assert!(world.events(&run.run, ALL).await.is_empty());

    world.clock.advance(Duration::from_secs(1));
    world.store.append(Append { change: everything(0), ..world.append(&run, 0, &["x"]) }).await.unwrap();
    assert_eq!(world.status("r").await, RunStatus::Waiting);
    let state = world.store.state(&world.ada, thread).await.unwrap();
    assert_eq!(state, State { seq: 1, body: Some("{\"n\":1}".into()) });
    assert_eq!(world.store.messages(&world.ada, thread).await.unwrap().as_deref(), Some("[1]"));
    assert_eq!(world.store.pending(&world.ada, thread, PendingFilter::Open).await.unwrap().len(), 1);
    assert_eq!(world.events(&run.run, ALL).await, ["x"]);
    assert_eq!(world.store.thread(&world.ada, thread).await.unwrap().updated, world.store.now());
}

pub(crate) async fn an_append_without_events_changes_the_status(world: World) {
    let run = world.start("t", "r").await;
    world.store.append(world.append(&run, 0, &["a"])).await.unwrap();
    for status in [RunStatus::Paused, RunStatus::Paused, RunStatus::Running] {
        let mut change = world.append(&run, 1, &[]);
        change.change.status = Some(StatusChange::to(status));
        let appended = world.store.append(change).await.unwrap();
        assert_eq!(appended, Appended { next_seq: Seq(1), repeated: false, epoch: 0 });
        assert_eq!(world.status("r").await, status);
    }
    world.store.append(world.append(&run, 1, &["b"])).await.unwrap();
    assert_eq!(world.events(&run.run, ALL).await, ["a", "b"]);
}

pub(crate) async fn rejects_disallowed_status_changes(world: World) {
    let run = world.start("t", "r").await;
    let queued = created(world.store.start(&world.ada, queued_run("t", "q", 9)).await.unwrap());
    for (run, to) in [(&run, RunStatus::Queued), (&queued, RunStatus::Running), (&queued, RunStatus::Paused)]
    {
        let mut change = world.append(run, 0, &["x"]);
        change.change.status = Some(StatusChange::to(to));
        let refused = world.store.append(change).await;
        assert!(matches!(refused, Err(StoreError::Conflict(Conflict::Status { .. }))), "{refused:?}");
    }
    let again = world.store.acquire(&world.ada, &run.run, run.fence).await;
    assert!(matches!(again, Err(StoreError::Conflict(Conflict::Status { .. }))));
}

pub(crate) async fn accepts_any_bytes_as_an_event(world: World) {
    let run = world.start("t", "r").await;
    let events: Vec<Bytes> = vec![
        Bytes::new(),
        Bytes::from_static(b"\0\0\0\0"),
        Bytes::from_static(b"\xff\xfe\x00"),
        Bytes::from_static(b"line\nline"),
        Bytes::from(vec![7; 300_000]),
        Bytes::new(),
    ];
    let mut append = world.append(&run, 0, &[]);
    append.events = events.clone();
    world.store.append(append).await.unwrap();
    let Log::Exact(slice) = world.store.read(&world.ada, &run.run, None, ALL).await.unwrap() else {
        panic!()
    };
    assert_eq!(slice.events, events);
}

pub(crate) async fn p1_concurrent_writers_of_one_run_produce_one_sequence(world: World) {
    let run = world.start("t", "r").await;
    let won = run_concurrently(8, |writer| {
        let (store, append) = (world.store.clone(), world.append(&run, 0, &[]));
        async move {
            let mut won = 0;
            let mut seq = Seq(0);
            for number in 0..40 {
                let events = vec![format!("{writer}.{number}").into()];
                match store.append(Append { first_seq: seq, events, ..append.clone() }).await {
                    Ok(appended) => (won, seq) = (won + 1, appended.next_seq),
                    Err(StoreError::OutOfOrder { expected }) => seq = expected,
                    Err(error) => panic!("{error}"),
                }
            }
            won
        }
    })
    .await;
    let events = world.events(&run.run, 64).await;
    assert_eq!(events.len(), won.iter().sum::<usize>(), "exactly the acknowledged events");
    let mut unique = events.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), events.len(), "each event once");
}

pub(crate) async fn many_runs_do_not_interfere(world: World) {
    run_concurrently(40, |number| {
        let (store, ada) = (world.store.clone(), world.ada.clone());
        async move {
            let name = format!("r{number}");
            let run = created(store.start(&ada, super::new_run(&name, &name)).await.unwrap());
            for seq in 0..25 {
                let mut append = Append::new(ada.clone(), run.run.clone(), run.fence, Seq(seq));
                append.events = vec![format!("{number}.{seq}").into()];
                // A rejected append in the same batch must not fail this one.
                let stray = Append { first_seq: Seq(seq + 7), ..append.clone() };
                let (good, stray) = tokio::join!(store.append(append), store.append(stray));
                assert_eq!(good.unwrap().next_seq, Seq(seq + 1));
                assert!(matches!(stray, Err(StoreError::OutOfOrder { .. })));
            }
        }
    })
    .await;
    for number in 0..40 {
        let expected: Vec<String> = (0..25).map(|seq| format!("{number}.{seq}")).collect();
        assert_eq!(world.events(&format!("r{number}").into(), 100).await, expected);
    }
}

pub(crate) async fn p6_rejects_an_append_above_the_size_limit(world: World) {
    let run = world.start("t", "r").await;
    let mut append = world.append(&run, 0, &[]);
    append.events = vec![Bytes::from(vec![b'x'; 33 << 20]); 2];
    assert!(matches!(world.store.append(append).await, Err(StoreError::TooLarge { .. })));
    world.store.append(world.append(&run, 0, &["continues"])).await.unwrap();
}
