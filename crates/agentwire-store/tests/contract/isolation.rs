//! Isolation of owners.

use std::time::Duration;

use agentwire_store::*;

use super::{ALL, World, new_run, text};

/// The results of all operations on the thread `thread` and the run `run`, as text.
async fn all_results(store: &dyn Store, owner: &Owner, thread: &str, run: &str) -> Vec<String> {
    let (thread, run): (ThreadId, RunId) = (thread.into(), run.into());
    let fence = Fence(1);
    let answers = AnswerSet { answers: vec![Answer { id: "p".into(), body: "1".into() }], by: "eve".into() };
    let key = RunKey { owner: owner.clone(), run: run.clone() };
    let feedback = NewFeedback { thread: thread.clone(), run: None, body: "1".into() };
    let change = ThreadChange { metadata: Some(text(None, "1")), ..Default::default() };
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
        format!("{:?}", store.acquire(owner, &run, fence).await),
        format!("{:?}", store.release(owner, &run, fence).await),
        format!("{:?}", store.lease(owner, &thread).await),
        format!("{:?}", store.take_over(&key, fence, &"gateway-1".into()).await),
        format!("{:?}", store.append(append).await),
        format!("{:?}", store.send(&key, "stop".into(), Duration::ZERO).await),
        format!("{:?}", store.note_readers(&key, &"eve".into(), Duration::from_secs(1)).await),
        format!("{:?}", store.has_readers(&key, &"eve".into()).await),
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

    // Another user, the same user of another tenant or agent, and names that are equal when joined.
    let other_owners = [
        Owner::new("acme", "eve", "demo"),
        Owner::new("other", "ada", "demo"),
        Owner::new("acme", "ada", "other"),
        Owner::new("acme", "ada", ""),
        Owner::new("acmea", "da", "demo"),
        Owner::new("acme", "adad", "emo"),
        Owner::new("acme\0ada", "", "demo"),
        Owner::new("", "acmeada", "demo"),
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
    let eve = Owner::new("acme", "eve", "demo");
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
    let query = ThreadQuery { before: Some(PageToken(u64::MAX)) };
    assert!(world.store.threads(&eve, query, 9).await.unwrap().items.is_empty());
}

fn at(world: &World, agent: &str) -> Owner {
    Owner { agent: agent.into(), ..world.ada.clone() }
}

/// A finished run of the agent `agent` with one event, and messages and state of its thread.
async fn run_at(world: &World, agent: &str, thread: &str, run: &str) -> Run {
    let owner = at(world, agent);
    let run = super::created(world.store.start(&owner, new_run(thread, run)).await.unwrap());
    let mut append = Append::new(owner.clone(), run.run.clone(), run.fence, Seq(0));
    append.events = vec![format!("of {agent}").into()];
    append.change.status = Some(StatusChange::to(RunStatus::Finished));
    append.change.messages = Some(format!("[\"{agent}\"]").into());
    append.change.state = Some(StateChange { expected: 0, body: format!("\"{agent}\"").into() });
    world.store.append(append).await.unwrap();
    world.store.run(&owner, &run.run).await.unwrap()
}

async fn names(world: &World, agent: &str) -> Vec<String> {
    let page = world.store.threads(&at(world, agent), ThreadQuery::default(), 99).await.unwrap();
    page.items.iter().map(|thread| thread.thread.to_string()).collect()
}

pub(crate) async fn two_agents_of_a_user_have_their_own_threads_and_runs(world: World) {
    let (store, thread, run) = (&world.store, ThreadId::from("t"), RunId::from("r"));
    run_at(&world, "a", "t", "r").await;
    run_at(&world, "b", "t", "r").await;
    run_at(&world, "b", "only b", "r2").await;
    for agent in ["a", "b"] {
        let owner = at(&world, agent);
        let text = format!("[\"{agent}\"]");
        assert_eq!(store.messages(&owner, &thread).await.unwrap().as_deref(), Some(&*text));
        assert_eq!(super::read_all(&**store, &owner, &run, ALL).await, [format!("of {agent}")]);
    }
    assert_eq!(names(&world, "a").await, ["t"]);
    assert_eq!(names(&world, "b").await, ["only b", "t"]);
    // The same run id at the same agent is the same run.
    let again = store.start(&at(&world, "b"), new_run("t", "r")).await.unwrap();
    assert!(matches!(again, Start::Exists(run) if run.thread == thread));
    // Retention counts the threads of each agent.
    store.retain(Retention { threads_per_owner: Some(1), ..Retention::default() }).await.unwrap();
    assert_eq!(names(&world, "a").await, ["t"]);
    assert_eq!(names(&world, "b").await, ["only b"]);
    store.delete_thread(&at(&world, "a"), &thread).await.unwrap();
    assert_eq!(names(&world, "b").await, ["only b"]);
}

pub(crate) async fn the_second_agent_with_a_thread_id_gets_an_upstream_scope(world: World) {
    let store = &world.store;
    let scope = async |agent: &str, thread: &str| {
        store.upstream_scope(&at(&world, agent), &thread.into()).await.unwrap()
    };
    assert_eq!(scope("a", "t").await, None, "nobody has the id");
    assert_eq!(run_at(&world, "a", "t", "r").await.upstream_scope, None);
    assert_eq!(scope("b", "t").await.as_deref(), Some("b"), "a new thread would get it");
    assert_eq!(run_at(&world, "b", "t", "r").await.upstream_scope.as_deref(), Some("b"));
    assert_eq!(
        store.thread(&at(&world, "b"), &"t".into()).await.unwrap().upstream_scope.as_deref(),
        Some("b")
    );
    // Each keeps what it began with, whatever happens to the other.
    store.delete_thread(&at(&world, "a"), &"t".into()).await.unwrap();
    assert_eq!(scope("b", "t").await.as_deref(), Some("b"));
    assert_eq!(run_at(&world, "a", "t", "r").await.upstream_scope.as_deref(), Some("a"));
    for agent in ["a", "b"] {
        store.delete_thread(&at(&world, agent), &"t".into()).await.unwrap();
    }
    assert_eq!(scope("b", "t").await, None);
    // Other users do not count.
    let eve = Owner::new("acme", "eve", "b");
    super::created(store.start(&eve, new_run("t2", "r")).await.unwrap());
    assert_eq!(scope("a", "t2").await, None);
}

pub(crate) async fn a_thread_keeps_the_form_of_its_ids(world: World) {
    let store = &world.store;
    world.lease("gateway-1").await;
    for (thread, begun) in [("old", None), ("raw", Some(ThreadIds::Raw)), ("scoped", Some(ThreadIds::Scoped))]
    {
        let with = |run: String, ids| NewRun { thread_ids: ids, ..new_run(thread, &run) };
        let first = store.start(&world.ada, with(format!("{thread} 1"), begun)).await.unwrap();
        let first = super::created(first);
        assert_eq!(first.thread_ids, begun);
        world.end(&first).await;
        for ids in [None, Some(ThreadIds::Raw), Some(ThreadIds::Scoped)] {
            let run = format!("{thread} {ids:?}");
            let next = super::created(store.start(&world.ada, with(run.clone(), ids)).await.unwrap());
            assert_eq!(next.thread_ids, begun);
            assert_eq!(store.run(&world.ada, &run.into()).await.unwrap().thread_ids, begun);
            world.end(&next).await;
        }
        assert_eq!(store.thread(&world.ada, &thread.into()).await.unwrap().thread_ids, begun);
    }
    let thread = NewThread { thread: "t".into(), thread_ids: Some(ThreadIds::Scoped), metadata: None };
    let made = store.create_thread(&world.ada, thread).await.unwrap();
    assert_eq!(made.item.thread_ids, Some(ThreadIds::Scoped));
}

pub(crate) async fn threads_move_to_another_agent_with_all_their_data(world: World) {
    let (store, thread, run) = (&world.store, ThreadId::from("t"), RunId::from("r"));
    run_at(&world, "other", "t", "r").await;
    run_at(&world, "a", "t", "r").await;
    run_at(&world, "a", "t3", "r3").await;
    let feedback = NewFeedback { thread: thread.clone(), run: None, body: "1".into() };
    store.add_feedback(&at(&world, "a"), feedback).await.unwrap();
    let report = store.move_threads(&"a".into(), &"team".into()).await.unwrap();
    assert_eq!(report, MoveReport { moved: 2, left: 0 });
    assert_eq!(names(&world, "a").await, Vec::<String>::new());
    assert_eq!(names(&world, "team").await, ["t3", "t"]);
    assert_eq!(names(&world, "other").await, ["t"]);
    let team = at(&world, "team");
    assert_eq!(store.messages(&team, &thread).await.unwrap().as_deref(), Some("[\"a\"]"));
    assert_eq!(super::read_all(&**store, &team, &run, ALL).await, ["of a"]);
    assert_eq!(store.feedback(&team, &thread, None, 9).await.unwrap().items.len(), 1);
    assert_eq!(store.upstream_scope(&team, &thread).await.unwrap().as_deref(), Some("a"), "as it was begun");
    assert!(store.run(&at(&world, "a"), &run).await.is_err());
    // It goes on under the new owner.
    let next = super::created(store.start(&team, new_run("t", "r4")).await.unwrap());
    assert_eq!(next.upstream_scope.as_deref(), Some("a"));
    assert_eq!(store.runs(&team, &thread, None, 9).await.unwrap().items.len(), 2);
    assert_eq!(store.move_threads(&"a".into(), &"team".into()).await.unwrap(), MoveReport::default());
    // The ids are free again for the agent that lost them.
    run_at(&world, "a", "t", "r").await;
}

pub(crate) async fn threads_that_cannot_move_stay(world: World) {
    let store = &world.store;
    run_at(&world, "a", "same thread", "r1").await;
    run_at(&world, "team", "same thread", "r2").await;
    run_at(&world, "a", "same run", "r3").await;
    run_at(&world, "team", "another", "r3").await;
    let live = super::created(store.start(&at(&world, "a"), new_run("live", "r4")).await.unwrap());
    let report = store.move_threads(&"a".into(), &"team".into()).await.unwrap();
    assert_eq!(report, MoveReport { moved: 0, left: 3 });
    let mut append = Append::new(at(&world, "a"), live.run, live.fence, Seq(0));
    append.change.status = Some(StatusChange::to(RunStatus::Finished));
    store.append(append).await.unwrap();
    let report = store.move_threads(&"a".into(), &"team".into()).await.unwrap();
    assert_eq!(report, MoveReport { moved: 1, left: 2 });
    assert_eq!(names(&world, "team").await, ["live", "another", "same thread"]);
    let itself = store.move_threads(&"team".into(), &"team".into()).await.unwrap();
    assert_eq!(itself.moved, 0);
}
