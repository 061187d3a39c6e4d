//! Where a gateway keeps what must outlive a connection or a process: threads, runs, their logs, the locks on
//! them, what waits for a person, feedback.
//!
//! [`Store`] is the one seam. [`open`] gives a store by its address (`memory:`, `sqlite:PATH`); every backend
//! passes the same contract suite (`tests/contract/`), and a further one joins by adding one line there.
//!
//! The store knows nothing about formats: an event is opaque bytes with a number, a state is JSON text that
//! nobody here parses. What it does know is who may write what, and in which order:
//!
//! - **Owner.** Every key begins with a tenant and a user. What belongs to somebody else is answered exactly
//!   as what does not exist. That is why even a run id is unique per owner and not per tenant: if another
//!   user's run id could not be used, its existence would show.
//! - **Claim.** A live run (queued, running, paused) is claimed by one process, with an expiry by the store's
//!   clock and a [`Fence`]. Fences are handed out by one counter of the whole store, so that they rise for ever,
//!   even across the deletion and rebirth of a thread. Every append names its fence, and an old one is refused by the store itself.
//! - **Lease.** A thread points at the one run that may change it. The lease is that pointer together with the
//!   run's claim. A queued run has a claim and no lease; a running or paused one has both, unless another run
//!   took the thread over after its claim expired: then it is an orphan and can get nothing but an ending.
//! - **Log.** The events of a run are numbered from 0 without holes. [`Append`] is a compare-and-set on the next
//!   number; the same append again is recognised and does nothing. A change of status, state, messages and pending items rides in
//!   the same transaction as the events that announce it. A status that ends the run frees the thread in that same step.
//! - **Retained or told.** A read is whole, or says what is no longer there ([`Log`]).
//!
//! ```
//! use agentwire_store::*;
//! use std::time::Duration;
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let store = open("memory:", Options::default()).await?;
//! let owner = Owner::new("acme", "ada");
//! let claim = Claim { holder: "gateway-1".into(), address: None, ttl: Duration::from_secs(15) };
//!
//! let Start::Created(run) = store.start(&owner, NewRun::new("thread", "run", "demo", claim)).await? else {
//!     panic!("the thread is free and the run id is new");
//! };
//! let mut append = Append::new(owner.clone(), run.run.clone(), run.fence, run.next_seq);
//! append.events = vec![r#"{"type":"RUN_STARTED"}"#.into(), r#"{"type":"RUN_FINISHED"}"#.into()];
//! append.change.status = Some(StatusChange::to(RunStatus::Finished));
//! store.append(append).await?;
//!
//! let Log::Exact(log) = store.read(&owner, &run.run, None, usize::MAX).await? else { panic!() };
//! assert_eq!(log.events.len(), 2);
//! assert!(store.lease(&owner, &run.thread).await?.is_none());
//! # Ok::<(), StoreError>(()) }).unwrap();
//! ```

mod clock;
mod error;
mod memory;
mod model;
mod open;
mod rules;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;

pub use agentwire_core::event::{RunId, ThreadId};
pub use clock::{Clock, ManualClock, SystemClock, Time};
pub use error::{Conflict, Missing, StoreError};
pub use memory::{MemoryLimits, MemoryStore};
pub use model::{
    Acquire, Answer, Answered, Answering, Append, Appended, Change, Claim, Created, Durability, Entry,
    Feedback, Fence, Holder, Lease, Log, NewFeedback, NewPending, NewRun, NewThread, Owner, Page, PageToken,
    Pending, PendingId, Retained, Retention, Run, RunKey, RunStatus, Seq, Slice, Start, State, StateChange,
    Stats, StatusChange, Tenant, Text, Thread, ThreadChange, ThreadQuery, UserId, Which,
};
pub use open::{Options, open};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteOptions, SqliteStore};
pub use store::{BoxFuture, Store};
