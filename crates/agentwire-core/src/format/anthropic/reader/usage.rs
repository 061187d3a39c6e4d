//! Token counts of a response. Each event has running totals; a member that is missing or `null` has not changed.

use serde_json::value::RawValue;

use crate::{
    event::Usage,
    format::model_api::fields::count,
    json::{Fields, Path, ReadResult},
};

pub(super) struct RunningUsage<'u> {
    pub(super) usage: &'u mut Usage,
    pub(super) model: Option<Box<str>>,
}

impl RunningUsage<'_> {
    pub(super) fn update(self, raw: &RawValue, path: Path<'_>) -> ReadResult {
        let Self { usage, model } = self;
        let mut fields = Fields::of(raw, path)?;
        // Anthropic counts the tokens of the cache separately; `input` is the total.
        let cached = usage.cached_input.unwrap_or(0) + usage.cache_write_input.unwrap_or(0);
        let plain = usage.input.map(|input| input.saturating_sub(cached));
        let plain = count(&mut fields, "input_tokens")?.or(plain);
        usage.cached_input = count(&mut fields, "cache_read_input_tokens")?.or(usage.cached_input);
        usage.cache_write_input =
            count(&mut fields, "cache_creation_input_tokens")?.or(usage.cache_write_input);
        usage.output = count(&mut fields, "output_tokens")?.or(usage.output);
        if let Some(raw) = fields.take_unless_null("output_tokens_details") {
            let mut details = Fields::of(raw, Path::Key(&path, "output_tokens_details"))?;
            usage.reasoning = count(&mut details, "thinking_tokens")?.or(usage.reasoning);
        }
        let cached = usage.cached_input.unwrap_or(0).saturating_add(usage.cache_write_input.unwrap_or(0));
        usage.input = plain.map(|plain| plain.saturating_add(cached));
        usage.total = usage.input.zip(usage.output).map(|(input, output)| input.saturating_add(output));
        usage.model = model.or(usage.model.take());
        Ok(())
    }
}
