//! Isolation of owners.

use agentwire_store::*;

use super::{ALL, TTL, World, claim_of, new_run};

/// The results of all operations on the thread `thread` and the run `run`, as text.
async fn all_results(store: &dyn Store, owner: &Owner, thread: &str, run: &str) -> Vec<String> {
    let (thread, run): (ThreadId, RunId) = (thread.into(), run.into());
    let fence = Fence(1);
    let answers = AnswerSet { answers: vec![Answer { id: "p".into(), body: "1".into() }], by: "eve".into() };
    let key = RunKey { owner: owner.clone(), run: run.clone() };
    let feedback = NewFeedback { thread: thread.clone(), run: None, body: "1".into() };
    let change = ThreadChange { metadata: Some("1".into()), ..Default::default() };
    let append = Append::new(owner.clone(), run.clone(), fence, Seq(0));
    vec![
        format!("{:?}", store.thread(owner, &thread).await),
        format!("{:?}", store.threads(owner, ThreadQuery::default(), 99).await),
        format!("{:?}", store.update_thread(owner, &thread, change).await),
        format!("{:?}", store.state(owner, &thread).await),
        format!("{:?}", store.messages(owner, &thread).await),
        format!("{:?}", store.run(owner, &run).await),
        format!("{:?}", store.input(owner, &run).await),
        format!("{:?}", store.runs(owner, &thread, None, 99).await),
        format!("{:?}", store.acquire(owner, &run, fence, TTL).await),
        format!("{:?}", store.renew(owner, &run, fence, TTL).await),
        format!("{:?}", store.release(owner, &run, fence).await),
        format!("{:?}", store.lease(owner, &thread).await),
        format!("{:?}", store.take_over(&key, fence, Some(&"gateway-1".into()), claim_of("eve")).await),
        format!("{:?}", store.append(append).await),
        format!("{:?}", store.read(owner, &run, None, ALL).await),
        format!("{:?}", store.read(owner, &run, Some(Seq(0)), ALL).await),
        format!("{:?}", store.compact(owner, &run, Vec::new()).await),
        format!("{:?}", store.pending(owner, &thread, PendingFilter::All).await),
        format!("{:?}", store.answer(owner, &thread, answers, &run).await),
        format!("{:?}", store.add_feedback(owner, feedback).await),
        format!("{:?}", store.feedback(owner, &thread, None, 99).await),
        format!("{:?}", store.delete_thread(owner, &thread).await),
    ]
}

pub(crate) async fn p7_records_of_other_owners_look_like_missing_ones(world: World) {
    let run = world.start("secret", "run").await;
    let mut append = world.append(&run, 0, &["event"]);
    append.change.pending =
        vec![NewPending { id: "p".into(), kind: "k".into(), body: "{}".into(), ttl: None }];
    append.change.state = Some(StateChange { expected: 0, body: "{}".into() });
    append.change.messages = Some("[]".into());
    world.store.append(append).await.unwrap();
    let feedback = NewFeedback { thread: "secret".into(), run: None, body: "\"good\"".into() };
    world.store.add_feedback(&world.ada, feedback).await.unwrap();

    // Another user, the same user of another tenant, and names that are equal when joined.
    let other_owners = [
        Owner::new("acme", "eve"),
        Owner::new("other", "ada"),
        Owner::new("acmea", "da"),
        Owner::new("acme\0ada", ""),
        Owner::new("", "acmeada"),
    ];
    for eve in &other_owners {
        let foreign = all_results(&*world.store, eve, "secret", "run").await;
        let unknown = all_results(&*world.store, eve, "unknown", "no run").await;
        assert_eq!(foreign, unknown);
        assert!(foreign.iter().any(|result| result.contains("NotFound")));
    }
    // The data is unchanged.
    assert_eq!(world.events(&run.run, ALL).await, ["event"]);
    assert_eq!(world.store.run(&world.ada, &run.run).await.unwrap().fence, run.fence);
    let pending = world.store.pending(&world.ada, &"secret".into(), PendingFilter::Open).await.unwrap();
    assert_eq!(pending.len(), 1);
}

pub(crate) async fn p7_two_owners_can_use_the_same_ids(world: World) {
    let eve = Owner::new("acme", "eve");
    let mine = world.start("t", "r").await;
    let theirs = super::created(world.store.start(&eve, new_run("t", "r")).await.unwrap());
    world.store.append(world.append(&mine, 0, &["mine"])).await.unwrap();
    let mut append = Append::new(eve.clone(), theirs.run.clone(), theirs.fence, Seq(0));
    append.events = vec!["theirs".into(), "too".into()];
    world.store.append(append).await.unwrap();
    assert_eq!(world.events(&mine.run, ALL).await, ["mine"]);
    assert_eq!(super::read_all(&*world.store, &eve, &theirs.run, ALL).await, ["theirs", "too"]);
    world.store.delete_thread(&eve, &"t".into()).await.unwrap();
    assert_eq!(world.events(&mine.run, ALL).await, ["mine"]);
    assert_eq!(world.store.threads(&eve, ThreadQuery::default(), 9).await.unwrap().items.len(), 0);
    // A page token of one owner reveals nothing to another.
    let page = world.store.threads(&world.ada, ThreadQuery::default(), 1).await.unwrap();
    assert_eq!(page.items.len(), 1);
    let query = ThreadQuery { before: Some(PageToken(u64::MAX)), ..Default::default() };
    assert!(world.store.threads(&eve, query, 9).await.unwrap().items.is_empty());
}
