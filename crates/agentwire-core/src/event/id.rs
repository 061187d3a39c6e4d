//! Ids: opaque strings, one type per kind, cheap to clone.
//!
//! A clone counts a reference instead of copying the text, because every text delta holds the id of its message and
//! must not allocate more than its own text.

use std::sync::Arc;

/// Defines id types: shared strings that cannot be mixed up with each other.
///
/// ```
/// agentwire_core::string_id! {
///     /// The id of a tenant.
///     TenantId;
/// }
/// assert_eq!(TenantId::from("acme").as_str(), "acme");
/// ```
#[macro_export]
macro_rules! string_id {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(::std::sync::Arc<str>);

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
        impl From<::std::sync::Arc<str>> for $name {
            fn from(text: ::std::sync::Arc<str>) -> Self {
                Self(text)
            }
        }
        impl From<$name> for ::std::sync::Arc<str> {
            fn from(id: $name) -> Self {
                id.0
            }
        }
        impl ::std::ops::Deref for $name {
            type Target = str;
            fn deref(&self) -> &str {
                &self.0
            }
        }
        impl ::std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Debug::fmt(&*self.0, f)
            }
        }
        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    )+};
}

string_id! {
    /// A conversation.
    ThreadId;
    /// One request in a thread, together with its events.
    RunId;
    /// A message: text, reasoning, tool result or activity.
    MessageId;
    /// A tool call; the model chooses the id.
    ToolCallId;
    /// One invocation of a subagent.
    SubagentId;
    /// An interrupt: a question that a run waits for.
    InterruptId;
}

/// Returns one shared allocation per distinct id.
///
/// A stream repeats the same few ids. The last one is compared first, which suffices for a long text. The table is
/// emptied at [`Interner::LIMIT`] entries or [`Interner::MAX_SIZE`] bytes: a repeated id then costs one more
/// allocation and is otherwise the same id.
#[derive(Debug, Default)]
pub struct Interner {
    last: Option<Arc<str>>,
    seen: std::collections::HashSet<Arc<str>>,
    size: usize,
}

impl Interner {
    /// The most distinct ids in the table; a run rarely has a hundred.
    pub const LIMIT: usize = 4096;
    /// The most bytes of ids in the table; [`Interner::LIMIT`] ids of 100 bytes take less.
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
