//! Native events: frames of an agent's stream before a format reader decodes them, and the hooks on them.

use std::{fmt, time::Duration};

use agentwire_core::{
    event::Event,
    framing::{Frame, Payload},
};
use serde_json::Value;
use tokio::time::Instant;

use super::BoxFuture;
use crate::error::UpstreamError;

/// One event of an agent's stream in its own format, before decoding.
///
/// ```
/// use agentwire_gateway::agent::NativeEvent;
/// use serde_json::json;
///
/// let native = NativeEvent::json(Some("updates"), &json!({"node": "plan"}));
/// assert_eq!(native.to_json(), Some(json!({"node": "plan"})));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeEvent {
    /// SSE: the `event` field. Coded lines: the code.
    pub event: Option<Box<str>>,
    /// SSE: the last `id` field.
    pub id: Option<Box<str>>,
    /// The payload.
    pub data: NativeData,
}

/// The payload of a [`NativeEvent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NativeData {
    /// Text; JSON in nearly all formats.
    Text(String),
    /// Binary.
    Bytes(Vec<u8>),
}

/// The decision of a hook on the decoding of a [`NativeEvent`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Translation {
    /// The format reader decodes it.
    #[default]
    Default,
    /// The format reader does not see it.
    Skip,
    /// The format reader decodes this event instead.
    Replace(NativeEvent),
}

/// The decision on one [`NativeEvent`], with the events that precede the decoded ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Translated {
    /// Events of the hook itself.
    pub before: Vec<Event>,
    /// The decision.
    pub translation: Translation,
}

/// The hooks of one run on native events, as an upstream calls them. Implemented by
/// [`HookSet`](crate::hooks::HookSet).
pub trait NativeHooks: fmt::Debug + Send + Sync {
    /// The largest number of native events in one call; at least 1.
    fn batch_size(&self) -> usize;

    /// Filters native events: those in `out` are decoded instead. `None` if that took until `deadline`. After an error,
    /// `out` has the events before it.
    fn filter<'h>(
        &'h self,
        batch: Vec<NativeEvent>,
        deadline: Option<Instant>,
        out: &'h mut Vec<NativeEvent>,
    ) -> BoxFuture<'h, Result<Option<()>, UpstreamError>>;

    /// Decides on the decoding of native events: one decision for each is added to `out`. After an error, `out` has the
    /// decisions before it.
    fn translate<'h>(
        &'h self,
        batch: &'h [NativeEvent],
        out: &'h mut Vec<Translated>,
    ) -> BoxFuture<'h, Result<(), UpstreamError>>;

    /// Replaces the rest of the stream after [`timeout`](Self::timeout): the returned events are decoded, those in
    /// `out` precede them.
    fn fallback<'h>(
        &'h self,
        out: &'h mut Vec<Event>,
    ) -> BoxFuture<'h, Result<Vec<NativeEvent>, UpstreamError>>;

    /// The longest time between two native events; unlimited if absent.
    fn timeout(&self) -> Option<Duration>;
}

impl NativeEvent {
    /// A native event with a text payload, such as JSON.
    #[must_use]
    pub fn text(event: Option<&str>, text: impl Into<String>) -> Self {
        Self { event: event.map(Into::into), id: None, data: NativeData::Text(text.into()) }
    }

    /// A native event with a JSON payload.
    #[must_use]
    pub fn json(event: Option<&str>, value: &Value) -> Self {
        Self::text(event, value.to_string())
    }

    /// The payload as JSON; `None` if it is not JSON.
    #[must_use]
    pub fn to_json(&self) -> Option<Value> {
        match &self.data {
            NativeData::Text(text) => serde_json::from_str(text).ok(),
            NativeData::Bytes(_) => None,
        }
    }

    /// The same event with another JSON payload.
    #[must_use]
    pub fn with_json(mut self, value: &Value) -> Self {
        self.data = NativeData::Text(value.to_string());
        self
    }

    /// A copy of a frame.
    #[must_use]
    pub fn from_frame(frame: &Frame<'_>) -> Self {
        let data = match frame.data {
            Payload::Text(text) => NativeData::Text(text.to_owned()),
            Payload::Bytes(bytes) => NativeData::Bytes(bytes.to_vec()),
        };
        Self { event: frame.event.map(Into::into), id: frame.id.map(Into::into), data }
    }

    /// The frame that a format reader decodes, at a position in its stream.
    #[must_use]
    pub fn to_frame(&self, index: u64, offset: u64) -> Frame<'_> {
        let data = match &self.data {
            NativeData::Text(text) => Payload::Text(text),
            NativeData::Bytes(bytes) => Payload::Bytes(bytes),
        };
        Frame { index, offset, event: self.event.as_deref(), id: self.id.as_deref(), data }
    }
}
