//! Threads, state, messages and feedback.

use std::time::Duration;

use agentwire_store::*;

use super::{TTL, World, text};

fn new_thread(thread: &str) -> NewThread {
    NewThread { thread: thread.into(), thread_ids: None, metadata: None }
}

async fn names(world: &World, query: ThreadQuery, limit: usize) -> (Vec<String>, Option<PageToken>) {
    let page = world.store.threads(&world.ada, query, limit).await.unwrap();
    (page.items.iter().map(|thread| thread.thread.to_string()).collect(), page.next)
}

pub(crate) async fn creates_a_thread_once(world: World) {
    let new = NewThread { metadata: Some("{\"a\":1}".into()), ..new_thread("t") };
    let first = world.store.create_thread(&world.ada, new).await.unwrap();
    assert!(first.new);
    assert_eq!(first.item.created, world.store.now());
    world.clock.advance(Duration::from_secs(1));
    let second = world.store.create_thread(&world.ada, new_thread("t")).await.unwrap();
    assert!(!second.new);
    assert_eq!(first.item, second.item);
    assert_eq!(world.store.thread(&world.ada, &"t".into()).await.unwrap(), first.item);
}

pub(crate) async fn threads_are_listed_newest_first_in_pages(world: World) {
    for number in 0..5 {
        world.store.create_thread(&world.ada, new_thread(&format!("t{number}"))).await.unwrap();
    }
    let (first, next) = names(&world, ThreadQuery::default(), 2).await;
    assert_eq!(first, ["t4", "t3"]);
    let (second, next) = names(&world, ThreadQuery { before: next }, 2).await;
    assert_eq!(second, ["t2", "t1"]);
    let (last, next) = names(&world, ThreadQuery { before: next }, 2).await;
    assert_eq!(last, ["t0"]);
    assert_eq!(next, None);
    let (all, next) = names(&world, ThreadQuery::default(), 5).await;
    assert_eq!((all.len(), next), (5, None), "a full last page has no next");
    let (none, next) = names(&world, ThreadQuery::default(), 0).await;
    assert_eq!((none.len(), next), (0, None), "an empty page has no next");
    assert_eq!(names(&world, ThreadQuery::default(), usize::MAX).await.0.len(), 5);
}

pub(crate) async fn pages_are_stable_while_threads_come_and_go(world: World) {
    for thread in ["a", "b", "c", "d"] {
        world.store.create_thread(&world.ada, new_thread(thread)).await.unwrap();
    }
    let (first, next) = names(&world, ThreadQuery::default(), 2).await;
    assert_eq!(first, ["d", "c"]);
    world.store.create_thread(&world.ada, new_thread("e")).await.unwrap();
    world.store.delete_thread(&world.ada, &"c".into()).await.unwrap();
    world.start("a", "touches an old thread").await;
    let (second, _) = names(&world, ThreadQuery { before: next }, 2).await;
    assert_eq!(second, ["b", "a"]);
}

pub(crate) async fn changing_the_state_requires_its_current_number(world: World) {
    world.store.create_thread(&world.ada, new_thread("t")).await.unwrap();
    let thread = &"t".into();
    assert_eq!(world.store.state(&world.ada, thread).await.unwrap(), State { seq: 0, body: None });
    let set = |expected, body: &str| {
        let state = Some(StateChange { expected, body: body.into() });
        world.store.update_thread(&world.ada, thread, ThreadChange { state, ..Default::default() })
    };
    assert_eq!(set(0, "{}").await.unwrap().state_seq, 1);
    assert_eq!(set(1, "{\"a\":1}").await.unwrap().state_seq, 2);
    let late = set(1, "{\"a\":2}").await;
    assert!(matches!(late, Err(StoreError::Conflict(Conflict::State { current: 2 }))), "{late:?}");
    let state = world.store.state(&world.ada, thread).await.unwrap();
    assert_eq!(state, State { seq: 2, body: Some("{\"a\":1}".into()) });
    // One of many concurrent changes of the same state succeeds.
    let results = run_concurrently(20, |number| {
        let store = world.store.clone();
        let ada = world.ada.clone();
        async move {
            let state = Some(StateChange { expected: 2, body: number.to_string().into() });
            let change = ThreadChange { state, ..Default::default() };
            store.update_thread(&ada, &"t".into(), change).await.is_ok()
        }
    })
    .await;
    assert_eq!(results.iter().filter(|won| **won).count(), 1);
}

pub(crate) async fn only_the_leasing_run_changes_the_state(world: World) {
    let run = world.start("t", "r").await;
    let set = || {
        let state = Some(StateChange { expected: 0, body: "{}".into() });
        world.store.update_thread(&world.ada, &run.thread, ThreadChange { state, ..Default::default() })
    };
    let refused = set().await;
    assert!(
        matches!(&refused, Err(StoreError::Conflict(Conflict::Leased(by))) if *by == run.run),
        "{refused:?}"
    );
    let messages = ThreadChange { messages: Some(text(None, "[]")), ..Default::default() };
    let refused = world.store.update_thread(&world.ada, &run.thread, messages).await;
    assert!(matches!(refused, Err(StoreError::Conflict(Conflict::Leased(_)))), "{refused:?}");
    let title = ThreadChange { metadata: Some(text(None, "1")), ..Default::default() };
    world.store.update_thread(&world.ada, &run.thread, title).await.expect("metadata needs no lease");
    world.clock.advance(TTL);
    let orphaned = set().await;
    assert!(
        matches!(&orphaned, Err(StoreError::Conflict(Conflict::Orphan(by))) if *by == run.run),
        "{orphaned:?}"
    );
    let taken = world.take_over("r", "gateway-2").await.unwrap();
    world.end(&taken).await;
    set().await.expect("the run has ended");
}

/// Runs `count` tasks concurrently and collects their results.
pub(crate) async fn run_concurrently<F, T>(count: usize, task: impl Fn(usize) -> F) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let tasks: Vec<_> = (0..count).map(|number| tokio::spawn(task(number))).collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.unwrap());
    }
    results
}

pub(crate) async fn a_rejected_change_has_no_effect(world: World) {
    world.store.create_thread(&world.ada, new_thread("t")).await.unwrap();
    let thread = &"t".into();
    let before = world.store.thread(&world.ada, thread).await.unwrap();
    world.clock.advance(Duration::from_secs(1));
    let change = ThreadChange {
        metadata: Some(text(None, "1")),
        state: Some(StateChange { expected: 7, body: "{}".into() }),
        messages: Some(text(None, "[]")),
    };
    assert!(world.store.update_thread(&world.ada, thread, change).await.is_err());
    assert_eq!(world.store.thread(&world.ada, thread).await.unwrap(), before);
    assert_eq!(world.store.messages(&world.ada, thread).await.unwrap(), None);
}

pub(crate) async fn stores_messages_and_metadata(world: World) {
    world.store.create_thread(&world.ada, new_thread("t")).await.unwrap();
    let thread = &"t".into();
    world.clock.advance(Duration::from_secs(1));
    let change = ThreadChange {
        metadata: Some(text(None, "{\"title\":\"ü\"}")),
        messages: Some(text(None, "[1]")),
        ..Default::default()
    };
    let changed = world.store.update_thread(&world.ada, thread, change).await.unwrap();
    assert_eq!(changed.metadata.as_deref(), Some("{\"title\":\"ü\"}"));
    assert_eq!(changed.updated, world.store.now());
    assert!(changed.created < changed.updated);
    let change = ThreadChange { messages: Some(text(Some("[1]"), "[2]")), ..Default::default() };
    let changed = world.store.update_thread(&world.ada, thread, change).await.unwrap();
    assert_eq!(changed.metadata.as_deref(), Some("{\"title\":\"ü\"}"), "absent fields stay as they are");
    assert_eq!(world.store.messages(&world.ada, thread).await.unwrap().as_deref(), Some("[2]"));
}

/// Of writers that add to what they have read, none overwrites the others.
pub(crate) async fn no_change_of_a_text_is_lost(world: World) {
    world.store.create_thread(&world.ada, new_thread("t")).await.unwrap();
    let changes = 5;
    run_concurrently(4, |number| {
        let (store, ada) = (world.store.clone(), world.ada.clone());
        async move {
            let thread = &"t".into();
            let mut done = 0;
            while done < changes {
                let metadata = store.thread(&ada, thread).await.unwrap().metadata;
                let messages = store.messages(&ada, thread).await.unwrap();
                let add = |before: Option<Text>| {
                    let body = format!("{}{number}", before.as_deref().unwrap_or_default()).into();
                    Some(TextChange { expected: before, body })
                };
                let change = ThreadChange { metadata: add(metadata), messages: add(messages), state: None };
                match store.update_thread(&ada, thread, change).await {
                    Err(StoreError::Conflict(Conflict::Thread)) => {}
                    changed => {
                        changed.unwrap();
                        done += 1;
                    }
                }
            }
        }
    })
    .await;
    let mut names: Vec<char> = "0123".repeat(changes).chars().collect();
    names.sort_unstable();
    let stored = [
        world.store.thread(&world.ada, &"t".into()).await.unwrap().metadata,
        world.store.messages(&world.ada, &"t".into()).await.unwrap(),
    ];
    for text in stored {
        let mut found: Vec<char> = text.as_deref().unwrap_or_default().chars().collect();
        found.sort_unstable();
        assert_eq!(found, names);
    }
    let late = ThreadChange { messages: Some(text(None, "[]")), ..Default::default() };
    let late = world.store.update_thread(&world.ada, &"t".into(), late).await;
    assert!(matches!(late, Err(StoreError::Conflict(Conflict::Thread))), "{late:?}");
}

pub(crate) async fn feedback_is_listed_in_order(world: World) {
    world.store.create_thread(&world.ada, new_thread("t")).await.unwrap();
    for number in 0..3 {
        let run = (number == 1).then(|| "r".into());
        let new = NewFeedback { thread: "t".into(), run, body: number.to_string().into() };
        world.store.add_feedback(&world.ada, new).await.unwrap();
        world.clock.advance(Duration::from_secs(1));
    }
    let first = world.store.feedback(&world.ada, &"t".into(), None, 2).await.unwrap();
    let rest = world.store.feedback(&world.ada, &"t".into(), first.next, 2).await.unwrap();
    assert_eq!(rest.next, None);
    let all: Vec<_> = first.items.into_iter().chain(rest.items).collect();
    let bodies: Vec<&str> = all.iter().map(|feedback| &*feedback.body).collect();
    assert_eq!(bodies, ["0", "1", "2"]);
    assert_eq!(all[1].run.as_deref(), Some("r"));
    assert!(all[0].created < all[1].created);
}
