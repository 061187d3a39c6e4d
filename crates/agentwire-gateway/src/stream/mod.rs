//! The readers of a run: live events in memory, the log's encoding, and one reader per client.

pub(crate) mod live;
pub(crate) mod log_codec;
pub(crate) mod reader;
