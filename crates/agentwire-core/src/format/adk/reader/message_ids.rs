//! Unique message ids: the id of the event, unless another turn has it.

use std::collections::HashSet;

use crate::event::{MessageId, RunId};

#[derive(Debug, Default)]
pub(super) struct MessageIds {
    used: HashSet<MessageId>,
    /// Bytes of the used ids.
    size: usize,
    /// Number of generated ids.
    generated: u64,
}

impl MessageIds {
    /// Maximum number of ids that are kept to detect a repeated one.
    const MAX_COUNT: usize = 64 * 1024;
    /// Maximum bytes of ids; [`Self::MAX_COUNT`] of ADK's 36-byte ids need less.
    const MAX_SIZE: usize = 4 * 1024 * 1024;

    /// The id `native` if it is not empty and unused, otherwise a generated one.
    pub(super) fn fresh(&mut self, native: &str, run: &RunId) -> MessageId {
        if self.used.len() >= Self::MAX_COUNT || self.size > Self::MAX_SIZE {
            self.used.clear();
            self.size = 0;
        }
        let mut fresh = MessageId::from(native);
        while native.is_empty() && fresh.is_empty() || self.used.contains(&fresh) {
            fresh = match native {
                "" => format!("{run}:{}", self.generated).into(),
                native => format!("{native}#{}", self.generated).into(),
            };
            self.generated += 1;
        }
        self.size += fresh.len();
        self.used.insert(fresh.clone());
        fresh
    }
}
