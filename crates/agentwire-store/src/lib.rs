//! Storage for an agentwire gateway: threads, runs, event logs, leases, pending items and feedback.
//!
//! [`Store`] is the trait that a gateway uses; [`open`] creates one from an address:
//!
//! | address | backend | survives |
//! |---|---|---|
//! | `memory:` | [`MemoryStore`] | nothing: a bounded store for tests and embedding |
//! | `sqlite:PATH` | `SqliteStore` (Cargo feature `sqlite`, on by default) | process crashes; power loss at [`Durability::Fsync`] |
//! | `postgres://…` | `PostgresStore` (Cargo feature `postgres`) | as `sqlite:`, and is shared by gateways on several machines |
//!
//! Every backend passes the same contract suite (`tests/contract/`). A new backend joins it with one line.
//!
//! # Stored data
//!
//! A **thread** is a conversation: metadata, a JSON state, JSON messages. A **run** is one request in a thread: its
//! status, its input and its **log**, the numbered events. A **pending item** is a question that a run left open for a
//! person or a front end. The store knows no event format: an event is opaque bytes with a sequence number, and JSON
//! text is never parsed.
//!
//! # Guarantees
//!
//! * **Isolation.** Every key starts with an [`Owner`] (tenant, user and agent). Data of another owner is reported exactly
//!   like data that does not exist. Run ids are unique per owner rather than per tenant, because an id that cannot be
//!   used would reveal that another user has it.
//! * **Claims and fencing tokens.** A live run (queued, running or paused) is claimed by one process, its holder. Each claim
//!   gets a [`Fence`], a fencing token that never goes back for a run, not even when its thread is deleted and created
//!   again. Every append carries its token, and the store rejects outdated ones.
//! * **Leases.** A process has one lease, until an expiry by the store's clock, and renews it ([`Store::renew`]). The
//!   claims of a process are live as long as its lease is. A live run without a live claim is an orphan: any process may
//!   take it over, under a new fencing token.
//! * **A thread is free only when its run has ended.** A thread points at the one run that may change it; this pointer
//!   together with the run's claim is the [`Lease`] on the thread. A queued run has a claim without a lease; a running
//!   or paused run has both. While an orphan has the thread, no run starts in it and nobody else changes its state: the
//!   process that meets the orphan takes it over, ends or continues it, and tries again. So the state and the messages
//!   that an orphan started with are still those of the thread when it is ended.
//! * **Ordered logs.** Events are numbered from 0 without gaps. [`Append`] is a compare-and-set on the next number and
//!   idempotent: repeating an append has no effect. Changes of status, state, messages and pending items are part of
//!   the same transaction as the events that announce them. A status that ends the run releases the thread in the
//!   same step.
//! * **Explicit gaps.** A read returns every event behind the cursor or states which events are no longer retained
//!   ([`Log`]).
//! * **Durability.** A write is acknowledged once it has reached its [`Durability`] level: this process, the operating
//!   system, or the disk.
//!
//! # Example
//!
//! ```
//! use agentwire_store::*;
//! use std::time::Duration;
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let store = open("memory:", Options::default()).await?;
//! let owner = Owner::new("acme", "ada", "demo");
//!
//! // A process that writes to runs has a lease and renews it.
//! store.renew(&"gateway-1".into(), Duration::from_secs(15)).await?;
//! let Start::Created(run) = store.start(&owner, NewRun::new("thread", "run", "demo", "gateway-1")).await? else {
//!     panic!("the thread is free and the run id is new");
//! };
//! let mut append = Append::new(owner.clone(), run.run.clone(), run.fence, run.next_seq);
//! append.events = vec![r#"{"type":"RUN_STARTED"}"#.into(), r#"{"type":"RUN_FINISHED"}"#.into()];
//! append.change.status = Some(StatusChange::to(RunStatus::Finished));
//! store.append(append).await?;
//!
//! let Log::Exact(log) = store.read(&owner, &run.run, None, usize::MAX).await? else { panic!("all events are retained") };
//! assert_eq!(log.events.len(), 2);
//! assert!(store.lease(&owner, &run.thread).await?.is_none(), "the end of a run releases its thread");
//! # Ok::<(), StoreError>(()) }).unwrap();
//! ```

#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod chunk;
mod clock;
mod copy;
mod error;
mod memory;
mod model;
mod open;
#[cfg(feature = "postgres")]
mod postgres;
mod rules;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;

pub use agentwire_core::event::{RunId, ThreadId};
pub use clock::{Clock, ManualClock, SystemClock, Time};
pub use copy::{CopyError, CopyReport, LogRow, RunDump, ThreadDump, copy};
pub use error::{Conflict, Missing, StoreError};
pub use memory::{MemoryLimits, MemoryStore};
pub use model::{
    Acquire, AgentName, Answer, AnswerSet, ApiKey, Append, Appended, Change, CommandId, CommandReply,
    Created, Delivery, Durability, Feedback, Fence, Holder, KeyChange, KeyChanges, Lease, Log, LogSlice,
    MoveReport, NewFeedback, NewPending, NewRun, NewThread, OpenItem, Owner, Page, PageToken, Pending,
    PendingFilter, PendingId, Quota, QuotaKind, Quotas, RecordedAnswer, Retention, RetentionReport, Run,
    RunKey, RunStatus, Seq, ServerIdentity, Start, StartMode, State, StateChange, Stats, StatusChange,
    StoreSize, TakenCommand, Tenant, Text, TextChange, Thread, ThreadChange, ThreadIds, ThreadQuery, Usage,
    UserId,
};
pub use open::{Options, open, redact_address};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresOptions, PostgresStore};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteOptions, SqliteStore};
pub use store::{BoxFuture, Store};
