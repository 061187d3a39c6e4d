//! The pure core of agentwire: bytes in, canonical events, bytes out.
//!
//! Nothing in this crate does I/O, needs an async runtime or looks at a clock, so it runs wherever Rust runs.
//! A stream passes through the modules in this order:
//!
//! [`framing`] → [`mod@format`] (a reader) → [`order`] (the guard) → [`mod@format`] (a writer) → [`framing`]
//!
//! [`convert`] is that chain. [`event`] is the vocabulary in the middle, [`fold`] turns events into the
//! messages and state that a client would hold, and [`patch`] is how state changes.

pub mod convert;
pub mod event;
pub mod fold;
pub mod format;
pub mod framing;
pub mod json;
pub mod order;
pub mod patch;
pub mod percent;
pub mod source;
mod tally;

pub use convert::convert;
pub use tally::{Count, Tally};

/// The examples in the pages, so that they keep compiling.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/formats/hai.md")]
    struct Hai;
}
