//! Token usage: providers count tokens under several names, some of them per chunk.

use serde_json::value::RawValue;

use crate::{
    event::Usage,
    format::langgraph::{
        raw_json,
        wire::{TokenDetails, UsageMetadata},
    },
};

/// The token counts of one message or chunk.
pub(super) fn read_usage(raw: &RawValue) -> Option<Usage> {
    let usage = UsageMetadata::of(raw)?;
    let input = usage.input_token_details.and_then(TokenDetails::of).unwrap_or_default();
    let output = usage.output_token_details.and_then(TokenDetails::of).unwrap_or_default();
    let usage = Usage {
        provider: None,
        model: None,
        input: raw_json::count(usage.input_tokens.or(usage.prompt_tokens)),
        output: raw_json::count(usage.output_tokens.or(usage.completion_tokens)),
        total: raw_json::count(usage.total_tokens),
        reasoning: raw_json::count(output.reasoning),
        cached_input: raw_json::count(input.cache_read),
        cache_write_input: raw_json::count(input.cache_creation),
    };
    (usage != Usage::default()).then_some(usage)
}

/// Adds the counts of `more` to `sum`.
pub(in super::super) fn add_usage(sum: &mut Usage, more: &Usage) {
    let add = |sum: &mut Option<u64>, more: Option<u64>| {
        if let Some(more) = more {
            *sum = Some(sum.unwrap_or(0).saturating_add(more));
        }
    };
    add(&mut sum.input, more.input);
    add(&mut sum.output, more.output);
    add(&mut sum.total, more.total);
    add(&mut sum.reasoning, more.reasoning);
    add(&mut sum.cached_input, more.cached_input);
    add(&mut sum.cache_write_input, more.cache_write_input);
}
