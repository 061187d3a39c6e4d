//! The stream modes that a client asks for.

use crate::format::Options;

/// The chosen modes, and whether the stream has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Modes {
    pub(super) messages: bool,
    /// `messages`: each message so far, with every piece.
    pub(super) partials: bool,
    pub(super) values: bool,
    pub(super) updates: bool,
    pub(super) custom: bool,
    pub(super) tasks: bool,
    pub(super) events: bool,
    /// True until the first event is written.
    pub(super) is_unstarted: bool,
}

impl Modes {
    /// Those of the option `modes`; without it all but `tasks` and `events`.
    pub(super) fn of(options: &Options) -> Self {
        let asked = options.get("modes").unwrap_or("messages-tuple,values,updates,custom");
        let has = |name: &str| asked.split(',').any(|mode| mode.trim() == name);
        Self {
            messages: has("messages-tuple"),
            partials: has("messages"),
            values: has("values"),
            updates: has("updates"),
            custom: has("custom"),
            tasks: has("tasks"),
            events: has("events"),
            is_unstarted: true,
        }
    }
}
