//! The contract that every backend must fulfil.
//!
//! A new backend runs the whole suite with one line: `store_contract!(name, factory)`, where `factory` is an expression
//! for a [`StoreFactory`] without data. A durable backend adds `durable_store_contract!` with the same arguments.

mod api_keys;
mod claims;
mod deletion;
mod durable;
mod isolation;
mod log;
mod mailbox;
mod orphans;
mod pending;
mod quotas;
mod retention;
mod runs;
mod threads;

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use agentwire_store::*;

pub(crate) use api_keys::*;
pub(crate) use claims::*;
pub(crate) use deletion::*;
pub(crate) use durable::*;
pub(crate) use isolation::*;
pub(crate) use log::*;
pub(crate) use mailbox::*;
pub(crate) use orphans::*;
pub(crate) use pending::*;
pub(crate) use quotas::*;
pub(crate) use retention::*;
pub(crate) use runs::*;
pub(crate) use threads::*;

/// Opens a store; durable ones can be opened several times.
pub(crate) trait StoreFactory: Send + Sync {
    fn open(&self, clock: Arc<ManualClock>) -> Pin<Box<dyn Future<Output = Arc<dyn Store>> + Send + '_>>;
}

/// A store, its clock and an owner.
pub(crate) struct World {
    pub(crate) factory: Box<dyn StoreFactory>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) ada: Owner,
}

pub(crate) const TTL: Duration = Duration::from_secs(15);
pub(crate) const ALL: usize = usize::MAX;

impl World {
    pub(crate) async fn at(factory: impl StoreFactory + 'static) -> Self {
        let clock = Arc::new(ManualClock::at(Time(1_700_000_000_000)));
        let store = factory.open(clock.clone()).await;
        let world = Self { factory: Box::new(factory), store, clock, ada: Owner::new("acme", "ada", "demo") };
        world.lease("gateway-1").await;
        world
    }

    /// Closes and reopens the store.
    pub(crate) async fn reopen(self) -> Self {
        let Self { factory, store, clock, ada } = self;
        drop(store);
        let store = factory.open(clock.clone()).await;
        Self { factory, store, clock, ada }
    }

    /// A second store on the same data, as another process would open it.
    pub(crate) async fn another(&self) -> Arc<dyn Store> {
        self.factory.open(self.clock.clone()).await
    }

    /// Gives a process a lease for [`TTL`], or renews it.
    pub(crate) async fn lease(&self, holder: &str) -> bool {
        self.store.renew(&holder.into(), TTL).await.unwrap()
    }

    /// Starts a run of `gateway-1`, whose lease is renewed.
    pub(crate) async fn start(&self, thread: &str, run: &str) -> Run {
        self.lease("gateway-1").await;
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

    /// A finished run with these events.
    pub(crate) async fn ended(&self, thread: &str, run: &str, events: &[&str]) -> Run {
        let run = self.start(thread, run).await;
        let mut append = self.append(&run, 0, events);
        append.change.status = Some(StatusChange::to(RunStatus::Finished));
        self.store.append(append).await.unwrap();
        self.store.run(&self.ada, &run.run).await.unwrap()
    }

    /// Ends a run of which nothing but its record is known.
    pub(crate) async fn end(&self, run: &Run) {
        let stored = self.store.run(&self.ada, &run.run).await.unwrap();
        let mut append = self.append(run, stored.next_seq.0, &["end"]);
        append.change.status = Some(StatusChange::to(RunStatus::Finished));
        self.store.append(append).await.unwrap();
    }

    pub(crate) fn key(&self, run: &str) -> RunKey {
        RunKey { owner: self.ada.clone(), run: run.into() }
    }

    /// Takes over an orphan as it is now.
    pub(crate) async fn take_over(&self, run: &str, holder: &str) -> Result<Run, StoreError> {
        self.lease(holder).await;
        let seen = self.store.run(&self.ada, &run.into()).await.unwrap().fence;
        self.store.take_over(&self.key(run), seen, &holder.into()).await
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
        let Log::Exact(slice) = log else { panic!("not exact: {log:?}") };
        assert_eq!(slice.first_seq.0, events.len() as u64, "pages continue without a gap");
        let page = slice.events.iter().map(|event| String::from_utf8(event.to_vec()).unwrap());
        events.extend(page);
        if events.len() as u64 == slice.next_seq.0 {
            return events;
        }
        assert!(!slice.events.is_empty(), "a page before the last is not empty");
        after = Some(Seq(events.len() as u64 - 1));
    }
}

pub(crate) fn text(expected: Option<&str>, body: &str) -> TextChange {
    TextChange { expected: expected.map(Into::into), body: body.into() }
}

pub(crate) fn new_run(thread: &str, run: &str) -> NewRun {
    NewRun::new(thread, run, "demo", "gateway-1")
}

pub(crate) fn queued_run(thread: &str, run: &str, limit: usize) -> NewRun {
    NewRun { mode: StartMode::Queue { limit }, ..new_run(thread, run) }
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
        other => panic!("not granted: {other:?}"),
    }
}

/// The whole contract for one backend.
#[macro_export]
macro_rules! store_contract {
    ($name:ident, $factory:expr) => {
        $crate::contract_tests! { $name, $factory,
            creates_a_thread_once
            threads_are_listed_newest_first_in_pages
            pages_are_stable_while_threads_come_and_go
            changing_the_state_requires_its_current_number
            only_the_leasing_run_changes_the_state
            a_rejected_change_has_no_effect
            stores_messages_and_metadata
            no_change_of_a_text_is_lost
            feedback_is_listed_in_order

            creates_a_run_with_its_thread
            p8_starting_an_existing_run_returns_it
            p8_one_of_a_hundred_concurrent_starts_creates_the_run
            p4_one_of_a_hundred_runs_gets_the_thread
            a_refused_run_leaves_no_record
            runs_are_listed_newest_first
            queued_runs_get_the_thread_in_order
            p6_the_queue_is_bounded
            new_runs_do_not_overtake_the_queue
            a_queued_run_can_end_without_its_thread
            a_queued_run_continues_under_a_new_fencing_token
            accepts_unusual_ids

            shows_a_lease_until_it_is_released
            p4_a_live_lease_cannot_be_taken_over
            p4_a_thread_is_free_only_when_its_run_has_ended
            fencing_tokens_always_increase
            renewing_keeps_a_lease_alive
            a_lost_claim_cannot_be_renewed
            an_expired_claim_can_be_renewed_until_taken_over
            only_the_holder_releases_a_claim
            ending_a_run_releases_its_thread
            finds_orphans_and_takes_each_over_once
            runs_of_a_retired_holder_are_orphans_immediately
            live_runs_are_not_orphans
            finds_queued_orphans
            a_queued_orphan_keeps_its_place
            a_claim_needs_a_lease
            lists_the_live_runs_of_a_holder
            a_process_takes_its_own_run_over
            a_lease_from_the_future_is_capped
            acknowledged_changes_are_there_after_an_orphan
            a_late_ending_changes_nothing
            a_slow_owner_overwrites_nothing

            wakes_up_for_events_and_endings
            a_command_reaches_the_holder_and_its_reply_the_sender
            an_untaken_command_is_withdrawn
            a_command_is_never_taken_after_its_deadline
            a_taken_command_is_waited_for
            a_take_over_opens_commands_without_a_reply
            a_take_over_opens_late_commands
            p8_a_reply_under_an_old_claim_is_ignored
            a_reply_in_an_append_is_atomic
            a_command_to_a_run_that_ends_is_told_so
            commands_of_a_deleted_thread_are_gone
            readers_of_other_processes_are_known_until_they_expire

            p1_a_log_keeps_its_order
            reads_a_log_from_any_cursor
            a_read_returns_at_least_one_event
            rejects_an_append_that_leaves_a_gap
            rejects_an_append_that_overlaps
            p8_a_repeated_append_has_no_effect
            the_last_append_can_be_repeated_after_the_run_ended
            p4_rejects_an_outdated_fencing_token
            rejects_an_append_under_an_expired_claim
            rejects_appends_to_an_ended_run
            changes_and_events_are_applied_atomically
            an_append_without_events_changes_the_status
            rejects_disallowed_status_changes
            accepts_any_bytes_as_an_event
            p1_concurrent_writers_of_one_run_produce_one_sequence
            many_runs_do_not_interfere
            p6_rejects_an_append_above_the_size_limit

            lists_open_pending_items
            lists_answered_items_that_are_named
            an_answer_is_recorded_once
            a_different_answer_is_a_conflict
            answers_are_recorded_together_or_not_at_all
            rejects_an_answer_to_an_expired_item
            one_of_many_concurrent_answers_is_recorded
            the_last_answer_finishes_a_waiting_run
            starting_a_run_records_its_answers
            an_answered_item_is_not_replaced
            an_answer_refers_to_the_last_item_with_its_id
            rejects_an_empty_answer_set
            open_items_of_a_tenant_are_listed_in_pages
            an_item_is_replaced_if_it_is_unchanged

            keys_are_added_and_their_changes_found
            usage_counts_runs_threads_and_bytes
            a_quota_refuses_what_exceeds_it
            p6_concurrent_starts_keep_a_quota

            p7_records_of_other_owners_look_like_missing_ones
            p7_two_owners_can_use_the_same_ids
            two_agents_of_a_user_have_their_own_threads_and_runs
            the_second_agent_with_a_thread_id_gets_an_upstream_scope
            a_thread_keeps_the_form_of_its_ids
            threads_move_to_another_agent_with_all_their_data
            threads_that_cannot_move_stay

            deleting_a_thread_deletes_all_its_data
            a_deleted_thread_can_be_created_again
            rejects_writes_to_a_deleted_run

            a_compacted_log_is_reported_as_such
            only_ended_runs_can_be_compacted
            lists_old_logs_for_compaction
            retention_drops_old_logs_and_reports_it
            retention_keeps_the_newest_logs
            retention_deletes_old_threads
            retention_keeps_the_newest_threads
            retention_keeps_live_runs
            retention_finishes_runs_with_only_expired_items
            stats_count_all_records
        }
    };
}

/// The additional contract of a durable backend.
#[macro_export]
macro_rules! durable_store_contract {
    ($name:ident, $factory:expr) => {
        $crate::contract_tests! { $name, $factory,
            p2_all_data_survives_a_restart
            keys_survive_a_restart
            changes_of_keys_are_seen_in_order
            p6_starts_at_two_stores_keep_a_quota
            a_log_continues_after_a_restart
            two_stores_share_one_file
            one_of_two_stores_gets_the_thread
            p4_a_takeover_by_another_store_rejects_the_old_writer
            commands_and_wake_ups_cross_stores
        }
    };
}

/// One test per claim, each with a store of its own.
#[macro_export]
macro_rules! contract_tests {
    ($name:ident, $factory:expr, $($claim:ident)+) => {
        mod $name {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $claim() {
                    $crate::contract::$claim($crate::contract::World::at($factory).await).await;
                }
            )+
        }
    };
}
