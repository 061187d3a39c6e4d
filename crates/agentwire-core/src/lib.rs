//! The pure core of agentwire: bytes of one agent protocol in, canonical events, bytes of another protocol out.
//!
//! This crate does no I/O, needs no async runtime and reads no clock, so it runs wherever Rust runs. A stream passes
//! through the modules in this order:
//!
//! ```text
//!            ┌──────────────── source ────────────────┐
//!   bytes ──▶│ framing ──▶ frames ──▶ format (reader) │──▶ events ──▶ order (guard) ──▶ valid events
//!            └────────────────────────────────────────┘                                      │
//!                                                        ┌──────────────────────┬────────────┘
//!                                                        ▼                      ▼
//!                                              format (writer) ──▶ framing    fold ──▶ messages, state
//!                                                        │
//!                                                        ▼
//!                                                      bytes
//! ```
//!
//! # Convert a stream
//!
//! ```
//! let openai = b"data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
//! let ag_ui = agentwire_core::convert("openai", "ag-ui", openai)?;
//! assert!(ag_ui.starts_with(b"data: {\"type\":\"RUN_STARTED\""));
//! # Ok::<(), agentwire_core::convert::ConvertError>(())
//! ```
//!
//! [`convert::Converter`] does the same piece by piece, and reports every loss.
//!
//! # Read events and fold them
//!
//! [`GuardedSource`](source::GuardedSource) decodes any of the [formats](format::FORMATS) and repairs violations of the
//! [order rules](order::Rule). [`Fold`](fold::Fold) turns the events into the messages and state of a client.
//!
//! ```
//! use agentwire_core::{fold::Fold, format::Format, framing::Framing, source::{GuardedSource, SourceOptions}};
//!
//! let lines = b"{\"type\":\"TEXT_MESSAGE_CONTENT\",\"messageId\":\"m1\",\"delta\":\"Hello\"}\n";
//! let format = Format::find("ag-ui").unwrap();
//! let mut source = GuardedSource::new(format, Framing::Lines, &SourceOptions::default()).unwrap();
//! let mut fold = Fold::new();
//! for event in source.events([lines]) {
//!     fold.apply(&event?);
//! }
//! assert_eq!(fold.messages()[0].id.as_str(), "m1");
//! assert!(source.repairs().any(|(rule, _)| rule.name() == "run-first"));
//! # Ok::<(), agentwire_core::source::InputError>(())
//! ```
//!
//! # Modules
//!
//! * [`event`]: canonical events, messages and requests; [`json`] and [`patch`] are the values inside them.
//! * [`framing`]: SSE, JSON lines, JSON arrays, length-prefixed binary.
//! * [`mod@format`]: readers and writers, one folder per format.
//! * [`order`]: the rules of a valid stream, with a checker and a guard.
//! * [`source`]: bytes to events; [`mod@convert`]: bytes to bytes.
//! * [`fold`]: events to messages and state, compaction, and preludes for late readers.

pub mod codes;
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

/// Compiles the examples in the pages.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../CONTRIBUTING.md")]
    struct Contributing;
    #[doc = include_str!("../../../docs/formats/hai.md")]
    struct Hai;
}
