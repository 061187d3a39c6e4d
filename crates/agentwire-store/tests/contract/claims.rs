//! Leases, fencing tokens and orphans.

use std::time::Duration;

use agentwire_store::*;

use super::{TTL, World, created, granted, new_run, queued_run};

const MOMENT: Duration = Duration::from_millis(1);

pub(super) async fn lease(world: &World) -> Option<Lease> {
    world.store.lease(&world.ada, &"t".into()).await.unwrap()
}

pub(crate) async fn shows_a_lease_until_it_is_released(world: World) {
    world
        .store
        .create_thread(&world.ada, NewThread { thread: "t".into(), thread_ids: None, metadata: None })
        .await
        .unwrap();
    assert_eq!(lease(&world).await, None);
    let run = world.start("t", "r").await;
    let shown = lease(&world).await.unwrap();
    assert_eq!((&shown.run, shown.fence, shown.holder.as_str()), (&run.run, run.fence, "gateway-1"));
    assert!(shown.live);
    world.clock.advance(TTL);
    assert!(!lease(&world).await.unwrap().live, "still shown after its expiry");
    world.lease("gateway-1").await;
    assert!(lease(&world).await.unwrap().live);
    for _ in 0..2 {
        world.store.release(&world.ada, &run.run, run.fence).await.unwrap();
        assert!(!lease(&world).await.unwrap().live, "the thread is not free: its run has not ended");
    }
    let taken = world.take_over("r", "gateway-1").await.unwrap();
    world.end(&taken).await;
    assert_eq!(lease(&world).await, None);
}

pub(crate) async fn p4_a_live_lease_cannot_be_taken_over(world: World) {
    let run = world.start("t", "r").await;
    world.clock.advance(TTL - MOMENT);
    assert!(matches!(world.store.start(&world.ada, new_run("t", "s")).await.unwrap(), Start::Held(_)));
    let stolen = world.take_over("r", "thief").await;
    assert!(matches!(stolen, Err(StoreError::Fenced)));
    world.store.append(world.append(&run, 0, &["a"])).await.unwrap();
}

pub(crate) async fn p4_a_thread_is_free_only_when_its_run_has_ended(world: World) {
    let old = world.start("t", "old").await;
    world.store.append(world.append(&old, 0, &["a"])).await.unwrap();
    world.clock.advance(TTL);
    world.lease("gateway-2").await;
    let by_another = |run: &str| NewRun { holder: "gateway-2".into(), ..new_run("t", run) };
    let new = world.store.start(&world.ada, by_another("new")).await.unwrap();
    assert_eq!(new, Start::Orphan("old".into()));
    let queued = NewRun { mode: StartMode::Queue { limit: 9 }, ..by_another("new") };
    let new = world.store.start(&world.ada, queued).await.unwrap();
    assert_eq!(new, Start::Orphan("old".into()));
    assert!(world.store.run(&world.ada, &"new".into()).await.is_err(), "nothing was changed");

    let taken = world.take_over("old", "gateway-2").await.unwrap();
    assert!(taken.fence > old.fence);
    assert_eq!(lease(&world).await.unwrap().fence, taken.fence, "with its thread");
    world.lease("gateway-1").await;
    assert!(matches!(world.store.append(world.append(&old, 1, &["late"])).await, Err(StoreError::Fenced)));
    assert!(matches!(world.store.release(&world.ada, &old.run, old.fence).await, Err(StoreError::Fenced)));
    assert!(matches!(world.store.start(&world.ada, by_another("new")).await.unwrap(), Start::Held(_)));
    world.end(&taken).await;
    let new = created(world.store.start(&world.ada, by_another("new")).await.unwrap());
    assert_eq!(lease(&world).await.unwrap().run, new.run);
    world.store.append(world.append(&new, 0, &["b"])).await.unwrap();
}

pub(crate) async fn fencing_tokens_always_increase(world: World) {
    let mut last = Fence(0);
    for round in 0..5 {
        let run = world.start("t", "r").await;
        assert!(run.fence > last, "round {round}");
        last = run.fence;
        world.store.delete_thread(&world.ada, &"t".into()).await.unwrap();
    }
}

pub(crate) async fn renewing_keeps_a_lease_alive(world: World) {
    let (run, other) = (world.start("t", "r").await, world.start("u", "s").await);
    for _ in 0..4 {
        world.clock.advance(TTL - MOMENT);
        assert!(world.lease("gateway-1").await, "it was live");
    }
    world.store.append(world.append(&run, 0, &["a"])).await.unwrap();
    world.store.append(world.append(&other, 0, &["a"])).await.unwrap();
    assert!(!world.lease("gateway-2").await, "a new one");
}

pub(crate) async fn a_lost_claim_cannot_be_renewed(world: World) {
    let old = world.start("t", "old").await;
    world.clock.advance(TTL);
    world.take_over("old", "gateway-2").await.unwrap();
    assert!(!world.lease("gateway-1").await);
    assert_eq!(world.store.run(&world.ada, &old.run).await.unwrap().holder.as_str(), "gateway-2");
    assert!(matches!(world.store.append(world.append(&old, 0, &["a"])).await, Err(StoreError::Fenced)));
    let released = world.start("u", "released").await;
    world.store.release(&world.ada, &released.run, released.fence).await.unwrap();
    world.lease("gateway-1").await;
    assert!(matches!(world.store.append(world.append(&released, 0, &["a"])).await, Err(StoreError::Fenced)));
}

pub(crate) async fn an_expired_claim_can_be_renewed_until_taken_over(world: World) {
    let run = world.start("t", "r").await;
    world.clock.advance(TTL * 4);
    assert!(matches!(world.store.append(world.append(&run, 0, &["a"])).await, Err(StoreError::Fenced)));
    assert!(!world.lease("gateway-1").await, "it had expired");
    world.store.append(world.append(&run, 0, &["a"])).await.unwrap();
    assert!(matches!(world.store.start(&world.ada, new_run("t", "s")).await.unwrap(), Start::Held(_)));
}

pub(crate) async fn only_the_holder_releases_a_claim(world: World) {
    let run = world.start("t", "r").await;
    for fence in [0, run.fence.0 - 1, run.fence.0 + 1] {
        let freed = world.store.release(&world.ada, &run.run, Fence(fence)).await;
        assert!(matches!(freed, Err(StoreError::Fenced)), "{fence}");
    }
    assert!(lease(&world).await.unwrap().live);
}

pub(crate) async fn ending_a_run_releases_its_thread(world: World) {
    for (number, status) in [RunStatus::Finished, RunStatus::Failed, RunStatus::Stopped, RunStatus::Waiting]
        .into_iter()
        .enumerate()
    {
        let run = world.start("t", &number.to_string()).await;
        let mut end = world.append(&run, 0, &["end"]);
        end.change.status = Some(StatusChange { to: status, cause: Some("why".into()) });
        world.store.append(end).await.unwrap();
        assert_eq!(lease(&world).await, None, "{status}");
        let run = world.store.run(&world.ada, &run.run).await.unwrap();
        assert_eq!((run.status, run.cause.as_deref()), (status, Some("why")));
    }
    // A pause does not.
    let run = world.start("t", "paused").await;
    let mut pause = world.append(&run, 0, &[]);
    pause.change.status = Some(StatusChange::to(RunStatus::Paused));
    world.store.append(pause).await.unwrap();
    assert!(lease(&world).await.unwrap().live);
}

pub(crate) async fn finds_orphans_and_takes_each_over_once(world: World) {
    let first = world.start("t", "first").await;
    world.store.append(world.append(&first, 0, &["a", "b"])).await.unwrap();
    world.start("u", "second").await;
    assert!(world.store.orphans(9).await.unwrap().is_empty());
    world.clock.advance(TTL);
    let orphans = world.store.orphans(9).await.unwrap();
    let names: Vec<&str> = orphans.iter().map(|(key, _)| key.run.as_str()).collect();
    assert_eq!(names, ["first", "second"], "oldest first");
    assert_eq!(world.store.orphans(1).await.unwrap().len(), 1);
    let (key, seen) = &orphans[0];
    assert_eq!((&key.owner, seen.next_seq), (&world.ada, Seq(2)));

    let takers = super::threads::run_concurrently(10, |number| {
        let (store, key, fence) = (world.store.clone(), key.clone(), seen.fence);
        async move {
            let holder = Holder::from(format!("g{number}"));
            store.renew(&holder, TTL).await.unwrap();
            store.take_over(&key, fence, &holder).await
        }
    })
    .await;
    let taken: Vec<&Run> = takers.iter().filter_map(|taken| taken.as_ref().ok()).collect();
    assert_eq!(taken.len(), 1);
    assert!(takers.iter().all(|taken| matches!(taken, Ok(_) | Err(StoreError::Fenced))));
    let taken = taken[0];
    assert!(taken.fence > seen.fence);
    assert_eq!(lease(&world).await.unwrap().fence, taken.fence, "with its thread");
    assert!(matches!(world.store.append(world.append(&first, 2, &["c"])).await, Err(StoreError::Fenced)));

    let mut end = world.append(taken, 2, &["error"]);
    end.change.status = Some(StatusChange { to: RunStatus::Failed, cause: Some("GATEWAY_LOST".into()) });
    world.store.append(end).await.unwrap();
    assert_eq!(world.events(&key.run, 99).await, ["a", "b", "error"]);
    assert_eq!(lease(&world).await, None);
    let again = world.take_over("first", "x").await;
    assert!(matches!(again, Err(StoreError::Ended(RunStatus::Failed))));
}

pub(crate) async fn runs_of_a_retired_holder_are_orphans_immediately(world: World) {
    let run = world.start("t", "r").await;
    world.lease("gateway-2").await;
    let mine = NewRun { holder: "gateway-2".into(), ..new_run("u", "s") };
    created(world.store.start(&world.ada, mine).await.unwrap());
    for _ in 0..2 {
        world.store.retire(&"gateway-1".into()).await.unwrap();
        let orphans = world.store.orphans(9).await.unwrap();
        let names: Vec<&str> = orphans.iter().map(|(key, _)| key.run.as_str()).collect();
        assert_eq!(names, ["r"]);
    }
    assert!(matches!(world.store.append(world.append(&run, 0, &["a"])).await, Err(StoreError::Fenced)));
    let taken = world.take_over("r", "gateway-2").await.unwrap();
    assert_eq!(taken.holder.as_str(), "gateway-2");
    assert!(world.store.orphans(9).await.unwrap().is_empty());
}

pub(crate) async fn live_runs_are_not_orphans(world: World) {
    world.start("t", "live").await;
    world.ended("u", "ended", &["e"]).await;
    let waiting = world.start("v", "waiting").await;
    let mut end = world.append(&waiting, 0, &["e"]);
    end.change.status = Some(StatusChange::to(RunStatus::Waiting));
    world.store.append(end).await.unwrap();
    assert!(world.store.orphans(9).await.unwrap().is_empty());
    world.clock.advance(TTL);
    assert_eq!(world.store.orphans(9).await.unwrap().len(), 1, "ended runs are not orphans");
}

pub(crate) async fn finds_queued_orphans(world: World) {
    world.lease("gateway-2").await;
    let first = NewRun { holder: "gateway-2".into(), ..new_run("t", "first") };
    let first = created(world.store.start(&world.ada, first).await.unwrap());
    created(world.store.start(&world.ada, queued_run("t", "queued", 9)).await.unwrap());
    world.clock.advance(TTL - MOMENT);
    world.lease("gateway-2").await;
    world.clock.advance(MOMENT);
    let orphans = world.store.orphans(9).await.unwrap();
    let (key, seen) = &orphans[0];
    assert_eq!((orphans.len(), key.run.as_str(), seen.status), (1, "queued", RunStatus::Queued));
    let taken = world.take_over("queued", "repair").await.unwrap();
    assert_eq!(taken.status, RunStatus::Queued);
    assert_eq!(lease(&world).await.unwrap().run, first.run, "it does not get the thread of another");
    world.end(&first).await;
    let lease = world.store.acquire(&world.ada, &taken.run, taken.fence).await.unwrap();
    assert_eq!(granted(lease).run, taken.run);
}
