//! Failures of a run as ADK reports them.
//!
//! A failure arrives in one of four forms: an event with an error code, an error frame of the API server in place of
//! an event, a JSON error body in place of a stream, or the end of the connection. All of them lead to one terminal
//! event.

use serde_json::{Value, value::RawValue};

use crate::{
    codes,
    event::{MessageId, SubagentId},
    format::adk::wire::{AdkEvent, AdkText, ValidationError},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AdkFailure {
    pub(super) code: Box<str>,
    pub(super) message: Box<str>,
    /// The subagent that failed, with `subagents=on`.
    pub(super) subagent: Option<SubagentId>,
    /// Set if a workflow node raised the error: the workflow may retry the node.
    pub(super) raised: Option<RaisedError>,
}

/// The origin of an error that a workflow node raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RaisedError {
    /// The path of the node.
    pub(super) path: Box<str>,
    /// The messages of its unfinished turn.
    pub(super) unfinished: Vec<MessageId>,
}

impl AdkFailure {
    /// The failure in an event, if it has one.
    pub(super) fn of_event(event: &AdkEvent<'_>) -> Option<Self> {
        let code = event.error_code.as_ref().map_or("", AdkText::as_str);
        let message = event.error_message.as_ref().map_or("", AdkText::as_str);
        // Without streaming, ADK sets no error code on a truncated or blocked text, only the finish reason. Adapters
        // map unknown reasons to `OTHER`, so that one alone is no failure.
        let code = match (code, message, event.finish_reason.as_ref().map(AdkText::as_str)) {
            ("", "", Some(reason)) if reason != "OTHER" => reason,
            _ => code,
        };
        match code {
            "" if message.is_empty() => None,
            "" => Some(Self::new(codes::UPSTREAM_ERROR, message)),
            // ADK copies the finish reason into the error code when a model stops without any text.
            "STOP" | "FINISH_REASON_UNSPECIFIED" => None,
            code if message.is_empty() => Some(Self::new(code, &format!("the model stopped: {code}"))),
            code => Some(Self::new(code, message)),
        }
    }

    /// The failure in an error frame or error body of the API server, if the object is one.
    pub(super) fn of_server(event: &AdkEvent<'_>) -> Option<Self> {
        if let Some(error) = event.error {
            let details = event.error_details.as_ref();
            let kind = details.and_then(|details| details.kind.as_ref()).map(AdkText::as_str);
            let message = details.and_then(|details| details.message.as_ref()).map(AdkText::as_str);
            let fallback = plain(error);
            return Some(Self::new(
                kind.filter(|kind| !kind.is_empty()).unwrap_or(codes::UPSTREAM_ERROR),
                message.filter(|message| !message.is_empty()).unwrap_or(&fallback),
            ));
        }
        let detail = event.detail?;
        let errors: Vec<ValidationError<'_>> = serde_json::from_str(detail.get()).unwrap_or_default();
        if errors.is_empty() {
            return Some(Self::new(codes::UPSTREAM_REFUSED, &plain(detail)));
        }
        let messages = errors.iter().map(|error| {
            let location: Vec<String> = error.location.iter().flatten().map(|raw| plain(raw)).collect();
            let message = error.message.as_ref().map_or("", AdkText::as_str);
            format!("{}: {message}", location.join("."))
        });
        Some(Self::new(codes::UPSTREAM_REFUSED, &messages.collect::<Vec<_>>().join("; ")))
    }

    /// True if progress of the node at `path` shows that the workflow recovered: it is the node that raised the error,
    /// or an ancestor.
    pub(super) fn is_recovered_by(&self, path: &str) -> bool {
        self.raised.as_ref().is_some_and(|raised| {
            let below = raised.path.strip_prefix(path).filter(|_| !path.is_empty());
            below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// True if the code is the class of an exception; finish reasons of models are all upper case.
    pub(super) fn is_exception(&self) -> bool {
        self.code.contains(|letter: char| letter.is_ascii_lowercase())
    }

    /// True if ADK sent a code.
    pub(super) fn has_code(&self) -> bool {
        &*self.code != codes::UPSTREAM_ERROR
    }

    fn new(code: &str, message: &str) -> Self {
        let message = if message.is_empty() { code } else { message };
        Self { code: code.into(), message: message.into(), subagent: None, raised: None }
    }
}

/// The content of a JSON string; any other value as JSON text.
fn plain(raw: &RawValue) -> String {
    match serde_json::from_str(raw.get()) {
        Ok(Value::String(text)) => text,
        _ => raw.get().to_owned(),
    }
}
