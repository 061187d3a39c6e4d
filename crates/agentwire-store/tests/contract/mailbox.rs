//! Wake-ups, commands between processes, and readers of other processes.

use std::{sync::Arc, time::Duration};

use agentwire_store::*;
use tokio::task::JoinHandle;

use super::{World, new_run};

const PATIENCE: Duration = Duration::from_secs(7);

fn send(world: &World, run: &str, body: &str) -> JoinHandle<Result<Delivery, StoreError>> {
    let (store, key, body): (Arc<dyn Store>, RunKey, Text) =
        (world.store.clone(), world.key(run), body.into());
    tokio::spawn(async move { store.send(&key, body, PATIENCE).await })
}

async fn inbox(world: &World, holder: &str) -> Vec<TakenCommand> {
    world.store.inbox(&holder.into()).await.unwrap()
}

/// True if a holder has nothing to take, after a time in which it would have got it.
async fn is_empty(world: &World, holder: &str) -> bool {
    tokio::time::timeout(Duration::from_millis(200), world.store.inbox(&holder.into())).await.is_err()
}

pub(crate) async fn wakes_up_for_events_and_endings(world: World) {
    let run = world.start("t", "r").await;
    let wait = |next| {
        let (store, key) = (world.store.clone(), world.key("r"));
        tokio::spawn(async move { store.changed(&key, next).await.unwrap() })
    };
    let (first, third, end) = (wait(Seq(0)), wait(Seq(2)), wait(Seq::MAX));
    world.store.append(world.append(&run, 0, &["a"])).await.unwrap();
    first.await.unwrap();
    wait(Seq(0)).await.unwrap();
    world.store.append(world.append(&run, 1, &["b", "c"])).await.unwrap();
    third.await.unwrap();
    assert!(!end.is_finished());
    world.end(&run).await;
    end.await.unwrap();
    wait(Seq::MAX).await.unwrap();
    world.store.changed(&world.key("unknown"), Seq(0)).await.unwrap();
    let deleted = world.start("u", "s").await;
    let wait = {
        let (store, key) = (world.store.clone(), world.key("s"));
        tokio::spawn(async move { store.changed(&key, Seq::MAX).await.unwrap() })
    };
    world.store.delete_thread(&world.ada, &deleted.thread).await.unwrap();
    wait.await.unwrap();
}

pub(crate) async fn a_command_reaches_the_holder_and_its_reply_the_sender(world: World) {
    world.start("t", "r").await;
    world.lease("gateway-2").await;
    let other = NewRun { holder: "gateway-2".into(), ..new_run("u", "s") };
    world.store.start(&world.ada, other).await.unwrap();
    let (mine, theirs) = (send(&world, "r", "one"), send(&world, "s", "two"));
    let taken = inbox(&world, "gateway-1").await;
    assert_eq!((taken.len(), &*taken[0].body, &taken[0].run), (1, "one", &world.key("r")));
    assert!(is_empty(&world, "gateway-1").await, "each is taken once");
    let other = inbox(&world, "gateway-2").await;
    assert_eq!((other.len(), &*other[0].body), (1, "two"));
    world.store.reply(other[0].id, other[0].fence, "2".into()).await.unwrap();
    world.store.reply(taken[0].id, taken[0].fence, "1".into()).await.unwrap();
    assert_eq!(mine.await.unwrap().unwrap(), Delivery::Replied("1".into()));
    assert_eq!(theirs.await.unwrap().unwrap(), Delivery::Replied("2".into()));
    world.store.reply(taken[0].id, taken[0].fence, "late".into()).await.unwrap();
    let missing = world.store.send(&world.key("missing"), "x".into(), PATIENCE).await;
    assert!(matches!(missing, Err(StoreError::NotFound(Missing::Run))));
}

pub(crate) async fn an_untaken_command_is_withdrawn(world: World) {
    world.start("t", "r").await;
    let sent = send(&world, "r", "stop");
    // Withdrawn by the clock of the store, however often it is asked.
    while !sent.is_finished() {
        world.clock.advance(Duration::from_millis(500));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(sent.await.unwrap().unwrap(), Delivery::Withdrawn);
    assert!(is_empty(&world, "gateway-1").await);
}

pub(crate) async fn a_command_is_never_taken_after_its_deadline(world: World) {
    world.start("t", "r").await;
    let (store, key) = (world.store.clone(), world.key("r"));
    let sent = store.send(&key, "stop".into(), PATIENCE);
    // The sender dies after it has sent.
    let _ = tokio::time::timeout(Duration::from_millis(300), sent).await;
    world.clock.advance(PATIENCE);
    assert!(is_empty(&world, "gateway-1").await);
}

pub(crate) async fn a_taken_command_is_waited_for(world: World) {
    world.start("t", "r").await;
    let sent = send(&world, "r", "patch");
    let taken = inbox(&world, "gateway-1").await;
    world.clock.advance(PATIENCE * 2);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!sent.is_finished(), "it may have an effect");
    world.store.reply(taken[0].id, taken[0].fence, "done".into()).await.unwrap();
    assert_eq!(sent.await.unwrap().unwrap(), Delivery::Replied("done".into()));
}

pub(crate) async fn a_take_over_opens_commands_without_a_reply(world: World) {
    world.start("t", "r").await;
    let first = send(&world, "r", "first");
    let taken = inbox(&world, "gateway-1").await;
    world.store.retire(&"gateway-1".into()).await.unwrap();
    world.take_over("r", "gateway-2").await.unwrap();
    let again = inbox(&world, "gateway-2").await;
    assert_eq!((again.len(), again[0].id, &again[0].body), (1, taken[0].id, &taken[0].body));
    world.store.reply(again[0].id, again[0].fence, "done".into()).await.unwrap();
    assert_eq!(first.await.unwrap().unwrap(), Delivery::Replied("done".into()));
}

/// Its sender waits for it beyond its deadline, and must not be told that nobody has executed it before the next holder could.
pub(crate) async fn a_take_over_opens_late_commands(world: World) {
    for (number, is_ended) in [true, false].into_iter().enumerate() {
        let (thread, run) = (format!("t{number}"), format!("r{number}"));
        world.lease("gateway-1").await;
        world.start(&thread, &run).await;
        let sent = send(&world, &run, "stop");
        inbox(&world, "gateway-1").await;
        world.clock.advance(PATIENCE * 2);
        world.lease("gateway-2").await;
        world.store.retire(&"gateway-1".into()).await.unwrap();
        let taken_over = world.take_over(&run, "gateway-2").await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!sent.is_finished(), "the run is being ended");
        if is_ended {
            world.end(&taken_over).await;
            assert_eq!(sent.await.unwrap().unwrap(), Delivery::Ended);
        } else {
            let again = inbox(&world, "gateway-2").await;
            world.store.reply(again[0].id, again[0].fence, "done".into()).await.unwrap();
            assert_eq!(sent.await.unwrap().unwrap(), Delivery::Replied("done".into()));
        }
    }
}

/// A holder that was frozen does not answer a command that the next one executes: its sender would send it again.
pub(crate) async fn p8_a_reply_under_an_old_claim_is_ignored(world: World) {
    world.start("t", "r").await;
    let sent = send(&world, "r", "patch");
    let old = inbox(&world, "gateway-1").await;
    world.store.retire(&"gateway-1".into()).await.unwrap();
    let run = world.take_over("r", "gateway-2").await.unwrap();
    let taken = inbox(&world, "gateway-2").await;
    world.store.reply(old[0].id, old[0].fence, "gone".into()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!sent.is_finished());
    let mut append = world.append(&run, 0, &["patch"]);
    append.change.replies = vec![CommandReply { id: taken[0].id, body: "patched".into() }];
    world.store.append(append).await.unwrap();
    assert_eq!(sent.await.unwrap().unwrap(), Delivery::Replied("patched".into()));
}

/// The owner dies between the append and whatever it would do after it: the command is not executed twice.
pub(crate) async fn a_reply_in_an_append_is_atomic(world: World) {
    let run = world.start("t", "r").await;
    let sent = send(&world, "r", "patch");
    let taken = inbox(&world, "gateway-1").await;
    let mut refused = world.append(&run, 7, &["patch"]);
    refused.change.replies = vec![CommandReply { id: taken[0].id, body: "refused".into() }];
    assert!(world.store.append(refused).await.is_err());
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!sent.is_finished(), "a refused append replies to nothing");
    let mut append = world.append(&run, 0, &["patch"]);
    append.change.replies = vec![CommandReply { id: taken[0].id, body: "patched".into() }];
    world.store.append(append).await.unwrap();
    world.store.retire(&"gateway-1".into()).await.unwrap();
    world.take_over("r", "gateway-2").await.unwrap();
    assert!(is_empty(&world, "gateway-2").await);
    assert_eq!(sent.await.unwrap().unwrap(), Delivery::Replied("patched".into()));
}

pub(crate) async fn a_command_to_a_run_that_ends_is_told_so(world: World) {
    let run = world.start("t", "r").await;
    let sent = send(&world, "r", "patch");
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.end(&run).await;
    assert_eq!(sent.await.unwrap().unwrap(), Delivery::Ended);
    assert_eq!(send(&world, "r", "patch").await.unwrap().unwrap(), Delivery::Ended);
    // A holder that took it and died behind the end of the run.
    let run = world.start("t", "s").await;
    let sent = send(&world, "s", "patch");
    inbox(&world, "gateway-1").await;
    world.end(&run).await;
    assert_eq!(sent.await.unwrap().unwrap(), Delivery::Ended);
}

pub(crate) async fn commands_of_a_deleted_thread_are_gone(world: World) {
    world.start("t", "r").await;
    let sent = send(&world, "r", "patch");
    inbox(&world, "gateway-1").await;
    world.store.delete_thread(&world.ada, &"t".into()).await.unwrap();
    assert!(matches!(sent.await.unwrap(), Err(StoreError::NotFound(Missing::Run))));
}

pub(crate) async fn readers_of_other_processes_are_known_until_they_expire(world: World) {
    world.start("t", "r").await;
    let (key, minute) = (world.key("r"), Duration::from_secs(60));
    let has = async |except: &str| world.store.has_readers(&key, &except.into()).await.unwrap();
    assert!(!has("gateway-1").await);
    world.store.note_readers(&key, &"gateway-2".into(), minute).await.unwrap();
    assert!(has("gateway-1").await);
    assert!(!has("gateway-2").await, "its own do not count");
    world.clock.advance(minute - Duration::from_millis(1));
    assert!(has("gateway-1").await);
    world.clock.advance(Duration::from_millis(1));
    assert!(!has("gateway-1").await);
    world.store.note_readers(&key, &"gateway-2".into(), minute).await.unwrap();
    world.store.note_readers(&key, &"gateway-3".into(), minute).await.unwrap();
    world.store.note_readers(&key, &"gateway-2".into(), Duration::ZERO).await.unwrap();
    assert!(has("gateway-1").await);
    world.store.note_readers(&key, &"gateway-3".into(), Duration::ZERO).await.unwrap();
    assert!(!has("gateway-1").await);
    let unknown = world.store.note_readers(&world.key("unknown"), &"gateway-2".into(), minute).await;
    assert!(matches!(unknown, Err(StoreError::NotFound(Missing::Run))));
}
