//! Human in the loop: pending items, the answers to them, and the approval gate.

pub(crate) mod answers;
pub(crate) mod approval;
pub(crate) mod pending;
mod schema;
