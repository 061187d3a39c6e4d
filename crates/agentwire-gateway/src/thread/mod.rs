//! The conversation of a thread: its message history and state.

pub(crate) mod history;
