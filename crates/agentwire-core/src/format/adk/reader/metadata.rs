//! Metadata of an event: token counts, sources, custom metadata and transcriptions.

use serde_json::value::RawValue;

use super::{AdkReader, citations, decode::parse, emitter::AdkEmitter};
use crate::{
    event::{Body, MessageId, Usage},
    fold::carrier,
    format::adk::wire::{AdkEvent, UsageMetadata},
    json::{Path, ReadResult, json},
};

impl AdkReader {
    /// Usage, sources, custom metadata and transcriptions of an event.
    pub(super) fn read_metadata(
        &mut self,
        event: &AdkEvent<'_>,
        message: Option<&MessageId>,
        model: Option<&str>,
        emitter: &mut AdkEmitter<'_>,
    ) -> ReadResult {
        if let Some(raw) = event.usage {
            let counts: UsageMetadata<'_> = parse(raw, Path::Key(&Path::Root, "usageMetadata"))?;
            add_usage(&mut self.usage, &counts, model);
        }
        if event.grounding.is_some() || event.citations.is_some() {
            let message = match message {
                Some(message) => message.clone(),
                None => self.fresh_id(event),
            };
            for source in citations::sources(&message, event.grounding, event.citations)? {
                self.run.transcript.add_activity(
                    &source.id,
                    "agentwire.source",
                    carrier::source_content(&source),
                );
                emitter.push(Body::Citation(Box::new(source)));
            }
        }
        self.emit_custom("adk.grounding", "groundingMetadata", event.grounding, emitter)?;
        self.emit_custom("adk.citations", "citationMetadata", event.citations, emitter)?;
        if let Some(raw) = event.custom_metadata {
            let value = json(raw, Path::Key(&Path::Root, "customMetadata"), &mut self.run.tally)?;
            if value.get() != "{}" && self.last_metadata.as_ref() != Some(&value) {
                emitter.push(Body::Custom { name: "adk.metadata".into(), value: value.clone() });
                self.last_metadata = Some(value);
            }
        }
        self.read_transcriptions(event, emitter)
    }

    /// Transcriptions of spoken input and output, in live mode.
    pub(super) fn read_transcriptions(
        &mut self,
        event: &AdkEvent<'_>,
        emitter: &mut AdkEmitter<'_>,
    ) -> ReadResult {
        self.emit_custom(
            "adk.input_transcription",
            "inputTranscription",
            event.input_transcription,
            emitter,
        )?;
        self.emit_custom(
            "adk.output_transcription",
            "outputTranscription",
            event.output_transcription,
            emitter,
        )
    }

    /// Emits the member `key` of an event unchanged, as a custom event.
    fn emit_custom(
        &mut self,
        name: &str,
        key: &str,
        raw: Option<&RawValue>,
        emitter: &mut AdkEmitter<'_>,
    ) -> ReadResult {
        if let Some(raw) = raw {
            let value = json(raw, Path::Key(&Path::Root, key), &mut self.run.tally)?;
            emitter.push(Body::Custom { name: name.into(), value });
        }
        Ok(())
    }
}

/// Adds the token counts of one model turn to the totals of the run, per model.
fn add_usage(usage: &mut Vec<Usage>, counts: &UsageMetadata<'_>, model: Option<&str>) {
    /// Maximum number of models per run; further models are added to the first entry.
    const MAX_MODELS: usize = 64;
    let count = |number: Option<f64>| number.filter(|number| *number >= 0.0).map(|number| number as u64);
    let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
    };
    let turn = Usage {
        provider: None,
        model: model.map(Into::into),
        // Canonical totals include thoughts and tool prompts, which Gemini counts separately.
        input: sum(count(counts.prompt), count(counts.tool_prompt)),
        output: sum(count(counts.candidates), count(counts.thoughts)),
        total: count(counts.total),
        reasoning: count(counts.thoughts),
        cached_input: count(counts.cached),
        cache_write_input: None,
    };
    let known = usage.iter().position(|entry| entry.model == turn.model);
    let known = known.or_else(|| (usage.len() >= MAX_MODELS).then_some(0));
    match known {
        None => usage.push(turn),
        Some(index) => {
            let entry = &mut usage[index];
            entry.input = sum(entry.input, turn.input);
            entry.output = sum(entry.output, turn.output);
            entry.total = sum(entry.total, turn.total);
            entry.reasoning = sum(entry.reasoning, turn.reasoning);
            entry.cached_input = sum(entry.cached_input, turn.cached_input);
        }
    }
}
