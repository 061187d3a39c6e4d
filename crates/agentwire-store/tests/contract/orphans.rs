//! A thread is free only when its run has ended: no acknowledged change is lost, whoever ends the run.

use std::time::Duration;

use agentwire_store::*;

use super::{TTL, World, created, granted, new_run, queued_run};

fn state(expected: u64, body: &str) -> ThreadChange {
    ThreadChange { state: Some(StateChange { expected, body: body.into() }), ..ThreadChange::default() }
}

async fn body(world: &World) -> Option<Text> {
    world.store.state(&world.ada, &"t".into()).await.unwrap().body
}

/// Ends a run as an owner does: with the state and messages that it folded from its start.
fn ending(world: &World, run: &Run, expected: u64, body: &str) -> Append {
    let mut end = world.append(run, run.next_seq.0, &["end"]);
    end.change = Change {
        status: Some(StatusChange::to(RunStatus::Failed)),
        state: Some(StateChange { expected, body: body.into() }),
        messages: Some(format!("[\"{}\"]", run.run).into()),
        ..Change::default()
    };
    end
}

pub(crate) async fn a_queued_orphan_keeps_its_place(world: World) {
    let first = world.start("t", "1").await;
    created(world.store.start(&world.ada, queued_run("t", "2", 9)).await.unwrap());
    world.lease("gateway-2").await;
    let third = NewRun { holder: "gateway-2".into(), ..queued_run("t", "3", 9) };
    let third = created(world.store.start(&world.ada, third).await.unwrap());
    world.end(&first).await;
    world.store.retire(&"gateway-1".into()).await.unwrap();
    let acquire = async |run: &Run| world.store.acquire(&world.ada, &run.run, run.fence).await.unwrap();
    assert_eq!(acquire(&third).await, Acquire::Orphan("2".into()), "it does not overtake");
    let immediate = NewRun { holder: "gateway-2".into(), ..new_run("t", "4") };
    let immediate = world.store.start(&world.ada, immediate).await.unwrap();
    assert_eq!(immediate, Start::Orphan("2".into()));
    let second = world.take_over("2", "gateway-2").await.unwrap();
    assert!(matches!(acquire(&third).await, Acquire::Held(lease) if lease.run == second.run));
    let lease = granted(acquire(&second).await);
    world.end(&Run { fence: lease.fence, ..second }).await;
    granted(acquire(&third).await);
}

pub(crate) async fn lists_the_live_runs_of_a_holder(world: World) {
    let claimed = async |holder: &str| world.store.claimed(&holder.into()).await.unwrap();
    assert_eq!(claimed("gateway-1").await, []);
    let first = world.start("t", "1").await;
    let queued = created(world.store.start(&world.ada, queued_run("t", "2", 9)).await.unwrap());
    let other = world.start("u", "3").await;
    assert_eq!(claimed("gateway-1").await, [world.key("1"), world.key("2"), world.key("3")]);
    assert_eq!(claimed("gateway-2").await, []);
    world.end(&other).await;
    world.store.release(&world.ada, &queued.run, queued.fence).await.unwrap();
    assert_eq!(claimed("gateway-1").await, [world.key("1")], "neither ended nor released ones");
    world.clock.advance(TTL);
    world.lease("gateway-2").await;
    world.take_over("1", "gateway-2").await.unwrap();
    assert_eq!((claimed("gateway-1").await, claimed("gateway-2").await), (vec![], vec![world.key("1")]));
    drop(first);
}

pub(crate) async fn a_claim_needs_a_lease(world: World) {
    let stranger = NewRun { holder: "stranger".into(), ..new_run("t", "r") };
    let refused = world.store.start(&world.ada, stranger.clone()).await;
    assert!(matches!(refused, Err(StoreError::Fenced)), "{refused:?}");
    assert!(world.store.thread(&world.ada, &"t".into()).await.is_err(), "nothing was changed");
    world.lease("stranger").await;
    let run = created(world.store.start(&world.ada, stranger).await.unwrap());
    created(world.store.start(&world.ada, queued_run("t", "q", 9)).await.unwrap());
    world.clock.advance(TTL);
    let orphan = world.store.run(&world.ada, &run.run).await.unwrap();
    let taken = world.store.take_over(&world.key("r"), orphan.fence, &"late".into()).await;
    assert!(matches!(taken, Err(StoreError::Fenced)), "{taken:?}");
    let queued = world.store.run(&world.ada, &"q".into()).await.unwrap();
    let acquired = world.store.acquire(&world.ada, &queued.run, queued.fence).await;
    assert!(matches!(acquired, Err(StoreError::Fenced)), "{acquired:?}");
}

pub(crate) async fn a_process_takes_its_own_run_over(world: World) {
    let run = world.start("t", "r").await;
    let taken = world.take_over("r", "gateway-1").await.unwrap();
    assert!(taken.fence > run.fence);
    let late = world.store.append(world.append(&run, 0, &["a"])).await;
    assert!(matches!(late, Err(StoreError::Fenced)), "the task before is excluded: {late:?}");
    world.store.append(world.append(&taken, 0, &["a"])).await.unwrap();
}

/// The clock of the first process was a day ahead when it renewed its lease.
pub(crate) async fn a_lease_from_the_future_is_capped(world: World) {
    let day = Duration::from_secs(86_400);
    let run = world.start("t", "r").await;
    world.clock.advance(day);
    world.lease("gateway-1").await;
    world.clock.rewind(day);
    // The first look of another process shortens the lease to its lifetime from now.
    world.lease("gateway-2").await;
    assert!(world.store.lease(&world.ada, &run.thread).await.unwrap().unwrap().live);
    world.clock.advance(TTL);
    world.lease("gateway-2").await;
    assert!(!world.store.lease(&world.ada, &run.thread).await.unwrap().unwrap().live);
    let taken = world.take_over("r", "gateway-2").await.unwrap();
    world.end(&taken).await;
}

/// A gateway could not reach the store for longer than its lease. The next request finds the orphan first.
pub(crate) async fn acknowledged_changes_are_there_after_an_orphan(world: World) {
    let run = world.start("t", "r1").await;
    world.store.append(world.append(&run, 0, &["question", "patch"])).await.unwrap();
    world.clock.advance(TTL);
    world.lease("gateway-2").await;
    let next = || NewRun { holder: "gateway-2".into(), ..new_run("t", "r2") };
    assert_eq!(world.store.start(&world.ada, next()).await.unwrap(), Start::Orphan("r1".into()));
    let refused = world.store.update_thread(&world.ada, &"t".into(), state(0, "{}")).await;
    assert!(matches!(refused, Err(StoreError::Conflict(Conflict::Orphan(_)))), "{refused:?}");
    let taken = world.take_over("r1", "gateway-2").await.unwrap();
    assert_eq!(world.events(&taken.run, 99).await, ["question", "patch"]);
    world.store.append(ending(&world, &taken, 0, "{\"patched\":1}")).await.unwrap();
    let second = created(world.store.start(&world.ada, next()).await.unwrap());
    assert_eq!(body(&world).await.as_deref(), Some("{\"patched\":1}"), "the next run begins with it");
    let messages = world.store.messages(&world.ada, &"t".into()).await.unwrap();
    assert_eq!(messages.as_deref(), Some("[\"r1\"]"));
    world.store.append(ending(&world, &second, 1, "{\"patched\":2}")).await.unwrap();
}

/// An owner that was suspended sends its ending after another process has ended the run and the thread went on.
pub(crate) async fn a_late_ending_changes_nothing(world: World) {
    let run = world.start("t", "r1").await;
    world.clock.advance(TTL);
    let taken = world.take_over("r1", "gateway-2").await.unwrap();
    world.store.append(ending(&world, &taken, 0, "{\"by\":1}")).await.unwrap();
    let second = NewRun { holder: "gateway-2".into(), ..new_run("t", "r2") };
    let second = created(world.store.start(&world.ada, second).await.unwrap());
    world.store.append(ending(&world, &second, 1, "{\"by\":2}")).await.unwrap();
    world.store.update_thread(&world.ada, &"t".into(), state(2, "{\"by\":3}")).await.unwrap();
    world.lease("gateway-1").await;
    for expected in 0..4 {
        let late = world.store.append(ending(&world, &run, expected, "{\"by\":0}")).await;
        assert!(matches!(late, Err(StoreError::Fenced | StoreError::Ended(_))), "{late:?}");
        let again = world.store.append(ending(&world, &taken, expected, "{\"by\":0}")).await;
        assert!(matches!(again, Ok(Appended { repeated: true, .. })), "{again:?}");
    }
    assert_eq!(body(&world).await.as_deref(), Some("{\"by\":3}"));
}

/// An owner sleeps longer than its lease and wakes before anybody has taken its run over: no change was accepted meanwhile.
pub(crate) async fn a_slow_owner_overwrites_nothing(world: World) {
    let run = world.start("t", "r1").await;
    world.clock.advance(TTL * 2);
    let patched = world.store.update_thread(&world.ada, &"t".into(), state(0, "{\"patched\":1}")).await;
    assert!(matches!(patched, Err(StoreError::Conflict(Conflict::Orphan(_)))), "{patched:?}");
    assert!(!world.lease("gateway-1").await);
    world.store.append(ending(&world, &run, 0, "{\"by\":1}")).await.unwrap();
    world.store.update_thread(&world.ada, &"t".into(), state(1, "{\"patched\":1}")).await.unwrap();
    assert_eq!(body(&world).await.as_deref(), Some("{\"patched\":1}"));
}
