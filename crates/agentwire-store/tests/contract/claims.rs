//! Leases, fencing tokens and orphans.

use std::time::Duration;

use agentwire_store::*;

use super::{TTL, World, claim_of, created, granted, new_run, queued_run};

const MOMENT: Duration = Duration::from_millis(1);

async fn lease(world: &World) -> Option<Lease> {
    world.store.lease(&world.ada, &"t".into()).await.unwrap()
}

pub(crate) async fn shows_a_lease_until_it_is_released(world: World) {
    world.store.create_thread(&world.ada, NewThread { thread: "t".into(), metadata: None }).await.unwrap();
    assert_eq!(lease(&world).await, None);
    let run = world.start("t", "r").await;
    let shown = lease(&world).await.unwrap();
    assert_eq!((&shown.run, shown.fence, shown.holder.as_str()), (&run.run, run.fence, "gateway-1"));
    assert_eq!(shown.address.as_deref(), Some("http://127.0.0.1:1"));
    assert_eq!((shown.expires, shown.live), (world.store.now().after(TTL), true));
    world.clock.advance(TTL);
    assert!(!lease(&world).await.unwrap().live, "still shown after its expiry");
    world.store.release(&world.ada, &run.run, run.fence).await.unwrap();
    assert_eq!(lease(&world).await, None);
    world.store.release(&world.ada, &run.run, run.fence).await.unwrap();
}

pub(crate) async fn p4_a_live_lease_cannot_be_taken_over(world: World) {
    let run = world.start("t", "r").await;
    world.clock.advance(TTL - MOMENT);
    assert!(matches!(world.store.start(&world.ada, new_run("t", "s")).await.unwrap(), Start::Held(_)));
    let key = RunKey { owner: world.ada.clone(), run: run.run.clone() };
    let stolen = world.store.take_over(&key, run.fence, None, claim_of("thief")).await;
    assert!(matches!(stolen, Err(StoreError::Fenced)));
    world.store.append(world.append(&run, 0, &["a"])).await.unwrap();
}

pub(crate) async fn p4_an_expired_lease_is_replaced_under_a_higher_fencing_token(world: World) {
    let old = world.start("t", "old").await;
    world.clock.advance(TTL);
    let new = world.start("t", "new").await;
    assert!(new.fence > old.fence);
    assert_eq!(lease(&world).await.unwrap().run, new.run);
    assert!(matches!(world.store.append(world.append(&old, 0, &["late"])).await, Err(StoreError::Fenced)));
    assert!(matches!(world.store.release(&world.ada, &old.run, Fence(0)).await, Err(StoreError::Fenced)));
    world.store.release(&world.ada, &old.run, old.fence).await.unwrap();
    assert_eq!(lease(&world).await.unwrap().run, new.run, "releasing a lost claim leaves the thread leased");
    world.store.append(world.append(&new, 0, &["a"])).await.unwrap();
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
    let run = world.start("t", "r").await;
    for _ in 0..4 {
        world.clock.advance(TTL - MOMENT);
        let renewed = world.store.renew(&world.ada, &run.run, run.fence, TTL).await.unwrap();
        assert_eq!((renewed.expires, renewed.fence), (world.store.now().after(TTL), run.fence));
    }
    world.store.append(world.append(&run, 0, &["a"])).await.unwrap();
}

pub(crate) async fn a_lost_claim_cannot_be_renewed(world: World) {
    let old = world.start("t", "old").await;
    world.clock.advance(TTL);
    world.start("t", "new").await;
    let renewed = world.store.renew(&world.ada, &old.run, old.fence, TTL).await;
    assert!(matches!(renewed, Err(StoreError::Fenced)), "{renewed:?}");
    let released = world.start("u", "released").await;
    world.store.release(&world.ada, &released.run, released.fence).await.unwrap();
    assert!(matches!(
        world.store.renew(&world.ada, &released.run, released.fence, TTL).await,
        Err(StoreError::Fenced)
    ));
    let ended = world.ended("v", "ended", &["e"]).await;
    assert!(matches!(
        world.store.renew(&world.ada, &ended.run, ended.fence, TTL).await,
        Err(StoreError::Ended(RunStatus::Finished))
    ));
}

pub(crate) async fn an_expired_claim_can_be_renewed_until_taken_over(world: World) {
    let run = world.start("t", "r").await;
    world.clock.advance(TTL * 4);
    assert!(matches!(world.store.append(world.append(&run, 0, &["a"])).await, Err(StoreError::Fenced)));
    assert!(world.store.renew(&world.ada, &run.run, run.fence, TTL).await.unwrap().live);
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
    assert!(world.store.orphans(None, 9).await.unwrap().is_empty());
    world.clock.advance(TTL);
    let orphans = world.store.orphans(None, 9).await.unwrap();
    let names: Vec<&str> = orphans.iter().map(|(key, _)| key.run.as_str()).collect();
    assert_eq!(names, ["first", "second"], "oldest first");
    assert_eq!(world.store.orphans(None, 1).await.unwrap().len(), 1);
    let (key, seen) = &orphans[0];
    assert_eq!((&key.owner, seen.next_seq), (&world.ada, Seq(2)));

    let takers = super::threads::run_concurrently(10, |number| {
        let (store, key, fence) = (world.store.clone(), key.clone(), seen.fence);
        async move { store.take_over(&key, fence, None, claim_of(&format!("g{number}"))).await }
    })
    .await;
    let taken: Vec<&Run> = takers.iter().filter_map(|taken| taken.as_ref().ok()).collect();
    assert_eq!(taken.len(), 1);
    assert!(takers.iter().all(|taken| matches!(taken, Ok(_) | Err(StoreError::Fenced))));
    let taken = taken[0];
    assert!(taken.fence > seen.fence);
    assert_eq!(lease(&world).await.unwrap().fence, taken.fence, "with the thread, which was free");
    assert!(matches!(world.store.append(world.append(&first, 2, &["c"])).await, Err(StoreError::Fenced)));

    let mut end = world.append(taken, 2, &["error"]);
    end.change.status = Some(StatusChange { to: RunStatus::Failed, cause: Some("GATEWAY_LOST".into()) });
    world.store.append(end).await.unwrap();
    assert_eq!(world.events(&key.run, 99).await, ["a", "b", "error"]);
    assert_eq!(lease(&world).await, None);
    let again = world.store.take_over(key, taken.fence, None, claim_of("x")).await;
    assert!(matches!(again, Err(StoreError::Ended(RunStatus::Failed))));
}

pub(crate) async fn runs_of_a_dead_holder_are_orphans_immediately(world: World) {
    let run = world.start("t", "r").await;
    let mine = NewRun { claim: claim_of("gateway-2"), ..new_run("u", "s") };
    created(world.store.start(&world.ada, mine).await.unwrap());
    let dead = Holder::from("gateway-1");
    let orphans = world.store.orphans(Some(&dead), 9).await.unwrap();
    assert_eq!(orphans.len(), 1);
    let (key, seen) = &orphans[0];
    assert_eq!(key.run, run.run);
    assert!(matches!(
        world.store.take_over(key, seen.fence, Some(&"gateway-3".into()), claim_of("x")).await,
        Err(StoreError::Fenced)
    ));
    let taken = world.store.take_over(key, seen.fence, Some(&dead), claim_of("gateway-2")).await.unwrap();
    assert_eq!(taken.holder.as_str(), "gateway-2");
    assert!(world.store.orphans(Some(&dead), 9).await.unwrap().is_empty());
}

pub(crate) async fn live_runs_are_not_orphans(world: World) {
    world.start("t", "live").await;
    world.ended("u", "ended", &["e"]).await;
    let waiting = world.start("v", "waiting").await;
    let mut end = world.append(&waiting, 0, &["e"]);
    end.change.status = Some(StatusChange::to(RunStatus::Waiting));
    world.store.append(end).await.unwrap();
    assert!(world.store.orphans(None, 9).await.unwrap().is_empty());
    world.clock.advance(TTL);
    assert_eq!(world.store.orphans(None, 9).await.unwrap().len(), 1, "ended runs are not orphans");
}

pub(crate) async fn an_orphan_without_its_thread_can_only_end(world: World) {
    let old = world.start("t", "old").await;
    world.clock.advance(TTL);
    let new = world.start("t", "new").await;
    let orphans = world.store.orphans(None, 9).await.unwrap();
    assert_eq!(orphans.len(), 1);
    let (key, seen) = &orphans[0];
    assert_eq!(key.run, old.run);
    let taken = world.store.take_over(key, seen.fence, None, claim_of("repair")).await.unwrap();
    assert_eq!(lease(&world).await.unwrap().run, new.run, "the new run keeps the thread");

    let mut meddling = world.append(&taken, 0, &["x"]);
    meddling.change.messages = Some("[]".into());
    assert!(matches!(world.store.append(meddling).await, Err(StoreError::Fenced)));
    let mut end = world.append(&taken, 0, &["error"]);
    end.change.status = Some(StatusChange::to(RunStatus::Failed));
    world.store.append(end).await.unwrap();
    assert_eq!(lease(&world).await.unwrap().run, new.run);
    world.store.append(world.append(&new, 0, &["a"])).await.unwrap();
}

pub(crate) async fn finds_queued_orphans(world: World) {
    let first = world.start("t", "first").await;
    created(world.store.start(&world.ada, queued_run("t", "queued", 9)).await.unwrap());
    world.clock.advance(TTL - MOMENT);
    world.store.renew(&world.ada, &first.run, first.fence, TTL).await.unwrap();
    world.clock.advance(MOMENT);
    let orphans = world.store.orphans(None, 9).await.unwrap();
    let (key, seen) = &orphans[0];
    assert_eq!((orphans.len(), key.run.as_str(), seen.status), (1, "queued", RunStatus::Queued));
    let taken = world.store.take_over(key, seen.fence, None, claim_of("repair")).await.unwrap();
    assert_eq!(taken.status, RunStatus::Queued);
    // It can still get the thread.
    world.store.release(&world.ada, &first.run, first.fence).await.unwrap();
    let lease = world.store.acquire(&world.ada, &taken.run, taken.fence, TTL).await.unwrap();
    assert_eq!(granted(lease).run, taken.run);
}
