//! The things a store keeps, and the requests and answers around them.

mod claim;
mod key;
mod log;
mod pending;
mod run;
mod thread;
mod upkeep;

pub use claim::{Acquire, Claim, Lease};
pub use key::{Fence, Holder, Owner, PendingId, RunKey, Seq, Tenant, UserId};
pub use log::{Append, Appended, Change, Durability, Log, Slice, StateChange, StatusChange};
pub use pending::{Answer, Answered, Answering, NewPending, Pending, Which};
pub use run::{Entry, NewRun, Run, RunStatus, Start};
pub use thread::{
    Created, Feedback, NewFeedback, NewThread, Page, PageToken, State, Thread, ThreadChange, ThreadQuery,
};
pub use upkeep::{Retained, Retention, Stats};

/// Text, mostly JSON, that the store carries and never looks into. A clone is a counter.
pub type Text = std::sync::Arc<str>;

pub(crate) fn text_len(text: &Option<Text>) -> usize {
    text.as_ref().map_or(0, |text| text.len())
}
