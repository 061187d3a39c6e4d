//! Patterns of schemas, which have the syntax of JavaScript.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// The most steps back of a pattern that is matched by trying.
const MAX_BACKTRACKS: usize = 10_000;

/// Takes a time linear in the text; only a pattern that cannot is matched by trying, within a limit.
pub(super) enum Pattern {
    Linear(regex::Regex),
    Trying(Box<fancy_regex::Regex>),
}

impl Pattern {
    /// `None` if it is no pattern.
    pub(super) fn new(pattern: &str) -> Option<Self> {
        let pattern = jsonschema_regex::to_rust_regex(pattern).ok()?;
        let trying = || {
            let built = fancy_regex::RegexBuilder::new(&pattern).backtrack_limit(MAX_BACKTRACKS).build();
            built.ok().map(|regex| Self::Trying(Box::new(regex)))
        };
        regex::Regex::new(&pattern).ok().map(Self::Linear).or_else(trying)
    }

    /// `None` if it took too long.
    pub(super) fn is_match(&self, text: &str) -> Option<bool> {
        // Some patterns panic in `regex-automata` 0.4 (rust-lang/regex issue 1344).
        catch_unwind(AssertUnwindSafe(|| match self {
            Self::Linear(regex) => Some(regex.is_match(text)),
            Self::Trying(regex) => regex.is_match(text).ok(),
        }))
        .unwrap_or(None)
    }
}
