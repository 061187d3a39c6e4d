//! Names of things: cheap to clone, impossible to mix up.
//!
//! Every id is an opaque string of whoever made it. A clone is a counter, not a copy, because a text
//! delta names its message and must not allocate more than its own text.

use std::{borrow::Borrow, fmt, ops::Deref, sync::Arc};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }
        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }
        impl From<Arc<str>> for $name {
            fn from(text: Arc<str>) -> Self {
                Self(text)
            }
        }
        impl From<$name> for Arc<str> {
            fn from(id: $name) -> Self {
                id.0
            }
        }
        impl Deref for $name {
            type Target = str;
            fn deref(&self) -> &str {
                &self.0
            }
        }
        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )+};
}

ids! {
    /// A conversation.
    ThreadId;
    /// One request in a thread, together with its events.
    RunId;
    /// A message: text, reasoning, tool result or activity.
    MessageId;
    /// A call of a tool, named by the model that made it.
    ToolCallId;
    /// One invocation of a subagent.
    SubagentId;
    /// Something a run waits for.
    InterruptId;
}

/// Hands out one shared allocation per distinct id.
///
/// A stream names the same few ids over and over. The last one is compared first, which is all that a long
/// answer ever needs. The table is emptied at [`Interner::LIMIT`] entries or [`Interner::MAX_SIZE`] bytes: an id
/// seen again after that costs one more allocation and is otherwise the same id.
#[derive(Debug, Default)]
pub struct Interner {
    last: Option<Arc<str>>,
    seen: std::collections::HashSet<Arc<str>>,
    size: usize,
}

impl Interner {
    /// Beyond this many distinct ids the table starts anew; a run rarely has a hundred.
    pub const LIMIT: usize = 4096;
    /// Beyond this many bytes of ids as well; [`Interner::LIMIT`] ids of 100 bytes take less.
    pub const MAX_SIZE: usize = 1 << 20;

    /// The shared form of `text`.
    pub fn get<I: From<Arc<str>>>(&mut self, text: &str) -> I {
        if let Some(last) = &self.last
            && **last == *text
        {
            return I::from(last.clone());
        }
        let shared = match self.seen.get(text) {
            Some(known) => known.clone(),
            None => {
                if self.seen.len() >= Self::LIMIT || self.size + text.len() > Self::MAX_SIZE {
                    self.seen.clear();
                    self.size = 0;
                }
                self.size += text.len();
                let new: Arc<str> = text.into();
                self.seen.insert(new.clone());
                new
            }
        };
        self.last = Some(shared.clone());
        I::from(shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_allocation_per_id() {
        let mut interner = Interner::default();
        let a: MessageId = interner.get("m1");
        let _: MessageId = interner.get("m2");
        let b: MessageId = interner.get("m1");
        assert!(Arc::ptr_eq(&a.0, &b.0));
    }

    #[test]
    fn stays_bounded() {
        let mut interner = Interner::default();
        for n in 0..Interner::LIMIT * 3 {
            let _: RunId = interner.get(&n.to_string());
        }
        assert!(interner.seen.len() <= Interner::LIMIT);
    }
}
