//! Chunks and whole answers to canonical events.

use std::{borrow::Cow, collections::HashSet};

use serde_json::value::RawValue;

use super::{
    Settings,
    call::Piece,
    choice::{Choice, Sink},
    extras::{self, list, part_id, string},
    failure::Failure,
    wire,
};
use crate::{
    event::{
        Body, Event, MediaKind, MessageId, Outcome, RunError, RunFinished, RunStarted, Source, ToolCallId,
        Usage,
    },
    format::{ReadError, Reader, StreamEnd},
    framing::{Frame, Payload},
    json::{Fields, Json, Path, elements, json, kind_of, text},
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

/// Members that are known and that nothing is made of.
const CHUNK_IGNORED: &[&str] = &[
    "object",
    "created",
    "system_fingerprint",
    "service_tier",
    "obfuscation",
    "prompt_filter_results",
    "x_groq",
    "timings",
    "stats",
    "prompt_logprobs",
    "metadata",
    "request_id",
    "moderation",
];
const CHOICE_IGNORED: &[&str] = &[
    "logprobs",
    "native_finish_reason",
    "content_filter_results",
    "content_filter_result",
    "content_filter_offsets",
    "stop_reason",
    "matched_stop",
    "token_ids",
    "seed",
];

/// Reads chat completions.
#[derive(Debug)]
pub(super) struct OpenAiReader {
    settings: Settings,
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
    pub(super) fn new(mut settings: Settings) -> Self {
        Self {
            ids: Ids(std::mem::take(&mut settings.taken)),
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
            let Settings { thread, run, .. } = &self.settings;
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

    /// A chunk or a whole answer, member by member.
    fn chunk(
        &mut self,
        fields: &mut Fields<'_, '_>,
        whole: bool,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        let native = string(fields, "id", &mut self.tally)?.unwrap_or_default();
        let mut choices = Vec::new();
        list(fields, "choices", |raw, _| {
            choices.push(raw);
            Ok(())
        })?;
        self.enter(&native, !choices.is_empty(), whole, out);
        let model = string(fields, "model", &mut self.tally)?.filter(|model| !model.is_empty());
        let provider = string(fields, "provider", &mut self.tally)?.filter(|provider| !provider.is_empty());
        let groq = fields.take_unless_null("x_groq");
        let usage = match fields.take_unless_null("usage") {
            Some(raw) => Some(usage(raw, Path::Key(&Path::Root, "usage"))?),
            None => None,
        };
        let groq_path = Path::Key(&Path::Root, "x_groq");
        let groq_usage = match groq {
            Some(raw) => match Fields::of(raw, groq_path)?.take_unless_null("usage") {
                Some(raw) => Some(usage_at(raw, groq_path)?),
                None => None,
            },
            None => None,
        };
        if let Some(response) = &mut self.response {
            if response.model.is_none() {
                response.model = model.map(Into::into);
            }
            if response.provider.is_none() {
                response.provider = provider.map(Into::into);
            }
            // Some servers count up in every chunk: the last one is the sum.
            if let Some(usage) = usage.or(groq_usage) {
                response.usage = Some(usage);
            }
        }
        let path = Path::Key(&Path::Root, "choices");
        for (position, raw) in choices.into_iter().enumerate() {
            self.one_choice(raw, Path::Index(&path, position), position, out)?;
        }
        for key in ["search_results", "citations"] {
            let mut found = Vec::new();
            list(fields, key, |raw, path| {
                found.extend(extras::source(raw, path, &mut self.tally)?);
                Ok(())
            })?;
            self.cite(found, 0, out);
        }
        for key in CHUNK_IGNORED {
            fields.take(key);
        }
        fields.rest("chunk", &mut self.tally)?;
        Ok(())
    }

    fn one_choice(
        &mut self,
        raw: &RawValue,
        path: Path<'_>,
        position: usize,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        let mut fields = Fields::of(raw, path)?;
        let index = match fields.peek("index").filter(|raw| raw.get() != "null") {
            Some(_) => {
                fields.integer("index", 0..=i64::from(u32::MAX))?.and_then(|index| index.try_into().ok())
            }
            None => fields.take("index").and(None),
        };
        let index = index.unwrap_or_else(|| u32::try_from(position).unwrap_or(u32::MAX));
        let reason =
            string(&mut fields, "finish_reason", &mut self.tally)?.filter(|reason| !reason.is_empty());
        let delta = fields.take_unless_null("delta");
        let message = fields.take_unless_null("message");
        let plain = string(&mut fields, "text", &mut self.tally)?;
        if let Some(raw) = fields.take_unless_null("usage") {
            let usage = usage_at(raw, path)?;
            self.response.get_or_insert_default().usage.get_or_insert(usage);
        }
        let failure = match fields.take_unless_null("error") {
            Some(raw) => Some(Failure::of_error(raw, Path::Key(&path, "error"), &mut self.tally)?),
            None => None,
        };
        // Azure sends the results of its filters as choices that say nothing.
        let says = delta.or(message).is_some() || plain.is_some() || reason.is_some();
        for key in CHOICE_IGNORED {
            fields.take(key);
        }
        fields.rest("choice", &mut self.tally)?;
        if says {
            if self.choice(index, out).is_none() {
                return Ok(());
            }
            if let Some(raw) = delta {
                self.delta(raw, Path::Key(&path, "delta"), index, false, out)?;
            }
            if let Some(raw) = message {
                self.delta(raw, Path::Key(&path, "message"), index, true, out)?;
            }
            let Some((choice, mut sink)) = self.choice(index, out) else { return Ok(()) };
            if let Some(text) = plain {
                choice.text(&text, &mut sink);
            }
            // Nothing follows a whole message, whether it says why it ended or not.
            if message.is_some() && reason.is_none() {
                choice.finish(None, &mut sink);
                choice.finished.get_or_insert_default();
            }
            if let Some(reason) = &reason {
                choice.finish(Some(reason), &mut sink);
                match &**reason {
                    "error" => {
                        self.failure.get_or_insert_with(|| Failure::said("the model stopped with an error"));
                    }
                    "length" | "content_filter" => {
                        self.cut_off.get_or_insert_with(|| reason.as_ref().into());
                    }
                    _ => {}
                }
            }
        }
        if failure.is_some() {
            self.failure = failure;
        }
        Ok(())
    }

    /// What a choice says: a `delta`, or a `message`, which is whole.
    fn delta(
        &mut self,
        raw: &RawValue,
        path: Path<'_>,
        index: u32,
        whole: bool,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        let mut fields = Fields::of(raw, path)?;
        let thought = string(&mut fields, "reasoning_content", &mut self.tally)?;
        let also = string(&mut fields, "reasoning", &mut self.tally)?;
        let refusal = string(&mut fields, "refusal", &mut self.tally)?;
        let Some((choice, mut sink)) = self.choice(index, out) else { return Ok(()) };
        let thought = [thought, also].into_iter().flatten().find(|thought| !thought.is_empty());
        if let Some(thought) = &thought {
            choice.think(thought, &mut sink);
        }
        list(&mut fields, "reasoning_details", |raw, path| {
            let said = choice.details.push(raw, path, sink.tally)?;
            // Whoever sends details mostly sends the same words in `reasoning` too.
            if let (Some(said), None) = (said, &thought) {
                choice.think(&said, &mut sink);
            }
            Ok(())
        })?;
        match fields.take_unless_null("content") {
            Some(raw) if raw.get().starts_with('[') => {
                let path = Path::Key(&path, "content");
                for (number, raw) in elements(raw, path)?.into_iter().enumerate() {
                    part(choice, raw, Path::Index(&path, number), &mut sink)?;
                }
            }
            Some(raw) => choice.text(&text(raw, Path::Key(&path, "content"), sink.tally)?, &mut sink),
            None => {}
        }
        if let Some(refusal) = refusal {
            choice.refuse(&refusal, &mut sink);
        }
        list(&mut fields, "images", |raw, path| {
            if let Some(source) = extras::image(raw, path, sink.tally)? {
                choice.file(MediaKind::Image, source, &mut sink);
            }
            Ok(())
        })?;
        if let Some(raw) = fields.take_unless_null("audio") {
            let mut audio = Fields::of(raw, Path::Key(&path, "audio"))?;
            if let Some(transcript) = string(&mut audio, "transcript", sink.tally)? {
                choice.text(&transcript, &mut sink);
            }
            if let Some(data) = string(&mut audio, "data", sink.tally)? {
                choice.hear(&data, &mut sink);
            }
        }
        if let Some(raw) = fields.take_unless_null("tool_calls") {
            let path = Path::Key(&path, "tool_calls");
            for (number, raw) in elements(raw, path)?.into_iter().enumerate() {
                self.tool_call(raw, Path::Index(&path, number), index, number, whole, out)?;
            }
        }
        if let Some(raw) = fields.take_unless_null("function_call") {
            self.function(
                raw,
                Path::Key(&path, "function_call"),
                index,
                Piece { alone: whole, ..Piece::default() },
                out,
            )?;
        }
        let mut sources = Vec::new();
        for key in ["annotations", "citations"] {
            list(&mut fields, key, |raw, path| {
                sources.extend(extras::source(raw, path, &mut self.tally)?);
                Ok(())
            })?;
        }
        self.cite(sources, index, out);
        fields.take("role");
        fields.rest("message", &mut self.tally)?;
        Ok(())
    }

    fn tool_call(
        &mut self,
        raw: &RawValue,
        path: Path<'_>,
        choice: u32,
        position: usize,
        whole: bool,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        let mut fields = Fields::of(raw, path)?;
        let index = match fields.peek("index").filter(|raw| raw.get() != "null") {
            Some(_) => fields.integer("index", i64::MIN..=i64::MAX)?,
            None => fields.take("index").and(None),
        };
        let id = string(&mut fields, "id", &mut self.tally)?.filter(|id| !id.is_empty());
        fields.take("type");
        let alone = whole || index.is_none() && id.is_none() && position > 0;
        let piece = Piece { index, id: id.as_deref(), name: None, alone };
        let function = fields.take_unless_null("function");
        let custom = fields.take_unless_null("custom");
        fields.rest("tool_call", &mut self.tally)?;
        match (function, custom) {
            (Some(raw), _) => self.function(raw, Path::Key(&path, "function"), choice, piece, out),
            (None, Some(raw)) => self.function(raw, Path::Key(&path, "custom"), choice, piece, out),
            (None, None) => {
                self.call(choice, piece, "", out);
                Ok(())
            }
        }
    }

    /// Name and arguments of a call, or a piece of them.
    fn function(
        &mut self,
        raw: &RawValue,
        path: Path<'_>,
        choice: u32,
        piece: Piece<'_>,
        out: &mut Vec<Event>,
    ) -> Result<(), ReadError> {
        let mut fields = Fields::of(raw, path)?;
        let name = string(&mut fields, "name", &mut self.tally)?.filter(|name| !name.is_empty());
        let arguments = fields.take_unless_null("arguments").or_else(|| fields.take_unless_null("input"));
        let arguments: Cow<'_, str> = match arguments {
            None => Cow::Borrowed(""),
            Some(raw) if raw.get().starts_with('"') => {
                text(raw, Path::Key(&path, "arguments"), &mut self.tally)?
            }
            // The arguments themselves in the place of their text.
            Some(raw) => {
                let json: Json = json(raw, Path::Key(&path, "arguments"), &mut self.tally)?;
                Cow::Owned(json.get().to_owned())
            }
        };
        fields.rest("function", &mut self.tally)?;
        self.call(choice, Piece { name: name.as_deref(), ..piece }, &arguments, out);
        Ok(())
    }

    fn call(&mut self, index: u32, piece: Piece<'_>, arguments: &str, out: &mut Vec<Event>) {
        let Some(response) = &mut self.response else { return };
        let Some(choice) = response.choices.iter_mut().find(|choice| choice.index == index) else { return };
        let (ids, tools, pending) = (&mut self.ids, &self.settings.tools, &mut self.pending);
        let mut sink = Sink { out, tally: &mut self.tally };
        choice.call(piece, arguments, &mut sink, |name, native, derived| {
            let id = ids.choose(native, derived);
            if tools.contains(name) {
                pending.push(id.clone());
            }
            id
        });
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
        let Settings { thread, run, .. } = &self.settings;
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

/// A part of a content that is a list.
fn part(choice: &mut Choice, raw: &RawValue, path: Path<'_>, sink: &mut Sink<'_>) -> Result<(), ReadError> {
    if raw.get().starts_with('"') {
        choice.text(&text(raw, path, sink.tally)?, sink);
        return Ok(());
    }
    let mut fields = Fields::of(raw, path)?;
    let kind = string(&mut fields, "type", sink.tally)?.unwrap_or_default();
    match &*kind {
        "text" | "output_text" => {
            if let Some(said) = string(&mut fields, "text", sink.tally)? {
                choice.text(&said, sink);
            }
        }
        "refusal" => {
            if let Some(said) = string(&mut fields, "refusal", sink.tally)? {
                choice.refuse(&said, sink);
            }
        }
        "image_url" => {
            if let Some(source) = extras::image(raw, path, sink.tally)? {
                choice.file(MediaKind::Image, source, sink);
            }
        }
        // Mistral's thoughts are parts of parts, others' are a text.
        "thinking" | "reasoning" => {
            match fields.take_unless_null(&kind).or_else(|| fields.take_unless_null("text")) {
                Some(raw) if raw.get().starts_with('[') => {
                    let path = Path::Key(&path, "thinking");
                    for (number, raw) in elements(raw, path)?.into_iter().enumerate() {
                        let path = Path::Index(&path, number);
                        if let Some(said) = string(&mut Fields::of(raw, path)?, "text", sink.tally)? {
                            choice.think(&said, sink);
                        }
                    }
                }
                Some(raw) => choice.think(&text(raw, Path::Key(&path, "thinking"), sink.tally)?, sink),
                None => {}
            }
        }
        _ => sink.tally.note("unknown content part", &kind),
    }
    Ok(())
}

fn usage_at(raw: &RawValue, parent: Path<'_>) -> Result<Usage, ReadError> {
    usage(raw, Path::Key(&parent, "usage"))
}

fn usage(raw: &RawValue, path: Path<'_>) -> Result<Usage, ReadError> {
    let mut fields = Fields::of(raw, path)?;
    let input = number(&mut fields, "prompt_tokens")?;
    let output = number(&mut fields, "completion_tokens")?;
    let total = number(&mut fields, "total_tokens")?;
    let hit = number(&mut fields, "prompt_cache_hit_tokens")?;
    let flat = number(&mut fields, "cached_tokens")?;
    let thought = number(&mut fields, "reasoning_tokens")?;
    let mut usage =
        Usage { input, output, total, cached_input: hit.or(flat), reasoning: thought, ..Usage::default() };
    if let Some(raw) = fields.take_unless_null("prompt_tokens_details") {
        let mut details = Fields::of(raw, Path::Key(&path, "prompt_tokens_details"))?;
        usage.cached_input = number(&mut details, "cached_tokens")?.or(usage.cached_input);
        let write = number(&mut details, "cache_write_tokens")?;
        usage.cache_write_input = write.or(number(&mut details, "cache_creation_tokens")?);
    }
    if let Some(raw) = fields.take_unless_null("completion_tokens_details") {
        let mut details = Fields::of(raw, Path::Key(&path, "completion_tokens_details"))?;
        usage.reasoning = number(&mut details, "reasoning_tokens")?.or(usage.reasoning);
    }
    Ok(usage)
}

fn number(fields: &mut Fields<'_, '_>, key: &str) -> Result<Option<u64>, ReadError> {
    if fields.peek(key).is_some_and(|raw| raw.get() == "null") {
        fields.take(key);
    }
    Ok(fields.integer(key, 0..=i64::MAX)?.and_then(|number| number.try_into().ok()))
}

fn bad_json(error: &serde_json::Error) -> ReadError {
    ReadError::new("", format!("not valid JSON: {error}"))
}
