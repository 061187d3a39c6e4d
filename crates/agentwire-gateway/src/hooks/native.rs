//! An event of an agent's own stream, as hooks see it.

use agentwire_core::framing::{Frame, Payload};
use serde_json::Value;

/// One event of an agent's own stream: a frame, before anybody has understood it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Native {
    /// SSE: the `event` field. Coded lines: the code.
    pub event: Option<Box<str>>,
    /// SSE: the last `id` field.
    pub id: Option<Box<str>>,
    /// What it holds.
    pub data: NativeData,
}

/// What an event of an agent's own stream holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NativeData {
    /// Text, JSON in nearly all formats.
    Text(String),
    /// Binary.
    Bytes(Vec<u8>),
}

/// What becomes of an event of an agent's own stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Translation {
    /// The reader translates it.
    Default,
    /// The reader does not see it.
    Skip,
    /// The reader translates this instead.
    Replace(Native),
}

impl Native {
    /// An event that is text, such as JSON.
    #[must_use]
    pub fn text(event: Option<&str>, text: impl Into<String>) -> Self {
        Self { event: event.map(Into::into), id: None, data: NativeData::Text(text.into()) }
    }

    /// An event that is JSON.
    #[must_use]
    pub fn json(event: Option<&str>, value: &Value) -> Self {
        Self::text(event, value.to_string())
    }

    /// What it holds as JSON, if it is.
    #[must_use]
    pub fn to_json(&self) -> Option<Value> {
        match &self.data {
            NativeData::Text(text) => serde_json::from_str(text).ok(),
            NativeData::Bytes(_) => None,
        }
    }

    /// The same event with other JSON.
    #[must_use]
    pub fn with_json(mut self, value: &Value) -> Self {
        self.data = NativeData::Text(value.to_string());
        self
    }

    pub(crate) fn of(frame: &Frame<'_>) -> Self {
        let data = match frame.data {
            Payload::Text(text) => NativeData::Text(text.to_owned()),
            Payload::Bytes(bytes) => NativeData::Bytes(bytes.to_vec()),
        };
        Self { event: frame.event.map(Into::into), id: frame.id.map(Into::into), data }
    }

    pub(crate) fn frame(&self, index: u64, offset: u64) -> Frame<'_> {
        let data = match &self.data {
            NativeData::Text(text) => Payload::Text(text),
            NativeData::Bytes(bytes) => Payload::Bytes(bytes),
        };
        Frame { index, offset, event: self.event.as_deref(), id: self.id.as_deref(), data }
    }
}
