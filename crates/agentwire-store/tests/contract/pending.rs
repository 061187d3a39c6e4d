//! Pending items and answers.

use std::{collections::HashSet, time::Duration};

use agentwire_store::*;

use super::{World, new_run, threads::run_concurrently};

fn item(id: &str, ttl: Option<Duration>) -> NewPending {
    NewPending { id: id.into(), kind: "interrupt".into(), body: format!("{{\"of\":\"{id}\"}}").into(), ttl }
}

fn answers(pairs: &[(&str, &str)]) -> AnswerSet {
    let answer = |(id, body): &(&str, &str)| Answer { id: (*id).into(), body: (*body).into() };
    AnswerSet { answers: pairs.iter().map(answer).collect(), by: "ada".into() }
}

/// A run of thread `t` that ended with these pending items.
async fn waiting(world: &World, run: &str, items: Vec<NewPending>) -> Run {
    let run = world.start("t", run).await;
    let mut end = world.append(&run, 0, &["end"]);
    end.change.status = Some(StatusChange::to(RunStatus::Waiting));
    end.change.pending = items;
    world.store.append(end).await.unwrap();
    run
}

async fn answer(world: &World, pairs: &[(&str, &str)], run: &str) -> Result<RunId, StoreError> {
    world.store.answer(&world.ada, &"t".into(), answers(pairs), &run.into()).await
}

async fn list(world: &World, which: PendingFilter) -> Vec<Pending> {
    world.store.pending(&world.ada, &"t".into(), which).await.unwrap()
}

pub(crate) async fn lists_open_pending_items(world: World) {
    let hour = Duration::from_secs(3600);
    waiting(&world, "r", vec![item("a", None), item("b", Some(hour))]).await;
    let open = list(&world, PendingFilter::Open).await;
    let names: Vec<&str> = open.iter().map(|item| item.id.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!((open[0].run.as_str(), &*open[0].kind, &*open[0].body), ("r", "interrupt", "{\"of\":\"a\"}"));
    assert_eq!((open[0].expires, open[1].expires), (None, Some(world.store.now().after(hour))));
    world.clock.advance(hour);
    assert_eq!(list(&world, PendingFilter::Open).await.len(), 1, "expired items are not open");
    assert_eq!(list(&world, PendingFilter::All).await.len(), 2);
    let unanswered = list(&world, PendingFilter::Unanswered(HashSet::new())).await;
    assert_eq!(unanswered.len(), 2, "expired items are unanswered");
}

pub(crate) async fn lists_answered_items_that_are_named(world: World) {
    waiting(&world, "r1", vec![item("a", None), item("b", None)]).await;
    answer(&world, &[("a", "1"), ("b", "2")], "r2").await.unwrap();
    // The same item id in another run.
    waiting(&world, "r2", vec![item("b", None), item("c", None)]).await;
    let ids = async |named: &[&str]| {
        let named = named.iter().map(|id| (*id).into()).collect();
        let items = list(&world, PendingFilter::Unanswered(named)).await;
        items.iter().map(|item| format!("{}/{}", item.run, item.id)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(ids(&[]).await, "r2/b r2/c");
    assert_eq!(ids(&["a", "nothing"]).await, "r1/a r2/b r2/c");
    assert_eq!(ids(&["b"]).await, "r1/b r2/b r2/c");
}

pub(crate) async fn an_answer_is_recorded_once(world: World) {
    waiting(&world, "r", vec![item("a", None)]).await;
    assert_eq!(answer(&world, &[("a", "true")], "next").await.unwrap().as_str(), "next");
    assert!(list(&world, PendingFilter::Open).await.is_empty());
    let recorded = list(&world, PendingFilter::All).await.remove(0).answer.unwrap();
    let expected =
        RecordedAnswer { body: "true".into(), by: "ada".into(), at: world.store.now(), run: "next".into() };
    assert_eq!(recorded, expected);
    world.clock.advance(Duration::from_secs(9));
    assert_eq!(
        answer(&world, &[("a", "true")], "other").await.unwrap().as_str(),
        "next",
        "the first one's run"
    );
    assert_eq!(list(&world, PendingFilter::All).await.remove(0).answer.unwrap(), expected, "unchanged");
}

pub(crate) async fn a_different_answer_is_a_conflict(world: World) {
    waiting(&world, "r", vec![item("a", None)]).await;
    answer(&world, &[("a", "true")], "next").await.unwrap();
    let other = answer(&world, &[("a", "false")], "next").await;
    assert!(matches!(other, Err(StoreError::Conflict(Conflict::Answer(id))) if id.as_str() == "a"));
}

pub(crate) async fn answers_are_recorded_together_or_not_at_all(world: World) {
    waiting(&world, "r", vec![item("a", None), item("b", None), item("c", None)]).await;
    let unknown = answer(&world, &[("a", "1"), ("nothing", "2")], "next").await;
    assert!(matches!(unknown, Err(StoreError::NotFound(Missing::Pending))));
    assert_eq!(list(&world, PendingFilter::Open).await.len(), 3, "none was recorded");
    assert_eq!(answer(&world, &[("a", "1"), ("b", "2")], "next").await.unwrap().as_str(), "next");
    let mixed = answer(&world, &[("a", "1"), ("c", "3")], "later").await;
    assert!(matches!(mixed, Err(StoreError::Conflict(_))), "{mixed:?}");
    let mixed = answer(&world, &[("c", "3"), ("a", "1")], "later").await;
    assert!(matches!(mixed, Err(StoreError::Conflict(_))), "{mixed:?}");
    assert_eq!(
        answer(&world, &[("b", "2"), ("a", "1")], "x").await.unwrap().as_str(),
        "next",
        "in any order"
    );
    assert_eq!(answer(&world, &[("c", "3")], "later").await.unwrap().as_str(), "later");
    let across = answer(&world, &[("a", "1"), ("c", "3")], "x").await;
    assert!(matches!(across, Err(StoreError::Conflict(_))), "they started different runs: {across:?}");
}

pub(crate) async fn rejects_an_answer_to_an_expired_item(world: World) {
    let minute = Duration::from_secs(60);
    waiting(&world, "r", vec![item("a", Some(minute)), item("b", None)]).await;
    world.clock.advance(minute - Duration::from_millis(1));
    assert_eq!(list(&world, PendingFilter::Open).await.len(), 2);
    world.clock.advance(Duration::from_millis(1));
    for pairs in [&[("a", "1")] as &[_], &[("b", "1"), ("a", "1")]] {
        let late = answer(&world, pairs, "next").await;
        assert!(matches!(late, Err(StoreError::Expired(id)) if id.as_str() == "a"));
    }
    answer(&world, &[("b", "1")], "next").await.unwrap();
}

pub(crate) async fn one_of_many_concurrent_answers_is_recorded(world: World) {
    waiting(&world, "r", vec![item("a", None), item("b", None)]).await;
    let results = run_concurrently(40, |number| {
        let (store, ada) = (world.store.clone(), world.ada.clone());
        async move {
            let body = (number % 2).to_string();
            let run = format!("next{number}");
            let both = answers(&[("a", &body), ("b", &body)]);
            (body, store.answer(&ada, &"t".into(), both, &run.as_str().into()).await)
        }
    })
    .await;
    let items = list(&world, PendingFilter::All).await;
    let winner = items[0].answer.clone().unwrap();
    assert_eq!(items[1].answer.as_ref(), Some(&winner));
    for (body, result) in results {
        match result {
            Ok(run) => assert_eq!((&*body, run), (&*winner.body, winner.run.clone())),
            Err(StoreError::Conflict(_)) => assert_ne!(*body, *winner.body),
            Err(error) => panic!("{error}"),
        }
    }
}

pub(crate) async fn the_last_answer_finishes_a_waiting_run(world: World) {
    waiting(&world, "r", vec![item("a", None), item("b", None)]).await;
    answer(&world, &[("a", "1")], "next").await.unwrap();
    assert_eq!(world.status("r").await, RunStatus::Waiting);
    answer(&world, &[("b", "1")], "next").await.unwrap();
    assert_eq!(world.status("r").await, RunStatus::Finished);
}

pub(crate) async fn starting_a_run_records_its_answers(world: World) {
    waiting(&world, "r", vec![item("a", None)]).await;
    let bringing =
        |run: &str, body: &str| NewRun { answers: Some(answers(&[("a", body)])), ..new_run("t", run) };
    // A busy thread refuses the run together with its answer.
    let other = world.start("t", "other").await;
    assert!(matches!(world.store.start(&world.ada, bringing("next", "1")).await.unwrap(), Start::Held(_)));
    assert_eq!(list(&world, PendingFilter::Open).await.len(), 1);
    world.end(&other).await;

    let started = world.store.start(&world.ada, bringing("next", "1")).await.unwrap();
    assert!(matches!(started, Start::Created(_)), "{started:?}");
    assert_eq!(world.status("r").await, RunStatus::Finished);
    let again = world.store.start(&world.ada, bringing("next", "1")).await.unwrap();
    assert!(matches!(again, Start::Exists(_)), "{again:?}");
    let retry = world.store.start(&world.ada, bringing("retry", "1")).await.unwrap();
    assert_eq!(retry, Start::Answered("next".into()));
    let different = world.store.start(&world.ada, bringing("different", "2")).await;
    assert!(matches!(different, Err(StoreError::Conflict(Conflict::Answer(_)))));
    for run in ["retry", "different"] {
        assert!(matches!(world.store.run(&world.ada, &run.into()).await, Err(StoreError::NotFound(_))));
    }
    let elsewhere = NewRun { thread: "new".into(), ..bringing("lost", "1") };
    let elsewhere = world.store.start(&world.ada, elsewhere).await;
    assert!(matches!(elsewhere, Err(StoreError::NotFound(Missing::Pending))));
    assert!(world.store.thread(&world.ada, &"new".into()).await.is_err());
}

pub(crate) async fn an_answered_item_is_not_replaced(world: World) {
    let run = world.start("t", "r").await;
    let put = async |seq: u64, event: &str, body: &str| {
        let mut append = world.append(&run, seq, &[event]);
        append.change.pending = vec![NewPending { body: body.into(), ..item("a", None) }];
        world.store.append(append).await
    };
    put(0, "e", "1").await.unwrap();
    put(1, "f", "2").await.unwrap();
    let open = list(&world, PendingFilter::Open).await;
    assert_eq!((open.len(), &*open[0].body), (1, "2"), "replaced while it is open");
    answer(&world, &[("a", "yes")], "next").await.unwrap();
    assert!(matches!(put(2, "g", "3").await, Err(StoreError::Conflict(Conflict::Answer(_)))));
    assert_eq!(world.events(&run.run, 99).await, ["e", "f"]);
}

pub(crate) async fn an_answer_refers_to_the_last_item_with_its_id(world: World) {
    waiting(&world, "r1", vec![item("a", None)]).await;
    answer(&world, &[("a", "1")], "r2").await.unwrap();
    waiting(&world, "r2", vec![item("a", None)]).await;
    assert_eq!(list(&world, PendingFilter::Open).await.len(), 1);
    assert_eq!(answer(&world, &[("a", "2")], "r3").await.unwrap().as_str(), "r3");
    let all = list(&world, PendingFilter::All).await;
    let kept: Vec<&str> = all.iter().map(|item| &*item.answer.as_ref().unwrap().body).collect();
    assert_eq!(kept, ["1", "2"]);
}

pub(crate) async fn rejects_an_empty_answer_set(world: World) {
    waiting(&world, "r", vec![item("a", None)]).await;
    assert!(matches!(answer(&world, &[], "next").await, Err(StoreError::NotFound(Missing::Pending))));
    assert_eq!(list(&world, PendingFilter::Open).await.len(), 1);
}

pub(crate) async fn open_items_of_a_tenant_are_listed_in_pages(world: World) {
    let hour = Duration::from_secs(3600);
    waiting(&world, "r", vec![item("a", None), item("b", Some(hour))]).await;
    let bob = Owner::new("acme", "bob", "other");
    let eve = Owner::new("evil", "eve", "demo");
    for owner in [&bob, &eve] {
        let Start::Created(run) = world.store.start(owner, new_run("u", "r")).await.unwrap() else {
            panic!("a new run")
        };
        let mut end = Append::new(owner.clone(), run.run.clone(), run.fence, run.next_seq);
        end.events = vec!["end".into()];
        end.change.status = Some(StatusChange::to(RunStatus::Waiting));
        end.change.pending = vec![item("c", None)];
        world.store.append(end).await.unwrap();
    }
    let all = async |kind: &str| {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = world.store.open_items(&"acme".into(), kind, after, 1).await.unwrap();
            found.extend(
                page.items.iter().map(|it| format!("{} {} {}", it.owner.user, it.thread, it.item.id)),
            );
            after = page.next;
            if after.is_none() {
                return found;
            }
        }
    };
    assert_eq!(all("interrupt").await, ["ada t a", "ada t b", "bob u c"]);
    assert_eq!(all("approval").await, Vec::<String>::new());
    answer(&world, &[("a", "1")], "r2").await.unwrap();
    assert_eq!(all("interrupt").await, ["ada t b", "bob u c"]);
    world.clock.advance(hour);
    assert_eq!(all("interrupt").await, ["bob u c"]);
}

pub(crate) async fn an_item_is_replaced_if_it_is_unchanged(world: World) {
    let hour = Duration::from_secs(3600);
    waiting(&world, "r", vec![item("a", Some(hour)), item("b", None)]).await;
    let thread = "t".into();
    let before = list(&world, PendingFilter::Open).await;
    world.store.replace_item(&world.ada, &thread, &before[0], "1".into()).await.unwrap();
    let after = list(&world, PendingFilter::Open).await;
    assert_eq!(
        (&*after[0].body, after[0].created, after[0].expires),
        ("1", before[0].created, before[0].expires)
    );
    let stale = world.store.replace_item(&world.ada, &thread, &before[0], "2".into()).await;
    assert!(matches!(stale, Err(StoreError::Conflict(Conflict::Item(_)))), "{stale:?}");
    answer(&world, &[("b", "1")], "r2").await.unwrap();
    let answered = world.store.replace_item(&world.ada, &thread, &before[1], "2".into()).await;
    assert!(matches!(answered, Err(StoreError::Conflict(Conflict::Item(_)))), "{answered:?}");
    let foreign = Owner::new("acme", "eve", "demo");
    let unknown = world.store.replace_item(&foreign, &thread, &after[0], "2".into()).await;
    assert!(matches!(unknown, Err(StoreError::NotFound(_))), "{unknown:?}");
    world.clock.advance(hour);
    let expired = world.store.replace_item(&world.ada, &thread, &after[0], "2".into()).await;
    assert!(matches!(expired, Err(StoreError::Expired(_))), "{expired:?}");
}
