//! Options of the Responses reader: the `-O` keys.

use crate::format::OptionSpec;

/// The keys of `-O`.
pub(super) const OPTIONS: &[OptionSpec] = &[OptionSpec {
    name: "cut_off",
    values: &["reason", "error"],
    about: "reading: whether an incomplete response (`max_output_tokens`, `content_filter`) fails the run",
}];
