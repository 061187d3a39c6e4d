//! Chunks and whole answers to canonical events.

mod choice;
mod chunk;
mod citations;
mod failure;
mod reasoning_details;
mod tool_calls;
mod usage;

use std::collections::HashSet;

use serde_json::value::RawValue;

use self::{
    choice::{Choice, Sink},
    citations::part_id,
    failure::Failure,
};
use crate::{
    event::{
        Body, Event, MessageId, Outcome, RunError, RunFinished, RunStarted, Source, StreamEnd, ToolCallId,
        Usage,
    },
    format::{
        Reader,
        openai::{options::OpenAiReaderOptions, wire},
    },
    framing::{Frame, Payload},
    json::{Fields, Path, ReadError, elements, kind_of},
    tally::Tally,
};

/// The code of a stream that held nothing: an error page, or a proxy that swallowed the answer.
const NO_EVENTS: &str = "UPSTREAM_NO_EVENTS";
/// The code of a stream that ended before its model said why it stopped.
const STREAM_TRUNCATED: &str = "STREAM_TRUNCATED";

/// The largest number of choices that a request can ask for.
const MAX_CHOICES: usize = 128;
/// How many citations of one response are passed on; search answers have some dozens.
const MAX_SOURCES: usize = 1024;
/// How many ids are remembered to find those that are used twice; behind that, ids are made.
const MAX_IDS: usize = 64 * 1024;
/// How many usage records a run may have: one per response, and a stream is one response.
const MAX_USAGE: usize = 1024;

/// Reads chat completions.
#[derive(Debug)]
pub(super) struct OpenAiReader {
    settings: OpenAiReaderOptions,
    ids: Ids,
    tally: Tally,
    response: Option<Response>,
    responses: u32,
    usage: Vec<Usage>,
    /// Calls of tools that the request declared.
    pending: Vec<ToolCallId>,
    /// What ends the run once the frame is read.
    failure: Option<Failure>,
    /// The first reason that is none of success.
    cut_off: Option<Box<str>>,
    started: bool,
    /// The terminal event is out.
    over: bool,
}

/// One response: some chunks, or a whole answer.
#[derive(Debug, Default)]
struct Response {
    native: Box<str>,
    /// The id that the first choice has; absent until there is one.
    base: Option<MessageId>,
    model: Option<Box<str>>,
    provider: Option<Box<str>>,
    usage: Option<Usage>,
    choices: Vec<Choice>,
    sources: HashSet<Box<str>>,
}

/// Which ids the conversation has.
#[derive(Debug)]
struct Ids(HashSet<Box<str>>);

impl Ids {
    /// The server's id if it is one and new, otherwise the one that was made.
    fn choose<I: for<'a> From<&'a str> + std::ops::Deref<Target = str>>(
        &mut self,
        native: Option<&str>,
        made: I,
    ) -> I {
        let native = native.filter(|id| !id.is_empty() && self.0.len() < MAX_IDS && !self.0.contains(*id));
        let chosen = native.map_or(made, I::from);
        if self.0.len() < MAX_IDS {
            self.0.insert((*chosen).into());
        }
        chosen
    }
}

impl Response {
    /// Whether the model is done with everything that it began.
    fn is_finished(&self) -> bool {
        !self.choices.is_empty() && self.choices.iter().all(|choice| choice.finished.is_some())
    }
}

impl OpenAiReader {
    pub(super) fn new(mut settings: OpenAiReaderOptions) -> Self {
        Self {
            ids: Ids(std::mem::take(&mut settings.used_ids)),
            settings,
            tally: Tally::default(),
            response: None,
            responses: 0,
            usage: Vec::new(),
            pending: Vec::new(),
            failure: None,
            cut_off: None,
            started: false,
            over: false,
        }
    }

    fn frame(&mut self, event: Option<&str>, text: &str, out: &mut Vec<Event>) -> Result<(), ReadError> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(());
        }
        if self.over {
            self.tally.note("frame behind the end", &text.chars().take(20).collect::<String>());
            return Ok(());
        }
        match text.as_bytes().first() {
            _ if text == "[DONE]" => {
                self.done(None, out);
                Ok(())
            }
            Some(b'{') => self.object(event, text, out),
            // An error of some servers is a list of one.
            Some(b'[') => {
                let raw: &RawValue = serde_json::from_str(text).map_err(|error| bad_json(&error))?;
                for element in elements(raw, Path::Root)? {
                    if self.over {
                        break;
                    }
                    self.object(event, element.get(), out)?;
                }
                Ok(())
            }
            _ if event == Some("error") => {
                self.fail(Failure::said(text), out);
                Ok(())
            }
            Some(b'<') => Err(ReadError::new("", "expected a chat completion, found an HTML or XML page")),
            _ => match serde_json::from_str::<&RawValue>(text) {
                Ok(raw) => {
                    let found = kind_of(raw.get());
                    Err(ReadError::new("", format!("expected a chat completion, found {found}")))
                }
                Err(error) => Err(bad_json(&error)),
            },
        }
    }

    fn object(&mut self, event: Option<&str>, text: &str, out: &mut Vec<Event>) -> Result<(), ReadError> {
        if event.is_none()
            && let Ok(chunk) = serde_json::from_str::<wire::Chunk<'_>>(text)
            && chunk.object.0 == "chat.completion.chunk"
        {
            self.piece(&chunk, out);
            return Ok(());
        }
        let mut fields = Fields::parse(text, Path::Root)?;
        let error = match fields.take_unless_null("error") {
            Some(raw) => Some(Failure::of_error(raw, Path::Key(&Path::Root, "error"), &mut self.tally)?),
            None => None,
        };
        let kind = fields.peek("object").map_or("", RawValue::get).trim_matches('"').to_owned();
        let completes = kind.starts_with("chat.completion") || kind.starts_with("text_completion");
        let known = completes || fields.peek("choices").is_some() || fields.peek("usage").is_some();
        let failure = match error {
            Some(error) => Some(error),
            None if known => None,
            None if kind == "error" || event == Some("error") => {
                Some(Failure::of_members(&mut fields, &mut self.tally)?)
            }
            None => match fields.take_unless_null("detail") {
                Some(raw) => {
                    Some(Failure::of_detail(raw, Path::Key(&Path::Root, "detail"), &mut self.tally)?)
                }
                None => {
                    self.tally.note("unknown frame", if kind.is_empty() { "{}" } else { &kind });
                    return Ok(());
                }
            },
        };
        self.start(out);
        if known {
            self.chunk(&mut fields, kind == "chat.completion", out)?;
        }
        if let Some(failure) = failure.or_else(|| self.failure.take()) {
            self.fail(failure, out);
        }
        Ok(())
    }

    /// The chunk that makes up nearly all of a stream.
    fn piece(&mut self, chunk: &wire::Chunk<'_>, out: &mut Vec<Event>) {
        self.start(out);
        let (choice,) = &chunk.choices;
        let delta = &choice.delta;
        let some = |text: &Option<wire::Text<'_>>| text.as_ref().is_some_and(|text| !text.0.is_empty());
        let speaks = some(&delta.content) || some(&delta.reasoning) || some(&delta.reasoning_content);
        self.enter(&chunk.id.0, speaks, false, out);
        let named = |text: &Option<wire::Text<'_>>| -> Option<Box<str>> {
            text.as_ref().filter(|text| !text.0.is_empty()).map(|text| text.0.as_ref().into())
        };
        if let Some(response) = &mut self.response {
            if response.model.is_none() {
                response.model = named(&chunk.model);
            }
            if response.provider.is_none() {
                response.provider = named(&chunk.provider);
            }
        }
        let Some((choice, mut sink)) = self.choice(choice.index, out) else { return };
        // Some servers say the same twice, for the clients of either name.
        let mut thoughts = [&delta.reasoning_content, &delta.reasoning].into_iter().flatten();
        if let Some(text) = thoughts.find(|text| !text.0.is_empty()) {
            choice.think(&text.0, &mut sink);
        }
        if let Some(text) = &delta.content {
            choice.text(&text.0, &mut sink);
        }
    }

    fn start(&mut self, out: &mut Vec<Event>) {
        if !std::mem::replace(&mut self.started, true) {
            let OpenAiReaderOptions { thread, run, .. } = &self.settings;
            out.push(Event::new(Body::RunStarted(Box::new(RunStarted::new(thread.clone(), run.clone())))));
        }
    }

    /// Makes the response with that id the current one. Ids of one response may differ (Azure's first chunk has
    /// an empty one), so only behind the end of one response another begins.
    fn enter(&mut self, native: &str, speaks: bool, whole: bool, out: &mut Vec<Event>) {
        let is_another = self.response.as_ref().is_some_and(|response| {
            whole && !response.choices.is_empty()
                || speaks && response.is_finished() && !native.is_empty() && *response.native != *native
        });
        if is_another {
            self.leave(out);
        }
        let response = self.response.get_or_insert_default();
        if response.base.is_none() && !native.is_empty() && *response.native != *native {
            response.native = native.into();
        }
    }

    /// Closes what is open of the current response.
    fn leave(&mut self, out: &mut Vec<Event>) {
        let Some(mut response) = self.response.take() else { return };
        let mut sink = Sink { out, tally: &mut self.tally };
        for choice in &mut response.choices {
            choice.finish(None, &mut sink);
        }
        if let Some(usage) = response.usage.take()
            && self.usage.len() < MAX_USAGE
        {
            self.usage.push(Usage { model: response.model, provider: response.provider, ..usage });
        }
    }

    /// The choice with that index, if it is wanted.
    fn choice<'r>(&'r mut self, index: u32, out: &'r mut Vec<Event>) -> Option<(&'r mut Choice, Sink<'r>)> {
        let response = self.response.get_or_insert_default();
        let position = response.choices.iter().position(|choice| choice.index == index);
        let at = match position {
            Some(at) => at,
            None if response.choices.len() >= MAX_CHOICES
                || self.settings.first_choice_only && !response.choices.is_empty() =>
            {
                self.tally.note("choice left out", &index.to_string());
                return None;
            }
            None => {
                let base = match &response.base {
                    Some(base) => base.clone(),
                    None => {
                        let made: MessageId = part_id(&self.settings.run, "message", self.responses);
                        self.responses = self.responses.saturating_add(1);
                        let base = self.ids.choose(Some(&response.native), made);
                        response.base = Some(base.clone());
                        base
                    }
                };
                let message =
                    if index == 0 { base } else { MessageId::from(format!("{base}:choice:{index}")) };
                response.choices.push(Choice::new(index, message));
                response.choices.len() - 1
            }
        };
        Some((&mut response.choices[at], Sink { out, tally: &mut self.tally }))
    }

    /// Passes on citations that the response has not made yet.
    fn cite(&mut self, sources: Vec<Source>, index: u32, out: &mut Vec<Event>) {
        for source in sources {
            let Some((choice, _)) = self.choice(index, out) else { return };
            let message = choice.message.clone();
            let Some(response) = &mut self.response else { return };
            // Search results and citations name the same pages, and are repeated with every chunk.
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
            let base = response.base.as_ref().unwrap_or(&message);
            let id = part_id(base, "source", number);
            out.push(Event::new(Body::Source(Box::new(Source { id, message: Some(message), ..source }))));
        }
    }

    /// The run failed.
    fn fail(&mut self, failure: Failure, out: &mut Vec<Event>) {
        self.done(Some((failure.code, failure.message)), out);
    }

    /// Ends the run.
    fn done(&mut self, failure: Option<(Box<str>, Box<str>)>, out: &mut Vec<Event>) {
        self.start(out);
        self.over = true;
        let silent = self.response.is_none() && self.responses == 0;
        self.leave(out);
        let usage = std::mem::take(&mut self.usage);
        let nothing = || (NO_EVENTS.into(), "the stream held no chat completion".into());
        let cut_off = self.cut_off.take().filter(|_| self.settings.cut_off_fails);
        let failure = failure.or_else(|| silent.then(nothing)).or_else(|| {
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
        let OpenAiReaderOptions { thread, run, .. } = &self.settings;
        let finished = RunFinished { outcome, usage, ..RunFinished::new(thread.clone(), run.clone()) };
        out.push(Event::new(Body::RunFinished(Box::new(finished))));
    }
}

impl Reader for OpenAiReader {
    fn read(&mut self, frame: &Frame<'_>, out: &mut Vec<Event>) -> Result<(), ReadError> {
        self.tally.at_frame(frame.index + 1);
        match frame.data {
            Payload::Text(text) => self.frame(frame.event, text, out),
            Payload::Bytes(_) => Err(ReadError::new("", "expected a chat completion, found binary data")),
        }
    }

    fn end(&mut self, end: &StreamEnd, out: &mut Vec<Event>) {
        if self.over {
            return;
        }
        let failure = match end {
            StreamEnd::Failed { code, message } => Some((code.clone(), message.clone())),
            StreamEnd::Closed => {
                let cut = self.response.as_ref().is_some_and(|response| !response.is_finished());
                let truncated =
                    || (STREAM_TRUNCATED.into(), "the stream ended before the model was done".into());
                cut.then(truncated)
            }
        };
        self.done(failure, out);
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}

fn bad_json(error: &serde_json::Error) -> ReadError {
    ReadError::new("", format!("not valid JSON: {error}"))
}
