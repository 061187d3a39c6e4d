//! The options of AG-UI (`-O key=value`) and their parsed form.

use crate::format::{OptionSpec, Options};

pub(crate) const OPTIONS: &[OptionSpec] = &[OptionSpec {
    name: "old_shapes",
    values: &["accept", "refuse"],
    about: "reading: whether shapes that the official client 1.0.0 refuses are understood all the same",
}];

/// The parsed form of [`OPTIONS`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct AgUiOptions {
    /// Rejects every shape that the official client 1.0.0 rejects.
    pub(crate) refuse_old_shapes: bool,
}

impl From<&Options> for AgUiOptions {
    fn from(options: &Options) -> Self {
        Self { refuse_old_shapes: options.is("old_shapes", "refuse") }
    }
}
