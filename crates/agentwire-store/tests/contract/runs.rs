//! Starting and queueing runs.

use agentwire_store::*;

use super::{TTL, World, created, granted, new_run, queued_run, threads::run_concurrently};

pub(crate) async fn creates_a_run_with_its_thread(world: World) {
    let new = NewRun { input: "{\"in\":1}".into(), cause: Some("user".into()), ..new_run("t", "r") };
    let run = created(world.store.start(&world.ada, new).await.unwrap());
    assert_eq!((run.status, run.next_seq, run.last_seq()), (RunStatus::Running, Seq(0), None));
    assert_eq!((run.created, run.started), (world.store.now(), Some(world.store.now())));
    assert_eq!(run.cause.as_deref(), Some("user"));
    assert_eq!(world.store.run(&world.ada, &"r".into()).await.unwrap(), run);
    assert_eq!(world.store.input(&world.ada, &"r".into()).await.unwrap().as_deref(), Some("{\"in\":1}"));
    assert!(world.store.thread(&world.ada, &"t".into()).await.is_ok());
}

pub(crate) async fn p8_starting_an_existing_run_returns_it(world: World) {
    let first = world.start("t", "r").await;
    world.store.append(world.append(&first, 0, &["a"])).await.unwrap();
    for thread in ["t", "another"] {
        let again = world.store.start(&world.ada, new_run(thread, "r")).await.unwrap();
        let Start::Exists(found) = again else { panic!("{again:?}") };
        assert_eq!((found.thread.as_str(), found.next_seq, found.fence), ("t", Seq(1), first.fence));
    }
    let unmade = world.store.thread(&world.ada, &"another".into()).await;
    assert!(matches!(unmade, Err(StoreError::NotFound(Missing::Thread))));
}

pub(crate) async fn p8_one_of_a_hundred_concurrent_starts_creates_the_run(world: World) {
    let starts = run_concurrently(100, |_| {
        let (store, ada) = (world.store.clone(), world.ada.clone());
        async move { store.start(&ada, new_run("t", "r")).await.unwrap() }
    })
    .await;
    let new: Vec<&Run> =
        starts.iter().filter_map(|it| if let Start::Created(run) = it { Some(run) } else { None }).collect();
    assert_eq!(new.len(), 1);
    for start in &starts {
        let (Start::Created(run) | Start::Exists(run)) = start else { panic!("{start:?}") };
        assert_eq!(run, new[0]);
    }
}

pub(crate) async fn p4_one_of_a_hundred_runs_gets_the_thread(world: World) {
    let starts = run_concurrently(100, |number| {
        let (store, ada) = (world.store.clone(), world.ada.clone());
        async move { store.start(&ada, new_run("t", &format!("r{number}"))).await.unwrap() }
    })
    .await;
    let winner = starts.iter().find_map(|it| if let Start::Created(run) = it { Some(run) } else { None });
    let winner = winner.expect("one starts");
    let held = starts.iter().filter(|it| matches!(it, Start::Held(lease) if lease.run == winner.run)).count();
    assert_eq!(held, 99);
}

pub(crate) async fn a_refused_run_leaves_no_record(world: World) {
    let first = world.start("t", "first").await;
    let refused = world.store.start(&world.ada, new_run("t", "second")).await.unwrap();
    let Start::Held(lease) = refused else { panic!("{refused:?}") };
    assert_eq!((lease.run.as_str(), lease.fence, lease.live), ("first", first.fence, true));
    assert!(matches!(
        world.store.run(&world.ada, &"second".into()).await,
        Err(StoreError::NotFound(Missing::Run))
    ));
    world.end(&first).await;
    assert_eq!(world.start("t", "second").await.status, RunStatus::Running);
}

pub(crate) async fn runs_are_listed_newest_first(world: World) {
    for run in ["a", "b", "c"] {
        world.ended("t", run, &["e"]).await;
    }
    world.ended("other", "d", &["e"]).await;
    let thread = &"t".into();
    let first = world.store.runs(&world.ada, thread, None, 2).await.unwrap();
    let rest = world.store.runs(&world.ada, thread, first.next, 2).await.unwrap();
    let names: Vec<&str> = first.items.iter().chain(&rest.items).map(|run| run.run.as_str()).collect();
    assert_eq!(names, ["c", "b", "a"]);
    assert_eq!(rest.next, None);
}

pub(crate) async fn queued_runs_get_the_thread_in_order(world: World) {
    let first = world.start("t", "1").await;
    let mut queued = Vec::new();
    for run in ["2", "3"] {
        let run = created(world.store.start(&world.ada, queued_run("t", run, 9)).await.unwrap());
        assert_eq!((run.status, run.started), (RunStatus::Queued, None));
        queued.push(run);
    }
    let acquire = async |run: &Run| world.store.acquire(&world.ada, &run.run, run.fence).await.unwrap();
    assert!(matches!(acquire(&queued[0]).await, Acquire::Held(lease) if lease.run == first.run));
    let mut end = world.append(&first, 0, &["end"]);
    end.change.status = Some(StatusChange::to(RunStatus::Finished));
    world.store.append(end).await.unwrap();
    assert!(matches!(acquire(&queued[1]).await, Acquire::Held(lease) if lease.run == queued[0].run));
    let lease = granted(acquire(&queued[0]).await);
    assert!(lease.fence > queued[0].fence, "a lease has a new fencing token");
    assert_eq!(world.status("2").await, RunStatus::Running);
    assert!(matches!(world.store.append(world.append(&queued[0], 0, &["x"])).await, Err(StoreError::Fenced)));
}

pub(crate) async fn p6_the_queue_is_bounded(world: World) {
    world.start("t", "1").await;
    for run in ["2", "3"] {
        created(world.store.start(&world.ada, queued_run("t", run, 2)).await.unwrap());
    }
    assert_eq!(world.store.start(&world.ada, queued_run("t", "4", 2)).await.unwrap(), Start::QueueFull);
    // An orphan keeps its place.
    world.clock.advance(TTL);
    let late = world.store.start(&world.ada, queued_run("t", "4", 2)).await.unwrap();
    assert_eq!(late, Start::Orphan("1".into()));
    world.lease("gateway-1").await;
    assert_eq!(world.store.start(&world.ada, queued_run("t", "4", 2)).await.unwrap(), Start::QueueFull);
}

pub(crate) async fn new_runs_do_not_overtake_the_queue(world: World) {
    let first = world.start("t", "1").await;
    created(world.store.start(&world.ada, queued_run("t", "2", 9)).await.unwrap());
    world.end(&first).await;
    let immediate = world.store.start(&world.ada, new_run("t", "3")).await.unwrap();
    assert!(matches!(&immediate, Start::Held(lease) if lease.run.as_str() == "2"), "{immediate:?}");
    let queued = created(world.store.start(&world.ada, queued_run("t", "3", 9)).await.unwrap());
    assert_eq!(queued.status, RunStatus::Queued);
}

pub(crate) async fn a_queued_run_can_end_without_its_thread(world: World) {
    let first = world.start("t", "1").await;
    let queued = created(world.store.start(&world.ada, queued_run("t", "2", 9)).await.unwrap());
    let mut end = world.append(&queued, 0, &["started", "stopped"]);
    end.change.status = Some(StatusChange::to(RunStatus::Stopped));
    world.store.append(end).await.unwrap();
    assert_eq!(world.status("2").await, RunStatus::Stopped);
    let lease = world.store.lease(&world.ada, &"t".into()).await.unwrap().unwrap();
    assert_eq!(lease.run, first.run, "the thread stays with its run");
    world.store.append(world.append(&first, 0, &["continues"])).await.unwrap();
}

pub(crate) async fn a_queued_run_continues_under_a_new_fencing_token(world: World) {
    let first = world.start("t", "1").await;
    let queued = created(world.store.start(&world.ada, queued_run("t", "2", 9)).await.unwrap());
    world.store.append(world.append(&queued, 0, &["waits"])).await.unwrap();
    world.end(&first).await;
    let lease = granted(world.store.acquire(&world.ada, &queued.run, queued.fence).await.unwrap());
    let old = world.store.append(world.append(&queued, 1, &["old"])).await;
    assert!(matches!(old, Err(StoreError::Fenced)), "{old:?}");
    let running = Run { fence: lease.fence, ..queued };
    let mut pause = world.append(&running, 1, &["new"]);
    pause.change.status = Some(StatusChange::to(RunStatus::Paused));
    world.store.append(pause).await.unwrap();
    assert_eq!(world.events(&running.run, 9).await, ["waits", "new"]);
}

pub(crate) async fn accepts_unusual_ids(world: World) {
    let long = "x".repeat(10_000);
    for id in ["", "'; DROP TABLE runs; --", "a\0b", "ü\u{202e}🦀", "a/b:c%d_", &long] {
        let run = world.start(id, id).await;
        world.store.append(world.append(&run, 0, &["e"])).await.unwrap();
        assert_eq!(world.events(&id.into(), 9).await, ["e"], "{id:?}");
        assert_eq!(world.store.run(&world.ada, &id.into()).await.unwrap().thread.as_str(), id);
    }
}
