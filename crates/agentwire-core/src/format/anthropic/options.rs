//! Options of the Messages reader: the `-O` keys.

use crate::format::OptionSpec;

/// The keys of `-O`.
pub(super) const OPTIONS: &[OptionSpec] = &[OptionSpec {
    name: "cut_off",
    values: &["reason", "error"],
    about: "reading: whether a response that ended with `max_tokens`, `model_context_window_exceeded` or `refusal` fails the run",
}];
