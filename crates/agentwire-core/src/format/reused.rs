//! Distinct ids for tool calls whose native ids repeat.
//!
//! Some servers number the calls of each response anew (`call_0`) or use the tool's name as the id, so that a thread
//! soon holds two calls of one id. A conversation stays clear by position: a result belongs to the last call before
//! it. A user interface identifies calls by their id alone and would append the arguments of the second call to those
//! of the first. So an id that has a result and is then announced by another message gets a number: `call_0`,
//! `call_0#2`, `call_0#3`.

use crate::event::ToolCallId;

/// The next id for `native` after `shown` that `is_free`.
pub(in crate::format) fn next(native: &str, shown: &str, is_free: impl Fn(&str) -> bool) -> ToolCallId {
    let mut number = number(native, shown).unwrap_or(1);
    loop {
        number = number.saturating_add(1);
        let id = format!("{native}#{number}");
        if number == u32::MAX || is_free(&id) {
            return id.into();
        }
    }
}

/// The number of the use of `native` for which `shown` stands, if it is one.
pub(in crate::format) fn number(native: &str, shown: &str) -> Option<u32> {
    match shown.strip_prefix(native)? {
        "" => Some(1),
        rest => rest.strip_prefix('#')?.parse().ok().filter(|number| *number > 1),
    }
}

/// The native id of the call `shown`, where `is_known` recognises the native ids of the conversation.
pub(in crate::format) fn native(shown: &str, is_known: impl Fn(&str) -> bool) -> &str {
    match shown.rsplit_once('#') {
        Some((native, _)) if number(native, shown).is_some() && is_known(native) => native,
        _ => shown,
    }
}
