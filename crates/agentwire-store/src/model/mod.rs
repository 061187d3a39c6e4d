//! Stored records, and the requests and results of [`Store`](crate::Store) methods.

mod api_key;
mod claim;
mod key;
mod log;
mod mailbox;
mod maintenance;
mod pending;
mod quota;
mod run;
mod thread;

pub use api_key::{ApiKey, KeyChange, KeyChanges};
pub use claim::{Acquire, Lease};
pub use key::{AgentName, Fence, Holder, Owner, PendingId, RunKey, Seq, Tenant, UserId};
pub use log::{Append, Appended, Change, Durability, Log, LogSlice, StateChange, StatusChange};
pub use mailbox::{CommandId, CommandReply, Delivery, TakenCommand};
pub use maintenance::{MoveReport, Retention, RetentionReport, ServerIdentity, Stats, StoreSize, Usage};
pub use pending::{Answer, AnswerSet, NewPending, OpenItem, Pending, PendingFilter, RecordedAnswer};
pub use quota::{Quota, QuotaKind, Quotas};
pub use run::{NewRun, Run, RunStatus, Start, StartMode};
pub use thread::{
    Created, Feedback, NewFeedback, NewThread, Page, PageToken, State, TextChange, Thread, ThreadChange,
    ThreadIds, ThreadQuery,
};

/// Text, mostly JSON, that the store never parses. Reference-counted, so that a clone is cheap.
pub type Text = std::sync::Arc<str>;

pub(crate) fn text_len(text: &Option<Text>) -> usize {
    text.as_ref().map_or(0, |text| text.len())
}
