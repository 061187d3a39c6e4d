//! The terminal client: text, keys and questions.

pub(crate) mod editor;
pub(crate) mod form;
pub(crate) mod history;
pub(crate) mod markdown;
pub(crate) mod screen;
pub(crate) mod style;
