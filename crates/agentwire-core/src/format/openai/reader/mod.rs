//! The reader: chunks and whole responses to canonical events.
//!
//! This module tracks the responses of a stream and ends the run; `chunk.rs` decodes chunks, `choice.rs` emits their
//! content.

mod choice;
mod chunk;
mod media;
mod reasoning_details;
mod tool_calls;
mod usage;

use std::collections::HashSet;

use serde_json::value::RawValue;

use self::choice::{ChoiceSink, ChoiceState};
use crate::{
    codes,
    event::{
        Body, Citation, Event, MessageId, Outcome, RunError, RunFinished, RunStarted, StreamEnd, ToolCallId,
        Usage,
    },
    format::{
        Reader,
        derived_ids::part_id,
        model_api::{ModelFailure, UsedIds},
        openai::{options::OpenAiReaderOptions, wire},
    },
    framing::{Frame, Payload},
    json::{Fields, Path, ReadError, ReadResult, elements, kind_of},
    tally::Tally,
};

/// Maximum number of choices, the limit of the API.
const MAX_CHOICES: usize = 128;
/// Maximum number of citations per response; search responses have a few dozen.
const MAX_SOURCES: usize = 1024;
/// Maximum number of usage records per run: one per response, and a stream is normally one response.
const MAX_USAGE: usize = 1024;

/// Reads chat completions.
#[derive(Debug)]
pub(super) struct OpenAiReader {
    options: OpenAiReaderOptions,
    ids: UsedIds,
    tally: Tally,
    response: Option<ResponseState>,
    response_count: u32,
    usage: Vec<Usage>,
    /// Calls of tools that the request declared.
    pending: Vec<ToolCallId>,
    /// A failure in the current frame, which ends the run after the frame.
    failure: Option<ModelFailure>,
    /// The first finish reason that means truncated or filtered text.
    cut_off: Option<Box<str>>,
    is_started: bool,
    /// True if the terminal event was emitted.
    is_over: bool,
}

/// One response: a sequence of chunks, or one whole object.
#[derive(Debug, Default)]
struct ResponseState {
    /// The id from the server.
    native_id: Box<str>,
    /// The message id of the first choice; absent until there is a choice.
    message: Option<MessageId>,
    model: Option<Box<str>>,
    provider: Option<Box<str>>,
    usage: Option<Usage>,
    choices: Vec<ChoiceState>,
    sources: HashSet<Box<str>>,
}

impl ResponseState {
    /// True if all choices are complete.
    fn is_finished(&self) -> bool {
        !self.choices.is_empty() && self.choices.iter().all(|choice| choice.finish_reason.is_some())
    }
}

impl OpenAiReader {
    pub(super) fn new(mut options: OpenAiReaderOptions) -> Self {
        Self {
            ids: UsedIds::new(std::mem::take(&mut options.used_ids)),
            options,
            tally: Tally::default(),
            response: None,
            response_count: 0,
            usage: Vec::new(),
            pending: Vec::new(),
            failure: None,
            cut_off: None,
            is_started: false,
            is_over: false,
        }
    }

    fn read_frame(&mut self, event: Option<&str>, text: &str, out: &mut Vec<Event>) -> ReadResult {
        let text = text.trim();
        if text.is_empty() {
            return Ok(());
        }
        if self.is_over {
            self.tally.note("frame behind the end", &text.chars().take(20).collect::<String>());
            return Ok(());
        }
        match text.as_bytes().first() {
            _ if text == "[DONE]" => {
                self.finish(None, out);
                Ok(())
            }
            Some(b'{') => self.read_object(event, text, out),
            // Some servers send an error as an array of one.
            Some(b'[') => {
                let raw: &RawValue = serde_json::from_str(text).map_err(ReadError::invalid_json)?;
                for element in elements(raw, Path::Root)? {
                    if self.is_over {
                        break;
                    }
                    self.read_object(event, element.get(), out)?;
                }
                Ok(())
            }
            _ if event == Some("error") => {
                self.fail(ModelFailure::without_code(text), out);
                Ok(())
            }
            Some(b'<') => Err(ReadError::new("", "expected a chat completion, found an HTML or XML page")),
            _ => match serde_json::from_str::<&RawValue>(text) {
                Ok(raw) => {
                    let found = kind_of(raw.get());
                    Err(ReadError::new("", format!("expected a chat completion, found {found}")))
                }
                Err(error) => Err(ReadError::invalid_json(error)),
            },
        }
    }

    fn read_object(&mut self, event: Option<&str>, text: &str, out: &mut Vec<Event>) -> ReadResult {
        if event.is_none()
            && let Ok(chunk) = serde_json::from_str::<wire::TextChunk<'_>>(text)
            && chunk.object.0 == "chat.completion.chunk"
        {
            self.read_text_chunk(&chunk, out);
            return Ok(());
        }
        let mut fields = Fields::parse(text, Path::Root)?;
        let error = match fields.take_unless_null("error") {
            Some(raw) => Some(ModelFailure::of_error(raw, Path::Key(&Path::Root, "error"), &mut self.tally)?),
            None => None,
        };
        let kind = fields.peek("object").map_or("", RawValue::get).trim_matches('"').to_owned();
        let is_completion = kind.starts_with("chat.completion") || kind.starts_with("text_completion");
        let is_known = is_completion || fields.peek("choices").is_some() || fields.peek("usage").is_some();
        let failure = match error {
            Some(error) => Some(error),
            None if is_known => None,
            None if kind == "error" || event == Some("error") => {
                Some(ModelFailure::of_members(&mut fields, &mut self.tally)?)
            }
            None => match fields.take_unless_null("detail") {
                Some(raw) => {
                    Some(ModelFailure::of_detail(raw, Path::Key(&Path::Root, "detail"), &mut self.tally)?)
                }
                None => {
                    self.tally.note("unknown frame", if kind.is_empty() { "{}" } else { &kind });
                    return Ok(());
                }
            },
        };
        self.emit_run_started(out);
        if is_known {
            self.read_chunk(&mut fields, kind == "chat.completion", out)?;
        }
        if let Some(failure) = failure.or_else(|| self.failure.take()) {
            self.fail(failure, out);
        }
        Ok(())
    }

    /// Fast path for the chunk that makes up nearly all of a stream.
    fn read_text_chunk(&mut self, chunk: &wire::TextChunk<'_>, out: &mut Vec<Event>) {
        self.emit_run_started(out);
        let (choice,) = &chunk.choices;
        let delta = &choice.delta;
        let has_text =
            |text: &Option<wire::ChunkText<'_>>| text.as_ref().is_some_and(|text| !text.0.is_empty());
        let has_content =
            has_text(&delta.content) || has_text(&delta.reasoning) || has_text(&delta.reasoning_content);
        self.enter_response(&chunk.id.0, has_content, false, out);
        let non_empty = |text: &Option<wire::ChunkText<'_>>| -> Option<Box<str>> {
            text.as_ref().filter(|text| !text.0.is_empty()).map(|text| text.0.as_ref().into())
        };
        if let Some(response) = &mut self.response {
            if response.model.is_none() {
                response.model = non_empty(&chunk.model);
            }
            if response.provider.is_none() {
                response.provider = non_empty(&chunk.provider);
            }
        }
        let Some((choice, mut sink)) = self.choice(choice.index, out) else { return };
        // Some servers send the same text in both members, for clients of either name.
        let mut reasoning = [&delta.reasoning_content, &delta.reasoning].into_iter().flatten();
        if let Some(text) = reasoning.find(|text| !text.0.is_empty()) {
            choice.push_reasoning(&text.0, &mut sink);
        }
        if let Some(text) = &delta.content {
            choice.push_text(&text.0, &mut sink);
        }
    }

    fn emit_run_started(&mut self, out: &mut Vec<Event>) {
        if !std::mem::replace(&mut self.is_started, true) {
            let OpenAiReaderOptions { thread, run, .. } = &self.options;
            out.push(Event::new(Body::RunStarted(Box::new(RunStarted::new(thread.clone(), run.clone())))));
        }
    }

    /// Makes the response with this id the current one. The ids within one response may differ (Azure's first chunk
    /// has an empty one), so a new response starts only after the current one is complete.
    fn enter_response(&mut self, native: &str, has_content: bool, is_whole: bool, out: &mut Vec<Event>) {
        let is_another = self.response.as_ref().is_some_and(|response| {
            is_whole && !response.choices.is_empty()
                || has_content
                    && response.is_finished()
                    && !native.is_empty()
                    && *response.native_id != *native
        });
        if is_another {
            self.close_response(out);
        }
        let response = self.response.get_or_insert_default();
        if response.message.is_none() && !native.is_empty() && *response.native_id != *native {
            response.native_id = native.into();
        }
    }

    /// Closes the current response.
    fn close_response(&mut self, out: &mut Vec<Event>) {
        let Some(mut response) = self.response.take() else { return };
        let mut sink = ChoiceSink { out, tally: &mut self.tally };
        for choice in &mut response.choices {
            choice.finish(None, &mut sink);
        }
        if let Some(usage) = response.usage.take()
            && self.usage.len() < MAX_USAGE
        {
            self.usage.push(Usage { model: response.model, provider: response.provider, ..usage });
        }
    }

    /// The choice with this index; `None` if it is beyond the limit or not wanted.
    fn choice<'r>(
        &'r mut self,
        index: u32,
        out: &'r mut Vec<Event>,
    ) -> Option<(&'r mut ChoiceState, ChoiceSink<'r>)> {
        let response = self.response.get_or_insert_default();
        let position = response.choices.iter().position(|choice| choice.index == index);
        let position = match position {
            Some(position) => position,
            None if response.choices.len() >= MAX_CHOICES
                || self.options.first_choice_only && !response.choices.is_empty() =>
            {
                self.tally.note("choice left out", &index.to_string());
                return None;
            }
            None => {
                let first = match &response.message {
                    Some(first) => first.clone(),
                    None => {
                        let generated: MessageId = part_id(&self.options.run, "message", self.response_count);
                        self.response_count = self.response_count.saturating_add(1);
                        let first = self.ids.choose(Some(&response.native_id), generated);
                        response.message = Some(first.clone());
                        first
                    }
                };
                let message =
                    if index == 0 { first } else { MessageId::from(format!("{first}:choice:{index}")) };
                response.choices.push(ChoiceState::new(index, message));
                response.choices.len() - 1
            }
        };
        Some((&mut response.choices[position], ChoiceSink { out, tally: &mut self.tally }))
    }

    /// Emits citations that are new in the response.
    fn emit_citations(&mut self, sources: Vec<Citation>, index: u32, out: &mut Vec<Event>) {
        for source in sources {
            let Some((choice, _)) = self.choice(index, out) else { return };
            let message = choice.message.clone();
            let Some(response) = &mut self.response else { return };
            // Search results and citations contain the same pages, and every chunk repeats them.
            let key: Box<str> = match (&source.url, &source.detail) {
                (Some(url), _) => url.clone(),
                (None, Some(detail)) => detail.get().into(),
                (None, None) => source.filename.clone().unwrap_or_default(),
            };
            if response.sources.contains(&key) {
                continue;
            }
            if response.sources.len() >= MAX_SOURCES {
                self.tally.note("citation left out", "a response has too many");
                continue;
            }
            let number = u32::try_from(response.sources.len()).unwrap_or(u32::MAX);
            response.sources.insert(key);
            let first = response.message.as_ref().unwrap_or(&message);
            let id = part_id(first, "source", number);
            out.push(Event::new(Body::Citation(Box::new(Citation { id, message: Some(message), ..source }))));
        }
    }

    /// Ends the run with a failure.
    fn fail(&mut self, failure: ModelFailure, out: &mut Vec<Event>) {
        self.finish(Some((failure.code, failure.message)), out);
    }

    /// Ends the run.
    fn finish(&mut self, failure: Option<(Box<str>, Box<str>)>, out: &mut Vec<Event>) {
        self.emit_run_started(out);
        self.is_over = true;
        let is_empty = self.response.is_none() && self.response_count == 0;
        self.close_response(out);
        let usage = std::mem::take(&mut self.usage);
        let no_events = || (codes::UPSTREAM_NO_EVENTS.into(), "the stream held no chat completion".into());
        let cut_off = self.cut_off.take().filter(|_| self.options.cut_off_fails);
        let failure = failure.or_else(|| is_empty.then(no_events)).or_else(|| {
            cut_off.map(|reason| {
                let message = format!("the model's answer was cut off: {reason}");
                (reason, message.into())
            })
        });
        if let Some((code, message)) = failure {
            out.push(Event::new(Body::RunError(Box::new(RunError { message, code: Some(code), usage }))));
            return;
        }
        let pending = std::mem::take(&mut self.pending);
        let outcome = (!pending.is_empty()).then_some(Outcome::Success { pending });
        let OpenAiReaderOptions { thread, run, .. } = &self.options;
        let finished = RunFinished { outcome, usage, ..RunFinished::new(thread.clone(), run.clone()) };
        out.push(Event::new(Body::RunFinished(Box::new(finished))));
    }
}

impl Reader for OpenAiReader {
    fn read(&mut self, frame: &Frame<'_>, out: &mut Vec<Event>) -> ReadResult {
        self.tally.at_frame(frame.index + 1);
        match frame.data {
            Payload::Text(text) => self.read_frame(frame.event, text, out),
            Payload::Bytes(_) => Err(ReadError::new("", "expected a chat completion, found binary data")),
        }
    }

    fn end(&mut self, end: &StreamEnd, out: &mut Vec<Event>) {
        if self.is_over {
            return;
        }
        let failure = match end {
            StreamEnd::Failed { code, message } => Some((code.clone(), message.clone())),
            StreamEnd::Closed => {
                let is_truncated = self.response.as_ref().is_some_and(|response| !response.is_finished());
                let truncated =
                    || (codes::STREAM_TRUNCATED.into(), "the stream ended before the model was done".into());
                is_truncated.then(truncated)
            }
        };
        self.finish(failure, out);
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}
