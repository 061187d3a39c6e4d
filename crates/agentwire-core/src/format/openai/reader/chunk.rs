//! Decoding of chunks and whole responses, member by member.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{
    OpenAiReader,
    choice::{ChoiceSink, ChoiceState},
    media::read_image,
    tool_calls::ToolCallPiece,
    usage::read_usage,
};
use crate::{
    event::{Event, MediaKind},
    format::model_api::{
        ModelFailure,
        citations::read_citation,
        fields::{list, string},
    },
    json::{Fields, Json, Path, ReadResult, elements, json, text},
};

/// Known members without a canonical event.
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

impl OpenAiReader {
    /// A chunk or a whole response.
    pub(super) fn read_chunk(
        &mut self,
        fields: &mut Fields<'_, '_>,
        is_whole: bool,
        out: &mut Vec<Event>,
    ) -> ReadResult {
        let native = string(fields, "id", &mut self.tally)?.unwrap_or_default();
        let mut choices = Vec::new();
        list(fields, "choices", |raw, _| {
            choices.push(raw);
            Ok(())
        })?;
        self.enter_response(&native, !choices.is_empty(), is_whole, out);
        let model = string(fields, "model", &mut self.tally)?.filter(|model| !model.is_empty());
        let provider = string(fields, "provider", &mut self.tally)?.filter(|provider| !provider.is_empty());
        let groq = fields.take_unless_null("x_groq");
        let usage = match fields.take_unless_null("usage") {
            Some(raw) => Some(read_usage(raw, Path::Root)?),
            None => None,
        };
        let groq_path = Path::Key(&Path::Root, "x_groq");
        let groq_usage = match groq {
            Some(raw) => match Fields::of(raw, groq_path)?.take_unless_null("usage") {
                Some(raw) => Some(read_usage(raw, groq_path)?),
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
            // Some servers send running totals in every chunk; the last one counts.
            if let Some(usage) = usage.or(groq_usage) {
                response.usage = Some(usage);
            }
        }
        let path = Path::Key(&Path::Root, "choices");
        for (position, raw) in choices.into_iter().enumerate() {
            self.read_choice(raw, Path::Index(&path, position), position, out)?;
        }
        for key in ["search_results", "citations"] {
            let mut sources = Vec::new();
            list(fields, key, |raw, path| {
                sources.extend(read_citation(raw, path, &mut self.tally)?);
                Ok(())
            })?;
            self.emit_citations(sources, 0, out);
        }
        for key in CHUNK_IGNORED {
            fields.take(key);
        }
        fields.rest("chunk", &mut self.tally)?;
        Ok(())
    }

    fn read_choice(
        &mut self,
        raw: &RawValue,
        path: Path<'_>,
        position: usize,
        out: &mut Vec<Event>,
    ) -> ReadResult {
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
            let usage = read_usage(raw, path)?;
            self.response.get_or_insert_default().usage.get_or_insert(usage);
        }
        let failure = match fields.take_unless_null("error") {
            Some(raw) => Some(ModelFailure::of_error(raw, Path::Key(&path, "error"), &mut self.tally)?),
            None => None,
        };
        // Azure sends the results of its filters as choices without content.
        let has_content = delta.or(message).is_some() || plain.is_some() || reason.is_some();
        for key in CHOICE_IGNORED {
            fields.take(key);
        }
        fields.rest("choice", &mut self.tally)?;
        if has_content {
            if self.choice(index, out).is_none() {
                return Ok(());
            }
            if let Some(raw) = delta {
                self.read_message(raw, Path::Key(&path, "delta"), index, false, out)?;
            }
            if let Some(raw) = message {
                self.read_message(raw, Path::Key(&path, "message"), index, true, out)?;
            }
            let Some((choice, mut sink)) = self.choice(index, out) else { return Ok(()) };
            if let Some(text) = plain {
                choice.push_text(&text, &mut sink);
            }
            // A whole message is complete, even without a finish reason.
            if message.is_some() && reason.is_none() {
                choice.finish(None, &mut sink);
                choice.finish_reason.get_or_insert_default();
            }
            if let Some(reason) = &reason {
                choice.finish(Some(reason), &mut sink);
                match &**reason {
                    "error" => {
                        self.failure.get_or_insert_with(|| {
                            ModelFailure::without_code("the model stopped with an error")
                        });
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

    /// The content of a choice: a `delta` or a whole `message`.
    fn read_message(
        &mut self,
        raw: &RawValue,
        path: Path<'_>,
        index: u32,
        is_whole: bool,
        out: &mut Vec<Event>,
    ) -> ReadResult {
        let mut fields = Fields::of(raw, path)?;
        let reasoning = string(&mut fields, "reasoning_content", &mut self.tally)?;
        let alternative = string(&mut fields, "reasoning", &mut self.tally)?;
        let refusal = string(&mut fields, "refusal", &mut self.tally)?;
        let Some((choice, mut sink)) = self.choice(index, out) else { return Ok(()) };
        let reasoning = [reasoning, alternative].into_iter().flatten().find(|text| !text.is_empty());
        if let Some(reasoning) = &reasoning {
            choice.push_reasoning(reasoning, &mut sink);
        }
        list(&mut fields, "reasoning_details", |raw, path| {
            let text = choice.details.push(raw, path, sink.tally)?;
            // Most servers with details send the same text in `reasoning` too.
            if let (Some(text), None) = (text, &reasoning) {
                choice.push_reasoning(&text, &mut sink);
            }
            Ok(())
        })?;
        match fields.take_unless_null("content") {
            Some(raw) if raw.get().starts_with('[') => {
                let path = Path::Key(&path, "content");
                for (number, raw) in elements(raw, path)?.into_iter().enumerate() {
                    read_part(choice, raw, Path::Index(&path, number), &mut sink)?;
                }
            }
            Some(raw) => choice.push_text(&text(raw, Path::Key(&path, "content"), sink.tally)?, &mut sink),
            None => {}
        }
        if let Some(refusal) = refusal {
            choice.push_refusal(&refusal, &mut sink);
        }
        list(&mut fields, "images", |raw, path| {
            if let Some(source) = read_image(raw, path, sink.tally)? {
                choice.emit_file(MediaKind::Image, source, &mut sink);
            }
            Ok(())
        })?;
        if let Some(raw) = fields.take_unless_null("audio") {
            let mut audio = Fields::of(raw, Path::Key(&path, "audio"))?;
            if let Some(transcript) = string(&mut audio, "transcript", sink.tally)? {
                choice.push_text(&transcript, &mut sink);
            }
            if let Some(data) = string(&mut audio, "data", sink.tally)? {
                choice.push_audio(&data, &mut sink);
            }
        }
        if let Some(raw) = fields.take_unless_null("tool_calls") {
            let path = Path::Key(&path, "tool_calls");
            for (number, raw) in elements(raw, path)?.into_iter().enumerate() {
                self.read_tool_call(raw, Path::Index(&path, number), index, number, is_whole, out)?;
            }
        }
        if let Some(raw) = fields.take_unless_null("function_call") {
            self.read_function(
                raw,
                Path::Key(&path, "function_call"),
                index,
                ToolCallPiece { is_whole, ..ToolCallPiece::default() },
                out,
            )?;
        }
        let mut sources = Vec::new();
        for key in ["annotations", "citations"] {
            list(&mut fields, key, |raw, path| {
                sources.extend(read_citation(raw, path, &mut self.tally)?);
                Ok(())
            })?;
        }
        self.emit_citations(sources, index, out);
        fields.take("role");
        fields.rest("message", &mut self.tally)?;
        Ok(())
    }

    fn read_tool_call(
        &mut self,
        raw: &RawValue,
        path: Path<'_>,
        choice: u32,
        position: usize,
        is_whole: bool,
        out: &mut Vec<Event>,
    ) -> ReadResult {
        let mut fields = Fields::of(raw, path)?;
        let index = match fields.peek("index").filter(|raw| raw.get() != "null") {
            Some(_) => fields.integer("index", i64::MIN..=i64::MAX)?,
            None => fields.take("index").and(None),
        };
        let id = string(&mut fields, "id", &mut self.tally)?.filter(|id| !id.is_empty());
        fields.take("type");
        let is_whole = is_whole || index.is_none() && id.is_none() && position > 0;
        let piece = ToolCallPiece { index, id: id.as_deref(), name: None, is_whole };
        let function = fields.take_unless_null("function");
        let custom = fields.take_unless_null("custom");
        fields.rest("tool_call", &mut self.tally)?;
        match (function, custom) {
            (Some(raw), _) => self.read_function(raw, Path::Key(&path, "function"), choice, piece, out),
            (None, Some(raw)) => self.read_function(raw, Path::Key(&path, "custom"), choice, piece, out),
            (None, None) => {
                self.push_call(choice, piece, "", out);
                Ok(())
            }
        }
    }

    /// The name and arguments of a call, or a piece of them.
    fn read_function(
        &mut self,
        raw: &RawValue,
        path: Path<'_>,
        choice: u32,
        piece: ToolCallPiece<'_>,
        out: &mut Vec<Event>,
    ) -> ReadResult {
        let mut fields = Fields::of(raw, path)?;
        let name = string(&mut fields, "name", &mut self.tally)?.filter(|name| !name.is_empty());
        let arguments = fields.take_unless_null("arguments").or_else(|| fields.take_unless_null("input"));
        let arguments: Cow<'_, str> = match arguments {
            None => Cow::Borrowed(""),
            Some(raw) if raw.get().starts_with('"') => {
                text(raw, Path::Key(&path, "arguments"), &mut self.tally)?
            }
            // Some servers send the arguments as a JSON value instead of a string.
            Some(raw) => {
                let json: Json = json(raw, Path::Key(&path, "arguments"), &mut self.tally)?;
                Cow::Owned(json.get().to_owned())
            }
        };
        fields.rest("function", &mut self.tally)?;
        self.push_call(choice, ToolCallPiece { name: name.as_deref(), ..piece }, &arguments, out);
        Ok(())
    }

    fn push_call(&mut self, index: u32, piece: ToolCallPiece<'_>, arguments: &str, out: &mut Vec<Event>) {
        let Some(response) = &mut self.response else { return };
        let Some(choice) = response.choices.iter_mut().find(|choice| choice.index == index) else { return };
        let (ids, tools, pending) = (&mut self.ids, &self.options.tools, &mut self.pending);
        let mut sink = ChoiceSink { out, tally: &mut self.tally };
        choice.push_call(piece, arguments, &mut sink, |name, native, derived| {
            let id = ids.choose(native, derived);
            if tools.contains(name) {
                pending.push(id.clone());
            }
            id
        });
    }
}

/// A part of a content array.
fn read_part(
    choice: &mut ChoiceState,
    raw: &RawValue,
    path: Path<'_>,
    sink: &mut ChoiceSink<'_>,
) -> ReadResult {
    if raw.get().starts_with('"') {
        choice.push_text(&text(raw, path, sink.tally)?, sink);
        return Ok(());
    }
    let mut fields = Fields::of(raw, path)?;
    let kind = string(&mut fields, "type", sink.tally)?.unwrap_or_default();
    match &*kind {
        "text" | "output_text" => {
            if let Some(text) = string(&mut fields, "text", sink.tally)? {
                choice.push_text(&text, sink);
            }
        }
        "refusal" => {
            if let Some(text) = string(&mut fields, "refusal", sink.tally)? {
                choice.push_refusal(&text, sink);
            }
        }
        "image_url" => {
            if let Some(source) = read_image(raw, path, sink.tally)? {
                choice.emit_file(MediaKind::Image, source, sink);
            }
        }
        // Mistral sends reasoning as an array of parts, other servers as a string.
        "thinking" | "reasoning" => {
            match fields.take_unless_null(&kind).or_else(|| fields.take_unless_null("text")) {
                Some(raw) if raw.get().starts_with('[') => {
                    let path = Path::Key(&path, "thinking");
                    for (number, raw) in elements(raw, path)?.into_iter().enumerate() {
                        let path = Path::Index(&path, number);
                        if let Some(text) = string(&mut Fields::of(raw, path)?, "text", sink.tally)? {
                            choice.push_reasoning(&text, sink);
                        }
                    }
                }
                Some(raw) => {
                    choice.push_reasoning(&text(raw, Path::Key(&path, "thinking"), sink.tally)?, sink)
                }
                None => {}
            }
        }
        _ => sink.tally.note("unknown content part", &kind),
    }
    Ok(())
}
