//! Quotas, and the usage that they are compared with.

use std::sync::Arc;

use agentwire_store::*;

use super::{World, created, new_run, threads::run_concurrently};

fn with(thread: &str, run: &str, quotas: Quotas) -> NewRun {
    NewRun { quotas, ..new_run(thread, run) }
}

fn of_user(user: Quota) -> Quotas {
    Quotas { user, ..Quotas::default() }
}

fn of_tenant(tenant: Quota) -> Quotas {
    Quotas { tenant, ..Quotas::default() }
}

pub(crate) async fn usage_counts_runs_threads_and_bytes(world: World) {
    let ada = async || world.store.usage(&world.ada.tenant, Some(&world.ada.user)).await.unwrap();
    assert_eq!(ada().await, Usage::default());
    let run = world.start("t", "r").await;
    let (begun, input) = (ada().await, "null".len() as u64);
    assert_eq!(begun, Usage { runs: 1, threads: 1, bytes: input });
    world.store.append(world.append(&run, 0, &["0123456789"])).await.unwrap();
    let written = ada().await.bytes;
    assert!(written >= begun.bytes + 10, "{written}");
    let mut end = world.append(&run, 1, &["end"]);
    end.change.status = Some(StatusChange::to(RunStatus::Finished));
    end.change.messages = Some("[1,2,3]".into());
    end.change.state = Some(StateChange { expected: 0, body: "{\"a\":1}".into() });
    world.store.append(end).await.unwrap();
    let ended = ada().await;
    assert_eq!((ended.runs, ended.threads), (0, 1));
    assert!(ended.bytes >= written + 14, "{ended:?}");

    let queue = Owner::new("acme", "bob", "other");
    created(world.store.start(&queue, new_run("u", "s")).await.unwrap());
    assert_eq!(ada().await, ended, "another user");
    let all = world.store.usage(&world.ada.tenant, None).await.unwrap();
    assert_eq!((all.runs, all.threads, all.bytes), (1, 2, ended.bytes + input));
    assert_eq!(world.store.usage(&"evil".into(), None).await.unwrap(), Usage::default());

    world.store.compact(&world.ada, &run.run, vec!["x".into()]).await.unwrap();
    assert!(ada().await.bytes < ended.bytes, "compaction gives bytes back");
    world.store.delete_thread(&world.ada, &"t".into()).await.unwrap();
    assert_eq!(ada().await, Usage::default());
}

pub(crate) async fn a_quota_refuses_what_exceeds_it(world: World) {
    let start = async |owner: &Owner, new: NewRun| world.store.start(owner, new).await.unwrap();
    let over = |is_tenant: bool, quota: QuotaKind| Start::OverQuota { is_tenant, quota };
    let ada = &world.ada;
    let one_run = Quota { runs: Some(1), ..Quota::default() };
    let run = created(start(ada, with("t", "r", of_user(one_run))).await);
    assert_eq!(start(ada, with("u", "s", of_user(one_run))).await, over(false, QuotaKind::Runs));
    assert!(world.store.thread(ada, &"u".into()).await.is_err(), "a refused run leaves no thread");
    assert!(matches!(start(ada, with("t", "r", of_user(one_run))).await, Start::Exists(_)), "a repetition");
    let bob = Owner::new("acme", "bob", "other");
    assert_eq!(start(&bob, with("u", "s", of_tenant(one_run))).await, over(true, QuotaKind::Runs));
    let queued = NewRun { mode: StartMode::Queue { limit: 9 }, ..with("t", "q", of_user(one_run)) };
    assert_eq!(start(ada, queued).await, over(false, QuotaKind::Runs), "a queued run counts");
    world.end(&run).await;
    let run = created(start(ada, with("t", "r2", of_user(one_run))).await);
    world.end(&run).await;

    let one_thread = Quota { threads: Some(1), ..Quota::default() };
    let run = created(start(ada, with("t", "r3", of_user(one_thread))).await);
    world.end(&run).await;
    assert_eq!(start(ada, with("u", "s", of_user(one_thread))).await, over(false, QuotaKind::Threads));
    assert_eq!(start(&bob, with("u", "s", of_tenant(one_thread))).await, over(true, QuotaKind::Threads));

    let bytes = world.store.usage(&ada.tenant, Some(&ada.user)).await.unwrap().bytes;
    let full = |bytes: u64| Quota { bytes: Some(bytes), ..Quota::default() };
    assert_eq!(start(ada, with("t", "r4", of_user(full(bytes)))).await, over(false, QuotaKind::Bytes));
    let input = "null".len() as u64;
    let refused = start(ada, with("t", "r4", of_user(full(bytes + input - 1)))).await;
    assert_eq!(refused, over(false, QuotaKind::Bytes), "its input does not fit");
    created(start(ada, with("t", "r4", of_user(full(bytes + input)))).await);
}

/// Starts `count` runs at once in threads of their own, at the stores in turn, and returns how many were created.
async fn race(world: &World, stores: Vec<Arc<dyn Store>>, quotas: Quotas, prefix: &str) -> usize {
    let results = run_concurrently(20, |number| {
        let (store, owner) = (stores[number % stores.len()].clone(), world.ada.clone());
        let name = format!("{prefix}{number}");
        async move { store.start(&owner, with(&name, &name, quotas)).await.unwrap() }
    })
    .await;
    let is_created = |start: &&Start| matches!(start, Start::Created(_));
    assert!(results.iter().all(|start| is_created(&start) || matches!(start, Start::OverQuota { .. })));
    results.iter().filter(is_created).count()
}

async fn races(world: World, stores: Vec<Arc<dyn Store>>) {
    let threads = Quota { threads: Some(5), ..Quota::default() };
    assert_eq!(race(&world, stores.clone(), of_user(threads), "a").await, 5);
    let runs = Quota { runs: Some(8), ..Quota::default() };
    assert_eq!(race(&world, stores.clone(), of_tenant(runs), "b").await, 3, "five are live");
    let both = Quotas { user: Quota { threads: Some(10), ..runs }, tenant: Quota::default() };
    assert_eq!(race(&world, stores.clone(), both, "c").await, 0);
    // Eight runs are live, with inputs of four bytes.
    let used = world.store.usage(&world.ada.tenant, None).await.unwrap().bytes;
    let bytes = Quota { bytes: Some(used + 6 * 4 + 3), ..Quota::default() };
    assert_eq!(race(&world, stores, of_tenant(bytes), "d").await, 6);
}

pub(crate) async fn p6_concurrent_starts_keep_a_quota(world: World) {
    let stores = vec![world.store.clone()];
    races(world, stores).await;
}

pub(crate) async fn p6_starts_at_two_stores_keep_a_quota(world: World) {
    let stores = vec![world.store.clone(), world.another().await];
    races(world, stores).await;
}
