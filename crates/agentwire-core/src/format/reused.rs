//! Ids of calls that a model uses again.
//!
//! Some servers count the calls of each answer anew (`call_0`) or take the tool's name for the id, so that a
//! thread soon holds two calls of one id. In a conversation that is clear by position: a result belongs to
//! the last call before it. A user interface knows calls by their id alone and would add the arguments of the
//! second to those of the first. So an id that has been answered and is then announced by another message is
//! shown with a number: `call_0`, `call_0#2`, `call_0#3`.

use crate::event::ToolCallId;

/// The first name for `native` behind `shown` that is `free`.
pub(in crate::format) fn next(native: &str, shown: &str, free: impl Fn(&str) -> bool) -> ToolCallId {
    let mut number = number(native, shown).unwrap_or(1);
    loop {
        number = number.saturating_add(1);
        let id = format!("{native}#{number}");
        if number == u32::MAX || free(&id) {
            return id.into();
        }
    }
}

/// Which use of `native` the id `shown` is, if it is one.
pub(in crate::format) fn number(native: &str, shown: &str) -> Option<u32> {
    match shown.strip_prefix(native)? {
        "" => Some(1),
        rest => rest.strip_prefix('#')?.parse().ok().filter(|number| *number > 1),
    }
}

/// The id that the model gave to the call `shown`, where `known` tells the ids of the conversation's calls.
pub(in crate::format) fn native(shown: &str, known: impl Fn(&str) -> bool) -> &str {
    match shown.rsplit_once('#') {
        Some((native, _)) if number(native, shown).is_some() && known(native) => native,
        _ => shown,
    }
}
