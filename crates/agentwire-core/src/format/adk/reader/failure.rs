//! Why a run failed, in ADK's words.
//!
//! A failure can come in four shapes: an event with an error code, a frame of the API server in the place of an
//! event, a JSON body of the API server in the place of a stream, and the end of the connection. Only one
//! terminal event comes of them.

use serde_json::{Value, value::RawValue};

use crate::{
    event::{MessageId, SubagentId},
    format::adk::wire::{AdkEvent, AdkText, ValidationError},
};

/// The code for a failure that came without one: 1.x names none in its error frames.
const UPSTREAM_ERROR: &str = "UPSTREAM_ERROR";
/// The code for a request that the API server refused.
const UPSTREAM_REFUSED: &str = "UPSTREAM_REFUSED";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AdkFailure {
    pub(super) code: Box<str>,
    pub(super) message: Box<str>,
    /// Whose it was, where subagents are shown.
    pub(super) subagent: Option<SubagentId>,
    /// Of an error that a workflow node has raised, which may be tried again.
    pub(super) raised: Option<RaisedError>,
}

/// Where an error was raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RaisedError {
    /// The node.
    pub(super) path: Box<str>,
    /// The messages that it was in the middle of.
    pub(super) said: Vec<MessageId>,
}

impl AdkFailure {
    /// The failure that an event names.
    pub(super) fn of_event(event: &AdkEvent<'_>) -> Option<Self> {
        let code = event.error_code.as_ref().map_or("", AdkText::as_str);
        let message = event.error_message.as_ref().map_or("", AdkText::as_str);
        // Without streaming, ADK gives no code to an answer that was cut off or cut short, only its reason.
        // `OTHER` alone is what adapters make of reasons that they do not know.
        let code = match (code, message, event.finish_reason.as_ref().map(AdkText::as_str)) {
            ("", "", Some(reason)) if reason != "OTHER" => reason,
            _ => code,
        };
        match code {
            "" if message.is_empty() => None,
            "" => Some(Self::new(UPSTREAM_ERROR, message)),
            // A model that stops without a word: ADK puts its reason here, but it is none to fail.
            "STOP" | "FINISH_REASON_UNSPECIFIED" => None,
            code if message.is_empty() => Some(Self::new(code, &format!("the model stopped: {code}"))),
            code => Some(Self::new(code, message)),
        }
    }

    /// The failure that the API server reports in the place of an event, or of a stream.
    pub(super) fn of_server(event: &AdkEvent<'_>) -> Option<Self> {
        if let Some(error) = event.error {
            let details = event.error_details.as_ref();
            let kind = details.and_then(|details| details.kind.as_ref()).map(AdkText::as_str);
            let message = details.and_then(|details| details.message.as_ref()).map(AdkText::as_str);
            let said = plain(error);
            return Some(Self::new(
                kind.filter(|kind| !kind.is_empty()).unwrap_or(UPSTREAM_ERROR),
                message.filter(|message| !message.is_empty()).unwrap_or(&said),
            ));
        }
        let detail = event.detail?;
        let complaints: Vec<ValidationError<'_>> = serde_json::from_str(detail.get()).unwrap_or_default();
        if complaints.is_empty() {
            return Some(Self::new(UPSTREAM_REFUSED, &plain(detail)));
        }
        let each = complaints.iter().map(|complaint| {
            let place: Vec<String> = complaint.location.iter().flatten().map(|raw| plain(raw)).collect();
            let message = complaint.message.as_ref().map_or("", AdkText::as_str);
            format!("{}: {message}", place.join("."))
        });
        Some(Self::new(UPSTREAM_REFUSED, &each.collect::<Vec<_>>().join("; ")))
    }

    /// Whether it is over when the node at `path` goes on: the node that raised it, or one above that.
    pub(super) fn is_behind(&self, path: &str) -> bool {
        self.raised.as_ref().is_some_and(|raised| {
            let below = raised.path.strip_prefix(path).filter(|_| !path.is_empty());
            below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// Whether the code is the class of an exception; the reasons of models are all in capitals.
    pub(super) fn is_class(&self) -> bool {
        self.code.contains(|letter: char| letter.is_ascii_lowercase())
    }

    /// Whether it has a code of ADK's own.
    pub(super) fn is_named(&self) -> bool {
        &*self.code != UPSTREAM_ERROR
    }

    fn new(code: &str, message: &str) -> Self {
        let message = if message.is_empty() { code } else { message };
        Self { code: code.into(), message: message.into(), subagent: None, raised: None }
    }
}

/// A string as it is, anything else as JSON.
fn plain(raw: &RawValue) -> String {
    match serde_json::from_str(raw.get()) {
        Ok(Value::String(text)) => text,
        _ => raw.get().to_owned(),
    }
}
