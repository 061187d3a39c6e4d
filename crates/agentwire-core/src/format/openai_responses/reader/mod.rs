//! The reader: events of a stream and whole responses to canonical events.
//!
//! This module follows the events of a response; `items.rs` emits its items, `tool_items.rs` those of tools.

mod items;
mod tool_items;
mod usage;

use serde_json::value::RawValue;

use self::items::{ItemSink, Items, TextKind};
use super::wire::{PROGRESS, TextEvent};
use crate::{
    event::{Body, Event, StreamEnd},
    format::{
        Reader, Setup,
        model_api::{
            ModelFailure, ModelRun,
            fields::{position, string},
        },
    },
    framing::{Frame, Payload},
    json::{Fields, Path, ReadError, ReadResult, elements, kind_of},
    tally::Tally,
};

/// Reads Responses.
#[derive(Debug)]
pub(super) struct ResponsesReader {
    run: ModelRun,
    tally: Tally,
    items: Items,
}

impl ResponsesReader {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        Self { run: ModelRun::of(setup), tally: Tally::default(), items: Items::default() }
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
            Some(b'<') => {
                Err(ReadError::new("", "expected an event of Responses, found an HTML or XML page"))
            }
            _ if event == Some("error") => {
                self.fail(ModelFailure::without_code(text), out);
                Ok(())
            }
            _ => match serde_json::from_str::<&RawValue>(text) {
                Ok(raw) => {
                    let found = kind_of(raw.get());
                    Err(ReadError::new("", format!("expected an event of Responses, found {found}")))
                }
                Err(error) => Err(ReadError::invalid_json(error)),
            },
        }
    }

    fn read_object(&mut self, event: Option<&str>, text: &str, out: &mut Vec<Event>) -> ReadResult {
        if let Ok(event) = serde_json::from_str::<TextEvent<'_>>(text)
            && event.kind == "response.output_text.delta"
        {
            let (items, mut sink) = self.items(out);
            items.push_text(event.output_index, event.content_index, TextKind::Text, &event.delta, &mut sink);
            return Ok(());
        }
        let mut fields = Fields::parse(text, Path::Root)?;
        let kind = string(&mut fields, "type", &mut self.tally)?.unwrap_or_default();
        match &*kind {
            "response.created" | "response.in_progress" | "response.queued" => {
                let raw = need(&mut fields, "response")?;
                let mut response = Fields::of(raw, Path::Key(&Path::Root, "response"))?;
                self.run.start(out);
                self.read_head(&mut response)?;
            }
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                let raw = need(&mut fields, "response")?;
                let mut response = Fields::of(raw, Path::Key(&Path::Root, "response"))?;
                let status = kind.strip_prefix("response.").unwrap_or_default();
                self.read_end(&mut response, status, out)?;
            }
            "response.output_item.added" | "response.output_item.done" => {
                let index = self.item_index(&mut fields)?;
                let raw = need(&mut fields, "item")?;
                let path = Path::Key(&Path::Root, "item");
                let is_done = kind.ends_with(".done");
                let (items, mut sink) = self.items(out);
                let index = index.unwrap_or_else(|| items.next_index());
                items.read_item(index, raw, path, is_done, &mut sink)?;
            }
            "response.output_text.delta" | "response.output_text.done" => {
                let member = if kind.ends_with(".done") { "text" } else { "delta" };
                self.read_text(&mut fields, TextKind::Text, member, out)?;
            }
            "response.refusal.delta" | "response.refusal.done" => {
                let member = if kind.ends_with(".done") { "refusal" } else { "delta" };
                self.read_text(&mut fields, TextKind::Refusal, member, out)?;
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_summary_text.done" => {
                let member = if kind.ends_with(".done") { "text" } else { "delta" };
                self.read_text(&mut fields, TextKind::Summary, member, out)?;
            }
            "response.reasoning_text.delta" | "response.reasoning_text.done" => {
                let member = if kind.ends_with(".done") { "text" } else { "delta" };
                self.read_text(&mut fields, TextKind::Reasoning, member, out)?;
            }
            "response.output_text.annotation.added" => {
                let index = self.item_index(&mut fields)?;
                if let Some(raw) = fields.take_unless_null("annotation") {
                    let (items, mut sink) = self.items(out);
                    let path = Path::Key(&Path::Root, "annotation");
                    items.push_annotation(index.unwrap_or(0), raw, path, &mut sink)?;
                }
            }
            "response.function_call_arguments.delta"
            | "response.mcp_call_arguments.delta"
            | "response.custom_tool_call_input.delta"
            | "response.code_interpreter_call_code.delta" => {
                let index = self.item_index(&mut fields)?;
                let delta = string(&mut fields, "delta", &mut self.tally)?.unwrap_or_default();
                let (items, mut sink) = self.items(out);
                items.push_arguments(index, &delta, false, &mut sink);
            }
            "response.function_call_arguments.done"
            | "response.mcp_call_arguments.done"
            | "response.custom_tool_call_input.done"
            | "response.code_interpreter_call_code.done" => {
                let index = self.item_index(&mut fields)?;
                let mut whole = None;
                for member in ["arguments", "input", "code"] {
                    whole = whole.or(string(&mut fields, member, &mut self.tally)?);
                }
                let (items, mut sink) = self.items(out);
                items.push_arguments(index, &whole.unwrap_or_default(), true, &mut sink);
            }
            "error" => {
                let failure = match fields.take_unless_null("error") {
                    Some(raw) => {
                        ModelFailure::of_error(raw, Path::Key(&Path::Root, "error"), &mut self.tally)?
                    }
                    None => ModelFailure::of_members(&mut fields, &mut self.tally)?,
                };
                self.fail(failure, out);
            }
            known if PROGRESS.contains(&known) => {}
            known if known.starts_with("response.audio.") => {
                self.tally.note("sound left out", known);
            }
            "" => self.read_untyped(event, &mut fields, out)?,
            other => self.tally.note("unknown event", other),
        }
        Ok(())
    }

    /// An object without a type: a whole response, or an error.
    fn read_untyped(
        &mut self,
        event: Option<&str>,
        fields: &mut Fields<'_, '_>,
        out: &mut Vec<Event>,
    ) -> ReadResult {
        let object = string(fields, "object", &mut self.tally)?.unwrap_or_default();
        if object == "response" {
            self.run.start(out);
            let status = string(fields, "status", &mut self.tally)?.unwrap_or_default();
            return self.read_end(fields, &status, out);
        }
        let failure = match fields.take_unless_null("error") {
            Some(raw) => Some(ModelFailure::of_error(raw, Path::Key(&Path::Root, "error"), &mut self.tally)?),
            None if event == Some("error") => Some(ModelFailure::of_members(fields, &mut self.tally)?),
            None => match fields.take_unless_null("detail") {
                Some(raw) => {
                    Some(ModelFailure::of_detail(raw, Path::Key(&Path::Root, "detail"), &mut self.tally)?)
                }
                None => None,
            },
        };
        match failure {
            Some(failure) => self.fail(failure, out),
            None => self.tally.note("unknown event", if object.is_empty() { "{}" } else { &object }),
        }
        Ok(())
    }

    /// The id and the model of a response.
    fn read_head(&mut self, fields: &mut Fields<'_, '_>) -> ReadResult {
        if let Some(id) = string(fields, "id", &mut self.tally)?.filter(|id| !id.is_empty()) {
            self.items.response.get_or_insert_with(|| id.as_ref().into());
        }
        if let Some(model) = string(fields, "model", &mut self.tally)?.filter(|model| !model.is_empty()) {
            self.items.model = Some(model.into());
        }
        Ok(())
    }

    /// The whole response at its end: items that were not streamed, the usage, and the outcome.
    fn read_end(&mut self, fields: &mut Fields<'_, '_>, status: &str, out: &mut Vec<Event>) -> ReadResult {
        self.run.start(out);
        self.read_head(fields)?;
        let path = fields.path();
        if let Some(raw) = fields.take_unless_null("usage") {
            let usage = usage::read_usage(raw, Path::Key(&path, "usage"))?;
            self.run.usage = Some(crate::event::Usage { model: self.items.model.clone(), ..usage });
        }
        if let Some(raw) = fields.take_unless_null("output") {
            let path = Path::Key(&path, "output");
            for (number, raw) in elements(raw, path)?.into_iter().enumerate() {
                let index = u32::try_from(number).unwrap_or(u32::MAX);
                let (items, mut sink) = self.items(out);
                items.read_item(index, raw, Path::Index(&path, number), true, &mut sink)?;
            }
        }
        let reason = match fields.take_unless_null("incomplete_details") {
            Some(raw) => {
                let mut details = Fields::of(raw, Path::Key(&path, "incomplete_details"))?;
                string(&mut details, "reason", &mut self.tally)?
            }
            None => None,
        };
        let error = match fields.take_unless_null("error") {
            Some(raw) => Some(ModelFailure::of_error(raw, Path::Key(&path, "error"), &mut self.tally)?),
            None => None,
        };
        self.close(out);
        match status {
            "failed" => {
                let failure = error.unwrap_or_else(|| ModelFailure::without_code("the response failed"));
                self.run.fail(failure, out);
            }
            "incomplete" => {
                let reason = reason.as_deref().unwrap_or("incomplete");
                let message = self.items.last_message.clone();
                out.push(Event::new(Body::FinishReason { message, reason: reason.into() }));
                self.run.cut_off = Some(reason.into());
                self.run.finish(false, out);
            }
            _ => match error {
                Some(failure) => self.run.fail(failure, out),
                None => self.run.finish(status == "cancelled", out),
            },
        }
        Ok(())
    }

    fn read_text(
        &mut self,
        fields: &mut Fields<'_, '_>,
        kind: TextKind,
        member: &str,
        out: &mut Vec<Event>,
    ) -> ReadResult {
        let index = self.item_index(fields)?.unwrap_or(0);
        let part = match kind {
            TextKind::Summary => position(fields, "summary_index")?,
            _ => position(fields, "content_index")?,
        };
        let text = string(fields, member, &mut self.tally)?.unwrap_or_default();
        let (items, mut sink) = self.items(out);
        if member == "delta" {
            items.push_text(index, part.unwrap_or(0), kind, &text, &mut sink);
        } else {
            items.complete_text(index, part.unwrap_or(0), kind, &text, &mut sink);
        }
        Ok(())
    }

    /// The index of an event's item; some servers name only its id.
    fn item_index(&mut self, fields: &mut Fields<'_, '_>) -> ReadResult<Option<u32>> {
        let index = position(fields, "output_index")?;
        let id = string(fields, "item_id", &mut self.tally)?;
        Ok(index.or_else(|| self.items.index_of(&id?)))
    }

    fn items<'r>(&'r mut self, out: &'r mut Vec<Event>) -> (&'r mut Items, ItemSink<'r>) {
        self.run.start(out);
        (&mut self.items, ItemSink { out, tally: &mut self.tally, run: &mut self.run })
    }

    fn close(&mut self, out: &mut Vec<Event>) {
        self.items.close(&mut ItemSink { out, tally: &mut self.tally, run: &mut self.run });
    }

    fn fail(&mut self, failure: ModelFailure, out: &mut Vec<Event>) {
        self.close(out);
        self.run.fail(failure, out);
    }
}

fn need<'a>(fields: &mut Fields<'a, '_>, key: &str) -> ReadResult<&'a RawValue> {
    fields.take(key).ok_or_else(|| fields.missing(key, "an object"))
}

impl Reader for ResponsesReader {
    fn read(&mut self, frame: &Frame<'_>, out: &mut Vec<Event>) -> ReadResult {
        self.tally.at_frame(frame.index + 1);
        match frame.data {
            Payload::Text(text) => self.read_frame(frame.event, text, out),
            Payload::Bytes(_) => Err(ReadError::new("", "expected an event of Responses, found binary data")),
        }
    }

    fn end(&mut self, end: &StreamEnd, out: &mut Vec<Event>) {
        if !self.run.is_over() {
            self.close(out);
            self.run.close(end, false, out);
        }
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}
