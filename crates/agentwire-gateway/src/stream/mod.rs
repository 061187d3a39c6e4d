//! Following a run: live events in memory, the encoding of the log, and one reader per client.

pub(crate) mod cold;
pub(crate) mod conversations;
pub(crate) mod live;
pub(crate) mod log_codec;
pub(crate) mod output;
pub(crate) mod reader;
pub(crate) mod starts;
