//! The ids of a conversation; servers reuse ids.

use std::collections::HashSet;

/// Maximum number of ids that are kept to detect repeated ones; beyond it, all ids are generated.
const MAX_IDS: usize = 64 * 1024;

/// Message and call ids in the conversation.
#[derive(Debug)]
pub(in crate::format) struct UsedIds(HashSet<Box<str>>);

impl UsedIds {
    pub(in crate::format) fn new(ids: HashSet<Box<str>>) -> Self {
        Self(ids)
    }

    /// The id from the server if it is not empty and unused, otherwise the generated one.
    pub(in crate::format) fn choose<I: for<'a> From<&'a str> + std::ops::Deref<Target = str>>(
        &mut self,
        native: Option<&str>,
        generated: I,
    ) -> I {
        let native = native.filter(|id| !id.is_empty() && self.0.len() < MAX_IDS && !self.0.contains(*id));
        let chosen = native.map_or(generated, I::from);
        if self.0.len() < MAX_IDS {
            self.0.insert((*chosen).into());
        }
        chosen
    }
}
