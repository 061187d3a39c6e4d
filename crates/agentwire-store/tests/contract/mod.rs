//! What every store must do, whatever it is made of.
//!
//! A further backend runs all of it by one line: `store_contract!(name, place)`, where `place` makes a [`StoreFactory`] that
//! is empty at first. A backend that outlives its process adds `durable_store_contract!` with the same.

mod claims;
mod deletion;
mod durable;
mod isolation;
mod log;
mod pending;
mod retention;
mod runs;
mod threads;

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use agentwire_store::*;

pub(crate) use claims::*;
pub(crate) use deletion::*;
pub(crate) use durable::*;
pub(crate) use isolation::*;
pub(crate) use log::*;
pub(crate) use pending::*;
pub(crate) use retention::*;
pub(crate) use runs::*;
pub(crate) use threads::*;

/// Somewhere that stores can be opened, more than once if it outlives them.
pub(crate) trait StoreFactory: Send + Sync {
    fn open(&self, clock: Arc<ManualClock>) -> Pin<Box<dyn Future<Output = Arc<dyn Store>> + Send + '_>>;
}

/// A store, its clock, and someone to own things in it.
pub(crate) struct World {
    pub(crate) place: Box<dyn StoreFactory>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) ada: Owner,
}

pub(crate) const TTL: Duration = Duration::from_secs(15);
pub(crate) const ALL: usize = usize::MAX;

impl World {
    pub(crate) async fn at(place: impl StoreFactory + 'static) -> Self {
        let clock = Arc::new(ManualClock::at(Time(1_700_000_000_000)));
        let store = place.open(clock.clone()).await;
        Self { place: Box::new(place), store, clock, ada: Owner::new("acme", "ada") }
    }

    /// Closes the store and opens it again.
    pub(crate) async fn reopen(self) -> Self {
        let Self { place, store, clock, ada } = self;
        drop(store);
        let store = place.open(clock.clone()).await;
        Self { place, store, clock, ada }
    }

    /// Another store at the same place, as another process would have it.
    pub(crate) async fn another(&self) -> Arc<dyn Store> {
        self.place.open(self.clock.clone()).await
    }

    pub(crate) async fn start(&self, thread: &str, run: &str) -> Run {
        match self.store.start(&self.ada, new_run(thread, run)).await.unwrap() {
            Start::Created(run) => run,
            other => panic!("not created: {other:?}"),
        }
    }

    pub(crate) fn append(&self, run: &Run, first_seq: u64, events: &[&str]) -> Append {
        let mut append = Append::new(self.ada.clone(), run.run.clone(), run.fence, Seq(first_seq));
        append.events = events.iter().map(|event| event.to_string().into()).collect();
        append
    }

    /// A run that ended with these events in its log.
    pub(crate) async fn ended(&self, thread: &str, run: &str, events: &[&str]) -> Run {
        let run = self.start(thread, run).await;
        let mut append = self.append(&run, 0, events);
        append.change.status = Some(StatusChange::to(RunStatus::Finished));
        self.store.append(append).await.unwrap();
        self.store.run(&self.ada, &run.run).await.unwrap()
    }

    /// All events of a run, read in pages of about `limit` bytes.
    pub(crate) async fn events(&self, run: &RunId, limit: usize) -> Vec<String> {
        read_all(&*self.store, &self.ada, run, limit).await
    }

    pub(crate) async fn status(&self, run: &str) -> RunStatus {
        self.store.run(&self.ada, &run.into()).await.unwrap().status
    }
}

pub(crate) async fn read_all(store: &dyn Store, owner: &Owner, run: &RunId, limit: usize) -> Vec<String> {
    let mut events = Vec::new();
    let mut after = None;
    loop {
        let log = store.read(owner, run, after, limit).await.unwrap();
        let Log::Exact(slice) = log else { panic!("not whole: {log:?}") };
        assert_eq!(slice.first_seq.0, events.len() as u64, "pages join without a hole");
        let page = slice.events.iter().map(|event| String::from_utf8(event.to_vec()).unwrap());
        events.extend(page);
        if events.len() as u64 == slice.next_seq.0 {
            return events;
        }
        assert!(!slice.events.is_empty(), "a page that is not the last holds something");
        after = Some(Seq(events.len() as u64 - 1));
    }
}

pub(crate) fn claim_of(holder: &str) -> Claim {
    Claim { holder: holder.into(), address: Some("http://127.0.0.1:1".into()), ttl: TTL }
}

pub(crate) fn new_run(thread: &str, run: &str) -> NewRun {
    NewRun::new(thread, run, "demo", claim_of("gateway-1"))
}

pub(crate) fn queued_run(thread: &str, run: &str, limit: usize) -> NewRun {
    NewRun { entry: Entry::Queue { limit }, ..new_run(thread, run) }
}

pub(crate) fn created(start: Start) -> Run {
    match start {
        Start::Created(run) => run,
        other => panic!("not created: {other:?}"),
    }
}

pub(crate) fn granted(acquire: Acquire) -> Lease {
    match acquire {
        Acquire::Granted(lease) => lease,
        Acquire::Held(lease) => panic!("held by {lease:?}"),
    }
}

/// The whole contract for one backend.
#[macro_export]
macro_rules! store_contract {
    ($name:ident, $place:expr) => {
        $crate::contract_tests! { $name, $place,
            a_thread_is_made_once
            threads_are_listed_newest_first_in_pages
            threads_are_listed_by_agent
            a_page_stays_right_while_threads_come_and_go
            the_state_changes_only_from_what_was_read
            the_state_is_a_runs_to_change_while_it_has_the_thread
            a_change_that_is_refused_changes_nothing
            messages_and_metadata_are_kept
            feedback_is_listed_in_order

            a_run_is_created_with_its_thread
            the_same_run_id_again_finds_the_first
            of_a_hundred_who_create_one_run_one_does
            of_a_hundred_runs_in_one_thread_one_starts
            a_refused_run_leaves_nothing_behind
            runs_are_listed_newest_first
            the_queue_is_served_in_order
            the_queue_has_an_end
            nobody_overtakes_the_queue
            a_queued_run_can_end_without_its_thread
            a_queued_run_goes_on_under_a_new_fence
            strange_ids_are_only_ids

            a_lease_is_shown_until_it_is_given_up
            a_live_lease_is_not_taken
            an_expired_lease_is_taken_with_a_higher_fence
            fences_rise_for_ever
            renewing_keeps_a_lease_alive
            a_lost_claim_cannot_be_renewed
            an_expired_claim_that_nobody_took_comes_back
            nobody_frees_what_is_not_theirs
            an_ending_frees_the_thread
            orphans_are_found_and_taken_over_once
            a_dead_holders_runs_are_orphans_at_once
            live_runs_are_no_orphans
            an_orphan_that_lost_its_thread_gets_only_an_ending
            orphans_in_the_queue_are_found

            a_log_keeps_its_order
            a_log_is_read_from_any_cursor
            pages_hold_at_least_one_event
            an_append_that_leaves_a_hole_is_refused
            an_append_that_overlaps_is_refused
            the_same_append_again_does_nothing
            the_last_append_can_be_repeated_after_the_end
            an_old_fence_is_refused
            an_expired_claim_is_refused
            an_ended_run_takes_nothing_more
            changes_ride_with_their_events_or_not_at_all
            an_append_without_events_changes_the_status
            a_status_is_not_reached_by_any_way
            any_bytes_are_an_event
            parallel_writers_of_one_run_make_one_sequence
            many_runs_do_not_disturb_each_other
            an_append_beyond_all_bounds_is_refused

            what_a_run_leaves_open_is_listed
            what_was_answered_is_listed_if_it_is_named
            an_answer_is_recorded_once
            another_answer_is_a_conflict
            answers_are_taken_all_or_none
            an_expired_item_is_not_answered
            of_many_answers_at_once_one_counts
            a_waiting_run_is_finished_by_its_last_answer
            a_run_starts_with_the_answers_it_brings
            an_answered_item_is_not_put_again
            the_last_item_with_an_id_is_meant
            no_answer_is_no_answer

            what_is_foreign_looks_unknown
            two_owners_use_the_same_ids

            a_deleted_thread_is_gone_with_everything
            a_deleted_thread_can_be_made_anew
            a_deleted_run_cannot_be_written_to

            a_compacted_log_is_told_apart
            only_ended_runs_are_compacted
            old_logs_are_due_for_compaction
            retention_drops_old_logs_and_says_so
            retention_keeps_the_newest_logs
            retention_deletes_old_threads
            retention_keeps_the_newest_threads
            retention_leaves_live_runs_alone
            retention_finishes_what_nobody_can_answer
            stats_count_what_is_there
        }
    };
}

/// What a store that outlives its process must do in addition.
#[macro_export]
macro_rules! durable_store_contract {
    ($name:ident, $place:expr) => {
        $crate::contract_tests! { $name, $place,
            everything_is_there_after_a_restart
            a_log_goes_on_after_a_restart
            two_stores_share_one_place
            of_two_stores_one_gets_the_thread
            a_store_fences_off_another
        }
    };
}

/// One test per claim, each in a world of its own.
#[macro_export]
macro_rules! contract_tests {
    ($name:ident, $place:expr, $($claim:ident)+) => {
        mod $name {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $claim() {
                    $crate::contract::$claim($crate::contract::World::at($place).await).await;
                }
            )+
        }
    };
}
