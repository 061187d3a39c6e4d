//! The reader: events of a stream and whole messages to canonical events.
//!
//! This module follows the events of a response; `response.rs` emits its blocks.

mod citations;
mod response;
mod results;
mod usage;

use serde_json::value::RawValue;

use self::response::{ResponseSink, ResponseState};
use super::wire::{CUT_OFF, TextEvent};
use crate::{
    event::{Event, StreamEnd},
    format::{
        Reader, Setup,
        model_api::{
            ModelFailure, ModelRun,
            fields::{position, string},
        },
    },
    framing::{Frame, Payload},
    json::{Fields, Object, Path, ReadError, ReadResult, elements, json, kind_of},
    tally::Tally,
};

/// Known members of a message without a canonical event.
const MESSAGE_IGNORED: &[&str] =
    &["type", "role", "stop_sequence", "container", "context_management", "diagnostics"];

/// Reads Messages.
#[derive(Debug)]
pub(super) struct AnthropicReader {
    run: ModelRun,
    tally: Tally,
    response: Option<ResponseState>,
}

impl AnthropicReader {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        Self { run: ModelRun::of(setup), tally: Tally::default(), response: None }
    }

    fn read_frame(&mut self, event: Option<&str>, text: &str, out: &mut Vec<Event>) -> ReadResult {
        let text = text.trim();
        if text.is_empty() || text == "[DONE]" {
            return Ok(());
        }
        if self.run.is_over() {
            self.tally.note("frame behind the end", &text.chars().take(20).collect::<String>());
            return Ok(());
        }
        match text.as_bytes().first() {
            Some(b'{') => self.read_object(event, text, out),
            Some(b'<') => Err(ReadError::new("", "expected an event of Messages, found an HTML or XML page")),
            _ if event == Some("error") => {
                self.fail(ModelFailure::without_code(text), out);
                Ok(())
            }
            _ => match serde_json::from_str::<&RawValue>(text) {
                Ok(raw) => {
                    let found = kind_of(raw.get());
                    Err(ReadError::new("", format!("expected an event of Messages, found {found}")))
                }
                Err(error) => Err(ReadError::invalid_json(error)),
            },
        }
    }

    fn read_object(&mut self, event: Option<&str>, text: &str, out: &mut Vec<Event>) -> ReadResult {
        if let Ok(event) = serde_json::from_str::<TextEvent<'_>>(text)
            && event.kind == "content_block_delta"
            && event.delta.kind == "text_delta"
            && let Some((response, mut sink)) = self.response(out)
        {
            response.push_text(event.index, &event.delta.text, &mut sink);
            return Ok(());
        }
        let mut fields = Fields::parse(text, Path::Root)?;
        let kind = string(&mut fields, "type", &mut self.tally)?.unwrap_or_default();
        match &*kind {
            "ping" => {}
            "message_start" => {
                let raw = fields.take("message").ok_or_else(|| fields.missing("message", "an object"))?;
                self.read_message(&mut Fields::of(raw, Path::Key(&Path::Root, "message"))?, out)?;
            }
            "message" => {
                self.read_message(&mut fields, out)?;
                self.finish(out);
                return Ok(());
            }
            "content_block_start" => {
                let index = need_index(&mut fields)?;
                let raw = fields
                    .take("content_block")
                    .ok_or_else(|| fields.missing("content_block", "an object"))?;
                if let Some((response, mut sink)) = self.response(out) {
                    let path = Path::Key(&Path::Root, "content_block");
                    response.start_block(index, raw, path, &mut sink)?;
                }
            }
            "content_block_delta" => {
                let index = need_index(&mut fields)?;
                let raw = fields.take("delta").ok_or_else(|| fields.missing("delta", "an object"))?;
                if let Some((response, mut sink)) = self.response(out) {
                    response.push_delta(index, raw, Path::Key(&Path::Root, "delta"), &mut sink)?;
                }
            }
            "content_block_stop" => {
                let index = need_index(&mut fields)?;
                if let Some((response, mut sink)) = self.response(out) {
                    response.stop_block(index, &mut sink);
                }
            }
            "message_delta" => {
                if let Some(raw) = fields.take_unless_null("usage") {
                    self.run_usage().update(raw, Path::Key(&Path::Root, "usage"))?;
                }
                let raw = fields.take("delta").ok_or_else(|| fields.missing("delta", "an object"))?;
                let mut delta = Fields::of(raw, Path::Key(&Path::Root, "delta"))?;
                self.read_stop(&mut delta, out)?;
                for key in MESSAGE_IGNORED {
                    delta.take(key);
                }
                delta.rest("delta", &mut self.tally)?;
                fields.take("context_management");
            }
            "message_stop" => {
                self.finish(out);
                return Ok(());
            }
            "error" => {
                let failure = match fields.take_unless_null("error") {
                    Some(raw) => {
                        ModelFailure::of_error(raw, Path::Key(&Path::Root, "error"), &mut self.tally)?
                    }
                    None => ModelFailure::of_members(&mut fields, &mut self.tally)?,
                };
                self.fail(failure, out);
                return Ok(());
            }
            other => {
                // Proxies send their own errors without a type.
                let error = match fields.take_unless_null("error") {
                    Some(raw) if other.is_empty() || event == Some("error") => {
                        Some(ModelFailure::of_error(raw, Path::Key(&Path::Root, "error"), &mut self.tally)?)
                    }
                    _ => None,
                };
                let detail = match fields.take_unless_null("detail") {
                    Some(raw) if other.is_empty() => {
                        Some(ModelFailure::of_detail(raw, Path::Key(&Path::Root, "detail"), &mut self.tally)?)
                    }
                    _ => None,
                };
                match error.or(detail) {
                    Some(failure) => self.fail(failure, out),
                    None => self.tally.note("unknown event", if other.is_empty() { "{}" } else { other }),
                }
                return Ok(());
            }
        }
        fields.rest(&kind, &mut self.tally)?;
        Ok(())
    }

    /// The head of a response, or a whole one.
    fn read_message(&mut self, fields: &mut Fields<'_, '_>, out: &mut Vec<Event>) -> ReadResult {
        if self.response.is_some() {
            self.tally.note("message left out", "a stream holds one");
            return Ok(());
        }
        self.run.start(out);
        let id = string(fields, "id", &mut self.tally)?.filter(|id| !id.is_empty());
        let model = string(fields, "model", &mut self.tally)?.filter(|model| !model.is_empty());
        self.response = Some(ResponseState::new(id.map(Into::into), model.map(Into::into)));
        let path = fields.path();
        if let Some(raw) = fields.take_unless_null("usage") {
            self.run_usage().update(raw, Path::Key(&path, "usage"))?;
        }
        if let Some(raw) = fields.take_unless_null("content")
            && let Some((response, mut sink)) = self.response(out)
        {
            let path = Path::Key(&path, "content");
            for (number, raw) in elements(raw, path)?.into_iter().enumerate() {
                let index = u32::try_from(number).unwrap_or(u32::MAX);
                response.start_block(index, raw, Path::Index(&path, number), &mut sink)?;
                response.stop_block(index, &mut sink);
            }
        }
        self.read_stop(fields, out)?;
        for key in MESSAGE_IGNORED {
            fields.take(key);
        }
        fields.rest("message", &mut self.tally)?;
        Ok(())
    }

    /// The reason why the model stopped, if the response has one already.
    fn read_stop(&mut self, fields: &mut Fields<'_, '_>, out: &mut Vec<Event>) -> ReadResult {
        let path = fields.path();
        let details = match fields.take_unless_null("stop_details") {
            Some(raw) => Some(json(raw, Path::Key(&path, "stop_details"), &mut self.tally)?),
            None => None,
        };
        let Some(reason) =
            string(fields, "stop_reason", &mut self.tally)?.filter(|reason| !reason.is_empty())
        else {
            return Ok(());
        };
        if CUT_OFF.contains(&&*reason) {
            self.run.cut_off = Some(reason.as_ref().into());
        }
        let metadata = details.map(|details| Object::from_entries([("anthropic.stop_details", details)]));
        if let Some((response, mut sink)) = self.response(out) {
            response.stop(&reason, metadata, &mut sink);
        }
        Ok(())
    }

    /// The current response; none before its start, which is counted.
    fn response<'r>(
        &'r mut self,
        out: &'r mut Vec<Event>,
    ) -> Option<(&'r mut ResponseState, ResponseSink<'r>)> {
        let Some(response) = &mut self.response else {
            self.tally.note("event left out", "it is not within a message");
            return None;
        };
        Some((response, ResponseSink { out, tally: &mut self.tally, run: &mut self.run }))
    }

    fn run_usage(&mut self) -> usage::RunningUsage<'_> {
        let model = self.response.as_ref().and_then(|response| response.model.clone());
        usage::RunningUsage { usage: self.run.usage.get_or_insert_default(), model }
    }

    fn close(&mut self, out: &mut Vec<Event>) {
        if let Some(response) = &mut self.response {
            response.close(&mut ResponseSink { out, tally: &mut self.tally, run: &mut self.run });
        }
    }

    fn finish(&mut self, out: &mut Vec<Event>) {
        self.close(out);
        self.run.finish(false, out);
    }

    fn fail(&mut self, failure: ModelFailure, out: &mut Vec<Event>) {
        self.close(out);
        self.run.fail(failure, out);
    }
}

fn need_index(fields: &mut Fields<'_, '_>) -> ReadResult<u32> {
    position(fields, "index")?.ok_or_else(|| fields.missing("index", "a number"))
}

impl Reader for AnthropicReader {
    fn read(&mut self, frame: &Frame<'_>, out: &mut Vec<Event>) -> ReadResult {
        self.tally.at_frame(frame.index + 1);
        match frame.data {
            Payload::Text(text) => self.read_frame(frame.event, text, out),
            Payload::Bytes(_) => Err(ReadError::new("", "expected an event of Messages, found binary data")),
        }
    }

    fn end(&mut self, end: &StreamEnd, out: &mut Vec<Event>) {
        if !self.run.is_over() {
            self.close(out);
            let is_complete = self.response.as_ref().is_some_and(|response| response.is_stopped);
            self.run.close(end, is_complete, out);
        }
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}
